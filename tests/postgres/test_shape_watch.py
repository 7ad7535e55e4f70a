"""Schema changes without rows after them: capture finds them in the catalog, or learns them from the DDL trigger."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import auditlake
from auditlake.capture import shape_watch
from auditlake.capture.change_log import CaptureLog
from auditlake.capture.ddl_recorder import DdlRecorder
from auditlake.capture.partition_watch import HeldUpTo
from auditlake.capture.shape_watch import ShapeWatch, record_shapes
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Cause, Parked, find_parked, park
from auditlake.lake.records import write_shape
from auditlake.lake.relations import RelationVersion, ShapeSource, read_versions
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.source.catalog import read_shapes
from auditlake.source.connection import connect
from auditlake.source.ddl_trigger import read_ddl_trigger
from auditlake.source.server import wal_end
from auditlake.store import files
from auditlake.temporal.moments import read_known
from auditlake.temporal.when import AtLsn, AtNow
from tests import command, oracle
from tests.capture_lake import make_lake
from tests.postgres.test_ddl_trigger import BREAKS
from tests.running import Running, await_true
from tests.s3_server import chosen_lake
from tests.server import execute, install_trigger, oid_of
from tests.server import wal_end as insert_position

pytestmark = pytest.mark.pg

_T = TableName("public", "t")
_SCHEMA = (
    "create type mood as enum ('sad', 'ok')",
    "create table t (id int primary key, a varchar(100), n int, m mood)",
    "create table u (id int primary key)",
    "create table w (id int primary key, a int, b int)",
)
_SHAPE = [(1, "id"), (2, "a"), (3, "n"), (4, "m")]

DEFINITIONS = {
    "column added": ("alter table t add b int default 7", [*_SHAPE, (5, "b")]),
    "column renamed": ("alter table t rename a to z", [(1, "id"), (2, "z"), *_SHAPE[2:]]),
    "column dropped and added": ("alter table t drop a, add a text", [_SHAPE[0], *_SHAPE[2:], (5, "a")]),
}
ROWS = {
    "type": ("alter table t alter n type bigint using n * 2", "rewritten for the new type of column n"),
    "type in the same file": ("alter table t alter n type oid", "another text for the new type of column n"),
    "key": ("alter table t drop id, add id int", "a column of its key was dropped, and it has no other"),
    "volatile default": ("alter table t add b float default random()", "b was added with a value of its own"),
    "type and back": (
        "alter table t alter n type bigint using n * 2; alter table t alter n type int",
        "rows rewritten",
    ),
    "enum label": ("alter type mood rename value 'sad' to 'low'", "an enum label"),
}
# Table, changes up to the moment asked for, and those after it; all of them before the next comparison.
THERE_AND_BACK = {
    "column added and dropped": ("w", ["alter table w add x int"], ["alter table w drop x"]),
    "column renamed": ("w", ["alter table w rename a to z"], ["alter table w rename z to a"]),
    "table renamed": ("w", ["alter table w rename to x"], ["alter table x rename to w"]),
    "schema": ("w", ["create schema s", "alter table w set schema s"], ["alter table s.w set schema {}"]),
    "schema renamed": (
        "w",
        ["alter schema {} rename to elsewhere", "create schema {0}", "create table {0}.u (id int)"],
        ["drop schema {} cascade", "alter schema elsewhere rename to {}"],
    ),
    "column renamed, a row in the same shape, another column": (
        "w",
        ["alter table w rename a to z"],
        [
            "alter table w rename z to a",
            "insert into w values (2, 2, 2)",
            "alter table w add x int",
            "insert into w values (3)",
        ],
    ),
    "rows rewritten, a row in the same shape, another column": (
        "w",
        ["alter table w alter a type int using a * 2"],
        ["insert into w values (2, 2, 2)", "alter table w add x int", "insert into w values (3)"],
    ),
    "label renamed, a row in the same shape, another column": (
        "t",
        ["alter type mood rename value 'sad' to 'low'"],
        ["insert into t values (2, 'x', 5, 'ok')", "alter table t add b int", "insert into t values (3)"],
    ),
}
HARMLESS = (
    "truncate t",
    "vacuum full t",
    "cluster t using t_pkey",
    "alter type mood add value 'good'",
    "begin; alter table t drop a; rollback",
    "grant usage on schema public to public; alter schema public owner to current_user",
    "grant select on t to public; analyze t; alter table t set (fillfactor = 50); create index on t (a)",
)


@dataclass(frozen=True)
class Site:
    """A database, and a lake that has captured a row of each table; the tables are in one of its schemas."""

    dsn: str
    lake: Lake
    schema: str = "public"

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        execute(self.dsn, *statements)

    def capture(self) -> str:
        """Capture what was committed; return what was reported."""
        done = command.capture_here(self.dsn, self.lake)
        assert done.code == 0, done.stderr
        return done.stderr

    def versions(self) -> list[RelationVersion]:
        """Return the versions of `t`, under whatever name."""
        versions = [(version.relation.name, version) for version in read_versions(self.lake)]
        return [version for name, version in versions if name.schema == self.schema and name.table != "u"]

    def end(self) -> Lsn:
        """Return the end of the log: every commit so far starts before it, but may end after it, on the next page."""
        with connect(self.dsn) as conn:
            return wal_end(conn).lsn

    def parked(self, cause: Cause) -> Lsn | None:
        """Return the LSN up to which `t` is known for this cause."""
        parked = find_parked(self.lake, TableName(self.schema, "t"), cause)
        return parked.lsn if parked else None

    def refusal(self, lsn: Lsn | None = None) -> str:
        """Return the error for `t` as of an LSN, or now; empty if it can be answered."""
        known = read_known(self.lake)
        try:
            known.timeline(known.tables[TableName(self.schema, "t")]).require(
                (lsn or known.now_lsn, AtLsn(lsn) if lsn else AtNow())
            )
        except NotAnswerable as refused:
            return refused.message
        return ""


@pytest.fixture
def site(database: str, tmp_path: Path) -> Site:
    """Make the lake, and capture a row of each table."""
    with psycopg.connect(database, autocommit=True) as conn:
        for statement in _SCHEMA:
            conn.execute(statement)
    site = Site(database, make_lake(database, tmp_path / "lake"))
    site.execute("insert into t values (1, 'x', 5, 'sad')", "insert into u values (1)")
    site.capture()
    return site


def _sites(dsn: str, root: Path, kinds: Iterable[str]) -> dict[str, Site]:
    """Make the same tables in a schema for each kind of change, and one lake of all of them."""
    schemas = {kind: f"k{number}" for number, kind in enumerate(kinds)}
    within = {kind: make_conninfo(dsn, options=f"-c search_path={schema}") for kind, schema in schemas.items()}
    for kind, schema in schemas.items():
        execute(within[kind], f"create schema {schema}", *_SCHEMA)
    lake = make_lake(dsn, root)
    sites = {kind: Site(within[kind], lake, schema) for kind, schema in schemas.items()}
    for site in sites.values():
        site.execute("insert into t values (1, 'x', 5, 'sad')", "insert into u values (1)")
    Site(dsn, lake).capture()
    return sites


def columns(version: RelationVersion) -> Sequence[tuple[int | None, str]]:
    """Return numbers and names of a version's columns."""
    return [(column.attnum, column.name) for column in version.relation.columns]


