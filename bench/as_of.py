"""As-of queries against a plain Delta table of the same state, for recent and old moments, in turns.

    python bench/as_of.py [--open 200000] [--closed 1000000] [--runs 5] [--columns 10] [--untidy]

A history is written as apply leaves it: closed versions by month, in files ordered by their end, most of them
short-lived, one in a hundred as old as the history; then `maintain` runs on it, unless --untidy. For each moment a
plain Delta table contains exactly the rows of that state. Compare the ratios; both run in the same session, one after
the other. Each line also shows the number of the history's files that the moment opens.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

import auditlake
from auditlake.delta.append_table import AppendLog
from auditlake.lake.history import PERIOD_COLUMNS, create_history
from auditlake.lake.layout import ACKNOWLEDGED_APP, CHANGES_APP, HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.lake.maintenance import maintain
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from auditlake.relation import Column, TableName
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.spark.session import spark_session

_NAME = TableName("public", "accounts")
_BEGIN, _END = 1_000, 1_000_000_000
_FILES = 24
_QUERY = "select v0, count(*), sum(id), max(v1) from {} group by v0"


def _columns(count: int) -> tuple[Column, ...]:
    return (Column("id", 20, -1, key=True), *(Column(f"v{n}", 20, -1, key=False) for n in range(count)))


def _closed(spark: SparkSession, versions: int, keys: int) -> DataFrame:
    """Return versions ordered by their end, at which the key's next version begins."""
    step = (_END - _BEGIN) // versions
    number = F.col("n")
    to_lsn = _BEGIN + (number + 1) * step
    short = F.greatest(F.lit(_BEGIN), to_lsn - keys * step)
    begin = F.when(number % 100 == 0, F.lit(_BEGIN)).otherwise(short)
    rows = spark.range(0, versions, 1, _FILES).withColumnRenamed("id", "n")
    part = F.concat(F.lit("2026-"), F.lpad((number * 12 / versions).cast("int") + 1, 2, "0"))
    return rows.select(
        (number % keys).alias("id"), number, begin.alias("_from_lsn"), to_lsn.alias("_to_lsn"), part.alias("_part")
    )


def _open(spark: SparkSession, versions: int, keys: int) -> DataFrame:
    step = (_END - _BEGIN) // versions
    last = F.lit(versions - keys) + F.col("id")  # the key's last closed version, if versions is a multiple of keys
    begin = F.when(last >= 0, _BEGIN + (last + 1) * step).otherwise(F.lit(_BEGIN))
    return spark.range(0, keys, 1, 4).select(
        "id",
        last.alias("n"),
        begin.alias("_from_lsn"),
        F.lit(None).cast("long").alias("_to_lsn"),
        F.lit("open").alias("_part"),
    )


def _make(spark: SparkSession, lake: Lake, columns: tuple[Column, ...], sizes: tuple[int, int]) -> None:
    keys, versions = sizes
    table = create_history(lake, _NAME, columns, 1)
    values = [F.pmod(F.xxhash64("n", F.lit(c.name)), F.lit(1000)).alias(c.name) for c in columns if not c.key]
    for rows in (_closed(spark, versions, keys), _open(spark, versions, keys)):
        period = [
            F.col(name) if name in rows.columns else F.lit(None).cast(kind).alias(name) for name, kind in PERIOD_COLUMNS
        ]
        rows.select("id", *values, *period).write.format("delta").mode("append").save(str(lake.history(_NAME)))
    table.update_incremental()
    marks = {HISTORY_APP: _END, SNAPSHOT_APP: _BEGIN, SNAPSHOT_TIME_APP: 0}
    properties = CommitProperties(app_transactions=[Transaction(app, lsn) for app, lsn in marks.items()])
    table.create_write_transaction([], "append", table.schema(), ["_part"], commit_properties=properties)
    AppendLog(lake.changes, CHANGES_SCHEMA).append(None, {CHANGES_APP: _END, ACKNOWLEDGED_APP: _END})


def _seconds(read: Callable[[], DataFrame], view: str) -> float:
    started = time.monotonic()
    frame = read()
    frame.createOrReplaceTempView(view)
    frame.sparkSession.sql(_QUERY.format(view)).collect()
    return time.monotonic() - started


def _compare(spark: SparkSession, lake: Lake, lsn: Lsn, runs: int) -> None:
    plain = lake.root / f"plain-{lsn:d}"
    auditlake.read(spark, lake.root, str(_NAME), as_of=str(lsn)).repartition(4).write.format("delta").save(str(plain))
    ours, theirs = [], []
    for _ in range(runs + 1):  # the first run of each warms up the JIT
        theirs.append(_seconds(lambda: spark.read.format("delta").load(str(plain)), "plain"))
        ours.append(_seconds(lambda: auditlake.read(spark, lake.root, str(_NAME), as_of=str(lsn)), "ours"))
    plain_s, ours_s = statistics.median(theirs[1:]), statistics.median(ours[1:])
    files = len(auditlake.read(spark, lake.root, str(_NAME), as_of=str(lsn)).inputFiles())
    print(f"as of {lsn}: plain {plain_s:6.2f} s, history {ours_s:6.2f} s, {ours_s / plain_s:5.2f} x, {files} files")


def main() -> None:
    """Parse arguments, write the history, compare at three moments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--open", type=int, default=200_000)
    parser.add_argument("--closed", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--untidy", action="store_true", help="as apply leaves it, without maintenance")
    arguments = parser.parse_args()
    lake = Lake(Path(tempfile.mkdtemp(prefix="auditlake-bench-")))
    spark = spark_session({"spark.master": "local[2]"})
    try:
        _make(spark, lake, _columns(arguments.columns), (arguments.open, arguments.closed))
        if not arguments.untidy:
            maintain(SparkOnDemand({}), lake, print)
        files = len(DeltaTable(lake.history(_NAME)).file_uris())
        print(f"{arguments.open:,} open, {arguments.closed:,} closed, {files} files, {os.cpu_count()} cores")
        for lsn in (_END, (_BEGIN + _END) // 2, _BEGIN + _END // 10):
            _compare(spark, lake, Lsn(lsn), arguments.runs)
    finally:
        shutil.rmtree(lake.root)


if __name__ == "__main__":
    main()
