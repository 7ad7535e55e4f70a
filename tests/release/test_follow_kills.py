"""Follow killed in the maintenance after a batch, which prepares one more batch than the kills of `make test`."""

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from auditlake.failpoints import After
from auditlake.lake.histories import list_histories
from auditlake.lake.layout import Lake
from tests.crash.test_follow import Kill, kill_follow

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash]

_SOON_JOINED = """
import auditlake.lake.maintenance as upkeep
upkeep._GATHERED_FILES = 2
"""


def _has_a_compaction(lake: Lake) -> bool:
    return any(DeltaTable(table.path).history(1)[0]["operation"] == "OPTIMIZE" for table in list_histories(lake))


def test_a_follow_killed_after_a_compaction_produces_the_same_histories(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    """The compaction moved no position, and the states as of two moments are PostgreSQL's."""
    kill = Kill(After.FILES_JOINED, _has_a_compaction, _SOON_JOINED, without=("--until-current",), applied=True)
    kill_follow(spark, database, tmp_path, kill)
