"""A proxy for a server of the S3 protocol: counts requests by kind, and delays each by a given time."""

import http.client
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_LISTS = "list-type=2"
_HOP = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive"})


class CountingProxy:
    """Listens on 127.0.0.1; `endpoint` is its URL."""

    def __init__(self, server: str, delay_s: float) -> None:
        self.delay_s = delay_s
        self.kinds: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._server = urlsplit(server)
        self._listener = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._listener.daemon_threads = True
        threading.Thread(target=self._listener.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listener.server_port}"

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """Yield a counter that has the requests of the context at its end."""
        with self._lock:
            before = self.kinds.copy()
        made: Counter[str] = Counter()
        yield made
        with self._lock:
            made.update(self.kinds - before)

    def count(self, method: str, path: str) -> None:
        """Count a request, and wait for as long as the network would take."""
        kind = "LIST" if method == "GET" and _LISTS in path else method
        with self._lock:
            self.kinds[kind] += 1
        time.sleep(self.delay_s)

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection to the server."""
        return http.client.HTTPConnection(str(self._server.hostname), self._server.port or 80)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                self.upstream = proxy.connect()

            def forward(self) -> None:
                proxy.count(self.command, self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.upstream.request(self.command, self.path, body, dict(self.headers.items()))
                reply = self.upstream.getresponse()
                content = reply.read()
                self.send_response(reply.status)
                for name, value in reply.getheaders():
                    if name.lower() not in _HOP and name.lower() not in {"date", "server"}:
                        self.send_header(name, value)
                length = reply.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                with suppress(BrokenPipeError):  # the client has what it wanted
                    self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward  # noqa: N815 - names of http.server

            def log_message(self, *_: object) -> None:
                """Stay quiet."""

        return Handler
