"""A store that fails: a proxy before a server of the S3 protocol, which spoils a share of the requests.

Faults: a request that is not answered, a reply that is lost after the request took effect, a connection that is reset
instead of the reply, throttling (503 SlowDown), internal errors (500), slow replies. `refusing` makes the store refuse
everything for a while, as with credentials that have expired or a policy that denies the bucket; `spoil` chooses the
fault of the next requests, also `SILENT`: no reply until the client gives up, although they take effect. Which other
requests are spoiled depends on a seed and on their order.
"""

import http.client
import random
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

from tests.http_server import serve

_HOP = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive", "date", "server"})
_SLOW_S = 2.0
SILENT, RESET = "silent", "reset"
_SILENT_S = 300.0
_KINDS = {"lost request": 4, "lost reply": 4, RESET: 2, "SlowDown": 6, "InternalError": 3, "slow": 1}
REFUSED = ("ExpiredToken", "AccessDenied")
"""Codes of a refusal that lasts."""
_STATUS = {"SlowDown": 503, "InternalError": 500, "ExpiredToken": 400, "AccessDenied": 403}


class FaultyStore:
    """Listens on 127.0.0.1 until the context is left; `endpoint` is its URL, `made` counts the faults by kind."""

    def __init__(
        self, server: str, share: float, seed: int | str, admits: Callable[[str], bool] = lambda _: True
    ) -> None:
        """Spoil this share of the requests to the server at a URL; `admits` judges their Authorization headers."""
        self.made: Counter[str] = Counter()
        self._server = urlsplit(server)
        self.share = share
        self.admits = admits
        self._random = random.Random(seed)  # noqa: S311 - faults of a test
        self._refusal: str | None = None
        self._next: list[str] = []
        self._lock = threading.Lock()
        self._listener = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": self}))
        self._listener.daemon_threads = True

    def __enter__(self) -> Self:
        serve(self._listener)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown()
        self._listener.server_close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listener.server_port}"

    @contextmanager
    def refusing(self, fault: str) -> Iterator[None]:
        """Spoil every request in the block with this error code of S3, or kind of fault."""
        self._refusal = fault
        try:
            yield
        finally:
            self._refusal = None

    def spoil(self, *faults: str) -> None:
        """Spoil the next requests with these kinds of fault, one each."""
        with self._lock:
            self._next = list(faults)

    def fault(self) -> str | None:
        """Choose the fault of the next request."""
        with self._lock:
            fault = self._refusal
            if self._next:
                fault = self._next.pop(0)
            elif fault is None and self._random.random() < self.share:
                (fault,) = self._random.choices(list(_KINDS), list(_KINDS.values()))
            if fault is not None:
                self.made[fault] += 1
            return fault

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection to the server."""
        return http.client.HTTPConnection(str(self._server.hostname), self._server.port or 80)


class _Handler(BaseHTTPRequestHandler):
    store: FaultyStore
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.upstream = self.store.connect()

    def handle(self) -> None:
        with suppress(ConnectionError):  # a client that was killed
            super().handle()

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()
        self.upstream.close()

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        admitted = self.store.admits(self.headers.get("Authorization", ""))
        fault = self.store.fault() if admitted else REFUSED[0]
        if fault in _STATUS:
            self._refuse(str(fault))
        elif fault == "lost request":
            self._hang_up()
        else:
            self.upstream.request(self.command, self.path, body, dict(self.headers.items()))
            reply = self.upstream.getresponse()
            content = reply.read()
            if fault == SILENT:
                select.select([self.connection], [], [], _SILENT_S)  # readable when the client has closed it
            if fault in {"lost reply", SILENT, RESET}:
                self._hang_up(is_reset=fault == RESET)
                return
            time.sleep(_SLOW_S if fault == "slow" else 0)
            self._answer(reply, content)

    def _answer(self, reply: http.client.HTTPResponse, content: bytes) -> None:
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        length = reply.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        with suppress(OSError):  # the client has what it wanted
            self.wfile.write(content)

    def _refuse(self, code: str) -> None:
        text = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>injected</Message></Error>'.encode()
        self.send_response(_STATUS[code])
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            with suppress(OSError):
                self.wfile.write(text)

    def _hang_up(self, *, is_reset: bool = False) -> None:
        self.close_connection = True
        with suppress(OSError):
            if is_reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                socket.close(self.connection.detach())  # although its readers are open
            else:
                self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward  # noqa: N815 - names of http.server

    def log_message(self, *_: object) -> None:
        """Stay quiet."""
