"""Status of a lake: positions, lag, the slot's health, the tables; and the verdict on it. Reads only, starts no JVM.

`read_status` needs only the lake; facts of PostgreSQL (retained WAL, the slot) are added if it can be reached. `judge`
returns the verdict: one sentence, the remedy, and the exit code of `status --check`:

    0  healthy, or behind while capture runs
    3  lake or settings need attention: nothing captures, a table is parked or has no history
    4  the source cannot be reached
    5  slot or source is not the one that the lake records, or PostgreSQL is about to invalidate the slot
    6  the folders of the lake do not belong together

The first cause that applies decides, the most severe first. A lake that cannot be read raises LakeUnusable (6).
"""

import time
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import psycopg

from auditlake.capture.preconditions import check_slot, current_manifest
from auditlake.capture.publication_watch import PublicationWatch
from auditlake.errors import AuditlakeError, ConfigError, LakeUnusable, SourceUnreachable, WrongSource
from auditlake.lake.belonging import require_together
from auditlake.lake.erasures import Erasure, read_erasures, read_returned
from auditlake.lake.histories import histories_of
from auditlake.lake.history import HistoryTable
from auditlake.lake.holds import HoldEvent, holds_in_force
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, require_manifest
from auditlake.lake.parking import Parked, read_saved
from auditlake.lake.positions import CLOCK_TOLERANCE_US, Positions, read_positions
from auditlake.lake.records import CaptureState, LastBatch, read_capture_state, read_last_batch, read_recorded
from auditlake.ledger.blocks import read_last_block
from auditlake.lsn import Lsn
from auditlake.relation import SYSTEM_SCHEMA, TableName
from auditlake.source.catalog import Source, choose, read_tables
from auditlake.source.connection import Row, connect
from auditlake.source.ddl_trigger import DdlTrigger, read_ddl_trigger
from auditlake.source.publication import read_publication
from auditlake.source.server import clock_skew_s
from auditlake.source.slot import SlotReader, SlotState, read_reader, read_slot
from auditlake.temporal.moments import with_pending_names
from auditlake.temporal.when import format_age, format_us


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """Facts reported by the source; `lag_bytes` is WAL that capture has not acknowledged.

    `refusal` is the error with which a capture would fail now. Tables without a history are `new` if the publication
    carries them, else `unfollowed`.
    """

    slot: SlotState | None
    reader: SlotReader | None
    lag_bytes: int | None
    refusal: AuditlakeError | None
    new: tuple[TableName, ...]
    unfollowed: tuple[TableName, ...]
    clock_skew_s: float
    """Seconds by which the source's clock is ahead of ours."""
    ddl_trigger: DdlTrigger


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table's horizon and position, commit LSNs, both inclusive; `parked` if it is not followed any more.

    `name` is the table's name now, or its last one, `history` that of its history.
    """

    name: str
    history: str
    horizon: Lsn
    position: Lsn
    parked: Parked | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """A lake at one moment. `source` is None if it was not asked; `refusal` is why, None if no source is set.

    If it was asked, `refusal` is the error with which a capture would fail. `capture` is the state that the last
    capture recorded; a killed one recorded no end.
    """

    manifest: Manifest
    positions: Positions | None
    tables: tuple[TableStatus, ...]
    capture: CaptureState | None
    source: SourceStatus | None
    refusal: AuditlakeError | None
    read_at_s: float
    """When it was read, in seconds since 1970, by this machine's clock."""
    sealed: Lsn | None = None
    """Commit LSN up to which the ledger is sealed; None without a ledger."""
    holds: tuple[HoldEvent, ...] = ()
    """The legal holds in force."""
    last_batch: LastBatch | None = None
    """The engine of the last batch of apply; None if there was none."""
    unfinished: tuple[Erasure, ...] = ()
    """The erasures that were killed, or are under way."""
    returned: tuple[tuple[Erasure, Lsn], ...] | None = ()
    """The erased rows that the last search found in the lake again, and since when; None if nothing searched."""
    mixed: LakeUnusable | None = None
    """Why the folders of the lake do not belong together, so that every question is refused; None if they do."""

    @property
    def problem(self) -> str | None:
        """The refusal as text, or that no source is set."""
        if self.source is None and self.refusal is None:
            return "no source is set"
        return None if self.refusal is None else self.refusal.message

    @property
    def parked(self) -> Sequence[tuple[str, Parked]]:
        """The tables that are parked, without dropped ones, each with its record."""
        return [(t.name, t.parked) for t in self.tables if t.parked is not None and not t.parked.ended]

    @property
    def current_age_s(self) -> float | None:
        """Seconds from the moment up to which capture is known to be current until the status was read."""
        if self.positions is None or not self.positions.current_us:
            return None
        return max(0.0, self.read_at_s - self.positions.current_us / 1_000_000)

    def of_tables(self, names: Container[str]) -> "Status":
        """Return the part about capture, and about the tables whose name and whose history's name are among these.

        The source is left out, whose figures are of all tables; so are holds and texts that may name others.
        """
        erased = tuple(each for each in self.unfinished if str(each.name) in names)
        returned = None if self.returned is None else tuple(e for e in self.returned if str(e[0].name) in names)
        return replace(
            self,
            tables=tuple(table for table in self.tables if table.name in names and table.history in names),
            capture=None if self.capture is None else replace(self.capture, problem=None, remedy=None),
            source=None,
            refusal=None,
            holds=(),
            last_batch=None,
            unfinished=erased,
            returned=returned,
        )


