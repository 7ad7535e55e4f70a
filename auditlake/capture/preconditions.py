"""Preconditions of capture: the source and the slot must be those of the lake, then the stream may start.

Order of effects; only step 3 changes anything at the source:

1. Check the source. It accepts writes, and its system identifier and database are those of lake.json. Its timeline is
   the recorded one, or that of a promoted standby which left the recorded one after everything the lake holds. A
   promotion starts a new timeline at the last record that the standby had: up to this fork both timelines are the same
   log, and later records of the old one do not exist on the new one.
2. Check the slot and the publication. The slot can continue at the lake's position, and the publication publishes the
   tables and operations that it did. The slot is never ahead of the lake, because a position is recorded before it is
   acknowledged. If it is, another client has read from the slot, or the slot was dropped and created again: changes are
   missing, and only `auditlake resync` helps. If the server's log ends before the lake's position, the server was
   restored to an earlier state.
3. Start the stream. From here on we hold the slot: no other process moves it, or writes to the lake through it.

Before step 3 another capture may have moved slot and lake, so `capture.open_capture_log` repeats checks 1 and 2 after
it.

A walsender without a client holds the slot until it notices, at the latest after `wal_sender_timeout`. Step 3 ends a
walsender that this process left behind. It waits for any other, unless that one shows that its client is alive.

Authority: postgresql.org/docs/current/continuous-archiving.html, "Timelines"; protocol-replication.html,
TIMELINE_HISTORY
"""

import threading
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace

import psycopg

from auditlake.capture.publication_watch import PublicationWatch
from auditlake.errors import InvariantBroken, LakeConflict, LakeUnusable, SourceAway, SourceUnready, WrongSource
from auditlake.lake.erasures import require_erased_log
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, require_manifest
from auditlake.lake.positions import Positions, read_positions
from auditlake.lsn import Lsn
from auditlake.messages import Say
from auditlake.replication.start import Timeouts, read_timeouts, start_stream
from auditlake.settings.mask_rules import Masking
from auditlake.settings.streaming_mode import Streaming
from auditlake.source.connection import (
    Row,
    answering_within,
    connect,
    connect_replication,
    connect_replication_beside,
    hung_up_after,
    lsn_at_source,
    lsn_offset,
)
from auditlake.source.server import identify
from auditlake.source.slot import (
    Committed,
    SlotReader,
    SlotState,
    read_reader,
    read_resent,
    read_slot,
    terminate_reader,
)

_RESYNC = (
    "Run auditlake resync --all: it creates the slot anew, takes a new snapshot of all tables and keeps their history."
)
_OTHER_SLOT = "Choose another slot."
_STOP_READER = "Stop that process first; if it is dead, PostgreSQL releases the slot after wal_sender_timeout."
_WAIT_S = 0.1
_FIELDS = 2
"""Fields of a timeline history file that are read: timeline and switch point."""
# Older servers also send transactions without a published change, and the lake does not hold those.
_EMPTY_SKIPPED_SINCE = 150000


@dataclass(frozen=True, slots=True)
class CaptureSource:
    """The source of a capture: connection, recorded identity, streaming mode, interval of the heartbeat, and masks."""

    conninfo: str
    manifest: Manifest
    streaming: Streaming = field(default_factory=Streaming)
    heartbeat_s: float | None = None
    masking: Masking = field(default_factory=Masking)


@dataclass(frozen=True, slots=True)
class Fork:
    """The end of the `recorded` timeline in `timeline`: what ends at or before `lsn` is common to both."""

    timeline: int
    recorded: int
    lsn: Lsn

    def check_lake_ends_before(self, held_to: Lsn) -> None:
        """Check that a lake with changes up to `held_to` has none that the new timeline lacks; raises WrongSource."""
        if held_to > self.lsn:
            raise WrongSource(
                f"the source was promoted from timeline {self.recorded} to {self.timeline} at {self.lsn}, and this lake"
                f" holds changes of timeline {self.recorded} from {self.lsn} to {held_to} that it lacks",
                _RESYNC + " With synchronized_standby_slots (17) a standby always has what auditlake has.",
            )


