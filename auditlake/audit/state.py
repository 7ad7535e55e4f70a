"""State of a table at an LSN as typed Arrow, without a JVM: history files ⊕ the changes not applied yet, in DuckDB.

    open_state(reader, table, lsn)            a stream of record batches, with the source's names and order of columns
    state_query(connection, reader, request)  the same as a query, for DuckDB statements over several tables

1. Files that statistics rule out are not read (`temporal.as_of_predicate`); rows that deletion vectors mark are left
   out.
2. Below the table's position that is all. Above it the rows are the open versions of the overlay (`audit.overlay`) of
   the history and the tail up to the LSN.

A value that its type cannot represent is NULL; with `raw` the column `_raw` has its text, as in a history. `open_state`
leaves out the trailing blanks of `char(n)`, unless it is asked for values as they are printed.

Files on an object store are read in ranges, through obstore.

Memory: rows of the history are streamed; the changes and rows of the tail are held, as is what DuckDB sorts (up to
`delta.sql.MEMORY_BYTES`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from auditlake.audit.filters import Filter, column_named, filter_on, may_not_fit, ordered, signed, sort_column
from auditlake.audit.lake_reader import Reader
from auditlake.audit.overlay import Overlay, overlaid
from auditlake.audit.row_key import Key
from auditlake.delta.log_reader import list_with
from auditlake.delta.sql import VIRTUAL_COLUMNS, shared_cursor
from auditlake.errors import LakeConflict, Unsupported
from auditlake.lake.comparison_keys import ENUM
from auditlake.lake.duckdb_rows import bare, quoted, raw_with_printed, rows_of, sql_type
from auditlake.lake.history import STORED_PERIOD, HistoryTable
from auditlake.lake.history_files import READ_AGAIN, Files, find_files
from auditlake.lsn import Lsn
from auditlake.pgoutput.table_shape import Shape, compared_key
from auditlake.relation import Column
from auditlake.sql_names import standard_identifier
from auditlake.temporal.as_of_predicate import as_of_sql, of_state
from auditlake.values.equality import differs_in, may_differ
from auditlake.values.types import is_widened

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

_BATCH_ROWS = 1 << 14
_RAW = "_raw"
_ROW = "`row"
"""Column of a state in no columns; no name of a column contains a backtick."""


@dataclass(frozen=True, slots=True)
class StateRequest:
    """A table's state at `lsn` in some of its columns of that moment; `raw`: with `_raw`.

    `held` is a relation of the connection, read instead of the files. It has the rows of the history at `lsn`, or at
    the table's position if that is lower, with these columns, those of the key, and `_raw`.
    """

    table: HistoryTable
    lsn: Lsn
    columns: tuple[Column, ...]
    raw: bool = False
    held: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Order and part of the rows: names of columns, `-name` descending; NULL is last, in descending order first."""

    order: tuple[str, ...] = ()
    limit: int | None = None
    offset: int = 0


_EVERYTHING = Page()


@dataclass(frozen=True, slots=True)
class StateQuery:
    """Query of a state's rows; `is_held`: it reads all rows of `StateRequest.held` and no others, unchanged."""

    sql: str
    is_held: bool = False


