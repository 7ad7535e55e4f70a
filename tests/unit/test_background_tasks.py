"""Tasks beside the main thread: any failure of one is reported once, and it goes on; none ends unseen."""

import ast
import errno
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest

from auditlake.capture.supervisor import Capturing
from auditlake.errors import LakeUnusable
from auditlake.feed.feed import Feed
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Cause, Parked
from auditlake.ledger.beside import Sealing
from auditlake.ledger.seal import Sealer
from auditlake.lsn import Lsn
from auditlake.messages import Say
from auditlake.relation import TableName
from auditlake.replication.stream import ReplicationStream
from auditlake.resync import automatic, resync
from auditlake.resync.automatic import AutomaticResync
from auditlake.resync.resync import ResyncTarget
from auditlake.serve.resources import Resources
from auditlake.snapshot import new_tables
from auditlake.source import lock_waits
from tests.page import Page, write_lake
from tests.running import await_true

_T = TableName("public", "t")
_PARKED = {_T: Parked(_T, Cause.PARTITIONS, Lsn(1), Lsn(2), "a partition was attached", "wait")}
_Failure = tuple[Callable[[], Exception], str]
_FAILURES: dict[str, _Failure] = {
    "file": (lambda: OSError(errno.ENOSPC, "No space left on device", "/lake/x"), "/lake/x: No space left on device"),
    "store": (lambda: LakeUnusable("it answered 503", "Wait for it."), "it answered 503. Wait for it."),
    "memory": (MemoryError, "memory ran out"),
    "source": (lambda: psycopg.OperationalError("secret"), "unexpected OperationalError at"),
    "bug": (lambda: KeyError("secret"), "unexpected KeyError at"),
}


@pytest.fixture(params=_FAILURES)
def failure(request: pytest.FixtureRequest) -> _Failure:
    """Makes an exception; and what is reported of it."""
    return _FAILURES[request.param]


def _raising(failure: Callable[[], Exception], calls: list[object], succeed_at: int) -> Callable[..., list[object]]:
    def call(*_: object, **__: object) -> list[object]:
        calls.append(None)
        if len(calls) < succeed_at:
            raise failure()
        return []

    return call


def _once(said: list[str], words: str) -> None:
    found = [line for line in said if words in line]
    assert len(found) == 1, said
    assert "secret" not in "".join(said)


