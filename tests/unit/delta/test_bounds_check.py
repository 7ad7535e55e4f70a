"""Bounds of data files against their values: one that excludes a value hides its row from questions."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditlake.delta.bounds_check import wrong_bounds
from auditlake.delta.page_index import NOT_PARQUET, PageIndexes
from auditlake.delta.sql import open_duckdb

_AT = datetime(2026, 1, 1, 12, 0, 0, 250_999, UTC)
_ROWS = pa.table(
    {
        "whole": pa.array([0x1122334455667788, 0x2233445566778899, None], pa.int64()),
        "day": pa.array([date(1961, 7, 23), None, date(2026, 1, 1)]),
        "text": pa.array(["ab", "a long text that the log has cut", "zürich"]),
        "at": pa.array([_AT, _AT, None], pa.timestamp("us", tz="UTC")),
        "price": pa.array([Decimal("0.10"), Decimal("12345678901234567890.12"), None], pa.decimal128(38, 2)),
        "ratio": pa.array([float("nan"), -0.5, 2.5]),
        "share": pa.array([1.1, 0.3, 1.1], pa.float32()),
        "nothing": pa.array([None] * 3, pa.int32()),
        "list": pa.array([[1], [2], None]),
    }
)
_STATS: dict[str, Any] = {
    "numRecords": 3,
    "minValues": {
        "whole": 0x1122334455667788,
        "day": "1961-07-23",
        "text": "a long",
        "at": "2026-01-01T12:00:00.250Z",
        "price": 0.1,
        "ratio": -0.5,
        "share": 0.3,
    },
    "maxValues": {
        "whole": 0x2233445566778899,
        "day": "2026-01-01",
        "text": "zü\U0010ffff",
        "at": "2026-01-01T13:00:00.250+01:00",
        "price": 1.2345678901234567e19,
        "ratio": "NaN",
        "share": 1.1,
    },
    "nullCount": {"whole": 1, "day": 1, "text": 0, "nothing": 3},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of two row groups."""
    pq.write_table(_ROWS, tmp_path / "file.parquet", row_group_size=2)
    return tmp_path / "file.parquet"


def test_bounds_of_every_type_admit_their_values(file: Path) -> None:
    """Also cut, rounded, wider ones, and none at all."""
    assert list(wrong_bounds(file, _STATS)) == []
    assert list(wrong_bounds(file, {"numRecords": 3})) == []
    assert list(wrong_bounds(file, {})) == []


def test_the_last_moment_of_the_calendar_is_admitted_by_its_rounded_bound(tmp_path: Path) -> None:
    """Many applications write it in place of no end."""
    file = tmp_path / "file.parquet"
    moments = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)]
    pq.write_table(pa.table({"at": pa.array(moments, pa.timestamp("us", "UTC"))}), file)
    bounds = {"minValues": {"at": "0001-01-01T00:00:00.000Z"}, "maxValues": {"at": "9999-12-31T23:59:59.999Z"}}
    assert list(wrong_bounds(file, bounds)) == []


@pytest.mark.parametrize(
    ("part", "column", "bound"),
    [
        ("minValues", "whole", 0x1122334455667789),
        ("maxValues", "whole", 0x2233445566778898),
        ("minValues", "day", "1961-07-24"),
        ("maxValues", "day", "2025-12-31"),
        ("minValues", "text", "a long texu"),
        ("maxValues", "text", "zz"),
        ("minValues", "at", "2026-01-01T12:00:00.251Z"),
        ("maxValues", "at", "2026-01-01T12:00:00.249Z"),
        ("minValues", "price", 0.2),
        ("maxValues", "price", 1.2345678901234e19),
        ("minValues", "ratio", 0),
        ("maxValues", "ratio", 2),
        ("minValues", "share", 0.3000001),
        ("maxValues", "share", 1.0999999),
        ("nullCount", "whole", 3),
        ("nullCount", "whole", 0),
        ("nullCount", "text", 3),
    ],
)
def test_a_bound_in_the_log_that_excludes_a_value_is_found(file: Path, part: str, column: str, bound: object) -> None:
    """By its column; the message has no value."""
    stats = _STATS | {part: _STATS[part] | {column: bound}}
    assert list(wrong_bounds(file, stats)) == [f"those of {column} in the log exclude a value"]