def read_status(lake: Lake, conninfo: str | None) -> Status:
    """Read the status of a lake, and of its source if `conninfo` reaches it; raises LakeUnusable without a lake."""
    manifest = require_manifest(lake)
    block, erasures = read_last_block(lake), read_erasures(lake)
    returned = read_returned(lake, erasures)
    positions = read_positions(lake)
    known_lsn = positions.known_lsn if positions else Lsn(0)
    # In a store, positions are those that apply saved last: not one request a table.
    saved, parked = read_saved(lake, histories_of(lake))
    histories = list(with_pending_names(lake, saved, known_lsn))
    tables = tuple(
        TableStatus(str(t.last_name), str(t.name), t.horizon, t.position, parked.get(t.name)) for t in histories
    )
    source, refusal = (None, None) if conninfo is None else _try_source(conninfo, lake, positions, histories)
    return Status(
        manifest,
        positions,
        tables,
        read_capture_state(lake),
        source,
        refusal,
        read_at_s=time.time(),
        sealed=block.upto.commit if block else None,
        holds=tuple(holds_in_force(lake)),
        last_batch=read_last_batch(lake),
        unfinished=tuple(each for each in erasures if each.done_us is None),
        returned=None if returned is None else tuple(returned),
        mixed=None if positions is None else _why_mixed(lake, positions, saved),
    )


def _why_mixed(lake: Lake, positions: Positions, histories: Iterable[HistoryTable]) -> LakeUnusable | None:
    try:
        require_together(lake, positions, histories)
    except LakeUnusable as exc:
        return exc
    return None


def _try_source(
    conninfo: str, lake: Lake, positions: Positions | None, histories: Iterable[HistoryTable]
) -> tuple[SourceStatus | None, AuditlakeError | None]:
    """Return the status of the source, None if it is unreachable, and why the stream cannot go on, if so."""
    followed = frozenset(table.oid for table in histories)
    try:
        source = _ask_source(conninfo, lake, positions, followed)
    except SourceUnreachable as exc:
        return None, exc
    return source, source.refusal


def _ask_source(conninfo: str, lake: Lake, positions: Positions | None, followed: frozenset[int]) -> SourceStatus:
    manifest = require_manifest(lake)
    with connect(conninfo, manifest.lsn_offset) as conn:
        slot, reader = read_slot(conn, manifest.slot), read_reader(conn, manifest.slot)
        acknowledged = positions.acknowledged if positions else None
        lag = None if slot is None or acknowledged is None else max(0, slot.wal_end - acknowledged)
        refusal = _refusal(conn, lake, slot, acknowledged)
        new, unfollowed = _without_history(conn, manifest.publication, followed)
        return SourceStatus(slot, reader, lag, refusal, new, unfollowed, clock_skew_s(conn), read_ddl_trigger(conn))


def _refusal(
    conn: psycopg.Connection[Row], lake: Lake, slot: SlotState | None, acknowledged: Lsn | None
) -> AuditlakeError | None:
    manifest = require_manifest(lake)
    try:
        manifest.check_same(current_manifest(conn, manifest.slot, manifest.publication))
        # The lake was read first, so a running capture may have advanced the slot past it.
        if acknowledged is not None and (slot is None or slot.active_pid is None):
            check_slot(manifest.slot, slot, acknowledged)
        if acknowledged is not None and read_recorded(lake) is not None:
            PublicationWatch(lake, manifest.publication, lambda _: None).check(conn, acknowledged)
    except AuditlakeError as exc:
        return exc
    return None


