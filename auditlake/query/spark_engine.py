"""The Spark engine: statements over a lake as of a moment, and its tables as DataFrames and views.

`query.statement` prepares a statement; `plan` then plans it and opens only the tables that are named. Our views exist
while Spark analyses a statement and are dropped when `plan` returns; statements do not share them. A view that the user
defines stays in Spark's session, as the plan of its query over the LSNs that this resolved to. On Spark Connect our
views stay, too: a DataFrame is analysed there whenever it is used. Their names are unique. `read_table` and
`register_tables` implement `auditlake.read` and `auditlake.register`.

**Metadata of columns.** Spark keeps it if a query selects, renames or joins a column, and drops it if an expression
computes a new value. `_mark` marks two kinds of columns: those that show an LSN, and those that may be NULL for a value
that exists. The schema of a result then shows which of its columns come unchanged from a table of the lake.

**Rows.** `batches` yields Arrow batches in order, one partition at a time: no process holds the whole result. Spark
builds them in the JVM and pyspark's local iterator fetches them, so no Python worker and no pickled row is involved,
and at most two partitions wait in the JVM. Types that Arrow lacks are sent as text: intervals as Spark formats them,
variants as JSON. `Dataset.toArrowBatchRdd` is what `DataFrame.toArrow` collects. It has no public name in Python, and
is used only here. Over Spark Connect the server sends its batches as it computes them.

**Errors.** Analysis errors are about the statement alone, so their sentence is passed on as BadUsage in one line, with
our views' names replaced by the tables'. Errors during execution may quote a row's values, so only their error class is
shown. For the same reason pyspark's own loggers, which write such errors to stderr with plan and stack, are disabled
meanwhile.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import RDD
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    PySparkException,
    SparkRuntimeException,
)
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.logger import PySparkLogger
from pyspark.serializers import NoOpSerializer
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    CalendarIntervalType,
    DataType,
    DayTimeIntervalType,
    LongType,
    StructField,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from auditlake.delta.append_table import open_delta
from auditlake.errors import BadUsage, LakeUnusable, NotAnswerable
from auditlake.jvm_trace import classes_in, trace_of
from auditlake.lake.history import LSNS, HistoryTable, type_of
from auditlake.lake.layout import EXPIRED_APP, Lake
from auditlake.lsn import Lsn
from auditlake.query.as_of import read_selection
from auditlake.query.compared_columns import held_error
from auditlake.query.dialect import NAME_ONE, spark_tokens
from auditlake.query.functions import FUNCTIONS
from auditlake.query.lexical import canonical_sql
from auditlake.query.pending_tail import Tails, find_reading_tails
from auditlake.query.spark_values import register_function, without_padding
from auditlake.query.statement import (
    JSON_TEXT,
    LSN,
    LSNS_OF_LOGS,
    Log,
    PreparedQuery,
    inexact_note,
    prepare_sql,
    with_raw,
)
from auditlake.query.system_time import Selection, Versions, select_state
from auditlake.relation import SYSTEM_SCHEMA, Column, TableName
from auditlake.spark import connect
from auditlake.spark.closed_session import check, check_analysed, close
from auditlake.spark.connect import analysed, is_connected, lake_errors
from auditlake.spark.session import LOGGERS_OF_ROWS
from auditlake.sql_names import spark_identifier, spark_literal
from auditlake.temporal.moments import Known, read_known, resolve
from auditlake.temporal.table_lookup import check_copied, find_table, view_names
from auditlake.temporal.when import When, parse_when

_LSN, _SCHEMA, _TABLE, _COLUMN = "auditlake.lsn", "auditlake.schema", "auditlake.table", "auditlake.column"
_INTERVALS = (CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType)
_TEXTS_INSIDE = ("interval", "variant")
_JSON_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'", "timeZone": "UTC", "ignoreNullFields": "false"}
_RUNNING = (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)
# Offsets refer to the rewritten text, so they would mislead.
_TAIL = re.compile(r"\s*(SQLSTATE: \w+)?\s*(\(line \d+, pos \d+\)|; line \d+ pos \d+)?;?\s*$")
_CLASS = re.compile(r"^\[[A-Z_0-9.]+\]\s*")


def session_for_statements(spark: SparkSession) -> SparkSession:
    """Return a session in which statements are planned; views that they define stay in it."""
    return close(spark, FUNCTIONS)


def run_sql(spark: SparkSession, lake: Lake, sql: str, as_of: str | None = None) -> DataFrame:
    """Run `sql` with every table as of `as_of`, a WHEN; None is the watermark.

    Raises BadUsage for SQL that cannot be understood, NotAnswerable for a moment the lake does not know.
    """
    return plan(spark, prepare_sql(lake, sql, as_of))


def plan(spark: SparkSession, query: PreparedQuery) -> DataFrame:
    """Plan a prepared statement; its rows are computed on demand; raises BadUsage if Spark refuses it."""
    if query.exact:
        register_function(spark)
    try:
        for view, (table, selection) in query.views.items():
            with lake_errors(spark, query.known.lake.root):
                _read(spark, query, table, selection).createOrReplaceTempView(view)
        _check_held(spark, query)
        with statement_errors({view: str(table) for view, (table, _) in query.views.items()}):
            check(spark, query.sql, FUNCTIONS, query.views)
            rows = spark.sql(query.sql)
            check_analysed(rows)
            if query.defines is not None:
                rows.createOrReplaceTempView(spark_identifier(query.defines))
            return analysed(rows)
    finally:
        for view in () if is_connected(spark) else query.views:
            spark.catalog.dropTempView(view)


def _check_held(spark: SparkSession, query: PreparedQuery) -> None:
    """Check that columns which a statement computes with are not NULL for a value that exists; raises NotAnswerable."""
    for (name, selection), computed in query.held_back.items():
        table, raw = query.known.tables[name], with_raw(selection)
        assert not isinstance(raw, Log)  # noqa: S101 - the same kind of selection as before
        shown = query.tails.columns_shown(table, raw)[1]
        entries = {shown[each.origin.stored]: each for each in computed if each.origin}
        held = [f"map_contains_key(_raw, {spark_literal(entry)})" for entry in entries]
        with lake_errors(spark, query.known.lake.root):
            rows = read_selection(spark, table, raw, query.tails).where(" or ".join(held)).select("_raw").head(1)
        for row in rows:
            raise held_error(next(column for entry, column in entries.items() if entry in row["_raw"]))


def _read(spark: SparkSession, query: PreparedQuery, table: TableName, selection: Selection | Log) -> DataFrame:
    known = query.known
    if isinstance(selection, Log):
        return _mark(read_log(spark, known, table, selection.lsn), table, (), LSNS_OF_LOGS)
    history = known.tables[table]
    lsns = LSNS if isinstance(selection, Versions) else ()
    rows, columns = _values(spark, history, selection, query.tails)
    return _mark(rows, table, columns, lsns)


def _values(
    spark: SparkSession, table: HistoryTable, selection: Selection, tails: Tails
) -> tuple[DataFrame, list[Column]]:
    """Plan the rows of a selection for statements; return them with their columns, under the names that they have."""
    columns, names = tails.columns_shown(table, selection)
    shown = [replace(column, stored_as=names[column.stored]) for column in columns]
    raw = isinstance(selection, Versions) or selection.raw
    return without_padding(read_selection(spark, table, selection, tails), shown, raw=raw), shown


def footnotes(spark: SparkSession, query: PreparedQuery, rows: DataFrame, nulls: Iterable[int]) -> Iterator[str]:
    """Yield notes on columns that may be NULL for a value that exists; `nulls` are the indexes of columns with a NULL.

    Reads the column `_raw` of their tables; tables behind views that the user defined are not checked.
    """
    origins = dict.fromkeys(origin for at in sorted(nulls) if (origin := origin_of(rows.schema.fields[at])))
    for origin in origins:
        read = [chosen for table, chosen in query.views.values() if table == origin.table]
        if any(_is_outside(spark, query, origin, chosen) for chosen in read if not isinstance(chosen, Log)):
            yield inexact_note(origin.column)


def _is_outside(spark: SparkSession, query: PreparedQuery, origin: "_Origin", chosen: Selection) -> bool:
    """Return whether some row of a selection has a value of a column that its type cannot represent."""
    table, raw = query.known.tables[origin.table], with_raw(chosen)
    stored = {shown: name for name, shown in query.tails.columns_shown(table, chosen)[1].items()}
    assert not isinstance(raw, Log)  # noqa: S101 - the same kind of selection as before
    shown = query.tails.columns_shown(table, raw)[1]
    entry = spark_literal(shown[stored[origin.column]]) if origin.column in stored else "''"
    return not _read(spark, query, origin.table, raw).where(f"map_contains_key(_raw, {entry})").isEmpty()


def read_log(spark: SparkSession, known: Known, name: TableName, lsn: Lsn) -> DataFrame:
    """Read one of the lake's own tables, up to `lsn`."""
    path = known.lake.root / name.table
    delta = open_delta(path)
    if delta is None:
        raise LakeUnusable(f"{path} is missing", "Run auditlake follow: capture creates it when it starts.")
    known.check_log(name, Lsn(delta.transaction_version(EXPIRED_APP) or 0), lsn)
    rows = spark.read.format("delta").load(str(path))
    if name.table in ("changes", "transactions"):
        return rows.where(F.col("lsn") <= int(known.changes_up_to(lsn)))
    return rows


