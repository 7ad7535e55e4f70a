"""Answers of both engines to the same statements: names, types and values of every column, or where they differ.

Statements are random (`tests.random_sql`). What the embedded engine accepts is put into few statements of many columns,
because a statement of Spark's costs a hundred times one of DuckDB's.
"""

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from auditlake.errors import AuditlakeError, BadUsage, NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.query.embedded.cells import NotEmbedded
from auditlake.query.embedded.engine import Embedded
from auditlake.query.formats import python_rows
from auditlake.query.spark_engine import batches, read_log, run_sql
from auditlake.query.statement import Log, PreparedQuery, prepare_statement, read_state
from auditlake.relation import TableName
from tests.random_sql import TABLES, Draw, statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_IN_ORDER = re.compile(r" order by [^()']*\bid$")
"""An order that is total in the lakes of random values."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Names, types and rows."""

    names: list[str]
    types: list[pa.DataType]
    rows: list[tuple[Any, ...]]


@dataclass
class Engines:
    """Both engines over one lake; in Spark the tables are held in memory, as they are at the watermark."""

    spark: "SparkSession"
    lake: Lake
    held: "dict[TableName, DataFrame]" = field(default_factory=dict)
    compared: int = 0
    """Statements that DuckDB answered, so far."""

    def __post_init__(self) -> None:
        self.state = read_state(self.lake, None, UTC)
        self.embedded = Embedded({})
        for name in TABLES:
            # A leaf of every plan: Spark analyses the plan of cached rows, over history and tail, in each statement.
            rows = run_sql(self.spark, self.lake, f"select * from {name}").coalesce(1).localCheckpoint()
            self.held[TableName("public", name)] = rows

    def _prepared(self, sql: str) -> PreparedQuery:
        return prepare_statement(self.state, sql, {})

    def of_duckdb(self, sql: str) -> Answer | None:
        """Return DuckDB's answer; None if it leaves the statement to Spark."""
        try:
            rows = self.embedded.answer(self.state, self._prepared(sql))
        except NotEmbedded:
            return None
        schema, fetched = rows.batches()
        return Answer(rows.columns, [each.type for each in schema], list(python_rows(schema, fetched)))

    def accepts(self, sql: str) -> bool:
        """Return whether DuckDB answers the statement; a drawn one may not be SQL, or compare texts."""
        try:
            return self.of_duckdb(sql) is not None
        except (BadUsage, NotAnswerable):
            return False

    def of_spark(self, sql: str) -> Answer:
        """Return Spark's answer."""
        query = self._prepared(sql)
        for view, (name, chosen) in query.views.items():
            rows = read_log(self.spark, query.known, name, chosen.lsn) if isinstance(chosen, Log) else self.held[name]
            rows.createOrReplaceTempView(view)
        try:
            rows = self.spark.sql(query.sql)
            schema, fetched = batches(rows)
            return Answer(rows.columns, [each.type for each in schema], list(python_rows(schema, fetched)))
        finally:
            for view in query.views:
                self.spark.catalog.dropTempView(view)

    def of_spark_beyond_errors(self, sql: str) -> Answer:
        """Return Spark's answer; if a row fails on which the answer need not depend, the answer without ANSI errors.

        Which rows and conditions of a statement are computed is the planner's choice, in PostgreSQL as well. An answer
        that depends on a row that fails is found, because a value without ANSI errors is wrapped, or NULL.
        """
        try:
            return self.of_spark(sql)
        except AuditlakeError as exc:
            if "fails on some row" not in str(exc):
                raise
        self.spark.conf.set("spark.sql.ansi.enabled", "false")
        try:
            return self.of_spark(sql)
        finally:
            self.spark.conf.set("spark.sql.ansi.enabled", "true")

    def differences(self, sql: str) -> list[str]:
        """Compare the answers to one statement, whose rows may come in any order unless it ends in ORDER BY."""
        try:
            found = self.of_duckdb(sql)
        except (BadUsage, NotAnswerable):  # neither engine sees it
            return []
        if found is None:
            return []
        self.compared += 1
        try:
            expected = self.of_spark_beyond_errors(sql)
        except (AuditlakeError, PySparkException, Py4JJavaError) as exc:
            return [f"{sql}\n  only DuckDB answers: {' '.join(str(exc).split())[:200]}"]
        if (found.names, found.types) != (expected.names, expected.types):
            return [f"{sql}\n  {found.names} {found.types}\n  {expected.names} {expected.types}"]
        if _IN_ORDER.search(sql) and [*map(repr, found.rows)] != [*map(repr, expected.rows)]:
            return [f"{sql}\n  in another order: {found.rows}\n  Spark: {expected.rows}"]
        rows, others = (Counter(map(repr, each.rows)) for each in (found, expected))
        return [] if rows == others else [f"{sql}\n  only DuckDB {rows - others}\n  only Spark {others - rows}"]

    def accepted(self, draw: random.Random, count: int, *, aggregates: bool) -> list[str]:
        """Draw expressions over one table until DuckDB has accepted so many, some of them without a name."""
        scope, found = Draw(draw, TABLES[:1]), list[str]()
        while len(found) < count:
            depth = draw.randint(0, 3)
            text = scope.aggregate(depth) if aggregates else scope.of(scope.kind(), depth)
            if self.accepts(f"select {text} from {TABLES[0]}"):
                found.append(text)
            elif self.accepts(f"select {text} as c from {TABLES[0]}"):
                found.append(f"{text} as c{len(found)}")
        return found

    def columns_that_differ(self, expressions: Sequence[str], where: str = "") -> Iterator[str]:
        """Compare the answers to one statement of all these columns, column by column; its rows are sorted by id.

        Over other rows than those for which they were accepted, DuckDB may leave some of the columns to Spark.
        """
        aggregates = where != ""
        source = f"from {TABLES[0]}{where}"
        sql = f"select {'' if aggregates else 'id, '}{', '.join(expressions)} {source}"
        if (found := self.of_duckdb(sql)) is None:
            for text in expressions:
                yield from self.differences(f"select {text} {source}")
            return
        try:
            expected = self.of_spark(sql)
        except Py4JJavaError as exc:
            if "[INTERNAL_ERROR" not in str(exc):  # of a task, it is a cause of the failure
                raise
            for text in expressions:  # together they are a defect of Spark's planner
                yield from self.differences(f"select {text} {source}")
            return
        shown = expressions if aggregates else ["id", *expressions]
        for place, text in enumerate(shown):
            ours, theirs = (_column(each, place, in_order=aggregates) for each in (found, expected))
            if ours != theirs:
                values = [pair for pair in zip(ours[2], theirs[2], strict=True) if pair[0] != pair[1]]
                yield f"{text}: {ours[:2]}, Spark {theirs[:2]}; {values[:3]}"


def _column(answer: Answer, place: int, *, in_order: bool) -> tuple[str, pa.DataType, list[str]]:
    rows = answer.rows if in_order else sorted(answer.rows, key=lambda row: int(row[0]))
    return answer.names[place], answer.types[place], [repr(row[place]) for row in rows]


def compare(engines: Engines, draw: random.Random, expressions: int, statements: int) -> list[str]:
    """Compare random expressions and aggregates, and if there are any whole statements; return what differs."""
    columns = engines.accepted(draw, expressions, aggregates=False)
    totals = engines.accepted(draw, expressions // 2, aggregates=True)
    found = [*engines.columns_that_differ(columns)]
    for where in (" where true", " where id < 0") if statements else (" where true",):
        found += engines.columns_that_differ(totals, where)
    compared = 0
    while compared < statements:
        sql = statement(draw)
        if engines.accepts(sql):
            found += engines.differences(sql)
            compared += 1
    return found
