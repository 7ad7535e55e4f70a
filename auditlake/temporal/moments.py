"""Moments: resolve a WHEN to a commit LSN. Reads Delta without a JVM.

`read_known` reads the state of a lake once, the positions before the histories. A statement is answered from that one
state, so all its tables are read at one LSN even if the lake moves on meanwhile.

A time T resolves to L = max(lsn) where time_mono <= T. `time_mono` never decreases in LSN order, so L is one cut
through all transactions even if commit times run backwards. If no commit is between a snapshot and T, L is the snapshot
LSN. T must not be later than the currency of capture, because a later commit may still carry an earlier time.

A moment outside the known range raises NotAnswerable, which names both; it is never replaced by the nearest moment.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import assert_never

from auditlake.delta.sql import TableFiles, read_newest, select
from auditlake.errors import NotAnswerable
from auditlake.instants import now_us
from auditlake.lake.belonging import require_together
from auditlake.lake.expiries import expired_upto
from auditlake.lake.gaps import Gap, read_gaps
from auditlake.lake.histories import ALL, Asked, no_table_yet, read_histories
from auditlake.lake.history import HistoryTable, add_name
from auditlake.lake.history_files import find_files
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Parked, SegmentState, in_force, read_records
from auditlake.lake.positions import CLOCK_TOLERANCE_US, Positions, read_positions
from auditlake.lake.relations import RelationVersions, read_versions
from auditlake.lsn import Lsn
from auditlake.messages import say_once
from auditlake.relation import TableName
from auditlake.schema.evolution import Shapes, find_shapes
from auditlake.schema.missing_values import Answers, read_added
from auditlake.sql_names import standard_literal
from auditlake.store.files import AtOnce, read_each
from auditlake.store.place import by_requests
from auditlake.temporal.knowledge import Segment, Timeline, catch_up, recorded, require_kept, timeline_of
from auditlake.temporal.when import AtLsn, AtNow, AtTime, AtXid, When, format_us

_MOST_NAMED = 10
"""Gaps, and tables of a gap, in the notices beside one answer."""
_NOTHING = Positions(delta_version=0, watermark=Lsn(0), acknowledged=Lsn(0), current_us=0)


@dataclass(frozen=True)
class Known:
    """State of a lake: positions, and each history at one Delta version; tables in `copying` have no state yet.

    `versions` are those of the source's relations, `answers` the missing values of added columns.

    `allow_gaps`: questions about a moment inside a gap are answered, and marked, instead of refused.
    `as_read` are the same tables, with equal names and LSNs, before a reader gave their columns own names, if it did.
    `records` are those of parked tables, in force or not. `open_transactions` opens that table once, for rows up to the
    watermark.
    """

    lake: Lake
    positions: Positions
    tables: Mapping[TableName, HistoryTable]
    versions: RelationVersions
    answers: Answers
    open_transactions: Callable[[], TableFiles | None]
    gaps: tuple[Gap, ...] = ()
    copying: tuple[TableName, ...] = ()
    records: Sequence[Parked] = ()
    parked: Mapping[TableName, Parked] = field(default_factory=dict)
    allow_gaps: bool = False
    as_read: Mapping[TableName, HistoryTable] | None = None
    only: frozenset[str] | None = None
    """The names of the tables whose transactions are known; None if all are."""

    @property
    def shown_sql(self) -> str:
        """The condition on `transactions` that one is known."""
        if self.only is None:
            return "true"
        return f"list_has_any(tables, [{', '.join(map(standard_literal, sorted(self.only)))}])"

    @property
    def listed(self) -> Collection[HistoryTable]:
        """The tables, for what depends on their names and LSNs alone."""
        return (self.tables if self.as_read is None else self.as_read).values()

    @property
    def expired_transactions(self) -> Lsn:
        """The LSN up to which transactions have expired; 0 if none has."""
        return expired_upto(self.open_transactions())

    @property
    def elapsed_us(self) -> int:
        """The time that has come for the source and for this machine: ahead of its clock, another one was wrong."""
        return min(self.positions.current_us, now_us())

    @property
    def horizon(self) -> Lsn:
        """The first LSN at which a table of the lake is known."""
        return Lsn(min(table.horizon for table in self.listed))

    @property
    def last_lsn(self) -> Lsn:
        """The highest LSN that any table of the lake can be queried at."""
        return Lsn(max([self.positions.known_lsn, *(table.position for table in self.listed)]))

    @property
    def now_lsn(self) -> Lsn:
        """The LSN of a statement without a moment: the watermark, or a newer snapshot or schema that capture passed."""
        snapshots = [table.snapshot_lsn for table in self.listed]
        if not self.positions.known_lsn:
            return Lsn(max(snapshots))
        ends = [*snapshots, *(gap.lsn_to for gap in self.gaps)]
        passed = (lsn for lsn in ends if lsn <= self.positions.known_lsn)
        return Lsn(max([self.positions.watermark, *passed]))

    @cached_property
    def ends(self) -> Mapping[TableName, Lsn]:
        """The LSN by which each table that was dropped had ended."""
        return {name: parked.until for name, parked in self.parked.items() if parked.ended}

    @property
    def in_doubt(self) -> tuple[TableName, ...]:
        """Return the tables whose definition, and perhaps name, was changed by a commit not captured yet."""
        return tuple(sorted(name for name, parked in self.parked.items() if parked.rule.state is SegmentState.WAITING))

    @cached_property
    def names(self) -> tuple[TableName, ...]:
        """Every name that a table has or had, and those of the histories."""
        return tuple(dict.fromkeys(name for table in self.listed for name in table.known_as))

    @cached_property
    def _had(self) -> Mapping[TableName, Sequence[HistoryTable]]:
        """The tables that have or had each name."""
        found: dict[TableName, list[HistoryTable]] = {}
        for table in self.listed:
            for name in dict.fromkeys(table.all_names):
                found.setdefault(name, []).append(table)
        return found

    def had(self, name: TableName) -> list[HistoryTable]:
        """Return the tables that have or had a name; if none, the one whose history has it."""
        found = self._had.get(name) or ([self.tables[name]] if name in self.tables else [])
        return [self.tables[table.name] for table in found]

    def named(self, name: TableName, lsn: Lsn) -> HistoryTable:
        """Return the table that has a name, one of `names`, at `lsn`; if none is known so early, the first one.

        Of several the one that got it last: another one was dropped before.

        Raises NotAnswerable if a table has another name then.
        """
        had = self.had(name)
        if name not in had[0].all_names:
            return had[0]
        called = [(since, table) for table in had if (since := table.called_since(name, lsn)) is not None]
        if called:
            return max(called, key=lambda each: each[0])[1]
        later = {first: table for table in had if (first := table.first_snapshot_lsn) > lsn}
        if named := [first for first, table in later.items() if table.name_at(first) == name]:
            return later[min(named)]
        if doubtful := [table for table in had if self.timeline(table).at(lsn) is not None]:
            return doubtful[0]  # which is refused for that reason, or answered with `allow_gaps`
        raise NotAnswerable(
            f"asked for {name} as of {lsn}, that table is {had[0].name_at(lsn)} then",
            "Name the table as it is at the moment asked for.",
        )

    def tables_at(self, lsn: Lsn) -> dict[TableName, HistoryTable]:
        """Return the tables by the names that they have at `lsn`, without those that are known not to exist then.

        These were dropped before, or were created later under a name that another table has at `lsn`.
        """
        left = [table for table in self.tables.values() if lsn < self.ends.get(table.name, lsn + 1)]
        names = {table.name_at(lsn) for table in left if table.first_snapshot_lsn <= lsn}
        found = {name: self.named(name, lsn) for name in sorted(names)}
        taken = {table.name_at(lsn) for table in self.listed if table.first_snapshot_lsn <= lsn}
        return found | {n: t for t in left if t.first_snapshot_lsn > lsn and (n := t.name_at(lsn)) not in taken}

    def limited_to(self, names: Collection[TableName], takes: Callable[[TableName], bool]) -> "Known":
        """Return the same state with these tables alone, by the names of their histories, and their transactions.

        So a moment means one of these transactions: the LSN of another would show when it was. No table left out may
        share a name with one of them. `takes` chooses from those that have no state yet.
        """
        tables = self.tables if self.as_read is None else self.as_read
        left = {name: table for name, table in tables.items() if name in names}
        return replace(
            self,
            tables=left,
            as_read=None,
            gaps=tuple(gap for gap in self.gaps if gap.table is None or gap.table in names),
            copying=tuple(filter(takes, self.copying)),
            records=[record for record in self.records if record.table in names],
            parked={name: parked for name, parked in self.parked.items() if name in names},
            only=frozenset(str(name) for table in left.values() for name in table.known_as),
        )

    def timeline(self, table: HistoryTable) -> Timeline:
        """Return the timeline of a table."""
        parked = [self.parked[table.name]] if table.name in self.parked else []
        known_lsn, allow_gaps = self.positions.known_lsn, self.allow_gaps
        return timeline_of(self.lake, table, known_lsn, self.gaps, parked, allow_gaps=allow_gaps)

    def why_parked(self, table: HistoryTable) -> str | None:
        """Return why a table is parked; None if it is followed, or was dropped."""
        parked = self.parked.get(table.name)
        return None if parked is None or parked.ended else parked.reason

    def unknown(self, table: HistoryTable | None = None) -> list[Segment]:
        """Return where a table is parked and its gaps, or those of all tables."""
        name = None if table is None else table.name
        return [
            each for each in recorded(self.gaps, self.parked.values(), name) if each.state is not SegmentState.ENDED
        ]

    def missing(self, after: Lsn, upto: Lsn, tables: Collection[HistoryTable] = ()) -> list[str]:
        """Return what to say beside an answer about a period: where changes of tables are missing in it, oldest first.

        Without tables, of all. Of many only the last ones are named.
        """
        names = {table.name for table in tables}
        gaps = (gap for gap in self.gaps if gap.lacks_changes)
        parked = (each for each in self.parked.values() if not each.ended)
        found: dict[Segment, list[TableName | None]] = {}
        for each in recorded(gaps, parked):
            if each.meets(after, upto) and (not names or each.table is None or each.table in names):
                stretch = Segment(SegmentState.GAP, None, each.after, each.upto, each.reason)
                found.setdefault(stretch, []).append(each.table)
        texts = [self._not_known(each, found[each]) for each in sorted(found, key=lambda each: each.after)]
        more = len(texts) - _MOST_NAMED
        return texts if more <= 0 else [f"auditlake.gaps lists {more:,} earlier gaps", *texts[more:]]

    def _not_known(self, stretch: Segment, whose: Sequence[TableName | None]) -> str:
        tables = self.tables if self.as_read is None else self.as_read
        labels = sorted(tables[name].label if name in tables else str(name) for name in whose if name is not None)
        labels = [*labels[:_MOST_NAMED], *([f"{len(labels):,} tables in all"] if len(labels) > _MOST_NAMED else [])]
        what = f"{', '.join(labels)} {'is' if len(labels) == 1 else 'are'} not" if None not in whose else "no table is"
        where = f"after {stretch.after}" if stretch.upto is None else f"between {stretch.after} and {stretch.upto}"
        return f"{what} known {where}: {stretch.reason}; the answer may lack what happened then"

    def check_log(self, name: TableName, expired: Lsn, lsn: Lsn) -> None:
        """Report what a statement as of `lsn` lacks of `changes` or `transactions`, once: up to `expired`, and in gaps.

        Raises NotAnswerable if all rows have expired.
        """
        if expired:
            require_kept(name.table, expired, lsn, f"{name} as of {lsn}")
            say_once(self.lake.root, f"the {name.table} up to {expired} have expired: {name} has the later ones")
        for each in self.missing(expired, lsn) if name.table in {"changes", "transactions"} else ():
            say_once(self.lake.root, f"{name}: {each}")

    def changes_up_to(self, lsn: Lsn) -> Lsn:
        """The last LSN of `changes`, `transactions` and `relations` that a query as of `lsn` reads.

        It is above the watermark only if a table changed its shape there, without a change of a row.
        """
        watermark, upto = self.positions.watermark, min(lsn, self.positions.known_lsn)
        if any(watermark < changed <= upto for changed, _ in self.versions.lsns):
            return upto
        return min(lsn, watermark)


def read_known(lake: Lake, *, allow_gaps: bool = False, asked: Asked = ALL, by_commits: bool = False) -> Known:
    """Read the state of a lake; with `allow_gaps`, questions inside a gap are answered and marked.

    `asked` are the tables that the question may be about; in a store, others are not looked at (`lake.histories`). For
    a question `by_commits`, which needs `transactions`, these are opened in a store together with the rest.

    Raises LakeUnusable if it holds no table.
    """
    positions, rest = _read_state(lake, asked, by_commits=by_commits)
    histories, copying = rest.histories, rest.copying
    tables = _with_pending_names(histories, rest.versions, positions.known_lsn)
    if asked is not ALL and (left := _asked_after_all(rest.records, tables, histories, asked)):
        histories, copying = read_histories(lake, lambda table: asked(table) or table.name in left)
        tables = _with_pending_names(histories, rest.versions, positions.known_lsn)
    if not tables:
        raise no_table_yet(lake)
    parked = in_force(rest.records, tables.values())
    return Known(
        lake,
        positions,
        tables,
        rest.versions,
        rest.answers,
        rest.open_transactions,
        rest.gaps,
        tuple(copying),
        rest.records,
        parked,
        allow_gaps,
    )


@dataclass(frozen=True, slots=True)
class _Rest:
    """The parts of a lake's state that are read after its positions."""

    histories: Sequence[HistoryTable]
    copying: Sequence[TableName]
    versions: RelationVersions
    records: Sequence[Parked]
    gaps: tuple[Gap, ...]
    answers: Answers
    open_transactions: Callable[[], TableFiles | None]


