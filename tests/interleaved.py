"""Two processes that write to one history of a lake: one is suspended right before its commit, another commits.

Both believe to be alone: stage locks are off, so only the commits decide.
"""

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psycopg

import auditlake
from auditlake.delta.log_reader import entry
from auditlake.delta.table import open_table
from auditlake.lake.histories import list_histories
from auditlake.lake.layout import Lake
from tests import command, oracle, suspending
from tests.capture_once import capture
from tests.crash.killed import SPARK

STOP_TIMEOUT_S, END_TIMEOUT_S = 240.0, 240.0
_ROWS = "select id, note from public.orders order by id"
_FORCED = {
    "merge": ("apply", "merging()"),
    "optimize": ("maintain", "optimizing()"),
    "expire": ("maintain", "expiring()"),
}
_BY_JVM = {"merge", "optimize"}
AND_ON = ("change", "apply")
"""Moves the position beyond what a suspended process had read."""


def change(database: str, step: int) -> None:
    """Change rows, in five transactions."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("insert into orders select %s + n, 'new' from generate_series(1, 20) n", [1000 * step])
        conn.execute("update orders set note = %s where id %% 3 = %s", [f"step {step}", step % 3])
        conn.execute("delete from orders where id %% 10 = %s", [step % 10])
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


class Writer(NamedTuple):
    """A command that writes to the history of `orders`, and the number of one of its commits.

    `merge` is an apply and `optimize` a maintain whose commits the JVM makes; `expire` is a maintain that only deletes.
    """

    name: str
    commit: int = 1

    def __str__(self) -> str:
        return f"{self.name}-{self.commit}"

    @property
    def code(self) -> str:
        """Return the code with which it takes no lock and is suspended before the commit."""
        by = "before_commit_of_jvm" if self.name in _BY_JVM else "before_commit"
        return _code(self.name, f"{by}({self.commit})")


def shown(parameter: object) -> str:
    """Return the id of a test's parameter."""
    return "-".join(parameter) if isinstance(parameter, list) else str(parameter)


def _code(name: str, *calls: str) -> str:
    forced = [_FORCED[name][1]] if name in _FORCED else []
    return suspending.code("without_locks()", *calls, *forced)


class Site:
    """A lake of one table, and the states that the table had, for one interleaving after the other."""

    def __init__(self, database: str, place: Path) -> None:
        self.database = database
        self.lake = Lake(place)
        self.moments: list[oracle.Moment] = []
        self.is_checked = True
        self._steps = 0
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute("create table orders (id int primary key, note text)")
            conn.execute("insert into orders select n, 'first' from generate_series(1, 60) n")
        self.run("bootstrap", "change", "apply")

    def begin(self) -> None:
        """Leave unapplied changes, beside several small files that are due for compaction."""
        self.is_checked = False
        self.run("change")

    @property
    def version(self) -> int:
        """The Delta version of the history."""
        return list_histories(self.lake)[0].delta_version

    def line(self, name: str) -> list[str]:
        """Return the command line of a writer, or of bootstrap."""
        both = ["--lake", str(self.lake.root), "--source", self.database]
        command_name, _ = _FORCED.get(name, (name, None))
        return {
            "bootstrap": ["bootstrap", *both],
            "apply": ["apply", "--until-current", "--lake", str(self.lake.root)],
            "maintain": ["maintain", "--lake", str(self.lake.root)],
            "resync": ["resync", "--table", "orders", *both],
        }[command_name]

    def run(self, *names: str) -> None:
        """Run commands that take no lock, and must succeed; `change` changes rows and captures that."""
        for name in names:
            if name == "change":
                self._change()
                continue
            done = self.ended(name)
            assert done.code == 0, (name, done.stderr)

    def ended(self, name: str) -> command.Done:
        """Run a command that takes no lock to its end."""
        return command.run(self.line(name), SPARK, _code(name))

    def _change(self) -> None:
        self._steps += 1
        change(self.database, self._steps)
        self.moments.append(oracle.take_moment(self.database, ["orders"]))
        capture(self.database, self.lake)

    def check(self) -> None:
        """Fail unless every state is PostgreSQL's, once all is applied."""
        self.run("change", "apply")
        check(self.database, self.lake)
        assert oracle.assert_histories_at(self.lake, self.moments) == [1] * len(self.moments)
        oracle.assert_periods(self.lake)
        self.is_checked = True


class Suspended:
    """A command that is suspended, or whose JVM is."""

    def __init__(self, process: command.Process, pid: int) -> None:
        self._process = process
        self._pidfd = os.pidfd_open(pid)

    def resume(self) -> tuple[int, str]:
        """Let it go on to its end; return its exit code and messages."""
        signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)
        _, messages = self._process.communicate(timeout=END_TIMEOUT_S)
        return self._process.returncode, messages

    def kill_parent(self) -> None:
        """Kill the Python process; its JVM stays suspended."""
        self._process.kill()
        self._process.wait()

    def resume_orphan(self) -> None:
        """Let the JVM go on to its end, when its Python process has been killed."""
        signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        assert ended.poll(1000 * END_TIMEOUT_S), "the JVM did not end"

    def end(self) -> None:
        """Kill whatever is still there."""
        for kill in (self._process.kill, lambda: signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)):
            try:
                kill()
            except ProcessLookupError:
                continue
        os.close(self._pidfd)


@contextmanager
def suspended(process: command.Process) -> Iterator[Suspended]:
    """Wait until a process, or its JVM, is suspended; both are killed at the end of the block."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while (pid := _suspended_pid(process.pid)) is None:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "its commit was not reached"
        time.sleep(0.05)
    writer = Suspended(process, pid)
    try:
        yield writer
    finally:
        writer.end()


@contextmanager
def suspended_before_commit(site: Site, writer: Writer) -> Iterator[Suspended]:
    """Run a command without locks until it is suspended right before its commit."""
    with command.start(site.line(writer.name), SPARK, writer.code) as process, suspended(process) as found:
        end_walsender(site.database)
        yield found


def check_overtaken(site: Site, first: Writer, second: list[str], code: int) -> None:
    """Let others commit while the first one is suspended; fail unless it ends with this code, and the lake is right."""
    with suspended_before_commit(site, first) as process:
        site.run(*second)
        ended, messages = process.resume()
    assert ended == code, messages
    site.check()


def _suspended_pid(pid: int) -> int | None:
    """Return which process is suspended, if any; None also if a thread or a child ended while they were read."""
    with suppress(FileNotFoundError, ProcessLookupError):
        children = [file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children")]
        for each in (pid, *(int(child) for found in children for child in found)):
            if Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                return each
    return None
