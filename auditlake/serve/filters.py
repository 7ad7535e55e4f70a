"""Filters and sort order of a table's rows: parsed from a URL, as SQL of DuckDB on a table's state.

    status:is:paid     the value's text is this one, in any spelling that PostgreSQL reads as it
    price:ge:10.00     compared as PostgreSQL compares values of the type; ops are lt, le, gt, ge
    name:has:desk      the text contains this; `begins`: it starts with this
    note:null:         no value; `notnull`: some value

A comparison is offered only where the order of the typed column is PostgreSQL's own: whole numbers, numeric, dates,
times, floats, and text, which is compared byte by byte, as under the collation C. A value that does not fit its typed
column (`_raw`) is before or after all values that do: `-infinity` and years BC before, the others after.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from auditlake.audit.keys import read_value
from auditlake.errors import BadUsage
from auditlake.lake.history import type_of
from auditlake.relation import Column
from auditlake.sql_names import standard_identifier, standard_literal
from auditlake.values.typed import typed_values
from auditlake.values.types import Kind

COMPARED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
OPS = ("is", *COMPARED, "has", "begins", "null", "notnull")
_WHERE = re.compile(rf"(?P<column>.+?):(?P<op>{'|'.join(OPS)}):(?P<value>.*)", re.DOTALL)
_COMPARABLE = frozenset({Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ})
_TEXT, _VARCHAR, _UUID = 25, 1043, 2950
_ORDERED_TEXTS = frozenset({_TEXT, _VARCHAR, _UUID})

Condition = tuple[str, list[Any]]
"""SQL with `?` for its values, and the values."""


def ops_of(column: Column) -> tuple[str, ...]:
    """Return the operations that a filter on this column may use."""
    kind = type_of(column).kind
    ops = [] if kind is Kind.ARRAY else ["is"]
    if kind in _COMPARABLE or column.type_oid in _ORDERED_TEXTS:
        ops += COMPARED
    if kind is Kind.TEXT:
        ops += ["has", "begins"]
    return (*ops, "null", "notnull")


def may_sort(column: Column) -> bool:
    """Return whether rows can be sorted by this column."""
    return type_of(column).kind is not Kind.ARRAY


@dataclass(frozen=True, slots=True)
class Where:
    """One filter; `value` is as the user wrote it, `text` as PostgreSQL prints it, "" if the operation takes none."""

    column: Column
    op: str
    value: str
    text: str

    def __str__(self) -> str:
        return f"{self.column.name}:{self.op}:{self.value}"

    def sql(self) -> Condition:
        """Return the condition on a row of the state, alias h."""
        name, partial = _of(self.column), type_of(self.column).may_not_fit
        absent = f"{name} is null{f' and {_entry(self.column)} is null' if partial else ''}"
        match self.op:
            case "null":
                return f"({absent})", []
            case "notnull":
                return f"not ({absent})", []
            case "has" | "begins":
                return f"{'contains' if self.op == 'has' else 'starts_with'}({name}, ?)", [self.text]
            case _:
                return self._compared()

    def _compared(self) -> Condition:
        value = typed(self.column, self.text)
        if value is None:
            return f"{_entry(self.column)} = ?", [self.text]
        sign = COMPARED.get(self.op, "=")
        condition = f"{_of(self.column)} {sign} ?"
        if sign == "=" or not type_of(self.column).may_not_fit:
            return condition, [value]
        return f"({condition} or {_place(self.column)} {sign} 0)", [value]


def typed(column: Column, text: str) -> Any:  # noqa: ANN401 - of any type
    """Return the typed value of PostgreSQL's text; None if the typed column cannot represent it."""
    return typed_values(pa.array([text]), type_of(column))[0].as_py()


def _of(column: Column) -> str:
    return f"h.{standard_identifier(column.stored)}"


def _entry(column: Column) -> str:
    return f"h._raw[{standard_literal(column.stored)}]"


def _place(column: Column) -> str:
    """Return SQL for where a value outside of its type is: -1 before those that fit, 1 after them, else NULL."""
    entry = _entry(column)
    return f"case when {entry} like '-%' or {entry} like '% BC' then -1 when {entry} is not null then 1 end"


def parse_where(given: Sequence[str], columns: Mapping[str, Column]) -> tuple[Where, ...]:
    """Parse the filters of a URL.

    Raises BadUsage.
    """
    return tuple(_parse(each, columns) for each in given)


def _parse(given: str, columns: Mapping[str, Column]) -> Where:
    match = _WHERE.fullmatch(given)
    if match is None:
        raise BadUsage("a filter is not in the form COLUMN:OP:VALUE", f"OP is one of {', '.join(OPS)}.")
    column = column_named(match["column"], columns)
    op, value = match["op"], match["value"]
    if op not in ops_of(column):
        raise BadUsage(f"{column.name} cannot be filtered by {op}", f"It can by {', '.join(ops_of(column))}.")
    if op in {"null", "notnull"}:
        return Where(column, op, "", "")
    text = value if op in {"has", "begins"} else read_value(column, value).text
    if op in COMPARED and typed(column, text) is None:
        raise BadUsage(
            f"{column.name} cannot be compared with this value", "Compare with a finite one, of the years 1 to 9999."
        )
    return Where(column, op, value, text)


def column_named(name: str, columns: Mapping[str, Column]) -> Column:
    """Return the column of this name.

    Raises BadUsage.
    """
    if name not in columns:
        raise BadUsage(f"there is no column {name} at this moment", f"The columns are {', '.join(columns)}.")
    return columns[name]


@dataclass(frozen=True, slots=True)
class Order:
    """Order of the rows: by one column, then by the key. NULL is last, first if descending, as in PostgreSQL."""

    column: Column | None
    descending: bool
    key: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns to sort by."""
        first = () if self.column is None else (self.column,)
        return (*first, *(column for column in self.key if column != self.column and may_sort(column)))

    def sql(self) -> str:
        """Return the ORDER BY clause; "" for no order."""
        parts: list[str] = []
        for column in self.columns:
            descending = self.descending and column == self.column
            way = "desc nulls first" if descending else "asc nulls last"
            if type_of(column).may_not_fit:
                parts.append(f"case when {_of(column)} is not null then 0 else {_place(column)} end {way}")
            parts.append(f"{_of(column)} {way}")
        return f" order by {', '.join(parts)}" if parts else ""


def parse_order(given: str | None, columns: Mapping[str, Column], key: tuple[Column, ...]) -> Order:
    """Parse `column` or `-column`.

    Raises BadUsage.
    """
    if not given:
        return Order(None, False, key)
    descending = given.startswith("-") and given not in columns
    column = column_named(given.removeprefix("-") if descending else given, columns)
    if not may_sort(column):
        raise BadUsage(f"{column.name} is an array, by which rows cannot be sorted", "Sort by another column.")
    return Order(column, descending, key)
