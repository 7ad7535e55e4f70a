"""The audit questions on a lake written row by row: half of it in the history, half in the tail, all of it foreseen."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from auditlake.audit.compared import Compared
from auditlake.audit.deleted import deleted_rows
from auditlake.audit.diff import ADDED, MODIFIED, REMOVED
from auditlake.audit.keys import parse_key
from auditlake.audit.life import Book, blame, last_version
from auditlake.audit.reading import Reader, Span, split_name
from auditlake.audit.show import Shown, contents, find_transaction
from auditlake.audit.touching import lsns_of_table
from auditlake.audit.transactions import Wanted, find
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from tests.small_lake import write_small_lake

_Names = Sequence[str]
_NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """One look at the small lake."""
    return Reader(write_small_lake(tmp_path_factory.mktemp("audit") / "lake"), _NOW)


def _life(reader: Reader, key: str, upto: int) -> list[tuple[str, int, list[str]]]:
    table = reader.table("orders")
    events = Book(reader, table, Lsn(upto)).life(parse_key(table, (key,)))
    return [(event.mark.op, event.mark.lsn, event.changed()) for event in events]


_ALL = ["id", "note", "price", "at"]


@pytest.mark.parametrize(
    ("key", "upto", "life"),
    [
        ("1", 0x300, [("snapshot", 0x100, _ALL), ("update", 0x150, _ALL[1:3]), ("update", 0x250, _ALL[1:3])]),
        ("1", 0x24F, [("snapshot", 0x100, _ALL), ("update", 0x150, _ALL[1:3])]),
        ("1", 0x14F, [("snapshot", 0x100, _ALL)]),
        ("2", 0x300, [("snapshot", 0x100, _ALL), ("delete", 0x200, _ALL)]),
        ("3", 0x300, [("insert", 0x200, _ALL), ("delete", 0x300, _ALL)]),
        ("id=4", 0x300, [("insert", 0x250, _ALL)]),
        ("5", 0x300, []),
    ],
)
def test_a_row_has_a_life(reader: Reader, key: str, upto: int, life: list[tuple[str, int, list[str]]]) -> None:
    """From the snapshot to the tail, cut at the moment asked for; what is above the watermark is not told."""
    assert life == _life(reader, key, upto)


@pytest.mark.parametrize(
    ("span", "added", "removed", "modified"),
    [
        ((0x100, 0x150), [], [], [("1", ("note", "price"))]),
        ((0x100, 0x200), ["3"], ["2"], [("1", ("note", "price"))]),
        ((0x100, 0x300), ["4"], ["2"], [("1", ("note", "price"))]),
        ((0x150, 0x250), ["3", "4"], ["2"], [("1", ("note", "price"))]),
        ((0x200, 0x300), ["4"], ["3"], [("1", ("note", "price"))]),
        ((0x250, 0x300), [], ["3"], []),
        ((0x300, 0x300), [], [], []),
    ],
)
def test_a_difference_is_net(
    reader: Reader,
    span: tuple[int, int],
    added: list[str],
    removed: list[str],
    modified: list[tuple[str, Sequence[str]]],
) -> None:
    """Within the history, across its position and within the tail; what came and went is not there."""
    found = Compared(reader, reader.table("orders"), Span(Lsn(span[0]), Lsn(span[1])), reverse=False)
    keys = {kind: [entry.key["id"] for entry in found.entries(kind)] for kind in (ADDED, REMOVED)}
    assert {ADDED: added, REMOVED: removed} == keys
    assert modified == [(entry.key["id"], entry.changed) for entry in found.entries(MODIFIED)]


@pytest.mark.parametrize(("lsn", "rows"), [(0x100, 2), (0x200, 2), (0x250, 3), (0x300, 2)])
def test_rows_are_counted(reader: Reader, lsn: int, rows: int) -> None:
    """The sizes of both states, wherever they lie."""
    stat = Compared(reader, reader.table("orders"), Span(Lsn(0x100), Lsn(lsn)), reverse=False).stat()
    assert (2, rows) == (stat.rows_before, stat.rows_after)


def test_turned_round(reader: Reader) -> None:
    """From B to A: what was added is removed, and the old values are new."""
    found = Compared(reader, reader.table("orders"), Span(Lsn(0x200), Lsn(0x250)), reverse=True)
    assert [entry.key["id"] for entry in found.entries(REMOVED)] == ["4"]
    (entry,) = found.entries(MODIFIED)
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["note"], entry.after["note"]) == ("c", "b")


def test_blame(reader: Reader) -> None:
    """A column's commit is the last that changed it; what the snapshot had was set before."""
    table = reader.table("orders")
    events = Book(reader, table, Lsn(0x300)).life(("1",))
    last, ended = last_version(events, ("1",))
    assert ended is None
    marks = {each.column: each.mark and each.mark.lsn for each in blame(events, last)}
    assert marks == {"id": None, "note": 0x250, "price": 0x250, "at": None}


