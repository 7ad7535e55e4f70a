"""Decode one pgoutput message, protocol versions 1 to 4, text format.

`decode()` takes one complete payload. It returns a frozen Message, or raises DecodeError: the bytes break the protocol,
or use a part of it that was not asked for. It does no I/O, keeps no state and does not know which transaction it is in.
Inside a block of a streamed transaction (from Stream Start to Stream Stop) messages have another form, which cannot
be told from their bytes: `decode_streamed()` reads that one.
It is the readable statement of the format; `columnar` is the fast one, and says what is wrong with a message in the
words of this module.

    B  u64 final_lsn  i64 time  u32 xid
    C  u8 flags (0)  u64 commit_lsn  u64 end_lsn  i64 time
    O  u64 commit_lsn  name
    R  u32 oid  schema  table  u8 replica_identity  u16 n  n x (u8 flags  name  u32 type_oid  i32 typmod)
    Y  u32 oid  schema  name
    I  u32 oid  'N' tuple
    U  u32 oid  [('K' | 'O') tuple]  'N' tuple
    D  u32 oid  ('K' | 'O') tuple
    T  u32 n  u8 options  n x u32 oid
    M  u8 flags  u64 lsn  prefix  u32 size  content
    S E c A b P p K r: see `boundaries`
    tuple: u16 n  n x ('n' null | 'u' unchanged TOAST | 't' u32 size  text)

An empty schema stands for pg_catalog. In a block R, Y, I, U, D, T and M have a u32 xid after the tag, that of the
subtransaction if it is one; O has none, and nothing else may be there.

Authority: postgresql.org/docs/current/protocol-logicalrep-message-formats.html; src/backend/replication/logical/proto.c
"""

from collections.abc import Callable, Mapping

from auditlake.pgoutput.boundaries import BOUNDARY_READERS
from auditlake.pgoutput.cursor import Cursor
from auditlake.pgoutput.messages import (
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
    Truncate,
    Type,
    Update,
    Value,
)
from auditlake.relation import Column, Relation, TableName

_KEY = 1
_CASCADE, _RESTART_IDENTITY = 1, 2
_TRANSACTIONAL = 1


def decode(payload: bytes) -> Message:
    """Read one message, all of it.

    Raises DecodeError.
    """
    cursor = Cursor(payload)
    return _read(cursor, _reader(cursor, _OUTSIDE_BLOCKS))


def decode_streamed(payload: bytes) -> tuple[int | None, Message]:
    """Read one message of a block, all of it: the xid of its (sub)transaction, None of an Origin, and the message.

    Raises DecodeError.
    """
    cursor = Cursor(payload)
    reader = _reader(cursor, _IN_BLOCKS)
    xid = None if reader is _origin else cursor.u32()
    return xid, _read(cursor, reader)


def _reader(cursor: Cursor, known: Mapping[str, Callable[[Cursor], Message]]) -> Callable[[Cursor], Message]:
    reader = known.get(cursor.kind())
    if reader is None:
        raise cursor.error(f"need one of the tags {''.join(known)}")
    return reader


def _read(cursor: Cursor, reader: Callable[[Cursor], Message]) -> Message:
    message = reader(cursor)
    cursor.finish()
    return message


def _begin(cursor: Cursor) -> Begin:
    return Begin(final_lsn=cursor.lsn(), time=cursor.time(), xid=cursor.u32())


def _commit(cursor: Cursor) -> Commit:
    cursor.flags(known=0)
    return Commit(commit_lsn=cursor.lsn(), end_lsn=cursor.lsn(), time=cursor.time())


def _origin(cursor: Cursor) -> Origin:
    return Origin(commit_lsn=cursor.lsn(), name=cursor.name())


