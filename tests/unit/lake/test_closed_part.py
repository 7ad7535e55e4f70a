"""The partition of a version that has ended: one rule in Python and in the SQL of the fold."""

import re
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from auditlake.delta.sql import open_duckdb
from auditlake.fold import stages
from auditlake.lake.history import closed_part

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ended", "part"),
    [
        (datetime(2026, 1, 31, 23, 59, 59, 999_999, UTC), "2026-01"),
        (datetime(2026, 2, 1, tzinfo=UTC), "2026-02"),
        (datetime(2025, 12, 31, 23, 59, 59, 999_999, UTC), "2025-12"),
        (datetime(2000, 2, 29, 12, tzinfo=UTC), "2000-02"),
    ],
)
def test_a_version_is_in_the_month_in_which_it_ended(ended: datetime, part: str) -> None:
    """In UTC, to the last microsecond; and where the fold would put it."""
    assert closed_part((ended - _EPOCH) // timedelta(microseconds=1)) == part
    (rule,) = re.findall(r"(coalesce\(strftime\(_to_time, .*\)) as _part", stages.ROWS)
    times = pa.table({"_to_time": pa.array([ended, None], pa.timestamp("us", "UTC"))})
    with open_duckdb() as connection:
        connection.register("times", times)
        assert connection.execute(f"select {rule} from times").fetchall() == [(part,), ("open",)]
