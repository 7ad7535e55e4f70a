"""Changes of partitions that the stream does not show: the table is parked, unless no rows changed."""

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import auditlake
from auditlake.capture import capture as stage
from auditlake.capture import partition_rows, partition_watch
from auditlake.capture.first_rows import FirstRow
from auditlake.capture.partition_watch import HeldUpTo, PartitionWatch, Since, read_parts, read_since, record_partitions
from auditlake.errors import NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.lake.parking import read_records
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.replication import stream
from auditlake.replication.stream import BufferLimits
from auditlake.source.catalog import read_tables
from auditlake.source.connection import connect, fetch
from auditlake.temporal.moments import read_known
from auditlake.temporal.when import AtLsn, AtTime
from tests import command, oracle
from tests.capture_lake import make_lake
from tests.running import Running, await_true
from tests.server import Server, chosen_version, execute, install_trigger, installation_of, oid_of, wal_end

pytestmark = pytest.mark.pg

_T = TableName("public", "t")
_LEAVES = {"t_a", "t_b", "t_c", "t_sub", "t_sub_x"}
_SCHEMA = (
    "create table t (id int, k text, primary key (id, k)) partition by list (k)",
    "create table t_a partition of t for values in ('a')",
    "create table t_b partition of t for values in ('b')",
    "create table t_sub partition of t for values in ('x', 'y') partition by list (k)",
    "create table t_sub_x partition of t_sub for values in ('x')",
    "create table u (id int primary key)",
)
_ROWS = "insert into t select n, k from generate_series(1, 50) n, unnest(array['a', 'b', 'x']) k"
_MADE_AT_ONCE = (
    "begin; create table t_n (id int not null, k text not null); insert into t_n values (1, 'n');"
    " alter table t attach partition t_n for values in ('n'); commit"
)
SILENT = {
    "dropped": (["drop table t_a"], "its partition t_a was dropped or detached"),
    "detached": (["alter table t detach partition t_b"], "its partition t_b was dropped or detached"),
    "truncated": (["truncate t_sub_x"], "its partition t_sub_x was truncated"),
    "truncated and filled": (
        ["truncate t_a", "insert into t values (1, 'a')", "vacuum analyze t_a"],
        "its partition t_a was truncated",
    ),
    "truncated, and analyzed with rows that were rolled back": (
        ["truncate t_a", "begin; insert into t select n, 'a' from generate_series(1, 99) n; analyze t_a; rollback"],
        "its partition t_a was truncated",
    ),
    "attached": (
        [
            "create table t_n (id int not null, k text not null)",
            "insert into t_n values (1, 'n')",
            "alter table t attach partition t_n for values in ('n')",
        ],
        "its partition t_n was attached, perhaps with rows",
    ),
    "made, filled and attached at once": (
        [_MADE_AT_ONCE],
        "its partition t_n was attached, perhaps with rows",
    ),
    **{
        f"made, filled and attached at once, and {undone} was rolled back": (
            [_MADE_AT_ONCE, f"begin; {statement}; rollback", *then],
            "its partition t_n was attached, perhaps with rows",
        )
        for undone, statement, then in (
            ("DROP", "drop table t", ()),
            ("RENAME", "alter table t rename id to i", ()),
            ("DROP, frozen since,", "drop table t_n", ["vacuum (freeze) pg_attribute"]),
        )
    },
    "attached, emptied and vacuumed": (
        [
            "create table t_n (id int not null, k text not null)",
            "insert into t_n values (1, 'n')",
            "alter table t attach partition t_n for values in ('n')",
            "delete from t where k = 'n'",
            "vacuum t_n",
        ],
        "its partition t_n was attached, perhaps with rows",
    ),
    "attached with partitions": (
        [
            "create table t_n (id int not null, k text not null) partition by list (k)",
            "create table t_nn partition of t_n for values in ('n')",
            "insert into t_n values (1, 'n')",
            "alter table t attach partition t_n for values in ('n')",
        ],
        "its partition t_nn was attached, perhaps with rows",
    ),
    "detached and attached": (
        ["alter table t detach partition t_a", "alter table t attach partition t_a for values in ('a')"],
        "its partition t_a was attached, perhaps with rows",
    ),
    "detached, truncated and attached": (
        [
            (
                "begin; alter table t detach partition t_a; truncate t_a;"
                " alter table t attach partition t_a for values in ('a'); commit"
            )
        ],
        "its partition t_a was attached, perhaps with rows",
    ),
    "attached, filled and truncated": (
        [
            "create table t_n (id int not null, k text not null)",
            "alter table t attach partition t_n for values in ('n')",
            "insert into t values (1, 'n')",
            "truncate t_n",
        ],
        "its partition t_n was attached, perhaps with rows",
    ),
    "made, filled and truncated": (
        ["create table t_n partition of t for values in ('n')", "insert into t values (1, 'n')", "truncate t_n"],
        "its partition t_n has a new file, and may have been unlogged for some time",
    ),
    "created unlogged": (
        ["create unlogged table t_n partition of t for values in ('n')", "insert into t values (1, 'n')"],
        "its partition t_n is unlogged, so its changes are not in the stream",
    ),
    "set unlogged": (
        ["vacuum analyze t_a", "alter table t_a set unlogged", "insert into t values (99, 'a')"],
        "its partition t_a is unlogged, so its changes are not in the stream",
    ),
    "truncated again after the whole table was": (
        ["begin; truncate t; insert into t values (1, 'a'); truncate t_a; commit"],
        "its partition t_a was truncated",
    ),
    "unlogged until a default of the table was changed": (
        [
            "vacuum analyze t_a",
            "alter table t_a set unlogged",
            "delete from t_a",
            "begin; alter table t_a set logged; alter table t alter k set default 'a'; commit",
        ],
        "its partition t_a has a new file, and may have been unlogged for some time",
    ),
    "unlogged for some time": (
        ["vacuum analyze t_a", "alter table t_a set unlogged", "delete from t_a", "alter table t_a set logged"],
        "its partition t_a has a new file, and may have been unlogged for some time",
    ),
}
if chosen_version() >= 18:
    SILENT["attached, emptied and vacuumed, and its statistics were cleared"] = (
        [
            *SILENT["attached, emptied and vacuumed"][0],
            "select pg_clear_relation_stats(current_schema()::text, 't_n')",
        ],
        "its partition t_n was attached, perhaps with rows",
    )
