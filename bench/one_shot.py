"""Both engines on one history: a process from start to answer, a warm session, and peak memory.

    python bench/one_shot.py [--open 10000000] [--runs 3] [--engines duckdb,spark]

The history has open versions of eight columns in files of a million rows, some of them marked as deleted; no tail. For
each engine: `auditlake sql` as a new process (wall time and peak resident memory, that of the JVM included), then the
same questions in one session, which has answered each once before. Compare inside one run; the machine may be busy.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from auditlake.delta.log_writer import moved, put_commit
from auditlake.lake.histories import list_histories
from auditlake.lake.history import create_history, history_schema, write_rows
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.query.engine_choice import Engines
from auditlake.query.statement import AnswerRows, prepare_statement, read_state
from auditlake.relation import Column, TableName

_NAME = TableName("public", "sales")
_FILE_ROWS = 1_000_000
_MONEY = ((10 << 16) | 2) + 4
_COLUMNS = (
    Column("id", 20, -1, key=True),
    Column("customer", 23, -1, key=False),
    Column("product", 25, -1, key=False),
    Column("quantity", 23, -1, key=False),
    Column("price", 1700, _MONEY, key=False),
    Column("day", 1082, -1, key=False),
    Column("note", 25, -1, key=False),
    Column("paid", 16, -1, key=False),
)
_QUESTIONS = {
    "one row": "select * from sales where id = 4711",
    "count": "select count(*) as n from sales",
    "group": "select product, count(*) as n, sum(quantity * price) as total from sales group by product order by 1",
    "filter": "select customer, sum(price) as total from sales where day >= '2026-06-01' and paid group by customer"
    " order by total desc, customer limit 10",
    "join": "select a.product, count(*) as n from sales a join sales b on b.id = a.customer"
    " group by a.product order by 1",
}


def _rows(first: int, count: int) -> pa.Table:
    draw = np.random.default_rng(first)
    number = np.arange(first, first + count)
    nothing = {field.name: pa.nulls(count, field.type) for field in history_schema(_COLUMNS)}
    given = {
        "id": pa.array(number),
        "customer": pa.array(draw.integers(0, 100_000, count), pa.int32()),
        "product": pa.array([f"product {n}" for n in range(50)]).take(pa.array(draw.integers(0, 50, count))),
        "quantity": pa.array(draw.integers(1, 9, count), pa.int32()),
        "price": pa.array(draw.integers(1, 99_999, count), pa.int32())
        .cast(pa.decimal128(12, 2))
        .cast(pa.decimal128(10, 2)),
        "day": pa.array(draw.integers(20_454, 20_819, count), pa.int32()).cast(pa.date32()),
        "note": pa.array([f"note {n}" for n in range(1000)]).take(pa.array(draw.integers(0, 1000, count))),
        "paid": pa.array(draw.integers(0, 2, count).astype(bool)),
        "_from_lsn": pa.array(number + 1000),
        "_ordinal": pa.array(np.zeros(count), pa.int32()),
        "_op": pa.array(["snapshot"] * count),
    }
    return pa.table({**nothing, **given})


def _make(lake: Lake, rows: int) -> None:
    create_history(lake, _NAME, _COLUMNS, 1)
    path = lake.history(_NAME)
    put_commit(path, 1, "WRITE", moved({HISTORY_APP: rows + 1000, SNAPSHOT_APP: rows + 1000, SNAPSHOT_TIME_APP: 0}))
    (table,) = list_histories(lake)
    for version, first in enumerate(range(0, rows, _FILE_ROWS), 2):
        put_commit(path, version, "WRITE", [write_rows(table, "open", _rows(first, min(_FILE_ROWS, rows - first)))])


def _cold(lake: Lake, engine: str, sql: str) -> tuple[float, float]:
    """Return seconds and peak megabytes of a new process and its children."""
    arguments = ["sql", "--lake", str(lake.root), "--engine", engine, "--format", "csv", sql]
    arguments = [sys.executable, "-c", _MEASURED, *arguments]
    began = time.perf_counter()
    done = subprocess.run(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return time.perf_counter() - began, int(done.stderr.split()[-1]) / 1024


def _warm(lake: Lake, engine: str, runs: int) -> dict[str, float]:
    from auditlake.spark.session import spark_session  # noqa: PLC0415 - one of the two engines needs no pyspark

    engines = Engines(engine, {}, lambda: spark_session({"spark.driver.memory": "4g"}))

    def ask(sql: str) -> None:
        state = read_state(lake, None, UTC)
        (found,) = engines.answer(state, [prepare_statement(state, sql, {})])
        if isinstance(found.rows, AnswerRows):
            for _ in found.rows.batches()[1]:
                pass
        else:
            found.rows.toArrow()

    return {name: _timed(partial(ask, sql), runs) for name, sql in _QUESTIONS.items()}


def _timed(ask: Callable[[], None], runs: int) -> float:
    ask()
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        ask()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--open", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--engines", default="duckdb,spark")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder) / "lake")
        _make(lake, given.open)
        lake.manifest.write_text(_MANIFEST)
        for engine in given.engines.split(","):
            for name in ("one row", "group"):
                seconds, peak_mb = _cold(lake, engine, _QUESTIONS[name])
                print(f"{engine:7} process  {name:8} {seconds:7.2f} s, peak {peak_mb:,.0f} MB")
            for name, seconds in _warm(lake, engine, given.runs).items():
                print(f"{engine:7} session  {name:8} {seconds:7.3f} s")
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{os.cpu_count()} cores, {given.open:,} open rows; peak of this process {peak_mb:,.0f} MB")


_MEASURED = """
import resource, sys
from auditlake.cli.start import start
try:
    start()
finally:
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    print(max(resource.getrusage(each).ru_maxrss for each in who), file=sys.stderr)
"""
_MANIFEST = (
    '{"format_version": 1, "system_identifier": "1", "timeline": 1, "database": "d", "slot": "s", "publication": "p",'
    ' "lsn_offset": 0}'
)


if __name__ == "__main__":
    main()
