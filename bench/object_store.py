"""A lake in an object store compared with one on the local disk: bootstrap, follow, and questions as of a moment.

    python bench/object_store.py [--scale 1] [--transactions 40000] [--rounds 2] [--server versitygw|moto]

One run prints three ratios, store ÷ disk, each of the medians of `--rounds` rounds, in which the two take turns:

1. `bootstrap` of TPC-H lineitem, from process start to history.
2. `follow` of the same TPC-B changes, with all of them waiting in the slot, in one process with a warm JVM.
3. `auditlake sql` in DuckDB as of three moments, from process start, with 30 ms added to each request; and the second
   such statement of one process, as in `auditlake shell`.

The server of the S3 protocol runs on the same machine and uses its processors: versitygw (Go), which keeps objects as
files, if it is installed (`make release` does that), else moto, in Python, which takes milliseconds of CPU for every
request. CPU-seconds and memory are those of the command and its children, or of our process and its JVM; the servers'
are not counted.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, cast

from harness.counting_proxy import CountingProxy
from harness.site import Run, Site, bench_server
from harness.usage import OURS, cpu_s, jvm_of, resident_mb
from lineitem import load_lineitem

from auditlake.capture.supervisor import make_task
from auditlake.follow import follow
from auditlake.lake.layout import Lake
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.spark.session import spark_session
from auditlake.store.objects import settings_for_spark
from auditlake.store.place import parse_url
from tests.s3_server import s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_DELAY_S = 0.030
_TPCB_SCALE = 10
_CLIENTS = 4
_WARM_UP = 4_000
_QUESTION = "select bid, count(*) as accounts, sum(abalance) as balance from pgbench_accounts group by bid"
_PLACES = ("disk", "store")


def _order(number: int) -> Sequence[str]:
    """Return both places, the other one first every other time."""
    return _PLACES if number % 2 == 0 else _PLACES[::-1]


def _report(what: str, runs: dict[str, list[Run]]) -> None:
    for place, each in runs.items():
        for run in each:
            print(run.line(f"{what}, {place}"))
    ratio = median(r.seconds for r in runs["store"]) / median(r.seconds for r in runs["disk"])
    print(f"{what}: store ÷ disk {ratio:.2f}", flush=True)


def _bootstrap(site: Site, bucket: str, scale: str, rounds: int) -> None:
    load_lineitem(site, scale)
    print(f"lineitem at scale {scale}: {int(site.sql('select count(*) from lineitem')):,} rows", flush=True)
    runs: dict[str, list[Run]] = {place: [] for place in _PLACES}
    for number in range(rounds):
        for place in _order(number):
            name = f"copy_{place}_{number}"
            lake = site.folder / name if place == "disk" else f"{bucket}/{name}"
            run = site.auditlake("bootstrap", "--slot", name, "--publication", name, lake=cast("Path", lake))
            runs[place].append(run)
            site.sql(f"select pg_drop_replication_slot('{name}')")
            site.sql(f"drop publication {name}")
    _report("bootstrap", runs)


def _follow(site: Site, lakes: dict[str, Lake], transactions: int, rounds: int) -> Sequence[str]:
    """Print the ratio; return three moments of what was followed."""
    for name, lake in lakes.items():
        site.auditlake("bootstrap", "--slot", name, "--publication", name, lake=lake.root)
    begun = site.sql("select pg_current_wal_insert_lsn()")
    settings = {"spark.master": "local[2]", **settings_for_spark(lakes["store"].root)}
    spark = spark_session(settings)
    runs: dict[str, list[Run]] = {place: [] for place in _PLACES}
    for number in range(-1, rounds):  # the first, smaller one warms up the JVM
        changes = _WARM_UP if number < 0 else transactions
        site.tool("pgbench", "-n", "-c", str(_CLIENTS), "-t", str(changes // _CLIENTS), site.name)
        for place in _order(number):
            run = _follow_once(site, lakes[place], spark)
            if number >= 0:
                runs[place].append(run)
    spark.stop()
    _report(f"follow, {transactions:,} transactions", runs)
    passed = f"(pg_current_wal_insert_lsn() - '{begun}'::pg_lsn)"
    return ["now", *(site.sql(f"select '{begun}'::pg_lsn + {passed} / {part}") for part in (2, 10))]


def _follow_once(site: Site, lake: Lake, spark: "SparkSession") -> Run:
    processes = (OURS, jvm_of(spark))
    before, begun_s = sum(map(cpu_s, processes)), time.monotonic()
    follow(make_task(site.dsn, lake, "current"), SparkOnDemand({}), threading.Event(), lambda _: None)
    seconds = time.monotonic() - begun_s
    return Run(seconds, sum(map(cpu_s, processes)) - before, sum(map(resident_mb, processes)))


def _questions(site: Site, lakes: dict[str, Lake], moments: Sequence[str], rounds: int) -> None:
    with _delayed():
        for moment in moments:
            cold: dict[str, list[Run]] = {place: [] for place in _PLACES}
            again: dict[str, list[Run]] = {place: [] for place in _PLACES}
            for number in range(rounds + 1):
                for place in _order(number):
                    sql = ("sql", "--engine", "duckdb", "--as-of", moment, _QUESTION)
                    cold[place].append(site.auditlake(*sql, lake=lakes[place].root))
                    again[place].append(_ask_again(lakes[place], moment))
            _report(f"as of {moment}, auditlake sql", cold)
            _report(f"as of {moment}, second statement", again)


def _ask_again(lake: Lake, moment: str) -> Run:
    command = [sys.executable, __file__, "--ask", str(lake.root), "--moment", moment]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Run(*json.loads(done.stdout))


def _ask(location: str, moment: str) -> None:
    """Ask twice, and print seconds, CPU-seconds and MB of the second time."""
    from auditlake.query.embedded.engine import Embedded  # noqa: PLC0415 - the benches of the parent do not need it
    from auditlake.query.statement import prepare_statement, read_state  # noqa: PLC0415 - as above

    lake, engine, run = Lake.at(location), Embedded({}), (0.0, 0.0, 0.0)
    for _ in range(2):
        begun_s, cpu = time.monotonic(), cpu_s(OURS)
        state = read_state(lake, moment, UTC, script=_QUESTION)
        _, batches = engine.answer(state, prepare_statement(state, _QUESTION, {})).batches()
        rows = sum(len(batch) for batch in batches)
        if rows != _TPCB_SCALE:
            raise SystemExit(f"{rows} rows, need {_TPCB_SCALE}")
        run = time.monotonic() - begun_s, cpu_s(OURS) - cpu, resident_mb(OURS)
    print(json.dumps(run))


@contextmanager
def _delayed() -> "Iterator[None]":
    """Delay the requests of processes that are started in this context."""
    server = os.environ["AWS_ENDPOINT_URL"]
    os.environ["AWS_ENDPOINT_URL"] = CountingProxy(server, _DELAY_S).endpoint
    try:
        yield
    finally:
        os.environ["AWS_ENDPOINT_URL"] = server


def _run(asked: argparse.Namespace) -> None:
    with s3_server(asked.server) as bucket, bench_server() as (server, folder):
        print(f"server of the S3 protocol: {asked.server}")
        _bootstrap(Site(server, folder, "lineitem"), bucket, asked.scale, asked.rounds)
        site = Site(server, folder, "tpcb")
        site.load_tpcb(_TPCB_SCALE)
        lakes = {"disk": Lake(folder / "followed"), "store": Lake(cast("Path", parse_url(f"{bucket}/followed")))}
        moments = _follow(site, lakes, asked.transactions, asked.rounds)
        _questions(site, lakes, moments, asked.rounds)


def main() -> None:
    """Print the three ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", default="1")
    parser.add_argument("--transactions", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--server", default="versitygw", choices=("versitygw", "moto"))
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    parser.add_argument("--moment", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.ask is not None:
        _ask(asked.ask, asked.moment)
        return
    _run(asked)


if __name__ == "__main__":
    main()
