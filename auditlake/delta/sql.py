"""SQL over versions of Delta tables, in DuckDB, the embedded engine. No JVM.

    log = read_newest(place)                                       files and columns, from the table's log
    select("select max(lsn) as lsn from log where lsn > 5", log=log.within(lsn=(6, None)))

Files that `within` excludes by the statistics in the log are not opened; DuckDB skips row groups by theirs. Rows that
deletion vectors mark are left out. If a table gains columns, a file from before has NULL in them; else a file without a
column is damaged. In an object store small files are requested at once, and the others read in ranges.

All statements of a session run in one database of MEMORY_BYTES, which spills to the folder of this process.
"""

import errno
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditlake.cancellation import Cancelled, cancellable
from auditlake.delta.data_files import DataFile, data_file, fetch_files
from auditlake.delta.log_reader import Listing, Replay, file_path, list_newest, replay, unreadable_log
from auditlake.delta.row_groups import read_kept
from auditlake.errors import TableUnreadable, Unsupported
from auditlake.sql_names import standard_identifier, standard_literal
from auditlake.store.files import parquet, read_each, require_files
from auditlake.store.objects import filesystem
from auditlake.store.place import Place, by_requests, session_of
from auditlake.store.process_folder import process_folder, remove_own

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

MEMORY_BYTES = 1 << 30
VIRTUAL_COLUMNS = frozenset({"file_index", "file_row_number"})
"""Names of DuckDB's virtual columns: the number of a file, and of a row in it."""
Bound = tuple[Any, Any]
"""The least and the greatest value that is asked for; None if there is no limit."""
_DISABLED = "join_filter_pushdown,top_n_window_elimination"
_REGISTERING = Lock()
_GLOB = str.maketrans({"[": "[[]", "*": "[*]", "?": "[?]"})
_QUOTED = re.compile(r"['\"]([^'\"]+)")
_OF_STORE = re.compile(r"\w+Error: \[Errno (\d+)\] (.+?): '([^']*)'")
"""Begins DuckDB's text for an exception of `store.objects`."""
_READABLE = frozenset({"deletionVectors", "timestampNtz"})
_COLUMN_MAPPING = "delta.columnMapping.mode"
_TYPES = {  # by the names of Delta and of Spark
    "string": "varchar",
    "long": "bigint",
    "bigint": "bigint",
    "integer": "integer",
    "int": "integer",
    "short": "smallint",
    "smallint": "smallint",
    "byte": "tinyint",
    "boolean": "boolean",
    "binary": "blob",
    "date": "date",
    "float": "float",
    "double": "double",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "map<string,string>": "map(varchar, varchar)",
}


def open_duckdb(memory_bytes: int = MEMORY_BYTES, spill: Path | None = None) -> "DuckDBPyConnection":
    """Open an empty DuckDB in memory, cancellable: in UTC, without extensions from the network.

    It spills to the folder `spill` if its memory is full; without a folder the statement fails.

    No filter of a join is pushed into a scan. DuckDB 1.5 loses rows by them if threads run in parallel
    (github.com/duckdb/duckdb/issues/22075) or the join spills (pull request 25929), and cannot push them into Arrow.
    Nor is the first row of a window's partitions found by `arg_min`, which makes 0 of -0 in arrays of floats.

    Parts of files are not kept, as they may have values that are erased. On a disk these were ranges of at most 8 kB,
    in a store nothing; the questions of `bench/one_shot.py`, asked again and again, took as long without (2026-11).
    """
    import duckdb  # noqa: PLC0415 - see above

    connection = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": f"{memory_bytes}B",
            "threads": os.cpu_count() or 2,
            "temp_directory": "" if spill is None else str(spill),
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "enable_external_file_cache": "false",
        },
    )
    connection.execute("set timezone = 'UTC'")
    connection.execute("set preserve_insertion_order = false")
    connection.execute(f"set global disabled_optimizers = '{_DISABLED}'")
    return cancellable(connection)


