"""Follow compared with PostgreSQL's subscription: the same TPC-B changes into `history` and into a second database.

    python bench/follow.py [--scale 20] [--transactions 100000] [--runs 1]

Both start with all changes waiting in their slots. The subscription has a database of its own on the same server, with
the same rows; its time ends when the server has received its confirmation of all changes. Ours is
`follow --until-current` in a process whose JVM has merged a smaller load before, so both sides are warm. CPU-seconds
are those of our process and its JVM, and those of the subscription's apply worker and walsender (our walsender is not
counted). Memory is resident memory at the end.
"""

import argparse
import threading
import time
from statistics import median

from harness.site import Run, Site, bench_server
from harness.subscription import load, run_subscription, subscribe, unsubscribe
from harness.usage import OURS, jvm_of, used_by
from pyspark.sql import SparkSession

from auditlake.capture.supervisor import make_task
from auditlake.follow import follow
from auditlake.lake.layout import Lake
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.spark.session import spark_session

_WARM_UP, _WARM_UP_ROUNDS = 20_000, 4


def _follow(site: Site, spark: SparkSession) -> Run:
    processes = (OURS, jvm_of(spark))
    before, _ = used_by(processes)
    begun_s = time.monotonic()
    task = make_task(site.dsn, Lake(site.lake), "current")
    follow(task, SparkOnDemand({}), threading.Event(), lambda _: None)
    seconds = time.monotonic() - begun_s
    after, memory_mb = used_by(processes)
    return Run(seconds, after - before, memory_mb)


def _pair(scale: int, transactions: int) -> tuple[Run, Run]:
    with bench_server() as (server, folder):
        site = Site(server, folder, "tpcb")
        site.load_tpcb(scale)
        site.auditlake("bootstrap")
        native = subscribe(site)
        spark = spark_session({"spark.master": "local[2]"})
        for _ in range(_WARM_UP_ROUNDS):
            load(site, _WARM_UP)
            _follow(site, spark)
            run_subscription(site, native)
        load(site, transactions)
        theirs = run_subscription(site, native)
        ours = _follow(site, spark)
        unsubscribe(site, native)
        return theirs, ours


def main() -> None:
    """Parse arguments, set up, measure, clean up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--transactions", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=1)
    arguments = parser.parse_args()
    pairs = [_pair(arguments.scale, arguments.transactions) for _ in range(arguments.runs)]
    for theirs, ours in pairs:
        print(theirs.line(f"subscription: {arguments.transactions:,} transactions applied"))
        print(ours.line("follow, warm: all of them in history", f"{ours.seconds / theirs.seconds:.2f} x"))
    print(f"median {median(ours.seconds / theirs.seconds for theirs, ours in pairs):.2f} x")


if __name__ == "__main__":
    main()
