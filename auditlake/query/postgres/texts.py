"""PostgreSQL's texts of intervals and bytes, functions of texts, and times. Pure.

A text that a function makes longer by more than `growth.MOST_BYTES` fails, as in `growth`.

Authority: src/backend/utils/adt/varlena.c, encode.c;
src/interfaces/ecpg/pgtypeslib/interval.c, `EncodeInterval` in the style `postgres`
"""

import math
import re
import sys
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from io import StringIO
from unicodedata import category
from zoneinfo import ZoneInfo

from auditlake.cancellation import cancellable_loop
from auditlake.query.postgres.conversions import unescaped
from auditlake.query.postgres.growth import MOST_BYTES, TOO_LONG_TEXT
from auditlake.query.postgres.identifiers import quoted_name
from auditlake.query.postgres.letters import capital, small
from auditlake.query.postgres.numbers import NotFinite
from auditlake.query.years import NO_YEAR
from auditlake.values.intervals import fits, read_interval, scaled
from auditlake.values.numeric_text import Failed

_YEAR_2000, _SECONDS_TO_2000 = datetime(2000, 1, 1), 946_684_800  # noqa: DTZ001 - in UTC, as all times here
_BASE64_LINE, _MOST_INT4 = 57, (1 << 31) - 1
_NO_FORM = "the form of encode or decode is not hex, base64 or escape"
_BACKSLASH, _MOST_ASCII = 92, 127
FORMAT = re.compile(r"%%|%((?P<place>\d+)\$)?(?P<left>-)?(?P<width>\d+)?(?P<kind>[sIL])", re.ASCII)
TIME_FIELD = re.compile("YYYY|MM|DD|HH24|MI|SS|MS|US|yyyy|mm|dd|hh24|mi|ss|ms|us")
"""Fields of a format in upper or lower case: Mm is two letters."""
_FIELD_DIGITS = {"YYYY": 4, "MS": 3, "US": 6}
_DIGITS = "0123456789"
_UNASSIGNED = "Cn"
_SQUARED = frozenset(map(chr, range(0x1F130, 0x1F18A)))
_BLANKS = re.compile(r"[ \t\n\r]")
_HOUR, _MINUTE, _SECOND = 3_600_000_000, 60_000_000, 1_000_000


class NotRead(ValueError):
    """A text that PostgreSQL may read, and this module does not."""


class OfLocale(ValueError):
    """A text whose words end where the locale of the database says."""


def interval_parts(text: str) -> list[int]:
    """Return months, days and microseconds of the text of an interval; raises NotRead."""
    try:
        return [*read_interval(text)]
    except ValueError:
        raise NotRead from None


def read_time(text: str, form: str) -> datetime:
    """`to_timestamp` of a text that has exactly the digits of its format; raises Failed, NotRead."""
    found = _time_pattern(form).fullmatch(text)
    if found is None or found["YYYY"] == "0000":
        raise NotRead
    part = {name: int(digits) for name, digits in found.groupdict().items()}
    micros = part.get("US", 0) + part.get("MS", 0) * 1000
    try:
        day = date(part["YYYY"], part.get("MM") or 1, part.get("DD") or 1)  # 00 is none
        return datetime.combine(day, time(part.get("HH24", 0), part.get("MI", 0), part.get("SS", 0), micros))
    except ValueError:
        raise Failed("date/time field value out of range") from None


@lru_cache(16)
def _time_pattern(form: str) -> re.Pattern[str]:
    pattern = TIME_FIELD.sub(lambda field: f"(?P<{field[0]}>\\d{{{_FIELD_DIGITS.get(field[0], 2)}}})", form.upper())
    return re.compile(pattern.replace(".", "\\."), re.ASCII)


def at_zone(at: datetime, zone: str) -> datetime:
    """Return the local time of a time in UTC; raises Failed if its year is not between 1 and 9999."""
    try:
        return at.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    except OverflowError:
        raise Failed(NO_YEAR) from None


