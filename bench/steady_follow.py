"""`follow` at a steady rate of TPC-B: its share of a core, its memory, and the processes that it started.

    python bench/steady_follow.py [--scale 50] [--rate 300] [--seconds 120]

pgbench writes at the rate to 100,000 accounts for each unit of scale, from four clients. What is measured begins once
`follow` has been at work for ten seconds. The rate that was reached is shown, too: beside other work, changes gather
into larger batches, which cost less.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen

from harness.site import Site, bench_server
from harness.usage import cpu_s, descendants, resident_mb

_BEFORE_S = 10
_COUNT = "select count(*) from pgbench_history"


@contextmanager
def _beside(site: Site, rate: int, seconds: int) -> Iterator[None]:
    """Run pgbench at the rate for the block, which takes less than its time."""
    where = ["-h", str(site.server.folder), "-p", str(site.server.port), "-U", "postgres"]
    load = ["-n", "-c", "4", "-R", str(rate), "-T", str(seconds), site.name]
    with Popen([str(site.server.bin / "pgbench"), *where, *load], stdout=DEVNULL, stderr=DEVNULL) as pgbench:
        yield
        pgbench.terminate()


def main() -> None:
    """Parse arguments, load, follow, measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=50)
    parser.add_argument("--rate", type=int, default=300)
    parser.add_argument("--seconds", type=int, default=120)
    given = parser.parse_args()
    with bench_server() as (server, folder):
        site = Site(server, folder, "steady")
        site.load_tpcb(given.scale)
        site.auditlake("bootstrap")
        with site.capturing(command="follow") as pid, _beside(site, given.rate, given.seconds + 2 * _BEFORE_S):
            process = Path("/proc", str(pid))
            time.sleep(_BEFORE_S)
            begun_s, used_s, count = time.monotonic(), cpu_s(process), int(site.sql(_COUNT))
            time.sleep(given.seconds)
            seconds = time.monotonic() - begun_s
            cores, rate = (cpu_s(process) - used_s) / seconds, (int(site.sql(_COUNT)) - count) / seconds
            memory = f"{resident_mb(process):.0f} MB, {len(descendants(str(pid)))} other processes"
            print(f"{rate:.0f} transactions/s: {cores:.2f} of a core, {memory}")


if __name__ == "__main__":
    main()
