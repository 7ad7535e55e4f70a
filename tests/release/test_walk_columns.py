"""Test of columns added while tables are followed: at each moment the lake has PostgreSQL's rows and columns.

Each step ends with a change of every altered table, so that the stream has sent the new shape. Rows exist before the
snapshot, and some never change again: their values in a new column are in no change.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from threading import Event as Flag
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

import auditlake
from auditlake.apply.apply import Reached, apply_pending
from auditlake.audit.answers import DeletedRow, RowEvent
from auditlake.audit.diff import ADDED, MODIFIED, REMOVED, DifferingRow, compared_rows
from auditlake.audit.json_output import content_json, deleted_json, event_json
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.queries import RowQuestion, blame_of, life_of
from auditlake.audit.row_history import deleted_rows
from auditlake.audit.touched_rows import lsns_of_table
from auditlake.audit.transaction_contents import contents
from auditlake.audit.transactions import TransactionFilters, find
from auditlake.capture.supervisor import make_task, run_capture
from auditlake.failpoints import After
from auditlake.lake.histories import list_histories
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.snapshot.bootstrap import Target, bootstrap
from auditlake.snapshot.worker_pool import SparkWorkers
from auditlake.source.connection import connect
from auditlake.source.server import wal_end
from tests.arrow_state import texts_at
from tests.s3_server import chosen_lake
from tests.server import Server

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_LARGE = "(select string_agg(md5(n::text || '{}'), '') from generate_series(1, 300) n)"
_SCHEMA = f"""
set search_path = public;
create table keyed (a int, id int, gone int, note text, primary key (id, a));
alter table keyed drop column gone;
alter table keyed alter note set storage external;
insert into keyed select 1, n, {_LARGE.format("x")} from generate_series(1, 6) n;
create table bag (n int, note text);
alter table bag replica identity full;
insert into bag values (1, 'x'), (1, 'x'), (2, null), (3, 'z');
create table parts (id int, kind text, primary key (id, kind)) partition by list (kind);
create table parts_a partition of parts for values in ('a');
create table parts_b (kind text not null, gone int, id int not null);
alter table parts_b drop column gone;
alter table parts attach partition parts_b for values in ('b');
insert into parts values (1, 'a'), (2, 'b'), (3, 'b');
create table stopped (id int primary key);
insert into stopped values (1), (2);
"""
_STEPS = (
    # With a default and without one, several at once; only one change sends the new shape.
    (
        "alter table keyed add column plain int, add column five int default 5",
        "update keyed set plain = 1 where id = 1",
        "alter table bag add column day date default 'infinity'",
        "insert into bag values (4, 'new', '2026-11-21')",
        "alter table parts add column v text default 'v', add column w numeric(5,2) default 'NaN'",
        "insert into parts values (4, 'a', 'own', 1.5)",
    ),
    # Inside a transaction that changes the table before and after, and twice; rows born and gone in the old shape.
    (
        """begin;
            insert into keyed values (1, 7, 'born before', 7, null), (1, 8, 'dies', 8, 8);
            update keyed set plain = 2 where id = 2;
            alter table keyed add column "Five" text default 'it''s';
            alter table keyed add column big text default repeat('y', 3);
            update keyed set five = 6 where id = 3;
            delete from keyed where id = 8;
            insert into keyed (id, a, "Five") values (9, 1, null);
            commit""",
        """begin;
           delete from bag where n = 2;
           insert into bag values (2, 'again', null);
           alter table bag add column empty text;
           delete from bag where ctid = (select min(ctid) from bag where n = 1);
           update bag set n = 30 where n = 3;
           commit""",
    ),
    # Unchanged large values in both shapes, changed keys, a column whose default was dropped again.
    (
        "alter table keyed add column last int default 9",
        "alter table keyed alter column last drop default",
        "update keyed set id = 40 where id = 4",
        "update keyed set plain = plain where id in (5, 7)",
        "delete from keyed where id = 6",
        "update bag set note = note",
        "update parts set kind = 'a' where id = 2",
    ),
    (
        "delete from parts",  # TRUNCATE hides what happened to the partitions since the capture before
        "insert into parts values (5, 'b')",
        "truncate bag",
        "alter table stopped add column own int default (random() * 100)::int",
        "insert into stopped values (3)",
    ),
)
_PERIOD = ("_from_lsn", "_to_lsn", "_ordinal", "_op", "_end_op")
_KEYS = {
    "keyed": [(f"id={n}", "a=1") for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 40)],
    "parts": [(f"id={n}", f"kind={kind}") for n in (1, 2, 4, 5) for kind in "ab"],
}
_TABLES = ("keyed", "bag", "parts")


@dataclass(frozen=True)
class Shown:
    """The columns and rows of a table."""

    columns: list[str]
    rows: Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class Walk:
    """A lake, and PostgreSQL's columns and rows of every table by LSN."""

    conninfo: str
    lake: Lake
    moments: list[tuple[Lsn, dict[str, Shown]]]


