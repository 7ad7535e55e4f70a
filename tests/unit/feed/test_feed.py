"""The feed of the small lake: order, cursors, filters, and refusals."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import auditlake
from auditlake.capture.change_log import CaptureLog, CommitEnd
from auditlake.errors import AuditlakeError, BadUsage, NotAnswerable, WrongSource
from auditlake.feed import feed as feed_module
from auditlake.feed.change import ChangedTransaction
from auditlake.feed.feed import Completeness
from auditlake.feed.log_tail import LogTail
from auditlake.feed.selection import FeedSelection, Selected
from auditlake.lake.gaps import Gap, read_gaps, record_gaps
from auditlake.lake.history import open_history
from auditlake.lake.layout import CHANGES_APP, Lake
from auditlake.lake.parking import Cause, Parked, park, unpark
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA, TRANSACTIONS_SCHEMA
from auditlake.pgoutput.decoder import UNCHANGED
from auditlake.store.place import Remote
from tests.running import await_true
from tests.s3_server import versions
from tests.small_lake import CUSTOMERS, ORDERS, T0_US, write_lake_with_manifest

_SYSTEM = "7486193712053354519"
_ALL = [0x150, 0x200, 0x250, 0x300]
_HALF = 0x400
"""The transaction above the watermark of the small lake: delivered once the watermark has passed it."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The small lake, with a manifest."""
    return write_lake_with_manifest(tmp_path / "lake", _SYSTEM)


def _read(lake: Lake, **given: Any) -> list[ChangedTransaction]:
    return list(auditlake.changes(lake.root, follow=False, **given))


def _lsns(lake: Lake, **given: Any) -> list[int]:
    return [each.lsn for each in _read(lake, **given)]


def _append(to: Lake | CaptureLog, lsn: int, rows: list[Mapping[str, Any]], *, recorded: int | None = None) -> None:
    """Capture one transaction of these rows; `recorded` changes according to `transactions`."""
    log = CaptureLog(to) if isinstance(to, Lake) else to
    changes = [{"lsn": lsn, "ordinal": place, "xid": 7, "time": T0_US, **row} for place, row in enumerate(rows)]
    tables = sorted({f"{row['schema']}.{row['table']}" for row in rows})
    count = len(rows) if recorded is None else recorded
    counts = {"inserts": count, "updates": 0, "deletes": 0, "truncates": 0}
    committed = {"lsn": lsn, "end_lsn": lsn + 1, "xid": 7, "time": T0_US, "tables": tables, **counts}
    log.append(
        pa.RecordBatch.from_pylist(changes, schema=CHANGES_SCHEMA),
        pa.RecordBatch.from_pylist([committed], schema=TRANSACTIONS_SCHEMA),
        CommitEnd(Lsn(lsn), Lsn(lsn + 1)),
    )


def _insert(number: int) -> dict[str, Any]:
    new = [str(number), "x", "1.00", None]
    return {"op": "insert", "schema": "public", "table": "orders", "relation": 1, "new": new}


def test_the_feed_is_every_transaction_in_commit_order(lake: Lake) -> None:
    """Whole, typed, under the columns' names; rows above the watermark are not delivered."""
    found = _read(lake, since="beginning")
    assert [each.lsn for each in found] == _ALL
    changes = [(str(change.table), change.op, change.key) for change in found[2].changes]
    assert changes == [
        ("public.orders", "update", {"id": 1}),
        ("public.orders", "insert", {"id": 4}),
        ("public.customers", "update", {"id": 1}),
    ]
    assert [change.after for change in found[2].changes][2] == {"id": 1, "name": "Anne"}
    assert (found[0].xid, found[0].time.isoformat()) == (10, "2026-11-21T09:00:06+00:00")


@pytest.mark.parametrize("place", range(4))
def test_a_cursor_resumes_after_its_transaction(lake: Lake, place: int) -> None:
    """From every cursor exactly the later transactions are delivered; nothing is repeated or skipped."""
    cursor = _read(lake, since="beginning")[place].cursor
    assert cursor == f"{_SYSTEM}:{Lsn(_ALL[place])}"
    assert _lsns(lake, after=cursor) == _ALL[place + 1 :]


