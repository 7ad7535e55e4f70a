"""What a subscriber has not received when rows are erased: it gets the transactions without their values."""

import json
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

import auditlake
from auditlake.feed import feed as feeds
from auditlake.feed import webhook
from auditlake.feed.request import FeedRequest
from auditlake.lake.layout import Lake
from auditlake.lake.relations import read_versions
from tests.command import run_here
from tests.erasure_lake import OF_ONE, append_change, apply, write_lake
from tests.http_server import serving

_ERASED = b"gundula"
"""The row's e-mail address: in changes of 0/200, and the actor of that transaction."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The lake before any erasure."""
    return write_lake(tmp_path / "lake")


def _forget(lake: Lake) -> None:
    assert run_here(["forget", *OF_ONE, "--lake", lake.root]).code == 0


def test_a_request_that_was_not_received_is_made_again(lake: Lake, tmp_path: Path) -> None:
    """The receiver is away before the erasure, and comes back after it."""
    attempts: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            attempts.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(500 if len(attempts) == 1 else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    class Pause(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            _forget(lake)
            return super().wait(0 if timeout else timeout)

    state = tmp_path / "state.json"
    feed = FeedRequest("0/200", follow=False).open(lake)
    with serving(Handler) as url:
        target, stop = webhook.Receiver.parse(url, "a secret"), Pause()
        with closing(webhook.Sender(target, stop)) as sender:
            assert webhook.run(feed, sender, webhook.StateFile(state, target.name), stop, follow=False) == 5
    before, after = attempts
    assert (_ERASED in before, _ERASED in after) == (True, False)
    lsns = [[each["lsn"] for each in json.loads(body)["transactions"]] for body in attempts]
    assert lsns[0] == lsns[1] == ["0/200", "0/300", "0/400", "0/500", "0/600"]
    assert json.loads(state.read_text())["cursor"] == "1:0/600"


def test_a_request_that_was_not_made_yet_is_made_anew(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are erased while the receiver is busy with the request before it."""
    monkeypatch.setattr(webhook, "_PER_REQUEST", 1)
    received: list[bytes] = []

    class Sender(webhook.Sender):
        def _post(self, body: bytes, _: str) -> tuple[str | None, float | None]:
            received.append(body)
            if len(received) == 1:
                _forget(lake)
            return None, None

    feed = FeedRequest("0/200", follow=False).open(lake)
    target, stop = webhook.Receiver.parse("http://localhost/", "a secret"), threading.Event()
    state = webhook.StateFile(tmp_path / "state.json", target.name)
    webhook.run(feed, Sender(target, stop), state, stop, follow=False)
    lsns = [each["lsn"] for body in received for each in json.loads(body)["transactions"]]
    assert lsns == ["0/200", "0/300", "0/400", "0/500", "0/600"]
    assert [_ERASED in body for body in received] == [True, False, False, False, False]


@pytest.mark.parametrize("most_changes", [2, 100])
def test_a_slow_subscriber_gets_no_erased_actor(lake: Lake, monkeypatch: pytest.MonkeyPatch, most_changes: int) -> None:
    """The transactions after the one that it is busy with were read before the erasure, alone or together with it."""
    monkeypatch.setattr(feeds, "_MOST_CHANGES", most_changes)
    number = read_versions(lake)[0].number
    person = {
        "op": "update",
        "relation": number,
        "new": ["11", "(gone)", "gundula.neu@example.org", None, None, "Jena"],
    }
    content = b'{"actor": "gundula.neu@example.org"}'
    nothing = dict.fromkeys(("schema", "table", "relation"))
    append_change(lake, 0x700, {"op": "message", "prefix": "auditlake", "content": content, **nothing}, person)
    append_change(lake, 0x800, {**person, "new": ["11", "(erased)", None, None, None, "Jena"]})
    apply(lake)
    subscription = auditlake.Lake(lake.root).changes("0/600", follow=False)
    first = next(subscription)
    _forget(lake)
    rest = list(subscription)
    assert [each.lsn for each in (first, *rest)] == [0x600, 0x700, 0x800]
    assert [each.actor for each in rest] == ["[erased]", None]
