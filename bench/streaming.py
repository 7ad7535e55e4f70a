"""Delay of one large transaction from its commit to durable in `changes`, with streaming off and on.

    python bench/streaming.py [--rows 1000000] [--runs 2]

Capture runs during the INSERT, as in production. The delay ends when the slot's position includes the transaction. For
comparison: `pg_recvlogical` to /dev/null, started after the commit, which is the time that the server alone needs to
decode and send it.
"""

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg
from harness.site import Site, bench_server

_POLL_S = 0.01
_CONFIRMED = "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots where slot_name = 'auditlake'"


@dataclass(frozen=True)
class Delay:
    """Times of one transaction, and memory of the capture."""

    insert_s: float
    commit_s: float
    durable_s: float
    peak_mb: float

    def line(self, mode: str) -> str:
        """Format one row of the report."""
        return (
            f"streaming {mode:<10} insert {self.insert_s:6.2f} s, commit {self.commit_s:5.2f} s,"
            f" commit to durable {self.durable_s:6.2f} s, peak {self.peak_mb:4.0f} MB"
        )


def _await(conn: psycopg.Connection[tuple[object, ...]], query: str, *values: object) -> None:
    while (conn.execute(query, values, prepare=True).fetchone() or (False,))[0] is not True:
        time.sleep(_POLL_S)


def _peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def measure(site: Site, mode: str, rows: int) -> Delay:
    """Insert and commit while a capture runs."""
    with site.capturing("--streaming", mode) as pid, psycopg.connect(site.dsn, autocommit=True) as conn:
        started = time.monotonic()
        conn.execute("begin")
        conn.execute(f"insert into t select n, 'some text of a row ' || n from generate_series(1, {rows}) n")
        inserted = time.monotonic()
        conn.execute("commit")
        committed = time.monotonic()
        row = conn.execute("select pg_current_wal_insert_lsn()").fetchone()
        conn.execute("select pg_logical_emit_message(true, 'after', '')")  # so that the slot advances past the commit
        _await(conn, _CONFIRMED, row[0] if row else None)
        durable = time.monotonic()
        return Delay(inserted - started, committed - inserted, durable - inserted, _peak_mb(pid))


def main() -> None:
    """Measure both modes in turn, and pg_recvlogical."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=2)
    arguments = parser.parse_args()
    with bench_server() as (server, folder):
        for number in range(arguments.runs):
            for mode in ("off", "on"):
                site = Site(server, folder, f"streaming_{mode}_{number}")
                site.sql("create table t (id int primary key, v text)")
                site.start_log()
                site.sql("select pg_copy_logical_replication_slot('auditlake', 'before')")
                print(measure(site, mode, arguments.rows).line(mode), flush=True)
                if mode == "off":
                    site.sql("select pg_drop_replication_slot('auditlake')")
                    site.sql("select pg_copy_logical_replication_slot('before', 'auditlake')")
                    received = site.receive(site.sql("select pg_current_wal_insert_lsn()"))
                    print(received.line("pg_recvlogical to /dev/null"), flush=True)
                for slot in ("before", "auditlake"):
                    site.sql(f"select pg_drop_replication_slot('{slot}')")


if __name__ == "__main__":
    os.environ.pop("AUDITLAKE_STREAMING", None)
    main()
