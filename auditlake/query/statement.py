"""Prepare a statement of Spark's SQL, or a script of several: names, moments and tails. No JVM, and no engine yet.

    script ─▶ split_script ─▶ rewrite ─▶ selected ─▶ find_reading_tails ─▶ check ─▶ PreparedQuery ─┬─▶ embedded, DuckDB
                              names,      each WHEN, from one                        types         │      │ NotEmbedded
                              periods     state of the lake (read_state)                           └─▶ spark_engine

1. `split_script` divides a script at semicolons outside of strings, quoted names and comments. In a statement,
   everything before it is blanked, so that an error names the script's line.
2. `read_state` reads the state of the lake once. Every WHEN of a script, and the moment of tables that name none, is
   resolved from it; so joins, and the statements of a script, read one state of the database.
3. `prepare_statement` does everything that needs no engine: a misspelt name or an unknown moment is
   reported before one starts. One kind of statement has no result: `create temporary view NAME as QUERY` names a query
   for the statements after it.

`query.spark_engine` then plans the statement in Spark, `query.embedded` in DuckDB if that means the same. Each answers
with `AnswerRows`. `query.postgres.statement` prepares PostgreSQL's SQL from the same state and selections.
"""

import re
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
from sqlglot import TokenType

from auditlake.errors import BadUsage
from auditlake.lake.histories import ALL
from auditlake.lake.history import PERIOD_COLUMNS, type_of
from auditlake.lake.layout import Lake
from auditlake.lake.records import read_shape
from auditlake.lsn import Lsn
from auditlake.pgoutput.table_shape import Shape, compared_key
from auditlake.query.compared_columns import Columns, ComparedColumn, PartialColumn, columns_shown_of
from auditlake.query.comparisons import Checked, check_comparisons
from auditlake.query.dialect import QUERY_STARTS, nested, parse_query, placed, spark_tokens, split_at_semicolons
from auditlake.query.lexical import canonical_sql
from auditlake.query.pending_tail import Tails, find_reading_tails
from auditlake.query.rewrite import NamedTables, rewrite
from auditlake.query.system_time import Reading, Selection, State, last_lsn, select_period, select_state
from auditlake.query.unknown_columns import check_case, check_columns
from auditlake.relation import SYSTEM_SCHEMA, Column, TableName
from auditlake.store.files import read_each
from auditlake.temporal.moments import Known, read_known, resolve
from auditlake.temporal.table_lookup import mentioned
from auditlake.temporal.when import AtTime, AtXid, When, parse_when
from auditlake.values.equality import may_differ

_DEFINES = re.compile(r"CREATE( OR REPLACE)?( TEMPORARY| TEMP)? VIEW ")
_LONGEST_HEAD = 6
_BY_PERIOD = "system_time"
JSON_TEXT = b"auditlake.json"
"""Marks a field whose texts are JSON."""
LSN = b"auditlake.lsn"
"""Marks a field whose integers are LSNs."""
LSNS_OF_LOGS = ("lsn", "end_lsn", "lsn_from", "lsn_to")
"""Columns of the lake's own tables that are LSNs."""


Defined = Mapping[str, Columns]
"""Views that statements defined, by their names in lower case, with their columns."""
_NO_VIEWS: Defined = {}


@dataclass(frozen=True, slots=True)
class Definition:
    """A view that lasts as long as the session: its name, and its query at its position in the script."""

    name: str
    query: str


def split_script(script: str) -> list[str]:
    """Split a script into statements, without empty ones; raises BadUsage if a quote or comment does not end."""
    script = canonical_sql(script)
    return split_at_semicolons(script, spark_tokens(script))


def definition_in(sql: str, defined: Collection[str] = ()) -> Definition | None:
    """Parse a view definition, or return None; `defined` are views, in lower case. Raises BadUsage."""
    sql = canonical_sql(sql)
    tokens = spark_tokens(sql)
    head = _DEFINES.match(" ".join(token.text.upper() for token in tokens[:_LONGEST_HEAD]))
    if head is None:
        return None
    match tokens[len(head[0].split()) :]:
        case [name, as_, _, *_] if as_.text.upper() == "AS" and name.token_type is not TokenType.STRING:
            pass
        case _:
            raise BadUsage("this CREATE VIEW is not a name and a query", "Write CREATE TEMPORARY VIEW name AS SELECT …")
    if head[1] is None and name.text.casefold() in defined:
        raise BadUsage(f"a view {name.text} is defined already", "Write CREATE OR REPLACE TEMPORARY VIEW.")
    return Definition(name.text, placed(sql, as_.end + 1, len(sql)))


