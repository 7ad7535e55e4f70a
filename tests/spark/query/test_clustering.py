"""Clustering of closed versions: the same rows, in files whose statistics let queries skip most of them."""

import os
import random
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, QueryBuilder, Transaction
from pyspark.sql import SparkSession

import auditlake
from auditlake.delta.append_table import AppendLog
from auditlake.delta.data_files import write_part
from auditlake.delta.log_reader import file_path
from auditlake.delta.log_writer import put_commit
from auditlake.delta.table import open_table
from auditlake.lake import compaction as order
from auditlake.lake import maintenance as upkeep
from auditlake.lake.history import create_history, history_schema
from auditlake.lake.history_files import data_files
from auditlake.lake.layout import (
    ACKNOWLEDGED_APP,
    CHANGES_APP,
    HISTORY_APP,
    SNAPSHOT_APP,
    SNAPSHOT_TIME_APP,
    Lake,
)
from auditlake.lake.maintenance import Means, find_due, rewrite_due
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from auditlake.relation import Column, TableName
from auditlake.store.files import parquet
from tests.s3_server import chosen_lake, on_disk
from tests.small_lake import files_of

pytestmark = pytest.mark.spark

NAME = TableName("public", "t")
COLUMNS = (Column("id", 23, -1, key=True), Column("_age", 25, -1, key=False))
SNAPSHOT, LEAST, MOST = 100, 9_000, 10_000
PARTS = ("2026-10", "2026-11")


def versions() -> list[dict[str, Any]]:
    """Most versions are short-lived, some exist since the snapshot, some are long-lived; a few are open."""
    chance = random.Random(7)  # noqa: S311 - no secret
    found = []
    for number in range(1_200):
        end = chance.randrange(LEAST, MOST)
        begin = (end - chance.randrange(1, 400), SNAPSHOT, chance.randrange(SNAPSHOT, end))[min(2, number % 12)]
        if number % 12 > 2:  # three in four are young
            begin = end - chance.randrange(1, 400)
        found.append({"id": number, "_age": f"é{number}", "_from_lsn": begin, "_to_lsn": end})
    return [*found, *({"id": 5_000 + n, "_age": None, "_from_lsn": MOST - n, "_to_lsn": None} for n in range(9))]


