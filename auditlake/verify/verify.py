"""Verification: compare a lake with its source at one LSN, and every history with its own rules and `changes`.

Order of effects; nothing is written except a temporary slot, which exists for a moment, and what capture writes:
  1. Check that the server is the lake's, check all files, and start Spark, before the source holds anything. If a log
     or a record is damaged, nothing else can be read, and the report ends here.
  2. Take the snapshot (`source_side`). Both sides are compared at its LSN S.
  3. Digest all tables at the source, in ranges, within the allowed rate (`source_side`).
  4. Wait until the lake knows every commit up to S: capture may lag, and is not stopped for this. If no process
     captures, capture up to S.
  5. Digest the same tables as of S from history and tail, and compare. For differing buckets, read the rows again on
     both sides, and name keys and columns (`comparison`).
  6. Release the snapshot. Check structure and replay of each history, at one Delta version each (`history_rules`).
A table that cannot be compared does not stop the comparison of others. After a kill at any point, the sessions end, and
with them snapshot and slot.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import groupby

from pyspark.sql import SparkSession

from auditlake.apply.tails import ChangesVersion, open_log
from auditlake.capture.preconditions import check_timeline, current_manifest, require_primary
from auditlake.delta.append_table import open_delta
from auditlake.delta.data_files import check_files
from auditlake.errors import BadUsage
from auditlake.lake.belonging import require_together
from auditlake.lake.erasures import require_erased_log
from auditlake.lake.expiries import expired_upto
from auditlake.lake.gaps import Gap, read_gaps
from auditlake.lake.histories import list_histories
from auditlake.lake.history import HistoryTable, open_history
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, require_manifest
from auditlake.lake.masks import Masks
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.messages import Say
from auditlake.relation import TableName
from auditlake.settings.mask_rules import Masking
from auditlake.settings.streaming_mode import Streaming
from auditlake.snapshot.plan import matches_pattern
from auditlake.snapshot.scheduler import SourceLoad
from auditlake.source.connection import connect
from auditlake.source.slot import Waiting
from auditlake.spark.planning import interpreted_if_wide
from auditlake.temporal.knowledge import recorded
from auditlake.verify.comparison import AT_ONCE, ComparisonBounds, SourceComparison
from auditlake.verify.history_rules import check_replay, check_structure, read_history
from auditlake.verify.lake_files import check_logs, check_records, report_of
from auditlake.verify.lake_side import Unreadable, exact_session, reading
from auditlake.verify.progress import each_done
from auditlake.verify.report import Finding, Report, TableReport
from auditlake.verify.source_side import snapshot


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """The tables to verify, by patterns (none: all); with the source unless `conninfo` is None.

    `history`: also check the versions against `changes`.
    `timeout_s` bounds each of the two waits: for writing transactions at the source, and for capture.
    `limit` is the maximum number of findings listed per table; `streaming` is for a capture, if no process captures.
    With the `masking` of the lake, the source's values are masked before they are compared.
    """

    lake: Lake
    conninfo: str | None
    patterns: tuple[str, ...] = ()
    load: SourceLoad = field(default_factory=lambda: SourceLoad(connections=2))
    timeout_s: float = 300.0
    limit: int = 20
    history: bool = True
    streaming: Streaming = field(default_factory=Streaming)
    masking: Masking = field(default_factory=Masking)


def verify(request: VerifyRequest, start_spark: Callable[[], SparkSession], notify: Say) -> Report:
    """Verify the lake, and return the report.

    Raises:
        LakeUnusable: if a table of the lake is older than the rest, or than an erasure.
        WrongSource, SourceUnreachable: if the source is another one, or cannot be read.
        NotAnswerable: if the lake does not reach the snapshot in time.
        BadUsage: if no table matches.
    """
    manifest = require_manifest(request.lake)
    if unreadable := [*check_logs(request.lake), *check_records(request.lake)]:
        return Report(None, tuple(_joined(unreadable)))
    if (positions := read_positions(request.lake)) is not None:
        require_together(request.lake, positions, list_histories(request.lake))
    require_erased_log(request.lake)
    histories = _chosen(request)
    if request.conninfo is not None:
        _require_same(request.conninfo, manifest)
        Masks(request.lake, request.masking)  # refused before anything is started
    reports = check_data_files(request, histories)
    damaged = {report.name for report in reports if report.findings}
    intact = [table for table in histories if str(table.name) not in damaged]
    spark = start_spark()
    lsn = None
    if request.conninfo is not None:
        waiting = Waiting(request.timeout_s, notify)
        with snapshot(request.conninfo, manifest, request.load, waiting) as source:
            lsn = source.lsn
            notify(f"comparing with the source at {lsn}")
            bounds = ComparisonBounds(request.timeout_s, request.limit, request.streaming, request.masking)
            reports += SourceComparison(spark, request.lake, source, bounds, notify).run(intact)
    if request.history:
        reports += _check_versions(request, spark, [table.name for table in intact], notify)
    return Report(lsn, tuple(_joined(reports)))


def _joined(reports: Iterable[TableReport]) -> Iterator[TableReport]:
    for _, group in groupby(sorted(reports, key=lambda report: report.name), key=lambda report: report.name):
        first, *others = group
        for other in others:
            first = first.and_also(other)
        yield first


def _require_same(conninfo: str, manifest: Manifest) -> None:
    with connect(conninfo, manifest.lsn_offset) as control:
        require_primary(control)
        check_timeline(conninfo, manifest, current_manifest(control, manifest.slot, manifest.publication))


def _chosen(request: VerifyRequest) -> list[HistoryTable]:
    tables = list_histories(request.lake)
    chosen = [table for table in tables if not request.patterns or _matches(table.name, request.patterns)]
    if not chosen:
        condition = f"matches {', '.join(request.patterns)}" if request.patterns else "is in this lake"
        raise BadUsage(f"no table with a history {condition}", "auditlake status lists the tables.")
    return chosen


def _matches(name: TableName, patterns: Iterable[str]) -> bool:
    """Return whether a table matches `schema.table`, or `table` in any schema, with `*` and `?`."""
    return any(matches_pattern(each, name) or fnmatchcase(name.table, each) for each in patterns)


def check_data_files(request: VerifyRequest, histories: Iterable[HistoryTable]) -> list[TableReport]:
    """Check the data files and deletion vectors of all tables; report damaged ones, and those of another program."""
    return [*_log_files(request), *_history_files(request, histories)]


def _log_files(request: VerifyRequest) -> Iterator[TableReport]:
    """Check the files of the lake's own tables; report only damaged ones."""
    for path in request.lake.own_tables:
        if (delta := open_delta(path)) and (findings := check_files(path, delta.version())):
            yield replace(report_of(path.name, findings, request.limit), lost=True)


