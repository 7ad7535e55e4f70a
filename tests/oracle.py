"""What PostgreSQL says was true at an LSN, and whether a lake says the same.

The LSN of a moment is exact although others go on writing: a temporary slot exports its snapshot, and every commit up
to its snapshot LSN is in it, none later.
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
from deltalake import DeltaTable, QueryBuilder
from psycopg import sql
from pyspark.sql import SparkSession

import auditlake
from auditlake.lake.history import list_histories
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.postgres.connection import connect, connect_replication
from auditlake.postgres.creation import Waiting, create_slot
from auditlake.query.sql import run_sql

State = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class Moment:
    """The rows of some tables when every commit up to `lsn`, and no other, had happened."""

    lsn: Lsn
    states: dict[str, State]


def take_moment(dsn: str, tables: Sequence[str]) -> Moment:
    """Ask PostgreSQL for the state of tables of the schema `public`, and when that is."""
    replication = connect_replication(dsn)
    with connect(dsn) as control, psycopg.connect(dsn) as reader:
        try:
            name = f"moment_{replication.backend_pid}"
            created = create_slot(replication, control, name, temporary=True, waiting=Waiting(60))
            reader.execute("set transaction isolation level repeatable read")
            reader.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(created.snapshot_id)))
            states = {table: Counter(_rows(reader, table)) for table in tables}
        finally:
            replication.finish()
    return Moment(created.snapshot_lsn, states)


def _rows(conn: psycopg.Connection[tuple[Any, ...]], table: str) -> list[tuple[Any, ...]]:
    return conn.execute(sql.SQL("select * from public.{}").format(sql.Identifier(table))).fetchall()


def assert_state(spark: SparkSession, lake: Lake, moment: Moment) -> int:
    """See that the lake gives the same state of every table that was known at the moment; return how many were."""
    horizons = {table.name.table: table.horizon for table in list_histories(lake)}
    known = [table for table in moment.states if moment.lsn >= horizons[table]]
    for table in known:
        rows = auditlake.read(spark, lake.root, f"public.{table}", as_of=str(moment.lsn)).collect()
        assert moment.states[table] == Counter(tuple(row) for row in rows), f"{table} as of {moment.lsn}"
    return len(known)


def assert_histories(spark: SparkSession, lake: Lake) -> None:
    """See that the periods of a key follow each other: none is empty, none overlaps, only the last may be open."""
    for table in list_histories(lake):
        key = [column.name for column in table.key]
        shown = ", ".join([*key, "_from_lsn", "_to_lsn"])
        rows = run_sql(spark, lake, f"select {shown} from {table.name} for system_time all order by {shown}").collect()
        for one, following in zip(rows, [*rows[1:], None], strict=True):
            begin, end = one[-2:]
            assert end is None or begin < end, f"an empty period in {table.name}"
            if table.key and following is not None and one[:-2] == following[:-2]:
                assert end is not None, f"two open versions, or an open one before a later, in {table.name}"
                assert end <= following[-2], f"periods overlap in {table.name}"


def changes(lake: Lake) -> list[dict[str, Any]]:
    """Every visible row of `changes`, in order; each place is there once."""
    rows = _query(lake.changes, lake, "order by lsn, ordinal")
    assert len({(row["lsn"], row["ordinal"]) for row in rows}) == len(rows), "a change is there twice"
    return rows


def transactions(lake: Lake) -> list[dict[str, Any]]:
    """Every visible row of `transactions`, in order; each LSN is there once and `time_mono` never falls."""
    rows = _query(lake.transactions, lake, "order by lsn")
    assert len({row["lsn"] for row in rows}) == len(rows), "a transaction is there twice"
    assert all(before["time_mono"] <= after["time_mono"] for before, after in pairwise(rows))
    return rows


def _query(path: Path, lake: Lake, order: str) -> list[dict[str, Any]]:
    positions = read_positions(lake)
    assert positions is not None
    query = f"select * from log where lsn <= {positions.watermark:d} {order}"
    found = pa.table(QueryBuilder().register("log", DeltaTable(path)).execute(query).read_all())
    return list(found.to_pylist())


def confirmed_flush(dsn: str, slot: str = "auditlake") -> Lsn:
    """How far the slot's reader has acknowledged."""
    query = "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s"
    with closing(psycopg.connect(dsn)) as conn:
        row = conn.execute(query, [slot]).fetchone()
    assert row is not None
    return Lsn.parse(row[0])
