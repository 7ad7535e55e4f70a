"""Exported views: SQL scripts of plain views over a lake, for engines that read Delta without auditlake. No JVM.

    live            `schema.table`: the open versions; `schema_versions.table`: every version with its period
    at one LSN      `schema.table`: the state at that LSN
    parametrised    `schema.table_as_of(lsn)`, `schema.table_at(time)`: the state at an argument
    lsn_at(time)    the LSN to which a time resolves, as `moments.resolve` does it

V1. Views read histories only, never the tail in `changes`. So live views show each table at its own position, and the
    others are limited to LSNs up to which the table's history alone is exact (`reaches`), outside of gaps. Such an
    answer is exact and never changes, whatever is applied later; another moment raises an error. Renamed and dropped
    columns, and new names of tables, need not be applied: no row in the history depends on them (`_reshaped`).
V2. `lsn_at` reads `transactions` up to the watermark at generation time, and raises an error for later times. So its
    answers never change either.
V3. Live views and views at one LSN have the columns of their moment. A parametrised view has every column up to the
    table's position under its last name; before a column was added, and after it was dropped, it is NULL.
V4. A `char(n)` is shown without trailing blanks (`values.types`); the histories have its printed text.
V5. What has expired is not shown: a view of a moment raises an error once a version that its state may need has been
    removed (`Unexpired`). The check is a row of its own, after the rows: on the history, it would be skipped together
    with its files. An erased row may raise the error, too.
V6. A table without columns has no view of its own, because no engine has such views; its versions have one.
V7. No name ends a script early, or makes a client of the engine run a command: clients of Spark split a script at
    semicolons within backticks and remove what follows `--` there, so such a name is the literal of an `identifier`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo

from auditlake.apply.tails import Schemas, Tail, find_tails, open_log
from auditlake.delta.sql import read_log_at, select
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.column_names import columns_of_versions, shown_as
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS, HistoryTable, type_of
from auditlake.lake.history_files import is_open
from auditlake.lake.layout import Lake, path_segment
from auditlake.lsn import LAST_LSN, Lsn
from auditlake.query.exported_names import LSN_AT, Named, names_of_views, view_of_versions
from auditlake.query.system_time import select_state
from auditlake.relation import Column, TableName
from auditlake.sql_names import spark_script_identifier, spark_script_literal, standard_identifier, standard_literal
from auditlake.store.files import read_each
from auditlake.store.place import Place
from auditlake.temporal.as_of_predicate import as_of_sql, ends_after_sql
from auditlake.temporal.knowledge import Segment
from auditlake.temporal.moments import (
    Known,
    first_transaction_us,
    read_known,
    resolve,
    settled_us,
    snapshot_times,
    without_exact_lsn,
)
from auditlake.temporal.when import When, format_us, parse_when
from auditlake.values.escapes import visible
from auditlake.values.types import has_padded_elements, is_padded


@dataclass(frozen=True, slots=True)
class Functions:
    """An engine's SQL for functions, and microseconds since 1970; `typed`: parameters have types."""

    rows: str
    value: str
    micros: str
    typed: bool


@dataclass(frozen=True, slots=True)
class ViewDialect:
    """SQL dialect of one engine, as templates for `str.format`; `plain`: as in `exported_names.names_of_views`.

    `registers`: a view names a table that the script registers in the engine's catalog, not a path. `name` quotes an
    identifier of one or several parts.
    """

    name: Callable[..., str]
    literal: Callable[[str], str]
    prelude: str
    table: str
    far_future: str
    bare_elements: str
    error: str
    functions: Functions | None
    plain: bool = False
    registers: bool = False

    def value(self, column: Column) -> str:
        """Return SQL for the value of a stored column, without the trailing blanks of `char(n)`."""
        stored = self.name(column.stored)
        if is_padded(column.type_oid):
            return f"trim(trailing ' ' from {stored})"
        return self.bare_elements.format(stored) if has_padded_elements(column.type_oid) else stored

    def fail(self, words: str) -> str:
        """Return SQL for a condition that raises an error."""
        return f"cast({self.error.format(self.literal(words))} as boolean)"