@pytest.mark.parametrize("value", [0x1122334455667788, 0x2233445566778899])
def test_a_bound_in_the_file_that_excludes_a_value_is_found(file: Path, value: int) -> None:
    """Of one row group, whose values are as they were."""
    content, forged = file.read_bytes(), (0x1B22334455667788).to_bytes(8, "little")
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    changed = content[footer:].replace(value.to_bytes(8, "little"), forged)
    assert changed != content[footer:]
    file.write_bytes(content[:footer] + changed)
    assert pq.ParquetFile(file).read(["whole"]) == _ROWS.select(["whole"])
    assert list(wrong_bounds(file, {})) == ["those of whole in the file exclude a value"]


def test_a_bound_that_is_none_is_found(file: Path) -> None:
    """It is of another type than the column."""
    stats = {"minValues": {"whole": [1], "day": "tomorrow"}, "maxValues": {}}
    found = list(wrong_bounds(file, stats))
    assert found == ["those of whole cannot be read: TypeError", "those of day cannot be read: ValueError"]


_PAGE_ROWS = 1024
_MANY = pa.table(
    {
        "list": pa.array([[n] for n in range(4 * _PAGE_ROWS)]),
        "whole": pa.array([None if n % 10 == 9 else n for n in range(4 * _PAGE_ROWS)], pa.int64()),
        "small": pa.array([n % 7 - 3 for n in range(4 * _PAGE_ROWS)], pa.int16()),
        "day": pa.array([-n for n in range(4 * _PAGE_ROWS)], pa.int32()).cast(pa.date32()),
        "text": pa.array([f"{n:05} is a text" for n in range(4 * _PAGE_ROWS)]),
        "at": pa.array([n - 2000 for n in range(4 * _PAGE_ROWS)], pa.timestamp("us", tz="UTC")),
        "price": pa.array([Decimal(n - 2000).scaleb(-2) for n in range(4 * _PAGE_ROWS)], pa.decimal128(38, 2)),
        "cents": pa.array([Decimal(n).scaleb(-2) for n in range(4 * _PAGE_ROWS)], pa.decimal128(9, 2)),
        "ratio": pa.array([n / 8 - 99 for n in range(4 * _PAGE_ROWS)]),
        "real": pa.array([n / 8 - 99 for n in range(4 * _PAGE_ROWS)], pa.float32()),
        "flag": pa.array([n > _PAGE_ROWS for n in range(4 * _PAGE_ROWS)]),
        "nothing": pa.array([None if n < 2 * _PAGE_ROWS else n for n in range(4 * _PAGE_ROWS)], pa.int32()),
    }
)


