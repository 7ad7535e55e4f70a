"""Claiming the slot: everything that must be so before the first byte is sent, and the start of the stream.

Order, and why:
  1. the server takes writes, and is the one lake.json records, or its promoted successor;
  2. the slot can go on from where the lake ends, and the publication carries what it did;
  3. start the stream: from here on nobody else moves the slot or, holding it, writes to the lake.
What was read of slot and lake before 3 may be out of date by then: `opening` looks again.

What decodes and writes takes half a second to load. This module, and what it imports, does without it, so that the
server decodes and sends meanwhile.

A walsender whose client is gone holds the slot until it notices, at the latest after `wal_sender_timeout`. One that
this process left behind is ended at once; any other is waited for, unless it shows that its client lives.
"""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

import psycopg

from auditlake.capture.guard import PublicationGuard
from auditlake.capture.mainslot import see_database, see_slot
from auditlake.capture.sameness import Fork, current_manifest, see_primary, see_timeline
from auditlake.errors import LakeConflict, LakeUnusable, WrongSource
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, require_manifest
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.postgres.connection import Row, connect, connect_replication, hung_up_after
from auditlake.postgres.pace import Pace, read_pace
from auditlake.postgres.resent import read_resent
from auditlake.postgres.slot import SlotReader, end_reader, read_reader, read_slot
from auditlake.postgres.starting import Started, start_stream
from auditlake.postgres.streaming import Streaming

_WAIT_S = 0.1
# Before, a transaction without a published change is sent as well, and the lake does not hold it.
_EMPTY_LEFT_OUT = 150000

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Source:
    """Where to capture from, the identity recorded in the lake, how large transactions come, the heartbeat's pause."""

    conninfo: str
    manifest: Manifest
    streaming: Streaming = field(default_factory=Streaming)
    heartbeat_s: float | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A stream that has started from `start`, of which nothing was read; `fork` where the source was promoted."""

    control: psycopg.Connection[Row]
    stream: Started
    start: Lsn
    fork: Fork | None
    guard: PublicationGuard
    pace: Pace

    def close(self) -> None:
        """Let go of the slot."""
        self.stream.close()
        self.control.close()


@dataclass(frozen=True, slots=True)
class Claimer:
    """Claims one lake's slot; `left` is the reader that an earlier attempt of this process was."""

    source: Source
    lake: Lake
    stop: threading.Event
    say: Say
    left: SlotReader | None

    @property
    def _slot(self) -> str:
        return self.source.manifest.slot

    def claim(self) -> Claim:
        """Connect, see that all is as the lake records it, and start the stream where the lake ends.

        Raises SourceUnreachable, WrongSource, LakeUnusable, LakeConflict.
        """
        with ExitStack() as opened:
            control = opened.enter_context(closing(connect(self.source.conninfo)))
            pace = read_pace(control)
            with hung_up_after(control.fileno(), pace.deaf_s):
                fork = self._see_source(control)
                start = self._see_start(control, fork)
                guard = PublicationGuard(self.lake, self.source.manifest.publication, self.say)
                guard.look(control, start)
            stream = self._start_when_free(control, start, pace)
            opened.pop_all()
            return Claim(control, stream, start, fork, guard, pace)

    def _see_source(self, control: psycopg.Connection[Row]) -> Fork | None:
        see_primary(control)
        recorded = require_manifest(self.lake)  # read anew: an earlier attempt may have recorded another timeline
        found = current_manifest(control, self._slot, self.source.manifest.publication)
        return see_timeline(self.source.conninfo, recorded, found)

    def _see_start(self, control: psycopg.Connection[Row], fork: Fork | None) -> Lsn:
        """See where the lake ends, and that the slot can go on there."""
        slot, positions = read_slot(control, self._slot), read_positions(self.lake)
        if positions is None:
            raise LakeUnusable(f"the bootstrap of {self.lake.root} did not get as far as its log", "Run it again.")
        start = positions.acknowledged
        if fork is not None:
            fork.see_behind(Lsn(positions.watermark + 1))
            start = min(start, fork.lsn)
        see_slot(self._slot, slot, start)
        if slot is not None:
            see_database(self._slot, slot, control.info.dbname)
        return start

    def _start_when_free(self, control: psycopg.Connection[Row], start: Lsn, pace: Pace) -> Started:
        deadline = time.monotonic() + pace.slot_free_s
        first = None
        while True:
            pgconn = connect_replication(self.source.conninfo)
            try:
                self._see_resent(control, start)
                with hung_up_after(pgconn.socket, pace.deaf_s):
                    publication, streaming = self.source.manifest.publication, self.source.streaming
                    return start_stream(pgconn, self._slot, publication, start, streaming)
            except LakeConflict:
                pgconn.finish()
            except Exception:
                pgconn.finish()
                raise
            reader = read_reader(control, self._slot)
            if reader is not None and reader.is_same(self.left):
                end_reader(control, reader)
            elif self._is_alive(reader, first) or time.monotonic() > deadline:
                raise LakeConflict(
                    f"slot {self._slot} is read by {reader or 'somebody'}, need it for this one", _STOP_IT
                )
            if self.stop.wait(_WAIT_S):
                raise LakeConflict(f"slot {self._slot} is still read by {reader or 'somebody'}", _STOP_IT)
            first = first if first and first.is_same(reader) else reader

    def _see_resent(self, control: psycopg.Connection[Row], start: Lsn) -> None:
        """See that what the slot would send again, had it not been told to start later, is what the lake holds.

        A slot stands behind the lake after a crash of the server, which forgets the last acknowledgements. It also does
        in a server that was put back to an earlier state and has gone on from there: then the same stretch of the log
        holds other transactions now.
        """
        slot = read_slot(control, self._slot)
        if slot is None or slot.confirmed_flush_lsn is None or slot.confirmed_flush_lsn >= start:
            return
        from auditlake.lake.committed import read_committed  # noqa: PLC0415 - slow to load, and rarely needed

        since = slot.confirmed_flush_lsn
        resent = read_resent(control, self._slot, self.source.manifest.publication, start)
        held = read_committed(self.lake, since, start)
        other = held - resent if control.info.server_version < _EMPTY_LEFT_OUT else held ^ resent
        if other:
            raise WrongSource(
                f"slot {self._slot} would send other transactions from {since} to {start} than this lake holds: the"
                " source was put back to an earlier state, and has gone on from there",
                "Bootstrap a new lake with a new slot; this one can still be asked.",
            )

    @staticmethod
    def _is_alive(reader: SlotReader | None, first: SlotReader | None) -> bool:
        return reader is not None and reader.spoke_since(first)


_STOP_IT = "Stop that one first; if it is dead, PostgreSQL lets go of the slot after wal_sender_timeout."
