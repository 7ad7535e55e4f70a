"""From what a statement asks of a table to LSNs: the state at one, or bounds on those of versions. No JVM.

Everything that can be wrong with a question's moments is found here, before Spark starts.

With lsn(x) the last commit at or before x, and x⁻ the last moment before x:

    FROM a TO b           _from_lsn <= lsn(b⁻)   and (_to_lsn is null or _to_lsn > lsn(a))
    BETWEEN a AND b       _from_lsn <= lsn(b)    and (_to_lsn is null or _to_lsn > lsn(a))
    CONTAINED IN (a, b)   _from_lsn >  lsn(a⁻)   and _to_lsn <= lsn(b)

An excluded end needs b⁻ and not `_from_lsn < lsn(b)`: for a time, lsn(b) is a commit before b as a rule, and a
version that begins with it does hold before b. A period that ends before it begins is empty, as SQL:2011 has it.

A period across a gap is refused; ALL is not, because it claims nothing of any moment: what is known, all of it.
"""

from dataclasses import dataclass

from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.query.moments import Known, check_gaps, check_horizon, check_known, just_before, resolve
from auditlake.query.period import AllTime, AsOf, Between, ContainedIn, FromTo, Period
from auditlake.query.when import AtTime, When


@dataclass(frozen=True, slots=True)
class State:
    """A table as it was after the commit at `lsn`, in the source's columns, with `_raw` too if that is wanted."""

    lsn: Lsn
    raw: bool = False


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions within `bounds`, with the columns of their periods; none at all if that is None."""

    bounds: "Bounds | None"


Selection = State | Versions


@dataclass(frozen=True, slots=True)
class Bounds:
    """What `_from_lsn` and `_to_lsn` of a version must fulfil; None sets no bound."""

    from_above: Lsn | None = None
    from_up_to: Lsn | None = None
    open_after: Lsn | None = None
    to_up_to: Lsn | None = None


def select_state(known: Known, table: HistoryTable, lsn: Lsn, when: When | None) -> State:
    """Select the state at `lsn`, which `when` resolved to.

    Raises NotAnswerable where the table is not known there.
    """
    check_horizon(table, lsn, when)
    check_known(known, table, lsn)
    check_gaps(known, table, lsn, lsn)
    return State(lsn)


def select_period(known: Known, table: HistoryTable, period: Period) -> Selection:
    """Select what a FOR SYSTEM_TIME clause asks.

    Raises NotAnswerable where the table is not known over the whole period.
    """
    match period:
        case AsOf(when):
            return select_state(known, table, resolve(known, when), when)
        case AllTime():
            return Versions(Bounds())
        case _:
            return Versions(_bounds(known, table, period))


def _bounds(known: Known, table: HistoryTable, period: FromTo | Between | ContainedIn) -> Bounds | None:
    start, end = resolve(known, period.start), resolve(known, period.end)
    check_horizon(table, start, period.start)
    check_horizon(table, end, period.end)
    check_known(known, table, end)
    check_gaps(known, table, start, end)
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
