"""Messages of pgoutput, protocol versions 1 to 4, as frozen dataclasses named after the manual.

`Relation` is `auditlake.relation.Relation`. A value is `str` (PostgreSQL's text output, with escapes for bytes
that are not UTF-8: `values.encoding`), `None` for SQL NULL, or `UNCHANGED` for a TOASTed value that the update did not
change and the server did not send. Times are UTC.

Authority: postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final, TypeAlias

from auditlake.lsn import Lsn
from auditlake.relation import Relation

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""Origin of the times on the wire, which count microseconds."""
EPOCH_UNIX_US = 946_684_800_000_000
"""`EPOCH` in microseconds since 1970."""


class Unchanged(Enum):
    """Marker of a value that did not change and was not sent."""

    TOAST = "unchanged TOAST"


UNCHANGED: Final = Unchanged.TOAST

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
    """A message from `pg_logical_emit_message`; only a transactional one belongs to a transaction."""

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
class BeginPrepare:
    """Start of a prepared transaction; `time` is that of PREPARE TRANSACTION."""

    prepare_lsn: Lsn
    end_lsn: Lsn
    time: datetime
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """PREPARE TRANSACTION of the transaction that the last BeginPrepare started."""

    prepare_lsn: Lsn
    end_lsn: Lsn
    time: datetime
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class StreamPrepare:
    """PREPARE TRANSACTION of a streamed transaction."""

    prepare_lsn: Lsn
    end_lsn: Lsn
    time: datetime
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class CommitPrepared:
    """COMMIT PREPARED."""

    commit_lsn: Lsn
    end_lsn: Lsn
    time: datetime
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class RollbackPrepared:
    """ROLLBACK PREPARED."""

    prepare_end_lsn: Lsn
    end_lsn: Lsn
    prepare_time: datetime
    time: datetime
    xid: int
    gid: str


Boundary: TypeAlias = (
    StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
    | BeginPrepare
    | Prepare
    | StreamPrepare
    | CommitPrepared
    | RollbackPrepared
)
"""Messages that start or end streamed (version 2) and prepared (version 3) transactions."""

Message: TypeAlias = (
    Begin | Commit | Origin | Relation | Type | Insert | Update | Delete | Truncate | LogicalMessage | Boundary
)
