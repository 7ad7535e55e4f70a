"""Casts: the values of literals, what an operator converts by itself, and `cast(x as type)`. Pure.

A cast that PostgreSQL does not have is wrong; one that it has and this module has not is refused.

Authority: postgresql.org/docs/current/typeconv.html; src/include/catalog/pg_cast.dat
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, timezone

from sqlglot import exp

from auditlake.query.postgres import documents, numbers
from auditlake.query.postgres.cells import NULL, Cell, Refused, construct
from auditlake.query.postgres.types import (
    BPCHAR,
    DATE,
    FLOAT4,
    FLOAT8,
    INTEGERS,
    NUMBERS,
    NUMERIC,
    TEXT,
    TEXTS,
    TIMES,
    TIMESTAMP,
    UNKNOWN,
    VARCHAR,
    Type,
    array,
    as_decimal,
    decimal,
)
from auditlake.query.years import NO_YEAR
from auditlake.sql_names import standard_literal
from auditlake.values.input_syntax import spelling
from auditlake.values.intervals import read_interval
from auditlake.values.types import BUILT_IN, MOST_DIGITS

_BOUNDS = {"int2": 1 << 15, "int4": 1 << 31, "int8": 1 << 63}
_FLOAT = re.compile(r"\s*[+-]?(\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_TIMESTAMP = re.compile(
    r"(?P<day>\d{4}-\d{1,2}-\d{1,2})"
    r"([ T](?P<h>\d{1,2}):(?P<m>\d\d)(:(?P<s>\d\d)(\.(?P<f>\d{1,6}))?)?\s?(?P<zone>Z|[+-]\d\d(:?\d\d)?)?)?",
    re.ASCII,
)
_ESCAPED_BYTE = re.compile(rb"\\\\|\\([0-3][0-7]{2})")
_SIMPLE_ARRAY = re.compile(r"\{[^\"{},\\]*(,[^\"{},\\]*)*\}")
_BLANKS = " \t\n\v\f\r"
_UNBOUNDED = frozenset({"numeric", "float4", "float8", "date", "timestamp", "timestamptz", "interval"})
_MANY_FORMS = {
    **dict.fromkeys(("date", "timestamp", "timestamptz"), "Write it as 2026-11-21 or 2026-11-21 09:30:00+01."),
    "interval": "Write it as '1 day 02:30:00'.",
}
_OF_CLOCK = {
    "now": "Write now().",
    "today": "Write current_date.",
    "yesterday": "Write current_date - 1.",
    "tomorrow": "Write current_date + 1.",
}
_EPOCH = "epoch"
_LAST_MINUTE, _LAST_SECOND, _DAY_US, _ZONE_HOURS = 59, 60, 86_400_000_000, 16
_DIGITS_OF_DOUBLE, _POWERS_OF_DOUBLE = 15, 22
"""A double holds integers of so many digits and powers of ten up to this one exactly: a quotient is rounded once."""
_TRUE = ("true", "tru", "tr", "t", "yes", "ye", "y", "on", "1")
_FALSE = ("false", "fals", "fal", "fa", "f", "no", "n", "off", "of", "0")
_LONGEST_TEXT = 10_485_760
COMPARISON = "a comparison"
"""Here a char(n) beside a text becomes a text; elsewhere the type of the first one decides."""


def coerced(cell: Cell, to: Type, node: exp.Expr | None = None) -> Cell:
    """Convert as an operator or a function does by itself: literals, and to a wider type; raises Refused."""
    if cell.is_unknown:
        return literal(cell, to, node)
    if cell.type == to or (cell.type.is_text and to.is_text):
        return Cell(cell.sql, to, cell.name)
    if to.element is not None and cell.type.name == to.name:
        return Cell(f"cast({cell.sql} as {to.duckdb})", to, cell.name)
    if _widens(cell.type.name, to.name):
        return cast(cell, to, node)
    is_wrong = not cell.type.is_opaque and "oid" not in {cell.type.name, to.name}  # a domain may be a text
    raise Refused(node, f"{cell.type.shown} where {to.shown} is needed", "Write a cast.", wrong=is_wrong)


def known(cell: Cell, node: exp.Expr | None = None) -> Cell:
    """Return a literal as a text, which it is if nothing decides otherwise, and any other value as it is."""
    return coerced(cell, TEXT, node) if cell.is_unknown else cell


def _widens(one: str, other: str) -> bool:
    for order in (NUMBERS, TIMES):
        if one in order and other in order:
            return order.index(one) <= order.index(other)
    return one in TEXTS and other in TEXTS


def literal(cell: Cell, to: Type, node: exp.Expr | None) -> Cell:  # noqa: C901 - one rule after the other
    """Return a literal, or NULL, as a value of a type; raises Refused if it is not one."""
    if to == UNKNOWN:
        to = TEXT
    if cell.null:
        return Cell(f"cast(null as {to.duckdb})", to, cell.name)
    text = cell.literal or ""
    if to.element is not None:
        if to.element.is_decimal and not all(_has_scale(each, to.element) for each in elements_of(cell, node)):
            raise Refused(
                node, f"{standard_literal(text)} beside {to.shown}", f"Write {to.element.scale} decimal places."
            )
        return _array_of(cell, to, node)
    if to.labels:
        if text not in to.labels:
            raise Refused(node, f"the label {standard_literal(text)} of {to.shown}", "Labels: " + ", ".join(to.labels))
        return Cell(standard_literal(text), to, cell.name)
    if to.name in _UNBOUNDED and numbers.is_not_finite(text):
        raise Refused(node, f"{standard_literal(text)} of {to.shown}")
    try:
        return Cell(*_value(text, to), cell.name)
    except ArithmeticError:  # a time after the year 9999, a number of too many digits
        raise Refused(node, f"{standard_literal(text)} of {to.shown}") from None
    except ValueError:
        raise _not_read(text, to, node) from None


def _has_scale(cell: Cell, of: Type) -> bool:
    """Return whether a literal is NULL or a number with the digits after the point that a type shows."""
    return cell.null or literal(cell, NUMERIC, None).type.scale == of.scale


def _array_of(cell: Cell, to: Type, node: exp.Expr | None) -> Cell:
    """Return a literal, not NULL, as an array whose elements are cast."""
    cells = (cast(each, to.element or to, node) for each in elements_of(cell, node))
    texts = [in_common(each, NUMERIC, node) if to.element == NUMERIC else each.sql for each in cells]
    return Cell(f"cast([{', '.join(texts)}] as {to.duckdb})", to, cell.name)


def elements_of(cell: Cell, node: exp.Expr | None) -> list[Cell]:
    """Return the elements of a literal of an array of simple values; raises Refused."""
    text = cell.literal or ""
    if not _SIMPLE_ARRAY.fullmatch(text):
        raise Refused(node, "an array literal of this form", "Write array['a', 'b'].")
    texts = [each.strip(_BLANKS) for each in text[1:-1].split(",")] if text[1:-1].strip(_BLANKS) else []
    if "" in texts:
        raise Refused(node, "malformed array literal", wrong=True)
    return [NULL if each.upper() == "NULL" else Cell("", UNKNOWN, literal=each) for each in texts]


def _not_read(text: str, to: Type, node: exp.Expr | None) -> Refused:
    """Return the error for a text that is no value here: PostgreSQL reads many more times, and words such as today."""
    given, bare = standard_literal(text), text.strip(_BLANKS)
    if to.is_time and bare.lower() in _OF_CLOCK:
        return Refused(node, f"{given} of {to.shown}", _OF_CLOCK[bare.lower()])
    if to.name in {"float4", "float8"} and re.match(_OTHER_FLOAT, bare):
        return Refused(node, f"the text {given} of {to.shown}", "Write it with decimal digits.")
    if to.name in _MANY_FORMS and not (_DATE if to == DATE else _TIMESTAMP).fullmatch(bare):
        return Refused(node, f"the text {given} of {to.shown}", _MANY_FORMS[to.name])
    return Refused(node, f"invalid input syntax for type {to.shown}: {given}", wrong=True)


def _value(text: str, to: Type) -> tuple[str, Type]:  # noqa: PLR0911, PLR0912, C901 - one case for each type
    match to.name:
        case "text" | "varchar" | "name":
            return standard_literal(text), to
        case "bpchar":
            return standard_literal(text.rstrip(" ")), to
        case "bool":
            word = text.strip(_BLANKS).lower()
            if word not in _TRUE + _FALSE:
                raise ValueError(text)
            return ("true" if word in _TRUE else "false"), to
        case "int2" | "int4" | "int8":
            number = int(numbers.whole_text(text))
            if not -_BOUNDS[to.name] <= number < _BOUNDS[to.name]:
                raise ValueError(text)
            return f"cast({number} as {to.duckdb})", to
        case "numeric":
            return _numeric(text, to)
        case "float4" | "float8":
            if not _FLOAT.fullmatch(text):
                raise ValueError(text)
            if text.strip(_BLANKS).startswith("-") and not re.match("[^eE]*[1-9]", text):
                return f"(- {unfolded(Cell(f'cast(0 as {to.duckdb})', to)).sql})", to
            return _float(standard_literal(text.strip(_BLANKS)), to), to
        case "date":
            return f"date {standard_literal(_day(text.strip(_BLANKS)).isoformat())}", to
        case "timestamp" | "timestamptz":
            return f"timestamp {standard_literal(_timestamp(text.strip(_BLANKS), to.name).isoformat(' '))}", to
        case "interval":
            return interval(text), to
        case "uuid":
            return standard_literal(spelling(BUILT_IN["uuid"][0], -1, text).text), to
        case "bytea":
            return f"from_hex({standard_literal(_bytes(text).hex())})", to
        case "json" | "jsonb":
            return standard_literal((documents.checked if to.name == "json" else documents.canonical)(text)), to
        case _:
            raise Refused(None, f"a literal of type {to.shown}")


def _bytes(text: str) -> bytes:
    r"""Read bytes in the hex format, after \x, or in the escape format; raises ValueError."""
    if text.startswith("\\x"):
        return bytes.fromhex(text[2:])
    return unescaped(text)


def unescaped(text: str) -> bytes:
    """Read bytes in the escape format; raises ValueError."""
    content = text.encode()
    if b"\\" in _ESCAPED_BYTE.sub(b"", content):
        raise ValueError(text)
    return _ESCAPED_BYTE.sub(lambda found: bytes([int(found[1], 8)]) if found[1] else b"\\", content)


def _numeric(text: str, to: Type) -> tuple[str, Type]:
    value = numbers.numeric(text)
    if to.is_decimal:
        value = numbers.rounded(value, to.scale or 0)
    held = decimal_of(value) if not to.is_decimal else to
    if held is None:
        return standard_literal(value), NUMERIC
    return f"cast({standard_literal(value)} as {held.duckdb})", held


def decimal_of(text: str) -> Type | None:
    """Return the decimal that holds a number as it is written; None if it is too long."""
    whole, _, fraction = text.lstrip("+-").partition(".")
    digits = max(1, len(whole.lstrip("0"))) + len(fraction)  # DuckDB writes a decimal(2,2) as .00
    return decimal(digits, len(fraction)) if digits <= MOST_DIGITS else None


def _day(text: str) -> date:
    if text.lower() == _EPOCH:
        return date(1970, 1, 1)
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return date(*map(int, match.groups()))


def _timestamp(text: str, kind: str) -> datetime:
    if text.lower() == _EPOCH:
        return datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC, as all times here
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(text)
    hours, minutes, seconds = (int(match[name] or 0) for name in ("h", "m", "s"))
    micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int((match["f"] or "0").ljust(6, "0"))
    if minutes > _LAST_MINUTE or seconds > _LAST_SECOND or micros > _DAY_US:  # PostgreSQL reads 10:00:60 and 24:00
        raise ValueError(text)
    at = datetime.combine(_day(match["day"]), time(tzinfo=_zone(match["zone"]))) + timedelta(microseconds=micros)
    return (at.astimezone(UTC) if kind == "timestamptz" else at).replace(tzinfo=None)


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours >= _ZONE_HOURS or minutes > _LAST_MINUTE:
        raise ValueError(text)
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def interval(text: str) -> str:
    """Return an interval from its text; raises as `read_interval`."""
    return of_parts(*map(str, read_interval(text)))


def of_parts(months: str, days: str, micros: str) -> str:
    """Return an interval of its parts."""
    of_dates = f"to_months(cast({months} as integer)) + to_days(cast({days} as integer))"
    return f"({of_dates} + to_microseconds(cast({micros} as bigint)))"


_CONSTANT = re.compile(re.escape(of_parts("@", "@", "@")).replace("@", r"(-?\d+)"))


def with_distinct_intervals(sql: str) -> str:
    """Return a text in which DuckDB computes no constant before it runs, if two of them are equal: 1 month and 30 days.

    It would compute an expression with one of them for both.
    """
    constants = {(int(months), int(days), int(micros)) for months, days, micros in _CONSTANT.findall(sql)}
    if len({(months * 30 + days) * _DAY_US + micros for months, days, micros in constants}) == len(constants):
        return sql
    return _CONSTANT.sub(lambda found: of_parts(f"{found[1]} + random() * 0.4", found[2], found[3]), sql)


_OF_ROW = re.compile(r"\b[a-z]\d+\b|\brandom\(\)")


def unfolded(cell: Cell) -> Cell:
    """Return a float as it is, a constant as one that DuckDB computes as it runs: before, it takes -0 for another 0."""
    if cell.type not in {FLOAT4, FLOAT8} or _OF_ROW.search(cell.sql):
        return cell
    return replace(cell, sql=f"cast({cell.sql} - random() * 0e0 as {cell.type.duckdb})")


def parts_of(interval: str) -> tuple[str, str, str]:
    """Return months, days and microseconds of an interval."""
    months, days, micros = (
        " + ".join(f"date_part('{unit}', {interval}) * {size}" for unit, size in units) for units in _PARTS
    )
    return f"cast({months} as bigint)", f"cast({days} as bigint)", f"cast({micros} as bigint)"


_PARTS = (
    (("year", 12), ("month", 1)),
    (("day", 1),),
    (("hour", 3_600_000_000), ("minute", 60_000_000), ("microsecond", 1)),
)


def common(  # noqa: C901, PLR0911 - one rule after the other
    cells: Sequence[Cell], node: exp.Expr, what: str
) -> Type:
    """Return the type of CASE, COALESCE, IN, a comparison or a column of UNION.

    A numeric of several scales keeps the scale of each value, so it is no decimal; a literal has a scale of its own.

    Raises Refused.
    """
    kinds = list(dict.fromkeys(cell.type for cell in cells if not cell.is_unknown))
    if not kinds:
        return TEXT
    names = {kind.name for kind in kinds}
    if len(names) == 1 and kinds[0].element is not None:
        return array(common([Cell("", kind.element) for kind in kinds if kind.element], node, "ARRAY"))
    if any(cell.is_unknown and not cell.null for cell in cells):
        if names == {"numeric"}:
            return NUMERIC
        if names == {"bpchar"}:  # of which only the column's values are padded
            raise Refused(node, f"{what} of character and a literal", "Cast it to text.")
    if len(kinds) == 1:
        return kinds[0]
    if names == {"numeric"} and len({kind.scale for kind in kinds}) == 1:
        return max(kinds, key=lambda kind: kind.digits or 0)
    if names <= set(INTEGERS):
        return Type(max(names, key=NUMBERS.index))
    if names <= set(NUMBERS):
        if "float4" in names and "float8" not in names and what != COMPARISON:
            return FLOAT4
        return FLOAT8 if names & {"float4", "float8"} else NUMERIC
    if names <= set(TIMES):
        return Type(max(names, key=TIMES.index))
    if names <= TEXTS:
        return _common_text(kinds, node, what)
    is_wrong = what == COMPARISON or not all(kind.element for kind in kinds)
    is_wrong = is_wrong and not any(kind.is_opaque for kind in kinds)  # a domain may be of the other type
    is_wrong = is_wrong and not names <= {"oid", *INTEGERS}  # a negative integer is a large oid
    raise Refused(node, f"{what} of {_and(kinds)}", "Write a cast.", wrong=is_wrong)


def _common_text(kinds: Sequence[Type], node: exp.Expr, what: str) -> Type:
    """Return the type of several texts: the first one's, but operators compare all but char(n) as text."""
    names = {kind.name for kind in kinds}
    is_padded = what != COMPARISON and kinds[0].name == "bpchar"  # each value to a length of its own
    if is_padded or ("bpchar" in names and names != {"bpchar"} and "text" not in names):
        raise Refused(node, f"{what} of {_and(kinds)}", "Cast it to text.")
    if names == {"bpchar"}:
        return BPCHAR
    return TEXT if what == COMPARISON else Type(kinds[0].name)