def test_a_changed_definition_is_recorded_with_its_uncertain_range(database: str, tmp_path: Path) -> None:
    """Without the trigger and without a row: not before the last durable commit, and in force once it was seen."""
    sites = _sites(database, tmp_path / "lake", DEFINITIONS)
    (site, *_) = sites.values()
    before = insert_position(site.dsn)
    for kind, changed in sites.items():
        changed.execute(DEFINITIONS[kind][0])
    committed = site.end()
    site.capture()
    for kind, changed in sites.items():
        version = changed.versions()[-1]
        assert (version.source, columns(version)) == (ShapeSource.CATALOG, DEFINITIONS[kind][1])
        assert version.after_lsn is not None
        assert version.after_lsn < before < committed <= version.lsn + 1
        assert changed.refusal() == ""
    site.capture()
    assert [len(changed.versions()) for changed in sites.values()] == [2] * len(sites)


@pytest.mark.parametrize("statement", ["alter table t rename a to z", "comment on table t is 'as before'"])
def test_a_difference_that_a_killed_capture_saw_is_uncertain_since_then(site: Site, statement: str) -> None:
    """Later commits became durable before the kill; the table has changed since, or was changed back meanwhile."""
    seen = Lsn(site.end() - 1)
    site.execute("insert into u values (2)")
    site.capture()
    between = Lsn(site.end() - 1)
    park(site.lake, Parked(_T, Cause.PENDING, Lsn(seen - 1), between, "a changed definition", "none", time_us=1))
    site.execute(statement, "insert into u values (3)")
    site.capture()
    site.execute("insert into u values (4)")
    site.capture()
    assert site.parked(Cause.PENDING) is None
    lake = auditlake.Lake(site.lake.root)
    with pytest.raises(NotAnswerable, match="its shape in between is not known"):
        lake.as_of(str(between)).table("t")
    assert [len(list(lake.as_of(at).table("t").texts())) for at in (str(Lsn(seen - 1)), "now")] == [1, 1]


