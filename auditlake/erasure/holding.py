"""Add and release legal holds, after checking that they match something (`lake.holds` records them).

A pattern must match a table now, and a key a row that exists or existed: a hold that matches
nothing would silently protect nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from auditlake.audit.changes import changes_of, in_changes
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.row_history import Book
from auditlake.audit.row_key import Key, parse_key
from auditlake.erasure.matching import require_one_text
from auditlake.errors import BadUsage, ConfigError, NotAnswerable
from auditlake.failpoints import After, reach
from auditlake.instants import now_us, to_us
from auditlake.lake.histories import list_histories
from auditlake.lake.history import HistoryTable
from auditlake.lake.holds import ADDED, NAME, RELEASED, HoldEvent, holds_in_force, matches, record_event
from auditlake.lake.key_tokens import make_secret, token
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.lake.stage_lock import Stage, hold
from auditlake.lsn import Lsn
from auditlake.messages import say
from auditlake.temporal.when import AtTime, format_us, parse_when


@dataclass(frozen=True, slots=True)
class WantedHold:
    """A hold as it was typed."""

    name: str
    pattern: str
    key: tuple[str, ...]
    until: str | None
    reason: str
    by: str


def add_hold(lake: Lake, wanted: WantedHold, now: datetime) -> list[HistoryTable]:
    """Record a hold, and return the tables that it covers now; raises BadUsage, NotAnswerable, LakeConflict."""
    require_manifest(lake)
    if not NAME.fullmatch(wanted.name):
        raise BadUsage(f"{wanted.name!r} is no name for a hold", "Use letters, digits, '.', '_' and '-'; at most 64.")
    require_reason(wanted.reason)
    until_us = _end(wanted.until, now)
    with hold(lake, "hold add", Stage.ERASE):
        if wanted.name in {each.name for each in holds_in_force(lake)}:
            raise BadUsage(f"there is a hold {wanted.name} already", "Release it first, or choose another name.")
        tables = [t for t in list_histories(lake) if any(matches(wanted.pattern, n) for n in t.known_as)]
        if not tables:
            raise BadUsage(f"no table of this lake matches {wanted.pattern}", "auditlake status lists the tables.")
        key = _token(lake, tables, wanted, now) if wanted.key else None
        event = HoldEvent(ADDED, wanted.name, wanted.pattern, key, until_us, wanted.reason, wanted.by, now_us())
        record_event(lake, event)
        reach(After.HOLD_RECORDED)
    return tables


def release_hold(lake: Lake, name: str, reason: str, by: str) -> None:
    """Record that a hold ends; raises BadUsage without one, LakeConflict while rows are being removed."""
    require_manifest(lake)
    require_reason(reason)
    with hold(lake, "hold release", Stage.ERASE):
        held = {each.name: each for each in holds_in_force(lake)}
        if name not in held:
            known = f"In force: {', '.join(held)}." if held else "None is in force."
            raise BadUsage(f"there is no hold {name} in force", known)
        event = held[name]
        record_event(lake, HoldEvent(RELEASED, name, event.tables, event.token, None, reason, by, now_us()))
        reach(After.HOLD_RECORDED)


def require_reason(reason: str) -> None:
    """Require a reason; raises BadUsage."""
    if not reason.strip():
        raise BadUsage("the reason is missing", "Give --reason TEXT; it is recorded.")


def require_not_held(lake: Lake, table: HistoryTable, tokens: Collection[str] | None = None, instead: str = "") -> None:
    """Require that no hold covers rows of a table, those with these tokens or any; read under the lock of ERASE.

    Raises ConfigError, which names the hold, and what can be done `instead`.
    """
    for each in holds_in_force(lake):
        if each.covers(table, tokens):
            end = "" if each.until_us is None else f", until {format_us(each.until_us)}"
            raise ConfigError(
                f"{table.label} is held by {each.name} since {format_us(each.time_us)}{end}: {each.reason}",
                f"{instead}When the hold may end: auditlake hold release {each.name} --reason TEXT.",
            )


def _has_changes(reader: Reader, table: HistoryTable, key: Key, upto: Lsn) -> bool:
    """Return whether a row had a key within a transaction or in a gap, so that only `changes` has it."""
    if reader.changes is None:
        return False
    condition = in_changes(table, reader.relations_of(table), [key])
    return next(iter(changes_of(reader, table.name, Span(Lsn(0), upto), condition)), None) is not None


def _end(until: str | None, now: datetime) -> int | None:
    if until is None:
        return None
    moment = parse_when(until, now)
    if not isinstance(moment, AtTime):
        raise BadUsage(f"{until} is no time at which a hold could end", "Write --until 2027-12-31.")
    if moment.time_us <= to_us(now):
        raise BadUsage(f"{until} is not in the future", "Leave out --until for a hold that ends when it is released.")
    return moment.time_us


def _token(lake: Lake, tables: list[HistoryTable], wanted: WantedHold, now: datetime) -> str:
    if len(tables) > 1:
        names = ", ".join(table.label for table in tables)
        raise BadUsage(f"--key is of one table, and {wanted.pattern} matches {names}", "Name one table.")
    (table,) = tables
    reader = Reader(lake, now)
    upto = reader.known.last_lsn
    require_one_text(keyed := reader.keyed_at(reader.known.tables[table.name], upto))
    given = parse_key(keyed, wanted.key)
    if not Book(reader, keyed, upto).life(given.key) and not _has_changes(reader, keyed, given.key, upto):
        given.check_absent()
        raise NotAnswerable(f"no row of {table.label} ever had this key", "auditlake row shows what is known of a row.")
    if given.other_texts:
        say(f"equal values can have another text ({given.columns_in_doubt}): hold the rows under each of these, too")
    return token(make_secret(lake), table.name, given.key)
