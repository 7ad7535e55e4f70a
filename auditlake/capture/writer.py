"""The writing half of capture: a thread that decodes buffers and makes them durable, one job at a time, in order.

Capture hands over a job when none is under way, goes on receiving, and collects what became of it: the LSN before
which everything is durable, or the error that ended it. So a slow write never keeps the stream from being read or the
server from hearing of us, and memory holds two buffers at most: one being written, one being filled.

Decoder and log belong to this thread alone once the first job was handed over.
"""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.errors import InvariantBroken
from auditlake.lake.changes import CaptureLog, CommitEnd
from auditlake.lsn import Lsn
from auditlake.pgoutput.columnar import ChangeDecoder, Decoded
from auditlake.postgres.buffer import FrameBuffer


class Writer:
    """Makes frames durable in the background; readable, as a descriptor, when a job has ended."""

    def __init__(self, log: CaptureLog) -> None:
        self._log = log
        self._decoder = ChangeDecoder(log.relations.register)
        self._partial = log.partial()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="auditlake-writer")
        self._job: Future[None] | None = None
        self._ended, self._tell = os.pipe()
        self.done_lsn = log.acknowledged
        """Everything that starts before this LSN is durable: as of the last job that was collected."""

    def fileno(self) -> int:
        """Descriptor that is readable when a job waits to be collected."""
        return self._ended

    @property
    def busy(self) -> bool:
        """Whether a job was handed over and not collected yet."""
        return self._job is not None

    def write(self, transactions: FrameBuffer) -> None:
        """Hand over frames that end with a Commit."""
        self._start(lambda: self._write(transactions))

    def write_part(self, part: FrameBuffer) -> None:
        """Hand over part of a transaction whose Commit has not come."""
        self._start(lambda: self._log.append_part(self._unseen(self._decode(part).changes)))

    def note_idle(self, acknowledged: Lsn, current_us: int) -> None:
        """Record that nothing for us lies below `acknowledged`, and that all commits up to `current_us` are here."""
        self._start(lambda: self._log.note_idle(acknowledged, current_us))

    @property
    def untidy(self) -> bool:
        """Whether `tidy` is worth its time; to be asked between jobs."""
        return self._log.untidy

    def tidy(self) -> None:
        """Join the small files that many small batches have left."""
        self._start(self._log.tidy)

    def _start(self, job: Callable[[], None]) -> None:
        if self._job is not None:
            raise InvariantBroken("a job was handed to the writer before the last one was collected")
        self._job = self._pool.submit(job)
        self._job.add_done_callback(lambda _: os.write(self._tell, b"."))

    def collect(self) -> bool:
        """Take the result of the job that has ended; False where none is under way or it has not.

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
        """Wait for the job under way; what became of it is left in the lake."""
        self._pool.shutdown()
        os.close(self._ended)
        os.close(self._tell)

    def _write(self, transactions: FrameBuffer) -> None:
        decoded = self._decode(transactions)
        commit = decoded.last_commit
        if commit is None:
            raise InvariantBroken("a batch that was cut at a Commit has none")
        end = CommitEnd(commit.commit_lsn, commit.end_lsn)
        self._log.append(self._unseen(decoded.changes), decoded.transactions, end)

    def _decode(self, frames: FrameBuffer) -> Decoded:
        return self._decoder.decode(*frames.payloads())

    def _unseen(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Drop the rows that an earlier run made durable."""
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