@dataclass(slots=True)
class _Before:
    """Facts about a lake in a store that a session keeps from one question to the next."""

    positions: tuple[int, str] | None = None
    """Version and ETag of the positions that were read last."""
    by_commits: bool = False
    """Whether `transactions` were needed, and probably will be again."""


def _read_state(lake: Lake, asked: Asked, *, by_commits: bool) -> tuple[Positions, _Rest]:
    """Read the positions before the rest, so that no table, name, gap or parked table up to them is missed.

    If the positions are those that the session read for an earlier question, they were known before the rest of this
    one was read. So both are read at the same time, and the rest again if the positions have changed.
    """
    before = lake.session.part(_Before)
    last = before.positions
    with AtOnce(lake.root) as at_once:
        early = None if last is None else at_once.start(_read_rest, lake, asked, by_commits)
        positions = read_positions(lake) or _NOTHING
    read = positions.delta_version, positions.etag
    rest = early.result() if early is not None and read == last else _read_rest(lake, asked, by_commits)
    if positions.etag is not None:
        before.positions = positions.delta_version, positions.etag
    require_together(lake, positions, rest.histories)
    return positions, rest


def _read_rest(lake: Lake, asked: Asked, by_commits: bool) -> _Rest:  # noqa: FBT001 - of a function that is started
    open_transactions = cache(partial(_open_transactions, lake))
    with AtOnce(lake.root) as at_once:
        if by_requests(lake.root) and (by_commits or lake.session.part(_Before).by_commits):
            at_once.start(open_transactions)  # if it fails, it is tried again when it is needed
        histories = at_once.start(_read_asked, lake, asked)
        versions, records = at_once.start(read_versions, lake), at_once.start(read_records, lake)
        gaps, answers = at_once.start(read_gaps, lake), at_once.start(read_added, lake)
    return _Rest(
        *histories.result(), versions.result(), records.result(), gaps.result(), answers.result(), open_transactions
    )