@runtime_checkable
class AnswerRows(Protocol):
    """The rows of an answer."""

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns, which may repeat."""

    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema, and an iterator that computes batches on demand and raises BadUsage."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a statement; `notes` yields notes on them, given the indexes of columns that had a NULL."""

    rows: AnswerRows | Any  # Spark's are a DataFrame, which is not imported here
    notes: Callable[[set[int]], Iterator[str]]


def inexact_note(column: str) -> str:
    """Return the note on a column that is NULL for a value that exists."""
    return (
        f"note: NULL in {column} may be a value that its type here cannot hold, such as infinity: "
        f"exact_text({column}) shows it"
    )


@dataclass(frozen=True, slots=True)
class Log:
    """One of the lake's own tables, up to `lsn`."""

    lsn: Lsn


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A statement that an engine can run, and the selection of each of its views; `lsn` is its own moment."""

    known: Known
    lsn: Lsn
    sql: str
    views: dict[str, tuple[TableName, Selection | Log]]
    tails: Tails
    exact: bool = False
    defines: str | None = None
    """The view that the statement defines; it has no result then."""
    shown: Columns = ()
    """Its columns, if comparisons of some column have to be checked."""
    computed: frozenset[ComparedColumn] = frozenset()
    """Columns that it computes with although they are NULL for some values (`query.compared_columns`)."""

    @property
    def held_back(self) -> dict[tuple[TableName, Selection], list[ComparedColumn]]:
        """The same columns by the rows whose values must fit."""
        found: dict[tuple[TableName, Selection], list[ComparedColumn]] = {}
        for column in sorted(self.computed, key=lambda each: (each.table, each.name)):
            if (origin := column.origin) is not None:
                found.setdefault((origin.table, origin.selection), []).append(column)
        return found

    @property
    def defined(self) -> "Defined":
        """The view that it defines."""
        return {} if self.defines is None else {self.defines.casefold(): self.shown}


@nested()
def prepare_sql(lake: Lake, sql: str, as_of: str | None = None) -> PreparedQuery:
    """Prepare a statement without Spark; raises BadUsage, NotAnswerable."""
    return _prepare(read_state(lake, as_of, UTC, script=sql), sql)


@dataclass(frozen=True, slots=True)
class LakeState:
    """State of the lake for a script, the reader's clock, and the moment and LSN of `as_of`."""

    known: Known
    now: datetime
    when: When | None
    lsn: Lsn


def read_state(  # noqa: PLR0913 - each by its name
    lake: Lake,
    as_of: str | None,
    zone: tzinfo,
    *,
    allow_gaps: bool = False,
    script: str | None = None,
    shown: Callable[[Known], Known] | None = None,
) -> LakeState:
    """Read the state of the lake, and resolve `as_of`; times without a zone are in `zone`.

    With `script`, the state is for its statements alone; `shown` returns the part of it that the reader may see.

    Raises BadUsage, LakeUnusable, NotAnswerable.
    """
    now = datetime.now(zone)
    when = None if as_of is None else parse_when(as_of, now)
    asked = ALL if script is None else mentioned(script)
    by_commits = isinstance(when, AtTime | AtXid) or (script is not None and _BY_PERIOD in script.casefold())
    known = read_known(lake, allow_gaps=allow_gaps, asked=asked, by_commits=by_commits)
    known = known if shown is None else shown(known)
    return LakeState(known, now, when, resolve(known, when))


@nested()
def prepare_statement(state: LakeState, sql: str, defined: Defined) -> PreparedQuery:
    """Prepare one statement of a script; `defined` are views of earlier ones. Raises as `prepare_sql`."""
    definition = definition_in(sql, defined)
    if definition is None:
        return _prepare(state, sql, defined)
    return replace(_prepare(state, definition.query, defined), defines=definition.name)


