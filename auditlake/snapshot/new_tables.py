"""New tables: find tables without a history while `follow` runs, and copy them in a process of their own.

`watch` compares a digest of the catalog's tables and of the publication every few seconds, at the cost of one query of
about a millisecond. If it has changed, the tables to follow are chosen as bootstrap does:

    the publication has all tables, or all of a schema     those that it publishes
    it lists its tables                                    those that it publishes; if bootstrap created it, also the
                                                           others that match the setting `tables`, or, if that is not
                                                           set, the tables with which it was created; they are added

They are copied by bootstrap in a child process: a temporary slot gives them a snapshot LSN of their own, and nothing
that is followed already is interrupted. Memory and a failure stay in that process. It reads one pickled `Job` from
standard input and exits at once, wherever it is, when that ends: its parent has closed it or was killed. That is as
safe as any kill of a bootstrap. What it leaves unfinished is copied later.

A table that cannot be followed, for example without a replica identity, is reported once. It makes the copy of all fail
before it begins, so the tables are then copied by halves. One in the lake's own schema is reported, and not copied.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import psycopg

from auditlake.engine import Engine
from auditlake.errors import AuditlakeError, SourceUnreachable
from auditlake.lake.histories import list_histories
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import created_publication, read_created_for, read_lsn_offset
from auditlake.messages import Event, FailureReports, Notice, Say, report_bug
from auditlake.relation import TableName
from auditlake.snapshot.bootstrap import Target, bootstrap
from auditlake.snapshot.plan import OURS, chosen_of, read_source, without_ours
from auditlake.snapshot.worker_pool import start_workers
from auditlake.source.catalog import FollowedTable, read_tables_digest
from auditlake.source.connection import Row, connect
from auditlake.source.publication import find_existing
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.values.escapes import visible

_INTERVAL_S = 3.0
_LONGEST_PAUSE_S = 600.0
_END_TIMEOUT_S = 10.0
_RETRY_LOOKS = 20
_BUG = 1
_COPIED, _ERROR = "copied: ", "error: "
"""Begin a line of the child process; it may also have some of a JVM."""
_UNEXPECTED = "it ended unexpectedly"
# with `python -m` the child would have two classes `Job`, and `lean` must run before slow imports.
_CHILD = "from auditlake.startup import lean; lean(); from auditlake.snapshot.new_tables import main; main()"


@dataclass(frozen=True, slots=True)
class Job:
    """A bootstrap for the child process: its target, Spark's settings and its engine."""

    target: Target
    spark: Mapping[str, str]
    engine: Engine = Engine.AUTO


def watch(job: Job, stop: threading.Event, report: Say) -> None:
    """Copy new tables until `stop`; report every other failure than a lost source once, and look again later.

    Pauses double after each failure in succession.
    """
    looks, failures, pause_s = _Looks(job, stop, report), FailureReports(report), _INTERVAL_S
    while not stop.wait(pause_s):
        try:
            looks.look()
        except SourceUnreachable:  # capture reports it
            looks.close()
        except Exception as exc:  # noqa: BLE001 - capture and the tables that are followed go on
            looks.close()
            failures.report("new tables cannot be looked for, trying again later", exc)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        else:
            failures.forget()
            pause_s = _INTERVAL_S
    looks.close()