@pytest.mark.parametrize("with_trigger", [False, True])
def test_a_difference_that_a_killed_capture_saw_of_a_table_dropped_since(site: Site, *, with_trigger: bool) -> None:
    """It is uncertain up to the drop, unless the trigger has reported it; nothing waits for it for ever."""
    if with_trigger:
        install_trigger(site.dsn)
    site.execute("insert into t values (2)")
    site.capture()
    seen = site.end()
    site.execute("alter table t rename a to z", "insert into u values (3)")
    site.capture()
    between = read_known(site.lake).positions.watermark
    park(site.lake, Parked(_T, Cause.PENDING, Lsn(seen - 1), between, "a changed definition", "none", time_us=1))
    site.execute("drop table t", "insert into u values (5)")
    site.capture()
    assert site.parked(Cause.PENDING) is None
    assert "dropped" in site.refusal()
    lake = auditlake.Lake(site.lake.root)
    with pytest.raises(BadUsage, match="there is no table v"):
        lake.as_of(str(between)).table("v")
    assert len(list(lake.as_of(str(Lsn(seen - 1))).table("t").texts())) == 2
    if with_trigger:
        assert tuple(lake.as_of(str(between)).table("t").to_arrow().column_names) == ("id", "z", "n", "m")
    else:
        with pytest.raises(NotAnswerable, match="its definition was changed before it was dropped"):
            lake.as_of(str(between)).table("t")


def test_a_row_before_the_change_in_its_transaction_proves_nothing(site: Site) -> None:
    """The stream sends the row in the former shape, and the commit has the new one; a later row shows it."""
    site.execute("begin; update t set n = 6; alter table t rename a to z; commit")
    site.execute("insert into u values (2)", "update t set n = 7")
    site.capture()
    lake = auditlake.Lake(site.lake.root)
    changed = sorted(transaction.lsn for transaction in lake.log())[-3]
    with pytest.raises(NotAnswerable, match="its shape in between is not known"):
        lake.as_of(str(changed)).table("t")
    assert list(lake.as_of().table("t").texts()) == [{"id": "1", "z": "x", "n": "7", "m": "sad"}]


def test_a_first_row_in_the_former_shape_does_not_end_the_uncertain_range(site: Site) -> None:
    """A Relation message before the change, in its transaction, is the first version without earlier rows."""
    site.execute("begin; insert into w values (1, 4, 3); alter table w rename a to z; commit")
    changed = Lsn(site.end() - 1)
    site.execute("insert into u values (2)")
    site.capture()
    site.execute("insert into u values (3)")
    site.capture()
    lake = auditlake.Lake(site.lake.root)
    with pytest.raises(NotAnswerable, match="its shape in between is not known"):
        lake.as_of(str(changed)).table("w")
    assert list(lake.as_of().table("w").texts()) == [{"id": "1", "z": "4", "b": "3"}]


