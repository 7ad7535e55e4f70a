"""Another process's commit, made at the one moment that the commit alone must see: when everything has been read."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from auditlake.apply.merge import _checked
from auditlake.lake.commits import Action, put_commit
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from tests.spark.apply.harness import NAME, the_history

Put = Callable[[Path, int, str, Iterable[Action]], None]
Check = Callable[[SparkSession, HistoryTable, DataFrame], DataFrame]


def committed_while_read(theirs: Lake, ours: Lake) -> Check:
    """Stand for the merge's own check: once it is done and all rows were read, what was committed to `theirs` is ours.

    Their last commit comes between the begin of Delta's transaction and its end, once.
    """
    waiting, committed = map(str, _brought(theirs, ours))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if os.path.exists(waiting):  # noqa: PTH110 - in a process that knows no other import
            os.rename(waiting, committed)  # noqa: PTH104

    def checked(spark: SparkSession, table: HistoryTable, rows: DataFrame) -> DataFrame:
        plain = _checked(spark, table, rows).coalesce(1).toDF(*(f"c{place}" for place, _ in enumerate(rows.columns)))
        return plain.mapInArrow(read, plain.schema).toDF(*rows.columns)  # which takes no odd names

    return checked


def committed_before_entry(theirs: Lake, ours: Lake) -> Put:
    """Stand for what writes the entry of a marked tail: right before it, what was committed to `theirs` is ours."""
    waiting, committed = _brought(theirs, ours)

    def put(path: Path, version: int, operation: str, actions: Iterable[Action]) -> None:
        if waiting.exists():
            waiting.rename(committed)
        put_commit(path, version, operation, actions)

    return put


def _brought(theirs: Lake, ours: Lake) -> tuple[Path, Path]:
    """Bring the files of their commit to where ours are; the commit itself, and where it would stand."""
    log = Path("_delta_log", f"{the_history(theirs).delta_version:020}.json")
    there, here = theirs.history(NAME), ours.history(NAME)
    shutil.copytree(there, here, ignore=shutil.ignore_patterns("_delta_log"), dirs_exist_ok=True)
    shutil.copy(there / log, here / "their commit")
    return here / "their commit", here / log
