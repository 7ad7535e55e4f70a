"""Feed: whole transactions in commit order, from a place in the lake on, and new ones as capture makes them durable.

The feed only reads files of the lake, so a slow or dead subscriber delays neither capture nor the source. It polls for
the next entry of the Delta log of `changes`, which costs one attempt to open a file, on an object store a request.

1. Read the watermark, then which LSNs are complete (`Completeness`), then the rows of `transactions` up to there.
2. Take the next transactions, as many as fit into memory together, and read their changes (`reading`).
3. Move the position past them, whether a change was selected or not.

Delivery is in commit order, each transaction once per run. A subscriber that stores the cursor in the same transaction
as the effects of what it received, and starts again after that cursor, has every transaction's effects exactly once.

**Cursor.** `7486193712053354519:0/16B3748` is the system identifier of the PostgreSQL server and the commit LSN of the
last transaction that was delivered. By the system identifier, a lake refuses the cursor of another database, whose LSN
would silently skip transactions. The LSN alone is the position because commits have one order.

**Completeness.** Gaps (`lake.gaps`) and tables that capture has parked make a feed of these tables incomplete. The feed
delivers everything before, then refuses by name. A place before the LSN up to which changes have expired is refused,
also if the feed was ahead of it when it was opened. Tables parked by apply do not: their changes are in the lake. So
are those of a table whose shape was uncertain for a time; while capture finds out, a feed that follows waits. The
records are on the disk before the watermark passes their LSN, so a reader that reads the watermark first misses none.
They are read again only when their files change.

**Erasure.** What was read before an erasure may have its values, also who and why. The feed reads again what it has not
delivered; a subscriber that holds what it took asks `is_outdated`, and goes back (`go_back`).
"""

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Self

import pyarrow as pa

from auditlake.audit.transactions import Transaction, transaction_of
from auditlake.errors import AuditlakeError, BadUsage, NotAnswerable, WrongSource
from auditlake.feed.change import Change, ChangedTransaction
from auditlake.feed.complete_transactions import ChangeReader
from auditlake.feed.log_tail import LogTail, in_span
from auditlake.feed.selection import FeedSelection, Selected, Successor
from auditlake.lake.gaps import read_gaps
from auditlake.lake.histories import list_histories
from auditlake.lake.layout import CHANGES_APP, TRANSACTIONS_APP, Lake
from auditlake.lake.manifest import read_earlier_sources, require_manifest
from auditlake.lake.parking import SegmentState, in_force, read_records
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.store.files import fingerprint
from auditlake.store.place import Place, by_requests
from auditlake.temporal.knowledge import Segment, lacks_changes, recorded, require_kept