def _relation(cursor: Cursor) -> Relation:
    oid = cursor.u32()
    name = TableName(_schema(cursor), cursor.name())
    identity = cursor.kind()
    if identity not in "dnfi":
        raise cursor.error(f"need replica identity d, n, f or i, have {identity!a}")
    return Relation(oid, name, identity, tuple(_column(cursor) for _ in range(cursor.u16())))


def _column(cursor: Cursor) -> Column:
    key = cursor.flags(known=_KEY) == _KEY
    return Column(name=cursor.name(), type_oid=cursor.u32(), typmod=cursor.i32(), key=key)


def _type(cursor: Cursor) -> Type:
    return Type(oid=cursor.u32(), schema=_schema(cursor), name=cursor.name())


def _insert(cursor: Cursor) -> Insert:
    oid = cursor.u32()
    _expect_new(cursor, cursor.kind())
    return Insert(oid, _new_values(cursor))


def _update(cursor: Cursor) -> Update:
    oid, kind = cursor.u32(), cursor.kind()
    old = None
    if kind in "KO":
        old = OldTuple(OldKind(kind), _old_values(cursor))
        kind = cursor.kind()
    _expect_new(cursor, kind)
    return Update(oid, old, _new_values(cursor))


def _delete(cursor: Cursor) -> Delete:
    oid, kind = cursor.u32(), cursor.kind()
    if kind not in "KO":
        raise cursor.error(f"need an old tuple ('K' or 'O'), have {kind!a}")
    return Delete(oid, OldTuple(OldKind(kind), _old_values(cursor)))


def _truncate(cursor: Cursor) -> Truncate:
    count = cursor.u32()
    options = cursor.flags(known=_CASCADE | _RESTART_IDENTITY)
    oids = tuple(cursor.u32() for _ in range(count))
    return Truncate(oids, cascade=bool(options & _CASCADE), restart_identity=bool(options & _RESTART_IDENTITY))


def _message(cursor: Cursor) -> LogicalMessage:
    transactional = cursor.flags(known=_TRANSACTIONAL) == _TRANSACTIONAL
    lsn, prefix = cursor.lsn(), cursor.name()
    return LogicalMessage(transactional, lsn, prefix, cursor.take(cursor.u32()))


def _schema(cursor: Cursor) -> str:
    return cursor.name() or "pg_catalog"


def _expect_new(cursor: Cursor, kind: str) -> None:
    if kind != "N":
        raise cursor.error(f"need a new tuple ('N'), have {kind!a}")


def _new_values(cursor: Cursor) -> tuple[Value, ...]:
    return tuple(_value(cursor) for _ in range(cursor.u16()))


def _old_values(cursor: Cursor) -> tuple[str | None, ...]:
    return tuple(_old_value(cursor) for _ in range(cursor.u16()))


def _old_value(cursor: Cursor) -> str | None:
    value = _value(cursor)
    if value is UNCHANGED:  # the server logs old values whole (heapam.c, ExtractReplicaIdentity)
        raise cursor.error("need a value in an old tuple, have unchanged TOAST")
    return value


def _value(cursor: Cursor) -> Value:
    match cursor.kind():
        case "t":
            return cursor.text(cursor.u32())
        case "n":
            return None
        case "u":
            return UNCHANGED
        case "b":
            raise cursor.error("have a value in binary format, text was asked for")
        case other:
            raise cursor.error(f"need a value of kind n, u or t, have {other!a}")


_READERS: dict[str, Callable[[Cursor], Message]] = {
    "B": _begin,
    "C": _commit,
    "O": _origin,
    "R": _relation,
    "Y": _type,
    "I": _insert,
    "U": _update,
    "D": _delete,
    "T": _truncate,
    "M": _message,
}

IN_BLOCKS = "RYIUDTMO"
"""Tags of the messages that may stand in a block of a streamed transaction."""

_OUTSIDE_BLOCKS: dict[str, Callable[[Cursor], Message]] = _READERS | BOUNDARY_READERS
_IN_BLOCKS = {tag: _READERS[tag] for tag in IN_BLOCKS}
