"""The TPC-B-like load of pgbench: bootstrap, capture beside pg_recvlogical, follow; seconds, CPU-seconds, memory.

    python bench/tpcb.py [--scale 20] [--transactions 100000]

Everything runs on an embedded server in a temporary folder, each step as a process of its own, start-up included. The
peer of capture is `pg_recvlogical` to /dev/null, from a copy of the same slot in the same run: compare the ratio, not
the seconds. pgbench_history gets a primary key, because it has none of its own. CPU-seconds
and memory are the Python process's own: the JVM of the steps with Spark is not in them.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from auditlake.demo.server import Server

_CLIENTS = 4


@dataclass(frozen=True)
class Run:
    """What one process and its children took."""

    seconds: float
    cpu_s: float
    peak_mb: float

    def line(self, what: str, rate: str = "") -> str:
        """One row of the report."""
        return f"{what:<58}{self.seconds:8.1f} s {self.cpu_s:8.1f} CPU-s {self.peak_mb:8.0f} MB  {rate}"


def measure(command: Sequence[str | Path], environment: Mapping[str, str]) -> Run:
    """Run a command to its end; its children's memory is counted each for itself."""
    started = time.monotonic()
    with Path(os.devnull).open("wb") as null:
        process = subprocess.Popen([str(part) for part in command], env=dict(environment), stdout=null)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return Run(time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


class Bench:
    """One server, one lake, one report."""

    def __init__(self, server: Server, folder: Path, scale: int) -> None:
        self.server = server
        self.scale = scale
        self.name = server.create_database("tpcb")
        self.dsn = server.dsn(self.name)
        self.environment = {
            **os.environ,
            "AUDITLAKE_SOURCE": self.dsn,
            "AUDITLAKE_LAKE": str(folder / "lake"),
            "AUDITLAKE_SPARK": '{"master": "local[2]"}',
        }

    def auditlake(self, *arguments: str) -> Run:
        """Run a command of ours."""
        return measure([sys.executable, "-m", "auditlake", *arguments], self.environment)

    def tool(self, name: str, *arguments: str) -> Run:
        """Run a PostgreSQL tool on the bench's database."""
        where = ["-h", str(self.server.folder), "-p", str(self.server.port), "-U", "postgres"]
        return measure([self.server.bin / name, *where, *arguments], self.environment)

    def sql(self, statement: str) -> str:
        """Run a statement and return its first value."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            cursor = conn.execute(statement)
            return str(cursor.fetchone()) if cursor.description else ""

    def run(self, transactions: int) -> None:
        """Measure all steps."""
        self.tool("pgbench", "-i", "-q", "-s", str(self.scale), self.name)
        self.sql("alter table pgbench_history add hid bigserial primary key")
        rows = 100_011 * self.scale
        copied = self.auditlake("bootstrap")
        print(copied.line(f"bootstrap, pgbench scale {self.scale}", f"{rows / copied.seconds:,.0f} rows/s"))
        self.tool("pgbench", "-n", "-c", str(_CLIENTS), "-t", str(transactions // _CLIENTS), self.name)
        self._capture(transactions)
        followed = self.auditlake("follow", "--until-current")
        print(followed.line("follow: fresh JVM, all of them into history"))
        asked = self.auditlake("sql", "select count(*), sum(abalance) from public.pgbench_accounts")
        print(asked.line("sql: fresh JVM, count and sum of accounts"))

    def _capture(self, transactions: int) -> None:
        self.sql("select pg_copy_logical_replication_slot('auditlake', 'peer')")
        end = self.sql("select pg_current_wal_insert_lsn()").strip("(,)'")
        options = ["-o", "proto_version=1", "-o", "publication_names=auditlake", "-o", "messages=true"]
        received = self.tool(
            "pg_recvlogical", "-d", self.name, "-S", "peer", *options, "--start", "-f", "-", f"--endpos={end}"
        )
        print(received.line(f"pg_recvlogical to /dev/null, {transactions:,} transactions"))
        captured = self.auditlake("capture", "--until-current")
        print(captured.line("capture: durable and acknowledged", f"{captured.seconds / received.seconds:.2f} x"))
        self.sql("select pg_drop_replication_slot('peer')")


def main() -> None:
    """Parse, set up, measure, clean up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--transactions", type=int, default=100_000)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="auditlake-bench-"))
    try:
        with Server() as server:
            print(f"PostgreSQL {server.version}, {os.cpu_count()} cores, {resource.getpagesize()} byte pages")
            Bench(server, folder, arguments.scale).run(arguments.transactions)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
