"""Delay from commit to subscriber: time until `auditlake.changes` delivers a transaction, at a steady rate.

    python bench/live_changes.py [--rate 500] [--seconds 60] [--subscribers 1]

Writer, capture and every subscriber are processes of their own; the clock is the machine's monotonic one. The delay
counts from the return of the commit, so it leaves out what the client waits for anyway.
"""

import argparse
import multiprocessing
import time
from pathlib import Path

import numpy as np
from harness.site import Site, bench_server
from harness.steady import write_steadily

from tests.capture_lake import make_lake

_SETTLED_S = 2.0


def _subscribe(lake: Path, count: int, times: "multiprocessing.Queue[tuple[list[float], float]]") -> None:
    """Receive every transaction; report when each arrived, and the CPU-seconds it took."""
    import auditlake  # noqa: PLC0415 - in the subscriber's process

    arrived = [0.0] * count
    with auditlake.changes(lake) as feed:
        times.put(([], 0.0))
        left, cpu_s = count, time.process_time()
        while left:
            for transaction in feed.take(60):
                (change,) = transaction.changes
                arrived[change.key["id"]] = time.monotonic()
                left -= 1
    times.put((arrived, time.process_time() - cpu_s))


def _report(done: list[float], arrived: list[float], cpu_s: float) -> None:
    delays = np.array(arrived) - np.array(done)
    p50, p99, worst = np.percentile(delays, [50, 99, 100])
    seconds = done[-1] - done[0]
    print(
        f"{len(done):,} commits at {len(done) / seconds:,.0f}/s: p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, "
        f"worst {worst * 1000:.0f} ms; subscriber {cpu_s / seconds:.0%} of a core"
    )


def main() -> None:
    """Parse arguments, write while capture and the subscribers run, report each subscriber."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--subscribers", type=int, default=1)
    arguments = parser.parse_args()
    count = int(arguments.rate * arguments.seconds)
    processes = multiprocessing.get_context("spawn")
    with bench_server() as (server, folder):
        site = Site(server, folder, "live")
        site.sql("create table t (id bigint primary key, v text)")
        make_lake(site.dsn, site.lake)
        times: multiprocessing.Queue[tuple[list[float], float]] = processes.Queue()
        subscribers = [
            processes.Process(target=_subscribe, args=(site.lake, count, times)) for _ in range(arguments.subscribers)
        ]
        with site.capturing():
            for subscriber in subscribers:
                subscriber.start()
            for _ in subscribers:
                times.get()
            time.sleep(_SETTLED_S)
            done = write_steadily(site.dsn, arguments.rate, count)
            found = [times.get() for _ in subscribers]
        for subscriber in subscribers:
            subscriber.join()
        for arrived, cpu_s in found:
            _report(done, arrived, cpu_s)


if __name__ == "__main__":
    main()
