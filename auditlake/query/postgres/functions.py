"""Functions that are translated: for each name the types of its arguments, its result, and DuckDB's text. Data. Pure.

Authority: postgresql.org/docs/current/functions-string.html, functions-math.html, functions-datetime.html
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from zoneinfo import available_timezones

from sqlglot import exp

from auditlake.query.postgres.cells import Cell, Refused, construct
from auditlake.query.postgres.conversions import as_text, coerced, failed, known, padded, with_elements_like, with_year
from auditlake.query.postgres.growth import MOST_BYTES, TOO_LONG, held, joined, may_be_long
from auditlake.query.postgres.types import BOOL, BYTEA, FLOAT8, INT4, INTEGERS, JSONB, NUMERIC, TEXT, Type, decimal
from auditlake.sql_names import standard_literal

_CALLED: tuple[type[exp.Func], ...] = (
    *(exp.Lower, exp.Upper, exp.Length, exp.MD5, exp.Reverse, exp.Left, exp.Right, exp.Repeat, exp.Replace),
    *(exp.SplitPart, exp.StartsWith, exp.Abs, exp.Floor, exp.Ceil, exp.Round, exp.Trunc, exp.Sign, exp.Sqrt),
    *(exp.ArrayToString, exp.ArrayPosition),
)
CALLS: dict[type[exp.Expr], str] = {each: each.sql_name().lower() for each in _CALLED}
CALLS |= {exp.StrPosition: "strpos", exp.ArraySize: "array_length"}
"""PostgreSQL's names of functions that have nodes of their own in sqlglot, which lists their arguments in order."""

