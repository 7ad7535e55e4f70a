"""Knowledge of a table: at which LSNs its state is known, and the refusals of the others.

    LSN                       the state of the table
    before `horizon`          is not known: the history begins there, or its versions have expired
    inside a gap (a, b)       is not known; at a and at b it is
    after the parking LSN     is not known, until the table is unparked or gets a new snapshot, which leaves a gap
    after the watermark       is not known yet
    any other                 is known

`require_state` and `require_period` refuse what is not known: horizon first, then watermark, parking and gaps.
`unknown` lists gaps and parked tables.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from auditlake.errors import AuditlakeError, NotAnswerable
from auditlake.lake.erasures import read_erasures
from auditlake.lake.gaps import Gap
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Parked, refuse
from auditlake.lsn import Lsn
from auditlake.messages import say
from auditlake.relation import TableName
from auditlake.store.place import Place, by_requests
from auditlake.temporal.moments import Known, catch_up
from auditlake.temporal.when import AtLsn, AtNow, AtTime, When, format_us

_NOT_APPLIED = (
    "It can be shown once auditlake follow or auditlake apply has applied that change: run one of them, or watch the"
    " table's position in auditlake status."
)


@dataclass(frozen=True, slots=True)
class Unknown:
    """LSNs at which a table is not known: between `after` and `upto`, or all from `after` on if it is parked.

    `table` is None if it is every table; the times are in microseconds since 1970, None if only the LSNs are known.
    """

    table: TableName | None
    after: Lsn
    upto: Lsn | None
    from_us: int | None
    to_us: int | None
    reason: str


def unknown(known: Known, table: HistoryTable | None = None) -> Iterator[Unknown]:
    """Yield the gaps of a table, or of all, and then where they are parked."""
    for gap in known.gaps:
        if table is None or gap.is_of(table.name):
            yield Unknown(gap.table, gap.lsn_from, gap.lsn_to, gap.from_us, gap.to_us, gap.reason)
    for parked in known.parked.values():
        if not parked.ended and (table is None or table.name == parked.table):
            yield Unknown(parked.table, parked.lsn, None, parked.time_us, None, parked.reason)


def require_state(known: Known, table: HistoryTable, lsn: Lsn, when: When | None) -> None:
    """Require that the state at `lsn`, to which `when` resolved, is known.

    Raises NotAnswerable.
    """
    _require_recorded(known, table, lsn, when)
    _check_gaps(known, table, lsn, lsn, when)


def require_period(known: Known, table: HistoryTable, start: tuple[Lsn, When], end: tuple[Lsn, When]) -> None:
    """Require that every state between two moments is known.

    Raises NotAnswerable.
    """
    _check_horizon(table, *start)
    _require_recorded(known, table, *end)
    _check_gaps(known, table, start[0], end[0], start[1], end[1])


def not_followed(table: HistoryTable, lsn: Lsn, last: Lsn, refusal: AuditlakeError | None) -> NotAnswerable:
    """Return the error for a state after `last`, up to which a table's schema changes can be followed.

    `refusal` is what cannot be followed; None if apply will follow it.
    """
    if refusal is None:
        return NotAnswerable(
            f"{table.label} cannot be shown as of {lsn} yet: its key or the columns of its rows change after {last}",
            _NOT_APPLIED,
        )
    return NotAnswerable(
        f"asked for {table.label} as of {lsn}, it is known up to {last}: {refusal.message}",
        f"Ask for a moment up to {last}. {refusal.hint}",
    )


def _require_recorded(known: Known, table: HistoryTable, lsn: Lsn, when: When | None) -> None:
    _check_horizon(table, lsn, when)
    _check_known(known, table, lsn)
    check_parked(known, table, lsn, when)


def _check_horizon(table: HistoryTable, lsn: Lsn, when: When | None) -> None:
    """Check that the history of `table` begins at or before `lsn`, and that no version of then has expired.

    Raises NotAnswerable.
    """
    asked, horizon = _asked(lsn, when), table.horizon
    hint = f"Ask for a later moment; {horizon} is the first that can be answered."
    if lsn < horizon and table.has_expired:
        raise NotAnswerable(
            f"asked for {table.label} as of {asked}, its versions that ended up to {horizon} have expired: [retention] "
            "does not keep them longer",
            hint,
        )
    if lsn < horizon:
        raise NotAnswerable(f"asked for {table.label} as of {asked}, its history begins at {horizon}", hint)


def _asked(lsn: Lsn, when: When | None) -> str:
    return f"{lsn}" if when is None or str(when) == str(lsn) else f"{when} ({lsn})"


def _check_known(known: Known, table: HistoryTable, lsn: Lsn) -> None:
    """Check that every change of `table` up to `lsn` is in the lake.

    Raises NotAnswerable.
    """
    last = Lsn(max(known.positions.known_lsn, table.position))
    if lsn > last:
        raise NotAnswerable(f"asked for {table.label} as of {lsn}, it is known up to {last}", catch_up(known))


def check_parked(known: Known, table: HistoryTable, lsn: Lsn, when: When | None) -> None:
    """Check that `table` is not parked before `lsn`, to which `when` resolved; None is the lake's latest state.

    Raises NotAnswerable.
    """
    parked = known.parked.get(table.name)
    if parked is None:
        return
    last = Lsn(max(parked.lsn, table.horizon))
    if lsn == table.resynced:  # that snapshot is exact, whatever came before or after
        return
    if lsn > last or (parked.silent and _is_after(when, parked)):
        raise refuse(replace(parked, lsn=last), _asked(lsn, when), table.label)


def _is_after(when: When | None, parked: Parked) -> bool:
    """Return whether a moment may be after the last known state of a table that changed outside of the stream."""
    if isinstance(when, AtTime):
        return parked.time_us is None or when.time_us > parked.time_us
    return when is None or isinstance(when, AtNow)


def say_erased(lake: Lake, table: HistoryTable, first: Lsn, last: Lsn) -> None:
    """Report the erasures of what `table` had in [`first`, `last`], each once in a process."""
    is_whole = table.erased is None and by_requests(lake.root)  # there, each question would list the records
    for each in () if is_whole else read_erasures(lake):
        if each.name == table.name and each.meets(first, last) and (lake.root, each.number) not in _said:
            _said.add((lake.root, each.number))
            when = f"between {Lsn(each.from_lsn)} and {Lsn(each.to_lsn)}"
            who = f"by {each.by} at {format_us(each.time_us)}: {each.reason}"
            say(f"erased: {each.what}, as it was {when}, {who}; the answer has NULL there, or lacks the row")


_said: set[tuple[Place, int]] = set()
"""The erasures that were reported."""


def _check_gaps(known: Known, table: HistoryTable, first: Lsn, last: Lsn, *whens: When | None) -> None:
    """Check that no state of `table` in [`first`, `last`], to which `whens` resolved, is inside a gap.

    Nor may one end after now: the table has changed since the last commit that is known. With `known.allow_gaps`, print
    a message instead: the answer then has only the known changes. What was erased there is reported, too.

    Raises NotAnswerable.
    """
    for gap in (each for each in known.gaps if each.is_of(table.name)):
        is_ahead = _is_now(whens, first, last) and gap.lsn_to > max(last, known.positions.known_lsn)
        if not (is_ahead or gap.meets(table.name, first, last) or _in_time(gap, first, last, whens)):
            continue
        asked = f"as of {_asked(first, whens[0] if whens else None)}" if first == last else f"from {first} to {last}"
        missing = f"its changes between {gap.lsn_from} and {gap.lsn_to} are missing: {gap.reason}"
        if not known.allow_gaps:
            raise _ahead(known, table, gap) if is_ahead else _inside(known, table, gap, f"{asked}, {missing}")
        say(f"gap: {table.label} {asked}: {missing}; inside the gap the answer shows the state at {gap.lsn_from}")
    say_erased(known.lake, table, first, last)


def _is_now(whens: Sequence[When | None], first: Lsn, last: Lsn) -> bool:
    return any(when is None or isinstance(when, AtNow) for when, _ in zip(whens, (first, last), strict=False))


def _ahead(known: Known, table: HistoryTable, gap: Gap) -> NotAnswerable:
    """Return the error for now if a gap ends after it: the table has changed since, and capture has not passed that."""
    return NotAnswerable(
        f"asked for {table.label} as of now, it is known again from {gap.lsn_to} on, and this lake knows every commit "
        f"up to {known.positions.known_lsn}: {gap.reason}",
        catch_up(known),
    )


def _inside(known: Known, table: HistoryTable, gap: Gap, asked: str) -> NotAnswerable:
    edges = " and ".join(f"LSN {lsn}" for lsn in _edges(known, table, gap))
    offer = f"{edges} can be answered; " if edges else ""
    return NotAnswerable(
        f"asked for {table.label} {asked}",
        f"{offer}auditlake.gaps lists what is missing. With --allow-gap, the last known state before a gap stands for"
        " every state inside it.",
    )


def _edges(known: Known, table: HistoryTable, gap: Gap) -> list[Lsn]:
    """Return the LSNs before and after a gap, and others that overlap it, for which the table can be answered."""
    first, last = gap.lsn_from, gap.lsn_to
    for each in sorted((each for each in known.gaps if each.is_of(table.name)), key=lambda each: each.lsn_from):
        if each.lsn_from < last < each.lsn_to:
            last = each.lsn_to
    for each in sorted((each for each in known.gaps if each.is_of(table.name)), key=lambda each: -each.lsn_to):
        if each.lsn_from < first < each.lsn_to:
            first = each.lsn_from
    return [lsn for lsn in (first, last) if _is_answered(known, table, lsn)]


def _is_answered(known: Known, table: HistoryTable, lsn: Lsn) -> bool:
    """Return whether the table can be answered as of an LSN, as far as this is outside of all gaps."""
    try:
        _require_recorded(known, table, lsn, AtLsn(lsn))
    except NotAnswerable:
        return False
    return True


def _in_time(gap: Gap, first: Lsn, last: Lsn, whens: Sequence[When | None]) -> bool:
    ends = zip(whens, (first, last), strict=False)
    return any(isinstance(when, AtTime) and gap.contains_time(when.time_us, lsn) for when, lsn in ends)
