"""Resources that requests share: one state of the lake, few threads, one database, a cache of answers.

- `Resources.reader` returns one pinned state of the lake. It is read again at most once per second, also for a moment
  that it knows: meanwhile a row may have been erased, and its files with it. If another lake has taken its place, its
  readers have another session.
- `Resources.run` runs a function in one of few threads; requests beyond `waiting` are refused. One that takes longer
  than `timeout_s` is refused too, and one whose client has gone is given up: it is cancelled (`cancellation`), and its
  thread occupies its place until it has ended. Of threads and of waiting requests one client has a share, so that two
  that ask for much do not keep a third from an answer.
  Time inside `Resources.uncounted` does not count: for example the start of Spark, which is no part of the question.
- `Resources.cursor` opens a cursor of the one embedded database, whose memory limit all requests share.
- `Resources.held` has the rows of large tables that are asked for again in the database's memory.
- `answers_of` has the answers that the session of a lake keeps by table and LSN, up to a number of bytes.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from starlette.requests import ClientDisconnect, Request

from auditlake.audit.lake_reader import Reader
from auditlake.cancellation import Cancellation, cancellable
from auditlake.counters import Counter, count
from auditlake.errors import AuditlakeError, LakeUnusable, NotAnswerable
from auditlake.lake.duckdb_rows import connect_for_statements
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from auditlake.lake.whereabouts import is_replaced, remember
from auditlake.lsn import Lsn
from auditlake.messages import report, say_once
from auditlake.query.languages import DEFAULT, Dialect
from auditlake.sandbox.failures import Busy, failure
from auditlake.sandbox.processes import share_of
from auditlake.serve.access import client_of, user_of
from auditlake.serve.held_tables import HeldTables
from auditlake.serve.timeline import CommitIndex
from auditlake.store.session import Kept
from auditlake.temporal.grants import WHOLE, Grant
from auditlake.temporal.when import AtLsn, parse_when

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


T = TypeVar("T")

_FRESH_S = 1.0
_OLD_S = 10.0
_TICK_S = 0.05
_GONE_S = 0.5
"""So often a request that can be cancelled asks whether its client has gone."""
_CACHE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what one server does at a time and returns at once."""

    workers: int = 7
    waiting: int = 64
    timeout_s: float = 30.0
    page_rows: int = 500
    sql_rows: int = 1_000
    export_rows: int = 1_000_000


class _Running:
    """A request that runs: how long it may still take, and its cancellation."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._until = time.monotonic() + limit_s
        self._stopped: float | None = None
        self._most_s = 0.0
        self.waits_for = ""
        self.cancellation = Cancellation()

    @property
    def left_s(self) -> float:
        now, stopped = time.monotonic(), self._stopped
        return self._until - (now if stopped is None else max(stopped, now - self._most_s))

    def require_time(self) -> None:
        """Require that it has not taken too long; raises Busy."""
        if self.left_s <= 0:
            count(Counter.REFUSED_QUESTIONS)
            raise Busy(
                f"the answer took longer than {self._limit_s:g} s{self.waits_for}",
                "Try again: it goes on." if self.waits_for else "Ask for less, or raise --timeout.",
            )

    @contextmanager
    def stopped(self, waits_for: str, most_s: float) -> Iterator[None]:
        """Stop the clock for the duration of the block, but at most so long."""
        self.waits_for, self._most_s, self._stopped = f", waiting for {waits_for}", most_s, time.monotonic()
        try:
            yield
        finally:
            self._until += min(time.monotonic() - self._stopped, most_s)
            self.waits_for, self._stopped = "", None


class _Client:
    """Who asks: the threads that its requests may have, and how many requests it waits for."""

    def __init__(self, limits: Limits) -> None:
        self._threads = asyncio.Semaphore(share_of(limits.workers))
        self._most = share_of(limits.waiting)
        self.waiting = 0

    @property
    def waits_for_too_many(self) -> bool:
        return self.waiting >= self._most

    async def run(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        """Run work in a thread, which counts until it has ended: also if nobody waits for it any more."""
        await self._threads.acquire()
        loop = asyncio.get_running_loop()

        def ended(_: "Future[T]") -> None:
            with suppress(RuntimeError):  # the loop has ended before
                loop.call_soon_threadsafe(self._threads.release)

        submitted = pool.submit(work)
        submitted.add_done_callback(ended)
        return await asyncio.wrap_future(submitted)


@dataclass(slots=True)
class _Latest:
    """What requests replace: the last state of the lake, what each grant shows of it, and the clients."""

    lake: Lake
    waiting: int = 0
    clients: WeakValueDictionary[Hashable, _Client] = field(default_factory=WeakValueDictionary)
    """Those with a request that waits or runs."""
    reader: Reader | None = None
    read_at: float = 0.0
    made_at: float = 0.0
    """When a request last looked whether the reader is still the last state, and when it was made, monotonic."""
    timeline: CommitIndex = field(default_factory=CommitIndex)
    database: "DuckDBPyConnection | None" = None
    seen: dict[Grant, "_Seen"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A state of the lake as a grant shows it, and the whole state."""

    whole: Reader
    reader: Reader
    timeline: CommitIndex

    @classmethod
    def of(cls, whole: Reader, grant: Grant, before: "_Seen | None") -> "_Seen":
        """Limit a state; `before` is the user's part of an earlier one. Raises Hidden if nothing is seen."""
        reader, known = Reader(whole.lake, whole.now, grant.limited(whole.known)), CommitIndex()
        if before is not None and before.reader.lake.session is reader.lake.session:
            known = before.timeline if before.reader.known.only == reader.known.only else known
        return cls(whole, reader, known.refreshed(reader))


