"""Results of the Python API: the records of `audit.answers`, and their conversion to Arrow, pandas, polars, DuckDB.

Values of rows are those of `values.python_values`: exact, or `ExactText`. In Arrow, where one column holds values of
many source columns, they are PostgreSQL's text in maps from column name to text. LSNs are `Lsn`, in Arrow BIGINT as in
the tables of the lake; times are aware, in UTC.

A preview, by `print` or in a notebook, has the first rows, each value on one line, with control characters escaped,
because values are input from strangers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import pyarrow as pa

from auditlake.api.arguments import wrong_type
from auditlake.audit.answers import BlamedColumn, RowEvent
from auditlake.errors import Unsupported
from auditlake.lake.gaps import Gap
from auditlake.lsn import Lsn
from auditlake.values.escapes import visible

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

T = TypeVar("T")
_SHOWN_ROWS, _LONGEST = 10, 40
"""Rows and characters of a value in a preview."""


class Exportable(ABC):
    """A result that can be handed to other libraries; each is imported only when it is asked for."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return the result as an Arrow table."""

    def to_pandas(self) -> "pd.DataFrame":
        """Return the result as a pandas DataFrame with Arrow types, which keep NULL, decimals and microseconds."""
        pandas = _library("pandas")
        frame: pd.DataFrame = self.to_arrow().to_pandas(types_mapper=pandas.ArrowDtype)
        return frame

    def to_polars(self) -> "pl.DataFrame":
        """Return the result as a polars DataFrame; raises Unsupported if polars is not installed."""
        frame: pl.DataFrame = _library("polars").from_arrow(self.to_arrow())
        return frame

    def to_duckdb(self, connection: "DuckDBPyConnection | None" = None) -> "DuckDBPyRelation":
        """Return the result as a DuckDB relation, in a connection of its own unless one is given.

        Raises BadUsage for anything else in the place of a connection.
        """
        duckdb = _library("duckdb")
        if connection is not None and not hasattr(connection, "from_arrow"):
            raise wrong_type("connection", connection, "one of DuckDB or None")
        opened = duckdb.connect() if connection is None else connection
        relation: DuckDBPyRelation = opened.from_arrow(self._for_duckdb())
        return relation

    def _for_duckdb(self) -> pa.Table:
        """Return the result with names of columns that DuckDB tells apart."""
        return self.to_arrow()

    def _first(self, rows: int) -> tuple[pa.Table, int | None]:
        """Return the first rows, and how many there are in all; None: not known, but more."""
        found = self.to_arrow()
        return found.slice(0, rows), found.num_rows

    def __str__(self) -> str:
        """Return the first rows as a table of text."""
        return text_table(*self._first(_SHOWN_ROWS))

    def _repr_html_(self) -> str:
        """Return the first rows as HTML, for notebooks."""
        return html_table(*self._first(_SHOWN_ROWS))


def _library(name: str) -> Any:  # noqa: ANN401 - a module
    try:
        return import_module(name)
    except ImportError as exc:
        raise Unsupported(f"{name} is not installed", f"Install it: pip install {name}.") from exc


Columns = Mapping[str, tuple[pa.DataType, Callable[[Any], Any]]]
"""Type and value of each column; the functions can be pickled, so that a result can be sent to another process."""


@dataclass(frozen=True)
class Found(Exportable, Sequence[T], Generic[T]):
    """Results in the order of the question; a sequence of frozen objects.

    `notes` say what is not known beside them, because it has expired, was erased, or is in a gap.
    """

    items: tuple[T, ...]
    _columns: Columns = field(repr=False, compare=False)
    notes: tuple[str, ...] = field(default=(), repr=False, compare=False, kw_only=True)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def to_arrow(self) -> pa.Table:
        """Return one row for each object."""
        return pa.table(
            {
                name: pa.array([_in_arrow(value(each)) for each in self.items], kind)
                for name, (kind, value) in self._columns.items()
            }
        )


@dataclass(frozen=True, slots=True)
class SqlRows(Exportable):
    """Rows of a statement; `notes` name columns whose NULL may be a value that their type cannot hold."""

    _rows: pa.Table = field(repr=False)
    notes: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns, which may repeat."""
        return list(self._rows.column_names)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._rows

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield each row as a tuple of Python values."""
        for batch in self._rows.to_batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


@dataclass(frozen=True)
class RowHistory(Found[RowEvent]):
    """The events of a row, newest first; what happened to it in one of the `gaps` is not known."""

    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table, known from `horizon` on, folded up to `position`; `parked` is the reason if it is not followed."""

    name: str
    horizon: Lsn
    position: Lsn
    columns: tuple[str, ...]
    key: tuple[str, ...]
    parked: str | None


TIME = pa.timestamp("us", tz="UTC")
TEXTS = pa.map_(pa.string(), pa.string())
NAMES = pa.list_(pa.string())


def _in_arrow(value: Any) -> Any:  # noqa: ANN401 - of any column
    return list(value.items()) if isinstance(value, Mapping) else value


def _of(prefix: str = "", **kinds: pa.DataType) -> Columns:
    """Return columns that have the names of attributes, after a prefix."""
    return {name: (kind, attrgetter(prefix + name)) for name, kind in kinds.items()}


def _gap_from(blamed: BlamedColumn) -> Lsn | None:
    return None if blamed.gap is None else blamed.gap.lsn_from


def _gap_to(blamed: BlamedColumn) -> Lsn | None:
    return None if blamed.gap is None else blamed.gap.lsn_to


_TEXT, _WHOLE = pa.string(), pa.int64()
_COMMIT = _of("commit.", lsn=_WHOLE, time=TIME, xid=_WHOLE, actor=_TEXT, reason=_TEXT, db_user=_TEXT)
_COUNTS = dict.fromkeys(("inserts", "updates", "deletes", "truncates"), _WHOLE)
TRANSACTIONS = _of(lsn=_WHOLE, time=TIME, xid=_WHOLE, actor=_TEXT, reason=_TEXT, origin=_TEXT, tables=NAMES, **_COUNTS)
_SIDES: Columns = {
    **_of(changed=NAMES),
    "before": (TEXTS, attrgetter("before_texts")),
    "after": (TEXTS, attrgetter("after_texts")),
}
EVENTS: Columns = {**_COMMIT, **_of(op=_TEXT), **_SIDES}
BLAMED: Columns = {
    **_of(column=_TEXT),
    "value": (_TEXT, attrgetter("text")),
    **_COMMIT,
    "gap_from": (_WHOLE, _gap_from),
    "gap_to": (_WHOLE, _gap_to),
}
DELETED: Columns = {**_COMMIT, **_of(op=_TEXT), "row": (TEXTS, attrgetter("texts"))}
DIFFERENCES: Columns = {**_of(table=_TEXT, kind=_TEXT), **_SIDES}
TABLES = _of(name=_TEXT, horizon=_WHOLE, position=_WHOLE, columns=NAMES, key=NAMES, parked=_TEXT)


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
