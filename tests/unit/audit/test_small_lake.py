"""Audit queries on a lake written row by row, half of it in the history and half in the tail."""

import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from auditlake.audit.diff import ADDED, MODIFIED, REMOVED, compared_rows
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.queries import DiffQuestion
from auditlake.audit.row_history import Book, blame, deleted_rows, last_version
from auditlake.audit.row_key import parse_key
from auditlake.audit.touched_rows import lsns_of_table
from auditlake.audit.transaction_contents import ShownChange, contents, find_transaction
from auditlake.audit.transactions import TransactionFilters, find
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.lake.records import write_state
from auditlake.lake.stage_lock import Stage, hold
from auditlake.lsn import Lsn
from auditlake.temporal.moments import read_known
from auditlake.temporal.table_lookup import split_name
from tests.s3_server import on_disk
from tests.small_lake import ORDERS, write_small_lake

_Names = Sequence[str]
_NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A reader of the small lake."""
    return Reader(write_small_lake(tmp_path_factory.mktemp("audit") / "lake"), _NOW)


def _life(reader: Reader, key: str, upto: int) -> list[tuple[str, int, list[str]]]:
    table = reader.table("orders")
    events = Book(reader, table, Lsn(upto)).life(parse_key(table, (key,)).key)
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
def test_row_events_come_from_snapshot_history_and_tail(
    reader: Reader, key: str, upto: int, life: list[tuple[str, int, list[str]]]
) -> None:
    """They end at the moment asked for; changes above the watermark are not shown."""
    assert life == _life(reader, key, upto)


@pytest.mark.parametrize("since", ["2020-01-01", "-365d", "0/1"])
def test_since_before_the_lake_starts_at_its_beginning(
    reader: Reader, since: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The span starts at the first snapshot, with a notice on stderr."""
    assert reader.span(since, None) == Span(Lsn(0), Lsn(0x300))
    assert f"--since {since} is before this lake begins" in capsys.readouterr().err
    assert reader.span("2026-11-21T09:00:06Z", "now") == Span(Lsn(0x100), Lsn(0x300))
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "tables"),
    [
        ((None, ()), 2),
        (("now", ()), 2),
        (("orders", ()), 1),
        (("0/250", ("orders",)), 1),
        (("orders", ("customers",)), 2),
    ],
)
def test_the_second_moment_of_a_diff_defaults_to_now(
    reader: Reader, given: tuple[str | None, _Names], tables: int
) -> None:
    """Without a second moment, the second argument is the first table."""
    moment, names = given
    assert len(DiffQuestion("0/180", moment, tuple(names), reverse=False).diffs(reader)) == tables


def test_an_argument_that_is_neither_moment_nor_table_is_refused(reader: Reader) -> None:
    """A misspelt moment is not silently taken for a table."""
    with pytest.raises(BadUsage, match="'0/1G' is neither a moment nor a table"):
        DiffQuestion("0/180", "0/1G", (), reverse=False).diffs(reader)


@pytest.mark.parametrize(
    ("state", "lives", "hint"),
    [
        ("running", True, "wait"),
        ("trying again", True, "wait"),
        ("running", False, "Run auditlake follow"),
        ("ended", True, "Run auditlake follow"),
    ],
)
def test_while_capture_runs_the_hint_is_to_wait(tmp_path: Path, state: str, hint: str, *, lives: bool) -> None:
    """A second `follow` would be refused; a killed one leaves its last status behind."""
    lake = write_small_lake(tmp_path / "lake")
    command = "import os, sys; from auditlake.lake.layout import Lake\n"
    command += "from auditlake.lake.stage_lock import Stage, hold\n"
    command += "with hold(Lake.at(sys.argv[1]), 'follow', Stage.CAPTURE): os._exit(0)"
    with ExitStack() as held:
        if lives:
            held.enter_context(hold(lake, "follow", Stage.CAPTURE))
        else:  # its lock file stays
            subprocess.run([sys.executable, "-c", command, str(lake.root)], check=True)
        write_state(lake, state)
        with pytest.raises(NotAnswerable) as caught:
            Reader(lake, _NOW).moment("-1s")
    assert hint in str(caught.value.hint)


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
def test_a_diff_is_net(
    reader: Reader,
    span: tuple[int, int],
    added: list[str],
    removed: list[str],
    modified: list[tuple[str, Sequence[str]]],
) -> None:
    """Within the history, across its position and within the tail; changes that cancel out are not shown."""
    found = compared_rows(reader, reader.table("orders"), Span(Lsn(span[0]), Lsn(span[1])), reverse=False)
    keys = {kind: [entry.key["id"] for entry in found.entries(kind)] for kind in (ADDED, REMOVED)}
    assert {ADDED: added, REMOVED: removed} == keys
    assert modified == [(entry.key["id"], entry.changed) for entry in found.entries(MODIFIED)]