ENGINES = {
    "duckdb": ViewDialect(
        name=standard_identifier,
        literal=standard_literal,
        prelude="install delta;\nload delta;",
        table="delta_scan({text})",
        far_future="timestamptz '9999-12-31 00:00:00+00'",
        bare_elements="list_transform({}, lambda each: trim(trailing ' ' from each))",
        error="error({})",
        functions=Functions(
            rows="create or replace macro {name}({parameter}) as table\n{query}",
            value="create or replace macro {name}({parameter}) as\n{expression}",
            micros="epoch_us",
            typed=False,
        ),
    ),
    "spark": ViewDialect(
        name=spark_script_identifier,
        literal=spark_script_literal,
        prelude="",
        table="{path}",
        far_future="timestamp '9999-12-31 00:00:00Z'",
        bare_elements="transform({}, each -> trim(trailing ' ' from each))",
        error="raise_error({})",
        functions=Functions(
            rows="create or replace function {name}({parameter}) returns table ({columns}) return\n{query}",
            value="create or replace function {name}({parameter}) returns bigint return\n{expression}",
            micros="unix_micros",
            typed=True,
        ),
        plain=True,
    ),
    "trino": ViewDialect(
        name=standard_identifier,
        literal=standard_literal,
        prelude="-- in a catalog of the connector delta_lake, with delta.register-table-procedure.enabled = true",
        table="{registered}",
        far_future="timestamp '9999-12-31 00:00:00.000000 UTC'",
        bare_elements="transform({}, each -> trim(trailing ' ' from each))",
        error="fail({})",
        functions=None,
        registers=True,
    ),
}


@dataclass(frozen=True, slots=True)
class Unexpired:
    """How it shows that every version is there that ended after an LSN: by the first such end, or how many are open.

    Versions expire in the order of their ends. As long as there is one that ended up to some LSN, all that ended later
    are there.
    """

    after: Lsn
    first_end: Lsn | None
    opened: int


@dataclass(frozen=True, slots=True)
class Reach:
    """One table, the name of its views, the LSN up to which its history alone is exact, inclusive, and its gaps.

    `unknown` has the segments that are on record, also after which moment the table is parked.
    """

    table: HistoryTable
    upto: Lsn
    name: TableName
    kept: Unexpired
    unknown: Sequence[Segment] = ()


def live_views(engine: ViewDialect, tables: Named, *, open_end: bool) -> Iterator[str]:
    """Yield the statements that make the live views; `open_end`: an open version ends in 9999 instead of NULL."""
    for name, table in tables.items():
        state = f"{engine.name('_part')} = '{OPEN_PART}'"
        source = _source(engine, table.columns_at(table.position))
        if source:
            yield from _view(engine, name, _query(engine, table, source, state))
        versions = view_of_versions(name)
        physical, names = columns_of_versions(table.columns, table.position)
        every = [_named(engine, engine.value(column), names[column.stored]) for column in physical]
        columns = [*every, *_period(engine, open_end=open_end)]
        yield from _view(engine, versions, _query(engine, table, columns, None))


def views_at(engine: ViewDialect, tables: Named, lsn: Lsn, kept: Mapping[HistoryTable, Unexpired]) -> Iterator[str]:
    """Yield the statements that make the views of one moment."""
    for name, table in tables.items():
        source = _source(engine, table.columns_at(lsn))
        if source:
            found, lost = _witness(engine, table, kept[table])
            known = f"case when {lost} then {_gone(engine, name)} else false end"
            state = _query(engine, table, source, _as_of(engine, lsn))
            yield from _view(engine, name, f"{state}\nunion all\n{_check(len(source), found, known)}")


def views_by_name(known: Known, engine: ViewDialect) -> dict[TableName, HistoryTable]:
    """Return the tables by the names of their views; a dropped table's view shows its last rows."""
    names = dict.fromkeys(table.last_name for table in known.tables.values())
    present = {name: known.named(name, known.last_lsn) for name in names}
    named = {table.name for table in present.values()}
    dropped = [table for table in known.tables.values() if table.name not in named]
    return _names(engine, known, present, dropped)