def _without_history(
    conn: psycopg.Connection[Row], publication: str, followed: frozenset[int]
) -> tuple[tuple[TableName, ...], tuple[TableName, ...]]:
    """Name the tables without a history that the publication carries, and those that it does not, or that never will.

    `followed` are the OIDs of the tables with a history.
    """
    published = read_publication(conn, publication)
    source = Source(read_tables(conn), published, carries_stored=False)
    every = choose(source, lambda _: True)
    missing = [table.name for table in every if table.relation.oid not in followed]
    new = tuple(name for name in missing if source.published(name) is not None and name.schema != SYSTEM_SCHEMA)
    return new, tuple(name for name in missing if name not in new)


def as_json(status: Status) -> dict[str, object]:
    """Return the status as plain values: LSNs as text, sizes in bytes, ages in seconds; null is unknown."""
    positions, source = status.positions, status.source
    return {
        "database": status.manifest.database,
        "slot": status.manifest.slot,
        "publication": status.manifest.publication,
        "lsn_offset": str(Lsn(status.manifest.lsn_offset)),
        "watermark": str(positions.watermark) if positions else None,
        "acknowledged": str(positions.acknowledged) if positions else None,
        "sealed": None if status.sealed is None else str(status.sealed),
        "holds": [hold_json(each) for each in status.holds],
        "unfinished_erasures": [erasure_json(each) for each in status.unfinished],
        "returned_rows": _returned_json(status),
        "current_age_s": status.current_age_s,
        **_slot_json(source),
        **_stages_json(status),
        "source_problem": status.problem,
        "ddl_trigger": None if source is None else source.ddl_trigger.state,
        "new_tables": _texts(source.new if source else None),
        "unfollowed_tables": _texts(source.unfollowed if source else None),
        "tables": [_table_json(table) for table in status.tables],
    }


def _slot_json(source: SourceStatus | None) -> dict[str, object]:
    slot = source.slot if source else None
    return {
        "clock_skew_s": round(source.clock_skew_s, 3) if source else None,
        "lag_bytes": source.lag_bytes if source else None,
        "retained_bytes": slot.retained_bytes if slot else None,
        "safe_wal_bytes": slot.safe_wal_bytes if slot else None,
        "slot_exists": None if source is None else slot is not None,
        "slot_active_pid": slot.active_pid if slot else None,
        "slot_reader": str(source.reader) if source and source.reader else None,
        "slot_wal_status": slot.wal_status if slot else None,
        "slot_invalidation": slot.invalidation if slot else None,
        "slot_failover": slot.failover if slot else None,
    }


def _stages_json(status: Status) -> dict[str, object]:
    capture, batch = status.capture, status.last_batch
    return {
        "capture": capture.state if capture else None,
        "capture_since": capture.since if capture else None,
        "capture_problem": capture.problem if capture else None,
        "apply_engine": batch.engine if batch else None,
        "apply_engine_since": batch.since if batch else None,
        "apply_engine_reason": batch.reason if batch else None,
    }


def _table_json(table: TableStatus) -> dict[str, object]:
    return {
        "table": table.name,
        "history": table.history,
        "horizon": str(table.horizon),
        "position": str(table.position),
        "parked": None if table.parked is None else _parked_json(table.parked),
    }


def hold_json(held: HoldEvent) -> dict[str, object]:
    """Return a hold as plain values; its key is shown as a token."""
    return {
        "name": held.name,
        "tables": held.tables,
        "token": held.token,
        "since": format_us(held.time_us),
        "until": None if held.until_us is None else format_us(held.until_us),
        "reason": held.reason,
        "by": held.by,
    }


def erasure_json(erasure: Erasure) -> dict[str, object]:
    """Return an erasure as plain values; of its keys only how many they are."""
    about = {"since": format_us(erasure.time_us), "reason": erasure.reason, "by": erasure.by}
    counts = {"keys": len(erasure.tokens), "versions": erasure.versions, "changes": erasure.changes}
    return {"table": str(erasure.name), "columns": list(erasure.columns) or None, **about, **counts}


def _returned_json(status: Status) -> list[dict[str, object]] | None:
    if status.returned is None:
        return None
    return [{**erasure_json(erasure), "returned_at": str(lsn)} for erasure, lsn in status.returned]


def _texts(names: tuple[TableName, ...] | None) -> list[str] | None:
    return None if names is None else [str(name) for name in names]


def _parked_json(parked: Parked) -> dict[str, object]:
    return {
        "lsn": str(parked.lsn),
        "until": str(parked.until),
        "cause": str(parked.cause),
        "reason": parked.reason,
        "remedy": parked.remedy,
        "ended": parked.ended,
    }


