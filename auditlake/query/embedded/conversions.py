"""Casts of Spark SQL that are exact, and literals: numbers, dates and timestamps in their ISO form. Pure."""

import re
from calendar import monthrange
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from sqlglot import exp

from auditlake.delta.sql import duckdb_type
from auditlake.query.embedded.arithmetic import BIGINT_MAX
from auditlake.query.embedded.cells import NotEmbedded, SparkCell
from auditlake.query.embedded.spark_types import INTEGRAL, common_kind, decimal_kind, is_decimal

_INT_MAX = 2**31 - 1
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d:\d\d)(\.\d{1,6})?)?")


def integer(value: int) -> SparkCell:
    """Return an integer of the least type that holds it; raises NotEmbedded."""
    if not -BIGINT_MAX - 1 <= value <= BIGINT_MAX:
        raise NotEmbedded(f"the literal {value}")
    kind = "int" if -_INT_MAX - 1 <= value <= _INT_MAX else "bigint"
    return SparkCell(f"cast({value} as {duckdb_type(kind)})", kind, str(value), number=value)


def common_of(cells: Sequence[SparkCell]) -> str:
    """Return the type of a column of such values; raises NotEmbedded."""
    kind = cells[0].kind
    for cell in cells[1:]:
        wider = common_kind(kind, cell.kind)
        if wider is None:
            raise NotEmbedded(f"{kind} beside {cell.kind}")
        kind = wider
    return kind


def literals_as(cells: Sequence[SparkCell]) -> list[SparkCell]:
    """Read string literals as dates or timestamps, if they are compared with one."""
    kinds = {cell.kind for cell in cells if cell.text is None}
    moments = kinds & {"date", "timestamp", "timestamp_ntz"}
    if len(moments) != 1 or all(cell.text is None for cell in cells):
        return list(cells)
    (kind,) = moments
    return [cell if cell.text is None else moment_of(cell, kind) for cell in cells]


def moment_of(cell: SparkCell, kind: str) -> SparkCell:
    """Read a literal in its ISO form."""
    text = cell.text or ""
    try:
        if kind == "date" and _DATE.fullmatch(text):
            return SparkCell(f"date '{date.fromisoformat(text).isoformat()}'", "date")
        if kind != "date" and (match := _TIME.fullmatch(text)):
            whole = f"{match[1]}T{match[2] or '00:00:00'}{(match[3] or '.0').ljust(7, '0')}"
            moment = datetime.fromisoformat(whole).replace(tzinfo=UTC).isoformat(sep=" ", timespec="microseconds")
            form = f"timestamptz '{moment}'" if kind == "timestamp" else f"timestamp '{moment[:-6]}'"
            return SparkCell(form, kind)
    except ValueError:
        pass
    raise NotEmbedded(f"a literal of {kind} in another form than ISO")


def later(day: date, unit: str, count: int) -> str:
    """Add days, months or years to a date; raises NotEmbedded if the result is no date of the years 1 to 9999."""
    try:
        if unit == "DAY":
            return (day + timedelta(days=count)).isoformat()
        year, month = divmod(day.year * 12 + day.month - 1 + count * (12 if unit == "YEAR" else 1), 12)
        return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1])).isoformat()
    except (ValueError, OverflowError) as exc:
        raise NotEmbedded("a date outside of the years 1 to 9999") from exc


_CASTS = {
    "smallint": {"smallint", "int", "bigint", "double", "string"},
    "int": {"smallint", "int", "bigint", "double", "string"},
    "bigint": {"smallint", "int", "bigint", "double", "string"},
    "double": {"double"},
    "float": {"float"},
    "string": {"string"},
    "boolean": {"boolean", "string"},
    "date": {"date", "string"},
    "timestamp": {"timestamp", "date"},
    "timestamp_ntz": {"timestamp_ntz"},
}


def is_exact_cast(kind: str, to: str) -> bool:
    """Return whether a cast means the same in both engines."""
    if is_decimal(to):
        return kind in INTEGRAL or is_decimal(kind)
    if is_decimal(kind):
        return to == "string"
    return to in _CASTS.get(kind, set())


_TYPE_NAMES = {
    exp.DType.SMALLINT: "smallint",
    exp.DType.INT: "int",
    exp.DType.BIGINT: "bigint",
    exp.DType.DOUBLE: "double",
    exp.DType.TEXT: "string",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMPTZ: "timestamp",
}


def type_named(node: exp.Expr) -> str:
    """Return the type that a cast names; raises NotEmbedded."""
    sizes = [int(str(each.this.this)) for each in node.expressions]
    kind = _TYPE_NAMES.get(node.this) if not sizes else None
    if node.this == exp.DType.DECIMAL and len(sizes) == 2 and 0 < sizes[0] >= sizes[1]:  # noqa: PLR2004
        kind = decimal_kind(sizes[0], sizes[1])
    if kind is None:
        raise NotEmbedded(f"CAST to {node.sql('spark').lower()}")
    return kind
