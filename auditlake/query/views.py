"""Plain SQL views over a lake, for engines that read Delta and know nothing of auditlake. Pure.

    live          `schema.table`: the open versions; `schema_versions.table`: every version with its period
    at one LSN    `schema.table`: the state there
    parametrised  `schema.table_as_of(lsn)`, `schema.table_at(time)`: the state at a moment given with each query

They read histories and nothing else: what is captured and not merged yet is not in them. So the live ones say what was
true at each table's own position, and the others are made only for LSNs up to which merging has come: there they are
exact, and stay so, whatever is merged later. Asked for another LSN, a parametrised one fails.

The first two have the columns of their moment. A parametrised one has all columns up to the table's position: of a
moment before a column was there it is NULL. A table without any has no view of its own, as no engine has such views;
its versions have one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditlake.errors import BadUsage
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS, HistoryTable, type_of
from auditlake.literals import standard_literal
from auditlake.lsn import Lsn
from auditlake.relation import Column, TableName

LSN_AT = ("auditlake", "lsn_at")
"""The function from a time to its LSN."""
_NO_END = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Functions:
    """How an engine makes a function of rows and one of a value, counts microseconds since 1970, and fails.

    `typed`: a parameter needs its type.
    """

    rows: str
    value: str
    micros: str
    fail: str
    typed: bool


@dataclass(frozen=True, slots=True)
class Engine:
    """How one engine spells things; `{}` stands for what is put in."""

    quote: str
    prelude: str
    table: str
    far_future: str
    functions: Functions | None

    def name(self, *parts: str) -> str:
        """Spell an identifier."""
        return ".".join(self.quote + part.replace(self.quote, 2 * self.quote) + self.quote for part in parts)


ENGINES = {
    "duckdb": Engine(
        quote='"',
        prelude="install delta;\nload delta;",
        table="delta_scan({text})",
        far_future="timestamptz '9999-12-31 00:00:00+00'",
        functions=Functions(
            rows="create or replace macro {name}({parameter}) as table\n{query}",
            value="create or replace macro {name}({parameter}) as\n{expression}",
            micros="epoch_us",
            fail="error({})",
            typed=False,
        ),
    ),
    "spark": Engine(
        quote="`",
        prelude="",
        table="delta.{path}",
        far_future="timestamp '9999-12-31 00:00:00Z'",
        functions=Functions(
            rows="create or replace function {name}({parameter}) returns table ({columns}) return\n{query}",
            value="create or replace function {name}({parameter}) returns bigint return\n{expression}",
            micros="unix_micros",
            fail="raise_error({})",
            typed=True,
        ),
    ),
    "trino": Engine(
        quote='"',
        prelude="-- in a catalog of the connector delta_lake, with delta.register-table-procedure.enabled = true",
        table="{registered}",
        far_future="timestamp '9999-12-31 00:00:00.000000 UTC'",
        functions=None,
    ),
}


@dataclass(frozen=True, slots=True)
class Reach:
    """One table and the LSN up to which its history alone is exact, inclusive."""

    table: HistoryTable
    upto: Lsn


def live_views(engine: Engine, tables: Sequence[HistoryTable], *, open_end: bool) -> Iterator[str]:
    """Yield the statements that make the live views; `open_end`: an open version ends in 9999 instead of NULL."""
    for table in tables:
        state = f"{engine.name('_part')} = '{OPEN_PART}'"
        source = _source(engine, table.columns_at(table.position))
        if source:
            yield from _view(engine, table.name, _query(engine, table, source, state))
        versions = TableName(f"{table.name.schema}_versions", table.name.table)
        columns = [*source, *_period(engine, open_end=open_end)]
        yield from _view(engine, versions, _query(engine, table, columns, None))


def views_at(engine: Engine, tables: Sequence[HistoryTable], lsn: Lsn) -> Iterator[str]:
    """Yield the statements that make the views of one moment."""
    for table in tables:
        state = _holds(engine, f"{lsn:d}")
        source = _source(engine, table.columns_at(lsn))
        if source:
            yield from _view(engine, table.name, _query(engine, table, source, state))


def functions_of(name: str) -> Functions:
    """Give what the engine called `name` needs for parametrised views.

    Raises BadUsage where it has none.
    """
    found = ENGINES[name].functions
    if found is None:
        raise BadUsage(f"{name} has no SQL function that gives rows", "Give --as-of WHEN: views of one moment.")
    return found


def parametrised(name: str, tables: Sequence[Reach]) -> Iterator[str]:
    """Yield the statements that make the parametrised views of the engine called `name`; raises as `functions_of`.

    Those of a time call LSN_AT, which must be there.
    """
    engine = ENGINES[name]
    for reach in tables:
        if not reach.table.columns_at(reach.table.position):
            continue
        yield f"create schema if not exists {engine.name(reach.table.name.schema)}"
        yield _function(name, reach, ("as_of", "_at_lsn", "bigint"), "_at_lsn")
        yield _function(name, reach, ("at", "_at_time", "timestamp"), f"{engine.name(*LSN_AT)}(_at_time)")


def _function(name: str, reach: Reach, signature: tuple[str, str, str], lsn: str) -> str:
    """A function of one parameter, which `lsn` is made of; `signature`: its name's end, the parameter, its type."""
    engine, functions, table = ENGINES[name], functions_of(name), reach.table
    suffix, parameter, kind = signature
    refusal = standard_literal(f"{table.name} is known from LSN {table.horizon} to {reach.upto:d}")
    fail = f"cast({functions.fail.format(refusal)} as boolean)"
    shown = table.columns_at(table.position)
    source = list(_while_there(engine, shown, lsn))
    known = f"case when {lsn} between {table.horizon} and {reach.upto:d} then false else {fail} end"
    # A row of its own that is always looked at: of a history, all files may be skipped, and the check with them.
    check = f"select {', '.join(['null'] * len(source))} where {known}"
    return functions.rows.format(
        name=engine.name(table.name.schema, f"{table.name.table}_{suffix}"),
        parameter=f"{parameter} {kind}" if functions.typed else parameter,
        columns=", ".join(f"{engine.name(column.stored)} {type_of(column).delta}" for column in shown),
        query=f"{_query(engine, table, source, _holds(engine, lsn))}\nunion all\n{check}",
    )