def test_since_is_inclusive(lake: Lake) -> None:
    """As `auditlake log --since`; without it only new transactions are delivered."""
    assert _lsns(lake, since="0/200") == _ALL[1:]
    assert _lsns(lake, since="2026-11-21T09:00:10Z") == _ALL[1:]
    assert _lsns(lake) == []


@pytest.mark.parametrize(
    ("filters", "lsns", "count"),
    [
        ({"tables": ["orders"]}, _ALL, 6),
        ({"tables": ["public.customers"]}, [0x250], 1),
        ({"ops": ["delete"]}, [0x200, 0x300], 2),
        ({"tables": ["orders"], "key": 3}, [0x200, 0x300], 2),
        ({"tables": ["orders"], "key": {"id": "003"}}, [0x200, 0x300], 2),
        ({"tables": ["orders"], "key": [1], "ops": ["update"]}, [0x150, 0x250], 2),
        ({"tables": ["orders"], "key": 9}, [], 0),
        ({"tables": ["orders"], "column": "price"}, [0x150, 0x250], 3),
        ({"tables": ["orders"], "column": "price", "key": 4}, [0x250], 1),
        ({"tables": ["customers"], "column": "name"}, [0x250], 1),
    ],
)
def test_filters_select_changes(lake: Lake, filters: dict[str, Any], lsns: list[int], count: int) -> None:
    """A transaction without a selected change is omitted, and the cursor passes it."""
    feed = auditlake.changes(lake.root, since="beginning", follow=False, **filters)
    found = list(feed)
    assert ([each.lsn for each in found], sum(len(list(each.changes)) for each in found)) == (lsns, count)
    assert feed.cursor == f"{_SYSTEM}:0/300"


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"since": "0/50"}, NotAnswerable, "this lake begins at 0/100"),
        ({"since": "2020-01-01"}, NotAnswerable, "this lake begins at"),
        ({"since": "0/999"}, NotAnswerable, "knows every commit up to"),
        ({"after": f"{_SYSTEM}:0/50"}, NotAnswerable, "this lake begins at 0/100"),
        ({"after": f"{_SYSTEM}:0/301"}, NotAnswerable, "knows them up to 0/300"),
        ({"after": "1:0/200"}, WrongSource, "system identifier 1"),
        ({"after": "0/200"}, BadUsage, "is not a cursor"),
        ({"after": f"{_SYSTEM}:0/200", "since": "now"}, BadUsage, "exclude each other"),
        ({"tables": ["ordres"]}, BadUsage, "there is no table ordres"),
        ({"ops": ["upsert"]}, BadUsage, "'upsert' is not an operation"),
        ({"key": 1}, BadUsage, "a key or a column needs one table"),
        ({"tables": ["orders"], "column": "cost"}, BadUsage, "has no column cost"),
    ],
)
def test_what_the_lake_cannot_deliver_is_refused(
    lake: Lake, given: dict[str, Any], error: type[AuditlakeError], message: str
) -> None:
    """By name, and before the first transaction."""
    with pytest.raises(error, match=message):
        _read(lake, **given)


def test_an_incomplete_transaction_is_refused(lake: Lake) -> None:
    """Those before it are delivered, none after it; so a deletion of old changes can never go unnoticed."""
    _append(lake, 0x500, [_insert(5)])
    _append(lake, 0x600, [_insert(6)], recorded=2)
    _append(lake, 0x700, [_insert(7)])
    feed = auditlake.changes(lake.root, since="0/300", follow=False)
    assert [next(feed).lsn for _ in range(3)] == [0x300, _HALF, 0x500]
    for _ in range(2):
        with pytest.raises(NotAnswerable, match="0/600 has 2 changes, and 1 of them"):
            next(feed)
    assert feed.cursor == f"{_SYSTEM}:0/500"


def _parked(lake: Lake) -> None:
    park(lake, Parked(CUSTOMERS, Cause.PUBLICATION, Lsn(0x200), Lsn(0x300), "it left the publication", "Add it."))


def _gap(lake: Lake) -> None:
    record_gaps(lake, [Gap(CUSTOMERS, Lsn(0x200), Lsn(0x2FF), "slot lost")])


