"""FOR SYSTEM_TIME: turn a period of a statement into the state at one LSN, or into bounds on versions' LSNs. No JVM.

The forms and their meaning are those of SQL:2011, "system-versioned tables". With lsn(x) the last commit at or before
x, and x⁻ the last moment before x:

    AS OF x               versions valid at x
    FROM a TO b           valid at some moment from a to b, b excluded:
                          _from_lsn <= lsn(b⁻) and (_to_lsn is null or _to_lsn > lsn(a))
    BETWEEN a AND b       the same, b included:
                          _from_lsn <= lsn(b)  and (_to_lsn is null or _to_lsn > lsn(a))
    CONTAINED IN (a, b)   begun and ended there, a and b included:
                          _from_lsn >  lsn(a⁻) and _to_lsn <= lsn(b)
    ALL                   every version

An excluded end needs b⁻ and not `_from_lsn < lsn(b)`: for a time, lsn(b) is usually a commit before b, and a version
that begins with it is valid before b. A period that ends before it begins is empty, as in SQL:2011.

A period across a gap, or past the LSN at which a table is parked, is refused. ALL is not: it is every version that is
known, and makes no statement about any moment. Errors in a statement's moments are raised here, before Spark starts.
"""

from dataclasses import dataclass
from enum import Enum

from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.temporal.as_of_predicate import ends_after_sql
from auditlake.temporal.moments import Known, just_before, resolve
from auditlake.temporal.when import AtTime, When


class PeriodForm(Enum):
    """Forms of FOR SYSTEM_TIME, by their words."""

    AS_OF = "AS OF"
    FROM_TO = "FROM"
    BETWEEN = "BETWEEN"
    CONTAINED_IN = "CONTAINED IN"
    ALL = "ALL"


@dataclass(frozen=True, slots=True)
class Period:
    """A FOR SYSTEM_TIME clause: its form, and as many moments as that has."""

    form: PeriodForm
    moments: tuple[When, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """One table in a statement, and its period; None is the moment of the whole statement."""

    table: TableName
    period: Period | None


@dataclass(frozen=True, slots=True)
class State:
    """A table's state after the commit at `lsn`: the source's columns, and `_raw` if `raw`."""

    lsn: Lsn
    raw: bool = False


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions within `bounds`, with their period columns; no version if `bounds` is None."""

    bounds: "Bounds | None"


Selection = State | Versions


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds on `_from_lsn` and `_to_lsn` of a version; None is no bound."""

    from_above: Lsn | None = None
    from_up_to: Lsn | None = None
    open_after: Lsn | None = None
    to_up_to: Lsn | None = None


def within_bounds(limits: Bounds) -> str:
    """Return the condition for the versions within these bounds."""
    conditions = ["true"]
    if limits.from_above is not None:
        conditions.append(f"_from_lsn > {limits.from_above:d}")
    if limits.from_up_to is not None:
        conditions.append(f"_from_lsn <= {limits.from_up_to:d}")
    if limits.open_after is not None:
        conditions.append(ends_after_sql(limits.open_after))
    if limits.to_up_to is not None:
        conditions.append(f"_to_lsn <= {limits.to_up_to:d}")
    return " and ".join(conditions)


def last_lsn(known: Known, period: Period | None, lsn: Lsn) -> Lsn:
    """Return the last LSN of a period, when tables are named; `lsn` without one. Raises NotAnswerable."""
    if period is None:
        return lsn
    return resolve(known, period.moments[-1]) if period.moments else known.now_lsn


def select_state(known: Known, table: HistoryTable, lsn: Lsn, when: When | None) -> State:
    """Select the state at `lsn`, to which `when` resolved; raises NotAnswerable if it is not known."""
    known.timeline(table).require((lsn, when))
    return State(lsn)


def select_period(known: Known, table: HistoryTable, period: Period) -> Selection:
    """Select the rows of FOR SYSTEM_TIME; raises NotAnswerable unless the table is known throughout."""
    match period.moments:
        case (when,):
            return select_state(known, table, resolve(known, when), when)
        case (start, end):
            return Versions(_bounds(known, table, period.form, start, end))
        case _:
            return Versions(Bounds())


def _bounds(known: Known, table: HistoryTable, form: PeriodForm, start: When, end: When) -> Bounds | None:
    first, last = resolve(known, start), resolve(known, end)
    known.timeline(table).require((first, start), (last, end))
    if _reversed(start, first, end, last):
        return None
    if form is PeriodForm.BETWEEN:
        return Bounds(from_up_to=last, open_after=first)
    if form is PeriodForm.CONTAINED_IN:
        return Bounds(from_above=just_before(known, start), to_up_to=last)
    before = just_before(known, end)
    return None if start == end or before < first else Bounds(from_up_to=before, open_after=first)


def _reversed(start: When, start_lsn: Lsn, end: When, end_lsn: Lsn) -> bool:
    if isinstance(start, AtTime) and isinstance(end, AtTime):
        return start.time_us > end.time_us
    return start_lsn > end_lsn
