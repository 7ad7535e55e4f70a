"""Process of the page: bind the address, then serve until a signal ends it."""

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from auditlake.errors import ConfigError
from auditlake.serve.access import Access, hosts_of, require_safe
from auditlake.serve.app import create_app
from auditlake.serve.readings import Readings

_CONNECTIONS = 200
_ENDING_S = 2
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the server listens, and who may ask: a token, a header of a reverse proxy, more names of the server."""

    address: str = "127.0.0.1"
    port: int = 8640
    token: str | None = None
    proxy_header: str | None = None
    names: tuple[str, ...] = ()


def parse_listen(text: str) -> tuple[str, int]:
    """Parse ADDRESS:PORT, or PORT alone.

    Raises ConfigError.
    """
    address, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:  # noqa: PLR2004 - 16 bits
        raise ConfigError(f"--listen is {text!r}, need ADDRESS:PORT", "For example 127.0.0.1:8640, or [::1]:8640.")
    return address.strip("[]") or "127.0.0.1", int(port)


def serve(readings: Readings, listen: Listen, spark: dict[str, str], started: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `started` is called with the URL once the address is bound.

    Raises ConfigError if the address is not safe without authentication, or cannot be bound.
    """
    require_safe(listen.address, listen.token, listen.proxy_header)
    bound = bind(listen)
    port = bound.getsockname()[1]
    access = Access(hosts_of(listen.address, port, listen.names), listen.token, listen.proxy_header)
    config = uvicorn.Config(
        create_app(readings, access, spark),
        log_level="critical",
        access_log=False,  # a URL has keys and values of rows
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_ENDING_S,
    )
    shown = f"[{listen.address}]" if ":" in listen.address else listen.address
    with bound:
        started(f"http://{shown}:{port}/")
        _Server(config).run(sockets=[bound])


class _Server(uvicorn.Server):
    """Server that ends normally on a signal; uvicorn's own raises the signal again when it has ended."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals that ask the process to end."""
        before = {number: signal.signal(number, self.handle_exit) for number in _ENDING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def bind(listen: Listen) -> socket.socket:
    """Bind the address.

    Raises ConfigError.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(listen.address, listen.port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(_CONNECTIONS)  # from here on, requests wait for the server to start
    except OSError as exc:
        raise ConfigError(
            f"{listen.address}:{listen.port} cannot be bound: {exc.strerror or exc}", "Give --listen another port."
        ) from exc
    return bound
