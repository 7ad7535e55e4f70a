"""Further cases of checks of `make test`: other plans, limits and batches, and changes that only the catalog shows."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.apply.merge import Plan
from auditlake.settings.retention_rules import RetentionPeriod
from tests.postgres.test_apply_without_spark import check_histories
from tests.postgres.test_changed_types import CHANGES, check_now
from tests.spark.apply.test_embedded_fold import check_in_turn
from tests.spark.apply.test_mark import check_limit
from tests.spark.apply.test_stopping import check_ended
from tests.spark.test_verify import check_dropped, check_expired


@pytest.mark.spark
def test_a_tail_of_many_changes_is_merged_by_delta(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of changes."""
    check_limit(spark, tmp_path, monkeypatch, "of changes")


@pytest.mark.spark
@pytest.mark.parametrize("plan", [Plan.MERGE, Plan.REPLACE])
def test_a_fold_is_ended(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    """As those that Delta writes."""
    check_ended(spark, tmp_path, monkeypatch, plan)


@pytest.mark.spark
def test_tails_are_merged_by_spark_and_folded_without_it_in_turn(spark: SparkSession, tmp_path: Path) -> None:
    """Files of MERGE have a column more than ours."""
    check_in_turn(spark, tmp_path, Plan.MERGE)


@pytest.mark.pg
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_history_of_which_versions_expired_is_verified(database: str, tmp_path: Path) -> None:
    """Whose changes have not expired."""
    check_expired(database, tmp_path, RetentionPeriod())


@pytest.mark.pg
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_column_added_and_dropped_is_verified(database: str, tmp_path: Path) -> None:
    """Applied with its end in two batches."""
    check_dropped(database, tmp_path, batches=2)


@pytest.mark.pg
@pytest.mark.parametrize("change", [name for name in CHANGES if name != "labels exchanged"])
def test_now_shows_rows_as_their_types_show_them(database: str, tmp_path: Path, change: str) -> None:
    """As the catalog shows a change."""
    check_now(database, tmp_path / "lake", change, with_trigger=False)


@pytest.mark.pg
def test_histories_equal_postgresql_without_spark(database: str, tmp_path: Path) -> None:
    """Applied after each change."""
    check_histories(database, tmp_path, applied=1)
