"""Two processes on one lake in S3: one is suspended past its lease, another takes over, and the first goes on.

No commit is lost, no row counted twice, and no position moves back. Each process believes to be on another machine, so
only the lease decides; it is made to expire in seconds.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import psycopg
import pytest

import auditlake
from auditlake.delta.log_reader import entry
from auditlake.delta.table import open_table
from auditlake.failpoints import After
from auditlake.lake.history import list_histories
from auditlake.lake.layout import Lake
from auditlake.store.place import Remote
from tests import command
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.crash.killed import SPARK

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(900)]

_ELSEWHERE = """
import auditlake.lake.lease as lease
lease.lives = lambda holder: None
lease.RENEW_S, lease.EXPIRY_S, lease._WATCH_S = 0.5, 3.0, 0.2
"""
_SUSPENDED = f"""{_ELSEWHERE}
import signal, types
import auditlake.failpoints as failpoints
failpoints.signal = types.SimpleNamespace(SIGKILL=signal.SIGSTOP)
"""
_STOP_TIMEOUT_S = 240.0
_END_TIMEOUT_S = 240.0
_ROWS = "select id, note from public.orders order by id"


@contextmanager
def _suspended(place: After, *arguments: str) -> Iterator[command.Process]:
    """Run a command until it is suspended right after an effect; the block lets it go on with `_resumed`."""
    environment = {**SPARK, "AUDITLAKE_FAILPOINT": f"{place}:1"}
    with command.start(arguments, environment, _SUSPENDED) as process:
        try:
            deadline = time.monotonic() + _STOP_TIMEOUT_S
            while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline, f"{place} was not reached"
                time.sleep(0.05)
            yield process
        finally:
            process.kill()


def _resumed(process: command.Process) -> tuple[int, str]:
    """Let a suspended process go on to its end; return its exit code and messages."""
    process.send_signal(signal.SIGCONT)
    _, messages = process.communicate(timeout=_END_TIMEOUT_S)
    return process.returncode, messages


def _run(*arguments: str) -> str:
    """Run a command that believes to be on another machine, and must succeed."""
    done = command.run(arguments, SPARK, _ELSEWHERE)
    assert done.code == 0, done.stderr
    return done.stdout


def change(database: str, step: int) -> None:
    """Change rows, in five transactions."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("insert into orders select %s + n, 'new' from generate_series(1, 20) n", [1000 * step])
        conn.execute("update orders set note = %s where id %% 3 = %s", [f"step {step}", step % 3])
        conn.execute("delete from orders where id %% 10 = %s", [step])
        conn.execute("update orders set note = note || '!' where id < 50")
        conn.execute("insert into orders values (%s, 'last')", [1000 * step])


def end_walsender(database: str) -> None:
    """End the replication of the suspended process, as the server does after wal_sender_timeout."""
    query = (
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
        " where backend_type = 'walsender' and datname = current_database()"
    )
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(query)


def check(database: str, lake: Lake) -> None:
    """Fail unless the lake shows what PostgreSQL shows, each change is in it once, and no position ever moved back."""
    with psycopg.connect(database) as conn:
        expected = conn.execute(_ROWS).fetchall()
    shown = auditlake.Lake(str(lake.root)).as_of().table("public.orders", columns=["id", "note"], order_by=["id"])
    assert [(row["id"], row["note"]) for row in shown.to_arrow().to_pylist()] == expected
    for place, key in ((lake.changes, ["lsn", "ordinal"]), (lake.transactions, ["lsn"])):
        rows = open_table(place).to_pyarrow_table(columns=key)
        assert len(rows) == len(rows.group_by(key).aggregate([])) > 0
    for place in (lake.changes, lake.transactions, *(table.path for table in list_histories(lake))):
        _check_positions(place)


def _check_positions(place: Path) -> None:
    last: dict[str, int] = {}
    for version in range(open_table(place).version() + 1):
        for action in entry(place, version):
            if moved := action.get("txn"):
                assert moved["version"] >= last.get(moved["appId"], 0), (str(place), version, moved)
                last[moved["appId"]] = moved["version"]


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
        ended, messages = _resumed(first)
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
        ended, messages = _resumed(first)
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
        ended, messages = _resumed(first)
    assert (ended, "another process applies changes to public.orders" in messages) == (6, True), messages
    change(database, 4)
    capture(database, lake)
    _run(*arguments)
    check(database, lake)
