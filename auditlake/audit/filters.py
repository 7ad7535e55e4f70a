"""Filters on rows and their order, for the page, the Python API and MCP: one table of operations, their SQL in DuckDB.

    page               Python, MCP                    the rows whose value
    status:is:paid     ("status", "=", "paid")        is this one, in any spelling that PostgreSQL reads as it
    price:ge:10.00     ("price", ">=", "10.00")       is not less than this one
    name:has:desk      ("name", "contains", "desk")   contains this text
    note:null:         ("note", "is null", None)      is NULL

Order is compared only if that of the typed column is PostgreSQL's own (`values.equality`); text is compared byte by
byte, as under the collation C. A value that does not fit its typed column (`_raw`) is before or after all values that
do: `-infinity` and years BC before, the others after. An array is compared with a list only, as Python has it: its text
is not read.

A condition is on a row `h` that has `_raw` if a column of the condition may have such values.
"""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from auditlake.audit.row_key import input_text, read_value
from auditlake.errors import BadUsage
from auditlake.lake.duckdb_rows import bare, quoted, raw_entry, unpushed
from auditlake.lake.history import type_of
from auditlake.relation import Column
from auditlake.values.equality import has_order
from auditlake.values.exact_text import typed_values
from auditlake.values.types import BUILT_IN, Conversion


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: its name in URLs, its sign in Python and MCP, and its words on the page."""

    name: str
    sign: str
    words: str


OPERATIONS = (
    Operation("is", "=", "is"),
    Operation("isnot", "<>", "is not"),
    Operation("lt", "<", "<"),
    Operation("le", "<=", "≤"),
    Operation("gt", ">", ">"),
    Operation("ge", ">=", "≥"),
    Operation("has", "contains", "contains"),
    Operation("begins", "begins with", "begins with"),
    Operation("null", "is null", "is NULL"),
    Operation("notnull", "is not null", "is not NULL"),
)
_EQUAL, _PARTS, _NULLS = OPERATIONS[:2], OPERATIONS[6:8], OPERATIONS[8:]
_ORDERED = OPERATIONS[2:6]
_BY_NAME = {each.name: each for each in OPERATIONS}
_BY_SIGN = {each.sign: each for each in OPERATIONS}
_IN_URL = re.compile(rf":(?P<op>{'|'.join(_BY_NAME)})(?=:)")

Condition = tuple[str, list[Any]]
"""SQL with `?` for its values, and the values."""


def operations_of(column: Column) -> tuple[Operation, ...]:
    """Return the operations that a filter on this column may use."""
    kind = type_of(column).kind
    if kind is Conversion.ARRAY:
        return _NULLS
    ordered, parts = _ORDERED if has_order(*column.type) else (), _PARTS if kind is Conversion.TEXT else ()
    return (*_EQUAL, *ordered, *parts, *_NULLS)


def may_sort(column: Column) -> bool:
    """Return whether rows can be sorted by this column."""
    return type_of(column).kind is not Conversion.ARRAY


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter; `given` is the value as it was given, `value` the typed one, None if the type cannot represent it.

    `text` is the value as PostgreSQL prints it; "" if the operation takes none, or the value is a list.
    """

    column: Column
    operation: Operation
    given: Any
    text: str
    value: Any = field(compare=False)

    def __str__(self) -> str:
        return f"{self.column.name}:{self.operation.name}:{self.given}"

    def sql(self, fitting: Container[str] = ()) -> Condition:
        """Return the condition; every value of the columns `fitting` fits its type."""
        name, partial = f"h.{quoted(self.column)}", may_not_fit(self.column, fitting)
        absent = f"{name} is null{f' and {raw_entry(self.column)} is null' if partial else ''}"
        match self.operation.name:
            case "null":
                return f"({absent})", []
            case "notnull":
                return f"not ({absent})", []
            case "has" | "begins" as op:
                return f"{'contains' if op == 'has' else 'starts_with'}({name}, ?)", [self.text]
            case _:
                return self._compared(partial=partial)

    def _compared(self, *, partial: bool) -> Condition:
        name, entry, sign = f"h.{quoted(self.column)}", raw_entry(self.column), self.operation.sign
        if self.value is None:
            return f"({entry} {sign} ?{f' or {name} is not null' if sign == '<>' else ''})", [self.text]
        left = unpushed(name) if type_of(self.column).kind is Conversion.FLOAT else bare(self.column, name)
        condition = f"{left} {sign} {bare(self.column, '?')}"
        if sign == "=" or not partial:
            return condition, [self.value]
        outside = f"{entry} is not null" if sign == "<>" else f"{_place(self.column)} {sign} 0"
        return f"({condition} or {outside})", [self.value]


