"""Compare tables with the source at one snapshot: digest both sides, then find the keys and columns that differ.

  1. Digest the source's ranges. They take longest, and capture passes the snapshot's LSN meanwhile.
  2. Wait until the lake knows every commit up to that LSN; if no process captures, capture up to it.
  3. Digest the lake's tables as of that LSN and compare. Only rows of differing buckets are read again.

Rows are identified by the source's key. A column is compared if both sides have it at that LSN. A column that the
history does not have yet (no row has changed since it was added) is named in a note.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from auditlake.capture.preconditions import CaptureSource
from auditlake.capture.supervisor import Task, run_capture
from auditlake.errors import AuditlakeError, LakeConflict, NotAnswerable, SourceUnreachable, SourceUnready, Unsupported
from auditlake.lake.histories import list_histories
from auditlake.lake.history import HistoryTable, type_of
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.lake.masks import Masks
from auditlake.lake.positions import read_positions
from auditlake.lake.relations import read_relations
from auditlake.lsn import Lsn
from auditlake.messages import Say
from auditlake.relation import Column, TableName
from auditlake.settings.mask_rules import Masking
from auditlake.settings.streaming_mode import Streaming
from auditlake.snapshot.ctid_ranges import bundled
from auditlake.snapshot.worker_pool import run_in_task
from auditlake.source.catalog import FollowedTable
from auditlake.source.server import WalEnd
from auditlake.spark.planning import interpreted_if_wide
from auditlake.temporal.moments import Known, read_known
from auditlake.values.exact_text import arrow_type
from auditlake.values.types import ColumnType, Conversion
from auditlake.verify.digest import Digest, KeyDifference, Sums, chosen_buckets, differing_keys
from auditlake.verify.lake_side import Unreadable, VerifiedState, bucket_rows, exact_session, reading, state_at, sums_of
from auditlake.verify.progress import each_done
from auditlake.verify.report import Finding, TableReport
from auditlake.verify.source_side import RangeTask, SourceSnapshot, rows_of_ranges, sum_ranges

AT_ONCE = 4
"""Number of tables read concurrently in the lake."""
_POLL_S = 0.2
_GUESSED_ROW_BYTES = 100
# Errors that make one table unverified; all others end the command.
_OF_ONE_TABLE = (NotAnswerable, Unsupported, SourceUnready)
_KINDS = {
    "missing": "row missing in the lake",
    "extra": "row not at the source",
    "different": "row different from the source",
    "duplicate": "row more than once",
}


@dataclass(frozen=True, slots=True)
class ComparisonBounds:
    """Timeout of the wait for capture, its streaming mode and masks, and maximum number of findings per table."""

    timeout_s: float
    findings: int
    streaming: Streaming = field(default_factory=Streaming)
    masking: Masking = field(default_factory=Masking)


@dataclass(frozen=True, slots=True)
class _Side:
    """A table being compared: its compared columns, its ranges, and the sums of the source's side."""

    table: FollowedTable
    columns: tuple[Column, ...]
    tasks: tuple[RangeTask, ...]
    sums: Sums
    digest: Digest
    notes: tuple[str, ...] = ()


_Bundle = Sequence[tuple[TableName, RangeTask]]


