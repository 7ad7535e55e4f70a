"""Retention: remove versions, changes and transactions that are older than `[retention]` keeps them. No JVM.

A table's versions expire up to an LSN, the last one whose commit the lake knows to be older than the table's period.
One commit removes all versions that ended up to there, and moves the horizon there: from then on no reader sees them,
and questions about an earlier moment are refused. A version that began earlier, but ended later or is open, stays, so
every state from the horizon on is complete.

- Files whose versions have all expired, and so whole months, are removed without being read. In others, deletion
  vectors mark the versions; their values leave the disk when the file is rewritten or expires as a whole.
- Age, and whether a hold has ended, is measured from the time up to which capture knows every commit, or from this
  machine's clock if that is behind it: while one of the two is right, a clock that is ahead removes nothing. While
  nothing is captured, nothing more expires.
- A table keeps all versions while a legal hold covers one of its rows.
- A restored or copied lake may be the only one that still has data that another one lost. It is recognized by its
  place, and nothing expires in it until that is confirmed.

Rows of `changes` and `transactions` expire up to an LSN, too, a horizon of all tables (`expiring_log`). The ledger is
not touched: entries stay, and `verify --digest` counts what has expired.

Order of effects, under the lock of `Stage.ERASE`: the record of the run (`lake.expiries`); then for each table deletion
vectors and the commit; then new files of `changes` and their commit, beside capture (`delta.expired_rows`); then the
same of `transactions`. A run that is killed before a commit leaves orphaned files, which `maintain` deletes. If another
process commits first, the table is planned again.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from auditlake.delta.commit_failures import writing
from auditlake.delta.data_files import DataFile
from auditlake.delta.log_reader import file_path
from auditlake.delta.log_writer import moved, removed
from auditlake.erasure.expiring_log import ExpiringRows, copied_upto, find_expiring, removal
from auditlake.errors import AuditlakeError, ConfigError, LakeConflict, Unsupported
from auditlake.failpoints import After, reach
from auditlake.instants import now_us
from auditlake.lake.expiries import ExpiredTable, ExpiryRun, record_run
from auditlake.lake.history import HistoryTable, commit_as_read, open_history
from auditlake.lake.history_files import Files, find_files, is_open, marked, part_of
from auditlake.lake.holds import HoldEvent, holds_in_force
from auditlake.lake.layout import EXPIRED_APP, Lake
from auditlake.lake.records import read_record, write_record
from auditlake.lake.stage_lock import Stage, hold
from auditlake.lake.whereabouts import was_at, whereabouts
from auditlake.lsn import Lsn
from auditlake.messages import Event, FailureReports, Notice, Say
from auditlake.settings.mask_rules import matches_table
from auditlake.settings.retention_rules import RetentionPeriod, RetentionPeriods, Rules
from auditlake.store.attempts import attempts
from auditlake.store.files import local_path, parquet
from auditlake.temporal.moments import Known, last_up_to, read_known
from auditlake.temporal.when import format_us

_ATTEMPTS = 20
_EVERY_S = 3 * 3600.0
"""Periods are days at least, and looking for expired versions lists the files of every history."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """The versions of a table that expire: all of the files `whole`, and rows of others, by file.

    `upto` is the new horizon, `before_us` the time before which they ended. `held` is the hold that keeps them.
    """

    files: Files
    upto: Lsn
    before_us: int
    whole: tuple[DataFile, ...]
    places: Mapping[str, BitMap64]
    held: HoldEvent | None = None

    @property
    def table(self) -> HistoryTable:
        return self.files.table

    @property
    def rows(self) -> int:
        """Return the number of versions."""
        return sum(file.rows - file.deleted_rows for file in self.whole) + sum(map(len, self.places.values()))

    @property
    def freed_bytes(self) -> int:
        """Return the size of the files that are removed."""
        return sum(file.size_bytes for file in self.whole)

    @property
    def months(self) -> tuple[list[str], list[str]]:
        """Return the months in which the versions ended: those that are removed as a whole, and the others."""
        kept = self.files.which(lambda file: file not in self.whole).by_name.values()
        others = {part_of(file) for file in kept if not is_open(file)}
        touched = {part_of(file) for file in (*self.whole, *(self.files.by_name[name] for name in self.places))}
        return sorted(touched - others), sorted(touched & others)

    def line(self) -> str:
        """Return the expiry in words."""
        what = f"{self.table.label}: {self.rows:,} versions that ended up to {self.upto}"
        return removal(what, self.before_us, self.months, self.freed_bytes)

    def as_json(self) -> dict[str, object]:
        """Return the expiry as plain values."""
        whole, partly = self.months
        return {
            "table": str(self.table.name),
            "horizon": str(self.table.horizon),
            "new_horizon": str(self.upto),
            "ended_before": format_us(self.before_us),
            "versions": self.rows,
            "bytes": self.freed_bytes,
            "whole_months": whole,
            "partial_months": partly,
            "held_by": None if self.held is None else self.held.name,
        }


def find_expiries(lake: Lake, kept: RetentionPeriods) -> Iterator[Expiry | ExpiringRows]:
    """Yield the versions that would expire now, by table in name order, then changes and transactions; write nothing.

    Raises ConfigError if a rule matches no table, Unsupported for a history that another program has changed.
    """
    copied, known = copied_upto(lake), read_known(lake)
    _require_matching(known, kept.versions)
    holds = holds_in_force(lake, known.elapsed_us)
    for table in known.listed:
        if (found := _find(known, table, kept.versions, holds)) is not None:
            yield found
    yield from find_expiring(known, kept, holds, copied)


def expire(lake: Lake, kept: RetentionPeriods, command: str, report: Say) -> None:
    """Remove what has expired: versions in one commit for each table, changes in one for all.

    Raises as `find_expiries`; ConfigError in a restored or copied lake, LakeConflict if other processes commit again
    and again, or rows are being removed by one, LakeUnusable if a file cannot be read or written.
    """
    if kept.is_everything:
        return
    with hold(lake, command, Stage.ERASE), writing("what expires"):
        _require_confirmed(lake)
        copied, known = copied_upto(lake), read_known(lake)
        _require_matching(known, kept.versions)
        _Run(known, kept, holds_in_force(lake, known.elapsed_us), copied, report).expire()


class Retaining:
    """Retention between the batches of one process, every three hours; while another process removes rows, later."""

    def __init__(self, lake: Lake, kept: RetentionPeriods, command: str, report: Say) -> None:
        self._lake, self._kept, self._command, self._report = lake, kept, command, report
        self._failures = FailureReports(report)
        self._next_s = time.monotonic()

    def tend(self) -> None:
        """Let what is old expire if it is time; a failure is reported once, and tried again the next time."""
        if self._kept.is_everything or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _EVERY_S
        try:
            with hold(self._lake, self._command, Stage.ERASE):
                self._expire()
        except LakeConflict:  # another process removes rows
            return
        except AuditlakeError as exc:
            self._failures.report("nothing expires", exc)

    def _expire(self) -> None:
        try:
            expire(self._lake, self._kept, self._command, self._report)
        except LakeConflict as exc:  # others always commit first
            self._failures.report("nothing expires", exc)
        else:
            self._failures.forget()


def confirm_restored(lake: Lake) -> None:
    """Record that versions may expire in the lake as it is now, restored or not."""
    with hold(lake, "maintain --confirm-restored", Stage.ERASE):
        _record_place(lake)


def mark_restored(lake: Lake) -> None:
    """Record that a lake was restored: nothing expires in it until that is confirmed."""
    write_record(lake, lake.retention, {"place": "restored"}, durable=True)


@dataclass(frozen=True, slots=True)
class _Run:
    """One run over all tables, from one state of the lake."""

    known: Known
    kept: RetentionPeriods
    holds: list[HoldEvent]
    copied: Lsn
    report: Say

    def expire(self) -> None:
        """Record what has expired, then remove it, table by table."""
        found = [each for table in self.known.listed if (each := self._find(table)) and not self._is_held(each)]
        old = find_expiring(self.known, self.kept, self.holds, self.copied)
        expiring = [each for each in old if not self._is_kept(each)]
        if not found and not expiring:
            return
        tables = [ExpiredTable(*each.table.name, each.upto, each.rows) for each in found]
        tables += [each.record for each in expiring]
        record_run(self.known.lake, ExpiryRun(now_us(), tuple(tables)))
        reach(After.EXPIRY_RECORDED)
        for each in found:
            self._remove(each)
        for rows in expiring:
            line = rows.line()
            rows.remove()
            self.report(Notice(Event.LOG_EXPIRED, f"{line} expired"))

    def _is_kept(self, found: ExpiringRows) -> bool:
        """Return whether no row expires, and report what keeps those that are old enough."""
        if self._is_held(found):
            return True
        if found.needed is not None:
            kept = f"{found.name}: rows after {found.needed.after} are kept longer: {found.needed.why}"
            self.report(Notice(Event.LOG_KEPT, kept))
        return not found.rows

    def _find(self, table: HistoryTable) -> Expiry | None:
        return _find(self.known, table, self.kept.versions, self.holds)

    def _remove(self, first: Expiry) -> None:
        found: Expiry | None = first
        name = first.table.name
        for _ in attempts(_ATTEMPTS, f"the history of {name}", "Run this again."):
            if found is None:
                return
            with suppress(FileExistsError):
                _commit(found)
                self.report(Notice(Event.VERSIONS_EXPIRED, f"{found.line()} expired"))
                return
            table = open_history(self.known.lake, name) or first.table
            # Not further than what is on record, although apply may have moved the position meanwhile.
            found = self._find(replace(table, names=first.table.names, position=first.upto))

    def _is_held(self, found: Expiry | ExpiringRows) -> bool:
        if found.held is None:
            return False
        why = f"held by {found.held.name}: {found.held.reason}"
        self.report(Notice(Event.VERSIONS_KEPT, f"{found.line()} would expire, {why}"))
        return True


def _commit(expiry: Expiry) -> None:
    """Remove the versions and move the horizon; raises FileExistsError if another process committed first."""
    table = expiry.table
    actions = [*(removed(file.add) for file in expiry.whole), *marked(expiry.files, expiry.places)]
    reach(After.EXPIRY_WRITTEN)
    commit_as_read(table, "DELETE", [*moved({EXPIRED_APP: expiry.upto}), *actions])
    reach(After.EXPIRED)


def _require_matching(known: Known, rules: Rules) -> None:
    for pattern, _ in rules:
        if not any(_matches(pattern, table) for table in known.listed):
            raise ConfigError(
                f"retention.versions has {pattern!r}, which matches no table of {known.lake.root}",
                "auditlake status lists the tables.",
            )


def _matches(pattern: str, table: HistoryTable) -> bool:
    return any(matches_table(pattern, name) for name in table.known_as)


def _period(rules: Rules, table: HistoryTable) -> RetentionPeriod | None:
    """Return how long the versions of a table are kept; None without a rule."""
    return next((period for pattern, period in rules if _matches(pattern, table)), None)


def _find(known: Known, table: HistoryTable, rules: Rules, holds: list[HoldEvent]) -> Expiry | None:
    period = _period(rules, table)
    before_us = None if period is None else period.before(known.elapsed_us)
    last = None if before_us is None else last_up_to(known, before_us)
    upto = Lsn(min(last or 0, table.position))
    if before_us is None or upto <= table.horizon:
        return None
    files = find_files(table)
    if files is None:
        raise Unsupported(
            f"versions of {table.label} cannot expire: another program has given its history table features",
            "Undo that, or leave the table out of retention.versions.",
        )
    whole, places = _expired(files.which(lambda file: not is_open(file)), upto)
    held = next((each for each in holds if each.covers(table)), None)
    return Expiry(files, upto, before_us, whole, places, held) if whole or places else None


def _expired(closed: Files, upto: Lsn) -> tuple[tuple[DataFile, ...], dict[str, BitMap64]]:
    """Return the files whose versions all ended up to an LSN, and in other files the rows that did."""
    whole, places = [], {}
    for name, file in closed.by_name.items():
        first, last = file.bounds("_to_lsn") or (0, upto + 1)
        if last <= upto:
            whole.append(file)
        elif first <= upto and (rows := _rows_up_to(closed, name, upto)):
            places[name] = rows
    return tuple(whole), places


def _rows_up_to(files: Files, name: str, upto: Lsn) -> BitMap64:
    """Return the positions of the rows of a file that ended up to an LSN, without those that are deleted."""
    path = file_path(files.table.path, files.by_name[name].add)
    ends = pq.ParquetFile(parquet(path)).read(["_to_lsn"])["_to_lsn"]
    here = np.flatnonzero(pc.fill_null(pc.less_equal(ends, int(upto)), fill_value=False).to_numpy())
    return BitMap64(here.astype(np.uint64)) - files.gone(name)


def _require_confirmed(lake: Lake) -> None:
    """Require that the lake is where it was when versions expired first, or was confirmed later."""
    recorded = _read_place(lake)
    if recorded is None or _is_of_before(lake, recorded):
        _record_place(lake)
    elif recorded != _place(lake):
        raise ConfigError(
            f"{lake.root} was restored or copied, so nothing expires in it until that is confirmed",
            "If it may forget what [retention] says: auditlake maintain --confirm-restored.",
        )


def _place(lake: Lake) -> str | None:
    """Return where the lake is; None without changes, when nothing can expire."""
    with suppress(FileNotFoundError):
        return whereabouts(lake, lake.changes)
    return None


def _is_of_before(lake: Lake, recorded: str) -> bool:
    """Return whether an earlier version recorded the lake's own root."""
    record = local_path(lake.retention)
    return record is not None and was_at(lake.root, recorded, record.stat().st_mtime_ns // 1000)


def _read_place(lake: Lake) -> str | None:
    def read(content: Mapping[str, object]) -> str | None:
        place = content["place"]
        return None if place is None else str(place)

    return read_record(lake.retention, read, "auditlake maintain --confirm-restored writes it.")


def _record_place(lake: Lake) -> None:
    write_record(lake, lake.retention, {"place": _place(lake)}, durable=True)