def read_table(spark: SparkSession, lake: Lake, name: str, as_of: str | None, *, raw: bool) -> DataFrame:
    """Read one table as of `as_of`, named as in SQL; `raw` adds the column `_raw`; raises BadUsage, NotAnswerable."""
    when = _moment(as_of)
    known = read_known(lake)
    parts = _parts(name)
    check_copied(parts, known.copying, known.tables)
    table = find_table(parts, known.names, known.in_doubt)
    lsn = resolve(known, when)
    if table.schema == SYSTEM_SCHEMA:
        with lake_errors(spark, lake.root):
            return analysed(read_log(spark, known, table, lsn))
    history = known.named(table, lsn)
    state = replace(select_state(known, history, lsn, when), raw=raw)
    tails = find_reading_tails(known, [(history, state)])
    with lake_errors(spark, lake.root):
        return analysed(_values(spark, history, state, tails)[0])


def register_tables(spark: SparkSession, lake: Lake, as_of: str | None, *, raw: bool) -> list[str]:
    """Register every table as temporary views, all as of one commit LSN, and return the views' names.

    The function `exact_text` is registered too; `raw` adds the column `_raw`, which it needs.

    Raises NotAnswerable if one of the tables is not known at that moment; then no view is registered.
    """
    when = _moment(as_of)
    known = read_known(lake)
    lsn = resolve(known, when)
    tables = known.tables_at(lsn)
    states = {name: replace(select_state(known, table, lsn, when), raw=raw) for name, table in tables.items()}
    readings = {name: (tables[name], state) for name, state in states.items()}
    tails = find_reading_tails(known, readings.values())
    with lake_errors(spark, lake.root):
        frames = {name: _values(spark, *reading, tails)[0] for name, reading in readings.items()}
    views = {view: frames[table] for view, table in view_names(frames).items()}
    for view, frame in views.items():
        frame.createOrReplaceTempView(spark_identifier(view))
    register_function(spark)
    return sorted(views)