class _Database:
    """The database in which a session runs its statements."""

    def __init__(self) -> None:
        spill = Path(tempfile.mkdtemp(dir=process_folder()))
        weakref.finalize(self, remove_own, spill, os.getpid())
        self.connection = open_duckdb(spill=spill)
        self.connection.execute("set global timezone = 'UTC'")  # its cursors cannot set it


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Data files of a Delta table at one version, and the types of its columns in DuckDB."""

    place: Place
    version: int
    files: tuple[DataFile, ...]
    types: Mapping[str, str]
    transactions: Mapping[str, int]
    """Versions of application transactions."""
    gains_columns: bool = False
    """Whether columns are added to the table: then a file may lack any."""

    def which(self, condition: Callable[[DataFile], bool]) -> Self:
        """Return the files that meet a condition."""
        return replace(self, files=tuple(filter(condition, self.files)))

    def within(self, **bounds: Bound) -> Self:
        """Return the files that may have rows with a value within each of these bounds, by name of a column."""
        return self.which(lambda file: may_have(file, bounds))

    def fetch(self) -> None:
        """Read small files in a store at the same time, as far as they are kept in memory."""
        fetch_files(self.place, self.files)

    def sql(self, connection: "DuckDBPyConnection") -> str:
        """Return a query of the rows, in all columns."""
        if not self.files:
            return no_rows(self.types)
        shown = [standard_identifier(name) for name in self.types]
        added = self.types if self.gains_columns else {}
        return rows_without_deleted(connection, self.place, self.files, shown, added=added)


def may_have(file: DataFile, bounds: Mapping[str, Bound]) -> bool:
    """Whether the statistics admit a row with a value, not NULL, within each of these bounds."""
    for column, (least, greatest) in bounds.items():
        if file.is_counted and file.stats.get("nullCount", {}).get(column) == file.rows:
            return False
        has = file.bounds(column)
        if has is not None and ((least is not None and has[1] < least) or (greatest is not None and has[0] > greatest)):
            return False
    return True


def read_log_at(place: Place, version: int, etag: str | None = None, listing: Listing | None = None) -> TableFiles:
    """Read the log of a table up to a version; `etag` is that of its entry in a store, `listing` shows it.

    Raises LakeUnusable; Unsupported if another program has given the table features.
    """
    try:
        found = replay(place, version, etag, listing)
        fields = (field for field in found.schema["fields"] if field["name"] not in found.partition_columns)
        types = {field["name"]: duckdb_type(field["type"]) for field in fields}
    except (ValueError, KeyError, TypeError, FileNotFoundError, pa.ArrowException) as exc:
        raise unreadable_log(place, exc) from exc
    _require_readable(place, found)
    return TableFiles(
        place, version, tuple(data_file(place, add) for add in found.files.values()), types, found.transactions
    )


def read_newest(place: Place) -> TableFiles | None:
    """Read the current version of a table; None if it does not exist. Raises as `read_log_at`."""
    listing = list_newest(place)
    if listing.newest < 0:
        return None
    return read_log_at(place, listing.newest, listing.entries[listing.newest], listing)


def _require_readable(place: Place, found: Replay) -> None:
    foreign = sorted(set(found.protocol.get("readerFeatures") or ()) - _READABLE)
    if found.configuration.get(_COLUMN_MAPPING, "none") != "none":
        foreign.append("columnMapping")
    if foreign:
        raise Unsupported(
            f"{place} has table features of Delta that DuckDB cannot read here: {', '.join(foreign)}",
            "Ask through Spark: auditlake sql --engine spark.",
        )


def duckdb_type(kind: Any) -> str:  # noqa: ANN401 - a type in Delta's JSON
    """Return DuckDB's type for one of Delta; a simple type, or an array of such, may have its name in Spark's DDL."""
    match kind:
        case str() if kind.startswith("array<"):
            return f"{duckdb_type(kind[len('array<') : -1])}[]"
        case {"type": "array", "elementType": element}:
            return f"{duckdb_type(element)}[]"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"map({duckdb_type(key)}, {duckdb_type(value)})"
        case {"type": "struct", "fields": fields}:
            parts = (f"{standard_identifier(each['name'])} {duckdb_type(each['type'])}" for each in fields)
            return f"struct({', '.join(parts)})"
    return str(kind) if str(kind).startswith("decimal") else _TYPES[kind]


class Queried(Protocol):
    """Rows that SQL in a connection can query, such as those of `TableFiles`."""

    @property
    def place(self) -> Place:
        """The table."""

    def fetch(self) -> None:
        """Read small files in a store at the same time."""

    def sql(self, connection: "DuckDBPyConnection") -> str:
        """Return a query of the rows."""


def shared_cursor(place: Place) -> "DuckDBPyConnection":
    """Open a cursor of the one database of a place's session, cancellable."""
    return cancellable(session_of(place).part(_Database).connection.cursor())


