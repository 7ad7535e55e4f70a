"""Capture: follow the slot and make every committed change durable in `changes`. No JVM.

    walsender ──▶ ReplicationStream ──▶ FrameBuffer ──▶ ChangeDecoder ──▶ CaptureLog ──▶ added, relations,
        ▲           (own thread: status)   (Capture)      (Writer's thread, one buffer a job)   transactions, changes
        └──────────────────── acknowledged: the end of the last commit in `changes` ◀───────────────────┘

Order of effects, for each batch of whole transactions:

1. Receive them, up to a Commit.
2. Append `added`, `relations`, `transactions`, then `changes`, whose commit moves the watermark.
3. Acknowledge the end of the last commit.

Invariants:

I1. Only transactions in a commit of `changes` are acknowledged. After a kill before 2 the server sends the batch again;
    after a kill between 2 and 3 too, and every row at or below the watermark is dropped.
I2. A transaction too large for one batch is appended in parts whose rows are above the watermark, so invisible. After a
    kill between parts, those already durable are skipped by ordinal.
I3. The slot is the lock. The lake is read only when we hold the slot, because its previous holder may have written
    until then: `open_capture_log` repeats the checks of `preconditions`, and only then records a new timeline.
I4. The slot is never ahead of the lake: the end of an idle stretch is recorded in `changes` before it is acknowledged.
    If the slot is ahead, another client has read from it; changes are missing, and capture stops.
I5. A batch is written once queries see its transactions, and after the catalog has been compared. The server sends a
    commit before that, under synchronous replication long before: its change of a table would be noticed only after it.
    A transaction that changes tables and no published row is not in a batch, so this does not hold for it.

A thread (`_Writer`) decodes buffers and makes them durable, one job at a time, in order. `Capture` submits a job while
none is running, continues to receive, and collects the result: the LSN before which everything is durable, or the
exception. So a slow write delays neither reading the stream nor status updates, and at most two buffers are in memory:
one being written, one being filled. After the first job only this thread uses the decoder and the log. The stream
sends status updates from a thread of its own, because `Capture` itself uses the lake, too: at the start and in a
comparison of the catalog.
"""

import math
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.capture.change_log import CaptureLog, CommitEnd, TableMessages
from auditlake.capture.ddl_recorder import DdlProof, DdlRecorder
from auditlake.capture.masking import read_masks
from auditlake.capture.partition_rows import WriterLookup
from auditlake.capture.partition_watch import HeldUpTo, PartitionWatch
from auditlake.capture.preconditions import CaptureSource, Claim, check_slot
from auditlake.capture.shape_watch import ShapeWatch
from auditlake.counters import Beat, Counter, beat, count
from auditlake.errors import InvariantBroken, LakeConflict, WrongSource
from auditlake.failpoints import After, reach
from auditlake.lake.histories import folded_to
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import record_timeline
from auditlake.lake.positions import CLOCK_TOLERANCE_US, read_positions
from auditlake.lsn import Lsn
from auditlake.messages import Event, Notice, Say
from auditlake.pgoutput.batch_decoder import ChangeDecoder, Decoded
from auditlake.pgoutput.decoder import Commit
from auditlake.replication.stream import BufferLimits, FrameBuffer, ReplicationStream
from auditlake.schema.attribute_numbers import AttributeNumbers
from auditlake.schema.catalog_snapshot import Asker, CatalogSnapshots
from auditlake.source.connection import Row, answering_within, lsn_offset, unreachable
from auditlake.source.heartbeat import Heartbeat
from auditlake.source.server import WalEnd, are_visible, wal_end
from auditlake.source.slot import SlotReader, read_reader, read_slot