def _prepare(state: LakeState, sql: str, defined: Defined = _NO_VIEWS) -> PreparedQuery:
    known = state.known
    names = NamedTables(
        known.names, state.now, f"auditlake_{uuid.uuid4().hex}_", known.copying, frozenset(defined), known.in_doubt
    )
    rewritten = rewrite(sql, names)
    views = {name: selected(state, reading) for name, reading in rewritten.views.items()}
    if rewritten.exact:
        views = {name: (table, with_raw(selection)) for name, (table, selection) in views.items()}
    readings = [(known.tables[name], chosen) for name, chosen in views.values() if not isinstance(chosen, Log)]
    query = PreparedQuery(known, state.lsn, rewritten.sql, views, find_reading_tails(known, readings), rewritten.exact)
    checked = _checked(query, defined)
    origins = [each.origin for each in checked.computed if each.origin is not None]
    of_views = [(known.tables[each.table], each.selection) for each in origins]
    if set(of_views) - set(readings):
        query = replace(query, tails=find_reading_tails(known, {*readings, *of_views}))
    return replace(query, shown=checked.shown, computed=checked.computed)


def check_names(query: PreparedQuery) -> None:
    """Check the names of the columns of a query over tables alone; raises BadUsage."""
    tables: dict[str, list[str]] = {}
    for view, (name, selection) in query.views.items():
        if isinstance(selection, Log):
            return
        shown = query.tails.columns_shown(query.known.tables[name], selection)[1]
        tables[view] = [*shown.values(), *(each for each, _ in PERIOD_COLUMNS)]
    tokens = spark_tokens(query.sql)
    if tables and tokens[0].text.upper() in QUERY_STARTS:
        check_columns(parse_query(query.sql, tokens), tables)


def _checked(query: PreparedQuery, defined: Defined) -> Checked:
    """Check the comparisons of a query, unless no column needs it."""
    tables, shapes, escaped = dict(defined), recorded_shapes(query), dict[str, str]()
    for view, (name, selection) in query.views.items():
        if not isinstance(selection, Log):
            columns, names = query.tails.columns_shown(query.known.tables[name], selection)
            escaped |= _escaped(columns, names)
            label, shape = query.known.tables[name].last_name, shapes.get(name)
            tables[view] = columns_shown_of(
                ComparedColumn(label, names[c.stored], *c.type, recorded_in(shape, c), _origin(name, selection, c))
                for c in columns
            )
    tokens = spark_tokens(query.sql)
    marked = any(each.marks for columns in tables.values() for each in columns)
    if not (marked or escaped) or tokens[0].text.upper() not in QUERY_STARTS:
        return Checked()
    tree = parse_query(query.sql, tokens)
    check_case(tree, escaped)
    return check_comparisons(tree, tables)


def _escaped(columns: Collection[Column], names: Mapping[str, str]) -> dict[str, str]:
    """Return the columns under whose own name Spark finds another one: how they are shown, by that name."""
    shown = {*names.values()}
    folded = {name.casefold() for name in shown}
    return {c.name: names[c.stored] for c in columns if c.name not in shown and c.name.casefold() in folded}


def recorded_shapes(query: PreparedQuery, *, every: bool = False) -> dict[TableName, Shape]:
    """Read the last shapes of the tables that a query reads, or of those with a column whose comparisons need it."""
    read = [(name, chosen) for name, chosen in query.views.values() if not isinstance(chosen, Log)]
    shown = ((name, query.tails.columns_shown(query.known.tables[name], chosen)[0]) for name, chosen in read)
    names = list(
        dict.fromkeys(name for name, columns in shown if every or any(may_differ(c.type_oid) for c in columns))
    )
    shapes = read_each(query.known.lake.shapes, partial(read_shape, query.known.lake), names)
    return {name: shape for name, shape in zip(names, shapes, strict=True) if shape is not None}


def _origin(table: TableName, selection: Selection, column: Column) -> PartialColumn | None:
    kind = type_of(column)
    return PartialColumn(table, selection, column.stored, kind) if kind.may_not_fit else None


def recorded_in(shape: Shape | None, column: Column) -> tuple[str, ...] | None:
    """Return what a shape says of comparisons with a column; None if nothing."""
    found = None if shape is None else shape.compared.get(compared_key(column.attnum or 0, column.type_oid))
    return None if found is None else tuple(found)


def with_raw(selection: Selection | Log) -> Selection | Log:
    """Add `_raw` to a state; versions always have it."""
    return replace(selection, raw=True) if isinstance(selection, State) else selection


def selected(state: LakeState, reading: Reading) -> tuple[TableName, Selection | Log]:
    """Return the selection of a reading, with the name under which its table is known."""
    if reading.table.schema == SYSTEM_SCHEMA:
        return reading.table, Log(state.lsn)
    known = state.known
    table = known.named(reading.table, last_lsn(known, reading.period, state.lsn))
    if reading.period is None:
        return table.name, select_state(known, table, state.lsn, state.when)
    return table.name, select_period(known, table, reading.period)
