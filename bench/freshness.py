"""Delay from commit to visible: time until a query's watermark includes a commit, at a steady rate of transactions.

    python bench/freshness.py [--rate 500] [--seconds 30]

A watcher polls the lake's positions as every query does first (`read_positions`). A commit is visible at the first poll
whose watermark is not less than its LSN. The query's own time is not included; the time of a poll is shown too. Server,
writer, capture and watcher share one machine.
"""

import argparse
import threading
import time
from itertools import pairwise

import numpy as np
import psycopg
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from harness.site import Site, bench_server

from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions

_PAUSE_S = 0.02


def _write(site: Site, rate: int, seconds: float) -> dict[int, float]:
    """Commit `rate` transactions per second; return the time at which each xid's commit returned."""
    done = {}
    with psycopg.connect(site.dsn, autocommit=True) as conn:
        start = time.monotonic()
        insert = "insert into t values (%s, 'some text') returning pg_current_xact_id()::xid::text::bigint"
        for number in range(int(rate * seconds)):
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
            row = conn.execute(insert, [number], prepare=True).fetchone()
            done[int(row[0]) if row else 0] = time.monotonic()
    return done


def _watch(lake: Lake, stop: threading.Event, seen: list[tuple[float, int]]) -> None:
    while not stop.wait(_PAUSE_S):
        positions = read_positions(lake)
        seen.append((time.monotonic(), positions.watermark if positions else 0))


def _commits(lake: Lake) -> dict[int, int]:
    """Return the commit LSN of every captured xid."""
    query = "select xid, lsn from transactions"
    rows = QueryBuilder().register("transactions", DeltaTable(lake.transactions)).execute(query).read_all()
    return {row["xid"]: row["lsn"] for row in pa.table(rows).to_pylist()}


def _report(done: dict[int, float], commits: dict[int, int], seen: list[tuple[float, int]]) -> None:
    times, watermarks = np.array([at for at, _ in seen]), np.array([lsn for _, lsn in seen])
    places = np.searchsorted(watermarks, np.array([commits[xid] for xid in done]))
    p50, p99, worst = np.percentile(times[places] - np.array(list(done.values())), [50, 99, 100])
    print(f"{len(done):,} commits visible: p50 {p50:.2f} s, p99 {p99:.2f} s, worst {worst:.2f} s")
    polls = np.array([after - before for (before, _), (after, _) in pairwise(seen)]) - _PAUSE_S
    print(f"{len(seen):,} polls, median {np.median(polls) * 1000:.0f} ms")


def main() -> None:
    """Parse arguments, write while capture and watcher run, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=30)
    arguments = parser.parse_args()
    with bench_server() as (server, folder):
        site = Site(server, folder, "freshness")
        site.sql("create table t (id bigint primary key, v text)")
        site.start_log()
        lake, stop, seen = Lake(site.lake), threading.Event(), list[tuple[float, int]]()
        watcher = threading.Thread(target=_watch, args=(lake, stop, seen))
        with site.capturing():
            watcher.start()
            done = _write(site, arguments.rate, arguments.seconds)
            commits = _commits(lake)
            while not done.keys() <= commits.keys() or seen[-1][1] < max(commits.values()):
                time.sleep(_PAUSE_S)
                commits = _commits(lake)
            stop.set()
            watcher.join()
        _report(done, commits, seen)


if __name__ == "__main__":
    main()