def _and(kinds: Sequence[Type]) -> str:
    return " and ".join(kind.shown for kind in kinds)


def with_common_element(one: Cell, other: Cell, node: exp.Expr) -> tuple[Cell, Cell]:
    """Return an array and a value, in either order, in the common type of elements and value; raises Refused."""
    elements = [each if each.type.element is None else Cell("", each.type.element) for each in (one, other)]
    kind = common(elements, node, "an array beside a value")
    return _with_element(one, kind, node), _with_element(other, kind, node)


def _with_element(cell: Cell, kind: Type, node: exp.Expr) -> Cell:
    """Return an array with elements of a type, or a value of that type; raises Refused."""
    if cell.type.element is None:
        return coerced(cell, kind, node)
    to = array(kind)
    return Cell(cell.sql if cell.type.duckdb == to.duckdb else f"cast({cell.sql} as {to.duckdb})", to)


def in_common(cell: Cell, kind: Type, node: exp.Expr | None) -> str:
    """Return the text of a value in the type that `common` found; raises Refused."""
    return numeric_text(cell, node) if kind == NUMERIC else coerced(cell, kind, node).sql


def cast(cell: Cell, to: Type, node: exp.Expr | None = None) -> Cell:
    """Cast explicitly; raises Refused."""
    if cell.is_unknown:
        return _limited(literal(cell, to, node) if cell.null or to.element is None else _array_of(cell, to, node), to)
    if cell.type == to:
        return cell
    if cell.type.element is not None and to.element is not None:
        element = cast(Cell("e", cell.type.element), to.element, node).sql
        return Cell(f"cast(list_transform({cell.sql}, lambda e: {element}) as {to.duckdb})", to, cell.name)
    sql = _cast(cell, to)
    if sql is None:
        raise Refused(node, f"a cast from {cell.type.shown} to {to.shown}")
    return _limited(Cell(sql, to, cell.name), to)


