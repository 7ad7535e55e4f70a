"""Histories in a store: a question and a batch of apply read only the logs of the tables that they need."""

import itertools
import os
import threading
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from auditlake.capture.change_log import CaptureLog
from auditlake.delta.append_table import open_delta
from auditlake.delta.log_writer import moved, put_commit
from auditlake.engine import Engine
from auditlake.follow import Applier
from auditlake.lake import histories, parking
from auditlake.lake.histories import Histories, list_histories, read_histories
from auditlake.lake.history import (
    OPEN_PART,
    HistoryTable,
    create_history,
    history_schema,
    open_history,
    set_columns,
    write_rows,
)
from auditlake.lake.layout import HISTORY_APP, RESYNC_APP, SNAPSHOT_APP, Lake
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.lake.parking import Cause, Parked
from auditlake.lake.positions import Positions, read_positions
from auditlake.lsn import Lsn
from auditlake.query.embedded.engine import Embedded
from auditlake.query.statement import prepare_sql, prepare_statement, read_state
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.status import read_status
from auditlake.store import objects
from auditlake.store.files import remove_folder
from auditlake.store.place import Remote
from auditlake.temporal import moments
from tests.faulty_store import FaultyStore
from tests.read_lake import history_of
from tests.small_lake import T0, write_lake_with_manifest

_NAMES = [TableName("public", f"orders_{letter}") for letter in "abcd"]
_A, _B, _C, _ = _NAMES


@pytest.fixture
def lake(remote_folder: Remote) -> Lake:
    """A lake of four tables at position 100, all saved by apply."""
    lake = Lake(cast("Path", remote_folder))
    write_manifest(lake, Manifest("7000000000000000000", 1, "shop", "auditlake", "auditlake"))
    for oid, name in enumerate(_NAMES, 16_384):
        create_history(lake, name, (Column("id", 20, -1, key=True, attnum=1),), oid)
        _move(lake, name, 1, {HISTORY_APP: 100, SNAPSHOT_APP: 100})
    log = CaptureLog(lake)
    log.start_at(Lsn(101))
    log.record_idle(Lsn(500), 0)
    Applier(lake, SparkOnDemand({}, Engine.DUCKDB), print).apply()
    lake.session.forget()
    return lake


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[TableName]:
    """The tables whose logs have been listed since."""
    listed: list[TableName] = []
    real: Callable[[HistoryTable], dict[int, str | None]] = histories._entries_since  # noqa: SLF001 - each is one request

    def entries(table: HistoryTable) -> dict[int, str | None]:
        listed.append(table.name)
        return real(table)

    monkeypatch.setattr(histories, "_entries_since", entries)
    return listed


def _move(lake: Lake, name: TableName, version: int, positions: dict[str, int]) -> None:
    put_commit(lake.history(name), version, "WRITE", moved(positions))


def test_a_question_about_one_table_lists_one(lake: Lake, looked_at: list[TableName]) -> None:
    """Its position is read from its log, whichever process moved it; other tables are as they were saved."""
    _move(lake, _A, 2, {HISTORY_APP: 200})
    _move(lake, _B, 2, {HISTORY_APP: 300})
    known = prepare_sql(lake, "select * from orders_a").known
    assert looked_at[0] == _A
    assert set(looked_at) == {_A}
    assert [known.tables[name].position for name in _NAMES] == [200, 100, 100, 100]


def test_a_table_with_a_record_is_looked_at(lake: Lake, looked_at: list[TableName]) -> None:
    """After a new snapshot, the record of the table is older than it: the table is not parked."""
    parking.park(lake, Parked(_C, Cause.RESYNC, Lsn(150), Lsn(160), "the slot was lost", "Wait."))
    _move(lake, _C, 2, {HISTORY_APP: 400, RESYNC_APP: 400})
    known = prepare_sql(lake, "select * from orders_a").known
    assert set(looked_at) == {_A, _C}
    assert known.tables[_C].resynced == 400
    assert known.parked == {}


def test_status_lists_no_table(lake: Lake, looked_at: list[TableName]) -> None:
    """Positions are those that apply saved."""
    assert [table.position for table in read_status(lake, None).tables] == [100] * len(_NAMES)
    assert looked_at == []


