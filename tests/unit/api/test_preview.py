"""Preview of results: hostile values stay inside their cell, long ones are cut, and the count is that of all rows."""

import pyarrow as pa

from auditlake.api.results import html_table, text_table


def test_a_value_cannot_leave_its_cell() -> None:
    """Neither by a line break, an escape sequence nor a tag."""
    rows = pa.table({"a": ["x\ny", "\x1b[31mred", "<script>&"]})
    assert text_table(rows, 3).splitlines()[2:] == ["x\\ny", "\\u001b[31mred", "<script>&", "3 rows"]
    assert "<td>&lt;script&gt;&amp;</td>" in html_table(rows, 3)
    assert "\x1b" not in html_table(rows, 3)


def test_a_long_value_is_cut() -> None:
    """At forty characters; binary values are in hexadecimal."""
    rows = pa.table({"a": ["x" * 41, "x" * 40, None], "b": [b"\x01\xff", b"\x00" * 100, b""]})
    (_, _, *lines, count) = text_table(rows, None).splitlines()
    assert [line.split("  ")[0] for line in lines] == ["x" * 39 + "…", "x" * 40, "NULL"]
    assert [line.rstrip().split("  ")[-1] for line in lines] == ["\\x01ff", "\\x" + "0" * 37 + "…", "\\x"]
    assert count == "first 3 rows"


def test_null_differs_from_the_word() -> None:
    """In HTML; and the total is named if some rows are left out."""
    rows = pa.table({"a<": [None, "NULL"]})
    expected = "<th>a&lt;</th></tr></thead><tbody><tr><td><i>NULL</i></td></tr><tr><td>NULL</td></tr></tbody></table>"
    assert expected in html_table(rows, 2)
    assert html_table(rows, 1_234).endswith("<p>first 2 of 1,234 rows</p>")


def test_columns_may_share_a_name_and_rows_may_have_none() -> None:
    """As in SQL."""
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert text_table(twice, 1).splitlines() == ["a  a", "-  -", "1  2", "1 row"]
    assert text_table(pa.table({"a": pa.array([], pa.int64())}), 0).splitlines() == ["a", "-", "0 rows"]
