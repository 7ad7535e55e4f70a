"""Test vectors: one message of each kind, its bytes written by hand from the manual.

VECTORS holds the messages of protocol version 1, BOUNDARIES those that start or end streamed and prepared transactions,
IN_BLOCKS those of version 1 in the form they have in a block of a streamed transaction, with their xid.
"""

from datetime import UTC, datetime

from auditlake.lsn import Lsn
from auditlake.pgoutput.decoder import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldKind,
    OldTuple,
    Origin,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    TwoPhase,
    Type,
    Update,
)
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName

_TIME = datetime(2000, 1, 1, 0, 0, 1, tzinfo=UTC)
_TIME_HEX = "00000000000f4240"

VECTORS: dict[str, tuple[str, Message]] = {
    "begin": (f"42 0000000100000010 {_TIME_HEX} 00000007", Begin(Lsn(0x100000010), _TIME, 7)),
    "commit": (
        f"43 00 0000000100000010 0000000100000040 {_TIME_HEX}",
        Commit(Lsn(0x100000010), Lsn(0x100000040), _TIME),
    ),
    "origin": ("4f 0000000100000010 6e6f646500", Origin(Lsn(0x100000010), "node")),
    "relation": (
        "52 00004001 7000 7400 64 0002 01 696400 00000017 ffffffff 00 7600 00000413 00000019",
        Relation(
            0x4001,
            TableName("p", "t"),
            ReplicaIdentity.DEFAULT,
            (Column("id", 23, -1, key=True), Column("v", 1043, 25, key=False)),
        ),
    ),
    "relation_in_pg_catalog": (
        "52 00004001 00 7400 66 0000",
        Relation(0x4001, TableName("pg_catalog", "t"), ReplicaIdentity.FULL, ()),
    ),
    "type": ("59 00004002 7000 6d6f6f6400", Type(0x4002, "p", "mood")),
    "insert": ("49 00004001 4e 0002 74 00000001 31 6e", Insert(0x4001, ("1", None))),
    "update": ("55 00004001 4e 0002 74 00000001 31 75", Update(0x4001, None, ("1", UNCHANGED))),
    "update_of_key": (
        "55 00004001 4b 0002 74 00000001 31 6e 4e 0002 74 00000001 32 74 00000002 c3a9",
        Update(0x4001, OldTuple(OldKind.KEY, ("1", None)), ("2", "é")),
    ),
    "update_full": (
        "55 00004001 4f 0001 74 00000000 4e 0001 6e",
        Update(0x4001, OldTuple(OldKind.FULL, ("",)), (None,)),
    ),
    "delete": ("44 00004001 4b 0001 74 00000001 31", Delete(0x4001, OldTuple(OldKind.KEY, ("1",)))),
    "delete_full": ("44 00004001 4f 0001 6e", Delete(0x4001, OldTuple(OldKind.FULL, (None,)))),
    "truncate": ("54 00000002 03 00004001 00004003", Truncate((0x4001, 0x4003), cascade=True, restart_identity=True)),
    "message": (
        "4d 01 0000000100000000 6100 00000002 00ff",
        LogicalMessage(transactional=True, lsn=Lsn(0x100000000), prefix="a", content=b"\x00\xff"),
    ),
}

_LSNS_HEX = "0000000100000010 0000000100000040"
_PREPARED_HEX = f"00 {_LSNS_HEX} {_TIME_HEX} 00000007 6100"

BOUNDARIES: dict[str, tuple[str, Message]] = {
    "stream_start": ("53 00000007 01", StreamStart(7, first=True)),
    "stream_start_again": ("53 00000007 00", StreamStart(7, first=False)),
    "stream_stop": ("45", StreamStop()),
    "stream_commit": (
        f"63 00000007 00 {_LSNS_HEX} {_TIME_HEX}",
        StreamCommit(7, Lsn(0x100000010), Lsn(0x100000040), _TIME),
    ),
    "stream_abort": ("41 00000007 00000008", StreamAbort(7, 8)),
    "stream_abort_parallel": (
        f"41 00000007 00000007 0000000100000010 {_TIME_HEX}",
        StreamAbort(7, 7, Lsn(0x100000010), _TIME),
    ),
    "begin_prepare": (f"62 {_LSNS_HEX} {_TIME_HEX} 00000007 6100", TwoPhase("Begin Prepare")),
    "prepare": (f"50 {_PREPARED_HEX}", TwoPhase("Prepare")),
    "stream_prepare": (f"70 {_PREPARED_HEX}", TwoPhase("Stream Prepare")),
    "commit_prepared": (f"4b {_PREPARED_HEX}", TwoPhase("Commit Prepared")),
    "rollback_prepared": (
        f"72 00 {_LSNS_HEX} {_TIME_HEX} 00000000001e8480 00000007 6100",
        TwoPhase("Rollback Prepared"),
    ),
}

IN_BLOCKS: dict[str, tuple[str, Message]] = {
    name: (f"{payload[:2]} 00000009 {payload[2:]}", message)
    for name, (payload, message) in VECTORS.items()
    if not isinstance(message, Begin | Commit | Origin)
}
