"""Insert rows into a table, then read them from a copied file and from the captured changes, without a JVM."""

import threading
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from auditlake.capture.preconditions import CaptureSource
from auditlake.capture.supervisor import open_capture
from auditlake.errors import AuditlakeError
from auditlake.lake.history import type_of
from auditlake.lake.manifest import require_manifest
from auditlake.lsn import Lsn
from auditlake.relation import Relation
from auditlake.snapshot.copy import copy_bundle
from auditlake.snapshot.ctid_ranges import CopiedFile, CopyTask, PageRange, SnapshotMark
from auditlake.source.catalog import read_tables
from auditlake.source.connection import Row, connect, pinned_conninfo
from auditlake.source.server import wal_end
from auditlake.values.exact_text import exact_texts
from tests import oracle
from tests.capture_lake import make_lake

Texts = list[list[str | None]]


def both_roads(dsn: str, folder: Path, *statements: str) -> tuple[Texts, Texts]:
    """Insert rows into the empty table `t`; return the texts of its copied file and those of `changes`."""
    lake = make_lake(dsn, folder / "lake")
    with psycopg.connect(dsn, client_encoding="UTF8") as conn:
        for statement in statements:
            conn.execute(statement.encode())
    with connect(dsn) as conn:
        end = wal_end(conn)
    open_capture(CaptureSource(dsn, require_manifest(lake)), lake, threading.Event()).run(end)
    streamed = [row["new"] for row in oracle.changes(lake)]
    return _copied(dsn, folder / "copy"), streamed


def attempt_copy(dsn: str, folder: Path) -> CopiedFile | AuditlakeError:
    """Copy the table `t` as one range; return the file or the failure."""
    with connect(dsn) as conn, conn.transaction():
        conn.execute("set transaction isolation level repeatable read")
        (snapshot_id,) = conn.execute("select pg_export_snapshot()").fetchone() or ("",)
        table, pages, mark = _relation(conn), PageRange(0, None), SnapshotMark(Lsn(1), 0)
        task = CopyTask(pinned_conninfo(dsn), str(snapshot_id), table.name, table.columns, pages, folder, mark)
        (copied,) = copy_bundle([task])
    return copied


def _relation(conn: psycopg.Connection[Row]) -> Relation:
    return next(table.relation for table in read_tables(conn) if table.name.table == "t")


def _copied(dsn: str, folder: Path) -> Texts:
    copied = attempt_copy(dsn, folder)
    assert isinstance(copied, CopiedFile)
    file = pq.read_table(folder / copied.path, partitioning=None)
    with connect(dsn) as conn:
        columns = _relation(conn).columns
    raws = [dict(raw or ()) for raw in file["_raw"].to_pylist()]
    printed = []
    for column in columns:
        raw = pa.array([row.get(column.stored) for row in raws], pa.string())
        printed.append(exact_texts(_whole(file[column.stored]), type_of(column), raw).to_pylist())
    return [list(row) for row in zip(*printed, strict=True)]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
