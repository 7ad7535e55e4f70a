"""Follow killed after a column was added, between the merges of two tables, in the middle of one and after upkeep.

The next run makes the same histories.
"""

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
import auditlake.lake.upkeep as upkeep
upkeep._GATHERED_FILES = 2
"""


def test_follow(database: str, tmp_path: Path) -> None:
    """Each history is moved by whole commits only, and the states as of four moments are PostgreSQL's."""
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
    before = _data_files(lake)  # the first kill may have left some that no commit has
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
    """Let the writers commit some, and take the moment after it: merging more takes minutes without compiled plans."""
    with Writers(database, seed) as writers:
        writers.await_transactions(30)
    return oracle.take_moment(database, TABLES)


def _data_files(lake: Lake) -> set[Path]:
    return {path for path in lake.histories.rglob("*.parquet") if "_delta_log" not in path.parts}


def _uncommitted(lake: Lake) -> set[Path]:
    """Data files that no version of any history holds."""
    found = _data_files(lake)
    for table in list_histories(lake):
        for version in range(table.delta_version + 1):
            actions = DeltaTable(table.path, version=version).get_add_actions(flatten=True)
            found -= {table.path / path for path in actions.column("path").to_pylist()}
    return found


def _joined(path: Path) -> bool:
    """Whether the last commit is one that joined files."""
    return bool(DeltaTable(path).history(1)[0]["operation"] == "OPTIMIZE")
