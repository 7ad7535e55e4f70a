"""Key of a row, as Spark expressions on a change, on a history and within the fold.

A key column is compared by its typed value. If the type cannot represent every value (a date may be 'infinity'), it is
compared by typed value and text in `_raw`, as a null-safe pair. Within the fold the key is the columns `k0, k1, …` and,
for such types, `r0, r1, …`; the fold has no source columns, so these names cannot collide. In a table without a key a
version is identified by its begin.

Builds expressions only.
"""

from __future__ import annotations  # types of Spark are imported for mypy only

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from auditlake.apply import typed_values
from auditlake.fold.open_versions import BEGIN, key_of
from auditlake.lake.history import type_of
from auditlake.relation import Column
from auditlake.spark import functions as F  # noqa: N812 - the usual name
from auditlake.sql_names import spark_identifier, spark_literal

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression


def source(name: str, alias: str | None = None) -> Expression:
    """Return the column of that exact name, quoted."""
    return F.col(f"{alias}.{spark_identifier(name)}" if alias else spark_identifier(name))


def names(columns: Sequence[Column]) -> list[str]:
    """Return the names of the key's columns within the fold."""
    fold_names = []
    for index, column in enumerate(key_of(columns)):
        fold_names += [f"k{index}", f"r{index}"] if type_of(column).may_not_fit else [f"k{index}"]
    return fold_names


def from_text(
    columns: Sequence[Column], text: Callable[[int], Expression], had: Expression, prefix: str
) -> list[Expression]:
    """Return the key of a change if it `had` one; `text` maps a position in the relation to the text there."""
    parts = []
    for position, column in enumerate(columns):
        if not column.key:
            continue
        required = F.coalesce(text(position), _no_key(column))
        parts.append(typed_values.typed_value(column, required))
        if type_of(column).may_not_fit:
            parts.append(typed_values.raw(column, required))
    return [F.when(had, part).alias(f"{prefix}{name}") for part, name in zip(parts, names(columns), strict=True)]


def from_history(columns: Sequence[Column]) -> list[Expression]:
    """Return the key of a history row."""
    parts = []
    for column in key_of(columns):
        parts.append(source(column.stored))
        if type_of(column).may_not_fit:
            parts.append(F.col("_raw")[column.stored])
    return [part.alias(name) for part, name in zip(parts, names(columns), strict=True)]


def pairs(columns: Sequence[Column]) -> list[tuple[Expression, Expression]]:
    """Return typed value and exact text of each key column within the fold."""
    no_text = F.lit(None).cast("string")
    return [
        (F.col(f"k{index}"), F.col(f"r{index}") if type_of(column).may_not_fit else no_text)
        for index, column in enumerate(key_of(columns))
    ]


def same(columns: Sequence[Column], left: str, right: str) -> str:
    """Return SQL that compares the keys of two history rows, by alias; null-safe only for types that need it."""
    if not key_of(columns):
        return " and ".join(f"{left}.{name} = {right}.{name}" for name in BEGIN)
    conditions = []
    for column in key_of(columns):
        name, entry = spark_identifier(column.stored), spark_literal(column.stored)
        may_not_fit = type_of(column).may_not_fit
        conditions.append(f"{left}.{name} {'<=>' if may_not_fit else '='} {right}.{name}")
        if may_not_fit:
            conditions.append(f"{left}._raw[{entry}] <=> {right}._raw[{entry}]")
    return " and ".join(conditions)


def _no_key(column: Column) -> Expression:
    # Key columns are NOT NULL in PostgreSQL: a missing value means that the change was decoded wrongly.
    return F.raise_error(F.lit(f"a change has no value for key column {column.name}")).cast("string")
