"""The fast decoder gives what the plain one gives, however the stream is cut, and refuses what it refuses."""

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
from auditlake.pgoutput.columnar import ChangeDecoder, Decoded
from auditlake.pgoutput.messages import (
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
)
from auditlake.pgoutput.schema import CHANGES_SCHEMA, TRANSACTIONS_SCHEMA
from auditlake.pgoutput.wire import decode
from auditlake.relation import Column, Relation, TableName
from tests.unit.pgoutput.encode import encode
from tests.unit.pgoutput.framing import frame
from tests.unit.pgoutput.model import Model, version
from tests.unit.pgoutput.strategies import effort, streams
from tests.unit.pgoutput.vectors import VECTORS

TIME = datetime(2026, 11, 21, 9, 30, 0, 123456, tzinfo=UTC)
BEGIN = Begin(Lsn(100), TIME, 7)
COMMIT = Commit(Lsn(100), Lsn(150), TIME)
KEYED = Relation(
    0x4001, TableName("public", "t"), "d", (Column("id", 23, -1, key=True), Column("v", 25, -1, key=False))
)
FULL = Relation(0x4001, TableName("public", "t"), "f", (Column("id", 23, -1, key=True),))


class Reader:
    """A decoder and everything it has given."""

    def __init__(self) -> None:
        self.registered: list[tuple[Relation, int]] = []
        self.decoder = ChangeDecoder(self._register)
        self.changes: list[dict[str, Any]] = []
        self.transactions: list[dict[str, Any]] = []

    def _register(self, relation: Relation, commit_lsn: int) -> int:
        self.registered.append((relation, commit_lsn))
        return version(relation)

    def read(self, payloads: Sequence[bytes]) -> Decoded:
        """Decode one buffer and check that Arrow finds it sound."""
        decoded = self.decoder.decode(*frame(payloads))
        for batch, schema in ((decoded.changes, CHANGES_SCHEMA), (decoded.transactions, TRANSACTIONS_SCHEMA)):
            batch.validate(full=True)
            assert batch.schema.equals(schema)
        self.changes += decoded.changes.to_pylist()
        self.transactions += decoded.transactions.to_pylist()
        return decoded


def encoded(messages: Iterable[Message]) -> list[bytes]:
    """Spell messages as the server does."""
    return [encode(message) for message in messages]


def same(model: Model, reader: Reader) -> bool:
    """Compare all that was given, and fail with the difference."""
    assert model.changes == reader.changes
    assert model.transactions == reader.transactions
    assert model.registered == reader.registered
    return True


@given(streams())
@effort
def test_gives_what_the_plain_decoder_gives(stream: list[Message]) -> None:
    """A whole stream in one buffer."""
    payloads = encoded(stream)
    reader = Reader()
    decoded = reader.read(payloads)
    assert same(Model().feed(map(decode, payloads)), reader)
    commits = [message for message in stream if isinstance(message, Commit)]
    assert (commits[-1] if commits else None) == decoded.last_commit


@given(streams(), st.data())
@effort
def test_buffers_may_end_anywhere(stream: list[Message], data: st.DataObject) -> None:
    """The same rows however the stream is cut, inside a transaction too."""
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
def test_a_damaged_byte_gives_an_error_or_rows(stream: list[Message], data: st.DataObject) -> None:
    """No damage gets out as anything but DecodeError, and what passes is what the plain decoder reads."""
    payloads = [bytearray(payload) for payload in encoded(stream)]
    damaged = data.draw(st.sampled_from(payloads))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    reader = Reader()
    with contextlib.suppress(DecodeError):
        reader.read([bytes(payload) for payload in payloads])
        assert same(Model().feed(decode(bytes(payload)) for payload in payloads), reader)


def _in_a_stream(message: Message) -> tuple[list[bytes], list[bytes]]:
    """Messages that make `message` legal, before and after it."""
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
            return [Relation(oid, TableName("p", "t"), "d", ()) for oid in oids]
        case Insert(oid, values) | Delete(oid, OldTuple(_, values)) | Update(oid, _, values):
            old = None if isinstance(message, Insert) else message.old
            identity = "f" if old and old.kind is OldKind.FULL else "d"
            columns = tuple(Column(f"c{i}", 25, -1, key=True) for i in range(len(values)))
            return [Relation(oid, TableName("p", "t"), identity, columns)]
        case _:
            return []


every_vector = pytest.mark.parametrize(("hexadecimal", "message"), VECTORS.values(), ids=VECTORS)


@every_vector
def test_reads_the_bytes_of_the_manual(hexadecimal: str, message: Message) -> None:
    """Each kind of message in its place."""
    before, after = _in_a_stream(message)
    reader = Reader()
    payloads = [*before, bytes.fromhex(hexadecimal), *after]
    reader.read(payloads)
    assert same(Model().feed(map(decode, payloads)), reader)


@every_vector
def test_refuses_a_message_cut_anywhere(hexadecimal: str, message: Message) -> None:
    """A message without its last bytes is refused, last in the buffer or not."""
    before, after = _in_a_stream(message)
    payload = bytes.fromhex(hexadecimal)
    for size in range(len(payload)):
        for rest in (after, []):
            with pytest.raises(DecodeError):
                Reader().read([*before, payload[:size], *rest])


