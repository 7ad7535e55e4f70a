"""Read the messages that bound streamed and prepared transactions: pgoutput's protocol versions 2 to 4.

    S  u32 xid  u8 first (0 or 1)
    E
    c  u32 xid  u8 flags (0)  u64 commit_lsn  u64 end_lsn  i64 time
    A  u32 xid  u32 subxid  [u64 abort_lsn  i64 time]
    b  u64 prepare_lsn  u64 end_lsn  i64 time  u32 xid  gid
    P  u8 flags (0)  u64 prepare_lsn  u64 end_lsn  i64 time  u32 xid  gid
    p  as P
    K  u8 flags (0)  u64 commit_lsn  u64 end_lsn  i64 time  u32 xid  gid
    r  u8 flags (0)  u64 prepare_end_lsn  u64 end_lsn  i64 prepare_time  i64 time  u32 xid  gid

The end of A comes with `streaming 'parallel'` alone (version 4). Each reader is called by `wire.decode` after the tag.

Authority: postgresql.org/docs/current/protocol-logicalrep-message-formats.html; src/backend/replication/logical/proto.c
"""

from collections.abc import Callable

from auditlake.pgoutput.cursor import Cursor
from auditlake.pgoutput.messages import (
    BeginPrepare,
    Boundary,
    CommitPrepared,
    Prepare,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
)


def _stream_start(cursor: Cursor) -> StreamStart:
    return StreamStart(xid=cursor.u32(), first=cursor.flags(known=1) == 1)


def _stream_stop(_: Cursor) -> StreamStop:
    return StreamStop()


def _stream_commit(cursor: Cursor) -> StreamCommit:
    xid = cursor.u32()
    cursor.flags(known=0)
    return StreamCommit(xid, commit_lsn=cursor.lsn(), end_lsn=cursor.lsn(), time=cursor.time())


def _stream_abort(cursor: Cursor) -> StreamAbort:
    xid, subxid = cursor.u32(), cursor.u32()
    if cursor.left == 0:
        return StreamAbort(xid, subxid)
    return StreamAbort(xid, subxid, abort_lsn=cursor.lsn(), time=cursor.time())


def _begin_prepare(cursor: Cursor) -> BeginPrepare:
    return BeginPrepare(cursor.lsn(), cursor.lsn(), cursor.time(), cursor.u32(), cursor.name())


def _prepare(cursor: Cursor) -> Prepare:
    cursor.flags(known=0)
    return Prepare(cursor.lsn(), cursor.lsn(), cursor.time(), cursor.u32(), cursor.name())


def _stream_prepare(cursor: Cursor) -> StreamPrepare:
    cursor.flags(known=0)
    return StreamPrepare(cursor.lsn(), cursor.lsn(), cursor.time(), cursor.u32(), cursor.name())


def _commit_prepared(cursor: Cursor) -> CommitPrepared:
    cursor.flags(known=0)
    return CommitPrepared(cursor.lsn(), cursor.lsn(), cursor.time(), cursor.u32(), cursor.name())


def _rollback_prepared(cursor: Cursor) -> RollbackPrepared:
    cursor.flags(known=0)
    return RollbackPrepared(
        prepare_end_lsn=cursor.lsn(),
        end_lsn=cursor.lsn(),
        prepare_time=cursor.time(),
        time=cursor.time(),
        xid=cursor.u32(),
        gid=cursor.name(),
    )


BOUNDARY_READERS: dict[str, Callable[[Cursor], Boundary]] = {
    "S": _stream_start,
    "E": _stream_stop,
    "c": _stream_commit,
    "A": _stream_abort,
    "b": _begin_prepare,
    "P": _prepare,
    "p": _stream_prepare,
    "K": _commit_prepared,
    "r": _rollback_prepared,
}
