"""Server of metrics and health, in threads beside the stages of a process.

    /metrics   everything in `exposition`
    /healthz   200 if the process is alive, 503 and the reason if not; touches neither PostgreSQL nor the lake
    /readyz    200 if it also does its work

Requests are answered from memory. At most eight are answered at a time, each within a few seconds, however slowly its
client sends or takes; if another one comes, the oldest is closed. So no client keeps a health check from its answer.
"""

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from auditlake.counters import Beat
from auditlake.errors import ConfigError
from auditlake.lake.layout import Lake
from auditlake.messages import report_bug
from auditlake.metrics.exposition import Sources, exposed, make_registry
from auditlake.metrics.facts import LakeFactsReader, SlotFactsReader
from auditlake.metrics.health import Problems, alive, ready
from auditlake.metrics.readings import Readings
from auditlake.store.place import by_requests

_READ_EVERY_S, _READ_EVERY_S_IN_STORE = 5.0, 60.0
_REQUEST_S = 5.0
_AT_A_TIME = 8
_END_LOOK_S = 0.1
"""How often the server looks whether it ends, which holds up the end of the process."""
_ENDED_S = 0.05
"""So long a new connection waits for a place before the oldest one is ended."""
_TEXT = "text/plain; charset=utf-8"

Page = Callable[[str], tuple[int, bytes, str]]
"""Makes an answer for an Accept header: status, content and content type."""


@contextmanager
def exporting(
    address: str, port: int, stages: frozenset[Beat], lake: Lake, conninfo: str | None = None
) -> Iterator[str]:
    """Export the metrics of this process during the block; yield their URL.

    They are those of its stages, of the lake, and of the source, if it reads that. Raises ConfigError if the address
    cannot be bound.
    """
    every_s = _READ_EVERY_S_IN_STORE if by_requests(lake.root) else _READ_EVERY_S
    of_lake = LakeFactsReader(lake)
    readings = Readings("the lake", of_lake.read, every_s, of_lake.close)
    sources = Sources(stages, lambda: readings.facts)
    with ExitStack() as held:
        beside: list[AbstractContextManager[object]] = [readings]
        if conninfo is not None:
            of_slot = SlotFactsReader(lake, conninfo)
            slot = Readings("the slot", of_slot.read, every_s, of_slot.close)
            sources, beside = replace(sources, slot=lambda: slot.facts), [slot, readings]
        server = held.enter_context(_bound(address, port, _pages(sources)))
        for each in beside:
            held.enter_context(each)
        threading.Thread(target=server.serve_forever, args=(_END_LOOK_S,), name="metrics", daemon=True).start()
        held.callback(server.shutdown)
        shown = f"[{address}]" if ":" in address else address
        yield f"http://{shown}:{server.server_address[1]}/metrics"


def _pages(sources: Sources) -> dict[str, Page]:
    registry = make_registry(sources)

    def metrics(accept: str) -> tuple[int, bytes, str]:
        return HTTPStatus.OK, *exposed(registry, accept)

    return {
        "/metrics": metrics,
        "/healthz": lambda _: _answer(alive(sources.stages)),
        "/readyz": lambda _: _answer(ready(sources)),
    }


def _answer(problems: Problems) -> tuple[int, bytes, str]:
    text = "\n".join(problems or ("ok",)) + "\n"
    return (HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK), text.encode(), _TEXT


def _bound(address: str, port: int, pages: dict[str, Page]) -> "_Server":
    class Handler(_Handler):
        answers = pages

    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        kind = type("_Bound", (_Server,), {"address_family": family})
        server: _Server = kind((address, port), Handler)
    except OSError as exc:
        raise ConfigError(
            f"metrics cannot be served at {address}:{port}: {exc.strerror or exc}",
            "Give --metrics-port another port, one for each process, or an address of this machine.",
        ) from exc
    return server


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *given: object) -> None:
        self._places = threading.BoundedSemaphore(_AT_A_TIME)
        self._open: dict[socket.socket, threading.Timer] = {}
        super().__init__(*given)  # type: ignore[arg-type]

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as socketserver
        """Answer in a thread, within `_REQUEST_S`; if all places are taken, end the oldest connection for it."""
        while not self._places.acquire(timeout=_ENDED_S):
            for oldest in list(self._open)[:1]:
                _end(oldest)
        limit = self._open[request] = threading.Timer(_REQUEST_S, _end, [request])
        limit.daemon = True
        limit.start()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - as above
        """Close a connection and free its place, also if no thread could be started for it."""
        super().shutdown_request(request)
        self._open.pop(request).cancel()
        self._places.release()

    def handle_error(self, *_: object) -> None:
        """Report a bug; a client that went away is none."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            report_bug(error)


def _end(connection: socket.socket) -> None:
    """Let every operation on a connection fail, also one that another thread waits in."""
    with suppress(OSError):  # it is closed
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    answers: dict[str, Page]

    def do_GET(self) -> None:
        """Answer one request."""
        page = self.answers.get(self.path.partition("?")[0])
        status, content, kind = (
            (HTTPStatus.NOT_FOUND, b"see /metrics, /healthz and /readyz\n", _TEXT)
            if page is None
            else page(self.headers.get("Accept", ""))
        )
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Log nothing: a scrape every few seconds is no event."""

    def version_string(self) -> str:
        return "auditlake"
