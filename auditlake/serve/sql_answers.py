"""SQL of the page: one reading statement as of a moment, and completions of an unfinished one.

1. The statement is prepared without an engine: a misspelt name, an unknown moment or a statement that does more than
   read is refused before one starts.
2. DuckDB answers what means the same there (`query.in_duckdb`), in the server's one database: statements in
   PostgreSQL's dialect, and most of those in Spark's.
3. Spark answers the rest of its dialect, started by the first statement that needs it; such statements run one after
   the other, in a session that is closed to all but the lake (`spark.closed_session`). EXPLAIN is refused: it shows
   files.
4. At most `Limits.sql_rows` rows are returned, and of long ones as many as have room (`bounds`); a statement that
   takes longer than `Limits.timeout_s`, or whose client has gone, is cancelled, and Spark ended if it does not hear.
   The start of Spark and the first plan, for which the JVM loads most of its classes, are not counted.
"""

import threading
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pydantic import Field

from auditlake.audit.bounds import ANSWER_CHARACTERS, First, Room, first_batches
from auditlake.cancellation import cancellable, require_uncancelled
from auditlake.counters import Counter, count
from auditlake.errors import BadUsage
from auditlake.jvm_trace import ended_jvm
from auditlake.lsn import Lsn
from auditlake.query.completion import complete
from auditlake.query.embedded.cells import NotEmbedded
from auditlake.query.in_duckdb import InDuckDb
from auditlake.query.languages import Dialect
from auditlake.query.postgres.engine import PostgresRows
from auditlake.query.postgres.statement import PostgresQuery
from auditlake.query.statement import LakeState, Log, PreparedQuery, read_state
from auditlake.serve import models
from auditlake.serve.lake_answers import At, moment_at
from auditlake.serve.resources import Busy, Hidden, Resources, answers_of
from auditlake.spark.job_group import JobGroup

if TYPE_CHECKING:  # pyspark takes a second to import
    from pyspark.sql import SparkSession

_TYPE_NAMES = {
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "bool": "boolean",
    "date32[day]": "date",
    "timestamp[us, tz=UTC]": "timestamp",
    "timestamp[us]": "timestamp_ntz",
}
_MOST_COMPLETIONS = 30
_MOST_CHARACTERS = 20_000
_MOST_BYTES = 4 * ANSWER_CHARACTERS
"""Of a row in Arrow, in which a number may have more bytes than characters."""
_MOST_START_S = 300
_GRACE_S = 10
_TICK_S = 0.1


class OfSql(At):
    """A statement."""

    sql: str = Field(max_length=_MOST_CHARACTERS, description="One query; every table is as of the moment.")
    dialect: Dialect | None = Field(None, description="Whose SQL it is; by default that of the server's settings.")


class OfCompletion(models.Model):
    """A statement up to the cursor, and what follows it."""

    sql: str = Field(max_length=_MOST_CHARACTERS)
    rest: str = Field("", max_length=_MOST_CHARACTERS)


