"""Timeline of a table: the segments of LSNs at which its state is not known, and the refusal of each.

    segment                      state                         recorded
    before the horizon           EARLY                         by the history, whose versions may have expired
    after the watermark          AHEAD                         nowhere: capture has not come there
    after the LSN of a parking   PARKED, HELD, WAITING, ENDED  in `lake.parking`, whose causes have these states
    inside (a, b)                GAP                           in `lake.gaps`; at a and at b the state is known

Every other state is known. A `Timeline` has the segments in this order: where several overlap, the first one is the
reason of a refusal. A moment between two commits may be in a segment by its time, although its LSN is not.

The rows of `changes` and of `transactions` are there after the LSN up to which they have expired (`lake.expiries`), one
for all tables: `require_kept` refuses earlier ones. No state depends on them, but only transactions have times
(`temporal.moments`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from auditlake.errors import AuditlakeError, NotAnswerable
from auditlake.lake.erasures import read_erasures
from auditlake.lake.gaps import Gap
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Parked, SegmentState
from auditlake.lake.records import captures_now
from auditlake.lsn import Lsn
from auditlake.messages import say, say_once
from auditlake.relation import TableName
from auditlake.store.place import by_requests
from auditlake.temporal.when import AtLsn, AtNow, AtTime, When, format_us

_NOT_APPLIED = (
    "It can be shown once auditlake follow or auditlake apply has applied that change: run one of them, or watch the"
    " table's position in auditlake status."
)
_CONTINUE = "Read the state of the table after that, and continue without what is missing (allow_gaps, --allow-gaps)."

Point = tuple[Lsn, When | None]
"""A moment, and the LSN to which it resolved; None is the latest state that the lake knows."""


@dataclass(frozen=True, slots=True)
class Segment:
    """LSNs between `after` and `upto`, both exclusive, at which a table is not known; without `upto`, all after it.

    `table` is None if it is every table. The times are in microseconds since 1970, None if only the LSNs are known.
    `silent`: the stream does not contain the reason, so moments after the last commit may be inside; of a parked table,
    it had been observed by `seen_by`.
    """

    state: SegmentState
    table: TableName | None
    after: Lsn
    upto: Lsn | None
    reason: str = ""
    remedy: str = ""
    from_us: int | None = None
    to_us: int | None = None
    silent: bool = False
    seen_by: Lsn | None = None

    def meets(self, first: Lsn, last: Lsn) -> bool:
        """Return whether one of the states in [`first`, `last`] is inside."""
        return self.after < last and (self.upto is None or first < self.upto)

    def contains(self, point: Point, known_lsn: Lsn) -> bool:
        """Return whether a moment is inside, if a lake knows every commit up to `known_lsn`."""
        lsn, when = point
        if self.meets(lsn, lsn) or not self.silent:
            return self.meets(lsn, lsn)
        if isinstance(when, AtTime):
            return self._contains_time(when.time_us, lsn)
        return self.is_ahead(point, known_lsn)

    def _contains_time(self, time_us: int, lsn: Lsn) -> bool:
        """Return whether a time, whose last commit is at `lsn`, is after the last known moment and before the next."""
        if self.upto is None:
            return self.from_us is None or time_us > self.from_us
        begun = lsn >= self.after if self.from_us is None else time_us > self.from_us
        return begun and self.to_us is not None and time_us < self.to_us

    def contains_sql(self, lsn: str, time_us: str | None) -> str:
        """Return the condition of `contains` in SQL, for an LSN alone, or a time and the LSN of its last commit."""
        inside = f"{lsn} > {self.after:d}" if self.upto is None else f"{lsn} > {self.after:d} and {lsn} < {self.upto:d}"
        if time_us is None or not self.silent or (self.upto is not None and self.to_us is None):
            return inside
        if self.from_us is not None:
            begun = f"{time_us} > {self.from_us:d}"
        else:
            begun = "true" if self.upto is None else f"{lsn} >= {self.after:d}"
        return f"{inside} or {begun}" if self.to_us is None else f"{inside} or {begun} and {time_us} < {self.to_us:d}"

    def is_ahead(self, point: Point, known_lsn: Lsn) -> bool:
        """Return whether the moment is now, and the segment ends after it."""
        lsn, when = point
        return (when is None or isinstance(when, AtNow)) and (self.upto is None or self.upto > max(lsn, known_lsn))


def recorded(gaps: Iterable[Gap], parked: Iterable[Parked], name: TableName | None = None) -> Iterator[Segment]:
    """Yield where tables are parked, and then the gaps, of one table or of all."""
    for each in parked:
        if name in {None, each.table}:
            seen_by = each.until if each.silent else None
            segment = Segment(each.state, each.table, each.lsn, None, each.reason, each.remedy, each.time_us)
            yield replace(segment, silent=each.silent, seen_by=seen_by)
    for gap in gaps:
        if name is None or gap.is_of(name):
            times = gap.from_us, gap.to_us
            yield Segment(SegmentState.GAP, gap.table, gap.lsn_from, gap.lsn_to, gap.reason, "", *times, silent=True)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The segments in which a table is not known to a lake that knows every commit up to `known_lsn`.

    `allow_gaps`: states inside a gap are answered, and marked, instead of refused.
    """

    lake: Lake
    table: HistoryTable
    known_lsn: Lsn
    segments: Sequence[Segment]
    allow_gaps: bool

    @property
    def last(self) -> Lsn:
        """The last LSN at which the table is known, as far as it is outside of all gaps."""
        return min(each.after for each in self.segments if each.upto is None)

    @property
    def recorded(self) -> Sequence[Segment]:
        """The segments that are on record: after which LSN the table is parked, and the gaps."""
        return [each for each in self.segments if each.state not in {SegmentState.EARLY, SegmentState.AHEAD}]

    def at(self, lsn: Lsn) -> Segment | None:
        """Return the segment in which the state at an LSN is; None if it is known."""
        return next((each for each in self.segments if self._contains(each, (lsn, AtLsn(lsn)))), None)

    def _contains(self, segment: Segment, point: Point) -> bool:
        is_parked = segment.upto is None and segment.state is not SegmentState.AHEAD
        # The table's last snapshot is exact, whatever came before or after.
        return segment.contains(point, self.known_lsn) and not (is_parked and point[0] == self.table.resynced)

    def require(self, start: Point, end: Point | None = None) -> None:
        """Require that the state at a moment is known, or every state between two moments.

        With `allow_gaps`, report gaps instead. Report values that were erased from these states.

        Raises NotAnswerable.
        """
        end = end or start
        for each in self.segments:
            if not (self._contains(each, end) or (each.upto is not None and self._meets(each, start, end))):
                continue
            if each.state is not SegmentState.GAP or not self.allow_gaps:
                raise _REFUSALS[each.state](self, each, start, end)
            known = f"inside the gap the answer shows the state at {each.after}"
            say(f"gap: {self.table.label} {_missing(each, start, end)}; {known}")
        say_erased(self.lake, self.table, start[0], end[0])

    def _meets(self, segment: Segment, start: Point, end: Point) -> bool:
        return segment.meets(start[0], end[0]) or self._contains(segment, start)

    def edges(self, gap: Segment) -> list[Lsn]:
        """Return the LSNs before and after a gap, and others that overlap it, at which the table is known."""
        found = (self._edge(gap, attrgetter(side)) for side in ("after", "upto"))
        return [lsn for lsn in found if lsn is not None]

    def _edge(self, gap: Segment, side: Callable[[Segment], Lsn]) -> Lsn | None:
        found: Segment | None = gap
        while found is not None and found.state is SegmentState.GAP:
            lsn = side(found)
            found = self.at(lsn)
        return None if found else lsn


