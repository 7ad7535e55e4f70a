"""Columns with the names of columns that Delta's MERGE adds to its own plan."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import auditlake
from auditlake.apply.apply import apply_pending
from auditlake.lake.layout import Lake
from auditlake.sql_names import standard_identifier
from tests import oracle
from tests.command import capture_here, run_here
from tests.server import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_NAMES = (
    *("deletionVectorId", "dvFilePath", "filepath", "filePath", "rowIndexCol", "_metadata"),
    *("_file_name_", "_row_dropped_", "_row_id_", "_source_row_present_", "_target_row_present_"),
    *("deletedRowIndexSet", "_source_row_index", "_target_row_index_", "packedData", "_change_type"),
)


def test_names_of_merge(spark: "SparkSession", database: str, tmp_path: Path) -> None:
    """A new column with a value in older rows is filled by MERGE; states keep the source's names."""
    columns = [standard_identifier(name) for name in _NAMES]
    execute(database, f"create table t (id int primary key, {', '.join(f'{each} text' for each in columns)})")
    lake = Lake(tmp_path / "lake")
    assert run_here(["bootstrap", "--source", database, "--lake", lake.root]).code == 0
    values = ", ".join(f"'{each}'" for each in range(len(_NAMES)))
    execute(database, f"insert into t select i, {values} from generate_series(1, 5) i")
    assert capture_here(database, lake).code == 0
    apply_pending(lambda: spark, lake)
    execute(database, "alter table t add added int default 7", f"update t set {columns[0]} = 'new' where id = 1")
    assert capture_here(database, lake).code == 0
    apply_pending(lambda: spark, lake)
    now = oracle.take_moment(database, ["t"])
    state = auditlake.Lake(lake.root).as_of().table("t")
    rows = [tuple(row[name] for name in ("id", *_NAMES, "added")) for row in state.texts()]
    assert sorted(rows) == sorted(now.states["t"].elements())
