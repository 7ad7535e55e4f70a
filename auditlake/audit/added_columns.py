"""Columns added to a table since its snapshot, for the audit commands.

Every row that the commands read has these columns, with the value that the row shows in them after ADD COLUMN. A row is
therefore the same whether it is read from before or after ADD COLUMN, from the history or from the tail. Output as of a
moment leaves out the columns that the table did not have yet (`Reader.shown_at`).
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from auditlake.errors import NotAnswerable
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation
from auditlake.schema.missing_values import Answers

Described = Sequence[tuple[int, tuple[Column, ...]]]
"""The shapes of a table in LSN order, each with the first commit LSN at which it is in force."""


@dataclass(frozen=True, slots=True)
class Later:
    """A column added in the commit at `since`; older rows show `missing` in it."""

    since: int
    missing: str | None


def later_columns(table: HistoryTable, relations: Iterable[Relation], answers: Answers) -> Mapping[str, Later]:
    """Return the columns added to a table by name, whether apply has added them to the history yet or not."""
    oids = {relation.oid for relation in relations if relation.name == table.name}
    columns = [
        (added.lsn, added.column, answer.value)
        for added, answer in answers.items()
        if added.relation in oids and added.lsn > table.horizon and answer.problem is None
    ]
    latest_first = sorted(columns, key=lambda entry: -entry[0])
    return {column: Later(since, value) for since, column, value in latest_first}


def check_missing_values(table: HistoryTable, lsn: int, described: Described, later: Container[str]) -> None:
    """Check that the missing value of every column of `table` at `lsn` is known.

    Raises NotAnswerable.
    """
    in_history = {column.name for column in table.columns}
    for since, columns in described:
        unknown = [column.name for column in columns if column.name not in in_history and column.name not in later]
        if unknown and since <= lsn:
            raise NotAnswerable(
                f"{table.name} cannot be shown as of {Lsn(lsn)}: the value of its new column {unknown[0]} in older rows"
                " is unknown",
                f"Ask for a moment before {Lsn(since)}; auditlake apply reports the reason.",
            )
