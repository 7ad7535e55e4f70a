"""Conditions on the rows of a history, as SQL: that they have a key, or are equal in a column. Pure.

A column whose type was rewritten has several physical columns, one for each type (`audit.columns_over_time`).
"""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime

from auditlake.audit.row_key import Key
from auditlake.delta.sql import Bound
from auditlake.instants import to_us
from auditlake.lake.history import HistoryTable, type_of
from auditlake.relation import Column
from auditlake.sql_names import duckdb_literal, standard_identifier, standard_literal
from auditlake.values.types import Conversion

HERE, THERE = '"`a"', '"`b"'
"""Aliases of `history` in a self-join; no column name contains a backtick (`lake.column_names`)."""


def types_over_time(table: HistoryTable, column: Column) -> list[Column]:
    """Return the physical columns that a column of a table has under its own name: one for each type."""
    return [each for each in table.columns if each.name == column.name]


def in_history(table: HistoryTable, key: Key) -> str:
    """Return a condition that every history row with this key fulfils; values in `_raw` alone make it wider."""
    return " and ".join(
        f"({' or '.join(_equals(each, value) for each in types_over_time(table, column))})"
        for column, value in zip(table.key, key, strict=True)
    )


def bounds_of(table: HistoryTable, keys: Sequence[Key]) -> dict[str, Bound]:
    """Return bounds of the typed columns of these keys, for those in which every value fits."""
    found: dict[str, Bound] = {}
    for place, column in enumerate(table.key):
        if type_of(column).kind is Conversion.INTEGER and len(types_over_time(table, column)) == 1:
            values = [int(key[place]) for key in keys]
            found[column.stored] = (min(values), max(values))
    return found


def _equals(column: Column, value: str) -> str:
    name, typed = standard_identifier(column.stored), type_of(column)
    if typed.kind is Conversion.DECIMAL:  # NULL if it does not fit: then the typed column is NULL, too
        return f"{name} is not distinct from try_cast({standard_literal(value)} as {typed.delta})"
    literal = _LITERALS.get(typed.kind)
    if literal is None:
        return "true"
    try:
        return f"{name} = {literal(value)}"
    except ValueError:  # BC, a year past 9999, infinity, or not of this type: NULL in the typed column
        return f"{name} is null"


def _integer_literal(value: str) -> str:
    if not -(1 << 63) <= int(value) < 1 << 63:
        raise ValueError("not a bigint")
    return f"{int(value):d}"


def _us(value: str) -> int:
    return to_us(datetime.fromisoformat(value.removesuffix("+00")).replace(tzinfo=UTC))


_LITERALS: dict[Conversion, Callable[[str], str]] = {
    Conversion.TEXT: duckdb_literal,
    Conversion.BOOLEAN: lambda value: {"t": "true", "f": "false"}.get(value, "null"),
    Conversion.INTEGER: _integer_literal,
    Conversion.DATE: lambda value: f"date '{date.fromisoformat(value)}'",
    Conversion.TIMESTAMP: lambda value: f"make_timestamp({_us(value)})",
    Conversion.TIMESTAMPTZ: lambda value: f"make_timestamptz({_us(value)})",
}


def same_in_history(table: HistoryTable, name: str, read: Callable[[Column, str], str] = lambda _, value: value) -> str:
    """Return the condition that the history rows HERE and THERE, of one type of a column, are equal in the column.

    `read` returns SQL for a value that is compared, such as `lake.duckdb_rows.apart`.
    """
    return " and ".join(_same(column, read) for column in table.columns if column.name == name)


def _same(column: Column, read: Callable[[Column, str], str]) -> str:
    here, there = (read(column, f"{rows}.{standard_identifier(column.stored)}") for rows in (HERE, THERE))
    same = f"({here} is not distinct from {there})"
    entry = f"_raw[{standard_literal(column.stored)}]"
    if not type_of(column).may_not_fit:
        return same
    return f"({same} and ({HERE}.{entry} is not distinct from {THERE}.{entry}))"
