"""The key of a row, wherever it is written: in a change, in a history, in the fold.

A key column is identified by its typed value; where the type cannot hold every value (a date may be 'infinity'), by
the typed value and the text in `_raw` together, compared as null-safe pairs. Inside the fold the key is the columns
`k0, k1, …` and, for such types, `r0, r1, …`. No source column is there, so none can have one of these names.
In a table without a key it is `row` and `copy` (see `copies`), and a version is found by where it began.

Builds expressions only.
"""

from collections.abc import Callable, Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply import typing
from auditlake.lake.history import type_of
from auditlake.literals import spark_literal, spark_name
from auditlake.relation import Column

BEGIN = ("_from_lsn", "_ordinal")
"""What tells the versions of a table without a key apart."""


def source(name: str, alias: str | None = None) -> Expression:
    """The column of that exact name, whatever dots and quotes are in it."""
    return F.col(f"{alias}.{spark_name(name)}" if alias else spark_name(name))


def key_of(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns that identify a row, in column order."""
    return tuple(column for column in columns if column.key)


def names(columns: Sequence[Column]) -> list[str]:
    """What the key's columns are called inside the fold."""
    if not key_of(columns):
        return ["row", "copy"]
    found = []
    for index, column in enumerate(key_of(columns)):
        found += [f"k{index}", f"r{index}"] if type_of(column).may_not_fit else [f"k{index}"]
    return found


def from_text(columns: Sequence[Column], text: Callable[[int], Expression]) -> list[Expression]:
    """The key of a change; `text` gives the text at a position of the relation."""
    found = []
    for position, column in enumerate(columns):
        if not column.key:
            continue
        known = F.coalesce(text(position), _no_key(column))
        found.append(typing.value(column, known))
        if type_of(column).may_not_fit:
            found.append(typing.raw(column, known))
    return [each.alias(name) for each, name in zip(found, names(columns), strict=True)]


def from_history(columns: Sequence[Column]) -> list[Expression]:
    """The key of a history row."""
    found = []
    for column in key_of(columns):
        found.append(source(column.stored))
        if type_of(column).may_not_fit:
            found.append(F.col("_raw")[column.stored])
    return [each.alias(name) for each, name in zip(found, names(columns), strict=True)]


def pairs(columns: Sequence[Column]) -> list[tuple[Expression, Expression]]:
    """Typed value and exact text of each key column inside the fold."""
    no_text = F.lit(None).cast("string")
    return [
        (F.col(f"k{index}"), F.col(f"r{index}") if type_of(column).may_not_fit else no_text)
        for index, column in enumerate(key_of(columns))
    ]


def same(columns: Sequence[Column], left: str, right: str) -> str:
    """SQL: two history-shaped rows, by alias, have the same key; only types that need it pay for null-safety."""
    if not key_of(columns):
        return " and ".join(f"{left}.{name} = {right}.{name}" for name in BEGIN)
    conditions = []
    for column in key_of(columns):
        name, entry = spark_name(column.stored), spark_literal(column.stored)
        may_not_fit = type_of(column).may_not_fit
        conditions.append(f"{left}.{name} {'<=>' if may_not_fit else '='} {right}.{name}")
        if may_not_fit:
            conditions.append(f"{left}._raw[{entry}] <=> {right}._raw[{entry}]")
    return " and ".join(conditions)


def _no_key(column: Column) -> Expression:
    # Key columns are NOT NULL in PostgreSQL; a missing one means the change was not read right.
    return F.raise_error(F.lit(f"a change has no value for key column {column.name}")).cast("string")