def _names(
    engine: ViewDialect, known: Known, present: Named, dropped: Sequence[HistoryTable] = ()
) -> dict[TableName, HistoryTable]:
    others = map(_registered, known.tables.values()) if engine.registers else ()
    return names_of_views(present, dropped, plain=engine.plain, others=others)


def functions_of(name: str) -> Functions:
    """Return the templates for parametrised views in an engine; raises BadUsage if it has none."""
    found = ENGINES[name].functions
    if found is None:
        raise BadUsage(f"{name} has no SQL table functions", "Give --as-of WHEN: views of one moment.")
    return found


def parametrised(name: str, tables: Sequence[Reach]) -> Iterator[str]:
    """Yield the statements that make the parametrised views for the engine named `name`; raises as `functions_of`.

    The functions of a time call LSN_AT, which must exist.
    """
    engine = ENGINES[name]
    for reach in tables:
        if not reach.table.columns_at(reach.table.position):
            continue
        yield f"create schema if not exists {engine.name(reach.name.schema)}"
        yield _function(name, reach, ("as_of", "_at_lsn", "bigint"), "_at_lsn")
        yield _function(name, reach, ("at", _PARAMETER, "timestamp"), f"{engine.name(*LSN_AT)}({_PARAMETER})")


def _function(name: str, reach: Reach, signature: tuple[str, str, str], lsn: str) -> str:
    """Return a function of one parameter; `lsn` is an expression of it; `signature` is name suffix, parameter, type."""
    engine, functions, table = ENGINES[name], functions_of(name), reach.table
    suffix, parameter, kind = signature
    columns, names = columns_of_versions(table.columns, table.position)
    source = list(_while_there(engine, columns, names, lsn))
    time_us = f"{functions.micros}({_PARAMETER})" if parameter == _PARAMETER else None
    found, lost = _witness(engine, table, reach.kept, lsn)
    check = _check(len(source), found, _unless_known(engine, reach, lsn, time_us, lost))
    return functions.rows.format(
        name=engine.name(reach.name.schema, f"{reach.name.table}_{suffix}"),
        parameter=f"{parameter} {kind}" if functions.typed else parameter,
        columns=", ".join(f"{engine.name(names[column.stored])} {type_of(column).delta}" for column in columns),
        query=f"{_query(engine, table, source, _as_of(engine, lsn))}\nunion all\n{check}",
    )


def _unless_known(engine: ViewDialect, reach: Reach, lsn: str, time_us: str | None, lost: str) -> str:
    """Return a condition that is false where the table is known, and raises an error elsewhere, also for NULL."""

    def missing(each: Segment) -> str:
        if each.upto is None:
            return f"{reach.name} is known up to LSN {each.after:d}: {visible(each.reason)}"
        between = f"between LSN {each.after:d} and {each.upto:d}"
        return f"the changes of {reach.name} {between} are missing: {visible(each.reason)}"

    first, last = reach.table.horizon, reach.upto
    within = f"{lsn} between {first:d} and {last:d}"
    unknown = [f"when {each.contains_sql(lsn, time_us)} then {engine.fail(missing(each))} " for each in reach.unknown]
    elsewhere = engine.fail(f"{reach.name} is known from LSN {first:d} to {last:d}")
    gone = f"when {within} and {lost} then {_gone(engine, reach.name)} "
    return f"case {''.join(unknown)}{gone}when {within} then false else {elsewhere} end"


def _witness(engine: ViewDialect, table: HistoryTable, kept: Unexpired, lsn: str | None = None) -> tuple[str, str]:
    """Return a query of one value, `kept`, and the condition on it that versions may have been removed.

    With an expression of an LSN, only of those that ended after it.
    """
    begin, end = engine.name("_from_lsn"), engine.name("_to_lsn")
    if kept.first_end is None:
        there = f"{begin} <= {table.position:d} and {ends_after_sql(kept.after, to_lsn=end)}"
        return _query(engine, table, ["count(*) as kept"], there), f"kept <> {kept.opened:d}"
    last = f"{kept.first_end:d}" if lsn is None else f"greatest({kept.first_end:d}, {lsn})"
    return _query(engine, table, [f"min({end}) as kept"], f"{end} <= {last}"), "kept is null"


