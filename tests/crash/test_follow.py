"""Follow killed after effects of capture and apply: one kill per case, each with an added column in the tail."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from auditlake.failpoints import After
from auditlake.lake.histories import list_histories
from auditlake.lake.layout import Lake
from tests import oracle
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.crash.killed import killed_at
from tests.writers import LEDGER, SCHEMA, TABLES, Writers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash]

_FOLLOWED = ("marks", "orders")  # one without a key, and one with an added column


def _has_the_column_but_no_change(lake: Lake) -> bool:
    (orders,) = [table for table in list_histories(lake) if table.name.table == "orders"]
    return orders.columns[-1].name == "tax" and orders.position == orders.horizon


def _is_between_two_tables(lake: Lake) -> bool:
    return 1 <= sum(table.position > table.horizon for table in list_histories(lake)) <= len(_FOLLOWED)


@dataclass(frozen=True)
class Kill:
    """A kill right after an effect, what the lake then shows, and what makes the effect come soon."""

    place: After
    shows: Callable[[Lake], bool]
    code: str | None = None
    without: tuple[str, ...] = ()
    applied: bool = False
    """Whether an earlier batch is applied before."""

    def __str__(self) -> str:
        return str(self.place)


BETWEEN_TWO_TABLES = Kill(After.TABLE_MERGED, _is_between_two_tables)
BEFORE_THE_FOLD_OF_A_NEW_COLUMN = Kill(After.COLUMNS_ADDED, _has_the_column_but_no_change)


def test_a_killed_follow_continues_and_produces_the_same_histories(
    spark: "SparkSession", database: str, tmp_path: Path
) -> None:
    """Histories change by complete commits only; `tests/release` has the other effects."""
    kill_follow(spark, database, tmp_path, BETWEEN_TWO_TABLES)


def kill_follow(spark: "SparkSession", database: str, folder: Path, kill: Kill) -> None:
    """Kill `follow`, continue without it, and compare the histories with PostgreSQL."""
    from auditlake.apply.apply import apply_pending  # noqa: PLC0415 - imports Spark

    with psycopg.connect(database) as conn:
        conn.execute(SCHEMA)
    lake = make_lake(database, folder / "lake", without={LEDGER, *TABLES} - {*_FOLLOWED})
    follow: list[str | Path] = ["follow", "--until-current", "--source", database, "--lake", lake.root]
    _written(database, seed=1)
    if kill.applied:
        capture(database, lake)
        apply_pending(lambda: spark, lake)
    with psycopg.connect(database) as conn:
        conn.execute("alter table orders add column tax numeric(10,2) default 0.19")
    moments = [_written(database, seed=2)]
    killed_at(kill.place, [each for each in follow if each not in kill.without], code=kill.code)
    assert kill.shows(lake)
    moments.append(_written(database, seed=3))
    capture(database, lake)
    apply_pending(lambda: spark, lake)

    assert all(table.position > table.horizon for table in list_histories(lake))
    assert oracle.assert_histories_at(lake, moments) == [len(_FOLLOWED)] * len(moments)
    oracle.assert_periods(lake)


def _written(database: str, seed: int) -> oracle.Moment:
    """Run the writers briefly, and take a moment; merging more would take minutes without compiled plans."""
    with Writers(database, seed) as writers:
        writers.await_transactions(30)
    return oracle.take_moment(database, _FOLLOWED)
