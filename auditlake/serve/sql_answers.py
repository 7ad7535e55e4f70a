"""SQL of the page: one reading statement as of a moment, and completions of an unfinished one.

1. A process of its own (`sandbox.processes`) prepares the statement: a misspelt name, an unknown moment or a statement
   that does more than read is refused there.
2. DuckDB answers there what means the same (`query.in_duckdb`): statements in PostgreSQL's dialect, and most of those
   in Spark's. Answers are kept here, by what they depend on.
3. Spark answers the rest of its dialect, started by the first statement that needs it; such statements run one after
   the other, in a session that is closed to all but the lake (`spark.closed_session`). EXPLAIN is refused: it shows
   files.
4. At most `Limits.sql_rows` rows are returned, and of long ones as many as have room (`bounds`); a statement that
   takes longer than `Limits.timeout_s`, or whose client has gone, ends with its process, or is cancelled in Spark,
   which is ended if it does not hear.
   The start of a process, that of Spark and the first plan, for which the JVM loads most of its classes, do not count.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field

from auditlake.audit import bounds
from auditlake.cancellation import cancellable, require_uncancelled
from auditlake.counters import Counter, count
from auditlake.jvm_trace import ended_jvm
from auditlake.messages import is_json
from auditlake.query.completion import complete
from auditlake.query.embedded.cells import NotEmbedded
from auditlake.query.languages import Dialect
from auditlake.sandbox.failures import Busy
from auditlake.sandbox.processes import START_S, Answered, Prepared, Processes, Setup, Statement
from auditlake.serve import models
from auditlake.serve.lake_answers import At, moment_at
from auditlake.serve.resources import Resources, answers_of
from auditlake.spark.job_group import JobGroup

if TYPE_CHECKING:  # pyspark takes a second to import
    from pyspark.sql import SparkSession

    from auditlake.query.statement import PreparedQuery

_MOST_COMPLETIONS = 30
_MOST_CHARACTERS = 20_000
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
        self._processes = Processes(lambda lake: Setup(lake, self._settings, json_messages=is_json()))
        self._one = threading.Lock()
        self._session: SparkSession | None = None

    def complete(self, resources: Resources, asked: OfCompletion) -> models.CompletionsJson:
        """Complete a statement at the cursor, and start a process for it."""
        self._processes.prepare(resources.reader().lake)
        return completions(resources, asked)

    def close(self) -> None:
        """End all processes."""
        self._processes.close()

    def answer(self, resources: Resources, asked: OfSql) -> models.AnswerJson:
        """Run a statement as of a moment; raises BadUsage, NotAnswerable, Busy."""
        begun = time.monotonic()
        statement, engine = _statement(resources, asked), "DuckDB"
        try:
            prepared, found = self._in_duckdb(resources, statement)
        except NotEmbedded as reason:
            require_uncancelled()  # Spark does not hear it
            (prepared, found), engine = self._in_spark(resources, statement, reason), "Spark"
        count(Counter.QUESTIONS, engine.lower())
        count(Counter.QUESTION_SECONDS, engine.lower(), time.monotonic() - begun)
        reader = resources.reader(str(prepared.lsn))
        return models.AnswerJson(
            at=moment_at(resources, reader, prepared.lsn, is_now=asked.at is None),
            engine=engine,
            seconds=round(time.monotonic() - begun, 4),
            columns=[
                models.SqlColumnJson(name=name, type=kind, numeric=number) for name, kind, number in found.columns
            ],
            rows=found.rows,
            more=found.more,
            tables=list(prepared.tables),
        )

    def _in_duckdb(self, resources: Resources, statement: Statement) -> tuple[Prepared, Answered]:
        """Answer in a process, or with what is kept; raises NotEmbedded."""
        lake = resources.reader().lake
        answers = answers_of(lake)
        prepared, found = self._processes.answer(
            resources.client,
            lake,
            statement,
            lambda asked: answers.find((resources.grant, asked.key)),
            lambda: resources.uncounted("a process to start", START_S),
        )
        if prepared.key is not None:
            answers.put((resources.grant, prepared.key), found, _size(found))
        return prepared, found

    def _in_spark(self, resources: Resources, statement: Statement, reason: NotEmbedded) -> tuple[Prepared, Answered]:
        """Answer in Spark what a process has prepared already: so its text is not endless to read."""
        from auditlake.query.in_duckdb import InDuckDb  # noqa: PLC0415 - else only the processes need it
        from auditlake.query.postgres.statement import PostgresQuery  # noqa: PLC0415 - the same
        from auditlake.query.statement import read_state  # noqa: PLC0415 - the same
        from auditlake.sandbox.statements import prepare_shown, read_shown  # noqa: PLC0415 - the same

        shown = partial(read_shown, statement)
        state = read_state(resources.reader().lake, statement.at, statement.zone, script=statement.sql, shown=shown)
        query, tables = prepare_shown(InDuckDb({}), state, statement)
        if isinstance(query, PostgresQuery):  # which no other engine answers
            raise reason
        return Prepared(state.lsn, tuple(tables), None), self._run_in_spark(resources, query, statement)

    def _run_in_spark(self, resources: Resources, query: "PreparedQuery", statement: Statement) -> Answered:
        from auditlake.query.spark_engine import (  # noqa: PLC0415 - pyspark takes a second to import
            batches,
            plan,
            session_for_statements,
        )
        from auditlake.sandbox.statements import as_texts  # noqa: PLC0415 - as above
        from auditlake.spark.session import has_ended, spark_session  # noqa: PLC0415 - as above

        if not self._one.acquire(timeout=resources.limits.timeout_s / 2):
            raise Busy("another statement is running in Spark, or starts it", "Try again when it has ended.")
        limit = _Limit(resources.limits.timeout_s)
        try:
            self._session = None if has_ended() else self._session
            with nullcontext() if self._session else resources.uncounted("Spark to start", _MOST_START_S):
                spark = self._session or session_for_statements(spark_session(self._settings))
                rows = plan(spark, query).limit(statement.rows + 1)
            self._session = spark
            with limit.of(spark):
                schema, fetched = batches(rows)
                return as_texts(rows.columns, None, schema, fetched, statement)
        except Exception as exc:
            if limit.passed:
                raise Busy("the statement was interrupted", "Ask for less, or raise --timeout.") from None
            if ended_jvm(exc):
                raise Busy("Spark ended, perhaps for lack of memory", "Ask for less; Spark starts again.") from None
            raise
        finally:
            self._one.release()


def _statement(resources: Resources, asked: OfSql) -> Statement:
    grant = resources.grant
    return Statement(
        asked.sql,
        asked.at,
        resources.zone,
        asked.dialect or resources.dialect,
        resources.limits.sql_rows,
        bounds.ANSWER_CHARACTERS,
        resources.limits.timeout_s + _GRACE_S,
        grant=grant,
        seen=frozenset() if grant.is_whole else frozenset(resources.reader().known.tables),
    )


def _size(found: Answered) -> int:
    return 200 + sum(sum(len(text or "") + 60 for text in row) for row in found.rows)


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