def _open_transactions(lake: Lake) -> TableFiles | None:
    lake.session.part(_Before).by_commits = True
    found = read_newest(lake.transactions)
    if found is not None:
        found.fetch()
    return found


def _read_asked(lake: Lake, asked: Asked) -> tuple[list[HistoryTable], list[TableName]]:
    """Read the histories; in a store, list the files of those that a question names while others wait for theirs."""
    histories, copying = read_histories(lake, asked)
    if asked is not ALL and by_requests(lake.root):
        read_each(lake.root, find_files, [table for table in histories if asked(table)])
    return histories, copying


def _asked_after_all(
    records: Sequence[Parked], tables: Mapping[TableName, HistoryTable], before: Sequence[HistoryTable], asked: Asked
) -> frozenset[TableName]:
    """Return the tables to look at that may not have been asked for as they were known: parked, or named later."""
    renamed = {table.name for table in before if (now := tables[table.name]) is not table and asked(now)}
    return frozenset(renamed | in_force(records, before).keys())


def with_pending_names(lake: Lake, tables: Sequence[HistoryTable], upto: Lsn) -> Iterator[HistoryTable]:
    """Yield the tables with their names after the changes that are not applied yet."""
    yield from _with_pending_names(tables, read_versions(lake), upto).values()


def _with_pending_names(
    tables: Sequence[HistoryTable], versions: RelationVersions, upto: Lsn
) -> dict[TableName, HistoryTable]:
    later = _with_later_versions(tables, versions, upto)
    shapes = find_shapes(later, versions, upto)
    return {table.name: _with_names(table, shapes[table]) if table in shapes else table for table in tables}


