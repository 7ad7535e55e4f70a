"""Messages of pgoutput, protocol versions 1 to 4 in text format: what they mean, and how one is decoded.

Messages are frozen dataclasses named after the manual; `Relation` is `auditlake.relation.Relation`. A value is `str`
(PostgreSQL's text output, with escapes for bytes that are not UTF-8: `values.escapes`), `None` for SQL NULL, or
`UNCHANGED` for a TOASTed value that the update did not change and the server did not send. Times are UTC.

`decode()` takes one complete payload. It returns a message, or raises DecodeError: the bytes break the protocol, or use
a part of it that was not asked for. It does no I/O, keeps no state and does not know which transaction it is in. Inside
a block of a streamed transaction (from Stream Start to Stream Stop) messages have another form, which their bytes do
not reveal: `decode_streamed()` reads that one. This module is the readable definition of the format. `batch_decoder` is
the fast implementation, and reports a malformed message with the error that this module raises for it.

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
    tuple: u16 n  n x ('n' null | 'u' unchanged TOAST | 't' u32 size  text)

An empty schema stands for pg_catalog. In a block R, Y, I, U, D, T and M have a u32 xid after the tag, that of the
subtransaction if there is one; O has none, and no other message is allowed. Boundaries of streamed and prepared
transactions, from protocol versions 2 to 4:

    S  u32 xid  u8 first (0 or 1)
    E
    c  u32 xid  u8 flags (0)  u64 commit_lsn  u64 end_lsn  i64 time
    A  u32 xid  u32 subxid  [u64 abort_lsn  i64 time]
    b  u64 prepare_lsn  u64 end_lsn  i64 time  u32 xid  gid
    P  u8 flags (0)  u64 prepare_lsn  u64 end_lsn  i64 time  u32 xid  gid
    p  as P
    K  u8 flags (0)  u64 commit_lsn  u64 end_lsn  i64 time  u32 xid  gid
    r  u8 flags (0)  u64 prepare_end_lsn  u64 end_lsn  i64 prepare_time  i64 time  u32 xid  gid

The server sends the bracketed end of A only with `streaming 'parallel'` (version 4).

Every read by the `ByteCursor` is checked against the end of the message: it returns a value and advances, or raises
DecodeError with the message's tag, the offset, and the requirement that failed. Errors never contain bytes of rows.

Authority: postgresql.org/docs/current/protocol-logicalrep-message-formats.html; src/backend/replication/logical/proto.c
"""

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, TypeAlias

from auditlake.errors import DecodeError
from auditlake.lsn import LAST_LSN, Lsn
from auditlake.pgoutput.ddl_message import MOST_BYTES as MOST_DDL_BYTES
from auditlake.pgoutput.ddl_message import PREFIX as DDL_PREFIX
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.values.escapes import decode_bytes

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""Origin of the times on the wire, which count microseconds."""
EPOCH_UNIX_US = 946_684_800_000_000
"""`EPOCH` in microseconds since 1970."""


class Unchanged(Enum):
    """The type of `UNCHANGED`."""

    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged.UNCHANGED
"""A value that PostgreSQL did not send because the UPDATE left it alone: an unchanged TOAST value."""

Value: TypeAlias = str | Unchanged | None


class OldKind(Enum):
    """Columns that an old tuple holds: those of the replica identity, or all."""

    KEY = "K"
    FULL = "O"


@dataclass(frozen=True, slots=True)
class OldTuple:
    """The row before the change; in a KEY tuple only the columns flagged as key are set."""

    kind: OldKind
    values: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """Start of a transaction; `final_lsn` is the commit LSN, `time` the time of the commit."""

    final_lsn: Lsn
    time: datetime
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """End of a transaction; `end_lsn` is the byte after the COMMIT record."""

    commit_lsn: Lsn
    end_lsn: Lsn
    time: datetime


@dataclass(frozen=True, slots=True)
class Origin:
    """Replication origin from which the transaction was replicated, with its commit LSN there."""

    commit_lsn: Lsn
    name: str


@dataclass(frozen=True, slots=True)
class Type:
    """A type that is not built in; for a domain the server names the base type."""

    oid: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row; a row filter can turn an update into an insert, so a value may be UNCHANGED."""

    oid: int
    new: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """A changed row; `old` is None if the key did not change and the replica identity is not FULL."""

    oid: int
    old: OldTuple | None
    new: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """A deleted row."""

    oid: int
    old: OldTuple


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables truncated by one statement."""

    oids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A message from `pg_logical_emit_message`; only a transactional one belongs to a transaction.

    Any role may send a gigabyte: `cut_message` cuts one before it is decoded.
    """

    transactional: bool
    lsn: Lsn
    prefix: str
    content: bytes


