"""Slots and servers that differ from the record: exit code 5 with the missing range; a mere restart is fine."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from auditlake.capture import capture as capturing
from auditlake.capture import preconditions
from auditlake.lake.layout import Lake
from auditlake.lake.positions import Positions, read_positions
from auditlake.lsn import Lsn
from auditlake.source import slot as slots
from auditlake.source.connection import Row
from auditlake.source.slot import SlotState
from tests import command
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.interleaved import end_walsender
from tests.read_lake import positions_of
from tests.running import Running, await_free_slots, inserted
from tests.s3_server import copy_lake
from tests.server import Server, chosen_version, execute

pytestmark = pytest.mark.pg

WRONG_SOURCE, CONFLICT = 5, 6


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that retains little WAL for a slot, and may be stopped."""
    with Server(chosen_version(), settings={"max_slot_wal_keep_size": "1MB"}) as running:
        yield running


@dataclass(frozen=True)
class Site:
    """A database of one table, and its lake with one captured row."""

    dsn: str
    lake: Lake

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        if DROP in statements:
            await_free_slots(self.dsn)
        execute(self.dsn, *statements)

    def capture(self) -> command.Done:
        """Capture up to the end of the log."""
        return command.capture_here(self.dsn, self.lake)

    def refused(self, *words: str) -> None:
        """Check that capture refuses with these words and leaves the lake unchanged."""
        before = read_positions(self.lake)
        done = self.capture()
        assert done.code == WRONG_SOURCE, done.stderr
        for word in words:
            assert word in done.stderr
        assert read_positions(self.lake) == before

    @property
    def end(self) -> Lsn:
        """Return the lake's position."""
        found = positions_of(self.lake)
        return found.acknowledged

    def read(self, query: str) -> str:
        """Read one value as text."""
        with psycopg.connect(self.dsn) as conn:
            row = conn.execute(query).fetchone()
        assert row is not None
        return str(row[0])


@pytest.fixture
def site(database: str, tmp_path: Path) -> Site:
    """A lake after some captures."""
    with psycopg.connect(database) as conn:
        conn.execute("create table t (id int primary key)")
    made = Site(database, make_lake(database, tmp_path / "lake"))
    made.execute("insert into t values (1)")
    assert made.capture().code == 0
    return made


NEW = "select pg_create_logical_replication_slot('auditlake', 'pgoutput')"
DROP = "select pg_drop_replication_slot('auditlake')"
CONFIRMED = "select confirmed_flush_lsn from pg_replication_slots where slot_name = 'auditlake'"


def test_another_slot_of_that_name_is_refused(site: Site) -> None:
    """Created again, of another kind, temporary."""
    site.execute(DROP, NEW)
    site.refused(f"stands at {site.read(CONFIRMED)}, this lake at {site.end}", "a new slot of that name")
    site.execute(DROP, "select pg_create_physical_replication_slot('auditlake', true)")
    site.refused("slot auditlake is physical")
    site.execute(DROP)
    with psycopg.connect(site.dsn, autocommit=True) as other:
        other.execute("select pg_create_logical_replication_slot('auditlake', 'pgoutput', true)")
        site.refused("slot auditlake is temporary", f"pid {other.info.backend_pid}")


def test_a_slot_of_another_database_is_refused(server: Server, site: Site) -> None:
    """Slot names are unique per server, not per database."""
    other = server.create_database()
    site.execute(DROP)
    with psycopg.connect(server.dsn(other), autocommit=True) as conn:
        conn.execute(NEW)
    site.refused("slot auditlake")
    server.drop_database(other)


def test_a_slot_with_removed_wal_is_refused(site: Site) -> None:
    """Lost by max_slot_wal_keep_size; `status` reports the same."""
    write = "insert into t select coalesce(max(id), 0) + 1 from t"
    site.execute(*[write, "select pg_switch_wal()"] * 3, "checkpoint")
    assert site.read("select wal_status from pg_replication_slots where slot_name = 'auditlake'") == "lost"
    site.refused("has lost its log", f"changes from {site.end} to ")
    done = command.run_here(["status", "--json", "--source", site.dsn, "--lake", site.lake.root])
    assert done.code == 0, done.stderr
    assert '"slot_wal_status": "lost"' in done.stdout
    assert "has lost its log" in done.stdout