_MADE = "create table t_n partition of t for values in ('n')"
_FILLED = "insert into t values (2, 'n'), (3, 'n')"
EMPTIED_AT_ONCE = {
    "truncated": f"begin; {_MADE}; {_FILLED}; truncate t_n; commit",
    "filled again": f"begin; {_MADE}; {_FILLED}; truncate t_n; insert into t values (4, 'n'); commit",
    "filled with the same key": f"begin; {_MADE}; {_FILLED}; truncate t_n; insert into t values (2, 'n'); commit",
    "filled with the same key after a DELETE": (
        f"begin; {_MADE}; {_FILLED}; delete from t where id = 2; truncate t_n; insert into t values (2, 'n'); commit"
    ),
    "filled with the same key later": f"begin; {_MADE}; {_FILLED}; truncate t_n; commit; insert into t values (2, 'n')",
    "filled with the same key by a transaction that writes it again": (
        f"begin; {_MADE}; {_FILLED}; truncate t_n; commit;"
        " begin; insert into t values (2, 'n'); update t set id = 2 where id = 2; commit"
    ),
    "filled with the same key by an UPDATE": (
        f"begin; {_MADE}; {_FILLED}; truncate t_n; insert into t values (4, 'n');"
        " update t set id = 2 where id = 4 and k = 'n'; commit"
    ),
    "filled with the same key by a later UPDATE": (
        f"begin; {_MADE}; {_FILLED}; truncate t_n; insert into t values (4, 'n'); commit;"
        " update t set id = 2 where id = 4 and k = 'n'"
    ),
    "made in a subtransaction": (
        f"begin; insert into t values (80, 'a'); savepoint s; {_MADE}; release s; {_FILLED}; truncate t_n; commit"
    ),
    "attached while empty": (
        "begin; create table t_n (id int not null, k text not null);"
        f" alter table t attach partition t_n for values in ('n'); {_FILLED}; truncate t_n; commit"
    ),
}
HARMLESS = {
    "vacuum full": ["vacuum full t_a"],
    "cluster": ["cluster t_b using t_b_pkey"],
    "reindex": ["reindex table t_a", "analyze t", "alter table t_a set (fillfactor = 50)"],
    "the whole table truncated": ["truncate t", "insert into t values (7, 'a')"],
    "a new partition": ["create table t_c partition of t for values in ('c')", "insert into t values (1, 'c')"],
    "a new partition in a transaction": [
        (
            "begin; insert into t values (80, 'a'); create table t_c partition of t for values in ('c');"
            " insert into t values (1, 'c'); commit"
        )
    ],
    "a new partition whose rows are changed at once": [
        (
            "begin; savepoint s; create table t_c partition of t for values in ('c'); release s; savepoint s;"
            " insert into t select n, 'c' from generate_series(1, 9) n; rollback to s; release s;"
            " insert into t select n, 'c' from generate_series(1, 9) n; insert into t values (81, 'a');"
            " delete from t where k = 'c' and id > 5; commit"
        ),
        "update t set id = id + 10 where k = 'c' and id > 1",
        "alter table t add v int; update t set v = 1",
        "delete from t where k = 'c' and id > 1",
    ],
    "a new partition, and the whole table truncated": [
        "create table t_c partition of t for values in ('c')",
        "insert into t values (1, 'c')",
        "truncate t",
        "insert into t values (2, 'c')",
    ],
    "an empty partition": [
        "create table t_n (id int not null, k text not null)",
        "alter table t attach partition t_n for values in ('n')",
    ],
}


DISABLE = tuple(
    f"alter event trigger auditlake_{event} disable" for event in ("table_rewrite", "sql_drop", "ddl_command_end")
)


def _capture(dsn: str, lake: Lake) -> str:
    done = command.capture_here(dsn, lake)
    assert done.code == 0, done.stderr
    return done.stderr


def _lake(dsn: str, root: Path) -> Lake:
    """Create a lake of two tables and capture rows of one."""
    execute(dsn, *_SCHEMA)
    lake = make_lake(dsn, root, without=_LEAVES)
    execute(dsn, _ROWS)
    _capture(dsn, lake)
    return lake


