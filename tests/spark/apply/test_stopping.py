"""A run that is asked to end does not wait for Spark; what was folded counts, and no table is parked."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import auditlake.apply.apply as applying
from auditlake.apply.apply import apply_pending, fold_held
from auditlake.apply.fold import Folded
from auditlake.apply.merge import Plan
from auditlake.apply.tail_fold import fold_tail
from auditlake.apply.tails import Tail
from auditlake.cancellation import Cancelled
from auditlake.engine import Engine
from auditlake.lake.histories import folded_to
from auditlake.lsn import Lsn
from auditlake.temporal.moments import read_known
from tests.running import await_true
from tests.small_lake import ORDERS, write_small_lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

_FOR_EVER = "java_method('java.lang.Thread', 'sleep', 1000000000L) is not null"


def test_a_fold_is_ended(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its jobs are cancelled while they run; `tests/release` has the other plans."""
    check_ended(spark, tmp_path, monkeypatch, Plan.MARK)


def check_ended(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    """End a fold while its jobs run; the next run folds the same tail."""
    lake, stop = write_small_lake(folder / "lake"), threading.Event()
    before = folded_to(lake)

    def slow(session: SparkSession, tail: Tail) -> Folded | None:
        folded = fold_tail(session, tail)
        return folded and replace(folded, rows=folded.rows.where(_FOR_EVER))

    def end() -> None:
        await_true(lambda: bool(spark.sparkContext.statusTracker().getActiveJobsIds()), timeout_s=120)
        stop.set()

    monkeypatch.setattr(applying, "fold_tail", slow)
    monkeypatch.setattr(applying, "choose_plan", lambda *_: plan)
    ending = threading.Thread(target=end)
    ending.start()
    with pytest.raises(Cancelled):
        apply_pending(lambda: spark, lake, engine=Engine.SPARK, stop=stop)
    ending.join()
    assert (read_known(lake).parked, folded_to(lake)) == ({}, before)
    monkeypatch.undo()
    with pytest.raises(Cancelled):
        fold_held(lambda: spark, lake, ORDERS, Lsn(0x300), Engine.SPARK, stop)
    apply_pending(lambda: spark, lake, engine=Engine.SPARK)
    assert folded_to(lake) > before
