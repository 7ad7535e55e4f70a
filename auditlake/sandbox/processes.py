"""Processes of statements: a few warm ones, each of which answers one statement of a stranger at a time.

    thread of a question ──pickled Statement──► process: parse, translate, run in DuckDB (`sandbox.statements`)
                         ◄──JSON: Prepared──────
                         ───"run", or nothing──►            the answer may be kept already
                         ◄──JSON: the answer, or its error──

Nothing interrupts every statement within a thread, and DuckDB's limit does not count all of its memory. So a process is
ended, by SIGKILL, when the work of the thread is cancelled (`cancellation`), when it holds more than `MOST_BYTES`, or
all of them more than `MOST_OF_ALL_BYTES`, and with the server, however that ends: its socket closes, and on Linux the
kernel ends it. Where the kernel does not, a statement ends by its alarm.

1. At most `processes` run, and one client has `share_of` them; other statements wait. One is started when it is needed,
   and ends after `IDLE_S` without a statement. One that was ended is replaced at once.
2. What a process says is data, read as JSON: it ran the text of a stranger.
3. A process reads one lake. When another takes its place, the processes of the former end.
4. Its environment has what it needs to read the lake, and nothing else of the server's.
"""

import ctypes
import json
import os
import pickle
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, NoReturn

from auditlake import counters, errors
from auditlake.cancellation import Cancelled, require_uncancelled
from auditlake.errors import AuditlakeError, InvariantBroken
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.messages import Event, Notice, note, say
from auditlake.query.embedded.cells import NotEmbedded
from auditlake.query.languages import Dialect
from auditlake.relation import TableName
from auditlake.sandbox.failures import Busy
from auditlake.store.place import by_requests
from auditlake.store.process_folder import remove_left
from auditlake.temporal.grants import WHOLE, Grant, Hidden

MOST_BYTES = 1 << 30
"""What one process may hold."""
MOST_OF_ALL_BYTES = 2 << 30
"""What all processes of a server may hold; if they hold more, the largest is ended."""
DATABASE_BYTES = 512 << 20
"""What DuckDB may hold of that; it counts neither the arguments of functions nor the rows that it hands out."""
IDLE_S = 300.0
PROCESSES = 5
_KEPT_BYTES = MOST_BYTES // 4
"""A process that holds more after its answer is ended: memory that was freed is not always given back."""
START_S = 60.0
"""A process that is not ready then is not waited for again."""
_MOST_ANSWER_BYTES = 128 << 20
_LOOK_S = 0.02
_END_S = 1.0
HEAD = struct.Struct(">Q")
_CHUNK = 1 << 20
_MB = 1 << 20
_NEEDED = re.compile(
    r"PATH|HOME|TMPDIR|TZ|LANG|LC_\w+|PYTHON\w*|(DY)?LD_LIBRARY_PATH|SSL_CERT_\w+|COVERAGE_\w+|OPENBLAS_NUM_THREADS"
)
_OF_STORES = re.compile(r"(AWS|AZURE|GOOGLE)_\w+|(http|https|all|no)_proxy|\w+_CA_BUNDLE", re.IGNORECASE)
# `lean` must run before slow imports, and with `python -m` there would be two classes `Statement`.
_CHILD = "from auditlake.startup import lean; lean(); from auditlake.sandbox.statements import main; main()"


