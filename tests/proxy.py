"""Proxy for a server: connections can be cut, silenced, refused or slowed, like those of a network.

`Proxy` listens on 127.0.0.1 and forwards bytes in both directions. A silenced connection stays open at both ends and
forwards nothing, not even a close: like a lost route or a dropped firewall entry, for which TCP reports no error. Later
connections work.
"""

import select
import socket
import threading
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_CHUNK = 1 << 16
_TICK_S = 0.02


class Proxy:
    """A proxy for the server of `dsn`, for the duration of a context."""

    def __init__(self, dsn: str, drops: Collection[str] = ()) -> None:
        """Drop these parameters of startup packets, as poolers do that are configured to ignore them."""
        self._drops = frozenset(drops)
        parts = conninfo_to_dict(dsn)
        self._dsn = dsn
        self._server = (str(parts["host"]), int(str(parts["port"])))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_TICK_S)
        self._closing = threading.Event()
        self._refusing = False
        self._delay_s = 0.0
        self._lock = threading.Lock()
        self._pairs: list[_Pair] = []
        self._threads: list[threading.Thread] = []
        self.accepted = 0

    @property
    def dsn(self) -> str:
        """Return the connection string through the proxy."""
        host, port = self._listener.getsockname()
        return make_conninfo(self._dsn, host=host, port=port)

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self.cut()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def cut(self) -> None:
        """Close every connection at once."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.close()

    def refuse(self, *, refuse: bool = True) -> None:
        """Close all current and later connections, or accept connections again."""
        self._refusing = refuse
        if refuse:
            self.cut()

    def go_deaf(self) -> None:
        """Forward nothing on the current connections, and keep them open."""
        with self._lock:
            for pair in self._pairs:
                pair.deaf.set()

    def delay(self, seconds: float) -> None:
        """Delay every chunk by this time."""
        self._delay_s = seconds

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            if self._refusing:
                client.close()
                continue
            try:
                server = self._connect()
            except OSError:  # it is away
                client.close()
                continue
            self.accepted += 1
            pair = _Pair(client, server)
            with self._lock:
                self._pairs.append(pair)
            self._start(self._pass_on, pair, client, server)
            self._start(self._pass_on, pair, server, client)

    def _connect(self) -> socket.socket:
        host, port = self._server
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        upstream = socket.socket(socket.AF_UNIX)
        upstream.connect(f"{host}/.s.PGSQL.{port}")
        return upstream

    def _pass_on(self, pair: "_Pair", source: socket.socket, target: socket.socket) -> None:
        """Forward one direction: an end that does not read must not delay what it sends, as in a network."""
        with suppress(OSError, ValueError):  # cut
            if self._drops and source is pair.client:
                target.sendall(_without(source.recv(_CHUNK), self._drops))
            while not self._closing.is_set():
                if not select.select([source], [], [], _TICK_S)[0]:
                    continue
                data = source.recv(_CHUNK)
                self._closing.wait(self._delay_s)
                if pair.deaf.is_set():
                    return
                if not data:
                    break
                target.sendall(data)
        pair.close()


def _without(packet: bytes, drops: Collection[str]) -> bytes:
    """Drop parameters from a startup packet: length, version, then names and values that end in zero."""
    fields = packet[8:].rstrip(b"\0").split(b"\0")
    pairs = zip(fields[::2], fields[1::2], strict=True)
    kept = b"".join(name + b"\0" + value + b"\0" for name, value in pairs if name.decode() not in drops)
    return (len(kept) + 9).to_bytes(4, "big") + packet[4:8] + kept + b"\0"


@dataclass(frozen=True)
class _Pair:
    client: socket.socket
    server: socket.socket
    deaf: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        """Close both ends, also for a thread that is sending."""
        for end in (self.client, self.server):
            with suppress(OSError):  # it is closed, or was never connected
                end.shutdown(socket.SHUT_RDWR)
            end.close()
