"""The embedded engine: answers of prepared statements from DuckDB, without a JVM, or the reason why Spark is needed.

1. `translated` maps a statement to DuckDB's SQL, if all of it is known to mean the same (`queries`, `expressions`).
2. `Embedded.answer` creates the views that it names, from the same files and the same tail as Spark, and runs it.
3. If an expression can fail on a row, the whole answer is held before its first row is shown: a failure, such as an
   overflow, sends the statement to Spark, which reports it. So does an answer that is too large to be held.

Sent to Spark as well: `auditlake.relations`, `exact_text`, views that a script defines, a large tail, long rows, and
every statement if a setting changes what Spark SQL means.
"""

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import Token, TokenType

from auditlake.audit.lake_reader import Reader
from auditlake.audit.masked_columns import MaskedColumns, masked_columns
from auditlake.audit.state import StateRequest, state_query, versions_query
from auditlake.delta.log_reader import file_path
from auditlake.delta.row_groups import all_row_groups
from auditlake.delta.sql import TableFiles, duckdb_type, read_newest
from auditlake.errors import BadUsage, LakeUnusable, Unsupported
from auditlake.lake.duckdb_rows import bare, connect_for_statements, quoted, raw_with_printed
from auditlake.lake.expiries import expired_upto
from auditlake.lake.history import LSNS, PERIOD_COLUMNS, HistoryTable, type_of
from auditlake.lake.history_files import find_files
from auditlake.lsn import Lsn
from auditlake.query.compared_columns import ComparedColumn, held_error
from auditlake.query.dialect import QUERY_STARTS, parse_query, tokenize
from auditlake.query.embedded.arithmetic import NotEmbedded, SparkCell
from auditlake.query.embedded.queries import Translated, translate
from auditlake.query.statement import LSN, LSNS_OF_LOGS, LakeState, Log, PreparedQuery, inexact_note
from auditlake.query.system_time import Selection, State, within
from auditlake.relation import Column, TableName
from auditlake.sql_names import standard_identifier, standard_literal
from auditlake.store.place import Place
from auditlake.temporal.as_of_predicate import of_state
from auditlake.temporal.knowledge import check_log
from auditlake.temporal.moments import Known
from auditlake.values.exact_text import arrow_of, exact_texts, held_in
from auditlake.values.padding import has_padded_elements

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

NAME = "duckdb"
_BATCH_ROWS = 1 << 14
_HELD_BYTES = 64 << 20
_TAIL_BYTES = 64 << 20
_ROW_BYTES = 32 << 10
_OTHER_MEANING = ("spark.sql.", "spark.auditlake.")
_HOW_ONLY = tuple(
    f"spark.sql.{name}" for name in ("adaptive.", "autoBroadcast", "codegen.", "files.", "shuffle.", "ui.")
)
"""Settings of how Spark works, not of what SQL means."""
_OPERAND_ENDS = frozenset(
    {
        *(TokenType.NUMBER, TokenType.STRING, TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_PAREN, TokenType.END),
        *(TokenType.NULL, TokenType.TRUE, TokenType.FALSE, TokenType.R_BRACKET, TokenType.DATE, TokenType.TIMESTAMP),
    }
)
"""Tokens after which a + has two operands."""
_ESCAPED = re.compile(r"""\\|''|\"\"""")


def check_settings(spark: Mapping[str, str]) -> None:
    """Check that the settings leave the meaning of Spark SQL as it is here; raises NotEmbedded."""
    for name in spark:
        if name.startswith(_OTHER_MEANING) and not name.startswith(_HOW_ONLY):
            raise NotEmbedded(f"the setting {name}")


