"""Run a statement, or a script of several, over a lake as of a moment.

1. `read_state` reads the state of the lake once. Every WHEN of a script, and the moment of tables that name none, is
   resolved from it; so joins, and the statements of a script, read one state of the database.
2. `prepare_sql` and `prepare_script` do everything that needs no JVM: a misspelt name or an unknown moment is reported
   before Spark starts.
3. `plan` plans the statement in Spark; it opens only the tables that are named.

Our views exist while Spark analyses a statement and are dropped when `plan` returns; statements do not share them. A
view that the user defines stays in Spark's session, as the plan of its query over the LSNs that this resolved to.
"""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.delta.append_table import open_delta
from auditlake.errors import LakeUnusable
from auditlake.lake.history import LSNS
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.query.as_of import read_selection
from auditlake.query.column_metadata import mark, origin_of
from auditlake.query.exact_text_udf import register_function
from auditlake.query.pending_tail import Tails, find_reading_tails
from auditlake.query.rewrite import Names, rewrite
from auditlake.query.script import definition_in, split
from auditlake.query.spark_errors import statement_errors
from auditlake.query.system_time import Reading, Selection, State, Versions, select_period, select_state
from auditlake.relation import TableName
from auditlake.sql_names import spark_identifier, spark_literal
from auditlake.temporal.moments import Known, read_known, resolve
from auditlake.temporal.table_lookup import SYSTEM_SCHEMA
from auditlake.temporal.when import When, parse_when

_LSNS_OF_LOGS = ("lsn", "end_lsn", "lsn_from", "lsn_to")


@dataclass(frozen=True, slots=True)
class Log:
    """One of the lake's own tables, up to `lsn`."""

    lsn: Lsn


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A statement for Spark, and the selection of each of its views; `lsn` is the statement's own moment."""

    known: Known
    lsn: Lsn
    sql: str
    views: dict[str, tuple[TableName, Selection | Log]]
    tails: Tails
    exact: bool = False
    defines: str | None = None
    """The view that the statement defines; it has no result then."""

    @property
    def defined(self) -> frozenset[str]:
        """The name of the view that it defines, in lower case."""
        return frozenset() if self.defines is None else frozenset({self.defines.casefold()})


def run_sql(spark: SparkSession, lake: Lake, sql: str, as_of: str | None = None) -> DataFrame:
    """Run `sql` with every table as of `as_of`, a WHEN; None is the watermark.

    Raises BadUsage for SQL that cannot be understood, NotAnswerable for a moment the lake does not know.
    """
    return plan(spark, prepare_sql(lake, sql, as_of))


def prepare_sql(lake: Lake, sql: str, as_of: str | None = None) -> PreparedQuery:
    """Prepare a statement without Spark; raises as `run_sql` does."""
    return _prepare(read_state(lake, as_of, UTC), sql)


def prepare_script(lake: Lake, script: str, as_of: str | None = None, zone: tzinfo = UTC) -> list[PreparedQuery]:
    """Prepare the statements of a script, from one state of the lake; raises as `prepare_sql` does."""
    state = read_state(lake, as_of, zone)
    queries: list[PreparedQuery] = []
    defined: frozenset[str] = frozenset()
    for sql in split(script) or [script]:
        query = prepare_statement(state, sql, defined)
        defined |= query.defined
        queries.append(query)
    return queries


@dataclass(frozen=True, slots=True)
class LakeState:
    """State of the lake for a script, the reader's clock, and the moment and LSN of `as_of`."""

    known: Known
    now: datetime
    when: When | None
    lsn: Lsn


def read_state(lake: Lake, as_of: str | None, zone: tzinfo) -> LakeState:
    """Read the state of the lake, and resolve `as_of`; times without a zone are in `zone`.

    Raises BadUsage, LakeUnusable, NotAnswerable.
    """
    now = datetime.now(zone)
    when = None if as_of is None else parse_when(as_of, now)
    known = read_known(lake)
    return LakeState(known, now, when, known.now_lsn if when is None else resolve(known, when))


def prepare_statement(state: LakeState, sql: str, defined: frozenset[str]) -> PreparedQuery:
    """Prepare one statement of a script; `defined` are the views that earlier ones defined, in lower case.

    Raises as `prepare_sql` does.
    """
    definition = definition_in(sql, defined)
    if definition is None:
        return _prepare(state, sql, defined)
    return replace(_prepare(state, definition.query, defined), defines=definition.name)