def _lake_of_kinds(dsn: str, root: Path, kinds: Iterable[str]) -> tuple[Lake, dict[str, tuple[TableName, str]]]:
    """Create a lake with the two tables of each kind, in a schema of its own, and capture rows of one.

    Return also `t` of each kind, and a connection string that finds the tables of its schema.
    """
    found = {}
    for number, kind in enumerate(kinds):
        within = make_conninfo(dsn, options=f"-c search_path=k{number}")
        execute(within, f"create schema k{number}", *_SCHEMA)
        found[kind] = (TableName(f"k{number}", "t"), within)
    lake = make_lake(dsn, root, without=_LEAVES)
    for _, within in found.values():
        execute(within, _ROWS)
    _capture(dsn, lake)
    return lake, found


def _await(lake: Lake, number: int) -> None:
    await_true(lambda: any(row["table"] == "u" and row["new"] == [str(number)] for row in oracle.changes(lake)))


def test_a_silent_change_of_rows_parks_the_table(database: str, tmp_path: Path) -> None:
    """It is known up to the previous commit; other tables continue, and a restart keeps it parked."""
    lake, kinds = _lake_of_kinds(database, tmp_path / "lake", SILENT)
    low = wal_end(database)
    for kind, (_, within) in kinds.items():
        execute(within, *SILENT[kind][0], "insert into u values (1)")
    said = _capture(database, lake)
    known = read_known(lake)
    assert {*known.parked} == {table for table, _ in kinds.values()}
    for kind, (table, _) in kinds.items():
        problem = SILENT[kind][1]
        assert f"{table}: {problem}; it is parked" in said, kind
        parked = known.parked[table]
        assert (parked.table, parked.reason) == (table, problem)
        assert parked.lsn < low < parked.until <= wal_end(database), kind
        timeline = known.timeline(known.tables[table])
        timeline.require((parked.lsn, AtLsn(parked.lsn)))
        timeline.require((parked.lsn, AtTime(parked.time_us or 0)))
        for when in (None, AtTime((parked.time_us or 0) + 1), AtLsn(Lsn(parked.lsn + 1))):
            with pytest.raises(NotAnswerable, match=problem):
                timeline.require((Lsn(parked.lsn + isinstance(when, AtLsn)), when))
    captured = [row for row in oracle.changes(lake) if row["table"] == "u" and row["new"] == ["1"]]
    assert {row["schema"] for row in captured} == {table.schema for table, _ in kinds.values()}
    _capture(database, lake)
    again = read_known(lake).parked
    # They were seen again, perhaps after a record of the server.
    assert {name: replace(each, until=known.parked[name].until) for name, each in again.items()} == known.parked


def test_a_first_row_whose_values_cannot_be_compared_is_not_known_to_be_there(database: str, tmp_path: Path) -> None:
    """Without a key its whole row is compared; json has no equality. A composite is compared as text."""
    tables = {"with_json": "json", "with_composite": "pair", "with_text": "text"}
    execute(
        database,
        "create type pair as (a int, b int)",
        *(f"create table {name} (id int, v {kind}) partition by range (id)" for name, kind in tables.items()),
        *(f"alter table {name} replica identity full" for name in tables),
    )
    lake = make_lake(database, tmp_path / "lake")
    values = {"with_json": "{}", "with_composite": "(1,2)", "with_text": "x"}
    for name, value in values.items():
        made = f"create table {name}_0 partition of {name} default; alter table {name}_0 replica identity full"
        execute(database, f"begin; {made}; insert into {name} values (1, '{value}'), (2, null); commit")
    _capture(database, lake)
    assert {each.table for each in read_known(lake).parked} == {"with_json"}


def test_a_first_row_is_not_known_to_be_there_if_an_equal_one_is(database: str, tmp_path: Path) -> None:
    """1.0 and 1.00 are one key with two texts."""
    tables = {"emptied": "truncate emptied_0; insert into emptied values (1.00)", "kept": "select"}
    execute(database, *(f"create table {name} (n numeric primary key) partition by range (n)" for name in tables))
    lake = make_lake(database, tmp_path / "lake")
    for name, then in tables.items():
        made = f"create table {name}_0 partition of {name} default; insert into {name} values (1.0), (2)"
        execute(database, f"begin; {made}; {then}; commit")
    _capture(database, lake)
    assert {each.table for each in read_known(lake).parked} == {"emptied"}


def test_an_xid_of_long_ago_is_not_taken_for_a_later_one() -> None:
    """More than 2^31 transactions ago."""
    version, next_xid = chosen_version(), 2050 << 20
    with Server(version, installation=installation_of(version)) as server:
        dsn = server.dsn(server.create_database())
        execute(dsn, *_SCHEMA[:2])
        with connect(dsn) as conn:
            root = oid_of(conn, "t")
            assert [each.created_by > 0 for each in read_parts(conn, root).values()] == [True]
        for each in (dsn, server.dsn("template1"), server.dsn("postgres")):
            execute(each, "vacuum freeze")
        server.stop()
        segment = server.data / "pg_xact" / f"{next_xid >> 20:04X}"
        segment.write_bytes(bytes(1 << 18))
        os.chown(segment, server.data.stat().st_uid, server.data.stat().st_gid)
        server._run("pg_resetwal", "-x", str(next_xid), server.data)  # noqa: SLF001 - as the user of the server
        server.start()
        with connect(dsn) as conn:
            assert [each.created_by for each in read_parts(conn, root).values()] == [0]


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_partition_that_was_truncated_by_the_transaction_that_made_it(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_parts: bool
) -> None:
    """It keeps its file; the stream has its first row, which is gone or was inserted again."""
    if in_parts:
        monkeypatch.setattr(stream, "_MOST_FRAMES", 1)
        monkeypatch.setattr(stage, "_FULL", BufferLimits(frames=3, size_bytes=1 << 20))
    lake, kinds = _lake_of_kinds(database, tmp_path / "lake", EMPTIED_AT_ONCE)
    ranges = {}
    for kind, (table, within) in kinds.items():
        low = wal_end(database)
        execute(within, EMPTIED_AT_ONCE[kind])
        ranges[table] = low, wal_end(database)
        execute(within, "insert into t values (90, 'a')")
    _capture(database, lake)
    parked = read_known(lake).parked
    reason = "a partition may have been truncated in the transaction that created it"
    assert {name: each.reason for name, each in parked.items()} == dict.fromkeys(ranges, reason)
    assert all(low <= parked[table].lsn + 1 < high for table, (low, high) in ranges.items())


