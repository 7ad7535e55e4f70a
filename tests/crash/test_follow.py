"""Test of a follow killed after a column was added, between two merges, before a commit, and after a compaction."""

from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable

from auditlake.failpoints import After
from auditlake.lake.history import list_histories
from auditlake.lake.layout import Lake
from tests import oracle
from tests.capture_lake import make_lake
from tests.crash.killed import finished, killed_at
from tests.writers import LEDGER, SCHEMA, TABLES, Writers

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash]

_SOON_JOINED = """
import auditlake.lake.maintenance as upkeep
upkeep._GATHERED_FILES = 2
"""


def test_a_killed_follow_continues_and_produces_the_same_histories(database: str, tmp_path: Path) -> None:
    """Histories change by complete commits only; the states as of four moments are PostgreSQL's."""
    with psycopg.connect(database) as conn:
        conn.execute(SCHEMA)
    lake = make_lake(database, tmp_path / "lake", without=[LEDGER])
    horizon = max(table.horizon for table in list_histories(lake))
    follow: list[str | Path] = ["follow", "--until-current", "--source", database, "--lake", lake.root]
    _written(database, seed=1)
    with psycopg.connect(database) as conn:
        conn.execute("alter table orders add column tax numeric(10,2) default 0.19")
    moments = [_written(database, seed=2)]
    killed_at(After.ADDED, ["capture", *follow[1:]])
    killed_at(After.COLUMNS_ADDED, follow)
    (orders,) = [table for table in list_histories(lake) if table.name.table == "orders"]
    assert (orders.columns[-1].name, orders.position) == ("tax", orders.horizon)
    killed_at(After.TABLE_MERGED, follow)
    merged = [table for table in list_histories(lake) if table.position > horizon]
    assert 1 <= len(merged) <= len(TABLES), "it was killed between two tables"
    moments.append(_written(database, seed=3))
    before = _data_files(lake)  # an earlier kill may have left orphans
    killed_at(After.ROWS_WRITTEN, follow)
    assert _uncommitted(lake) - before, "it was killed before the commit"
    moments.append(_written(database, seed=4))
    killed_at(After.FILES_JOINED, [each for each in follow if each != "--until-current"], code=_SOON_JOINED)
    assert any(_joined(table.path) for table in list_histories(lake))
    assert oracle.assert_histories_at(lake, moments) == [len(TABLES)] * len(moments)
    finished(follow)

    assert all(table.position > horizon for table in list_histories(lake))
    assert oracle.assert_histories_at(lake, moments) == [len(TABLES)] * len(moments)
    oracle.assert_periods(lake)


def _written(database: str, seed: int) -> oracle.Moment:
    """Run the writers briefly, and take a moment; merging more would take minutes without compiled plans."""
    with Writers(database, seed) as writers:
        writers.await_transactions(30)
    return oracle.take_moment(database, TABLES)


def _data_files(lake: Lake) -> set[Path]:
    return {path for path in lake.histories.rglob("*.parquet") if "_delta_log" not in path.parts}


def _uncommitted(lake: Lake) -> set[Path]:
    """Return the data files that no version of any history has."""
    found = _data_files(lake)
    for table in list_histories(lake):
        for version in range(table.delta_version + 1):
            actions = DeltaTable(table.path, version=version).get_add_actions(flatten=True)
            found -= {table.path / path for path in actions.column("path").to_pylist()}
    return found


def _joined(path: Path) -> bool:
    """Return whether the last commit is a compaction."""
    return bool(DeltaTable(path).history(1)[0]["operation"] == "OPTIMIZE")
