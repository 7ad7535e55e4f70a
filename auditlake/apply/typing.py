"""PostgreSQL's text of a value as a Spark SQL expression of its typed value.

The text is what PostgreSQL prints under datestyle ISO, timezone UTC and bytea_output hex, which is how the stream is
asked for it; Spark's session has time zone UTC and ANSI mode. Text that is not such a value fails the job: it never
becomes NULL. Only a value that its column cannot hold is NULL in the column, and exact in `_raw`.

Builds expressions only; which column has which type is `auditlake.pgtypes`.

Authority: postgresql.org/docs/current/datatype.html; spark.apache.org/docs/latest/sql-ref-ansi-compliance.html
"""

from collections.abc import Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.lake.history import type_of
from auditlake.pgtypes import Kind
from auditlake.relation import Column

_NO_DECIMAL = ("NaN", "Infinity", "-Infinity")
_ISO_DATE_LENGTH = len("2026-11-21")
_YEAR_END = 5  # of 'YYYY-': a longer year, 'infinity' and '-infinity' have another character there


def value(column: Column, text: Expression) -> Expression:
    """The typed value of `text`; NULL where the text is NULL or does not fit."""
    typed = _typed(column, text)
    return F.when(fits(column, text), typed) if type_of(column).may_not_fit else typed


def raw(column: Column, text: Expression) -> Expression:
    """The text where the typed column cannot hold it, else NULL."""
    if not type_of(column).may_not_fit:
        return F.lit(None).cast("string")
    return F.when(~fits(column, text), text)


def fits(column: Column, text: Expression) -> Expression:
    """Whether the column's type holds this value; NULL for NULL."""
    match type_of(column).kind:
        case Kind.DECIMAL:
            return ~text.isin(*_NO_DECIMAL)
        case Kind.DATE:
            return F.length(text) == _ISO_DATE_LENGTH
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            return (F.substring(text, _YEAR_END, 1) == "-") & ~text.endswith(" BC")
        case _:
            return text.isNotNull()


def raw_map(columns: Sequence[Column], raws: Sequence[Expression]) -> Expression:
    """`_raw`: the name and exact text of every value in `raws` that is not NULL; NULL when there is none."""
    partial = [(column, text) for column, text in zip(columns, raws, strict=True) if type_of(column).may_not_fit]
    if not partial:
        return F.lit(None).cast("map<string,string>")
    entries = [
        F.when(text.isNotNull(), F.struct(F.lit(column.name).alias("name"), text.alias("text")))
        for column, text in partial
    ]
    needed = F.coalesce(*(text for _, text in partial)).isNotNull()
    return F.when(needed, F.map_from_entries(F.array_compact(F.array(*entries))))


def _typed(column: Column, text: Expression) -> Expression:
    kind, delta = type_of(column).kind, type_of(column).delta
    match kind:
        case Kind.TEXT:
            return text
        case Kind.BYTEA:
            digits = F.when(text.startswith("\\x"), F.substring(text, 3, 2**31 - 1))
            return F.when(text.isNotNull(), F.to_binary(F.coalesce(digits, _not_hex(column)), F.lit("hex")))
        case _:
            return text.cast(delta)


def _not_hex(column: Column) -> Expression:
    return F.raise_error(F.lit(f"a value of column {column.name} is not bytea in hex form")).cast("string")
