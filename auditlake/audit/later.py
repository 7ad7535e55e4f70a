"""Columns that were added to a table since its snapshot, as the audit questions see them.

A column that was added later is in every row that they read, with the value that the row showed in it from then on: so
a row looks the same from whichever side of ADD COLUMN, and of apply, it is read. What is shown of a moment then leaves
out what the table did not have there.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from auditlake.errors import NotAnswerable
from auditlake.lake.added import Answers
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation

Described = Sequence[tuple[int, tuple[Column, ...]]]
"""The shapes of a table, each with the commit LSN from which on it is in force, in that order."""


@dataclass(frozen=True, slots=True)
class Later:
    """A column that was added in the commit at `since`; rows from before show `missing` in it."""

    since: int
    missing: str | None


def later_columns(table: HistoryTable, relations: Iterable[Relation], answers: Answers) -> Mapping[str, Later]:
    """Find the columns that were added to a table, merged or not, by name."""
    oids = {relation.oid for relation in relations if relation.name == table.name}
    found = [
        (added.lsn, added.column, answer.value)
        for added, answer in answers.items()
        if added.relation in oids and added.lsn > table.horizon and answer.problem is None
    ]
    first_last = sorted(found, key=lambda each: -each[0])
    return {column: Later(since, value) for since, column, value in first_last}


def see_explained(table: HistoryTable, lsn: int, described: Described, later: Container[str]) -> None:
    """See that no column of `table` at `lsn` is one of which nobody knows what older rows show in it.

    Raises NotAnswerable.
    """
    held = {column.name for column in table.columns}
    for since, columns in described:
        unknown = [column.name for column in columns if column.name not in held and column.name not in later]
        if unknown and since <= lsn:
            raise NotAnswerable(
                f"asked for {table.name} as of {Lsn(lsn)}, what older rows show in its new column {unknown[0]} is not"
                " known",
                f"Ask for a moment before {Lsn(since)}; auditlake apply says why it is not.",
            )
