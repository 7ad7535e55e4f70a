"""Filters on rows and their order, for the page, the Python API and MCP: one table of operations, their SQL in DuckDB.

    page               Python, MCP                    the rows whose value
    status:is:paid     ("status", "=", "paid")        is this one, in any spelling that PostgreSQL reads as it
    price:ge:10.00     ("price", ">=", "10.00")       is not less than this one
    name:has:desk      ("name", "contains", "desk")   contains this text
    note:null:         ("note", "is null", None)      is NULL

Values are compared, and rows sorted, by `lake.comparison_keys`, which have PostgreSQL's equality and order; a column of
a type without such a key has neither operation. Text is compared byte by byte, as under the collation C. A value that
does not fit its typed column (`_raw`) is before or after all values that do: `-infinity` and years BC before, the
others after. An array is compared with a list only, as Python has it: its text is not read.

Pages are sorted by the key, too, if its type has no such order: then by what the history has, texts byte by byte
(`ordered`), and `beside` finds a place in that order.

A condition is on a row `h` that has `_raw` if a column of the condition may have such values.
"""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import copysign
from typing import Any

import pyarrow as pa

from auditlake.audit.row_key import input_text, read_value
from auditlake.errors import BadUsage
from auditlake.lake.comparison_keys import (
    compared_sql,
    compared_text_sql,
    has_own_key,
    is_equal_by_key,
    is_ordered_by_key,
)
from auditlake.lake.duckdb_rows import bare, is_float, quoted, raw_entry
from auditlake.lake.history import type_of
from auditlake.relation import Column
from auditlake.sql_names import duckdb_literal
from auditlake.values.equality import printed
from auditlake.values.exact_text import typed_values
from auditlake.values.input_syntax import type_name
from auditlake.values.types import BUILT_IN, Conversion, element_of


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
    if is_array(column):
        return _NULLS
    equal, ordered = _EQUAL if is_equal_by_key(column) else (), _ORDERED if may_sort(column) else ()
    parts = _PARTS if type_of(column).kind is Conversion.TEXT else ()
    return (*equal, *ordered, *parts, *_NULLS)


def is_array(column: Column) -> bool:
    """Return whether values are arrays."""
    return type_of(column).kind is Conversion.ARRAY


def may_sort(column: Column) -> bool:
    """Return whether rows can be sorted by this column, as PostgreSQL sorts them."""
    return not is_array(column) and is_ordered_by_key(column)


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter; `given` is the value as it was given, `value` the typed one, None if the type cannot represent it.

    `text` is the value as PostgreSQL prints it; "" if the operation takes none, or the value is a list. `key` is SQL of
    the value's key, None if that is `value`; `by_text`: values are compared by their text, `signed`: -0 is not 0.
    """

    column: Column
    operation: Operation
    given: Any
    text: str
    value: Any = field(compare=False)
    key: str | None = field(default=None, compare=False)
    by_text: bool = False
    signed: bool = False

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
        if self.key is not None:
            return f"{compared_sql(self.column, name)} {sign} {self.key}", []
        if self.value is None and sign in _BY_PLACE:
            return f"{_place(name, entry)} {sign} {_place('null', duckdb_literal(self.text))}", []
        if self.value is None:
            return f"({entry} {sign} ?{f' or {name} is not null' if sign == '<>' else ''})", [self.text]
        left = _by_text(self.column, name) if self.by_text else compared_sql(self.column, name)
        value, bound = _parameter(self.value)
        condition = f"{left} {sign} {bare(self.column, value)}"
        if self.signed and is_float(self.column):
            zeros, signs = _signs(name, self.value)
            condition, bound = f"({condition} and {zeros})", [*bound, *signs]
        if sign == "=" or not partial:
            return condition, bound
        outside = f"{entry} is not null"
        if sign != "<>":
            outside += f" and {_place(name, entry)} {sign} {_FITTING}"
        return f"({condition} or {outside})", bound


def _signs(name: str, value: Any) -> Condition:  # noqa: ANN401 - a float, or a list of them
    """Return the condition that an equal float, or array of floats, has -0 in the same places."""
    values = value if isinstance(value, list) else [value]
    shown = name if isinstance(value, list) else f"[{name}]"
    signs = [each is not None and each == 0 and copysign(1, each) < 0 for each in values]
    zeros = f"list_transform({shown}, lambda x: coalesce(x = 0 and signbit(x), false))"
    return f"{zeros} = cast(? as boolean[])", [signs]


def _parameter(value: Any) -> Condition:  # noqa: ANN401 - of any type
    """Return SQL for a value: DuckDB would take NaN in a list of Python's for NULL."""
    if not isinstance(value, list) or not any(isinstance(each, float) for each in value):
        return "?", [value]
    elements = ("null" if each is None else f"cast('{each!r}' as double)" for each in value)
    return f"[{', '.join(elements)}]", []


def _by_text(column: Column, value: str) -> str:
    return (bare if has_own_key(column) else compared_sql)(column, value)


def may_not_fit(column: Column, fitting: Container[str] = ()) -> bool:
    """Return whether a row may have a value of the column in `_raw` alone."""
    return type_of(column).may_not_fit and column.stored not in fitting


_FITTING = "'2'"
_BY_PLACE = frozenset(each.sign for each in _ORDERED)


