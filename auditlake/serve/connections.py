"""Connections of the page: limits of time and number, so that no client keeps others from being answered.

1. A request must have arrived, head and body, `REQUEST_S` after its connection was made or its first byte came.
2. While bytes wait to be sent, the client must take `SLOWEST_BYTES_PER_S` over every `WINDOW_S`.
3. A request, with its response, ends after `LONGEST_S`.
4. Of more than `MOST` connections, the one that has been idle longest since its last response is ended, else the one
   that waits longest for its request, else the one that takes its response longest, else the new one. A request that
   has arrived is never ended for another.

A connection beyond a limit is aborted: its client does not read, so it would not read an error either. Whenever a
response is cut short, its connection is reset: in HTTP/1.0, which reverse proxies speak, an ordinary end would complete
it. A server checks its connections once per second (`end_slow`); h11 limits the size of a head, `server` that of a
body.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

MOST = 250
REQUEST_S = 10.0
WINDOW_S = 20.0
SLOWEST_BYTES_PER_S = 10_000
LONGEST_S = 3_600.0
_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: unsent data is dropped."""


class _Counted:
    """A transport that counts the bytes given to it, and resets a connection whose response `is_cut` short."""

    def __init__(self, transport: asyncio.Transport, is_cut: Callable[[], bool]) -> None:
        self._transport = transport
        self._is_cut = is_cut
        self.given = 0

    def write(self, data: bytes) -> None:
        self.given += len(data)
        self._transport.write(data)

    def close(self) -> None:
        """Close the connection, once everything was sent."""
        if self._is_cut():
            self.abort()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Reset the connection."""
        with suppress(OSError):  # it is closed
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._transport.abort()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of a transport
        return getattr(self._transport, name)


@dataclass(slots=True)
class _Window:
    """A time during which bytes waited to be sent: its begin, and how many had been taken by then."""

    begun: float
    taken: int


class Connection(H11Protocol):
    """One connection; `end_slow` checks it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count what is sent, and make room."""
        self._counted = _Counted(transport, lambda: self._is_answering)
        self._waits_since: float | None = self.loop.time()
        self._idle_since: float | None = None
        self._answered_since: float | None = None
        self._window: _Window | None = None
        super().connection_made(cast("asyncio.Transport", self._counted))
        if len(self.connections) > MOST:
            self._make_room()

    def _make_room(self) -> None:
        others = [each for each in self.connections if isinstance(each, Connection) and each is not self]
        waiting = [(each.waits_since, id(each), each) for each in others if each.waits_since is not None]
        sending = [(each.sends_since, id(each), each) for each in others if each.sends_since is not None]
        idle = [(each.idle_since, id(each), each) for each in others if each.idle_since is not None]
        _, _, oldest = min(idle or waiting or sending, default=(0.0, 0, self))
        oldest.end()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request; the first one after a response begins to wait for the next request."""
        if self._waits_since is None and not self._is_answering:
            self._waits_since, self._idle_since = self.loop.time(), None
        super().data_received(data)

    def on_response_complete(self) -> None:
        """Begin with the next request; without a byte of one, uvicorn ends the connection itself."""
        self._waits_since = self._answered_since = None
        super().on_response_complete()
        self._idle_since = self.loop.time()

    @property
    def _is_answering(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        return cycle is not None and not cycle.response_complete

    @property
    def waits_since(self) -> float | None:
        """When it began to wait for a request that has not arrived yet; None if it does not."""
        return self._waits_since if self.conn.their_state in {h11.IDLE, h11.SEND_BODY} else None

    @property
    def idle_since(self) -> float | None:
        """When its last response was complete; None while it answers, or sends, or receives a request."""
        is_busy = self._is_answering or self.transport.get_write_buffer_size() > 0
        return None if is_busy else self._idle_since

    @property
    def sends_since(self) -> float | None:
        """When a response that is complete was last found to wait for its client; None if it does not."""
        return None if self._is_answering or self._window is None else self._window.begun

    def is_too_slow(self, now: float) -> bool:
        """Check the limits of time; called about once per second."""
        if self._is_answering and self._answered_since is None:
            self._answered_since = now
        begun = ((self.waits_since, REQUEST_S), (self._answered_since, LONGEST_S))
        late = any(since is not None and now - since > most_s for since, most_s in begun)
        return late or self._takes_too_slowly(now)

    def _takes_too_slowly(self, now: float) -> bool:
        waiting = self.transport.get_write_buffer_size()
        if waiting == 0:
            self._window = None
            return False
        taken = self._counted.given - waiting
        if self._window is None:
            self._window = _Window(now, taken)
        if now - self._window.begun < WINDOW_S:
            return False
        slow = taken - self._window.taken < SLOWEST_BYTES_PER_S * WINDOW_S
        self._window = _Window(now, taken)
        return slow

    def end(self) -> None:
        """End the connection without waiting for its client."""
        self.transport.abort()


def end_slow(connections: Iterable[object], now: float) -> None:
    """End the connections that are beyond a limit of time."""
    for each in list(connections):
        if isinstance(each, Connection) and each.is_too_slow(now):
            each.end()
