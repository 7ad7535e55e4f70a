"""Tests of COPY BOTH against a walsender: every frame in order, and the reason for the end."""

import select
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from auditlake.errors import SourceUnreachable
from auditlake.lsn import Lsn
from auditlake.replication.start import start_stream
from auditlake.replication.stream import BufferLimits, CopyBoth, FrameBuffer, Intake
from auditlake.settings.streaming_mode import Streaming
from auditlake.source.connection import connect_replication

pytestmark = pytest.mark.pg

SMALL = BufferLimits(frames=100, size_bytes=50_000)
PLENTY = BufferLimits(frames=100_000, size_bytes=1 << 24)


@pytest.fixture
def slot(database: str) -> str:
    """A database whose slot has small and large transactions and both kinds of logical messages."""
    with psycopg.connect(database, autocommit=True) as conn:
        # A VACUUM between the two readers makes the server describe the table again.
        conn.execute("create table t (id int primary key, v text) with (autovacuum_enabled = off)")
        conn.execute("create publication two for table t")
        for name in ("two", "peek"):
            conn.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
        conn.execute("insert into t select n, n from generate_series(1, 2000) n")
        conn.execute("insert into t values (0, repeat('large', 200000))")
        conn.execute(
            "select pg_logical_emit_message(transactional, 'p', 'x') from (values (true), (false)) m (transactional)"
        )
        conn.execute("select pg_logical_emit_message(false, 'p', 'x')")
        conn.execute("delete from t where id < 10")
    return database


@pytest.fixture
def copy(slot: str) -> Iterator[CopyBoth]:
    """A stream of that slot, started as capture does."""
    replication = connect_replication(slot)
    start_stream(replication, "two", "two", Lsn(0), Streaming("off"))
    with closing(CopyBoth(replication)) as copy:
        yield copy


def read_all(copy: CopyBoth, commits: int, limits: BufferLimits) -> list[bytes]:
    """Read into buffers of these limits until this many commits were received."""
    found: list[bytes] = []
    while commits > 0:
        frames, intake = FrameBuffer(), Intake()
        intake.fill(frames, limits)
        if not copy.read(intake) and not len(frames):
            select.select([copy], [], [], 10)
        data, starts, ends = frames.payloads()
        found += [bytes(data[start:end]) for start, end in zip(starts, ends, strict=True)]
        commits -= frames.commits
    return found


def test_small_buffers_receive_every_frame_in_order(slot: str, copy: CopyBoth) -> None:
    """The frames are those the slot decodes, whatever their sizes, without messages outside transactions."""
    with psycopg.connect(slot) as conn:
        expected = conn.execute(
            "select data from pg_logical_slot_peek_binary_changes('peek', null, null,"
            " 'proto_version', '1', 'publication_names', 'two', 'messages', 'true')"
        ).fetchall()
    frames = read_all(copy, 4, SMALL)
    assert frames == [data for (data,) in expected if data[:2] != b"M\0"]
    assert [frame[:2] for frame in frames if frame[:1] == b"M"] == [b"M\x01"]
    assert max(map(len, frames)) > 1_000_000


def test_the_reason_of_a_terminated_walsender_is_raised(slot: str, copy: CopyBoth) -> None:
    """The error has the server's message."""
    with psycopg.connect(slot) as conn:
        conn.execute("select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = 'two'")
        with pytest.raises(SourceUnreachable, match="terminating connection due to administrator command"):
            read_all(copy, 5, PLENTY)
