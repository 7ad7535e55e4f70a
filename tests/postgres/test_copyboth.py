"""The two readers of a stream against a real walsender: libpq's and ours find the same."""

import select
from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest
from psycopg import pq
from psycopg.pq.abc import PGconn

from auditlake.errors import SourceUnreachable
from auditlake.postgres.buffer import FrameBuffer, Limits
from auditlake.postgres.connection import connect_replication
from auditlake.postgres.copyboth import Copy, open_copy
from auditlake.postgres.intake import Intake
from auditlake.postgres.libpqcopy import LibpqCopy
from auditlake.postgres.socketcopy import SocketCopy
from auditlake.postgres.starting import Started, start_copy

pytestmark = pytest.mark.pg

START = b"START_REPLICATION SLOT two LOGICAL 0/0 (proto_version '1', publication_names 'two', messages 'true')"
SMALL = Limits(frames=100, size_bytes=50_000)
StartBy = Callable[[PGconn], Copy]


def by_socket(pgconn: PGconn) -> Copy:
    """Start as capture does where nothing is encrypted."""
    started = start_copy(pgconn, START)
    assert isinstance(started, Started)
    copy = open_copy(started)
    assert isinstance(copy, SocketCopy)
    return copy


def by_libpq(pgconn: PGconn) -> Copy:
    """Start as capture does on an encrypted connection, which the embedded server does not offer."""
    assert pgconn.exec_(START).status == pq.ExecStatus.COPY_BOTH
    pgconn.nonblocking = 1
    return LibpqCopy(pgconn)


@pytest.fixture
def slot(database: str) -> str:
    """A database whose slot has small and large transactions, and messages of both kinds, to send."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key, v text)")
        conn.execute("create publication two for table t")
        conn.execute("select pg_create_logical_replication_slot('two', 'pgoutput')")
        conn.execute("insert into t select n, n from generate_series(1, 2000) n")
        conn.execute("insert into t values (0, repeat('large', 200000))")
        conn.execute(
            "select pg_logical_emit_message(transactional, 'p', 'x') from (values (true), (false)) m (transactional)"
        )
        conn.execute("select pg_logical_emit_message(false, 'p', 'x')")
        conn.execute("delete from t where id < 10")
    return database


def into(frames: FrameBuffer, limits: Limits) -> Intake:
    """Say where plain frames go."""
    intake = Intake()
    intake.fill(frames, limits)
    return intake


def read_all(copy: Copy, commits: int) -> list[bytes]:
    """Read into small buffers, as a capture under pressure would, until so many commits have come."""
    found: list[bytes] = []
    while commits > 0:
        frames = FrameBuffer()
        if not copy.read(into(frames, SMALL)) and not len(frames):
            select.select([copy], [], [], 10)
        data, starts, ends = frames.payloads()
        found += [bytes(data[start:end]) for start, end in zip(starts, ends, strict=True)]
        commits -= frames.commits
    return found


def test_they_find_the_same(slot: str) -> None:
    """Frame for frame, whatever their sizes; messages that belong to no transaction are left out by both."""
    read = []
    for start in (by_socket, by_libpq):
        with closing(start(connect_replication(slot))) as copy:
            read.append(read_all(copy, commits=4))
    assert read[0] == read[1]
    assert [frame[:2] for frame in read[0] if frame[:1] == b"M"] == [b"M\x01"]
    assert max(map(len, read[0])) > 1_000_000


@pytest.mark.parametrize("start", [by_socket, by_libpq])
def test_a_walsender_that_is_ended(slot: str, start: StartBy) -> None:
    """Both give the server's reason for it."""
    with closing(start(connect_replication(slot))) as copy, psycopg.connect(slot) as conn:
        conn.execute("select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = 'two'")
        with pytest.raises(SourceUnreachable, match="terminating connection due to administrator command"):
            read_all(copy, commits=5)
