"""Frames are found many at once, in data that looks like messages itself, and never one that is none."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from auditlake.postgres.copydata import find_frames
from tests.unit.pgoutput.strategies import effort

# Bytes that headers are made of, so that data is full of places that look like one.
PAYLOADS = st.lists(st.sampled_from([b"d", b"w", b"\0", b"\x1f", b"\0\0\0\x1fw"]), min_size=1).map(b"".join)
OTHERS = st.sampled_from([b"d\0\0\0\x1d" + b"w" + bytes(24), b"d\0\0\0\x16k" + bytes(17), b"N\0\0\0\x04"])


def message(payload: bytes) -> bytes:
    """A CopyData message that carries a frame."""
    return b"d" + struct.pack(">I", 29 + len(payload)) + b"w" + bytes(24) + payload


@given(st.lists(PAYLOADS), OTHERS | st.just(b""), st.data())
@effort
def test_what_is_found_is_so(payloads: list[bytes], other: bytes, data: st.DataObject) -> None:
    """The frames found are the first ones, and `rest` is where the next message begins, cut wherever."""
    stream = b"".join(map(message, payloads)) + other
    cut = stream[: data.draw(st.integers(0, len(stream)))]
    found = find_frames(cut)
    frames = [cut[start:end] for start, end in zip(found.starts, found.ends, strict=True)]
    assert frames == payloads[: len(frames)]
    assert found.rest == sum(len(message(payload)) for payload in frames)


def test_all_are_found() -> None:
    """Where nothing in the data looks like a message, all whole ones in front of another kind are found at once."""
    payloads = [b"B" + bytes(20), b"I some values", b"C" + b"x" * 70_000]
    stream = b"".join(map(message, payloads))
    assert find_frames(stream + b"N\0\0\0\x04").rest == len(stream)
    assert find_frames(stream[:-1]).rest == len(stream) - len(message(payloads[2]))
    assert find_frames(b"").rest == 0
