"""Two processes on one lake in S3: one is suspended past its lease, another takes over, and the first goes on.

No commit is lost, no row counted twice, and no position moves back. Each process believes to be on another machine, so
only the lease decides; it is made to expire in seconds.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import psycopg
import pytest

from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from auditlake.store.place import Remote
from tests import command
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.crash.killed import SPARK
from tests.interleaved import Suspended, change, check, end_walsender, suspended

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(900)]

_ELSEWHERE = """
import auditlake.lake.lease as lease
lease.lives = lambda holder: None
lease.RENEW_S, lease.EXPIRY_S, lease._WATCH_S = 0.5, 3.0, 0.2
"""
_SUSPENDED = f"""{_ELSEWHERE}
import os, types
import auditlake.failpoints as failpoints
from tests.suspending import suspend
failpoints.os = types.SimpleNamespace(environ=os.environ, getpid=os.getpid, kill=lambda *_: suspend())
"""


@contextmanager
def _suspended(place: After, *arguments: str) -> Iterator[Suspended]:
    """Run a command until it is suspended right after an effect."""
    environment = {**SPARK, "AUDITLAKE_FAILPOINT": f"{place}:1"}
    with command.start(arguments, environment, _SUSPENDED) as process, suspended(process) as found:
        yield found


def _run(*arguments: str) -> str:
    """Run a command that believes to be on another machine, and must succeed."""
    done = command.run(arguments, SPARK, _ELSEWHERE)
    assert done.code == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("place", [After.RELATIONS, After.TRANSACTIONS, After.CHANGES])
def test_a_suspended_capture_is_taken_over(database: str, remote_folder: Remote, place: After) -> None:
    """Its commit is refused, or it finds its connection closed first and begins again: whichever thread is faster."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table orders (id int primary key, note text)")
    lake, folder = make_lake(database, cast("Path", remote_folder)), str(remote_folder)
    arguments = ["capture", "--until-current", "--lake", folder, "--source", database]
    change(database, 1)
    with _suspended(place, *arguments) as first:
        change(database, 2)
        end_walsender(database)
        _run(*arguments)
        change(database, 3)
        _run(*arguments)
        ended, messages = first.resume()
    assert ended in {0, 6}, messages
    change(database, 4)
    _run(*arguments)
    check(database, lake)


@pytest.mark.parametrize("place", [After.HISTORY_CREATED, After.FILES_COPIED])
def test_a_suspended_bootstrap_is_taken_over(database: str, remote_folder: Remote, place: After) -> None:
    """Its commit comes second and is refused; it deletes nothing of the other's."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table orders (id int primary key, note text)")
        # Few rows: a walsender blocked on the full socket of its suspended client does not end when terminated.
        conn.execute("insert into orders select n, 'first' from generate_series(1, 60) n")
    folder = str(remote_folder)
    both = ["--lake", folder, "--source", database]
    with _suspended(place, "bootstrap", *both) as first:
        change(database, 1)
        end_walsender(database)
        _run("bootstrap", *both)
        change(database, 2)
        _run("capture", "--until-current", *both)
        ended, messages = first.resume()
    assert ended == 6, messages
    change(database, 3)
    _run("capture", "--until-current", *both)
    check(database, Lake(cast("Path", remote_folder)))


def test_a_suspended_apply_is_taken_over(database: str, remote_folder: Remote) -> None:
    """The rows that it has written are in no commit: that is refused, because the other moved the position."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table orders (id int primary key, note text)")
    lake, folder = make_lake(database, cast("Path", remote_folder)), str(remote_folder)
    arguments = ["apply", "--until-current", "--lake", folder]
    change(database, 1)
    capture(database, lake)
    _run(*arguments)
    change(database, 2)
    capture(database, lake)
    with _suspended(After.ROWS_WRITTEN, *arguments) as first:
        _run(*arguments)
        change(database, 3)
        capture(database, lake)
        _run(*arguments)
        ended, messages = first.resume()
    assert (ended, "another process applies changes to public.orders" in messages) == (6, True), messages
    change(database, 4)
    capture(database, lake)
    _run(*arguments)
    check(database, lake)