@every_vector
def test_refuses_bytes_after_the_message(hexadecimal: str, message: Message) -> None:
    """Nothing may follow a message, even bytes that would be legal values."""
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
        ([BEGIN, Commit(Lsn(101), Lsn(150), TIME)], "'C': its commit LSN is not the one its Begin announced"),
        ([BEGIN, ROW], "'I': a change of a relation that was not described; relation unknown (oid 16385)"),
        ([BEGIN, Truncate((9,), cascade=False, restart_identity=False)], "'T': a change of a relation that was not"),
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
            "the relation has 2 columns, the tuple another number; relation public.t (oid 16385) in transaction 0/64",
        ),
        ([BEGIN, KEYED, Update(0x4001, KEY, ("1", "a", "b"))], "the relation has 2 columns, the tuple another number"),
        ([BEGIN, KEYED, Delete(0x4001, OldTuple(OldKind.FULL, ("1", "a")))], "'D': its old tuple is not of the kind"),
        ([BEGIN, FULL, Delete(0x4001, OldTuple(OldKind.KEY, ("1",)))], "'D': its old tuple is not of the kind"),
    ],
)
def test_refuses_a_message_out_of_place(stream: list[Message], problem: str) -> None:
    """Messages that are sound in themselves but not where they stand; in one buffer and in many."""
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


def test_a_relation_described_afterwards_is_too_late() -> None:
    """A row belongs to the description before it."""
    with pytest.raises(DecodeError, match="'I': a change of a relation that was not described"):
        Reader().read(encoded([BEGIN, ROW, KEYED, COMMIT]))


def test_says_where_a_bad_value_is() -> None:
    """What the plain decoder says of the message, with the table and the transaction, without the value."""
    bad = bytearray(encode(Insert(0x4001, ("1", "secret"))))
    bad[-1] = 0xFF
    with pytest.raises(DecodeError) as caught:
        Reader().read([*encoded([BEGIN, KEYED, ROW]), bytes(bad), encode(COMMIT)])
    expected = (
        "pgoutput message 'I' at offset 25: need UTF-8 in the 6 bytes before it; "
        "relation public.t (oid 16385) in transaction 0/64"
    )
    assert expected == caught.value.message


def test_text_is_checked_value_by_value() -> None:
    """Two values that are UTF-8 only when put together are refused."""
    bad = bytes.fromhex("49 00004001 4e 0002 74 00000001 c3 74 00000001 a9")
    with pytest.raises(DecodeError, match="need UTF-8"):
        Reader().read([*encoded([BEGIN, KEYED]), bad])


def test_an_error_leaves_the_decoder_as_it_was() -> None:
    """Nothing of a refused buffer is kept."""
    reader = Reader()
    reader.read(encoded([BEGIN, KEYED, ROW]))
    with pytest.raises(DecodeError):
        reader.read(encoded([COMMIT, COMMIT]))
    reader.read(encoded([ROW, COMMIT]))
    assert [row["ordinal"] for row in reader.changes] == [0, 1]
    assert [row["inserts"] for row in reader.transactions] == [2]


def test_refuses_bounds_outside_the_buffer() -> None:
    """Bounds that are out of order or outside are the caller's bug, not the stream's."""
    for starts, ends in (([0], [30]), ([-1], [5]), ([5, 0], [6, 4]), ([5], [4])):
        with pytest.raises(InvariantBroken):
            Reader().decoder.decode(bytes(20), np.array(starts), np.array(ends))


def test_an_empty_buffer_gives_no_rows() -> None:
    """A buffer without a message, and one that holds only an empty transaction."""
    reader = Reader()
    assert reader.read([]).last_commit is None
    assert reader.read(encoded([BEGIN, COMMIT])).last_commit == COMMIT
    assert reader.changes == reader.transactions == []


def test_takes_a_bytearray() -> None:
    """Capture receives into a bytearray; it is free again afterwards."""
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
def test_the_context_is_kept_as_text(contents: list[bytes], context: str) -> None:
    """The last message with our prefix wins; bytes that are not text become a JSON string in bytea spelling."""
    said = [LogicalMessage(transactional=True, lsn=Lsn(1), prefix="auditlake", content=each) for each in contents]
    other = LogicalMessage(transactional=True, lsn=Lsn(1), prefix="other", content=b"{}")
    reader = Reader()
    reader.read(encoded([BEGIN, *said, other, COMMIT]))
    assert [context] == [row["context"] for row in reader.transactions]


def test_tables_are_named_once_and_quoted() -> None:
    """The tables of a transaction, sorted, in SQL's spelling; a later relation version may carry another name."""
    renamed = Relation(0x4001, TableName("public", "T2"), "d", KEYED.columns)
    other = Relation(0x4002, TableName("a b", "x"), "d", KEYED.columns)
    reader = Reader()
    row = Insert(0x4002, ("1", None))
    reader.read(encoded([BEGIN, KEYED, ROW, ROW, other, row]))
    reader.read(encoded([renamed, ROW, row, COMMIT]))
    assert [each["tables"] for each in reader.transactions] == [['"a b".x', 'public."T2"', "public.t"]]
