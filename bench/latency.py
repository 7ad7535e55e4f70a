"""Delay from commit to durable: time until the slot's position includes a commit, at a steady rate of transactions.

    python bench/latency.py [--rate 500] [--seconds 60] [--sealing 3]

The slot's confirmed_flush_lsn advances only after the commit of `changes`, so the result is an upper bound of the time
to durability. At the end: the number of files that the small commits have left, and the time of a query that reads them
all. `--sealing` repeats it so often in turn without and with sealing beside capture, each with a lake of its own.
"""

import argparse
import threading
import time
from pathlib import Path

import numpy as np
import psycopg
from deltalake import DeltaTable, QueryBuilder
from harness.site import Site, bench_server
from harness.usage import cpu_s

from auditlake.demo.server import Server

_POLL_S = 0.005


def _write(site: Site, rate: int, seconds: float) -> tuple[list[float], list[int]]:
    """Commit `rate` transactions per second; return the time at which each returned and the end of the log then.

    Commits are synchronous: the walsender sends a commit once it is flushed, and PostgreSQL flushes asynchronous
    commits only a few times per second.
    """
    done, ends = [], []
    with psycopg.connect(site.dsn, autocommit=True) as conn:
        start = time.monotonic()
        for number in range(int(rate * seconds)):
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
            conn.execute("insert into t values (%s, 'some text')", [number], prepare=True)
            done.append(time.monotonic())
            row = conn.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn", prepare=True).fetchone()
            ends.append(int(row[0]) if row else 0)
    return done, ends


def _watch(site: Site, stop: threading.Event, seen: list[tuple[float, int]]) -> None:
    query = "select confirmed_flush_lsn - '0/0'::pg_lsn from pg_replication_slots where slot_name = 'auditlake'"
    with psycopg.connect(site.dsn, autocommit=True) as conn:
        while not stop.wait(_POLL_S):
            row = conn.execute(query, prepare=True).fetchone()
            seen.append((time.monotonic(), int(row[0]) if row else 0))


def _report(done: list[float], ends: list[int], seen: list[tuple[float, int]], used_s: float) -> None:
    times, flushed = np.array([at for at, _ in seen]), np.array([lsn for _, lsn in seen])
    place = np.searchsorted(flushed, np.array(ends))
    confirmed = place < flushed.size
    delays = times[place[confirmed]] - np.array(done)[confirmed]
    p50, p99, worst = np.percentile(delays, [50, 99, 100]) * 1000
    print(f"{confirmed.sum():,} commits: p50 {p50:.0f} ms, p99 {p99:.0f} ms, worst {worst:.0f} ms; ", end="")
    print(f"capture {used_s:.2f} CPU-s", flush=True)


def _leftovers(lake: Path) -> None:
    table = DeltaTable(lake / "changes")
    files, logs = len(table.file_uris()), len(list((lake / "changes" / "_delta_log").iterdir()))
    started = time.monotonic()
    query = "select count(*), max(lsn) from changes where op = 'insert'"
    QueryBuilder().register("changes", DeltaTable(lake / "changes")).execute(query).read_all()
    print(f"changes: {files} files, {logs} in its log; opened and counted in {time.monotonic() - started:.2f} s")


def _measure(server: Server, folder: Path, name: str, arguments: argparse.Namespace, *, sealing: bool) -> None:
    site = Site(server, folder, name)
    site.sql("create table t (id bigint primary key, v text)")
    site.start_log()
    if sealing:
        site.auditlake("seal")
    stop, seen = threading.Event(), list[tuple[float, int]]()
    watcher = threading.Thread(target=_watch, args=(site, stop, seen))
    with site.capturing() as pid:
        process = Path(f"/proc/{pid}")
        before_s = cpu_s(process)
        watcher.start()
        done, ends = _write(site, arguments.rate, arguments.seconds)
        while not seen or seen[-1][1] < ends[-1]:
            time.sleep(_POLL_S)
        stop.set()
        watcher.join()
        used_s = cpu_s(process) - before_s
    print(f"{'with' if sealing else 'without'} sealing, ", end="")
    _report(done, ends, seen, used_s)
    _leftovers(site.lake)
    site.sql("select pg_drop_replication_slot('auditlake')")


def main() -> None:
    """Parse arguments, write while capture runs, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--sealing", type=int, default=0)
    arguments = parser.parse_args()
    with bench_server() as (server, folder):
        for number in range(arguments.sealing or 1):
            _measure(server, folder, f"latency_{number}", arguments, sealing=False)
            if arguments.sealing:
                _measure(server, folder, f"sealing_{number}", arguments, sealing=True)


if __name__ == "__main__":
    main()
