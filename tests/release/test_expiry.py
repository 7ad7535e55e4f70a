"""Tests of the expiry of files: the same as Delta's VACUUM would delete, found without a JVM."""

import json
import os
import time
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit

import pytest
from pyspark.sql import SparkSession

from auditlake.apply.merge import Plan
from auditlake.delta.checkpoints import KEPT_FOR_S, checkpoint
from auditlake.delta.expired_files import expired_files
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.maintenance import Due, Means, rewrite_due, vacuum
from auditlake.sql_names import spark_identifier, spark_literal
from tests.damage import summed
from tests.model import Delete, Insert, Update
from tests.s3_server import chosen_lake, on_disk
from tests.spark.apply.harness import Source, apply_as, the_history
from tests.spark.apply.test_fold_cases import A, B, C, D, capture, row, snapshot, stream

pytestmark = [pytest.mark.spark, on_disk("an object has the time of its put")]
_STRAY = ("_part=open/part-00000-stray.parquet", "deletion_vector_stray.bin", "sub/stray.parquet")
_HIDDEN = ("_part=open/_unfinished.parquet", "_part=open/.unfinished.parquet", "_temporary/stray.parquet")


def _no_session() -> NoReturn:
    pytest.fail("Spark is not needed")


def _history(spark: SparkSession, tmp_path: Path, *, checkpointed: bool) -> HistoryTable:
    """Make a history whose files and first removals are old, with strays; the last removals are of now."""
    source = Source(chosen_lake(tmp_path))
    lake = source.lake
    stream(source, snapshot(A, B, C), {110: [Update(A, A, row("x"))]})
    apply_as(spark, lake, 110, Plan.MARK)
    capture(source, snapshot(A, B, C), {120: [Update(A, A, row("y")), Delete(C)]})
    apply_as(spark, lake, 120, Plan.MARK)
    assert rewrite_due(Means(spark.newSession), the_history(lake), Due(open_part=True))
    _age(the_history(lake))
    capture(source, snapshot(A, B), {130: [Update(A, A, row("z")), Insert(D, row("d"))]})
    apply_as(spark, lake, 130, Plan.MARK)
    assert rewrite_due(Means(spark.newSession), the_history(lake), Due(open_part=True))
    table = the_history(lake)
    if checkpointed:  # the only one that has the removals, after the entries before the last are deleted
        checkpoint(table.path)
        capture(source, snapshot(A, B), {140: [Update(A, A, row("last"))]})
        apply_as(spark, lake, 140, Plan.MARK)
        table = the_history(lake)
        for entry in range(table.delta_version - 1):
            (table.path / "_delta_log" / f"{entry:020}.json").unlink(missing_ok=True)
    for name in (*_STRAY, *_HIDDEN):
        stray = table.path / name
        stray.parent.mkdir(exist_ok=True)
        stray.write_bytes(b"PAR1")
    for file in _files(table):
        os.utime(file, (time.time() - 2 * KEPT_FOR_S,) * 2)
    (table.path / "_part=open" / "part-00000-new.parquet").write_bytes(b"PAR1")
    return table


def _age(table: HistoryTable) -> None:
    """Let the removals of all entries have been made twice the retention ago."""
    for entry in (table.path / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] -= int(2000 * KEPT_FOR_S)
        entry.write_bytes(summed(entry.name, actions))
        (entry.parent / f".{entry.name}.crc").unlink(missing_ok=True)


def _files(table: HistoryTable) -> set[Path]:
    return {path for path in table.path.rglob("*") if path.is_file() and "_delta_log" not in path.parts}


def _rows(spark: SparkSession, table: HistoryTable, version: int) -> list[str]:
    read = spark.newSession().read.format("delta").option("versionAsOf", version).load(str(table.path))
    return sorted(map(str, read.collect()))


def _of_delta(spark: SparkSession, table: HistoryTable) -> set[Path]:
    found = spark.newSession().sql(f"vacuum {spark_literal(str(table.path))} dry run").collect()
    paths = {Path(unquote(urlsplit(row.path).path)) for row in found}
    return {path for path in paths if path.is_file()}


@pytest.mark.parametrize("checkpointed", [False, True])
def test_the_files_that_delta_would_delete_are_deleted(
    spark: SparkSession, tmp_path: Path, *, checkpointed: bool
) -> None:
    """Strays and what was removed long ago; neither what was removed just now, nor what somebody is writing."""
    table = _history(spark, tmp_path, checkpointed=checkpointed)
    expected, before = _of_delta(spark, table), _files(table)
    rows = [_rows(spark, table, version) for version in (table.delta_version - 1, table.delta_version)]
    assert {table.path / name for name in _STRAY} < expected < before
    assert set(expired_files(table.path, time.time() - KEPT_FOR_S)) == expected
    vacuum(Means(_no_session), table)
    assert _files(table) == before - expected
    assert _of_delta(spark, table) == set()
    assert rows == [_rows(spark, table, version) for version in (table.delta_version - 1, table.delta_version)]


def test_a_table_with_another_retention_is_left_to_delta(spark: SparkSession, tmp_path: Path) -> None:
    """Somebody wants its files to be kept for longer."""
    table, opened = _history(spark, tmp_path, checkpointed=False), list[SparkSession]()
    properties = "('delta.deletedFileRetentionDuration' = 'interval 30 days')"
    spark.sql(f"alter table delta.{spark_identifier(str(table.path))} set tblproperties {properties}")
    before = _files(table)

    def open_session() -> SparkSession:
        opened.append(spark.newSession())
        return opened[-1]

    vacuum(Means(open_session), the_history(Lake(table.path.parents[2])))
    assert (len(opened), _files(table)) == (1, before)
