"""A buffer of frames before it is decoded: the xids of its transactions."""

import numpy as np

from auditlake.replication.stream import FrameBuffer

_BEGIN = b"B" + bytes(16)


def test_a_buffer_has_the_xids_of_its_begin_messages() -> None:
    """Of each Begin that is complete; other messages and bytes between frames are ignored."""
    frames = [_BEGIN + b"\x00\x00\x00\x07", b"I" + bytes(30), _BEGIN + b"\xff\xff\xff\xfe", _BEGIN]
    buffer, begins, ends = FrameBuffer(), [], []
    for frame in frames:
        buffer.data += b"gap"
        begins.append(len(buffer.data))
        buffer.data += frame
        ends.append(len(buffer.data))
    buffer.add(np.array(begins), np.array(ends), b"".join(frame[:1] for frame in frames))
    assert buffer.xids().tolist() == [7, 0xFFFF_FFFE]
    assert FrameBuffer().xids().tolist() == []
