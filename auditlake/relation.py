"""Relation: name, replica identity and columns of a table, as in pgoutput's Relation message.

The catalog (for the snapshot) and the stream produce equal values, so that they can be compared. Pure.

Authority: postgresql.org/docs/current/protocol-logicalrep-message-formats.html, "Relation"
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from auditlake.sql_names import display_identifier


class TableName(NamedTuple):
    """Schema and name of a table, unquoted; `str` quotes them for people (`sql_names.display_identifier`)."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{display_identifier(self.schema)}.{display_identifier(self.table)}"


@dataclass(frozen=True, slots=True)
class Column:
    """One published column; `key` marks it as part of the replica identity, or of the key in a history.

    For a domain over a built-in type, `type_oid` is the base type's and `typmod` is -1. `stored_as` is the column's
    name in the history if it differs (`lake.names`). `since` is the commit LSN from which on a history has the column,
    None if the snapshot had it.
    """

    name: str
    type_oid: int
    typmod: int
    key: bool
    stored_as: str | None = None
    since: int | None = None

    @property
    def stored(self) -> str:
        """Return the column's name in the history."""
        return self.stored_as or self.name


class ReplicaIdentity(StrEnum):
    """The columns that an UPDATE or DELETE sends of the old row, by the letter in pg_class.relreplident."""

    DEFAULT = "d"
    """The columns of the primary key."""
    NOTHING = "n"
    """No column; the server refuses UPDATE and DELETE of a published table."""
    FULL = "f"
    """All columns."""
    INDEX = "i"
    """The columns of the index set by ALTER TABLE … REPLICA IDENTITY USING INDEX."""


@dataclass(frozen=True, slots=True)
class Relation:
    """One version of a published table."""

    oid: int
    name: TableName
    replica_identity: ReplicaIdentity
    columns: tuple[Column, ...]