def test_each_of_two_changes_has_a_range_that_rows_limit(site: Site) -> None:
    """Rows in the second shape prove it until the next change; one in the same transaction, up to that commit."""
    site.execute("alter table w add x int", "insert into w values (1, 1, 1, 1)")
    after_first = Lsn(site.end() - 1)
    site.execute("begin; insert into w values (2); alter table w add y int; insert into w values (3); commit")
    exact = Lsn(site.end() - 1)
    site.execute("alter table w add z int", "insert into u values (2)")
    unknown = Lsn(site.end() - 1)
    site.execute("insert into w values (4)")
    site.capture()
    lake = auditlake.Lake(site.lake.root)
    found = [next(iter(lake.as_of(str(at)).table("w").texts())) for at in (after_first, "now")]
    row = {"id": "1", "a": "1", "b": "1", "x": "1"}
    assert found == [row, row | {"y": None, "z": None}]
    for lsn in (exact, unknown):  # at the former, the transaction may have added `z` after its row
        with pytest.raises(NotAnswerable, match="its shape in between is not known"):
            lake.as_of(str(lsn)).table("w")


def test_a_change_that_the_next_comparison_cannot_tell_is_not_answered(database: str, tmp_path: Path) -> None:
    """Rows in the former shape prove nothing of a moment before them; after the comparison questions are answered."""
    sites = _sites(database, tmp_path / "lake", THERE_AND_BACK)
    (site, *_) = sites.values()
    for changed in sites.values():
        changed.execute("insert into w values (1, 1, 1)")
    before = Lsn(site.end() - 1)
    site.capture()
    between = {}
    for kind, changed in sites.items():
        _, first, then = THERE_AND_BACK[kind]
        changed.execute(*(statement.format(changed.schema) for statement in first), "insert into u values (2)")
        between[kind] = Lsn(changed.end() - 1)
        changed.execute(*(statement.format(changed.schema) for statement in then))
    site.capture()
    lake = auditlake.Lake(site.lake.root)
    tables = {kind: TableName(changed.schema, THERE_AND_BACK[kind][0]) for kind, changed in sites.items()}
    for kind, table in tables.items():
        assert len(list(lake.as_of(str(before)).table(str(table)).texts())) == 1
        with pytest.raises(NotAnswerable):
            lake.as_of(str(between[kind])).table(str(table))
    site.execute("insert into u values (3)")
    site.capture()
    answered = [table for table in tables.values() if find_parked(site.lake, table, Cause.SHAPE) is None]
    assert answered
    for table in answered:
        assert "a" in next(iter(lake.as_of("now").table(str(table)).texts()))


def test_rows_that_changed_without_messages_park_the_table(database: str, tmp_path: Path) -> None:
    """It is known up to the last commit before the change, and not now, even if rows follow."""
    sites = _sites(database, tmp_path / "lake", ROWS)
    (site, *_) = sites.values()
    before = insert_position(site.dsn)
    for kind, changed in sites.items():
        changed.execute(ROWS[kind][0], "insert into t (id, n) values (2, 2)")
    said = site.capture().splitlines()
    for kind, changed in sites.items():
        reason = ROWS[kind][1]
        assert any(f"{changed.schema}.t" in line and reason in line for line in said), kind
        parked = changed.parked(Cause.SHAPE)
        assert parked is not None
        assert parked < before
        assert reason in changed.refusal()
        assert changed.refusal(parked) == ""


@pytest.mark.parametrize("with_trigger", [True, False])
def test_a_key_that_changes_under_replica_identity_full_parks_the_table(site: Site, *, with_trigger: bool) -> None:
    """The stream flags every column as key then, so that it does not show that the former key may be ambiguous."""
    if with_trigger:
        install_trigger(site.dsn)
    site.execute("alter table t replica identity full", "insert into t values (2, 'b')")
    site.capture()
    before = site.end()
    site.execute("alter table t drop constraint t_pkey", "insert into t values (2, 'c')")
    site.capture()
    assert "REPLICA IDENTITY FULL" in site.refusal()
    assert site.refusal(Lsn(before - 1)) == ""
    lake = auditlake.Lake(site.lake.root)
    rows = lake.as_of(str(Lsn(before - 1))).table("t", columns=["id", "a"], where=[("id", "=", 2)])
    assert list(rows.texts()) == [{"id": "2", "a": "b"}]
    with pytest.raises(NotAnswerable):
        lake.as_of().table("t")