def _moment(as_of: str | None) -> When | None:
    return None if as_of is None else parse_when(as_of, datetime.now(UTC))


def _parts(name: str) -> list[str]:
    texts = [token.text for token in spark_tokens(canonical_sql(name))]
    if not texts or len(texts) % 2 == 0 or any(text != "." for text in texts[1::2]):
        raise BadUsage(f"{name!r} is not the name of a table", "Write schema.table, special names in backticks.")
    return texts[::2]


@dataclass(frozen=True, slots=True)
class _Origin:
    """A stored column of a table whose type cannot hold every value of its PostgreSQL type."""

    table: TableName
    column: str


def _mark(rows: DataFrame, table: TableName, columns: Sequence[Column], lsns: Collection[str]) -> DataFrame:
    """Add the metadata to a table's rows; `lsns` are the columns that show an LSN."""
    partial = {column.stored for column in columns if type_of(column).may_not_fit}
    return rows.to(StructType([_marked(field, table, partial, lsns) for field in rows.schema.fields]))


def _marked(field: StructField, table: TableName, partial: Collection[str], lsns: Collection[str]) -> StructField:
    metadata = dict(field.metadata)
    if field.name in lsns and isinstance(field.dataType, LongType):
        metadata[_LSN] = True
    elif field.name in partial:
        metadata |= {_SCHEMA: table.schema, _TABLE: table.table, _COLUMN: field.name}
    return StructField(field.name, field.dataType, nullable=True, metadata=metadata)


def shows_lsn(field: StructField) -> bool:
    """Return whether a column of a result is an LSN."""
    return bool(field.metadata.get(_LSN))


def origin_of(field: StructField) -> _Origin | None:
    """Return the origin of a result's column, if it may be NULL for a value that exists."""
    metadata = field.metadata
    if _COLUMN not in metadata:
        return None
    return _Origin(TableName(metadata[_SCHEMA], metadata[_TABLE]), metadata[_COLUMN])


