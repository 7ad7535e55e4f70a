"""SQL of the page: one reading statement as of a moment, and completions of an unfinished one.

1. The statement is prepared without an engine: a misspelt name, an unknown moment or a statement that does more than
   read is refused before one starts.
2. Spark answers, started by the first statement, and stays. Functions that run code of the JVM are refused.
3. At most `Limits.sql_rows` rows are returned; a statement that takes longer than `Limits.timeout_s` is cancelled.

Statements run one after the other, because a server has one Spark.
"""

import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import Field

from auditlake.errors import BadUsage
from auditlake.lsn import Lsn
from auditlake.query.completion import complete
from auditlake.query.dialect import tokenize
from auditlake.query.statement import PreparedQuery, prepare_statement, read_state
from auditlake.serve import models
from auditlake.serve.moment_answers import At, moment_at
from auditlake.serve.readings import Busy, Readings

if TYPE_CHECKING:  # pyspark takes a second to import
    from pyspark.sql import SparkSession

_RUN_CODE = frozenset({"reflect", "java_method", "try_reflect"})
_MOST_COMPLETIONS = 30
_MOST_CHARACTERS = 20_000


class OfSql(At):
    """A statement."""

    sql: str = Field(max_length=_MOST_CHARACTERS, description="One query; every table is as of the moment.")


class OfCompletion(models.Model):
    """A statement up to the cursor."""

    sql: str = Field(max_length=_MOST_CHARACTERS)


class Statements:
    """Answers statements; starts Spark when the first one needs it."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self._one = threading.Lock()

    def answer(self, readings: Readings, asked: OfSql) -> models.Answer:
        """Run a statement as of a moment.

        Raises BadUsage, NotAnswerable, Busy.
        """
        begun = time.monotonic()
        state = read_state(readings.lake, asked.at, readings.zone)
        check_functions(asked.sql)
        query = prepare_statement(state, asked.sql, frozenset())
        if query.defines is not None:
            raise BadUsage("a statement of the page cannot define a view", "Write the query itself.")
        key = ("sql", state.lsn, asked.sql)
        columns, rows, engine = readings.cache.get(key, lambda: self._run(readings, query), _size)
        reader = readings.reader(str(state.lsn))
        most = readings.limits.sql_rows
        return models.Answer(
            at=moment_at(readings, reader, Lsn(state.lsn), is_now=asked.at is None),
            engine=engine,
            seconds=round(time.monotonic() - begun, 4),
            columns=columns,
            rows=rows[:most],
            more=len(rows) > most,
        )

    def _run(self, readings: Readings, query: PreparedQuery) -> "_Found":
        if not self._one.acquire(timeout=readings.limits.timeout_s / 2):
            raise Busy("another statement is running", "Try again when it has ended.")
        try:
            return self._in_spark(readings, query)
        finally:
            self._one.release()

    def _in_spark(self, readings: Readings, query: PreparedQuery) -> "_Found":
        from auditlake.query.arrow_batches import batches  # noqa: PLC0415 - see above
        from auditlake.query.sql import plan  # noqa: PLC0415 - see above
        from auditlake.spark.session import spark_session  # noqa: PLC0415 - see above

        spark = spark_session(self._settings)
        rows = plan(spark, query).limit(readings.limits.sql_rows + 1)
        with _cancelled_after(spark, readings.limits.timeout_s):
            schema, fetched = batches(rows)
            columns, texts = as_texts(rows.columns, schema, list(fetched))
        return columns, texts, "Spark"


_Found = tuple[list[models.SqlColumn], list[list[str | None]], str]


def _size(found: _Found) -> int:
    return 200 + sum(sum(len(text or "") + 60 for text in row) for row in found[1])


@contextmanager
def _cancelled_after(spark: "SparkSession", seconds: float) -> Iterator[None]:
    """Cancel the jobs of the block if they run longer."""
    group = uuid.uuid4().hex
    spark.sparkContext.setJobGroup(group, "a statement of auditlake serve", interruptOnCancel=True)
    timer = threading.Timer(seconds, lambda: spark.sparkContext.cancelJobGroup(group))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def as_texts(
    names: Sequence[str], schema: pa.Schema, batches: Sequence[pa.RecordBatch]
) -> tuple[list[models.SqlColumn], list[list[str | None]]]:
    """Return the columns of an answer and its rows, every value as `auditlake sql --format csv` writes it."""
    from auditlake.query.output import plain_text, rows_of  # noqa: PLC0415 - see above

    rows = [[None if value is None else plain_text(value) for value in row] for row in rows_of(schema, iter(batches))]
    columns = [
        models.SqlColumn(
            name=name,
            type=str(field.type),
            numeric=pa.types.is_integer(field.type)
            or pa.types.is_floating(field.type)
            or pa.types.is_decimal(field.type),
        )
        for name, field in zip(names, schema, strict=True)
    ]
    return columns, rows


def check_functions(sql: str) -> None:
    """Check that a statement calls no function that runs code of the JVM.

    Raises BadUsage.
    """
    for token in tokenize(sql):
        if token.text.lower() in _RUN_CODE:
            raise BadUsage(f"{token.text.lower()} runs code of the JVM, which this page does not", "Leave it out.")


def completions(readings: Readings, asked: OfCompletion) -> models.Completions:
    """Complete the end of a statement."""
    reader = readings.reader()
    tables = {name: [column.name for column in table.columns] for name, table in reader.known.tables.items()}
    found = islice(complete(asked.sql, tables), _MOST_COMPLETIONS)
    return models.Completions(completions=[models.Completion(text=text, replaces=count) for text, count in found])