def _with_later_versions(tables: Sequence[HistoryTable], versions: RelationVersions, upto: Lsn) -> list[HistoryTable]:
    """Return the tables that may have a version of their relation above their position; of ten thousand, few have."""
    last = {oid: lsn for lsn, oid in versions.lsns if lsn <= upto}
    return [
        table
        for table in tables
        if last.get(table.oid, 0) > table.position or (table.names and table.names[-1][0] > table.position)
    ]


def _with_names(table: HistoryTable, found: Shapes) -> HistoryTable:
    names = [each for each in table.names if each[0] <= table.position]
    for version in found.following:
        add_name(names, table, version.lsn, version.relation.name)
    return table if tuple(names) == table.names else replace(table, names=tuple(names))


def resolve(known: Known, when: When | None) -> Lsn:
    """Return the commit LSN that `when` means, None is now; raises NotAnswerable if the lake does not know it."""
    match when:
        case None | AtNow():
            return known.now_lsn
        case AtTime():
            return _at_time(known, when)
        case AtLsn(lsn):
            if known.positions.is_known_end(lsn):  # every commit that starts before it is in the lake
                return known.last_lsn
            if lsn > known.last_lsn:
                raise NotAnswerable(
                    f"asked for {lsn}, this lake knows every commit up to {known.last_lsn}", catch_up(known.lake)
                )
            return lsn
        case AtXid():
            return _at_xid(known, when)
        case _:
            assert_never(when)


