"""The process that empties the socket: nothing is lost, and it never outlives those it serves."""

import os
import random
import select
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from auditlake.postgres.starting import Relay

_PATIENCE_S = 20.0
_LARGE = 5 << 20  # much more than a socket and a pipe hold


@pytest.fixture
def relayed() -> Iterator[tuple[Relay, socket.socket]]:
    """A relay of one end of a socket, and the other end."""
    ours, servers = socket.socketpair()
    relay = Relay(ours.fileno())
    with servers:
        ours.close()  # the relay's own copy is what keeps it open
        yield relay, servers
    relay.close()


def received(relay: Relay, size: int | None = None) -> bytes:
    """What comes out of the pipe, up to a size or to its end."""
    found = b""
    while size is None or len(found) < size:
        assert select.select([relay], [], [], _PATIENCE_S)[0]
        part = os.read(relay.fileno(), 1 << 20)
        if not part:
            break
        found += part
    return found


def test_all_comes_in_order(relayed: tuple[Relay, socket.socket]) -> None:
    """Small and large, with nobody reading meanwhile; what was sent before the end comes before the end."""
    relay, server = relayed
    sent = random.Random(7).randbytes(_LARGE)  # noqa: S311 - no secret
    server.sendall(b"small")
    assert received(relay, 5) == b"small"
    server.sendall(sent)
    server.close()
    assert received(relay) == sent


def test_it_takes_in_while_nobody_reads(relayed: tuple[Relay, socket.socket]) -> None:
    """The server goes on for a while, and not without end: the rest waits at its side."""
    relay, server = relayed
    server.setblocking(False)
    sent, part = 0, bytes(1 << 16)
    while select.select([], [server], [], 1.0)[1]:
        sent += server.send(part)
    assert 12 << 20 <= sent <= 16 << 20
    assert received(relay, sent) == bytes(sent)


def test_it_ends_with_its_reader() -> None:
    """Nobody reads any more: the connection is let go, though nothing comes over it."""
    ours, servers = socket.socketpair()
    with servers:
        with ours:
            relay = Relay(ours.fileno())
        servers.sendall(b"x")
        assert received(relay, 1) == b"x"  # it is running
        relay.close()
        servers.settimeout(_PATIENCE_S)
        assert servers.recv(1) == b""


_KILLED = """
import os, signal, socket, sys
from auditlake.postgres.starting import Relay
ours = socket.socket(fileno=int(sys.argv[1]))
relay = Relay(ours.fileno())
ours.sendall(b"ready")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_ends_when_we_are_killed() -> None:
    """SIGKILL of the process that reads ends the connection at once, as if it had held it alone."""
    ours, servers = socket.socketpair()
    with servers:
        with ours:
            line = [sys.executable, "-c", _KILLED, str(ours.fileno())]
            process = subprocess.Popen(line, pass_fds=(ours.fileno(),))
        servers.settimeout(_PATIENCE_S)
        assert servers.recv(5) == b"ready"
        assert servers.recv(1) == b""
        process.wait()