def _history_files(request: VerifyRequest, histories: Iterable[HistoryTable]) -> Iterator[TableReport]:
    for table in histories:
        if not table.as_made:  # only Delta itself can read its log
            yield TableReport(str(table.name)).with_note(
                "its files are not checked: it has foreign Delta table features"
            )
        elif findings := check_files(table.path, table.delta_version):
            yield report_of(str(table.name), findings, request.limit)


def _check_versions(
    request: VerifyRequest, spark: SparkSession, names: Iterable[TableName], notify: Say
) -> Iterator[TableReport]:
    """Check structure and replay of each history at its current version."""
    # Read before the log, which has every commit up to their positions.
    tables = [(str(name), table) for name in names if (table := open_history(request.lake, name))]
    log, gaps = open_log(request.lake), read_gaps(request.lake)
    check = _VersionCheck(request, spark, log, gaps)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        checked = each_done(pool, check.of, tables, "checking the versions of", notify)
        yield from (report for _, report in checked)


@dataclass(frozen=True, slots=True)
class _VersionCheck:
    request: VerifyRequest
    spark: SparkSession
    log: ChangesVersion | None
    gaps: Sequence[Gap]

    def of(self, table: HistoryTable) -> TableReport:
        """Check one history."""
        session = exact_session(self.spark, table)
        try:
            with interpreted_if_wide(session, len(table.columns)), reading(table):
                return self._checked(session, table)
        except Unreadable as exc:
            return TableReport(str(table.name), findings=(exc.finding,))

    def _known_since(self, table: HistoryTable) -> Lsn:
        """Return the LSN of the last snapshot that ended a gap, else the first one; later if changes have expired."""
        ends = [gap.lsn_to for gap in self.gaps if gap.is_of(table.name) and gap.lsn_to <= table.position]
        return Lsn(max([table.horizon, *ends, min(self._expired, table.position)]))

    @property
    def _expired(self) -> Lsn:
        return expired_upto(None if self.log is None else self.log.changes)

    def _checked(self, session: SparkSession, table: HistoryTable) -> TableReport:
        since = self._known_since(table)
        history = read_history(session, table, since)
        report = replace(check_structure(history, self.request.limit), versions=history.count)
        known_lsn = Lsn(0) if self.log is None else self.log.known_lsn
        if table.position > max(known_lsn, table.snapshot_lsn):
            detail = f"position {table.position}, changes are known up to {known_lsn}"
            report = report.with_findings([Finding("position", detail=detail)], self.request.limit)
        missing = [each for each in recorded(self.gaps, (), table.name) if each.meets(since, table.position)]
        if table.has_expired:
            note = f"its versions that ended up to {table.horizon} have expired; those of then are taken as they are"
            report = report.with_note(note)
        if table.horizon < since == min(self._expired, table.position):
            note = f"its versions up to {since} are taken as they are: the changes up to {self._expired} have expired"
            report = report.with_note(note)
        elif since > table.horizon:
            note = f"its versions before the snapshot at {since} are not replayed: changes between are missing"
            report = report.with_note(note)
        if missing:
            first = missing[0]
            return report.with_note(f"not replayed: its changes between {first.after} and {first.upto} are missing")
        if self.log is None:
            return report
        try:
            with reading(table):
                return report.and_also(check_replay(session, self.request.lake, self.log, history, self.request.limit))
        except Unreadable as exc:
            return report.and_also(TableReport(report.name, findings=(exc.finding,)))