@dataclass(frozen=True, slots=True)
class StreamStart:
    """Start of a block of changes of a transaction still in progress; `first` marks its first block."""

    xid: int
    first: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    """End of a block."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """Commit of a streamed transaction."""

    xid: int
    commit_lsn: Lsn
    end_lsn: Lsn
    time: datetime


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """Rollback of a streamed transaction or its subtransaction `subxid`; only parallel mode sends LSN and time."""

    xid: int
    subxid: int
    abort_lsn: Lsn | None = None
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class TwoPhase:
    """A message of two-phase commit by its name; capture refuses such slots, so its fields are dropped."""

    name: str


Boundary: TypeAlias = StreamStart | StreamStop | StreamCommit | StreamAbort | TwoPhase
"""Messages that start or end streamed (version 2) and prepared (version 3) transactions."""

Message: TypeAlias = (
    Begin | Commit | Origin | Relation | Type | Insert | Update | Delete | Truncate | LogicalMessage | Boundary
)


MIN_TIME_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
MAX_TIME_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
"""Bounds of a commit's time, the years 1 to 9999; with a replication origin a session sets any time."""
MOST_CONTENT_BYTES, MOST_PREFIX_BYTES = 2**20, 2**10

_U8, _U16, _U32, _I32, _U64, _I64 = (struct.Struct(f) for f in (">B", ">H", ">I", ">i", ">Q", ">q"))


class ByteCursor:
    """Reads one message from its tag to its last byte."""

    __slots__ = ("_data", "_offset")

    def __init__(self, payload: bytes) -> None:
        self._data = payload
        self._offset = 0

    def error(self, problem: str) -> DecodeError:
        """Build the error that reports `problem` at the current offset."""
        tag = ascii(chr(self._data[0])) if self._data else "without a tag"
        return DecodeError(f"pgoutput message {tag} at offset {self._offset}: {problem}")

    def take(self, size: int) -> bytes:
        """Read `size` bytes."""
        end = self._offset + size
        if end > len(self._data):
            raise self.error(f"need {size} bytes, have {self.left}")
        taken = self._data[self._offset : end]
        self._offset = end
        return taken

    @property
    def left(self) -> int:
        """Return the number of bytes left."""
        return len(self._data) - self._offset

    def finish(self) -> None:
        """Check that the message has no more bytes."""
        if self.left:
            raise self.error(f"need the end of the message, have {self.left} more bytes")

    def _number(self, form: struct.Struct) -> int:
        (number,) = form.unpack(self.take(form.size))
        return int(number)

    def u8(self) -> int:
        return self._number(_U8)

    def u16(self) -> int:
        return self._number(_U16)

    def u32(self) -> int:
        return self._number(_U32)

    def i32(self) -> int:
        return self._number(_I32)

    def kind(self) -> str:
        """Read one byte as an ASCII letter."""
        return chr(self.u8())

    def flags(self, allowed: int) -> int:
        """Read a byte of flags; a flag outside `allowed` is an error."""
        flags = self.u8()
        if flags & ~allowed:
            raise self.error(f"need no flags beside {allowed:#04x}, have {flags:#04x}")
        return flags

    def lsn(self) -> Lsn:
        """Read an LSN."""
        lsn = self._number(_U64)
        if lsn > LAST_LSN:
            raise self.error(f"need an LSN of at most {LAST_LSN}, have {Lsn(lsn)}")
        return Lsn(lsn)

    def time(self) -> datetime:
        """Read a time, or the bound that it is beyond."""
        return EPOCH + timedelta(microseconds=min(max(self._number(_I64), MIN_TIME_US), MAX_TIME_US))

    def text(self, size: int) -> str:
        """Read `size` bytes of UTF-8."""
        raw = self.take(size)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            # from None: the codec's error quotes the value.
            raise self.error(f"need UTF-8 in the {size} bytes before it") from None

    def value(self, size: int) -> str:
        """Read `size` bytes of a row's value; bytes that are not UTF-8, which the server may send, are escaped."""
        return decode_bytes(self.take(size))

    def name(self) -> str:
        """Read UTF-8 up to a zero byte."""
        end = self._data.find(b"\0", self._offset)
        if end < 0:
            raise self.error("need a zero byte after a name, have none")
        name = self.text(end - self._offset)
        self._offset = end + 1
        return name