def open_state(  # noqa: PLR0913 - the parts of a question
    reader: Reader,
    table: HistoryTable,
    lsn: Lsn,
    *,
    columns: Sequence[str] | None = None,
    where: Sequence[tuple[str, str] | tuple[str, str, Any]] = (),
    page: Page = _EVERYTHING,
    raw: bool = False,
    printed: bool = False,
) -> pa.RecordBatchReader:
    """Read the rows of a table after the commit at `lsn`, in the columns that it had then, or those named.

    `printed`: with the trailing blanks of `char(n)`.

    Raises NotAnswerable if the state is not known, BadUsage for a column that the table did not have, Unsupported if
    another program has given the history table features.
    """
    reader.check(table, lsn, str(lsn))
    columns_then = columns_of(reader, table, lsn)
    compared = with_comparisons(reader, table, columns_then) if where or page.order else columns_then
    had = {column.name: column for column in compared}
    chosen = tuple(column_named(name, had) for name in (had if columns is None else columns))
    filters = [filter_on(column_named(name, had), signed(sign), *value) for name, sign, *value in where]
    order = [sort_column(name, had) for name in page.order]
    used = (*(each.column for each in filters), *(column for column, _ in order))
    needed, with_raw = tuple(dict.fromkeys((*chosen, *used))), raw or any(map(may_not_fit, used))
    connection = shared_cursor(reader.lake.root)
    inner = state_query(connection, reader, StateRequest(table, lsn, needed, with_raw))
    shown = [quoted(column) if printed else bare(column, f"h.{quoted(column)}") for column in chosen]
    shown += [raw_with_printed([(column, column.stored) for column in chosen])] if raw else []
    sql, values = _part(f"select {', '.join(shown) or '1'} from ({inner.sql}) h", filters, order, page)
    batches = connection.execute(sql, values).to_arrow_reader(_BATCH_ROWS)
    # DuckDB would change names that differ only in case.
    names = [*(column.name for column in chosen), *([_RAW] if raw else [])] or [_ROW]
    return pa.RecordBatchReader.from_batches(_renamed(batches.schema, names), _kept(connection, batches, names))


def _part(
    rows: str, filters: Iterable[Filter], order: Iterable[tuple[Column, bool]], page: Page
) -> tuple[str, list[Any]]:
    """Return a query of a part of the rows `h`, with `?` for its values, and the values."""
    conditions = [each.sql() for each in filters]
    condition = " and ".join(text for text, _ in conditions)
    terms = ", ".join(ordered(column, descending=descending) for column, descending in order)
    limit = "" if page.limit is None else f" limit {page.limit:d}"
    sql = f"{rows}{f' where {condition}' if condition else ''}{f' order by {terms}' if terms else ''}{limit}"
    values = [value for _, given in conditions for value in given]
    return f"{sql} offset {page.offset:d}" if page.offset else sql, values


