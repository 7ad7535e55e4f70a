"""The embedded engine: answers of prepared statements from DuckDB, without a JVM, or the reason why Spark is needed.

1. `translated` maps a statement to DuckDB's SQL, if all of it is known to mean the same (`queries`, `expressions`).
2. `Embedded.answer` creates the views that it names, from the same files and the same tail as Spark, and runs it.
3. If an expression can fail on a row, the whole answer is held before its first row is shown: a failure, such as an
   overflow, sends the statement to Spark, which reports it. So does an answer that is too large to be held.

Sent to Spark as well: the lake's own tables, `exact_text`, views that a script defines, versions of a table with a
tail, a large tail, long rows, and every statement if a setting changes what Spark SQL means.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import Token, TokenType

from auditlake.audit.lake_reader import Reader
from auditlake.audit.state import Reading, connect, state_query, versions_query
from auditlake.delta.row_groups import row_groups
from auditlake.errors import BadUsage, LakeUnusable, Unsupported
from auditlake.lake.history import LSNS, PERIOD_COLUMNS, HistoryTable, type_of
from auditlake.lake.history_files import find_files
from auditlake.query.dialect import parse_query, tokenize
from auditlake.query.embedded.expressions import NotEmbedded
from auditlake.query.embedded.queries import Field, Translated, translate
from auditlake.query.embedded.spark_types import arrow_of
from auditlake.query.pending_tail import columns_shown, upto
from auditlake.query.statement import LSN, LakeState, Log, PreparedQuery, inexact_note
from auditlake.query.system_time import Selection, State, within
from auditlake.relation import Column, TableName
from auditlake.sql_names import standard_identifier, standard_literal

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
_QUERY_STARTS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "("})
_ESCAPED = re.compile(r"""\\|''|\"\"""")


def check_settings(spark: Mapping[str, str]) -> None:
    """Check that the settings leave the meaning of Spark SQL as it is here.

    Raises NotEmbedded.
    """
    for name in spark:
        if name.startswith(_OTHER_MEANING) and not name.startswith(_HOW_ONLY):
            raise NotEmbedded(f"the setting {name}")


def translated(query: PreparedQuery) -> Translated:
    """Translate a prepared statement.

    Raises NotEmbedded.
    """
    if query.defines is not None:
        raise NotEmbedded("CREATE VIEW")
    if query.exact:
        raise NotEmbedded("exact_text")
    tokens = tokenize(query.sql)
    if tokens[0].text.upper() not in _QUERY_STARTS:
        raise NotEmbedded(tokens[0].text.upper())
    _check_strings(query.sql, tokens)
    tables = {view: _fields(query, name, selection) for view, (name, selection) in query.views.items()}
    return translate(parse_query(query.sql, tokens), tables)


def _check_strings(sql: str, tokens: Sequence[Token]) -> None:
    for token in tokens:
        if token.token_type is TokenType.STRING and _ESCAPED.search(sql[token.start + 1 : token.end]):
            raise NotEmbedded("an escape in a string")


def _fields(query: PreparedQuery, name: TableName, selection: Selection | Log) -> list[Field]:
    if isinstance(selection, Log):
        raise NotEmbedded(f"the table {name}")
    table = query.known.tables[name]
    fields = [
        Field(shown, type_of(c).delta, (name, c.stored) if type_of(c).may_not_fit else None)
        for c, shown in _columns(query, table, selection)
    ]
    if isinstance(selection, State):
        return fields
    return fields + [Field(each, kind, None, each in LSNS) for each, kind in PERIOD_COLUMNS if each != "_part"]


def _columns(query: PreparedQuery, table: HistoryTable, selection: Selection) -> list[tuple[Column, str]]:
    """Return the columns of a selection, each with the name under which it is shown."""
    tail = query.tails.get((table, upto(query.known, table, selection)))
    if isinstance(selection, State) and tail is not None and tail.held_bytes > _TAIL_BYTES:
        raise NotEmbedded(f"a tail of {tail.held_bytes >> 20} MB")
    if not isinstance(selection, State) and tail is not None:
        raise NotEmbedded(f"versions of {table.name}, which has changes that are not applied yet")
    columns, names = columns_shown(table, selection, tail)
    return [(column, names[column.stored]) for column in columns]


@dataclass(frozen=True, slots=True)
class EmbeddedRows:
    """The rows of an answer, as `query.statement.Rows`."""

    fields: tuple[Field, ...]
    fetched: Iterator[pa.RecordBatch]

    @property
    def columns(self) -> list[str]:
        return [str(each.name) for each in self.fields]

    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        return _schema(self.fields), self.fetched


def _schema(fields: Iterable[Field]) -> pa.Schema:
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
    return EmbeddedRows(_DESCRIPTION, iter([batch]))


_DESCRIBE = re.compile(r"\s*desc(ribe)?(\s+table)?\s+(?P<view>\w+)\s*;?\s*", re.IGNORECASE)
_DESCRIPTION = tuple(Field(name, "string") for name in ("col_name", "data_type", "comment"))


