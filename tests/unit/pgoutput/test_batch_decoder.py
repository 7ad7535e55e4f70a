"""Tests of the batch decoder: it returns and refuses the same as `decoder`, however the stream is cut into buffers."""

import contextlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlake.errors import DecodeError, InvariantBroken
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA, TRANSACTIONS_SCHEMA, ChangeDecoder, Decoded
from auditlake.pgoutput.decoder import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldKind,
    OldTuple,
    Origin,
    StreamStart,
    Truncate,
    Update,
    decode,
)
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from tests.unit.pgoutput.encode import encode
from tests.unit.pgoutput.framing import frame
from tests.unit.pgoutput.model import Model, Versions
from tests.unit.pgoutput.strategies import effort, streams
from tests.unit.pgoutput.vectors import VECTORS

TIME = datetime(2026, 11, 21, 9, 30, 0, 123456, tzinfo=UTC)
BEGIN = Begin(Lsn(100), TIME, 7)
COMMIT = Commit(Lsn(100), Lsn(150), TIME)
KEYED = Relation(
    0x4001,
    TableName("public", "t"),
    ReplicaIdentity.DEFAULT,
    (Column("id", 23, -1, key=True), Column("v", 25, -1, key=False)),
)
FULL = Relation(0x4001, TableName("public", "t"), ReplicaIdentity.FULL, (Column("id", 23, -1, key=True),))


class Reader:
    """A decoder and everything it has returned."""

    def __init__(self) -> None:
        self.decoder = ChangeDecoder()
        self.versions = Versions()
        self.changes: list[dict[str, Any]] = []
        self.transactions: list[dict[str, Any]] = []

    def read(self, payloads: Sequence[bytes]) -> Decoded:
        """Decode one buffer and check that Arrow finds it sound."""
        decoded = self.decoder.decode(*frame(payloads))
        for batch, schema in ((decoded.changes, CHANGES_SCHEMA), (decoded.transactions, TRANSACTIONS_SCHEMA)):
            batch.validate(full=True)
            assert batch.schema.equals(schema)
        self.changes += self.versions.rows(decoded).to_pylist()
        self.transactions += decoded.transactions.to_pylist()
        return decoded


def encoded(messages: Iterable[Message]) -> list[bytes]:
    """Encode messages as the server does."""
    return [encode(message) for message in messages]


def same(model: Model, reader: Reader) -> bool:
    """Assert that both have the same rows and relation versions."""
    assert model.changes == reader.changes
    assert model.transactions == reader.transactions
    assert model.registered == reader.versions.registered
    return True


@given(streams())
@effort
def test_batch_and_message_decoder_return_the_same_rows(stream: list[Message]) -> None:
    """A stream in one buffer decodes to the model's rows."""
    payloads = encoded(stream)
    reader = Reader()
    decoded = reader.read(payloads)
    assert same(Model().feed(map(decode, payloads)), reader)
    commits = [message for message in stream if isinstance(message, Commit)]
    assert (commits[-1] if commits else None) == decoded.last_commit


@given(streams(), st.data())
@effort
def test_rows_do_not_depend_on_buffer_boundaries(stream: list[Message], data: st.DataObject) -> None:
    """A stream split into buffers, also within a transaction, decodes to the same rows."""
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    reader = Reader()
    for start, end in pairwise([0, *sorted(cuts), len(stream)]):
        decoded = reader.read(encoded(stream[start:end]))
        commits = [message for message in stream[start:end] if isinstance(message, Commit)]
        assert (commits[-1] if commits else None) == decoded.last_commit
    assert same(Model().feed(stream), reader)
    open_lsns = [message.final_lsn for message in stream if isinstance(message, Begin)]
    ended = sum(isinstance(message, Commit) for message in stream)
    assert (open_lsns[-1] if len(open_lsns) > ended else None) == reader.decoder.open_lsn


@given(streams().filter(bool), st.data())
@effort
def test_a_corrupted_byte_raises_decode_error_or_decodes(stream: list[Message], data: st.DataObject) -> None:
    """A corrupted byte never raises anything but DecodeError; a buffer that decodes has the model's rows."""
    payloads = [bytearray(payload) for payload in encoded(stream)]
    damaged = data.draw(st.sampled_from(payloads))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    reader = Reader()
    with contextlib.suppress(DecodeError):
        reader.read([bytes(payload) for payload in payloads])
        assert same(Model().feed(decode(bytes(payload)) for payload in payloads), reader)