def _limited(cell: Cell, to: Type) -> Cell:
    """Cut a text to the length of its type."""
    if to.length is None or to.name not in {"varchar", "bpchar"}:
        return cell
    cut = f"left({cell.sql}, {to.length})"
    return Cell(f"rtrim({cut}, ' ')" if to.name == "bpchar" else cut, to, cell.name)


def _cast(cell: Cell, to: Type) -> str | None:  # noqa: PLR0911 - one rule after the other
    one = cell.type
    if to.is_text:
        return as_text(cell)
    if to.is_number and one.is_number:
        return _number(cell, to)
    if one.is_text:
        return _from_text(cell.sql, to)
    if one.is_time and to.is_time:
        return f"cast({cell.sql} as {to.duckdb})"
    if one.name in {"json", "jsonb"}:
        return _from_json(cell, to)
    if (one.name, to.name) == ("bool", "int4"):
        return f"cast({cell.sql} as integer)"
    if (one.name, to.name) == ("int4", "bool"):
        return f"({cell.sql} <> 0)"
    return None


def _from_json(cell: Cell, to: Type) -> str | None:
    if to.name in {"json", "jsonb"}:
        return cell.sql if to.name == "json" else f"pg_jsonb({cell.sql})"
    if cell.type.name == "jsonb" and to.is_number:
        return _number(Cell(f"pg_json_number({cell.sql})", NUMERIC), to)
    return f"pg_json_truth({cell.sql})" if (cell.type.name, to.name) == ("jsonb", "bool") else None