def just_before(known: Known, when: When) -> Lsn:
    """Return the last commit LSN before `when`, which has been resolved; 0 if the lake begins with it."""
    if isinstance(when, AtTime):  # commit times are whole microseconds
        return _lsn_at(known, when.time_us - 1)
    lsn = resolve(known, when)
    return lsn if isinstance(when, AtNow) else Lsn(lsn - 1)  # now is later than the last commit


def _at_time(known: Known, when: AtTime) -> Lsn:
    current_us = known.positions.current_us
    if when.time_us > current_us:
        reach = f"knows every commit up to {format_us(current_us)}" if current_us else "has captured nothing yet"
        raise NotAnswerable(f"asked for {when}, this lake {reach}", catch_up(known.lake))
    _check_expired(known, when)
    _check_own_clock(known, when)
    _check_clock(known, when)
    lsn = _lsn_at(known, when.time_us)
    if not lsn:
        begin_us = begins_at(known)
        begins = format_us(begin_us) if begin_us is not None else "its first transaction"
        raise NotAnswerable(f"asked for {when}, this lake begins at {begins}", "Ask for a later moment.")
    _check_ahead(known, when, lsn)
    return lsn


def _lsn_at(known: Known, time_us: int) -> Lsn:
    """Return the LSN of the state at a time, 0 if the lake begins later.

    The caller has checked that all transactions that have expired are older; of later ones, none may be known (`only`).
    """
    return max(last_up_to(known, time_us, certain=False) or Lsn(0), known.expired_transactions)


def _check_expired(known: Known, when: AtTime) -> None:
    """Check that a moment is not before the first transaction that is kept; raises NotAnswerable."""
    first_us = first_transaction_us(known) if known.expired_transactions else None
    if first_us is not None and when.time_us < first_us:
        raise NotAnswerable(
            f"asked for {when}, the transactions up to {known.expired_transactions} have expired: [retention] does not "
            "keep them longer, and earlier times are not known without them",
            f"Ask for {format_us(first_us)} or later, or for an LSN.",
        )


def first_transaction_us(known: Known) -> int | None:
    """Return the time of the first transaction that has not expired; None if there is none."""
    transactions = known.open_transactions()
    sql = f"select epoch_us(min(time_mono)) as time_us from t where lsn <= {known.positions.watermark:d}"
    first_us: int | None = None if transactions is None else select(sql, t=transactions)["time_us"][0].as_py()
    return first_us


def _check_own_clock(known: Known, when: AtTime) -> None:
    """Check that what a lake knows up to a time in the future is known at a moment; raises NotAnswerable.

    If the clocks of source and capture were ahead, and no commit shows it yet, the next one may be at any time after
    the last.
    """
    latest_us, current_us = now_us() + CLOCK_TOLERANCE_US, known.positions.current_us
    if current_us <= latest_us:
        return
    last = last_up_to(known, latest_us)
    if last is None or (last_up_to(known, when.time_us - 1) or 0) < last:
        return
    raise NotAnswerable(
        f"asked for {when}, this lake knows every commit up to {format_us(current_us)}, which is in the future: a clock"
        f" was ahead, and a time after the commit or snapshot at {last} may have other commits",
        f"Ask for an earlier time, or by LSN: {last}. If the clock of this machine is behind, correct it.",
    )


