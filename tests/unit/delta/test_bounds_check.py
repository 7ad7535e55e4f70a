"""Bounds of data files against their values: one that excludes a value hides its row from questions."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditlake.delta.bounds_check import wrong_bounds

_AT = datetime(2026, 1, 1, 12, 0, 0, 250_999, UTC)
_ROWS = pa.table(
    {
        "whole": pa.array([0x1122334455667788, 0x2233445566778899, None], pa.int64()),
        "day": pa.array([date(1961, 7, 23), None, date(2026, 1, 1)]),
        "text": pa.array(["ab", "a long text that the log has cut", "zürich"]),
        "at": pa.array([_AT, _AT, None], pa.timestamp("us", tz="UTC")),
        "price": pa.array([Decimal("0.10"), Decimal("12345678901234567890.12"), None], pa.decimal128(38, 2)),
        "ratio": pa.array([float("nan"), -0.5, 2.5]),
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
    },
    "maxValues": {
        "whole": 0x2233445566778899,
        "day": "2026-01-01",
        "text": "zü\U0010ffff",
        "at": "2026-01-01T13:00:00.250+01:00",
        "price": 1.2345678901234567e19,
        "ratio": "NaN",
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