_CAPTURE = "Start auditlake follow."
_LONG_S = 60.0
_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """One sentence, the remedy if there is something to do, and the exit code."""

    code: int
    sentence: str
    remedy: str | None


def judge(status: Status) -> Verdict:
    """Return the most severe problem, or that there is none."""
    return next(chain(_of_folders(status), _of_source(status), _of_slot(status)), None) or judge_tables(status)


def judge_tables(status: Status) -> Verdict:
    """Return the most severe problem of the tables alone, or that there is none."""
    return next(chain(_of_folders(status), _of_tables(status)), None) or _well(status)


def _of_folders(status: Status) -> Iterator[Verdict]:
    if status.mixed is not None:
        yield Verdict(status.mixed.exit_code, status.mixed.message, status.mixed.hint)


def _of_source(status: Status) -> Iterator[Verdict]:
    refusal = status.refusal
    if refusal is not None:
        yield Verdict(refusal.exit_code, refusal.message, refusal.hint)
    elif status.source is None:
        yield Verdict(
            ConfigError.exit_code,
            "no source is set, so the state of the slot is unknown",
            "Give --source, or set it in auditlake.toml.",
        )
    if status.positions is None:
        yield Verdict(ConfigError.exit_code, "capture has never started: the lake holds no changes", _CAPTURE)


def _of_slot(status: Status) -> Iterator[Verdict]:
    slot = status.source.slot if status.source else None
    if slot is None:
        return
    name = status.manifest.slot
    if slot.wal_status == "unreserved":
        retained = f"PostgreSQL retains {slot.retained_bytes or 0:,} bytes of WAL for it"
        sentence = f"slot {name} is about to be invalidated: {retained}"
        yield Verdict(WrongSource.exit_code, sentence, f"{_CAPTURE} Raise max_slot_wal_keep_size.")
    if slot.active_pid is None:
        retained = f"PostgreSQL retains {slot.retained_bytes or 0:,} bytes of WAL for slot {name}"
        last = status.capture
        because = f"; the last capture ended: {last.problem}" if last and last.problem else ""
        remedy = (last and last.remedy) or _CAPTURE
        yield Verdict(ConfigError.exit_code, f"nothing captures, and {retained}{because}", remedy)


def _of_tables(status: Status) -> Iterator[Verdict]:
    if status.unfinished:
        begun = status.unfinished[0]
        sentence = f"an erasure is unfinished since {format_us(begun.time_us)}: {begun.what}"
        yield Verdict(ConfigError.exit_code, sentence, "If no auditlake forget runs: auditlake forget --resume.")
    if status.returned:
        erasure, lsn = status.returned[0]
        rows = "1 erased row is" if len(status.returned) == 1 else f"{len(status.returned)} erased rows are"
        sentence = f"{rows} in the lake again: of {erasure.name} since {lsn}"
        yield Verdict(ConfigError.exit_code, sentence, "auditlake forget --returned shows them.")
    if parked := status.parked:
        name, first = parked[0]
        sentence = f"{name} is parked at {first.lsn}: {first.reason}"
        if len(parked) > 1:
            sentence = f"{len(parked)} of {len(status.tables)} tables are parked; {sentence}"
        yield Verdict(ConfigError.exit_code, sentence, first.remedy)
    new = status.source.new if status.source else ()
    if new:
        are = "is a new table" if len(new) == 1 else "are new tables"
        yield Verdict(
            ConfigError.exit_code, f"{_some(list(map(str, new)))} {are} without a history", "Run auditlake bootstrap."
        )


def _well(status: Status) -> Verdict:
    age_s = status.current_age_s
    tables = f"{len(status.tables)} table{'' if len(status.tables) == 1 else 's'}"
    if age_s is None:
        return Verdict(0, f"healthy: {tables}, capture has just started", None)
    clock = _clock(status)
    if age_s > _LONG_S:
        lag = status.source.lag_bytes if status.source else None
        pending = "" if lag is None else f", {lag:,} bytes of WAL are not captured yet"
        sentence = f"behind: {tables}, every commit up to {format_age(age_s)} is in the lake{pending}{clock}"
        return Verdict(0, sentence, "Wait: capture is running.")
    return Verdict(0, f"healthy: {tables}, every commit up to {format_age(age_s)} is in the lake{clock}", None)


def _clock(status: Status) -> str:
    skew_s = status.source.clock_skew_s if status.source else 0.0
    if abs(skew_s) * 1_000_000 <= CLOCK_TOLERANCE_US:
        return ""
    return f"; the source's clock is {abs(skew_s):,.0f} s {'ahead of' if skew_s > 0 else 'behind'} this machine's"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
