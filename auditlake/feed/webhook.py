"""Webhook: the feed as signed HTTP requests to one receiver, in commit order, at least once.

Order of effects, for each request:

1. POST whole transactions, or a part of a large one; try again until the receiver answers with 2xx.
2. Write the cursor of the last whole transaction to the state file, durably, with the receiver and the selection: no
   other webhook goes on from there, which would not send what the first one did not select.

After a crash between the two, the transactions are sent again. Their `lsn`, with `part`, is the idempotency key:
transactions are cut into parts by their content alone, so a part is the same whenever it is sent, while the number of
transactions in a request may differ.

The signature is that of the Standard Webhooks specification: `webhook-signature: v1,…` is base64 of the HMAC-SHA256 of
`webhook-id.webhook-timestamp.body` with the secret. The secret comes from the environment; neither it nor the path of
the URL, which may hold another one, appears in a message.

A request that was not received is made again from the lake once rows were erased: it may have their values.

Back-off doubles from a second to a minute; Retry-After may ask for any time between these. Nothing waits for the
webhook: the feed only reads files. A receiver that answers 410 Gone ends it. The head of an answer decides. It must
come within `_TIMEOUT_S`, and the time that the request takes at `_SLOWEST_BYTES_PER_S`; the rest of an answer is not
needed. Once `stop` is set, a request that was sent has `_ENDING_S` to be answered (`exchange`).

Authority: github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md
"""

import base64
import fcntl
import hashlib
import hmac
import http.client
import json
import random
import shlex
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from typing import Any

from auditlake.audit.json_output import transaction_json
from auditlake.counters import Beat, Counter, Mark, advance, beat, count
from auditlake.errors import ConfigError, LakeConflict, NotAnswerable, WrongSource
from auditlake.exchange import Address, ClosableConnection, Exchange, IsOver, OutOfTime, never_over
from auditlake.feed.change import ChangedTransaction, change_fields
from auditlake.feed.feed import Feed
from auditlake.lake.records import replace_json
from auditlake.messages import Event, Notice, say
from auditlake.store.given_files import read_given_text

SECRET = "AUDITLAKE_WEBHOOK_SECRET"  # noqa: S105 - the name of the variable
_PREFIX = "whsec_"
_TIMEOUT_S, _SLOWEST_BYTES_PER_S = 30.0, 64 << 10
_ENDING_S = 5.0
_WAIT_S = 1.0
_FIRST_DELAY_S, _LONGEST_DELAY_S = 1.0, 60.0
_PART_CHANGES, _PART_CHARACTERS = 1_000, 1 << 20
_PER_REQUEST = 100


@dataclass(frozen=True, slots=True)
class Receiver:
    """Address of the receiver, and the key that signs requests."""

    address: Address
    key: bytes

    @property
    def name(self) -> str:
        """Name the receiver by its host and a digest of the whole address, whose path may hold a secret."""
        host, port, path = self.address.host, self.address.port, self.address.path
        digest = hashlib.sha256(f"{self.address.tls} {host}:{port}{path}".encode()).hexdigest()[:8]
        return f"{host}:{port} ({digest})"

    @classmethod
    def parse(cls, url: str, secret: str | None) -> "Receiver":
        """Parse a URL and a secret: any text, or base64 after `whsec_`; raises ConfigError."""
        try:
            address = Address.parse(url)
        except ValueError as exc:
            hint = "Write https://host/path, other characters as %XX."
            raise ConfigError(f"the URL of the webhook {exc}", hint) from None
        if not secret or secret == _PREFIX:
            raise ConfigError(f"{SECRET} is not set", "Set it to a secret that the receiver knows; it signs requests.")
        try:
            encoded = secret.removeprefix(_PREFIX)
            text = secret.encode(errors="surrogateescape")  # any bytes of the environment
            return cls(address, base64.b64decode(encoded, validate=True) if encoded != secret else text)
        except ValueError:
            raise ConfigError(f"{SECRET} begins with {_PREFIX} but is not base64", "Correct it.") from None


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """One request: its body, and the cursor to store when it was received, if it ends a transaction; `ended` do."""

    body: bytes
    cursor: str | None
    ended: int = 0


def messages(transactions: Iterable[ChangedTransaction]) -> Iterator[WebhookMessage]:
    """Cut transactions into requests: several small ones each, or a part of a large one."""
    held: list[str] = []
    cursor, size, ended = None, 0, 0
    for committed in transactions:
        for text, last in _parts(committed):
            if held and (size + len(text) > _PART_CHARACTERS or len(held) >= _PER_REQUEST):
                yield _message(held, cursor, ended)
                held, size, cursor, ended = [], 0, None, 0
            held.append(text)
            size += len(text)
            if last:
                cursor, ended = committed.cursor, ended + 1
            else:
                yield _message(held, cursor, ended)
                held, size, cursor, ended = [], 0, None, 0
    if held:
        yield _message(held, cursor, ended)


