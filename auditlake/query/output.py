"""Output of query results: a table for people, or a format for programs (`query.formats`).

A table is aligned; NULL is a dim word, control characters are escaped, LSNs are `0/16B3748`, instants in the reader's
zone; a new table begins after 10,000 rows. It has one value a line on a terminal that is too narrow, or with
`Layout.expanded`.

Every format is streamed: memory does not grow with the result. A file appears whole, by a rename, or not at all.
Several results follow each other, in CSV after an empty line; a Parquet file holds one.
"""

import codecs
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, tzinfo
from decimal import Decimal
from errno import EFBIG
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

import click
import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from auditlake.cancellation import endure_interrupts
from auditlake.errors import BadUsage
from auditlake.messages import require_printable
from auditlake.query.formats import csv_lines, json_lines, need_distinct, pieces, plain_text, python_rows
from auditlake.query.statement import AnswerRows
from auditlake.store.failures import is_full
from auditlake.terminal import console_for, show
from auditlake.values.escapes import visible

if TYPE_CHECKING:  # pyspark takes a second to import
    from pyspark.sql import DataFrame

    Results = Sequence[DataFrame | AnswerRows]


TEXT_FORMATS = ("table", "csv", "json")
_DEVICES = Path("/dev")
_TABLE_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Layout of the table format: `expanded` None expands what does not fit; `width` is that of a pager's terminal.

    Instants are shown in `zone`.
    """

    expanded: bool | None = None
    width: int | None = None
    zone: tzinfo = UTC


_FITTING = TableLayout()


def _batches(rows: "DataFrame | AnswerRows") -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    # A DataFrame of Spark Connect has an attribute of any name: a column.
    if isinstance(rows, AnswerRows) and not type(rows).__module__.startswith("pyspark."):
        return rows.batches()
    from auditlake.query.spark_engine import batches  # noqa: PLC0415 - pyspark takes a second to import

    return batches(cast("DataFrame", rows))


def render(
    rows: "DataFrame | AnswerRows",
    form: str,
    out: TextIO | None = None,
    layout: TableLayout = _FITTING,
    nulls: set[int] | None = None,
) -> int:
    """Run the query, write its rows to `out` (stdout) in one of `TEXT_FORMATS` and return their number.

    The indexes of columns that had a NULL are added to `nulls`. Raises BadUsage if the query fails on a row.
    """
    schema, fetched = _batches(rows)
    if nulls is not None:
        fetched = _find_nulls(fetched, nulls)
    reader = layout.zone if form == "table" else None
    return write_python_rows(rows.columns, python_rows(schema, fetched, reader), form, out or sys.stdout, layout)


def _find_nulls(fetched: Iterator[pa.RecordBatch], nulls: set[int]) -> Iterator[pa.RecordBatch]:
    for batch in fetched:
        nulls.update(at for at, column in enumerate(batch.columns) if column.null_count)
        yield batch


def write_python_rows(
    columns: Sequence[str], rows: Iterator[tuple[Any, ...]], form: str, out: TextIO, layout: TableLayout = _FITTING
) -> int:
    """Write rows that are Python values already."""
    match form:
        case "json":
            return _write(json_lines(columns, rows), out)
        case "csv":
            return _write(csv_lines(columns, rows), out) - 1
        case "table":
            return _tables(columns, rows, out, layout)
        case _:
            raise BadUsage(f"{form!r} is not a format", f"Choose one of {', '.join(TEXT_FORMATS)}.")


def write_parquet(rows: "DataFrame | AnswerRows", out: BinaryIO) -> int:
    """Run the query, write its rows to `out` as one Parquet file and return their number."""
    schema, fetched = _batches(rows)
    count = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in fetched:
            count += batch.num_rows
            yield batch

    out.writelines(pieces("parquet", schema, counted()))
    return count


def _write(lines: Iterable[str], out: TextIO) -> int:
    """Write lines and return their number."""
    count = 0
    for line in lines:
        out.write(line)
        count += 1
    return count


def _tables(columns: Sequence[str], rows: Iterator[tuple[Any, ...]], out: TextIO, layout: TableLayout) -> int:
    to = console_for(out, terminal_width=layout.width)
    count = _table(columns, list(islice(rows, _TABLE_ROWS)), to, layout, 0)
    while more := list(islice(rows, _TABLE_ROWS)):
        count += _table(columns, more, to, layout, count)
    return count


def _table(
    columns: Sequence[str], rows: Sequence[tuple[Any, ...]], to: Console, layout: TableLayout, before: int
) -> int:
    table = Table(show_lines=False)
    for index, name in enumerate(columns):
        numeric = any(isinstance(row[index], int | float | Decimal) for row in rows)
        table.add_column(Text(visible(name)), overflow="fold", justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*map(_cell, row))
    show(table, to, expanded=layout.expanded, first=before + 1)
    return len(rows)


def _cell(value: Any) -> Text:  # noqa: ANN401 - any value of a row
    return Text("NULL", style="dim italic") if value is None else Text(visible(plain_text(value)))


_UTF8 = codecs.getwriter("utf-8")


@dataclass(frozen=True, slots=True)
class OutputForm:
    """One of `TEXT_FORMATS` or parquet, and the file to write; None is standard output.

    `expanded` and `zone` are as in `TableLayout`; `paged`: use the pager on a terminal.
    """

    name: str
    path: Path | None
    expanded: bool | None = None
    paged: bool = False
    zone: tzinfo = UTC

    def check(self, statements: int) -> None:
        """Raise BadUsage if the results of this number of statements cannot be written in this form."""
        if self.name != "parquet":
            return
        if statements != 1:
            raise BadUsage(f"{statements} answers, and a Parquet file holds the rows of one", "Ask one at a time.")
        if self.path is None and sys.stdout.isatty():
            raise BadUsage("Parquet is not for a terminal", "Add --output FILE, or redirect standard output.")


@dataclass(frozen=True, slots=True)
class _Terminal:
    """A terminal, or its pager, to which exact values are written; raises BadUsage for those it would execute."""

    _out: TextIO

    def write(self, text: str) -> int:
        require_printable(text)
        return self._out.write(text)


def _exact(out: TextIO, form: OutputForm) -> TextIO:
    """Return where the results are written: a table has no control characters of values, but its own styles."""
    is_guarded = form.name != "table" and form.path is None and sys.stdout.isatty()
    return cast("TextIO", _Terminal(out)) if is_guarded else out


Notes = Callable[[int, set[int]], None]
"""Called with the index of a result and the indexes of its columns that had a NULL, after all its rows are written."""


def answer(results: "Results", form: OutputForm, *, first: bool = True, notes: Notes | None = None) -> int | None:
    """Write the rows of each result; return their number, None if a pager was closed before the last.

    `first`: nothing was written before; `notes` is called for tables. Raises BadUsage if a query fails on a
    row, two columns have one name in a format that needs distinct ones, or the file cannot be written.
    """
    for rows in results if form.name in {"json", "parquet"} else ():
        need_distinct(rows.columns)
    nulls: list[set[int]] = [set() for _ in results]
    paged = form.paged and form.path is None and sys.stdout.isatty() and _has_pager()
    count = _page(results, form, nulls, first=first) if paged else _stream(results, form, nulls, first=first)
    for number, columns in enumerate(nulls):
        if notes is not None and columns and form.name == "table":
            notes(number, columns)
    return count


def _stream(results: "Results", form: OutputForm, nulls: Sequence[set[int]], *, first: bool) -> int:
    count = 0
    with _opened(form.path) as out:
        for number, rows in enumerate(results):
            if form.name == "parquet":
                count += write_parquet(rows, out)
                continue
            # Not a TextIOWrapper: if a query fails on a row it is collected, and closes standard output with it.
            text = cast("TextIO", _UTF8(out))
            count += _text(rows, form, text, nulls[number], first=first and not number)
        out.flush()
    return count


def _text(  # noqa: PLR0913 - where and how
    rows: "DataFrame | AnswerRows",
    form: OutputForm,
    out: TextIO,
    nulls: set[int],
    *,
    first: bool,
    width: int | None = None,
) -> int:
    """Write one result in a text format; return the number of rows."""
    out = _exact(out, form)
    if form.name == "csv" and not first:
        out.write("\n")
    return render(rows, form.name, out, TableLayout(form.expanded, width, form.zone), nulls)


def _has_pager() -> bool:
    return bool(os.environ.get("PAGER")) or shutil.which("less") is not None


def _page(results: "Results", form: OutputForm, nulls: Sequence[set[int]], *, first: bool) -> int | None:
    os.environ.setdefault("LESS", "-FRX")  # no pager for what fits the screen; colours; keep the text on leaving
    width, count, complete = shutil.get_terminal_size().columns, 0, False
    with click.get_pager_file() as pager:  # click expects that a pager may close the pipe early
        try:
            for number, rows in enumerate(results):
                count += _text(rows, form, pager, nulls[number], first=first and not number, width=width)
            pager.flush()
            complete = True
        finally:
            endure_interrupts()  # the block ends with the pager
    return count if complete else None


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        return
    unfinished, is_device = path.with_name(f".{path.name}.unfinished"), _is_device(path)
    try:
        unfinished.unlink(missing_ok=True)  # of a killed process, or another user's link
        out = path.open("wb") if is_device else unfinished.open("xb")
    except OSError as exc:
        raise _not_written(path, exc) from exc
    try:
        with out:
            yield out
        if not is_device:
            unfinished.replace(path)
    except OSError as exc:
        if exc.filename is None and (is_full(exc) or exc.errno == EFBIG):  # of a write; a file of the lake is named
            raise _not_written(path, exc) from exc
        raise
    finally:
        unfinished.unlink(missing_ok=True)


def _not_written(path: Path, exc: OSError) -> BadUsage:
    return BadUsage(f"{path} cannot be written: {exc.strerror}", "Choose another --output.")


def _is_device(path: Path) -> bool:
    """Return whether a path is a device or a pipe, such as /dev/null or /dev/fd/63: root would replace it by a file."""
    is_ordinary = path.is_symlink() or path.is_file() or not path.exists()
    return not is_ordinary or (path.exists() and _DEVICES in path.absolute().parents)