class Statements:
    """Answers statements; `settings` are Spark's."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self._one = threading.Lock()
        self._one_engine = threading.Lock()
        self._session: SparkSession | None = None
        self._in_duckdb: InDuckDb | None = None

    def _engine(self, resources: Resources) -> InDuckDb:
        with self._one_engine:
            self._in_duckdb = self._in_duckdb or InDuckDb(self._settings, resources.cursor)
            return self._in_duckdb

    def answer(self, resources: Resources, asked: OfSql) -> models.AnswerJson:
        """Run a statement as of a moment; raises BadUsage, NotAnswerable, Busy."""
        begun = time.monotonic()
        lake = resources.reader().lake
        state = read_state(lake, asked.at, resources.zone, script=asked.sql, shown=resources.shown_of_some)
        query = self._engine(resources).prepare(state, asked.sql, asked.dialect or resources.dialect)
        tables = require_seen(resources, query)
        if query.defines is not None:
            raise BadUsage("a statement of the page cannot define a view", "Write the query itself.")
        if query.sql.lstrip().lower().startswith("explain"):
            raise BadUsage("EXPLAIN shows files of the server, which this page does not", "Use auditlake sql.")
        columns, rows, is_cut, engine = self._answered(resources, state, query, asked.sql)
        count(Counter.QUESTIONS, engine.lower())
        count(Counter.QUESTION_SECONDS, engine.lower(), time.monotonic() - begun)
        reader = resources.reader(str(state.lsn))
        most = resources.limits.sql_rows
        return models.AnswerJson(
            at=moment_at(resources, reader, Lsn(state.lsn), is_now=asked.at is None),
            engine=engine,
            seconds=round(time.monotonic() - begun, 4),
            columns=columns,
            rows=rows[:most],
            more=is_cut or len(rows) > most,
            tables=tables,
        )

    def _answered(self, resources: Resources, state: LakeState, query: PreparedQuery, sql: str) -> "_Found":
        try:
            key = cache_key(query, sql)
            if key is None:
                return self._run(resources, state, query)
            answers = answers_of(state.known.lake)
            return answers.get((resources.grant, key), lambda: self._run(resources, state, query), _size)
        except NotEmbedded:
            if isinstance(query, PostgresQuery):  # which no other engine answers
                raise
            require_uncancelled()  # Spark does not hear it
            return self._run_in_spark(resources, query)

    def _run(self, resources: Resources, state: LakeState, query: PreparedQuery) -> "_Found":
        """Answer in DuckDB; raises NotEmbedded."""
        most = resources.limits.sql_rows + 1
        rows = self._engine(resources).answer(state, query)
        schema, batches = rows.batches()
        types = rows.types if isinstance(rows, PostgresRows) else [_type_name(field.type) for field in schema]
        return *_as_texts(rows.columns, types, schema, first_batches(batches, most)), "DuckDB"

    def _run_in_spark(self, resources: Resources, query: PreparedQuery) -> "_Found":
        from auditlake.query.spark_engine import (  # noqa: PLC0415 - pyspark takes a second to import
            batches,
            plan,
            session_for_statements,
        )
        from auditlake.spark.session import has_ended, spark_session  # noqa: PLC0415 - as above

        if not self._one.acquire(timeout=resources.limits.timeout_s / 2):
            raise Busy("another statement is running in Spark, or starts it", "Try again when it has ended.")
        limit = _Limit(resources.limits.timeout_s)
        try:
            self._session = None if has_ended() else self._session
            with nullcontext() if self._session else resources.uncounted("Spark to start", _MOST_START_S):
                spark = self._session or session_for_statements(spark_session(self._settings))
                most = resources.limits.sql_rows + 1
                rows = plan(spark, query).limit(most)
            self._session = spark
            with limit.of(spark):
                schema, fetched = batches(rows)
                types = [_type_name(field.type) for field in schema]
                return *_as_texts(rows.columns, types, schema, first_batches(fetched, most)), "Spark"
        except Exception as exc:
            if limit.passed:
                raise Busy("the statement was interrupted", "Ask for less, or raise --timeout.") from None
            if ended_jvm(exc):
                raise Busy("Spark ended, perhaps for lack of memory", "Ask for less; Spark starts again.") from None
            raise
        finally:
            self._one.release()


def require_seen(resources: Resources, query: PreparedQuery) -> list[str]:
    """Return the names of the tables that a statement reads.

    The lake's own tables are about every table of the source, so only a user who may see all reads them.

    Raises Hidden.
    """
    views = list(query.views.values())
    if any(isinstance(selection, Log) for _, selection in views):
        resources.require_whole("the tables of auditlake itself are")
    if not resources.grant.is_whole and not {name for name, _ in views} <= resources.reader().known.tables.keys():
        raise Hidden("the statement reads a table that you may not see", "Ask who runs this server.")
    known = query.known.tables
    return sorted({str(known[name].last_name) if name in known else str(name) for name, _ in views})


def cache_key(query: PreparedQuery, sql: str) -> Hashable | None:
    """Return what an answer of DuckDB depends on; None if its statement reads a log, which has no version here.

    Relative times of a statement are other LSNs in each of its runs. DuckDB answers no statement with a function of the
    clock, of chance or of the session, but `now()` in PostgreSQL's dialect, of which the translation has the time;
    answers of Spark, which may have one, are not kept.
    """
    if any(isinstance(selection, Log) for _, selection in query.views.values()):
        return None
    read = ((name, selection, query.known.tables[name].delta_version) for name, selection in query.views.values())
    translated = query.translated.sql if isinstance(query, PostgresQuery) else None
    return ("sql", query.lsn, sql, translated, *read)


_Found = tuple[list[models.SqlColumnJson], list[list[str | None]], bool, str]
"""Columns, rows, whether rows were left out because these have enough characters, and the engine."""


def _size(found: _Found) -> int:
    return 200 + sum(sum(len(text or "") + 60 for text in row) for row in found[1])


class _Limit:
    """A limit of time for a statement in Spark; `passed` once it was cancelled.

    A task is only asked to end, and planning is not: an expression in a loop, such as a regular expression that goes
    back for ever, hears neither. If something still runs `_GRACE_S` later, the JVM is ended.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.passed = False

    @contextmanager
    def of(self, spark: "SparkSession") -> Iterator[None]:
        """Limit the jobs and the planning of the block."""
        from auditlake.spark.session import end_jvm  # noqa: PLC0415 - as above

        jobs = cancellable(_Jobs(self, spark))
        timers = [threading.Timer(self._limit_s, jobs.interrupt), threading.Timer(self._limit_s + _GRACE_S, end_jvm)]
        for timer in timers:
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            if not self.passed or _is_idle(spark):
                timers[1].cancel()
            timers[0].cancel()