def _check(columns: int, found: str, condition: str) -> str:
    """Return a query of no rows, which raises the errors of a condition."""
    return f"select {', '.join(['null'] * columns)} from (\n{found}) as versions\n where {condition}"


def _gone(engine: ViewDialect, name: TableName) -> str:
    return engine.fail(f"versions of {name} have been removed since this was generated: run auditlake views again")


def registrations(tables: Sequence[HistoryTable]) -> Iterator[str]:
    """Yield the statements that register the tables in Trino."""
    trino = ENGINES["trino"]
    for table in tables:
        schema, name = _registered(table)
        yield f"create schema if not exists {trino.name(schema)}"
        location = trino.literal(table.path.as_uri())
        yield f"call system.register_table({trino.literal(schema)}, {trino.literal(name)}, {location})"


def _registered(table: HistoryTable) -> TableName:
    """Return the name of a history in Trino: that of its folder, in which case does not distinguish names."""
    return TableName(f"{path_segment(table.name.schema)}_lake", path_segment(table.name.table))


def _view(engine: ViewDialect, name: TableName, query: str) -> Iterator[str]:
    yield f"create schema if not exists {engine.name(name.schema)}"
    yield f"create or replace view {engine.name(*name)} as\n{query}"


def _query(engine: ViewDialect, table: HistoryTable, columns: Sequence[str], condition: str | None) -> str:
    path = str(table.path)
    source = engine.table.format(
        text=engine.literal(path),
        path=engine.name("delta", path),
        registered=engine.name(*_registered(table)),
    )
    where = "" if condition is None else f"\n where {condition}"
    return f"select {', '.join(columns)}\n  from {source}{where}"


def _as_of(engine: ViewDialect, lsn: Lsn | str) -> str:
    return as_of_sql(lsn, from_lsn=engine.name("_from_lsn"), to_lsn=engine.name("_to_lsn"))


def _source(engine: ViewDialect, columns: Sequence[Column]) -> list[str]:
    names = shown_as(columns)
    return [_named(engine, engine.value(column), names[column.stored]) for column in columns]


def _named(engine: ViewDialect, expression: str, name: str) -> str:
    return expression if expression == engine.name(name) else f"{expression} as {engine.name(name)}"


def _while_there(engine: ViewDialect, columns: Sequence[Column], names: Mapping[str, str], lsn: str) -> Iterator[str]:
    """Yield the columns for any LSN; a column is NULL before it was added and after it was dropped."""
    for column in columns:
        limits = [f"{lsn} >= {column.since:d}"] if column.since is not None else []
        limits += [f"{lsn} < {column.until:d}"] if column.until is not None else []
        value = engine.value(column)
        if limits:
            value = f"case when {' and '.join(limits)} then {value} end"
        yield _named(engine, value, names[column.stored])


def _period(engine: ViewDialect, *, open_end: bool) -> Iterator[str]:
    far = {"_to_lsn": f"{LAST_LSN:d}", "_to_time": engine.far_future} if open_end else {}
    for column, _ in PERIOD_COLUMNS:
        if column in far:
            yield f"coalesce({engine.name(column)}, {far[column]}) as {engine.name(column)}"
        elif column != "_part":
            yield engine.name(column)


_PARAMETER = "_at_time"


@dataclass(frozen=True, slots=True)
class Clock:
    """Source of the moments of a lake: path of `transactions`, watermark, currency, and snapshots.

    Times are microseconds since 1970; `snapshots` are pairs of time and LSN. `first_us` is the time of the first
    transaction, `expired` whether earlier ones have expired, `inexact` has the periods of `without_exact_lsn`. The
    function refuses a later time for which it finds no transaction: those have expired since it was generated.
    """

    transactions: Place
    watermark: Lsn
    current_us: int
    snapshots: Sequence[tuple[int, Lsn]]
    first_us: int | None = None
    expired: bool = False
    inexact: Sequence[tuple[int | None, int]] = ()