class SourceComparison:
    """Compare the tables of one lake under one snapshot of its source."""

    def __init__(
        self, spark: SparkSession, lake: Lake, source: SourceSnapshot, bounds: ComparisonBounds, notify: Say
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._source = source
        self._bounds = bounds
        self._masks = Masks(lake, bounds.masking, records=False)  # capture has to see a column first
        self._notify = notify
        self._columns: dict[int, set[str]] = defaultdict(set)
        for relation in read_relations(lake).values():
            self._columns[relation.oid] |= {column.name for column in relation.columns}
        self._oids: dict[TableName, int] = {}
        self._by_oid: dict[int, FollowedTable] = {}

    def run(self, histories: Sequence[HistoryTable]) -> Iterator[TableReport]:
        """Compare these tables."""
        self._by_oid = {table.relation.oid: table for table in self._source.tables.values()}
        self._oids = {table.name: table.oid for table in list_histories(self._lake)}
        planned = {table.name: self._plan(table) for table in histories}
        yield from (side for side in planned.values() if isinstance(side, TableReport))
        sides = {name: side for name, side in planned.items() if isinstance(side, _Side)}
        failed = self._digest_source(sides)
        yield from failed.values()
        if len(failed) == len(sides):
            return
        self._await_lake()
        known = read_known(self._lake)
        ready = [(str(name), (known.tables[name], side)) for name, side in sides.items() if name not in failed]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            compared = each_done(pool, lambda pair: self._compare(known, *pair), ready, "comparing", self._notify)
            yield from (report for _, report in compared)

    def _table_of(self, history: HistoryTable) -> FollowedTable | None:
        """Return the source's table of a history, whatever its name is now; None if the publication has none.

        A table that has the name of a history, and is in no other one, will continue it.
        """
        found = self._by_oid.get(self._oids.get(history.name) or 0)
        named = self._source.tables.get(history.name)
        if found is not None or named is None or named.relation.oid in self._oids.values():
            return found
        return named

    def _plan(self, history: HistoryTable) -> _Side | TableReport:
        """Choose the columns by name, and cut the table into ranges."""
        name = str(history.name)
        table = self._table_of(history)
        if table is None:
            reason = f"publication {self._source.publication} of the source does not contain it"
            return TableReport(name, reason=reason, skipped=True)
        held = self._columns[table.relation.oid] | {column.name for column in history.current}
        columns = tuple(column for column in table.relation.columns if column.name in held)
        names = [column.name for column in columns]
        key = _key_places(table, names)
        try:
            sizes = self._source.sizes(table)
            rows = sum(size.rows or size.size_bytes // _GUESSED_ROW_BYTES for size in sizes.values())
            digest = Digest.of_table(key, rows, _floats(history, columns, key))
            tasks = tuple(self._source.tasks(table, sizes, columns, digest, self._masks.of(table.relation).columns))
        except SourceUnready as exc:
            return TableReport(name, reason=exc.message, remedy=exc.hint)
        unknown = [column.name for column in table.relation.columns if column.name not in held]
        notes = (f"its history has no column {', '.join(unknown)} yet",) if unknown else ()
        return _Side(table, columns, tasks, Sums(digest.buckets), digest, notes)

    def _digest_source(self, sides: Mapping[TableName, _Side]) -> dict[TableName, TableReport]:
        """Digest the source's side of all tables; return the tables that cannot be compared."""
        pairs = [(name, task) for name, side in sides.items() for task in side.tasks]
        left = Counter(name for name, _ in pairs)
        failed: dict[TableName, TableReport] = {}
        with closing(self._in_tasks(bundled(pairs, lambda pair: pair[1].source_bytes))) as results:
            for name, result in results:
                left[name] -= 1
                if isinstance(result, SourceUnreachable):
                    raise result
                if isinstance(result, Sums):
                    sides[name].sums.add(result)
                    if not left[name] and (reason := self._source.rewritten(sides[name].table)) is not None:
                        failed[name] = TableReport(str(name), reason=reason)
                else:
                    failed[name] = TableReport(str(name), reason=result.message, remedy=result.hint)
        return failed

    def _in_tasks(self, bundles: Sequence[_Bundle]) -> Generator[tuple[TableName, Sums | AuditlakeError]]:
        """Read bundles in concurrent Spark tasks, one per allowed connection."""
        pool = ThreadPoolExecutor(self._source.load.connections)
        named = [(_tables_in(bundle), bundle) for bundle in bundles]
        try:
            for bundle, results in each_done(pool, self._in_task, named, "reading at the source", self._notify):
                yield from ((name, result) for (name, _), result in zip(bundle, results, strict=True))
        finally:
            pool.shutdown(cancel_futures=True)

    def _in_task(self, bundle: _Bundle) -> list[Sums | AuditlakeError]:
        tasks = [task for _, task in bundle]
        try:
            return run_in_task(self._spark.sparkContext, partial(sum_ranges, tasks))
        except Py4JError:  # its text may quote rows
            return [SourceUnready("the Spark task that read it failed; check whether memory ran out") for _ in tasks]

    def _await_lake(self) -> None:
        """Wait until the lake knows every commit up to the snapshot; capture up to there if no other process does.

        Raises NotAnswerable; WrongSource, SourceUnreachable and LakeUnusable as a capture does.
        """
        if self._known_lsn() < self._source.lsn and self._source.slot_reader() is None:
            self._capture()
        deadline, reported = time.monotonic() + self._bounds.timeout_s, False
        while (known := self._known_lsn()) < self._source.lsn:
            if not reported:
                reads, advice = self._slot_reader("Start auditlake follow.", "auditlake status shows the lag.")
                self._notify(f"waiting until capture, at {known}, has passed {self._source.lsn}: {reads}. {advice}")
                reported = True
            if time.monotonic() > deadline:
                raise self._too_late(known)
            time.sleep(_POLL_S)

    def _capture(self) -> None:
        self._notify(f"no process reads slot {self._source.slot}: capturing up to {self._source.lsn}")
        stop = threading.Event()
        timer = threading.Timer(self._bounds.timeout_s, stop.set)
        timer.daemon = True
        timer.start()
        try:
            run_capture(self._capture_task, stop, self._notify)
        except LakeConflict as exc:  # its process is reconnecting, or has just started
            self._notify(exc.message)
        finally:
            timer.cancel()

    @property
    def _capture_task(self) -> Task:
        end = WalEnd(Lsn(self._source.lsn + 1), time_us=0)
        manifest, bounds = require_manifest(self._lake), self._bounds
        origin = CaptureSource(self._source.owner, manifest, bounds.streaming, masking=bounds.masking)
        return Task(origin, self._lake, end)

    def _known_lsn(self) -> Lsn:
        positions = read_positions(self._lake)
        return Lsn(0) if positions is None else positions.known_lsn

    def _too_late(self, known: Lsn) -> NotAnswerable:
        reads, advice = self._slot_reader(
            "Start auditlake follow and run auditlake verify again.",
            "Run auditlake verify again with a longer --timeout; auditlake status shows the lag.",
        )
        return NotAnswerable(
            f"after {self._bounds.timeout_s:g} s the lake has every commit up to {known}, the snapshot is at"
            f" {self._source.lsn}; {reads}",
            advice,
        )

    def _slot_reader(self, if_none: str, otherwise: str) -> tuple[str, str]:
        """Return who reads the slot, and one of two sentences."""
        reader, slot = self._source.slot_reader(), self._source.slot
        return (
            (f"no process reads slot {slot}", if_none)
            if reader is None
            else (f"pid {reader} reads slot {slot}", otherwise)
        )

    def _compare(self, known: Known, history: HistoryTable, side: _Side) -> TableReport:
        session = exact_session(self._spark, history)
        try:
            with interpreted_if_wide(session, len(history.columns)), reading(history):
                return self._compared(history, state_at(session, known, history, self._source.lsn), side)
        except _OF_ONE_TABLE as exc:
            parked = known.parked.get(history.name)
            return TableReport(str(history.name), reason=exc.message, remedy=parked.remedy if parked else exc.hint)
        except Unreadable as exc:
            return TableReport(str(history.name), findings=(exc.finding,))

    def _compared(self, history: HistoryTable, state: VerifiedState, side: _Side) -> TableReport:
        held = {column.name: column for column in state.columns}
        if absent := [column.name for column in side.columns if column.name not in held]:
            raise NotAnswerable(f"its history has no column {', '.join(absent)} at {self._source.lsn}")
        columns = [held[column.name] for column in side.columns]
        sums = sums_of(state, columns, side.digest)
        report = TableReport(str(history.name), rows=side.sums.total, notes=side.notes)
        differing = sums.differing(side.sums)
        if not len(differing):
            return report
        buckets = chosen_buckets(sums, side.sums, len(columns))
        lake, source = bucket_rows(state, columns, side.digest, buckets), self._source_rows(side, buckets)
        findings = [_finding(row, columns, side) for row in differing_keys(lake, source, keyed=bool(side.digest.key))]
        return report.with_findings(findings, self._bounds.findings, more=len(buckets) < len(differing))

    def _source_rows(self, side: _Side, buckets: npt.NDArray[np.int64]) -> pa.Table:
        """Read the rows of these buckets again, under the same snapshot."""
        bundles = bundled(side.tasks, lambda task: task.source_bytes)
        with ThreadPoolExecutor(self._source.load.connections) as pool:
            parts = list(pool.map(lambda bundle: rows_of_ranges(bundle, buckets), bundles))
        if reason := self._source.rewritten(side.table):
            raise NotAnswerable(reason)
        return pa.concat_tables(parts)


def _tables_in(bundle: _Bundle) -> str:
    names = sorted({str(name) for name, _ in bundle})
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _key_places(table: FollowedTable, names: Sequence[str]) -> list[int]:
    """Return the places of the source's key among the compared columns; none if one of its columns is not compared.

    The history may have another key at its position: changes of the key may not be applied yet.
    """
    key = [column.name for column in table.relation.columns if column.key]
    return [names.index(name) for name in key] if set(key) <= set(names) else []


def _floats(history: HistoryTable, columns: Sequence[Column], key: Sequence[int]) -> dict[int, pa.DataType]:
    """Return the columns that are floating-point numbers of the same width on both sides, except those of the key."""
    held: dict[str, set[ColumnType]] = defaultdict(set)
    for column in history.columns:
        for name in (column.name, *(former.name for former in column.former)):
            held[name].add(type_of(column))
    return {
        place: arrow_type(type_of(column))
        for place, column in enumerate(columns)
        if type_of(column).kind is Conversion.FLOAT and place not in key and held[column.name] == {type_of(column)}
    }


def _finding(difference: KeyDifference, columns: Sequence[Column], side: _Side) -> Finding:
    names = [columns[place].name for place in side.digest.key]
    key = tuple(zip(names, difference.key, strict=True)) if difference.key is not None else ()
    differing = tuple(columns[place].name for place in difference.columns)
    return Finding(_KINDS[difference.kind], key, differing, count=difference.count)
