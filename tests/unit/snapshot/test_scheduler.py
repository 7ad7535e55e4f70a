"""An interrupted copy ends at once, whatever its main thread did meanwhile."""

from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from auditlake.relation import TableName
from auditlake.snapshot.scheduler import Copier

_COPIED, _WITHOUT_PARTITIONS = TableName("public", "copied"), TableName("public", "without_partitions")


def _followed(name: TableName, *parts: object) -> Any:
    return SimpleNamespace(
        name=name, parts=parts, table=SimpleNamespace(relation=SimpleNamespace(oid=1)), members=(), row_filter=None
    )


class _Workers:
    """One worker, whose bundle ends only if it is closed."""

    at_once = 1

    def __init__(self) -> None:
        self.begun, self.cancelled = Event(), Event()
        self.was_in_time = False

    def run(self, _tasks: list[object]) -> list[object]:
        self.begun.set()
        self.was_in_time = self.cancelled.wait(10)
        return []

    def close(self) -> None:
        self.cancelled.set()


class _Interrupted:
    """A destination that Ctrl-C reaches while the main thread prepares a table, and a bundle is being copied."""

    def __init__(self, workers: _Workers) -> None:
        self._workers = workers

    def folder(self, name: TableName) -> str:
        return name.table

    def columns(self, _table: object) -> tuple[()]:
        return ()

    def begin(self, name: TableName, _columns: object, _oid: int) -> None:
        if name == _WITHOUT_PARTITIONS:
            self._workers.begun.wait(10)
            raise KeyboardInterrupt


def test_an_interrupt_between_two_bundles_ends_those_at_work() -> None:
    """It waited for all bundles if it came before the main thread waited for the first."""
    workers = _Workers()
    snapshot = SimpleNamespace(conninfo="", snapshot_id="", mark=None, verify=lambda *_: None)
    silent: Any = SimpleNamespace(expect=lambda *_: None, begin=lambda *_: None)
    limits = SimpleNamespace(connections=1, bytes_per_s=None)
    masks: Any = {_COPIED: {}}
    made: Any = (workers, _Interrupted(workers), snapshot, limits, silent, masks)
    part = SimpleNamespace(name=_COPIED, relation=SimpleNamespace(oid=1))
    with pytest.raises(KeyboardInterrupt):
        Copier(*made).copy([_followed(_COPIED, part), _followed(_WITHOUT_PARTITIONS)], {})
    assert workers.was_in_time
