"""PostgreSQL's input rules: from what a person types to the text that PostgreSQL prints of the same value. Pure.

    spelling(1700, typmod of numeric(10,2), "1.5")    Spelling("1.50", exact=True)
    spelling(1700, typmod of numeric(10,2), "1.005")  ValueError: not a value of the column
    spelling(3802, -1, '{"a":1}')                     Spelling('{"a": 1}', exact=False): {"a": 1.0} is equal

Only forms that are read as PostgreSQL reads them are accepted; a test compares each with a server. Of a type that is
not known here the text is taken as it is, never exact. Settings are those of every connection (`PINNED`): dates are
year-month-day, money is in the C locale. A time of `timestamptz` must name its zone.

Authority: postgresql.org/docs/current/datatype.html, "Input" of each type
"""

import ipaddress
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import partial

import numpy as np

from auditlake.values import jsonb
from auditlake.values.exact_text import double_text, real_text
from auditlake.values.numeric_text import Failed, decimal_text, read_number
from auditlake.values.types import BUILT_IN_NAMES, digits_of_numeric, element_of

_SPACE = " \t\n\r\v\f"
_VARHDRSZ = 4
_NO_UTF8 = re.compile("[\ud800-\udfff]")
"""Bytes of an argument that are not UTF-8, as Python shows them."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """PostgreSQL's text of a value; `exact` if no equal value has another text."""

    text: str
    exact: bool = True


def spelling(type_oid: int, typmod: int, given: str) -> Spelling:
    """Return PostgreSQL's text of a value of this type; raises ValueError, with the accepted forms."""
    if _NO_UTF8.search(given):
        raise ValueError("text in UTF-8")
    read = _READERS.get(BUILT_IN_NAMES.get(type_oid, ""))
    return Spelling(given, exact=False) if read is None else read(given, typmod)


def is_read(type_oid: int) -> bool:
    """Return whether the input rules of a type are known here."""
    return BUILT_IN_NAMES.get(type_oid, "") in _READERS


def type_name(type_oid: int, typmod: int) -> str:
    """Return the name of a built-in type as PostgreSQL's `format_type` does, except for the fields of an interval."""
    if (element := element_of(type_oid)) is not None:
        return f"{type_name(element, typmod)}[]"
    name = BUILT_IN_NAMES.get(type_oid)
    if name is None:
        return f"the type with OID {type_oid}"
    shown, modifier = SQL_NAMES.get(name, name), _modifier(name, typmod)
    if name not in _ZONED:
        return shown + modifier
    word, _, rest = shown.partition(" ")
    return f"{word}{modifier} {rest}"


def _modifier(name: str, typmod: int) -> str:
    if name == "numeric" and typmod >= _VARHDRSZ:
        return "({},{})".format(*digits_of_numeric(typmod))
    if name in {"bpchar", "varchar"} and typmod >= _VARHDRSZ:
        return f"({typmod - _VARHDRSZ})"
    return f"({typmod})" if name in {"bit", "varbit", *_ZONED} and typmod >= 0 else ""