@pytest.fixture(params=[True, False], ids=["dictionary", "plain"])
def pages(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A file of one row group with an index of its pages."""
    file = tmp_path / "file.parquet"
    options = {"decimal": {"store_decimal_as_integer": True}, "dictionary": {"use_dictionary": request.param}}
    pq.write_table(_MANY, file, write_page_index=True, data_page_size=1, **options["decimal"], **options["dictionary"])
    return file


def test_a_page_index_admits_its_values(pages: Path) -> None:
    """Of every type, with pages that have only NULL; it has as many pages as the file."""
    assert list(wrong_bounds(pages, {})) == []
    with pages.open("rb") as content:
        found = [PageIndexes(content).pages(0, place) for place in range(_MANY.num_columns)]
    for name, each in zip(_MANY.column_names, found, strict=True):
        assert len(each.pages) > 1, name
        assert [page.first + page.rows for page in each.pages[:-1]] == [page.first for page in each.pages[1:]]
        assert all(page.bounds or page.only_nulls for page in each.pages), name


def _replaced(file: Path, before: bytes, after: bytes) -> None:
    """Replace bytes once, in the last place between the pages and the footer."""
    content = file.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    last = pq.read_metadata(file).row_group(0).column(_MANY.num_columns - 1)
    place = content.rindex(before, last.data_page_offset, footer)
    file.write_bytes(content[:place] + after + content[place + len(before) :])
    assert pq.read_table(file) == _MANY


@pytest.mark.parametrize(
    ("column", "before", "after"),
    [
        ("whole", (2 * _PAGE_ROWS).to_bytes(8, "little"), (2 * _PAGE_ROWS + 1).to_bytes(8, "little")),
        ("text", b"02048 is a text", b"02049 is a text"),
        ("day", (-2048).to_bytes(4, "little", signed=True), (-2049).to_bytes(4, "little", signed=True)),
    ],
)
def test_a_bound_in_a_page_index_that_excludes_a_value_is_found(
    pages: Path, column: str, before: bytes, after: bytes
) -> None:
    """Of one page; the footer admits the value."""
    _replaced(pages, before, after)
    assert list(wrong_bounds(pages, {})) == [f"those of {column} in a page index exclude a value"]


@pytest.mark.parametrize(
    ("before", "after", "wrong"),
    [
        ("19210202", "19210102", "in a page index exclude a value"),
        ("1926802000", "1926822000", "in a page index exclude a value"),
        ("15021926", "15041926", "in a page index exclude a value"),
        ("1680300000", "1682300000", "cannot be read: ValueError"),
    ],
    ids=["page of NULL", "number of NULL", "order of bounds", "first row"],
)
def test_an_index_that_says_something_else_is_found(tmp_path: Path, before: str, after: str, wrong: str) -> None:
    """Of the last column, which has a page with NULL and one without."""
    file = tmp_path / "file.parquet"
    pq.write_table(_MANY, file, write_page_index=True, data_page_size=1, use_dictionary=False)
    _replaced(file, bytes.fromhex(before), bytes.fromhex(after))
    assert list(wrong_bounds(file, {})) == [f"those of nothing {wrong}"]


def test_an_index_that_is_longer_than_memory_is_found(tmp_path: Path) -> None:
    """No memory is asked for: the file is shorter."""
    file = tmp_path / "file.parquet"
    pq.write_table(_MANY.select(["text"]), file, write_page_index=True, data_page_size=1)
    content = file.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    with file.open("rb") as opened:
        chunk = PageIndexes(opened)._groups[0][0]  # noqa: SLF001 - where the index is
    before, after = (b"\x16" + _varint(chunk[6]) + b"\x15" + _varint(length) for length in (chunk[7], 1 << 60))
    assert content[footer:].count(before) == 1
    changed = content[footer:-8].replace(before, after)
    file.write_bytes(content[:footer] + changed + len(changed).to_bytes(4, "little") + b"PAR1")
    with file.open("rb") as opened, pytest.raises(NOT_PARQUET):
        PageIndexes(opened).pages(0, 0)


def _varint(number: int) -> bytes:
    """Return a number as Thrift's compact protocol has it."""
    left, found = number << 1, b""
    while left > 0x7F:
        left, found = left >> 7, found + bytes([left & 0x7F | 0x80])
    return found + bytes([left])


def test_pages_without_the_dictionary_are_found(tmp_path: Path) -> None:
    """Spark leaves out a row group if its dictionary lacks a value, and the footer says that all pages use it."""
    file = tmp_path / "file.parquet"
    pq.write_table(_MANY.select(["text"]), file, data_page_size=1, dictionary_pagesize_limit=1)
    assert list(wrong_bounds(file, {})) == []
    content = file.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    plain, by_dictionary = (b"\x15\x00\x15" + encoding + b"\x15" for encoding in (b"\x00", b"\x10"))
    assert content[footer:].count(plain) == 1
    file.write_bytes(content[:footer] + content[footer:].replace(plain, by_dictionary))
    assert list(wrong_bounds(file, {})) == ["those of text cannot be read: ValueError"]


def test_a_bloom_filter_is_reported(tmp_path: Path) -> None:
    """It might exclude any value."""
    file = tmp_path / "file.parquet"
    with open_duckdb() as connection:
        connection.execute(f"copy (select n % 3 as n from range(100) r(n)) to '{file}' (format parquet)")
    assert list(wrong_bounds(file, {})) == ["a Bloom filter of n may exclude a value"]
