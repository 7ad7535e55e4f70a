"""Rows of a history's data files in DuckDB, the embedded engine. No JVM.

`rows_of` is a query of some columns of the rows, without the deleted ones; `lake.history_rows` is the same in Spark.
Files on an object store are read in ranges, through obstore. A table that has columns with the names of DuckDB's
VIRTUAL_COLUMNS cannot be read so.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from auditlake.delta.sql import (
    MEMORY_BYTES,
    TableFiles,
    duckdb_type,
    no_rows,
    open_duckdb,
    open_stores,
    rows_without_deleted,
    stored_rows,
)
from auditlake.lake.history import PERIOD_COLUMNS, type_of
from auditlake.lake.history_files import Files
from auditlake.lake.layout import Lake
from auditlake.relation import Column
from auditlake.sql_names import standard_identifier, standard_literal
from auditlake.values.types import has_padded_elements, is_padded

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

_RAW = "_raw"
_MISSED = frozenset({"blob", "double", "float"})
"""In columns of these types, DuckDB 1.5 misses values of files with Bloom filters: any bytes outside ASCII, and -0 if
0 is asked for (github.com/duckdb/duckdb/issues/24994 and pull request 23829). No writer here makes such filters, but
another one may have rewritten a file. A condition on an expression is not pushed into the scan, which reads them."""
_PERIOD_TYPES = {name: duckdb_type(kind) for name, kind in PERIOD_COLUMNS}


def connect_for_statements(lake: Lake, memory_bytes: int = MEMORY_BYTES) -> "DuckDBPyConnection":
    """Open an empty DuckDB for statements of strangers: it reads the files of one lake, and its settings are locked."""
    connection = open_duckdb(memory_bytes)
    connection.execute("set global timezone = 'UTC'")  # its cursors cannot set it
    open_stores(connection, lake.root)
    connection.execute(f"set allowed_directories = [{standard_literal(str(lake.root))}]")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    return connection


def quoted(column: Column) -> str:
    """Return the name of a column in a history, as SQL."""
    return standard_identifier(column.stored)


def rows_of(connection: "DuckDBPyConnection", files: Files, shown: Sequence[str], condition: str | None) -> str:
    """Return a query of the rows of some files, without the deleted ones."""
    columns = files.table.columns
    if not files.by_name:
        return f"select {', '.join(shown)} from ({no_rows(_types(columns))})"
    listed, unscanned = list(files.by_name.values()), _unscanned(columns)
    return rows_without_deleted(
        connection, files.table.path, listed, shown, condition, added=_added(columns), unscanned=unscanned
    )


def stored_rows_of(connection: "DuckDBPyConnection", files: Files) -> str:
    """Return a query of all rows of some files, deleted ones included, with their VIRTUAL_COLUMNS."""
    listed, columns = list(files.by_name.values()), files.table.columns
    shown, added, unscanned = "*, file_index, file_row_number", _added(columns), _unscanned(columns)
    return f"from {stored_rows(connection, files.table.path, listed, shown, added, unscanned=unscanned)}"


def as_table_files(files: Files) -> TableFiles:
    """Return the same files for `delta.sql`, without reading the log again."""
    table = files.table
    listed, types = tuple(files.by_name.values()), _types(table.columns)
    return TableFiles(table.path, table.delta_version, listed, types, {}, gains_columns=True)


def _types(columns: Iterable[Column]) -> dict[str, str]:
    """Return the types of all columns of a history."""
    return {column.stored: sql_type(column) for column in columns} | _PERIOD_TYPES


def _added(columns: Sequence[Column]) -> dict[str, str]:
    """Return the types of all columns if files from before one was added lack it; else none."""
    return {} if all(column.since is None for column in columns) else _types(columns)


def _unscanned(columns: Iterable[Column]) -> list[str]:
    return [column.stored for column in columns if sql_type(column) in _MISSED]


def sql_type(column: Column) -> str:
    """Return DuckDB's type of a column of a history."""
    return duckdb_type(type_of(column).delta)


def is_float(column: Column) -> bool:
    """Return whether values are floats or arrays of them."""
    return "float" in type_of(column).delta or "double" in type_of(column).delta


def apart(column: Column, value: str) -> str:
    """Return SQL that distinguishes values that `=` does not: 0 and -0."""
    return f"cast({value} as varchar)" if is_float(column) else value


def from_apart(column: Column, value: str) -> str:
    """Return SQL for a value, given what `apart` made of it."""
    return f"cast({value} as {sql_type(column)})" if is_float(column) else value


def same_key(key: Sequence[Column], other: str) -> str:
    """Return SQL that compares the key of the rows `h` with `k0`, `r0`, `k1`, … of `other`: typed values and texts.

    A text is that of a value that its type cannot represent, else NULL.
    """
    same = []
    for n, column in enumerate(key):
        partial = type_of(column).may_not_fit
        same.append(f"h.{quoted(column)} {'is not distinct from' if partial else '='} {other}.k{n}")
        same += [f"{raw_entry(column)} is not distinct from {other}.r{n}"] if partial else []
    return " and ".join(same)


def raw_entry(column: Column) -> str:
    """Return SQL for the entry of a column in `_raw` of the rows `h`."""
    return f"h.{_RAW}[{standard_literal(column.stored)}]"


def bare(column: Column, value: str) -> str:
    """Return SQL for a value of a column without the trailing blanks of `char(n)`."""
    if is_padded(column.type_oid):
        return f"rtrim({value}, ' ')"
    return f"list_transform({value}, lambda x: rtrim(x, ' '))" if has_padded_elements(column.type_oid) else value


def unpushed(value: str) -> str:
    """Return SQL for a float that is compared: the scan of a file or of Arrow does not filter by it.

    They leave out NaN, which is greater than every other value: Arrow by its own order, Parquet's statistics by not
    counting it (DuckDB 1.5.5).
    """
    return f"({value} + 0)"


def raw_with_printed(columns: Sequence[tuple[Column, str]]) -> str:
    """Return SQL for `_raw` with the printed text of values whose trailing blanks are left out.

    `columns` are given with the keys of their entries. Arrays have none: their text is not made here.
    """
    padded = [(quoted(column), standard_literal(name)) for column, name in columns if is_padded(column.type_oid)]
    if not padded:
        return _RAW
    whole = f"coalesce({_RAW}, map())"
    for value, name in padded:
        whole = f"map_concat({whole}, if({value} like '% ', map([{name}], [{value}]), map()))"
    return f"if(cardinality({whole}) > 0, {whole}, null)"
