"""Requests to an object store: per batch of capture and apply, per question, and per idle minute; with their price.

    python bench/store_requests.py [--tables 10] [--delay-ms 30] [--rate 500] [--seconds 20]

The store is moto behind a proxy that counts and delays requests. Prices are those of S3 Standard in us-east-1 (2026):
5 $ per million PUT, COPY, POST and LIST, 0.40 $ per million GET and HEAD. At the end: `--rate` transactions per second,
the requests per second they cost, and the delay from commit to durable.
"""

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
import psycopg
from harness.counting_proxy import CountingProxy

from auditlake.engine import Engine
from auditlake.follow import Applier
from auditlake.lake.layout import Lake
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.store.place import parse_url
from tests.capture_lake import make_lake
from tests.s3_server import s3_server
from tests.server import Server

_PER_MILLION = {"PUT": 5.0, "POST": 5.0, "LIST": 5.0, "GET": 0.4, "HEAD": 0.4}
_QUESTION = """
import sys
from auditlake.lake.layout import Lake
from auditlake.query.statement import prepare_sql
prepare_sql(Lake.at(sys.argv[1]), "select count(*) from public.t0")
"""
_IDLE_S = 30.0
_STARTED_S = 8.0
_BATCHES = 10
_MINUTES_A_MONTH = 30 * 24 * 60


def _dollars(requests: Counter[str]) -> float:
    return sum(count * _PER_MILLION.get(kind, 0.0) for kind, count in requests.items()) / 1e6


def _show(what: str, requests: Counter[str], share: float = 1.0) -> None:
    parts = ", ".join(f"{count * share:.1f} {kind}" for kind, count in sorted(requests.items()))
    print(f"{what:44} {parts or 'none'}")


@contextmanager
def _capturing(dsn: str, lake: Lake) -> Iterator[None]:
    command = [sys.executable, "-m", "auditlake", "capture", "--source", dsn, "--lake", str(lake.root)]
    with subprocess.Popen(command, cwd="/") as process:
        try:
            yield
        finally:
            process.terminate()


def _measure(dsn: str, lake: Lake, proxy: CountingProxy, rate: int, seconds: float) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn, _capturing(dsn, lake):
        _await_capture(conn)
        with proxy.counted() as idle:
            time.sleep(_IDLE_S)
        _show("idle minute of capture", idle, 60 / _IDLE_S)
        print(f"{'':44} {_dollars(idle) * 60 / _IDLE_S * _MINUTES_A_MONTH:.2f} $ a month")
        with proxy.counted() as batches:
            for number in range(_BATCHES):
                conn.execute("insert into t0 values (%s, 'x')", [-number - 1])
                time.sleep(2)
        extra = Counter({kind: max(0, n - int(idle[kind] * 2 * _BATCHES / _IDLE_S)) for kind, n in batches.items()})
        _show("batch of capture", extra, 1 / _BATCHES)
        _steady(conn, proxy, rate, seconds)


def _await_capture(conn: psycopg.Connection) -> None:
    """Wait until capture reads the slot, and has compared the catalog once."""
    while conn.execute("select 1 from pg_replication_slots where active").fetchone() is None:
        time.sleep(0.1)
    time.sleep(_STARTED_S)


def _steady(conn: psycopg.Connection, proxy: CountingProxy, rate: int, seconds: float) -> None:
    """Commit at a rate; the slot's confirmed_flush_lsn advances only after the commit of `changes`."""
    query = (
        "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn, (select confirmed_flush_lsn - '0/0'::pg_lsn"
        " from pg_replication_slots where slot_name = 'auditlake')"
    )
    done: list[tuple[float, int]] = []
    seen: list[tuple[float, int]] = []
    with proxy.counted() as made:
        start = time.monotonic()
        for number in range(int(rate * seconds)):
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
            conn.execute("insert into t0 values (%s, 'some text')", [number], prepare=True)
            if number % 20 == 0:
                _observe(conn, query, done, seen)
        took_s = time.monotonic() - start
        while seen[-1][1] < done[-1][1] and time.monotonic() - start < seconds + 60:
            time.sleep(0.05)
            _observe(conn, query, [], seen)
    times, flushed = np.array([at for at, _ in seen]), np.array([lsn for _, lsn in seen])
    place = np.minimum(np.searchsorted(flushed, [lsn for _, lsn in done]), len(times) - 1)
    p50, p99 = np.percentile(times[place] - np.array([at for at, _ in done]), [50, 99])
    _show(f"second at {rate * seconds / took_s:.0f} transactions/s", made, 1 / took_s)
    print(f"{'':44} commit to durable: p50 {p50:.2f} s, p99 {p99:.2f} s")


def _observe(
    conn: psycopg.Connection, query: str, done: list[tuple[float, int]], seen: list[tuple[float, int]]
) -> None:
    ((now, flushed),) = conn.execute(query, prepare=True).fetchall()
    done.append((time.monotonic(), int(now)))
    seen.append((time.monotonic(), int(flushed)))


def _questions(lake: Lake, proxy: CountingProxy) -> None:
    with proxy.counted() as first:
        Applier(lake, SparkOnDemand({}, Engine.DUCKDB), print).apply()
    _show("first batch of apply, nothing to do", first)
    for _ in range(2):
        with proxy.counted() as question:
            command = [sys.executable, "-c", _QUESTION, str(lake.root)]
            subprocess.run(command, check=True)
        _show("question about one table, new process", question)
        print(f"{'':44} {_dollars(question) * 1000:.4f} $ for 1,000 questions")
    applier = Applier(lake, SparkOnDemand({}, Engine.DUCKDB), print)
    applier.apply()
    with proxy.counted() as idle:
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < _IDLE_S:
            applier.apply()
            time.sleep(applier.interval_s)
    _show("idle minute of apply", idle, 60 / _IDLE_S)
    print(f"{'':44} {_dollars(idle) * 60 / _IDLE_S * _MINUTES_A_MONTH:.2f} $ a month")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--delay-ms", type=float, default=30)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20)
    asked = parser.parse_args()
    with s3_server() as bucket, Server(18) as server:
        proxy = CountingProxy(os.environ["AWS_ENDPOINT_URL"], 0.0)
        os.environ["AWS_ENDPOINT_URL"] = proxy.endpoint
        dsn = server.dsn(server.create_database())
        with psycopg.connect(dsn, autocommit=True) as conn:
            for number in range(asked.tables):
                conn.execute(f"create table t{number} (id int primary key, note text)")
        lake = make_lake(dsn, cast("Path", parse_url(f"{bucket}/lake")))
        proxy.delay_s = asked.delay_ms / 1000
        print(f"{asked.tables} tables, {asked.delay_ms:.0f} ms per request")
        _questions(lake, proxy)
        _measure(dsn, lake, proxy, asked.rate, asked.seconds)


if __name__ == "__main__":
    main()