def select(sql: str, **tables: Queried | pa.Table | None) -> pa.Table:
    """Run SQL over these tables, each under its name; None is left out. Other threads run meanwhile.

    Raises OSError for a file that cannot be read, Cancelled if the work is cancelled, LakeUnusable for another failure:
    DuckDB's texts may quote values.
    """
    import duckdb  # noqa: PLC0415 - see above

    given = {name: table for name, table in tables.items() if table is not None}
    places = [table.place for table in given.values() if not isinstance(table, pa.Table)]
    try:
        return _select(sql, given, places[0] if places else Path())
    except duckdb.Error as exc:
        if isinstance(exc, duckdb.IOException):
            raise _unread(str(exc)) from exc
        if failed := _OF_STORE.match(str(exc)):
            raise OSError(int(failed[1]), failed[2], failed[3]) from exc
        if isinstance(exc, duckdb.InterruptException):
            raise Cancelled("the question was interrupted", "Ask for less.") from None
        names = ", ".join(map(str, places))
        raise TableUnreadable(
            f"{names} cannot be read: {type(exc).__name__}", "Run auditlake verify --no-source."
        ) from exc


def _unread(text: str) -> OSError:
    """Return the error for a file that DuckDB cannot open or read, with its name."""
    reason, named = text.partition("\n")[0], _QUOTED.search(text)
    is_missing = "No files found" in reason or os.strerror(errno.ENOENT) in reason
    return OSError(errno.ENOENT if is_missing else errno.EIO, reason, *([named[1]] if named else []))


def _select(sql: str, tables: Mapping[str, Queried | pa.Table], place: Place) -> pa.Table:
    """Run SQL in the database of a place's session."""
    with closing(shared_cursor(place)) as cursor:
        named = [f"{name} as not materialized ({_rows(cursor, table)})" for name, table in tables.items()]
        return cursor.execute(f"with {', '.join(named)} {sql}").to_arrow_table()


def _rows(cursor: "DuckDBPyConnection", table: Queried | pa.Table) -> str:
    if isinstance(table, pa.Table):
        return f"from {as_relation(cursor, table)}"
    table.fetch()
    return table.sql(cursor)


def open_stores(connection: "DuckDBPyConnection", place: Place) -> None:
    """Let the connection read objects of the store that a place is in, if it is in one."""
    if by_requests(place):
        with _REGISTERING:  # other cursors of the database register it too
            if not connection.list_filesystems():
                connection.register_filesystem(filesystem(session_of(place)))


def parquet_files(connection: "DuckDBPyConnection", paths: Sequence[Place], *, by_name: bool) -> str:
    """Return SQL for the rows of Parquet files; `by_name`: a file may lack columns that others have.

    The statistics of a file may leave out NaN, which PostgreSQL and DuckDB take for the greatest number.

    Raises NotAFile.
    """
    open_stores(connection, paths[0])
    require_files(paths)
    listed = ", ".join(standard_literal(str(path).translate(_GLOB)) for path in paths)
    options = f"hive_partitioning = false, union_by_name = {str(by_name).lower()}, can_have_nan = true"
    return f"read_parquet([{listed}], {options})"


def rows_without_deleted(  # noqa: PLR0913 - which rows, and how they are shown
    connection: "DuckDBPyConnection",
    place: Place,
    files: Sequence[DataFile],
    shown: Sequence[str],
    condition: str | None = None,
    *,
    added: Mapping[str, str],
    unscanned: Sequence[str] = (),
) -> str:
    """Return a query of the rows of data files, one or more, without those that deletion vectors mark.

    `shown` and `condition` are SQL over the columns. If the table was given more columns, `added` has all of them with
    their types in DuckDB, and a file may lack any. A scan does not filter by those in `unscanned`.
    """
    sources = []
    if plain := [file for file in files if not file.is_marked]:
        sources.append(stored_rows(connection, place, plain, "*", added, unscanned=unscanned))
    if marked := [file for file in files if file.is_marked]:
        sources += _unmarked(connection, place, marked, added, unscanned)
    where = "" if condition is None else f" where {condition}"
    return " union all ".join(f"select {', '.join(shown)} from {source}{where}" for source in sources)


