"""Processes of statements: what ends one, and what its end leaves to the others.

A process that is stopped by SIGSTOP stands for one in a call that nothing interrupts: no thread of it runs.
"""

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path

import pytest

from auditlake.audit.bounds import ANSWER_CHARACTERS
from auditlake.cancellation import Cancellation, Cancelled
from auditlake.errors import BadUsage
from auditlake.lake.layout import Lake
from auditlake.sandbox import processes
from auditlake.sandbox.failures import Busy
from auditlake.sandbox.processes import Answered, Processes, Setup, Statement, process_bytes
from tests.page import write_lake
from tests.running import await_true

_ENDLESS = "select count(*) as n from generate_series(1, 1000000000000000) a"
_MEMORY = (
    "select count(*) as n from (select g, md5(g::text) as t from generate_series(1, 20000000) g order by t offset 1) q"
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The small lake."""
    return write_lake(tmp_path_factory.mktemp("sandbox") / "lake")


@contextmanager
def _started(setup: Setup, most: int = 5) -> Iterator[Processes]:
    found = Processes(lambda _: setup, most)
    try:
        yield found
    finally:
        found.close()


def _asked(sql: str) -> Statement:
    return Statement(sql, None, UTC, "postgres", 1_000, ANSWER_CHARACTERS, 600)


def _rows(of: Processes, lake: Lake, sql: str, client: str = "ann") -> list[list[str | None]]:
    return of.answer(client, lake, _asked(sql), lambda _: None)[1].rows


class _Question:
    """A statement that a thread waits for, and that can be given up."""

    def __init__(self, of: Processes, lake: Lake, sql: str, client: str = "ann") -> None:
        self.cancellation = Cancellation()
        self.ended: Future[list[list[str | None]]] = Future()

        def ask() -> None:
            try:
                with self.cancellation.work():
                    self.ended.set_result(_rows(of, lake, sql, client))
            except Exception as exc:  # noqa: BLE001 - read by the test
                self.ended.set_exception(exc)

        self._thread = threading.Thread(target=ask)
        self._thread.start()

    def close(self) -> None:
        """Give it up, and wait for its end."""
        self.cancellation.cancel()
        self._thread.join()


def _running(of: Processes) -> list[int]:
    """Return the processes that have got a statement."""
    return [each._child.pid for each in list(of._every) if each._is_asked]  # noqa: SLF001 - no other sign


def _is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists() if Path("/proc/self").exists() else process_bytes(pid) == 0


def test_a_statement_that_hears_nothing_ends_with_its_client(lake: Lake) -> None:
    """Its process is ended, and the next statement has another one."""
    with _started(Setup(lake)) as found:
        asked = _Question(found, lake, _ENDLESS)
        await_true(lambda: len(_running(found)) == 1, 60)
        (pid,) = _running(found)
        os.kill(pid, signal.SIGSTOP)
        left = Path(tempfile.mkdtemp(prefix="auditlake-process-"))  # as that of a process with rows that it has spilled
        asked.close()
        assert isinstance(asked.ended.exception(), Cancelled)
        assert _is_gone(pid)
        assert not left.exists()
        assert _rows(found, lake, "select 1") == [["1"]]


def test_statements_of_one_client_leave_another_an_answer(lake: Lake) -> None:
    """However many it asks: it has its share of the processes, and the rest of its statements wait."""
    with _started(Setup(lake), most=3) as found:
        hostile = [_Question(found, lake, _ENDLESS, client) for client in ("ann", "bob") for _ in range(3)]
        await_true(lambda: len(_running(found)) == 2, 60)
        assert _rows(found, lake, "select 1", "eve") == [["1"]]
        assert len(_running(found)) == 2
        for each in hostile:
            each.close()
        assert all(isinstance(each.ended.exception(), Cancelled) for each in hostile)


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        ("MOST_BYTES", "the statement took more than 256 MB of memory"),
        ("MOST_OF_ALL_BYTES", "all statements took more than 256 MB of memory, this one the most"),
    ],
)
def test_a_statement_that_takes_too_much_memory_ends(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, bound: str, message: str
) -> None:
    """Alone, or as the largest of those that run; the server itself needs no more than before."""
    with _started(Setup(lake)) as found:
        assert _rows(found, lake, "select 1") == [["1"]]
        monkeypatch.setattr(processes, bound, 256 << 20)
        before = process_bytes(os.getpid())
        with pytest.raises(Busy, match=message) as refused:
            _rows(found, lake, _MEMORY)
        assert refused.value.exit_code == 7
        assert process_bytes(os.getpid()) - before < 32 << 20
        assert _rows(found, lake, "select 1") == [["1"]]


def test_a_process_that_others_end_is_busy_once(lake: Lake) -> None:
    """As the kernel does that has no memory left; the next statement has another one."""
    with _started(Setup(lake)) as found, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(_rows, found, lake, _ENDLESS)
        await_true(lambda: len(_running(found)) == 1, 60)
        os.kill(_running(found)[0], signal.SIGKILL)
        with pytest.raises(Busy, match="the process of the statement ended with SIGKILL"):
            asked.result()
        assert _rows(found, lake, "select 1") == [["1"]]


def test_a_process_is_kept_after_an_error_and_ends_when_it_is_idle(lake: Lake) -> None:
    """A refused statement costs no start; one that comes as its process ends has another one."""
    with _started(Setup(lake, idle_s=1.0)) as found:
        with pytest.raises(BadUsage, match="there is no column nte at line 1, column 8"):
            _rows(found, lake, "select nte from orders")
        (first,) = found._free  # noqa: SLF001 - no other sign
        assert _rows(found, lake, "select 1") == [["1"]]
        assert found._free == [first]  # noqa: SLF001 - as above
        await_true(lambda: first.has_ended, 60)
        assert first._child.returncode == 0  # noqa: SLF001 - as above
        assert _rows(found, lake, "select 1") == [["1"]]


def test_a_client_that_goes_while_a_process_starts_leaves_it_to_others(lake: Lake) -> None:
    """Else no limit of time could be shorter than a start."""
    with _started(Setup(lake)) as found:
        asked = _Question(found, lake, "select 1")
        await_true(lambda: bool(found._every), 60)  # noqa: SLF001 - no other sign
        asked.close()
        if isinstance(asked.ended.exception(), Cancelled):
            assert len(found._free) == 1  # noqa: SLF001 - as above
        assert _rows(found, lake, "select 2") == [["2"]]
        assert len(found._every) == 1  # noqa: SLF001 - as above


def test_a_process_that_does_not_start_is_replaced(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every statement would wait for it."""
    monkeypatch.setattr(processes, "START_S", 0.0)
    with _started(Setup(lake)) as found:
        found.prepare(lake)
        (each,) = found._every  # noqa: SLF001 - no other sign
        os.kill(each._child.pid, signal.SIGSTOP)  # noqa: SLF001 - as above
        asked = _Question(found, lake, "select 1")
        await_true(lambda: not found._free, 60)  # noqa: SLF001 - as above
        asked.close()
        assert isinstance(asked.ended.exception(), Cancelled)
        assert _rows(found, lake, "select 1") == [["1"]]


def test_an_answer_that_is_kept_is_not_computed(lake: Lake) -> None:
    """What it depends on is said before it is."""
    kept = Answered([("n", "bigint", True)], [["7"]], more=False)
    with _started(Setup(lake)) as found:
        for _ in range(2):
            assert found.answer("ann", lake, _asked(_ENDLESS), lambda asked: kept if asked.key else None)[1] == kept
        assert _rows(found, lake, "select 1") == [["1"]]


def test_a_process_has_no_secret_of_the_server(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in its environment nor on its command line; one that reads a store has the keys of that."""
    secrets = ("PGPASSWORD", "AUDITLAKE_SERVE_TOKEN", "AUDITLAKE_SOURCE", "AWS_SECRET_ACCESS_KEY")
    for name in secrets:
        monkeypatch.setenv(name, "s3cret")
    with _started(Setup(lake)) as found:
        _rows(found, lake, "select 1")
        (each,) = found._every  # noqa: SLF001 - no other sign
        assert set(processes._environment(lake)) & {*secrets, "PATH"} == {"PATH"}  # noqa: SLF001 - where there is no /proc
        if (of := Path(f"/proc/{each._child.pid}")).exists():  # noqa: SLF001 - as above
            assert b"s3cret" not in (of / "environ").read_bytes() + (of / "cmdline").read_bytes()


def test_the_end_of_the_server_s_socket_ends_a_process(lake: Lake) -> None:
    """Also one that waits for a statement."""
    with _started(Setup(lake)) as found:
        _rows(found, lake, "select 1")
        (each,) = found._every  # noqa: SLF001 - no other sign
        each._socket.close()  # noqa: SLF001 - as its server that is killed
        assert each._child.wait(60) == 1  # noqa: SLF001 - as above