@pytest.mark.parametrize("miss", [_parked, _gap])
def test_missing_changes_of_a_selected_table_are_refused(lake: Lake, miss: Any) -> None:
    """After everything that is known; other tables, and those who accept it, get everything."""
    miss(lake)
    feed = auditlake.changes(lake.root, since="beginning", follow=False)
    assert [next(feed).lsn, next(feed).lsn] == [0x150, 0x200]
    with pytest.raises(NotAnswerable, match=r"the changes of public\.customers (after|between) 0/200"):
        next(feed)
    assert _lsns(lake, since="beginning", tables=["orders"]) == _ALL
    assert _lsns(lake, since="beginning", allow_gaps=True) == _ALL


def test_a_table_that_is_unparked_meanwhile_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gap is recorded before it is unparked, and the feed may read one of the two just before that."""
    _parked(lake)

    def read_then_settle(asked: Lake) -> tuple[Gap, ...]:
        found = read_gaps(asked)
        _gap(asked)
        unpark(asked, CUSTOMERS, Cause.PUBLICATION)
        return found

    monkeypatch.setattr("auditlake.feed.feed.read_gaps", read_then_settle)
    feed = auditlake.changes(lake.root, since="beginning", follow=False)
    assert [next(feed).lsn, next(feed).lsn] == [0x150, 0x200]
    with pytest.raises(NotAnswerable, match=r"the changes of public\.customers (after|between) 0/200"):
        next(feed)


@pytest.mark.parametrize("follow", [False, True])
def test_a_gap_that_no_transaction_precedes_is_refused(lake: Lake, *, follow: bool) -> None:
    """The feed does not end in silence there, as if nothing had been captured."""
    record_gaps(lake, [Gap(CUSTOMERS, Lsn(0x120), Lsn(0x140), "slot lost")])
    with pytest.raises(NotAnswerable, match="0/120"):
        next(auditlake.changes(lake.root, "beginning", follow=follow))


def test_a_gap_that_the_cursor_has_passed_is_no_obstacle(lake: Lake) -> None:
    """Changes after its end are complete again."""
    _gap(lake)
    assert _lsns(lake, after=f"{_SYSTEM}:0/2FF") == [0x300]
    with pytest.raises(NotAnswerable):
        _lsns(lake, after=f"{_SYSTEM}:0/250")


def test_compaction_does_not_change_the_feed(lake: Lake) -> None:
    """Small files are joined while a feed is open, also files that are not neighbours."""
    log = CaptureLog(lake)
    for number in range(1, 30):
        _append(log, _HALF + number * 0x10, [_insert(number), _insert(number + 1)])
    feed = auditlake.changes(lake.root, since="0/300", follow=True)
    before = [next(feed).lsn for _ in range(5)]
    for table in (log._changes, log._transactions):  # noqa: SLF001 - compaction, without waiting for 200 appends
        table.tidy()
    _append(log, 0x800, [_insert(8)])
    after = [next(feed).lsn for _ in range(27)]
    assert before + after == [0x300, *(_HALF + number * 0x10 for number in range(30)), 0x800]


def test_a_large_transaction_is_streamed_from_its_parts(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is delivered once, when its commit is in the lake; its changes can be read again."""
    monkeypatch.setattr(feed_module, "_MOST_CHANGES", 3)
    log = CaptureLog(lake)
    rows = [{**_insert(number), "lsn": 0x500, "ordinal": number, "time": T0_US} for number in range(12)]
    for part in (rows[:5], rows[5:9]):
        log.append_part(pa.RecordBatch.from_pylist(part, schema=CHANGES_SCHEMA))
    with auditlake.changes(lake.root, since="now") as feed:
        assert feed.take(0) == []
        committed = {
            "lsn": 0x500,
            "end_lsn": 0x501,
            "xid": 7,
            "time": T0_US,
            "tables": ["public.orders"],
            "inserts": 12,
        }
        last = pa.RecordBatch.from_pylist(rows[9:], schema=CHANGES_SCHEMA)
        zero = {"updates": 0, "deletes": 0, "truncates": 0}
        row = pa.RecordBatch.from_pylist([committed | zero], schema=TRANSACTIONS_SCHEMA)
        log.append(last, row, CommitEnd(Lsn(0x500), Lsn(0x501)))
        assert [each.lsn for each in feed.take(5)] == [_HALF]
        (found,) = feed.take(5)
    for _ in range(2):
        assert [change.key["id"] for change in found.changes] == list(range(12))
    assert not isinstance(found.changes, tuple)


