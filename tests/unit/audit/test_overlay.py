"""Versions of few keys from the history and the tail: which changes are read for them, and what contradicts them."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.overlay import overlaid
from auditlake.audit.row_history import Book
from auditlake.audit.touched_rows import lsns_of_table
from auditlake.audit.versions import Version, versions_of
from auditlake.delta.sql import TableFiles, select
from auditlake.engine import Engine
from auditlake.errors import InvariantBroken, LakeUnusable, Unsupported
from auditlake.follow import Applier
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.spark.on_demand import SparkOnDemand
from tests.small_lake import ORDERS, T0, T0_US, write_log, write_small_lake

_AT = "2026-01-01 12:00:00.25+00"


def _extended(root: Path, changes: Mapping[int, list[dict[str, Any]]]) -> Reader:
    """Return a reader of the small lake with later transactions."""
    lake = write_small_lake(root)
    rows = [
        {"lsn": lsn, "ordinal": n, "xid": 90, "time": T0, "schema": ORDERS.schema, "table": ORDERS.table, "relation": 1}
        | change
        for lsn, each in changes.items()
        for n, change in enumerate(each)
    ]
    log = [{"lsn": lsn, "end_lsn": lsn + 8, "xid": 90, "time": T0, "time_mono": T0, "tables": []} for lsn in changes]
    write_log(lake, log, rows, acknowledged_lsn=max(changes) + 8, current_us=T0_US + 100_000_000)
    return Reader(Lake(lake.root), datetime(2026, 11, 21, 10, tzinfo=UTC))


def _moved(old: str, new: str, note: str) -> dict[str, Any]:
    return {"op": "update", "old": [old, None, None, None], "new": [new, note, None, _AT]}


def _periods(found: list[Version]) -> list[tuple[str, str | None, int, int | None]]:
    return [(v.key[0], v.values["note"], v.begin.lsn, v.end.lsn if v.end else None) for v in found]


def test_the_changes_of_keys_that_a_row_had_in_the_tail_are_read(tmp_path: Path) -> None:
    """The value of note is not sent with the last change, and was set under the first key."""
    last = _moved("8", "9", "") | {"unchanged": [1]}
    reader = _extended(tmp_path / "lake", {0x500: [_moved("1", "8", "moved")], 0x600: [last]})
    found = versions_of(reader, reader.table("orders"), [("9",)], Lsn(0x600))
    assert _periods(found) == [("9", "moved", 0x600, None)]


def test_transactions_that_changed_a_column_of_a_moved_row_are_found_in_the_tail(tmp_path: Path) -> None:
    """Not one that moved the row only, or that put another row under its former key."""
    unsent = _moved("8", "9", "") | {"unchanged": [1]}
    changes = {
        0x500: [_moved("1", "8", "moved")],
        0x600: [unsent, {"op": "insert", "new": ["8", "other", None, _AT]}],
        0x700: [{"op": "delete", "old": ["9", None, None, None]}, _moved("8", "9", "other")],
        0x800: [{"op": "update", "new": ["9", "other", None, _AT]}],
        0x900: [{"op": "update", "new": ["9", "fourth", None, _AT]}],
    }
    reader = _extended(tmp_path / "lake", changes)
    found = lsns_of_table(reader, reader.table("orders"), Span(Lsn(0x250), Lsn(0x900)), None, "note")
    assert set(found or ()) == {0x500, 0x900}


def test_a_row_that_moves_in_the_tail_is_followed_by_the_changes_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under all its keys, to its deletion; another row that gets one of them is told apart."""
    delete = {"op": "delete", "old": ["9", None, None, None]}
    changes = {
        0x500: [_moved("4", "8", "moved")],
        0x600: [_moved("8", "9", "again"), {"op": "insert", "new": ["8", "other", None, _AT]}],
        0x700: [delete, _moved("8", "9", "third")],
    }
    reader = _extended(tmp_path / "lake", changes)
    monkeypatch.setattr("auditlake.audit.versions.changes_of", lambda *_: pytest.fail("changes are read again"))
    read = list[int]()
    monkeypatch.setattr(Reader, "changes_in", _recorded(Reader.changes_in, read))
    events = Book(reader, reader.table("orders"), Lsn(0x700)).life(("9",))
    told = [(e.mark.lsn, e.mark.op, e.before and e.before.key[0], e.after and e.after.key[0]) for e in events]
    assert told == [
        (0x250, "insert", None, "4"),
        (0x500, "update", "4", "8"),
        (0x600, "update", "8", "9"),
        (0x600, "insert", None, "8"),
        (0x700, "delete", "9", None),
        (0x700, "update", "8", "9"),
    ]
    assert len(read) == 3  # each read finds another key