def _number(cell: Cell, to: Type) -> str | None:
    one = cell.type
    if to.name != "numeric":
        if one == NUMERIC:
            return f"cast(pg_round({cell.sql}, 0) as {to.duckdb})" if to.is_integer else _float(cell.sql, to)
        if to.is_integer and not one.is_integer and not one.is_decimal:  # DuckDB looks at the bounds before it rounds
            return f"cast(round_even({cell.sql}, 0) as {to.duckdb})"
        if to.is_integer or one.is_integer:
            return f"cast({cell.sql} as {to.duckdb})"
        return _float_of_fixed(cell, to)
    if one.name in {"float4", "float8"}:
        text = f"pg_of_{'double' if one.name == 'float8' else 'real'}({cell.sql})"
    else:
        held = as_decimal(one)
        if to.is_decimal and held is not None:
            return f"cast({cell.sql} as {to.duckdb})"
        text = f"cast({cell.sql} as varchar)"
    return text if not to.is_decimal else f"cast(pg_round({text}, {to.scale}) as {to.duckdb})"


def _float(text: str, to: Type) -> str:
    """Return the float of a number's text; DuckDB reads infinity or 0 for one that is out of range."""
    value = f"cast({text} as {to.duckdb})"
    lost = f"(isinf({value}) or {value} = 0) and regexp_matches({text}, '^[^eE]*[1-9]')"
    return f"case when {lost} then {failed('value out of range')} else {value} end"