def stored_rows(  # noqa: PLR0913 - as above
    connection: "DuckDBPyConnection",
    place: Place,
    files: Sequence[DataFile],
    shown: str,
    added: Mapping[str, str],
    *,
    unscanned: Sequence[str] = (),
) -> str:
    """Return SQL, in parentheses, for all rows of data files, deleted ones included; the rest is as above."""
    paths = [file_path(place, file.add) for file in files]
    rows = f"select {shown} from {parquet_files(connection, paths, by_name=bool(added))}"
    partition = {name for file in files for name in file.add["partitionValues"]}
    rows = _with_added(rows, added, partition) if added else f"({rows})"
    if not unscanned:
        return rows
    same = ", ".join(f"coalesce({name}, {name}) as {name}" for name in map(standard_identifier, unscanned))
    return f"(select * replace ({same}) from {rows})"


def _with_added(rows: str, types: Mapping[str, str], partition: Collection[str]) -> str:
    """Return the same rows with NULL in the columns that they lack; DuckDB refuses them if a file has any other column.

    That is one whose name is damaged, which would be NULL under its own: `lower` takes no second argument. Without one,
    the condition is left out of the plan. Delta's writers put the columns of the `partition` into the files, too.
    """
    named = ", ".join(standard_literal(name) for name in (*types, *partition, *VIRTUAL_COLUMNS))
    empty = standard_identifier(f"{max(types, key=len)}_")
    whole = f"select *, '' as {empty} from ({rows} union all by name {no_rows(types)})"
    return (
        f"(select * exclude ({empty}) from ({whole}) where lower(*columns(c -> not list_contains([{named}], c))) = '')"
    )


def no_rows(types: Mapping[str, str]) -> str:
    """Return a query without rows, of columns of these types in DuckDB."""
    nulls = ", ".join(f"cast(null as {kind}) as {standard_identifier(name)}" for name, kind in types.items())
    return f"select {nulls} where false"


def _unmarked(
    connection: "DuckDBPyConnection",
    place: Place,
    marked: Sequence[DataFile],
    added: Mapping[str, str],
    unscanned: Sequence[str],
) -> list[str]:
    if VIRTUAL_COLUMNS.intersection(name.casefold() for name in added):
        kept = [as_relation(connection, _kept(place, file)) for file in marked]
        return [f"(from {name} union all by name {no_rows(added)})" for name in kept]
    gone = as_relation(connection, _deleted_rows(place, marked))
    rows = stored_rows(connection, place, marked, "*, file_index, file_row_number", added, unscanned=unscanned)
    return [f"{rows} f anti join {gone} g on f.file_index = g.file and f.file_row_number = g.row"]


def _kept(place: Place, file: DataFile) -> pa.Table:
    path = file_path(place, file.add)
    return pa.Table.from_batches(read_kept(path, file.deleted_positions(place)), pq.read_schema(parquet(path)))


def _deleted_rows(place: Place, files: Sequence[DataFile]) -> pa.Table:
    """Return the rows that deletion vectors mark: `file`, the place of a file in `files`, and `row`, from 0."""
    vectors = read_each(place, lambda file: file.deleted_positions(place), files)
    positions = [np.fromiter(vector, np.int64) for vector in vectors]
    numbers = np.repeat(np.arange(len(positions)), [len(each) for each in positions])
    return pa.table({"file": pa.array(numbers, pa.int64()), "row": pa.array(np.concatenate(positions))})


def as_relation(connection: "DuckDBPyConnection", table: pa.Table) -> str:
    """Make a table in memory a relation of the connection; return its name."""
    name = f"arrow_{uuid4().hex}"
    connection.register(name, table)
    return name