def of_zone(at: datetime, zone: str) -> datetime:
    """Return the time in UTC of a local time: before a change forward, after one back; raises Failed as `at_zone`.

    Authority: src/backend/utils/adt/datetime.c, `DetermineTimeZoneOffsetInternal`
    """
    offsets = (at.replace(tzinfo=ZoneInfo(zone), fold=fold).utcoffset() for fold in (0, 1))
    try:
        return at - min(each for each in offsets if each is not None)
    except OverflowError:
        raise Failed(NO_YEAR) from None


def of_epoch(seconds: float) -> datetime:
    """`to_timestamp` of seconds since 1970, which PostgreSQL counts from 2000; raises Failed."""
    try:
        return _YEAR_2000 + timedelta(microseconds=round((seconds - _SECONDS_TO_2000) * 1_000_000))
    except (ValueError, OverflowError):
        raise Failed(NO_YEAR) from None


def _held(text: str, given_bytes: int) -> str:
    """Return a text made of a value of so many bytes, unless it is too much longer; raises Failed."""
    if len(text.encode()) - given_bytes > MOST_BYTES:
        raise Failed(TOO_LONG_TEXT)
    return text


def character(code: int) -> str:
    """`chr`; raises Failed."""
    if not 0 < code <= sys.maxunicode or 0xD800 <= code < 0xE000:  # noqa: PLR2004 - surrogates
        raise Failed("requested character not valid for encoding UTF8")
    return chr(code)


def translated(text: str, given: str, to: str) -> str:
    """`translate`: the first place of a character counts, one without a counterpart goes."""
    table: dict[int, str | None] = {}
    for place, sign in enumerate(cancellable_loop(given)):
        table.setdefault(ord(sign), to[place] if place < len(to) else None)
    return text.translate(table)


def with_overlay(text: str, new: str, start: int, count: int) -> str:
    """`overlay`; raises Failed."""
    if start <= 0:
        raise Failed("negative substring length not allowed")
    if start + count > _MOST_INT4:
        raise Failed("integer out of range")
    longest_bytes = max(len(text.encode()), len(new.encode()))
    return _held(text[: start - 1] + new + text[max(start - 1 + count, 0) :], longest_bytes)


def hex_text(value: int) -> str:
    """`to_hex`, of a number of 64 bits."""
    return f"{value & 0xFFFF_FFFF_FFFF_FFFF:x}"


def encoded(content: bytes, form: str) -> str:
    """`encode` as hex, base64 or escape; raises Failed."""
    match form.lower():
        case "hex":
            return _held(content.hex(), len(content))
        case "base64":
            lines = (content[at : at + _BASE64_LINE] for at in range(0, len(content), _BASE64_LINE))
            whole = (b64encode(each).decode() + "\n" * (len(each) == _BASE64_LINE) for each in lines)
            return _held("".join(whole), len(content))
        case "escape":
            return _held("".join(map(_escaped, cancellable_loop(content))), len(content))
        case _:
            raise Failed(_NO_FORM)


def _escaped(byte: int) -> str:
    return "\\\\" if byte == _BACKSLASH else chr(byte) if 0 < byte <= _MOST_ASCII else f"\\{byte:03o}"


def decoded(text: str, form: str) -> bytes:
    """`decode` of hex, base64 or escape; raises Failed."""
    try:
        match form.lower():
            case "hex":
                return bytes.fromhex(text)
            case "base64":
                return _of_base64(_BLANKS.sub("", text))
            case "escape":
                return unescaped(text)
    except ValueError:
        raise Failed("invalid symbol found while decoding") from None
    raise Failed(_NO_FORM)


def _of_base64(symbols: str) -> bytes:
    """Decode base64 as PostgreSQL: after the first `=`, each group has as few bytes as that one.

    Authority: src/backend/utils/adt/encode.c, `pg_base64_decode`
    """
    content, first = b64decode(symbols.replace("=", "A"), validate=True), symbols.find("=")
    if first < 0:
        return content
    count, start = first % 4 - 1, first // 4 * 3
    if count < 1:
        raise Failed("unexpected = while decoding base64 sequence")
    return content[:start] + b"".join(content[at : at + count] for at in range(start, len(content), 3))


