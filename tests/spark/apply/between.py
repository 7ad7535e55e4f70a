"""Race with another process's commit: it arrives after everything has been read, so only our commit can detect it."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import auditlake.apply.apply as applying
import auditlake.apply.merge as merging
from auditlake.apply.embedded_fold import NotFolded
from auditlake.apply.merge import Plan, _checked
from auditlake.apply.tails import Tail
from auditlake.delta.log_writer import Action, put_commit
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.store.files import move
from tests.s3_server import copy_file, names
from tests.spark.apply.harness import NAME, the_history

Put = Callable[[Path, int, str, Iterable[Action]], None]
Check = Callable[[SparkSession, HistoryTable, DataFrame], DataFrame]


def committed_while_read(theirs: Lake, ours: Lake) -> Check:
    """Replace the merge's check: after it, when all rows have been read, the last commit of `theirs` appears in `ours`.

    That commit arrives between the begin and the end of Delta's transaction, once.
    """
    waiting, committed = _copy_commit(theirs, ours)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if waiting.exists():
            move(waiting, committed)

    def checked(spark: SparkSession, table: HistoryTable, rows: DataFrame) -> DataFrame:
        plain = _checked(spark, table, rows).coalesce(1).toDF(*(f"c{place}" for place, _ in enumerate(rows.columns)))
        return plain.mapInArrow(read, plain.schema).toDF(*rows.columns)  # mapInArrow does not accept odd names

    return checked


def committed_before_entry(theirs: Lake, ours: Lake) -> Put:
    """Replace the writer of a marked tail's log entry: just before, the last commit of `theirs` appears in `ours`."""
    waiting, committed = _copy_commit(theirs, ours)

    def put(path: Path, version: int, operation: str, actions: Iterable[Action]) -> None:
        if waiting.exists():
            move(waiting, committed)
        put_commit(path, version, operation, actions)

    return put


def planned_versions(monkeypatch: pytest.MonkeyPatch, plan: Plan, theirs: Lake, ours: Lake) -> list[int]:
    """Commit to `ours` by this plan, overtaken by `theirs`; return the versions on which it will have been planned."""
    planned: list[int] = []

    def planned_on(tail: Tail, *_: object) -> Plan:
        planned.append(tail.table.delta_version)
        return plan

    monkeypatch.setattr(applying, "merge_embedded", mock.Mock(side_effect=NotFolded))
    monkeypatch.setattr(applying, "choose_plan", planned_on)
    monkeypatch.setattr("auditlake.lake.history.put_commit", committed_before_entry(theirs, ours))
    monkeypatch.setattr(merging, "_checked", committed_while_read(theirs, ours))
    return planned


def _copy_commit(theirs: Lake, ours: Lake) -> tuple[Path, Path]:
    """Copy the files of their commit into our table; return the commit's own copy, and its path in our log."""
    log = f"_delta_log/{the_history(theirs).delta_version:020}.json"
    there, here = theirs.history(NAME), ours.history(NAME)
    for name in names(there):
        if not name.startswith("_delta_log"):
            copy_file(there / name, here / name)
    copy_file(there / log, here / "their commit")
    return here / "their commit", here / log
