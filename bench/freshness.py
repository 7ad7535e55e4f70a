"""Commit to visible, at a steady rate of small transactions: how long until a question's watermark includes a commit.

    python bench/freshness.py [--rate 500] [--seconds 30]

A watcher looks at the lake as every question does first (`read_positions`), again and again; a commit is visible from
the first look on whose watermark is not below its LSN. The question's own time is not in it. What a look takes is shown
too. Everything shares one machine: server, writer, capture and watcher.
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
    """Commit `rate` transactions a second; give when each xid's commit was done."""
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
    """The commit LSN of every xid that was captured."""
    query = "select xid, lsn from transactions"
    rows = QueryBuilder().register("transactions", DeltaTable(lake.transactions)).execute(query).read_all()
    return {row["xid"]: row["lsn"] for row in pa.table(rows).to_pylist()}


def _report(done: dict[int, float], commits: dict[int, int], seen: list[tuple[float, int]]) -> None:
    times, watermarks = np.array([at for at, _ in seen]), np.array([lsn for _, lsn in seen])
    places = np.searchsorted(watermarks, np.array([commits[xid] for xid in done]))
    p50, p99, worst = np.percentile(times[places] - np.array(list(done.values())), [50, 99, 100])
    print(f"{len(done):,} commits visible: p50 {p50:.2f} s, p99 {p99:.2f} s, worst {worst:.2f} s")
    looks = np.array([after - before for (before, _), (after, _) in pairwise(seen)]) - _PAUSE_S
    print(f"{len(seen):,} looks, each {np.median(looks) * 1000:.0f} ms in the median")


def main() -> None:
    """Parse, write while capture runs and the watcher looks, report."""
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