def _place(name: str, entry: str) -> str:
    """Return SQL for the place of a value in the order of those that fit, which are at `_FITTING`; NULL for NULL.

    `entry` is SQL of its text if it does not fit. Years BC count backwards; the rest of a date or time sorts as its
    text.
    """
    year, rest = f"regexp_extract({entry}, '^[0-9]+')", f"regexp_replace({entry}, '^[0-9]+', '')"
    before = f"lpad(cast(99999999 - cast({year} as bigint) as varchar), 8, '0')"
    return (
        f"case when {name} is not null then {_FITTING} when {entry} like '-%' then '0'"
        f" when {entry} like '% BC' then '1' || {before} || {rest}"
        f" when {entry} = 'NaN' then '5' when lower({entry}) = 'infinity' then '4'"
        f" when {entry} is not null then '3' || lpad({year}, 8, '0') || {rest} end"
    )


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
    if is_array(column) and isinstance(given, list):
        return _list_filter(column, operation, given)
    if operation not in allowed:
        signs = (f"{each.name} ({each.sign})" for each in allowed)
        kind = type_name(*column.type)
        raise BadUsage(
            f"{column.name} ({kind}) cannot be filtered by {operation.name}", f"It can by {', '.join(signs)}."
        )
    if operation in _NULLS:
        return Filter(column, operation, "", "", None)
    if given is None:
        raise BadUsage(f"{operation.sign} compares {column.name} with no value", "Use is null.")
    if operation in _PARTS:
        part = read_value(replace(column, type_oid=BUILT_IN["text"][0], typmod=-1), input_text(given))
        return Filter(column, operation, given, part.text, None)
    text, key = _compared_value(column, input_text(given))
    value = None if key else _typed(column, text)
    return Filter(column, operation, given, text, value, key)


def text_filter(column: Column, given: str) -> Filter:
    """Return a filter of the values with the text of this one, as PostgreSQL prints it; raises BadUsage."""
    return replace(_by_place(column, _EQUAL[0], given), signed=True)


def _by_place(column: Column, operation: Operation, given: str) -> Filter:
    text = read_value(column, given).text
    try:
        value = _typed(column, text)
    except (ValueError, IndexError) as exc:
        raise _unread(column) from exc
    return Filter(column, operation, given, text, value, by_text=True)


def _compared_value(column: Column, given: str) -> tuple[str, str | None]:
    """Return PostgreSQL's text of a value, and SQL of its key if that is not its typed value; raises BadUsage."""
    read = read_value(column, given)
    try:
        key = compared_text_sql(column, read.text)
        if key is not None or read.exact or type_of(column).kind is not Conversion.TEXT:
            return read.text, key
        return printed(*column.type, read.text), None
    except ValueError as exc:
        raise _unread(column) from exc


def _unread(column: Column) -> BadUsage:
    kind = type_name(*column.type)
    return BadUsage(f"the value for {column.name} is not known to be a {kind}", "Write it as PostgreSQL prints it.")


def _list_filter(column: Column, operation: Operation, given: list[Any]) -> Filter:
    """Return a filter of arrays by the elements of one; raises BadUsage."""
    of_element = replace(column, type_oid=element_of(column.type_oid) or 0)
    floats = type_of(of_element).kind is Conversion.FLOAT
    if operation not in _EQUAL or floats or has_own_key(of_element) or not is_equal_by_key(of_element):
        raise BadUsage(
            f"{column.name} ({type_name(*column.type)}) cannot be filtered by {operation.name} with a list",
            "Compare arrays of types whose equal values have one text, by = or <>.",
        )
    elements = [None if each is None else _compared_value(of_element, input_text(each))[0] for each in given]
    value = typed_values(pa.array(elements, pa.string()), type_of(of_element)).to_pylist()
    if any(typed is None and each is not None for typed, each in zip(value, elements, strict=True)):
        raise BadUsage(f"{column.name} cannot be compared with this value", "Compare with finite ones.")
    return Filter(column, operation, given, "", value)


def _typed(column: Column, text: str) -> Any:  # noqa: ANN401 - of any type
    return typed_values(pa.array([text]), type_of(column))[0].as_py()


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
        kind = type_name(*column.type)
        raise BadUsage(f"rows cannot be sorted by {column.name} ({kind})", "Sort by another column.")
    return column, descending


def ordered(column: Column, *, descending: bool = False, fitting: Container[str] = ()) -> str:
    """Return the terms of ORDER BY for a column: NULL is last, first if descending, as in PostgreSQL."""
    way = "desc nulls first" if descending else "asc nulls last"
    name = f"h.{quoted(column)}"
    term = f"{(compared_sql if may_sort(column) else _by_text)(column, name)} {way}"
    if not may_not_fit(column, fitting):
        return term
    return f"{_place(name, raw_entry(column))} {way}, {term}"


def beside(column: Column, sign: str, text: str) -> Filter:
    """Return a filter of the rows that are at the place of a value in the order of `ordered`, or beyond it.

    `sign` is =, < or >. The value is given as PostgreSQL prints it if values of its type are not sorted here. Raises
    BadUsage.
    """
    operation = signed(sign)
    if may_sort(column):
        return filter_on(column, operation, text)
    return _by_place(column, operation, text)