def may_not_fit(column: Column, fitting: Container[str] = ()) -> bool:
    """Return whether a row may have a value of the column in `_raw` alone."""
    return type_of(column).may_not_fit and column.stored not in fitting


def _place(column: Column) -> str:
    """Return SQL for the place of a value outside of its type: -1 before those that fit, 1 after them, else NULL."""
    entry = raw_entry(column)
    return f"case when {entry} like '-%' or {entry} like '% BC' then -1 when {entry} is not null then 1 end"


def parse_filters(given: Sequence[str], columns: Mapping[str, Column]) -> tuple[Filter, ...]:
    """Parse the filters of a URL; raises BadUsage."""
    return tuple(_parse(each, columns) for each in given)


def _parse(given: str, columns: Mapping[str, Column]) -> Filter:
    found = [(given[: m.start()], m["op"], given[m.end() + 1 :]) for m in _IN_URL.finditer(given) if m.start()]
    if not found:
        raise BadUsage("a filter is not in the form COLUMN:OP:VALUE", f"OP is one of {', '.join(_BY_NAME)}.")
    # The name of a column may contain what looks like an operation.
    name, op, value = next((each for each in found if each[0] in columns), found[0])
    return filter_on(column_named(name, columns), _BY_NAME[op], value)


def signed(sign: str) -> Operation:
    """Return the operation with a sign; raises BadUsage."""
    if sign not in _BY_SIGN:
        raise BadUsage(f"{sign} is not a comparison", f"Use one of {', '.join(_BY_SIGN)}.")
    return _BY_SIGN[sign]


def filter_on(column: Column, operation: Operation, given: Any = None) -> Filter:  # noqa: ANN401 - of any type
    """Return a filter; a text is read by the rules of the column's type. Raises BadUsage."""
    allowed = operations_of(column)
    if isinstance(given, list) and not may_sort(column):
        allowed = _EQUAL
    if operation not in allowed:
        signs = (f"{each.name} ({each.sign})" for each in allowed)
        raise BadUsage(f"{column.name} cannot be filtered by {operation.name}", f"It can by {', '.join(signs)}.")
    if operation in _NULLS:
        return Filter(column, operation, "", "", None)
    if given is None:
        raise BadUsage(f"{operation.sign} compares {column.name} with no value", "Use is null.")
    if operation in _PARTS:
        part = read_value(replace(column, type_oid=BUILT_IN["text"][0], typmod=-1), input_text(given))
        return Filter(column, operation, given, part.text, None)
    if isinstance(given, list) and not may_sort(column):
        return Filter(column, operation, given, "", given)
    text = read_value(column, input_text(given)).text
    value = typed_values(pa.array([text]), type_of(column))[0].as_py()
    if value is None and operation in _ORDERED:
        raise BadUsage(
            f"{column.name} cannot be compared with this value", "Compare with a finite one, of the years 1 to 9999."
        )
    return Filter(column, operation, given, text, value)


def column_named(name: str, columns: Mapping[str, Column]) -> Column:
    """Return the column of this name; raises BadUsage."""
    if name not in columns:
        raise BadUsage(f"there is no column {name} at this moment", f"The columns are {', '.join(columns)}.")
    return columns[name]


def sort_column(name: str, columns: Mapping[str, Column]) -> tuple[Column, bool]:
    """Parse `column` or `-column`; return the column, and whether the order is descending; raises BadUsage."""
    descending = name.startswith("-") and name not in columns
    column = column_named(name.removeprefix("-") if descending else name, columns)
    if not may_sort(column):
        raise BadUsage(f"{column.name} is an array, by which rows cannot be sorted", "Sort by another column.")
    return column, descending


def ordered(column: Column, *, descending: bool = False, fitting: Container[str] = ()) -> str:
    """Return the terms of ORDER BY for a column: NULL is last, first if descending, as in PostgreSQL."""
    way = "desc nulls first" if descending else "asc nulls last"
    name = f"h.{quoted(column)}"
    term = f"{bare(column, name)} {way}"
    if not may_not_fit(column, fitting):
        return term
    return f"case when {name} is not null then 0 else {_place(column)} end {way}, {term}"
