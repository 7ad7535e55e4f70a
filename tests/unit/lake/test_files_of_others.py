"""Conditions on rows of files that another writer has made: its Bloom filters and statistics must not hide rows."""

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditlake.delta.log_writer import moved, put_commit
from auditlake.delta.sql import open_duckdb
from auditlake.lake.duckdb_rows import rows_of
from auditlake.lake.history import HistoryTable, adopt_rows, create_history, history_schema
from auditlake.lake.history_files import find_files
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, Lake
from auditlake.relation import Column, TableName
from tests.read_lake import history_of

_NAME = TableName("public", "t")
_COLUMNS = (
    Column("content", 17, -1, key=True),
    Column("number", 701, -1, key=False),
    Column("real", 700, -1, key=False),
)
_VALUES = ((b"\xc8\x00", -0.0, -0.0), (b"\xff" * 300, 1.0, 1.0), (b"\xfe", math.nan, math.nan))
_ROWS = _VALUES * 50


def _with_bloom_filters(rows: pa.Table, path: Path) -> None:
    """Write with DuckDB, which makes them for every column with a dictionary."""
    with open_duckdb() as connection:
        connection.register("rows", rows)
        connection.execute(f"copy (from rows) to '{path}' (format parquet, dictionary_size_limit 1000)")
        found = connection.sql(
            f"select bloom_filter_offset from parquet_metadata('{path}') where path_in_schema = 'content'"
        )
        assert found.fetchone() != (None,)


def _with_statistics(rows: pa.Table, path: Path) -> None:
    """Write with Arrow, whose statistics leave out NaN."""
    pq.write_table(rows, path)


@pytest.mark.parametrize("write", [_with_bloom_filters, _with_statistics])
@pytest.mark.parametrize("first", [0, 1])
def test_every_row_is_found(tmp_path: Path, write: Callable[[pa.Table, Path], None], first: int) -> None:
    """As PostgreSQL finds them: 0 is equal to -0, and NaN to itself and greater than all other numbers."""
    lake = Lake(tmp_path)
    create_history(lake, _NAME, _COLUMNS, 1)
    put_commit(lake.history(_NAME), 1, "WRITE", moved({HISTORY_APP: 100, SNAPSHOT_APP: 100}))
    chosen = [row for row in _ROWS if row in _VALUES[first:]]
    place = lake.history(_NAME) / "_part=open" / "theirs.parquet"
    place.parent.mkdir()
    write(_rows(chosen), place)
    put_commit(lake.history(_NAME), 2, "OPTIMIZE", adopt_rows(_history(lake), "open", [place]))
    for content, number, _ in _VALUES[first:]:
        shown = "'nan'" if math.isnan(number) else f"{number + 0}"
        conditions = [f"content = from_hex('{content.hex()}')", f"content in (from_hex('{content.hex()}'), ''::blob)"]
        conditions += [f"number = {shown}::double", f"real = {shown}::float", f"number >= {shown} and real <= {shown}"]
        for condition in conditions[: 5 if content else 1]:
            assert _count(lake, condition) == len(_ROWS) // len(_VALUES), condition
    assert _count(lake, "number > 5 and real <> 1") == len(_ROWS) // len(_VALUES)


def _rows(values: Sequence[tuple[bytes, float, float]]) -> pa.Table:
    given = dict(zip((column.name for column in _COLUMNS), zip(*values, strict=True), strict=True))
    nothing = [None] * len(values)
    schema = history_schema(_COLUMNS)
    return pa.table([pa.array(given.get(name, nothing), schema.field(name).type) for name in schema.names], schema)


def _history(lake: Lake) -> HistoryTable:
    return history_of(lake, _NAME)


def _count(lake: Lake, condition: str) -> int:
    files = find_files(_history(lake))
    assert files is not None
    with closing(open_duckdb()) as connection:
        (found,) = connection.sql(f"select count(*) from ({rows_of(connection, files, ['*'], condition)})").fetchall()
    return int(found[0])
