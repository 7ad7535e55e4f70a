"""The plain decoder against the manual, against the encoder, and against bytes that are wrong."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlake.errors import DecodeError
from auditlake.pgoutput.messages import Message
from auditlake.pgoutput.wire import decode
from tests.unit.pgoutput.encode import encode
from tests.unit.pgoutput.strategies import effort, messages
from tests.unit.pgoutput.vectors import VECTORS

every_payload = pytest.mark.parametrize("payload", [bytes.fromhex(each) for each, _ in VECTORS.values()], ids=VECTORS)


@pytest.mark.parametrize(("hexadecimal", "message"), VECTORS.values(), ids=VECTORS)
def test_reads_the_bytes_of_the_manual(hexadecimal: str, message: Message) -> None:
    """Each kind of message is read whole."""
    assert message == decode(bytes.fromhex(hexadecimal))


@every_payload
def test_refuses_a_message_cut_anywhere(payload: bytes) -> None:
    """A message without its last bytes is refused, wherever it is cut."""
    for size in range(len(payload)):
        with pytest.raises(DecodeError):
            decode(payload[:size])


@every_payload
def test_refuses_bytes_after_the_message(payload: bytes) -> None:
    """Nothing may follow a message."""
    for more in (b"\0", b"n", bytes(9)):
        with pytest.raises(DecodeError, match=rf"need the end of the message, have {len(more)} more bytes"):
            decode(payload + more)


@pytest.mark.parametrize("tag", "SEcAbPKrp")
def test_names_the_protocol_version_of_a_later_message(tag: str) -> None:
    """Streaming and two-phase messages were not asked for, and the error says so."""
    with pytest.raises(DecodeError, match=f"message '{tag}' .* protocol version 1 was asked for"):
        decode(tag.encode() + bytes(20))


@pytest.mark.parametrize(
    ("hexadecimal", "problem"),
    [
        ("", "message without a tag at offset 0: need 1 bytes, have 0"),
        ("58", "message 'X' at offset 1: need a tag"),
        ("42 00000001", "message 'B' at offset 1: need 8 bytes, have 4"),
        ("42 ffffffffffffffff 0000000000000000 00000001", "need an LSN of at most"),
        ("42 0000000000000001 7fffffffffffffff 00000001", "need a time in the years 1 to 9999"),
        ("43 01" + "00" * 24, "need no flags beside 0x00, have 0x01"),
        ("4d 02" + "00" * 13, "need no flags beside 0x01, have 0x02"),
        ("54 00000000 04", "need no flags beside 0x03, have 0x04"),
        ("52 00004001 7000 7400 78 0000", "need replica identity d, n, f or i, have 'x'"),
        ("52 00004001 7000 7400 64 0001 02 6100 00000017 ffffffff", "need no flags beside 0x01, have 0x02"),
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
def test_says_what_is_wrong(hexadecimal: str, problem: str) -> None:
    """The error names the message, the place and both sides."""
    with pytest.raises(DecodeError) as caught:
        decode(bytes.fromhex(hexadecimal))
    assert problem in caught.value.message


def test_keeps_values_out_of_errors() -> None:
    """Text that is not UTF-8 is refused without quoting it."""
    with pytest.raises(DecodeError) as caught:
        decode(bytes.fromhex("49 00004001 4e 0001 74 00000007") + b"secret\xff")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@given(messages)
@effort
def test_undoes_the_encoder(message: Message) -> None:
    """Any message comes back as it was."""
    assert message == decode(encode(message))


@given(messages, st.data())
@effort
def test_a_damaged_byte_gives_an_error_or_a_message(message: Message, data: st.DataObject) -> None:
    """No damage gets out as anything but DecodeError."""
    payload = bytearray(encode(message))
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        decode(bytes(payload))


@given(st.sampled_from(b"BCORYIUDTMSXx"), st.binary(max_size=60))
@effort
def test_any_bytes_give_an_error_or_a_message(tag: int, rest: bytes) -> None:
    """No bytes get out as anything but DecodeError."""
    with contextlib.suppress(DecodeError):
        decode(bytes([tag]) + rest)