def test_a_table_is_looked_at_if_its_later_name_is_asked_for(lake: Lake, looked_at: list[TableName]) -> None:
    """Its new snapshot has rows that no change since the saved position contains, and left no record."""
    log, later = CaptureLog(lake), TableName("public", "invoices")
    columns = (Column("id", 20, -1, key=True, attnum=1),)
    log.relations.record(Relation(16_386, later, ReplicaIdentity.DEFAULT, columns), Lsn(300))
    log.relations.flush()
    table = history_of(lake, _C)
    set_columns(table, columns, [(Lsn(300), later)])
    _move(lake, _C, 3, {HISTORY_APP: 400, RESYNC_APP: 400})
    known = prepare_sql(lake, "select * from invoices").known
    assert set(looked_at) == {_C}
    assert (known.tables[_C].delta_version, known.tables[_C].resynced) == (3, 400)


def test_status_ends_a_parking_with_the_new_snapshot(lake: Lake, looked_at: list[TableName]) -> None:
    """The record is older than the snapshot, which apply has not seen yet."""
    parking.park(lake, Parked(_C, Cause.RESYNC, Lsn(150), Lsn(160), "the slot was lost", "Wait."))
    _move(lake, _C, 2, {HISTORY_APP: 400, RESYNC_APP: 400})
    tables = {table.history: table for table in read_status(lake, None).tables}
    assert (tables[str(_C)].position, tables[str(_C)].parked) == (400, None)
    assert set(looked_at) == {_C}


def test_a_table_that_appears_during_another_threads_reading_disturbs_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of the page share the saved state of a lake: here two read it at once, and one finds a new table."""
    real: Callable[[HistoryTable], dict[int, str | None]] = histories._entries_since  # noqa: SLF001 - a request
    later, inner = TableName("public", "later"), list[list[HistoryTable]]()
    names, listed = Lake.history_names, threading.Event()

    def list_names(lake: Lake, schemas: Collection[str] = ()) -> list[TableName]:
        found = names(lake, schemas)
        listed.set()
        return found

    def entries(table: HistoryTable) -> dict[int, str | None]:  # during the request, another thread runs
        monkeypatch.setattr(histories, "_entries_since", real)
        listed.wait()
        create_history(lake, later, (Column("id", 20, -1, key=True, attnum=1),), 16_400)
        _move(lake, later, 1, {HISTORY_APP: 300, SNAPSHOT_APP: 300})
        inner.append(list_histories(lake))
        return real(table)

    monkeypatch.setattr(Lake, "history_names", list_names)
    monkeypatch.setattr(histories, "_entries_since", entries)
    tables, copying = read_histories(lake, lambda table: table.name == _A)
    assert ([table.name for table in tables], copying) == (_NAMES, [])
    assert [table.name for table in inner[0]] == sorted([*_NAMES, later])


def _fill(lake: Lake, name: TableName, number: int) -> None:
    """Commit one row as version 2 of a history."""
    table = history_of(lake, name)
    rows = pa.Table.from_pylist([{"id": number, "_from_lsn": 100, "_op": "snapshot"}], history_schema(table.columns))
    put_commit(table.path, 2, "WRITE", [write_rows(table, OPEN_PART, rows), *moved({HISTORY_APP: 200})])


def _ask(lake: Lake) -> list[int]:
    sql = "select id from orders_a"
    state = read_state(lake, None, UTC, script=sql)
    _, batches = Embedded({}).answer(state, prepare_statement(state, sql, {})).batches()
    return [row["id"] for batch in batches for row in batch.to_pylist()]


def test_a_history_that_is_created_again_under_the_same_versions_is_read_again(lake: Lake) -> None:
    """One process asks before and after: names and versions of the log's entries are the same, the rows are others."""
    _fill(lake, _A, 1)
    assert (_ask(lake), _ask(lake)) == ([1], [1])
    remove_folder(lake.history(_A))
    create_history(lake, _A, (Column("id", 20, -1, key=True, attnum=1),), 16_384)
    _move(lake, _A, 1, {HISTORY_APP: 100, SNAPSHOT_APP: 100})
    _fill(lake, _A, 2)
    assert (_ask(lake), _ask(lake)) == ([2], [2])