ERRORS: Mapping[str, type[AuditlakeError]] = {
    kind.__name__: kind
    for kind in (
        *(each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, AuditlakeError)),
        *(Busy, Cancelled, Hidden),
    )
}
"""Those that a process may report."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a process reads: a lake, with Spark's settings, and `masks`, patterns of columns that it does not show."""

    lake: Lake
    spark: Mapping[str, str] = field(default_factory=dict)
    masks: tuple[str, ...] = ()
    json_messages: bool = False
    idle_s: float = IDLE_S


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as of a moment, in times of `zone`.

    Its answer has at most so many rows and characters. With `as_texts`, values are in PostgreSQL's text, else in CSV's.
    The reader sees what `grant` shows: `seen` are those tables, unless it shows all.
    """

    sql: str
    at: str | None
    zone: tzinfo
    dialect: Dialect
    rows: int
    characters: int
    most_s: float
    """Where the kernel does not end a process with its parent, an alarm does after that time."""
    as_texts: bool = False
    grant: Grant = WHOLE
    seen: frozenset[TableName] = frozenset()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that an engine can run: its LSN, the tables that it reads, and what its answer depends on.

    `key` is None if an answer must not be kept.
    """

    lsn: Lsn
    tables: tuple[str, ...]
    key: str | None


@dataclass(frozen=True, slots=True)
class Answered:
    """Columns, each with its type and whether that is one of numbers; the first rows, and whether there are others."""

    columns: list[tuple[str, str, bool]]
    rows: list[list[str | None]]
    more: bool


Find = Callable[[Prepared], Answered | None]


