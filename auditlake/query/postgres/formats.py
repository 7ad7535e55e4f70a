"""`to_char` of times and numbers, for formats that are written as a literal. Pure.

A format of a time is split as PostgreSQL splits it, the longest pattern first. A letter that is no pattern here is
refused, because it may be one of PostgreSQL's (`TH`, `J`, `TZ`); quoted text and other characters stay as they are. A
format of a number has digits, one point and group commas, with or without FM.

Authority: postgresql.org/docs/current/functions-formatting.html; src/backend/utils/adt/formatting.c
"""

import re
from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal

from sqlglot import exp

from auditlake.query.postgres.cells import Cell, Refused
from auditlake.query.postgres.conversions import failed
from auditlake.query.postgres.numbers import read_decimal
from auditlake.query.postgres.types import TEXT
from auditlake.query.years import NO_YEAR
from auditlake.sql_names import standard_literal
from auditlake.values.numeric_text import decimal_text

_CONTEXT = Context(prec=4000, rounding=ROUND_HALF_UP)
_NUMBER = re.compile(r"(FM)?[90]([90,]*[90])?(\.[90]+)?", re.ASCII)
_PART = re.compile(r'"(?P<quoted>[^"\\]*)"|(?P<word>[A-Za-z]+)|(?P<other>[^A-Za-z"\\]+)', re.ASCII)
_YEARS = "(case when {n} between 1 and 9999 then {n} else " + failed(NO_YEAR) + " end)"
_NAMES: dict[str, tuple[str, int]] = {
    "month": ("monthname", 9),
    "day": ("dayname", 9),
    "mon": ("monthname", 0),
    "dy": ("dayname", 0),
}
_FIELDS: dict[str, tuple[str, int]] = {
    "YYYY": (_YEARS.format(n="date_part('year', {0})"), 4),
    "YY": (_YEARS.format(n="date_part('year', {0})") + " % 100", 2),
    "IYYY": (_YEARS.format(n="date_part('isoyear', {0})"), 4),
    "MM": ("date_part('month', {0})", 2),
    "DDD": ("date_part('doy', {0})", 3),
    "DD": ("date_part('day', {0})", 2),
    "D": ("date_part('dow', {0}) + 1", 1),
    "ID": ("date_part('isodow', {0})", 1),
    "IW": ("date_part('week', {0})", 2),
    "Q": ("date_part('quarter', {0})", 1),
    "HH24": ("date_part('hour', {0})", 2),
    "HH12": ("(date_part('hour', {0}) + 11) % 12 + 1", 2),
    "HH": ("(date_part('hour', {0}) + 11) % 12 + 1", 2),
    "MI": ("date_part('minute', {0})", 2),
    "SS": ("date_part('second', {0})", 2),
    "MS": ("date_part('microsecond', {0}) % 1000000 // 1000", 3),
    "US": ("date_part('microsecond', {0}) % 1000000", 6),
}
_HALVES = {"AM": ("AM", "PM"), "PM": ("AM", "PM"), "am": ("am", "pm"), "pm": ("am", "pm")}
_NAMED = frozenset(each for name in _NAMES for each in (name, name.upper(), name.capitalize()))
_SPELLED = _NAMED | _HALVES.keys() | _FIELDS.keys() | {field.lower() for field in _FIELDS}
_NOT_TRANSLATED = ("IDDD", "SSSSS", "SSSS")
_WORDS = sorted({*map(str.upper, _SPELLED), *_NOT_TRANSLATED}, key=len, reverse=True)


def to_char(cells: Sequence[Cell], node: exp.Expr) -> Cell:
    """Translate a call; raises Refused."""
    if len(cells) != 2 or cells[1].literal is None:  # noqa: PLR2004 - a value and its format
        raise Refused(node, "to_char with a format that is not a literal")
    value, form = cells[0], cells[1].literal
    if value.type.is_time:
        at = f"cast({value.sql} as timestamp)"
        parts = [_part(each, at, filled=filled) for each, filled in _patterns(form, node)]
        listed = " || ".join(parts) or ("''" if form else "null::varchar")
        return Cell(f"case when {value.sql} is not null and {at} is not null then {listed} end", TEXT, "to_char")
    if value.type.is_integer or value.type.name == "numeric":
        if not _NUMBER.fullmatch(form):
            raise Refused(node, f"the format {form}", "Translated are digits 9 and 0, commas, one point, and FM.")
        return Cell(f"pg_number_text(cast({value.sql} as varchar), {standard_literal(form)})", TEXT, "to_char")
    raise Refused(node, f"to_char of {value.type.shown}")


