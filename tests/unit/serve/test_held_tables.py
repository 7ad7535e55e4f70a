"""Rows of large tables in memory: sorted, filtered and far pages are the same as from the files; memory is bounded."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from auditlake.lake.history import create_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.relation import Column, TableName
from auditlake.serve.held_tables import HeldTables
from tests.page import Page, write_lake
from tests.s3_server import on_disk
from tests.small_lake import T0_US

_ROWS = 300_000  # DuckDB inserts more than 122,880 rows in several threads
_ITEMS = (
    Column("id", 20, -1, key=True),
    Column("price", 1700, ((10 << 16) | 2) + 4, key=False),
    Column("note", 25, -1, key=False),
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The small lake with two large tables `items` and `others`: id 0 … 299,999, price id % 1,000, files unsorted.

    Every seventh note is NULL: those of 42,858 rows.
    """
    lake = write_lake(tmp_path_factory.mktemp("held") / "lake")
    for oid, name in ((101, "items"), (102, "others")):
        table = create_history(lake, TableName("public", name), _ITEMS, oid)
        schema = pa.schema(table.schema().to_arrow())
        ids = np.random.default_rng(5).permutation(_ROWS)
        given = {
            "id": pa.array(ids),
            "price": pa.array(ids % 1000).cast(pa.decimal128(19)),
            "note": pa.array([f"note {n % 50}" if n % 7 else None for n in ids.tolist()]),
            "_from_lsn": pa.array(np.full(_ROWS, 0x100)),
            "_from_time": pa.array(np.full(_ROWS, T0_US)),
            "_op": pa.array(["snapshot"] * _ROWS),
            "_ordinal": pa.array(np.zeros(_ROWS, np.int32)),
            "_part": pa.array(["open"] * _ROWS),
        }
        columns = [given[field.name] if field.name in given else pa.nulls(_ROWS) for field in schema]
        rows = pa.table([column.cast(field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)
        positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
        transactions = [Transaction(app, version) for app, version in positions.items()]
        write_deltalake(table, rows, mode="append", commit_properties=CommitProperties(app_transactions=transactions))
    return lake


_QUESTIONS: tuple[tuple[dict[str, object], list[int]], ...] = (
    ({"offset": 200_000}, [200_000, 200_001, 200_002]),
    ({"sort": "-id", "offset": 9}, [299_990, 299_989, 299_988]),
    ({"sort": "price", "offset": 150_000}, [500, 1500, 2500]),  # 300 rows of each price
    ({"sort": "-price", "offset": 299_997}, [297_000, 298_000, 299_000]),
    ({"sort": "price", "offset": 149_999}, [299_499, 500, 1500]),
    ({"sort": "-price", "offset": 150_299}, [299_499, 498, 1498]),
    ({"where": "price:ge:500", "sort": "price", "offset": 75_001}, [1750, 2750, 3750]),
    ({"sort": "id", "offset": 299_998}, [299_998, 299_999]),
    ({"where": "price:is:7", "offset": 100}, [100_007, 101_007, 102_007]),
    ({"where": "price:ge:998", "sort": "-price"}, [999, 1999, 2999]),
    ({"where": "id:ge:299998"}, [299_998, 299_999]),
    ({"offset": 299_999}, [299_999]),
    ({"offset": 300_000}, []),
)


def test_pages_are_the_same_before_and_after_rows_are_held(lake: Lake) -> None:
    """By hand: order by a column is then by the key, and every page is cut from that order."""
    for held in (False, True):
        page = Page(lake)
        if held:
            page.json("rows", table="items", limit=1)
            page.resources.held.wait()
        for question, expected in _QUESTIONS:
            found = page.json("rows", table="items", limit=3, **question)
            assert [int(row["values"][0]) for row in found["rows"]] == expected, question
            assert all(row["values"][1] == f"{int(row['values'][0]) % 1000}.00" for row in found["rows"])
        if held:
            assert page.resources.held.names == ["public.items"]


def test_far_pages_are_those_of_the_files(lake: Lake) -> None:
    """Also beside NULL, which is last, or first if the order is descending; and in a selection of rows."""
    files, memory = Page(lake), Page(Lake(lake.root))  # answers are kept by the session of a lake
    memory.json("rows", table="items", limit=1)
    memory.resources.held.wait()
    draw = random.Random(3)  # noqa: S311 - no secrets
    for sort, where, edge in (("note", [], 257_142), ("-note", [], 42_858), ("-note", ["price:lt:500"], 21_429)):
        for offset in (edge - 20, edge - 5, draw.randrange(5000, 150_000)):
            asked = {"table": "items", "sort": sort, "where": where, "offset": offset, "limit": 10}
            assert memory.json("rows", **asked)["rows"] == files.json("rows", **asked)["rows"], asked


def test_the_table_used_last_stays_in_bounded_memory(lake: Lake) -> None:
    """There is room for one of two tables; one that needs more than two thirds of the memory is never held."""
    page = Page(lake)
    page.resources.held = HeldTables(page.resources.cursor, most_bytes=32 << 20, quiet_s=0)
    for offset, name in enumerate(("items", "others", "items")):
        page.json("rows", table=name, sort="price", offset=offset)
        page.resources.held.wait()
        assert page.resources.held.names == [f"public.{name}"]
        assert 0 < page.resources.held.held_bytes <= 24 << 20
    page.resources.held = HeldTables(page.resources.cursor, most_bytes=6 << 20, quiet_s=0)
    page.json("rows", table="others", sort="-price", limit=1)
    page.resources.held.wait()
    assert page.resources.held.held_bytes == 0
    found = page.json("rows", table="others", sort="price", offset=1, limit=1)
    assert found["rows"][0]["values"] == ["1000", "0.00", "note 0"]


def test_a_table_that_cannot_be_held_does_not_keep_others_out(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Memory ran out: the requests read the files, and the failure is reported."""
    page, made = Page(lake), HeldTables._made  # noqa: SLF001 - a failure is injected

    def fails(held: HeldTables, cursor: Any, reader: Any, rows: Any) -> Any:
        if rows.table.name.table == "items":
            raise MemoryError
        return made(held, cursor, reader, rows)

    monkeypatch.setattr(HeldTables, "_made", fails)
    page.resources.held = HeldTables(page.resources.cursor, quiet_s=0)
    for name in ("items", "others"):
        assert page.json("rows", table=name, sort="price", limit=1)["rows"]
        page.resources.held.wait()
    assert page.resources.held.names == ["public.others"]
    assert "public.items is not held in memory: memory ran out" in capsys.readouterr().err


@on_disk("one of a bucket is held")
def test_a_small_table_is_read_from_its_files(tmp_path: Path) -> None:
    """Tables of less than 20,000 rows are not held."""
    page = Page(write_lake(tmp_path / "lake"))
    page.json("rows", table="orders", sort="price")
    page.resources.held.wait()
    assert page.resources.held.names == []
