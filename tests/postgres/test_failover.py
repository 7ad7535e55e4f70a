"""A standby is promoted: a lake goes on with it exactly, or says what the new primary lacks.

Always version 18: only since 17 do standbys keep copies of slots.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.postgres.connection import connect, connect_replication
from auditlake.postgres.slot import alter_failover, read_slot
from tests import command
from tests.capture_lake import make_lake
from tests.running import Running, await_true, inserted
from tests.server import Server
from tests.standby import Standby

pytestmark = [pytest.mark.pg, pytest.mark.xdist_group("failover")]  # one server is promoted, once

VERSION = 18
WRONG_SOURCE = 5
COPY = "select pg_copy_logical_replication_slot('kept', 'auditlake')"


@dataclass(frozen=True)
class Lakes:
    """A stopped primary and its standby, and three lakes: behind the fork, beyond it without a change, and ahead."""

    old: Server
    new: Standby
    database: str
    behind: Lake
    beyond: Lake
    ahead: Lake

    def slot_put_back(self) -> str:
        """Put the slot back to where it was at the promotion; gives the connection string of the new primary."""
        dsn = self.new.dsn(self.database)
        execute(dsn, "select pg_drop_replication_slot('auditlake')", COPY)
        return dsn


def execute(dsn: str, *statements: str) -> None:
    """Run statements, each in a transaction of its own."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement)


def capture(dsn: str, lake: Lake) -> command.Done:
    """Capture what is there now."""
    return command.run_here(["capture", "--until-current", "--source", dsn, "--lake", lake.root])


def copied(lake: Lake, name: str) -> Lake:
    """Copy a lake, whose copy then goes a way of its own."""
    return Lake(Path(shutil.copytree(lake.root, lake.root.parent / name)))


def acknowledged(lake: Lake) -> Lsn:
    """Up to where a lake is known to be complete."""
    found = read_positions(lake)
    assert found is not None
    return found.acknowledged


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lakes]:
    """A promotion in pictures: all lakes stand at the moment before it, and the slot can be put back to it."""
    root = tmp_path_factory.mktemp("failover")
    with Server(VERSION) as old:
        name = old.create_database()
        dsn = old.dsn(name)
        execute(dsn, "create table t (id int primary key)", "create table elsewhere (id int)")
        behind = make_lake(dsn, root / "behind", without=["elsewhere"])
        with Standby(old, name) as new:
            assert "is no failover slot" in checked(dsn)
            make_failover_slot(dsn)
            assert "is no failover slot" not in checked(dsn)
            with mock.patch("auditlake.capture.capture._IDLE_COMMIT_S", 0.1), Running(dsn, behind) as running:
                execute(dsn, "insert into t values (1)")
                running.await_keys(1)
                await_true(lambda: new.copy_slot(name, "auditlake"))
            refused_by_a_standby(new.dsn(name), behind)
            new.stop()
            beyond = copied(behind, "beyond")
            execute(dsn, "insert into elsewhere select generate_series(1, 100)")
            assert capture(dsn, beyond).code == 0
            ahead = copied(beyond, "ahead")
            execute(dsn, "insert into t values (99)")
            assert capture(dsn, ahead).code == 0
            old.stop("immediate")
            yield Lakes(old, new, name, behind, beyond, ahead)


def test_a_failover(lakes: Lakes) -> None:
    """While the standby takes its time capture waits; then it goes on, exactly; the old primary is refused for good."""
    old, new, lake = lakes.old, lakes.new, lakes.behind
    dsn = make_conninfo(
        new.dsn(lakes.database), host=f"{folder(old)},{folder(new)}", port=f"{old.port},{new.port}", connect_timeout="2"
    )
    with Running(dsn, lake) as running:
        running.await_said("trying again")
        new.start()
        new.promote()
        execute(new.dsn(lakes.database), "select pg_copy_logical_replication_slot('auditlake', 'kept')")
        execute(new.dsn(lakes.database), "insert into t values (2)")
        running.await_keys(1, 2)
        assert any("promoted at" in line for line in running.said)
    assert require_manifest(lake).timeline == 2
    old.start()
    done = capture(old.dsn(lakes.database), lake)
    assert done.code == WRONG_SOURCE
    assert "this lake follows timeline 2, the source is on 1" in done.stderr


def test_a_lake_beyond_the_fork(lakes: Lakes) -> None:
    """Nothing of ours lay beyond it: the lake goes back, and what came then on the new primary is there."""
    dsn, lake = lakes.slot_put_back(), lakes.beyond
    before = acknowledged(lake)
    done = capture(dsn, lake)
    assert done.code == 0, done.stderr
    assert Lsn.parse(done.stderr.split("promoted at ")[1].split(":")[0]) < before
    assert inserted(lake) == [1, 2]
    assert require_manifest(lake).timeline == 2


def test_a_lake_ahead_of_the_fork(lakes: Lakes) -> None:
    """It holds what the new primary never had; both bounds are named, and nothing is changed."""
    dsn, lake = lakes.slot_put_back(), lakes.ahead
    before = acknowledged(lake)
    done = capture(dsn, lake)
    assert done.code == WRONG_SOURCE, done.stderr
    assert "promoted from timeline 1 to 2" in done.stderr
    assert "transactions of timeline 1 from" in done.stderr
    assert inserted(lake) == [1, 99]
    assert (acknowledged(lake), require_manifest(lake).timeline) == (before, 1)


def make_failover_slot(dsn: str) -> None:
    """As bootstrap does."""
    replication = connect_replication(dsn)
    try:
        alter_failover(replication, "auditlake", failover=True)
    finally:
        replication.finish()
    with connect(dsn) as conn:
        slot = read_slot(conn, "auditlake")
    assert slot is not None
    assert slot.failover


def checked(dsn: str) -> str:
    """What `check` remarks; the empty list of standbys to wait for among it, whatever the slot is."""
    done = command.run_here(["check", "--source", dsn, "--table", "public.t"])
    assert done.code == 0, done.stdout
    assert "synchronized_standby_slots is empty" in done.stderr
    return done.stderr


def folder(server: Server) -> str:
    """Where a server listens."""
    return str(conninfo_to_dict(server.dsn())["host"])


def refused_by_a_standby(dsn: str, lake: Lake) -> None:
    """A standby is no source, but may become one: tried again, and with a target told."""
    done = capture(dsn, lake)
    assert done.code == 4, done.stderr
    assert "standby" in done.stderr or "recovery" in done.stderr
