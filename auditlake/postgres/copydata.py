"""What lies in the bytes of a COPY BOTH: keepalives, and frames, found many at once in XLogData messages in a row.

    'd' u32 length  'w' u64 start  u64 end  i64 time  frame

Every place that looks like the beginning of such a message is a candidate, and the first is right if it is where a
message begins. The next is right if it is where the one before it ends, and so on; where one is not, the search ends.
So what it finds is so whatever the data holds, and it may find less than there is: the rest is to be read one by one.

Pure. Authority: postgresql.org/docs/current/protocol-message-formats.html, CopyData; protocol-replication.html,
XLogData
"""

from dataclasses import dataclass

import numpy as np

from auditlake.errors import DecodeError
from auditlake.pgoutput.frames import Bytes, Ints

_COPY_DATA, _XLOG_DATA = ord("d"), ord("w")
_LENGTH_AT, _KIND_AT, _FRAME_AT = 1, 5, 30
_LENGTH_BYTES = 4
_KEEPALIVE, _KEEPALIVE_BYTES = b"k", 18


@dataclass(frozen=True, slots=True)
class Found:
    """Frame i is `data[starts[i]:ends[i]]`; `rest` is where the message behind the last of them begins."""

    starts: Ints
    ends: Ints
    rest: int


NOTHING = Found(np.empty(0, np.int64), np.empty(0, np.int64), 0)


def find_frames(data: bytes | bytearray) -> Found:
    """Find the frames of the messages that `data` begins with.

    None is empty, and none is of 16 MB or more: the zero in its length is what tells a message from text.
    """
    view = np.frombuffer(data, np.uint8)
    places = max(0, view.size - _FRAME_AT)
    looks = view[:places] == _COPY_DATA
    looks &= view[_KIND_AT : _KIND_AT + places] == _XLOG_DATA
    looks &= view[_LENGTH_AT : _LENGTH_AT + places] == 0
    begins = np.flatnonzero(looks)
    ends = begins + _LENGTH_AT + _lengths(view, begins + _LENGTH_AT)
    follows = begins == np.concatenate([[0], ends[:-1]])
    follows &= (ends > begins + _FRAME_AT) & (ends <= view.size)
    count = begins.size if follows.all() else int(np.argmin(follows))
    return Found(begins[:count] + _FRAME_AT, ends[:count], int(ends[count - 1]) if count else 0)


def _lengths(view: Bytes, at: Ints) -> Ints:
    if not at.size:
        return at
    # A view of the number that begins at every single byte; no copy.
    numbers = np.ndarray((view.size - _LENGTH_BYTES + 1,), ">u4", view, strides=(1,))
    return numbers[at].astype(np.int64)


def keepalive(message: bytes) -> bytes:
    """See that a message without a frame is a keepalive."""
    if message[:1] != _KEEPALIVE or len(message) != _KEEPALIVE_BYTES:
        raise DecodeError(f"unknown replication message {message[:1]!r} of {len(message)} bytes, need 'w' or 'k'")
    return message
