"""PostgreSQL's text of a value as a Spark SQL expression of its typed value.

The text is what PostgreSQL prints under datestyle ISO, timezone UTC and bytea_output hex, which is how the stream is
asked for it; Spark's session has time zone UTC and ANSI mode. Text that is not such a value fails the job: it never
becomes NULL. Only a value that its column cannot hold is NULL in the column, and exact in `_raw`.

Most values fit, so whether one does is asked last: a decimal is looked at where it could not be read, and `_raw` is
thought of in rows with a NULL. Spark compiles a stage into one method, unless one of its expressions is a lambda; so
none is here but for arrays.

Builds expressions only; which column has which type is `auditlake.values.types`.

Authority: postgresql.org/docs/current/datatype.html; spark.apache.org/docs/latest/sql-ref-ansi-compliance.html
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.lake.history import type_of
from auditlake.relation import Column
from auditlake.values.types import ColumnType, Kind

_NO_DECIMAL = "NaN,Infinity,-Infinity"
_ISO_DATE_LENGTH = len("2026-11-21")
_ELEMENT = '"[^"]*"|[^,{}"]+'
_YEAR_END = 5  # where the first hyphen of 'YYYY-' is, and not that of a longer year, 'infinity' or '-infinity'
_NO_MAP = "cast(null as map<string,string>)"
# No text of PostgreSQL contains NUL, so nothing else can be taken for these.
_ENTRY, _PAIR = "\0e", "\0p"


def value(column: Column, text: Expression) -> Expression:
    """The typed value of `text`; NULL where the text is NULL or does not fit."""
    held = type_of(column)
    typed = _typed(held, text, column.name)
    if held.kind is Kind.DECIMAL:  # what fits and cannot be read still fails
        return F.coalesce(text.try_cast(held.delta), F.when(fits(held, text), typed))
    return F.when(fits(held, text), typed) if held.may_not_fit else typed


def raw(column: Column, text: Expression) -> Expression:
    """The text where the typed column cannot hold it, else NULL."""
    held = type_of(column)
    if not held.may_not_fit:
        return F.lit(None).cast("string")
    return F.when(~fits(held, text), text)


def raw_of(column: Column, raw_map_: Expression) -> Expression:
    """The exact text of a column in a history's `_raw`, else NULL."""
    return raw_map_[column.stored] if type_of(column).may_not_fit else F.lit(None).cast("string")


def spelled(held: ColumnType, typed: Expression) -> Expression:
    """A typed value as text that no other value of the type has: -0 is not 0 here, as `=` would have it."""
    match held.kind:
        case Kind.BYTEA:
            return F.hex(typed)
        case Kind.ARRAY if held.element is not None:
            element = held.element
            return F.array_join(F.transform(typed, lambda each: delimited(spelled(element, each))), "")
        case _:
            return typed.cast("string")


def delimited(text: Expression) -> Expression:
    """Text that can be strung together with others without doubt where it ends; NULL becomes text too."""
    return F.coalesce(F.concat(F.length(text).cast("string"), F.lit(":"), text), F.lit("n"))


def fits(held: ColumnType, text: Expression) -> Expression:
    """Whether the type holds this value; NULL for NULL."""
    match held.kind:
        case Kind.DECIMAL:
            return F.find_in_set(text, F.lit(_NO_DECIMAL)) == 0
        case Kind.DATE:
            return F.octet_length(text) == _ISO_DATE_LENGTH
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            return (F.instr(text, "-") == _YEAR_END) & ~text.endswith(" BC")
        case Kind.ARRAY:
            return _array_fits(held, text)
        case _:
            return text.isNotNull()


def raw_map(columns: Mapping[str, tuple[Expression, Expression]]) -> Expression:
    """`_raw`: the name and exact text of every value that is NULL and whose text is not; NULL when there is none.

    `columns` gives typed value and exact text by stored name.
    """
    if not columns:
        return F.expr(_NO_MAP)
    texts = {name: F.when(value.isNull(), text) for name, (value, text) in columns.items()}
    needed = F.coalesce(*texts.values()).isNotNull()
    entries = (F.concat(F.lit(f"{name}{_PAIR}"), text) for name, text in texts.items())
    found = F.str_to_map(F.concat_ws(_ENTRY, *entries), F.lit(_ENTRY), F.lit(_PAIR))
    return F.when(_any([value.isNull() for value, _ in columns.values()]), F.when(needed, found))


def _any(conditions: Sequence[Expression]) -> Expression:
    """Join them in halves: a thousand joined one after the other overflow Spark's stack."""
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return _any(conditions[:half]) | _any(conditions[half:])


def _typed(held: ColumnType, text: Expression, name: str) -> Expression:
    match held.kind:
        case Kind.TEXT:
            return text
        case Kind.BYTEA:
            digits = F.when(text.startswith("\\x"), F.substring(text, 3, 2**31 - 1))
            return F.when(text.isNotNull(), F.to_binary(F.coalesce(digits, _not_hex(name)), F.lit("hex")))
        case Kind.ARRAY if held.element is not None:
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
    return flat & F.forall(_elements(text), lambda each: each.isNull() | fits(element, each))


def _elements(text: Expression) -> Expression:
    """The texts of a flat array's elements.

    Escapes are first spelled with NUL, which no text of PostgreSQL contains: every quote left then delimits.
    """
    plain = F.replace(F.replace(text, F.lit("\\\\"), F.lit("\0b")), F.lit('\\"'), F.lit("\0q"))
    return F.transform(F.regexp_extract_all(plain, F.lit(_ELEMENT), F.lit(0)), _element)


def _element(found: Expression) -> Expression:
    inside = F.substring(found, F.lit(2), F.length(found) - 2)
    quoted = F.replace(F.replace(inside, F.lit("\0q"), F.lit('"')), F.lit("\0b"), F.lit("\\"))
    return F.when(found.startswith('"'), quoted).when(found != "NULL", found)
