"""Read PostgreSQL's state at an LSN, and compare a lake with it. No JVM.

The LSN of a moment is exact although others continue to write: a temporary slot exports its snapshot, which contains
every commit up to its snapshot LSN and none later. Rows are PostgreSQL's own texts.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from deltalake import QueryBuilder
from psycopg import sql

from auditlake.delta.table import open_table
from auditlake.lake.histories import list_histories
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.source.connection import Row, connect, connect_replication
from auditlake.source.slot import Waiting, create_slot
from tests.random_ddl import ERASED, SCHEMAS
from tests.read_lake import positions_of
from tests.replay import Replay, State, history_rows


@dataclass(frozen=True)
class Moment:
    """The rows of some tables after exactly the commits up to `lsn`."""

    lsn: Lsn
    states: dict[str, State]


def take_moment(dsn: str, tables: Sequence[str]) -> Moment:
    """Read the state of tables of the schema `public`, with its LSN."""
    replication = connect_replication(dsn)
    locked = sql.SQL(", ").join(sql.Identifier("public", table) for table in tables)
    with connect(dsn) as control, connect(dsn) as reader:
        try:
            with reader.transaction():
                reader.execute("set transaction isolation level repeatable read")
                # TRUNCATE is not MVCC-safe: an older snapshot would find the table empty after it.
                reader.execute(sql.SQL("lock table {} in access share mode").format(locked))
                name = f"moment_{replication.info.backend_pid}"
                created = create_slot(replication, control, name, temporary=True, waiting=Waiting(60))
                reader.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(created.snapshot_id)))
                states = {table: _texts(reader, table) for table in tables}
        finally:
            replication.close()
    return Moment(created.snapshot_lsn, states)


def _texts(conn: psycopg.Connection[Row], table: str) -> State:
    found = conn.execute(sql.SQL("select * from public.{}").format(sql.Identifier(table))).pgresult
    assert found is not None
    cells = ((found.get_value(row, column) for column in range(found.nfields)) for row in range(found.ntuples))
    return Counter(tuple(None if value is None else value.decode() for value in row) for row in cells)


def fixed_histories(lake: Lake) -> list[HistoryTable]:
    """Return the histories of all tables but those of random schema changes, and of removals."""
    return [table for table in list_histories(lake) if table.name.schema not in {*SCHEMAS, ERASED}]


def assert_log(lake: Lake, moments: Sequence[Moment], captured: list[dict[str, Any]] | None = None) -> list[int]:
    """Check that snapshots and `changes` result in PostgreSQL's states; return the known tables per moment.

    `captured` are all changes, if some have expired.
    """
    histories = fixed_histories(lake)
    replay = Replay(lake, histories, changes(lake) if captured is None else captured)
    known = []
    for moment in sorted(moments, key=lambda moment: moment.lsn):
        replay.to(moment.lsn)
        tables = _known(histories, moment)
        for table in tables:
            assert moment.states[table.name.table] == replay.state(table.name), f"{table.name} at {moment.lsn}"
        known.append(len(tables))
    return known


def assert_histories_at(lake: Lake, moments: Sequence[Moment]) -> list[int]:
    """Check that completely applied histories have PostgreSQL's states; return the known tables per moment."""
    histories = fixed_histories(lake)
    known = []
    for moment in moments:
        tables = _known(histories, moment)
        for table in tables:
            lsn = moment.lsn
            rows = history_rows(lake, table, f"_from_lsn <= {lsn:d} and (_to_lsn is null or _to_lsn > {lsn:d})", lsn)
            assert moment.states[table.name.table] == Counter(rows), f"{table.name} as of {lsn}"
        known.append(len(tables))
    return known


def _known(histories: Sequence[HistoryTable], moment: Moment) -> list[HistoryTable]:
    return [table for table in histories if table.name.table in moment.states and moment.lsn >= table.horizon]


def assert_periods(lake: Lake) -> int:
    """Check that periods of a key do not overlap, none is empty, and only the last is open.

    Return the number of versions.
    """
    versions = 0
    for table in fixed_histories(lake):
        key = [f'"{column.stored}"' for column in table.key]
        shown = ", ".join([*key, "_from_lsn", "_to_lsn", "_part"])
        found = QueryBuilder().register("history", open_table(table.path))
        rows = pa.table(found.execute(f"select {shown} from history order by {shown}").read_all()).to_pylist()
        cells = [tuple(row.values()) for row in rows]
        for one, following in zip(cells, [*cells[1:], None], strict=True):
            begin, end, part = one[-3:]
            assert end is None or begin < end, f"an empty period in {table.name}"
            assert (end is None) == (part == "open"), f"a version in the wrong part of {table.name}"
            if table.key and following is not None and one[:-3] == following[:-3]:
                assert end is not None, f"two open versions, or an open one before a later, in {table.name}"
                assert end <= following[-3], f"periods overlap in {table.name}"
        versions += len(cells)
    return versions


def changes(lake: Lake) -> list[dict[str, Any]]:
    """Return every visible row of `changes` in order; check that each (lsn, ordinal) is unique."""
    rows = _query(lake.changes, lake, "order by lsn, ordinal")
    assert len({(row["lsn"], row["ordinal"]) for row in rows}) == len(rows), "a change is in the log twice"
    return rows


def transactions(lake: Lake) -> list[dict[str, Any]]:
    """Return every visible row of `transactions`; check that LSNs are unique and `time_mono` never decreases."""
    rows = _query(lake.transactions, lake, "order by lsn")
    assert len({row["lsn"] for row in rows}) == len(rows), "a transaction is in the log twice"
    assert all(before["time_mono"] <= after["time_mono"] for before, after in pairwise(rows))
    return rows


def _query(path: Path, lake: Lake, order: str) -> list[dict[str, Any]]:
    positions = positions_of(lake)
    query = f"select * from log where lsn <= {positions.watermark:d} {order}"
    found = pa.table(QueryBuilder().register("log", open_table(path)).execute(query).read_all())
    return list(found.to_pylist())


def confirmed_flush(dsn: str, slot: str = "auditlake") -> Lsn:
    """Return the slot's confirmed_flush_lsn."""
    query = "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s"
    with closing(psycopg.connect(dsn)) as conn:
        row = conn.execute(query, [slot]).fetchone()
    assert row is not None
    return Lsn.parse(row[0])
