"""Views in DuckDB of what a statement reads, and the rows that it answers with; for both dialects. No JVM.

A view has columns `c0`, `c1` …, so that no name of the source is ever a name of DuckDB's.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from auditlake.apply.tails import Tail, open_log, own_bytes
from auditlake.audit.lake_reader import Reader
from auditlake.audit.masked_columns import MaskedColumns, masked_columns
from auditlake.audit.state import StateRequest, state_query, versions_query
from auditlake.cancellation import uncancelled
from auditlake.delta.log_reader import file_path
from auditlake.delta.row_groups import RowGroup, all_row_groups
from auditlake.delta.sql import TableFiles, duckdb_type, read_newest
from auditlake.errors import BadUsage
from auditlake.lake.duckdb_rows import bare, connect_for_statements, quoted, raw_with_printed
from auditlake.lake.expiries import expired_upto
from auditlake.lake.history import LSNS, PERIOD_COLUMNS, HistoryTable, type_of
from auditlake.lake.history_files import find_files
from auditlake.lsn import Lsn
from auditlake.query.embedded.cells import NotEmbedded
from auditlake.query.formats import parts
from auditlake.query.statement import LSNS_OF_LOGS, LakeState, Log, PreparedQuery
from auditlake.query.system_time import Selection, State, within_bounds
from auditlake.query.years import require_years
from auditlake.relation import Column, TableName
from auditlake.sql_names import standard_identifier
from auditlake.store.place import Place
from auditlake.temporal.as_of_predicate import of_state
from auditlake.temporal.moments import Known
from auditlake.values.exact_text import exact_texts, held_in
from auditlake.values.types import has_padded_elements

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

_TAIL_BYTES = 64 << 20
HELD_ROWS, HELD_BYTES = 2048, 64 << 20
"""Rows that DuckDB holds at a time, whatever their length, and how many bytes they may have."""
_RAW = "_raw"


class StatementDatabase:
    """The database in which statements of both dialects run; threads may share it.

    `open_cursor` opens a cursor of the caller's, which `connect_for_statements` opened; without one, it has its own.
    """

    def __init__(self, open_cursor: "Callable[[], DuckDBPyConnection] | None" = None) -> None:
        self._open_cursor = open_cursor
        self._opening = threading.Lock()
        self._registered: DuckDBPyConnection | None = None  # kept open: its end frees the functions that it registered

    def cursor(
        self, state: LakeState, register: "Callable[[DuckDBPyConnection], None] | None" = None
    ) -> "DuckDBPyConnection":
        """Open a cursor for one statement; the first `register` that is given adds functions, later ones do nothing."""
        with self._opening:
            with uncancelled():  # functions that are missing then could not be registered later
                if self._open_cursor is None:
                    self._open_cursor = connect_for_statements(state.known.lake).cursor
                if register and self._registered is None:
                    root = self._open_cursor()
                    register(root)
                    self._registered = root
            return self._open_cursor()


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view by the name that it is shown under, with the name of its type in a history.

    `column` is the source's, None for one of the period or of a log. A statement must not read a `masked` one.
    """

    name: str
    kind: str
    column: Column | None = None
    is_lsn: bool = False
    masked: bool = False


def columns_of_view(
    query: PreparedQuery, name: TableName, selection: Selection | Log, masks: Sequence[str], documents: str | None
) -> tuple[ViewColumn, ...]:
    """Return the columns of a view; `masks` are patterns of those that are masked (`audit.masked_columns`).

    `documents` is the kind of columns of structs, which the log `relations` has; None: the log cannot be read.

    Raises NotEmbedded, BadUsage if it is a log with the values of masked columns.
    """
    if isinstance(selection, Log):
        if masks and name.table == "changes":
            raise BadUsage(f"{name} has the values of masked columns", "Ask the tables themselves.")
        return _log_table(query.known, name, selection.lsn, documents).fields
    table = query.known.tables[name]
    masked = _masked_by(query, table, masks)
    source = tuple(
        ViewColumn(shown, type_of(each).delta, each, masked=masked.hides(each.name) or masked.hides(each.stored))
        for each, shown in selected_columns(query, table, selection)
    )
    if isinstance(selection, State):
        return source
    of_raw = bool(masked.hidden)
    period = (
        ViewColumn(each, kind, is_lsn=each in LSNS, masked=of_raw and each == _RAW)
        for each, kind in PERIOD_COLUMNS
        if each != "_part"
    )
    return (*source, *period)


