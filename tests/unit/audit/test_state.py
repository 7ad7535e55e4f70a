"""State of a table as Arrow, on the small lake and on tables without a key; walks compare it with PostgreSQL."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from auditlake.audit.columns_over_time import Later
from auditlake.audit.lake_reader import Reader
from auditlake.audit.state import Page, open_state
from auditlake.delta.deletion_vectors import write_vectors
from auditlake.delta.log_reader import live_files
from auditlake.delta.log_writer import added_file, put_commit
from auditlake.delta.table import open_table
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.lake.relations import RelationsLog
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from tests.read_lake import history_of
from tests.small_lake import CUSTOMERS, T0, T0_US, add_columns, version, write_history, write_log, write_small_lake

_NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)
_Asked = tuple[str, str] | tuple[str, str, Any]
_DAYS = TableName("public", "days")
_DAY_COLUMNS = (Column("id", 23, -1, key=True), Column("day", 1082, -1, key=False))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A reader of the small lake, in a folder that looks like a pattern, with a table of dates out of range."""
    lake = write_small_lake(tmp_path_factory.mktemp("state") / "a {b,c} lake")
    positions = {HISTORY_APP: 0x200, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    days = [("1", date(2026, 1, 1), None), ("2", None, "infinity"), ("3", None, "0044-03-15 BC"), ("4", None, None)]
    rows = [
        version(0x100, None, "snapshot", None) | {"id": int(n), "day": day, "_raw": [("day", raw)] if raw else None}
        for n, day, raw in days
    ]
    write_history(lake, _DAYS, _DAY_COLUMNS, rows, positions)
    return Reader(lake, _NOW)


def _state(reader: Reader, table: str, lsn: int, **given: Any) -> list[tuple[Any, ...]]:
    rows = open_state(reader, reader.table(table), Lsn(lsn), **given).read_all().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=str)


@pytest.mark.parametrize(
    ("lsn", "rows"),
    [
        (0x14F, [(1, "a", Decimal("1.00")), (2, "", Decimal("10.50"))]),
        (0x150, [(1, "b", Decimal("2.00")), (2, "", Decimal("10.50"))]),
        (0x200, [(1, "b", Decimal("2.00")), (3, None, None)]),
        (0x250, [(1, "c", Decimal("3.00")), (3, None, None), (4, "new", Decimal("4.00"))]),
        (0x300, [(1, "c", Decimal("3.00")), (4, "new", Decimal("4.00"))]),
    ],
)
def test_a_state_comes_from_the_history_and_the_tail(reader: Reader, lsn: int, rows: list[tuple[Any, ...]]) -> None:
    """Typed, in the order of the source's columns; changes above the watermark are not shown."""
    assert _state(reader, "orders", lsn, columns=["id", "note", "price"]) == rows
    assert open_state(reader, reader.table("orders"), Lsn(lsn)).schema == pa.schema(
        [("id", pa.int32()), ("note", pa.string()), ("price", pa.decimal128(10, 2)), ("at", pa.timestamp("us", "UTC"))]
    )


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        (("note", "=", "b"), [1]),
        (("note", "is null"), [3]),
        (("id", "<>", "1"), [3]),
        (("price", ">=", Decimal(2)), [1]),
        (("price", "<", "2.00"), []),
        (("note", "contains", "b"), [1]),
        (("note", "begins with", "a"), []),
        (("note", "<>", "a"), [1]),
    ],
)
def test_a_filter_compares_as_the_type_does(reader: Reader, asked: _Asked, ids: list[int]) -> None:
    """A value may be a text, as a person types it."""
    assert [row[0] for row in _state(reader, "orders", 0x200, where=[asked])] == ids


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        (("day", "=", "infinity"), [2]),
        (("day", "<>", "infinity"), [1, 3]),
        (("day", ">", "2020-01-01"), [1, 2]),
        (("day", "<", "2026-01-01"), [3]),
        (("day", "<>", "2026-01-01"), [2, 3]),
        (("day", "is null"), [4]),
        (("day", "is not null"), [1, 2, 3]),
    ],
)
def test_a_filter_sees_values_outside_of_their_type(reader: Reader, asked: _Asked, ids: list[int]) -> None:
    """Infinity is later than every date, BC is earlier, and neither is NULL."""
    assert [row[0] for row in _state(reader, "days", 0x200, where=[asked])] == ids


@pytest.mark.parametrize(
    ("sign", "value", "ids"),
    [(">", "5", [2, 4]), ("<>", "1", [2, 4]), (">=", "NaN", [2, 4]), ("=", "NaN", [2, 4]), ("<", "NaN", [1, 3])],
)
def test_nan_is_greater_than_every_number(tmp_path: Path, sign: str, value: str, ids: list[int]) -> None:
    """As in PostgreSQL, in files and in changes not applied: statistics of files and Arrow's filters leave it out."""
    lake = write_small_lake(tmp_path / "lake")
    points = TableName("public", "points")
    columns = (Column("id", 23, -1, key=True), Column("v", 701, -1, key=False))
    rows = [version(0x100, None, "snapshot", None) | {"id": n, "v": v} for n, v in ((1, 1.0), (2, float("nan")))]
    write_history(lake, points, columns, rows, {HISTORY_APP: 0x200, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}, 9)
    relations = RelationsLog(lake)
    relation = relations.register(Relation(9, points, ReplicaIdentity.DEFAULT, columns), Lsn(0x410))
    relations.flush()
    log = {"lsn": 0x410, "xid": 9, "time": T0, "op": "insert", "schema": "public", "table": "points"}
    changes = [
        log | {"ordinal": n, "relation": relation, "new": row} for n, row in enumerate((["3", "1"], ["4", "NaN"]))
    ]
    transaction = {"lsn": 0x410, "end_lsn": 0x411, "xid": 9, "time": T0, "time_mono": T0, "inserts": 2}
    write_log(lake, [transaction], changes, acknowledged_lsn=0x411, current_us=T0_US + 200_000_000)
    found = open_state(Reader(lake, _NOW), Reader(lake, _NOW).table("points"), Lsn(0x410), where=[("v", sign, value)])
    assert sorted(found.read_all()["id"].to_pylist()) == ids


