"""One HTTP request and its answer, within limits of time and bytes, whatever the receiver does.

An `Exchange` works in a thread of its own, because no timeout of a socket limits a whole answer: a receiver that sends
one byte at a time never exceeds it, and resolving a name has none. The caller waits for the head of the answer, and
gives the exchange up when its time is over: the socket is shut down, which ends the thread, and nothing is sent after
that. The body is read up to `_TAIL_BYTES` and `_TAIL_S`, so that the connection can be used again; if it is longer, the
connection is closed. Redirects are not followed: they are answers.
"""

import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

_TAIL_BYTES = 1 << 16
_TAIL_S = 2.0
_TICK_S = 0.05
_PATH = re.compile(r"[!-~]+")
IsOver = Callable[[], bool]


def never_over() -> bool:
    """Return that there is time left."""
    return False


class OutOfTime(OSError):
    """The exchange was given up."""


@dataclass(frozen=True, slots=True)
class Address:
    """Server and path, with its query, that a URL names."""

    host: str
    port: int
    path: str
    tls: bool

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Parse a URL; raises ValueError, which names the fault and does not quote the URL."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
            host.encode("idna")  # as the resolver does
        except ValueError:
            raise ValueError("has no valid host and port") from None
        if "@" in parts.netloc:
            raise ValueError("has a user or a password, which is not sent")
        if parts.scheme not in {"http", "https"} or not host:
            raise ValueError("is not http:// or https://")
        path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        if not _PATH.fullmatch(path):
            raise ValueError("has a path with characters that a URL cannot have")
        tls = parts.scheme == "https"
        return cls(host, _standard_port(tls=tls) if port is None else port, path, tls)

    def connection(self, timeout_s: float) -> "ClosableConnection":
        """Return a connection to the server, which is opened by its first request."""
        return ClosableConnection(self.host, self.port, timeout_s, tls=self.tls)


def _standard_port(*, tls: bool) -> int:
    return http.client.HTTPS_PORT if tls else http.client.HTTP_PORT


class _FinalAnswer(http.client.HTTPResponse):
    """The answer after any interim ones (1xx); http.client takes each but 100 for the answer, and the next for another.

    Authority: RFC 9110, section 15.2
    """

    def begin(self) -> None:
        super().begin()
        while self.status < HTTPStatus.OK:
            self.headers = self.msg = None  # type: ignore[assignment] # else it begins no more
            super().begin()


class ClosableConnection(http.client.HTTPConnection):
    """A connection whose socket can be shut down by another thread at any time, also during its TLS handshake."""

    response_class = _FinalAnswer

    def __init__(self, host: str, port: int, timeout_s: float, *, tls: bool) -> None:
        self.default_port = _standard_port(tls=tls)  # left out of the Host header
        super().__init__(host, port, timeout=timeout_s)
        self._tls = tls
        self._given_up = False
        self._lock = threading.Lock()

    def connect(self) -> None:
        """Connect; raises OutOfTime if the connection was given up meanwhile."""
        made = socket.create_connection((self.host, self.port), self.timeout)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._tls:
            self._adopt(made)
            return
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        wrapped = context.wrap_socket(made, server_hostname=self.host, do_handshake_on_connect=False)
        self._adopt(wrapped)
        wrapped.do_handshake()

    def _adopt(self, made: socket.socket) -> None:
        with self._lock:
            if self._given_up:
                made.close()
                raise OutOfTime
            self.sock = made

    def give_up(self) -> None:
        """Let every operation on the connection fail, also one that another thread waits in."""
        with self._lock:
            self._given_up = True
            if self.sock is not None:
                with suppress(OSError):  # it is closed, or the receiver closed it
                    socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


class Exchange:
    """One POST over a connection."""

    def __init__(self, connection: ClosableConnection, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        self._connection = connection
        self._request = (path, body, headers)
        self._head: Future[http.client.HTTPResponse] = Future()
        self._tail: Future[tuple[bytes, bool]] = Future()
        threading.Thread(target=self._run, name="exchange", daemon=True).start()

    def _run(self) -> None:
        path, body, headers = self._request
        try:
            try:
                self._connection.request("POST", path, body, dict(headers))
            except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
                if self._connection.sock is None:
                    raise
                # The server may have answered before it read the body, for example that it is too long, and closed.
            answer = self._connection.getresponse()
        except Exception as exc:  # noqa: BLE001 - raised by `head`
            self._head.set_exception(exc)
            return
        self._head.set_result(answer)
        try:
            content = _first_bytes(answer)
            self._tail.set_result((content, answer.isclosed() and not answer.will_close))
        except Exception as exc:  # noqa: BLE001 - raised by `content`
            answer.close()  # not when the exception, which has it in a cycle, is collected
            self._tail.set_exception(exc)

    def head(self, most_s: float, is_over: IsOver) -> http.client.HTTPResponse:
        """Return the answer once its head was read, within `most_s` and before `is_over`.

        Raises OutOfTime, and what http.client raises.
        """
        if not _await(self._head, most_s, is_over):
            self._connection.give_up()
            raise OutOfTime
        return self._head.result()

    def is_reusable(self, is_over: IsOver) -> bool:
        """Return whether all of the answer was read, so that the connection can be used again."""
        return _await(self._tail, _TAIL_S, is_over) and self._tail.exception() is None and self._tail.result()[1]

    def content(self, is_over: IsOver) -> bytes:
        """Return the first `_TAIL_BYTES` after the head; raises OutOfTime, ValueError, and what http.client raises."""
        if not _await(self._tail, _TAIL_S, is_over):
            self._connection.give_up()
            raise OutOfTime
        return self._tail.result()[0]


def _first_bytes(answer: http.client.HTTPResponse) -> bytes:
    """Return up to `_TAIL_BYTES` of the body; raises IncompleteRead, which http.client does only without a limit."""
    content = answer.read(_TAIL_BYTES)
    if answer.length and len(content) < _TAIL_BYTES:
        raise http.client.IncompleteRead(content, answer.length)
    return content


def _await(future: "Future[Any]", most_s: float, is_over: IsOver) -> bool:
    """Wait for a future; return whether it is done."""
    until = time.monotonic() + most_s
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    while not done.wait(_TICK_S):
        if time.monotonic() > until or is_over():
            return future.done()
    return True
