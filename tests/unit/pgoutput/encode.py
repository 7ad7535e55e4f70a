"""Encoder of pgoutput messages for tests, written from the manual and not from our decoder."""

import struct
from datetime import UTC, datetime, timedelta

from auditlake.pgoutput.decoder import (
    UNCHANGED,
    Begin,
    Boundary,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
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
    Value,
)
from auditlake.relation import Column, Relation

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def encode(message: Message) -> bytes:
    """Encode one message as the server does."""
    match message:
        case Begin(lsn, time, xid):
            return struct.pack(">cQqI", b"B", lsn, _time(time), xid)
        case Commit(lsn, end, time):
            return struct.pack(">cBQQq", b"C", 0, lsn, end, _time(time))
        case Origin(lsn, name):
            return struct.pack(">cQ", b"O", lsn) + _name(name)
        case Relation(oid, (schema, table), identity, columns):
            head = struct.pack(">cI", b"R", oid) + _name(schema) + _name(table) + identity.encode()
            return head + struct.pack(">H", len(columns)) + b"".join(map(_column, columns))
        case Type(oid, schema, name):
            return struct.pack(">cI", b"Y", oid) + _name(schema) + _name(name)
        case _:
            return _encode_change(message)


def encode_streamed(xid: int | None, message: Message) -> bytes:
    """Encode one message as the server does in a block of a streamed transaction."""
    payload = encode(message)
    return payload if xid is None else payload[:1] + struct.pack(">I", xid) + payload[1:]


def _encode_boundary(message: Boundary) -> bytes:
    match message:
        case StreamStart(xid, first):
            return struct.pack(">cIB", b"S", xid, first)
        case StreamStop():
            return b"E"
        case StreamCommit(xid, lsn, end, time):
            return struct.pack(">cIBQQq", b"c", xid, 0, lsn, end, _time(time))
        case StreamAbort(xid, subxid, lsn, time):
            parallel = b"" if lsn is None or time is None else struct.pack(">Qq", lsn, _time(time))
            return struct.pack(">cII", b"A", xid, subxid) + parallel
        case TwoPhase(name):
            raise ValueError(f"{name} is received only")


def _encode_change(message: Message) -> bytes:
    match message:
        case Insert(oid, new):
            return struct.pack(">cI", b"I", oid) + b"N" + _tuple(new)
        case Update(oid, old, new):
            return struct.pack(">cI", b"U", oid) + (_old(old) if old else b"") + b"N" + _tuple(new)
        case Delete(oid, old):
            return struct.pack(">cI", b"D", oid) + _old(old)
        case Truncate(oids, cascade, restart):
            return struct.pack(">cIB", b"T", len(oids), cascade | restart << 1) + struct.pack(f">{len(oids)}I", *oids)
        case LogicalMessage(transactional, lsn, prefix, content):
            head = struct.pack(">cBQ", b"M", transactional, lsn) + _name(prefix)
            return head + struct.pack(">I", len(content)) + content
        case _:
            assert isinstance(message, Boundary)
            return _encode_boundary(message)


def _time(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def _name(name: str) -> bytes:
    return name.encode() + b"\0"


def _column(column: Column) -> bytes:
    return bytes([column.key]) + _name(column.name) + struct.pack(">Ii", column.type_oid, column.typmod)


def _old(old: OldTuple) -> bytes:
    return old.kind.value.encode() + _tuple(old.values)


def _tuple(values: tuple[Value, ...]) -> bytes:
    return struct.pack(">H", len(values)) + b"".join(map(_value, values))


def _value(value: Value) -> bytes:
    if value is None:
        return b"n"
    if value is UNCHANGED:
        return b"u"
    text = value.encode()
    return b"t" + struct.pack(">I", len(text)) + text