_ZONED = frozenset({"time", "timetz", "timestamp", "timestamptz"})
SQL_NAMES = {
    "bool": "boolean",
    "char": '"char"',
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "bpchar": "character",
    "varchar": "character varying",
    "varbit": "bit varying",
    "time": "time without time zone",
    "timetz": "time with time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
"""Names of types in SQL that differ from those in `pg_type`."""


def _text(given: str, _typmod: int) -> Spelling:
    return Spelling(given)


def _bpchar(given: str, typmod: int) -> Spelling:
    length = typmod - _VARHDRSZ
    if length < 0:
        return Spelling(given, exact=False)
    if len(given.rstrip(" ")) > length:
        raise ValueError(f"at most {length} characters")
    return Spelling(given.rstrip(" ").ljust(length))


def _integer(given: str, _typmod: int, *, low: int, high: int) -> Spelling:
    text = given.strip(_SPACE)
    if not re.fullmatch(r"[+-]?[0-9]+", text) or not low <= int(text) <= high:
        raise ValueError(f"decimal digits, from {low} to {high}")
    return Spelling(str(int(text)))


def _oid(given: str, typmod: int) -> Spelling:
    if re.match(r"[+-]?0[0-9]", given.strip(_SPACE)):  # which PostgreSQL reads as octal
        raise ValueError("decimal digits, without zeros before them")
    return _integer(given, typmod, low=0, high=2**32 - 1)


_BOOLEANS = {"true": "t", "false": "f", "yes": "t", "no": "f", "on": "t", "off": "f", "1": "t", "0": "f"}


def _boolean(given: str, _typmod: int) -> Spelling:
    text = given.strip(_SPACE).lower()
    found = {value for word, value in _BOOLEANS.items() if text and word.startswith(text)}
    if len(found) != 1:
        raise ValueError("true or false")
    return Spelling(found.pop())


_SPECIAL = {"nan": "NaN", "inf": "Infinity", "infinity": "Infinity", "+inf": "Infinity", "+infinity": "Infinity"}
_SPECIAL |= {"-inf": "-Infinity", "-infinity": "-Infinity"}
_LARGEST_NUMERIC = 131072
_EXACT = Context(prec=4000, Emin=-99999, Emax=99999)


def _number(given: str) -> Decimal | str:
    """Read a finite number; else return the text of NaN or an infinity."""
    text = given.strip(_SPACE)
    if text.lower() in _SPECIAL:
        return _SPECIAL[text.lower()]
    try:
        return read_number(text)
    except Failed:
        raise ValueError("a number") from None


def _numeric(given: str, typmod: int) -> Spelling:
    value = _number(given)
    if isinstance(value, str):
        if typmod >= _VARHDRSZ and value != "NaN":
            raise ValueError("a finite number or NaN")
        return Spelling(value)
    if typmod < _VARHDRSZ:
        if value.adjusted() >= _LARGEST_NUMERIC:
            raise ValueError("a number with fewer digits")
        return Spelling(decimal_text(value), exact=False)
    precision, scale = digits_of_numeric(typmod)
    least = Decimal(1).scaleb(-scale)
    fits = not value or value.adjusted() < precision - scale
    if not fits or (fixed := value.quantize(least, context=_EXACT)) != value:
        raise ValueError(f"{max(precision - scale, 0)} digits before the point and {max(scale, 0)} behind it at most")
    return Spelling(decimal_text(fixed))


def _float(given: str, _typmod: int, *, real: bool) -> Spelling:
    number = _number(given)
    if isinstance(number, str):
        return Spelling(number)
    value = _nearest_real(number) if real else float(number)
    if math.isinf(value) or (not value and number):
        raise ValueError("a number in the range of the type")
    # -0 and 0 are equal.
    return Spelling(real_text(value) if real else double_text(value), exact=value != 0)


_BEYOND_FLOAT = 10**40


def _nearest_real(number: Decimal) -> float:
    """Round once, to the nearest float4; by way of a float8 a number may be rounded twice."""
    exact = Fraction(number)
    if abs(exact) > _BEYOND_FLOAT:
        return math.inf
    with np.errstate(over="ignore"):
        near = np.float32(float(exact))
        if np.isinf(near):
            return math.inf
        candidates = (near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf)))
    finite = [each for each in candidates if np.isfinite(each)]
    best = min(finite, key=lambda each: (abs(Fraction(float(each)) - exact), int(each.view(np.uint32)) & 1))
    return math.copysign(float(best), -1 if number.is_signed() else 1)


_YMD = r"(?P<year>[0-9]{4,7})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
_HMS = r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]+))?)?"
_ZONE = r" ?(?:Z|UTC|(?P<sign>[+-])(?P<zh>[0-9]{2})(?::?(?P<zm>[0-9]{2}))?(?::(?P<zs>[0-9]{2}))?)"
_ERA = r"(?P<bc> BC)?"
_DATE = re.compile(_YMD + _ERA)
_CLOCK = re.compile(_HMS)
_TIMESTAMP = re.compile(f"{_YMD}(?:[ T]{_HMS})?{_ERA}")
_TIMESTAMPTZ = re.compile(f"{_YMD}[ T]{_HMS}{_ZONE}{_ERA}")
_INFINITE = ("infinity", "-infinity")
_DAY_US = 86_400_000_000
_FIRST_DAY = -2_440_588
"""Julian day 0, counted from 1970-01-01."""
_LAST_DATE, _LAST_TIMESTAMP = (5_874_897, 12, 31), (294_276, 12, 31)
_MICROSECOND_DIGITS, _HOURS, _SIXTY, _ZONE_HOURS = 6, 24, 60, 16


def _date(given: str, _typmod: int) -> Spelling:
    text = given.strip(_SPACE)
    if text.lower() in _INFINITE:
        return Spelling(text.lower())
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError("YYYY-MM-DD")
    return Spelling(_date_text(_day(match, _LAST_DATE)) + (" BC" if match["bc"] else ""))


def _time(given: str, typmod: int) -> Spelling:
    match = _CLOCK.fullmatch(given.strip(_SPACE))
    if match is None:
        raise ValueError("HH:MM:SS")
    micros = _microseconds(match, typmod)
    return Spelling(_clock_text(micros))


