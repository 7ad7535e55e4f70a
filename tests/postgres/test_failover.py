"""Promotion of a standby: a lake continues with it exactly, or names the changes that the new primary lacks.

Always version 18: standbys keep copies of slots since 17.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from unittest import mock

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.lsn import Lsn
from auditlake.resync.renewal import find_renewal
from auditlake.source import connection
from auditlake.source.connection import connect, connect_replication
from auditlake.source.slot import alter_failover, read_slot
from tests import command
from tests.capture_lake import make_lake
from tests.read_lake import positions_of
from tests.running import Running, await_true, inserted
from tests.s3_server import copy_folder
from tests.server import Server, execute
from tests.standby import Standby

pytestmark = pytest.mark.pg

VERSION = 18
WRONG_SOURCE = 5
COPY = "select pg_copy_logical_replication_slot('kept', 'auditlake')"


@dataclass(frozen=True)
class Lakes:
    """A former primary, the standby that was promoted, and four lakes.

    `behind` was followed across the promotion by a capture that reported `said`; `beyond`, `reshaped` and `ahead` ended
    after the fork: without changes, with a new column, and with a row.
    """

    old: Server
    new: Standby
    database: str
    behind: Lake
    beyond: Lake
    reshaped: Lake
    ahead: Lake
    said: list[str]

    def reset_slot(self) -> str:
        """Reset the slot to its position at the promotion; return the connection string of the new primary."""
        dsn = self.new.dsn(self.database)
        with connect(dsn) as conn:
            # The walsender of a capture that has ended may still be there.
            await_true(lambda: (slot := read_slot(conn, "auditlake")) is not None and slot.active_pid is None)
        execute(dsn, "select pg_drop_replication_slot('auditlake')", COPY)
        return dsn


def copied(lake: Lake, name: str) -> Lake:
    """Copy a lake."""
    return Lake(copy_folder(lake.root, lake.root.parent / name))


def acknowledged(lake: Lake) -> Lsn:
    """Return the acknowledged position of a lake."""
    found = positions_of(lake)
    return found.acknowledged


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lakes]:
    """Lakes from before a promotion; the slot can be reset to its state at the promotion."""
    root = tmp_path_factory.mktemp("failover")
    with Server(VERSION) as old:
        name = old.create_database()
        dsn = old.dsn(name)
        execute(dsn, "create table t (id int primary key)", "create table elsewhere (id int)")
        behind = make_lake(dsn, root / "behind", without=["elsewhere"])
        with Standby(old, name) as new:
            assert "is not a failover slot" in checked(dsn)
            make_failover_slot(dsn)
            assert "is not a failover slot" not in checked(dsn)
            with mock.patch("auditlake.capture.capture._IDLE_COMMIT_S", 0.1), Running(dsn, behind) as running:
                execute(dsn, "insert into t values (1)")
                running.await_keys(1)
                await_true(lambda: new.copy_slot(name, "auditlake"))
            check_a_standby_is_refused(new.dsn(name), behind)
            new.stop()
            beyond = copied(behind, "beyond")
            execute(dsn, "insert into elsewhere select generate_series(1, 100)")
            assert command.capture_here(dsn, beyond).code == 0
            reshaped = copied(beyond, "reshaped")
            execute(dsn, "alter table t add c int default 5")
            assert command.capture_here(dsn, reshaped).code == 0
            ahead = copied(reshaped, "ahead")
            execute(dsn, "insert into t values (99)")
            assert command.capture_here(dsn, ahead).code == 0
            old.stop("immediate")
            said = promote(old, new, name, behind)
            old.start()
            yield Lakes(old, new, name, behind, beyond, reshaped, ahead, said)


def promote(old: Server, new: Standby, database: str, lake: Lake) -> list[str]:
    """Promote the standby while a capture that knows both servers waits; return what it reported up to the next row."""
    dsn = make_conninfo(
        new.dsn(database), host=f"{folder(old)},{folder(new)}", port=f"{old.port},{new.port}", connect_timeout="2"
    )
    with Running(dsn, lake) as running:
        running.await_said("trying again")
        new.start()
        new.promote()
        execute(new.dsn(database), "select pg_copy_logical_replication_slot('auditlake', 'kept')")
        execute(new.dsn(database), "insert into t values (2)")
        running.await_keys(1, 2)
        return running.said


def test_capture_continues_exactly_after_a_failover(lakes: Lakes) -> None:
    """Capture waits for the promotion; afterwards the old primary is refused."""
    assert any("promoted at" in line for line in lakes.said)
    assert inserted(lakes.behind) == [1, 2]
    assert require_manifest(lakes.behind).timeline == 2
    done = command.capture_here(lakes.old.dsn(lakes.database), lakes.behind)
    assert done.code == WRONG_SOURCE
    assert "this lake follows timeline 2, the source is on 1" in done.stderr


def test_a_lake_without_changes_after_the_fork_continues(lakes: Lakes) -> None:
    """The position returns to the fork, and later changes of the new primary are captured."""
    dsn, lake = lakes.reset_slot(), lakes.beyond
    before = acknowledged(lake)
    done = command.capture_here(dsn, lake)
    assert done.code == 0, done.stderr
    assert Lsn.parse(done.stderr.split("promoted at ")[1].split(":")[0]) < before
    assert inserted(lake) == [1, 2]
    assert require_manifest(lake).timeline == 2


def test_a_lake_with_changes_after_the_fork_is_refused(lakes: Lakes) -> None:
    """The error has both LSNs, and nothing is changed."""
    dsn, lake = lakes.reset_slot(), lakes.ahead
    before = acknowledged(lake)
    done = command.capture_here(dsn, lake)
    assert done.code == WRONG_SOURCE, done.stderr
    assert "promoted from timeline 1 to 2" in done.stderr
    assert "changes of timeline 1 from" in done.stderr
    assert inserted(lake) == [1, 99]
    assert (acknowledged(lake), require_manifest(lake).timeline) == (before, 1)


def make_failover_slot(dsn: str) -> None:
    """Create the slot as bootstrap does."""
    with closing(connect_replication(dsn)) as replication:
        alter_failover(replication, "auditlake", failover=True)
    with connect(dsn) as conn:
        slot = read_slot(conn, "auditlake")
    assert slot is not None
    assert slot.failover


def checked(dsn: str) -> str:
    """Return the remarks of `check`, after checking that it mentions synchronized_standby_slots."""
    done = command.run_here(["check", "--source", dsn, "--table", "public.t"])
    assert done.code == 0, done.stdout
    assert "synchronized_standby_slots is empty" in done.stderr
    return done.stderr


def folder(server: Server) -> str:
    """Return the folder of the server's socket."""
    return str(conninfo_to_dict(server.dsn())["host"])


