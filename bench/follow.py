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
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import psycopg
from harness.site import Run, Site, bench_server
from harness.usage import OURS, cpu_s, jvm_of, resident_mb
from pyspark.sql import SparkSession

from auditlake.capture.supervisor import make_task
from auditlake.follow import follow
from auditlake.lake.layout import Lake
from auditlake.spark.session import spark_session

_CLIENTS = 4
_WARM_UP, _WARM_UP_ROUNDS = 20_000, 4
_POLL_S = 0.05
_WORKERS = """
select array_agg(pid) from pg_stat_activity
where backend_type like 'logical replication%worker' or (backend_type = 'walsender' and application_name = 'native')
"""


def _used(processes: Iterable[Path]) -> tuple[float, float]:
    """Return CPU-seconds so far and resident MB of these processes."""
    used = [(cpu_s(process), resident_mb(process)) for process in processes]
    return sum(cpu for cpu, _ in used), sum(memory for _, memory in used)


def _load(site: Site, transactions: int) -> None:
    site.tool("pgbench", "-n", "-c", str(_CLIENTS), "-t", str(transactions // _CLIENTS), site.name)


def _subscribe(site: Site) -> str:
    """Copy the database and create a subscription to ours in the copy, not enabled yet."""
    name = f"{site.name}_native"
    with psycopg.connect(site.server.dsn(), autocommit=True) as conn:
        conn.execute(f'create database "{name}" template "{site.name}"')
    site.sql("select pg_create_logical_replication_slot('native', 'pgoutput')")
    with psycopg.connect(site.server.dsn(name), autocommit=True) as conn:
        conn.execute("drop publication if exists auditlake")
        conn.execute(
            f"create subscription native connection '{site.dsn}' publication auditlake with "
            "(create_slot = false, slot_name = 'native', copy_data = false, enabled = false)"
        )
    return name


def _native(site: Site, name: str) -> Run:
    until = site.sql("select pg_current_wal_insert_lsn()")
    begun_s = time.monotonic()
    with psycopg.connect(site.server.dsn(name), autocommit=True) as conn:
        conn.execute("alter subscription native enable")
        used = (0.0, 0.0)
        confirmed = f"select confirmed_flush_lsn >= '{until}' from pg_replication_slots where slot_name = 'native'"
        while site.sql(confirmed) != "True":
            row = conn.execute(_WORKERS).fetchone()
            if row and row[0]:
                used = _used(Path(f"/proc/{pid}") for pid in row[0])
            time.sleep(_POLL_S)
        seconds = time.monotonic() - begun_s
        conn.execute("alter subscription native disable")
    return Run(seconds, *used)


def _follow(site: Site, spark: SparkSession) -> Run:
    processes = (OURS, jvm_of(spark))
    before, _ = _used(processes)
    begun_s = time.monotonic()
    task = make_task(site.dsn, Lake(site.lake), "current")
    follow(task, lambda: spark, threading.Event(), lambda _: None)
    seconds = time.monotonic() - begun_s
    after, memory_mb = _used(processes)
    return Run(seconds, after - before, memory_mb)


def _pair(scale: int, transactions: int) -> tuple[Run, Run]:
    with bench_server() as (server, folder):
        site = Site(server, folder, "tpcb")
        site.tool("pgbench", "-i", "-q", "-s", str(scale), site.name)
        site.sql("alter table pgbench_history add hid bigserial primary key")
        site.auditlake("bootstrap")
        native = _subscribe(site)
        spark = spark_session({"spark.master": "local[2]"})
        for _ in range(_WARM_UP_ROUNDS):
            _load(site, _WARM_UP)
            _follow(site, spark)
            _native(site, native)
        _load(site, transactions)
        theirs = _native(site, native)
        ours = _follow(site, spark)
        with psycopg.connect(server.dsn(native), autocommit=True) as conn:
            conn.execute("drop subscription native")
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
