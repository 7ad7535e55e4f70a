"""Testbed of a campaign: server behind a proxy, lake on a disk of its own or in a bucket behind a store that fails.

It records the faults injected and the promises broken. The campaign itself reads a bucket without faults.
"""

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Self, TextIO

import psycopg

from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from auditlake.store import objects
from auditlake.store.place import Remote
from tests import command
from tests.crash.killed import SPARK
from tests.faulty_store import REFUSED, FaultyStore
from tests.proxy import Proxy
from tests.server import Server

_DISK_MB = 3072
_POLL_S = 0.02
_OUTPUT_CHARS = 8000
_ERASING = "(auditlake forget, since"
_LAKE, _OF_ALL = 6, ("No space left on device", "the store answered 40", _ERASING, *REFUSED)
_LOG_ENTRY, _DATA_FILE = re.compile(r"/_delta_log/\d{20}\.json$"), re.compile(r"/_part=[^/]*/[^/]*\.parquet$")


def commit_id_of(entry: Path) -> str | None:
    """Read the id of the commit that wrote an entry; None if there is no entry, or its writer set no id."""
    try:
        lines = entry.read_bytes().splitlines()
    except FileNotFoundError:
        return None
    infos = [json.loads(line)["commitInfo"] for line in lines if line.startswith(b'{"commitInfo"')]
    return infos[0].get("txnId") if infos else None


@dataclass
class Testbed:
    """Server, lake and record of one campaign: `counts` of the faults survived, `failures` of promises broken."""

    __test__ = False  # not a test class, in spite of its name

    server: Server
    proxy: Proxy
    database: str
    lake: Lake
    seed: str
    stop: threading.Event = field(default_factory=threading.Event)
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slot: threading.Lock = field(default_factory=threading.Lock)
    """Held while a process reads the slot."""
    retyped: threading.Event = field(default_factory=threading.Event)
    """Set once a column's type was changed so that its table must be parked."""
    disk: "Disk | None" = None
    store: FaultyStore | None = None
    """Between the processes and the object store, if the lake is in one."""

    @property
    def dsn(self) -> str:
        """Return the conninfo of the server itself, which network faults do not reach."""
        return self.server.dsn(self.database)

    def arguments(self, *line: str) -> list[str | Path]:
        """Return a command line for this lake, through the proxy."""
        return [*line, "--source", self.proxy.dsn, "--lake", self.lake.root]

    def apply_arguments(self) -> list[str | Path]:
        return ["apply", "--lake", self.lake.root]

    def start(
        self,
        line: Sequence[str | Path],
        place: After | None = None,
        *,
        times: int = 1,
        code: str = "",
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> "Process":
        """Start a command, which a failpoint may kill, after some Python."""
        environment = {"AWS_ENDPOINT_URL": self.store.endpoint} if self.store else {}
        if place:
            environment["AUDITLAKE_FAILPOINT"] = f"{place}:{times}"
        return Process(line, {**environment, **settings}, code)

    def holds_lock(self, process: "Process", stage: str) -> bool:
        """Return whether a process holds the lock of a stage."""
        with suppress(FileNotFoundError):
            return f'"pid": {process.process.pid},' in (self.lake.root / "locks" / f"{stage}.lock").read_text()
        return False

    def data_files(self) -> set[str]:
        """Return the names of the data files of all histories."""
        histories = self.lake.histories
        if isinstance(histories, Remote):
            return {
                name for name in objects.list_keys(histories.bucket, f"{histories.key}/") if _DATA_FILE.search(name)
            }
        return {str(file) for file in histories.glob("*/*/_part=*/*.parquet")}

    def log_entries(self, known: Container[str] = frozenset()) -> dict[str, str]:
        """Return for each log entry of the lake that is not `known`, by name, what differs if it is replaced."""
        root = self.lake.root
        if isinstance(root, Remote):
            found = objects.etags(root.bucket, f"{root.key}/")
            return {name: str(etag) for name, etag in found if _LOG_ENTRY.search(name) and name not in known}
        entries = (entry for entry in root.glob("**/_delta_log/*.json") if str(entry) not in known)
        return {str(entry): commit_id for entry in entries if (commit_id := commit_id_of(entry)) is not None}

    def count(self, what: str) -> None:
        """Count a fault that was survived, or at least injected."""
        self.counts[what] += 1

    def fail(self, what: str) -> None:
        """Record and print a broken promise."""
        self.failures.append(what)
        print(f"BROKEN {what}", flush=True)  # noqa: T201 - a campaign reports as it goes


class Process:
    """A running command, with its output kept in memory."""

    def __init__(self, line: Sequence[str | Path], settings: Mapping[str, str], code: str) -> None:
        self.process = command.start(line, {**SPARK, **settings}, code or None)
        self.command = str(line[0])
        self._lines: list[str] = []
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: TextIO) -> None:
        self._lines.extend(stream)

    @property
    def output(self) -> str:
        """Return the end of what the command has printed."""
        return "".join(self._lines)[-_OUTPUT_CHARS:]

    def wait(self, timeout_s: float, stop: threading.Event | None = None) -> int | None:
        """Wait for the exit code; None if the process has not ended in time, or `stop` was set."""
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None and time.monotonic() < deadline and not (stop and stop.is_set()):
            time.sleep(_POLL_S)
        return self.process.poll()

    def kill(self) -> None:
        """Kill the process and all that it has started, without a chance to clean up."""
        signal_group(self.process, signal.SIGKILL)
        self.process.wait()

    def terminate(self) -> None:
        self.process.terminate()

    def send(self, what: signal.Signals, *, group: bool) -> None:
        """Send a signal to the process, or to it and all that it has started, if it has not ended."""
        if self.process.poll() is None:
            if group:
                signal_group(self.process, what)
            else:
                self.process.send_signal(what)


def signal_group(process: "subprocess.Popen[str]", what: signal.Signals) -> None:
    """Send a signal to a process and all that it has started."""
    try:
        os.killpg(process.pid, what)
    except ProcessLookupError:
        return


def expect(bed: Testbed, process: Process, code: int | None, allowed: Sequence[int]) -> None:
    """Record a failure unless the exit code is allowed; None is a process that has not ended.

    Disk and store are every process's, so each may meet the full or the refusing one, or the lock of an erasure, and
    exit 6.
    """
    met = [words for words in _OF_ALL if code == _LAKE and words in process.output]
    if met:
        bed.count(f"{process.command} met: {met[0]}")
    elif code is not None and code not in allowed:
        bed.fail(f"{process.process.args!r} ended with {code}: {process.output}")


def await_true(condition: Callable[[], bool], timeout_s: float, stop: threading.Event) -> bool:
    """Wait until a condition holds; return False if it did not."""
    deadline = time.monotonic() + timeout_s
    while not stop.is_set() and time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(_POLL_S * 5)
    return False


def await_watermark(bed: Testbed, process: Process, timeout_s: float = 90) -> bool:
    """Wait until capture has reached the present end of WAL."""
    with psycopg.connect(bed.dsn) as conn:
        row = conn.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    end = int(row[0]) if row else 0

    def reached() -> bool:
        positions = read_positions(bed.lake)
        return process.process.poll() is not None or (positions is not None and positions.acknowledged >= end)

    return await_true(reached, timeout_s, bed.stop)


class Disk:
    """File system of its own that can be filled up at once; needs the right to mount."""

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
        while not self._shrunk():  # a process wrote in between
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