def test_a_page_is_ordered_as_postgresql_orders(reader: Reader) -> None:
    """NULL last, or first in descending order."""
    days = reader.table("days")
    for page, ids in ((Page(("day",)), [3, 1, 2, 4]), (Page(("-day",)), [4, 2, 1, 3]), (Page(("day",), 2, 1), [1, 2])):
        assert open_state(reader, days, Lsn(0x200), columns=["id"], page=page).read_all()["id"].to_pylist() == ids


def test_what_cannot_be_answered_is_refused(reader: Reader) -> None:
    """A moment before the snapshot or after the watermark, a column that is not there."""
    orders = reader.table("orders")
    with pytest.raises(NotAnswerable, match="its history begins at 0/100"):
        open_state(reader, orders, Lsn(0xFF))
    with pytest.raises(NotAnswerable, match="known up to"):
        open_state(reader, orders, Lsn(0x1000))
    with pytest.raises(BadUsage, match="no column nothing"):
        open_state(reader, orders, Lsn(0x200), columns=["nothing"])


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (("id", "contains", "1"), "cannot be filtered by has"),
        (("id", "~", "1"), "is not a comparison"),
        (("id", "=", None), "with no value"),
        (("id", "=", "one"), "not a valid integer"),
    ],
)
def test_a_filter_without_a_meaning_is_refused(reader: Reader, asked: tuple[str, str, Any], why: str) -> None:
    """An operation that the type lacks, one that there is not, and values that are none of the type."""
    with pytest.raises(BadUsage, match=why):
        open_state(reader, reader.table("orders"), Lsn(0x200), where=[asked])


def test_raw_has_the_text_of_what_does_not_fit(reader: Reader) -> None:
    """As in the history."""
    rows = open_state(reader, reader.table("days"), Lsn(0x200), columns=["id"], raw=True).read_all().to_pylist()
    assert {row["id"]: row["_raw"] and dict(row["_raw"]) for row in rows} == {
        1: None,
        2: {"day": "infinity"},
        3: {"day": "0044-03-15 BC"},
        4: None,
    }


def test_rows_that_a_deletion_vector_marks_are_left_out(tmp_path: Path) -> None:
    """In the file whose vector marks them, and in no other."""
    lake = write_small_lake(tmp_path / "lake")
    path = lake.history(TableName("public", "orders"))
    (add,) = [
        each for each in live_files(path, open_table(path).version()) if each["partitionValues"]["_part"] == "open"
    ]
    _mark(lake, add, 1)
    reader = Reader(lake, _NOW)
    rows = _state(reader, "orders", 0x200, columns=["id"])
    marked = Reader(lake, _NOW).table("orders")
    assert len(rows) == 1
    assert rows[0][0] in {1, 3}
    assert marked.delta_version == open_table(path).version()


def _mark(lake: Lake, add: Any, row: int) -> None:
    from pyroaring import BitMap64  # noqa: PLC0415 - one test

    path = lake.history(TableName("public", "orders"))
    (vector,) = write_vectors(path, [BitMap64([row])])
    again = {"add": {**added_file(add["path"], add["partitionValues"], add["size"], add["stats"])["add"]}}
    again["add"]["deletionVector"] = vector
    removed = {"remove": {**{k: add[k] for k in ("path", "partitionValues", "size")}, "dataChange": True}}
    put_commit(path, open_table(path).version() + 1, "UPDATE", [removed, again])


def test_a_column_that_no_file_has_is_null(tmp_path: Path) -> None:
    """It was added, and no row was written since; other files may have it."""
    lake = write_small_lake(tmp_path / "lake")
    table = history_of(lake, CUSTOMERS)
    before = _state(Reader(lake, _NOW), "customers", 0x180)
    add_columns(table, Column("added", 1700, -1, key=False, since=Lsn(0x180)))
    assert _state(Reader(lake, _NOW), "customers", 0x180) == [(*row, None) for row in before]


def test_a_column_that_was_added_and_dropped_keeps_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are applied, and the moment asked for is between them."""
    lake = write_small_lake(tmp_path / "lake")
    gone = Column("gone", 25, -1, key=False, since=Lsn(0x140), until=Lsn(0x180))
    rows = [version(0x150, None, "insert", None) | {"id": 1, "gone": "x"}]
    name, columns = TableName("public", "narrower"), (Column("id", 23, -1, key=True), gone)
    write_history(lake, name, columns, rows, {HISTORY_APP: 0x200, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US})
    monkeypatch.setattr(Reader, "later", lambda _, __: {"gone": Later(Lsn(0x140), None, exact=True)})
    assert _state(Reader(lake, _NOW), "narrower", 0x160) == [(1, "x")]