@pytest.mark.parametrize(("lsn", "rows"), [(0x100, 2), (0x200, 2), (0x250, 3), (0x300, 2)])
def test_stat_counts_the_rows_of_both_states(reader: Reader, lsn: int, rows: int) -> None:
    """In the history and in the tail."""
    stat = compared_rows(reader, reader.table("orders"), Span(Lsn(0x100), Lsn(lsn)), reverse=False).stat()
    assert (2, rows) == (stat.rows_before, stat.rows_after)


def test_a_reversed_diff_swaps_added_and_removed(reader: Reader) -> None:
    """From B to A, old and new values change places too."""
    found = compared_rows(reader, reader.table("orders"), Span(Lsn(0x200), Lsn(0x250)), reverse=True)
    assert [entry.key["id"] for entry in found.entries(REMOVED)] == ["4"]
    (entry,) = found.entries(MODIFIED)
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["note"], entry.after["note"]) == ("c", "b")


def test_blame_names_the_last_commit_that_changed_a_column(reader: Reader) -> None:
    """A value that the snapshot had was set before capture."""
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
def test_rows_deleted_in_the_span_are_listed(
    reader: Reader, span: tuple[int, int], found: list[tuple[str, int]]
) -> None:
    """Newest first; a row deleted before or after the span is not listed."""
    rows = deleted_rows(reader, reader.table("orders"), Span(Lsn(span[0]), Lsn(span[1])))
    assert found == [(row.last.key[0], row.mark.lsn) for row in rows]


def test_a_transaction_shows_every_change_with_the_row_before_it(reader: Reader) -> None:
    """Across tables, in order; the earlier row is from the history or from the tail."""
    transaction, lsns = find_transaction(reader, "0/250")
    assert lsns == [0x250]
    shown = [each for each in contents(reader, transaction) if isinstance(each, ShownChange)]
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


def test_a_reused_xid_names_its_last_transaction(reader: Reader) -> None:
    """The LSNs of all are returned."""
    transaction, lsns = find_transaction(reader, "xid:10")
    assert (transaction.lsn, lsns) == (0x300, [0x150, 0x300])


def test_transactions_are_listed_newest_first(reader: Reader) -> None:
    """In LSN order, whatever their timestamps, up to the watermark."""
    found = find(reader, reader.span(None, None), TransactionFilters(), None)
    assert [each.lsn for each in found] == [0x300, 0x250, 0x200, 0x150]
    assert [each.lsn for each in find(reader, reader.span(None, None), TransactionFilters(), 2)] == [0x300, 0x250]


@pytest.mark.parametrize(
    ("key", "column", "lsns"),
    [
        ("3", None, {0x200, 0x300}),
        (None, "note", {0x150, 0x250}),
        (None, "at", set()),
        ("2", "note", set()),
    ],
)
def test_transactions_are_filtered_by_key_and_column(
    reader: Reader, key: str | None, column: str | None, lsns: set[int]
) -> None:
    """By key: those that touched it; by column: those that left another value in it."""
    table = reader.table("orders")
    found = lsns_of_table(reader, table, reader.span(None, None), (key,) if key else None, column)
    assert found is not None
    assert lsns == set(found)


def test_transactions_of_a_key_in_an_earlier_source_are_found(reader: Reader) -> None:
    """There the table had another OID."""
    known = read_known(reader.lake)
    table = known.tables[ORDERS]
    moved = replace(table, oid=9, former_oids=((Lsn(0x250), table.oid),))
    now = Reader(reader.lake, _NOW, replace(known, tables={**known.tables, ORDERS: moved}))
    assert lsns_of_table(now, now.table("orders"), now.span(None, None), ("1",), None) == frozenset({0x150, 0x250})


@pytest.mark.parametrize(
    ("since", "until", "span"),
    [
        (None, None, (0, 0x300)),
        ("0/200", "0/250", (0x1FF, 0x250)),
        ("2026-11-21T09:00:10Z", None, (0x180, 0x300)),
        ("xid:11", "2026-11-21T09:00:10Z", (0x1FF, 0x250)),
        ("0/280", "2026-11-21T09:00:10Z", (0x27F, 0x250)),
        ("0/380", None, (0x37F, 0x300)),
        ("0/381", "now", (0x37F, 0x300)),
    ],
)
def test_a_span_includes_both_ends(reader: Reader, since: str | None, until: str | None, span: tuple[int, int]) -> None:
    """It begins before the first commit of its first moment and ends with the last commit of its last moment.

    One without a commit is empty: the source may have been idle between the two.
    """
    found = reader.span(since, until)
    assert span == (found.after, found.upto)


@on_disk("makes a folder")
def test_questions_without_an_exact_answer_are_refused(reader: Reader, tmp_path: Path) -> None:
    """Before the horizon, past the watermark, about what does not exist or is not completely copied."""
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
    with pytest.raises(NotAnswerable, match="has not been completely copied yet"):
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
def test_a_name_is_split_at_dots_outside_double_quotes(name: str, parts: list[str]) -> None:
    """A doubled quote stands for one."""
    assert parts == split_name(name)