def test_new_files_and_entries_alone_change_nothing(site: Site) -> None:
    """A listed table cannot have been unlogged, so its rows are those of the stream."""
    for statement in HARMLESS:
        site.execute(*statement.split("; ")) if "begin" not in statement else site.execute(statement)
        site.capture()
        assert (len(site.versions()), site.refusal(), site.parked(Cause.PENDING)) == (1, "", None), statement


def test_the_trigger_makes_every_change_exact(site: Site) -> None:
    """Also several in one transaction, with rows between them, and a change without a row."""
    install_trigger(site.dsn)
    site.execute(
        "begin; insert into t values (2); alter table t rename a to b; insert into t values (3);"
        " alter table t drop b; alter table t add a int; insert into t values (4); commit",
        "alter table t rename n to o",
    )
    site.capture()
    versions = [version for version in site.versions() if version.source is ShapeSource.DDL_TRIGGER]
    shapes = [
        [(1, "id"), (2, "b"), *_SHAPE[2:]],
        [(1, "id"), *_SHAPE[2:]],
        [(1, "id"), *_SHAPE[2:], (5, "a")],
        [(1, "id"), (3, "o"), (4, "m"), (5, "a")],
    ]
    assert [columns(version) for version in versions] == shapes
    assert {version.after_lsn for version in versions} == {None}
    numbers = {row["new"][0]: row["relation"] for row in oracle.changes(site.lake) if row["table"] == "t"}
    by_number = {version.number: columns(version) for version in site.versions()}
    assert [by_number[numbers[key]] for key in ("2", "3", "4")] == [_SHAPE, shapes[0], shapes[2]]
    assert site.refusal() == ""


def test_columns_that_are_added_and_renamed_in_one_transaction_keep_their_missing_values(site: Site) -> None:
    """Two new columns exchange their names; a third gets another one. Older rows show the value of each."""
    install_trigger(site.dsn)
    site.execute(
        "insert into w values (1, 1, 1)",
        """begin; alter table w add x int default 6, add y int default 7, add v int default 8;
        alter table w rename x to z; alter table w rename y to x; alter table w rename z to y;
        alter table w rename v to u; commit""",
        "insert into w values (2, 2, 2, 3, 4, 5)",
    )
    site.capture()
    shown = {"id": "1", "a": "1", "b": "1", "y": "6", "x": "7", "u": "8"}
    assert next(iter(auditlake.Lake(site.lake.root).as_of("now").table("w").texts())) == shown


def test_a_column_that_was_added_renamed_and_added_again_is_not_taken_for_another(site: Site) -> None:
    """Without the trigger, before capture looks: the table is parked, and nothing is answered from a wrong column."""
    site.execute(
        "insert into w values (1, 1, 1)",
        "alter table w drop a; alter table w add a text",
        "update w set a = 'second'",
        "alter table w rename a to q; alter table w add a text",
        "update w set q = 'renamed', a = 'third'",
    )
    site.capture()
    numbered = [columns(each) for each in site.versions() if each.relation.name.table == "w"]
    assert numbered[-2:] == [[(1, "id"), (3, "b"), (4, "a")], [(1, "id"), (3, "b"), (4, "q"), (5, "a")]]
    for question in (["blame", "w", "1"], ["log", "--table", "w", "--column", "a"], ["sql", "select * from w"]):
        refused = command.run_here([question[0], "--lake", site.lake.root, *question[1:]])
        assert refused.code == 7, (question, refused)


