"""Further cases of checks of `make test`: other plans, limits and batches, and changes that only the catalog shows."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.apply.merge import Plan
from auditlake.query.exported_names import view_of_versions
from auditlake.query.exported_views import ENGINES, Choice, view_script, views_by_name
from auditlake.query.statement import split_script
from auditlake.settings.retention_rules import RetentionPeriod
from auditlake.temporal.moments import read_known
from tests.model import Delete, Insert, Operation, Update
from tests.postgres import test_changed_types, test_now
from tests.postgres.test_apply_without_spark import check_histories
from tests.small_lake import STRANGE_COLUMNS, STRANGE_TABLES, write_strange_lake
from tests.spark.apply.test_commit_path import check_lost_reply
from tests.spark.apply.test_embedded_fold import check_in_turn
from tests.spark.apply.test_fold_cases import A, B, check_contradiction, check_overtaken, check_text, name_of, row
from tests.spark.apply.test_mark import check_limit
from tests.spark.apply.test_stopping import check_ended
from tests.spark.test_verify import check_dropped, check_expired


@pytest.mark.spark
@pytest.mark.parametrize(
    ("operation", "plan"),
    [
        (Update(B, B, row("x")), Plan.MERGE),
        (Insert(A, row("x")), Plan.MERGE),
        (Delete(B), Plan.REPLACE),
        (Delete(B), Plan.MARK),
        (Insert(A, row("x")), Plan.MARK),
    ],
    ids=name_of,
)
def test_a_change_that_contradicts_the_history_stops_the_apply(
    spark: SparkSession, tmp_path: Path, operation: Operation, plan: Plan
) -> None:
    """Operations with the other plans."""
    check_contradiction(spark, tmp_path, operation, plan)


@pytest.mark.spark
@pytest.mark.parametrize(("column", "text"), [(2, "0a"), (5, "maybe")])
def test_text_that_is_not_a_value_of_its_type_parks_the_table(
    spark: SparkSession, tmp_path: Path, column: int, text: str
) -> None:
    """Of bytea and boolean."""
    check_text(spark, tmp_path, column, text)


@pytest.mark.spark
@pytest.mark.parametrize(("theirs", "plan"), [(120, Plan.MERGE), (115, Plan.REPLACE), (120, Plan.MARK)])
def test_a_fold_planned_before_another_commit_is_refused(
    spark: SparkSession, tmp_path: Path, theirs: int, plan: Plan
) -> None:
    """Moved within the tail, or to its end."""
    check_overtaken(spark, tmp_path, theirs, plan)


@pytest.mark.spark
@pytest.mark.parametrize("plan", [Plan.MERGE, Plan.REPLACE])
def test_a_commit_whose_reply_is_lost_is_not_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan
) -> None:
    """Of the plans that end versions."""
    check_lost_reply(spark, tmp_path, monkeypatch, plan)


@pytest.mark.spark
@pytest.mark.parametrize("limit", ["of changes", "of a result"])
def test_a_tail_above_a_limit_is_merged_by_delta(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """The limits of changes, and of the size of Spark's result."""
    check_limit(spark, tmp_path, monkeypatch, limit)


@pytest.mark.spark
@pytest.mark.parametrize("plan", [Plan.MERGE, Plan.REPLACE])
def test_a_fold_is_ended(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    """As those that Delta writes."""
    check_ended(spark, tmp_path, monkeypatch, plan)


@pytest.mark.spark
@pytest.mark.parametrize("plan", [Plan.MERGE, Plan.MARK])
def test_tails_are_folded_with_and_without_spark_in_turn(spark: SparkSession, tmp_path: Path, plan: Plan) -> None:
    """Files of MERGE have a column more than ours."""
    check_in_turn(spark, tmp_path, plan)


@pytest.mark.spark
@pytest.mark.parametrize("parametrised", [False, True], ids=["views", "functions"])
def test_what_is_exported_of_strange_names_runs_in_spark(
    spark: SparkSession, tmp_path: Path, *, parametrised: bool
) -> None:
    """Names that differ only in case, that Spark's catalog refuses, and columns that a client would split.

    Views, and functions of an LSN. `make test` runs both with common names in Spark, and these names in DuckDB.
    """
    lake, dialect = write_strange_lake(tmp_path / "--lake"), ENGINES["spark"]
    names = {name: STRANGE_TABLES[table.name] for name, table in views_by_name(read_known(lake), dialect).items()}
    session = spark.newSession()
    try:
        choice = Choice(None, open_end=False, parametrised=parametrised)
        for statement in split_script(view_script(lake, "spark", choice)):
            session.sql(statement)
        for (schema, table), number in names.items():
            of = f"{table}_as_of`(384)" if parametrised else f"{table}`"
            rows = session.sql(f"select * from `{schema}`.`{of}")
            assert rows.columns[1:] == list(STRANGE_COLUMNS)
            assert [tuple(row) for row in rows.collect()] == [(number,) * len(rows.columns)]
    finally:
        for schema in {
            *(name.schema for name in names),
            *(view_of_versions(name).schema for name in names),
            "auditlake",
        }:
            session.sql(f"drop schema if exists `{schema}` cascade")


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
@pytest.mark.parametrize("change", [name for name in test_changed_types.CHANGES if name != "labels exchanged"])
def test_now_shows_rows_as_their_types_show_them(database: str, tmp_path: Path, change: str) -> None:
    """As the catalog shows a change."""
    test_changed_types.check_now(database, tmp_path / "lake", change, with_trigger=False)


@pytest.mark.pg
@pytest.mark.parametrize(
    "change", [name for name in test_changed_types.CHANGES if name not in test_changed_types.WITH_TRIGGER]
)
def test_now_shows_rows_as_their_types_show_them_with_the_trigger(database: str, tmp_path: Path, change: str) -> None:
    """As the trigger reports a change."""
    test_changed_types.check_now(database, tmp_path / "lake", change, with_trigger=True)


@pytest.mark.pg
def test_now_is_exact_when_follow_has_reached_its_target(database: str, tmp_path: Path) -> None:
    """Without the trigger."""
    test_now.check_now(database, tmp_path / "lake", with_trigger=False)


@pytest.mark.pg
def test_histories_equal_postgresql_without_spark(database: str, tmp_path: Path) -> None:
    """Applied after each change."""
    check_histories(database, tmp_path, applied=1)
