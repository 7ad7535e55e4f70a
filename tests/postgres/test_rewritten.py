"""Answers across a rewritten column: another type, then more changes; PostgreSQL's own rows are the oracle.

`items`, `keyed` and `prices` have a key, which is rewritten in `keyed`; `bag` has none. The last changes are pending.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import auditlake
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.mcp_server import AnswerLimits, Tools
from tests import oracle
from tests.command import Done, capture_here, run_here
from tests.page import Page
from tests.proof_verifier import verify
from tests.s3_server import copy_lake
from tests.server import Server, execute

pytestmark = pytest.mark.pg

_TABLES = {"items": ("id", "a", "b", "c", "d"), "keyed": ("id", "v"), "bag": ("x", "y")}
_BEFORE = """
create table items (id int primary key, a int, b text, c int, d numeric(8,2))
insert into items select n, n, 'b' || n, n, n + 0.25 from generate_series(1, 60) n
create table keyed (id int primary key, v int)
insert into keyed select n, n from generate_series(1, 40) n
create table bag (x int, y text); alter table bag replica identity full
insert into bag select n % 3, 'y' from generate_series(1, 12) n
create table prices (id int primary key, price numeric, code char(3), stay interval)
insert into prices select n, n, n, n * interval '1 hour' from generate_series(1, 12) n
""".strip().splitlines()
_APPLIED = """
update items set a = a + 1 where id % 10 = 0
delete from keyed where id = 40
""".strip().splitlines()
_REWRITTEN = """
alter table items alter a type bigint, alter c type bigint using null, alter d type text using d::text
alter table items alter b type varchar(9)
update items set a = a + 1000 where id <= 20
alter table keyed alter id type bigint
update keyed set v = -v where id <= 5
delete from keyed where id = 39
alter table bag alter x type bigint
alter table prices alter price type text, alter stay type text, alter code type char(6)
delete from bag where x = 2
""".strip().splitlines()
_PENDING = """
update items set a = 5000000000, d = 'text' where id = 1
insert into items values (61, 61, 'new', null, 'new')
update keyed set v = 0 where id in (1, 6)
delete from keyed where id = 38
insert into keyed values (7000000000, 7)
insert into bag values (0, 'y'), (9, 'new')
""".strip().splitlines()

Row = tuple[str | None, ...]


@dataclass(frozen=True)
class Site:
    """A lake, and PostgreSQL's rows at two moments."""

    lake: Lake
    before: oracle.Moment
    after: oracle.Moment

    def run(self, *line: str) -> Done:
        """Run a command on the lake."""
        return run_here([*line, "--lake", self.lake.root])

    def expected(self, table: str) -> dict[str, dict[str, tuple[Row | None, Row | None]]]:
        """Return the rows of PostgreSQL that differ, by kind and key."""
        was, now = ({row[0]: row for row in moment.states[table]} for moment in (self.before, self.after))
        pairs = {str(key): (was.get(key), now.get(key)) for key in was.keys() | now.keys()}
        return {
            "removed": {key: pair for key, pair in pairs.items() if pair[1] is None},
            "modified": {key: pair for key, pair in pairs.items() if None not in pair and pair[0] != pair[1]},
            "added": {key: pair for key, pair in pairs.items() if pair[0] is None},
        }


