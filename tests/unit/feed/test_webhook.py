"""Webhook: signature, order, retries, and a sender that is killed; the receiver is a real HTTP server."""

import base64
import hashlib
import hmac
import http.client
import json
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from auditlake import exchange
from auditlake.errors import ConfigError
from auditlake.feed import webhook
from auditlake.feed.request import FeedRequest
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from tests.command import run_here, start
from tests.http_server import serving
from tests.small_lake import write_lake_with_manifest

_SECRET = "whsec_" + base64.b64encode(b"thirty-two bytes of a key, or so").decode()


@dataclass
class Receiver:
    """Receiver of requests: those received, and its next answers; 200 when none is left."""

    answers: list[int] = field(default_factory=list)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def transactions(self) -> list[dict[str, Any]]:
        """Return the transactions of every request that was accepted."""
        return [each for _, body in self.got for each in json.loads(body)["transactions"]]


@contextmanager
def _receiving(*answers: int) -> Iterator[Receiver]:
    receiver = Receiver(list(answers))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.answers.pop(0) if receiver.answers else 200
            if status == 200:
                receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            receiver.arrived.release()

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with serving(Handler) as url:
        receiver.url = f"{url}/hook?token=hidden"
        yield receiver


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """The small lake, with a manifest; no delay between attempts."""
    made = write_lake_with_manifest(tmp_path / "lake")
    monkeypatch.setenv(webhook.SECRET, _SECRET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(webhook, "_FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(exchange, "_TAIL_S", 0.2)
    return made


def _send(lake: Lake, url: str, *more: str) -> Any:
    state = str(Path.cwd() / "state.json")
    return run_here(["webhook", url, "--until-current", "--state", state, "--lake", lake.root, *more])


def test_transactions_arrive_in_order_and_signed(lake: Lake) -> None:
    """The signature is HMAC-SHA256 of id, timestamp and body; the next run sends only new ones."""
    with _receiving() as receiver:
        done = _send(lake, receiver.url, "--since", "beginning")
        assert (done.code, done.stdout) == (0, ""), done.stderr
        assert "has received 4 transactions; the next run continues after 1:0/300" in done.stderr
        assert [each["lsn"] for each in receiver.transactions()] == ["0/150", "0/200", "0/250", "0/300"]
        ((headers, body),) = receiver.got
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.new(b"thirty-two bytes of a key, or so", signed, hashlib.sha256).digest())
        assert headers["webhook-signature"] == f"v1,{expected.decode()}"
        assert "hidden" not in done.stderr
        assert _send(lake, receiver.url).code == 0
        assert len(receiver.got) == 1
    assert receiver.transactions()[1]["changes"][0]["key"] == {"id": "2"}


def test_a_request_is_repeated_until_it_is_received(lake: Lake) -> None:
    """Errors of the receiver and of the network; nothing is skipped, and the cursor moves only afterwards."""
    with _receiving(500, 404, 301, 503) as receiver:
        done = _send(lake, receiver.url, "--since", "beginning", "--table", "orders", "--op", "delete")
    assert done.code == 0
    assert [done.stderr.count(f"answered {status};") for status in (500, 404, 301, 503)] == [1, 1, 1, 1]
    assert [(each["lsn"], len(each["changes"])) for each in receiver.transactions()] == [("0/200", 1), ("0/300", 1)]
    with _receiving(410) as gone:
        Path("state.json").write_text(json.dumps({"cursor": "1:0/200"}))
        done = _send(lake, gone.url)
    assert (done.code, "410 Gone" in done.stderr) == (3, True)
    assert json.loads(Path("state.json").read_text())["cursor"] == "1:0/200"


def test_a_service_is_started_again_with_the_same_options(lake: Lake) -> None:
    """The beginning is that of the first run: nothing is sent twice, and the command does not fail."""
    with _receiving() as receiver:
        _send(lake, receiver.url, "--since", "beginning")
        again = _send(lake, receiver.url, "--since", "beginning")
        assert len(receiver.got) == 1
    assert (again.code, "--since, which is for the first run, does not apply" in again.stderr) == (0, True)


def test_a_second_receiver_needs_a_state_of_its_own(lake: Lake) -> None:
    """It would go on behind what the first one received. A file that names no receiver is for the next one."""
    with _receiving() as first, _receiving() as second:
        assert _send(lake, first.url, "--since", "beginning").code == 0
        before = Path("state.json").read_bytes()
        refused = _send(lake, second.url, "--since", "beginning")
        sibling = _send(lake, f"{first.url}2", "--since", "beginning")
        assert [refused.code, sibling.code, Path("state.json").read_bytes()] == [3, 3, before]
        for url in (first.url, second.url):
            assert f"127.0.0.1:{urlsplit(url).port} (" in refused.stderr
        assert "hidden" not in refused.stderr + sibling.stderr
        assert not second.got
        Path("state.json").write_text(json.dumps({"cursor": json.loads(before)["cursor"]}))
        assert _send(lake, second.url).code == 0
        assert _send(lake, first.url).code == 3


def test_another_selection_needs_a_state_of_its_own(lake: Lake) -> None:
    """It would go on behind what the first one selected. A file that names no selection is for the next one."""
    with _receiving() as receiver:
        assert _send(lake, receiver.url, "--since", "beginning", "--table", "orders", "--op", "delete").code == 0
        before = Path("state.json").read_bytes()
        sent = len(receiver.got)
        for other in ([], ["--table", "orders"], ["--table", "customers", "--op", "delete"]):
            refused = _send(lake, receiver.url, *other)
            assert (refused.code, Path("state.json").read_bytes(), len(receiver.got)) == (3, before, sent)
            assert "has the cursor of the changes of --table orders --op delete, this webhook sends" in refused.stderr
        assert _send(lake, receiver.url, "--op", "delete", "--op", "delete", "--table", "orders").code == 0
        earlier = {name: value for name, value in json.loads(before).items() if name != "selection"}
        Path("state.json").write_text(json.dumps(earlier))
        assert _send(lake, receiver.url).code == 0
        assert len(receiver.got) == sent
        assert _send(lake, receiver.url, "--table", "orders").code == 3


def test_a_large_transaction_is_sent_in_parts(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part has a flag for the last one; parts are the same whenever they are sent."""
    monkeypatch.setattr(webhook, "_PART_CHANGES", 1)
    with _receiving() as receiver:
        _send(lake, receiver.url, "--since", "0/250")
        parts = [(each["lsn"], each["part"], each["last"]) for each in receiver.transactions()]
    assert parts == [("0/250", 0, False), ("0/250", 1, False), ("0/250", 2, True), ("0/300", 0, True)]


def test_a_killed_sender_sends_again_and_skips_nothing(lake: Lake) -> None:
    """Killed while the receiver fails: the next run starts after the last transaction that was received."""
    state = Path.cwd() / "state.json"
    state.write_text(json.dumps({"cursor": f"1:{Lsn(0x200)}"}))
    environment = {webhook.SECRET: _SECRET}
    with _receiving(*[500] * 100) as receiver:
        arguments: list[str | Path] = ["webhook", receiver.url, "--state", state, "--lake", lake.root]
        with start(arguments, environment) as process:
            receiver.arrived.acquire(timeout=60)
            second = run_here(["webhook", receiver.url, "--state", state, "--lake", lake.root])
            assert (second.code, "another webhook uses" in second.stderr) == (6, True)
            os.kill(process.pid, signal.SIGKILL)
        receiver.answers.clear()
        assert _send(lake, receiver.url).code == 0
    assert [each["lsn"] for each in receiver.transactions()] == ["0/250", "0/300"]


_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def _answering(*answers: Iterator[bytes]) -> Iterator[tuple[str, threading.Semaphore]]:
    """Listen, and answer each connection with bytes as they come; yield the URL, and what counts the connections."""
    listening, arrived, ended = socket.create_server(("127.0.0.1", 0)), threading.Semaphore(0), threading.Event()

    def answer(accepted: socket.socket, parts: Iterator[bytes]) -> None:
        with accepted, suppress(OSError):
            accepted.recv(1 << 16)
            arrived.release()
            for part in parts:
                accepted.sendall(part)
                if ended.is_set():
                    return

    def accept() -> None:
        for parts in answers:
            with suppress(OSError):
                threading.Thread(target=answer, args=(listening.accept()[0], parts), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/", arrived
    finally:
        ended.set()
        listening.close()


def _dripping(head: bytes = b"") -> Iterator[bytes]:
    yield head
    while True:
        time.sleep(0.02)
        yield b"x"


def test_an_answer_before_the_end_of_a_request_is_read() -> None:
    """A proxy refuses a body that is too long, and closes; its status says more than a broken pipe."""
    refused = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n"
    with _answering(iter([refused])) as (url, _), closing(exchange.Address.parse(url).connection(30)) as connection:
        sent = exchange.Exchange(connection, "/", b"x" * (32 << 20), {})
        assert sent.head(30, exchange.never_over).status == 413


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError, ssl.SSLEOFError])
def test_an_answer_is_read_however_the_request_was_cut_short(error: type[OSError]) -> None:
    """With TLS, Python before 3.11.9 and 3.12.3 raises an error of its own."""

    class Cut(exchange.ClosableConnection):
        def send(self, data: Any) -> None:
            super().send(data)
            if data == b"body":
                raise error

    with _answering(iter([_OK])) as (url, _):
        address = exchange.Address.parse(url)
        with closing(Cut(address.host, address.port, 30, tls=False)) as connection:
            sent = exchange.Exchange(connection, "/", b"body", {})
            assert sent.head(30, exchange.never_over).status == 200


def test_a_receiver_that_drips_its_answer_is_given_up(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes within the timeout of a read, the whole head does not; the request is sent again."""
    monkeypatch.setattr(webhook, "_TIMEOUT_S", 0.5)
    with _answering(_dripping(b"HTTP/1.1 200 OK\r\nX: "), iter([_OK])) as (url, _):
        done = _send(lake, url, "--since", "0/300")
    assert (done.code, "127.0.0.1 did not answer within" in done.stderr) == (0, True), done.stderr
    assert json.loads(Path("state.json").read_text())["cursor"] == "1:0/300"


@pytest.mark.parametrize(
    "head", [b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\n", b"\r\n", b"Content-Length: 9999\r\n\r\n"]
)
@pytest.mark.parametrize("fast", [True, False])
def test_an_answer_that_does_not_end_is_received(lake: Lake, head: bytes, fast: bool) -> None:  # noqa: FBT001
    """The status counts; the next request uses another connection."""
    head = b"HTTP/1.1 200 OK\r\n" + head
    endless = chain([head], repeat(b"x" * 65_536)) if fast else _dripping(head)
    with _answering(endless, iter([_OK])) as (url, _):
        assert _send(lake, url, "--since", "0/300").code == 0
        Path("state.json").unlink()
        assert _send(lake, url, "--since", "0/300").code == 0


def test_a_signal_ends_the_command_during_a_request(lake: Lake) -> None:
    """The cursor stays before what was not answered."""
    state = Path.cwd() / "state.json"
    state.write_text(json.dumps({"cursor": f"1:{Lsn(0x200)}"}))
    with _answering(_dripping()) as (url, arrived):
        arguments: list[str | Path] = ["webhook", url, "--state", state, "--lake", lake.root]
        soon = "from auditlake.feed import webhook; webhook._ENDING_S = 0.1"
        with start(arguments, {webhook.SECRET: _SECRET}, soon) as process:
            assert arrived.acquire(timeout=60)
            process.terminate()
            _, stderr = process.communicate(timeout=60)
    assert (process.returncode, "the command was stopped" in stderr) == (0, True), stderr
    assert json.loads(state.read_text())["cursor"] == "1:0/200"


@pytest.mark.parametrize(("since", "missed"), [("beginning", 4), (None, 0), ("0/200", 3)])
def test_a_run_that_delivers_nothing_leaves_the_place_where_it_began(
    lake: Lake, since: str | None, missed: int
) -> None:
    """The next run sends what was committed meanwhile, instead of beginning at its own now."""
    state, stop = Path.cwd() / "state.json", threading.Event()
    stop.set()
    feed = FeedRequest(since, None, ()).open(lake, datetime.now(UTC), stop)
    with _receiving() as receiver:
        target = webhook.Receiver.parse(receiver.url, _SECRET)
        with closing(webhook.Sender(target, stop)) as sender:
            assert webhook.run(feed, sender, webhook.StateFile(state, target.name), stop, follow=True) == 0
        done = _send(lake, receiver.url)
        assert f"has received {missed} transactions; the next run continues after 1:0/300" in done.stderr
        assert len(receiver.transactions()) == missed


class _Waits(threading.Event):
    """An event that nobody sets, and that has been waited for at once; `asked` are the times."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.asked.append(timeout)
        return False


def test_a_receiver_cannot_ask_for_requests_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor for none at all."""
    heads = (f"HTTP/1.1 503 Busy\r\nRetry-After: {each}\r\nContent-Length: 0\r\n\r\n" for each in ("0", "7", "9" * 400))
    monkeypatch.setattr(exchange, "_TAIL_S", 0.2)
    stop = _Waits()
    with (
        _answering(*(iter([head.encode()]) for head in heads), iter([_OK])) as (url, _),
        closing(webhook.Sender(webhook.Receiver.parse(url, _SECRET), stop)) as sender,
    ):
        assert sender.deliver(webhook.WebhookMessage(b"{}", None))
    assert stop.asked == [1, 7, 60]


def test_interim_answers_are_no_answer(lake: Lake) -> None:
    """The final one counts, of the first request as of the next over the same connection: none is answered early."""

    def answers() -> Iterator[bytes]:
        hints = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n"
        yield b"HTTP/1.1 102 Processing\r\n\r\n" + hints * 2
        yield b"HTTP/1.1 100 Continue\r\n\r\n" + hints + b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"

    with _answering(answers(), iter([_OK])) as (url, _):
        done = _send(lake, url, "--since", "0/300")
    assert (done.code, done.stderr.count("answered 500"), "answered 10" in done.stderr) == (0, 1, False), done.stderr


def test_any_bytes_are_a_secret() -> None:
    """The environment need not be UTF-8; a key of a receiver need not be text."""
    assert webhook.Receiver.parse("https://host/", "\udcff\u00e9").key == b"\xff\xc3\xa9"


def test_a_redirect_is_not_followed(lake: Lake) -> None:
    """Not to another host, which would get the transactions; what it asks to wait must be a number."""
    with _receiving() as other:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {other.url}\r\nRetry-After: \xb2\r\nContent-Length: 0\r\n\r\n"
        with _answering(iter([moved.encode("latin-1")]), iter([_OK])) as (url, _):
            done = _send(lake, url, "--since", "0/300")
    assert (done.code, done.stderr.count("answered 307"), other.got) == (0, 1, []), done.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), "certificate verify failed"),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (TimeoutError(), "TimeoutError"),
        (http.client.BadStatusLine("zzsecret"), "BadStatusLine"),
    ],
)
def test_the_reason_of_a_failed_request_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    """A name that is not resolved and a certificate that is not valid have other remedies; an answer is not quoted."""
    stop = threading.Event()

    def fail(*_: object) -> None:
        stop.set()
        raise error

    monkeypatch.setattr(socket, "create_connection", fail)
    sender = webhook.Sender(webhook.Receiver.parse("https://host/zztoken", "s"), stop)
    assert not sender.deliver(webhook.WebhookMessage(b"{}", None))
    assert f"host cannot be reached: {said}; trying again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "secret", "message"),
    [
        ("ftp://host/", _SECRET, "not http:// or https://"),
        ("https://host:99999/", _SECRET, "no valid host and port"),
        ("https://[::1/", _SECRET, "no valid host and port"),
        ("https://host..example/", _SECRET, "no valid host and port"),
        ("https://user:zzpassword@host/", _SECRET, "a user or a password, which is not sent"),
        ("https://@host/", _SECRET, "a user or a password, which is not sent"),
        ("https://host/a b", _SECRET, "characters that a URL cannot have"),
        ("https://host/é", _SECRET, "characters that a URL cannot have"),
        ("https://host/", None, "AUDITLAKE_WEBHOOK_SECRET is not set"),
        ("https://host/", "whsec_?", "is not base64"),
        ("https://host/", "whsec_\u00e9", "is not base64"),
        ("https://host/", "whsec_\udcff", "is not base64"),
        ("https://host/", "whsec_", "AUDITLAKE_WEBHOOK_SECRET is not set"),
    ],
)
def test_a_wrong_target_is_refused(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, url: str, secret: str | None, message: str
) -> None:
    """Before anything is sent, without the secret in the message."""
    monkeypatch.setenv(webhook.SECRET, secret) if secret else monkeypatch.delenv(webhook.SECRET)
    done = _send(lake, url)
    assert (done.code, message in done.stderr) == (3, True)


@pytest.mark.parametrize("content", ["5", "[]", "null", '"0/100"', '{"cursor"', "{}"])
def test_a_file_of_something_else_is_no_state(tmp_path: Path, content: str) -> None:
    """Nothing is sent from a place that is not known."""
    (tmp_path / "state").write_text(content)
    with pytest.raises(ConfigError, match="is not the state of a webhook"):
        webhook.StateFile(tmp_path / "state", "host").cursor()