class _Jobs(JobGroup):
    """The jobs of a statement in Spark."""

    def __init__(self, limit: _Limit, spark: "SparkSession") -> None:
        super().__init__(spark, "a statement of auditlake serve")
        self._limit = limit
        self.join()

    def interrupt(self) -> None:
        """Cancel those that run, and record that the limit has passed."""
        self._limit.passed = True
        super().interrupt()


def _is_idle(spark: "SparkSession") -> bool:
    """Return whether no task runs any more, after some time.

    The scheduler knows; what `statusTracker` says of a task that has just begun is late, by seconds on a busy machine.
    """
    until = time.monotonic() + _GRACE_S / 2
    scheduler = cast("Any", spark.sparkContext)._jsc.sc().taskScheduler()  # noqa: SLF001 - there is no public way to it
    while scheduler.runningTasksByExecutors().values().toSet().mkString() not in {"", "0"}:
        if time.monotonic() > until:
            return False
        time.sleep(_TICK_S)
    return True


def _as_texts(
    names: Sequence[str], types: Sequence[str], schema: pa.Schema, first: First
) -> tuple[list[models.SqlColumnJson], list[list[str | None]], bool]:
    """Return the columns of an answer and its rows, every value as `auditlake sql --format csv` writes it.

    The last member tells whether rows are left out because of their characters.

    Raises NotAnswerable if the first row alone has more.
    """
    from auditlake.query.formats import plain_text  # noqa: PLC0415 - see above

    rows: list[list[str | None]] = []
    room = Room()
    for row in _bounded(schema, first, room):
        texts = [None if value is None else plain_text(value) for value in row]
        if not room.takes(sum(len(text or "") for text in texts)):
            break
        rows.append(texts)
    room.require(rows, "the first row", "Ask for less, or use auditlake sql.")
    columns = [
        models.SqlColumnJson(
            name=name,
            type=kind,
            numeric=pa.types.is_integer(field.type)
            or pa.types.is_floating(field.type)
            or pa.types.is_decimal(field.type)
            or kind == "numeric",
        )
        for name, kind, field in zip(names, types, schema, strict=True)
    ]
    return columns, rows, first.is_cut or room.is_cut


def _bounded(schema: pa.Schema, first: First, room: Room) -> Iterator[tuple[Any, ...]]:
    """Yield the rows up to one that cannot fit, whose values are not converted."""
    from auditlake.query.formats import parts, python_rows  # noqa: PLC0415 - see above

    for part in chain.from_iterable(parts(batch, ANSWER_CHARACTERS) for batch in first.batches):
        if part.nbytes > _MOST_BYTES:
            room.takes(part.nbytes)
            return
        yield from python_rows(schema, [part])


def _type_name(kind: pa.DataType) -> str:
    """Return the name that Spark SQL has for an Arrow type."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _TYPE_NAMES.get(str(kind), str(kind))


def completions(resources: Resources, asked: OfCompletion) -> models.CompletionsJson:
    """Complete a statement at the cursor."""
    reader = resources.reader()
    known = reader.known
    tables = {
        name: list(dict.fromkeys(column.name for column in table.columns))
        for name, table in known.tables_at(known.now_lsn).items()
    }
    found = islice(complete(asked.sql, tables, asked.rest), _MOST_COMPLETIONS)
    return models.CompletionsJson(
        completions=[models.CompletionJson(text=text, replaces=count) for text, count in found]
    )
