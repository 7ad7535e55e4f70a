"""A connection to a server that can be cut, go deaf, or be slow, as networks are.

`Proxy` listens on 127.0.0.1 and passes bytes on, both ways. A connection that has gone deaf stays open at both ends and
passes nothing any more, not even that one of them closed it: what a lost route or a dropped entry of a firewall looks
like, where TCP never says so. Connections made later pass.
"""

import select
import socket
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_CHUNK = 1 << 16
_TICK_S = 0.02


class Proxy:
    """A proxy before the server of `dsn`, from entering to leaving the context."""

    def __init__(self, dsn: str) -> None:
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
        """The connection string, through the proxy."""
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
        """End every connection at once."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.client.close()
            pair.server.close()

    def refuse(self, *, refuse: bool = True) -> None:
        """End what is connected and whatever connects from now on, or let connections in again."""
        self._refusing = refuse
        if refuse:
            self.cut()

    def go_deaf(self) -> None:
        """Pass nothing on any more between those that are connected, and end nothing."""
        with self._lock:
            for pair in self._pairs:
                pair.deaf.set()

    def delay(self, seconds: float) -> None:
        """Hold every chunk back for so long."""
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
            self._start(self._pass, pair)

    def _connect(self) -> socket.socket:
        host, port = self._server
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        upstream = socket.socket(socket.AF_UNIX)
        upstream.connect(f"{host}/.s.PGSQL.{port}")
        return upstream

    def _pass(self, pair: "_Pair") -> None:
        ends = (pair.client, pair.server)
        try:
            while not self._closing.is_set():
                for end in select.select(ends, [], [], _TICK_S)[0]:
                    data = end.recv(_CHUNK)
                    self._closing.wait(self._delay_s)
                    if pair.deaf.is_set():
                        return
                    if not data:
                        pair.client.close()
                        pair.server.close()
                        return
                    ends[end is pair.client].sendall(data)
        except (OSError, ValueError):  # cut
            pair.client.close()
            pair.server.close()


@dataclass(frozen=True)
class _Pair:
    client: socket.socket
    server: socket.socket
    deaf: threading.Event = field(default_factory=threading.Event)