def settled_us(known: Known) -> int:
    """Return the last time that `_check_own_clock` does not refuse, in microseconds since 1970."""
    latest_us, current_us = now_us() + CLOCK_TOLERANCE_US, known.positions.current_us
    last = last_up_to(known, latest_us) if current_us > latest_us else None
    if last is None:
        return current_us
    if (taken_us := snapshot_times(known).get(last)) is not None:
        return taken_us
    sql = f"select epoch_us(time_mono) as time_us from t where lsn = {last:d}"
    time_us: int = select(sql, t=known.open_transactions())["time_us"][0].as_py()
    return time_us


_AROUND = """
select epoch_us(max(time_mono) filter (where time_mono <= {asked})) as before,
       epoch_us(min(time_mono) filter (where time_mono > {asked})) as after,
       min(lsn) filter (where time_mono > {asked}) as first, epoch_us(min(time_mono)) as earliest
  from transactions where {known}
"""
_BEHIND = """
select max(lsn) as last, epoch_us(max(time_mono)) as ahead_us, epoch_us(min(time)) as time_us
  from transactions
 where time_mono >= {after} and time < {after} and {known} and {went_back}
   and epoch_us(time_mono) - epoch_us(time) > {tolerance:d}
"""


def _check_clock(known: Known, when: AtTime) -> None:
    """Check that the source's clock had not jumped at a moment.

    After a jump, the clock is behind the time of the last commit that saw it ahead. `time_mono` stays at that time
    until the clock has caught up, so no moment between the commit before the jump and that time has an exact LSN. The
    commit before the jump is the last one at or before the time to which the clock went back. If none that is known is
    so early, the clock was reset, and the times of all but the last commit were right. The time of a commit is exact
    unless the clock went back to it or before it.

    Raises NotAnswerable.
    """
    transactions = known.open_transactions()
    if transactions is None:
        return
    asked = f"make_timestamptz({when.time_us:d})"
    known_sql = f"lsn <= {known.positions.watermark:d} and {known.shown_sql}"
    (step,) = select(_AROUND.format(asked=asked, known=known_sql), transactions=transactions).to_pylist()
    if step["after"] is None:
        return
    after, earliest = f"make_timestamptz({step['after']:d})", f"time >= make_timestamptz({step['earliest']:d})"
    is_of_commit = step["before"] == when.time_us
    went_back = f"time <= {asked} and {earliest}" if is_of_commit else f"(time_mono = {after} or {earliest})"
    behind = _BEHIND.format(after=after, known=known_sql, went_back=went_back, tolerance=CLOCK_TOLERANCE_US)
    (row,) = select(behind, transactions=transactions).to_pylist()
    if row["last"] is None:
        return
    first, last = Lsn(step["first"]), Lsn(row["last"])
    went = f"from {format_us(row['ahead_us'])} back to {format_us(row['time_us'])}"
    raise NotAnswerable(
        f"asked for {when}, the source's clock went {went}: commits {first} to {last} have no exact time",
        f"Ask by LSN: {Lsn(first - 1)} is before the jump, {last} after it.",
    )


_JUMPS = """
select epoch_us(until) as until_us, epoch_us(back) as back_us, epoch_us(
         (select max(time_mono) from transactions where {known} and time_mono <= coalesce(back, just_before))) as us
  from (select time_mono as until, time_mono - interval 1 microsecond as just_before,
               min(time) filter (where time >= (select min(time_mono) from transactions where {known})) as back
          from transactions
         where {known} and epoch_us(time_mono) - epoch_us(time) > {tolerance:d} group by time_mono)
 order by until
"""


def without_exact_lsn(known: Known) -> list[tuple[int | None, int]]:
    """Return the times that `_check_clock` refuses, in microseconds: from the first, None if all are, up to another."""
    transactions = known.open_transactions()
    if transactions is None:
        return []
    known_sql = f"lsn <= {known.positions.watermark:d} and {known.shown_sql}"
    sql = _JUMPS.format(known=known_sql, tolerance=CLOCK_TOLERANCE_US)
    found = select(sql, transactions=transactions).to_pylist()
    # The commit before the jump has an exact time, unless the clock went back to it.
    return [
        (None if row["us"] is None else row["us"] + (row["us"] != row["back_us"]), row["until_us"]) for row in found
    ]