def test_an_unchanged_table_is_asked_again_by_listings_alone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions, relations, gaps and the history have not changed: nothing is read again."""
    _fill(lake, _A, 1)
    assert _ask(lake) == [1]
    for name in ("get", "get_range", "head"):
        monkeypatch.setattr(objects, name, lambda *given: pytest.fail(f"{given} is known"))
    assert _ask(lake) == [1]


def test_a_question_as_of_a_time_lists_each_log_once(remote_folder: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of `transactions`, which three parts of the answer need: the moment, the clock, and the tail."""
    lake = write_lake_with_manifest(cast("Path", remote_folder))
    moment = f"{T0 + timedelta(seconds=40):%Y-%m-%dT%H:%M:%S}Z"
    expected = prepare_sql(lake, "select * from customers", moment).tails.found.keys()
    listed: list[str] = []
    real = objects.etags

    def etags(bucket: str, prefix: str, *, after: str = "") -> Iterator[tuple[str, str | None]]:
        listed.append(prefix)
        return real(bucket, prefix, after=after)

    monkeypatch.setattr(objects, "etags", etags)
    found = prepare_sql(lake, "select * from customers", moment).tails.found.keys()
    assert ([(str(table.name), lsn) for table, lsn in found], len(expected)) == ([("public.customers", 0x300)], 1)
    assert len([prefix for prefix in listed if "/transactions/" in prefix]) == 1
    assert len(listed) == len(set(listed))


def test_positions_that_moved_are_older_than_the_rest(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit after the rest was read, and just before the positions were, is in the answer."""
    _ask(lake)
    later, log = TableName("public", "later"), CaptureLog(lake)
    real, read = moments._read_rest, threading.Event()  # noqa: SLF001 - what is read at the same time as the positions

    def rest(*given: Any) -> object:
        found = real(*given)
        read.set()
        return found

    def positions(lake: Lake) -> Positions | None:
        read.wait()
        create_history(lake, later, (Column("id", 20, -1, key=True, attnum=1),), 16_400)
        _move(lake, later, 1, {HISTORY_APP: 600, SNAPSHOT_APP: 600})
        log.record_idle(Lsn(700), 0)
        return read_positions(lake)

    monkeypatch.setattr(moments, "_read_rest", rest)
    monkeypatch.setattr(moments, "read_positions", positions)
    known = prepare_sql(lake, "select * from orders_a").known
    assert (known.positions.acknowledged, later in known.tables) == (700, True)


def test_a_table_that_moved_is_followed_by_its_new_entries(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not opened again, and equals the one that is."""
    _fill(lake, _A, 1)
    list_histories(lake)
    _move(lake, _A, 3, {HISTORY_APP: 300, RESYNC_APP: 250})
    opened = open_history(lake, _A)
    monkeypatch.setattr(histories, "open_history", lambda *_: pytest.fail("its columns are known"))
    assert list_histories(lake)[0] == opened


def test_a_new_table_is_opened(lake: Lake) -> None:
    """It is in the listing of the folder, and not in the saved file."""
    name = TableName("public", "later")
    create_history(lake, name, (Column("id", 20, -1, key=True, attnum=1),), 16_400)
    _move(lake, name, 1, {HISTORY_APP: 300, SNAPSHOT_APP: 300})
    assert name in prepare_sql(lake, "select * from orders_a").known.tables


def test_an_idle_batch_lists_no_table(lake: Lake, looked_at: list[TableName]) -> None:
    """Apply uses its saved state."""
    Applier(lake, SparkOnDemand({}, Engine.DUCKDB), print).apply()
    assert looked_at == []


def test_tables_that_apply_wrote_are_saved_as_they_are_now(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question of a new process opens none of them: that takes ten requests one after another."""
    applier = Histories(lake)
    applier.current()
    _fill(lake, _A, 1)
    applier.forget([_A])
    applier.save()
    monkeypatch.setattr(histories, "open_history", lambda *_: pytest.fail("its columns are known"))
    assert [(t.delta_version, t.position) for t in Histories(lake).current(lambda _: False) if t.name == _A] == [
        (2, 200)
    ]


def test_a_table_is_opened_with_one_request_for_each_entry(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """And three that list its log; deltalake itself reads every entry again for each position."""
    asked, expected = itertools.count(), open_delta(lake.history(_A))
    assert expected is not None
    with FaultyStore(os.environ["AWS_ENDPOINT_URL"], 0.0, 1, lambda _: next(asked) >= 0) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
        opened = open_history(lake, _A)
    assert opened is not None
    assert (opened.delta_version, opened.position, opened.horizon, opened.oid) == (expected.version(), 100, 100, 16_384)
    assert next(asked) <= expected.version() + 1 + 3


def test_a_table_that_apply_wrote_is_read_again_whatever_is_asked(lake: Lake) -> None:
    """Its position is needed to find the next changes."""
    applier = Histories(lake)
    applier.current()
    _fill(lake, _A, 1)
    applier.forget([_A])
    assert [table.position for table in applier.current(lambda _: False) if table.name == _A] == [200]