def translated(query: PreparedQuery, masks: Sequence[str] = ()) -> Translated:
    """Translate a prepared statement.

    `masks` are patterns of columns that it must not read (`audit.masked_columns`).

    Raises NotEmbedded, BadUsage if it reads a masked column.
    """
    if query.defines is not None:
        raise NotEmbedded("CREATE VIEW")
    if query.exact:
        raise NotEmbedded("exact_text")
    tokens = tokenize(query.sql)
    if tokens[0].text.upper() not in QUERY_STARTS:
        raise NotEmbedded(tokens[0].text.upper())
    _check_tokens(query.sql, tokens)
    tables = {view: _fields(query, name, selection, masks) for view, (name, selection) in query.views.items()}
    return translate(parse_query(query.sql, tokens), tables)


def _check_tokens(sql: str, tokens: Sequence[Token]) -> None:
    """Refuse what the tree does not show: escapes in strings, and a sign + before an operand."""
    for before, token in pairwise(tokens):
        if token.token_type is TokenType.PLUS and before.token_type not in _OPERAND_ENDS:
            raise NotEmbedded("a sign +")
    for token in tokens:
        if token.token_type is TokenType.STRING and _ESCAPED.search(sql[token.start + 1 : token.end]):
            raise NotEmbedded("an escape in a string")


def _fields(
    query: PreparedQuery, name: TableName, selection: Selection | Log, masks: Sequence[str] = ()
) -> list[SparkCell]:
    if isinstance(selection, Log):
        check_unmasked(name, masks)
        return list(log_table(query.known, name, selection.lsn).fields)
    table = query.known.tables[name]
    masked = masked_by(query, table, masks)
    fields = [
        SparkCell(
            "",
            type_of(c).delta,
            shown,
            (name, c.stored) if type_of(c).may_not_fit else None,
            masked=masked.hides(c.name) or masked.hides(c.stored),
        )
        for c, shown in selected_columns(query, table, selection)
    ]
    if isinstance(selection, State):
        return fields
    of_raw = bool(masked.hidden)
    return fields + [
        SparkCell("", kind, each, is_lsn=each in LSNS, masked=of_raw and each == "_raw")
        for each, kind in PERIOD_COLUMNS
        if each != "_part"
    ]


def check_unmasked(log: TableName, masks: Sequence[str]) -> None:
    """Check that a log of the lake has no values of masked columns; raises BadUsage."""
    if masks and log.table == "changes":
        raise BadUsage(f"{log} has the values of masked columns", "Ask the tables themselves.")


def masked_by(query: PreparedQuery, table: HistoryTable, masks: Sequence[str]) -> MaskedColumns:
    """Return the columns of a table that patterns match."""
    if not masks:
        return MaskedColumns(frozenset(), frozenset())
    reader = Reader(query.known.lake, datetime.now(UTC), query.known)
    return masked_columns(reader, [reader.known.tables[table.name]], masks)


def selected_columns(query: PreparedQuery, table: HistoryTable, selection: Selection) -> list[tuple[Column, str]]:
    """Return the columns of a selection, each with the name under which it is shown."""
    tail = query.tails.of(table, selection)
    if isinstance(selection, State) and tail is not None and tail.held_bytes > _TAIL_BYTES:
        raise NotEmbedded(f"a tail of {tail.held_bytes >> 20} MB")
    columns, names = query.tails.columns_shown(table, selection)
    if not isinstance(selection, State):
        _check_versions(table, columns, names)
    return [(column, names[column.stored]) for column in columns]


def _check_versions(table: HistoryTable, columns: Sequence[Column], names: Mapping[str, str]) -> None:
    if any(type_of(each).may_not_fit and names[each.stored] != each.stored for each in columns):
        raise NotEmbedded(f"versions of {table.name}, which has renamed columns")
    if any(has_padded_elements(each.type_oid) for each in columns):
        raise NotEmbedded(f"versions of {table.name}, which has arrays of char(n)")


