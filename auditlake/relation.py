"""What a relation looks like: the shape of a table as pgoutput's Relation message gives it.

The same values come from the catalog (snapshot) and from the stream, so that the two can be compared. Pure.

Authority: postgresql.org/docs/current/protocol-logicalrep-message-formats.html, "Relation"
"""

from dataclasses import dataclass
from typing import NamedTuple


class TableName(NamedTuple):
    """Schema and name of a table, exactly as PostgreSQL spells them."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{_quoted(self.schema)}.{_quoted(self.table)}"


def _quoted(name: str) -> str:
    plain = name.isascii() and name.replace("_", "a").isalnum() and name == name.lower() and not name[0].isdigit()
    return name if plain else '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Column:
    """One published column; `key` marks it as part of the replica identity (of the key, in a history).

    `type_oid` is that of the base type where the column is of a domain over a built-in type; `typmod` is then -1.
    `stored_as` is its name in the history where that is another one (`lake.names`). `since` is the commit LSN since
    which a history has it; None where it was there in the snapshot.
    """

    name: str
    type_oid: int
    typmod: int
    key: bool
    stored_as: str | None = None
    since: int | None = None

    @property
    def stored(self) -> str:
        """The column's name in the history."""
        return self.stored_as or self.name


@dataclass(frozen=True, slots=True)
class Relation:
    """A published table at one moment; `replica_identity` is pg_class.relreplident: d, n, f or i."""

    oid: int
    name: TableName
    replica_identity: str
    columns: tuple[Column, ...]
