"""Tests of frame routing: plain frames and committed streamed transactions reach the buffer in commit order."""

import random
import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlake.errors import DecodeError
from auditlake.lsn import Lsn
from auditlake.pgoutput.decoder import Begin, Commit, LogicalMessage, StreamAbort, StreamCommit, StreamStart, decode
from auditlake.replication.spool import Spool
from auditlake.replication.stream import BufferLimits, FrameBuffer, Intake
from tests.unit.pgoutput.encode import encode
from tests.unit.pgoutput.model import Model
from tests.unit.pgoutput.strategies import effort
from tests.unit.pgoutput.streamed_model import plain_messages
from tests.unit.pgoutput.streaming_server import TIME, StreamingServer
from tests.unit.replication.test_spool import random_steps

ENDLESS = BufferLimits(1 << 30, 1 << 30)


def receive(intake: Intake, payloads: list[bytes]) -> None:
    """Append payloads behind XLogData headers and route them, as a reader does after one read."""
    starts, ends, data = [], [], intake.data
    for number, payload in enumerate(payloads):
        data += struct.pack(">cQQQ", b"w", 0x100 + number, 0, 0)
        starts.append(len(data))
        data += payload
        ends.append(len(data))
    intake.add(np.array(starts, np.int64), np.array(ends, np.int64))


def taken(frames: FrameBuffer) -> list[bytes]:
    """Return the payloads of a buffer."""
    return [bytes(frames.data[start:end]) for start, end in zip(frames.starts, frames.ends, strict=True)]


@given(st.integers(0, 2**32), st.integers(1, 30))
@effort
def test_routed_messages_do_not_depend_on_read_and_buffer_sizes(seed: int, limit: int) -> None:
    """For any size of reads and buffers the messages are the model's, and every Commit is counted."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    server = StreamingServer(700)
    for step in random_steps(seed):
        server.step(*step)
    cuts = sorted(chance.sample(range(len(server.payloads) + 1), min(8, len(server.payloads))))
    reads = [server.payloads[a:b] for a, b in pairwise([0, *cuts, len(server.payloads)])]
    intake, got = Intake(Spool(memory_bytes=1000)), list[bytes]()
    while True:
        frames = FrameBuffer()
        intake.fill(frames, BufferLimits(limit, 1 << 30))
        while reads and not intake.full:
            receive(intake, reads.pop(0))
        if not len(frames):
            break
        assert frames.commits == sum(payload[:1] == b"C" for payload in taken(frames))
        got += taken(frames)
    expected = Model().feed(plain_messages(server.payloads))
    model = Model().feed(map(decode, got))
    assert (expected.changes, expected.transactions) == (model.changes, model.transactions)


def test_plain_frames_are_not_copied() -> None:
    """With and without a spool the data stays in place, and non-transactional messages are left out."""
    sent = [
        encode(each)
        for each in (
            LogicalMessage(transactional=False, lsn=Lsn(1), prefix="S", content=b"E"),
            Begin(Lsn(1), TIME, 1),
            Commit(Lsn(1), Lsn(2), TIME),
        )
    ]
    for intake in (Intake(), Intake(Spool())):
        frames = FrameBuffer()
        intake.fill(frames, ENDLESS)
        receive(intake, sent)
        assert taken(frames) == sent[1:]
        assert (frames.commits, frames.after_last_commit) == (1, 2)
        assert len(frames.data) == sum(25 + len(each) for each in sent)


@pytest.mark.parametrize("spool", [None, Spool()], ids=["without a spool", "with one"])
def test_messages_outside_transactions_fill_no_buffer(spool: Spool | None) -> None:
    """A buffer at its limit has a frame, and the reader pauses after many bytes of them, too."""
    message = encode(LogicalMessage(transactional=False, lsn=Lsn(1), prefix="", content=b"x" * (1 << 20)))
    sent = [encode(Begin(Lsn(1), TIME, 1)), encode(Commit(Lsn(1), Lsn(2), TIME))]
    frames, intake, limits = FrameBuffer(), Intake(spool), BufferLimits(8, 1 << 23)
    for before in ([], sent):
        receive(intake, before) if before else intake.fill(frames, limits)
        for _ in range(16):
            intake.fill(frames, limits)
            receive(intake, [message] * 4)
            assert intake.full
            assert not limits.met_by(frames)
    assert taken(frames) == sent


def test_stream_aborts_without_streaming_are_left_out() -> None:
    """PostgreSQL 18 sends some although streaming is off."""
    begin, commit = encode(Begin(Lsn(1), TIME, 3)), encode(Commit(Lsn(1), Lsn(2), TIME))
    frames, intake = FrameBuffer(), Intake()
    intake.fill(frames, ENDLESS)
    receive(intake, [encode(StreamAbort(7, 8)), begin, commit, encode(StreamAbort(7, 9))])
    receive(intake, [encode(StreamAbort(7, 10))])
    assert ([begin, commit], 1, 2) == (taken(frames), frames.commits, frames.after_last_commit)


def test_the_error_of_a_misplaced_message_has_its_lsn() -> None:
    """The error names the message, the problem, and the LSN in the XLogData header."""
    intake = Intake(Spool())
    intake.fill(FrameBuffer(), ENDLESS)
    receive(intake, [encode(StreamStart(7, first=True))])
    with pytest.raises(DecodeError) as caught:
        receive(intake, [encode(StreamCommit(7, Lsn(1), Lsn(2), TIME))])
    assert caught.value.message == "pgoutput message 'c' out of order: in a block of transaction 7; at 0/100"
