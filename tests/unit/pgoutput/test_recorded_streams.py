"""Tests on recorded streams of real servers: they decode to the rows of `tests/data/pgoutput/record_streams.py`."""

import contextlib
import random
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from auditlake.errors import DecodeError, WrongSource
from auditlake.pgoutput.batch_decoder import ChangeDecoder
from auditlake.pgoutput.decoder import Message, StreamAbort, TwoPhase, decode, decode_streamed
from auditlake.replication.spool import Spool
from tests.unit.pgoutput.encode import encode, encode_streamed
from tests.unit.pgoutput.framing import frame
from tests.unit.pgoutput.model import Model, Versions
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
"""The rows of each committed transaction, in commit order."""


def read(name: str) -> list[bytes]:
    """Read a recording."""
    data = (FOLDER / f"{name}.bin").read_bytes()
    recorded, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        recorded.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return recorded


def placed(payloads: list[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield each message and whether it is in a block."""
    in_block = False
    for payload in payloads:
        in_block = in_block and payload[:1] != b"E"
        yield payload, in_block
        in_block = in_block or payload[:1] == b"S"


def decoded(payload: bytes, in_block: bool) -> tuple[int | None, Message]:  # noqa: FBT001  # as `placed` yields it
    """Decode a message in the form it has in or outside a block."""
    return decode_streamed(payload) if in_block else (None, decode(payload))


@pytest.mark.parametrize("name", STREAMED)
@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_recorded_streams_decode_to_the_committed_rows(name: str, memory: int) -> None:
    """Committed transactions without rolled back rows, in commit order, with context and origin."""
    with contextlib.closing(Spool(memory_bytes=memory)) as spool:
        plain = list(through_spool(spool, read(name)))
    batch = ChangeDecoder().decode(*frame(plain))
    transactions, changes = batch.transactions.to_pylist(), batch.changes.to_pylist()
    names = ("op", "table", "old", "new", "content")
    rows = [
        [tuple(row[name] for name in names) for row in changes if row["lsn"] == each["lsn"]] for each in transactions
    ]
    assert rows == EXPECTED
    assert [each["context"] for each in transactions] == [None, '{"app": {"user": "ann"}}', None, None]
    assert [each["origin"] for each in transactions] == [None, None, None, "far"]
    assert all(before["end_lsn"] <= after["lsn"] for before, after in pairwise(transactions))


@pytest.mark.parametrize("name", RECORDED)
def test_the_test_encoder_reproduces_the_servers_bytes(name: str) -> None:
    """Encoding a decoded message restores the server's bytes, so the other tests use realistic messages."""
    for payload, in_block in placed(read(name)):
        xid, message = decoded(payload, in_block)
        if isinstance(message, TwoPhase):  # its fields are dropped
            continue
        again = encode_streamed(xid, message) if in_block else encode(message)
        assert payload == again or payload[:1] in b"RY"  # they may abbreviate pg_catalog


def test_every_kind_of_message_is_in_the_recordings() -> None:
    """All boundaries of streamed and prepared transactions, and all messages allowed in a block."""
    messages = [each for name in RECORDED for each in placed(read(name))]
    assert set(b"SEcAbPpKr") <= {payload[0] for payload, _ in messages}
    assert set(b"RYIUDTMO") == {payload[0] for payload, in_block in messages if in_block}


def test_only_parallel_streaming_sends_lsn_and_time_of_an_abort() -> None:
    """An abort has LSN and time with `streaming 'parallel'`, and not with `streaming 'on'`."""
    for name in STREAMED:
        aborts = [m for p, b in placed(read(name)) for m in (decoded(p, b)[1],) if isinstance(m, StreamAbort)]
        assert [(each.xid == each.subxid) for each in aborts] == [False, True]
        assert all((each.abort_lsn is not None) == name.startswith("parallel") for each in aborts)


@pytest.mark.parametrize("name", RECORDED)
def test_a_truncated_recorded_message_is_refused(name: str) -> None:
    """A recorded message without its last bytes raises, for every length; an abort may lack LSN and time."""
    for payload, in_block in placed(read(name)):
        for size in range(len(payload)):
            if (payload[:1], size) != (b"A", 9):
                with pytest.raises(DecodeError):
                    decoded(payload[:size], in_block)


@pytest.mark.parametrize("name", STREAMED)
def test_a_corrupted_stream_is_refused_or_decodes_as_in_the_model(name: str) -> None:
    """One byte changed, or a message lost, doubled or moved: a protocol error, or the model's rows."""
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
            check_against_model(sent)


def check_against_model(sent: list[bytes]) -> None:
    """Check that the spool and the batch decoder refuse a stream or return the rows of their models."""
    with contextlib.suppress(DecodeError, WrongSource), contextlib.closing(Spool(memory_bytes=0)) as spool:
        plain = list(through_spool(spool, sent))
        batch = ChangeDecoder().decode(*frame(plain))
        model = Model().feed(plain_messages(sent))
        assert model.changes == Versions().rows(batch).to_pylist()
        assert model.transactions == batch.transactions.to_pylist()
