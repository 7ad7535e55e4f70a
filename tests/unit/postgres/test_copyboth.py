"""Messages are found in a socket's bytes wherever those are cut, and what is no message is refused."""

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from auditlake.errors import DecodeError, SourceUnreachable
from auditlake.postgres.buffer import FrameBuffer, Limits
from auditlake.postgres.intake import Intake
from auditlake.postgres.socketcopy import SocketCopy

PLENTY = Limits(frames=1000, size_bytes=1 << 20)
KEEPALIVE = b"k" + struct.pack(">qqc", 77, 5, b"\x01")


@dataclass
class Connection:
    """The two things of a libpq connection that matter here."""

    socket: int

    def finish(self) -> None:
        """Nothing of libpq's is open."""


@dataclass
class Direct:
    """A relay that is none: the socket itself, so that what was sent is there to be read."""

    descriptor: int

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self.descriptor

    def close(self) -> None:
        """Close our copy of it."""
        os.close(self.descriptor)


@pytest.fixture
def pair() -> Iterator[tuple[SocketCopy, socket.socket]]:
    """A reader and the server's end of its socket."""
    ours, servers = socket.socketpair()
    with ours, servers:
        copy = SocketCopy(Connection(ours.fileno()), Direct(os.dup(ours.fileno())))  # type: ignore[arg-type]  # no more of them is used
        yield copy, servers
        copy.close()


def into(frames: FrameBuffer, limits: Limits) -> Intake:
    """Say where plain frames go."""
    intake = Intake()
    intake.fill(frames, limits)
    return intake


def message(kind: bytes, body: bytes) -> bytes:
    """One message of the protocol."""
    return kind + struct.pack(">I", len(body) + 4) + body


def frame(payload: bytes) -> bytes:
    """A CopyData message that carries a frame."""
    return message(b"d", b"w" + bytes(24) + payload)


def payloads(frames: FrameBuffer) -> list[bytes]:
    """The frames of a buffer."""
    data, starts, ends = frames.payloads()
    return [bytes(data[start:end]) for start, end in zip(starts, ends, strict=True)]


STREAM = (
    message(b"W", b"\0\0\0")
    + frame(b"Bcommit soon")
    + message(b"N", b"SNOTICE\0Mword\0\0")
    + message(b"d", KEEPALIVE)
    + frame(b"M\x00 of no transaction")
    + frame(b"M\x01 of this one")
    + frame(b"C")
    + frame(b"B" + b"x" * 300)
)
FRAMES = [b"Bcommit soon", b"M\x01 of this one", b"C", b"B" + b"x" * 300]


@pytest.mark.parametrize("size", [1, 2, 7, 64, len(STREAM)])
def test_cut_anywhere(pair: tuple[SocketCopy, socket.socket], size: int) -> None:
    """However the bytes arrive, the frames are the same, and the last Commit ends the third."""
    copy, server = pair
    frames, keepalives = FrameBuffer(), []
    for at in range(0, len(STREAM), size):
        server.sendall(STREAM[at : at + size])
        keepalives += copy.read(into(frames, PLENTY))
    assert (payloads(frames), keepalives) == (FRAMES, [KEEPALIVE])
    assert (frames.commits, frames.after_last_commit) == (1, 3)


def test_split(pair: tuple[SocketCopy, socket.socket]) -> None:
    """Cut after the last Commit, both halves hold their frames, and the second goes on taking more."""
    copy, server = pair
    server.sendall(STREAM)
    frames = FrameBuffer()
    copy.read(into(frames, PLENTY))
    head, rest = frames.split()
    server.sendall(frame(b"C again"))
    copy.read(into(rest, PLENTY))
    assert (payloads(head), payloads(rest)) == (FRAMES[:3], [*FRAMES[3:], b"C again"])
    assert (head.commits, rest.commits) == (1, 1)


def test_a_full_buffer(pair: tuple[SocketCopy, socket.socket]) -> None:
    """Nothing is read for a buffer that is full, and nothing is lost by it."""
    copy, server = pair
    server.sendall(STREAM)
    frames = FrameBuffer()
    assert copy.read(into(frames, Limits(frames=0, size_bytes=1))) == []
    assert len(frames) == 0
    assert copy.read(into(frames, PLENTY)) == [KEEPALIVE]
    assert len(frames) == len(FRAMES)


@pytest.mark.parametrize("body", [b"", b"w" + bytes(24), b"k", KEEPALIVE + b"x", b"z" + bytes(40)])
def test_neither_frame_nor_keepalive(pair: tuple[SocketCopy, socket.socket], body: bytes) -> None:
    """Copy data that holds neither is refused by its kind and length, without its content."""
    copy, server = pair
    server.sendall(message(b"d", body))
    with pytest.raises(DecodeError, match=f"of {len(body)} bytes"):
        copy.read(into(FrameBuffer(), PLENTY))


def test_an_error_of_the_server(pair: tuple[SocketCopy, socket.socket]) -> None:
    """What the server says at the end is what the operator is told."""
    copy, server = pair
    server.sendall(message(b"E", b"SFATAL\0C57P01\0Mterminating connection\0\0"))
    with pytest.raises(SourceUnreachable, match="FATAL: terminating connection"):
        copy.read(into(FrameBuffer(), PLENTY))


@pytest.mark.parametrize("end", [b"", message(b"c", b""), message(b"W", b"\0\0\0") * 2])
def test_the_end(pair: tuple[SocketCopy, socket.socket], end: bytes) -> None:
    """A stream that ends, in order or not, is a lost source."""
    copy, server = pair
    server.sendall(end)
    server.close()
    with pytest.raises(SourceUnreachable, match="ended the replication stream"):
        copy.read(into(FrameBuffer(), PLENTY))