@pytest.mark.parametrize(
    ("time", "recorded"),
    [
        (-(1 << 63), datetime.min.replace(tzinfo=UTC)),
        ((1 << 63) - 1, datetime.max.replace(tzinfo=UTC)),
        (0, datetime(2000, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_time_that_no_clock_shows_is_recorded_as_the_nearest(time: int, recorded: datetime) -> None:
    """A session with a replication origin may commit at -infinity; refused, that would end capture for good."""
    sent = time.to_bytes(8, "big", signed=True)
    messages: list[Message] = [BEGIN, KEYED, Insert(KEYED.oid, ("1", None)), COMMIT]
    payloads = [payload.replace(encode(BEGIN)[9:17], sent) for payload in encoded(messages)]
    reader = Reader()
    reader.read(payloads)
    assert [each["time"] for each in reader.transactions] == [recorded]
    assert same(Model().feed(map(decode, payloads)), reader)


def _in_a_stream(message: Message) -> tuple[list[bytes], list[bytes]]:
    """Return the messages before and after `message` that make it legal."""
    begin = Begin(Lsn(0x100000010), TIME, 7)
    commit = Commit(Lsn(0x100000010), Lsn(0x100000040), TIME)
    match message:
        case Begin():
            return [], encoded([commit])
        case Commit():
            return encoded([begin]), []
        case Relation() | Origin():
            return encoded([begin]), encoded([commit])
        case _:
            return encoded([begin, *_relations_of(message)]), encoded([commit])


def _relations_of(message: Message) -> list[Relation]:
    match message:
        case Truncate(oids):
            return [Relation(oid, TableName("p", "t"), ReplicaIdentity.DEFAULT, ()) for oid in oids]
        case Insert(oid, values) | Delete(oid, OldTuple(_, values)) | Update(oid, _, values):
            old = None if isinstance(message, Insert) else message.old
            identity = ReplicaIdentity.FULL if old and old.kind is OldKind.FULL else ReplicaIdentity.DEFAULT
            columns = tuple(Column(f"c{i}", 25, -1, key=True) for i in range(len(values)))
            return [Relation(oid, TableName("p", "t"), identity, columns)]
        case _:
            return []


every_vector = pytest.mark.parametrize(("hexadecimal", "message"), VECTORS.values(), ids=VECTORS)


@every_vector
def test_each_kind_of_message_decodes_as_in_the_manual(hexadecimal: str, message: Message) -> None:
    """Each kind of message, at a place that allows it."""
    before, after = _in_a_stream(message)
    reader = Reader()
    payloads = [*before, bytes.fromhex(hexadecimal), *after]
    reader.read(payloads)
    assert same(Model().feed(map(decode, payloads)), reader)


@every_vector
def test_a_truncated_message_is_refused(hexadecimal: str, message: Message) -> None:
    """A message without its last bytes raises, whether it is the last of the buffer or not."""
    before, after = _in_a_stream(message)
    payload = bytes.fromhex(hexadecimal)
    for size in range(len(payload)):
        for rest in (after, []):
            with pytest.raises(DecodeError):
                Reader().read([*before, payload[:size], *rest])


@every_vector
def test_bytes_after_a_message_are_refused(hexadecimal: str, message: Message) -> None:
    """A message must end with its payload, even if the extra bytes would be valid values."""
    before, after = _in_a_stream(message)
    for more in (b"\0", b"n", bytes(9)):
        with pytest.raises(DecodeError):
            Reader().read([*before, bytes.fromhex(hexadecimal) + more, *after])


KEY = OldTuple(OldKind.KEY, ("1", None))
ROW = Insert(0x4001, ("1", "a"))


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        ([ROW], "'I': a change outside a transaction; relation unknown (oid 16385) outside transactions"),
        ([BEGIN, BEGIN], "'B': a transaction begins inside another; in transaction 0/64"),
        ([COMMIT], "'C': a commit outside a transaction; outside transactions"),
        ([BEGIN, COMMIT, COMMIT], "'C': a commit outside a transaction; outside transactions"),
        ([BEGIN, Commit(Lsn(101), Lsn(150), TIME)], "'C': its commit LSN differs from the one in its Begin"),
        ([BEGIN, ROW], "'I': a change without a Relation message for its table; relation unknown (oid 16385)"),
        ([BEGIN, Truncate((9,), cascade=False, restart_identity=False)], "'T': a change without a Relation message"),
        ([BEGIN, StreamStart(7, first=True)], "'S': bounds a streamed or prepared transaction, need plain ones"),
        ([KEYED], "'R': outside a transaction"),
        ([Origin(Lsn(1), "o")], "'O': outside a transaction"),
        ([LogicalMessage(transactional=True, lsn=Lsn(1), prefix="a", content=b"")], "'M': outside a transaction"),
        (
            [BEGIN, LogicalMessage(transactional=False, lsn=Lsn(1), prefix="a", content=b"")],
            "'M': a non-transactional message inside a transaction",
        ),
        ([BEGIN, KEYED, ROW, Origin(Lsn(1), "o")], "'O': an origin after a change of its transaction"),
        (
            [BEGIN, KEYED, Insert(0x4001, ("1",))],
            "has 2 columns, the tuple a different number; relation public.t (oid 16385) in transaction 0/64",
        ),
        ([BEGIN, KEYED, Update(0x4001, KEY, ("1", "a", "b"))], "the relation has 2 columns, the tuple a different"),
    ],
)
def test_a_valid_message_out_of_place_is_refused(stream: list[Message], problem: str) -> None:
    """Messages that are valid in themselves but not at their place raise, in one buffer and in many."""
    with pytest.raises(DecodeError) as whole:
        Reader().read(encoded(stream))
    assert problem in whole.value.message
    *before, bad = encoded(stream)
    reader = Reader()
    for payload in before:
        reader.read([payload])
    with pytest.raises(DecodeError) as parts:
        reader.read([bad])
    assert problem in parts.value.message


def test_a_relation_message_after_the_change_is_too_late() -> None:
    """A row's relation is the last Relation message before it."""
    with pytest.raises(DecodeError, match="'I': a change without a Relation message"):
        Reader().read(encoded([BEGIN, ROW, KEYED, COMMIT]))


def test_the_error_of_a_malformed_value_names_table_and_transaction() -> None:
    """The error is the message decoder's, with the table and the transaction, without the value."""
    bad = encode(Insert(0x4001, ("1", "secret")))[:-1]
    with pytest.raises(DecodeError) as caught:
        Reader().read([*encoded([BEGIN, KEYED, ROW]), bad, encode(COMMIT)])
    expected = (
        "pgoutput message 'I' at offset 19: need 6 bytes, have 5; relation public.t (oid 16385) in transaction 0/64"
    )
    assert expected == caught.value.message


def test_utf8_is_checked_per_value() -> None:
    """Two values that are UTF-8 only when concatenated are escaped byte by byte; a valid one stays unchanged."""
    bad = bytes.fromhex("49 00004001 4e 0002 74 00000001 c3 74 00000001 a9")
    reader = Reader()
    reader.read([*encoded([BEGIN, KEYED]), bad, *encoded([Insert(0x4001, ("1", "é")), COMMIT])])
    assert [row["new"] for row in reader.changes] == [["\0xc3", "\0xa9"], ["1", "é"]]


def test_an_error_does_not_change_the_decoder() -> None:
    """After a refused buffer the decoder continues from the state before it."""
    reader = Reader()
    reader.read(encoded([BEGIN, KEYED, ROW]))
    with pytest.raises(DecodeError):
        reader.read(encoded([COMMIT, COMMIT]))
    reader.read(encoded([ROW, COMMIT]))
    assert [row["ordinal"] for row in reader.changes] == [0, 1]
    assert [row["inserts"] for row in reader.transactions] == [2]


def test_payload_bounds_outside_the_buffer_are_a_bug() -> None:
    """Bounds that are out of order or outside the buffer are the caller's fault, not the stream's."""
    for starts, ends in (([0], [30]), ([-1], [5]), ([5, 0], [6, 4]), ([5], [4])):
        with pytest.raises(InvariantBroken):
            Reader().decoder.decode(bytes(20), np.array(starts), np.array(ends))


def test_a_buffer_without_changes_has_no_rows() -> None:
    """A buffer without a message, and one with only an empty transaction."""
    reader = Reader()
    assert reader.read([]).last_commit is None
    assert reader.read(encoded([BEGIN, COMMIT])).last_commit == COMMIT
    assert reader.changes == reader.transactions == []


def test_a_decoded_bytearray_can_be_resized() -> None:
    """Capture receives into a bytearray; no view of it is kept after decoding."""
    buffer, starts, ends = frame(encoded([BEGIN, KEYED, ROW, COMMIT]))
    mutable = bytearray(buffer)
    decoded = Reader().decoder.decode(mutable, starts, ends)
    mutable.clear()
    assert decoded.changes["new"].to_pylist() == [["1", "a"]]


@pytest.mark.parametrize(
    ("contents", "context"),
    [
        ([b'{"user":"ann"}'], '{"app": {"user":"ann"}}'),
        ([b"1", b"2"], '{"app": 2}'),
        ([b"no json"], '{"app": "no json"}'),
        ([b"\xff\x00"], r'{"app": "\\xff00"}'),
        ([b""], '{"app": ""}'),
    ],
)
def test_the_last_assertion_is_the_context(contents: list[bytes], context: str) -> None:
    """The last message with our prefix wins; bytes that are not UTF-8 become a JSON string in bytea's hex format."""
    ours = [LogicalMessage(transactional=True, lsn=Lsn(1), prefix="auditlake", content=each) for each in contents]
    other = LogicalMessage(transactional=True, lsn=Lsn(1), prefix="other", content=b"{}")
    reader = Reader()
    reader.read(encoded([BEGIN, *ours, other, COMMIT]))
    assert [context] == [row["context"] for row in reader.transactions]


def test_tables_of_a_transaction_are_distinct_sorted_and_quoted() -> None:
    """Names are quoted as in SQL; a later relation version may have another name."""
    renamed = Relation(0x4001, TableName("public", "T2"), ReplicaIdentity.DEFAULT, KEYED.columns)
    other = Relation(0x4002, TableName("a b", "x"), ReplicaIdentity.DEFAULT, KEYED.columns)
    reader = Reader()
    row = Insert(0x4002, ("1", None))
    reader.read(encoded([BEGIN, KEYED, ROW, ROW, other, row]))
    reader.read(encoded([renamed, ROW, row, COMMIT]))
    assert [each["tables"] for each in reader.transactions] == [['"a b".x', 'public."T2"', "public.t"]]