def _masked_by(query: PreparedQuery, table: HistoryTable, masks: Sequence[str]) -> MaskedColumns:
    """Return the columns of a table that patterns match."""
    if not masks:
        return MaskedColumns(frozenset(), frozenset())
    reader = Reader(query.known.lake, datetime.now(UTC), query.known)
    return masked_columns(reader, [reader.known.tables[table.name]], masks)


def selected_columns(query: PreparedQuery, table: HistoryTable, selection: Selection) -> list[tuple[Column, str]]:
    """Return the columns of a selection, each with the name under which it is shown."""
    tail = query.tails.of(table, selection)
    if isinstance(selection, State) and tail is not None:
        _check_tail(query.known, tail)
    columns, names = query.tails.columns_shown(table, selection)
    if not isinstance(selection, State):
        _check_versions(table, columns, names)
    return [(column, names[column.stored]) for column in columns]


def _check_tail(known: Known, tail: Tail) -> None:
    """Check that the changes of a tail are not too large; those between them, as of messages, are not held."""
    log = open_log(known.lake) if tail.held_bytes > _TAIL_BYTES else None
    if log is not None and (held := own_bytes(log, tail)) > _TAIL_BYTES:
        raise NotEmbedded(f"a tail of {held >> 20} MB")


def _check_versions(table: HistoryTable, columns: Sequence[Column], names: Mapping[str, str]) -> None:
    if any(type_of(each).may_not_fit and names[each.stored] != each.stored for each in columns):
        raise NotEmbedded(f"versions of {table.name}, which has renamed columns")
    if any(has_padded_elements(each.type_oid) for each in columns):
        raise NotEmbedded(f"versions of {table.name}, which has arrays of char(n)")


@dataclass(frozen=True, slots=True)
class _Log:
    """One of the lake's own tables up to an LSN, None: all of it."""

    name: TableName
    fields: tuple[ViewColumn, ...]
    files: TableFiles
    upto: Lsn | None

    def sql(self, connection: "DuckDBPyConnection") -> str:
        """Return a query of its rows, with columns `c0`, `c1` and so on."""
        _check_length(self.name, [file_path(self.files.place, file.add) for file in self.files.files])
        names = [standard_identifier(each.name) for each in self.fields]
        shown = ", ".join(f"{name} as c{n}" for n, name in enumerate(names))
        where = "" if self.upto is None else f" where lsn <= {self.upto:d}"
        return f"select {shown} from ({self.files.sql(connection)}){where}"


def _log_table(known: Known, name: TableName, lsn: Lsn, documents: str | None = None) -> _Log:
    """Open one of the lake's own tables; `changes` and `transactions` up to an LSN.

    `documents` is the kind of columns of structs; without it, the table `relations`, which has one, is for Spark.

    Raises NotEmbedded.
    """
    path = known.lake.root / name.table
    found = read_newest(path)
    if found is None:
        raise NotEmbedded(f"the table {name}")
    known.check_log(name, expired_upto(found), lsn)
    kinds = {column: _kind_in_history(kind) or documents for column, kind in found.types.items()}
    fields = tuple(ViewColumn(each, kind, is_lsn=each in LSNS_OF_LOGS) for each, kind in kinds.items() if kind)
    if len(fields) < len(kinds):
        raise NotEmbedded(f"the table {name}")
    upto = known.changes_up_to(lsn) if name.table in {"changes", "transactions"} else None
    return _Log(name, fields, found, upto)


def _kind_in_history(kind: str) -> str | None:
    if kind.endswith("[]"):
        element = _kind_in_history(kind.removesuffix("[]"))
        return None if element is None else f"array<{element}>"
    return _OF_DUCKDB.get(kind)


_OF_LOGS = ("bigint", "int", "smallint", "string", "binary", "timestamp", "boolean", "date")
_OF_DUCKDB = {duckdb_type(kind): kind for kind in _OF_LOGS}


class RowsOfView(NamedTuple):
    """A query of the rows of a view, and whether `_raw`, which takes long to read, may have an entry in one."""

    sql: str
    has_texts: bool


def rows_of_view(  # noqa: PLR0913, PLR0917 - the parts of a statement
    connection: "DuckDBPyConnection",
    state: LakeState,
    query: PreparedQuery,
    read: tuple[TableName, Selection | Log],
    documents: str | None,
    columns: Sequence[Column] | None = None,
) -> RowsOfView:
    """Return the rows of a view: of a log, in its columns `c0` …, else as `rows_of_selection`."""
    name, selection = read
    if isinstance(selection, Log):
        return RowsOfView(_log_table(state.known, name, selection.lsn, documents).sql(connection), has_texts=False)
    table = state.known.tables[name]
    has_texts = _check_files(table, selection) or query.tails.of(table, selection) is not None
    return RowsOfView(rows_of_selection(connection, state, query, name, selection, columns), has_texts)


