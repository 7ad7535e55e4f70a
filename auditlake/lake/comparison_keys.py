"""Keys in DuckDB by which values of a column compare as PostgreSQL compares them, if their shown form does not.

    numeric without a scale  its text: sign, number of digits before the point, digits, complemented below zero
    money                    its text: cents
    interval                 its text: microseconds, with months of 30 days of 24 hours
    jsonb                    its text: the same without zeros at the end of fractions; for equality only
    float, arrays of floats  the value, but 0 for -0; DuckDB shows a column by its key of an order, and the scan of a
                             file or of Arrow does not filter by it (`duckdb_rows.unpushed`)
    char(n)                  without the trailing blanks

Every other type is compared by what a history has of it, if `values.equality` says so of the type. Pure.

Authority: src/backend/utils/adt/numeric.c, `cmp_numerics`; timestamp.c, `interval_cmp_value`; jsonb_util.c
"""

from auditlake.lake.duckdb_rows import bare, is_float, unpushed
from auditlake.lake.history import type_of
from auditlake.relation import Column
from auditlake.sql_names import duckdb_literal
from auditlake.values.equality import can_be_given, has_equality, has_order, is_grouped
from auditlake.values.intervals import read_interval
from auditlake.values.types import BUILT_IN, Conversion, is_built_in

ENUM = "enum"
"""`Column.compared` of an enum."""
_NUMERIC, _MONEY, _INTERVAL, _JSONB = (BUILT_IN[name][0] for name in ("numeric", "money", "interval", "jsonb"))
_FARTHEST = 10**30
"""Longer than every finite interval, in microseconds; a HUGEINT has it."""
_FRACTIONS = r"""("(?:[^"\\]|\\.)*")|([0-9]+\.[0-9]*[1-9])0*|([0-9]+)\.0+"""


def is_equal_by_key(column: Column) -> bool:
    """Return whether two values are equal in PostgreSQL if and only if their keys are; not of arrays."""
    if not is_built_in(column.type_oid):
        return column.compared == ENUM
    if column.compared is not None:
        return False
    return has_own_key(column) or (has_equality(*column.type) and can_be_given(column.type_oid))


def is_grouped_by_key(column: Column) -> bool:
    """Return whether values are in one group of GROUP BY if and only if their keys are equal.

    Of a type that PostgreSQL does not group, the texts are the keys. Arrays of floats are not known: `_raw` has -0.
    """
    if column.compared not in {None, ENUM}:
        return False
    element = type_of(column).element
    if not is_grouped(column.type_oid) or has_own_key(column):
        return True
    return has_equality(*column.type) and (element is None or element.kind is not Conversion.FLOAT)


def is_ordered_by_key(column: Column) -> bool:
    """Return whether values have the order of their keys."""
    if column.compared is not None or not is_built_in(column.type_oid):
        return False
    return (has_own_key(column) and column.type_oid != _JSONB) or has_order(*column.type)


def has_own_key(column: Column) -> bool:
    """Return whether values are texts whose key is another one."""
    return type_of(column).kind is Conversion.TEXT and column.type_oid in _KEYS


def compared_sql(column: Column, value: str) -> str:
    """Return SQL for the key of a value, which is SQL that may be repeated."""
    if has_own_key(column):
        return _KEYS[column.type_oid](value)
    return _number(column, value) if is_float(column) else bare(column, value)


def _number(column: Column, value: str) -> str:
    return unpushed(value) if type_of(column).element is None else f"list_transform({value}, lambda x: {unpushed('x')})"


def compared_text_sql(column: Column, text: str) -> str | None:
    """Return SQL for the key of PostgreSQL's text of a value; None if its typed value is the key.

    Raises ValueError for an interval in a form that is not read here.
    """
    if column.type_oid == _INTERVAL:
        return str(length_of_interval(text))
    return compared_sql(column, duckdb_literal(text)) if has_own_key(column) else None


def length_of_interval(text: str) -> int:
    """Return an interval in microseconds; raises ValueError."""
    if text.strip().lower() in {"infinity", "-infinity"}:
        return -_FARTHEST if text.strip().startswith("-") else _FARTHEST
    try:
        months, days, micros = read_interval(text)
    except ValueError:
        raise ValueError("an interval such as '1 day 02:30:00'") from None
    return (months * 30 + days) * 86_400_000_000 + micros


def _of_numeric(value: str) -> str:
    size = f"ltrim({value}, '-')"
    body = f"if(contains({value}, '.'), rtrim(rtrim({size}, '0'), '.'), {size})"
    whole = f"lpad(cast(length(split_part({size}, '.', 1)) as varchar), 6, '0') || {body}"
    below = f"'1' || translate({whole}, '0123456789', '9876543210') || '~'"
    return (
        f"case {value} when 'NaN' then '4' when 'Infinity' then '3' when '-Infinity' then '0'"
        f" else if(starts_with({value}, '-'), {below}, '2' || {whole}) end"
    )


def _of_money(value: str) -> str:
    return f"cast(translate({value}, '$,.', '') as bigint)"


def _of_interval(value: str) -> str:
    def number(pattern: str, size: int) -> str:
        return f"coalesce(try_cast(regexp_extract({value}, '{pattern}', 1) as hugeint), 0) * {size}"

    days = " + ".join(number(f"([+-]?[0-9]+) {unit}", size) for unit, size in (("year", 360), ("mon", 30), ("day", 1)))
    clock = (
        number("([0-9]+):[0-9]{2}:", 3_600_000_000),
        number(":([0-9]{2}):", 60_000_000),
        number(":[0-9]{2}:([0-9]{2})", 1_000_000),
        f"coalesce(try_cast(rpad(regexp_extract({value}, '[.]([0-9]+)$', 1), 6, '0') as hugeint), 0)",
    )
    sign = f"if(regexp_matches({value}, '-[0-9]+:'), -1, 1)"
    finite = f"({days}) * 86400000000 + {sign} * ({' + '.join(clock)})"
    infinite = f"when {value} = 'infinity' then {_FARTHEST} when {value} = '-infinity' then -{_FARTHEST}"
    return f"case {infinite} when {value} is not null then {finite} end"


def _of_jsonb(value: str) -> str:
    return rf"regexp_replace({value}, '{_FRACTIONS}', '\1\2\3', 'g')"


_KEYS = {_NUMERIC: _of_numeric, _MONEY: _of_money, _INTERVAL: _of_interval, _JSONB: _of_jsonb}
