"""Capture: follow the slot and make every committed change durable in `changes`. No JVM.

Order of effects, for each batch of whole transactions:
  1. receive them, up to a Commit;
  2. append `relations`, then `transactions`, then `changes`, whose commit moves the watermark;
  3. acknowledge the end of the last commit.
Nothing is acknowledged that is not in a commit of `changes`: killed before 2 the server sends it again; killed
between 2 and 3 it sends it again and every row at or below the watermark is dropped. A transaction too large for one
batch goes in parts whose rows lie above the watermark, invisible; killed among them, the parts already there are
skipped by ordinal.

The slot is the lock: the lake is read only when the slot is ours, because whoever had it may have written until then.

The end of an idle stretch is recorded in `changes` before it is acknowledged, so that the slot never stands beyond
the lake. If it does, somebody else has read from it: then changes are missing and capture stops.
"""

import select
import threading
import time
from contextlib import closing

from auditlake.capture.claiming import Claim, Say, Source
from auditlake.capture.opening import open_log
from auditlake.capture.writer import Writer
from auditlake.failpoints import After, reach
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.postgres.buffer import FrameBuffer, Limits
from auditlake.postgres.connection import hung_up_after, unreachable
from auditlake.postgres.heartbeat import Heartbeat
from auditlake.postgres.server import WalEnd, wal_end

# One append costs about 10 ms and numpy's fixed cost some 5 ms: at 32,768 frames both are small beside the decoding,
# and a batch is a few megabytes.
_BATCH = Limits(frames=32_768, size_bytes=16 << 20)
# No more is received before it can be handed over; a transaction longer than this goes in parts.
_FULL = Limits(frames=1 << 17, size_bytes=16 << 20)
_COMMIT_DELAY_S = 0.04
# So many frames within that time mean that capture is behind: larger batches then catch up sooner, as long as the
# stream goes on.
_BUSY_FRAMES = 4096
_BUSY_DELAY_S = 0.5
_WAIT_S = 0.1
_ASK_INTERVAL_S = 0.05
_IDLE_COMMIT_S = 10.0
_TARGET_COMMIT_S = 1.0


class Capture:
    """One run of the capture stage. `run` returns at its target or when `stop` is set."""

    def __init__(self, claim: Claim, source: Source, lake: Lake, stop: threading.Event, say: Say) -> None:
        self._stop = stop
        opened = open_log(claim, source, lake, say)  # from here on `run` closes it
        self._control, self._stream, self._log = opened.control, opened.stream, opened.log
        self._guard, self._pace = claim.guard, claim.pace
        self._looks, self.reader = opened.looks, opened.reader
        self._heartbeat = Heartbeat(source.heartbeat_s)
        self._writer = Writer(self._log)
        self._frames = FrameBuffer()
        self._in_parts = False
        self._idle_mark: WalEnd | None = None
        self._next_mark_at = 0.0

    @property
    def done_lsn(self) -> Lsn:
        """Everything that starts before this LSN is durable."""
        return self._writer.done_lsn

    def run(self, until: WalEnd | None) -> None:
        """Capture until everything before `until` is durable, or for ever."""
        with closing(self._control), closing(self._stream), closing(self._writer):
            while not self._stop.is_set() and (until is None or self.done_lsn < until.lsn):
                self._step(until)
            self._collect_last()
            if until is not None and self.done_lsn >= until.lsn and self._log.current_us < until.time_us:
                self._log.note_idle(self.done_lsn, until.time_us)

    def _step(self, until: WalEnd | None) -> None:
        limits = _BATCH if self._frames.commits and not self._writer.busy else _FULL
        self._stream.receive(self._frames, limits, self._patience_s(), self._writer)
        if self._writer.collect():
            self._stream.acknowledge(self.done_lsn)
            reach(After.ACKNOWLEDGED)
        if not self._writer.busy:
            self._hand_over(until)
        self._stay_in_touch()
        if self._heartbeat.due:
            with hung_up_after(self._control.fileno(), self._pace.deaf_s):
                self._heartbeat.beat(self._control)
        if self._guard.due:
            with hung_up_after(self._control.fileno(), self._pace.deaf_s):
                since = self.done_lsn
                self._guard.look(self._control, since)
                self._guard.note(since)
                self._looks.refresh(self._control, self._guard.present)

    def _stay_in_touch(self) -> None:
        """Let the server hear from us in time, and see that it answers."""
        unheard_s, pace = self._stream.unheard_for_s, self._pace
        if unheard_s > pace.deaf_s:
            raise unreachable(f"nothing has come from it for {unheard_s:.0f} s")
        if self._stream.silent_for_s > pace.status_s:
            self._stream.acknowledge(self.done_lsn, ask_reply=unheard_s > pace.status_s)

    def _hand_over(self, until: WalEnd | None) -> None:
        """Give the writer what is ready to be written, if anything is."""
        frames = self._frames
        if frames.commits and (_BATCH.met_by(frames) or self._patience_s() <= 0):
            whole, self._frames = frames.split()
            self._writer.write(whole)
            self._in_parts = False
        elif not frames.commits and _FULL.met_by(frames):
            self._frames = FrameBuffer()
            self._writer.write_part(frames)
            self._in_parts = True
        elif self._writer.untidy:
            self._writer.tidy()
        elif not len(frames) and not self._in_parts:
            self._idle(until)

    def _collect_last(self) -> None:
        """Wait for what is being written, so that the server hears of it."""
        while self._writer.busy:
            select.select([self._writer], [], [])
            self._writer.collect()
            self._stream.acknowledge(self.done_lsn)

    def _patience_s(self) -> float:
        """How long the oldest commit in the buffer may still wait for company."""
        if self._writer.busy or not self._frames.commits:
            return _WAIT_S
        waited_s = time.monotonic() - self._frames.first_commit_at
        if len(self._frames) < _BUSY_FRAMES:
            return max(0.0, _COMMIT_DELAY_S - waited_s)
        return max(0.0, min(_BUSY_DELAY_S - waited_s, _COMMIT_DELAY_S - self._stream.unheard_for_s))

    def _idle(self, until: WalEnd | None) -> None:
        """Let the slot advance over what is not ours, and note how current the lake is."""
        now = time.monotonic()
        if self._idle_mark is None and now >= self._next_mark_at:
            with hung_up_after(self._control.fileno(), self._pace.deaf_s):
                self._idle_mark = wal_end(self._control)
            self._next_mark_at = now + (_IDLE_COMMIT_S if until is None else _TARGET_COMMIT_S)
        mark, reached = self._idle_mark, max(self.done_lsn, self._stream.keepalive_lsn)
        if mark is None:
            return
        if reached >= mark.lsn:
            self._writer.note_idle(reached, mark.time_us)
            self._idle_mark = None
        elif self._stream.silent_for_s > _ASK_INTERVAL_S:
            self._stream.acknowledge(self.done_lsn, ask_reply=True)