def _recorded(
    changes_in: Callable[[Reader, Span], TableFiles | None], read: list[int]
) -> Callable[[Reader, Span], TableFiles | None]:
    def recorded(reader: Reader, span: Span) -> TableFiles | None:
        read.append(span.upto)
        return changes_in(reader, span)

    return recorded


def test_a_truncate_ends_the_versions_of_a_key(tmp_path: Path) -> None:
    """Those that were open in the history, and those of the tail."""
    truncate = {"op": "truncate"}
    reader = _extended(tmp_path / "lake", {0x500: [truncate], 0x600: [{"op": "insert", "new": ["1", "x", None, _AT]}]})
    found = versions_of(reader, reader.table("orders"), [("1",)], Lsn(0x600))
    expected = [("1", "a", 0x100, 0x150), ("1", "b", 0x150, 0x250), ("1", "c", 0x250, 0x500), ("1", "x", 0x600, None)]
    assert _periods(found) == expected
    assert [version.end.op for version in found if version.end] == ["update", "update", "truncate"]


def test_a_row_with_many_versions_is_followed_over_a_truncate_before_it(tmp_path: Path) -> None:
    """Which is between the versions of its key, and ended none of them; all are in the history."""
    updates = {0x500 + n: [{"op": "update", "new": ["1", f"n{n}", None, _AT]}] for n in range(25)}
    truncate, insert = {"op": "truncate"}, {"op": "insert", "new": ["1", "again", None, _AT]}
    reader = _extended(tmp_path / "lake", updates | {0x600: [truncate], 0x610: [truncate], 0x620: [insert]})
    Applier(reader.lake, SparkOnDemand({}, Engine.DUCKDB), lambda _: None).apply()
    reader = Reader(Lake(reader.lake.root), reader.now)
    events = Book(reader, reader.table("orders"), Lsn(0x620)).life(("1",))
    assert [(e.mark.lsn, e.mark.op) for e in events if e.mark.lsn > 0x518] == [(0x600, "truncate"), (0x620, "insert")]


@pytest.mark.parametrize(
    "change",
    [
        {"op": "delete", "old": ["77", None, None, None]},
        {"op": "update", "new": ["77", "x", None, _AT]},
    ],
    ids=["delete", "update"],
)
def test_changes_of_a_key_that_contradict_its_history_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """A row that does not exist is deleted or updated; other keys are answered."""
    reader = _extended(tmp_path / "lake", {0x500: [change]})
    table = reader.table("orders")
    with pytest.raises(InvariantBroken, match="contradict the history"):
        versions_of(reader, table, [("77",)], Lsn(0x500))
    assert len(versions_of(reader, table, [("4",)], Lsn(0x500))) == 1


def test_an_overlay_of_moments_holds_no_version_between_them(tmp_path: Path) -> None:
    """Only those of the tail that are valid at one of them; it counts the rows as the whole one."""
    updates = {0x500 + n: [{"op": "update", "new": ["1", f"n{n}", None, _AT]}] for n in range(25)}
    reader, moments = _extended(tmp_path / "lake", updates), (Lsn(0x250), Lsn(0x518))
    table = reader.table("orders")
    some, whole = (overlaid(reader, table, moments[1], moments=each) for each in (moments, ()))
    sql = "select note, _from_lsn, _to_lsn from history where _from_lsn > 512 order by _from_lsn, id"
    begun = [tuple(row.values()) for row in select(sql, history=some).to_pylist()]
    assert begun == [("c", 0x250, 0x500), ("new", 0x250, None), ("half", 0x400, None), ("n24", 0x518, None)]
    assert [some.count(lsn) for lsn in moments] == [whole.count(lsn) for lsn in moments] == [3, 3]


def test_an_error_of_a_query_names_the_history(tmp_path: Path) -> None:
    """The versions are of its files and of the tail."""
    reader = _extended(tmp_path / "lake", {0x500: [_moved("1", "8", "moved")]})
    versions = overlaid(reader, reader.table("orders"), Lsn(0x500))
    with pytest.raises(LakeUnusable, match=r"history/public/orders cannot be read"):
        select("select cast(note as bigint) from history", history=versions)


def test_changes_with_more_text_than_one_array_holds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three gigabytes, which nothing reads; apply folds them in parts."""
    offsets = pa.py_buffer(np.array([0, 1 << 30], np.int32))
    text = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(np.empty(1 << 30, np.uint8)))
    tuples = pa.chunked_array(3 * [pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), text)])
    reader = _extended(tmp_path / "lake", {0x500: [_moved("1", "8", "moved")]})
    monkeypatch.setattr("auditlake.audit.changes.select", lambda *_, **__: pa.table({"new": tuples}))
    with pytest.raises(Unsupported, match="that are not applied yet cannot be folded"):
        overlaid(reader, reader.table("orders"), Lsn(0x500))
