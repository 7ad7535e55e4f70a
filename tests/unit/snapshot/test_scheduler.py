"""An interrupted copy ends at once, whatever its main thread did meanwhile."""

import signal
import time
from collections.abc import Callable
from threading import Event, get_ident
from types import SimpleNamespace
from typing import Any

import pytest

from auditlake.relation import TableName
from auditlake.signals import handled
from auditlake.snapshot.scheduler import Copier

_COPIED, _WITHOUT_PARTITIONS = TableName("public", "copied"), TableName("public", "without_partitions")


def _followed(name: TableName, *parts: object) -> Any:
    return SimpleNamespace(
        name=name, parts=parts, table=SimpleNamespace(relation=SimpleNamespace(oid=1)), members=(), row_filter=None
    )


class _Workers:
    """One worker, whose bundle ends only if it is closed."""

    at_once = 1

    def __init__(self, at_begin: Callable[[], object]) -> None:
        self.cancelled, self.was_in_time = Event(), Event()
        self._at_begin = at_begin

    def run(self, _tasks: list[object]) -> list[object]:
        self._at_begin()
        if self.cancelled.wait(10):
            self.was_in_time.set()
        return []

    def close(self) -> None:
        self.cancelled.set()


class _Destination:
    """Has room for all tables; `prepare` is called in the main thread, before one without partitions."""

    def __init__(self, prepare: Callable[[], object]) -> None:
        self._prepare = prepare

    def folder(self, name: TableName) -> str:
        return name.table

    def columns(self, _table: object) -> tuple[()]:
        return ()

    def begin(self, name: TableName, _columns: object, _oid: int) -> None:
        if name == _WITHOUT_PARTITIONS:
            self._prepare()


def _copy_interrupted(workers: _Workers, prepare: Callable[[], object], *more: Any) -> None:
    """Copy a table, and `more`; require that Ctrl-C ends it, and the bundle that is being copied."""
    snapshot = SimpleNamespace(conninfo="", snapshot_id="", mark=None, verify=lambda *_: None)
    silent: Any = SimpleNamespace(expect=lambda *_: None, begin=lambda *_: None)
    limits = SimpleNamespace(connections=1, bytes_per_s=None)
    masks: Any = {_COPIED: {}}
    made: Any = (workers, _Destination(prepare), snapshot, limits, silent, masks)
    part = SimpleNamespace(name=_COPIED, relation=SimpleNamespace(oid=1))
    with pytest.raises(KeyboardInterrupt), handled([signal.SIGINT], signal.default_int_handler):
        Copier(*made).copy([_followed(_COPIED, part), *more], {}, {})
    assert workers.was_in_time.wait(5)


def test_an_interrupt_between_two_bundles_ends_those_at_work() -> None:
    """It waited for all bundles if it came before the main thread waited for the first."""
    begun = Event()

    def interrupt() -> None:
        begun.wait(10)
        raise KeyboardInterrupt

    _copy_interrupted(_Workers(begun.set), interrupt, _followed(_WITHOUT_PARTITIONS))


def test_an_interrupt_that_does_not_wake_the_main_thread_ends_the_bundles() -> None:
    """It was heard at the end of the copy: the system gave it to another thread, or it came just before the wait."""

    def interrupt() -> None:
        time.sleep(0.1)  # the main thread waits meanwhile
        signal.pthread_kill(get_ident(), signal.SIGINT)

    _copy_interrupted(_Workers(interrupt), lambda: None)
