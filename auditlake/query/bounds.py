"""From a period to bounds on the LSNs of versions.

With lsn(x) the last commit at or before x, and x⁻ the last moment before x:

    FROM a TO b           _from_lsn <= lsn(b⁻)   and (_to_lsn is null or _to_lsn > lsn(a))
    BETWEEN a AND b       _from_lsn <= lsn(b)    and (_to_lsn is null or _to_lsn > lsn(a))
    CONTAINED IN (a, b)   _from_lsn >  lsn(a⁻)   and _to_lsn <= lsn(b)

An excluded end needs b⁻ and not `_from_lsn < lsn(b)`: for a time, lsn(b) is a commit before b as a rule, and a
version that begins with it does hold before b. A period that ends before it begins is empty, as SQL:2011 has it.
"""

from dataclasses import dataclass

from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.query.moments import Known, check_horizon, check_known, just_before, resolve
from auditlake.query.period import Between, ContainedIn, FromTo
from auditlake.query.when import AtTime, When


@dataclass(frozen=True, slots=True)
class Bounds:
    """What `_from_lsn` and `_to_lsn` of a version must fulfil; None sets no bound."""

    from_above: Lsn | None = None
    from_up_to: Lsn | None = None
    open_after: Lsn | None = None
    to_up_to: Lsn | None = None


def bounds(known: Known, table: HistoryTable, period: FromTo | Between | ContainedIn) -> Bounds | None:
    """Give the bounds of a period; None if it is empty.

    Raises NotAnswerable where the table is not known over the whole period.
    """
    start, end = resolve(known, period.start), resolve(known, period.end)
    check_horizon(table, start, period.start)
    check_horizon(table, end, period.end)
    check_known(known, table, end)
    if _reversed(period.start, start, period.end, end):
        return None
    match period:
        case Between():
            return Bounds(from_up_to=end, open_after=start)
        case FromTo():
            before = just_before(known, period.end)
            if period.start == period.end or before < start:
                return None
            return Bounds(from_up_to=before, open_after=start)
        case ContainedIn():
            return Bounds(from_above=just_before(known, period.start), to_up_to=end)


def _reversed(start: When, start_lsn: Lsn, end: When, end_lsn: Lsn) -> bool:
    if isinstance(start, AtTime) and isinstance(end, AtTime):
        return start.time_us > end.time_us
    return start_lsn > end_lsn
