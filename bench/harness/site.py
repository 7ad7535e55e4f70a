"""Harness of the benches: an embedded server, a lake on it, and processes measured from start to end.

CPU-seconds and memory include a process and the children it waited for. They exclude the server and, for commands that
start Spark, the JVM.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import psycopg

from auditlake.demo.server import Server
from tests.capture_lake import make_lake

_POLL_S = 0.01
AUDITLAKE = [sys.executable, "-m", "auditlake"]
_OPTIONS = ("-o", "proto_version=1", "-o", "publication_names=auditlake", "-o", "messages=true")


@dataclass(frozen=True)
class Run:
    """Time and memory of one process."""

    seconds: float
    cpu_s: float
    peak_mb: float

    def line(self, what: str, remark: str = "") -> str:
        """Format one row of a report."""
        return f"{what:<58}{self.seconds:8.2f} s {self.cpu_s:7.1f} CPU-s {self.peak_mb:6.0f} MB  {remark}"


def measure(command: Sequence[str | Path], environment: Mapping[str, str]) -> Run:
    """Run a command to its end."""
    started = time.monotonic()
    with Path(os.devnull).open("wb") as null:
        process = subprocess.Popen([str(part) for part in command], env=dict(environment), stdout=null)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return Run(time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


class Site:
    """A database on the server, and a folder for its lakes."""

    def __init__(self, server: Server, folder: Path, name: str) -> None:
        self.server = server
        self.folder = folder
        self.name = server.create_database(name)
        self.dsn = server.dsn(self.name)
        self.lake = folder / self.name

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of an auditlake command."""
        return {**os.environ, "AUDITLAKE_SOURCE": self.dsn, "AUDITLAKE_SPARK": '{"master": "local[2]"}'}

    def auditlake(self, *arguments: str, lake: Path | None = None) -> Run:
        """Run an auditlake command."""
        command = [*AUDITLAKE, *arguments]
        return measure(command, {**self.environment, "AUDITLAKE_LAKE": str(lake or self.lake)})

    def tool(self, name: str, *arguments: str) -> Run:
        """Run a PostgreSQL tool on this server."""
        where = ["-h", str(self.server.folder), "-p", str(self.server.port), "-U", "postgres"]
        return measure([self.server.bin / name, *where, *arguments], self.environment)

    def load_tpcb(self, scale: int, *, standard: bool = False) -> None:
        """Make the tables of pgbench; pgbench_history gets a primary key, unless it is to be `standard`."""
        self.tool("pgbench", "-i", "-q", "-s", str(scale), self.name)
        change = "replica identity full" if standard else "add hid bigserial primary key"
        self.sql(f"alter table pgbench_history {change}")

    def sql(self, statement: str) -> str:
        """Run a statement and return its first value."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            cursor = conn.execute(statement)
            return str((cursor.fetchone() or ("",))[0]) if cursor.description else ""

    def start_log(self) -> None:
        """Create publication, slot and the lake's log, without a JVM; existing rows of the tables are not copied."""
        make_lake(self.dsn, self.lake, copied=False)

    def receive(self, until: str, dsn: str | None = None) -> Run:
        """Read a copy of the slot up to an LSN with pg_recvlogical, to /dev/null."""
        with self._slot_copy("peer"):
            where = ["-d", dsn or self.dsn, "-S", "peer"]
            return self.tool("pg_recvlogical", *where, *_OPTIONS, "--start", "-f", "-", f"--endpos={until}")

    def capture(self, *arguments: str, dsn: str | None = None) -> Run:
        """Capture from a copy of the slot into a copy of the lake, so that it can be repeated."""
        with self.copied(dsn) as environment:
            return measure([*AUDITLAKE, "capture", "--until-current", *arguments], environment)

    @contextmanager
    def copied(self, dsn: str | None = None) -> Iterator[Mapping[str, str]]:
        """Copy the slot and the lake as `captured`; yield the environment of commands on them."""
        lake = self.folder / "captured"
        shutil.rmtree(lake, ignore_errors=True)
        shutil.copytree(self.lake, lake, ignore=shutil.ignore_patterns("history"))
        manifest = json.loads((lake / "lake.json").read_text())
        (lake / "lake.json").write_text(json.dumps({**manifest, "slot": "captured"}))
        with self._slot_copy("captured"):
            yield {**self.environment, "AUDITLAKE_LAKE": str(lake), "AUDITLAKE_SOURCE": dsn or self.dsn}

    @contextmanager
    def capturing(self, *arguments: str, command: str = "capture") -> Iterator[int]:
        """Run a capture, or `follow`, for the block, which starts once it reads the slot; yield its process id."""
        line = [*AUDITLAKE, command, *arguments]
        process = subprocess.Popen(line, env={**self.environment, "AUDITLAKE_LAKE": str(self.lake)})
        try:
            while self.sql("select active from pg_replication_slots where slot_name = 'auditlake'") != "True":
                time.sleep(_POLL_S)
            yield process.pid
        finally:
            process.terminate()
            process.wait()

    @contextmanager
    def _slot_copy(self, name: str) -> Iterator[None]:
        self.sql(f"select pg_copy_logical_replication_slot('auditlake', '{name}')")
        yield
        self.sql(f"select pg_drop_replication_slot('{name}')")


@contextmanager
def bench_server() -> Iterator[tuple[Server, Path]]:
    """Start a server and create a folder; remove both afterwards."""
    folder = Path(mkdtemp(prefix="auditlake-bench-"))
    try:
        with Server() as server:
            print(f"PostgreSQL {server.version}, {os.cpu_count()} cores")
            yield server, folder
    finally:
        shutil.rmtree(folder)