def _stream_start(cursor: ByteCursor) -> StreamStart:
    return StreamStart(xid=cursor.u32(), first=cursor.flags(allowed=1) == 1)


def _stream_commit(cursor: ByteCursor) -> StreamCommit:
    xid = cursor.u32()
    cursor.flags(allowed=0)
    return StreamCommit(xid, commit_lsn=cursor.lsn(), end_lsn=cursor.lsn(), time=cursor.time())


def _stream_abort(cursor: ByteCursor) -> StreamAbort:
    xid, subxid = cursor.u32(), cursor.u32()
    if cursor.left == 0:
        return StreamAbort(xid, subxid)
    return StreamAbort(xid, subxid, abort_lsn=cursor.lsn(), time=cursor.time())


def _two_phase(name: str, *, flagged: bool = True, times: int = 1) -> Callable[[ByteCursor], TwoPhase]:
    def read(cursor: ByteCursor) -> TwoPhase:
        if flagged:
            cursor.flags(allowed=0)
        for each in (cursor.lsn, cursor.lsn, *[cursor.time] * times, cursor.u32, cursor.name):
            each()
        return TwoPhase(name)

    return read


BOUNDARY_READERS: dict[str, Callable[[ByteCursor], Boundary]] = {
    "S": _stream_start,
    "E": lambda _: StreamStop(),
    "c": _stream_commit,
    "A": _stream_abort,
    "b": _two_phase("Begin Prepare", flagged=False),
    "P": _two_phase("Prepare"),
    "p": _two_phase("Stream Prepare"),
    "K": _two_phase("Commit Prepared"),
    "r": _two_phase("Rollback Prepared", times=2),
}


_KEY = 1
_REPLICA_IDENTITIES = frozenset(map(str, ReplicaIdentity))
_CASCADE, _RESTART_IDENTITY = 1, 2
_TRANSACTIONAL = 1


def decode(payload: bytes) -> Message:
    """Read one message, all of it; raises DecodeError."""
    cursor = ByteCursor(payload)
    return _read(cursor, _reader(cursor, _OUTSIDE_BLOCKS))


def decode_streamed(payload: bytes) -> tuple[int | None, Message]:
    """Read a message of a block, and its (sub)transaction's xid, None of an Origin; raises DecodeError."""
    cursor = ByteCursor(payload)
    reader = _reader(cursor, _IN_BLOCKS)
    xid = None if reader is _origin else cursor.u32()
    return xid, _read(cursor, reader)


def _reader(
    cursor: ByteCursor, readers: Mapping[str, Callable[[ByteCursor], Message]]
) -> Callable[[ByteCursor], Message]:
    reader = readers.get(cursor.kind())
    if reader is None:
        raise cursor.error(f"need one of the tags {''.join(readers)}")
    return reader


def _read(cursor: ByteCursor, reader: Callable[[ByteCursor], Message]) -> Message:
    message = reader(cursor)
    cursor.finish()
    return message


def _begin(cursor: ByteCursor) -> Begin:
    return Begin(final_lsn=cursor.lsn(), time=cursor.time(), xid=cursor.u32())


def _commit(cursor: ByteCursor) -> Commit:
    cursor.flags(allowed=0)
    return Commit(commit_lsn=cursor.lsn(), end_lsn=cursor.lsn(), time=cursor.time())


def _origin(cursor: ByteCursor) -> Origin:
    return Origin(commit_lsn=cursor.lsn(), name=cursor.name())


def _relation(cursor: ByteCursor) -> Relation:
    oid = cursor.u32()
    name = TableName(_schema(cursor), cursor.name())
    identity = cursor.kind()
    if identity not in _REPLICA_IDENTITIES:
        raise cursor.error(f"need replica identity d, n, f or i, have {identity!a}")
    return Relation(oid, name, ReplicaIdentity(identity), tuple(_column(cursor) for _ in range(cursor.u16())))


def _column(cursor: ByteCursor) -> Column:
    key = cursor.flags(allowed=_KEY) == _KEY
    return Column(name=cursor.name(), type_oid=cursor.u32(), typmod=cursor.i32(), key=key)


def _type(cursor: ByteCursor) -> Type:
    return Type(oid=cursor.u32(), schema=_schema(cursor), name=cursor.name())