def test_a_rewrite_that_the_trigger_reports_parks_at_its_commit(site: Site) -> None:
    """Everything before that commit can be answered."""
    install_trigger(site.dsn)
    site.execute("insert into t values (2, 'y', 6)")
    site.execute("alter table t alter n type bigint using n * 2")
    site.capture()
    (altered,) = [version.lsn for version in site.versions() if version.command == "ALTER TABLE"]
    assert site.parked(Cause.DDL) == altered - 1
    assert site.refusal(Lsn(altered - 1)) == ""
    assert "was rewritten by ALTER TABLE" in site.refusal()


def test_a_dropped_table_ends_at_the_commit_that_the_trigger_reports(site: Site) -> None:
    """Without the trigger at the last durable commit before it."""
    install_trigger(site.dsn)
    site.execute("insert into t values (2)", "drop table t", "insert into u values (2)")
    site.capture()
    rows = [row["lsn"] for row in oracle.changes(site.lake) if row["op"] == "message"]
    assert site.parked(Cause.DDL) == max(rows) - 1
    assert site.parked(Cause.PUBLICATION) is None
    assert "was dropped at the source" in site.refusal()
    site.capture()
    assert site.parked(Cause.PUBLICATION) is None


def test_a_table_that_the_catalog_shows_dropped_ends_before_it(site: Site) -> None:
    """No question after the last durable commit is answered."""
    before = insert_position(site.dsn)
    site.execute("drop table t")
    site.capture()
    parked = site.parked(Cause.PUBLICATION)
    assert parked is not None
    assert parked < before
    assert "was dropped at the source" in site.refusal()


def test_a_broken_trigger_leaves_it_to_the_catalog(site: Site) -> None:
    """The command goes through, and the change is found."""
    install_trigger(site.dsn)
    site.execute("drop materialized view auditlake.ddl_key", "alter table t rename a to z")
    site.capture()
    assert [(each.source, columns(each)[1]) for each in site.versions()[1:]] == [(ShapeSource.CATALOG, (2, "z"))]


def test_no_later_commit_becomes_visible_before_the_change(site: Site) -> None:
    """A row of another table after the change is not visible as long as the old shape is answered."""
    with Running(site.dsn, site.lake):
        site.execute("alter table t alter n type bigint using n * 2", "insert into u values (2)")
        await_true(lambda: any(row["new"] == ["2"] for row in oracle.changes(site.lake)))
        assert site.refusal() != ""
        site.execute("alter table u add b int", "insert into t values (3)")
        await_true(lambda: any(row["table"] == "t" and row["new"][0] == "3" for row in oracle.changes(site.lake)))
        await_true(lambda: find_parked(site.lake, TableName("public", "u"), Cause.PENDING) is None)
        assert any(
            len(each.relation.columns) == 2 for each in read_versions(site.lake) if each.relation.name.table == "u"
        )


def test_the_log_names_schema_changes(site: Site) -> None:
    """Renames and drops, at their transactions; a command that changed rows, too, has both."""
    install_trigger(site.dsn)
    site.execute(
        "alter table t rename a to b",
        "begin; insert into t values (2); alter table t drop n; commit",
        "alter table t rename to s",
        "drop table s",
    )
    site.capture()
    done = command.run_here(["log", "--json", "--lake", site.lake.root, "-n", "4"])
    assert done.code == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["inserts"], each["schema_changes"]) for each in found] == [
        (0, ["public.s: it was dropped"]),
        (0, ["public.t: it was renamed to public.s"]),
        (1, ["public.t: column n was dropped"]),
        (0, ["public.t: column a was renamed to b"]),
    ]


def test_the_log_names_what_only_the_catalog_showed(site: Site) -> None:
    """Such changes have a range and no transaction; a table is found under its former name, too."""
    for statement in (
        "insert into t values (2)",
        "alter table t rename to s",
        "insert into s values (3)",
        "drop table s",
    ):
        site.execute(statement)
        site.capture()
    logs = {}
    for name in ("s", "t"):
        done = command.run_here(["log", "--json", "--lake", site.lake.root, "--table", name])
        assert done.code == 0, done.stderr
        logs[name] = [json.loads(line) for line in done.stdout.splitlines()]
    words = [["".join(each["schema_changes"]).split(", between")[0], each["inserts"]] for each in logs["s"][:4]]
    assert words == [["public.s: it was dropped", 0], ["", 1], ["public.t: it was renamed to public.s", 0], ["", 1]]
    assert [each["xid"] is None for each in logs["s"][:4]] == [True, False, True, False]
    assert logs["t"] == logs["s"]