_POLL_S, _POLL_OF_STORE_S = 0.01, 1.0
_MOST_CHANGES = 10_000
_MOST_BYTES = 64 << 20
_MOST_TRANSACTIONS = 20_000
_COLUMNS = ("lsn", "xid", "time", "origin", "context", "inserts", "updates", "deletes", "truncates", "tables")


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a feed: after `lsn`; `follow` waits for new transactions, else it ends at the watermark."""

    lsn: Lsn
    follow: bool = True
    allow_gaps: bool = False


class Feed(Iterator[ChangedTransaction]):
    """Iterator over the transactions with selected changes. Used by one thread at a time; `close` may be called by any.

    `cursor` is the place up to which every transaction was delivered or not selected. Storing it from time to time
    keeps the cursor of a filtered feed moving.
    """

    def __init__(
        self, lake: Lake, start: Start, selection: FeedSelection | None = None, closed: threading.Event | None = None
    ) -> None:
        """Open the feed; setting `closed` ends it, as `close` does."""
        self._selection = selection or FeedSelection()
        self._start = start
        self._lake = lake
        self._poll_s = _poll_s(lake.root)
        self._system = require_manifest(lake).system_identifier
        self._changes = LogTail(lake.changes, CHANGES_APP)
        self._transactions = LogTail(lake.transactions, TRANSACTIONS_APP)
        self._selected = Selected(lake, self._selection)
        self._reader = ChangeReader(self._changes, self._selected)
        self._complete = Completeness(lake, self._selected)
        self._last = Lsn(self._changes.position)
        self._read_to = start.lsn
        self._planned_to = start.lsn
        self._pending: deque[Transaction] = deque()
        self._ready: deque[ChangedTransaction] = deque()
        self._delivered = start.lsn
        self._refusal: AuditlakeError | None = None
        self._erasures = fingerprint(lake.erasures)
        self._ask_again_s = 0.0
        self._closed = closed or threading.Event()
        if start.lsn > self._last:
            raise NotAnswerable(
                f"asked for the changes after {start.lsn}, this lake knows them up to {self._last}",
                "A cursor ahead of the lake belongs to another lake, or to this one before it was restored.",
            )
        self._require_changes()

    @property
    def cursor(self) -> str:
        """The place after everything that was delivered, or examined and not selected."""
        return self._cursor(self._delivered if self._ready else max(self._delivered, self._read_to))

    def _cursor(self, lsn: Lsn) -> str:
        return str(Cursor(self._system, Lsn(lsn)))

    @property
    def is_outdated(self) -> bool:
        """Whether rows were erased, or are being erased, since the last transactions were read from the lake."""
        return fingerprint(self._lake.erasures) != self._erasures

    def go_back(self, cursor: str) -> None:
        """Read again what follows an earlier cursor of this feed; raises BadUsage, WrongSource."""
        self._ready.clear()
        self._refusal = None
        self._begin_after(parse_cursor(cursor, self._lake))
        self._delivered = self._read_to

    def _begin_after(self, lsn: Lsn) -> None:
        self._pending.clear()
        self._read_to = self._planned_to = lsn

    def close(self) -> None:
        """End the feed: a waiting `take` or `next` returns at once."""
        self._closed.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> ChangedTransaction:
        """Return the next transaction, waiting for it if following, else up to the watermark; raises NotAnswerable."""
        self._drop_outdated()
        while not self._ready:
            more = self._advance()
            if self._ready:
                break
            if self._closed.is_set() or (not more and not self._start.follow):
                raise StopIteration
            if not more:
                self._closed.wait(self._poll_s)
        found = self._ready.popleft()
        self._delivered = found.lsn
        return found

    def take(self, timeout_s: float | None = None) -> list[ChangedTransaction]:
        """Return the transactions that can be had together, in order; wait for the first at most `timeout_s`.

        The list is empty if there was none in time, or the feed was closed.

        Raises NotAnswerable if changes are missing, BadUsage.
        """
        if not isinstance(timeout_s, int | float | None):
            raise BadUsage(f"timeout_s is of type {type(timeout_s).__name__}, need seconds or None")
        until = None if timeout_s is None else time.monotonic() + timeout_s
        self._drop_outdated()
        while not self._ready and not self._closed.is_set():
            if self._advance():
                continue
            if not self._start.follow or (until is not None and not time.monotonic() < until):
                break
            self._closed.wait(self._poll_s)
        found = list(self._ready)
        self._ready.clear()
        if found:
            self._delivered = found[-1].lsn
        return found

    def _drop_outdated(self) -> None:
        """Go back to what was delivered if rows were erased since; a store is asked once a second."""
        now_s = time.monotonic()
        if self._ready and (self._poll_s < _POLL_OF_STORE_S or now_s >= self._ask_again_s):
            self._ask_again_s = now_s + _POLL_OF_STORE_S
            if self.is_outdated:
                self.go_back(self._cursor(self._delivered))

    def _advance(self) -> bool:
        """Read the next transactions; False if there are none yet. A refusal is raised after those before it."""
        if self._refusal is not None:
            raise self._refusal
        try:
            return self._read_on()
        except AuditlakeError as refusal:
            self._refusal = refusal
            if not self._ready:
                raise
            return True

    def _read_on(self) -> bool:
        if self._pending and self.is_outdated:
            self._begin_after(self._read_to)
        if not self._pending and not self._plan():
            return False
        if not self._pending:
            return True
        chunk = self._next_chunk()
        chosen = [each for each in chunk if self._selected.may_match(each)]
        chosen = list(self._selected.with_column(chosen))
        if chosen and len(chunk) == 1 and self._is_large(chunk):
            self._stream(chunk[0])
        else:
            self._ready.extend(
                self._delivery(transaction, tuple(changes))
                for transaction, changes in self._reader.read(chosen)
                if changes or self._selection.is_everything
            )
        self._read_to = chunk[-1].lsn if self._pending else self._planned_to
        return True

    def _stream(self, transaction: Transaction) -> None:
        changes = self._reader.streamed(transaction)
        if self._selection.is_everything or next(iter(changes), None) is not None:
            self._ready.append(self._delivery(transaction, changes))

    def _delivery(self, transaction: Transaction, changes: Iterable[Change]) -> ChangedTransaction:
        own = {each.name: getattr(transaction, each.name) for each in fields(Transaction)}
        return ChangedTransaction(**own, changes=changes, cursor=self._cursor(transaction.lsn))

    def _plan(self) -> bool:
        """Read the next rows of `transactions`; return whether the position moved."""
        if self._start.follow:
            self._changes.refresh()
            self._last = Lsn(self._changes.position)
        self._require_changes()
        if self._last <= self._planned_to:
            return False
        self._erasures = fingerprint(self._lake.erasures)
        self._selected.refresh()
        limit = (
            self._last
            if self._start.allow_gaps
            else self._complete.limit(self._planned_to, self._last, wait=self._start.follow)
        )
        self._transactions.refresh()
        try:
            rows, upto = self._next_rows(limit)
        except FileNotFoundError:  # a reader that slept for hours; the rows are in other files now
            self._transactions.list_again()
            rows, upto = self._next_rows(limit)
        self._require_changes()  # rows of transactions that expired meanwhile are not among them
        moved = upto > self._planned_to
        self._pending.extend(rows)
        self._planned_to = upto
        if not rows:
            self._read_to = upto
        return moved

    def _require_changes(self) -> None:
        """Require changes and transactions after what was planned, which a slow feed may have had no time to read."""
        after, expired = self._planned_to, max(self._changes.expired, self._transactions.expired)
        require_kept("changes", expired, Lsn(after + 1), f"the changes after {self._cursor(after)}")

    def _next_rows(self, limit: Lsn) -> tuple[list[Transaction], Lsn]:
        """Read transactions after the planned ones, in LSN order, and return up to which LSN they are all of them."""
        after, rows, upto = self._planned_to, 0, limit
        chosen: list[pa.Table] = []
        groups = self._transactions.groups(after, limit)
        for group in groups:
            if rows >= _MOST_TRANSACTIONS and group.first - 1 > after:
                upto = Lsn(min(limit, group.first - 1))
                break
            rows += group.rows
            chosen.append(group.read(_COLUMNS))
        if not chosen:
            return [], upto
        found = in_span(pa.concat_tables(chosen), after, upto).sort_by("lsn")
        found = found.append_column("time_us", found["time"].cast(pa.int64())).drop_columns(["time"])
        return [transaction_of(row).shown(self._selection.only) for row in found.to_pylist()], upto

    def _next_chunk(self) -> list[Transaction]:
        """Take the next transactions whose changes fit into memory together, at least one."""
        chunk = [self._pending.popleft()]
        count = chunk[0].count
        while self._pending and count + self._pending[0].count <= _MOST_CHANGES:
            chunk.append(self._pending.popleft())
            count += chunk[-1].count
        while len(chunk) > 1 and self._is_large(chunk):
            half = len(chunk) // 2
            self._pending.extendleft(reversed(chunk[half:]))
            chunk = chunk[:half]
        return chunk

    def _is_large(self, chunk: Sequence[Transaction]) -> bool:
        if sum(each.count for each in chunk) > _MOST_CHANGES:
            return True
        return self._reader.held_bytes(Lsn(chunk[0].lsn - 1), chunk[-1].lsn) > _MOST_BYTES


def _poll_s(place: Place) -> float:
    return _POLL_OF_STORE_S if by_requests(place) else _POLL_S


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place after the transaction with commit LSN `lsn`."""

    system_identifier: str
    lsn: Lsn

    def __str__(self) -> str:
        return f"{self.system_identifier}:{self.lsn}"


