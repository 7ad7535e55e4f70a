"""From the return of a commit to where it can be seen, at a steady rate, each contender by itself.

A subscription's target is polled for its newest row, the slot for the confirmed position (a change is durable in the
lake before that), and the lake for the watermark that a question would read, whose own time is not included. Debezium
and the subscriber of the lake note the time of each arrival.
"""

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from harness.steady import write_steadily

from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from peers import measured
from peers.arena import Arena, our_client
from peers.contest import Contender
from peers.copies import wait_until
from peers.followers import ACTIVE, Follower, arrivals, debezium, following, make_slot, started
from peers.measured import Figures

_POLL_S = 0.002
_CHUNK_BYTES = 1 << 16
_LOOK_S = 0.05
_NAMES = (
    "recvlogical",
    "subscription",
    "auditlake-durable",
    "auditlake-sql",
    "auditlake-feed",
    "debezium",
)
_CONFIRMED = "select confirmed_flush_lsn - '0/0'::pg_lsn from pg_replication_slots where slot_name = 'peer'"
_KEY = re.compile(rb"N\x00\x02t\x00\x00\x00[\x01-\x0a](\d+)t")
Seen = Callable[[], dict[int, float]]
"""Wait for the arrival of all rows, and return its time by the row's id."""


def contenders(arena: Arena, rate: float, count: int) -> list[Contender]:
    """Return everybody whose arrivals can be seen; `rate` is in commits per second."""
    return [Contender(name, partial(_measured, arena, name, rate, count)) for name in _NAMES]


def _measured(arena: Arena, name: str, rate: float, count: int, folder: Path) -> Figures:
    database = arena.server.create_database("live")
    dsn = arena.server.dsn(database)
    arena.sql(database, "create table t (id bigint primary key, v text)")
    try:
        with _watched(arena, name, database, folder, count) as (follower, seen):
            before_s = follower.cpu_s() if follower else 0.0
            with measured.block(arena.server) as used:
                done = write_steadily(dsn, rate, count)
                found = seen()
            cpu_s = follower.cpu_s() - before_s if follower else None
        delays = np.array([found[number] - at for number, at in enumerate(done)]) * 1000
        p50, p99, worst = (float(value) for value in np.percentile(delays, [50, 99, 100]))
        figures: Figures = {"p99_ms": p99, "p50_ms": p50, "worst_ms": worst}
        return figures | used.figures(client_cpu_s=cpu_s)
    finally:
        arena.sql("postgres", "drop database if exists target with (force)")
        arena.server.drop_database(database)


@contextmanager
def _watched(
    arena: Arena, name: str, database: str, folder: Path, count: int
) -> Iterator[tuple[Follower | None, Seen]]:
    if name == "recvlogical":
        with _received(arena, database, count) as seen:
            yield None, seen
    elif name == "debezium":
        with _debezium(arena, database, folder, count) as watched:
            yield watched
    elif name == "auditlake-feed":
        with following(arena, name, database, folder) as follower, _feed(folder, count) as seen:
            yield follower, seen
    else:
        with following(arena, name, database, folder) as follower, _polled(arena, name, database, folder) as polls:
            yield follower, lambda: _reached(polls, _positions(name, folder, count))


@contextmanager
def _polled(arena: Arena, name: str, database: str, folder: Path) -> Iterator[list[tuple[float, int]]]:
    polls: list[tuple[float, int]] = []
    stop = threading.Event()
    where, query = (
        ("target", "select coalesce(max(id), -1) from t") if name == "subscription" else (database, _CONFIRMED)
    )

    def watch() -> None:
        with psycopg.connect(arena.server.dsn(where), autocommit=True) as conn:
            while not stop.wait(_POLL_S):
                if name == "auditlake-sql":
                    positions = read_positions(Lake(folder))
                    value = positions.watermark if positions else 0
                else:
                    value = int((conn.execute(query, prepare=True).fetchone() or (0,))[0])
                polls.append((time.monotonic(), int(value)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield polls
    finally:
        stop.set()
        watcher.join()


def _positions(name: str, folder: Path, count: int) -> list[int]:
    """Return for each row the position that a poll must have reached; rows are committed in the order of their ids."""
    if name == "subscription":
        return list(range(count))
    wait_until(lambda: len(_commits(folder)) >= count)
    return _commits(folder)[-count:]


def _commits(lake: Path) -> list[int]:
    table = DeltaTable(Lake(lake).transactions)
    rows = pa.table(QueryBuilder().register("found", table).execute("select lsn from found").read_all())
    return sorted(rows.column("lsn").to_pylist())


def _reached(polls: list[tuple[float, int]], positions: list[int]) -> dict[int, float]:
    wait_until(lambda: bool(polls) and polls[-1][1] >= positions[-1])
    times, values = np.array([at for at, _ in polls]), np.array([value for _, value in polls])
    return dict(enumerate(times[np.searchsorted(values, np.array(positions))].tolist()))


@contextmanager
def _received(arena: Arena, database: str, count: int) -> Iterator[Seen]:
    make_slot(arena, database)
    options = [
        "-d",
        database,
        "-S",
        "peer",
        "--start",
        "-f",
        "-",
        "-o",
        "proto_version=1",
        "-o",
        "publication_names=peer",
    ]
    line = [str(part) for part in arena.tool("pg_recvlogical", *options)]
    found: dict[int, float] = {}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:

        def read() -> None:
            rest = b""
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            while chunk := os.read(process.stdout.fileno(), _CHUNK_BYTES):
                now, rest = time.monotonic(), rest + chunk
                for key in _KEY.finditer(rest):
                    found[int(key[1])] = now
                rest = rest[-200:]

        reader = threading.Thread(target=read)
        reader.start()

        def seen() -> dict[int, float]:
            wait_until(lambda: len(found) >= count)
            return found

        try:
            yield seen
        finally:
            process.terminate()
            reader.join()


@contextmanager
def _feed(lake: Path, count: int) -> Iterator[Seen]:
    file = Path(f"{lake}-arrivals")
    line = [*our_client("feed_arrivals"), str(lake), str(count), str(file)]
    with started(line, {}, lake) as subscriber:
        wait_until(Path(f"{file}.ready").exists)
        yield lambda: _written(subscriber, file)
    file.unlink()
    Path(f"{file}.ready").unlink()


@contextmanager
def _debezium(arena: Arena, database: str, folder: Path, count: int) -> Iterator[tuple[Follower, Seen]]:
    file = Path(f"{folder}-arrivals")
    line = debezium(arena, database, folder, "--events", str(count), "--arrivals", str(file), "id")
    with started(line, {}, folder) as follower:
        wait_until(lambda: arena.sql(database, ACTIVE) == "True")
        yield follower, lambda: _written(follower, file)


def _written(follower: Follower, file: Path) -> dict[int, float]:
    while follower.process.poll() is None:
        follower.cpu_s()  # the last look is what is known once it has ended
        time.sleep(_LOOK_S)
    return arrivals(file)