def test_a_key_that_was_created_again_under_full_identity_is_noticed(site: Site) -> None:
    """In between, another row had the key, and the stream shows neither the constraint nor which row is meant."""
    site.execute("alter table t replica identity full", "insert into t values (2, 'y', 6, 'ok')")
    site.capture()
    site.execute("reindex table concurrently t")
    site.capture()
    assert not site.refusal()
    site.execute(
        "alter table t drop constraint t_pkey",
        "insert into t values (2, 'second', 7, 'ok')",
        "delete from t where a = 'y'",
        "alter table t add primary key (id)",
    )
    site.capture()
    assert "its key was changed, and REPLICA IDENTITY FULL does not show when" in site.refusal()


_HIDDEN = "alter table t drop m; alter table t add m mood"


@pytest.mark.parametrize("broken", [*BREAKS.values(), "drop schema auditlake cascade"], ids=[*BREAKS, "dropped"])
def test_a_trigger_that_fails_hides_nothing(site: Site, broken: str) -> None:
    """The application's command commits; that its columns are others is noticed, although the stream looks the same."""
    install_trigger(site.dsn)
    site.execute("alter table t add b int", "alter table t drop b")
    site.capture()
    version = read_versions(site.lake)[-1]
    assert (version.source, version.command) == (ShapeSource.DDL_TRIGGER, "ALTER TABLE")
    role = f"{conninfo_to_dict(site.dsn)['dbname']}_powerless"
    with psycopg.connect(site.dsn, autocommit=True) as conn:
        flush = ", boolean" if conn.info.server_version >= 170000 else ""
        conn.execute(f"create role {role}".encode())
        conn.execute(broken.format(role=role, flush=flush).encode())
        conn.execute(_HIDDEN.encode())
        conn.execute("update t set m = 'ok'")
        assert conn.execute("select attnum from pg_attribute where attname = 'm'").fetchall() == [(6,)]
    site.capture()
    last = read_versions(site.lake)[-1]
    if (last.source, columns(last)[-1]) != (ShapeSource.DDL_TRIGGER, (6, "m")):  # pg_catalog is always searched
        assert "its columns were changed, which the DDL trigger did not report" in site.refusal()
    with connect(site.dsn) as control:
        assert not read_ddl_trigger(control).records
    with psycopg.connect(site.dsn, autocommit=True) as conn:
        conn.execute(f"drop owned by {role} cascade; drop role {role}".encode())


def test_a_key_that_changes_before_the_first_row_is_left_to_spark(database: str, tmp_path: Path) -> None:
    """DuckDB reads the rows that are not applied yet by the key of the history, so they would not end its versions."""
    site = Site(database, chosen_lake(tmp_path / "lake"))
    site.execute("create table k (id int primary key, a int not null, v text)", "insert into k values (1, 10, 'x')")
    assert command.run_here(["bootstrap", "--source", database, "--lake", site.lake.root]).code == 0
    site.execute("alter table k drop constraint k_pkey, add primary key (a)", "update k set id = 2, v = 'y'")
    site.capture()
    in_duckdb = ["--dialect", "spark", "--engine", "duckdb"]
    done = command.run_here(["sql", "--lake", site.lake.root, *in_duckdb, "select * from k"])
    assert (done.code, done.stdout) == (2, "")
    assert "the key of public.k changes" in done.stderr


