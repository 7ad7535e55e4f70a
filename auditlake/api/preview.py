"""Preview of a result: its first rows as text, for `print`, and as HTML, for notebooks. Pure.

A value is shown on one line and at most `_LONGEST` characters of it; control characters are escaped, because values are
input from strangers. NULL is the word, in HTML in italics, so that it differs from the text.
"""

from html import escape
from typing import Any

import pyarrow as pa

from auditlake.values.escapes import visible

SHOWN_ROWS = 10
_LONGEST = 40


def text_table(rows: pa.Table, total: int | None) -> str:
    """Format rows as a table of text; `total` is how many there are in all, None: more than these."""
    names = [_cut(name) for name in rows.column_names]
    columns = [[_cell(value) for value in column.to_pylist()] for column in rows.columns]
    widths = [max(map(len, (name, *cells))) for name, cells in zip(names, columns, strict=True)]
    lines = [names, ["-" * width for width in widths], *map(list, zip(*columns, strict=True))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*shown, _counted(rows.num_rows, total)])


def html_table(rows: pa.Table, total: int | None) -> str:
    """Format rows as an HTML table, with the same arguments."""
    head = "".join(f"<th>{escape(_cut(name))}</th>" for name in rows.column_names)
    cells = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    body = "".join(f"<tr>{''.join(map(_html_cell, line))}</tr>" for line in cells)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"{table}<p>{_counted(rows.num_rows, total)}</p>"


def _counted(shown: int, total: int | None) -> str:
    if total is None:
        return f"first {shown:,} rows"
    rows = f"{total:,} row{'' if total == 1 else 's'}"
    return rows if shown == total else f"first {shown:,} of {rows}"


def _html_cell(value: Any) -> str:  # noqa: ANN401 - any value of a row
    return "<td><i>NULL</i></td>" if value is None else f"<td>{escape(_cell(value))}</td>"


def _cell(value: Any) -> str:  # noqa: ANN401 - as above
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return _cut(f"\\x{value[:_LONGEST].hex()}")
    return _cut(str(value))


def _cut(text: str) -> str:
    shown = visible(text[: _LONGEST + 1])
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