def timeline_of(  # noqa: PLR0913 - what a lake knows of a table
    lake: Lake,
    table: HistoryTable,
    known_lsn: Lsn,
    gaps: Iterable[Gap],
    parked: Iterable[Parked],
    *,
    allow_gaps: bool = False,
) -> Timeline:
    """Return the timeline of a table, given the gaps and parked tables of the lake."""
    last = Lsn(max(known_lsn, table.position))
    segments = [
        Segment(SegmentState.EARLY, table.name, Lsn(-1), table.horizon),
        Segment(SegmentState.AHEAD, table.name, last, None),
        *(replace(each, after=max(each.after, table.horizon)) for each in recorded((), parked, table.name)),
        *recorded(gaps, (), table.name),
    ]
    return Timeline(lake, table, known_lsn, segments, allow_gaps)


def _early(timeline: Timeline, segment: Segment, start: Point, end: Point) -> NotAnswerable:
    table, horizon = timeline.table, segment.upto
    asked = _asked(start if segment.contains(start, timeline.known_lsn) else end)
    hint = f"Ask for a later moment; {horizon} is the first that can be answered."
    if table.has_expired:
        return NotAnswerable(
            f"asked for {table.label} as of {asked}, its versions that ended up to {horizon} have expired: "
            "[retention] does not keep them longer",
            hint,
        )
    return NotAnswerable(f"asked for {table.label} as of {asked}, its history begins at {horizon}", hint)


def _ahead(timeline: Timeline, segment: Segment, _: Point, end: Point) -> NotAnswerable:
    return NotAnswerable(
        f"asked for {timeline.table.label} as of {end[0]}, it is known up to {segment.after}", catch_up(timeline.lake)
    )


