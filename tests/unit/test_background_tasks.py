"""Tasks beside the main thread: any failure of one is reported once, and it goes on; none ends unseen."""

import errno
import subprocess
import sys
import threading
from collections.abc import Callable
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
from auditlake.relation import TableName
from auditlake.replication.stream import ReplicationStream
from auditlake.resync import automatic
from auditlake.resync.automatic import AutomaticResync
from auditlake.resync.resync import ResyncTarget
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
    monkeypatch.setattr(automatic, "resync", _raising(failure[0], calls, succeed_at=3))
    monkeypatch.setattr(automatic, "_FIRST_PAUSE_S", 0.0)
    lake = Lake(tmp_path)
    again = AutomaticResync(ResyncTarget("", lake), lambda: pytest.fail("no worker is needed"), said.append)

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
    monkeypatch.setattr(automatic, "resync", _raising(failure[0], [], succeed_at=2))
    lake = Lake(tmp_path)
    again = AutomaticResync(ResyncTarget("", lake), lambda: pytest.fail("no worker is needed"), lambda _: None)
    with pytest.raises(type(failure[0]())):
        again.finish(_PARKED, lambda: pytest.fail("no JVM is needed"), Capturing(lake, None))
    again.close()


def test_a_failed_seal_is_reported_once_and_tried_again(
    failure: _Failure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pass is another try; what failed for a moment is sealed by a later one."""
    calls, said = list[object](), list[str]()
    monkeypatch.setattr(Sealer, "seal", _raising(failure[0], calls, succeed_at=3))
    sealing = Sealing(Lake(tmp_path), None, "tests", said.append)
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