def cell_of(shown: ViewColumn, columns: Sequence[ViewColumn]) -> str:
    """Return SQL for a column of a table's view in `rows_of_selection`, without the trailing blanks of `char(n)`."""
    if shown.column is not None:
        return bare(shown.column, quoted(shown.column))
    if shown.name == _RAW:
        return raw_with_printed([(each.column, each.name) for each in columns if each.column is not None])
    return standard_identifier(shown.name)


def create_view(connection: "DuckDBPyConnection", view: str, cells: Iterable[str], rows: str) -> None:
    """Create a view of these cells, one or more: DuckDB has no view without columns."""
    connection.execute(f'create temp view "{view}" as select {", ".join(cells) or "1 as c0"} from ({rows}) h')


def rows_of_selection(  # noqa: PLR0913, PLR0917 - the parts of a statement
    connection: "DuckDBPyConnection",
    state: LakeState,
    query: PreparedQuery,
    name: TableName,
    selection: Selection,
    columns: Sequence[Column] | None = None,
) -> str:
    """Return a query of the rows of a selection, under their stored names, with `_raw`.

    `columns` are the selection's, with types that may be wider than those of the history.
    """
    table = query.known.tables[name]
    columns = tuple(columns or (column for column, _ in selected_columns(query, table, selection)))
    reader = Reader(query.known.lake, state.now, query.known)
    last = query.tails.upto(table, selection)
    if isinstance(selection, State):  # without a tail at its position, so that no changes are sought
        return state_query(connection, reader, StateRequest(table, min(selection.lsn, last), columns, raw=True)).sql
    condition = "false" if selection.bounds is None else within_bounds(selection.bounds)
    return f"select * from ({versions_query(connection, reader, table, columns, last)}) where {condition}"


def _check_files(table: HistoryTable, selection: Selection) -> bool:
    """Check the files of a selection; return whether `_raw` may have an entry in one."""
    if (found := find_files(table)) is None:
        return True
    read = of_state(found, selection.lsn, table.position).all if isinstance(selection, State) else found
    return any(_RAW not in group.empty_maps for group in _check_length(table.name, read.paths))


def _check_length(name: TableName, paths: Iterable[Place]) -> Sequence[RowGroup]:
    """Return the row groups of files; raises NotEmbedded if rows that DuckDB holds at a time are too long."""
    groups = all_row_groups(paths)
    held = max((group.size_bytes * min(1, HELD_ROWS / max(1, group.rows)) for group in groups), default=0)
    if held > HELD_BYTES:
        raise NotEmbedded(f"a batch of {held / (1 << 20):,.0f} MB of rows of {name}")
    return groups


@dataclass(frozen=True, slots=True)
class RowsOfDuckDb:
    """The rows of an answer, as `query.statement.AnswerRows`."""

    schema: pa.Schema
    fetched: Iterator[pa.RecordBatch]

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.schema.names)

    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema, and an iterator of the rows; it raises BadUsage if an expression fails on one."""
        return self.schema, self.fetched

    def texts(self, most_bytes: int = 1 << 31) -> Iterator[tuple[str | None, ...]]:
        """Yield the rows in PostgreSQL's text of every value; `_raw` is JSON. Raises BadUsage for a longer row."""
        for part in chain.from_iterable(parts(batch, most_bytes) for batch in self.fetched):
            if part.nbytes > most_bytes:
                raise BadUsage(f"a row has more than {most_bytes:,} bytes", "Read less, or use the command line.")
            yield from zip(*map(_texts, part.columns), strict=True)


def _texts(values: pa.Array) -> list[str | None]:
    require_years(values)
    if pa.types.is_map(values.type):
        return [None if each is None else json.dumps(dict(each), ensure_ascii=False) for each in values.to_pylist()]
    texts: list[str | None] = exact_texts(values, held_in(values.type)).to_pylist()
    return texts


def closing(connection: "DuckDBPyConnection", batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches, then close the connection."""
    try:
        yield from batches
    finally:
        connection.close()


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt for Ctrl-C, which DuckDB reports as a RuntimeError."""
    try:
        yield
    except RuntimeError as exc:
        if "interrupted" in str(exc).lower():
            raise KeyboardInterrupt from exc
        raise


def duckdb_error() -> type[Exception]:
    """Return the class of all errors of DuckDB."""
    from duckdb import Error  # noqa: PLC0415 - see above

    return Error
