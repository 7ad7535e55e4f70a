"""Functions that are translated: for each name the types of its arguments, its result, and DuckDB's text. Data. Pure.

Authority: postgresql.org/docs/current/functions-string.html, functions-math.html, functions-datetime.html
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from zoneinfo import available_timezones

from sqlglot import exp

from auditlake.query.postgres.arithmetic import operate
from auditlake.query.postgres.arrays import called_on_array
from auditlake.query.postgres.cells import Cell, Refused, construct
from auditlake.query.postgres.conversions import (
    cast,
    coerced,
    failed,
    in_common,
    known,
    padded,
    shown_text,
    unfolded,
    with_year,
)
from auditlake.query.postgres.floats import ONE_ARGUMENT
from auditlake.query.postgres.growth import MOST_BYTES, TOO_LONG, held, joined, repeatable
from auditlake.query.postgres.letters import LOWER, UPPER
from auditlake.query.postgres.texts import FORMAT, TIME_FIELD
from auditlake.query.postgres.types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSONB,
    NUMBERS,
    NUMERIC,
    TEXT,
    TIMES,
    TIMESTAMP,
    TIMESTAMPTZ,
    Type,
    array,
    decimal,
)
from auditlake.query.years import NO_YEAR
from auditlake.sql_names import standard_literal

SPELLINGS = {"character_length": "char_length", "substr": "substring", "ceiling": "ceil", "pow": "power"}
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
_FOUND = "(strlen(s[1]) - strlen(replace(s[1], s[2], ''))) // greatest(strlen(s[2]), 1)"
_REPLACED = held(
    ("{0}", "{1}", "{2}"),
    f"{_FOUND} * (strlen(s[3]) - strlen(s[2])) > {MOST_BYTES}",
    "replace(s[1], s[2], s[3])",
)


def _padded(function: str, fill: str) -> str:
    """Return a text filled up or cut; an empty filling fills nothing."""
    return (
        f"case when {{1}} is null then null when {fill} = '' then left({{0}}, greatest({{1}}, 0))"
        f" when ({{1}} - length({{0}})) * strlen({fill}) > {MOST_BYTES} * length({fill}) then {TOO_LONG}"
        f" else {function}({{0}}, greatest({{1}}, 0), {fill}) end"
    )


_RIGHT = "right({0}, cast({1} as bigint) + case when {1} = -2147483648 then 4294967296 else 0 end)"
"""PostgreSQL returns the whole text for the least integer, which has no positive one."""
_FINITE = "case when {0} is not null then true end"
"""An infinite value is an error where it is read."""
_HAS_NULL = "{0} is null or {1} is null or {2} is null"
_BIN = (
    f"case when {_HAS_NULL} then null when date_part('month', {{0}}) <> 0 or date_part('year', {{0}}) <> 0 then "
    + failed("timestamps cannot be binned into intervals containing months or years")
    + " when epoch({0}) <= 0 then "
    + failed("stride must be greater than zero")
    + " else time_bucket({0}, cast({1} as timestamp), cast({2} as timestamp)) end"
)
_DATE = (
    f"case when {_HAS_NULL} then null when {{0}} = 0 then {failed('date field value out of range')}"
    f" when {{0}} < 0 then {failed(NO_YEAR)} else make_date({{0}}, {{1}}, {{2}}) end"
)
_SCALE = (
    "case when {0} not in ('NaN', 'Infinity', '-Infinity') then cast(length(split_part({0}, '.', 2)) as integer) end"
)
_BYTES = "cast(octet_length({0}) as integer)"
_ROOT = "case when {0} < 0 then " + failed("cannot take square root of a negative number") + " else sqrt({0}) end"

FORMS: dict[str, tuple[Form, ...]] = {
    "lower": (Form((TEXT,), TEXT, LOWER),),
    "upper": (Form((TEXT,), TEXT, UPPER),),
    "length": (Form((TEXT,), INT4, "cast(length({0}) as integer)"), Form((BYTEA,), INT4, _BYTES)),
    "char_length": (Form((TEXT,), INT4, "cast(length({0}) as integer)"),),
    "octet_length": (Form((TEXT,), INT4, "cast(strlen({0}) as integer)"), Form((BYTEA,), INT4, _BYTES)),
    "md5": (Form((TEXT,), TEXT, "md5({0})"), Form((BYTEA,), TEXT, "md5({0})")),
    "lpad": (Form((TEXT, INT4), TEXT, _padded("lpad", "' '")), Form((TEXT, INT4, TEXT), TEXT, _padded("lpad", "{2}"))),
    "rpad": (Form((TEXT, INT4), TEXT, _padded("rpad", "' '")), Form((TEXT, INT4, TEXT), TEXT, _padded("rpad", "{2}"))),
    "reverse": (Form((TEXT,), TEXT, "pg_reverse({0})"),),
    "left": (Form((TEXT, INT4), TEXT, "left({0}, {1})"),),
    "right": (Form((TEXT, INT4), TEXT, _RIGHT),),
    "repeat": (Form((TEXT, INT4), TEXT, _REPEATED),),
    "replace": (Form((TEXT, TEXT, TEXT), TEXT, _REPLACED),),
    "strpos": (Form((TEXT, TEXT), INT4, f"cast({_WHOLE_TEXT} as integer)"),),
    "substring": (Form((TEXT, INT4), TEXT, _FROM), Form((TEXT, INT4, INT4), TEXT, _FOR)),
    "split_part": (Form((TEXT, TEXT, INT4), TEXT, _PART),),
    "starts_with": (Form((TEXT, TEXT), BOOL, "starts_with({0}, {1})"),),
    "convert_from": (Form((BYTEA, TEXT), TEXT, "pg_of_utf8({0})"),),
    "sqrt": (Form((FLOAT8,), FLOAT8, _ROOT),),
    "jsonb_typeof": (Form((JSONB,), TEXT, "pg_json_kind({0})"),),
    "jsonb_strip_nulls": (Form((JSONB,), JSONB, "pg_without_nulls({0})"),),
    "jsonb_array_length": (Form((JSONB,), INT4, "pg_json_length({0})"),),
    "floor": (Form((FLOAT8,), FLOAT8, "floor({0})"),),
    "ceil": (Form((FLOAT8,), FLOAT8, "ceil({0})"),),
    "round": (Form((FLOAT8,), FLOAT8, "round_even({0}, 0)"),),
    "trunc": (Form((FLOAT8,), FLOAT8, "trunc({0})"),),
    "sign": (Form((FLOAT8,), FLOAT8, "cast(sign({0}) as double)"),),
    **{name: (Form((FLOAT8,), FLOAT8, f"cast(pg_{name}({{0}}) as double)"),) for name in ONE_ARGUMENT},
    "exp": (Form((FLOAT8,), FLOAT8, "cast(pg_exp({0}) as double)"), Form((NUMERIC,), NUMERIC, "pg_exp_of({0})")),
    "ln": (Form((FLOAT8,), FLOAT8, "cast(pg_ln({0}) as double)"), Form((NUMERIC,), NUMERIC, "pg_ln_of({0})")),
    "log": (
        Form((FLOAT8,), FLOAT8, "cast(pg_log({0}) as double)"),
        Form((NUMERIC,), NUMERIC, "pg_log_of({0})"),
        Form((NUMERIC, NUMERIC), NUMERIC, "pg_log_to({0}, {1})"),
    ),
    "log10": (
        Form((FLOAT8,), FLOAT8, "cast(pg_log({0}) as double)"),
        Form((NUMERIC,), NUMERIC, "pg_log_of({0})"),
    ),
    "power": (
        Form((FLOAT8, FLOAT8), FLOAT8, "cast(pg_power({0}, {1}) as double)"),
        Form((NUMERIC, NUMERIC), NUMERIC, "pg_power_of({0}, {1})"),
    ),
    "atan2": (Form((FLOAT8, FLOAT8), FLOAT8, "cast(pg_atan2({0}, {1}) as double)"),),
    "pi": (Form((), FLOAT8, "pi()"),),
    "div": (Form((NUMERIC, NUMERIC), NUMERIC, "pg_quotient({0}, {1})"),),
    "scale": (Form((NUMERIC,), INT4, _SCALE),),
    "trim_scale": (Form((NUMERIC,), NUMERIC, "pg_trim_scale({0})"),),
    "width_bucket": (Form((NUMERIC, NUMERIC, NUMERIC, INT4), INT4, "pg_bucket({0}, {1}, {2}, {3})"),),
    "&": tuple(Form((kind, kind), kind, "({0} & {1})") for kind in (INT2, INT4, INT8)),
    "|": tuple(Form((kind, kind), kind, "({0} | {1})") for kind in (INT2, INT4, INT8)),
    "#": tuple(Form((kind, kind), kind, "xor({0}, {1})") for kind in (INT2, INT4, INT8)),
    "~": tuple(Form((kind,), kind, "(~ {0})") for kind in (INT2, INT4, INT8)),
    "bit_length": (
        Form((TEXT,), INT4, "cast(strlen({0}) * 8 as integer)"),
        Form((BYTEA,), INT4, "cast(octet_length({0}) * 8 as integer)"),
    ),
    "ascii": (Form((TEXT,), INT4, "cast(case when {0} = '' then 0 else unicode({0}) end as integer)"),),
    "initcap": (Form((TEXT,), TEXT, "pg_initcap({0})"),),
    "quote_literal": (Form((TEXT,), TEXT, "pg_quoted({0})"),),
    "quote_ident": (Form((TEXT,), TEXT, "pg_quoted_name({0})"),),
    "quote_nullable": (Form((TEXT,), TEXT, "coalesce(pg_quoted({0}), 'NULL')"),),
    "chr": (Form((INT4,), TEXT, "pg_character({0})"),),
    "translate": (Form((TEXT, TEXT, TEXT), TEXT, "pg_translate({0}, {1}, {2})"),),
    "overlay": (
        Form((TEXT, TEXT, INT4), TEXT, "pg_overlay({0}, {1}, {2}, cast(length({1}) as integer))"),
        Form((TEXT, TEXT, INT4, INT4), TEXT, "pg_overlay({0}, {1}, {2}, {3})"),
    ),
    "to_hex": (Form((INT4,), TEXT, "pg_hex(cast({0} as bigint) & 4294967295)"), Form((INT8,), TEXT, "pg_hex({0})")),
    "encode": (Form((BYTEA, TEXT), TEXT, "pg_encode({0}, {1})"),),
    "decode": (Form((TEXT, TEXT), BYTEA, "pg_decode({0}, {1})"),),
    "sha256": (Form((BYTEA,), BYTEA, "from_hex(sha256({0}))"),),
    "convert_to": (Form((TEXT, TEXT), BYTEA, "encode({0})"),),
    "string_to_array": (
        Form((TEXT, TEXT), array(TEXT), "pg_split({0}, coalesce({1}, chr(0)), chr(0))"),
        Form((TEXT, TEXT, TEXT), array(TEXT), "pg_split({0}, coalesce({1}, chr(0)), coalesce({2}, chr(0)))"),
    ),
    "age": (
        Form((TIMESTAMPTZ, TIMESTAMPTZ), INTERVAL, "age(cast({0} as timestamp), cast({1} as timestamp))"),
        Form((TIMESTAMP, TIMESTAMP), INTERVAL, "age({0}, {1})"),
    ),
    "make_date": (Form((INT4, INT4, INT4), DATE, _DATE),),
    "to_timestamp": (
        Form((FLOAT8,), TIMESTAMPTZ, "pg_of_epoch({0})"),
        Form((TEXT, TEXT), TIMESTAMPTZ, "pg_read_time({0}, {1})"),
    ),
    "to_date": (Form((TEXT, TEXT), DATE, "cast(pg_read_time({0}, {1}) as date)"),),
    "isfinite": tuple(Form((kind,), BOOL, _FINITE) for kind in (DATE, TIMESTAMP, TIMESTAMPTZ, INTERVAL)),
    "date_bin": tuple(Form((INTERVAL, kind, kind), kind, _BIN) for kind in (TIMESTAMPTZ, TIMESTAMP)),
}


def called(name: str, cells: Sequence[Cell], node: exp.Expr) -> Cell:
    """Translate a call; raises Refused."""
    name = SPELLINGS.get(name, name)
    _check(name, cells, node)
    if name == "octet_length" and len(cells) == 1:
        cells = [replace(cells[0], sql=padded(cells[0], node))]
    if (found := _of_own_type(name, cells, node)) is not None:
        return found
    for form in sorted(FORMS.get(name, ()), key=lambda form: _differing(form, cells)):
        if len(form.takes) == len(cells) and all(map(_takes, form.takes, cells)):
            pairs = zip(cells, form.takes, strict=True)
            texts = [unfolded(Cell(in_common(cell, kind, node), kind)).sql for cell, kind in pairs]
            repeats = any(form.sql.count(f"{{{n}}}") > 1 for n in range(len(texts)))
            return Cell(repeatable(texts, form.sql.format) if repeats else form.sql.format(*texts), form.gives)
    given = ", ".join(cell.type.shown for cell in cells)
    raise Refused(node, f"the function {name}({given})")


def _check(name: str, cells: Sequence[Cell], node: exp.Expr) -> None:
    kinds = {cell.type.name for cell in cells}
    if name in {"to_date", "to_timestamp"} and len(cells) == 2 and not _is_time_form(cells[1]):  # noqa: PLR2004
        raise Refused(node, f"{name} with a format of this form", "It may have YYYY MM DD HH24 MI SS MS US and signs.")
    if name in {"convert_from", "convert_to"} and cells and (cells[-1].literal or "").lower() not in {"utf8", "utf-8"}:
        raise Refused(node, f"{name} of another encoding than 'UTF8'")
    is_alike = name in {"isfinite", "to_hex", "trunc"} and len(cells) == 1 and cells[0].is_unknown
    if is_alike or (name == "to_hex" and kinds == {"int2"}):
        raise Refused(node, f"the function {name}({cells[0].type.shown}) is not unique", wrong=True)


def _is_time_form(cell: Cell) -> bool:
    form = cell.literal or ""
    fields = [each.upper() for each in TIME_FIELD.findall(form)]
    return "YYYY" in fields and len({*fields}) == len(fields) and not TIME_FIELD.sub("", form).strip("-/.,: ")


def _of_own_type(name: str, cells: Sequence[Cell], node: exp.Expr) -> Cell | None:
    """Translate a function whose result has the type of an argument; None if it is another one."""
    if cells and any(cell.type.element is not None for cell in cells):
        return called_on_array(name, cells, node)
    if name in {"round", "trunc"} and len(cells) == 2 and cells[0].type.is_integer:  # noqa: PLR2004 - a scale
        cells = [cast(cells[0], NUMERIC, node), cells[1]]
    if name in _OF_NUMERIC and cells and cells[0].type.name == "numeric":
        return _of_numeric(name, cells, node)
    if name == "abs" and len(cells) == 1 and cells[0].type.is_number:
        return Cell(f"abs({cells[0].sql})", cells[0].type)
    if name == "mod" and len(cells) == 2:  # noqa: PLR2004 - the operands
        return operate("%", cells[0], cells[1], node)
    return None


def _differing(form: Form, cells: Sequence[Cell]) -> int:
    """Return how many arguments are of another type than a form takes: the one with the fewest is called."""
    return sum(kind.name != cell.type.name for kind, cell in zip(form.takes, cells, strict=False))


def _takes(kind: Type, cell: Cell) -> bool:
    """Return whether an argument may be of this type: of its own, a narrower one, or a literal."""
    if cell.is_unknown:
        return True
    if kind == TEXT:
        return cell.type.is_text
    if kind.is_integer:
        return cell.type.is_integer and NUMBERS.index(cell.type.name) <= NUMBERS.index(kind.name)
    if kind == NUMERIC:
        return cell.type.is_integer or cell.type.name == "numeric"
    if kind.is_time:
        return cell.type.is_time and TIMES.index(cell.type.name) <= TIMES.index(kind.name)
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
        sign = f"sign({value.sql})" if kind.is_decimal else f"pg_compare({value.sql}, '0')"
        return Cell(f"cast({sign} as decimal(1,0))", decimal(1, 0))
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
    if not 1 <= len(cells) <= 2:  # noqa: PLR2004 - the text and the characters
        raise Refused(node, f"{construct(node)} of {len(cells)} arguments", wrong=True)
    if any(cell.type == BYTEA for cell in cells):
        raise Refused(node, f"{construct(node)} of bytea")
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
    texts = [shown_text(cell) for cell in found]
    if None in texts:
        raise Refused(node, "concat of such values", "Write casts to text.")
    form = f"{name}({', '.join(['{}'] * len(texts))})"
    return Cell(joined(given, [text or "" for text in texts], form, times), TEXT)


def formatted(cells: Sequence[Cell], node: exp.Expr) -> Cell:
    """Translate format; raises Refused."""
    form, values = cells[0].literal, [known(replace(cell, sql=padded(cell, node)), node) for cell in cells[1:]]
    texts = [shown_text(value) for value in values]
    if None in texts:
        raise Refused(node, "format of such values", "Write casts to text.")
    if form is None or "%" in FORMAT.sub("", form):
        raise Refused(node, "format of this form", "Its format is a literal with %s, %I, %L and %%.")
    listed = ", ".join(f"cast({text} as varchar)" for text in texts)
    return Cell(f"pg_format({standard_literal(form)}, [{listed}])", TEXT)


_TRUNCATED = frozenset({"year", "quarter", "month", "week", "day", "hour", "minute", "second"})
_TRUNCATED |= {"decade", "milliseconds", "microseconds"}


def truncated_time(unit: str, cell: Cell, node: exp.Expr) -> Cell:
    """Translate date_trunc; a date becomes a timestamp with time zone, as in PostgreSQL."""
    name, unit = cell.type.name, _PLURALS.get(unit, unit)
    if unit not in _TRUNCATED or name not in {"date", "timestamp", "timestamptz"}:
        raise Refused(node, f"date_trunc('{unit}', {cell.type.shown})")
    kind = Type("timestamp") if name == "timestamp" else Type("timestamptz")
    at = with_year(cell.sql) if unit == "decade" else cell.sql
    return Cell(f"cast(date_trunc('{unit}', cast({at} as timestamp)) as timestamp)", kind)


_PLURALS = {f"{name}s": name for name in ("year", "month", "week", "day", "hour", "minute", "second", "decade")}
_FIELDS = {
    **{name: name for name in ("year", "quarter", "month", "week", "day", "doy", "isoyear", "dow", "isodow")},
    **{name: name for name in ("hour", "minute", "decade", "century", "millennium")},
}


def extracted(field: str, cell: Cell, node: exp.Expr) -> Cell:
    """Translate EXTRACT, whose results are numeric."""
    name, field = cell.type.name, _PLURALS.get(field, field)
    if name == "interval":
        return _of_interval(field, cell, node)
    if name not in {"date", "timestamp", "timestamptz"} or (name == "date" and field in {"hour", "minute", "second"}):
        raise Refused(node, f"extract({field} from {cell.type.shown})")
    at = f"cast({with_year(cell.sql)} as timestamp)"
    if field in _FIELDS:
        return Cell(f"cast(date_part('{field}', {at}) as decimal(10,0))", decimal(10, 0))
    if field == "epoch" and name == "date":
        return Cell(f"cast(epoch_us({at}) // 1000000 as decimal(19,0))", decimal(19, 0))
    micros = f"date_part('microsecond', {at})"
    match field:
        case "epoch":
            return _millionths(f"epoch_us({at})")
        case "second":
            return _millionths(micros)
        case "milliseconds" | "microseconds" if name != "date":
            scale = 3 if field == "milliseconds" else 0
            return Cell(
                f"cast(cast({micros} as decimal(19,0)) / {10**scale} as decimal(19,{scale}))", decimal(19, scale)
            )
        case _:
            raise Refused(node, f"extract({field})")


def extracted_as_float(field: str, cell: Cell, node: exp.Expr) -> Cell:
    """Translate date_part, which rounds in other steps than EXTRACT.

    Authority: src/backend/utils/adt/timestamp.c, `timestamp_part_common`, `interval_part_common`
    """
    exact, is_interval = extracted(field, cell, node).sql, cell.type == INTERVAL
    at = cell.sql if is_interval else f"cast({with_year(cell.sql)} as timestamp)"
    micros = f"cast(date_part('microsecond', {at}) as bigint)"
    seconds, fraction = f"({micros} // 1000000)", f"({micros} % 1000000)"
    clock = " + ".join(f"date_part('{unit}', {at}) * {us}" for unit, us in (("hour", 3600000000), ("minute", 60000000)))
    years, months, days = (f"date_part('{unit}', {at})" for unit in ("year", "month", "day"))
    sql = {
        "second": f"({seconds} + {fraction} / 1e6)",
        "milliseconds": f"({seconds} * 1e3 + {fraction} / 1e3)",
        "epoch": f"(({clock} + {micros}) / 1e6 + {years} * 31557600e0 + {months} * 2592000e0 + {days} * 86400e0)"
        if is_interval
        else f"(epoch_us({at}) / 1e6)",
    }.get(_PLURALS.get(field, field), f"cast({exact} as double)")
    return Cell(sql, FLOAT8)


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
        "epoch": f"(cast({days} + {parts['hour']} * 3600 + {parts['minute']} * 60 as hugeint) * 1000000 + {clock})",
    }.get(field)
    if micros is None:
        raise Refused(node, f"extract({field} from interval)")
    return _millionths(micros)


def _millionths(micros: str) -> Cell:
    millionth = "cast(0.000001 as decimal(7,6))"
    return Cell(f"cast(cast({micros} as decimal(22,0)) * {millionth} as decimal(25,6))", decimal(25, 6))


def zoned(zone: str, cell: Cell, node: exp.Expr) -> Cell:
    """Translate AT TIME ZONE; raises Refused."""
    if cell.type.name not in {"timestamp", "timestamptz"}:
        raise Refused(node, f"AT TIME ZONE of {cell.type.shown}")
    function, to = ("pg_of_zone", TIMESTAMPTZ) if cell.type == TIMESTAMP else ("pg_at_zone", TIMESTAMP)
    if zone.upper() == "UTC":
        return Cell(cell.sql, to)
    if "/" not in zone or zone not in available_timezones():
        raise Refused(node, f"the time zone {standard_literal(zone)}", "Write a name such as 'Europe/Paris'.")
    moved = f"case when {_HAS_YEAR} then {function}({{0}}, {standard_literal(zone)}) {_OTHER_YEAR} end"
    return Cell(repeatable([cell.sql], moved.format), to)


_HAS_YEAR = "{0} between timestamp '0001-01-01' and timestamp '9999-12-31 23:59:59.999999'"
_OTHER_YEAR = "when {0} is not null then " + failed(NO_YEAR)
