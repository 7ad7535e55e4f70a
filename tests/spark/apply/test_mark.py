"""Tests of tails written with deletion vectors, and of the limits beyond which Delta's writers are used."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import auditlake.apply.deletion_vector_writer as marking
from auditlake.apply.apply import apply_pending
from auditlake.follow import Applier
from auditlake.spark.on_demand import SparkOnDemand
from tests.model import Delete, Update
from tests.s3_server import chosen_lake
from tests.spark.apply.harness import Source, only_spark, the_history
from tests.spark.apply.test_fold_cases import A, B, capture, history, row, snapshot, stream, version

pytestmark = pytest.mark.spark

EXPECTED = {
    version(A, row("old"), (100, "snapshot", None), (110, "update")),
    version(A, row("x"), (110, "update", 0), (120, "update")),
    version(A, row("y"), (120, "update", 0)),
    version(B, row("old"), (100, "snapshot", None), (120, "delete")),
}


def applied_twice(spark: SparkSession, source: Source) -> list[str]:
    """Apply two transactions one after the other; return the writers of the two commits."""
    stream(source, snapshot(A, B), {110: [Update(A, A, row("x"))]})
    apply_pending(lambda: spark, source.lake)
    capture(source, {**snapshot(B), A: row("x")}, {120: [Update(A, A, row("y")), Delete(B)]})
    apply_pending(lambda: spark, source.lake)
    table = the_history(source.lake)
    assert table.position == 120
    return [_writer(table.path, table.delta_version - 1), _writer(table.path, table.delta_version)]


def _writer(path: Path, version: int) -> str:
    entry = (path / "_delta_log" / f"{version:020}.json").read_text()
    (info,) = (action["commitInfo"] for line in entry.splitlines() if "commitInfo" in (action := json.loads(line)))
    return str(info["engineInfo"]).partition("/")[0]


def test_small_tails_are_written_without_delta(spark: SparkSession, tmp_path: Path) -> None:
    """Both commits are our own, also if Spark folds."""
    source = Source(chosen_lake(tmp_path))
    with only_spark():
        assert applied_twice(spark, source) == ["auditlake", "auditlake"]
    assert history(spark, source.lake) == EXPECTED


def test_a_tail_above_a_limit_is_merged_by_delta(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of closed versions; `tests/release` has those of changes and of the size of Spark's result."""
    check_limit(spark, tmp_path, monkeypatch, "of versions")


def check_limit(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """Apply two tails above a limit, which Delta writes."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the only way to an error of Java's with this text

    def refused(_: object) -> object:
        return jvm.java.lang.Class.forName("spark.driver.maxResultSize")

    match limit:
        case "of versions":
            monkeypatch.setattr(marking, "HELD_BYTES", 0)
        case "of changes":
            monkeypatch.setattr("auditlake.apply.merge.HELD_BYTES", 0)
        case _:
            monkeypatch.setattr("pyspark.sql.classic.dataframe.DataFrame.toArrow", refused)
    source = Source(chosen_lake(folder))
    with only_spark():
        assert applied_twice(spark, source) == ["Apache-Spark", "Apache-Spark"]
    monkeypatch.undo()
    assert history(spark, source.lake) == EXPECTED


def test_a_backlog_is_applied_in_windows(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each window is a commit of its own, in order, up to the end; a stop takes effect after the current window."""
    monkeypatch.setattr("auditlake.apply.tails.WINDOW_BYTES", 1)
    source, said, stop = Source(chosen_lake(tmp_path)), list[str](), threading.Event()
    stream(source, snapshot(A, B), {110: [Update(A, A, row("x"))], 120: [Update(A, A, row("y")), Delete(B)]})
    stop.set()
    applier = Applier(source.lake, SparkOnDemand({}), said.append)
    applier.apply(stop)
    assert the_history(source.lake).position == 110
    applier.apply()
    assert [line.split()[1] for line in said] == ["1", "2"]
    assert history(spark, source.lake) == EXPECTED


def test_a_table_with_a_foreign_feature_is_written_by_delta(spark: SparkSession, tmp_path: Path) -> None:
    """A CHECK constraint, added by a user, must be enforced by its writer."""
    source = Source(chosen_lake(tmp_path))
    stream(source, snapshot(A, B), {110: [Update(A, A, row("x"))]})
    table = the_history(source.lake)
    spark.sql(f"alter table delta.`{table.path}` add constraint begun check (_from_lsn > 0)")
    apply_pending(lambda: spark, source.lake)
    after = the_history(source.lake)
    assert (after.position, _writer(after.path, after.delta_version)) == (110, "Apache-Spark")