@pytest.fixture(scope="module")
def site(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A lake that was followed through the rewriting; the changes after its new snapshots are captured only."""
    name, root = server.create_database(), tmp_path_factory.mktemp("rewritten") / "lake"
    dsn = server.dsn(name)
    settings = ["--source", dsn, "--lake", str(root)]
    execute(dsn, *_BEFORE)
    assert run_here(["bootstrap", *settings]).code == 0
    before = oracle.take_moment(dsn, list(_TABLES))
    execute(dsn, *_APPLIED)
    assert run_here(["follow", "--until-current", *settings]).code == 0
    execute(dsn, *_REWRITTEN)
    done = run_here(["follow", "--until-current", *settings])
    assert (done.code, done.stderr.count("is at its new snapshot")) == (0, 4), done.stderr
    execute(dsn, *_PENDING)
    after = oracle.take_moment(dsn, list(_TABLES))
    lake = Lake(root)
    assert capture_here(dsn, lake).code == 0
    yield Site(lake, before, after)
    server.drop_database(name)


@pytest.mark.parametrize("table", ["items", "keyed"])
def test_diff_compares_a_rewritten_column_with_itself(site: Site, table: str) -> None:
    """Values are compared by PostgreSQL's text, in the columns' order at both moments, in both directions."""
    names, expected = _TABLES[table], site.expected(table)
    moments = str(site.before.lsn), str(site.after.lsn)
    for way, (a, b) in {1: moments, -1: moments[::-1]}.items():
        found: dict[str, dict[str, Any]] = {"removed": {}, "modified": {}, "added": {}}
        for each in auditlake.Lake(site.lake.root).diff(a, b, tables=[table]):
            sides = (each.before_texts, each.after_texts)[::way]
            rows = tuple(None if side is None else tuple(side[name] for name in names) for side in sides)
            kind = each.kind if way == 1 or each.kind == "modified" else {"added": "removed"}.get(each.kind, "added")
            found[kind][str((each.before_texts or each.after_texts or {})["id"])] = rows
        assert found == expected
    (line,) = site.run("diff", *moments, table, "--stat", "--json").stdout.splitlines()
    stat = json.loads(line)
    counts = {kind: len(rows) for kind, rows in expected.items()}
    assert {kind: stat[kind] for kind in counts} == counts
    (shown,) = Page(site.lake).json("compare", before=moments[0], after=moments[1], table=table)["tables"]
    assert {kind: shown[kind] for kind in counts} == counts


def test_the_past_of_a_column_that_became_text_is_of_its_former_type(site: Site) -> None:
    """All of these are kept as text; only numbers are ordered as numbers, and only intervals compared as such."""
    greatest = "select max(price) as price from prices"
    for moment, expected in ((site.before, "12"), (site.after, "9")):
        done = site.run("sql", "--dialect", "postgres", "--as-of", str(moment.lsn), "--format", "csv", greatest)
        assert (done.code, done.stdout) == (0, f"price\n{expected}\n"), done.stderr
    for moment, expected in ((site.before, "1"), (site.after, "0")):
        equal = "select count(*) from prices where stay = '1 hour'"
        done = site.run("sql", "--dialect", "postgres", "--as-of", str(moment.lsn), "--format", "csv", equal)
        assert (done.code, done.stdout) == (0, f"count\n{expected}\n"), done.stderr


def test_a_char_of_another_length_was_padded_to_the_former(site: Site) -> None:
    """The blanks are not stored: they come from the type of the moment."""
    for moment, expected in ((site.before, "7  "), (site.after, "7     ")):
        line = ["sql", "--dialect", "postgres", "--as-of", str(moment.lsn), "--format", "csv"]
        done = site.run(*line, "select code from prices where id = 7")
        assert (done.code, done.stdout) == (0, f"code\n{expected}\n"), done.stderr


def test_types_of_a_rewritten_column_are_named(site: Site) -> None:
    """As PostgreSQL names them; values of both types are decoded."""
    done = site.run("diff", str(site.before.lsn), str(site.after.lsn), "items")
    assert "public.items: column a changed its type: integer → bigint" in done.stdout
    assert "public.items: column b changed its type: text → character varying(9)" in done.stdout
    assert "public.items: column d changed its type: numeric(8,2) → text" in done.stdout
    assert "  a: 1 → 5000000000" in done.stdout
    differences = auditlake.Lake(site.lake.root).diff(str(site.before.lsn), str(site.after.lsn), tables=["items"])
    (first,) = [each for each in differences if each.key == {"id": 1}]
    assert first.before is not None
    assert first.after is not None
    assert (first.before["d"], first.after["d"]) == (Decimal("1.25"), "text")
    found = Tools(auditlake.Lake(site.lake.root), AnswerLimits(1000)).diff(str(site.before.lsn), tables=["items"])
    rows = [each for each in found["found"] if each["diff"] != "schema"]
    assert len(rows) == sum(map(len, site.expected("items").values()))


def test_diff_of_a_table_without_a_key_counts_rows_of_a_rewritten_column(site: Site) -> None:
    """A copy that is the same under both types is neither added nor removed."""
    was, now = (moment.states["bag"] for moment in (site.before, site.after))
    found = auditlake.Lake(site.lake.root).diff(str(site.before.lsn), str(site.after.lsn), tables=["bag"])
    kinds: dict[str, Counter[Row]] = {"added": Counter(), "removed": Counter()}
    for each in found:
        kinds[each.kind][tuple((each.before_texts or each.after_texts or {}).values())] += 1
    assert kinds == {"added": now - was, "removed": was - now}


def test_history_of_a_row_continues_across_a_rewritten_column(site: Site) -> None:
    """The new snapshot shows what differs from the value before, under whatever type."""
    lake = auditlake.Lake(site.lake.root)
    events = [(each.op, each.before_texts, each.after_texts) for each in lake.row("items", 10)]
    ops, befores, afters = zip(*events, strict=True)
    assert ops == ("resync", "update", "snapshot")
    assert [row and row["a"] for row in afters] == ["1011", "11", "10"]
    assert befores[0] is not None
    assert (befores[0]["a"], befores[0]["c"]) == ("11", "10")
    (resync, *_) = lake.row("items", 10)
    assert resync.before is not None
    assert (resync.before["d"], resync.changed) == (Decimal("10.25"), ("a", "c"))
    assert [each.op for each in lake.row("keyed", 1)] == ["update", "resync", "snapshot"]
    assert [each.op for each in lake.row("keyed", 20)][-1] == "snapshot"
    before = str(site.before.lsn)
    assert {each.gap is None for each in lake.blame("items", 30, as_of=before)} == {True}
    assert {(each.commit.lsn, each.gap is None) for each in lake.blame("items", 30)} == {(None, False)}
    last = lake.row("items", 1)[0].commit.lsn
    blamed = {each.column: (each.commit.lsn, each.gap is None) for each in lake.blame("items", 1)}
    assert blamed == dict.fromkeys("ad", (last, True)) | dict.fromkeys(("id", "b", "c"), (None, False))


def test_deleted_rows_are_found_across_a_rewritten_key(site: Site) -> None:
    """Rows that exist under the new type are not deleted."""
    found = auditlake.Lake(site.lake.root).deleted("keyed")
    assert [(each.key["id"], each.op) for each in found] == [(38, "delete"), (39, "resync"), (40, "delete")]


def test_log_of_a_column_is_of_all_its_types(site: Site) -> None:
    """Transactions before the rewriting and after it; those in the gap are not known."""
    found = site.run("log", "--table", "items", "--column", "a", "--json")
    assert [json.loads(line)["updates"] for line in found.stdout.splitlines()] == [1, 6], found


def test_show_has_every_change_of_every_transaction(site: Site) -> None:
    """Also of one inside the gap, of which the lake does not know the rows before."""
    sql = "select lsn, count(*) as n from auditlake.changes where op <> 'message' group by lsn"
    counted = {
        row["lsn"]: row["n"] for row in map(json.loads, site.run("sql", sql, "--format", "json").stdout.splitlines())
    }
    assert len(counted) > 10
    for lsn, count in counted.items():
        done = site.run("show", str(Lsn(int(lsn))), "--json")
        assert (done.code, done.stdout.count('"ordinal"')) == (0, count), (lsn, done)
        assert site.run("show", str(Lsn(int(lsn)))).code == 0


def test_a_row_with_a_rewritten_key_is_proved_in_each_copy(site: Site, tmp_path: Path) -> None:
    """Its versions of the first copy are under the former type of the key, those of the new snapshot under this one."""
    lake = copy_lake(site.lake, tmp_path / "sealed")
    assert run_here(["seal", "--lake", lake.root]).code == 0
    expected = {1: (2, 1, 1), 7: (2, 1, 0), 38: (2, 1, 1), 39: (1, 1, 0), 40: (1, 0, 1)}
    for key, counts in expected.items():
        done = run_here(["prove", "keyed", str(key), "--lake", lake.root])
        assert done.code == 0, done
        found = Counter(record[1] for record in verify(json.loads(done.stdout), None))
        assert (found["row"], found["ended"], found["change"]) == counts, key


def test_log_of_a_column_across_a_gap_with_a_changed_key(database: str, tmp_path: Path) -> None:
    """The transactions of which the rows before are known, and a notice of the gap."""
    execute(
        database, "create table t (id int primary key, n int, v text)", "insert into t values (1, 1, 'a'), (2, 2, 'a')"
    )
    both: list[str | Path] = ["--source", database, "--lake", tmp_path / "lake", "--slot", "moved"]
    assert run_here(["bootstrap", *both]).code == 0
    execute(database, "update t set v = 'b' where id = 1")
    assert run_here(["follow", "--until-current", *both]).code == 0
    execute(
        database,
        "alter table t alter n type text using 'n' || n",
        "update t set id = 101, v = 'c' where id = 1",
        "update t set id = 102 where id = 2",
    )
    assert run_here(["follow", "--until-current", *both]).code == 0
    execute(database, "update t set id = 1, v = 'd' where id = 101", "update t set v = 'd' where id = 102")
    assert run_here(["follow", "--until-current", *both]).code == 0
    done = run_here(["log", "--table", "t", "--column", "v", "--json", "--lake", tmp_path / "lake"])
    assert (done.code, len(done.stdout.splitlines())) == (0, 3), done
    assert "public.t is not known between" in done.stderr


def test_undo_script_is_refused_across_a_rewritten_column(site: Site) -> None:
    """The target has other columns than the rows to restore."""
    done = site.run("diff", str(site.before.lsn), str(site.after.lsn), "items", "--format", "sql", "-R")
    assert done.code == 7
    assert "columns of public.items differ between the two moments" in done.stderr


def test_undo_script_is_refused_across_a_column_that_took_the_name_of_another(database: str, tmp_path: Path) -> None:
    """Rows whose values of it went with the former column do not differ; also in a table without a key."""
    lake = Lake(tmp_path / "lake")
    execute(database, "create table t (id int primary key, a text)", "create table h (id int, a text)")
    execute(database, "alter table h replica identity full")
    execute(database, *(f"insert into {table} select n, 'a' || n from generate_series(1, 3) n" for table in "th"))
    both: list[str | Path] = ["--source", database, "--lake", lake.root, "--slot", "undo"]
    assert run_here(["bootstrap", *both]).code == 0
    positions = read_positions(lake)
    assert positions is not None
    before = str(positions.watermark)
    for table in "th":
        execute(database, f"alter table {table} drop a, add a text; update {table} set id = 4 where id = 1")
    assert run_here(["follow", "--until-current", "--engine", "duckdb", *both]).code == 0
    for line in (["t"], ["t", "-R"], ["h"], ["h", "-R"]):
        done = run_here(["diff", before, "now", *line, "--format", "sql", "--lake", lake.root])
        assert (done.code, done.stdout) == (7, "")
        assert f"the columns of public.{line[0]} differ between the two moments" in done.stderr


def test_a_new_snapshot_that_nobody_asked_for_removes_no_damaged_file(database: str, tmp_path: Path) -> None:
    """Its closed versions are nowhere else, and a backup may have it."""
    both: list[str | Path] = ["--source", database, "--lake", tmp_path / "lake", "--slot", "other"]
    follow: list[str | Path] = ["follow", "--until-current", "--engine", "duckdb", *both]
    execute(database, 'create table "a t" (id int primary key, v int)', 'insert into "a t" values (1, 1)')
    assert run_here(["bootstrap", *both]).code == 0
    execute(database, 'update "a t" set v = 2')
    assert run_here(follow).code == 0
    (closed,) = (tmp_path / "lake" / "history" / "public").glob("*/_part=2*/*.parquet")
    whole = closed.read_bytes()
    closed.write_bytes(whole[:-1])
    execute(database, "alter table \"a t\" alter v type text using 'x' || v")
    refused = run_here(follow)
    assert refused.code == 6
    assert f"damaged data files: 1, such as {closed.name}" in refused.stderr
    assert "auditlake resync --table 'public.\"a t\"'.\n" in refused.stderr
    hold: list[str | Path] = ["--reason", "r", "--lake", tmp_path / "lake"]
    assert run_here(["hold", "add", "case", "--table", "*.*", "--by", "b", *hold]).code == 0
    resync: list[str | Path] = ["resync", "--table", 'public."a t"', "--engine", "duckdb", *both]
    held = run_here(resync)
    assert (held.code, "is held by case" in held.stderr, closed.name in held.stderr) == (3, True, True), held
    closed.write_bytes(whole)
    assert run_here(follow).code == 0
    assert "v: 1 → 2" in run_here(["row", '"a t"', "1", *both[2:]]).stdout