def test_a_trigger_that_is_disabled_is_noticed_by_the_next_comparison(site: Site) -> None:
    """Without a change of a table: what it does not report may leave no trace in the catalog."""
    install_trigger(site.dsn)
    with connect(site.dsn) as conn:
        log = CaptureLog(site.lake)
        watch = ShapeWatch(site.lake, log, DdlRecorder(site.lake, log), print, "auditlake")
        watch.refresh(conn, {_T: oid_of(conn, "t")})
        held = HeldUpTo(log.acknowledged, 1)
        watch.check(conn, held)
        watch.record_trigger()
        assert watch.trigger_reports
        site.execute("alter event trigger auditlake_sql_drop disable")
        watch.check(conn, held)
        assert not watch.trigger_reports


def test_a_shape_is_known_from_its_comparison_on_although_a_row_shows_it_later(site: Site) -> None:
    """The batch with that row is durable before the difference is settled: moments in between have the new shape."""
    with connect(site.dsn) as conn:
        log, oid = CaptureLog(site.lake), oid_of(conn, "t")
        watch = ShapeWatch(site.lake, log, DdlRecorder(site.lake, log), print, "auditlake")
        watch.refresh(conn, {_T: oid})
        site.execute("alter table t add y int")
        watch.check(conn, HeldUpTo(log.acknowledged, 1))
        between = site.end()
        site.execute("insert into t (id, y) values (9, 9)")
        shape, _ = read_shapes(conn, [oid])[oid]
        log.relations.record(watch.recorder.published(shape), Lsn(site.end() - 1))
        watch.check(conn, HeldUpTo(site.end(), 1))
        assert not watch.pending
    versions = {version.lsn: version for version in read_versions(site.lake).of_oid(oid)}
    known = versions[max(lsn for lsn in versions if lsn < between)]
    assert [column.name for column in known.relation.columns] == ["id", "a", "n", "m", "y"]
    assert known.after_lsn is not None
    assert known.after_lsn < known.lsn


def test_a_table_recorded_while_another_is_accepted_is_watched(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of a new table records its shape beside capture; its first change must not be overlooked."""
    site.execute("create table x (id int primary key)")
    with connect(site.dsn) as conn, connect(site.dsn) as other:
        watched, new = ({TableName("public", name): oid_of(conn, name)} for name in ("t", "x"))
        log = CaptureLog(site.lake)
        watch = ShapeWatch(site.lake, log, DdlRecorder(site.lake, log), print, "auditlake")
        watch.refresh(conn, watched)
        watch.check(conn, HeldUpTo(log.acknowledged, 1))
        monkeypatch.setattr(files, "_SETTLED_NS", 0)  # the record is older than a tick of the clock

        def write(*given: Any) -> None:
            monkeypatch.setattr(shape_watch, "write_shape", write_shape)
            record_shapes(other, site.lake, new)
            write_shape(*given)

        site.execute("alter table t add y int")
        monkeypatch.setattr(shape_watch, "write_shape", write)
        watch.check(conn, HeldUpTo(log.acknowledged, 1))
        watch.check(conn, HeldUpTo(site.end(), 1))
        assert not watch.pending
        before = HeldUpTo(site.end(), 1)
        site.execute("alter table x add y int")
        watch.check(conn, before)
    assert find_parked(site.lake, TableName("public", "x"), Cause.PENDING)


def test_rows_of_a_partitioned_table_prove_no_name(database: str, tmp_path: Path) -> None:
    """PostgreSQL sends no Relation message after the root was renamed: rows of its partitions have the former name."""
    site = Site(database, chosen_lake(tmp_path / "lake"))
    site.execute(
        "create table root (id int primary key, a int, b int) partition by range (id)",
        "create table leaf partition of root default",
        "create table u (id int primary key)",
    )
    assert command.run_here(["bootstrap", "--source", database, "--lake", site.lake.root]).code == 0
    site.execute("insert into root values (1, 1, 1)")
    site.capture()
    site.execute("insert into root values (3, 3, 3)", "alter table root rename to branch", "insert into u values (1)")
    renamed = Lsn(site.end() - 1)
    site.execute("insert into branch values (4, 4, 4)", "alter table branch drop a", "insert into branch values (5, 5)")
    site.capture()
    with pytest.raises(NotAnswerable):
        auditlake.Lake(site.lake.root).as_of(str(renamed)).table("root")