@pytest.mark.parametrize(
    ("span", "found"),
    [
        ((0, 0x300), [("3", 0x300), ("2", 0x200)]),
        ((0x200, 0x300), [("3", 0x300)]),
        ((0, 0x250), [("2", 0x200)]),
        ((0, 0x150), []),
    ],
)
def test_deleted_rows(reader: Reader, span: tuple[int, int], found: list[tuple[str, int]]) -> None:
    """Those that are gone at the end of the span and went in it, the newest first."""
    rows = deleted_rows(reader, reader.table("orders"), Span(Lsn(span[0]), Lsn(span[1])))
    assert found == [(row.last.key[0], row.mark.lsn) for row in rows]


def test_a_transaction_across_tables(reader: Reader) -> None:
    """Every change in its order, with what the row was before: from the history and from the tail."""
    transaction, lsns = find_transaction(reader, "0/250")
    assert lsns == [0x250]
    shown = [each for each in contents(reader, transaction) if isinstance(each, Shown)]
    steps = [(each.table.table, each.step.before, each.step.after) for each in shown]
    at = "2026-01-01 12:00:00.25+00"
    assert [
        (
            "orders",
            {"id": "1", "note": "b", "price": "2.00", "at": at},
            {"id": "1", "note": "c", "price": "3.00", "at": at},
        ),
        ("orders", None, {"id": "4", "note": "new", "price": "4.00", "at": at}),
        ("customers", {"id": "1", "name": "Ann"}, {"id": "1", "name": "Anne"}),
    ] == steps


def test_an_xid_that_came_back(reader: Reader) -> None:
    """The last one is taken, and all are named."""
    transaction, lsns = find_transaction(reader, "xid:10")
    assert (transaction.lsn, lsns) == (0x300, [0x150, 0x300])


def test_transactions_newest_first(reader: Reader) -> None:
    """In LSN order, whatever their clocks say, without the one above the watermark."""
    found = find(reader, reader.span(None, None), Wanted(), None)
    assert [each.lsn for each in found] == [0x300, 0x250, 0x200, 0x150]
    assert [each.lsn for each in find(reader, reader.span(None, None), Wanted(), 2)] == [0x300, 0x250]


@pytest.mark.parametrize(
    ("key", "column", "lsns"),
    [
        ("3", None, {0x200, 0x300}),
        (None, "note", {0x150, 0x250}),
        (None, "at", set()),
        ("2", "note", set()),
    ],
)
def test_transactions_of_a_key_or_column(reader: Reader, key: str | None, column: str | None, lsns: set[int]) -> None:
    """Which transactions touched the key, and which left another value in the column."""
    table = reader.table("orders")
    found = lsns_of_table(reader, table, reader.span(None, None), (key,) if key else None, column)
    assert found is not None
    assert lsns == set(found)


@pytest.mark.parametrize(
    ("since", "until", "span"),
    [
        (None, None, (0, 0x300)),
        ("0/200", "0/250", (0x1FF, 0x250)),
        ("2026-11-21T09:00:10Z", None, (0x180, 0x300)),
        ("xid:11", "2026-11-21T09:00:09Z", (0x1FF, 0x180)),
    ],
)
def test_both_ends_are_included(reader: Reader, since: str | None, until: str | None, span: tuple[int, int]) -> None:
    """A span begins before the first commit at its beginning and ends with the last at its end."""
    found = reader.span(since, until)
    assert span == (found.after, found.upto)


def test_refusals(reader: Reader, tmp_path: Path) -> None:
    """Before the horizon, past the watermark, what does not exist, what is still being copied."""
    table = reader.table("orders")
    with pytest.raises(NotAnswerable, match="begins at 0/100"):
        reader.check(table, Lsn(0x50), "0/50")
    with pytest.raises(NotAnswerable, match="knows every commit up to"):
        reader.moment("0/999")
    with pytest.raises(NotAnswerable, match="no transaction 0/151"):
        find_transaction(reader, "0/151")
    for usage in (("orders", ("x",)), ("orders", ("1", "2")), ("orders", ("note=1",))):
        with pytest.raises(BadUsage):
            parse_key(reader.table(usage[0]), usage[1])
    with pytest.raises(BadUsage, match="no table order"):
        reader.table("order")
    lake: Lake = write_small_lake(tmp_path / "lake")
    (lake.histories / "public" / "items").mkdir()
    with pytest.raises(NotAnswerable, match="being copied"):
        Reader(lake, _NOW).table("public.items")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("orders", ["orders"]),
        ("public.orders", ["public", "orders"]),
        ('"Odd.Name".t', ["Odd.Name", "t"]),
        ('a."say ""x"""', ["a", 'say "x"']),
    ],
)
def test_names(name: str, parts: list[str]) -> None:
    """Dots outside of double quotes separate."""
    assert parts == split_name(name)