def part_of(version: dict[str, Any]) -> str:
    """Return the partition of a version."""
    return "open" if version["_to_lsn"] is None else PARTS[version["_to_lsn"] > (LEAST + MOST) // 2]


def make(lake: Lake) -> list[dict[str, Any]]:
    """Write a history as batches leave it: files in the order of the versions' ends."""
    delta = create_history(lake, NAME, COLUMNS, 1)
    rows = sorted(versions(), key=lambda version: version["_to_lsn"] or MOST)
    path, actions = lake.history(NAME), []
    for part in (*PARTS, "open"):
        of_part = [row for row in rows if part_of(row) == part]
        for at in range(0, len(of_part), 100):
            table = pa.Table.from_pylist(of_part[at : at + 100], schema=history_schema(COLUMNS))
            actions.append(write_part(path, table, ["id", "_from_lsn", "_to_lsn"], {"_part": part}))
    put_commit(path, 1, "WRITE", actions)
    delta.update_incremental()
    marks = {HISTORY_APP: MOST, SNAPSHOT_APP: SNAPSHOT, SNAPSHOT_TIME_APP: 0}
    properties = CommitProperties(app_transactions=[Transaction(app, lsn) for app, lsn in marks.items()])
    delta.create_write_transaction([], "append", delta.schema(), ["_part"], commit_properties=properties)
    AppendLog(lake.changes, CHANGES_SCHEMA).append(None, {CHANGES_APP: MOST, ACKNOWLEDGED_APP: MOST})
    return rows


def read(lake: Lake) -> list[dict[str, Any]]:
    """Return all rows, read by deltalake."""
    found = pa.table(QueryBuilder().register("t", open_table(lake.history(NAME))).execute("select * from t"))
    return sorted(found.to_pylist(), key=lambda row: row["id"])


def test_clustering_separates_versions_by_start_and_age(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a month do not overlap, old versions have their own files, and every file has statistics."""
    lake = chosen_lake(tmp_path)
    make(lake)
    before = read(lake)
    monkeypatch.setattr(upkeep, "may_hold", lambda _: False)
    monkeypatch.setattr(order, "_FILE_BYTES", 4_000)
    monkeypatch.setattr(upkeep, "_SMALL_BYTES", 0)
    files = files_of(lake, NAME)
    due = find_due(data_files(files.table), everything=True)
    assert due.closed_parts == PARTS
    assert rewrite_due(Means(spark.newSession), files.table, due)

    assert read(lake) == before
    assert not find_due(data_files(files_of(lake, NAME).table), everything=True)
    assert {path.name for path in lake.history(NAME).iterdir()} == {
        "_delta_log",
        "_part=open",
        *map("_part={}".format, PARTS),
    }
    for part in PARTS:
        laid = sorted(
            files_of(lake, NAME).of_part(part).by_name.values(), key=lambda file: file.bounds("_from_lsn") or ()
        )
        bounds = [file.bounds("_from_lsn") for file in laid]
        end, length = (LEAST + MOST) // 2 if part == PARTS[0] else MOST, (MOST - LEAST) // 2
        assert all(bound and end - bound[0] <= 2 * (end - bound[1]) + length for bound in bounds), "an age is apart"
        assert all(one and other and one[1] <= other[0] for one, other in pairwise(bounds))
        assert len(laid) > order.AGES
        for file in laid:
            rows = pq.read_table(parquet(file_path(lake.history(NAME), file.add)), partitioning=None)
            begins, ends = (rows[name].to_pylist() for name in ("_from_lsn", "_to_lsn"))
            assert [*zip(begins, ends, strict=True)] == sorted(zip(begins, ends, strict=True))
            assert file.rows == rows.num_rows
            for name in ("id", "_from_lsn", "_to_lsn"):
                assert file.bounds(name) == (min(rows[name].to_pylist()), max(rows[name].to_pylist()))


@on_disk("an object has the time of its put")
def test_files_of_a_killed_clustering_are_deleted_after_a_day(spark: SparkSession, tmp_path: Path) -> None:
    """Including Spark's hidden files; files that another process is writing stay."""
    lake = chosen_lake(tmp_path)
    make(lake)
    before = read(lake)
    table = files_of(lake, NAME).table
    for name, age_h in (("unordered-old", 25), ("unordered-new", 23)):
        hidden = table.path / name / "_temporary" / "0" / "part-00000.parquet"
        hidden.parent.mkdir(parents=True)
        hidden.write_bytes(b"PAR1")
        began_s = time.time() - age_h * 3600
        os.utime(table.path / name, (began_s, began_s))
    upkeep.vacuum(Means(spark.newSession), table)
    assert [path.name for path in table.path.glob("unordered-*")] == ["unordered-new"]
    assert read(lake) == before


def test_a_state_of_clustered_files_has_the_right_versions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With files read whole and files read by LSN, in one stage and each alone."""
    lake = chosen_lake(tmp_path)
    rows = make(lake)
    monkeypatch.setattr(upkeep, "may_hold", lambda _: False)
    monkeypatch.setattr(order, "_FILE_BYTES", 4_000)
    assert rewrite_due(
        Means(spark.newSession), files_of(lake, NAME).table, upkeep.Due(open_part=False, closed_parts=PARTS)
    )
    compiled = spark.newSession()
    compiled.conf.set("spark.sql.codegen.wholeStage", "true")
    compiled.conf.set("spark.sql.codegen.factoryMode", "CODEGEN_ONLY")
    fused = 0
    for lsn in (SNAPSHOT, 4_321, LEAST, 9_400, 9_500, 9_750, MOST - 5):
        there = [row for row in rows if row["_from_lsn"] <= lsn and (row["_to_lsn"] is None or row["_to_lsn"] > lsn)]
        expected = {(row["id"], row["_age"]) for row in there}
        for session in (spark, compiled):
            state = auditlake.read(session, lake.root, "t", as_of=str(Lsn(lsn)))
            found = [tuple(row) for row in state.collect()]
            assert len(found) == len(expected)
            assert set(found) == expected
            third_of_state = state.where("id % 3 = 1")
            counted = third_of_state.selectExpr("count(*)", "sum(id)", "max(_age)").collect()[0]
            third = [row for row in there if row["id"] % 3 == 1]
            most = max((row["_age"] for row in third if row["_age"]), default=None)
            assert tuple(counted) == (len(third), sum(row["id"] for row in third) if third else None, most)
        # The state read last is that of the compiling session.
        plan = compiled.sql("explain select sum(id) from {state}", state=state).collect()[0][0]
        fused += ") Union" in plan
    assert fused > 3