def test_a_failed_resync_is_reported_once_and_tried_again(
    failure: _Failure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread goes on, with longer and longer pauses, until a snapshot succeeds."""
    calls, said = list[object](), list[str]()
    monkeypatch.setattr(resync, "resync", _raising(failure[0], calls, succeed_at=3))
    monkeypatch.setattr(automatic, "_FIRST_PAUSE_S", 0.0)
    lake = Lake(tmp_path)
    again = AutomaticResync(lambda: ResyncTarget("", lake), lambda: pytest.fail("no worker is needed"), said.append)

    def tended() -> bool:
        again.tend(_PARKED, lambda: pytest.fail("no JVM is needed"), Capturing(lake, None))
        return len(calls) >= 4

    await_true(tended)
    again.close()
    _once(said, failure[1])
    _once(said, "no new snapshot of public.t, trying again later")


def test_a_resync_that_fails_before_a_target_ends_the_run(
    failure: _Failure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no later time to try it again, so the failure itself is raised."""
    monkeypatch.setattr(resync, "resync", _raising(failure[0], [], succeed_at=2))
    lake = Lake(tmp_path)
    again = AutomaticResync(lambda: ResyncTarget("", lake), lambda: pytest.fail("no worker is needed"), lambda _: None)
    with pytest.raises(type(failure[0]())):
        again.finish(_PARKED, lambda: pytest.fail("no JVM is needed"), Capturing(lake, None))
    again.close()


def test_workers_that_start_while_a_resync_is_closed_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the end of `follow` would wait for the whole copy, or for what Spark folds."""
    lake, workers, ended = Lake(tmp_path), mock.Mock(), list[bool]()

    def start() -> mock.Mock:
        with mock.patch.object(ThreadPoolExecutor, "shutdown"):  # this is the pool's thread
            again.close()
        return workers

    def run(_target: ResyncTarget, _names: list[TableName], starters: resync.Starters, _report: Say) -> None:
        starters.workers()
        ended.append(starters.stop is not None and starters.stop.is_set())

    monkeypatch.setattr(resync, "resync", run)
    again = AutomaticResync(lambda: ResyncTarget("", lake), start, lambda _: None)
    again.tend(_PARKED, lambda: pytest.fail("no JVM is needed"), Capturing(lake, None))
    await_true(lambda: not again.is_running)
    workers.close.assert_called_once()
    assert ended == [True]
    again.close()


def test_a_failed_seal_is_reported_once_and_tried_again(
    failure: _Failure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pass is another try; what failed for a moment is sealed by a later one."""
    calls, said = list[object](), list[str]()
    monkeypatch.setattr(Sealer, "seal", _raising(failure[0], calls, succeed_at=3))
    sealing = Sealing(Lake(tmp_path), None, "tests", said.append, 30.0, lambda: False)
    for _ in range(4):
        sealing.once()
    assert len(calls) == 3
    _once(said, f"sealing failed, trying again while capture goes on: {failure[1]}")


def test_a_failed_look_for_new_tables_is_reported_once_and_repeated(
    failure: _Failure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pauses double while looks fail."""
    calls, said, stop = list[object](), list[str](), threading.Event()
    monkeypatch.setattr("auditlake.snapshot.new_tables._Looks.look", _raising(failure[0], calls, succeed_at=3))
    monkeypatch.setattr(new_tables, "_INTERVAL_S", 0.001)
    job: Any = None
    watching = threading.Thread(target=new_tables.watch, args=(job, stop, said.append))
    watching.start()
    await_true(lambda: len(calls) >= 4)
    stop.set()
    watching.join()
    _once(said, failure[1])


def test_a_copy_goes_on_looking_for_sessions_that_wait_for_it(
    failure: _Failure, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise a command of the application could wait for the whole copy."""
    calls = list[object]()
    monkeypatch.setattr(lock_waits, "connect", _raising(failure[0], calls, succeed_at=10_000))
    monkeypatch.setattr(lock_waits, "_LOOK_S", 0.001)
    giving_way = lock_waits.GivingWay("", 0, "")
    giving_way.start()
    await_true(lambda: len(calls) >= 3)
    giving_way.stop()
    _once(capsys.readouterr().err.splitlines(), failure[1])


def test_what_ends_the_status_updates_is_raised_by_the_next_receive(
    failure: _Failure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without updates the server would end the connection."""
    monkeypatch.setattr(ReplicationStream, "acknowledge", _raising(failure[0], [], succeed_at=2))
    unused: Any = mock.Mock()
    stream = ReplicationStream(unused, Lsn(0), unused, 0)
    stream.keep_alive(0.0)
    await_true(lambda: all(thread.name != "auditlake-status" for thread in threading.enumerate()))
    with pytest.raises(type(failure[0]())):
        stream.receive(unused, unused, 0.0, unused)
    stream.close()


def test_a_worker_ends_if_it_cannot_read_its_tasks() -> None:
    """Its parent would wait for results for ever."""
    command = [sys.executable, "-m", "auditlake.snapshot.worker_pool"]
    done = subprocess.run(command, input=b"no pickle", capture_output=True, check=False, timeout=60)
    assert done.returncode == 1
    assert b"error: unexpected UnpicklingError" in done.stderr


def test_a_stream_of_changes_that_fails_is_reported_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A status has been sent, so the last event has the error; a browser connects again."""
    page = Page(write_lake(tmp_path / "lake"))
    monkeypatch.setattr(Feed, "take", _raising(lambda: LakeUnusable("a file is gone", "Run verify."), [], succeed_at=9))
    answer = page.get("/api/v1/changes", since="beginning")
    assert answer.status_code == 200
    assert answer.text.endswith('event: problem\ndata: {"error":"a file is gone","hint":"Run verify.","code":6}\n\n')
    assert capsys.readouterr().err.count("a stream of changes was cut short: a file is gone") == 1


def test_an_export_that_fails_is_reported_and_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows that were sent could be taken for all of them."""
    page = Page(write_lake(tmp_path / "lake"))
    monkeypatch.setattr("auditlake.query.formats._csv_field", _raising(lambda: OSError(5, "secret"), [], succeed_at=9))
    with pytest.raises(OSError, match="secret"):  # which the server answers by ending the connection
        page.get("/api/v1/export", table="orders")
    said = capsys.readouterr().err
    assert said.count("an export was cut short: a file of the lake cannot be read") == 1
    assert "secret" not in said


def test_the_end_of_an_export_that_fails_is_reported(
    failure: _Failure, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No request waits for it."""

    def fail() -> None:
        error = failure[0]()
        raise error

    resources = Resources(Lake(tmp_path), UTC)
    resources.finish(fail)
    await_true(lambda: capsys.readouterr().err.startswith("auditlake: error: "))
    resources.close()


def test_a_thread_that_ends_with_a_failure_is_reported_without_its_message() -> None:
    """Whatever thread of a command it is; Python would print the message, which may quote rows."""
    code = """
import sys, threading
from auditlake.cli.main import main
sys.argv = ["auditlake", "--help"]
main()
threading.Thread(target=lambda: int("secret")).start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "error: unexpected ValueError at" in done.stderr
    assert "secret" not in done.stderr


_HOOK = "it is reported as a bug, and what waits for the thread goes on"
_FAILS_ALONE = "it has no effect, and the same is tried again when it is needed, which reports it"
_BESIDE = {
    ("apply/stopping", "self._watch"): _HOOK,
    ("background", "work"): "as in the modules that call it",
    ("cancellation", "self._interrupt"): _HOOK,
    ("cancellation", "self._watch"): _HOOK,
    ("demo/shop", "self._trade"): "raised by `close`",
    ("exchange", "self._run"): "raised by `head`; after that, the rest of an answer is taken as lost",
    ("follow", "watch"): "reported, and tried again",
    ("lake/lease", "self._renew"): "reported, and tried again",
    ("metrics/readings", "self._run"): "reported, and tried again",
    ("metrics/server", "_end"): _HOOK,
    ("metrics/server", "server.serve_forever"): "a failure of a request is reported",
    ("metrics/service", "_notify_until"): "reported, and tried again; else the watchdog ends the process",
    ("replication/stream", "self._update"): "raised by `receive`",
    ("sandbox/statements", "self._await_end"): "the process ends with its server by the kernel, or by its alarm",
    ("serve/server", "_beat()"): "the health of the server shows that it is missing",
    ("serve/sql_answers", "jobs.interrupt"): "the second timer ends the JVM",
    ("serve/sql_answers", "end_jvm"): _HOOK,
    ("snapshot/new_tables", "_read_lines"): "the exit code of the child says that it failed",
    ("snapshot/new_tables", "_exit_with_parent"): _HOOK,
    ("snapshot/progress", "_tick"): _HOOK,
    ("snapshot/worker_pool", "_receive"): "it ends the worker, which its parent reports",
    ("source/connection", "_hang_up"): _HOOK,
    ("source/lock_waits", "self._watch"): "reported, and tried again",
    ("spark/jvm", "_forward"): _HOOK,
    ("verify/comparison", "stop.set"): _HOOK,
}
"""Every thread, timer and task, and what its owner sees of a failure."""
_UNREAD = {
    ("delta/data_files", "file_path(table, file.add).read_bytes"): _FAILS_ALONE,
    ("delta/data_files", "file.deleted_positions"): _FAILS_ALONE,
    ("serve/held_tables", "self._hold_waiting"): "it reports failures, and requests read the files",
    ("serve/resources", "lambda: self.unbounded_cursor().close()"): _FAILS_ALONE,
    ("serve/resources", "self.reader"): _FAILS_ALONE,
    ("temporal/moments", "open_transactions"): _FAILS_ALONE,
}
"""Every function that is started in a pool, and whose result is not read."""
_PACKAGE = Path(__file__).parents[2] / "auditlake"
_STARTED = {"Thread": None, "Timer": 1, "create_task": 0, "in_background": 0}
"""What starts a function beside its caller, and the place of that among the arguments; None: the keyword `target`."""


def _calls(kind: type[ast.Call | ast.Expr]) -> Iterator[tuple[str, str, ast.Call]]:
    """Yield the calls, or those whose result is dropped: module, name of the function, call."""
    for file in _PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            call = node.value if isinstance(node, ast.Expr) else node
            if isinstance(node, kind) and isinstance(call, ast.Call):
                name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
                yield file.relative_to(_PACKAGE).with_suffix("").as_posix(), name, call


def _target(call: ast.Call, place: int | None) -> str:
    given = [each.value for each in call.keywords if each.arg == "target"] if place is None else call.args[place:]
    return ast.unparse(given[0])


def test_every_thread_is_listed_with_what_its_owner_sees() -> None:
    """Whoever starts another one decides it, and writes it here."""
    found = {(module, _target(call, _STARTED[name])) for module, name, call in _calls(ast.Call) if name in _STARTED}
    assert found == _BESIDE.keys()


def test_every_result_of_a_pool_is_read() -> None:
    """An exception is part of the result."""
    dropped = {"submit", "map", "start", "run_in_executor", "to_thread"}
    found = {(m, ast.unparse(call.args[0])) for m, name, call in _calls(ast.Expr) if name in dropped and call.args}
    assert found == _UNREAD.keys()
