"""A row that is too large for the heap parks its table before the commit that has it; a larger heap folds it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import auditlake
from auditlake.apply import large_rows
from auditlake.apply.apply import apply_pending
from auditlake.apply.large_rows import HEAP_PER_ROW, find_too_large, has_large_rows, one_row_at_a_time
from auditlake.apply.tails import Tail, find_tails, open_log
from auditlake.delta.append_table import AppendLog
from auditlake.errors import NotAnswerable
from auditlake.lake.history import open_history
from auditlake.lake.layout import ACKNOWLEDGED_APP, CHANGES_APP, Lake
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from tests.small_lake import CUSTOMERS, ORDERS, T0, write_small_lake
from tests.spark.apply.harness import only_spark

pytestmark = pytest.mark.spark

_LARGE = 10_000
_SMALL_HEAP = HEAP_PER_ROW * _LARGE // 2


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The small lake, and later commits: both tables at 0x500, orders with a large row at 0x510, both at 0x520."""
    lake = write_small_lake(tmp_path / "lake")
    orders, customers = ({"table": name.table, "relation": number} for name, number in ((ORDERS, 1), (CUSTOMERS, 2)))
    rows = [
        _change(0x500, 0, "insert", ["7", "x", None, None], orders),
        _change(0x500, 1, "insert", ["7", "Sven"], customers),
        _change(0x510, 0, "update", ["7", "x" * _LARGE, None, None], orders),
        _change(0x520, 0, "insert", ["8", "y", None, None], orders),
        _change(0x520, 1, "insert", ["8", "Ole"], customers),
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=CHANGES_SCHEMA)
    AppendLog(lake.changes, CHANGES_SCHEMA).append(batch, {CHANGES_APP: 0x520, ACKNOWLEDGED_APP: 0x530})
    return lake


def _change(lsn: int, ordinal: int, op: str, new: list[str | None], table: dict[str, Any]) -> dict[str, Any]:
    place = {"lsn": lsn, "ordinal": ordinal, "xid": lsn, "time": T0}
    return {**place, "op": op, "schema": "public", **table, "old": None, "new": new}


def _positions(lake: Lake) -> list[int]:
    tables = (open_history(lake, name) for name in (ORDERS, CUSTOMERS))
    return [table.position for table in tables if table is not None]


def test_a_row_too_large_for_the_heap_parks_its_table(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came before it is folded, other tables are folded to the end, and with more heap all is."""
    monkeypatch.setattr("auditlake.apply.apply.heap_bytes", lambda _: _SMALL_HEAP)
    monkeypatch.setattr("auditlake.query.as_of.heap_bytes", lambda _: _SMALL_HEAP)
    with pytest.raises(NotAnswerable, match=r"a row of 0 MB in or before its commit at 0/510 needs a heap of 1 MB"):
        auditlake.read(spark, lake.root, "orders")
    for _ in range(2):  # every start finds the same
        with only_spark():
            (parked,) = apply_pending(lambda: spark, lake).parked.values()
        assert (parked.table, parked.lsn, parked.until) == (ORDERS, 0x50F, 0x510)
        assert "needs a heap of 1 MB, Spark has 0 MB" in parked.reason
        assert "spark.driver.memory" in parked.remedy
        assert _positions(lake) == [0x50F, 0x520]
    monkeypatch.undo()
    with only_spark():
        while apply_pending(lambda: spark, lake).freed:
            pass
    assert _positions(lake) == [0x520, 0x520]


def test_a_large_row_of_the_history_counts_where_it_is_read(spark: SparkSession, lake: Lake) -> None:
    """An update looks for the versions that end; an insert does not."""
    apply_pending(lambda: spark, lake, Lsn(0x510))
    later = [_change(0x600, 0, "insert", ["9", "z", None, None], {"table": "orders", "relation": 1})]
    batch = pa.RecordBatch.from_pylist(later, schema=CHANGES_SCHEMA)
    log = AppendLog(lake.changes, CHANGES_SCHEMA)
    log.append(batch, {CHANGES_APP: 0x600})
    assert _too_large(lake, 0x600) is None
    batch = pa.RecordBatch.from_pylist(
        [_change(0x610, 0, "update", ["7", "z", None, None], {"table": "orders", "relation": 1})], schema=CHANGES_SCHEMA
    )
    log.append(batch, {CHANGES_APP: 0x610})
    assert _too_large(lake, 0x610) == 0x520, "the first commit of the tail"


def _too_large(lake: Lake, upto: int) -> Lsn | None:
    table, log = open_history(lake, ORDERS), open_log(lake)
    assert table is not None
    assert log is not None
    (tail,) = find_tails(lake, log, {table: table.position}, Lsn(upto))
    found = find_too_large(lake, tail, _SMALL_HEAP)
    return None if found is None else found.lsn


def test_settings_for_large_rows_last_no_longer_than_they_do(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the caller's session are never changed."""
    names = ("spark.sql.parquet.enableVectorizedReader", "spark.sql.shuffle.partitions")
    before = [spark.conf.get(name) for name in names]
    monkeypatch.setattr(large_rows, "LARGE_BYTES", 0)
    used = []

    def noted(tail: Tail) -> bool:
        used.append(has_large_rows(tail))
        return used[-1]

    monkeypatch.setattr("auditlake.apply.apply.has_large_rows", noted)
    assert auditlake.read(spark, lake.root, "orders").count() == 5
    apply_pending(lambda: spark, lake)
    assert used
    assert all(used)
    assert _positions(lake) == [0x520, 0x520]
    assert [spark.conf.get(name) for name in names] == before
    session = spark.newSession()
    with one_row_at_a_time(session):
        assert [session.conf.get(name) for name in names] == ["false", "1"]
    assert [session.conf.get(name) for name in names] == before


def test_a_large_tail_is_answered_in_many_partitions(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are fetched a partition at a time."""
    few = auditlake.read(spark, lake.root, "orders")
    monkeypatch.setattr("auditlake.query.as_of.WINDOW_BYTES", 0)
    monkeypatch.setattr("auditlake.query.as_of._PARTITION_BYTES", 200)
    many = auditlake.read(spark, lake.root, "orders")
    assert sorted(many.collect()) == sorted(few.collect())
    assert many.rdd.getNumPartitions() > few.rdd.getNumPartitions() + 5
