"""A key with a column that the same transaction has added: rows are identified by it and its missing value."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import auditlake
from auditlake.apply.apply import apply_pending
from auditlake.lake.gaps import read_gaps
from auditlake.temporal.moments import read_known
from tests import oracle
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.server import execute, install_trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_COLUMNS = {
    "number": "int not null default 7",
    "day": "date not null default 'infinity'",
    "amount": "numeric(9, 2) not null default 'NaN'",
}
_CHANGES = """
begin;
alter table {0} drop constraint {0}_pkey;
alter table {0} add c {1};
alter table {0} add primary key (id, c);
insert into {0} (id, v) values (9, 'new');
update {0} set v = 'set' where id = 1;
update {0} set id = 8 where id = 2;
delete from {0} where id = 3;
commit
"""


@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
def test_a_key_with_an_added_column_is_followed(
    spark: "SparkSession", database: str, tmp_path: Path, *, with_trigger: bool
) -> None:
    """Also if the value of older rows is one that the column's type cannot represent in the lake."""
    execute(database, *(f"create table {name} (id int primary key, v text)" for name in _COLUMNS))
    if with_trigger:
        install_trigger(database)
    lake = make_lake(database, tmp_path / "lake")
    execute(database, *(f"insert into {name} select n, 'old' from generate_series(1, 5) n" for name in _COLUMNS))
    capture(database, lake)
    apply_pending(lambda: spark, lake)
    execute(database, *(_CHANGES.format(*each) for each in _COLUMNS.items()))
    capture(database, lake)
    apply_pending(lambda: spark, lake)
    assert not read_known(lake).parked
    assert not with_trigger or not read_gaps(lake)
    now = oracle.take_moment(database, list(_COLUMNS))
    for name, rows in now.states.items():
        found = auditlake.Lake(lake.root).as_of().table(name).texts()
        assert Counter(tuple(row.values()) for row in found) == rows, name
    assert oracle.assert_periods(lake)
