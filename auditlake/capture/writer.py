"""Writer thread of capture: decode buffers and make them durable, one job at a time, in order.

Capture submits a job while none is running, continues to receive, and collects the result: the LSN before which
everything is durable, or the exception. So a slow write delays neither reading the stream nor status updates, and at
most two buffers are in memory: one being written, one being filled.

After the first job only this thread uses the decoder and the log.
"""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.capture.change_log import CaptureLog, CommitEnd
from auditlake.errors import InvariantBroken
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import ChangeDecoder, Decoded
from auditlake.pgoutput.batch_layout import RecordDdl
from auditlake.replication.stream import FrameBuffer


class Writer:
    """Makes frames durable in the background; its descriptor is readable when a job has ended."""

    def __init__(self, log: CaptureLog, record_ddl: RecordDdl) -> None:
        self._log = log
        self._decoder = ChangeDecoder(log.relations.register, record_ddl)
        self._partial = log.partial()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="auditlake-writer")
        self._job: Future[None] | None = None
        self._ended, self._signal = os.pipe()
        self.done_lsn = log.acknowledged
        """Everything that starts before this LSN is durable, as of the last collected job."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when a job can be collected."""
        return self._ended

    @property
    def busy(self) -> bool:
        """Whether a job was submitted and not collected yet."""
        return self._job is not None

    def write(self, transactions: FrameBuffer) -> None:
        """Submit frames that end with a Commit."""
        self._start(lambda: self._write(transactions))

    def write_part(self, part: FrameBuffer) -> None:
        """Submit part of a transaction whose Commit has not been received."""
        self._start(lambda: self._log.append_part(self._missing(self._decode(part).changes)))

    def record_idle(self, acknowledged: Lsn, current_us: int) -> None:
        """Submit the end of an idle stretch, as `CaptureLog.record_idle`."""
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
        """Collect the job that has ended; return False if none is running or it has not ended.

        Raises what the job raised.
        """
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

    def _write(self, transactions: FrameBuffer) -> None:
        decoded = self._decode(transactions)
        commit = decoded.last_commit
        if commit is None:
            raise InvariantBroken("a batch that ends with a Commit has none")
        end = CommitEnd(commit.commit_lsn, commit.end_lsn)
        self._log.append(self._missing(decoded.changes), decoded.transactions, end)

    def _decode(self, frames: FrameBuffer) -> Decoded:
        return self._decoder.decode(*frames.payloads())

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