def _float_of_fixed(cell: Cell, to: Type) -> str:
    """Return the float of a decimal or of a float; DuckDB divides a decimal, and rounds twice if it has many digits."""
    one = cell.type
    value = f"cast({cell.sql} as {to.duckdb})"
    if one.is_decimal:
        is_exact = to == FLOAT8 and (one.digits or 0) <= _DIGITS_OF_DOUBLE and (one.scale or 0) <= _POWERS_OF_DOUBLE
        return value if is_exact else f"cast(cast({cell.sql} as varchar) as {to.duckdb})"
    if to == FLOAT4:
        return (
            f"case when {value} = 0 and {cell.sql} <> 0 then {failed('value out of range: underflow')} else {value} end"
        )
    return value


def _from_text(sql: str, to: Type) -> str | None:  # noqa: PLR0911 - one case for each type
    """Return the value of a text that is a column: guarded, because DuckDB reads more texts than PostgreSQL."""
    if to.is_integer:
        is_plain = f"regexp_full_match({sql}, '\\s*[+-]?[0-9]+\\s*')"
        return f"cast(case when {is_plain} then trim({sql}, ' ') else pg_whole({sql}) end as {to.duckdb})"
    if to.name == "numeric":
        text = f"pg_numeric({sql})"
        return text if not to.is_decimal else f"cast(pg_round({text}, {to.scale}) as {to.duckdb})"
    if to.name in {"json", "jsonb", "interval"}:
        found = f"pg_{to.name}({sql})"
        return f"pg_of_parts({found})" if to.name == "interval" else found
    if to.name in {"date", "timestamp"}:
        return _guarded(
            sql, _DAY_SHAPE + (_CLOCK_SHAPE if to == TIMESTAMP else ""), f"cast({sql} as {to.duckdb})", _NOT_READ
        )
    bare = f"trim({sql}, {standard_literal(_BLANKS)})"
    if to.name in {"float4", "float8"}:
        is_other = f"regexp_matches({bare}, {standard_literal(_OTHER_FLOAT)})"
        failure = f"case when {is_other} then {_NOT_READ} else {failed(_syntax(to))} end"
        return _guarded(bare, _FLOAT_SHAPE, _float(f"regexp_replace({bare}, '^[+-](?i)nan$', 'nan')", to), failure)
    if to.name == "bool":
        words = ", ".join(map(standard_literal, _TRUE + _FALSE))
        trues = ", ".join(map(standard_literal, _TRUE))
        word = f"lower({bare})"
        return f"case when {word} not in ({words}) then {failed(_syntax(to))} else {word} in ({trues}) end"
    return None