def _parked(timeline: Timeline, segment: Segment, _: Point, end: Point) -> NotAnswerable:
    seen = f" (seen by {segment.seen_by})" if segment.silent else ""
    is_after = segment.meets(end[0], end[0])  # else the last commit is known, and now is not
    asked = _asked(end) if is_after or end[1] is not None else f"now ({end[0]})"
    return NotAnswerable(
        f"asked for {timeline.table.label} as of {asked}, it is known up to {segment.after}: {segment.reason}{seen}",
        f"Ask for a moment up to {segment.after}. {segment.remedy}",
    )


def _gap(timeline: Timeline, segment: Segment, start: Point, end: Point) -> NotAnswerable:
    label, known_lsn = timeline.table.label, timeline.known_lsn
    if any(segment.is_ahead(point, known_lsn) for point in (start, end)):
        return NotAnswerable(
            f"asked for {label} as of now, it is known again from {segment.upto} on, and this lake knows every commit "
            f"up to {known_lsn}: {segment.reason}",
            catch_up(timeline.lake),
        )
    edges = " and ".join(f"LSN {lsn}" for lsn in timeline.edges(segment))
    offer = f"{edges} can be answered; " if edges else ""
    return NotAnswerable(
        f"asked for {label} {_missing(segment, start, end)}",
        f"{offer}auditlake.gaps lists what is missing. With --allow-gap, the last known state before a gap stands for"
        " every state inside it.",
    )


_REFUSALS: Mapping[SegmentState, Callable[[Timeline, Segment, Point, Point], NotAnswerable]] = {
    SegmentState.EARLY: _early,
    SegmentState.AHEAD: _ahead,
    **dict.fromkeys((SegmentState.PARKED, SegmentState.HELD, SegmentState.WAITING, SegmentState.ENDED), _parked),
    SegmentState.GAP: _gap,
}
"""Message about a state in a segment."""


def _asked(point: Point) -> str:
    lsn, when = point
    return f"{lsn}" if when is None or str(when) == str(lsn) else f"{when} ({lsn})"


def _missing(gap: Segment, start: Point, end: Point) -> str:
    asked = f"as of {_asked(start)}" if start[0] == end[0] else f"from {start[0]} to {end[0]}"
    return f"{asked}, its changes between {gap.after} and {gap.upto} are missing: {gap.reason}"


def lacks_changes(segment: Segment) -> NotAnswerable:
    """Return the error for a feed of changes that comes to a segment, whose changes are not in the lake."""
    what = "all tables" if segment.table is None else str(segment.table)
    where = f"after {segment.after}" if segment.upto is None else f"between {segment.after} and {segment.upto}"
    hint = f"{segment.remedy} {_CONTINUE}".lstrip()
    return NotAnswerable(f"the changes of {what} {where} are missing: {segment.reason}", hint)


def require_kept(rows: str, expired: Lsn, first: Lsn, asked: str) -> None:
    """Require the `rows`, changes or transactions, from `first` on; raises NotAnswerable if they expired."""
    if first <= expired:
        raise NotAnswerable(
            f"asked for {asked}, the {rows} up to {expired} have expired: [retention] does not keep them longer",
            f"Ask from {Lsn(expired + 1)} on.",
        )


def not_followed(table: HistoryTable, lsn: Lsn, last: Lsn, refusal: AuditlakeError | None) -> NotAnswerable:
    """Return the error for a state after `last`, up to which a table's schema changes can be followed.

    `refusal` is the change that cannot be followed; None if apply will follow it.
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


def catch_up(lake: Lake) -> str:
    """Return the hint for a moment that the lake does not know yet: wait, or run the command that captures it."""
    if captures_now(lake):
        return "auditlake is capturing: wait a few seconds, then ask again; auditlake status shows how far it is."
    return "Run auditlake follow --until-current, then ask again."


def say_erased(lake: Lake, table: HistoryTable, first: Lsn, last: Lsn) -> None:
    """Report the erasures of what `table` had in [`first`, `last`], each once in a process."""
    is_whole = table.erased is None and by_requests(lake.root)  # there, each question would list the records
    for each in () if is_whole else read_erasures(lake):
        if each.name == table.name and each.meets(first, last):
            when = f"between {Lsn(each.from_lsn)} and {Lsn(each.to_lsn)}"
            who = f"by {each.by} at {format_us(each.time_us)}: {each.reason}"
            missing = "the answer has NULL or a token there, or lacks the row"
            say_once((lake.root, each.number), f"erased: {each.what}, as it was {when}, {who}; {missing}")
