"""Prepare statements in PostgreSQL's dialect: names, moments, tails, and the translation. No JVM, and no engine yet.

A table, a column or a moment that does not exist is reported here, with the nearest names. What PostgreSQL refuses is
BadUsage, what it answers and this translation does not is NotAnswerable; both name the construct and its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from auditlake.audit.lake_reader import Reader
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.history import type_of
from auditlake.pgoutput.table_shape import PARTITIONED, Shape
from auditlake.query.duckdb_views import ViewColumn, columns_of_view
from auditlake.query.embedded.cells import NotEmbedded
from auditlake.query.parts import unread, watch_parts
from auditlake.query.pending_tail import find_reading_tails
from auditlake.query.postgres.cells import Cell, Refused, construct
from auditlake.query.postgres.grammar import place_of_byte
from auditlake.query.postgres.one_reading import misread_at
from auditlake.query.postgres.parser import Parsed, describes, parse, place_of
from auditlake.query.postgres.queries import translate
from auditlake.query.postgres.scopes import Opened, Query, folded
from auditlake.query.postgres.types import JSONB, Type, array, enum_type, shown_type, type_held_as, type_of_column
from auditlake.query.rewrite import is_query_of_with, period_of
from auditlake.query.room import TooLong
from auditlake.query.statement import Defined, LakeState, Log, PreparedQuery, recorded_in, recorded_shapes, selected
from auditlake.query.statement import prepare_statement as prepare_described
from auditlake.query.system_time import Reading, Selection
from auditlake.relation import Column, TableName
from auditlake.temporal.table_lookup import check_copied, find_table
from auditlake.values.equality import differs_in
from auditlake.values.types import MOST_DIGITS, is_built_in, is_widened

_HINT = "docs/asking.md lists what is translated; the dialect spark reads Spark's SQL."
_WITHOUT_MEANING = frozenset({(exp.CTE, "materialized")})  # for PostgreSQL's planner
IN_SPARK = "Ask in the dialect spark."


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column of a view, with its type."""

    shown: ViewColumn
    type: Type


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresQuery(PreparedQuery):
    """A statement in PostgreSQL's dialect: its translation, and what each of its views shows."""

    translated: Query
    columns: Mapping[str, tuple[TypedColumn, ...]]


def prepare(state: LakeState, sql: str, defined: Defined, masks: Sequence[str] = ()) -> PreparedQuery:
    """Prepare one statement; `masks` are those of `prepare_query`. Raises BadUsage, NotAnswerable."""
    return prepare_described(state, sql, defined) if describes(sql) else prepare_query(state, sql, masks)


def prepare_query(state: LakeState, sql: str, masks: Sequence[str] = ()) -> PostgresQuery:
    """Prepare one query; `masks` are patterns of columns it must not read. Raises BadUsage, NotAnswerable."""
    parsed = parse(sql)
    try:
        _require_one_reading(parsed)
        return _prepared(state, sql, parsed.tree, masks)
    except Refused as reason:
        place = place_of(sql, reason.node)
        at = "" if place is None else f" at {place}"
        if reason.wrong:
            raise BadUsage(f"{reason.what}{at}", reason.hint or None) from None
        raise NotAnswerable(f"{reason.what}{at} is not translated", reason.hint or _HINT) from None
    except (RecursionError, TooLong):
        hint = "Write the query in a simpler form."
        raise NotAnswerable("the SQL is nested too deep, or is too long, to be translated", hint) from None


def _require_one_reading(parsed: Parsed) -> None:
    """Check that sqlglot reads in a statement what PostgreSQL does."""
    if (place := misread_at(parsed.tree.copy(), parsed.read)) is not None:
        at = place_of_byte(parsed.text, place)
        raise NotAnswerable(f"the SQL at {at} is not translated", "Write it in another form, or with parentheses.")


def _prepared(state: LakeState, sql: str, tree: exp.Query, masks: Sequence[str]) -> PostgresQuery:
    watched = watch_parts(tree)
    readings = {id(node): _reading(state, node) for node in tree.find_all(exp.Table) if _is_of_lake(node)}
    labels = {reading: f"v{n}" for n, reading in enumerate(dict.fromkeys(readings.values()))}
    views = {label: selected(state, reading) for reading, label in labels.items()}
    tables = [(state.known.tables[name], chosen) for name, chosen in views.values() if not isinstance(chosen, Log)]
    tails = find_reading_tails(state.known, tables)
    prepared = PreparedQuery(state.known, state.lsn, sql, views, tails)
    shapes = recorded_shapes(prepared, every=True)
    columns = {label: _columns(state, prepared, *views[label], masks, shapes.get(views[label][0])) for label in views}
    opened = {label: _opened(label, views[label][0], columns[label]) for label in views}

    def catalog(node: exp.Table) -> Opened | None:
        if (reading := readings.get(id(node))) is None:
            return None
        label = labels[reading]
        _check_inherited(node, shapes.get(views[label][0]))
        return opened[label]

    translated = translate(tree, catalog, state.now)
    for node, name in unread(watched, _WITHOUT_MEANING):
        raise Refused(node, f"{name.rstrip('_').upper()} of {construct(node)}")
    return PostgresQuery(state.known, state.lsn, sql, views, tails, translated=translated, columns=columns)