_DAY_SHAPE = "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"
_CLOCK_SHAPE = r"( ([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?| 24:00(:00)?)?"
_FLOAT_SHAPE = r"(?i)[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf(inity)?|nan)"
_OTHER_FLOAT = r"(?i)^[+-]?(0x|nan\()"
"""Begins of floats that the C library reads: in base 16, and NaN with a number."""


def _guarded(sql: str, shape: str, value: str, failure: str) -> str:
    matches = f"regexp_full_match({sql}, {standard_literal(shape)})"
    return f"case when not {matches} then {failure} else {value} end"


def _syntax(to: Type) -> str:
    return f"invalid input syntax for type {to.shown}"


FAILED = "statement failed: "
NOT_READ = "not a text that is read here\n"


def failed(what: str) -> str:
    """Return an expression that fails."""
    return f"error({standard_literal(FAILED + what)})"


_NOT_READ = f"error({standard_literal(NOT_READ)})"


def with_year(time: str) -> str:
    """Return a time whose year DuckDB and PostgreSQL write alike; it fails on one before the year 1."""
    return f"case when {time} < date '0001-01-01' then {failed(NO_YEAR)} else {time} end"


def with_zeros(texts: str, kind: Type) -> str:
    """Return `texts` as a value of a type: of one that `loses_zeros`, they are texts of its elements, which keep -0."""
    return f"cast({texts} as {kind.duckdb})" if kind.loses_zeros else texts