def current_manifest(conn: psycopg.Connection[Row], slot: str, publication: str) -> Manifest:
    """Return the manifest that a lake of the server behind `conn` would have."""
    server = identify(conn)
    offset = lsn_offset(conn)
    return Manifest(server.system_identifier, server.timeline, server.database, slot, publication, offset)


def require_primary(conn: psycopg.Connection[Row]) -> None:
    """Require a server that accepts writes; raises SourceAway: a standby may become the primary at any moment."""
    if identify(conn).in_recovery:
        raise SourceAway(
            "the source is a standby in recovery, need the primary",
            "Point source at the primary; with several hosts add target_session_attrs=primary.",
        )


def check_timeline(conninfo: str, recorded: Manifest, current: Manifest) -> Fork | None:
    """Return the fork of a later timeline, None on the recorded one; raises WrongSource on any other."""
    recorded.check_same(current)
    if current.timeline == recorded.timeline:
        return None
    if current.timeline < recorded.timeline:
        raise WrongSource(
            f"this lake follows timeline {recorded.timeline}, the source is on {current.timeline}: an old primary",
            "Point source at the server that was promoted.",
        )
    with closing(connect_replication(conninfo)) as replication:
        lsn = _read_fork(replication, current.timeline, recorded.timeline)
    if lsn is None:
        raise WrongSource(
            f"the source is on timeline {current.timeline}, which does not descend from {recorded.timeline}, that of"
            " this lake",
            _RESYNC,
        )
    return Fork(current.timeline, recorded.timeline, Lsn(lsn + recorded.lsn_offset))


def _read_fork(replication: psycopg.Connection[Row], timeline: int, recorded: int) -> Lsn | None:
    """Read where `timeline` left `recorded`, None if it is not part of it; raises SourceUnreachable."""
    result = replication.execute(f"TIMELINE_HISTORY {timeline:d}".encode()).pgresult
    content = result and result.get_value(0, 1)  # 14 declares the text as bytea, and sends it as it is
    return find_fork((content or b"").decode(), recorded)


def find_fork(history: str, recorded: int) -> Lsn | None:
    """Return the switch point of timeline `recorded` in the text of a timeline history file."""
    for line in history.splitlines():
        fields = line.split("#", 1)[0].split(maxsplit=_FIELDS)
        if not fields:
            continue
        if len(fields) < _FIELDS or not fields[0].isdigit():
            raise InvariantBroken(f"cannot parse a line of the timeline history: {line[:100]!r}")
        if int(fields[0]) == recorded:
            return Lsn.parse(fields[1])
    return None


def check_main_slot(control: psycopg.Connection[Row], lake: Lake, name: str) -> Lsn | None:
    """Check that the slot can serve this lake; return its flush LSN, None if it is to be made. Raises WrongSource."""
    slot, positions = _read_both(control, lake, name)
    if positions is not None:
        check_slot(name, slot, positions.acknowledged)
    if slot is None:
        return None
    _check_kind(name, slot)
    check_database(name, slot, control.info.dbname)
    if slot.confirmed_flush_lsn is None:
        raise SourceUnready(
            f"slot {name} is still being created by pid {slot.active_pid}, which waits for writing transactions",
            "Run the same command again when it has ended.",
        )
    return slot.confirmed_flush_lsn


def _read_both(control: psycopg.Connection[Row], lake: Lake, name: str) -> tuple[SlotState | None, Positions | None]:
    """Read the slot, then the lake's positions, then the end of the log: another capture may move each."""
    slot, positions, later = read_slot(control, name), read_positions(lake), read_slot(control, name)
    return replace(slot, wal_end=later.wal_end) if slot and later else None, positions


