"""A publication that was changed under a lake: said before the first byte, or soon after while capture runs."""

import json
from pathlib import Path
from unittest import mock

import psycopg
import pytest

from auditlake.errors import WrongSource
from auditlake.lake.layout import Lake
from auditlake.lake.membership import recorded_or_new
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.postgres.connection import connect
from auditlake.postgres.membership import read_membership
from auditlake.relation import TableName
from tests import command
from tests.capture_lake import make_lake
from tests.running import Running, inserted
from tests.server import chosen_version

pytestmark = pytest.mark.pg

WRONG_SOURCE = 5


@pytest.fixture
def lake(database: str, tmp_path: Path) -> Lake:
    """A lake of two empty tables, from which capture has read once."""
    execute(database, "create table t (id int primary key, v text)", "create table u (id int primary key)")
    lake = make_lake(database, tmp_path / "lake")
    assert capture(database, lake).code == 0
    return lake


def execute(dsn: str, *statements: str) -> None:
    """Run statements, each in a transaction of its own."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement)


def capture(dsn: str, lake: Lake) -> command.Done:
    """Capture what is there now."""
    return command.run_here(["capture", "--until-current", "--source", dsn, "--lake", lake.root])


def wal_end(dsn: str) -> Lsn:
    """End of the server's log, written yet or not."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0])


AGAIN = "create publication auditlake for table t, u"
PUT_BACK = {"a table renamed": ["alter table s rename to t"]}
LOSSES = {
    "dropped": (["drop publication auditlake"], ["publication auditlake is gone"]),
    "dropped, and made again": (
        ["drop publication auditlake", "insert into t values (1)", AGAIN],
        ["dropped and created again"],
    ),
    "inserts only": (
        ["alter publication auditlake set (publish = 'insert')"],
        ["no longer carries delete, truncate, update"],
    ),
    "a table taken out": (["alter publication auditlake drop table t"], ["no longer carries public.t"]),
    "a table taken out, and put back": (
        ["alter publication auditlake drop table t", "alter publication auditlake add table t"],
        ["public.t", "taken out and put back"],
    ),
    "a table dropped, and made again": (
        ["drop table t", "create table t (id int primary key, v text)", "alter publication auditlake add table t"],
        ["table public.t was dropped and created again"],
    ),
    "a table renamed": (["alter table t rename to s"], ["no longer carries public.t"]),
    "a row filter": (
        ["alter publication auditlake set table t where (id > 5), u"],
        ["public.t", "row filter or columns were changed"],
    ),
    "fewer columns": (
        ["alter publication auditlake set table t (id), u"],
        ["public.t", "row filter or columns were changed"],
    ),
}


def test_a_publication_that_carries_less(database: str, lake: Lake) -> None:
    """Refused with the bounds of what is missing, and nothing is read; each kind after the record was made anew."""
    before = read_positions(lake)
    for kind, (statements, words) in LOSSES.items():
        low = wal_end(database)
        execute(database, *statements)
        done = capture(database, lake)
        assert done.code == WRONG_SOURCE, (kind, done.stderr)
        for word in words:
            assert word in done.stderr, kind
        assert "public.u" not in done.stderr
        since, _, end = done.stderr.split("changes from ")[1].split()[:3]
        assert Lsn.parse(since) <= low < Lsn.parse(end) <= wal_end(database)
        assert read_positions(lake) == before
        execute(database, "drop publication if exists auditlake", *PUT_BACK.get(kind, ()), AGAIN)
        lake.publication.unlink(missing_ok=True)
        with connect(database) as conn:
            found = read_membership(conn, "auditlake")
        assert found is not None
        recorded_or_new(lake, found)


def test_a_publication_that_carries_as_much_or_more(database: str, lake: Lake) -> None:
    """Another owner, one table more, the same list again: followed; that a table of the lake was dropped is said."""
    execute(
        database,
        "alter publication auditlake owner to current_user",
        "create table more (id int primary key)",
        "alter publication auditlake add table more",
        "alter publication auditlake set table t, u, more",
        "drop table u",
        "insert into t values (1)",
    )
    done = capture(database, lake)
    assert done.code == 0, done.stderr
    assert "table public.u was dropped at the source" in done.stderr


def test_a_table_that_is_followed_no_longer(database: str, lake: Lake, tmp_path: Path) -> None:
    """Its history moved away, nothing is missing; the others go on."""
    execute(database, "alter publication auditlake drop table t", "insert into u values (7)")
    done = capture(database, lake)
    assert done.code == WRONG_SOURCE
    assert f"move {lake.history(TableName('public', 't'))} away" in done.stderr
    status = command.run_here(["status", "--json", "--source", database, "--lake", lake.root])
    assert "no longer carries public.t: its changes from" in json.loads(status.stdout)["source_problem"]
    lake.history(TableName("public", "t")).rename(tmp_path / "away")
    done = capture(database, lake)
    assert done.code == 0, done.stderr
    assert inserted(lake) == [7]


def test_while_capture_runs(database: str, lake: Lake) -> None:
    """The next look ends it; what came until then is in the log."""
    with mock.patch("auditlake.capture.guard._INTERVAL_S", 0.05), Running(database, lake) as running:
        execute(database, "insert into t values (1)")
        running.await_keys(1)
        low = wal_end(database)
        execute(database, "alter publication auditlake drop table u")
        failure = running.await_failure()
    assert isinstance(failure, WrongSource)
    assert "no longer carries public.u" in failure.message
    since, _, end = failure.message.split("changes from ")[1].split()[:3]
    assert Lsn.parse(since) <= low <= Lsn.parse(end)
    assert failure.hint is not None
    assert str(lake.history(TableName("public", "u"))) in failure.hint


def test_a_publication_that_was_missed_by_the_slot(database: str, lake: Lake) -> None:
    """Up to 17 the slot can never get past a change made without a publication; 18 leaves it out without a word."""
    with mock.patch("auditlake.capture.guard.find_losses", return_value=[]):
        execute(database, "drop publication auditlake", "insert into t values (1)", AGAIN, "insert into t values (2)")
        done = capture(database, lake)
    if chosen_version() >= 18:
        assert done.code == 0, done.stderr
    else:
        assert done.code == WRONG_SOURCE, done.stderr
        assert "can be read no further" in done.stderr
        assert "changes from" in done.stderr