def check_a_standby_is_refused(dsn: str, lake: Lake) -> None:
    """Check that a standby is refused as retryable; a run with a target fails."""
    done = command.capture_here(dsn, lake)
    assert done.code == 4, done.stderr
    assert "standby" in done.stderr or "recovery" in done.stderr


def test_a_lake_with_a_schema_change_after_the_fork_is_refused(lakes: Lakes) -> None:
    """It would show the column as soon as the new timeline has reached that LSN."""
    dsn, lake = lakes.reset_slot(), lakes.reshaped
    done = command.capture_here(dsn, lake)
    assert done.code == WRONG_SOURCE, done.stderr
    assert "changes of timeline 1 from" in done.stderr
    renewal = find_renewal(dsn, lake)
    assert renewal is not None
    assert renewal.problem in done.stderr


def test_a_former_primary_that_answers_the_second_connection_is_refused(lakes: Lakes) -> None:
    """Of two hosts the new primary answered the first one; the old one runs again, and has a row that was lost."""
    dsn, lake = lakes.reset_slot(), copied(lakes.behind, "between")
    execute(lakes.old.dsn(lakes.database), "insert into t values (98)")
    other = connect_replication(lakes.old.dsn(lakes.database))
    with mock.patch.object(connection, "connect_replication", return_value=other):
        done = command.capture_here(dsn, lake)
    assert done.code == 4, done.stderr
    assert "two connections have reached different servers" in done.stderr
    assert inserted(lake) == [1, 2]