@pytest.fixture(scope="module")
def walk(server: Server, spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """Bootstrap, and execute the steps; capture after the second and the last; apply nothing."""
    name = server.create_database("columns")
    made = Walk(server.dsn(name), chosen_lake(tmp_path_factory.mktemp("columns") / "lake"), [])
    with connect(made.conninfo) as conn:
        conn.execute(_SCHEMA)
        bootstrap(
            Target(made.conninfo, made.lake, "columns", "columns", None), lambda: SparkWorkers(spark), lambda _: None
        )
        for number, step in enumerate(((), *_STEPS)):
            for statement in step:
                conn.execute(statement)
            # The server writes WAL by itself, and a moment after the snapshot may be inside the gap of the next change.
            lsn = Lsn(wal_end(conn).lsn - 1) if number else list_histories(made.lake)[0].horizon
            made.moments.append((lsn, {table: _shown(conn, table) for table in _TABLES}))
            if number == 2:
                _capture(made)
    _capture(made)
    yield made
    server.drop_database(name)


def _capture(walk: Walk) -> None:
    run_capture(make_task(walk.conninfo, walk.lake, "current"), Flag(), lambda _: None)


def _shown(conn: "psycopg.Connection[Any]", table: str) -> Shown:
    cursor = conn.execute(f"select * from {table}")
    columns = [column.name for column in cursor.description or ()]
    texts = ", ".join(f'"{column}"::text' for column in columns)
    return Shown(columns, Counter(conn.execute(f"select {texts} from {table}").fetchall()))


def _texts(frame: "DataFrame") -> list[Row]:
    """Return rows as PostgreSQL's texts: the period's columns, then the others by name."""
    source = [name for name in frame.columns if not name.startswith("_")]
    period = [name for name in _PERIOD if name in frame.columns]
    texts = [F.coalesce(F.col("_raw")[name], F.col(name).cast("string")) for name in source]
    named = [text.alias(name.replace("~46ive", "Five ")) for text, name in zip(texts, source, strict=True)]
    return frame.select(*period, *named).collect()


def _check_state(walk: Walk, spark: "SparkSession", number: int) -> None:
    lsn, tables = walk.moments[number]
    rows = _texts(auditlake.read(spark, walk.lake.root, "keyed", str(lsn), raw=True))
    assert Counter(map(tuple, rows)) == tables["keyed"].rows, number
    _check_columns(walk, spark, number)


def _check_columns(walk: Walk, spark: "SparkSession", number: int) -> None:
    lsn, tables = walk.moments[number]
    columns = auditlake.read(spark, walk.lake.root, "keyed", str(lsn)).columns
    assert [name.replace("~46ive", "Five") for name in columns] == tables["keyed"].columns, number


def _versions(walk: Walk, spark: "SparkSession", *tables: str) -> dict[str, Counter[tuple[Any, ...]]]:
    """Return every version of these tables, after checking that they imply every moment in its columns."""
    found = {}
    for table in tables:
        rows = _texts(auditlake.sql(spark, walk.lake.root, f"select * from {table} for system_time all"))
        found[table] = Counter(map(tuple, rows))
        for number, (lsn, shown) in enumerate(walk.moments):
            there = [name.replace("Five", "Five ") for name in shown[table].columns]
            held = [row for row in rows if row["_from_lsn"] <= lsn and (row["_to_lsn"] is None or row["_to_lsn"] > lsn)]
            state = Counter(tuple(row[name] for name in there) for row in held)
            assert shown[table].rows == state, (table, number)
    return found


def _check_states(walk: Walk) -> None:
    """Check every state without Spark."""
    reader = Reader(walk.lake, datetime(2026, 11, 21, tzinfo=UTC))
    for lsn, tables in walk.moments:
        for name, shown in tables.items():
            columns, rows = texts_at(reader, TableName("public", name), lsn)
            assert (shown.columns, shown.rows) == (columns, rows), (name, lsn)


def _audit(walk: Walk) -> list[object]:
    """Return the answers of all audit commands, after checking that differences are PostgreSQL's."""
    _check_states(walk)
    reader = Reader(walk.lake, datetime(2026, 11, 21, tzinfo=UTC))
    end = reader.moment(None)
    span = Span(walk.moments[0][0], end)
    said: list[object] = [
        content_json(each) for t in find(reader, span, TransactionFilters(), None) for each in contents(reader, t)
    ]
    for table in (reader.table("keyed"), reader.table("parts")):
        names = {column.name for column in reader.columns_at(table, end)}
        said += [lsns_of_table(reader, table, span, None, name) for name in sorted(names)]
        said += [deleted_json(DeletedRow.of(reader, table, row, None)) for row in deleted_rows(reader, table, span)]
        keys = _KEYS[table.name.table]
        for life in (life_of(reader, RowQuestion(table.name.table, key, None, None)) for key in keys):
            said += [event_json(each) for each in life.entries() if isinstance(each, RowEvent)]
        blames = (blame_of(reader, RowQuestion(table.name.table, key, None, None)) for key in keys)
        said += [(each.column, each.text, each.commit) for found in blames for each in found.columns]
    for (one, was), (other, now) in (*pairwise(walk.moments), (walk.moments[0], walk.moments[-1])):
        for name in _TABLES:
            _check_diff(reader, Span(one, other), was[name], now[name], reader.table(name))
    return said


def _check_diff(reader: Reader, span: Span, was: Shown, now: Shown, table: HistoryTable) -> None:
    """Check that added and removed rows are those of the two moments, in the columns of each."""
    found = compared_rows(reader, table, span, reverse=False)
    assert [f"column {name} added" for name in now.columns if name not in was.columns] == found.schema_changes()
    if not table.key:
        return
    key = [column.name for column in table.key]
    one, other = ({tuple(row[name] for name in key): row for row in _rows(shown)} for shown in (was, now))
    entries = {kind: list(found.entries(kind)) for kind in (ADDED, REMOVED, MODIFIED)}
    assert [one[k] for k in one.keys() - other.keys()] == _in_order_of(one.keys() - other.keys(), entries[REMOVED], key)
    assert [other[k] for k in other.keys() - one.keys()] == _in_order_of(other.keys() - one.keys(), entries[ADDED], key)
    both = {k for k in one.keys() & other.keys() if any(one[k][n] != other[k][n] for n in was.columns)}
    assert both == {tuple(str(each.key[name]) for name in key) for each in entries[MODIFIED]}


def _rows(shown: Shown) -> list[dict[str, Any]]:
    return [dict(zip(shown.columns, row, strict=True)) for row in shown.rows.elements()]


def _in_order_of(keys: Iterable[tuple[Any, ...]], entries: list[DifferingRow], key: list[str]) -> list[Any]:
    values = {tuple(each.key[name] for name in key): each.after or each.before for each in entries}
    return [values[each] for each in keys]


class _Killed(BaseException):
    """Raised instead of a kill, which looks the same to the lake."""


def _die(place: After) -> None:
    if place == After.COLUMNS_ADDED:
        raise _Killed


def _keyed(walk: Walk) -> HistoryTable:
    return next(table for table in list_histories(walk.lake) if table.name.table == "keyed")


def _apply_keyed(walk: Walk, spark: "SparkSession", upto: Lsn) -> None:
    """Apply `keyed` only, as if the others had been searched up to there."""
    others = [table for table in list_histories(walk.lake) if table.name.table != "keyed"]
    apply_pending(lambda: spark, walk.lake, upto, {table.name: Reached(table.position, upto) for table in others})


def test_every_moment_equals_postgresql_at_every_progress_of_apply(
    walk: Walk, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing applied; killed after columns were added; half applied; all applied."""
    before, said = _versions(walk, spark, *_TABLES), _audit(walk)
    _check_columns(walk, spark, 2)
    middle, position = walk.moments[1][0], _keyed(walk).position
    with monkeypatch.context() as patched:
        patched.setattr("auditlake.apply.merge.reach", _die)
        with pytest.raises(_Killed):
            _apply_keyed(walk, spark, middle)
    assert (len(_keyed(walk).columns), _keyed(walk).position) == (5, position)
    _check_columns(walk, spark, 0)
    assert _versions(walk, spark, "keyed") == {"keyed": before["keyed"]}

    _apply_keyed(walk, spark, middle)
    _check_state(walk, spark, 3)
    assert _audit(walk) == said

    (parked,) = apply_pending(lambda: spark, walk.lake).parked.values()
    assert re.match(r"column own was added with a value of its own in each row", parked.reason)
    assert _versions(walk, spark, *_TABLES) == before
    for number in (0, 2, 4):
        _check_columns(walk, spark, number)
