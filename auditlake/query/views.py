"""Plain SQL views over a lake, for engines that read Delta and know nothing of auditlake. Pure.

    live          `schema.table`: the open versions; `schema_versions.table`: every version with its period
    at one LSN    `schema.table`: the state there
    parametrised  `schema.table_as_of(lsn)`: the state at an LSN given with each query

They read histories and nothing else: what is captured and not merged yet is not in them. So the live ones say what was
true at each table's own position, and the others are made only for LSNs up to which merging has come: there they are
exact, and stay so, whatever is merged later. Asked for another LSN, a parametrised one fails.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditlake.errors import BadUsage
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS, HistoryTable, type_of
from auditlake.lsn import Lsn
from auditlake.relation import TableName

_PARAMETER = "_at_lsn"
_NO_END = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Engine:
    """How one engine spells things; `{}` stands for what is put in."""

    quote: str
    prelude: str
    table: str
    far_future: str
    function: str | None

    def name(self, *parts: str) -> str:
        """Spell an identifier."""
        return ".".join(self.quote + part.replace(self.quote, 2 * self.quote) + self.quote for part in parts)


ENGINES = {
    "duckdb": Engine(
        quote='"',
        prelude="install delta;\nload delta;",
        table="delta_scan({text})",
        far_future="timestamptz '9999-12-31 00:00:00+00'",
        function="create or replace macro {name}({parameter}) as table\n{query}",
    ),
    "spark": Engine(
        quote="`",
        prelude="",
        table="delta.{path}",
        far_future="timestamp '9999-12-31 00:00:00Z'",
        function="create or replace function {name}({parameter} bigint) returns table ({columns}) return\n{query}",
    ),
    "trino": Engine(
        quote='"',
        prelude="-- in a catalog of the connector delta_lake, with delta.register-table-procedure.enabled = true",
        table="{registered}",
        far_future="timestamp '9999-12-31 00:00:00.000000 UTC'",
        function=None,
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
        yield from _view(engine, table.name, _query(engine, table, _source(engine, table), state))
        versions = TableName(f"{table.name.schema}_versions", table.name.table)
        columns = [*_source(engine, table), *_period(engine, open_end=open_end)]
        yield from _view(engine, versions, _query(engine, table, columns, None))


def views_at(engine: Engine, tables: Sequence[HistoryTable], lsn: Lsn) -> Iterator[str]:
    """Yield the statements that make the views of one moment."""
    for table in tables:
        state = _holds(engine, f"{lsn:d}")
        yield from _view(engine, table.name, _query(engine, table, _source(engine, table), state))


def functions(name: str, tables: Sequence[Reach]) -> Iterator[str]:
    """Yield the statements that make the parametrised views of the engine called `name`.

    Raises BadUsage where it has none.
    """
    engine = ENGINES[name]
    if engine.function is None:
        raise BadUsage(f"{name} has no SQL function that gives rows", "Give --as-of WHEN: views of one moment.")
    for reach in tables:
        table = reach.table
        yield f"create schema if not exists {engine.name(table.name.schema)}"
        known = f"{_PARAMETER} between {table.horizon} and {reach.upto:d}"
        refusal = _text(f"{table.name} is known from LSN {table.horizon} to {reach.upto:d}")
        fail = f"error({refusal})" if name == "duckdb" else f"cast(raise_error({refusal}) as boolean)"
        source = _source(engine, table)
        # A row of its own that is always looked at: of a history, all files may be skipped, and the check with them.
        check = f"select {', '.join(['null'] * len(source))} where case when {known} then false else {fail} end"
        yield engine.function.format(
            name=engine.name(table.name.schema, f"{table.name.table}_as_of"),
            parameter=_PARAMETER,
            columns=", ".join(f"{engine.name(column.stored)} {type_of(column).delta}" for column in table.columns),
            query=f"{_query(engine, table, source, _holds(engine, _PARAMETER))}\nunion all\n{check}",
        )


def registrations(tables: Sequence[HistoryTable]) -> Iterator[str]:
    """Yield what tells Trino where the tables are; it asks once for each."""
    trino = ENGINES["trino"]
    for table in tables:
        schema = f"{table.name.schema}_lake"
        yield f"create schema if not exists {trino.name(schema)}"
        location = _text(table.path.as_uri())
        yield f"call system.register_table({_text(schema)}, {_text(table.name.table)}, {location})"


def _view(engine: Engine, name: TableName, query: str) -> Iterator[str]:
    yield f"create schema if not exists {engine.name(name.schema)}"
    yield f"create or replace view {engine.name(*name)} as\n{query}"


def _query(engine: Engine, table: HistoryTable, columns: Sequence[str], condition: str | None) -> str:
    path = str(table.path)
    source = engine.table.format(
        text=_text(path),
        path=engine.name(path),
        registered=engine.name(f"{table.name.schema}_lake", table.name.table),
    )
    where = "" if condition is None else f"\n where {condition}"
    return f"select {', '.join(columns)}\n  from {source}{where}"


def _holds(engine: Engine, lsn: str) -> str:
    begin, end = engine.name("_from_lsn"), engine.name("_to_lsn")
    return f"{begin} <= {lsn} and ({end} is null or {end} > {lsn})"


def _source(engine: Engine, table: HistoryTable) -> list[str]:
    return [engine.name(column.stored) for column in table.columns]


def _period(engine: Engine, *, open_end: bool) -> Iterator[str]:
    far = {"_to_lsn": f"{_NO_END}", "_to_time": engine.far_future} if open_end else {}
    for column, _ in PERIOD_COLUMNS:
        if column in far:
            yield f"coalesce({engine.name(column)}, {far[column]}) as {engine.name(column)}"
        elif column != "_part":
            yield engine.name(column)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
