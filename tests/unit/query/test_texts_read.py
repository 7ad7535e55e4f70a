"""Whether a statement has to read `_raw`: the statistics of files may show that no value is kept as a text alone."""

from collections.abc import Iterable
from datetime import UTC
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditlake.delta import row_groups
from auditlake.delta.log_writer import moved, put_commit
from auditlake.errors import NotAnswerable
from auditlake.lake.history import create_history, history_schema, write_rows
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.query.duckdb_views import StatementDatabase, rows_of_view
from auditlake.query.in_duckdb import InDuckDb
from auditlake.query.languages import POSTGRES, SPARK, Dialect
from auditlake.query.statement import prepare_statement, read_state
from tests.read_lake import history_of
from tests.s3_server import chosen_lake
from tests.small_lake import ORDER_COLUMNS, ORDERS, T0_US, version, write_small_lake

_NONE, _NAN = None, [("price", "NaN")]
_Texts = list[tuple[str, str]] | None


def _lake(root: Path, *files: Iterable[_Texts]) -> Lake:
    """Write orders in files of our own, with a row for each `_raw`."""
    lake = chosen_lake(root)
    create_history(lake, ORDERS, ORDER_COLUMNS, 1)
    positions = {HISTORY_APP: 0x100, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    put_commit(lake.history(ORDERS), 1, "WRITE", moved(positions))
    schema = history_schema(ORDER_COLUMNS)
    for number, texts in enumerate(files):
        rows = [
            version(0x100, None, "snapshot", None)
            | {"id": 10 * number + n, "price": None if raw else Decimal(5), "_raw": raw}
            for n, raw in enumerate(texts)
        ]
        action = write_rows(history_of(lake, ORDERS), "open", pa.Table.from_pylist(rows, schema))
        put_commit(lake.history(ORDERS), number + 2, "WRITE", [action])
    return lake


def _has_texts(lake: Lake, as_of: str | None = None) -> bool:
    state = read_state(lake, as_of, UTC)
    query = prepare_statement(state, "select sum(price) as total from orders", {})
    (read,) = query.views.values()
    return rows_of_view(StatementDatabase().cursor(state), state, query, read, None).has_texts


def test_texts_are_not_read_if_no_file_of_the_state_has_one(tmp_path: Path) -> None:
    """Nor is the tail, which may have some; files that a state does not read do not count."""
    assert not _has_texts(_lake(tmp_path / "none", [_NONE, _NONE], [_NONE]))
    assert _has_texts(_lake(tmp_path / "some", [_NONE, _NONE], [_NONE, _NAN]))
    small = write_small_lake(tmp_path / "small")
    assert [_has_texts(small, lsn) for lsn in ("0/200", "0/250")] == [False, True]


@pytest.mark.parametrize("dialect", [POSTGRES, SPARK])
def test_a_text_in_one_of_several_row_groups_is_seen(
    dialect: Dialect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum is refused, which would leave that value out."""
    monkeypatch.setattr(row_groups, "GROUP_BYTES", 1)
    state = read_state(_lake(tmp_path, [_NONE, _NONE], [_NONE, _NAN, _NONE]), None, UTC)
    with pytest.raises(NotAnswerable, match=r"public\.orders\.price"):
        InDuckDb({}).answer(state, InDuckDb({}).prepare(state, "select sum(price) as total from orders", dialect))


def test_only_statistics_show_that_a_map_has_no_entry(tmp_path: Path) -> None:
    """Null and empty maps have none; a file without statistics may have some."""
    kind = pa.map_(pa.string(), pa.string())
    for rows, with_statistics, empty in (
        ([None, []], True, {"texts"}),
        ([None, [("a", None)]], True, set()),
        ([None], False, set()),
    ):
        path = tmp_path / f"{len(rows)} {with_statistics} {len(empty)}.parquet"
        pq.write_table(pa.table({"texts": pa.array(rows, kind)}), path, write_statistics=with_statistics)
        assert [group.empty_maps for group in row_groups.row_groups(path)] == [empty]


def test_a_column_is_not_taken_for_the_keys_of_a_map(tmp_path: Path) -> None:
    """Its name may be their path in the file: it has no value, and the map has one."""
    texts, other = pa.array([[("a", None)]], pa.map_(pa.string(), pa.string())), pa.array([None], pa.string())
    pq.write_table(pa.table({"texts": texts, "texts.key_value.key": other}), tmp_path / "file.parquet")
    assert [group.empty_maps for group in row_groups.row_groups(tmp_path / "file.parquet")] == [set()]
