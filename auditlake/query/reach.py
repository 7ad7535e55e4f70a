"""How far each history alone is exact, and the script of views that keeps within it. Reads Delta without a JVM."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from auditlake.apply.tails import find_tails, open_log
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.query.clock import Clock, lsn_at
from auditlake.query.moments import Known, read_known, resolve, snapshot_times
from auditlake.query.selection import select_state
from auditlake.query.views import ENGINES, Reach, live_views, parametrised, registrations, views_at
from auditlake.query.when import When, parse_when


def reaches(known: Known) -> list[Reach]:
    """Say for each table up to which LSN its history is exact: its position, or all that is known without a tail."""
    log = open_log(known.lake)
    after = {table: table.position for table in known.tables.values()}
    tails = [] if log is None else find_tails(known.lake, log, after, known.positions.watermark)
    behind = {tail.table for tail in tails}
    last = known.positions.known_lsn
    return [Reach(t, Lsn(t.position if t in behind else max(t.position, last))) for t in known.tables.values()]


def merged_at(known: Known, when: When) -> Lsn:
    """Resolve a moment that the histories alone answer.

    Raises NotAnswerable where some table does not know it, or has not merged everything up to it.
    """
    lsn = resolve(known, when)
    for reach in reaches(known):
        select_state(known, reach.table, lsn, when)
        if lsn > reach.upto:
            raise NotAnswerable(
                f"asked for {reach.table.name} as of {lsn}, its history is merged up to {reach.upto}",
                "Run auditlake apply --until-current, then write the views again.",
            )
    return lsn


def clock(known: Known) -> Clock:
    """Say what a lake knows of times."""
    snapshots = [(taken_us, Lsn(lsn)) for lsn, taken_us in snapshot_times(known).items() if taken_us is not None]
    positions = known.positions
    return Clock(known.lake.transactions, positions.watermark, positions.current_us, snapshots)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which views: as of a WHEN, parametrised, or else live; `open_end` as in `live_views`."""

    as_of: str | None
    open_end: bool
    parametrised: bool


def view_script(lake: Lake, engine: str, choice: Choice) -> str:
    """Write the script that makes the views for one of `ENGINES`.

    Raises BadUsage, NotAnswerable.
    """
    known = read_known(lake)
    tables = list(known.tables.values())
    if choice.as_of is not None and choice.parametrised:
        raise BadUsage("--as-of and --parametrised exclude each other", "Give one of them, or neither.")
    if choice.parametrised:
        statements: Iterable[str] = [*lsn_at(engine, clock(known)), *parametrised(engine, reaches(known))]
    elif choice.as_of is not None:
        lsn = merged_at(known, parse_when(choice.as_of, datetime.now(UTC)))
        statements = views_at(ENGINES[engine], tables, lsn)
    else:
        statements = live_views(ENGINES[engine], tables, open_end=choice.open_end)
    before = registrations(tables) if engine == "trino" else ()
    unique = dict.fromkeys([*before, *statements])
    prelude = ENGINES[engine].prelude
    return "".join([f"{prelude}\n" if prelude else "", *(f"{statement};\n" for statement in unique)])