def check_slot(name: str, slot: SlotState | None, acknowledged: Lsn) -> None:
    """Check that a slot can continue at `acknowledged`.

    Beside a running capture read the slot before that position, and the slot's `wal_end` after it.

    Raises WrongSource, with the range of LSNs that is missing.
    """
    if slot is None:
        raise WrongSource(f"slot {name} is gone: changes from {acknowledged} on are missing", _RESYNC)
    _check_kind(name, slot)
    missing = f"changes from {acknowledged} to {slot.wal_end} are missing"
    if slot.lost:
        why = f" ({slot.invalidation})" if slot.invalidation else ""
        raise WrongSource(f"slot {name} has lost its log{why}: {missing}", _RESYNC)
    confirmed = slot.confirmed_flush_lsn
    if confirmed is None or confirmed > acknowledged:
        raise WrongSource(
            f"slot {name} stands at {confirmed}, this lake at {acknowledged}: another client has read the changes"
            " between the two, it is a new slot of that name, or the lake was restored from a backup; they are missing",
            _RESYNC,
        )
    if slot.wal_end < acknowledged:
        raise WrongSource(
            f"the source's log ends at {slot.wal_end}, this lake at {acknowledged}: the source was restored to an"
            " earlier state, and the lake holds transactions between the two that it no longer has",
            _RESYNC,
        )


def _check_kind(name: str, slot: SlotState) -> None:
    """Check that a slot is logical, permanent, of pgoutput and without two-phase decoding."""
    if slot.plugin != "pgoutput":
        kind = "physical" if slot.plugin is None else f"of plugin {slot.plugin}"
        raise WrongSource(f"slot {name} is {kind}, need a logical one of plugin pgoutput", _OTHER_SLOT)
    if slot.temporary:
        raise WrongSource(
            f"slot {name} is temporary: it is dropped with its session (pid {slot.active_pid})", _OTHER_SLOT
        )
    if slot.two_phase:
        raise WrongSource(
            f"slot {name} has two_phase, need one without: what it sends at PREPARE it does not send again at COMMIT"
            " PREPARED",
            _OTHER_SLOT,
        )
    if slot.synced and slot.confirmed_flush_lsn is None:
        raise WrongSource(f"slot {name} was not yet copied to this server when it was promoted", _RESYNC)


def check_database(name: str, slot: SlotState, database: str) -> None:
    """Check that a slot decodes this database; raises WrongSource."""
    if slot.database != database:
        raise WrongSource(f"slot {name} is of database {slot.database}, need one of {database}", _OTHER_SLOT)


