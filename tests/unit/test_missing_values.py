"""Tests of the missing values of added columns: decided and undecided cases."""

import pytest

from auditlake.lsn import Lsn
from auditlake.schema.catalog_snapshot import only_element
from auditlake.schema.missing_values import CatalogSnapshot, ColumnEntry, Existing, StoringTable, decide

_SNAPSHOT = CatalogSnapshot(1, Lsn(100), 3, {10: 7, 11: 8})
_SAME = {10: StoringTable(7, None), 11: StoringTable(8, None)}


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        (ColumnEntry(4, 0, _SAME), None),
        (ColumnEntry(5, 3, _SAME), None),
        (ColumnEntry(4, 0, {10: StoringTable(7, "x"), 11: StoringTable(9, "x")}), "x"),
        (ColumnEntry(4, 0, {10: StoringTable(7, ""), 12: StoringTable(9, None)}), ""),
        (ColumnEntry(4, 0, {12: StoringTable(9, None)}), None),
    ],
)
def test_existing_rows_have_the_missing_value_or_null(entry: ColumnEntry, value: str | None) -> None:
    """Same files and no missing value: NULL. A missing value: that one. New and dropped partitions do not count."""
    assert decide(_SNAPSHOT, entry, Lsn(101)) == Existing(value)


@pytest.mark.parametrize(
    ("snapshot", "entry", "seen", "problem"),
    [
        (_SNAPSHOT, None, 101, "no longer has the column"),
        (None, ColumnEntry(4, 0, _SAME), 101, "not read before"),
        (_SNAPSHOT, ColumnEntry(4, 0, _SAME), 100, "not read before"),
        (_SNAPSHOT, ColumnEntry(3, 0, _SAME), 101, "already had it"),
        (_SNAPSHOT, ColumnEntry(5, 4, _SAME), 101, "dropped in between"),
        (_SNAPSHOT, ColumnEntry(4, 5, _SAME), 101, "dropped in between"),
        (_SNAPSHOT, ColumnEntry(4, 0, {10: StoringTable(9, None), 11: StoringTable(9, None)}), 101, "rewritten"),
        (_SNAPSHOT, ColumnEntry(4, 0, {10: StoringTable(7, None), 11: StoringTable(9, None)}), 101, "different"),
        (_SNAPSHOT, ColumnEntry(4, 0, {10: StoringTable(7, "x"), 11: StoringTable(8, None)}), 101, "different"),
    ],
)
def test_an_undecided_value_names_the_problem(
    snapshot: CatalogSnapshot | None, entry: ColumnEntry | None, seen: int, problem: str
) -> None:
    """Each case in which the current catalog may differ from that of the commit."""
    existing = decide(snapshot, entry, Lsn(seen))
    assert existing.value is None
    assert problem in (existing.problem or "")


@pytest.mark.parametrize(
    ("text", "element"),
    [
        ("{5}", "5"),
        ('{""}', ""),
        ('{"NULL"}', "NULL"),
        (r'{"a\"b\\,{d}"}', 'a"b\\,{d}'),
        ("{(1,1),(0,0)}", "(1,1),(0,0)"),
    ],
)
def test_the_only_element_of_an_array_is_unquoted(text: str, element: str) -> None:
    """The text is array_out's, with the element quoted or plain."""
    assert only_element(text) == element