def _patterns(form: str, node: exp.Expr) -> Iterator[tuple[str, bool]]:
    """Yield patterns, and texts as SQL literals, each with whether it is filled with blanks or zeros."""
    at = 0
    filled = True
    while at < len(form):
        found = _PART.match(form, at)
        if found is None:
            raise Refused(node, f"the format {form}")
        at = found.end()
        if found["word"] is None:
            yield standard_literal(found["quoted"] if found["quoted"] is not None else found["other"]), True
            continue
        at = found.start()
        if form.startswith("FM", at) and filled:
            filled, at = False, at + 2
            continue
        word = next((form[at : at + len(each)] for each in _WORDS if form[at:].upper().startswith(each)), None)
        following = "" if word is None else form[at + len(word) : at + len(word) + 2].upper()
        if word not in _SPELLED or following == "TH":
            raise Refused(node, f"the format {form}", "Quote letters that are no pattern.")
        yield word, filled
        filled, at = True, at + len(word)


def _part(word: str, at: str, *, filled: bool) -> str:
    """Return the text of a pattern."""
    if word.startswith("'"):
        return word
    if word in _HALVES:
        early, late = _HALVES[word]
        return f"case when date_part('hour', {at}) < 12 then '{early}' else '{late}' end"
    if word.upper() in _FIELDS:
        value, width = _FIELDS[word.upper()]
        number = f"cast({value.format(at)} as varchar)"
        return f"lpad({number}, {width}, '0')" if filled else number
    function, width = _NAMES[word.lower()]
    name = f"{function}({at})" if width else f"left({function}({at}), 3)"
    name = f"upper({name})" if word.isupper() else f"lower({name})" if word.islower() else name
    return f"rpad({name}, {width}, ' ')" if width and filled else name


def number_text(text: str, form: str) -> str:
    """Return a number in a format: digits, commas and a point."""
    bare = form.removeprefix("FM")
    whole, _, fraction = bare.partition(".")
    with_point = "." in bare
    value = Decimal(read_decimal(text)).quantize(Decimal(1).scaleb(-len(fraction)), ROUND_HALF_UP, _CONTEXT)
    digits, _, decimals = decimal_text(value.copy_abs()).partition(".")
    places = len(whole.replace(",", ""))
    digits = "" if digits == "0" and with_point and _zeros_from(whole) is None else digits
    negative = value < 0
    if len(digits) > places:
        filled = re.sub("[90]", "#", bare)
        return ("-" if negative else "" if form != bare else " ") + filled
    body = _whole(whole, digits)
    if form != bare:
        kept = fraction.rindex("0") + 1 if "0" in fraction else 0
        decimals = decimals[:kept] + decimals[kept:].rstrip("0")
        shown_whole = body.strip() or ("" if decimals else "0")
        return ("-" if negative else "") + shown_whole + ("." + decimals if with_point else "")
    blanks = len(body) - len(body.lstrip(" "))
    signed = " " * blanks + ("-" if negative else " ") + body[blanks:]
    return signed + ("." + decimals if with_point else "")


def _zeros_from(whole: str) -> int | None:
    """Return from which place on a format shows zeros; None if it shows none."""
    return whole.find("0") if "0" in whole else None


def _whole(form: str, digits: str) -> str:
    """Return the digits before the point, in the format: blanks before the first one."""
    places = len(form.replace(",", ""))
    padded = digits.rjust(places)
    zeros = _zeros_from(form.replace(",", ""))
    shown_from = min(places - len(digits), places if zeros is None else zeros)
    text, place = "", 0
    for each in form:
        if each == ",":
            text += "," if place > shown_from else " "
            continue
        text += padded[place] if padded[place] != " " else "0" if place >= shown_from else " "
        place += 1
    return text
