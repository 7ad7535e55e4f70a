"""Every question over tables whose columns have the names that engines and the lake use themselves. No JVM.

Two tables with the same columns, one so large that the page holds it in memory; the last changes are not applied.
PostgreSQL's rows are the oracle.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import auditlake
from auditlake.lake.layout import Lake
from auditlake.mcp_server import AnswerLimits, Tools
from auditlake.sql_names import spark_identifier, standard_identifier
from tests import oracle
from tests.command import Done, capture_here, run_here
from tests.page import Page
from tests.server import Server, execute

pytestmark = pytest.mark.pg

_NAMES = (
    # DuckDB, DataFusion, Spark, Delta
    *(
        "rowid",
        "filename",
        "file_row_num",
        "row",
        "file",
        "n",
        "h",
        "f",
        "g",
        "m",
        "x",
        "v",
        "r",
        "k0",
        "r0",
        "c0",
        "i",
        "j",
    ),
    *("input_file_name", "_metadata", "_rescued_data", "_change_type", "_commit_version", "_row_id", "__index"),
    # the lake
    *("_raw", "_part", "_op", "_from_lsn", "_to_lsn", "_from_time", "_xid", "_end_op", "_ordinal", "~5fpart", "a~2"),
    *(
        "lsn",
        "ordinal",
        "old",
        "new",
        "op",
        "relation",
        "unchanged",
        "missing",
        "time_us",
        "v:id",
        "dead",
        "key",
        "changed",
    ),
    # answers and filters
    *("value", "values", "table", "kind", "count", "where", "-id", "a:is:b", "id=1", "select", "order", "null"),
    # any characters
    *(
        "Upper",
        "UPPER",
        "with space",
        "dot.ted",
        'quo"te',
        "apo'strophe",
        "back\\slash",
        "tick`",
        "😀",
        "%s",
        "{0}",
        "?",
    ),
)
_LARGE = 20_500
_IN_LARGE = ("rowid", "file", "k0", "n", "_raw", "_part", "a:is:b", 'quo"te')
"""The names by which the large table is filtered: each question reads all of it."""


@dataclass(frozen=True)
class Site:
    """A lake with the tables `small` and `large`, before and after their last changes."""

    lake: Lake
    before: oracle.Moment
    after: oracle.Moment

    def run(self, *line: str) -> Done:
        """Run a command that succeeds."""
        done = run_here([*line, "--lake", self.lake.root])
        assert done.code == 0, (line, done.stderr)
        return done


@pytest.fixture(scope="module")
def site(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A lake of which one update is applied, and another one captured."""
    name, root = server.create_database(), tmp_path_factory.mktemp("names") / "lake"
    dsn, settings = server.dsn(name), ["--source", server.dsn(name), "--lake", str(root)]
    columns = ", ".join(f"{standard_identifier(each)} text" for each in _NAMES)
    values = ", ".join(f"'{n}-' || i % 100" for n in range(len(_NAMES)))
    for table, rows in (("small", 9), ("large", _LARGE)):
        execute(dsn, f"create table {table} (id int primary key, {columns})")
        execute(dsn, f"insert into {table} select i, {values} from generate_series(1, {rows}) i")
    assert run_here(["bootstrap", *settings]).code == 0
    before = oracle.take_moment(dsn, ["small", "large"])
    for key, marker in ((1, "applied"), (2, "pending")):
        cells = ", ".join(f"{standard_identifier(each)} = '{marker}'" for each in _NAMES)
        execute(dsn, *(f"update {table} set {cells} where id = {key}" for table in ("small", "large")))
        if marker == "applied":
            assert run_here(["follow", "--until-current", *settings]).code == 0
    execute(dsn, "delete from small where id = 3", "delete from large where id = 3")
    after, lake = oracle.take_moment(dsn, ["small", "large"]), Lake(root)
    assert capture_here(dsn, lake).code == 0
    yield Site(lake, before, after)
    server.drop_database(name)