def test_a_foreign_partition_parks_the_table(database: str, tmp_path: Path) -> None:
    """Its rows are those of another server. A table with a key cannot have one."""
    parts = (
        "create table t (id int, k text) partition by list (k)",
        "create table t_a partition of t for values in ('a')",
    )
    execute(database, *parts, *(f"alter table {each} replica identity full" for each in ("t", "t_a")))
    lake = make_lake(database, tmp_path / "lake", without=_LEAVES)
    server = "create foreign data wrapper elsewhere", "create server there foreign data wrapper elsewhere"
    execute(database, *server, "create foreign table t_f partition of t for values in ('f') server there")
    assert "public.t: its partition t_f is foreign, so its changes are not in the stream" in _capture(database, lake)


def test_the_trigger_reports_a_partition_that_was_unlogged_before_its_rows_were_rewritten(
    database: str, tmp_path: Path
) -> None:
    """A wider type of a column alone rewrites every partition, and loses nothing."""
    lake = _lake(database, tmp_path / "lake")
    install_trigger(database)
    _capture(database, lake)
    execute(database, "vacuum analyze t", "alter table t alter id type bigint", "analyze t")
    _capture(database, lake)
    assert not read_known(lake).parked
    unlogged = "alter table t_a set unlogged", "insert into t values (99, 'a')", "alter table t_a set logged"
    execute(database, *unlogged, "alter table t alter id type numeric", "analyze t")
    _capture(database, lake)
    reasons = [parked.reason for parked in read_records(lake)]
    assert any("was set logged or unlogged by ALTER TABLE" in reason for reason in reasons)


_REMOVED = "a partition that was created or attached since was dropped or detached, perhaps with rows"


_GONE = {"dropped": "drop table {0}", "detached": "alter table {1} detach partition {0}"}


@pytest.mark.parametrize("trigger", ["none", "on", "off, then on"])
def test_a_partition_with_rows_that_the_catalog_never_showed(database: str, tmp_path: Path, trigger: str) -> None:
    """The stream describes it before its first row. It may have been truncated since, which no trigger reports."""
    cases = {f"{how} from {root}": (root, how) for root in ("t", "t_sub") for how in _GONE}
    lake, kinds = _lake_of_kinds(database, tmp_path / "lake", cases)
    if trigger != "none":
        install_trigger(database)
        _capture(database, lake)
    ranges = {}
    for kind, (root, _) in cases.items():
        table, within = kinds[kind]
        name, low = "t_n" if root == "t" else "t_sub_y", wal_end(database)
        execute(within, f"create table {name} partition of {root} for values in ('{name[-1]}')")
        execute(within, f"insert into t values (1, '{name[-1]}')")
        ranges[table] = low, wal_end(database)
        execute(within, f"truncate {name}", "insert into u values (1)")
    if trigger == "off, then on":
        execute(database, *DISABLE)
    for kind, (root, how) in cases.items():
        execute(
            kinds[kind][1], _GONE[how].format("t_n" if root == "t" else "t_sub_y", root), "insert into u values (2)"
        )
    if trigger == "off, then on":
        install_trigger(database)
    _capture(database, lake)
    parked = read_known(lake).parked
    assert {name: each.reason for name, each in parked.items()} == dict.fromkeys(ranges, _REMOVED)
    if trigger == "none":  # it may have been attached with rows at any time since the last comparison
        assert all(parked[table].lsn + 1 <= low and parked[table].until < high for table, (low, high) in ranges.items())
    else:
        assert all(low <= parked[table].lsn + 1 < high for table, (low, high) in ranges.items())
    _await(lake, 2)


@pytest.mark.parametrize("root", ["t", "t_sub"])
def test_a_filled_partition_that_was_written_to_and_detached_is_unknown_since_before_it_was_attached(
    database: str, tmp_path: Path, root: str
) -> None:
    """Its first row in the stream comes later than those that it brought."""
    lake = _lake(database, tmp_path / "lake")
    execute(database, "insert into t values (1, 'a') on conflict do nothing")
    _capture(database, lake)
    held, key = read_known(lake).now_lsn, "n" if root == "t" else "y"
    execute(database, "create table x (id int not null, k text not null)", f"insert into x values (1, '{key}')")
    low = wal_end(database)
    execute(database, f"alter table {root} attach partition x for values in ('{key}')")
    execute(database, f"insert into t values (2, '{key}')", f"alter table {root} detach partition x")
    _capture(database, lake)
    (parked,) = read_known(lake).parked.values()
    assert parked.reason == _REMOVED
    assert held <= parked.lsn < low


