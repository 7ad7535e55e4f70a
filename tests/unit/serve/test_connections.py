"""Clients that send or read slowly: they lose their own connection, and keep no other client from its answer."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from urllib.parse import urlsplit

import pytest

from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.relation import TableName
from auditlake.serve.connections import MOST
from tests import command
from tests.page import write_lake
from tests.running import await_true
from tests.small_lake import CUSTOMER_COLUMNS, T0_US, version, write_history

_HALF = b"GET / HTTP/1.1\r\nhost: "
_SHORT = "import auditlake.serve.connections as c; c.REQUEST_S, c.WINDOW_S, c.LONGEST_S = 0.5, 1.5, {longest}"
_ROWS, _CHARACTERS = 6_000, 2_000


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The small lake, with a table whose export has more bytes than the buffers of a connection."""
    lake = write_lake(tmp_path_factory.mktemp("connections") / "lake")
    rows = [
        version(0x100, None, "snapshot", None) | {"id": number, "name": "x" * _CHARACTERS} for number in range(_ROWS)
    ]
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    write_history(lake, TableName("public", "large"), CUSTOMER_COLUMNS, rows, positions)
    return lake


@contextmanager
def _server(lake: Lake, code: str | None = None, reported: str = "") -> Iterator[tuple[str, int]]:
    """Run the server, which reports no more than this; yield its address."""
    with command.start(["serve", "--lake", lake.root, "--listen", "127.0.0.1:0"], code=code) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "serving" in line, line + process.stderr.read()
        found = urlsplit(line.split(" at ")[1].split(";")[0])
        assert found.hostname is not None
        assert found.port is not None
        yield found.hostname, found.port
        process.terminate()
        assert process.wait(20) == 0
        said = process.stderr.read()
        assert (reported in said, bool(said)) == (True, bool(reported)), said


def _sent(address: tuple[str, int], data: bytes) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    made.settimeout(20)
    made.connect(address)
    made.sendall(data)
    return made


def _request(address: tuple[str, int], path: str, more: str = "") -> bytes:
    host, port = address
    return f"GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\n{more}\r\n".encode()


def _answer(address: tuple[str, int], path: str = "/api/v1/tables") -> bytes:
    """Return an answer."""
    with closing(_sent(address, _request(address, path, "connection: close\r\n"))) as asked:
        return b"".join(iter(lambda: asked.recv(65_536), b""))


def _has_ended(asked: socket.socket) -> bool:
    """Return whether the server has ended the connection."""
    asked.settimeout(0.01)
    try:
        return asked.recv(65_536) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def _ends_while_it_sends(asked: socket.socket) -> bool:
    """Send one more byte; return whether the server has ended the connection."""
    try:
        asked.send(b"a")
    except ConnectionError:
        return True
    return _has_ended(asked)


def test_any_number_of_half_sent_requests_keeps_no_one_from_an_answer(lake: Lake) -> None:
    """The oldest of them make room; one that has been sent is answered."""
    with _server(lake) as address, ExitStack() as opened:
        whole = opened.enter_context(closing(_sent(address, _request(address, "/api/v1/changes"))))
        assert whole.recv(12) == b"HTTP/1.1 200"
        half = [opened.enter_context(closing(_sent(address, _HALF))) for _ in range(MOST + 60)]
        assert _answer(address).startswith(b"HTTP/1.1 200")
        assert [_has_ended(each) for each in (half[0], half[-1], whole)] == [True, False, False]


def test_any_number_of_idle_connections_keeps_no_one_from_an_answer(lake: Lake) -> None:
    """Those that have had an answer make room, the oldest first, before one whose request is on its way."""
    with _server(lake) as address, ExitStack() as opened:
        half = opened.enter_context(closing(_sent(address, _HALF)))
        head = _request(address, "/static/none").replace(b"GET", b"HEAD")
        idle = [opened.enter_context(closing(_sent(address, head))) for _ in range(MOST - 1)]
        assert all(each.recv(4_096).startswith(b"HTTP/1.1 404") for each in idle)
        assert _answer(address).startswith(b"HTTP/1.1 200")
        assert [_has_ended(each) for each in (idle[0], idle[-1], half)] == [True, False, False]


def test_a_request_has_to_arrive_and_its_answer_to_be_taken(lake: Lake) -> None:
    """Each byte of a head, of a body and of an export in time, also of a second request; then others are answered."""
    post = b"POST /api/v1/sql HTTP/1.1\r\nhost: %s:%d\r\ncontent-length: 100\r\n\r\n{"
    with _server(lake, _SHORT.format(longest=60)) as address, ExitStack() as opened:
        second = _sent(address, _request(address, "/static/none"))
        assert second.recv(4_096).startswith(b"HTTP/1.1 404")
        second.sendall(_HALF)
        export = _request(address, "/api/v1/export?table=large")
        slow = [
            _sent(address, _HALF),
            _sent(address, post % (address[0].encode(), address[1])),
            second,
            *(_sent(address, export) for _ in range(8)),
        ]
        for each in slow:
            opened.enter_context(closing(each))
        for each in slow[:3]:
            await_true(partial(_ends_while_it_sends, each), 20)
        taken = b""

        def exported() -> bool:
            nonlocal taken
            taken = _answer(address, "/api/v1/export?table=large")
            return taken.startswith(b"HTTP/1.1 200")

        await_true(exported, 20)
        assert taken.count(b"x" * _CHARACTERS) == _ROWS


def test_a_response_has_an_end(lake: Lake) -> None:
    """Also one whose client takes it."""
    with (
        _server(lake, _SHORT.format(longest=0.5)) as address,
        closing(_sent(address, _request(address, "/api/v1/changes"))) as asked,
    ):
        assert asked.recv(12) == b"HTTP/1.1 200"
        await_true(lambda: _has_ended(asked), 20)


_FAILING = """
import auditlake.serve.export as export

def pieces(*_):
    yield b"x" * 100_000
    raise OSError(5, "the disk fails")

export.pieces = pieces
"""


def test_an_export_that_fails_does_not_look_complete(lake: Lake) -> None:
    """Not in HTTP/1.0 either, in which reverse proxies ask: without a length, the end of the connection ends it."""
    with _server(lake, _FAILING, "an export was cut short") as address:
        head = f"GET /api/v1/export?table=orders HTTP/1.0\r\nhost: {address[0]}:{address[1]}\r\n\r\n"
        with closing(_sent(address, head.encode())) as asked, pytest.raises(ConnectionResetError):
            b"".join(iter(lambda: asked.recv(65_536), b""))