def _message(texts: list[str], cursor: str | None, ended: int) -> WebhookMessage:
    return WebhookMessage(f'{{"transactions": [{", ".join(texts)}]}}'.encode(), cursor, ended)


def _parts(committed: ChangedTransaction) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a transaction as JSON, and whether each is the last."""
    head = {**transaction_json(committed), "cursor": committed.cursor}
    number, changes, size = 0, list[str](), 0
    for change in committed.changes:
        text = json.dumps(change_fields(change), ensure_ascii=False)
        if changes and (len(changes) >= _PART_CHANGES or size + len(text) > _PART_CHARACTERS):
            yield _part(head, number, changes, last=False), False
            number, changes, size = number + 1, [], 0
        changes.append(text)
        size += len(text)
    yield _part(head, number, changes, last=True), True


def _part(head: dict[str, Any], number: int, changes: list[str], *, last: bool) -> str:
    opened = json.dumps({**head, "part": number, "last": last}, ensure_ascii=False)
    return f'{opened[:-1]}, "changes": [{", ".join(changes)}]}}'


def signature(key: bytes, identifier: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature`."""
    signed = f"{identifier}.{timestamp}.".encode() + body
    return f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


class Sender:
    """Sends requests over one connection, which is opened again when it breaks; `stop` ends a wait."""

    def __init__(self, target: Receiver, stop: threading.Event) -> None:
        self._target = target
        self._stop = stop
        self._connection: ClosableConnection | None = None
        self._delay_s = _FIRST_DELAY_S

    def deliver(self, message: WebhookMessage, is_outdated: IsOver = never_over) -> bool:
        """Send a message until it is received; False if `stop` is set or it `is_outdated`. Raises ConfigError."""
        identifier = f"msg_{hashlib.sha256(message.body).hexdigest()[:32]}"
        while not self._stop.is_set() and not is_outdated():
            beat(Beat.WEBHOOK)
            problem, asked_s = self._post(message.body, identifier)
            count(Counter.DELIVERY_ATTEMPTS, "received" if problem is None else "failed")
            if problem is None:
                self._delay_s = _FIRST_DELAY_S
                return True
            wait_s = asked_s if asked_s is not None else self._delay_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
            say(Notice(Event.DELIVERY_FAILED, f"{self._target.address.host} {problem}; trying again in {wait_s:.0f} s"))
            self._delay_s = min(self._delay_s * 2, _LONGEST_DELAY_S)
            self._stop.wait(wait_s)
        return False

    def _post(self, body: bytes, identifier: str) -> tuple[str | None, float | None]:
        """Return the problem, None if there is none, and how long the receiver asks to wait."""
        now = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "auditlake",
            "webhook-id": identifier,
            "webhook-timestamp": str(now),
            "webhook-signature": signature(self._target.key, identifier, now, body),
        }
        most_s = _TIMEOUT_S + len(body) / _SLOWEST_BYTES_PER_S
        try:
            answer = self._answer(body, headers, most_s)
        except OutOfTime:
            self.close()
            late = f"did not answer within {most_s:.0f} s"
            return "was not answered: the command was stopped" if self._stop.is_set() else late, None
        except (OSError, http.client.HTTPException) as exc:
            self.close()
            return f"cannot be reached: {_reason(exc)}", None
        if answer.status == HTTPStatus.GONE:
            raise ConfigError(f"{self._target.address.host} answered 410 Gone: it wants no more", "Remove the webhook.")
        if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            return None, None
        return f"answered {answer.status}", _retry_after_s(answer.getheader("Retry-After"))

    def _answer(self, body: bytes, headers: dict[str, str], most_s: float) -> http.client.HTTPResponse:
        """Send one request; a connection that the receiver closed while it was idle is opened again."""
        reused = self._connection is not None
        connection = self._connection = self._connection or self._target.address.connection(_TIMEOUT_S)
        exchange = Exchange(connection, self._target.address.path, body, headers)
        try:
            answer = exchange.head(most_s, self._is_over())
        except (ConnectionError, http.client.BadStatusLine):
            self.close()
            if not reused:
                raise
            return self._answer(body, headers, most_s)
        if not exchange.is_reusable(self._stop.is_set):
            self.close()
        return answer

    def _is_over(self) -> IsOver:
        """Return whether `stop` was set `_ENDING_S` ago: until then, a request may still be answered."""
        stopped_at: list[float] = []

        def is_over() -> bool:
            if self._stop.is_set() and not stopped_at:
                stopped_at.append(time.monotonic())
            return bool(stopped_at) and time.monotonic() - stopped_at[0] > _ENDING_S

        return is_over

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.give_up()
            self._connection.close()
        self._connection = None