class _Looks:
    def __init__(self, job: Job, stop: threading.Event, report: Say) -> None:
        self._job, self._stop, self._report = job, stop, report
        self._conn: psycopg.Connection[Row] | None = None
        self._digest: str | None = None
        self._unchanged = 0
        self._reported: set[str] = set()
        self._failed: dict[TableName, object] = {}

    def look(self) -> None:
        """Copy the tables that have no history, if the catalog has changed since the last look, or a minute ago."""
        if self._conn is None:
            self._conn = connect(self._job.target.conninfo, read_lsn_offset(self._job.target.lake))
        digest = read_tables_digest(self._conn, self._job.target.publication)
        again = self._unchanged >= _RETRY_LOOKS
        if digest == self._digest and not again:
            self._unchanged += 1
            return
        found, ours = _find(self._conn, self._job.target)
        for name, is_copied in ours:
            what = "is followed on, but no question finds it by this name" if is_copied else "is not followed"
            self.report_once(f"{name} {what}: {OURS}")
        new = [table for table in found if again or self._failed.get(table.name) != table.shape]
        if new:
            self.close()  # the copy has its own connections
            self._copy_all(new)
        self._digest, self._unchanged = digest, 0  # not after a failure

    def _copy_all(self, new: Sequence[FollowedTable]) -> None:
        """Copy tables together or, if that fails, by halves, and remember which failed in which shape."""
        copied = _copied(self._job.target.lake)
        missing = [table for table in new if table.relation.oid not in copied]
        if not missing or self._stop.is_set() or self._copy(missing, report=len(missing) == 1):
            return
        if len(missing) == 1:
            self._failed[missing[0].name] = missing[0].shape
            return
        half = len(missing) // 2
        self._copy_all(missing[:half])
        self._copy_all(missing[half:])

    def _exists(self, table: FollowedTable) -> bool:
        with connect(self._job.target.conninfo) as conn:
            return bool(find_existing(conn, [table.relation.oid]))

    def close(self) -> None:
        """Close the connection; the next look opens another."""
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()

    def report_once(self, line: str) -> None:
        """Report a line that was not reported before."""
        if line not in self._reported:
            self._reported.add(line)
            self._report(line)

    def _copy(self, tables: Sequence[FollowedTable], *, report: bool) -> bool:
        """Copy these tables in a child process; return whether it succeeded, and `report` if it did not."""
        names = frozenset(table.name for table in tables)
        job = replace(self._job, target=replace(self._job.target, wanted=names))
        command = [sys.executable, "-c", _CHILD]
        lines: list[str] = []
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as child:
            reader = threading.Thread(target=_read_lines, args=(child, lines), daemon=True)
            reader.start()
            assert child.stdin is not None  # noqa: S101 - a pipe was asked for
            with suppress(OSError):
                pickle.dump(job, child.stdin)
                child.stdin.flush()
            while child.poll() is None:
                if self._stop.wait(0.1):
                    _end(child)
            reader.join(_END_TIMEOUT_S)
        copied = child.returncode == 0
        for line in lines if copied else ():
            told = line.removeprefix(_COPIED)
            self._report(Notice(Event.TABLE_COPIED, told) if told != line else line)
        if report and not copied and not self._stop.is_set() and self._exists(tables[0]):
            self.report_once(_failure(f"{tables[0].name} is not followed: ", child.returncode, lines))
        return copied


def _failure(what: str, returncode: int, lines: Sequence[str]) -> Notice:
    """Return why a copy failed: its last line, or the whole report of a bug."""
    if returncode == _BUG:
        first, *below = lines or [_UNEXPECTED]
        return Notice(Event.TABLE_NOT_COPIED, what + first, [f"  {line}" for line in below])
    why = next((line.removeprefix(_ERROR) for line in reversed(lines) if line), _UNEXPECTED)
    return Notice(Event.TABLE_NOT_COPIED, what + why)


def _read_lines(child: "subprocess.Popen[bytes]", lines: list[str]) -> None:
    assert child.stderr is not None  # noqa: S101 - a pipe was asked for
    lines.extend(line.decode(errors="replace").rstrip() for line in child.stderr)


def _end(child: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):
        child.stdin.close()  # type: ignore[union-attr]
    try:
        child.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()


def find_new(conn: psycopg.Connection[Row], target: Target) -> list[FollowedTable]:
    """Find the tables to follow that have no history."""
    return _find(conn, target)[0]


def _find(conn: psycopg.Connection[Row], target: Target) -> tuple[list[FollowedTable], list[tuple[TableName, bool]]]:
    """Find the same, and the tables in the lake's own schema, with whether they came there with a history."""
    source = read_source(conn, target.publication)
    created_for = read_created_for(target.lake)
    ours = created_publication(target.lake)
    wanted = target.wanted if target.wanted is not None or not ours else created_for
    copied = _copied(target.lake)
    every = [t for t in chosen_of(source, wanted) if ours or source.published(t.name) is not None]
    free, _ = without_ours(every)
    new = [table for table in free if table.relation.oid not in copied]
    return new, [(t.name, t.relation.oid in copied) for t in every if t not in free]


def _copied(lake: Lake) -> frozenset[int]:
    """Return the OIDs of the tables with a history, also under a former name."""
    return frozenset(history.oid for history in list_histories(lake))


def main() -> None:
    """Run one job in the child process, and exit; failures go to standard error, one line each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to us, too; the parent decides
    try:
        code = _run(pickle.load(sys.stdin.buffer))  # noqa: S301 - from our own parent
    except Exception as exc:  # noqa: BLE001 - its text might quote rows
        report_bug(exc)
        code = _BUG
    sys.stderr.flush()
    os._exit(code)  # a thread reads standard input


def _run(job: Job) -> int:
    """Copy the tables of a job; return the exit code."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        spark = SparkOnDemand(job.spark, job.engine)
        copied = bootstrap(job.target, lambda: start_workers(spark), lambda _: None)
    except AuditlakeError as exc:
        _tell(f"{_ERROR}{exc.message}{f'. {exc.hint}' if exc.hint else ''}")
        return exc.exit_code
    for table in copied:
        _tell(f"{_COPIED}{table.name} is a new table: copied {table.rows:,} rows at {table.snapshot_lsn}")
    return 0


def _tell(line: str) -> None:
    """Write a line for the parent, which a name does not end."""
    sys.stderr.write(f"{visible(line)}\n")


def _exit_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)