def _prepare(state: LakeState, sql: str, defined: frozenset[str] = frozenset()) -> PreparedQuery:
    known = state.known
    names = Names(tuple(known.tables), state.now, f"auditlake_{uuid.uuid4().hex}_", known.copying, defined)
    rewritten = rewrite(sql, names)
    views = {name: (reading.table, _selection(state, reading)) for name, reading in rewritten.views.items()}
    if rewritten.exact:
        views = {name: (table, _with_raw(selection)) for name, (table, selection) in views.items()}
    readings = [(known.tables[name], chosen) for name, chosen in views.values() if not isinstance(chosen, Log)]
    return PreparedQuery(known, state.lsn, rewritten.sql, views, find_reading_tails(known, readings), rewritten.exact)


def plan(spark: SparkSession, query: PreparedQuery) -> DataFrame:
    """Plan a prepared statement; its rows are computed on demand.

    Raises BadUsage if Spark refuses it.
    """
    if query.exact:
        register_function(spark)
    try:
        for view, (table, selection) in query.views.items():
            _read(spark, query, table, selection).createOrReplaceTempView(view)
        with statement_errors({view: str(table) for view, (table, _) in query.views.items()}):
            rows = spark.sql(query.sql)
            if query.defines is not None:
                rows.createOrReplaceTempView(spark_identifier(query.defines))
            return rows
    finally:
        for view in query.views:
            spark.catalog.dropTempView(view)


def plan_all(spark: SparkSession, queries: Iterable[PreparedQuery]) -> list[DataFrame]:
    """Plan the statements of a script in order; return the rows of those that have a result.

    Raises BadUsage if Spark refuses one.
    """
    return [rows for query in queries for rows in (plan(spark, query),) if query.defines is None]


def _with_raw(selection: Selection | Log) -> Selection | Log:
    """Add `_raw` to a state; versions always have it."""
    return replace(selection, raw=True) if isinstance(selection, State) else selection


def _selection(state: LakeState, reading: Reading) -> Selection | Log:
    if reading.table.schema == SYSTEM_SCHEMA:
        return Log(state.lsn)
    table = state.known.tables[reading.table]
    if reading.period is None:
        return select_state(state.known, table, state.lsn, state.when)
    return select_period(state.known, table, reading.period)


def _read(spark: SparkSession, query: PreparedQuery, table: TableName, selection: Selection | Log) -> DataFrame:
    known = query.known
    if isinstance(selection, Log):
        return mark(read_log(spark, known, table, selection.lsn), table, (), _LSNS_OF_LOGS)
    history = known.tables[table]
    lsns = LSNS if isinstance(selection, Versions) else ()
    return mark(read_selection(spark, known, history, selection, query.tails), table, history.columns, lsns)


def footnotes(spark: SparkSession, query: PreparedQuery, rows: DataFrame, nulls: Iterable[int]) -> Iterator[str]:
    """Yield notes on columns that may be NULL for a value that exists; `nulls` are the indexes of columns with a NULL.

    Reads the column `_raw` of their tables; tables behind views that the user defined are not checked.
    """
    origins = dict.fromkeys(origin for at in sorted(nulls) if (origin := origin_of(rows.schema.fields[at])))
    for origin in origins:
        read = [chosen for table, chosen in query.views.values() if table == origin.table]
        raws = (_with_raw(chosen) for chosen in read if not isinstance(chosen, Log))
        held = f"map_contains_key(_raw, {spark_literal(origin.column)})"
        if any(not _read(spark, query, origin.table, raw).where(held).isEmpty() for raw in raws):
            yield (
                f"note: NULL in {origin.column} may be a value that its type here cannot hold, such as infinity: "
                f"exact_text({origin.column}) shows it"
            )


def read_log(spark: SparkSession, known: Known, name: TableName, lsn: Lsn) -> DataFrame:
    """Read one of the lake's own tables, up to `lsn`."""
    path = known.lake.root / name.table
    delta = open_delta(path)
    if delta is None:
        raise LakeUnusable(f"{path} is missing", "Run auditlake follow: capture creates it when it starts.")
    rows = spark.read.format("delta").load(str(path))
    if name.table in ("changes", "transactions"):
        return rows.where(F.col("lsn") <= int(known.changes_up_to(lsn)))
    return rows
