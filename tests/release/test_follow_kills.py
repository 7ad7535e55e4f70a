"""Follow killed after the effects that `make test` leaves out; maintenance after a batch prepares one more batch."""

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from auditlake.delta.table import open_version
from auditlake.failpoints import After
from auditlake.lake.histories import list_histories
from auditlake.lake.layout import Lake
from tests.crash.test_follow import BEFORE_THE_FOLD_OF_A_NEW_COLUMN, Kill, kill_follow
from tests.s3_server import names

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash]

_SOON_JOINED = """
import auditlake.lake.maintenance as upkeep
upkeep._GATHERED_FILES = 2
"""


def _has_a_compaction(lake: Lake) -> bool:
    return any(DeltaTable(table.path).history(1)[0]["operation"] == "OPTIMIZE" for table in list_histories(lake))


def _has_files_of_no_commit(lake: Lake) -> bool:
    found = {
        lake.histories / name
        for name in names(lake.histories)
        if name.endswith(".parquet") and "_delta_log" not in name
    }
    for table in list_histories(lake):
        for version in range(table.delta_version + 1):
            actions = open_version(table.path, version).get_add_actions(flatten=True)
            found -= {table.path / path for path in actions.column("path").to_pylist()}
    return bool(found)


_KILLS = [
    Kill(After.ADDED, lambda lake: all(table.position == table.horizon for table in list_histories(lake))),
    Kill(After.ROWS_WRITTEN, _has_files_of_no_commit),
    BEFORE_THE_FOLD_OF_A_NEW_COLUMN,
]


@pytest.mark.parametrize("kill", _KILLS, ids=str)
def test_a_killed_follow_continues_and_produces_the_same_histories(
    spark: SparkSession, database: str, tmp_path: Path, kill: Kill
) -> None:
    """Nothing is applied yet, files are written that no commit names, or one has its new column."""
    kill_follow(spark, database, tmp_path, kill)


def test_a_follow_killed_after_a_compaction_produces_the_same_histories(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    """The compaction moved no position, and the states as of two moments are PostgreSQL's."""
    kill = Kill(After.FILES_JOINED, _has_a_compaction, _SOON_JOINED, without=("--until-current",), applied=True)
    kill_follow(spark, database, tmp_path, kill)