def _timestamp(given: str, typmod: int, *, zoned: bool) -> Spelling:
    text = given.strip(_SPACE)
    if text.lower() in _INFINITE:
        return Spelling(text.lower())
    match = (_TIMESTAMPTZ if zoned else _TIMESTAMP).fullmatch(text)
    if match is None:
        raise ValueError("YYYY-MM-DD HH:MM:SS+00, with its zone" if zoned else "YYYY-MM-DD HH:MM:SS, without a zone")
    micros = _microseconds(match, typmod) if match["hour"] else 0
    if micros == _DAY_US:
        raise ValueError("a time before 24:00")
    day = _day(match, _LAST_TIMESTAMP)
    if zoned:
        days, micros = divmod(day * _DAY_US + micros - _offset(match), _DAY_US)
        day = days
    if not _FIRST_DAY <= day <= _days(*_LAST_TIMESTAMP):
        raise ValueError("a time in the range of the type")
    era = " BC" if _civil(day)[0] <= 0 else ""
    return Spelling(f"{_date_text(day)} {_clock_text(micros)}{'+00' if zoned else ''}{era}")


def _day(match: re.Match[str], last: tuple[int, int, int]) -> int:
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    found = _days(1 - year if match["bc"] else year, month, day) if 1 <= month <= 12 else _FIRST_DAY - 1  # noqa: PLR2004
    if not year or not _FIRST_DAY <= found <= _days(*last) or _civil(found)[1:] != (month, day):
        raise ValueError("a date that exists")
    return found


def _microseconds(match: re.Match[str], typmod: int) -> int:
    fraction = match["fraction"] or ""
    digits = typmod if 0 <= typmod < _MICROSECOND_DIGITS else _MICROSECOND_DIGITS
    if fraction[digits:].strip("0"):
        raise ValueError(f"at most {digits} digits of a second")
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    micros = ((hour * 60 + minute) * 60 + second) * 10**6 + int(fraction[:6].ljust(6, "0"))
    if hour > _HOURS or minute >= _SIXTY or second >= _SIXTY or micros > _DAY_US:
        raise ValueError("a time from 00:00:00 to 24:00:00")
    return micros


def _offset(match: re.Match[str]) -> int:
    if match["sign"] is None:
        return 0
    hours, minutes, seconds = (int(match[name] or 0) for name in ("zh", "zm", "zs"))
    if hours >= _ZONE_HOURS or minutes >= _SIXTY or seconds >= _SIXTY:
        raise ValueError("a time zone that exists")
    total = ((hours * 60 + minutes) * 60 + seconds) * 10**6
    return -total if match["sign"] == "-" else total


def _days(year: int, month: int, day: int) -> int:
    """Count the days since 1970-01-01 in the Gregorian calendar of all times; the year before 1 is 0."""
    year -= month <= 2  # noqa: PLR2004 - a year that begins in March has its leap day at the end
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1  # noqa: PLR2004
    return 365 * year + year // 4 - year // 100 + year // 400 + of_year - 719_468


