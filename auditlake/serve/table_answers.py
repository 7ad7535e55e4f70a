"""Tables at a moment: the list with counts, rows, facets, and rows found by a former value."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pydantic import Field

from auditlake.audit.bounds import Room
from auditlake.audit.changes import Values, changes_of
from auditlake.audit.filters import (
    Condition,
    Filter,
    column_named,
    filter_on,
    may_sort,
    operations_of,
    parse_filters,
    signed,
    text_filter,
)
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.overlay import Overlay
from auditlake.audit.row_key import Key
from auditlake.audit.versions import CommitMark, Version, versions_of
from auditlake.errors import AuditlakeError, BadUsage
from auditlake.lake.comparison_keys import is_grouped_by_key
from auditlake.lake.history import HistoryTable, type_of
from auditlake.lsn import Lsn
from auditlake.messages import noted
from auditlake.relation import Column
from auditlake.sandbox.failures import failure
from auditlake.serve import models
from auditlake.serve.lake_answers import At, moment
from auditlake.serve.resources import Resources, answers_of
from auditlake.serve.table_rows import OpenState, RowSelection, TableState, parse_order
from auditlake.sql_names import duckdb_literal
from auditlake.temporal.when import format_us
from auditlake.values.input_syntax import type_name
from auditlake.values.types import Conversion

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_NUMBERS = frozenset({Conversion.INTEGER, Conversion.DECIMAL, Conversion.FLOAT})
_MOST_FACETS = 20
_FEW = 100
"""If fewer rows may match, only these are folded."""


class Listed(At):
    """Which tables."""

    contains: str | None = Field(default=None, description="Tables whose name contains this.", max_length=200)
    offset: int = Field(default=0, ge=0, le=1_000_000)
    limit: int = Field(default=50, ge=1, le=200)


class OneTable(At):
    """A table."""

    table: str = Field(description="Name of the table, as schema.table.", max_length=300)


class Filtered(OneTable):
    """A table, and filters on its rows."""

    where: list[str] = Field(default=[], description="Filters, COLUMN:OP:VALUE; all must hold.", max_length=20)


class OfRows(Filtered):
    """Rows of a table."""

    sort: str | None = Field(default=None, description="Column to sort by, then by the key; -COLUMN: descending.")
    offset: int = Field(default=0, ge=0, le=10_000_000)
    limit: int = Field(default=50, ge=1, description="Number of rows; at most 500.")


class OfFacets(Filtered):
    """A column, and filters on the rows."""

    column: str


class OfNeighbour(OneTable):
    """A key, and a direction."""

    key: list[str] = Field(description="The row's key, in the order of the key's columns.", max_length=32)
    way: Literal["previous", "next"] = "next"


class OfFind(OneTable):
    """A value that a row has or had."""

    value: str = Field(description="The value.", max_length=10_000)
    column: str | None = Field(default=None, description="The column; any by default.")
    contains: bool = Field(default=False, description="Texts that contain the value, too.")
    limit: int = Field(default=25, ge=1, le=100)


def state_of(resources: Resources, name: str, at: str | None) -> tuple[TableState, models.MomentJson]:
    """Return a table at a moment; raises BadUsage, NotAnswerable."""
    reader = resources.reader(at)
    lsn, shown = moment(resources, reader, at)
    table = reader.keyed_table(name, lsn)  # another one may have had the name at another time
    reader.check(table, lsn, at)
    return TableState(reader, table, lsn), shown


def column_model(column: Column) -> models.ColumnJson:
    """Describe a column."""
    return models.ColumnJson(
        name=column.name,
        type=type_name(column.type_oid, column.typmod),
        key=column.key,
        numeric=type_of(column).kind in _NUMBERS,
        ops=[each.name for each in operations_of(column)],
        sortable=may_sort(column),
        counted=is_grouped_by_key(column),
    )


def list_tables(resources: Resources, asked: Listed) -> models.TablesJson:
    """List the tables with the number of their rows."""
    reader = resources.reader(asked.at)
    lsn, at = moment(resources, reader, asked.at)
    contained = (asked.contains or "").casefold()
    names = [table for name, table in sorted(reader.known.tables_at(lsn).items()) if contained in str(name).casefold()]
    page = names[asked.offset : asked.offset + asked.limit]
    tables = [_summary(resources, reader, table, lsn, asked.at) for table in page]
    return models.TablesJson(at=at, total=len(names), tables=tables)


def _summary(
    resources: Resources, reader: Reader, table: HistoryTable, lsn: Lsn, at: str | None
) -> models.TableSummaryJson:
    name, reason = str(table.name_at(lsn)), reader.known.why_parked(table)
    try:
        reader.check(table, lsn, at)
        state = TableState(reader, table, lsn)
        with _opened(resources, state, request=False) as opened:
            count = _count(state, opened)
    except Exception as exc:
        problem = exc if isinstance(exc, AuditlakeError) else failure(exc)
        if problem is None:
            raise
        return models.TableSummaryJson(
            table=name, rows=None, columns=None, problem=problem.message, hint=problem.hint, parked=reason
        )
    columns = len(reader.columns_at(table, lsn))
    return models.TableSummaryJson(table=name, rows=count, columns=columns, problem=None, hint=None, parked=reason)


@contextmanager
def _opened(resources: Resources, state: TableState, *, request: bool = True) -> Iterator[Callable[[], OpenState]]:
    """Yield a function that opens a state at its first call in the block, and returns the same one at every other."""
    found: list[OpenState] = []
    with ExitStack() as stack:

        def opened() -> OpenState:
            if not found:
                held = stack.enter_context(resources.held.using(state.reader, state.held_rows, request=request))
                found.append(OpenState(state, stack.enter_context(resources.cursor()), held))
            return found[0]

        yield opened


def _identity(state: TableState) -> tuple[Hashable, ...]:
    """Return what the rows of a state depend on: a new snapshot of a table may correct them at a past LSN, too."""
    return state.table.path, state.table.delta_version, state.lsn


def _count(state: TableState, opened: Callable[[], OpenState], where: tuple[Filter, ...] = ()) -> int:
    key = ("count", *_identity(state), where)
    return answers_of(state.reader.lake).get(key, lambda: opened().count(where), lambda _: 200)


def rows(resources: Resources, asked: OfRows) -> models.RowsJson:
    """Return a page of the rows of a table; raises BadUsage, NotAnswerable."""
    state, at = state_of(resources, asked.table, asked.at)
    if asked.limit > resources.limits.page_rows:
        raise BadUsage(f"limit is {asked.limit}, need at most {resources.limits.page_rows}", "Ask for several pages.")
    where = parse_filters(asked.where, state.by_name)
    selection = RowSelection(where, parse_order(asked.sort, state.by_name, state.key), asked.offset, asked.limit)

    key = ("rows", *_identity(state), selection)
    with _opened(resources, state) as opened:
        found = answers_of(state.reader.lake).get(key, lambda: opened().page(selection), lambda rows: rows.nbytes)
        count = _count(state, opened, where)
    room = Room()
    shown = room.fitting(_row_models(state, found))
    room.require(shown, "the first row", f"Ask for the rows after it (offset {asked.offset + 1}), or export the table.")
    return models.RowsJson(
        at=at,
        table=state.name,
        columns=[column_model(column) for column in state.columns],
        rows=shown,
        count=count,
        offset=asked.offset,
        limit=asked.limit,
        where=[str(each) for each in where],
        sort=asked.sort,
        cut=len(shown) < min(asked.limit, max(0, count - asked.offset)),
    )


def _row_models(state: TableState, found: pa.Table) -> Iterator[models.RowJson]:
    keys = [column.name for column in state.key]
    for row in found.to_pylist():
        yield models.RowJson(values=list(row.values()), key=[str(row[name]) for name in keys] if keys else None)


def neighbour(resources: Resources, asked: OfNeighbour) -> models.NeighbourJson:
    """Return the key of the row before or after a key, in the order of keys; raises BadUsage, NotAnswerable."""
    state, at = state_of(resources, asked.table, asked.at)
    with _opened(resources, state) as opened:
        found = opened().next_to(asked.key, forwards=asked.way == "next")
    key = None if found is None else next(_row_models(state, found)).key
    return models.NeighbourJson(at=at, table=state.name, key=key)


def facets(resources: Resources, asked: OfFacets) -> models.FacetsJson:
    """Return the most frequent values of a column."""
    state, at = state_of(resources, asked.table, asked.at)
    where = parse_filters(asked.where, state.by_name)
    column = column_named(asked.column, state.by_name)

    def counts() -> dict[str | None, int] | None:
        with _opened(resources, state) as opened:
            return opened().values_of(column, where)

    key = ("facets", *_identity(state), where, column.name)
    found = answers_of(state.reader.lake).get(key, counts, lambda counted: 100 * len(counted or ()) + 100)
    values = None
    if found is not None:
        ranked = sorted(found.items(), key=lambda item: (-item[1], item[0] is not None, item[0] or ""))
        values = Room().fitting(models.FacetJson(value=value, rows=count) for value, count in ranked[:_MOST_FACETS])
    distinct = None if found is None else len(found)
    return models.FacetsJson(at=at, table=state.name, column=column.name, distinct=distinct, values=values)


@dataclass(frozen=True, slots=True)
class Search:
    """A value searched for in some columns: for each, by its own name (`audit.columns_over_time`), one per type."""

    where: Mapping[str, Sequence[Filter]]

    def matches(self, values: Values) -> list[str]:
        """Return the columns of a row that match."""
        return [name for name in self.where if self.matches_text(name, values.get(name))]

    def matches_text(self, name: str, text: str | None) -> bool:
        """Return whether a value of a column matches."""
        wheres = self.where[name]
        return text is not None and any(w.text in text if w.operation.name == "has" else w.text == text for w in wheres)

    def sql_on_changes(self) -> str:
        """Return a condition that every change with a matching value fulfils."""
        parts = []
        for op, value in {(each.operation.name, each.text) for wheres in self.where.values() for each in wheres}:
            text = duckdb_literal(value)
            for side in ('"new"', '"old"'):
                whole = f"contains(array_to_string({side}, chr(31)), {text})"
                parts.append(whole if op == "has" else f"array_has({side}, {text})")
        return " or ".join(parts) or "false"


def find_rows(resources: Resources, asked: OfFind) -> models.FindsJson:
    """Find rows by a value that they have, or had in any version up to the moment; deleted rows first.

    Columns that the table does not have any more are searched too; those with a match are shown after the others.
    Raises BadUsage, NotAnswerable.
    """
    state, at = state_of(resources, asked.table, asked.at)
    search = _search(state, asked)
    matching = list(islice(_matching(resources, state, search, asked.limit + 1), asked.limit + 1))
    used = {name for last, _ in matching for name in search.matches(last.values)}
    shown = {state.own_name(column): column for column in state.columns}
    shown |= {column.name: column for column in state.table.columns if column.name in used - set(shown)}
    found = [_found(resources, state, search, shown, last, group) for last, group in matching]
    found.sort(key=lambda each: each.state == "exists")
    room = Room()
    fitting = room.fitting(found[: asked.limit])
    room.require(fitting, "the first row", "auditlake sql shows it, FOR SYSTEM_TIME ALL.")
    with noted() as notes:
        everything = Span(Lsn(0), state.lsn)
        state.reader.say_expired(state.table, everything, "values that only these had are not found")
    return models.FindsJson(
        at=at,
        table=state.name,
        columns=[column_model(column) for column in shown.values()],
        found=fitting,
        more=len(found) > len(fitting),
        notes=[*notes, *state.reader.known.missing(state.table.horizon, state.lsn, [state.table])],
    )


def _search(state: TableState, asked: OfFind) -> Search:
    types: dict[str, dict[str, Column]] = {}
    for column in state.table.columns:
        if (column.since or 0) <= state.lsn:
            types.setdefault(column.name, {})[column.stored] = column
    called = {state.own_name(column): column.name for column in state.columns}
    for column in state.columns:
        types.setdefault(state.own_name(column), {})[column.stored] = column
    wanted = [
        name
        for name in types
        if asked.column in {None, called.get(name)} or (asked.column == name and asked.column not in state.by_name)
    ]
    if not wanted and asked.column is not None:
        raise BadUsage(
            f"there is no column {asked.column} at this moment, and there was none",
            f"The columns are {', '.join(state.by_name)}.",
        )
    found = {name: list(_wheres(types[name].values(), asked)) for name in wanted}
    return Search({name: wheres for name, wheres in found.items() if wheres})


def _wheres(types: Iterable[Column], asked: OfFind) -> Iterator[Filter]:
    for column in types:
        contains = asked.contains and type_of(column).kind is Conversion.TEXT
        try:
            yield filter_on(column, signed("contains"), asked.value) if contains else text_filter(column, asked.value)
        except BadUsage:  # the value is not one of this type
            continue


_Matched = tuple[Version, Sequence[Version]]
"""The last version of a row that matches, and all its versions."""


def _matching(resources: Resources, state: TableState, search: Search, limit: int) -> Iterator[_Matched]:
    """Yield rows with a matching version, with own names, at most `limit`."""
    with resources.cursor() as cursor:
        rows = (_with_key if state.table.key else _without_key)(state, search, cursor, limit)
    yield from (each for versions in rows if (each := _matched(search, versions)))


def _with_key(
    state: TableState, search: Search, cursor: "DuckDBPyConnection", limit: int
) -> Iterable[Sequence[Version]]:
    """Return all versions of each row that may match."""
    overlay = _that_may_match(state, search, cursor)
    keys = state.keys(cursor, overlay, _conditions(state, search, overlay.table), limit)
    found: dict[Key, list[Version]] = {key: [] for key in keys}
    for version in versions_of(state.reader, state.table, keys, state.lsn) if keys else ():
        found[version.key].append(version)
    return found.values()


def _without_key(
    state: TableState, search: Search, cursor: "DuckDBPyConnection", limit: int
) -> Iterable[Sequence[Version]]:
    """Return the one version of each row that may match."""
    rows = state.versions(cursor, _conditions(state, search, state.overlay.table), limit)
    return [[_version(row, state.lsn)] for row in rows]


def _that_may_match(state: TableState, search: Search, cursor: "DuckDBPyConnection") -> Overlay:
    """Return the versions up to the moment; if few rows may match, of these alone: no others are folded.

    A value that a change did not send was in an earlier version of the row, perhaps under another key.
    """
    if (applied := state.applied) is None:
        return state.overlay
    keys = state.keys(cursor, applied, _conditions(state, search, applied.table), _FEW)
    names, span = tuple(column.name for column in state.table.key), Span(state.table.position, state.lsn)
    changes = list(changes_of(state.reader, state.table.name, span, search.sql_on_changes(), _FEW))
    if _FEW in {len(keys), len(changes)}:
        return state.overlay
    found = {*keys, *(key for each in changes for key in (each.key_before(names), each.key_after(names)))}
    return state.overlay_of(found) if found else applied


def _conditions(state: TableState, search: Search, table: HistoryTable) -> list[Condition]:
    """Return conditions on versions in the columns of `table`: each that matches meets one of them."""
    stored = {column.stored for column in table.columns}
    found = [where.sql() for wheres in search.where.values() for where in wheres if where.column.stored in stored]
    return [*found, *((f"_to_lsn < {since:d}", []) for since in _showing_missing(state, search))]


def _showing_missing(state: TableState, search: Search) -> Iterator[int]:
    """Yield the LSN at which each column was added whose missing value matches: no version that ended before has it."""
    for name, later in state.reader.later(state.table.name).items():
        if name in search.where and search.matches_text(name, later.missing):
            yield later.since


def _version(row: dict[str, Any], lsn: Lsn) -> Version:
    """Return a version of a table without a key."""
    end = row["_to_lsn"]
    begin = CommitMark(Lsn(row["_from_lsn"]), 0, "", None)
    values = {name: value for name, value in row.items() if name not in {"_from_lsn", "_to_lsn"}}
    return Version((), values, begin, None if end is None or end > lsn else CommitMark(Lsn(end), 0, "", None))


def _matched(search: Search, versions: Sequence[Version]) -> _Matched | None:
    """Return the last version of a row that matches, with all versions."""
    matching = [version for version in versions if search.matches(version.values)]
    return (matching[-1], versions) if matching else None


def _found(  # noqa: PLR0913, PLR0917 - what identifies the row
    resources: Resources,
    state: TableState,
    search: Search,
    shown: Mapping[str, Column],
    last: Version,
    versions: Sequence[Version],
) -> models.FoundJson:
    """Describe a row by its last matching version, in the columns that are shown, by their own names."""
    end = last.end
    return models.FoundJson(
        key=list(last.key) if state.table.key else None,
        state="exists" if any(version.end is None for version in versions) else "deleted",
        columns=[shown[name].name for name in search.matches(last.values)],
        values=[last.values.get(name) for name in shown],
        from_lsn=str(last.begin.lsn),
        from_time=_time(resources, last.begin),
        to_lsn=None if end is None else str(end.lsn),
        to_time=None if end is None else _time(resources, end),
        versions=len(versions),
    )


def _time(resources: Resources, mark: CommitMark) -> str | None:
    time_us = mark.time_us or resources.timeline.time_us(mark.lsn)
    return None if time_us is None else format_us(time_us)
