"""Many batches in one process: does a batch cost at the end what it cost at first? And what does it cost by size?

    python bench/soak.py [soak] [growth] [tables] [--batches 300] [--changes 1000] [--rows 100000] [--tables 60]

soak     batches one after another, with the upkeep that `follow` does between them: time of a batch, files and log
         entries of the history, memory of Python and JVM, at every tenth part of the run
growth   one batch after the other by open rows (0.1, 1 and, with --large, 10 M), and again with 100 times the closed
         history
tables   batches of ten changes each to 60 tables: the time of one table

Times are medians after a warm-up of the JVM. There is no server: changes are written as capture writes them.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from harness.batches import Batches
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.follow import Applier
from auditlake.lake.files import data_files
from auditlake.lake.history import open_history
from auditlake.lake.layout import Lake
from auditlake.lake.session import spark_session

_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)
_SMALL_CHANGES, _TABLE_BATCHES = 10, 3
_WARM_UP = 6


@contextmanager
def _lake() -> Iterator[Lake]:
    root = Path(tempfile.mkdtemp(prefix="auditlake-bench-"))
    try:
        yield Lake(root)
    finally:
        shutil.rmtree(root)


def _applier(spark: SparkSession, batches: Batches) -> Applier:
    return Applier(batches.lake, spark, lambda _: None)


def _batch_s(batches: Batches, applier: Applier, changes: int) -> float:
    batches.write(changes)
    begun_s = time.monotonic()
    applier.apply()
    return time.monotonic() - begun_s


def _resident_mb(pid: int | str) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_MB


def _jvm_pid(spark: SparkSession) -> int:
    return int(spark._jvm.java.lang.ProcessHandle.current().pid())  # noqa: SLF001  # the only way to the JVM


def _soak(spark: SparkSession, arguments: argparse.Namespace) -> None:
    with _lake() as lake:
        batches = Batches(spark, lake, 1, arguments.rows)
        applier, times, upkeep = _applier(spark, batches), [], []
        tenth = max(1, arguments.batches // 10)
        for number in range(1, arguments.batches + 1):
            times.append(_batch_s(batches, applier, arguments.changes))
            begun_s = time.monotonic()
            applier.look_after()
            upkeep.append(time.monotonic() - begun_s)
            if number % tenth == 0:
                _show(spark, batches, number, (times[-tenth:], upkeep[-tenth:]))


def _show(spark: SparkSession, batches: Batches, number: int, spent_s: tuple[list[float], list[float]]) -> None:
    table = open_history(batches.lake, batches.names[0])
    assert table is not None  # noqa: S101 - it was made here
    times, upkeep = spent_s
    log = sum(1 for _ in (table.path / "_delta_log").iterdir())
    print(
        f"batch {number:6}: {median(times):6.2f} s, worst {max(times):6.2f} s,"
        f" upkeep {sum(upkeep) / len(upkeep):5.2f} s,"
        f" {len(data_files(table)):5} files, {log:6} in the log,"
        f" Python {_resident_mb('self'):5.0f} MB, JVM {_resident_mb(_jvm_pid(spark)):5.0f} MB",
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


def _by_size(batches: Batches, applier: Applier) -> dict[int, float]:
    """Seconds by changes in a batch; the first of each is for the JIT."""
    return {n: median([_batch_s(batches, applier, n) for _ in range(4)][1:]) for n in (1_000, 100_000)}


def _line(what: str, times: dict[int, float]) -> None:
    print(f"{what}: " + ", ".join(f"{n:,} changes {seconds:5.2f} s" for n, seconds in times.items()), flush=True)


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
            before_s = _cpu_s(spark)
            seconds = _batch_s(batches, applier, _SMALL_CHANGES)
            each_s, cpu_s = (spent / arguments.tables for spent in (seconds, _cpu_s(spark) - before_s))
            print(
                f"batch {number} of {_SMALL_CHANGES} changes to each of {arguments.tables} tables: {seconds:.1f} s,"
                f" {each_s:.2f} s and {cpu_s:.2f} CPU-s a table",
                flush=True,
            )


def _cpu_s(spark: SparkSession) -> float:
    """CPU-seconds of this process and its JVM until now."""
    stats = (Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in ("self", _jvm_pid(spark)))
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")


_PARTS = {"soak": _soak, "growth": _growth, "tables": _tables}


def main() -> None:
    """Parse, warm up, run the parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", help=f"{', '.join(_PARTS)} [all]")
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--tables", type=int, default=60)
    parser.add_argument("--large", action="store_true", help="growth with 10 M open rows too")
    arguments = parser.parse_args()
    spark = spark_session({"spark.master": "local[2]"})
    with _lake() as lake:
        batches = Batches(spark, lake, 1, arguments.rows)
        applier = _applier(spark, batches)
        warm = [_batch_s(batches, applier, arguments.changes) for _ in range(_WARM_UP)]
        print("warm-up: " + ", ".join(f"{seconds:.1f}" for seconds in warm) + " s", flush=True)
    for name in arguments.what or _PARTS:
        _PARTS[name](spark, arguments)


if __name__ == "__main__":
    main()
