"""A resync that is killed after each of its effects, and continued by the same command; and damage that it repairs."""

from pathlib import Path

import pytest

from auditlake.failpoints import After
from auditlake.lake.gaps import read_gaps
from auditlake.lake.history_files import data_files, is_open
from auditlake.lake.layout import Lake
from auditlake.relation import TableName
from auditlake.temporal.moments import read_known
from tests import command, oracle
from tests.crash.killed import SPARK, finished, killed_at
from tests.read_lake import history_of
from tests.server import Server, execute

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(900)]

_SCHEMA = """
create table one (id int primary key, v text);
create table two (id int primary key, v text);
insert into one select n, 'a' from generate_series(1, 30) n;
insert into two select n, 'b' from generate_series(1, 30) n;
"""
_PLACES = (
    After.HELD,
    After.SOURCE_RENEWED,
    After.SLOT,
    After.START,
    After.COPIED_AGAIN,
    After.DIFFERENCE_WRITTEN,
    After.GAP,
    After.RESYNCED,
)


def _made(dsn: str, root: Path) -> tuple[Lake, list[str | Path]]:
    settings: list[str | Path] = ["--source", dsn, "--lake", root]
    execute(dsn, _SCHEMA)
    finished(["bootstrap", *settings])
    return Lake(root), settings


def test_a_killed_resync_continues(database: str, tmp_path: Path) -> None:
    """The slot was lost. Readers never get a state of the time that is missing, and tables done are not done again."""
    lake, settings = _made(database, tmp_path / "lake")
    before = oracle.take_moment(database, ["one", "two"])
    finished(["follow", "--until-current", *settings])
    execute(database, "select pg_drop_replication_slot('auditlake')", "update one set v = 'x' where id < 5")
    resync: list[str | Path] = ["resync", "--all", "--yes", *settings]
    for place in _PLACES:
        killed_at(place, resync)
        done = [table for table in read_known(lake).tables.values() if table.resynced]
        assert len(done) == (place is After.RESYNCED)
        refused = command.run(["sql", "select count(*) from two", *settings], SPARK)
        assert refused.code == 7, (place, refused.stderr)
        assert oracle.assert_histories_at(lake, [before]) == [2]
    first = {table.name: table.resynced for table in done}
    execute(database, "update two set v = 'y' where id = 7")
    finished(resync)
    now = oracle.take_moment(database, ["one", "two"])
    finished(["follow", "--until-current", *settings])
    assert oracle.assert_histories_at(lake, [before, now]) == [2, 2]
    oracle.assert_periods(lake)
    after = {table.name: table.resynced for table in read_known(lake).tables.values()}
    assert all(after[name] == lsn for name, lsn in first.items()), "a table that was done was done again"
    assert {gap.table for gap in read_gaps(lake)} == set(after)


def test_a_killed_resync_with_another_database_continues(server: Server, tmp_path: Path) -> None:
    """Its tables have other OIDs, and which tables were moved already is in the lake."""
    old, new = (server.create_database("moved") for _ in range(2))
    try:
        lake, settings = _made(server.dsn(old), tmp_path / "lake")
        before = oracle.take_moment(server.dsn(old), ["one", "two"])
        finished(["follow", "--until-current", *settings])
        execute(server.dsn(old), "select pg_drop_replication_slot('auditlake')")
        execute(server.dsn(new), _SCHEMA, "update one set v = 'moved' where id = 1", "delete from two where id = 2")
        settings[1] = server.dsn(new)
        for place in (After.SOURCE_RENEWED, After.START, After.RESYNCED):
            killed_at(place, ["resync", "--all", "--yes", *settings])
            assert oracle.assert_histories_at(lake, [before]) == [2]
        finished(["resync", "--all", "--yes", *settings])
        now = oracle.take_moment(server.dsn(new), ["one", "two"])
        execute(server.dsn(new), "update one set v = 'later' where id = 2", "update two set v = 'later' where id = 3")
        later = oracle.take_moment(server.dsn(new), ["one", "two"])
        finished(["follow", "--until-current", *settings])
        assert oracle.assert_histories_at(lake, [before, now, later]) == [2, 2, 2]
        oracle.assert_periods(lake)
    finally:
        for name in (old, new):
            server.drop_database(name)


@pytest.mark.parametrize("kind", ["missing file", "changed row", "duplicated version"])
def test_verify_finds_damage_that_resync_repairs(database: str, tmp_path: Path, kind: str) -> None:
    """After the repair the lake verifies as equal, and the moments that were wrong are refused."""
    lake, settings = _made(database, tmp_path / "lake")
    execute(database, "update one set v = 'new' where id = 3")
    finished(["follow", "--until-current", *settings])
    _damage(lake, kind)
    verify: list[str | Path] = ["verify", *settings]
    with command.start(["follow", *settings], SPARK) as follow:
        found = command.run(verify, SPARK)
        assert found.code == 6, found.stdout + found.stderr
        assert "auditlake resync --table" in found.stderr
        finished(["resync", "--table", "one", *settings])
        clean = command.run(verify, SPARK)
        follow.terminate()
        follow.communicate(timeout=60)
    assert clean.code == 0, clean.stdout + clean.stderr
    (gap,) = read_gaps(lake)
    asked = ["sql", "select count(*) from one", "--as-of", str(type(gap.lsn_from)(gap.lsn_to - 1)), *settings]
    assert command.run(asked, SPARK).code == 7
    allowed = command.run([*asked, "--allow-gap"], SPARK)
    assert allowed.code == 0
    assert "gap: public.one" in allowed.stderr


def _damage(lake: Lake, kind: str) -> None:
    import json  # noqa: PLC0415 - of this function

    import pyarrow as pa  # noqa: PLC0415 - the same
    import pyarrow.compute as pc  # noqa: PLC0415 - the same
    import pyarrow.parquet as pq  # noqa: PLC0415 - the same

    from auditlake.delta.log_writer import put_commit, removed  # noqa: PLC0415 - the same
    from auditlake.lake.history import write_rows  # noqa: PLC0415 - the same

    table = history_of(lake, TableName("public", "one"))
    file = max((file for file in data_files(table) if is_open(file)), key=lambda file: file.rows)
    path = Path(str(table.path)) / "_part=open" / file.name
    if kind == "missing file":
        path.unlink()
        return
    rows = pq.ParquetFile(path).read().filter(pc.field("id") > 20)
    if kind == "changed row":
        rows = rows.set_column(rows.schema.get_field_index("v"), "v", pa.array(["z"] * len(rows)))
        stale = pq.ParquetFile(path).read().filter(pc.field("id") <= 20).filter(pc.field("id") != 3)
        actions = [removed(file.add), write_rows(table, "open", pa.concat_tables([stale, rows]))]
    else:
        actions = [write_rows(table, "open", rows.slice(0, 2))]
    put_commit(table.path, table.delta_version + 1, "WRITE", json.loads(json.dumps(actions)))