@dataclass(frozen=True, slots=True)
class _LogTable:
    """One of the lake's own tables up to an LSN, None: all of it."""

    name: TableName
    fields: tuple[SparkCell, ...]
    files: TableFiles
    upto: Lsn | None

    def sql(self, connection: "DuckDBPyConnection") -> str:
        """Return a query of its rows, with columns `c0`, `c1` and so on."""
        _check_length(self.name, [file_path(self.files.place, file.add) for file in self.files.files])
        names = [standard_identifier(str(each.name)) for each in self.fields]
        shown = ", ".join(f"{name} as c{n}" for n, name in enumerate(names))
        where = "" if self.upto is None else f" where lsn <= {self.upto:d}"
        return f"select {shown} from ({self.files.sql(connection)}){where}"


def log_table(known: Known, name: TableName, lsn: Lsn, documents: str | None = None) -> _LogTable:
    """Open one of the lake's own tables; `changes` and `transactions` up to an LSN.

    `documents` is the kind of columns of structs; without it, the table `relations`, which has one, is for Spark.

    Raises NotEmbedded.
    """
    path = known.lake.root / name.table
    found = read_newest(path)
    if found is None:
        raise NotEmbedded(f"the table {name}")
    check_log(known.lake, name, expired_upto(found), lsn)
    kinds = {column: _spark_type(kind) or documents for column, kind in found.types.items()}
    fields = tuple(SparkCell("", kind, each, is_lsn=each in LSNS_OF_LOGS) for each, kind in kinds.items() if kind)
    if len(fields) < len(kinds):
        raise NotEmbedded(f"the table {name}")
    upto = known.changes_up_to(lsn) if name.table in {"changes", "transactions"} else None
    return _LogTable(name, fields, found, upto)


def _spark_type(kind: str) -> str | None:
    if kind.endswith("[]"):
        element = _spark_type(kind.removesuffix("[]"))
        return None if element is None else f"array<{element}>"
    return _OF_DUCKDB.get(kind)


_OF_LOGS = ("bigint", "int", "smallint", "string", "binary", "timestamp", "boolean", "date")
_OF_DUCKDB = {duckdb_type(kind): kind for kind in _OF_LOGS}


@dataclass(frozen=True, slots=True)
class RowsOfDuckDb:
    """The rows of an answer, as `query.statement.Rows`."""

    schema: pa.Schema
    fetched: Iterator[pa.RecordBatch]

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.schema.names)

    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema, and an iterator of the rows; it raises BadUsage if an expression fails on one."""
        return self.schema, self.fetched

    def texts(self) -> Iterator[tuple[str | None, ...]]:
        """Yield the rows in PostgreSQL's text of every value; `_raw` is JSON."""
        for batch in self.fetched:
            yield from zip(*map(_texts, batch.columns), strict=True)


def _texts(values: pa.Array) -> list[str | None]:
    if pa.types.is_map(values.type):
        return [None if each is None else json.dumps(dict(each), ensure_ascii=False) for each in values.to_pylist()]
    texts: list[str | None] = exact_texts(values, held_in(values.type)).to_pylist()
    return texts


@dataclass(frozen=True, slots=True)
class EmbeddedRows(RowsOfDuckDb):
    """The rows of a statement in Spark's dialect, with the fields of their columns."""

    fields: tuple[SparkCell, ...]


def _schema(fields: Iterable[SparkCell]) -> pa.Schema:
    return pa.schema(
        [pa.field(str(f.name), arrow_of(f.kind), metadata={LSN: b"1"} if f.is_lsn else None) for f in fields]
    )


def _described(query: PreparedQuery) -> EmbeddedRows | None:
    """Answer DESCRIBE of a table; None for other statements.

    Raises NotEmbedded for one of the lake's own tables.
    """
    match = _DESCRIBE.fullmatch(query.sql)
    if match is None or match["view"] not in query.views:
        return None
    columns = _fields(query, *query.views[match["view"]])
    rows = {"col_name": [each.name for each in columns], "data_type": [each.kind for each in columns]}
    schema = _schema(_DESCRIPTION)
    arrays = [pa.array(values, pa.string()) for values in rows.values()]
    batch = pa.RecordBatch.from_arrays([*arrays, pa.nulls(len(columns), pa.string())], schema=schema)
    return EmbeddedRows(schema, iter([batch]), _DESCRIPTION)