def _check_inherited(node: exp.Table, shape: Shape | None) -> None:
    """Check that the rows of a table are its own ones: PostgreSQL adds those of the tables that inherit from it."""
    if node.args.get("only"):
        if shape is None or shape.kind == PARTITIONED:
            raise Refused(node, f"ONLY {node.name}", "It is a table without rows of its own, or of the lake.")
    elif shape is not None and shape.inherited:
        hint = f"Write only {node.name}, and UNION ALL with the tables that inherit from it."
        raise Refused(node, f"{node.name}, from which other tables inherit or did,", hint)


def _is_of_lake(node: exp.Table) -> bool:
    if not isinstance(node.this, exp.Identifier):
        return False
    named = len(node.parts) == 1 and is_query_of_with(node)
    if named and node.args.get("version") is not None:
        raise Refused(node, f"FOR SYSTEM_TIME on {node.name}, the name of a query", "Put it on the tables.", wrong=True)
    return not named


def _reading(state: LakeState, node: exp.Table) -> Reading:
    known = state.known
    asked = [folded(part) for part in node.parts]
    if len(asked) > 2:  # noqa: PLR2004 - a schema and a table
        raise Refused(node, "a table by the name of its database", f"Write {'.'.join(asked[-2:])}.")
    check_copied(asked, known.copying, known.names)
    try:
        name = find_table(asked, known.names, known.in_doubt)
    except BadUsage as exc:
        raise Refused(node, exc.message, exc.hint or "", wrong=True) from None
    if name.table != asked[-1] or (len(asked) > 1 and name.schema != asked[0]):
        raise Refused(node, f"there is no table {'.'.join(asked)}", f'Did you mean "{name.table}"?', wrong=True)
    version = node.args.get("version")
    return Reading(name, None if version is None else period_of(version, name, state.now))


def _columns(  # noqa: PLR0913, PLR0917 - what a view shows
    state: LakeState,
    query: PreparedQuery,
    name: TableName,
    selection: Selection | Log,
    masks: Sequence[str],
    shape: Shape | None,
) -> tuple[TypedColumn, ...]:
    try:
        columns = columns_of_view(query, name, selection, masks, JSONB.name)
    except NotEmbedded as reason:
        raise NotAnswerable(f"{reason} is not read in this dialect", IN_SPARK) from reason
    if not isinstance(selection, Log):
        columns = _widened(state, query, name, selection, columns)
    return tuple(TypedColumn(each, _type(name, shape, each)) for each in columns)


def _widened(
    state: LakeState, query: PreparedQuery, name: TableName, selection: Selection, columns: Sequence[ViewColumn]
) -> tuple[ViewColumn, ...]:
    """Return the columns with the types that they had then, or had last: a history's column keeps its first one."""
    table = query.known.tables[name]
    shapes = Reader(query.known.lake, state.now, query.known).shapes_of(table)
    then = shapes.described_by(query.tails.asked_upto(table, selection))
    return tuple(_as_described(each, then) for each in columns)


def _as_described(shown: ViewColumn, then: Mapping[str, Column]) -> ViewColumn:
    column = shown.column
    described = None if column is None else then.get(column.stored)
    if column is None or described is None or not is_widened(column.type, described.type):
        return shown
    wider = replace(column, type_oid=described.type_oid, typmod=described.typmod)
    return replace(shown, column=wider, kind=type_of(wider).delta)


def _type(table: TableName, shape: Shape | None, shown: ViewColumn) -> Type:
    column, held = shown.column, shown.kind
    if column is None:
        return type_held_as(held)
    found = type_of_column(column)
    recorded = recorded_in(shape, column)
    if not is_built_in(column.type_oid):
        found = _own_type(column.type_oid, recorded, shape) or found
    widened = found.is_decimal and held == f"decimal({found.scale},{found.scale})" and found.digits != MOST_DIGITS + 1
    if found.column_kind != held and not widened and not (found.name == "oid" and held == "bigint"):
        raise NotAnswerable(
            f"column {column.name} of {table} is held as {held} and was {found.shown}",
            IN_SPARK,
        )
    return _collated(found, differs_in(column.type_oid, recorded)) if is_built_in(column.type_oid) else found


def _own_type(type_oid: int, recorded: Sequence[str] | None, shape: Shape | None) -> Type | None:
    """Return an enum, or a type by its recorded name.

    If the table has a composite type, this may be it, or a domain over it, unless it is an array or a base type.
    """
    if shape is None or recorded is None:
        return None
    is_plain = recorded[0].endswith("]") or [*recorded[1:]] == [f"type {recorded[0]}"]
    is_row = not is_plain and any(each.startswith("composite ") for each in shape.types)
    return enum_type(recorded, shape.labels().get(type_oid, {})) or shown_type(recorded[0], may_be_row=is_row)


def _collated(kind: Type, collation: str | None) -> Type:
    """Return the type of texts under a collation, None if equal values are equal texts; else they are only shown."""
    if collation is None:
        return kind
    if kind.element is not None:
        return array(_collated(kind.element, collation))
    return shown_type(f"{kind.shown}, {collation}", length=kind.length if kind.name == "bpchar" else None)


def _opened(view: str, name: TableName, columns: Sequence[TypedColumn]) -> Opened:
    shown = [each.shown for each in columns]
    cells = tuple(
        Cell(f"c{n}", typed.type, each.name, is_lsn=each.is_lsn, masked=each.masked)
        for n, (each, typed) in enumerate(zip(shown, columns, strict=True))
    )
    if any(each.column is None for each in shown):  # the versions of a period, or a log
        return Opened(view, name, cells)
    key = (f"c{n}" for n, each in enumerate(shown) if each.column is not None and each.column.key)
    return Opened(view, name, cells, frozenset(key))
