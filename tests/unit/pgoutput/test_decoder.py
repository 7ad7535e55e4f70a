"""Tests of the message decoder: the manual's examples, round trips through the encoder, malformed bytes."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlake.errors import DecodeError
from auditlake.lsn import Lsn
from auditlake.pgoutput.ddl_message import MOST_BYTES as MOST_DDL_BYTES
from auditlake.pgoutput.ddl_message import PREFIX as DDL_PREFIX
from auditlake.pgoutput.decoder import (
    MOST_CONTENT_BYTES,
    MOST_PREFIX_BYTES,
    Insert,
    LogicalMessage,
    Message,
    cut_message,
    decode,
    decode_streamed,
)
from tests.unit.pgoutput.encode import encode, encode_streamed
from tests.unit.pgoutput.strategies import effort, in_blocks, messages, u32
from tests.unit.pgoutput.vectors import BOUNDARIES, IN_BLOCKS, VECTORS

PLAIN = VECTORS | BOUNDARIES
every_payload = pytest.mark.parametrize("payload", [bytes.fromhex(each) for each, _ in PLAIN.values()], ids=PLAIN)


@pytest.mark.parametrize(("hexadecimal", "message"), PLAIN.values(), ids=PLAIN)
def test_each_kind_of_message_decodes_as_in_the_manual(hexadecimal: str, message: Message) -> None:
    """Every field is decoded."""
    assert message == decode(bytes.fromhex(hexadecimal))


@every_payload
def test_a_truncated_message_is_refused(payload: bytes) -> None:
    """A message without its last bytes raises, for every length; an abort may lack LSN and time."""
    for size in range(len(payload)):
        if (payload[:1], size) != (b"A", 9):
            with pytest.raises(DecodeError):
                decode(payload[:size])


@every_payload
def test_bytes_after_a_message_are_refused(payload: bytes) -> None:
    """A message must end with its payload."""
    for more in (b"\0", b"n", bytes(9)):  # an abort reads eight of them as an LSN
        with pytest.raises(
            DecodeError, match=rf"need the end of the message, have {len(more)} more|need 8 bytes, have 1"
        ):
            decode(payload + more)


@pytest.mark.parametrize(("hexadecimal", "message"), IN_BLOCKS.values(), ids=IN_BLOCKS)
def test_messages_of_a_block_decode_with_their_xid(hexadecimal: str, message: Message) -> None:
    """In a block the xid follows the tag; truncated messages and extra bytes are refused."""
    payload = bytes.fromhex(hexadecimal)
    assert (9, message) == decode_streamed(payload)
    for damaged in [payload[:size] for size in range(len(payload))] + [payload + b"\0"]:
        with pytest.raises(DecodeError):
            decode_streamed(damaged)


def test_an_origin_in_a_block_has_no_xid() -> None:
    """An Origin has the same bytes in a block and outside."""
    hexadecimal, origin = VECTORS["origin"]
    assert (None, origin) == decode_streamed(bytes.fromhex(hexadecimal))


@pytest.mark.parametrize("tag", "BCSEcAbPKrp")
def test_transaction_boundaries_are_refused_in_a_block(tag: str) -> None:
    """A message that starts or ends a transaction is not allowed in a block."""
    with pytest.raises(DecodeError, match=f"message '{tag}' .* need one of the tags RYIUDTMO"):
        decode_streamed(tag.encode() + bytes(40))


@pytest.mark.parametrize(
    ("hexadecimal", "problem"),
    [
        ("", "message without a tag at offset 0: need 1 bytes, have 0"),
        ("58", "message 'X' at offset 1: need one of the tags BCO"),
        ("42 00000001", "message 'B' at offset 1: need 8 bytes, have 4"),
        ("42 ffffffffffffffff 0000000000000000 00000001", "need an LSN of at most"),
        ("43 01" + "00" * 24, "need no flags beside 0x00, have 0x01"),
        ("4d 02" + "00" * 13, "need no flags beside 0x01, have 0x02"),
        ("54 00000000 04", "need no flags beside 0x03, have 0x04"),
        ("52 00004001 7000 7400 78 0000", "need replica identity d, n, f or i, have 'x'"),
        ("52 00004001 7000 7400 64 0001 02 6100 00000017 ffffffff", "need no flags beside 0x01, have 0x02"),
        ("53 00000007 02", "need no flags beside 0x01, have 0x02"),
        ("63 00000007 01" + "00" * 24, "need no flags beside 0x00, have 0x01"),
        ("50 01" + "00" * 30, "need no flags beside 0x00, have 0x01"),
        ("41 00000007 00000008 00", "need 8 bytes, have 1"),
        ("4f 0000000000000001 6162", "need a zero byte after a name, have none"),
        ("4f 0000000000000001 ff00", "need UTF-8 in the 1 bytes before it"),
        ("49 00004001 4b 0000", "need a new tuple"),
        ("55 00004001 58 0000", "need a new tuple"),
        ("44 00004001 4e 0000", "need an old tuple"),
        ("49 00004001 4e 0001 62 00000001 31", "binary format, text was asked for"),
        ("49 00004001 4e 0001 78", "need a value of kind n, u or t, have 'x'"),
        ("44 00004001 4b 0001 75", "need a value in an old tuple, have unchanged TOAST"),
    ],
)
def test_the_error_of_a_malformed_message_names_the_problem(hexadecimal: str, problem: str) -> None:
    """The error names the message, the offset, and the required and actual bytes."""
    with pytest.raises(DecodeError) as caught:
        decode(bytes.fromhex(hexadecimal))
    assert problem in caught.value.message


def test_errors_contain_no_values() -> None:
    """A name that is not UTF-8 is refused without quoting it."""
    with pytest.raises(DecodeError) as caught:
        decode(bytes.fromhex("4f 0000000000000001") + b"secret\xff\0")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_value_that_is_not_utf8_is_kept() -> None:
    """Invalid bytes are escaped; UTF-8 around them stays unchanged."""
    message = decode(bytes.fromhex("49 00004001 4e 0001 74 00000007") + "né".encode() + b"\xc3,\xe9\xff")
    assert message == Insert(0x4001, ("né\0xc3,\0xe9\0xff",))


@given(messages)
@effort
def test_encoded_messages_decode_to_themselves(message: Message) -> None:
    """Decoding inverts encoding for every message."""
    assert message == decode(encode(message))


@given(u32, in_blocks)
@effort
def test_encoded_messages_of_a_block_decode_to_themselves(xid: int, message: Message) -> None:
    """Decoding inverts encoding for every message of a block, with its xid."""
    assert (xid, message) == decode_streamed(encode_streamed(xid, message))


@given(messages, st.data())
@effort
def test_a_corrupted_byte_raises_decode_error_or_decodes(message: Message, data: st.DataObject) -> None:
    """A corrupted byte never raises anything but DecodeError."""
    payload = bytearray(encode(message))
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        decode(bytes(payload))


@given(st.sampled_from(b"BCORYIUDTMSEcAbPpKrXx"), st.binary(max_size=60))
@effort
def test_arbitrary_bytes_raise_decode_error_or_decode(tag: int, rest: bytes) -> None:
    """Arbitrary bytes never raise anything but DecodeError."""
    for read in (decode, decode_streamed):
        with contextlib.suppress(DecodeError):
            read(bytes([tag]) + rest)


@pytest.mark.parametrize("in_block", [False, True])
def test_a_message_is_cut_to_what_the_lake_keeps(*, in_block: bool) -> None:
    """Any role may send a gigabyte; a DDL message is kept as long as the trigger makes them. Characters stay whole."""

    def cut(message: LogicalMessage) -> Message:
        payload = cut_message(memoryview(encode_streamed(9 if in_block else None, message)), in_block=in_block)
        return decode_streamed(bytes(payload))[1] if in_block else decode(bytes(payload))

    long = bytes(range(256)) * (MOST_DDL_BYTES // 256 + 1)
    for prefix, kept in (("auditlake", MOST_CONTENT_BYTES), ("", MOST_CONTENT_BYTES), (DDL_PREFIX, MOST_DDL_BYTES)):
        message = LogicalMessage(True, Lsn(1), prefix, long)
        assert cut(message) == replace(message, content=long[:kept])
    named = LogicalMessage(False, Lsn(1), "x" + "ä" * MOST_PREFIX_BYTES, b"short")
    assert cut(named) == replace(named, prefix="x" + "ä" * (MOST_PREFIX_BYTES // 2 - 1))


def test_a_malformed_message_is_not_cut() -> None:
    """The decoder refuses it."""
    payload = encode(LogicalMessage(True, Lsn(1), "x", b"y" * 2 * MOST_CONTENT_BYTES))
    for malformed in (payload[:-1], payload + b"y", payload[:12], payload[:11], payload[:5], payload[:1]):
        assert cut_message(memoryview(malformed), in_block=False) == malformed
        with pytest.raises(DecodeError):
            decode(malformed)
