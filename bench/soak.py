"""Cost of batches: over many batches in one process, by size of batch and history, and in a fresh JVM.

    python bench/soak.py [soak] [growth] [tables] [--batches 300] [--changes 1000] [--rows 100000] [--tables 60]
    python bench/soak.py first
    python bench/soak.py … --spark

soak     consecutive batches, with the maintenance that `follow` runs between them: time of a batch, files and log
         entries of the history, memory of Python and JVM, after every tenth of the run
growth   batches by the number of open rows (0.1, 1 and, with --large, 10 M), and again with 100 times the closed rows
tables   batches of ten changes to each of 60 tables: the time per table
first    the first batches of a process and its JVM

The batches are ordinary, so no Spark is needed; with --spark it folds them all the same.

Times are medians, after a warm-up except in `first`. CPU-seconds are those of this process and its JVM;
other load on the machine affects them less. There is no server: changes are written as capture writes them.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Self
from unittest import mock

from harness.batches import Batches
from harness.usage import OURS, cpu_s, jvm_of, resident_mb
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply import apply
from auditlake.apply.embedded_fold import NotFolded
from auditlake.follow import Applier
from auditlake.lake.history import open_history
from auditlake.lake.history_files import data_files
from auditlake.lake.layout import Lake
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.spark.session import spark_session

_SMALL_CHANGES, _TABLE_BATCHES = 10, 3
_WARM_UP = 6
_FIRST_BATCHES = 4


@dataclass(frozen=True)
class _Cost:
    """Wall-clock and CPU-seconds: a reading of the clocks, or the difference of two readings."""

    seconds: float
    cpu_s: float

    @classmethod
    def until_now(cls, spark: SparkSession) -> Self:
        return cls(time.monotonic(), cpu_s(OURS) + cpu_s(jvm_of(spark)))

    def __sub__(self, other: "_Cost") -> "_Cost":
        return _Cost(self.seconds - other.seconds, self.cpu_s - other.cpu_s)

    def __str__(self) -> str:
        return f"{self.seconds:6.2f} s {self.cpu_s:6.2f} CPU-s"


def _median(costs: list[_Cost]) -> _Cost:
    return _Cost(median(cost.seconds for cost in costs), median(cost.cpu_s for cost in costs))


@contextmanager
def _lake() -> Iterator[Lake]:
    root = Path(tempfile.mkdtemp(prefix="auditlake-bench-"))
    try:
        yield Lake(root)
    finally:
        shutil.rmtree(root)


def _applier(_: SparkSession, batches: Batches) -> Applier:
    return Applier(batches.lake, SparkOnDemand({}), lambda _: None)


def _batch(batches: Batches, applier: Applier, changes: int) -> _Cost:
    batches.write(changes)
    begun = _Cost.until_now(batches.spark)
    applier.apply()
    return _Cost.until_now(batches.spark) - begun


def _soak(spark: SparkSession, arguments: argparse.Namespace) -> None:
    with _lake() as lake:
        batches = Batches(spark, lake, 1, arguments.rows)
        applier, costs, upkeep = _applier(spark, batches), [], []
        tenth = max(1, arguments.batches // 10)
        for number in range(1, arguments.batches + 1):
            costs.append(_batch(batches, applier, arguments.changes))
            begun = _Cost.until_now(spark)
            applier.maintain()
            upkeep.append(_Cost.until_now(spark) - begun)
            if number % tenth == 0:
                _show(batches, number, costs[-tenth:], upkeep[-tenth:])


def _show(batches: Batches, number: int, costs: list[_Cost], upkeep: list[_Cost]) -> None:
    table = open_history(batches.lake, batches.names[0])
    assert table is not None  # noqa: S101 - it was created here
    log = sum(1 for _ in (table.path / "_delta_log").iterdir())
    worst = max(cost.seconds for cost in costs)
    print(
        f"batch {number:6}: {_median(costs)}, worst {worst:6.2f} s,"
        f" upkeep {sum(cost.cpu_s for cost in upkeep) / len(upkeep):5.2f} CPU-s a batch,"
        f" {len(data_files(table)):5} files, {log:6} in the log,"
        f" Python {resident_mb(OURS):5.0f} MB, JVM {resident_mb(jvm_of(batches.spark)):5.0f} MB",
        flush=True,
    )


def _growth(spark: SparkSession, arguments: argparse.Namespace) -> None:
    for rows in (100_000, 1_000_000, *([10_000_000] if arguments.large else [])):
        with _lake() as lake:
            batches = Batches(spark, lake, 1, rows)
            applier = _applier(spark, batches)
            _line(f"{rows:,} open rows", _by_size(batches, applier))
            if rows == 100_000:
                closed = _multiply_closed(spark, batches, 100)
                _line(f"the same with {closed:,} closed rows instead of {closed // 100:,}", _by_size(batches, applier))


def _by_size(batches: Batches, applier: Applier) -> dict[int, _Cost]:
    """Return the cost by changes in a batch; the first run of each warms up the JIT."""
    return {n: _median([_batch(batches, applier, n) for _ in range(4)][1:]) for n in (1_000, 100_000)}


def _line(what: str, costs: dict[int, _Cost]) -> None:
    print(f"{what}: " + ", ".join(f"{n:,} changes {cost}" for n, cost in costs.items()), flush=True)


def _multiply_closed(spark: SparkSession, batches: Batches, factor: int) -> int:
    path = str(batches.lake.history(batches.names[0]))
    closed = spark.read.format("delta").load(path).where("_part <> 'open'")
    closed.crossJoin(spark.range(factor - 1).select(F.col("id").alias("copy"))).drop("copy").write.format("delta").mode(
        "append"
    ).save(path)
    return spark.read.format("delta").load(path).where("_part <> 'open'").count()


def _tables(spark: SparkSession, arguments: argparse.Namespace) -> None:
    with _lake() as lake:
        batches = Batches(spark, lake, arguments.tables, arguments.rows // 100)
        applier = _applier(spark, batches)
        for number in range(1, _TABLE_BATCHES + 1):
            cost = _batch(batches, applier, _SMALL_CHANGES)
            each = _Cost(cost.seconds / arguments.tables, cost.cpu_s / arguments.tables)
            print(
                f"batch {number} of {_SMALL_CHANGES} changes to each of {arguments.tables} tables:"
                f" {cost.seconds:.1f} s, {each} a table",
                flush=True,
            )


def _first(spark: SparkSession, arguments: argparse.Namespace) -> None:
    with _lake() as lake:
        batches = Batches(spark, lake, 1, arguments.rows)
        applier = _applier(spark, batches)
        for number in range(1, _FIRST_BATCHES + 1):
            print(f"batch {number} of a fresh process: {_batch(batches, applier, arguments.changes)}", flush=True)


_PARTS = {"soak": _soak, "growth": _growth, "tables": _tables}


def main() -> None:
    """Parse arguments, warm up, run the parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", help=f"{', '.join(_PARTS)} [all of these]; or first, alone")
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--tables", type=int, default=60)
    parser.add_argument("--large", action="store_true", help="growth also with 10 M open rows")
    parser.add_argument("--spark", action="store_true", help="fold with Spark")
    arguments = parser.parse_args()
    if arguments.spark:
        mock.patch.object(apply, "merge_embedded", side_effect=NotFolded).start()
    spark = spark_session({"spark.master": "local[2]"})
    if arguments.what == ["first"]:
        _first(spark, arguments)
        return
    with _lake() as lake:
        batches = Batches(spark, lake, 1, arguments.rows)
        applier = _applier(spark, batches)
        warm = [_batch(batches, applier, arguments.changes) for _ in range(_WARM_UP)]
        print("warm-up: " + ", ".join(f"{cost.seconds:.1f}" for cost in warm) + " s", flush=True)
    for name in arguments.what or _PARTS:
        _PARTS[name](spark, arguments)


if __name__ == "__main__":
    main()
