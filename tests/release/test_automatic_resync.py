"""A running follow takes a new snapshot of a table whose rows changed without row events, beside the stream."""

from pathlib import Path

import pytest

from auditlake.lake.gaps import read_gaps
from auditlake.lake.layout import Lake
from auditlake.lake.records import captures_now
from auditlake.relation import TableName
from auditlake.temporal.moments import read_known
from tests import command, oracle
from tests.crash.killed import SPARK
from tests.running import await_true
from tests.server import execute, install_trigger

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash]

_T = TableName("public", "t")
_SCHEMA = """
create table parts (id int, k text, primary key (id, k)) partition by list (k);
create table parts_a partition of parts for values in ('a');
create table other (id int primary key);
insert into parts values (1, 'a'), (2, 'a');
"""


def test_follow_resyncs_a_table_with_an_attached_partition(database: str, tmp_path: Path) -> None:
    """Rows go on being captured and applied meanwhile; afterwards the table is followed again."""
    lake = Lake(tmp_path / "lake")
    settings: list[str | Path] = ["--source", database, "--lake", tmp_path / "lake"]
    execute(database, _SCHEMA)
    assert command.run(["bootstrap", *settings], SPARK).code == 0
    with command.following(settings, SPARK) as reported:
        execute(
            database,
            "create table parts_n (id int, k text, primary key (id, k)); insert into parts_n values (7, 'n')",
            "alter table parts attach partition parts_n for values in ('n')",
            "insert into other values (1)",
        )
        await_true(lambda: read_gaps(lake) and not read_known(lake).parked, 120)
        execute(database, "delete from parts where id = 1", "insert into parts values (8, 'n')")
        now = oracle.take_moment(database, ["parts", "other"])
        execute(database, "insert into other values (2)")
    assert "public.parts: taking a new snapshot beside the stream" in reported[0]
    done = command.run(["follow", "--until-current", *settings], SPARK)
    assert done.code == 0, done.stderr
    oracle.assert_histories_at(lake, [now])
    (gap,) = read_gaps(lake)
    assert "its partition parts_n was attached" in gap.reason


@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
def test_follow_resyncs_a_rewritten_table(database: str, tmp_path: Path, *, with_trigger: bool) -> None:
    """Rows that USING changed, without a row message, are those of PostgreSQL a moment later."""
    lake = Lake(tmp_path / "lake")
    settings: list[str | Path] = ["--source", database, "--lake", tmp_path / "lake"]
    execute(database, "create table t (id int primary key, v int)", "insert into t values (1, 5), (2, null)")
    if with_trigger:
        install_trigger(database)
    assert command.run(["bootstrap", *settings], SPARK).code == 0
    with command.following(settings, SPARK):
        await_true(lambda: captures_now(lake), 60)
        execute(database, "alter table t alter v type int using v * 2")
        await_true(lambda: read_gaps(lake) and not read_known(lake).parked, 120)
        now = oracle.take_moment(database, ["t"])
        execute(database, "insert into t values (3, 3)")
    assert command.run(["follow", "--until-current", *settings], SPARK).code == 0
    oracle.assert_histories_at(lake, [now])


@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
def test_follow_goes_on_with_the_first_key_of_a_table(database: str, tmp_path: Path, *, with_trigger: bool) -> None:
    """Rows without a key were numbered; the table gets a new snapshot, from which on the key identifies them."""
    lake = Lake(tmp_path / "lake")
    settings: list[str | Path] = ["--source", database, "--lake", tmp_path / "lake"]
    for name in ("t", "whole"):
        execute(database, f"create table {name} (id int not null, v int)", f"alter table {name} replica identity full")
        execute(database, f"insert into {name} values (1, 5), (2, null)")
    if with_trigger:
        install_trigger(database)
    assert command.run(["bootstrap", *settings], SPARK).code == 0
    with command.following(settings, SPARK):
        await_true(lambda: captures_now(lake), 60)
        execute(
            database,
            "update t set v = 6 where id = 1",
            "alter table t add primary key (id), replica identity default",
            "alter table whole add primary key (id)",
            "update t set v = 7 where id = 1",
            "update whole set v = 7 where id = 1",
        )
        await_true(lambda: {gap.table for gap in read_gaps(lake)} >= {_T} and not read_known(lake).parked, 240)
        now = oracle.take_moment(database, ["t", "whole"])
        execute(database, "insert into t values (3, 3)", "delete from whole where id = 2")
    assert command.run(["follow", "--until-current", *settings], SPARK).code == 0
    oracle.assert_histories_at(lake, [now])
    found = command.run_here(["row", "t", "id=1", "--lake", lake.root])
    assert found.code == 0, found.stderr
