"""The messages of pgoutput, protocol version 1, as values in the manual's words.

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


Message: TypeAlias = Begin | Commit | Origin | Relation | Type | Insert | Update | Delete | Truncate | LogicalMessage
