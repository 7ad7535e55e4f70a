"""Bytes that real servers streamed (`tests/data/pgoutput/record_streams.py`) against what its statements mean."""

import contextlib
import random
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from auditlake.errors import DecodeError, WrongSource
from auditlake.pgoutput.columnar import ChangeDecoder
from auditlake.pgoutput.messages import Message, StreamAbort
from auditlake.pgoutput.wire import decode, decode_streamed
from auditlake.postgres.spool import Spool
from tests.unit.pgoutput.encode import encode, encode_streamed
from tests.unit.pgoutput.framing import frame
from tests.unit.pgoutput.model import Model, version
from tests.unit.pgoutput.streamed_model import plain_messages, through_spool

FOLDER = Path(__file__).parents[2] / "data" / "pgoutput"
STREAMED = [f"{name}.pg{major}" for name in ("streamed", "parallel") for major in (16, 18)]
RECORDED = [*STREAMED, "prepared.pg16", "prepared.pg18"]
USER = b'{"user": "ann"}'

EXPECTED = [
    [("insert", "items", None, ["20", "plain"], None)],
    [
        ("insert", "items", None, ["1", "one"], None),
        ("insert", "moods", None, ["3", "ok"], None),
        ("message", None, None, None, USER),
        ("update", "items", ["1", None], ["4", "uno"], None),
        ("truncate", "moods", None, None, None),
    ],
    [("delete", "items", ["20", None], None, None)],
    [("insert", "items", None, ["30", None], None)],
]
"""The rows of each transaction that was committed, in the order of the commits."""


def read(name: str) -> list[bytes]:
    """Read a recording."""
    data = (FOLDER / f"{name}.bin").read_bytes()
    found, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def placed(payloads: list[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Say of each message whether it stands in a block."""
    in_block = False
    for payload in payloads:
        in_block = in_block and payload[:1] != b"E"
        yield payload, in_block
        in_block = in_block or payload[:1] == b"S"


def decoded(payload: bytes, in_block: bool) -> tuple[int | None, Message]:  # noqa: FBT001  # as `placed` gives it
    """Decode a message where it stands."""
    return decode_streamed(payload) if in_block else (None, decode(payload))


@pytest.mark.parametrize("name", STREAMED)
@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_the_rows_are_those_of_the_statements(name: str, memory: int) -> None:
    """Those of committed transactions, without what was rolled back, in commit order; with context and origin."""
    with contextlib.closing(Spool(memory_bytes=memory)) as spool:
        plain = list(through_spool(spool, read(name)))
    found = ChangeDecoder(lambda relation, _: version(relation)).decode(*frame(plain))
    transactions, changes = found.transactions.to_pylist(), found.changes.to_pylist()
    names = ("op", "table", "old", "new", "content")
    rows = [
        [tuple(row[name] for name in names) for row in changes if row["lsn"] == each["lsn"]] for each in transactions
    ]
    assert rows == EXPECTED
    assert [each["context"] for each in transactions] == [None, '{"app": {"user": "ann"}}', None, None]
    assert [each["origin"] for each in transactions] == [None, None, None, "far"]
    assert all(before["end_lsn"] <= after["lsn"] for before, after in pairwise(transactions))


@pytest.mark.parametrize("name", RECORDED)
def test_the_encoder_of_the_tests_writes_what_servers_write(name: str) -> None:
    """Encoding what was decoded gives the server's own bytes, so the other tests speak of real messages."""
    for payload, in_block in placed(read(name)):
        xid, message = decoded(payload, in_block)
        again = encode_streamed(xid, message) if in_block else encode(message)
        assert payload == again or payload[:1] in b"RY"  # they may abbreviate pg_catalog


def test_every_kind_of_message_was_recorded() -> None:
    """All that bound streamed and prepared transactions, and all that may stand in a block."""
    messages = [each for name in RECORDED for each in placed(read(name))]
    assert set(b"SEcAbPpKr") <= {payload[0] for payload, _ in messages}
    assert set(b"RYIUDTMO") == {payload[0] for payload, in_block in messages if in_block}


def test_parallel_says_when_it_was_rolled_back() -> None:
    """Place and time of an abort come with streaming in parallel, and not without."""
    for name in STREAMED:
        aborts = [m for p, b in placed(read(name)) for m in (decoded(p, b)[1],) if isinstance(m, StreamAbort)]
        assert [(each.xid == each.subxid) for each in aborts] == [False, True]
        assert all((each.abort_lsn is not None) == name.startswith("parallel") for each in aborts)


@pytest.mark.parametrize("name", RECORDED)
def test_a_cut_message_is_refused(name: str) -> None:
    """A real message without its last bytes is refused, wherever it is cut; an abort may lack place and time."""
    for payload, in_block in placed(read(name)):
        for size in range(len(payload)):
            if (payload[:1], size) != (b"A", 9):
                with pytest.raises(DecodeError):
                    decoded(payload[:size], in_block)


@pytest.mark.parametrize("name", STREAMED)
def test_a_damaged_message_gives_an_error_or_the_plain_answer(name: str) -> None:
    """One byte wrong, or a message lost, doubled or moved: an error of the protocol, or what the rest means."""
    chance = random.Random(name)  # noqa: S311  # no secret
    payloads = read(name)
    for number in range(len(payloads)):
        damaged = bytearray(payloads[number])
        damaged[chance.randrange(len(damaged))] ^= chance.randrange(1, 256)
        before, after = payloads[:number], payloads[number + 1 :]
        for sent in (
            [*before, bytes(damaged), *after],
            [*before, *after],
            [*before, payloads[number], payloads[number], *after],
            [*before, *after[:1], payloads[number], *after[1:]],
        ):
            see_plain_answer(sent)


def see_plain_answer(sent: list[bytes]) -> None:
    """See that a spool and the fast decoder refuse messages, or give what the plain ones give."""
    with contextlib.suppress(DecodeError, WrongSource), contextlib.closing(Spool(memory_bytes=0)) as spool:
        plain = list(through_spool(spool, sent))
        found = ChangeDecoder(lambda relation, _: version(relation)).decode(*frame(plain))
        model = Model().feed(plain_messages(sent))
        assert model.changes == found.changes.to_pylist()
        assert model.transactions == found.transactions.to_pylist()