# An append costs about 10 ms and numpy's fixed cost is about 5 ms: at 32,768 frames both are small compared with
# decoding, and a batch is a few megabytes.
_BATCH = BufferLimits(frames=32_768, size_bytes=16 << 20)
# Most that is received before the writer is free; a longer transaction is written in parts.
_FULL = BufferLimits(frames=1 << 17, size_bytes=16 << 20)
_COMMIT_DELAY_S = 0.04
# As long as the stream continues after this many frames within the commit delay, larger batches catch up sooner.
_BUSY_FRAMES = 4096
_BUSY_DELAY_S = 0.5
_INVISIBLE_S = 0.01
_NO_XIDS = np.array([], np.uint32)
_WAIT_S = 0.1
_REPLY_INTERVAL_S = 0.05
_IDLE_COMMIT_S = 10.0
_TARGET_COMMIT_S = 1.0
_LAG_S = CLOCK_TOLERANCE_US / 1_000_000


class _Writer:
    """Makes frames durable in the background; its descriptor is readable when a job has ended."""

    def __init__(self, log: CaptureLog, recorder: DdlRecorder, decoder: ChangeDecoder) -> None:
        self._log = log
        self._recorder = recorder
        self._decoder = decoder
        self._partial = log.partial()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="auditlake-writer")
        self._job: Future[None] | None = None
        self._ended, self._signal = os.pipe()
        self.done_lsn = log.acknowledged
        """Everything that starts before this LSN is durable, as of the last collected job."""
        self.lagging = threading.Event()
        """Set while what becomes durable is old, or part of a large transaction."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when a job can be collected."""
        return self._ended

    @property
    def busy(self) -> bool:
        """Whether a job was submitted and not collected yet."""
        return self._job is not None

    def write(self, transactions: FrameBuffer, present: Mapping[int, Mapping[int, int]]) -> None:
        """Submit frames that end with a Commit; `present` as in `DdlRecorder.park_lost_partitions`."""
        self._start(lambda: self._write(transactions, present))

    def write_part(self, part: FrameBuffer) -> None:
        """Submit part of a transaction whose Commit has not been received."""
        self._start(lambda: self._write_part(part))

    def record_idle(self, acknowledged: Lsn, current_us: int) -> None:
        """Submit the end of an idle stretch, as `CaptureLog.record_idle`."""
        self.lagging.clear()
        self._start(lambda: self._log.record_idle(acknowledged, current_us))

    @property
    def needs_compaction(self) -> bool:
        """Whether the log has enough small files for `compact`; call it between jobs."""
        return self._log.needs_compaction

    def compact(self) -> None:
        """Submit the compaction of small files."""
        self._start(self._log.compact)

    def _start(self, job: Callable[[], None]) -> None:
        if self._job is not None:
            raise InvariantBroken("a job was submitted to the writer before the last one was collected")
        self._job = self._pool.submit(job)
        self._job.add_done_callback(lambda _: os.write(self._signal, b"."))

    def collect(self) -> bool:
        """Collect the job if it has ended; return whether it has. Raises what the job raised."""
        if self._job is None or not self._job.done():
            return False
        job, self._job = self._job, None
        os.read(self._ended, 1)
        job.result()
        self.done_lsn = self._log.acknowledged
        return True

    def close(self) -> None:
        """Wait for the running job; its result stays in the lake."""
        self._pool.shutdown()
        os.close(self._ended)
        os.close(self._signal)

    def _write_part(self, part: FrameBuffer) -> None:
        decoded = self._decode(part)
        changes = self._missing(decoded.changes)
        self.lagging.set()
        self._log.append_part(changes, self._messages(decoded))
        count(Counter.CAPTURED_CHANGES, by=changes.num_rows)

    def _write(self, transactions: FrameBuffer, present: Mapping[int, Mapping[int, int]]) -> None:
        decoded = self._decode(transactions)
        commit = decoded.last_commit
        if commit is None:
            raise InvariantBroken("a batch that ends with a Commit has none")
        self._show_lag(commit)
        end = CommitEnd(commit.commit_lsn, commit.end_lsn)
        changes = self._missing(decoded.changes)
        self._recorder.park_lost_partitions(decoded.changes, present)
        self._log.append(changes, decoded.transactions, end, self._messages(decoded))
        count(Counter.CAPTURED_TRANSACTIONS, by=decoded.transactions.num_rows)
        count(Counter.CAPTURED_CHANGES, by=changes.num_rows)
        count(Counter.COMMITS, "capture")

    def _show_lag(self, last: Commit) -> None:
        if time.time() - last.time.timestamp() > _LAG_S:
            self.lagging.set()
        else:
            self.lagging.clear()

    def _messages(self, decoded: Decoded) -> TableMessages:
        return TableMessages(decoded.entries, self._recorder)

    def _decode(self, frames: FrameBuffer) -> Decoded:
        decoded = self._decoder.decode(*frames.payloads())
        self._recorder.note_partitions(decoded)
        return decoded

    def _missing(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Drop the rows that an earlier run has made durable."""
        if changes.num_rows == 0:
            return changes
        if changes["lsn"][0].as_py() <= self._log.watermark:
            changes = changes.filter(pc.greater(changes["lsn"], int(self._log.watermark)))
        if self._partial is not None:
            seen = pc.and_(
                pc.equal(changes["lsn"], int(self._partial.lsn)),
                pc.less(changes["ordinal"], self._partial.next_ordinal),
            )
            changes = changes.filter(pc.invert(seen))
        return changes


class Capture:
    """One run of the capture stage. `run` returns at its target or when `stop` is set."""

    def __init__(self, claim: Claim, source: CaptureSource, lake: Lake, stop: threading.Event, report: Say) -> None:
        self._stop = stop
        opened = open_capture_log(claim, source, lake, report)  # closed by `run`
        self._control, self._stream, self._log = opened.control, opened.stream, opened.log
        self._publication, self._timeouts = claim.publication, claim.timeouts
        self._snapshots, self._partitions, self.reader = opened.snapshots, opened.partitions, opened.reader
        self._shapes = opened.shapes
        self._heartbeat = Heartbeat(source.heartbeat_s)
        prove_ddl = DdlProof(source.conninfo, claim.timeouts.silence_s, report)
        decoder = ChangeDecoder(prove_ddl, self._control.info.parameter_status("server_encoding"))
        self._writer = _Writer(self._log, self._shapes.recorder, decoder)
        self._frames = FrameBuffer()
        self._in_parts = _NO_XIDS
        """The xid of the transaction that is written in parts, without its Commit yet; empty if there is none."""
        self._idle_mark: WalEnd | None = None
        self._marked_at = -math.inf
        self._awaited = threading.Event()

    @property
    def done_lsn(self) -> Lsn:
        """Everything that starts before this LSN is durable."""
        return self._writer.done_lsn

    def run(
        self, until: WalEnd | None, awaited: threading.Event | None = None, lagging: threading.Event | None = None
    ) -> None:
        """Capture until everything before `until` is durable; without `until` until `stop` is set.

        While `awaited` is set, what an idle source has passed is recorded at once. `lagging` is set from a commit on
        that is more than 5 s old when it is written, until one is not or all of the source is passed, and while a
        transaction is written in parts.
        """
        self._awaited = awaited or self._awaited
        self._writer.lagging = lagging or self._writer.lagging
        with ExitStack() as held:
            held.callback(self._writer.lagging.clear)
            for each in (self._control, self._stream, self._writer):
                held.enter_context(closing(each))
            while not self._stop.is_set() and (until is None or self._is_before(until)):
                self._step(until)
            self._collect_last()
            if until is not None and self.done_lsn >= until.lsn and self._log.current_us < until.time_us:
                self._check_catalog()
                self._log.record_idle(self.done_lsn, until.time_us)

    def _is_before(self, until: WalEnd) -> bool:
        return self.done_lsn < until.lsn or self._pending

    @property
    def _pending(self) -> bool:
        return self._partitions.pending or self._shapes.pending

    def _asking(self) -> AbstractContextManager[None]:
        """Limit the time for an answer on the control connection."""
        return answering_within(self._control, self._timeouts.silence_s)

    def _check_catalog(self) -> None:
        """Compare shapes and partitions with the record; required before anything received so far is made durable."""
        with self._asking():
            held = HeldUpTo(self.done_lsn, self._log.current_us)
            self._shapes.check(self._control, held)
            self._partitions.check(self._control, held)
            if self._shapes.moved or self._publication.is_changed(self._control):
                self._publication.refresh(self._control, held.lsn, held.time_us)
                self._publication.record_checked(held.lsn, held.time_us)
                self._shapes.moved = False
            if not self._pending:
                self._shapes.record_trigger()

    def _step(self, until: WalEnd | None) -> None:
        beat(Beat.CAPTURE)
        self._receive()
        if not self._writer.busy:
            if self._pending:
                self._check_catalog()
                self._marked_at = -math.inf
            self._submit(until)
        self._check_heard()
        if self._heartbeat.due:
            with self._asking():
                self._heartbeat.beat(self._control)
        if self._publication.due:
            with self._asking():
                self._refresh_publication()

    def _receive(self) -> None:
        """Receive until a batch is ready or a job has ended; acknowledge what the job made durable."""
        limits = _BATCH if self._frames.commits and not self._writer.busy else _FULL
        self._stream.receive(self._frames, limits, self._patience_s(), self._writer)
        if self._writer.collect():
            self._stream.acknowledge(self.done_lsn)
            reach(After.ACKNOWLEDGED)

    def _refresh_publication(self) -> None:
        """Read which tables the publication has now, and watch them."""
        since = self.done_lsn
        self._publication.refresh(self._control, since)
        self._publication.record_checked(since, self._log.current_us)
        for watch in (self._snapshots, self._partitions, self._shapes):
            watch.refresh(self._control, self._publication.present)

    def _check_heard(self) -> None:
        unheard_s = self._stream.unheard_for_s
        if unheard_s > self._timeouts.silence_s:
            raise unreachable(f"nothing was received from it for {unheard_s:.0f} s")

    def _submit(self, until: WalEnd | None) -> None:
        """Submit to the writer the next job that is ready, if any."""
        frames = self._frames
        if frames.commits and (_BATCH.met_by(frames) or self._patience_s() <= 0):
            whole, rest = frames.split()
            if not self._is_visible(whole):
                return
            self._frames, self._in_parts = rest, _NO_XIDS
            self._check_catalog()
            self._writer.write(whole, self._partitions.present)
        elif not frames.commits and _FULL.met_by(frames):
            if not self._is_visible(frames):  # it is sent once it has committed
                return
            part, self._frames = frames.split_part()
            self._in_parts = np.concatenate([self._in_parts, part.xids()])[-1:]
            self._writer.write_part(part)
        elif self._writer.needs_compaction:
            self._writer.compact()
        elif not len(frames) and not self._in_parts.size:
            self._idle(until)

    def _is_visible(self, whole: FrameBuffer) -> bool:
        """Return whether the catalog shows what these transactions have changed; wait a little if not."""
        xids = np.concatenate([self._in_parts, whole.xids()])
        with self._asking():
            visible = are_visible(self._control, xids)
        if not visible:
            time.sleep(_INVISIBLE_S)
        return visible

    def _collect_last(self) -> None:
        """Wait for the running write, and acknowledge it."""
        while self._writer.busy:
            select.select([self._writer], [], [])
            self._writer.collect()
            self._stream.acknowledge(self.done_lsn)

    def _patience_s(self) -> float:
        """Return how long the oldest commit in the buffer may still wait for others, in seconds."""
        if self._writer.busy or not self._frames.commits:
            return _WAIT_S
        waited_s = time.monotonic() - self._frames.first_commit_at
        if len(self._frames) < _BUSY_FRAMES:
            return max(0.0, _COMMIT_DELAY_S - waited_s)
        return max(0.0, min(_BUSY_DELAY_S - waited_s, _COMMIT_DELAY_S - self._stream.unheard_for_s))

    def _idle_interval_s(self, until: WalEnd | None) -> float:
        if self._awaited.is_set():
            return _REPLY_INTERVAL_S
        return _IDLE_COMMIT_S if until is None else _TARGET_COMMIT_S

    def _idle(self, until: WalEnd | None) -> None:
        """Advance the slot over WAL without published changes, and record how current the lake is."""
        now = time.monotonic()
        if self._idle_mark is None and now >= self._marked_at + self._idle_interval_s(until):
            with self._asking():
                self._idle_mark = wal_end(self._control)
            self._marked_at = now
        mark, reached = self._idle_mark, max(self.done_lsn, self._stream.keepalive_lsn)
        if mark is None:
            return
        if reached >= mark.lsn:
            self._check_catalog()
            self._writer.record_idle(reached, mark.time_us)
            self._idle_mark = None
        elif self._stream.silent_for_s > _REPLY_INTERVAL_S:
            self._stream.acknowledge(self.done_lsn, ask_reply=True)


@dataclass(frozen=True, slots=True)
class OpenedCapture:
    """A started stream and the tables it is written to; `reader` is our walsender as the server shows it."""

    control: psycopg.Connection[Row]
    stream: ReplicationStream
    log: CaptureLog
    snapshots: CatalogSnapshots
    partitions: PartitionWatch
    shapes: ShapeWatch
    reader: SlotReader | None


def open_capture_log(claim: Claim, source: CaptureSource, lake: Lake, report: Say) -> OpenedCapture:
    """Open the log and the stream of a claim; on failure close the claim.

    Raises SourceUnreachable, WrongSource, LakeUnusable, LakeConflict; ConfigError if the lake records other masks.
    """
    with ExitStack() as opened:
        opened.enter_context(closing(claim))
        control, present, silence_s = claim.control, claim.publication.present, claim.timeouts.silence_s
        stream = ReplicationStream.over(claim.replication, claim.start, source.streaming, lsn_offset(control))
        opened.enter_context(closing(stream)).keep_alive(claim.timeouts.status_s)
        snapshots, masks = CatalogSnapshots(lake), read_masks(lake, source.masking)
        with answering_within(control, silence_s):
            log = CaptureLog(
                lake,
                Asker(source.conninfo, lake, silence_s),
                AttributeNumbers(source.conninfo, lake, silence_s, masks, lambda: shapes.trigger_reports),
                masks,
            )
            recorder = DdlRecorder(lake, log, find_writers=WriterLookup(source.conninfo, silence_s))
            shapes = ShapeWatch(lake, log, recorder, report, source.manifest.publication)
            partitions = PartitionWatch(lake, report, lambda: shapes.trigger_reports)
            _check_again(claim, source.manifest.slot, lake, log, report)
            log.discard_uncommitted()
            log.resolve_missing_values()
            claim.publication.record_checked(claim.start, log.current_us)
            snapshots.refresh(control, present)
            partitions.refresh(control, present)
            shapes.refresh(control, present)
            held = HeldUpTo(log.acknowledged, log.current_us)
            partitions.check(control, held)
            shapes.check(control, held)
            reader = read_reader(control, source.manifest.slot)
        opened.pop_all()
        return OpenedCapture(control, stream, log, snapshots, partitions, shapes, reader)


def _check_again(claim: Claim, slot_name: str, lake: Lake, log: CaptureLog, report: Say) -> None:
    """Check, now that we hold the slot, that it is not ahead of the lake: PostgreSQL would silently start from it."""
    slot, fork = read_slot(claim.control, slot_name), claim.fork
    if fork is not None:
        fork.check_lake_ends_before(Lsn(max(log.held_to, folded_to(lake) + 1)))
        log.return_to(fork.lsn)
        record_timeline(lake, fork.timeline)
        promoted = f"the source was promoted at {fork.lsn}: going on with its timeline {fork.timeline}"
        report(Notice(Event.SOURCE_PROMOTED, promoted))
    try:
        check_slot(slot_name, slot, log.acknowledged)
    except WrongSource:
        _require_unmoved(lake, log)
        raise


def _require_unmoved(lake: Lake, log: CaptureLog) -> None:
    """Require that the lake is still the one for which `log` was opened; raises LakeConflict."""
    positions = read_positions(lake)
    if positions is not None and positions.acknowledged > log.acknowledged:
        raise LakeConflict(
            f"another process has captured up to {positions.acknowledged}, after this one read that the lake ends at"
            f" {log.acknowledged}",
            "Only one capture may run on a lake; stop the other.",
        )