class _Answers(Kept):
    """The answers that were given last."""

    def __init__(self) -> None:
        super().__init__(_CACHE_BYTES, _CACHE_BYTES // 4)


def answers_of(lake: Lake) -> Kept:
    """Return the answers that a lake's session keeps: a lake that takes its place has another session, and none."""
    return lake.session.part(_Answers)


@dataclass
class Resources:
    """The lake as requests see it; `dialect` is that of statements that name none, `grant` what the user may see.

    `client` is who asks: the name of a user, or an address.
    """

    lake: Lake
    zone: tzinfo
    limits: Limits = field(default_factory=Limits)
    source: str | None = None
    dialect: Dialect = DEFAULT
    grant: Grant = WHOLE
    client: Hashable = None

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.limits.workers, thread_name_prefix="serve")
        self._latest = _Latest(self.lake)
        self._lock = threading.Lock()
        self._seen_lock = threading.Lock()
        self._running: dict[int, _Running] = {}
        """The request of each thread."""
        self.held = HeldTables(self.unbounded_cursor)

    def for_client(self, client: Hashable, grant: Grant) -> "Resources":
        """Return the same resources for one client, with the tables that its grant shows."""
        found = copy(self)
        found.client, found.grant = client, grant
        return found

    def seen_by(self, request: Request) -> "Resources":
        """Return the same resources for the client of a request, with the tables that its user may see."""
        return self.for_client(client_of(request), user_of(request).grant)

    def prepare(self) -> None:
        """Import DuckDB and read the lake in the background, before a request has to; requests report errors."""
        self._pool.submit(lambda: self.unbounded_cursor().close())
        self._pool.submit(self.reader, None)

    def cursor(self) -> "DuckDBPyConnection":
        """Open a cursor that `run` interrupts when the time of the request is over; raises Cancelled."""
        return cancellable(self.unbounded_cursor())

    def unbounded_cursor(self) -> "DuckDBPyConnection":
        """Open a cursor that is never interrupted: several threads may use it, one after the other."""
        with self._lock:
            self._latest.database = self._latest.database or connect_for_statements(self.lake)
            return self._latest.database.cursor()

    def reader(self, at: str | None = None) -> Reader:
        """Return a state of the lake that knows `at`, a WHEN; None is now. It has the tables that the grant shows.

        Raises BadUsage, LakeUnusable, Hidden.
        """
        when = None if at is None else parse_when(at, datetime.now(self.zone))
        found = self._shown(self._whole()).reader
        if when is None or isinstance(when, AtLsn):
            return found
        return found.with_clock(datetime.now(self.zone))  # a relative time counts from now

    def _whole(self) -> Reader:
        with self._lock:
            latest, kept = self._latest, self._latest.reader
            if kept is None or time.monotonic() - latest.read_at > _FRESH_S:
                if kept is not None and is_replaced(kept.lake):
                    kept, latest.timeline = None, CommitIndex()
                    latest.lake = latest.lake.begun_again()
                found = self._refreshed(latest.lake, kept)
                if found is not kept:
                    latest.timeline, latest.made_at = latest.timeline.refreshed(found), time.monotonic()
                latest.reader = kept = found
                latest.read_at = time.monotonic()
            return kept

    def _shown(self, whole: Reader) -> _Seen:
        if self.grant.is_whole:
            return _Seen(whole, whole, self._latest.timeline)
        with self._seen_lock:
            before = self._latest.seen.get(self.grant)
            if before is None or before.whole is not whole:
                before = self._latest.seen[self.grant] = _Seen.of(whole, self.grant, before)
            return before

    def _refreshed(self, lake: Lake, kept: Reader | None) -> Reader:
        positions = read_positions(lake)
        is_young = time.monotonic() - self._latest.made_at < _OLD_S
        if kept is not None and is_young and positions == kept.known.positions:
            return kept
        remember(lake, -1 if positions is None else positions.delta_version)
        return Reader(lake, datetime.now(self.zone))

    @property
    def timeline(self) -> CommitIndex:
        """The commits that the last reader knows, of those that the grant shows."""
        whole = self._latest.reader
        return self._latest.timeline if whole is None else self._shown(whole).timeline

    async def run(self, work: Callable[[], T], has_gone: Callable[[], Awaitable[bool]] | None = None) -> T:
        """Run `work` in a thread; cancel it if the client `has_gone`. Raises Busy, ClientDisconnect, or as `work`."""
        client = self._latest.clients.setdefault(self.client, _Client(self.limits))
        if self._latest.waiting >= self.limits.waiting or client.waits_for_too_many:
            count(Counter.REFUSED_QUESTIONS)
            raise Busy("too many requests wait", "Try again in a few seconds.")
        self._latest.waiting, client.waiting = self._latest.waiting + 1, client.waiting + 1
        request = _Running(self.limits.timeout_s)
        future = asyncio.ensure_future(client.run(self._pool, partial(self._called, request, work)))
        future.add_done_callback(partial(self._done, client))
        try:
            while not future.done():
                request.require_time()
                if has_gone is not None and await has_gone():
                    raise ClientDisconnect
                wait_s = request.left_s if has_gone is None else min(request.left_s, _GONE_S)
                await asyncio.wait({future}, timeout=max(wait_s, _TICK_S))
            return future.result()
        finally:  # also if the task is cancelled, as that of a stream is whose client has gone
            future.cancel()
            request.cancellation.cancel()

    def _called(self, request: _Running, work: Callable[[], T]) -> T:
        """Do the work of a request in this thread."""
        self._running[threading.get_ident()] = request
        try:
            with request.cancellation.work():
                return work()
        except Exception as exc:  # noqa: BLE001 - raised
            raise self.disclosed(self._explained(exc)) from None
        finally:
            self._running.pop(threading.get_ident())

    def finish(self, work: Callable[[], None]) -> None:
        """Run what ends a request, however many others wait; at once if the server ends. Its failure is reported."""
        try:
            self._pool.submit(work).add_done_callback(_reported)
        except RuntimeError:  # the pool has ended
            work()

    def _explained(self, exc: Exception) -> Exception:
        """Return the damage of the lake that explains what looks like a bug, else the exception."""
        if isinstance(exc, AuditlakeError) or failure(exc) is not None:
            return exc
        from auditlake.verify.damage import damage_behind  # noqa: PLC0415 - only after a failure

        return damage_behind(exc, self.lake) or exc

    def disclosed(self, exc: Exception) -> Exception:
        """Return what the user may know of an error: why a lake cannot be read may name a table, so it is reported."""
        found = failure(exc) or exc
        if self.grant.is_whole or not isinstance(found, LakeUnusable):
            return exc
        say_once(self.lake.root, f"the lake cannot be read: {found.message}")
        return LakeUnusable("the lake cannot be read", "Ask who runs this server.")

    def uncounted(self, waits_for: str, most_s: float) -> AbstractContextManager[None]:
        """Return a block of a request that does not count as its time, at most `most_s`; `waits_for` names it."""
        running = self._running.get(threading.get_ident())
        return nullcontext() if running is None else running.stopped(waits_for, most_s)

    def _done(self, client: _Client, future: "asyncio.Future[T]") -> None:
        self._latest.waiting, client.waiting = self._latest.waiting - 1, client.waiting - 1
        if not future.cancelled():
            future.exception()  # retrieved, so that asyncio does not log it

    def close(self) -> None:
        """End the pool, and interrupt the queries that run in it: the process waits for its threads."""
        self.held.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for request in list(self._running.values()):
            request.cancellation.cancel()


def _reported(ended: "Future[None]") -> None:
    if not ended.cancelled() and (failure := ended.exception()) is not None:
        report(failure)


def as_lsn(text: str) -> Lsn:
    """Parse an LSN of a URL; raises NotAnswerable."""
    try:
        return Lsn.parse(text)
    except ValueError as exc:
        raise NotAnswerable(f"{text!r} is not an LSN", "Write it as PostgreSQL does: 0/16B3748.") from exc