def test_a_resync_without_parked_tables_shows_that_the_stream_is_lost(site: Site) -> None:
    """With the command that helps; no table is parked for it."""
    line: list[str | Path] = ["resync", "--source", site.dsn, "--lake", site.lake.root]
    assert "no table is parked" in command.run_here(line).stderr
    for lost, problem in (
        ("drop publication auditlake", "publication auditlake is gone"),
        (DROP, "slot auditlake is gone"),
    ):
        site.execute(lost)
        done = command.run_here(line)
        assert (done.code, "no table is parked" in done.stderr) == (WRONG_SOURCE, False)
        assert problem in done.stderr
        assert "auditlake resync --all" in done.stderr


def test_only_the_first_of_two_copies_of_a_lake_continues(site: Site, tmp_path: Path) -> None:
    """The other one lacks the changes from then on."""
    copy = Site(site.dsn, copy_lake(site.lake, tmp_path / "copy"))
    site.execute("insert into t values (2)")
    assert site.capture().code == 0
    copy.refused(f"stands at {site.read(CONFIRMED)}, this lake at {copy.end}", "another client has read the changes")


def test_a_capture_that_was_overtaken_before_its_check_is_a_conflict(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suspended after it opened the log, it finds the slot ahead of the position it has read; nothing is missing."""
    read, waiting = slots.read_slot, [True]

    def read_late(control: psycopg.Connection[Row], name: str) -> SlotState | None:
        if waiting:
            waiting.pop()
            site.execute("insert into t values (2)")
            end_walsender(site.dsn)
            capture(site.dsn, site.lake)
        return read(control, name)

    monkeypatch.setattr(capturing, "read_slot", read_late)
    done = site.capture()
    assert (done.code, "another process" in done.stderr) == (CONFLICT, True), done.stderr
    assert site.capture().code == 0
    assert inserted(site.lake) == [1, 2]


def test_a_capture_that_was_overtaken_in_its_check_finds_no_earlier_state(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suspended after it read the slot, it finds the lake beyond the end that the source's log had then."""
    waiting = [True]

    def read_late(lake: Lake) -> Positions | None:
        if waiting:
            waiting.pop()
            site.execute("insert into t values (2)")
            capture(site.dsn, site.lake)
        return read_positions(lake)

    monkeypatch.setattr(preconditions, "read_positions", read_late)
    done = site.capture()
    assert done.code == 0, done.stderr
    assert inserted(site.lake) == [1, 2]


def test_a_restored_server_is_refused(server: Server, site: Site) -> None:
    """A copy of its files is restored: first its log ends too early, later it has other transactions there."""
    server.stop()
    saved = server.folder / "saved"
    _copy(server.data, saved)
    server.start()
    site.execute("insert into t values (2)")
    assert site.capture().code == 0
    server.stop()
    shutil.rmtree(server.data)
    _copy(saved, server.data)
    server.start()
    site.refused("the source's log ends at", f"this lake at {site.end}", "restored to an earlier state")
    while Lsn.parse(site.read("select pg_current_wal_lsn()")) <= site.end:
        site.execute("insert into t select coalesce(max(id), 0) + 10 from t")
    site.refused("would send other transactions", f"to {site.end} than this lake holds")
    assert inserted(site.lake) == [1, 2]


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["/bin/cp", "-a", source, target], check=True)


def test_a_crashed_server_is_not_taken_for_a_restored_one(server: Server, site: Site) -> None:
    """The slot loses the last acknowledgement; the transactions it would send again are in the lake."""
    for key in (2, 3):
        site.execute(f"insert into t values ({key})")
    assert site.capture().code == 0
    server.restart("immediate")
    assert Lsn.parse(site.read(CONFIRMED)) < site.end
    site.execute("insert into t values (4)")
    done = site.capture()
    assert done.code == 0, done.stderr
    assert inserted(site.lake) == [1, 2, 3, 4]


def test_capture_continues_after_a_crash_and_a_stop(server: Server, site: Site) -> None:
    """The outage may last for any time."""
    with Running(site.dsn, site.lake) as running:
        server.restart("immediate")
        site.execute("insert into t values (2)")
        running.await_keys(1, 2)
        server.stop()
        running.said.clear()
        running.await_said("trying again")
        server.start()
        site.execute("insert into t values (3)")
        running.await_keys(1, 2, 3)