def test_new_transactions_are_delivered_when_they_are_durable(lake: Lake) -> None:
    """The feed waits for the next entry of the log; `close` ends it from another thread."""
    feed = auditlake.changes(lake.root)
    thread = threading.Timer(0.2, lambda: _append(lake, 0x500, [_insert(5)]))
    thread.start()
    assert [next(feed).lsn, next(feed).lsn] == [_HALF, 0x500]
    thread.join()
    assert feed.take(0) == []
    threading.Timer(0.1, feed.close).start()
    assert list(feed) == []


def test_a_value_that_was_not_sent_is_marked(lake: Lake) -> None:
    """An unchanged TOAST value is neither None nor a placeholder text."""
    _append(lake, 0x500, [{**_insert(1), "op": "update", "new": ["1", None, "5.00", None], "unchanged": [1]}])
    (found,) = _read(lake, since="0/500")
    (change,) = found.changes
    assert change.after is not None
    assert change.after["note"] is UNCHANGED
    assert (change.after["at"], change.unchanged) == (None, ("note",))


def test_files_that_were_replaced_meanwhile_are_found_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joined files are deleted after six hours; a reader that slept since then still lists them."""
    log = CaptureLog(lake)
    for number in range(3):
        _append(log, 0x500 + number, [_insert(number)])
    feed = auditlake.changes(lake.root, since="0/300", follow=False)
    stale = [file for table in (lake.changes, lake.transactions) for file in table.glob("*.parquet")]
    for table in (log._changes, log._transactions):  # noqa: SLF001 - compaction, without waiting for 200 appends
        table.tidy()
    monkeypatch.setattr(LogTail, "_read_next", lambda _: False)  # the entries are gone too
    for file in stale:
        file.unlink()
    assert [each.lsn for each in feed] == [0x300, _HALF, 0x500, 0x501, 0x502]


def test_a_reader_that_slept_through_the_retention_lists_the_files_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next entry of the log is gone."""
    monkeypatch.setattr("auditlake.feed.log_tail._LISTED_AGAIN_S", 0.0)
    feed = auditlake.changes(lake.root)
    log = CaptureLog(lake)
    for lsn in range(0x500, 0x500 + 100):
        _append(log, lsn, [_insert(1)])
    entries = sorted((lake.changes / "_delta_log").glob("*.json"))
    await_true((lake.changes / "_delta_log" / "_last_checkpoint").exists)  # a thread writes it in a bucket
    for entry in entries[:20]:
        entry.unlink()
    assert [next(feed).lsn for _ in range(101)] == [_HALF, *range(0x500, 0x500 + 100)]


def test_a_feed_holds_no_lock_and_writes_nothing(lake: Lake) -> None:
    """So a slow or dead subscriber cannot delay capture: the lake is the same after a feed was abandoned."""
    before = versions(lake.root)
    next(auditlake.changes(lake.root, since="beginning"))
    assert versions(lake.root) == before
    assert open_history(lake, ORDERS) is not None


def test_the_log_of_an_object_store_is_followed(remote_folder: Remote) -> None:
    """By the same code: files, row groups and new entries; missing changes are noticed there too."""
    lake = Lake(cast("Path", remote_folder))
    log = CaptureLog(lake)
    log.start_at(Lsn(0x400))
    tail = LogTail(lake.changes, CHANGES_APP)
    assert (tail.refresh(), tail.position) == (False, 0x3FF)
    _append(log, 0x500, [_insert(1), _insert(2)])
    assert (tail.refresh(), tail.position) == (True, 0x500)
    rows = tail.rows(Lsn(0x4FF), Lsn(0x500), ("lsn", "ordinal"))
    assert rows is not None
    assert rows.to_pylist() == [{"lsn": 0x500, "ordinal": 0}, {"lsn": 0x500, "ordinal": 1}]
    complete = Completeness(lake, Selected(lake, FeedSelection()))
    assert complete.limit(Lsn(0x400), Lsn(0x500)) == 0x500
    _gap(lake)
    with pytest.raises(NotAnswerable, match="slot lost"):
        complete.limit(Lsn(0x200), Lsn(0x500))