def lsn_at(name: str, clock: Clock) -> Sequence[str]:
    """Return the statements that create LSN_AT for the engine named `name`; raises as `functions_of`."""
    engine, functions = ENGINES[name], functions_of(name)
    micros = f"{functions.micros}({_PARAMETER})"
    path = str(clock.transactions)
    source = engine.table.format(text=engine.literal(path), path=engine.name("delta", path))
    commit_lsn, time, mono = map(engine.name, ("lsn", "time", "time_mono"))
    inexact = engine.error.format(engine.literal("the last commit before this time has a time far ahead of the clock"))
    exact = f"coalesce(max(case when {time} <= {mono} then {commit_lsn} end), 0)"  # `moments` has why
    last = (
        f"select case when max({commit_lsn}) > {exact} then {inexact} else max({commit_lsn}) end from {source}"
        f" where {commit_lsn} <= {clock.watermark:d} and {mono} <= {_PARAMETER}"
    )
    snapshots = [f"case when {micros} >= {taken_us} then {lsn:d} end" for taken_us, lsn in clock.snapshots]
    gone = engine.error.format(engine.literal("the transactions of this time have expired"))
    early_gone = gone if clock.expired else "cast(null as bigint)"
    commit = (
        early_gone
        if clock.first_us is None
        else f"case when {micros} >= {clock.first_us} then coalesce(({last}), {gone}) else {early_gone} end"
    )
    found = f"greatest({', '.join([commit, 'cast(null as bigint)', *snapshots])})"
    early = engine.error.format(engine.literal("this lake begins later"))
    late = engine.error.format(engine.literal(f"this lake knew every commit up to {format_us(clock.current_us)}"))
    went_back = engine.error.format(engine.literal("the source's clock went back, so this time has no exact LSN"))
    jumps = "".join(
        f"\n when {micros} between {0 if first is None else first} and {until - 1} then {went_back}"
        for first, until in clock.inexact
    )
    # One case expression: with two, the engine would scan the transactions twice.
    expression = f"case when {micros} > {clock.current_us} then {late}{jumps}\n else coalesce({found}, {early}) end"
    parameter = f"{_PARAMETER} timestamp" if functions.typed else _PARAMETER
    return (
        f"create schema if not exists {engine.name(LSN_AT[0])}",
        functions.value.format(name=engine.name(*LSN_AT), parameter=parameter, expression=expression),
    )


def _tails(known: Known) -> list[Tail]:
    """Return the changes of each table that its history does not have, of rows or of its shape."""
    log = open_log(known.lake)
    if log is None:
        return []
    after = {table: table.position for table in known.tables.values()}
    upto = known.changes_up_to(known.positions.known_lsn)
    return find_tails(known.lake, log, after, upto, Schemas(known.versions, known.answers))


def _reshaped(known: Known) -> Known:
    """Return the state with each table in its present columns and names, if only these changed since its position.

    A table with an added column stays as it is, because no history has the column's values in existing rows yet; so
    does a parked table.
    """
    now = {}
    for tail in _tails(known):
        is_exact = tail.shape is None and tail.refusal is None and not tail.is_cut and not tail.lacking
        if is_exact and tail.table.name not in known.parked:
            followed = tail.followed
            table = replace(tail.table, columns=followed.physical, names=followed.names, position=tail.upto)
            now[table.name] = table
    return replace(known, tables={**known.tables, **now}) if now else known


def exact_up_to(known: Known) -> dict[HistoryTable, Lsn]:
    """Return up to which LSN each history alone is exact: its position, or all that is known if it has no tail."""
    behind = {tail.table for tail in _tails(known)}
    last = {table: known.timeline(table).last for table in known.tables.values()}
    return {table: min(lsn, table.position) if table in behind else lsn for table, lsn in last.items()}


