"""Statements of either dialect in DuckDB alone, for callers that hold no script: the page, MCP, the Python API."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from auditlake.query.duckdb_views import StatementDatabase
from auditlake.query.embedded.engine import Embedded, EmbeddedRows
from auditlake.query.languages import SPARK, Dialect
from auditlake.query.postgres.engine import PostgresEngines, PostgresRows
from auditlake.query.postgres.statement import PostgresQuery, prepare
from auditlake.query.statement import LakeState, PreparedQuery, prepare_statement

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

Rows = EmbeddedRows | PostgresRows


class InDuckDb:
    """DuckDB over one lake; `masks` are patterns of columns that no statement may read (`audit.masked_columns`).

    `open_cursor` opens cursors of the caller's database (`duckdb_views.StatementDatabase`).
    """

    def __init__(
        self,
        spark_settings: Mapping[str, str],
        open_cursor: "Callable[[], DuckDBPyConnection] | None" = None,
        masks: Sequence[str] = (),
    ) -> None:
        self._masks = masks
        database = StatementDatabase(open_cursor)
        self._embedded = Embedded(spark_settings, database, masks)
        self._postgres = PostgresEngines(database)

    def prepare(self, state: LakeState, sql: str, dialect: Dialect) -> PreparedQuery:
        """Prepare one statement; raises BadUsage, NotAnswerable."""
        if dialect == SPARK:
            return prepare_statement(state, sql, {})
        return prepare(state, sql, {}, self._masks)

    def answer(self, state: LakeState, query: PreparedQuery) -> Rows:
        """Run a statement; raises NotEmbedded if only Spark can, BadUsage for a masked column or a bad row."""
        if isinstance(query, PostgresQuery):
            return self._postgres.rows(state, query)
        return self._embedded.answer(state, query)

    def notes(self, state: LakeState, query: PreparedQuery, rows: Rows, nulls: Iterable[int]) -> Iterator[str]:
        """Yield notes on an answer, given the indexes of columns that had a NULL; in PostgreSQL's dialect none."""
        if isinstance(rows, PostgresRows):
            return iter(())
        return self._embedded.notes(state, query, rows, nulls)