def registrations(tables: Sequence[HistoryTable]) -> Iterator[str]:
    """Yield what tells Trino where the tables are; it asks once for each."""
    trino = ENGINES["trino"]
    for table in tables:
        schema = f"{table.name.schema}_lake"
        yield f"create schema if not exists {trino.name(schema)}"
        location = standard_literal(table.path.as_uri())
        names = f"{standard_literal(schema)}, {standard_literal(table.name.table)}"
        yield f"call system.register_table({names}, {location})"


def _view(engine: Engine, name: TableName, query: str) -> Iterator[str]:
    yield f"create schema if not exists {engine.name(name.schema)}"
    yield f"create or replace view {engine.name(*name)} as\n{query}"


def _query(engine: Engine, table: HistoryTable, columns: Sequence[str], condition: str | None) -> str:
    path = str(table.path)
    source = engine.table.format(
        text=standard_literal(path),
        path=engine.name(path),
        registered=engine.name(f"{table.name.schema}_lake", table.name.table),
    )
    where = "" if condition is None else f"\n where {condition}"
    return f"select {', '.join(columns)}\n  from {source}{where}"


def _holds(engine: Engine, lsn: str) -> str:
    begin, end = engine.name("_from_lsn"), engine.name("_to_lsn")
    return f"{begin} <= {lsn} and ({end} is null or {end} > {lsn})"


def _source(engine: Engine, columns: Sequence[Column]) -> list[str]:
    return [engine.name(column.stored) for column in columns]


def _while_there(engine: Engine, columns: Sequence[Column], lsn: str) -> Iterator[str]:
    """The columns at any LSN: NULL in one of them before it was there."""
    for column in columns:
        name = engine.name(column.stored)
        if column.since is None:
            yield name
        else:
            yield f"case when {lsn} >= {column.since} then {name} end as {name}"


def _period(engine: Engine, *, open_end: bool) -> Iterator[str]:
    far = {"_to_lsn": f"{_NO_END}", "_to_time": engine.far_future} if open_end else {}
    for column, _ in PERIOD_COLUMNS:
        if column in far:
            yield f"coalesce({engine.name(column)}, {far[column]}) as {engine.name(column)}"
        elif column != "_part":
            yield engine.name(column)