_DESCRIBE = re.compile(r"\s*desc(ribe)?(\s+table)?\s+(?P<view>\w+)\s*;?\s*", re.IGNORECASE)
_DESCRIPTION = tuple(SparkCell("", "string", name) for name in ("col_name", "data_type", "comment"))


class Embedded:
    """DuckDB over one lake; statements do not share anything in it, and threads may share it.

    `open_cursor` opens a cursor of the caller's database, which `connect_for_statements` opened; by default, it has one
    of its own. A statement that reads a column matched by `masks` is refused: an expression of it, a condition or an
    order would reveal its values.
    """

    def __init__(
        self,
        spark_settings: Mapping[str, str],
        open_cursor: "Callable[[], DuckDBPyConnection] | None" = None,
        masks: Sequence[str] = (),
    ) -> None:
        self._settings = spark_settings
        self._open_cursor = open_cursor
        self._masks = masks
        self._opening = threading.Lock()
        self._root: DuckDBPyConnection | None = None

    def answer(self, state: LakeState, query: PreparedQuery) -> EmbeddedRows:
        """Run a statement; raises NotEmbedded if only Spark can answer it, BadUsage if it reads a masked column."""
        check_settings(self._settings)
        if (described := _described(query)) is not None:
            return described
        whole = translated(query, self._masks)
        schema = _schema(whole.fields)
        connection = self._session(state)
        try:
            with interruptible():
                self._create_views(connection, state, query)
                batches = connection.execute(whole.sql).to_arrow_reader(_BATCH_ROWS)
                first, rest = list(islice(_cast(batches, schema), 1)), _cast(batches, schema)
                fetched = _held(chain(first, rest)) if whole.may_fail else chain(first, _reported(rest))
        except duckdb_error() as exc:
            connection.close()
            raise NotEmbedded(f"{type(exc).__name__} of DuckDB") from exc
        except (NotEmbedded, Unsupported) as exc:
            connection.close()
            raise NotEmbedded(str(exc)) from exc
        except (pa.ArrowException, OSError, ValueError) as exc:  # a text that is not of its type, a file that is gone
            connection.close()
            raise NotEmbedded(f"{type(exc).__name__} of its rows") from exc
        return EmbeddedRows(schema, closing(connection, fetched), whole.fields)

    def _session(self, state: LakeState) -> "DuckDBPyConnection":
        if self._open_cursor is not None:
            return self._open_cursor()
        with self._opening:
            self._root = self._root or connect_for_statements(state.known.lake)
            return self._root.cursor()

    def _create_views(self, connection: "DuckDBPyConnection", state: LakeState, query: PreparedQuery) -> None:
        reader = Reader(state.known.lake, state.now, state.known)
        for view, (name, selection) in query.views.items():
            if isinstance(selection, Log):
                inner = log_table(state.known, name, selection.lsn).sql(connection)
                connection.execute(f'create temp view "{view}" as {inner}')
                continue
            table = state.known.tables[name]
            pairs = selected_columns(query, table, selection)
            columns = tuple(column for column, _ in pairs)
            computed = query.held_back.get((name, selection), [])
            rows = rows_of(connection, query, reader, table, selection, columns, raw=bool(computed))
            check_row_length(table, selection)
            _check_held(connection, rows, computed)
            shown = [bare(column, quoted(column)) for column in columns]
            others = [each.name or "" for each in _fields(query, name, selection)[len(columns) :]]
            shown += [raw_with_printed(pairs) if each == "_raw" else standard_identifier(each) for each in others]
            listed = ", ".join(f"{column} as c{n}" for n, column in enumerate(shown))
            connection.execute(f'create temp view "{view}" as select {listed or "1 as c0"} from ({rows})')

    def notes(self, state: LakeState, query: PreparedQuery, rows: EmbeddedRows, nulls: Iterable[int]) -> Iterator[str]:
        """Yield notes on columns that may be NULL for a value that exists, as `query.spark_engine.footnotes` does."""
        origins = dict.fromkeys(origin for at in sorted(nulls) if (origin := rows.fields[at].origin) is not None)
        reader = Reader(state.known.lake, state.now, state.known)
        for name, column in origins:
            connection = self._session(state)
            held = f"_raw[{standard_literal(column)}] is not null"
            table = state.known.tables[name]
            for selection in (chosen for read, chosen in query.views.values() if read == name):
                if isinstance(selection, Log):
                    continue
                shown = selected_columns(query, table, selection)
                columns = tuple(each for each, _ in shown)
                inner = rows_of(connection, query, reader, table, selection, columns, raw=True)
                if connection.execute(f"select 1 from ({inner}) where {held} limit 1").fetchone():
                    yield inexact_note(next(name for each, name in shown if each.stored == column))
                    break
            connection.close()


