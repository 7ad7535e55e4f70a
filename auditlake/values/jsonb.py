"""PostgreSQL's text of a `jsonb`, and of its parts: names keep their order there, numbers their digits. Pure.

Authority: src/backend/utils/adt/jsonb_util.c, `lengthCompareJsonbStringValue`
"""

import json
from typing import Any

from auditlake.values.numeric_text import Failed, decimal_text, read_number

_SYNTAX = "invalid input syntax for type json"
TOO_DEEP = "a document is nested too deep"


class Number(str):
    """A number of a document, as it is written."""

    __slots__ = ()


def read_document(text: str) -> Any:  # noqa: ANN401 - a document
    """Read a document; raises Failed."""
    try:
        return json.loads(text, parse_float=Number, parse_int=Number, parse_constant=_no_constant)
    except ValueError:
        raise Failed(_SYNTAX) from None
    except RecursionError:
        raise Failed(TOO_DEEP) from None


def _no_constant(_: str) -> None:
    raise ValueError


def canonical(text: str) -> str:
    """Return the text that PostgreSQL prints of the jsonb that it reads from a text; raises Failed."""
    try:
        return printed_jsonb(_canonical(read_document(text)))
    except RecursionError:
        raise Failed(TOO_DEEP) from None


def _canonical(value: Any) -> Any:  # noqa: ANN401 - a part of a document
    """Order the members by the length of their names in bytes, then by these; the last of equal ones counts."""
    if isinstance(value, Number):
        return Number(decimal_text(read_number(value)))
    if isinstance(value, dict):
        return {key: _canonical(value[key]) for key in sorted(value, key=lambda key: (len(_utf8(key)), _utf8(key)))}
    if isinstance(value, list):
        return list(map(_canonical, value))
    if isinstance(value, str):
        _utf8(value)
    return value


def _utf8(text: str) -> bytes:
    """Return the bytes of a text that PostgreSQL can hold; raises Failed."""
    if "\0" in text:
        raise Failed("unsupported Unicode escape sequence")
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        raise Failed(_SYNTAX) from None


def printed_jsonb(value: Any) -> str:  # noqa: ANN401 - a part of a document
    """Return PostgreSQL's text of a part of a jsonb."""
    parts: list[str] = []
    _print(value, parts)
    return "".join(parts)


def _print(value: Any, parts: list[str]) -> None:  # noqa: ANN401 - a part of a document
    """Append the text in parts: to join it at each level would take time with every one."""
    if isinstance(value, Number):
        parts.append(value)
    elif isinstance(value, dict):
        before = "{"
        for key, each in value.items():
            parts += (before, json.dumps(key, ensure_ascii=False), ": ")
            _print(each, parts)
            before = ", "
        parts.append("}" if value else "{}")
    elif isinstance(value, list):
        before = "["
        for each in value:
            parts.append(before)
            _print(each, parts)
            before = ", "
        parts.append("]" if value else "[]")
    else:
        parts.append(json.dumps(value, ensure_ascii=False))