def batches(rows: DataFrame) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return a query's schema, and an iterator that computes batches on demand and raises BadUsage.

    Raises NotAnswerable if there are no columns: the formats would not show the rows.
    """
    if not rows.columns:
        raise NotAnswerable("the answer has no columns", NAME_ONE)
    names = [f"c{index}" for index in range(len(rows.columns))]  # column names may repeat
    kinds = [field.dataType for field in rows.schema.fields]
    sent = rows.toDF(*names).select(*(_sent(F.col(n), kind).alias(n) for n, kind in zip(names, kinds, strict=True)))
    carried = pa.schema(to_arrow_schema(sent.schema, timezone="UTC"))
    marked = [
        pa.field(field.name, there.type, metadata=_marks(field))
        for field, there in zip(rows.schema.fields, carried, strict=True)
    ]
    schema = pa.schema(marked)
    return schema, _fetch(sent, schema)


def _marks(field: StructField) -> dict[bytes, bytes] | None:
    if _as_json(field.dataType):
        return {JSON_TEXT: b"1"}
    return {LSN: b"1"} if shows_lsn(field) else None


def _fetch(sent: DataFrame, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with statement_errors({}):
        if connect.is_connected(sent.sparkSession):
            yield from connect.record_batches(sent, schema)
            return
        java = sent._jdf.toArrowBatchRdd().toJavaRDD()  # noqa: SLF001 - see above
        messages: RDD[bytes] = RDD(java, sent.sparkSession.sparkContext, NoOpSerializer())
        for message in messages.toLocalIterator(prefetchPartitions=True):
            yield pa.ipc.read_record_batch(pa.py_buffer(message), schema)


def _sent(column: Expression, kind: DataType) -> Expression:
    if isinstance(kind, _INTERVALS):
        return column.cast("string")
    return F.to_json(column, _JSON_OPTIONS) if _as_json(kind) else column


def _as_json(kind: DataType) -> bool:
    inside = not isinstance(kind, _INTERVALS) and any(text in kind.simpleString() for text in _TEXTS_INSIDE)
    return isinstance(kind, VariantType) or (inside and kind.typeName() in {"array", "map", "struct"})


@contextmanager
def statement_errors(views: Mapping[str, str]) -> Iterator[None]:
    """Turn Spark's errors about the user's SQL into BadUsage; `views` maps our views' names to the names to show."""
    with _pyspark_quiet():
        try:
            yield
        except AnalysisException as exc:
            hint = "DESCRIBE a table to see its columns, SHOW TABLES to see tables."
            raise BadUsage(_sentence(exc, views), hint) from exc
        except _RUNNING as exc:
            raise _failing_row(exc) from exc
        except PySparkException as exc:
            if not connect.is_of_server(exc):
                raise
            raise connect.server_failure(exc) from exc
        except Py4JJavaError as exc:  # a streamed result wraps the cause
            if cause := _cause(exc):
                raise _failing_row(cause) from exc
            if any(kind.endswith("OutOfMemoryError") for kind in classes_in(trace_of(exc) or "")):
                raise BadUsage(
                    "the SQL needs more memory than Spark has", "Ask for less, or raise spark.driver.memory."
                ) from exc
            raise


def _failing_row(exc: PySparkException) -> BadUsage:
    return BadUsage(
        f"the SQL fails on some row: {exc.getCondition() or type(exc).__name__}",
        "A try_ function, such as try_cast or try_divide, returns NULL instead.",
    )


def _cause(exc: Py4JJavaError) -> PySparkException | None:
    java = exc.java_exception
    while java is not None:
        converted = convert_exception(java)
        if isinstance(converted, _RUNNING):
            return converted
        java = java.getCause()
    return None


@contextmanager
def _pyspark_quiet() -> Iterator[None]:
    loggers = [logger for name in LOGGERS_OF_ROWS if not (logger := PySparkLogger.getLogger(name)).disabled]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger in loggers:
            logger.disabled = False


def _sentence(exc: PySparkException, views: Mapping[str, str]) -> str:
    lines = [line for line in str(exc).splitlines() if line.strip()]
    sentence = _TAIL.sub("", _CLASS.sub("", lines[0] if lines else type(exc).__name__))
    for view, name in views.items():
        sentence = re.sub(rf"`?\b{re.escape(view)}\b`?", f"`{name}`", sentence)
    return f"Spark refuses the SQL: {sentence}"
