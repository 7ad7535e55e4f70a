"""Columns that were added to a table since its snapshot, as the audit questions see them.

A column that was added later is in every row that they read, with the value that the row showed in it from then on: so
a row looks the same from whichever side of ADD COLUMN, and of apply, it is read. What is shown of a moment then leaves
out what the table did not have there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from auditlake.lake.added import Answers
from auditlake.lake.history import HistoryTable
from auditlake.relation import Relation


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
