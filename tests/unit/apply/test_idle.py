"""Tests of batches without changes, and of batches that conflict with other processes. No JVM."""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import auditlake.apply.apply as applying
from auditlake.apply.apply import Applied, Reached, apply_pending
from auditlake.apply.stopping import StoppableFolds
from auditlake.capture.change_log import CaptureLog
from auditlake.delta.commit_failures import Overtaken, writing
from auditlake.delta.log_writer import moved, put_commit
from auditlake.engine import Engine
from auditlake.errors import LakeConflict, LakeUnusable
from auditlake.lake import histories
from auditlake.lake.histories import Histories
from auditlake.lake.history import create_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, Lake
from auditlake.lsn import Lsn
from auditlake.relation import Column, TableName

NAMES = [TableName("public", f"table_{number}") for number in range(4)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Return a lake with four histories at position 100 and one being copied, without changes since."""
    lake = Lake(tmp_path)
    for name in [*NAMES, TableName("public", "copied")]:
        create_history(lake, name, (Column("id", 20, -1, key=True),), 1)
    for name in NAMES:
        move(lake, name, 1, 100)
    log = CaptureLog(lake)
    log.start_at(Lsn(101))
    for lsn in range(101, 150):
        log.record_idle(Lsn(lsn), 0)
    return lake


def move(lake: Lake, name: TableName, version: int, position: int) -> None:
    """Commit a position, with an old modification time."""
    put_commit(lake.history(name), version, "WRITE", moved({HISTORY_APP: position, SNAPSHOT_APP: 100}))
    then_s = time.time() - 3600 + version
    os.utime(lake.history(name) / "_delta_log", (then_s, then_s))


def apply(lake: Lake, known: Histories, reached: Applied | None) -> Applied:
    """Apply without a session, as no table has a tail."""
    return apply_pending(
        lambda: cast("SparkSession", None), lake, known=reached.upto if reached else None, histories=known
    )


def test_an_idle_batch_opens_no_table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last log entry of `changes` has the watermark; only the table being copied is looked for."""
    known = Histories(lake)
    first = apply(lake, known, None)
    opened: list[TableName] = []

    def refuse(_: Lake, name: TableName) -> None:
        opened.append(name)

    monkeypatch.setattr(histories, "open_history", refuse)
    monkeypatch.setattr(applying, "open_log", lambda _: pytest.fail("no table has changes"))
    monkeypatch.setattr("auditlake.delta.append_table.open_delta", lambda _: pytest.fail("the last entry is enough"))
    assert apply(lake, known, first).upto == first.upto == {name: Reached(Lsn(100), Lsn(100)) for name in NAMES}
    assert opened == [TableName("public", "copied")]


def test_a_table_moved_by_another_process_is_opened_again(lake: Lake) -> None:
    """A table with its first position is added."""
    known = Histories(lake)
    known.current()
    move(lake, NAMES[2], 2, 120)
    move(lake, TableName("public", "copied"), 1, 130)
    positions = {table.name.table: table.position for table in known.current()}
    assert positions == {"copied": 130, "table_0": 100, "table_1": 100, "table_2": 120, "table_3": 100}


def test_a_table_read_right_after_a_commit_is_read_again(lake: Lake) -> None:
    """A second commit within the clock's resolution leaves the modification time unchanged."""
    known = Histories(lake)
    log = lake.history(NAMES[0]) / "_delta_log"
    log.touch()
    assert known.current()[0].position == 100
    modified = log.stat()
    put_commit(lake.history(NAMES[0]), 2, "WRITE", moved({HISTORY_APP: 140}))
    os.utime(log, ns=(modified.st_atime_ns, modified.st_mtime_ns))
    assert known.current()[0].position == 140


def test_a_table_at_another_position_is_searched_from_there(lake: Lake) -> None:
    """The end of an earlier search counts only at the same position."""
    (table, *_) = Histories(lake).current()
    seen = Reached(table.position, Lsn(500))
    assert applying._searched(table, seen) == 500  # noqa: SLF001 - the decision itself
    for position in (table.position - 1, table.position + 1):
        assert applying._searched(table, Reached(Lsn(position), Lsn(500))) == table.position  # noqa: SLF001 - the same


@pytest.mark.parametrize("conflicts", [4, 1000])
def test_a_merge_is_tried_ten_times_beside_other_commits(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, conflicts: int
) -> None:
    """Pauses grow between attempts, each is before its plan; after the last, the error names the table and exits 6."""
    pauses: list[float] = []
    planned: list[int] = []
    merges = iter([Overtaken] * conflicts)

    def merge(*_: object) -> None:
        if conflict := next(merges, None):
            raise conflict

    class Tail:
        table, upto, shape = Histories(lake).current()[0], Lsn(120), None

    def read_again(*_: object) -> list[type[Tail]]:
        planned.append(len(pauses))
        return [Tail]

    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(applying, "merge", merge)
    monkeypatch.setattr(applying, "fold_tail", lambda *_: "folded")
    monkeypatch.setattr(applying, "choose_plan", lambda *_: None)
    monkeypatch.setattr(applying, "_read_again", read_again)
    spark = Mock(SparkSession)
    run = applying._OnSpark(spark, lake, Engine.AUTO, StoppableFolds(spark, None))  # noqa: SLF001 - one table of a batch
    tail = cast("Any", Tail)
    if conflicts < 10:
        applying._merge_in(run, tail)  # noqa: SLF001 - the same
    else:
        with pytest.raises(LakeConflict, match=r"public\.table_0 lost against"):
            applying._merge_in(run, tail)  # noqa: SLF001 - the same
    assert len(pauses) == min(conflicts, 9)
    assert planned == list(range(1, len(pauses) + 1))
    assert 0 < pauses[0] < pauses[-1] <= 5


@contextmanager
def failing(exc: Exception) -> Iterator[None]:
    """Raise an error during a write to a history."""
    with writing("the history of public.t"):
        raise exc
        yield


@pytest.mark.parametrize(
    "exc",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        DeltaError("Generic LocalFileSystem error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_makes_the_lake_unusable(exc: Exception) -> None:
    """The error names the table and the reason, and exits 6."""
    with pytest.raises(LakeUnusable, match=r"public\.t cannot be read or written: No space left on device"):
        failing(exc).__enter__()


def test_a_store_that_refuses_spark_makes_the_lake_unusable() -> None:
    """The reply to a HEAD has no code of S3, only a status."""
    text = "org.S3Exception: Forbidden (Service: S3, Status Code: 403, Request ID: null):null"
    with pytest.raises(LakeUnusable, match=r"public\.t cannot be read or written: the store answered 403 Forbidden"):
        failing(PySparkException(text)).__enter__()


@pytest.mark.parametrize("exc", [ConnectionRefusedError(111, "refused"), DeltaError("invalid log")])
def test_failures_other_than_of_the_folder_are_not_translated(exc: Exception) -> None:
    """A dead JVM, for example, does not concern the lake's folder."""
    with pytest.raises(type(exc)):
        failing(exc).__enter__()