def reaches(known: Known, engine: ViewDialect) -> list[Reach]:
    """Return the tables with the names of their views."""
    upto = exact_up_to(known)
    named = views_by_name(known, engine)
    kept = kept_now(known.lake, {table: table.horizon for table in named.values()})
    return [
        Reach(table, upto[table], name, kept[table], known.timeline(table).recorded) for name, table in named.items()
    ]


def kept_now(lake: Lake, after: Mapping[HistoryTable, Lsn]) -> dict[HistoryTable, Unexpired]:
    """Return for each table how it shows that no version is lost that ended after an LSN. Raises as `read_log_at`."""
    return dict(zip(after, read_each(lake.root, lambda each: _kept(*each), list(after.items())), strict=True))


def _kept(table: HistoryTable, after: Lsn) -> Unexpired:
    found = replace(read_log_at(table.path, table.delta_version, table.etag), gains_columns=True)
    ended = found.within(_to_lsn=(after + 1, None))
    # Of a file without deleted rows, the last end is that of a row.
    lasts = (bounds[1] for file in ended.files if not file.is_marked and (bounds := file.bounds("_to_lsn")))
    first = ended.within(_to_lsn=(after + 1, min(lasts, default=None)))
    (end,) = select(f"select min(_to_lsn) as lsn from t where _to_lsn > {after:d}", t=first)["lsn"].to_pylist()
    if end is not None:
        return Unexpired(after, Lsn(end), 0)
    (opened,) = select("select count(*) as n from t where _to_lsn is null", t=found.which(is_open))["n"].to_pylist()
    return Unexpired(after, None, opened)


def merged_at(known: Known, when: When) -> Lsn:
    """Resolve a moment at which every history alone is exact; raises NotAnswerable if there is none."""
    lsn = resolve(known, when)
    upto = exact_up_to(known)
    for table in known.tables_at(lsn).values():
        select_state(known, table, lsn, when)
        if lsn > upto[table]:
            raise NotAnswerable(
                f"asked for {table.name} as of {lsn}, its history is applied up to {upto[table]}",
                "Run auditlake apply --until-current, then generate the views again. A column that was added after the"
                " last captured commit is applied with the next one.",
            )
    return lsn


def clock(known: Known) -> Clock:
    """Return what a lake knows of times."""
    snapshots = [(taken_us, Lsn(lsn)) for lsn, taken_us in snapshot_times(known).items() if taken_us is not None]
    positions, first_us = known.positions, first_transaction_us(known)
    expired = bool(known.expired_transactions)
    current_us, inexact = settled_us(known), without_exact_lsn(known)
    return Clock(known.lake.transactions, positions.watermark, current_us, snapshots, first_us, expired, inexact)


@dataclass(frozen=True, slots=True)
class Choice:
    """Kind of views: as of a WHEN, parametrised, or else live; `open_end` as in `live_views`."""

    as_of: str | None
    open_end: bool
    parametrised: bool
    zone: tzinfo = UTC


def view_script(lake: Lake, engine: str, choice: Choice) -> str:
    """Return the script that creates the views in one of `ENGINES`; raises BadUsage, NotAnswerable."""
    known, dialect = _reshaped(read_known(lake)), ENGINES[engine]
    tables = list(known.tables.values())
    if choice.as_of is not None and choice.parametrised:
        raise BadUsage("--as-of and --parametrised exclude each other", "Give one of them, or neither.")
    if choice.parametrised:
        statements: Iterable[str] = [*lsn_at(engine, clock(known)), *parametrised(engine, reaches(known, dialect))]
    elif choice.as_of is not None:
        lsn = merged_at(known, parse_when(choice.as_of, datetime.now(choice.zone)))
        named = _names(dialect, known, known.tables_at(lsn))
        statements = views_at(dialect, named, lsn, kept_now(lake, dict.fromkeys(named.values(), lsn)))
    else:
        statements = live_views(dialect, views_by_name(known, dialect), open_end=choice.open_end)
    before = registrations(tables) if dialect.registers else ()
    unique = dict.fromkeys([*before, *statements])
    prelude = dialect.prelude
    return "".join([f"{prelude}\n" if prelude else "", *(f"{statement};\n" for statement in unique)])
