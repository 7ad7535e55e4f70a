"""The spool: changes of transactions that are still open, kept until the server says how they ended.

With streaming the server sends a large transaction in blocks while it runs, blocks of several transactions in turn.
`Spool` keeps their messages, drops those of what is rolled back, and gives a committed transaction back as the plain
one that the server would have sent without streaming: Begin, its messages without their xids, Commit.

Nothing of it needs to outlive the process: a transaction whose commit is not acknowledged is sent again, from its
first change, since the slot keeps the log from the oldest open transaction on (its restart_lsn).

Memory is bounded: beyond `memory_bytes` the transaction that has most in memory goes to a file.

Rolling back a subtransaction cuts the transaction at that subtransaction's first change. Subtransactions nest, so
whatever came after it is part of it or was rolled back before (worker.c, stream_abort_internal, does the same).

Relation messages are the streamed transaction's own until it commits; if it does, the server will not repeat them,
unless something has changed since (pgoutput.c, cleanup_rel_sync_cache). So after its commit that description of a
relation holds which came last, be it from this transaction or from one that committed before; where that is another's,
it is repeated before the Commit.

Two-phase commit is not for us: what is acknowledged at PREPARE is not sent again at COMMIT PREPARED. Our slots are
made without it; then a prepared transaction comes as any other when it commits.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from auditlake.errors import DecodeError, WrongSource
from auditlake.pgoutput.descriptions import Description
from auditlake.pgoutput.frames import Ints
from auditlake.pgoutput.messages import Message, StreamAbort, StreamCommit, StreamStart, StreamStop
from auditlake.pgoutput.streamed import Segment, plain_bounds, read_block, relation_oid, segment_of
from auditlake.pgoutput.wire import decode
from auditlake.postgres.spooled import SpooledTransaction, not_writable

_MEMORY_BYTES = 8 << 20
_XIDS = 2**32


class Spool:
    """The open streamed transactions of one replication stream."""

    def __init__(self, folder: Path | None = None, memory_bytes: int = _MEMORY_BYTES) -> None:
        """Keep what is more than `memory_bytes` in `folder`, the system's for temporary files where that is None.

        Raises LakeUnusable where the folder cannot be written.
        """
        self._folder = folder or Path(tempfile.gettempdir())
        _see_folder(self._folder)
        self._memory_bytes = memory_bytes
        self._open: dict[int, SpooledTransaction] = {}
        self._block: SpooledTransaction | None = None
        self._replay: Iterator[Segment] | None = None
        self._held: dict[int, tuple[int, bytes]] = {}
        self._epoch = 0
        self._last_described: int | None = None

    @property
    def in_block(self) -> bool:
        """Whether what comes next belongs to a block, up to its Stream Stop."""
        return self._block is not None

    @property
    def active(self) -> bool:
        """Whether any transaction is open, so that plain frames need a look too."""
        return bool(self._open)

    @property
    def memory_used(self) -> int:
        """Bytes of messages in memory, with what keeping them costs."""
        return sum(each.memory_bytes for each in self._open.values())

    @property
    def file_bytes(self) -> int:
        """Bytes of messages in files."""
        return sum(each.file_bytes for each in self._open.values())

    def add(self, data: bytearray, starts: Ints, ends: Ints) -> None:
        """Take messages of the block; `data` is changed and kept.

        Raises DecodeError.
        """
        assert self._block is not None  # noqa: S101  # the caller has asked
        segment = read_block(data, starts, ends, self._block.xid)
        for number, payload in segment.relations():
            epoch, oid = self._epoch_of(self._block.xid), relation_oid(payload)
            self._block.descriptions.add(Description(self._block.count + number, epoch, oid, payload))
        self._block.add(segment)
        while self.memory_used > self._memory_bytes:
            max(self._open.values(), key=lambda each: each.memory_bytes).spill()

    def describe(self, payload: bytes) -> None:
        """Note the Relation message of a plain transaction, in case open ones know an older one."""
        if self._open:
            self._held[relation_oid(payload)] = self._epoch_of(None), payload

    def _epoch_of(self, source: int | None) -> int:
        if source != self._last_described:
            self._epoch, self._last_described = self._epoch + 1, source
        return self._epoch

    def bound(self, payload: bytes) -> None:
        """Take a message that bounds blocks and streamed transactions.

        Raises DecodeError where it is damaged or out of order, WrongSource for two-phase commit.
        """
        message = decode(payload)
        if self.in_block and not isinstance(message, StreamStop):
            raise _misplaced(payload, f"in a block of transaction {self._block and self._block.xid}")
        match message:
            case StreamStart():
                self._start(payload, message)
            case StreamStop():
                if not self.in_block:
                    raise _misplaced(payload, "outside blocks")
                self._block = None
            case StreamAbort():
                self._abort(message)
            case StreamCommit(xid):
                self._replay = self._plain(payload, self._known(payload, xid))
            case _:
                raise _two_phase(message)

    def _start(self, payload: bytes, start: StreamStart) -> None:
        if not start.first:
            self._block = self._known(payload, start.xid)
        elif start.xid in self._open:
            raise _misplaced(payload, f"the first block of transaction {start.xid}, which has one already")
        else:
            self._block = self._open[start.xid] = SpooledTransaction(start.xid, self._folder)

    def _abort(self, abort: StreamAbort) -> None:
        transaction = self._open.get(abort.xid)
        if transaction is None:  # nothing of it was sent: PostgreSQL 18 says so of some that it has not streamed
            return
        if abort.subxid == abort.xid:
            transaction.close()
            self._forget(abort.xid)
        else:
            transaction.cut((abort.subxid - abort.xid) % _XIDS)

    def _known(self, payload: bytes, xid: int) -> SpooledTransaction:
        if (found := self._open.get(xid)) is None:
            raise _misplaced(payload, f"transaction {xid}, which has no block")
        return found

    def _forget(self, xid: int) -> None:
        del self._open[xid]
        if not self._open:
            self._held.clear()

    def _plain(self, payload: bytes, transaction: SpooledTransaction) -> Iterator[Segment]:
        begin, commit = plain_bounds(payload)
        yield segment_of([begin])
        yield from transaction.segments()
        yield segment_of([*self._superseding(transaction), commit])
        self._forget(transaction.xid)

    def _superseding(self, transaction: SpooledTransaction) -> list[bytes]:
        """Give the descriptions of others that came after this transaction's own, and hold its own for others."""
        newer = []
        for mine in transaction.descriptions.latest():
            epoch, payload = self._held.get(mine.oid, (0, b""))
            if epoch > mine.epoch:
                newer.append(payload)
            else:
                self._held[mine.oid] = mine.epoch, mine.payload
        return newer

    def next_segment(self) -> Segment | None:
        """Give the next part of the transaction that has just committed; None where there is none, or no more."""
        if self._replay is None:
            return None
        segment = next(self._replay, None)
        if segment is None:
            self._replay = None
        return segment

    def close(self) -> None:
        """Drop everything."""
        for transaction in self._open.values():
            transaction.close()
        self._open.clear()


def _see_folder(folder: Path) -> None:
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as exc:
        raise not_writable(folder, exc) from exc


def _misplaced(payload: bytes, problem: str) -> DecodeError:
    return DecodeError(f"pgoutput message {chr(payload[0])!a} out of order: {problem}")


def _two_phase(message: Message) -> WrongSource:
    name = type(message).__name__
    return WrongSource(
        f"the slot sent a {name} message: it has two-phase commit, need one without",
        "What was prepared may have been passed over; bootstrap a new lake with a new slot.",
    )