def check_resent(control: psycopg.Connection[Row], lake: Lake, manifest: Manifest, start: Lsn) -> None:
    """Check that the transactions between the slot's confirmed_flush_lsn and `start` are those already in the lake.

    A slot is behind the lake after a crash of the server, which loses the last acknowledgements. It is also behind
    in a server that was restored to an earlier state and has continued from there: the same range of the log then
    holds other transactions. Transactions that have expired in the lake are not compared; the last one never expires.
    """
    slot = read_slot(control, manifest.slot)
    if slot is None or slot.confirmed_flush_lsn is None or slot.confirmed_flush_lsn >= start:
        return
    held, since = _read_held(lake, slot.confirmed_flush_lsn, start)
    resent = {each for each in read_resent(control, manifest.slot, manifest.publication, start) if each.lsn >= since}
    other = held - resent if control.info.server_version < _EMPTY_SKIPPED_SINCE else held ^ resent
    if other:
        raise WrongSource(
            f"slot {manifest.slot} would send other transactions from {since} to {start} than this lake holds: the"
            " source was restored to an earlier state, and has continued from there",
            _RESYNC,
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """An acquired slot: a replication connection that streams from `start`; `fork` is set after a promotion."""

    control: psycopg.Connection[Row]
    replication: psycopg.Connection[Row]
    start: Lsn
    fork: Fork | None
    publication: PublicationWatch
    timeouts: Timeouts

    def close(self) -> None:
        """Release the slot."""
        self.replication.close()
        self.control.close()


@dataclass(frozen=True, slots=True)
class Claimer:
    """Acquires the slot of one lake; `left` is the walsender of an earlier attempt of this process."""

    source: CaptureSource
    lake: Lake
    stop: threading.Event
    report: Say
    left: SlotReader | None

    @property
    def _slot(self) -> str:
        return self.source.manifest.slot

    def claim(self) -> Claim:
        """Connect, check every precondition, and start the stream at the lake's position.

        Raises SourceUnreachable, WrongSource, LakeUnusable, LakeConflict.
        """
        with ExitStack() as opened:
            offset = require_manifest(self.lake).lsn_offset
            require_erased_log(self.lake)
            control = opened.enter_context(closing(connect(self.source.conninfo, offset)))
            timeouts = read_timeouts(control)
            with answering_within(control, timeouts.silence_s):
                fork = self._check_source(control)
                start = self._check_start(control, fork)
                publication = PublicationWatch(self.lake, self.source.manifest.publication, self.report)
                publication.refresh(control, start)
            replication = self._start_when_free(control, start, timeouts)
            opened.pop_all()
            return Claim(control, replication, start, fork, publication, timeouts)

    def _check_source(self, control: psycopg.Connection[Row]) -> Fork | None:
        require_primary(control)
        recorded = require_manifest(self.lake)  # an earlier attempt may have recorded another timeline
        current = current_manifest(control, self._slot, self.source.manifest.publication)
        return check_timeline(self.source.conninfo, recorded, current)

    def _check_start(self, control: psycopg.Connection[Row], fork: Fork | None) -> Lsn:
        """Return the lake's position after checking that the slot can continue there."""
        slot, positions = _read_both(control, self.lake, self._slot)
        if positions is None:
            raise LakeUnusable(f"the bootstrap of {self.lake.root} ended before it created the log", "Run it again.")
        start = positions.acknowledged
        if fork is not None:
            fork.check_lake_ends_before(Lsn(positions.watermark + 1))
            start = min(start, fork.lsn)
        check_slot(self._slot, slot, start)
        if slot is not None:
            check_database(self._slot, slot, control.info.dbname)
        return start

    def _start(self, control: psycopg.Connection[Row], start: Lsn, timeouts: Timeouts) -> psycopg.Connection[Row]:
        """Start the stream; raises LakeConflict if the slot is in use."""
        publication, streaming = self.source.manifest.publication, self.source.streaming
        with ExitStack() as opened:
            replication = opened.enter_context(closing(connect_replication_beside(control, self.source.conninfo)))
            check_resent(control, self.lake, self.source.manifest, start)
            with hung_up_after(replication.fileno(), timeouts.silence_s):
                start_stream(replication, self._slot, publication, lsn_at_source(control, start), streaming)
            opened.pop_all()
            return replication

    def _start_when_free(
        self, control: psycopg.Connection[Row], start: Lsn, timeouts: Timeouts
    ) -> psycopg.Connection[Row]:
        """Start the stream, and wait for a dead client's walsender to release the slot if necessary."""
        deadline = time.monotonic() + timeouts.slot_free_s
        first = None
        while True:
            with suppress(LakeConflict):
                return self._start(control, start, timeouts)
            reader = read_reader(control, self._slot)
            if reader is not None and reader.is_same(self.left):
                terminate_reader(control, reader)
            elif self._is_alive(reader, first) or time.monotonic() > deadline:
                raise LakeConflict(
                    f"slot {self._slot} is read by {reader or 'another process'}, need it for this one", _STOP_READER
                )
            if self.stop.wait(_WAIT_S):
                raise LakeConflict(f"slot {self._slot} is still read by {reader or 'another process'}", _STOP_READER)
            first = first if first and first.is_same(reader) else reader

    @staticmethod
    def _is_alive(reader: SlotReader | None, first: SlotReader | None) -> bool:
        return reader is not None and reader.replied_since(first)


def _read_held(lake: Lake, since: Lsn, upto: Lsn) -> tuple[frozenset[Committed], Lsn]:
    """Read the visible transactions with commit LSN in `[since, upto)`; return also from which LSN on none expired."""
    from auditlake.delta.sql import read_newest, select  # noqa: PLC0415 - slow to load, and rarely needed
    from auditlake.lake.expiries import expired_upto  # noqa: PLC0415 - as above

    table, positions = read_newest(lake.transactions), read_positions(lake)
    if table is None or positions is None:
        return frozenset(), since
    since = Lsn(max(since, expired_upto(table) + 1))
    query = f"select lsn, xid, epoch_us(time) as time_us from transactions where lsn >= {since:d} and lsn < {upto:d}"
    rows = select(query, transactions=table.within(lsn=(since, upto)))
    transactions = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    held = (Committed(Lsn(lsn), xid, time_us) for lsn, xid, time_us in transactions if lsn <= positions.watermark)
    return frozenset(held), since