def test_a_part_of_a_transaction_does_not_end_with_the_description_of_a_partition(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begin, the root and the partition are received first; the change that shows whose partition it is, later."""
    lake = _lake(database, tmp_path / "lake")
    monkeypatch.setattr(stream, "_MOST_FRAMES", 1)
    monkeypatch.setattr(stage, "_FULL", BufferLimits(frames=3, size_bytes=1 << 20))
    execute(database, "create table t_n partition of t for values in ('n')", "insert into t values (1, 'n')")
    execute(database, "drop table t_n", "insert into u values (1)")
    _capture(database, lake)
    (parked,) = read_known(lake).parked.values()
    assert parked.reason == _REMOVED


@pytest.mark.parametrize("root", ["t", "t_sub"])
def test_the_trigger_reports_a_filled_table_that_was_a_partition_for_some_time(
    database: str, tmp_path: Path, root: str
) -> None:
    """It brought rows and took them away, without a trace in the stream or the catalog."""
    lake = _lake(database, tmp_path / "lake")
    install_trigger(database)
    _capture(database, lake)
    key = "n" if root == "t" else "y"
    execute(database, "create table x (id int not null, k text not null)", f"insert into x values (1, '{key}')")
    low = wal_end(database)
    execute(database, f"alter table {root} attach partition x for values in ('{key}')")
    between = wal_end(database)
    execute(database, f"alter table {root} detach partition x", "insert into u values (2)")
    _capture(database, lake)
    (parked,) = read_known(lake).parked.values()
    assert parked.reason == _REMOVED
    assert low <= parked.lsn + 1 < between


def test_an_empty_partition_that_the_catalog_never_showed_does_not_park(database: str, tmp_path: Path) -> None:
    """CREATE TABLE makes it empty, and the stream has no row of it."""
    lake = _lake(database, tmp_path / "lake")
    install_trigger(database)
    _capture(database, lake)
    made = "create table t_n partition of t for values in ('n')", "insert into t values (1, 'a') on conflict do nothing"
    execute(database, *made, "drop table t_n", "insert into u values (1)")
    _capture(database, lake)
    assert not read_known(lake).parked


def test_a_followed_table_that_was_a_partition_for_some_time(database: str, tmp_path: Path) -> None:
    """The rows that it got meanwhile are in the stream under the name of its root, and are not there any more."""
    execute(database, "create table t_n (id int, k text, primary key (id, k))")
    lake = _lake(database, tmp_path / "lake")
    execute(
        database,
        "alter table t attach partition t_n for values in ('n')",
        "insert into t values (1, 'n')",
        "alter table t detach partition t_n",
    )
    _capture(database, lake)
    assert read_known(lake).parked[_T].reason == _REMOVED


def test_truncated_tables_of_the_same_columns_are_no_partitions(database: str, tmp_path: Path) -> None:
    """The server describes them one after the other."""
    lake = _lake(database, tmp_path / "lake")
    execute(database, "create table like_t (like t)", "alter publication auditlake add table like_t")
    execute(database, "truncate t, like_t", "truncate t", "insert into like_t values (1, 'a')")
    _capture(database, lake)
    assert _T not in read_known(lake).parked


@pytest.mark.parametrize("alone", [True, False])
def test_moments_before_the_whole_table_was_truncated_are_not_known(
    database: str, tmp_path: Path, *, alone: bool
) -> None:
    """Its TRUNCATE hides one of a partition before; from then on the table is known again."""
    lake = _lake(database, tmp_path / "lake")
    before = read_known(lake).positions.watermark
    execute(database, *([] if alone else ["truncate t_a"]), "insert into u values (1)")
    between = Lsn(wal_end(database) - 1)
    execute(database, "truncate t", "insert into t values (7, 'a')", "insert into u values (2)")
    _capture(database, lake)
    known = read_known(lake)
    assert not known.parked
    timeline = known.timeline(known.tables[_T])
    with pytest.raises(NotAnswerable, match="may have lost rows before the whole table was truncated"):
        timeline.require((between, AtLsn(between)))
    read = auditlake.Lake(lake.root)
    assert [*read.as_of().table("public.t").texts()] == [{"id": "7", "k": "a"}]
    assert len([*read.as_of(str(before)).table("public.t").texts()]) == 150


def test_a_change_after_a_new_snapshot_began_keeps_the_table_parked(database: str, tmp_path: Path) -> None:
    """A second change, during the new snapshot that follows the first, needs another one."""
    lake = _lake(database, tmp_path / "lake")
    execute(database, "drop table t_b")
    _capture(database, lake)
    first = read_known(lake).parked[_T]
    with connect(database) as conn:
        (table,) = [each for each in read_tables(conn) if each.name == _T]
        record_partitions(conn, lake, {_T: table.relation.oid})
    execute(database, *SILENT["attached"][0])
    low = wal_end(database)
    execute(database, "insert into u values (1)")
    _capture(database, lake)
    second = read_known(lake).parked[_T]
    assert (second.lsn, second.reason) == (first.lsn, first.reason)
    assert first.until < low < second.until


def test_a_change_without_rows_does_not_park_the_table(database: str, tmp_path: Path) -> None:
    """Rewrite, TRUNCATE of the whole table, and a new empty partition."""
    lake, kinds = _lake_of_kinds(database, tmp_path / "lake", HARMLESS)
    for kind, (_, within) in kinds.items():
        execute(within, *HARMLESS[kind], "insert into u values (1)")
    assert "parked" not in _capture(database, lake)
    assert read_known(lake).parked == {}
    for _, within in kinds.values():
        execute(within, "truncate t_sub_x", "insert into u values (2)")
    _capture(database, lake)
    reasons = {name: each.reason for name, each in read_known(lake).parked.items()}
    assert reasons == {table: "its partition t_sub_x was truncated" for table, _ in kinds.values()}


def test_a_running_capture_parks_the_table_before_later_commits(database: str, tmp_path: Path) -> None:
    """No later commit is durable before the table is parked; VACUUM FULL does not block capture."""
    lake = _lake(database, tmp_path / "lake")
    with Running(database, lake) as running:
        execute(database, "insert into u values (1)", "vacuum full t_a", "truncate t", "insert into u values (2)")
        _await(lake, 2)
        await_true(lambda: not read_known(lake).parked)
        with psycopg.connect(database) as blocker:
            blocker.execute("lock table t_a in access exclusive mode")
            execute(database, "insert into u values (3)")
            _await(lake, 3)
        low = wal_end(database)
        execute(database, "drop table t_b", "insert into u values (4)")
        _await(lake, 4)
        (parked,) = read_known(lake).parked.values()
        assert parked.reason == "its partition t_b was dropped or detached"
        assert parked.lsn < low < parked.until
        assert running.failure is None


def test_an_undecided_truncation_is_looked_for_a_tenth_of_the_time(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capture that lags goes on, also if the lake takes seconds to tell whether the whole table was truncated."""
    lake, clock_s, looked_at_s, read = _lake(database, tmp_path / "lake"), [0.0], list[float](), read_since

    def slow(lake: Lake, oid: int, lsn: Lsn, end: Lsn) -> Since:
        looked_at_s.append(clock_s[0])
        clock_s[0] += 3
        return read(lake, oid, lsn, end)

    monkeypatch.setattr(partition_watch, "read_since", slow)
    monkeypatch.setattr(partition_watch, "time", SimpleNamespace(monotonic=lambda: clock_s[0]))
    watch, low = PartitionWatch(lake, print), wal_end(database)
    with connect(database) as conn:
        watch.refresh(conn, {table.name: table.relation.oid for table in read_tables(conn)})
        execute(database, "truncate t_a")
        for _ in range(60):
            watch.check(conn, HeldUpTo(low, 0))
            clock_s[0] += 1
        assert looked_at_s == [0, 30, 60]
        assert watch.pending
        watch.check(conn, HeldUpTo(wal_end(database), 0))
    assert not watch.pending
    assert [each.reason for each in read_known(lake).parked.values()] == ["its partition t_a was truncated"]


def test_rows_that_are_inserted_before_a_truncation_is_decided_do_not_explain_it(database: str, tmp_path: Path) -> None:
    """They are in the partition, and not in the lake yet."""
    lake = _lake(database, tmp_path / "lake")
    watch, low = PartitionWatch(lake, print), wal_end(database)
    with connect(database) as conn:
        watch.refresh(conn, {table.name: table.relation.oid for table in read_tables(conn)})
        execute(database, "truncate t_a")
        watch.check(conn, HeldUpTo(low, 0))
        reached = wal_end(database)
        execute(database, "insert into t select n, 'a' from generate_series(1, 99) n", "analyze t_a")
        watch.check(conn, HeldUpTo(reached, 0))
    assert [each.reason for each in read_known(lake).parked.values()] == ["its partition t_a was truncated"]


def test_rows_that_a_filter_keeps_out_of_the_stream_do_not_show_that_others_were_kept(
    database: str, tmp_path: Path
) -> None:
    """They are in the partition, and no insert of them is in the lake."""
    lake = _lake(database, tmp_path / "lake")
    execute(database, "alter publication auditlake set table t where (id < 99), u")
    execute(database, "truncate t_a", "insert into t select n, 'a' from generate_series(100, 199) n")
    _capture(database, lake)
    assert {each.reason for each in read_records(lake)} >= {"its partition t_a was truncated"}


def test_a_locked_table_is_tried_once_for_all_its_rows(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try waits for the lock, and capture for each; who owns a table may create any number of partitions."""
    _lake(database, tmp_path / "lake")
    with connect(database) as conn:
        relations = {each.name.table: each.relation for each in read_tables(conn)}
    rows = [FirstRow(relations[name], 1, 1, 1, ((0, "1"),)) for name in ("t", "t", "u", "t")]
    tried, look = list[str](), partition_rows._writers  # noqa: SLF001 - counted

    def counted(conn: psycopg.Connection[tuple[object, ...]], row: FirstRow) -> set[int] | None:
        tried.append(row.root.name.table)
        return look(conn, row)

    monkeypatch.setattr(partition_rows, "_writers", counted)
    with psycopg.connect(database) as locking:
        locking.execute("lock table t in access exclusive mode")
        assert partition_rows.WriterLookup(database, 60)(rows) == [set()] * len(rows)
        parts = [relations["t_a"].oid, relations["t_b"].oid]
        with connect(database) as conn:
            assert partition_rows.count_rows(conn, relations["t"].oid, parts) == dict.fromkeys(parts, 0)
    assert tried == ["t", "u"]


def test_rows_of_a_view_that_takes_the_name_of_a_partition_are_not_counted(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its functions would run with the rights of our role."""
    _lake(database, tmp_path / "lake")
    renamed = [
        "alter table t_a rename to t_aside",
        "create function bump() returns int language sql as 'insert into public.u values (99) returning id'",
        "create view t_a as select bump() as id",
    ]

    def read_then_rename(conn: psycopg.Connection[tuple[object, ...]], query: str, *values: object) -> object:
        found = fetch(conn, query, *values)
        if "relname" in query:
            execute(database, *renamed)
            renamed.clear()
        return found

    with connect(database) as conn:
        oids = {each.name.table: each.relation.oid for each in read_tables(conn)}
        assert partition_rows.count_rows(conn, oids["t"], [oids["t_a"]]) == {oids["t_a"]: 50}
        monkeypatch.setattr(partition_rows, "fetch", read_then_rename)
        assert partition_rows.count_rows(conn, oids["t"], [oids["t_a"]]) == {oids["t_a"]: 0}
    with psycopg.connect(database) as conn:
        assert conn.execute("select id from u").fetchall() == []


@pytest.mark.parametrize("rewritten", ["t_a", "t_c"])
def test_a_partition_that_is_created_and_removed_while_another_file_is_undecided(
    database: str, tmp_path: Path, rewritten: str
) -> None:
    """Its rows have become durable in between; it was in the catalog, in its first file or in another one."""
    lake, low, said = _lake(database, tmp_path / "lake"), wal_end(database), list[str]()
    watch = PartitionWatch(lake, said.append)
    with connect(database) as conn:
        watch.refresh(conn, {table.name: table.relation.oid for table in read_tables(conn)})
        watch.check(conn, HeldUpTo(low, 0))
        made = "create table t_c partition of t for values in ('c')", "insert into t values (1, 'c')"
        execute(database, *made, f"vacuum full {rewritten}")
        watch.check(conn, HeldUpTo(low, 0))
        assert watch.pending
        execute(database, "drop table t_c")
        watch.check(conn, HeldUpTo(wal_end(database), 0))
    assert not watch.pending
    assert [*read_known(lake).parked] == [_T]
    assert "public.t: its partition t_c was dropped or detached" in str(said)


@pytest.mark.parametrize("later", ["default", "full"])
@pytest.mark.parametrize(("first", "then"), [("default", "full"), ("full", "default")])
def test_the_root_changes_its_replica_identity_between_rows(
    database: str, tmp_path: Path, first: str, then: str, later: str
) -> None:
    """The server then sends no Relation message: a partition's rows are still as before, and marked as the root's."""
    execute(
        database,
        "create table r (id int primary key, v text) partition by range (id)",
        "create table r_1 partition of r default",
        f"alter table r replica identity {first}",
        f"alter table r_1 replica identity {first}",
    )
    lake = make_lake(database, tmp_path / "lake", without={"r_1"})
    execute(
        database,
        "insert into r select n, 'v' || n from generate_series(1, 6) n",
        f"begin; insert into r values (7, 'seven'); alter table r replica identity {then}; delete from r where id = 1;"
        " update r set id = 8 where id = 2; update r set v = 'changed' where id = 3; commit",
        f"alter table r replica identity {later}",
        "delete from r where id = 4",
    )
    _capture(database, lake)
    execute(database, "delete from r where id = 5", "update r set id = 9 where id = 8")
    _capture(database, lake)
    with psycopg.connect(database) as conn:
        expected = conn.execute("select id::text, v from r order by 1").fetchall()
    rows = auditlake.Lake(lake.root).as_of().table("public.r").texts()
    assert sorted((row["id"], row["v"]) for row in rows) == expected


@pytest.mark.parametrize("alone", [True, False])
def test_rows_of_a_renamed_root_are_recorded_under_its_new_name(database: str, tmp_path: Path, *, alone: bool) -> None:
    """The server sends no Relation message for a partition that it has described; the DDL trigger reports the name."""
    for table in ("r", "s"):
        execute(
            database,
            f"create table {table} (id int primary key, v text) partition by range (id)",
            f"create table {table}_1 partition of {table} default",
        )
    lake = make_lake(database, tmp_path / "lake", without={"r_1", "s_1"})
    install_trigger(database)
    _capture(database, lake)
    statements = (
        "insert into r values (1, 'r'); insert into s values (1, 's')",
        "alter table r rename to aside; alter table s rename to r; alter table aside rename to s",
        "insert into r values (2, 'r'); insert into s values (2, 's')",
        """begin; alter table r rename to q; insert into q values (3, 'q'); alter table q add x int default 4;
        insert into q values (4, 'q'); commit""",
        "alter table q rename v to w; alter table q rename to p; insert into p values (5, 'p')",
        "delete from p where id < 9; truncate s",
    )
    for statement in statements:
        execute(database, statement)
        if alone:
            _capture(database, lake)
    _capture(database, lake)
    inserted = [(row["table"], row["new"][1]) for row in oracle.changes(lake) if row["op"] == "insert"]
    assert len(inserted) == 7
    assert all(table == value for table, value in inserted), inserted
    assert {row["table"] for row in oracle.changes(lake) if row["op"] in {"delete", "truncate"}} == {"p", "s"}
    log = command.run_here(["log", "--lake", lake.root, "--json"]).stdout.splitlines()
    assert [sorted(json.loads(entry)["tables"]) for entry in log if json.loads(entry)["inserts"]] == [
        ["public.p"],
        ["public.q"],
        ["public.r", "public.s"],
        ["public.r", "public.s"],
    ]


_BY_ANOTHER_KEY = {
    "a partition": ("r_1", ["alter table r_1 replica identity using index r_1_n"]),
    "an empty partition that is attached": (
        "r_2",
        [
            "create table r_2 (id int not null, n int not null unique)",
            "alter table r_2 replica identity using index r_2_n_key",
            "alter table r attach partition r_2 for values from (100) to (200)",
        ],
    ),
}


def _lake_of_roots(dsn: str, root: Path) -> Lake:
    """Create a lake of a partitioned table with six rows in a partition that has another unique index."""
    execute(
        dsn,
        "create table r (id int primary key, n int not null) partition by range (id)",
        "create table r_1 partition of r for values from (0) to (100)",
        "create unique index r_1_n on r_1 (n)",
    )
    lake = make_lake(dsn, root, without={"r_1"})
    execute(dsn, "insert into r select n, n from generate_series(1, 6) n")
    _capture(dsn, lake)
    return lake


@pytest.mark.parametrize("kind", _BY_ANOTHER_KEY)
def test_a_partition_that_logs_another_key_parks_the_table(database: str, tmp_path: Path, kind: str) -> None:
    """Its old rows do not show which row was changed, so the table stays parked when it logs the key again."""
    partition, statements = _BY_ANOTHER_KEY[kind]
    lake = _lake_of_roots(database, tmp_path / "lake")
    execute(database, *statements)
    low = wal_end(database)
    _capture(database, lake)
    execute(database, "update r set id = 20 where id = 1", "delete from r where id = 2")
    for again in ([], [f"alter table {partition} replica identity default"], [f"analyze {partition}"]):
        execute(database, *again)
        _capture(database, lake)
        (parked,) = read_known(lake).parked.values()
        assert parked.reason == f"the replica identity of its partition {partition} lacks columns of its key"
        assert parked.lsn < low


def test_a_partition_that_logged_another_key_between_two_comparisons_parks_the_table(
    database: str, tmp_path: Path
) -> None:
    """The server describes it before its rows."""
    lake = _lake_of_roots(database, tmp_path / "lake")
    execute(database, "insert into r values (50, 50)")
    low = wal_end(database)
    for key in ("using index r_1_n", "default"):
        execute(database, f"alter table r_1 replica identity {key}", "update r set id = 2 * id + 10 where id = 1")
    _capture(database, lake)
    (parked,) = read_known(lake).parked.values()
    assert parked.reason == "the replica identity of its partition r_1 lacks columns of its key"
    assert low <= parked.lsn + 1 < wal_end(database)


def test_a_partition_that_logs_whole_rows_is_followed(database: str, tmp_path: Path) -> None:
    """They have the key of the table."""
    lake = _lake_of_roots(database, tmp_path / "lake")
    execute(
        database,
        "alter table r_1 replica identity full",
        "update r set id = 20 where id = 1",
        "update r set n = 30 where id = 3",
        "delete from r where id = 2",
    )
    _capture(database, lake)
    with psycopg.connect(database) as conn:
        expected = conn.execute("select id::text, n::text from r order by 1").fetchall()
    rows = auditlake.Lake(lake.root).as_of().table("public.r").texts()
    assert sorted((row["id"], row["n"]) for row in rows) == expected


def test_columns_of_a_table_that_logs_whole_rows_are_renamed_and_dropped(database: str, tmp_path: Path) -> None:
    """Its key is all published columns, or the primary key, whatever their names were when the catalog was compared."""
    execute(
        database,
        "create table r (id int, v text, w text, g int generated always as (id * 2) stored) partition by range (id)",
        "create table s (id int primary key, v text) partition by range (id)",
        *(f"create table {root}_1 partition of {root} default" for root in "rs"),
        *(f"alter table {table} replica identity full" for table in ("r", "r_1", "s", "s_1")),
    )
    lake = make_lake(database, tmp_path / "lake", without={"r_1", "s_1"})
    for change in ("analyze r", "alter table r rename v to x", "alter table s rename id to i", "alter table r drop w"):
        execute(database, change, "insert into r values (1)", "insert into s values ((select count(*) from s))")
        _capture(database, lake)
        assert not read_known(lake).parked, change


def test_a_truncated_partition_of_a_table_that_is_dropped_is_not_answered(database: str, tmp_path: Path) -> None:
    """The DDL trigger reports the drop exactly, and nothing reports the TRUNCATE of a partition before it."""
    lake = _lake(database, tmp_path / "lake")
    install_trigger(database)
    _capture(database, lake)
    execute(database, "truncate t_a")
    between = Lsn(wal_end(database) - 1)
    execute(database, "drop table t", "insert into u values (1)")
    _capture(database, lake)
    known = read_known(lake)
    assert known.parked[_T].ended
    with pytest.raises(NotAnswerable, match="may have lost or gained rows"):
        known.timeline(known.tables[_T]).require((between, AtLsn(between)))