def _civil(days: int) -> tuple[int, int, int]:
    """The date of a day."""
    cycle, rest = divmod(days + 719_468, 146_097)
    of_cycle = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
    of_year = rest - (365 * of_cycle + of_cycle // 4 - of_cycle // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)  # noqa: PLR2004
    return of_cycle + cycle * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1  # noqa: PLR2004


def _date_text(days: int) -> str:
    year, month, day = _civil(days)
    return f"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d}"


def _clock_text(micros: int) -> str:
    seconds, fraction = divmod(micros, 10**6)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


_UUID = re.compile(r"[0-9a-f]{4}(?:-?[0-9a-f]{4}){7}")


def _uuid(given: str, _typmod: int) -> Spelling:
    text = given.lower()
    text = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    if not _UUID.fullmatch(text):
        raise ValueError("a UUID")
    digits = text.replace("-", "")
    return Spelling("-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])))


_ESCAPED = re.compile(r"\\\\|\\([0-3][0-7]{2})|[\x01-\x5b\x5d-\x7f]")
_HEX = re.compile(r"(?:\s*[0-9a-fA-F]{2})*\s*", re.ASCII)


def _bytea(given: str, _typmod: int) -> Spelling:
    if given.startswith("\\x") and _HEX.fullmatch(given, 2):
        return Spelling("\\x" + "".join(given[2:].split()).lower())
    if given.startswith("\\x") or _ESCAPED.sub("", given):
        raise ValueError("\\x and hexadecimal digits")
    found = (int(each[1], 8) if each[1] else ord(each[0][-1]) for each in _ESCAPED.finditer(given))
    return Spelling("\\x" + bytes(found).hex())


_EMBEDDED_IPV4 = 2**48


def _network(given: str, _typmod: int, *, cidr: bool) -> Spelling:
    try:
        found = ipaddress.ip_interface(given)
    except ValueError:
        raise ValueError("an address, with /bits for a network") from None
    _, _, bits = given.partition("/")
    if "%" in given or (bits and not bits.isdecimal()) or (cidr and found.ip != found.network.network_address):
        raise ValueError("an address, with /bits for a network, without bits to the right of them")
    if found.version == 6 and 1 < int(found.ip) < _EMBEDDED_IPV4:  # noqa: PLR2004
        return Spelling(given, exact=False)  # such addresses are printed with an IPv4 address in them
    whole = found.network.prefixlen == found.max_prefixlen
    return Spelling(f"{found.ip}" if whole and not cidr else f"{found.ip}/{found.network.prefixlen}")


_MAC_FORMS = {
    *("hh:hh:hh:hh:hh:hh", "hh-hh-hh-hh-hh-hh", "hhhhhh:hhhhhh", "hhhhhh-hhhhhh"),
    *("hhhh.hhhh.hhhh", "hhhh-hhhh-hhhh", "hhhhhhhhhhhh"),
}
_MAC8_FORMS = {"hh:hh:hh:hh:hh:hh:hh:hh", "hh-hh-hh-hh-hh-hh-hh-hh", "hhhhhhhhhhhhhhhh"}


def _mac(given: str, _typmod: int) -> Spelling:
    return Spelling(":".join(_octets(given, _MAC_FORMS)))


def _octets(given: str, forms: set[str]) -> list[str]:
    text = given.strip(_SPACE).lower()
    if re.sub("[0-9a-f]", "h", text) not in forms:
        raise ValueError("08:00:2b:01:02:03")
    return re.findall("[0-9a-f]{2}", re.sub("[:.-]", "", text))


def _mac8(given: str, _typmod: int) -> Spelling:
    octets = _octets(given, _MAC_FORMS | _MAC8_FORMS)
    six = len(octets) == 6  # noqa: PLR2004
    return Spelling(":".join([*octets[:3], "ff", "fe", *octets[3:]] if six else octets))


_MONEY = re.compile(r"(-?)\$?([0-9][0-9,]*)?(?:\.([0-9]*))?")
_MONEY_DIGITS = 2
_LARGEST_MONEY = 2**63 - 1


def _money(given: str, _typmod: int) -> Spelling:
    match = _MONEY.fullmatch(given.strip(_SPACE))
    if match is None or not (match[2] or match[3]) or (match[3] or "")[_MONEY_DIGITS:].strip("0"):
        raise ValueError("an amount with at most two digits behind the point, as $1,234.50")
    cents = int((match[2] or "0").replace(",", "") + (match[3] or "")[:2].ljust(2, "0"))
    if cents > _LARGEST_MONEY + (match[1] == "-"):
        raise ValueError("an amount in the range of the type")
    return Spelling(f"{'-' if match[1] and cents else ''}${cents // 100:,}.{cents % 100:02d}")


def _bits(given: str, typmod: int, *, fixed: bool) -> Spelling:
    if not re.fullmatch("[01]*", given) or (typmod >= 0 and (len(given) > typmod or (fixed and len(given) < typmod))):
        raise ValueError("binary digits, as many as the column has")
    return Spelling(given)


_OF_JSON = re.compile(r'"(?:[^"\\]|\\.)*"')


def _jsonb(given: str, _typmod: int) -> Spelling:
    try:
        text = jsonb.canonical(given)
    except Failed:
        raise ValueError("JSON") from None
    return Spelling(text, exact=re.search("[0-9]", _OF_JSON.sub("", text)) is None)


_READERS: dict[str, Callable[[str, int], Spelling]] = {
    "text": _text,
    "varchar": _text,
    "name": _text,
    "bpchar": _bpchar,
    "bool": _boolean,
    "int2": partial(_integer, low=-(2**15), high=2**15 - 1),
    "int4": partial(_integer, low=-(2**31), high=2**31 - 1),
    "int8": partial(_integer, low=-(2**63), high=2**63 - 1),
    "oid": _oid,
    "numeric": _numeric,
    "float4": partial(_float, real=True),
    "float8": partial(_float, real=False),
    "date": _date,
    "time": _time,
    "timestamp": partial(_timestamp, zoned=False),
    "timestamptz": partial(_timestamp, zoned=True),
    "uuid": _uuid,
    "bytea": _bytea,
    "inet": partial(_network, cidr=False),
    "cidr": partial(_network, cidr=True),
    "macaddr": _mac,
    "macaddr8": _mac8,
    "money": _money,
    "bit": partial(_bits, fixed=True),
    "varbit": partial(_bits, fixed=False),
    "jsonb": _jsonb,
}
