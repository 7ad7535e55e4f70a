"""The place of a campaign: a server behind a proxy, a lake on a small disk of its own, and what has happened so far."""

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TextIO

import psycopg

from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from tests import command
from tests.crash.killed import SPARK
from tests.proxy import Proxy
from tests.server import Server

_DISK_MB = 3072
_POLL_S = 0.02


@dataclass
class Site:
    """Where all happens; `seen` counts what happened, `broken` says what should not have."""

    server: Server
    proxy: Proxy
    database: str
    lake: Lake
    seed: str
    stop: threading.Event = field(default_factory=threading.Event)
    seen: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    slot: threading.Lock = field(default_factory=threading.Lock)
    """Held by whoever runs what reads the slot."""
    disk: "Disk | None" = None

    @property
    def dsn(self) -> str:
        """The server itself, which no fault of the network reaches."""
        return self.server.dsn(self.database)

    def arguments(self, *line: str) -> list[str | Path]:
        """A command line on this lake, through the proxy."""
        return [*line, "--source", self.proxy.dsn, "--lake", self.lake.root]

    def apply_arguments(self) -> list[str | Path]:
        return ["apply", "--lake", self.lake.root]

    def count(self, what: str) -> None:
        """Note that something was survived, or at least done."""
        self.seen[what] += 1

    def fail(self, what: str) -> None:
        """Note what must not happen."""
        self.broken.append(what)
        print(f"BROKEN {what}", flush=True)  # noqa: T201 - a campaign reports as it goes


class Process:
    """A command that runs, with what it said kept in memory."""

    def __init__(
        self, line: Sequence[str | Path], place: After | None = None, *, times: int = 1, code: str = ""
    ) -> None:
        environment = {**SPARK, **({"AUDITLAKE_FAILPOINT": f"{place}:{times}"} if place else {})}
        self.process = command.start(line, environment, code or None)
        self._said: list[str] = []
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: TextIO) -> None:
        self._said.extend(stream)

    @property
    def said(self) -> str:
        return "".join(self._said)[-3000:]

    def ended(self, timeout_s: float, stop: threading.Event | None = None) -> int | None:
        """Wait for the end; None if it has not come in time, or `stop` was set."""
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None and time.monotonic() < deadline and not (stop and stop.is_set()):
            time.sleep(_POLL_S)
        return self.process.poll()

    def kill(self) -> None:
        """End it with all that it has started, without a chance to clean up."""
        signal_group(self.process, signal.SIGKILL)
        self.process.wait()

    def terminate(self) -> None:
        self.process.terminate()


def signal_group(process: "subprocess.Popen[str]", what: signal.Signals) -> None:
    """Send a signal to a process and all that it has started."""
    try:
        os.killpg(process.pid, what)
    except ProcessLookupError:
        return


def expect(site: Site, process: Process, code: int | None, allowed: Sequence[int]) -> None:
    """See that a command ended as it may; None is one that did not end."""
    if code is not None and code not in allowed:
        site.fail(f"{process.process.args!r} ended with {code}: {process.said}")


def await_true(condition: Callable[[], bool], timeout_s: float, stop: threading.Event) -> bool:
    """Wait until a condition holds; False if it did not."""
    deadline = time.monotonic() + timeout_s
    while not stop.is_set() and time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(_POLL_S * 5)
    return False


def await_watermark(site: Site, process: Process, timeout_s: float = 90) -> bool:
    """Wait until capture has come to where the log ends now."""
    with psycopg.connect(site.dsn) as conn:
        row = conn.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    end = int(row[0]) if row else 0

    def reached() -> bool:
        positions = read_positions(site.lake)
        return process.process.poll() is not None or (positions is not None and positions.acknowledged >= end)

    return await_true(reached, timeout_s, site.stop)


class Disk:
    """A file system of its own that can be filled up at once; needs the right to mount."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        _mount("-t", "tmpfs", "-o", f"size={_DISK_MB}m", "tmpfs", str(self.folder))
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["/usr/bin/umount", "-l", str(self.folder)], check=True)

    @contextmanager
    def full(self) -> Iterator[None]:
        """Leave no room, or so little that a write begins and does not end."""
        while not self._shrunk():  # somebody wrote meanwhile
            pass
        try:
            yield
        finally:
            _mount("-o", f"remount,size={_DISK_MB}m", str(self.folder))

    def _shrunk(self) -> bool:
        stat = os.statvfs(self.folder)
        used_kb = (stat.f_blocks - stat.f_bfree) * stat.f_bsize // 1024
        return _mounted("-o", f"remount,size={used_kb + 24}k", str(self.folder))


def _mount(*arguments: str) -> None:
    if not _mounted(*arguments):
        raise OSError(f"mount {' '.join(arguments)} failed")


def _mounted(*arguments: str) -> bool:
    return subprocess.run(["/usr/bin/mount", *arguments], check=False, capture_output=True).returncode == 0
