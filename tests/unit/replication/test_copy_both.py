"""Tests of COPY BOTH through libpq: one call reads everything available, although libpq reads single TLS records."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import psycopg
import pytest

from auditlake.errors import DecodeError, SourceUnreachable
from auditlake.lsn import Lsn
from auditlake.pgoutput.decoder import (
    MOST_CONTENT_BYTES,
    Begin,
    Commit,
    Insert,
    LogicalMessage,
    Message,
    StreamCommit,
    StreamStart,
    StreamStop,
    decode,
)
from auditlake.replication.spool import Spool
from auditlake.replication.stream import BufferLimits, CopyBoth, FrameBuffer, Intake
from tests.unit.pgoutput.encode import encode, encode_streamed

PLENTY = BufferLimits(frames=10_000, size_bytes=1 << 24)
HEADER = b"w" + bytes(24)


class TlsConnection:
    """A TLS connection of libpq: `consume_input` reads one record, and OpenSSL may keep half of it.

    The socket is readable as long as records are left in it.
    """

    def __init__(self, ours: socket.socket, servers: socket.socket) -> None:
        self._ours, self._servers = ours, servers
        self._records: list[bytes] = []
        self._in_openssl: list[bytes] = []
        self._messages: list[bytes] = []
        self.ended = False
        self.most_in_memory = 0

    @property
    def socket(self) -> int:
        return self._ours.fileno()

    def receive(self, *records: bytes) -> None:
        """Make records available; a message ends with a line feed."""
        self._records += records
        self._servers.sendall(b"." * len(records))

    def consume_input(self) -> None:
        if self._in_openssl:
            self._read(self._in_openssl.pop())
        elif self._records:
            self._ours.recv(1)
            record = self._records.pop(0)
            half = len(record) // 2 if len(record) > 8192 else len(record)
            self._in_openssl += [record[half:]] * (half < len(record))
            self._read(record[:half])
        elif self.ended:
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    def _read(self, data: bytes) -> None:
        begun = self._messages.pop() if self._messages else b""
        self._messages += (begun + data).split(b"\n")
        self.most_in_memory = max(self.most_in_memory, len(self._messages))

    def get_copy_data(self, _: int) -> tuple[int, memoryview]:
        if len(self._messages) < 2:  # the last one has not ended
            return 0, memoryview(b"")
        message = self._messages.pop(0)
        return len(message), memoryview(message)


@pytest.fixture
def connection() -> Iterator[TlsConnection]:
    """A connection without any record yet."""
    ours, servers = socket.socketpair()
    with ours, servers:
        yield TlsConnection(ours, servers)


def reader(connection: TlsConnection) -> CopyBoth:
    """Return a reader of this connection."""
    return CopyBoth(SimpleNamespace(pgconn=connection))  # type: ignore[arg-type]  # the part that is used


def read(copy: CopyBoth, limits: BufferLimits = PLENTY) -> list[bytes]:
    """Return the frames of one call."""
    frames, intake = FrameBuffer(), Intake()
    intake.fill(frames, limits)
    copy.read(intake)
    data, starts, ends = frames.payloads()
    return [bytes(data[start:end]) for start, end in zip(starts, ends, strict=True)]


def test_one_call_reads_every_available_record(connection: TlsConnection) -> None:
    """One call per record would cost a select and a pause for each."""
    connection.receive(*(HEADER + b"I%d\n" % n for n in range(1000)))
    assert read(reader(connection)) == [b"I%d" % n for n in range(1000)]


def test_bytes_inside_openssl_are_read(connection: TlsConnection) -> None:
    """A select on the socket would not show them."""
    large = b"I" + b"x" * 9000
    connection.receive(HEADER + large + b"\n")
    assert read(reader(connection)) == [large]


def test_a_message_of_many_records_is_read_in_one_call(connection: TlsConnection) -> None:
    """The message is complete only with the last record."""
    connection.receive(HEADER + b"I", *(b"x" * 16000 for _ in range(40)), b"\n")
    assert [len(frame) for frame in read(reader(connection))] == [640_001]


def test_records_of_many_messages_do_not_accumulate_in_memory(connection: TlsConnection) -> None:
    """The messages of a record are taken before many more records are read."""
    record = b"".join(HEADER + b"I%d\n" % n for n in range(100))
    connection.receive(*[record] * 100)
    assert len(read(reader(connection))) == 10_000
    assert connection.most_in_memory < 2_000


def test_a_full_intake_leaves_the_rest_for_the_next_call(connection: TlsConnection) -> None:
    """No message is lost if a call ends between two of them."""
    connection.receive(*(HEADER + b"I%d\n" % n for n in range(700)))
    copy, found = reader(connection), list[bytes]()
    while frames := read(copy, BufferLimits(frames=100, size_bytes=1 << 20)):
        found += frames
    assert found == [b"I%d" % n for n in range(700)]


def test_messages_before_a_lost_connection_are_read_first(connection: TlsConnection) -> None:
    """After them every call raises the reason."""
    connection.receive(*(HEADER + b"I%d\n" % n for n in range(300)))
    connection.ended = True
    copy, frames, intake = reader(connection), FrameBuffer(), Intake()
    intake.fill(frames, PLENTY)
    for _ in range(2):
        with pytest.raises(SourceUnreachable, match="server closed the connection"):
            copy.read(intake)
    assert len(frames) == 300


@pytest.mark.parametrize("rows", [0, 300])
def test_a_long_logical_message_is_cut_before_it_is_copied(connection: TlsConnection, rows: int) -> None:
    """In a block of a streamed transaction, where its xid precedes it, and outside; a long row stays whole."""
    at = datetime(2026, 11, 21, tzinfo=UTC)
    long = LogicalMessage(True, Lsn(1), "x", b"y" * 2 * MOST_CONTENT_BYTES)
    row = Insert(1, ("z" * 2 * MOST_CONTENT_BYTES,))
    inside: list[Message] = [*[Insert(1, ("z",))] * rows, long, row]
    after: list[Message] = [StreamStop(), Begin(Lsn(2), at, 8), long, Commit(Lsn(2), Lsn(3), at)]
    after.append(StreamCommit(9, Lsn(4), Lsn(5), at))
    sent = [encode(StreamStart(9, first=True)), *(encode_streamed(9, each) for each in inside), *map(encode, after)]
    assert not any(b"\n" in each for each in sent)
    connection.receive(*(HEADER + each + b"\n" for each in sent))
    received, copy, frames, intake = list[Message](), reader(connection), FrameBuffer(), Intake(Spool())
    while len(received) < rows + 7:
        intake.fill(frames, PLENTY)
        copy.read(intake)
        received = [decode(bytes(frames.data[a:b])) for a, b in zip(frames.starts, frames.ends, strict=True)]
    kept = replace(long, content=long.content[:MOST_CONTENT_BYTES])
    assert [each for each in received if isinstance(each, LogicalMessage)] == [kept, kept]
    assert row in received


@pytest.mark.parametrize("body", [b"w" + bytes(24), b"k", b"k" + bytes(18), b"z" + bytes(40)])
def test_a_message_that_is_neither_frame_nor_keepalive_is_refused(connection: TlsConnection, body: bytes) -> None:
    """The error has its kind and length, not its content."""
    connection.receive(body + b"\n")
    with pytest.raises(DecodeError, match=f"of {len(body)} bytes"):
        read(reader(connection))
