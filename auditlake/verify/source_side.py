"""Source side of a verification: a snapshot at one exact LSN, and digests of page ranges read under it.

Order of effects:
  1. Record the relfilenode of every table that has rows.
  2. Create a temporary slot, which exports its snapshot: it contains every commit up to `consistent point - 1`, and no
     other. This waits for writing transactions.
  3. A session imports the snapshot and exports it again. The slot is dropped at once, so it retains no WAL.
  4. Sessions that import the snapshot read ranges, a bundle of them per transaction, in Spark tasks or threads. They
     write nothing, at the source or in the lake.
  5. After a table's last range, its relfilenodes are compared with those of step 1. A rewrite (ALTER TYPE, TRUNCATE,
     VACUUM FULL) makes a table look empty to older snapshots, silently; such a table is reported as unverified.

Invariants:
  I1. ACCESS SHARE locks end with a bundle's transaction. The first copy holds its locks until the end, as it cannot be
      repeated; here a rewritten table is only reported. The snapshot lasts as long as the verification: until then,
      vacuum cannot remove rows deleted after it was taken.
  I2. Values are compared as text, rendered by PostgreSQL itself with the type's output function. The copy reads the
      binary form (`snapshot.column_codec`), and the stream's text is cast in Spark. Verification would miss a mistake
      in either if it read values in the same way, so it shares only the connection and the transport of text
      (`snapshot.copy.RangeReader`), which converts nothing.

Authority: postgresql.org/docs/current/functions-admin.html, "Snapshot Synchronization"; mvcc-caveats.html
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa

from auditlake.errors import AuditlakeError, SourceAway, SourceUnready
from auditlake.lake.manifest import Manifest
from auditlake.lsn import Lsn
from auditlake.relation import Column, TableName
from auditlake.snapshot.column_codec import output_text, storage_of
from auditlake.snapshot.copy import RangeReader, ReadFailed, Throttle
from auditlake.snapshot.ctid_ranges import WHOLE, PageRange, page_ranges
from auditlake.snapshot.plan import chosen_of, read_source
from auditlake.snapshot.scheduler import SourceLoad
from auditlake.source.catalog import FollowedTable, TableSize, read_row_filters, read_sizes
from auditlake.source.connection import (
    Row,
    connect,
    connect_replication_beside,
    fetch,
    for_other_machines,
    pinned_conninfo,
    unlimited,
)
from auditlake.source.slot import Waiting, create_slot, read_slot
from auditlake.source.snapshot_session import SnapshotHolder
from auditlake.sql_names import standard_identifier
from auditlake.values.escapes import escape_column
from auditlake.values.masks import ColumnMask
from auditlake.values.types import STRING_OIDS, Conversion, column_type
from auditlake.verify.digest import SIDE_SCHEMA, Digest, Sums, rows_of_buckets

# For these a cast to text calls the type's output function. Not so for boolean, char(n), inet and others.
_CAST_IS_OUTPUT = frozenset(
    {
        Conversion.INTEGER,
        Conversion.FLOAT,
        Conversion.DECIMAL,
        Conversion.DATE,
        Conversion.TIMESTAMP,
        Conversion.TIMESTAMPTZ,
        Conversion.BYTEA,
    }
)
_INSUFFICIENT_PRIVILEGE = "42501"
_RENAMED = "it was dropped or renamed while it was being verified"
_REASONS = {
    _INSUFFICIENT_PRIVILEGE: (
        "the role lacks SELECT or USAGE (auditlake check --print-grants verify), or row security hides rows of it"
    ),
    "55P03": "a session holds or awaits ACCESS EXCLUSIVE on it",
    "57014": "a range took longer than the statement timeout",
    "42P01": _RENAMED,
    "3F000": _RENAMED,
    "42703": "its columns changed while it was being verified",
    "22023": "the session that held the snapshot was ended",
}
_RANGE_BYTES = 16 << 20
_LOCK_TIMEOUT = "10s"
_STATEMENT_TIMEOUT_S = 900
_FILES = "select oid::bigint, pg_catalog.pg_relation_filenode(oid)::bigint from pg_catalog.pg_class where relkind = 'r'"
_FILES_OF = f"{_FILES} and oid = any (%s::oid[])"
_NOTHING = TableSize(0, 0, 0)


@dataclass(frozen=True, slots=True)
class RangeTask:
    """One range of a table's rows; `name` may be a partition. `conninfo` may hold a password and is never printed.

    `of_stranger`: it is the whole table, read without a query (`snapshot.text_copy`).
    """

    conninfo: str = field(repr=False)
    snapshot_id: str
    name: TableName
    columns: tuple[Column, ...]
    pages: PageRange
    row_filter: str | None
    digest: Digest
    source_bytes: int
    bytes_per_s: float | None
    masks: Mapping[str, ColumnMask] = field(default_factory=dict)
    of_stranger: bool = False

    @property
    def query(self) -> str:
        """Query for the range's rows, with every column as PostgreSQL's text."""
        listed = ", ".join(_as_text(column) for column in self.columns)
        table = standard_identifier(*self.name)
        return f"select {listed} from only {table}{self.pages.condition(self.row_filter)}"


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """The source as of `lsn`; `tables` are the published tables under the snapshot.

    `owner` is the connection string that was given, `conninfo` that of the sessions that read.
    """

    owner: str = field(repr=False)
    lsn: Lsn
    tables: Mapping[TableName, FollowedTable]
    conninfo: str = field(repr=False)
    snapshot_id: str
    control: psycopg.Connection[Row]
    files: Mapping[int, int]
    load: SourceLoad
    slot: str
    publication: str

    def slot_reader(self) -> int | None:
        """Return the pid of the walsender that serves capture; None if there is none."""
        slot = read_slot(self.control, self.slot)
        return None if slot is None else slot.active_pid

    def rewritten(self, table: FollowedTable) -> str | None:
        """Return the reason why a table's digests are invalid; None if they are valid."""
        oids = [part.relation.oid for part in table.parts]
        now = _as_files(fetch(self.control, _FILES_OF, oids))
        if any(now.get(oid) != self.files.get(oid) for oid in oids):
            return "it was rewritten, truncated or dropped while it was being verified"
        return None

    def sizes(self, table: FollowedTable) -> dict[int, TableSize]:
        """Return the sizes of the tables that hold the rows; raises SourceUnready if one is locked."""
        with _unlocked():
            return read_sizes(self.control, [part.relation.oid for part in table.parts])

    def _row_filter(self, table: FollowedTable) -> str | None:
        """Return the row filter of a table as SQL; raises SourceUnready if it is locked, or the filter was changed."""
        with _unlocked():
            found = read_row_filters(self.control, self.publication, [table]).get(table.relation.oid)
        if found is None and table.row_filter is not None:
            raise SourceUnready("its row filter was changed while it was being verified")
        return found

    def tasks(
        self,
        table: FollowedTable,
        sizes: Mapping[int, TableSize],
        columns: Sequence[Column],
        digest: Digest,
        masks: Mapping[str, ColumnMask],
    ) -> list[RangeTask]:
        """Cut a table into ranges; `masks` are by the names of columns. Raises SourceUnready as `sizes` does."""
        row_filter = self._row_filter(table)
        rate = None if self.load.bytes_per_s is None else self.load.bytes_per_s / self.load.connections
        tasks = []
        for part in table.parts:
            size = sizes.get(part.relation.oid, _NOTHING)
            pages_per_range = max(1, _RANGE_BYTES * size.pages // max(1, size.size_bytes))
            for pages in [WHOLE] if size.of_stranger else page_ranges(size.pages, pages_per_range):
                share = pages.share(size.pages, size.size_bytes)
                task = RangeTask(
                    self.conninfo, self.snapshot_id, part.name, tuple(columns), pages, None, digest, share, rate
                )
                tasks.append(replace(task, row_filter=row_filter, masks=masks, of_stranger=size.of_stranger))
        return tasks


@contextmanager
def _unlocked() -> Iterator[None]:
    try:
        yield
    except psycopg.errors.LockNotAvailable:
        raise SourceUnready("a session holds or awaits ACCESS EXCLUSIVE on it") from None


@contextmanager
def snapshot(conninfo: str, manifest: Manifest, load: SourceLoad, waiting: Waiting) -> Iterator[SourceSnapshot]:
    """Hold a snapshot in the block; raises SourceUnready after a timeout, or without a free slot."""
    with connect(conninfo, manifest.lsn_offset) as control, SnapshotHolder(conninfo) as holder:
        control.execute(f"set lock_timeout = '{_LOCK_TIMEOUT}'".encode())
        files = _as_files(fetch(control, _FILES))
        holder.lock({}, 0)
        with closing(connect_replication_beside(control, conninfo)) as replication:
            name = f"{manifest.slot[:40]}_verify_{replication.info.backend_pid}"
            created = create_slot(replication, control, name, temporary=True, waiting=waiting)
            snapshot_id = holder.import_snapshot(created.snapshot_id)
        with holder.catalog() as conn:
            chosen = chosen_of(read_source(conn, manifest.publication), None)
        tables = {table.name: table for table in chosen}
        complete = for_other_machines(conninfo, control)
        limits = {**_limits(load), **unlimited(control.info.server_version)}
        readers = pinned_conninfo(complete, limits, application_name=holder.readers_name)
        names = (manifest.slot, manifest.publication)
        yield SourceSnapshot(conninfo, created.snapshot_lsn, tables, readers, snapshot_id, control, files, load, *names)


def _limits(load: SourceLoad) -> dict[str, str]:
    """Return the timeouts of reading sessions, both for locks and for statements."""
    expected_s = 0 if load.bytes_per_s is None else 4 * _RANGE_BYTES * load.connections // load.bytes_per_s
    return {"lock_timeout": _LOCK_TIMEOUT, "statement_timeout": f"{max(_STATEMENT_TIMEOUT_S, expected_s)}s"}


def _as_files(rows: Iterable[Row]) -> dict[int, int]:
    return {cast("int", oid): cast("int", file) for oid, file in rows}


def sum_ranges(tasks: Sequence[RangeTask]) -> list[Sums | AuditlakeError]:
    """Sum up the digests of each range; a failed range does not stop the others."""
    with RangeReader(tasks[0].conninfo, tasks[0].snapshot_id) as reader:
        return [_attempt(task, reader) for task in tasks]


def rows_of_ranges(tasks: Sequence[RangeTask], wanted: npt.NDArray[np.int64]) -> pa.Table:
    """Return the rows of the wanted buckets, as SIDE_SCHEMA; raises SourceUnready, SourceUnreachable."""
    batches: list[pa.RecordBatch] = []
    with RangeReader(tasks[0].conninfo, tasks[0].snapshot_id) as reader:
        for task in tasks:
            try:
                for texts, rows in _texts(task, reader):
                    digested = task.digest.of_rows(texts, rows)
                    batches.append(rows_of_buckets(task.digest, digested, texts, wanted))
            except ReadFailed as exc:
                raise _refused(task.name, exc) from None
    return pa.Table.from_batches(batches, SIDE_SCHEMA)


def _attempt(task: RangeTask, reader: RangeReader) -> Sums | AuditlakeError:
    sums = Sums(task.digest.buckets)
    try:
        for texts, rows in _texts(task, reader):
            sums.add_rows(task.digest, task.digest.of_rows(texts, rows))
    except ReadFailed as exc:
        return _refused(task.name, exc)
    except SourceUnready as exc:
        return exc
    return sums


def _texts(task: RangeTask, reader: RangeReader) -> Iterator[tuple[list[pa.Array], int]]:
    """Read the range in batches within the allowed rate: columns, of which there may be none, and number of rows."""
    throttle = Throttle(task.bytes_per_s)
    whole = task.name, task.columns, task.row_filter
    with reader.texts(*whole) if task.of_stranger else reader.rows(task.query) as batches:
        for batch in batches:
            yield [_masked(task, n, storage_of(column)) for n, column in enumerate(batch.columns)], batch.num_rows
            throttle.take(batch.nbytes)


def _masked(task: RangeTask, place: int, texts: pa.Array) -> pa.Array:
    """Return a column as it is in the lake: the rule is applied to the text that PostgreSQL rendered."""
    mask = task.masks.get(task.columns[place].name)
    return texts if mask is None else mask.texts(escape_column(texts))


def _refused(name: TableName, failed: ReadFailed) -> AuditlakeError:
    if failed.is_lost:
        return SourceAway(f"{name}: the connection was lost", "Run auditlake verify again.")
    remedy = "Grant that, then run auditlake verify again." if failed.sqlstate == _INSUFFICIENT_PRIVILEGE else None
    return SourceUnready(_REASONS.get(failed.sqlstate, f"it could not be read, SQLSTATE {failed.sqlstate}"), remedy)


def _as_text(column: Column) -> str:
    name = standard_identifier(column.name)
    if column.type_oid in STRING_OIDS:
        return name
    if column_type(*column.type).kind in _CAST_IS_OUTPUT:
        return f"{name}::pg_catalog.text"
    return output_text(name)
