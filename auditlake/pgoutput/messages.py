"""The messages of pgoutput, protocol versions 1 to 4, as values in the manual's words.

`Relation` is `auditlake.relation.Relation`. Text stays PostgreSQL's own text; a value is `str`, `None` for SQL NULL, or
`UNCHANGED` for a TOASTed value that the update did not touch and the server did not send. Times are UTC.

Authority: postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final, TypeAlias

from auditlake.lsn import Lsn
from auditlake.relation import Relation


class Unchanged(Enum):
    """The one member says: the value is what it was, and was not sent."""

    TOAST = "unchanged TOAST"


UNCHANGED: Final = Unchanged.TOAST

Value: TypeAlias = str | Unchanged | None


class OldKind(Enum):
    """What an old tuple holds: the replica identity's columns alone, or all of them."""

    KEY = "K"
    FULL = "O"


@dataclass(frozen=True, slots=True)
class OldTuple:
    """The row before the change; of a KEY tuple only the columns flagged as key mean anything."""

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
    """Where the transaction was first committed, by its replication origin there."""

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
    """A changed row; `old` is None where the key is the same and the identity is not FULL."""

    oid: int
    old: OldTuple | None
    new: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """A row gone."""

    oid: int
    old: OldTuple


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables emptied by one statement."""

    oids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """What `pg_logical_emit_message` wrote; only a transactional one belongs to a transaction."""

    transactional: bool
    lsn: Lsn
    prefix: str
    content: bytes


@dataclass(frozen=True, slots=True)
class StreamStart:
    """Start of a block of changes of a transaction that is still open; `first` of that transaction or not."""

    xid: int
    first: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    """End of a block."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """A streamed transaction has committed."""

    xid: int
    commit_lsn: Lsn
    end_lsn: Lsn
    time: datetime


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """A streamed transaction, or its subtransaction `subxid`, was rolled back; place and time in parallel mode only."""

    xid: int
    subxid: int
    abort_lsn: Lsn | None = None
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class BeginPrepare:
    """Start of a transaction that will be prepared; `time` is that of PREPARE TRANSACTION."""

    prepare_lsn: Lsn
    end_lsn: Lsn
    time: datetime
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """End of a transaction that was prepared."""

    prepare_lsn: Lsn
    end_lsn: Lsn
    time: datetime
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class StreamPrepare:
    """A streamed transaction was prepared."""

    prepare_lsn: Lsn
    end_lsn: Lsn
    time: datetime
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class CommitPrepared:
    """A prepared transaction has committed."""

    commit_lsn: Lsn
    end_lsn: Lsn
    time: datetime
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class RollbackPrepared:
    """A prepared transaction was rolled back."""

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
"""What bounds streamed (version 2) and prepared (version 3) transactions."""

Message: TypeAlias = (
    Begin | Commit | Origin | Relation | Type | Insert | Update | Delete | Truncate | LogicalMessage | Boundary
)
