"""Run a statement, or a script of several, over a lake as of a moment.

Every WHEN of a script, and the moment of those tables that name none, is resolved from one look at the lake; so joins
see one state of the database, and so do the statements that follow each other. `prepare_sql` and `prepare_script` do
all that without a JVM: a misspelt name or an unknown moment is told before Spark starts. `ask` then opens the tables
that are named, and no other.

The views live while Spark analyses the statement and are gone when `ask` returns: statements do not see each other's.
A view that the user defines stays in Spark's session, as the plan of its query over the LSNs that this resolved to.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.errors import LakeUnusable
from auditlake.lake.layout import Lake
from auditlake.lake.log import open_delta
from auditlake.lsn import Lsn
from auditlake.query.exact import register_function
from auditlake.query.failure import statement_errors
from auditlake.query.moments import Known, read_known, resolve
from auditlake.query.names import SYSTEM_SCHEMA
from auditlake.query.period import Reading
from auditlake.query.rewrite import Names, rewrite
from auditlake.query.script import definition_in, split
from auditlake.query.selection import Selection, State, select_period, select_state
from auditlake.query.state import read_selection
from auditlake.query.tail import Tails, find_reading_tails
from auditlake.query.when import When, parse_when
from auditlake.relation import TableName


@dataclass(frozen=True, slots=True)
class Log:
    """One of the lake's own tables, as far as it was written by `lsn`."""

    lsn: Lsn


@dataclass(frozen=True, slots=True)
class Question:
    """A statement for Spark and what each of its views shows, resolved to LSNs; `lsn` is the statement's own moment."""

    known: Known
    lsn: Lsn
    sql: str
    views: dict[str, tuple[TableName, Selection | Log]]
    tails: Tails
    exact: bool = False
    defines: str | None = None
    """The view that it gives a name to, instead of an answer."""


def run_sql(spark: SparkSession, lake: Lake, sql: str, as_of: str | None = None) -> DataFrame:
    """Run `sql` with every table as of `as_of`, a WHEN; None is the watermark.

    Raises BadUsage for SQL that cannot be understood, NotAnswerable for a moment the lake does not know.
    """
    return ask(spark, prepare_sql(lake, sql, as_of))


def prepare_sql(lake: Lake, sql: str, as_of: str | None = None) -> Question:
    """Do what `run_sql` does before it needs Spark; raises the same."""
    return _prepare(_look(lake, as_of), sql)


def prepare_script(
    lake: Lake, script: str, as_of: str | None = None, defined: frozenset[str] = frozenset()
) -> list[Question]:
    """Prepare the statements of a script, all of them from one look at the lake; raises as `prepare_sql` does.

    `defined` are the views that earlier scripts of the session defined, in lower case.
    """
    look = _look(lake, as_of)
    questions: list[Question] = []
    for sql in split(script) or [script]:
        definition = definition_in(sql, defined)
        question = _prepare(look, sql if definition is None else definition.query, defined)
        if definition is not None:
            question = replace(question, defines=definition.name)
            defined |= {definition.name.casefold()}
        questions.append(question)
    return questions


@dataclass(frozen=True, slots=True)
class _Look:
    """What a statement is answered from: the lake once looked at, the clock, and what `as_of` came to."""

    known: Known
    now: datetime
    when: When | None
    lsn: Lsn


def _look(lake: Lake, as_of: str | None) -> _Look:
    now = datetime.now(UTC)
    when = None if as_of is None else parse_when(as_of, now)
    known = read_known(lake)
    return _Look(known, now, when, known.now_lsn if when is None else resolve(known, when))


def moment_lsn(known: Known, when: str) -> Lsn:
    """Give the commit LSN that a WHEN means now; raises BadUsage, NotAnswerable."""
    return resolve(known, parse_when(when, datetime.now(UTC)))


def _prepare(look: _Look, sql: str, defined: frozenset[str] = frozenset()) -> Question:
    known = look.known
    names = Names(tuple(known.tables), look.now, f"auditlake_{uuid.uuid4().hex}_", known.copying, defined)
    rewritten = rewrite(sql, names)
    views = {name: (reading.table, _selection(look, reading)) for name, reading in rewritten.views.items()}
    if rewritten.exact:
        views = {name: (table, _with_raw(selection)) for name, (table, selection) in views.items()}
    readings = [(known.tables[name], chosen) for name, chosen in views.values() if not isinstance(chosen, Log)]
    return Question(known, look.lsn, rewritten.sql, views, find_reading_tails(known, readings), rewritten.exact)


def ask(spark: SparkSession, question: Question) -> DataFrame:
    """Plan a prepared statement; its rows are computed when they are asked for.

    Raises BadUsage where Spark refuses it.
    """
    if question.exact:
        register_function(spark)
    try:
        for view, (table, selection) in question.views.items():
            _read(spark, question, table, selection).createOrReplaceTempView(view)
        with statement_errors({view: str(table) for view, (table, _) in question.views.items()}):
            rows = spark.sql(question.sql)
            if question.defines is not None:
                rows.createOrReplaceTempView("`" + question.defines.replace("`", "``") + "`")
            return rows
    finally:
        for view in question.views:
            spark.catalog.dropTempView(view)


def ask_all(spark: SparkSession, questions: Iterable[Question]) -> list[DataFrame]:
    """Plan the statements of a script in order; give the rows of those that answer.

    Raises BadUsage where Spark refuses one.
    """
    return [rows for question in questions for rows in (ask(spark, question),) if question.defines is None]


def _with_raw(selection: Selection | Log) -> Selection | Log:
    """Add `_raw` to a state; versions have it."""
    return replace(selection, raw=True) if isinstance(selection, State) else selection


def _selection(look: _Look, reading: Reading) -> Selection | Log:
    if reading.table.schema == SYSTEM_SCHEMA:
        return Log(look.lsn)
    table = look.known.tables[reading.table]
    if reading.period is None:
        return select_state(look.known, table, look.lsn, look.when)
    return select_period(look.known, table, reading.period)


def _read(spark: SparkSession, question: Question, table: TableName, selection: Selection | Log) -> DataFrame:
    known = question.known
    if isinstance(selection, Log):
        return read_log(spark, known, table, selection.lsn)
    return read_selection(spark, known, known.tables[table], selection, question.tails)


def read_log(spark: SparkSession, known: Known, name: TableName, lsn: Lsn) -> DataFrame:
    """Read one of the lake's own tables, as far as it was written by `lsn`."""
    path = known.lake.root / name.table
    delta = open_delta(path)
    if delta is None:
        raise LakeUnusable(f"{path} is missing", "Run auditlake follow: capture makes it when it starts.")
    rows = spark.read.format("delta").load(str(path))
    if name.table in ("changes", "transactions"):
        return rows.where(F.col("lsn") <= int(known.changes_up_to(lsn)))
    return rows
