"""Nearest moments at which a refused question has an answer: the buttons of a refusal.

The state of a table is known in stretches that begin at its horizon or at the end of a gap, and end where a gap begins,
where the table is parked, or now. So of the moments around a refused one only these bounds are candidates; each is
checked as a question about it would be, and one that is refused, too, is not offered.
"""

from dataclasses import dataclass

from auditlake.audit.lake_reader import Reader
from auditlake.errors import AuditlakeError, NotAnswerable
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.temporal.moments import begins_at
from auditlake.temporal.when import AtTime, parse_when


@dataclass(frozen=True, slots=True)
class Nearest:
    """The last moment before the refused one that has an answer, and the first one after it; None if there is none."""

    before: Lsn | None
    after: Lsn | None


def nearest_moments(reader: Reader, table: str | None, asked: str | None) -> Nearest:
    """Return the moments around `asked`, a WHEN, at which the state of a table is known, or of the lake without one.

    If `asked` has no LSN, it is before the lake begins, or beyond what it knows: the first moment is after it, or the
    last one before.
    """
    found = None if table is None else _table(reader, table)
    known = [lsn for lsn in _candidates(reader, found) if found is None or _is_known(reader, found, lsn)]
    lsn = _resolved(reader, asked)
    if lsn is None and _is_too_early(reader, asked):
        return Nearest(None, min(known, default=None))
    if lsn is None:
        return Nearest(max(known, default=None), None)
    before, after = [each for each in known if each < lsn], [each for each in known if each > lsn]
    return Nearest(max(before, default=None), min(after, default=None))


def _table(reader: Reader, name: str) -> HistoryTable | None:
    try:
        return reader.table(name)
    except AuditlakeError:  # no table has that name; the refusal reports that
        return None


def _candidates(reader: Reader, table: HistoryTable | None) -> set[Lsn]:
    now = reader.known.now_lsn
    if table is None:
        return {reader.known.horizon, now}
    timeline = reader.known.timeline(table)
    bounds = (bound for each in timeline.recorded for bound in (each.after, each.upto) if bound is not None)
    return {table.horizon, now, *bounds}


def _is_known(reader: Reader, table: HistoryTable, lsn: Lsn) -> bool:
    try:
        reader.check(table, lsn, str(lsn))
    except NotAnswerable:
        return False
    return lsn <= reader.known.now_lsn


def _is_too_early(reader: Reader, asked: str | None) -> bool:
    try:
        when = None if asked is None else parse_when(asked, reader.now)
    except AuditlakeError:  # it is no moment
        return False
    begin_us = begins_at(reader.known)
    return isinstance(when, AtTime) and begin_us is not None and when.time_us < begin_us


def _resolved(reader: Reader, asked: str | None) -> Lsn | None:
    try:
        return reader.moment(asked)
    except AuditlakeError:  # the refusal says why
        return None