_AHEAD = "select epoch_us(time) as time_us from transactions where lsn = {lsn:d} and time > time_mono"
_NEIGHBOURS = """
select epoch_us(max(time_mono) filter (where lsn < {lsn:d})) as before,
       epoch_us(min(time_mono) filter (where lsn > {lsn:d})) as after
  from transactions where time <= time_mono and {known}
"""


def _check_ahead(known: Known, when: AtTime, lsn: Lsn) -> None:
    """Check that the last commit at or before a moment, at `lsn`, has an exact time; `lsn` may be a snapshot's.

    A time far ahead of the clock does not move `time_mono` (`capture.change_log`): its commit was made at some moment
    between its neighbours.

    Raises NotAnswerable.
    """
    transactions = known.open_transactions()
    if transactions is None:
        return
    for says in select(_AHEAD.format(lsn=lsn), transactions=transactions.within(lsn=(lsn, lsn))).to_pylist():
        known_sql = f"lsn <= {known.positions.watermark:d} and {known.shown_sql}"
        (found,) = select(_NEIGHBOURS.format(lsn=lsn, known=known_sql), transactions=transactions).to_pylist()
        sides = (("before", "earlier"), ("after", "later"))
        near = [f"; or for {format_us(found[side])} or {word}" for side, word in sides if found[side] is not None]
        raise NotAnswerable(
            f"asked for {when}, the time of the commit at {lsn} is {format_us(says['time_us'])}, far ahead of the"
            " clock: it was made before or after the time asked for",
            f"Ask by LSN: {Lsn(lsn - 1)} is before it, {lsn} after it{''.join(near)}.",
        )


def begins_at(known: Known) -> int | None:
    """Return the time of the first snapshot, in microseconds since 1970; None if no table records one."""
    return min((time for table in known.listed if (time := table.snapshot_us) is not None), default=None)


def last_up_to(known: Known, time_us: int, *, certain: bool = True) -> Lsn | None:
    """Return the LSN of the last commit or snapshot at or before a time, `certain`: of those with an exact time."""
    transaction = last_transaction_up_to(known, time_us, certain=certain)
    snapshots = (Lsn(lsn) for lsn, taken_us in snapshot_times(known).items() if taken_us and taken_us <= time_us)
    return max([*snapshots, *([] if transaction is None else [transaction])], default=None)


def last_transaction_up_to(known: Known, time_us: int, *, certain: bool = True) -> Lsn | None:
    """Return the LSN of the last transaction at or before a time, `certain`: of those with an exact time."""
    exact = " and time <= time_mono" if certain else ""
    return _last_transaction(known, f"time_mono <= make_timestamptz({time_us:d}){exact}")


def has_commits(known: Known, after: Lsn, upto: Lsn) -> bool:
    """Return whether a transaction is known that was committed after one LSN and up to another."""
    return _last_transaction(known, f"lsn > {after:d} and lsn <= {upto:d}") is not None


def _at_xid(known: Known, when: AtXid) -> Lsn:
    lsn = _last_transaction(known, f"xid = {when.xid}")
    if lsn is None:
        raise NotAnswerable(
            f"asked for {when}, no transaction with this xid is known up to {known.positions.watermark}",
            "It may have changed none of these tables, lie before the snapshot, or have expired; "
            "auditlake.transactions lists the ones that are known.",
        )
    return lsn


def snapshot_times(known: Known) -> dict[int, int | None]:
    """Return when each snapshot was taken, in microseconds since 1970, by its LSN; None if it was not recorded."""
    taken: dict[int, int | None] = {gap.lsn_to: gap.to_us for gap in known.gaps}
    return taken | {table.first_snapshot_lsn: table.snapshot_us for table in known.listed}


def _last_transaction(known: Known, condition: str) -> Lsn | None:
    """Return the LSN of the newest transaction that meets `condition`, SQL made of numbers only."""
    transactions = known.open_transactions()
    if transactions is None:
        return None
    upto = known.positions.watermark
    query = f"select max(lsn) as lsn from transactions where lsn <= {upto:d} and {condition} and {known.shown_sql}"
    lsn = select(query, transactions=transactions)["lsn"][0].as_py()
    return None if lsn is None else Lsn(lsn)
