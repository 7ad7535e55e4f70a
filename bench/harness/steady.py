"""A steady writer: one transaction after the other at a given rate."""

import time

import psycopg


def write_steadily(dsn: str, rate: float, count: int) -> list[float]:
    """Insert `count` rows into t at `rate` commits per second, synchronously; return when each commit returned."""
    done = []
    with psycopg.connect(dsn, autocommit=True) as conn:
        start = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
            conn.execute("insert into t values (%s, 'some text')", [number], prepare=True)
            done.append(time.monotonic())
    return done