def parse_cursor(text: str, lake: Lake) -> Lsn:
    """Return the LSN of a cursor, also of an earlier source up to its end; raises BadUsage, WrongSource."""
    if not isinstance(text, str):  # of a program
        raise BadUsage(f"a cursor is of type {type(text).__name__}, need a text")
    system, colon, lsn = text.partition(":")
    try:
        position = Lsn.parse(lsn)
    except ValueError as exc:
        raise BadUsage(f"{text!r} is not a cursor: {exc}", "Pass the cursor that a transaction had.") from None
    if not colon or not system.isdigit():
        raise BadUsage(f"{text!r} is not a cursor, need SYSTEM:LSN", "Pass the cursor that a transaction had.")
    recorded = require_manifest(lake).system_identifier
    earlier = any(each.system_identifier == system and position <= each.upto for each in read_earlier_sources(lake))
    if system != recorded and not earlier:
        raise WrongSource(
            f"the cursor belongs to the source with system identifier {system}, this lake records {recorded}",
            "Use the lake that the cursor came from, or start without a cursor.",
        )
    return position


class Completeness:
    """The changes known to be missing, of the selected tables."""

    def __init__(self, lake: Lake, selected: Selected) -> None:
        self._lake = lake
        self._selected = selected
        self._seen: tuple[object, ...] | None = None
        self._missing: list[Segment] = []
        self._successors: set[Successor] | None = None
        self._late: set[Successor] = set()

    def limit(self, position: Lsn, watermark: Lsn, *, wait: bool = False) -> Lsn:
        """Return the LSN up to which every selected change after `position` is in the lake; read the watermark before.

        It is `position` if that is to be decided by capture, and the caller can `wait`.

        Raises NotAnswerable if none is known to be after `position`.
        """
        self._refresh(position)
        ahead = [each for each in self._missing if each.upto is None or each.upto > position]
        first = min(ahead, key=lambda each: each.after, default=None)
        if first is None or watermark <= first.after:
            return watermark
        if position >= first.after and wait and first.state is SegmentState.WAITING:
            return position
        if position >= first.after:
            raise lacks_changes(first)
        return first.after

    def _refresh(self, position: Lsn) -> None:
        records = sorted(self._lake.all_parked.glob("*/*.json"))
        files = ((path, _modified_ns(path)) for path in records)
        seen = (fingerprint(self._lake.gaps / "_delta_log"), self._selected.histories, *files)
        if seen != self._seen:
            # A table is unparked after its gap was recorded: read in this order, one of the two is found.
            parked = [*self._of_parked()] if records else []
            gaps = (gap for gap in read_gaps(self._lake) if gap.lacks_changes)
            missing = [*parked, *recorded(gaps, ())]
            missing = [each for each in missing if self._selects(each.table)]
            self._missing = [*missing, *self._of_successors(position)]
            self._seen = seen

    def _selects(self, table: TableName | None) -> bool:
        histories = self._selected.histories
        return histories is None or table is None or table in histories

    def _of_parked(self) -> Iterator[Segment]:
        records, histories = read_records(self._lake), list_histories(self._lake)
        ends = {each.table: each.until for each in records if each.ended}
        for each in recorded((), in_force(records, histories, silent=True, dropped=False).values()):
            yield replace(each, upto=None if each.table is None else ends.get(each.table))

    def _of_successors(self, position: Lsn) -> Iterator[Segment]:
        """Yield the missing changes of tables that got a selected name from another one.

        A table may have been copied only after the feed had passed its snapshot: then nothing is delivered any more.
        """
        found = set(self._selected.successors())
        if self._successors is not None:
            self._late |= {each for each in found - self._successors if each.upto <= position}
        self._successors = found
        for each in found:
            reason = (
                f"{each.name} is another table since {each.after}, whose changes before its snapshot at {each.upto} "
                "are missing: the publication lists its tables one by one, this one later"
            )
            yield Segment(SegmentState.GAP, each.name, each.after, None if each in self._late else each.upto, reason)


def _modified_ns(path: Path) -> int | None:
    """Return when a file was modified last; None if it was removed meanwhile."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None
