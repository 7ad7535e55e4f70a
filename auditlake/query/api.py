"""Tables of a lake as DataFrames and as views: the implementation of `auditlake.read` and `auditlake.register`."""

from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from auditlake.errors import BadUsage
from auditlake.lake.layout import Lake
from auditlake.query.as_of import read_selection
from auditlake.query.dialect import tokenize
from auditlake.query.pending_tail import find_reading_tails
from auditlake.query.spark_values import register_function
from auditlake.query.sql import read_log
from auditlake.query.system_time import select_state
from auditlake.sql_names import spark_identifier
from auditlake.temporal.moments import read_known, resolve
from auditlake.temporal.table_lookup import SYSTEM_SCHEMA, check_copied, find_table, view_names
from auditlake.temporal.when import When, parse_when


def read_table(spark: SparkSession, lake: Lake, name: str, as_of: str | None, *, raw: bool) -> DataFrame:
    """Read one table as of `as_of`, named as in SQL; `raw` adds the column `_raw`.

    Raises BadUsage, NotAnswerable.
    """
    when = _moment(as_of)
    known = read_known(lake)
    parts = _parts(name)
    check_copied(parts, known.copying, known.tables)
    table = find_table(parts, known.names)
    lsn = known.now_lsn if when is None else resolve(known, when)
    if table.schema == SYSTEM_SCHEMA:
        return read_log(spark, known, table, lsn)
    history = known.named(table, lsn)
    state = replace(select_state(known, history, lsn, when), raw=raw)
    return read_selection(spark, known, history, state, find_reading_tails(known, [(history, state)]))


def register_tables(spark: SparkSession, lake: Lake, as_of: str | None, *, raw: bool) -> list[str]:
    """Register every table as temporary views, all as of one commit LSN, and return the views' names.

    The function `exact_text` is registered too; `raw` adds the column `_raw`, which it needs.

    Raises NotAnswerable if one of the tables is not known at that moment; then no view is registered.
    """
    when = _moment(as_of)
    known = read_known(lake)
    lsn = known.now_lsn if when is None else resolve(known, when)
    states = {name: replace(select_state(known, table, lsn, when), raw=raw) for name, table in known.tables.items()}
    readings = {name: (known.tables[name], state) for name, state in states.items()}
    tails = find_reading_tails(known, readings.values())
    frames = {name: read_selection(spark, known, *reading, tails) for name, reading in readings.items()}
    frames = {known.tables[name].name_at(lsn): frame for name, frame in frames.items()}
    views = {view: frames[table] for view, table in view_names(frames).items()}
    for view, frame in views.items():
        frame.createOrReplaceTempView(spark_identifier(view))
    register_function(spark)
    return sorted(views)


def _moment(as_of: str | None) -> When | None:
    return None if as_of is None else parse_when(as_of, datetime.now(UTC))


def _parts(name: str) -> list[str]:
    texts = [token.text for token in tokenize(name)]
    if not texts or len(texts) % 2 == 0 or any(text != "." for text in texts[1::2]):
        raise BadUsage(f"{name!r} is not the name of a table", "Write schema.table, special names in backticks.")
    return texts[::2]
