"""Relation: name, replica identity and columns of a table, as in pgoutput's Relation message.

The catalog (for the snapshot) and the stream produce equal values, so that they can be compared. Pure.

Authority: postgresql.org/docs/current/protocol-logicalrep-message-formats.html, "Relation"
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from auditlake.lsn import Lsn
from auditlake.sql_names import display_identifier

SYSTEM_SCHEMA = "auditlake"
"""The schema that the lake's own tables have in questions, and in which no table of the source is copied."""


class TableName(NamedTuple):
    """Schema and name of a table, unquoted; `str` quotes them for people (`sql_names.display_identifier`)."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{display_identifier(self.schema)}.{display_identifier(self.table)}"


@dataclass(frozen=True, slots=True)
class Former:
    """Name and key flag that a history's column had before the commit at `until`.

    `type` is the one that it had, if a new snapshot gave it another one then; None: that of the next, or of the column.
    """

    until: Lsn
    name: str
    key: bool
    type: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One published column; `key` marks it as part of the replica identity, or of the key in a history.

    For a domain over a built-in type, `type_oid` is the base type's and `typmod` is -1. `attnum` identifies the column
    within its table (pg_attribute.attnum): a name may be given to another column, a number never is. It is None if it
    is not known, and does not take part in comparisons, because the stream does not contain it.

    In a history, `stored_as` is the name of the physical column if it differs (`lake.column_names`). The table has the
    column from the commit at `since` on, None if the snapshot had it, and before the commit at `until`, None if it
    still has it. `former` are its earlier names, oldest first.

    `compared`, where a question has read it: on what comparisons depend besides a built-in type
    (`audit.state.with_comparisons`).
    """

    name: str
    type_oid: int
    typmod: int
    key: bool
    stored_as: str | None = None
    since: Lsn | None = None
    attnum: int | None = field(default=None, compare=False)
    until: Lsn | None = None
    former: tuple[Former, ...] = ()
    compared: str | None = field(default=None, compare=False)

    @property
    def type(self) -> tuple[int, int]:
        """Return the column's type: its OID, and its modifier."""
        return self.type_oid, self.typmod

    @property
    def stored(self) -> str:
        """Return the column's name in the history."""
        return self.stored_as or self.name

    def exists_at(self, lsn: Lsn) -> bool:
        """Return whether the table had the column at `lsn`."""
        return (self.since is None or self.since <= lsn) and (self.until is None or lsn < self.until)

    def at(self, lsn: Lsn) -> "Column":
        """Return the column with name, key flag and type that it had at `lsn`; it is stored as before."""
        later = [former for former in self.former if lsn < former.until]
        if not later:
            return self
        type_oid, typmod = next((former.type for former in later if former.type is not None), self.type)
        name, key = later[0].name, later[0].key
        return replace(self, name=name, key=key, type_oid=type_oid, typmod=typmod, stored_as=self.stored, former=())


def in_order(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return columns in the order of their numbers, as the source's table has them; unchanged if one is unknown."""
    if any(column.attnum is None for column in columns):
        return tuple(columns)
    return tuple(sorted(columns, key=lambda column: column.attnum or 0))


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
