"""A service manager sees when a stage really works, that it is alive, and that it stops; the units start it."""

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests import command
from tests.capture_lake import make_lake
from tests.running import await_true

pytestmark = pytest.mark.pg

_UNITS = Path(__file__).parents[2] / "conf" / "systemd"


class Manager:
    """A notify socket, and the datagrams that it received."""

    def __init__(self, address: str) -> None:
        self.datagrams: list[list[str]] = []
        self.environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "400000"}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0"))
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        while True:
            self.datagrams.append(self._socket.recv(65536).decode().split("\n"))

    def has(self, line: str, since: int = 0) -> bool:
        """Return whether a line was received, after so many datagrams."""
        return any(line in each for each in self.datagrams[since:])

    def await_line(self, line: str, since: int = 0) -> None:
        """Wait for a line."""
        await_true(lambda: self.has(line, since))


def unit_command(stage: str) -> list[str]:
    """Return the command of a unit, without what is about files of an installed machine."""
    text = (_UNITS / f"auditlake-{stage}.service").read_text()
    line = re.findall(r"^ExecStart=/\S+/auditlake --config \S+ (.*)$", text, re.MULTILINE)
    return re.sub(r" --token-file \S+| --metrics-port \d+", "", line[0]).replace(":8640", ":0").split()


@contextmanager
def started(arguments: Sequence[str | Path], manager: Manager) -> Iterator[command.Process]:
    """Run a stage under a manager."""
    with command.start(arguments, manager.environment) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("stage", "is_path"), [("capture", True), ("follow", False), ("serve", True)])
def test_a_stage_is_ready_alive_and_stopping(database: str, tmp_path: Path, stage: str, *, is_path: bool) -> None:
    """READY once, when the slot has a reader or the page answers; WATCHDOG then and later; STOPPING at SIGTERM; 0.

    The manager's address is a path, or an abstract name.
    """
    manager = Manager(str(tmp_path / "notify") if is_path else f"@auditlake-test-{os.getpid()}-{time.time_ns()}")
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key)")
        lake = make_lake(database, tmp_path / "lake")
        with started([*unit_command(stage), "--source", database, "--lake", lake.root], manager) as process:
            manager.await_line("READY=1")
            if stage != "serve":
                assert conn.execute("select active from pg_replication_slots").fetchone() == (True,)
            for _ in range(3):  # at half of WATCHDOG_USEC: not only with READY
                manager.await_line("WATCHDOG=1", len(manager.datagrams))
            assert not manager.has("STOPPING=1")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        manager.await_line("STOPPING=1")
        assert sum("READY=1" in each for each in manager.datagrams) == 1


def test_a_capture_without_its_source_starts_for_ever(database: str, tmp_path: Path) -> None:
    """It is alive but not ready, and asks for more time: a server that is down is no reason to end it."""
    manager = Manager(str(tmp_path / "notify"))
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key)")
    lake = make_lake(database, tmp_path / "lake")
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    source = f"host=127.0.0.1 port={port} user=nobody dbname=nothing"
    with started(["capture", "--source", source, "--lake", lake.root], manager) as process:
        for _ in range(3):
            manager.await_line("EXTEND_TIMEOUT_USEC=60000000", len(manager.datagrams))
        assert not manager.has("READY=1")
        assert manager.has("STATUS=starting: capture")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_stage_that_stands_still_is_not_alive(database: str, tmp_path: Path) -> None:
    """The thread that notifies runs, the loop of capture does not: there is no WATCHDOG=1, and a status says so."""
    manager = Manager(str(tmp_path / "notify"))
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key)")
    lake = make_lake(database, tmp_path / "lake")
    stuck = (
        "import time; from auditlake.capture.capture import Capture; from auditlake.counters import Beat;"
        "from auditlake.metrics import health; health._DEAD_AFTER_S[Beat.CAPTURE] = 2.0;"
        "Capture._submit = lambda *_: time.sleep(600)"
    )
    arguments: list[str | Path] = ["capture", "--source", database, "--lake", lake.root]
    with command.start(arguments, manager.environment, stuck) as process:
        try:
            manager.await_line("READY=1")
            await_true(lambda: any("capture has not run for" in line for each in manager.datagrams for line in each))
            since = len(manager.datagrams)
            await_true(lambda: len(manager.datagrams) > since + 3)
            assert not manager.has("WATCHDOG=1", since)
        finally:
            process.kill()