def _reason(exc: OSError | http.client.HTTPException) -> str:
    """Return why there is no answer: what the system or TLS says, never what the receiver sent."""
    return (isinstance(exc, OSError) and exc.strerror) or type(exc).__name__


def _retry_after_s(value: str | None) -> float | None:
    """Return how long the receiver asks to wait, within the bounds of the back-off; None if it does not ask."""
    if value is None or not (value.isascii() and value.isdigit()):
        return None
    return min(max(float(value), _FIRST_DELAY_S), _LONGEST_DELAY_S)


@dataclass(frozen=True, slots=True)
class StateFile:
    """The cursor of what a receiver has received, the receiver, and the selection, as options; "" is all changes."""

    path: Path
    receiver: str
    selection: str = ""

    def cursor(self) -> str | None:
        """Read the cursor; None if there is none yet. Raises ConfigError, also if it is another webhook's.

        A file of an earlier version names no selection: the next one is its own.
        """
        stored = self._stored()
        if stored is None:
            return None
        if (receiver := stored.get("receiver", self.receiver)) != self.receiver:
            raise ConfigError(
                f"{self.path} has the cursor of {receiver}, this webhook sends to {self.receiver}",
                'Name another file with --state. If that receiver has a new URL, remove "receiver" from the file.',
            )
        if (selection := stored.get("selection", self.selection)) != self.selection:
            raise ConfigError(
                f"{self.path} has the cursor of {_selected(selection)}, this webhook sends {_selected(self.selection)}",
                'Name another file with --state. To go on from there, with what is selected now, remove "selection" '
                "from the file: nothing older is sent.",
            )
        return stored["cursor"]

    def save(self, cursor: str) -> None:
        """Write the cursor, unless the file has it; raises ConfigError."""
        record = {"cursor": cursor, "receiver": self.receiver, "selection": self.selection}
        if self._stored() == record:
            return
        try:
            replace_json(self.path, record, durable=True)
        except OSError as exc:
            unwritten = f"{self.path} cannot be written: {exc.strerror}"
            raise ConfigError(unwritten, "Name another file with --state.") from exc

    def _stored(self) -> dict[str, str] | None:
        if not self.path.exists():
            return None
        try:
            stored = json.loads(read_given_text(self.path, self._unreadable))
            return {**stored, "cursor": str(stored["cursor"])}
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            raise self._unreadable(exc) from exc

    def _unreadable(self, why: object) -> ConfigError:
        return ConfigError(f"{self.path} is not the state of a webhook: {why}", "Name another file with --state.")


def selection_of(tables: Iterable[str], ops: Iterable[str]) -> str:
    """Return options as text, the same for any order."""
    given = [("--table", each) for each in sorted(set(tables))] + [("--op", each) for each in sorted(set(ops))]
    return shlex.join(chain.from_iterable(given))


def _selected(selection: str) -> str:
    return f"the changes of {selection}" if selection else "all changes"


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock of a state file; raises LakeConflict if another process has it, ConfigError."""
    try:
        file = path.with_name(f"{path.name}.lock").open("w")
    except OSError as exc:
        raise ConfigError(f"{path} cannot be locked: {exc.strerror}", "Name another file with --state.") from exc
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LakeConflict(f"another webhook uses {path}", "Stop it, or name another file with --state.") from None
        yield


@contextmanager
def begun(state: StateFile) -> Iterator[None]:
    """Add to a refused place in the feed how a webhook with a cursor in its state file goes on."""
    try:
        yield
    except (NotAnswerable, WrongSource) as exc:
        if state.cursor() is None:
            raise
        elsewhere = "to begin elsewhere, name another file with --state, and a place with --since."
        again = f"{state.path} has this cursor: {elsewhere}"
        raise type(exc)(exc.message, f"{exc.hint} {again}") from exc


def run(feed: Feed, sender: Sender, state: StateFile, stop: threading.Event, *, follow: bool) -> int:
    """Send the feed until `stop` is set, or unless `follow` to its end; return how many transactions were received.

    Save the start first: if nothing is received, the next run begins there, not at its own `now`.
    """
    received, received_to = 0, feed.cursor
    state.save(received_to)
    while not stop.is_set():
        beat(Beat.WEBHOOK)
        asked_at = time.time()
        taken = feed.take(_WAIT_S)
        for message in messages(taken):
            if not sender.deliver(message, lambda: feed.is_outdated):
                feed.go_back(received_to)
                break
            if message.cursor is not None:
                state.save(received_to := message.cursor)
            received += message.ended
            count(Counter.DELIVERED_TRANSACTIONS, by=message.ended)
        else:
            advance(Mark.DELIVERED_TIME, taken[-1].time_us / 1_000_000 if taken else asked_at)
        if not taken:
            state.save(received_to := feed.cursor)
            if not follow:
                return received
    return received
