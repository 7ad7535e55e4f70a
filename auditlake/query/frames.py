"""Tables of a lake as DataFrames and as views: what `auditlake.read` and `auditlake.register` do."""

from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from auditlake.errors import BadUsage
from auditlake.lake.layout import Lake
from auditlake.query.dialect import tokenize
from auditlake.query.exact import register_function
from auditlake.query.moments import read_known, resolve
from auditlake.query.names import SYSTEM_SCHEMA, check_copied, find_table, view_names
from auditlake.query.selection import select_state
from auditlake.query.sql import read_log
from auditlake.query.state import read_selection
from auditlake.query.tail import find_reading_tails
from auditlake.query.when import When, parse_when


def read_table(spark: SparkSession, lake: Lake, name: str, as_of: str | None, *, raw: bool) -> DataFrame:
    """Read one table as of `as_of`, by its name as one writes it in SQL, with `_raw` if `raw`.

    Raises BadUsage, NotAnswerable.
    """
    when = _moment(as_of)
    known = read_known(lake)
    parts = _parts(name)
    check_copied(parts, known.copying, known.tables)
    table = find_table(parts, known.tables)
    lsn = known.now_lsn if when is None else resolve(known, when)
    if table.schema == SYSTEM_SCHEMA:
        return read_log(spark, known, table, lsn)
    history = known.tables[table]
    state = replace(select_state(known, history, lsn, when), raw=raw)
    return read_selection(spark, known, history, state, find_reading_tails(known, [(history, state)]))


def register_tables(spark: SparkSession, lake: Lake, as_of: str | None, *, raw: bool) -> list[str]:
    """Register every table as temporary views, all as of one commit LSN, and return the views' names.

    The function `exact_text` comes with them; `raw` gives them the column `_raw` that it needs.

    Raises NotAnswerable where one of the tables has no answer; then no view is registered.
    """
    when = _moment(as_of)
    known = read_known(lake)
    lsn = known.now_lsn if when is None else resolve(known, when)
    states = {name: replace(select_state(known, table, lsn, when), raw=raw) for name, table in known.tables.items()}
    readings = {name: (known.tables[name], state) for name, state in states.items()}
    tails = find_reading_tails(known, readings.values())
    frames = {name: read_selection(spark, known, *reading, tails) for name, reading in readings.items()}
    views = {view: frames[table] for view, table in view_names(frames).items()}
    for view, frame in views.items():
        frame.createOrReplaceTempView("`" + view.replace("`", "``") + "`")
    register_function(spark)
    return sorted(views)


def _moment(as_of: str | None) -> When | None:
    return None if as_of is None else parse_when(as_of, datetime.now(UTC))


def _parts(name: str) -> list[str]:
    texts = [token.text for token in tokenize(name)]
    if not texts or len(texts) % 2 == 0 or any(text != "." for text in texts[1::2]):
        raise BadUsage(f"{name!r} is no name of a table", "Write schema.table, odd names in backticks.")
    return texts[::2]
