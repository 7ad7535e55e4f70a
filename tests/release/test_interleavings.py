"""Two processes that write to one history: one is suspended right before its commit, and another one commits meanwhile.

Both believe to be alone: stage locks are off, as if a lease had expired, or a file system had no locks. So only the
commits decide. Every state is PostgreSQL's afterwards, each change is in the lake once, and no position moved back.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGCONT, SIGKILL

import psycopg
import pytest

from auditlake.lake.layout import Lake
from tests import command, oracle
from tests.crash.killed import SPARK
from tests.release.test_s3_interleavings import change, check, end_walsender

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(900)]

_UNLOCKED = """
import contextlib
import auditlake.lake.stage_lock as stage_lock
stage_lock.hold = lambda *_: contextlib.nullcontext()
"""
_BEFORE_COMMIT = """
import os, signal
import auditlake.delta.log_writer as log_writer
written, waiting = log_writer.put_commit, [True]

def put_commit(path, version, operation, actions):
    if waiting and path.name == "orders" and ("maintain" if operation == "OPTIMIZE" else "apply") == %r:
        waiting.pop()
        os.kill(os.getpid(), signal.SIGSTOP)
    written(path, version, operation, actions)

log_writer.put_commit = put_commit
"""
_STOP_TIMEOUT_S, _END_TIMEOUT_S = 240.0, 240.0


class Site:
    """A lake of one table with unapplied changes and files to compact, and the states that the table had."""

    def __init__(self, database: str, place: Path) -> None:
        self.database = database
        self.lake = Lake(place)
        self.moments: list[oracle.Moment] = []
        self._steps = 0
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute("create table orders (id int primary key, note text)")
            conn.execute("insert into orders select n, 'first' from generate_series(1, 60) n")
        self.run("bootstrap")
        self.change()
        self.run("apply")
        self.change()

    def line(self, what: str) -> list[str]:
        """Return the command line of a stage."""
        both = ["--lake", str(self.lake.root), "--source", self.database]
        return {
            "bootstrap": ["bootstrap", *both],
            "capture": ["capture", "--until-current", *both],
            "apply": ["apply", "--until-current", "--lake", str(self.lake.root)],
            "maintain": ["maintain", "--lake", str(self.lake.root)],
            "resync": ["resync", "--table", "orders", *both],
        }[what]

    def run(self, *stages: str) -> None:
        """Run commands that take no lock, and must succeed; `change` changes rows and captures that."""
        for what in stages:
            if what == "change":
                self.change()
                continue
            done = command.run(self.line(what), SPARK, _UNLOCKED)
            assert done.code == 0, (what, done.stderr)

    def change(self) -> None:
        """Change rows and capture that; take the state before and after it."""
        self._steps += 1
        change(self.database, self._steps)
        self.moments.append(oracle.take_moment(self.database, ["orders"]))
        self.run("capture")

    def check(self) -> None:
        """Fail unless every state is PostgreSQL's, once all is applied."""
        self.run("change", "apply")
        check(self.database, self.lake)
        assert oracle.assert_histories_at(self.lake, self.moments) == [1] * len(self.moments)
        oracle.assert_periods(self.lake)


@pytest.fixture
def site(database: str, tmp_path: Path) -> Site:
    """A lake on the disk."""
    return Site(database, tmp_path / "lake")


@contextmanager
def _suspended(site: Site, what: str) -> Iterator[command.Process]:
    """Run a command without locks until it is suspended right before its commit."""
    with command.start(site.line(what), SPARK, _UNLOCKED + _BEFORE_COMMIT % what) as process:
        try:
            deadline = time.monotonic() + _STOP_TIMEOUT_S
            while not _is_suspended(process):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline, "its commit was not reached"
                time.sleep(0.05)
            end_walsender(site.database)  # as the server does after wal_sender_timeout
            yield process
        finally:
            process.send_signal(SIGKILL)


def _is_suspended(process: command.Process) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _resumed(process: command.Process) -> tuple[int, str]:
    """Let a suspended process go on to its end; return its exit code and messages."""
    process.send_signal(SIGCONT)
    _, messages = process.communicate(timeout=_END_TIMEOUT_S)
    return process.returncode, messages


_AND_ON = ("change", "apply")
"""Moves the position beyond what the suspended process had read."""


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ("apply", ["apply"], 6),
        ("apply", ["maintain"], 0),
        ("apply", ["resync"], 0),
        ("apply", ["resync", *_AND_ON], 0),
        ("maintain", ["apply"], 0),
    ],
)
def test_a_commit_that_was_overtaken(site: Site, first: str, second: list[str], code: int) -> None:
    """It is made anew on what the other one committed, or refused if the other one did the same work."""
    with _suspended(site, first) as process:
        site.run(*second)
        ended, messages = _resumed(process)
    assert ended == code, messages
    site.check()
