"""The embedded engine: answers of prepared statements from DuckDB, without a JVM, or the reason why Spark is needed.

1. `translated_query` maps a statement to DuckDB's SQL, if all of it means the same there (`queries`, `expressions`).
2. `Embedded.answer` creates the views that it names, from the same files and the same tail as Spark, and runs it.
3. If an expression can fail on a row, the whole answer is held before its first row is shown: a failure, such as an
   overflow, sends the statement to Spark, which reports it. So does an answer that is too large to be held.

Sent to Spark as well: `auditlake.relations`, `exact_text`, views that a script defines, a large tail, long rows, and
every statement if a setting changes what Spark SQL means.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import Token, TokenType

from auditlake.errors import LakeUnusable, Unsupported
from auditlake.lake.history import type_of
from auditlake.query.compared_columns import ComparedColumn, held_error
from auditlake.query.dialect import QUERY_STARTS, nested, parse_query, spark_tokens
from auditlake.query.duckdb_views import (
    RowsOfDuckDb,
    StatementDatabase,
    cell_of,
    closing,
    columns_of_view,
    create_view,
    duckdb_error,
    interruptible,
    rows_of_selection,
    rows_of_view,
    selected_columns,
)
from auditlake.query.embedded.cells import NotEmbedded, SparkCell
from auditlake.query.embedded.queries import Translated, translate_query
from auditlake.query.statement import LSN, LakeState, Log, PreparedQuery, inexact_note
from auditlake.query.system_time import Selection
from auditlake.relation import TableName
from auditlake.sql_names import standard_literal
from auditlake.values.exact_text import arrow_of

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

NAME = "duckdb"
_BATCH_ROWS = 1 << 14
_HELD_BYTES = 64 << 20
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


def translated_query(query: PreparedQuery, masks: Sequence[str] = ()) -> Translated:
    """Translate a prepared statement.

    `masks` are patterns of columns that it must not read (`audit.masked_columns`).

    Raises NotEmbedded, BadUsage if it reads a masked column.
    """
    if query.defines is not None:
        raise NotEmbedded("CREATE VIEW")
    if query.exact:
        raise NotEmbedded("exact_text")
    tokens = spark_tokens(query.sql)
    if tokens[0].text.upper() not in QUERY_STARTS:
        raise NotEmbedded(tokens[0].text.upper())
    _check_tokens(query.sql, tokens)
    tables = {view: _fields(query, *read, masks) for view, read in query.views.items()}
    return translate_query(parse_query(query.sql, tokens), tables)


def _fields(
    query: PreparedQuery, name: TableName, selection: Selection | Log, masks: Sequence[str] = ()
) -> list[SparkCell]:
    return [
        SparkCell(
            "",
            each.kind,
            each.name,
            (name, each.column.stored) if each.column is not None and type_of(each.column).may_not_fit else None,
            is_lsn=each.is_lsn,
            masked=each.masked,
        )
        for each in columns_of_view(query, name, selection, masks, None)
    ]


def _check_tokens(sql: str, tokens: Sequence[Token]) -> None:
    """Refuse what the tree does not show: escapes in strings, and a sign + before an operand."""
    for before, token in pairwise(tokens):
        if token.token_type is TokenType.PLUS and before.token_type not in _OPERAND_ENDS:
            raise NotEmbedded("a sign +")
    for token in tokens:
        if token.token_type is TokenType.STRING and _ESCAPED.search(sql[token.start + 1 : token.end]):
            raise NotEmbedded("an escape in a string")


@dataclass(frozen=True, slots=True)
class EmbeddedRows(RowsOfDuckDb):
    """The rows of a statement in Spark's dialect, with the fields of their columns."""

    fields: tuple[SparkCell, ...]


def _schema(fields: Iterable[SparkCell]) -> pa.Schema:
    return pa.schema(
        [pa.field(str(f.name), arrow_of(f.kind), metadata={LSN: b"1"} if f.is_lsn else None) for f in fields]
    )


def _described(query: PreparedQuery) -> EmbeddedRows | None:
    """Answer DESCRIBE of a table; None for other statements; raises NotEmbedded for one of the lake's own tables."""
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

    A statement that reads a column matched by `masks` is refused: an expression of it, a condition or an order would
    reveal its values.
    """

    def __init__(
        self,
        spark_settings: Mapping[str, str],
        database: StatementDatabase | None = None,
        masks: Sequence[str] = (),
    ) -> None:
        self._settings = spark_settings
        self._database = database or StatementDatabase()
        self._masks = masks

    def answer(self, state: LakeState, query: PreparedQuery) -> EmbeddedRows:
        """Run a statement; raises NotEmbedded if only Spark can answer it, BadUsage if it reads a masked column."""
        check_settings(self._settings)
        if (described := _described(query)) is not None:
            return described
        with nested():
            whole = translated_query(query, self._masks)
        schema = _schema(whole.fields)
        connection = self._database.cursor(state)
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

    def _create_views(self, connection: "DuckDBPyConnection", state: LakeState, query: PreparedQuery) -> None:
        for view, (name, selection) in query.views.items():
            rows, cells = rows_of_view(connection, state, query, (name, selection), None), ["*"]
            if not isinstance(selection, Log):
                if rows.has_texts:
                    _check_held(connection, rows.sql, query.held_back.get((name, selection), []))
                columns = columns_of_view(query, name, selection, (), None)
                cells = [f"{cell_of(each, columns)} as c{n}" for n, each in enumerate(columns)]
            create_view(connection, view, cells, rows.sql)

    def notes(self, state: LakeState, query: PreparedQuery, rows: EmbeddedRows, nulls: Iterable[int]) -> Iterator[str]:
        """Yield notes on columns that may be NULL for a value that exists, as `query.spark_engine.footnotes` does."""
        origins = dict.fromkeys(origin for at in sorted(nulls) if (origin := rows.fields[at].origin) is not None)
        for name, column in origins:
            connection = self._database.cursor(state)
            held = f"_raw[{standard_literal(column)}] is not null"
            for selection in (chosen for read, chosen in query.views.values() if read == name):
                if isinstance(selection, Log):
                    continue
                inner = rows_of_selection(connection, state, query, name, selection)
                if connection.execute(f"select 1 from ({inner}) where {held} limit 1").fetchone():
                    shown = selected_columns(query, state.known.tables[name], selection)
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