def _insert(cursor: ByteCursor) -> Insert:
    oid = cursor.u32()
    _expect_new(cursor, cursor.kind())
    return Insert(oid, _new_values(cursor))


def _update(cursor: ByteCursor) -> Update:
    oid, kind = cursor.u32(), cursor.kind()
    old = None
    if kind in "KO":
        old = OldTuple(OldKind(kind), _old_values(cursor))
        kind = cursor.kind()
    _expect_new(cursor, kind)
    return Update(oid, old, _new_values(cursor))


def _delete(cursor: ByteCursor) -> Delete:
    oid, kind = cursor.u32(), cursor.kind()
    if kind not in "KO":
        raise cursor.error(f"need an old tuple ('K' or 'O'), have {kind!a}")
    return Delete(oid, OldTuple(OldKind(kind), _old_values(cursor)))


def _truncate(cursor: ByteCursor) -> Truncate:
    count = cursor.u32()
    options = cursor.flags(allowed=_CASCADE | _RESTART_IDENTITY)
    oids = tuple(cursor.u32() for _ in range(count))
    return Truncate(oids, cascade=bool(options & _CASCADE), restart_identity=bool(options & _RESTART_IDENTITY))


def _message(cursor: ByteCursor) -> LogicalMessage:
    transactional = cursor.flags(allowed=_TRANSACTIONAL) == _TRANSACTIONAL
    return LogicalMessage(transactional, cursor.lsn(), cursor.name(), cursor.take(cursor.u32()))


_PREFIX_AT, _XID_BYTES = 10, 4
_ZERO = re.compile(b"\0")


def cut_message(payload: memoryview, *, in_block: bool) -> memoryview | bytes:
    """Return a logical message with what the lake keeps of it; a malformed one, which `decode` refuses, unchanged.

    That is the first `MOST_CONTENT_BYTES` of the content and the first `MOST_PREFIX_BYTES` of the prefix. A DDL message
    is worth nothing unless it is complete: the trigger sends no more than `MOST_DDL_BYTES`.
    """
    at = _PREFIX_AT + _XID_BYTES * in_block
    zero = _ZERO.search(payload, at)
    if zero is None or payload[zero.end() :].nbytes < _U32.size:
        return payload
    (size,) = _U32.unpack_from(payload, zero.end())
    prefix, content = payload[at : zero.start()], payload[zero.end() + _U32.size :]
    if size != content.nbytes:
        return payload
    kept = content[: MOST_DDL_BYTES if prefix == DDL_PREFIX.encode() else MOST_CONTENT_BYTES]
    whole = bytes(prefix[:MOST_PREFIX_BYTES]).decode(errors="ignore").encode()
    return b"".join((payload[:at], whole, b"\0", _U32.pack(kept.nbytes), kept))


def _schema(cursor: ByteCursor) -> str:
    return cursor.name() or "pg_catalog"


def _expect_new(cursor: ByteCursor, kind: str) -> None:
    if kind != "N":
        raise cursor.error(f"need a new tuple ('N'), have {kind!a}")


def _new_values(cursor: ByteCursor) -> tuple[Value, ...]:
    return tuple(_value(cursor) for _ in range(cursor.u16()))


def _old_values(cursor: ByteCursor) -> tuple[str | None, ...]:
    return tuple(_old_value(cursor) for _ in range(cursor.u16()))


def _old_value(cursor: ByteCursor) -> str | None:
    value = _value(cursor)
    if value is UNCHANGED:  # the server logs old values whole (heapam.c, ExtractReplicaIdentity)
        raise cursor.error("need a value in an old tuple, have unchanged TOAST")
    return value


def _value(cursor: ByteCursor) -> Value:
    match cursor.kind():
        case "t":
            return cursor.value(cursor.u32())
        case "n":
            return None
        case "u":
            return UNCHANGED
        case "b":
            raise cursor.error("have a value in binary format, text was asked for")
        case other:
            raise cursor.error(f"need a value of kind n, u or t, have {other!a}")


_READERS: dict[str, Callable[[ByteCursor], Message]] = {
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
"""Tags of the messages allowed in a block of a streamed transaction."""

_OUTSIDE_BLOCKS: dict[str, Callable[[ByteCursor], Message]] = _READERS | BOUNDARY_READERS
_IN_BLOCKS = {tag: _READERS[tag] for tag in IN_BLOCKS}