def _check_held(connection: "DuckDBPyConnection", rows: str, computed: Sequence[ComparedColumn]) -> None:
    """Check that columns which a statement computes with are not NULL for a value that exists; raises NotAnswerable."""
    held = [f"_raw[{standard_literal(each.origin.stored)}] is not null" for each in computed if each.origin]
    if not held:
        return
    found = connection.execute(f"select {', '.join(held)} from ({rows}) where {' or '.join(held)} limit 1").fetchone()
    if found is not None:
        raise held_error(computed[found.index(True)])


def rows_of(  # noqa: PLR0913, PLR0917 - what identifies the rows
    connection: "DuckDBPyConnection",
    query: PreparedQuery,
    reader: Reader,
    table: HistoryTable,
    selection: Selection,
    columns: tuple[Column, ...],
    raw: bool = False,  # noqa: FBT001, FBT002 - as in State
) -> str:
    """Return a query of the rows of a selection, under their stored names; with `_raw` if `raw`."""
    last = query.tails.upto(table, selection)
    if isinstance(selection, State):  # without a tail at its position, so that no changes are sought
        return state_query(connection, reader, StateRequest(table, min(selection.lsn, last), columns, raw)).sql
    condition = "false" if selection.bounds is None else within(selection.bounds)
    return f"select * from ({versions_query(connection, reader, table, columns, last)}) where {condition}"


def check_row_length(table: HistoryTable, selection: Selection) -> None:
    """DuckDB holds 2,048 rows at a time, whatever their length."""
    if (found := find_files(table)) is not None:
        read = of_state(found, selection.lsn, table.position).all if isinstance(selection, State) else found
        _check_length(table.name, read.paths)


def _check_length(name: TableName, paths: Iterable[Place]) -> None:
    groups = all_row_groups(paths)
    longest = max((group.size_bytes // max(1, group.rows) for group in groups), default=0)
    if longest > _ROW_BYTES:
        raise NotEmbedded(f"rows of {name} of {longest >> 10} KB")


def _cast(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _held(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fetch all batches, so that a failure comes before the first row is shown."""
    held, size_bytes = [], 0
    for batch in batches:
        held.append(batch)
        size_bytes += batch.nbytes
        if size_bytes > _HELD_BYTES:
            raise NotEmbedded("a large answer with expressions that can fail")
    return iter(held)


def _reported(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        with interruptible():
            yield from batches
    except duckdb_error() as exc:
        raise LakeUnusable(
            f"DuckDB cannot read the rest of the rows: {type(exc).__name__}", "Ask with --engine spark."
        ) from exc


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


def forced(reason: NotEmbedded) -> BadUsage:
    """Return the error for a statement that only Spark answers, if the embedded engine was demanded."""
    return BadUsage(f"{NAME} does not answer this exactly as Spark: {reason}", "Leave out --engine, or use spark.")