class Embedded:
    """DuckDB over one lake; statements do not share anything in it.

    `open_cursor` opens a cursor of the caller's database, by default of one of its own.
    """

    def __init__(
        self, spark_settings: Mapping[str, str], open_cursor: "Callable[[], DuckDBPyConnection] | None" = None
    ) -> None:
        self._settings = spark_settings
        self._open_cursor = open_cursor

    @cached_property
    def _root(self) -> "DuckDBPyConnection":
        return connect()

    def answer(self, state: LakeState, query: PreparedQuery) -> EmbeddedRows:
        """Run a statement.

        Raises NotEmbedded if only Spark can answer it.
        """
        check_settings(self._settings)
        if (described := _described(query)) is not None:
            return described
        whole = translated(query)
        connection = self._session()
        try:
            with _interruptible():
                self._create_views(connection, state, query)
                batches = connection.execute(whole.sql).to_arrow_reader(_BATCH_ROWS)
                first = list(islice(_cast(batches, _schema(whole.fields)), 1))
                rest = _cast(batches, _schema(whole.fields))
                fetched = _held(chain(first, rest)) if whole.may_fail else chain(first, _reported(rest))
        except _duckdb_error() as exc:
            connection.close()
            raise NotEmbedded(f"{type(exc).__name__} of DuckDB") from exc
        except (NotEmbedded, Unsupported) as exc:
            connection.close()
            raise NotEmbedded(str(exc)) from exc
        except (pa.ArrowException, OSError, ValueError) as exc:  # a text that is not of its type, a file that is gone
            connection.close()
            raise NotEmbedded(f"{type(exc).__name__} of its rows") from exc
        return EmbeddedRows(whole.fields, _closing(connection, fetched))

    def _session(self) -> "DuckDBPyConnection":
        connection = self._root.cursor() if self._open_cursor is None else self._open_cursor()
        connection.execute("set timezone = 'UTC'")
        return connection

    def _create_views(self, connection: "DuckDBPyConnection", state: LakeState, query: PreparedQuery) -> None:
        reader = Reader(state.known.lake, state.now, state.known)
        for view, (name, selection) in query.views.items():
            if isinstance(selection, Log):
                raise NotEmbedded(f"the table {name}")
            table = state.known.tables[name]
            columns = tuple(column for column, _ in _columns(query, table, selection))
            rows = _rows(connection, reader, table, selection, columns)
            _check_row_length(table)
            others = [each.name or "" for each in _fields(query, name, selection)[len(columns) :]]
            shown = [standard_identifier(each) for each in (*(column.stored for column in columns), *others)]
            listed = ", ".join(f"{column} as c{n}" for n, column in enumerate(shown))
            connection.execute(f'create temp view "{view}" as select {listed or "1 as c0"} from ({rows})')

    def notes(self, state: LakeState, query: PreparedQuery, rows: EmbeddedRows, nulls: Iterable[int]) -> Iterator[str]:
        """Yield notes on columns that may be NULL for a value that exists, as `query.spark_engine.footnotes` does."""
        origins = dict.fromkeys(origin for at in sorted(nulls) if (origin := rows.fields[at].origin) is not None)
        reader = Reader(state.known.lake, state.now, state.known)
        for name, column in origins:
            connection = self._session()
            held = f"_raw[{standard_literal(column)}] is not null"
            table = state.known.tables[name]
            for selection in (chosen for read, chosen in query.views.values() if read == name):
                if isinstance(selection, Log):
                    continue
                shown = _columns(query, table, selection)
                columns = tuple(each for each, _ in shown)
                inner = _rows(connection, reader, table, selection, columns, raw=True)
                if connection.execute(f"select 1 from ({inner}) where {held} limit 1").fetchone():
                    yield inexact_note(next(name for each, name in shown if each.stored == column))
                    break
            connection.close()


def _rows(  # noqa: PLR0913, PLR0917 - what identifies the rows
    connection: "DuckDBPyConnection",
    reader: Reader,
    table: HistoryTable,
    selection: Selection,
    columns: tuple[Column, ...],
    raw: bool = False,  # noqa: FBT001, FBT002 - as in State
) -> str:
    if isinstance(selection, State):
        return state_query(connection, reader, Reading(table, selection.lsn, columns, raw))
    condition = "false" if selection.bounds is None else within(selection.bounds)
    return f"select * from ({versions_query(connection, table, columns)}) where {condition}"


def _check_row_length(table: HistoryTable) -> None:
    """DuckDB holds 2,048 rows at a time, whatever their length."""
    found = find_files(table)
    groups = [group for path in found.paths for group in row_groups(path)] if found is not None else []
    longest = max((group.size_bytes // max(1, group.rows) for group in groups), default=0)
    if longest > _ROW_BYTES:
        raise NotEmbedded(f"rows of {table.name} of {longest >> 10} KB")


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
        with _interruptible():
            yield from batches
    except _duckdb_error() as exc:
        raise LakeUnusable(
            f"DuckDB cannot read the rest of the rows: {type(exc).__name__}", "Ask with --engine spark."
        ) from exc


def _closing(connection: "DuckDBPyConnection", batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    finally:
        connection.close()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt for Ctrl-C, of which DuckDB makes a RuntimeError."""
    try:
        yield
    except RuntimeError as exc:
        if "interrupted" in str(exc).lower():
            raise KeyboardInterrupt from exc
        raise


def _duckdb_error() -> type[Exception]:
    from duckdb import Error  # noqa: PLC0415 - see above

    return Error


def forced(reason: NotEmbedded) -> BadUsage:
    """Return the error for a statement that only Spark answers, if the embedded engine was demanded."""
    return BadUsage(f"{NAME} does not answer this exactly as Spark: {reason}", "Leave out --engine, or use spark.")