SPELLINGS = {"char_length": "length", "character_length": "length", "substr": "substring", "ceiling": "ceil"}
"""Functions that are one."""


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a function: the types of its arguments, and its text with the arguments in braces."""

    takes: tuple[Type, ...]
    gives: Type
    sql: str


_WHOLE_TEXT = "case when {1} = '' and {0} is not null then 1 else strpos({0}, {1}) end"
_PART = (
    "case when {2} = 0 and {0} is not null and {1} is not null then "
    + failed("field position must not be zero")
    + " when {1} = ''"
    " then case when {2} in (1, -1) then {0} else left({0}, 0) end else split_part({0}, {1}, {2}) end"
)
_START = "case when {1} < 1 then 1 else cast({1} as bigint) end"
_FROM = f"substring({{0}}, {_START})"
_FOR = (
    "case when {2} < 0 and {0} is not null and {1} is not null then "
    + failed("negative substring length not allowed")
    + f" when cast({{1}} as bigint) + {{2}} <= 1 then left({{0}}, 0) else substring({{0}}, {_START}, "
    f"cast({{1}} as bigint) + {{2}} - {_START}) end"
)


_REPEATED = (
    f"case when {{1}} < 0 then left({{0}}, 0) when strlen({{0}}) * ({{1}} - 1) > {MOST_BYTES} then {TOO_LONG}"
    " else repeat({0}, {1}) end"
)
_FOUND = "(strlen(s.t0) - strlen(replace(s.t0, s.t1, ''))) // greatest(strlen(s.t1), 1)"
_REPLACED = held(
    ("{0}", "{1}", "{2}"),
    f"{_FOUND} * (strlen(s.t2) - strlen(s.t1)) > {MOST_BYTES}",
    "replace(s.t0, s.t1, s.t2)",
)


def _padded(function: str, fill: str) -> str:
    """Return a text filled up or cut; an empty filling fills nothing."""
    return (
        f"case when {{1}} is null then null when {fill} = '' then left({{0}}, greatest({{1}}, 0))"
        f" when ({{1}} - length({{0}})) * strlen({fill}) > {MOST_BYTES} * length({fill}) then {TOO_LONG}"
        f" else {function}({{0}}, greatest({{1}}, 0), {fill}) end"
    )


_ROOT = "case when {0} < 0 then " + failed("cannot take square root of a negative number") + " else sqrt({0}) end"

FORMS: dict[str, tuple[Form, ...]] = {
    "lower": (Form((TEXT,), TEXT, "lower({0})"),),
    "upper": (Form((TEXT,), TEXT, "replace(replace(upper(replace({0}, 'ẞ', chr(0))), 'ẞ', 'ß'), chr(0), 'ẞ')"),),
    "length": (Form((TEXT,), INT4, "cast(length({0}) as integer)"),),
    "octet_length": (Form((TEXT,), INT4, "cast(strlen({0}) as integer)"),),
    "md5": (Form((TEXT,), TEXT, "md5({0})"),),
    "lpad": (Form((TEXT, INT4), TEXT, _padded("lpad", "' '")), Form((TEXT, INT4, TEXT), TEXT, _padded("lpad", "{2}"))),
    "rpad": (Form((TEXT, INT4), TEXT, _padded("rpad", "' '")), Form((TEXT, INT4, TEXT), TEXT, _padded("rpad", "{2}"))),
    "reverse": (Form((TEXT,), TEXT, "pg_reverse({0})"),),
    "left": (Form((TEXT, INT4), TEXT, "left({0}, {1})"),),
    "right": (Form((TEXT, INT4), TEXT, "right({0}, {1})"),),
    "repeat": (Form((TEXT, INT4), TEXT, _REPEATED),),
    "replace": (Form((TEXT, TEXT, TEXT), TEXT, _REPLACED),),
    "strpos": (Form((TEXT, TEXT), INT4, f"cast({_WHOLE_TEXT} as integer)"),),
    "substring": (Form((TEXT, INT4), TEXT, _FROM), Form((TEXT, INT4, INT4), TEXT, _FOR)),
    "split_part": (Form((TEXT, TEXT, INT4), TEXT, _PART),),
    "starts_with": (Form((TEXT, TEXT), BOOL, "starts_with({0}, {1})"),),
    "convert_from": (Form((BYTEA, TEXT), TEXT, "pg_of_utf8({0})"),),
    "sqrt": (Form((FLOAT8,), FLOAT8, _ROOT),),
    "jsonb_typeof": (Form((JSONB,), TEXT, "pg_json_kind({0})"),),
    "jsonb_array_length": (Form((JSONB,), INT4, "pg_json_length({0})"),),
    "floor": (Form((FLOAT8,), FLOAT8, "floor({0})"),),
    "ceil": (Form((FLOAT8,), FLOAT8, "ceil({0})"),),
    "round": (Form((FLOAT8,), FLOAT8, "round_even({0}, 0)"),),
    "trunc": (Form((FLOAT8,), FLOAT8, "trunc({0})"),),
}


def called(name: str, cells: Sequence[Cell], node: exp.Expr) -> Cell:
    """Translate a call; raises Refused."""
    name = SPELLINGS.get(name, name)
    if name == "octet_length" and len(cells) == 1:
        cells = [replace(cells[0], sql=padded(cells[0], node))]
    if name == "convert_from" and cells and (cells[-1].literal or "").lower() not in {"utf8", "utf-8"}:
        raise Refused(node, "convert_from of another encoding than 'UTF8'")
    if cells and cells[0].type.element is not None and (found := _of_array(name, cells, node)) is not None:
        return found
    if name in _OF_NUMERIC and cells and cells[0].type.name == "numeric":
        return _of_numeric(name, cells, node)
    if name == "abs" and len(cells) == 1 and cells[0].type.is_number:
        return Cell(f"abs({cells[0].sql})", cells[0].type)
    for form in FORMS.get(name, ()):
        if len(form.takes) == len(cells) and all(map(_takes, form.takes, cells)):
            texts = [coerced(cell, kind, node).sql for cell, kind in zip(cells, form.takes, strict=True)]
            return Cell(form.sql.format(*texts), form.gives)
    given = ", ".join(cell.type.shown for cell in cells)
    raise Refused(node, f"the function {name}({given})")


def _of_array(name: str, cells: Sequence[Cell], node: exp.Expr) -> Cell | None:
    """Translate a function of an array; None if it is another one."""
    value, element = cells[0].sql, cells[0].type.element or TEXT
    match name, cells[1:]:
        case "cardinality", []:
            return Cell(f"cast(len({value}) as integer)", INT4)
        case "array_length", [Cell() as dimension]:
            size = f"case when {coerced(dimension, INT4, node).sql} = 1 then nullif(len({value}), 0) end"
            return Cell(f"cast({size} as integer)", INT4)
        case "array_position", [Cell() as searched] if element.is_groupable:
            whole, one = with_elements_like(cells[0], searched, node)
            place = f"list_position({whole.sql}, {one.sql})"
            return Cell(f"cast(nullif({place}, 0) as integer)", INT4)
        case "array_to_string", [Cell() as between] if element.name in {"text", "varchar", *INTEGERS}:
            if between.literal is None or may_be_long(between):
                raise Refused(node, "array_to_string with a separator that is not a short literal")
            texts = f"list_filter(cast({value} as varchar[]), lambda x: x is not null)"
            return Cell(f"array_to_string({texts}, {coerced(between, TEXT, node).sql})", TEXT)
        case _:
            return None


def _takes(kind: Type, cell: Cell) -> bool:
    """Return whether an argument may be of this type: of its own, a narrower one, or a literal."""
    if cell.is_unknown:
        return True
    if kind == TEXT:
        return cell.type.is_text
    if kind == INT4:
        return cell.type.name in {"int2", "int4"}
    return cell.type.is_number if kind == FLOAT8 else cell.type == kind


_OF_NUMERIC = frozenset({"round", "trunc", "floor", "ceil", "abs", "sign", "sqrt"})


def _of_numeric(name: str, cells: Sequence[Cell], node: exp.Expr) -> Cell:
    value, *more = cells
    text = f"cast({value.sql} as varchar)" if value.type.is_decimal else value.sql
    kind = value.type
    if (more and name not in {"round", "trunc"}) or len(more) > 1:
        raise Refused(node, f"{name} of several arguments")
    if name == "abs":
        return Cell(f"abs({value.sql})", kind) if kind.is_decimal else Cell(f"pg_abs({text})", NUMERIC)
    if name == "sqrt":
        return Cell(f"pg_sqrt({text})", NUMERIC)
    if name == "sign":
        if not kind.is_decimal:
            raise Refused(node, "the function sign(numeric)")
        return Cell(f"cast(sign({value.sql}) as decimal(1,0))", decimal(1, 0))
    if name in {"floor", "ceil"}:
        return _whole(f"pg_{name}({text})", kind)
    places = coerced(more[0], INT4, node).sql if more else "cast(0 as integer)"
    result = f"pg_{name}({text}, {places})"
    fixed = more[0] if more else None
    if fixed is None:
        return _whole(result, kind)
    return _fixed(result, kind, fixed)


def _whole(sql: str, kind: Type) -> Cell:
    if not kind.is_decimal:
        return Cell(sql, NUMERIC)
    held = decimal(max(1, (kind.digits or 0) - (kind.scale or 0) + 1), 0)
    return Cell(f"cast({sql} as {held.duckdb})", held)


def _fixed(sql: str, kind: Type, places: Cell) -> Cell:
    """Return a number rounded to a scale that the statement gives as a number."""
    digits = places.sql.removeprefix("cast(").removesuffix(" as integer)")
    if not digits.isdecimal():
        return Cell(sql, NUMERIC)
    scale = int(digits)
    width = (kind.digits or 0) - (kind.scale or 0) + 1 + scale if kind.is_decimal else 39
    if width > 38:  # noqa: PLR2004 - the digits of a decimal
        return Cell(sql, NUMERIC)
    held = decimal(width, scale)
    return Cell(f"cast({sql} as {held.duckdb})", held)


def trimmed(sides: str, cells: Sequence[Cell], node: exp.Expr) -> Cell:
    """Translate trim, ltrim, rtrim and btrim; without a set of characters they cut blanks."""
    function = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(sides, "trim")
    texts = [coerced(cell, TEXT, node).sql for cell in cells]
    text, chars = texts[0], texts[1] if len(texts) > 1 else "' '"
    return Cell(f"{function}({text}, {chars})", TEXT)


def concat(cells: Sequence[Cell], separator: Cell | None, node: exp.Expr) -> Cell:
    """Translate concat and concat_ws, which leave out NULL."""
    if not cells:
        raise Refused(node, f"{construct(node)} of nothing", wrong=True)
    found = [known(replace(cell, sql=padded(cell, node)), node) for cell in cells]
    given, name, times = list(cells), "concat", 1
    if separator is not None:  # it is converted to text, without the blanks of a char(n)
        found = [coerced(separator, TEXT, node), *found]
        given, name, times = [separator, *cells], "concat_ws", len(cells) - 1
    texts = [as_text(cell) for cell in found]
    if None in texts or any(cell.type.name == "bool" for cell in found):
        raise Refused(node, "concat of such values", "Write casts to text.")
    form = f"{name}({', '.join(['{}'] * len(texts))})"
    return Cell(joined(given, [text or "" for text in texts], form, times), TEXT)


_TRUNCATED = frozenset({"year", "quarter", "month", "week", "day", "hour", "minute", "second"})


def truncated_time(unit: str, cell: Cell, node: exp.Expr) -> Cell:
    """Translate date_trunc; a date becomes a timestamp with time zone, as in PostgreSQL."""
    name = cell.type.name
    if unit not in _TRUNCATED or name not in {"date", "timestamp", "timestamptz"}:
        raise Refused(node, f"date_trunc('{unit}', {cell.type.shown})")
    kind = Type("timestamp") if name == "timestamp" else Type("timestamptz")
    return Cell(f"cast(date_trunc('{unit}', cast({cell.sql} as timestamp)) as timestamp)", kind)


_FIELDS = {
    **{name: name for name in ("year", "quarter", "month", "week", "day", "doy", "isoyear", "dow", "isodow")},
    **{name: name for name in ("hour", "minute")},
}


def extracted(field: str, cell: Cell, node: exp.Expr) -> Cell:
    """Translate EXTRACT, whose results are numeric."""
    name = cell.type.name
    if name == "interval":
        return _of_interval(field, cell, node)
    if name not in {"date", "timestamp", "timestamptz"} or (name == "date" and field in {"hour", "minute", "second"}):
        raise Refused(node, f"extract({field} from {cell.type.shown})")
    at = f"cast({with_year(cell.sql)} as timestamp)"
    if field in _FIELDS:
        return Cell(f"cast(date_part('{field}', {at}) as decimal(10,0))", decimal(10, 0))
    if field == "epoch" and name == "date":
        return Cell(f"cast(epoch_us({at}) // 1000000 as decimal(19,0))", decimal(19, 0))
    micros = {"epoch": f"epoch_us({at})", "second": f"date_part('microsecond', {at})"}.get(field)
    if micros is None:
        raise Refused(node, f"extract({field})")
    return _millionths(micros)


_OF_INTERVAL = ("year", "month", "day", "hour", "minute")


def _of_interval(field: str, cell: Cell, node: exp.Expr) -> Cell:
    """Translate EXTRACT of an interval; its epoch counts years of 365.25 days, and months of 30."""
    if field in _OF_INTERVAL:
        return Cell(f"cast(date_part('{field}', {cell.sql}) as decimal(19,0))", decimal(19, 0))
    parts = {each: f"cast(date_part('{each}', {cell.sql}) as bigint)" for each in _OF_INTERVAL}
    clock = f"date_part('microsecond', {cell.sql})"
    days = f"{parts['year']} * 31557600 + ({parts['month']} * 30 + {parts['day']}) * 86400"
    micros = {
        "second": clock,
        "epoch": f"(({days} + {parts['hour']} * 3600 + {parts['minute']} * 60) * 1000000 + {clock})",
    }.get(field)
    if micros is None:
        raise Refused(node, f"extract({field} from interval)")
    return _millionths(micros)


def _millionths(micros: str) -> Cell:
    millionth = "cast(0.000001 as decimal(7,6))"
    return Cell(f"cast(cast({micros} as decimal(19,0)) * {millionth} as decimal(25,6))", decimal(25, 6))


def zoned(zone: str, cell: Cell, node: exp.Expr) -> Cell:
    """Translate AT TIME ZONE; raises Refused."""
    is_utc = zone.upper() == "UTC"
    if cell.type.name not in {"timestamp", "timestamptz"}:
        raise Refused(node, f"AT TIME ZONE of {cell.type.shown}")
    if cell.type.name == "timestamp":
        if not is_utc:
            raise Refused(node, "AT TIME ZONE of timestamp without time zone", "A local time may be none, or two.")
        return Cell(cell.sql, Type("timestamptz"))
    if is_utc:
        return Cell(cell.sql, Type("timestamp"))
    if "/" not in zone or zone not in available_timezones():
        raise Refused(node, f"the time zone {standard_literal(zone)}", "Write a name such as 'Europe/Paris'.")
    return Cell(f"pg_at_zone({cell.sql}, {standard_literal(zone)})", Type("timestamp"))