def initcap(text: str) -> str:
    """`initcap`: the first letter of each word in upper case, the others in lower; raises OfLocale for combining marks.

    Whether a mark ends a word differs from mark to mark, and between the locales of PostgreSQL; a character that Python
    does not know may be a letter.
    """
    found, inside = StringIO(), False
    for sign in cancellable_loop(text):
        found.write(small(sign) if inside else capital(sign))
        kind = category(sign)
        # Letters in circles and one mark have cases, too.
        inside = sign.isalpha() or sign in _DIGITS or kind == "Nl" or sign.upper() != sign.lower()
        if kind == _UNASSIGNED or (not inside and (kind[0] == "M" or sign in _SQUARED)):
            raise OfLocale
    return found.getvalue()


def literal_text(text: str) -> str:
    """`quote_literal`."""
    doubled = text.replace("\\", "\\\\").replace("'", "''")
    prefix = "E" if "\\" in text else ""
    return f"{prefix}'{doubled}'"


def format_text(form: str, values: Sequence[str | None]) -> str:
    """`format` with %s, %I and %L; raises Failed."""
    longest = max(len(each or "") for each in (form, *values))
    last, found, start = 0, [], 0
    for each in FORMAT.finditer(form):
        found.append(form[start : each.start()])
        start = each.end()
        if each[0] == "%%":
            found.append("%")
            continue
        last = int(each["place"] or last + 1)
        if not 1 <= last <= len(values):
            raise Failed("too few arguments for format()")
        value = values[last - 1]
        shown = _formatted(value, each["kind"])
        width = min(int(each["width"] or 0), MOST_BYTES + 1)
        found.append(shown.ljust(width) if each["left"] else shown.rjust(width))
        longest -= len(found[-1])
        if longest < -MOST_BYTES:
            raise Failed(TOO_LONG_TEXT)
    return "".join([*found, form[start:]])


def _formatted(value: str | None, kind: str) -> str:
    if kind == "s":
        return value or ""
    if kind == "L":
        return "NULL" if value is None else literal_text(value)
    if value is None:
        raise Failed("null values cannot be formatted as an SQL identifier")
    return quoted_name(value)


def split_text(text: str, separator: str, null: str) -> list[str | None]:
    """`string_to_array`; a NUL as separator is NULL, which separates characters, and as `null` there is none."""
    if not text:
        return []
    parts = list(text) if separator == "\0" else text.split(separator) if separator else [text]
    return [None if each == null else each for each in parts]


def of_utf8(content: bytes) -> str:
    """Return the text of bytes in UTF-8; raises Failed."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise Failed("invalid byte sequence for encoding UTF8")
    return text


def reversed_text(text: str) -> str:
    """Return the characters in the opposite order: code points, where DuckDB's function keeps what looks like one."""
    return text[::-1]


def times(parts: Sequence[int], factor: float) -> list[int]:
    """`interval * number`, of months, days and microseconds; raises Failed, NotFinite."""
    if math.isinf(factor):
        raise NotFinite
    return _scaled(parts, factor, divided=False)


def over(parts: Sequence[int], divisor: float) -> list[int]:
    """`interval / number`, of months, days and microseconds; raises Failed."""
    if not divisor:
        raise Failed("division by zero")
    return _scaled(parts, divisor, divided=True)


def _scaled(parts: Sequence[int], factor: float, *, divided: bool) -> list[int]:
    try:
        found = scaled(parts, factor, divided=divided)
    except (OverflowError, ValueError):
        raise Failed("interval out of range") from None
    if not fits(found):
        raise Failed("interval out of range")
    return found


def interval_text(months: int, days: int, micros: int) -> str:
    """Return the text of an interval."""
    years, rest = int(months / 12), months - 12 * int(months / 12)
    parts = []
    negative = False
    for count, unit in ((years, "year"), (rest, "mon"), (days, "day")):
        if count:
            sign = "+" if negative and count > 0 else ""
            parts.append(f"{sign}{count} {unit}{'' if count == 1 else 's'}")
            negative = count < 0
    if micros or not parts:
        sign = "-" if micros < 0 else "+" if negative else ""
        size = abs(micros)
        fraction = f".{size % _SECOND:06d}".rstrip("0").rstrip(".")
        clock = f"{size // _HOUR:02d}:{size % _HOUR // _MINUTE:02d}:{size % _MINUTE // _SECOND:02d}{fraction}"
        parts.append(f"{sign}{clock}")
    return " ".join(parts)
