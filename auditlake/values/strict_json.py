r"""JSON from strangers: decoded only if every later reader can encode it again. Pure.

Python reads texts as JSON that no other program may get from us. `decode_json` refuses, beside what is no JSON:

    NaN, Infinity                  not in RFC 8259
    1e999                          infinite as a double, and so written as Infinity
    1e-999                         0 as a double, and so another number
    10**5000, 0e-20000             more than `_MOST_DIGITS`: Python, numeric or `sql` has a limit above it
    half a surrogate pair          has no UTF-8, so no file, socket or table takes it
    \u0000                         in no text of PostgreSQL, so no jsonb
    an object with a name twice    readers differ in which member they take
    nesting beyond `_DEEPEST`      ends in a RecursionError, here or in a later reader

Authority: RFC 8259; RFC 7493 (I-JSON), 2; postgresql.org/docs/current/datatype-json.html
"""

import json
import math
from collections.abc import Sequence
from typing import Any, NoReturn

_DEEPEST = 100
_MOST_DIGITS = 1_000


def decode_json(text: str | bytes, *, inside: int = 0) -> Any:  # noqa: ANN401 - any JSON value
    """Decode a text, or bytes of UTF-8; `inside` levels of it are not counted.

    Raises ValueError, which does not quote the text.
    """
    try:
        text = text.decode() if isinstance(text, bytes) else text
        value = json.loads(
            text, parse_constant=_refuse, parse_int=_whole, parse_float=_finite, object_pairs_hook=_object
        )
    except (ValueError, RecursionError):
        raise ValueError("not strict JSON") from None
    _check(value, _DEEPEST + inside)
    return value


def _refuse(_: str) -> NoReturn:
    raise ValueError("not a number")


def _whole(digits: str) -> int:
    _require_short(digits)
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    mantissa, _, exponent = digits.lower().partition("e")
    if not math.isfinite(number) or (number == 0 and mantissa.strip("-0.")):
        raise ValueError("beyond the range of a double")
    _require_short(digits, int(exponent or 0))
    return number


def _require_short(digits: str, exponent: int = 0) -> None:
    if len(digits) > _MOST_DIGITS or abs(exponent) > _MOST_DIGITS:
        raise ValueError("too many digits")


def _object(members: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        raise ValueError("a name occurs twice")
    return found


def _check(value: object, deepest: int) -> None:
    """Check depth and texts, level by level; raises ValueError."""
    level, depth = [value], 0
    while level:
        if depth > deepest:
            raise ValueError("nested too deeply")
        below: list[object] = []
        for each in level:
            if isinstance(each, str):
                _require_text(each)
            elif isinstance(each, dict):
                below += each
                below += each.values()
            elif isinstance(each, list):
                below += each
        level, depth = below, depth + 1


def _require_text(text: str) -> None:
    if "\0" in text:
        raise ValueError("a NUL")
    try:
        text.encode()
    except UnicodeEncodeError:  # quotes the text
        raise ValueError("half a surrogate pair") from None
