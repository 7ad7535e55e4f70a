"""Spark SQL expressions from PostgreSQL's text of a value to its typed value.

The text is PostgreSQL's output under datestyle ISO, timezone UTC and bytea_output hex, the settings of the stream's
connection; Spark's session has time zone UTC and ANSI mode. Text that is not a value of its type fails the job and
never becomes NULL. Only a value that its column cannot represent is NULL in the column, and exact in `_raw`.

Most values fit, so that test comes last: for a decimal only if the cast fails, for `_raw` only in rows with a NULL.
Spark compiles a stage into one method unless an expression is a lambda, so only arrays use lambdas.

Builds expressions only; `auditlake.values.types` maps columns to types.

Authority: postgresql.org/docs/current/datatype.html; spark.apache.org/docs/latest/sql-ref-ansi-compliance.html
"""

from __future__ import annotations  # types of Spark are imported for mypy only

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from auditlake.lake.history import type_of
from auditlake.relation import Column
from auditlake.spark import functions as F  # noqa: N812 - the usual name
from auditlake.values.types import DATE_LENGTH, NOT_FINITE, YEAR_LENGTH, ColumnType, Conversion

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression

_NO_DECIMAL = ",".join(NOT_FINITE)
_ELEMENT = '"[^"]*"|[^,{}"]+'
_NO_MAP = "cast(null as map<string,string>)"
# Delimiters: PostgreSQL's text never contains NUL, and an escaped byte (`values.escapes`) continues with x.
_ENTRY, _PAIR = "\0e", "\0p"


def typed_value(column: Column, text: Expression) -> Expression:
    """Return the typed value of `text`, NULL if the text is NULL or does not fit."""
    held = type_of(column)
    typed = _typed(held, text, column.name)
    if held.kind is Conversion.DECIMAL:  # a text that fits but cannot be cast still fails
        return F.coalesce(text.try_cast(held.delta), F.when(_fits(held, text), typed))
    return F.when(_fits(held, text), typed) if held.may_not_fit else typed


def raw(column: Column, text: Expression) -> Expression:
    """Return the text if the typed column cannot represent it, else NULL."""
    held = type_of(column)
    if not held.may_not_fit:
        return F.lit(None).cast("string")
    return F.when(~_fits(held, text), text)


def raw_of(column: Column, raw_map_: Expression) -> Expression:
    """Return a column's exact text in a history's `_raw`, else NULL."""
    return raw_map_[column.stored] if type_of(column).may_not_fit else F.lit(None).cast("string")


def distinct_text(held: ColumnType, typed: Expression) -> Expression:
    """Return a text of a typed value that no other value of the type has; unlike `=` it distinguishes -0 from 0."""
    match held.kind:
        case Conversion.BYTEA:
            return F.hex(typed)
        case Conversion.ARRAY if held.element is not None:
            element = held.element
            return F.array_join(F.transform(typed, lambda each: delimited(distinct_text(element, each))), "")
        case _:
            return typed.cast("string")


def delimited(text: Expression) -> Expression:
    """Prefix text with its length, so that concatenations are unambiguous; NULL becomes text too."""
    return F.coalesce(F.concat(F.length(text).cast("string"), F.lit(":"), text), F.lit("n"))


def _fits(held: ColumnType, text: Expression) -> Expression:
    """Return whether the type can represent this value; NULL for NULL."""
    match held.kind:
        case Conversion.DECIMAL:
            return F.find_in_set(text, F.lit(_NO_DECIMAL)) == 0
        case Conversion.DATE:
            return F.octet_length(text) == DATE_LENGTH
        case Conversion.TIMESTAMP | Conversion.TIMESTAMPTZ:
            return (F.instr(text, "-") == YEAR_LENGTH + 1) & ~text.endswith(" BC")
        case Conversion.ARRAY:
            return _array_fits(held, text)
        case _:
            return text.isNotNull()


def raw_entries(columns: Mapping[str, tuple[Expression, Expression]]) -> Expression:
    """Return `_raw`: name and exact text of every typed value that is NULL while its text is not; NULL without any.

    `columns` maps stored names to typed value and exact text.
    """
    if not columns:
        return F.expr(_NO_MAP)
    texts = {name: F.when(value.isNull(), text) for name, (value, text) in columns.items()}
    needed = F.coalesce(*texts.values()).isNotNull()
    entries = (F.concat(F.lit(f"{name}{_PAIR}"), text) for name, text in texts.items())
    found = F.str_to_map(F.concat_ws(_ENTRY, *entries), F.lit(_ENTRY), F.lit(_PAIR))
    return F.when(_any([value.isNull() for value, _ in columns.values()]), F.when(needed, found))


def _any(conditions: Sequence[Expression]) -> Expression:
    """Combine conditions with OR as a balanced tree: a chain of a thousand overflows Spark's stack."""
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return _any(conditions[:half]) | _any(conditions[half:])


def _typed(held: ColumnType, text: Expression, name: str) -> Expression:
    match held.kind:
        case Conversion.TEXT:
            return text
        case Conversion.BYTEA:
            digits = F.when(text.startswith("\\x"), F.substring(text, 3, 2**31 - 1))
            return F.when(text.isNotNull(), F.to_binary(F.coalesce(digits, _not_hex(name)), F.lit("hex")))
        case Conversion.ARRAY if held.element is not None:
            element = held.element
            return F.transform(_elements(text), lambda each: _typed(element, each, name))
        case _:
            return text.cast(held.delta)


def _not_hex(name: str) -> Expression:
    return F.raise_error(F.lit(f"a value of column {name} is not bytea in hex form")).cast("string")


def _array_fits(held: ColumnType, text: Expression) -> Expression:
    flat = text.startswith("{") & ~text.startswith("{{")
    element = held.element
    if element is None or not element.may_not_fit:
        return flat
    return flat & F.forall(_elements(text), lambda each: each.isNull() | _fits(element, each))


def _elements(text: Expression) -> Expression:
    """Return the texts of a one-dimensional array's elements.

    Escapes are first replaced by NUL and b or q, which the text never contains; every quote left is then a delimiter.
    """
    plain = F.replace(F.replace(text, F.lit("\\\\"), F.lit("\0b")), F.lit('\\"'), F.lit("\0q"))
    return F.transform(F.regexp_extract_all(plain, F.lit(_ELEMENT), F.lit(0)), _element)


def _element(matched: Expression) -> Expression:
    inside = F.substring(matched, F.lit(2), F.length(matched) - 2)
    quoted = F.replace(F.replace(inside, F.lit("\0q"), F.lit('"')), F.lit("\0b"), F.lit("\\"))
    return F.when(matched.startswith('"'), quoted).when(matched != "NULL", matched)