def share_of(whole: int) -> int:
    """Return how many of some places one client may have: two leave one."""
    return max(1, (whole - 1) // 2)


class Processes:
    """The processes of a server's statements; `setup` is that of a lake, and one client has at most `share`."""

    def __init__(
        self,
        setup: Callable[[Lake], Setup],
        processes: int = PROCESSES,
        share: int | None = None,
    ) -> None:
        self._setup = setup
        self._most = processes
        self._share = share_of(processes) if share is None else share
        self._changed = threading.Condition()
        self._used = Counter[Hashable]()
        self._free: list[_Process] = []
        """Those without a statement, the one used last at the end."""
        self._every = set[_Process]()
        self._is_closed = False
        weakref.finalize(self, _end, self._every)

    def prepare(self, lake: Lake) -> None:
        """Start a process, if none runs, before a statement needs one."""
        with self._changed:
            self._end_useless(lake)
            if not self._every and not self._is_closed:
                self._free.append(self._started(lake))

    def answer(
        self,
        client: Hashable,
        lake: Lake,
        statement: Statement,
        find: Find,
        starting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> tuple[Prepared, Answered]:
        """Run a statement; `find` returns an answer that was kept. It waits in `starting` until a process has started.

        Raises NotEmbedded if only Spark can, Busy, Cancelled, or the error of the statement.
        """
        with self._place(client):
            while True:
                process = self._taken(lake)
                try:
                    process.await_ready(starting)
                    return process.answer(statement, find)
                except _EndedIdle:
                    continue
                finally:
                    self._give_back(process, lake)

    @contextmanager
    def _place(self, client: Hashable) -> Iterator[None]:
        """Wait for a place among those of all, and of this client."""
        with self._changed:
            while self._used[client] >= self._share or self._used.total() >= self._most:
                require_uncancelled()
                self._changed.wait(_LOOK_S)
            self._used[client] += 1
        try:
            yield
        finally:
            with self._changed:
                self._used[client] -= 1
                self._used = +self._used  # without those that are 0
                self._changed.notify_all()

    def _taken(self, lake: Lake) -> "_Process":
        with self._changed:
            if self._is_closed:
                raise Cancelled("the server ends", "Ask again when it runs.")
            self._end_useless(lake)
            return self._free.pop() if self._free else self._started(lake)

    def _end_useless(self, lake: Lake) -> None:
        """Forget the processes that have ended, and those of a lake that another one has replaced."""
        for each in self._free[:]:
            if each.has_ended or each.lake.session.identity is not lake.session.identity:
                each.end()
                self._free.remove(each)
                self._every.discard(each)

    def _started(self, lake: Lake) -> "_Process":
        process = _Process(self._setup(lake), self._every)
        self._every.add(process)
        return process

    def _give_back(self, process: "_Process", lake: Lake) -> None:
        """Keep a process for the next statement; one that has ended, or holds much, is replaced."""
        if not (keeps := process.may_be_kept):
            process.end()
        with self._changed:
            if not keeps:
                self._every.discard(process)
            if self._is_closed or (self._free and not keeps):
                process.end()
            else:
                self._free.append(process if keeps else self._started(lake))

    def close(self) -> None:
        """End all processes; their statements are refused."""
        with self._changed:
            self._is_closed = True
            _end(self._free)
            for each in self._every:
                each.kill()


def _end(processes: "Collection[_Process]") -> None:
    for each in processes:
        each.end()


class _EndedIdle(Exception):
    """A process has ended because nothing was asked for long, before it got a statement."""


class _Process:
    """A process, which reads one lake; one thread at a time uses it."""

    def __init__(self, setup: Setup, every: "Collection[_Process]") -> None:
        self.lake = setup.lake
        self._every = every
        self._socket, of_child = socket.socketpair()
        with of_child:
            self._child = subprocess.Popen(
                [sys.executable, "-c", _CHILD],
                stdin=of_child.fileno(),
                stdout=subprocess.DEVNULL,
                env=_environment(setup.lake),
                process_group=0,  # Ctrl-C in a terminal is for the server, which decides
            )
        self._socket.setblocking(False)
        self._received = bytearray()
        self._to_send = _framed(pickle.dumps(setup))
        self._is_ready = self._is_asked = False
        self._started_at = time.monotonic()

    @property
    def has_ended(self) -> bool:
        return self._child.poll() is not None

    @property
    def may_be_kept(self) -> bool:
        """Whether it waits for a statement, or starts, and does not hold much memory."""
        is_well = self._is_ready or time.monotonic() - self._started_at < START_S
        return is_well and not self._is_asked and not self.has_ended and self.held_bytes < _KEPT_BYTES

    @property
    def held_bytes(self) -> int:
        return process_bytes(self._child.pid)

    def await_ready(self, starting: Callable[[], AbstractContextManager[None]]) -> None:
        """Wait until it has started."""
        if not self._is_ready:
            with starting():
                self._is_ready = bool(self._next())

    def answer(self, statement: Statement, find: Find) -> tuple[Prepared, Answered]:
        """Have it answer; raises as `Processes.answer`. If that is neither an answer nor an error, it must be ended."""
        self._is_asked = True
        said, prepared = self._ask(pickle.dumps(statement)), None
        if "lsn" in said:
            prepared = Prepared(Lsn(said["lsn"]), tuple(map(str, said["tables"])), said["key"])
            if (kept := find(prepared)) is not None:
                self._to_send += _framed(b"")
                self._send()
                self._is_asked = False
                return prepared, kept
            said = self._ask(b"run")
        self._is_asked = False
        for text in said.get("notes", ()):
            note(str(text))
        if prepared is None or "rows" not in said:
            raise _error(said)
        columns = [(str(name), str(kind), bool(numeric)) for name, kind, numeric in said["columns"]]
        return prepared, Answered(columns, said["rows"], bool(said["more"]))

    def _ask(self, message: bytes) -> dict[str, Any]:
        self._to_send += _framed(message)
        return self._next()

    def _next(self) -> dict[str, Any]:
        """Send what is to be sent, and return the next message; raises Cancelled, Busy, _EndedIdle."""
        polled, looked = select.poll(), time.monotonic()
        try:
            while (message := self._message()) is None:
                polled.register(self._socket, select.POLLIN | (select.POLLOUT if self._to_send else 0))
                if not polled.poll(_LOOK_S * 1000) or time.monotonic() - looked > _LOOK_S:
                    self._look()
                    looked = time.monotonic()
                self._send()
                self._receive()
        except ConnectionError:
            self._raise_end()
        return message

    def _send(self) -> None:
        with suppress(BlockingIOError):
            if self._to_send:
                del self._to_send[: self._socket.send(self._to_send)]

    def _receive(self) -> None:
        with suppress(BlockingIOError):
            if not (chunk := self._socket.recv(_CHUNK)):
                raise ConnectionResetError
            self._received += chunk

    def _message(self) -> dict[str, Any] | None:
        if len(self._received) < HEAD.size:
            return None
        (size,) = HEAD.unpack_from(self._received)
        if size > _MOST_ANSWER_BYTES:
            raise Busy("the answer is too long", "Ask for less.")
        if len(self._received) < HEAD.size + size:
            return None
        message = json.loads(self._received[HEAD.size : HEAD.size + size])
        self._received.clear()
        return dict(message)

    def _look(self) -> None:
        """Look whether the statement may go on; raises Cancelled, Busy."""
        require_uncancelled()
        held = self.held_bytes
        if held > MOST_BYTES:
            counters.count(counters.Counter.REFUSED_QUESTIONS)
            raise Busy(f"the statement took more than {MOST_BYTES // _MB:,} MB of memory", "Ask for less.")
        of_all = [each.held_bytes for each in list(self._every)]
        if sum(of_all) > MOST_OF_ALL_BYTES and held >= max(of_all):
            counters.count(counters.Counter.REFUSED_QUESTIONS)
            raise Busy(
                f"all statements took more than {MOST_OF_ALL_BYTES // _MB:,} MB of memory, this one the most",
                "Ask for less, or again: others have the rest.",
            )

    def _raise_end(self) -> NoReturn:
        """Raise why the process has ended, which nobody here has asked for: Cancelled, Busy, _EndedIdle."""
        require_uncancelled()
        with suppress(subprocess.TimeoutExpired):  # if it has closed its connection alone
            if self._child.wait(_END_S) == 0:
                raise _EndedIdle
        code = self._child.returncode or 0
        how = signal.Signals(-code).name if code < 0 else f"code {code}"
        raise Busy(f"the process of the statement ended with {how}", "Ask again; if that repeats, ask for less.")

    def kill(self) -> None:
        """End it, from any thread."""
        with suppress(OSError):
            self._child.kill()

    def end(self) -> None:
        """End it, wait for that, and remove the rows that it has spilled."""
        self.kill()
        self._child.wait()
        self._socket.close()
        remove_left()


def _framed(message: bytes) -> bytearray:
    return bytearray(HEAD.pack(len(message)) + message)


def _environment(lake: Lake) -> dict[str, str]:
    """Return what a process needs of this one's environment: to find its libraries, and the store of the lake."""
    of_store = by_requests(lake.root)
    return {
        name: value
        for name, value in os.environ.items()
        if _NEEDED.fullmatch(name) or (of_store and _OF_STORES.fullmatch(name))
    }


def _error(said: Mapping[str, Any]) -> Exception:
    """Return the error that a process reports."""
    if "spark" in said:
        return NotEmbedded(str(said["spark"]))
    if "bug" in said:
        place = [f"  {line}" for line in str(said["place"]).split("\n")]
        say(Notice(Event.MESSAGE, f"error: unexpected {said['bug']} in the process of a statement at", place))
        return InvariantBroken(f"a bug in auditlake: {said['bug']}")
    kind, hint = ERRORS.get(said["error"], Busy), said["hint"]
    return kind(str(said["message"]), None if hint is None else str(hint))


def process_bytes(pid: int) -> int:
    """Return the memory of a process beside files, such as libraries; 0 if it has ended."""
    if sys.platform == "darwin":  # libproc.h: proc_pidinfo with PROC_PIDTASKINFO, whose second member is in memory
        task = ctypes.create_string_buffer(96)
        ctypes.CDLL(None).proc_pidinfo(pid, 4, ctypes.c_uint64(0), task, len(task))
        return int(struct.unpack_from("QQ", task)[1])
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 - it is read often
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * _PAGE


_PAGE = os.sysconf("SC_PAGE_SIZE")