def padded(cell: Cell, node: exp.Expr) -> str:
    """Return a text with the blanks of its char(n), if it is one; raises Refused."""
    if cell.type.name != "bpchar":
        return cell.sql
    if cell.type.length is None:
        raise Refused(node, f"{construct(node)} of character without a length")
    return f"rpad({cell.sql}, {cell.type.length}, ' ')"


def as_text(cell: Cell) -> str | None:  # noqa: PLR0911 - one case for each type
    """Return the text of a value, as a cast to text; None for a type whose text is not known here."""
    match cell.type.name:
        case "text" | "varchar" | "bpchar" | "name" | "uuid" | "json" | "jsonb" | "regtype":
            return cell.sql
        case "int2" | "int4" | "int8" | "numeric" | "bool":
            return f"cast({cell.sql} as varchar)"
        case "date" | "timestamp" | "timestamptz" as name:
            zone = " || '+00'" if name == "timestamptz" else ""
            return f"(cast({with_year(cell.sql)} as varchar){zone})"
        case "float8" | "float4" | "interval":
            return f"pg_{cell.type.name}_text({cell.sql})"
        case _ if cell.type.element is not None:
            text = shown_text(Cell("e", cell.type.element))
            return None if text is None else f"pg_array_text(list_transform({cell.sql}, lambda e: {text}))"
        case "bytea":
            return f"('\\x' || lower(hex({cell.sql})))"
        case _:
            return cell.sql if cell.type.labels else None


def shown_text(cell: Cell) -> str | None:
    """Return the text that PostgreSQL shows of a value; None as `as_text`."""
    return f"left(cast({cell.sql} as varchar), 1)" if cell.type.name == "bool" else as_text(cell)


def numeric_text(cell: Cell, node: exp.Expr | None) -> str:
    """Return a number as the text that `numbers` takes; raises Refused."""
    found = coerced(cell, NUMERIC, node)
    return f"cast({found.sql} as varchar)" if found.type.is_decimal else found.sql


_CASTS = {
    exp.DType.BOOLEAN: "bool",
    exp.DType.SMALLINT: "int2",
    exp.DType.INT: "int4",
    exp.DType.BIGINT: "int8",
    exp.DType.FLOAT: "float4",
    exp.DType.DOUBLE: "float8",
    exp.DType.DECIMAL: "numeric",
    exp.DType.TEXT: "text",
    exp.DType.VARCHAR: "varchar",
    exp.DType.CHAR: "bpchar",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamptz",
    exp.DType.INTERVAL: "interval",
    exp.DType.UUID: "uuid",
    exp.DType.VARBINARY: "bytea",
    exp.DType.JSON: "json",
    exp.DType.JSONB: "jsonb",
}


def named_type(node: exp.Expr) -> Type:
    """Return the type that a cast names; raises Refused."""
    name = _CASTS.get(node.this) if isinstance(node, exp.DataType) else None
    if name is None:
        raise Refused(node, f"the type {node.sql('postgres').lower()}")
    bare = [each.this if isinstance(each, exp.DataTypeParam) else each for each in node.expressions]
    given = [int(each.name) for each in bare if isinstance(each, exp.Literal) and each.name.isdecimal()]
    if len(given) != len(node.expressions):
        raise Refused(node, f"the type {node.sql('postgres').lower()}")
    if name == "numeric" and given:
        digits, scale = given[0], given[1] if len(given) > 1 else 0
        if digits > MOST_DIGITS or scale >= digits:
            raise Refused(node, f"numeric({digits},{scale})")
        return decimal(digits, scale)
    if name in {"varchar", "bpchar"}:
        length = given[0] if given else (1 if name == "bpchar" else None)
        if length == 0:
            raise Refused(node, f"{node.sql('postgres').lower()}, a type without a character,", wrong=True)
        return Type(name, length=length) if length is None or length <= _LONGEST_TEXT else VARCHAR
    if given:
        raise Refused(node, f"the type {node.sql('postgres').lower()}")
    return Type(name)


def number(text: str) -> Cell:
    """Return a constant with its sign: an integer of the least type that holds it, else a numeric."""
    if text.removeprefix("-").isdecimal():
        for name in ("int4", "int8"):
            if -_BOUNDS[name] <= int(text) < _BOUNDS[name]:
                kind = Type(name)
                return Cell(f"cast({int(text)} as {kind.duckdb})", kind)
    return Cell(*_numeric(text, NUMERIC))