def _renamed(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([field.with_name(name) for name, field in zip(names, schema, strict=False)])


def columns_of(reader: Reader, table: HistoryTable, lsn: Lsn) -> tuple[Column, ...]:
    """Return the columns of a table at an LSN, with their stored names, and the key that it had then."""
    stored, key = {column.stored: column for column in table.columns}, reader.keyed_at(table, lsn).key
    keyed = {column.stored for column in key}
    found = (_named_as(stored.get(column.stored, column), column) for column in reader.columns_at(table, lsn))
    return tuple(replace(column, key=column.stored in keyed) for column in found)


def with_comparisons(reader: Reader, table: HistoryTable, columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return columns with what the lake recorded of comparisons with them: `ENUM`, or what equality depends on."""
    if not any(may_differ(column.type_oid) for column in columns):
        return tuple(columns)
    shape = reader.recorded_shape(table.name)
    return tuple(replace(column, compared=_compared(column, shape)) for column in columns)


def _compared(column: Column, shape: Shape | None) -> str | None:
    found = None if shape is None else shape.compared.get(compared_key(column.attnum or 0, column.type_oid))
    if shape is not None and found is not None and len(found) == 1 and column.type_oid in shape.labels():
        return ENUM
    return differs_in(column.type_oid, found)


def _named_as(column: Column, now: Column) -> Column:
    """Return a column with the type of the history, or the wider one that the moment has, under its name then."""
    types = column.type, now.type
    type_oid, typmod = types[is_widened(*types)]
    stored_as = None if column.stored == now.name else column.stored
    return replace(column, type_oid=type_oid, typmod=typmod, name=now.name, stored_as=stored_as)


def _kept(
    connection: "DuckDBPyConnection", batches: pa.RecordBatchReader, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Keep the connection open until the last batch is read."""
    try:
        for batch in batches:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=_renamed(batch.schema, names))
    finally:
        connection.close()


def versions_query(
    connection: "DuckDBPyConnection", reader: Reader, table: HistoryTable, columns: tuple[Column, ...], upto: Lsn
) -> str:
    """Return a query of all versions up to an LSN, with the columns of the period; raises Unsupported."""
    overlay = versions_upto(reader, table, upto)
    types = _types(overlay.table)
    shown = [*(_cell(column, types.get(column.stored)) for column in columns), *STORED_PERIOD]
    return f"select {', '.join(shown)} from ({overlay.sql(connection)})"


def versions_upto(reader: Reader, table: HistoryTable, upto: Lsn, keys: Collection[Key] | None = None) -> Overlay:
    """Return the versions up to an LSN, of all keys or of some (`audit.overlay`); raises Unsupported."""
    _files(table)
    if upto > table.position and reader.changes is not None:
        _check_key(reader, table, upto)
    return overlaid(reader, table, upto, keys)


def _check_key(reader: Reader, table: HistoryTable, upto: Lsn) -> None:
    """Require that the changes which are not applied yet have the key of the history; raises Unsupported."""
    if reader.followed_to(table, upto).cut_at is not None:
        raise Unsupported(f"the key of {table.name} changes, or its columns, and that is not applied", _THROUGH_SPARK)


def _files(table: HistoryTable) -> Files:
    found = find_files(table)
    if found is None and _is_forgotten(table):
        raise LakeConflict(f"the history of {table.name} was rewritten since it was read", READ_AGAIN)
    if found is None or any(column.stored.casefold() in VIRTUAL_COLUMNS for column in table.columns):
        raise Unsupported(
            f"the history of {table.name} has columns, table features or statistics that DuckDB cannot read here",
            _THROUGH_SPARK,
        )
    return found


def _is_forgotten(table: HistoryTable) -> bool:
    """Return whether the log goes on, but has no longer the version of the table that was read."""
    log = list_with(table.path, table.delta_version, table.etag)
    return log is not None and log.newest > table.delta_version and table.delta_version not in log.entries


_THROUGH_SPARK = "Ask through Spark: auditlake sql --engine spark."


def state_query(connection: "DuckDBPyConnection", reader: Reader, request: StateRequest) -> StateQuery:
    """Return a query of the state's rows under their stored names; its inputs are registered in the connection.

    The caller has checked that the state is known (`Reader.check`, or `query.system_time`). Raises Unsupported.
    """
    table = reader.known.tables[request.table.name]
    upto = reader.known.changes_up_to(request.lsn)
    if upto > table.position and reader.changes is not None:
        _check_key(reader, table, upto)
        overlay = overlaid(reader, table, upto, only_open=True)
        if overlay.folded is not None:
            only = {column.stored for column in request.columns}
            shown = _shown(request, _types(overlay.table))
            return StateQuery(overlay.open_rows(connection, shown, only, request.held))
    types = _types(reader.shapes_of(table).table)
    shown = _shown(request, types)
    if request.held is None:
        return StateQuery(_in_history(connection, table, request.lsn, shown))
    is_same = all(types.get(column.stored) == sql_type(column) for column in request.columns)
    return StateQuery(f"select {shown} from {request.held}", is_held=is_same)


def _in_history(connection: "DuckDBPyConnection", table: HistoryTable, lsn: Lsn, shown: str) -> str:
    """Return a query of the history's rows in the state at an LSN, or at its position if that is lower."""
    chosen = of_state(_files(table), lsn, table.position)
    chosen.all.fetch()
    whole = rows_of(connection, chosen.whole, [shown], None)
    if not chosen.partly.by_name:
        return whole
    partly = rows_of(connection, chosen.partly, [shown], as_of_sql(lsn))
    return f"{whole} union all {partly}" if chosen.whole.by_name else partly


def _shown(request: StateRequest, types: Mapping[str, str]) -> str:
    """Return the cells of a state in rows of a table, in which some columns have another of these types."""
    cells = [_cell(column, types.get(column.stored)) for column in request.columns]
    return ", ".join([*cells, *([_RAW] if request.raw else [])]) or f"1 as {standard_identifier(_ROW)}"


def _types(table: HistoryTable) -> dict[str, str]:
    """Return the types of a table's columns by their stored names."""
    return {column.stored: sql_type(column) for column in table.columns}


def _cell(column: Column, held: str | None) -> str:
    name, kind = quoted(column), sql_type(column)
    return name if held == kind else f"cast({name} as {kind}) as {name}"