@pytest.mark.parametrize("table", ["small", "large"])
def test_states_and_histories_have_every_name(site: Site, table: str) -> None:
    """In Python, MCP and the commands."""
    lake, names = auditlake.Lake(site.lake.root), ["id", *_NAMES]
    for moment in (site.before, site.after):
        rows = list(lake.as_of(str(moment.lsn)).table(table).texts())
        assert {tuple(row[name] for name in names) for row in rows} == set(moment.states[table])
        for name in _NAMES if table == "small" else _IN_LARGE:
            (row,) = lake.as_of(str(moment.lsn)).table(table, where=[("id", "=", 4)], columns=[name], order_by=[name])
            assert list(row) == [name]
    updates = [each for key in (1, 2) for each in lake.row(table, key) if each.op == "update"]
    assert [each.changed for each in updates] == [_NAMES, _NAMES]
    assert {each.column for each in lake.blame(table, 1)} == set(names)
    (deleted,) = lake.deleted(table)
    assert set(deleted.row) == set(names)
    differences = lake.diff(str(site.before.lsn), str(site.after.lsn), tables=[table])
    assert sorted((each.kind, each.key["id"], len(each.changed)) for each in differences) == [
        ("modified", 1, len(_NAMES)),
        ("modified", 2, len(_NAMES)),
        ("removed", 3, len(names)),
    ]
    for name in _NAMES:
        assert len(lake.log(table=table, column=name)) == 2, name
    tools = Tools(lake, AnswerLimits(100))
    assert set(tools.rows(table, where=[("id", "=", "1")])["found"][0]) == set(names)
    assert len(tools.diff(str(site.before.lsn), tables=[table])["found"]) == 3
    assert len(list(lake.changes("beginning", tables=[table], follow=False))) == 3


@pytest.mark.parametrize("table", ["small", "large"])
def test_every_command_prints_every_name(site: Site, table: str) -> None:
    """Also as SQL and JSON, and live views of every engine."""
    for line in (
        ["row", table, "1"],
        ["blame", table, "2"],
        ["deleted", table],
        ["log", "--changes", "--table", table],
        ["diff", str(site.before.lsn), table],
        ["diff", str(site.before.lsn), table, "--json"],
        ["diff", str(site.before.lsn), table, "--format", "sql", "-R"],
    ):
        assert site.run(*line).stdout, line


@pytest.mark.parametrize("table", ["small", "large"])
def test_statements_show_the_names_of_the_source(site: Site, table: str) -> None:
    """In DuckDB, for Spark's dialect; names that differ only in case, or have a backtick, are escaped."""
    in_duckdb = ("--dialect", "spark", "--engine", "duckdb", "--format", "json")
    escaped = {"Upper": "~55pper", "UPPER": "~55~50~50~45~52", "tick`": "tick~60"}
    shown = [escaped.get(name, name) for name in _NAMES]
    done = site.run("sql", *in_duckdb, f"select * from {table} where id = 2")
    assert list(json.loads(done.stdout)) == ["id", *shown]
    chosen = ", ".join(spark_identifier(name) for name in shown)
    done = site.run("sql", *in_duckdb, f"select {chosen} from {table} where id = 1")
    assert set(json.loads(done.stdout).values()) == {"applied"}


@pytest.mark.parametrize("table", ["small", "large"])
def test_the_page_filters_sorts_and_finds_by_every_name(site: Site, table: str) -> None:
    """From the files, and then from what the page holds in memory."""
    page = Page(site.lake)
    for names in (_NAMES,) if table == "small" else (_IN_LARGE, _IN_LARGE):
        for name in names:
            n = _NAMES.index(name)
            rows = page.json("rows", table=table, where=f"{name}:is:{n}-4", sort=name, limit=1)
            assert rows["rows"][0]["key"] == ["4"], name
            assert page.json("facets", table=table, column=name, where="id:is:2")["values"][0]["value"] == "pending"
            (found,) = page.json("find", table=table, value="applied", column=name)["found"]
            assert (found["key"], found["columns"]) == (["1"], [name])
        assert page.json("rows", table=table, offset=3, limit=2)["rows"][0]["key"] == ["5"]
        page.resources.held.wait()
    shown = page.json("compare", before=str(site.before.lsn), after=str(site.after.lsn), table=table)["tables"]
    assert (shown[0]["modified"], shown[0]["removed"]) == (2, 1)
    history = page.json("row", table=table, key="1")
    assert len(history["events"][0]["changed"]) == len(_NAMES)
