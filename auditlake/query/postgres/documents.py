"""Operators of jsonb on the text that PostgreSQL prints (`values.jsonb`), and the casts from and to that text. Pure.

Authority: postgresql.org/docs/current/functions-json.html; src/backend/utils/adt/jsonb_util.c, `JsonbDeepContains`
"""

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache, wraps
from typing import Any, TypeVar

from auditlake.cancellation import cancellable_loop
from auditlake.values import jsonb
from auditlake.values.jsonb import Number, printed_jsonb, read_document
from auditlake.values.numeric_text import Failed

PLACE = re.compile(r"[ \t\n\v\f\r]*[+-]?0*\d{1,10}", re.ASCII)

_Result = TypeVar("_Result")
_KEPT, _LONGEST_KEPT = 4096, 1024
"""Number of texts whose results are kept, and their greatest length: several operators read one document."""
_clearing: list[Callable[[], None]] = []


def _kept(function: Callable[[str], _Result]) -> Callable[[str], _Result]:
    """Keep the results for short texts; those for long ones would fill the memory, which DuckDB does not count."""
    kept = lru_cache(maxsize=_KEPT)(function)
    _clearing.append(kept.cache_clear)

    @wraps(function)
    def called(text: str) -> _Result:
        return kept(text) if len(text) <= _LONGEST_KEPT else function(text)

    return called


def clear_read() -> None:
    """Forget the texts, at the end of a statement: the rows that have them may be erased while the process runs."""
    for clear in _clearing:
        clear()


parsed = _kept(read_document)
canonical = _kept(jsonb.canonical)


def checked(text: str) -> str:
    """Check a text and return it: a cast to json; raises Failed."""
    parsed(text)
    return text


_ABSENT = object()


def _member(value: Any, key: str) -> Any:  # noqa: ANN401 - a part of a document
    return value.get(key, _ABSENT) if isinstance(value, dict) else _ABSENT


def _element(value: Any, place: int) -> Any:  # noqa: ANN401 - a part of a document
    if not isinstance(value, dict | list):  # a scalar is held as an array of one element
        return value if place in {0, -1} else _ABSENT
    if not isinstance(value, list) or not -len(value) <= place < len(value):
        return _ABSENT
    return value[place]


def _text(value: Any) -> str | None:  # noqa: ANN401 - a part of a document
    if value is _ABSENT or value is None:
        return None
    return str(value) if isinstance(value, str) else printed_jsonb(value)


def _document(value: Any) -> str | None:  # noqa: ANN401 - a part of a document
    return None if value is _ABSENT else printed_jsonb(value)


def _reading(step: Callable[[Any, Any], Any], shown: Callable[[Any], str | None]) -> Callable[[str, Any], str | None]:
    """Return an operator: a step into a document, and how what it finds is shown."""

    def read(text: str, by: Any) -> str | None:  # noqa: ANN401 - a key, a place or a path
        return shown(step(parsed(text), by))

    return read


def _at(value: Any, path: Sequence[str | None]) -> Any:  # noqa: ANN401 - a part of a document
    for step in path:
        if step is None:
            return _ABSENT
        if isinstance(value, list):
            value = _element(value, int(step)) if PLACE.fullmatch(step) else _ABSENT
        else:
            value = _member(value, step)
    return value


member, member_text = (_reading(_member, shown) for shown in (_document, _text))
"""`->` and `->>` with a key."""
element, element_text = (_reading(_element, shown) for shown in (_document, _text))
"""`->` and `->>` with a place."""
at_path, at_path_text = (_reading(_at, shown) for shown in (_document, _text))
"""`#>` and `#>>`."""


def has_any(text: str, keys: Sequence[str | None]) -> bool:
    """`?|`, and `?` of one key: keys of an object, texts of an array, or the text itself."""
    return any(_has(parsed(text), keys))


def has_all(text: str, keys: Sequence[str | None]) -> bool:
    """`?&`."""
    return all(_has(parsed(text), keys))


def _has(value: Any, keys: Sequence[str | None]) -> Iterator[bool]:  # noqa: ANN401 - a document
    texts = value if isinstance(value, dict | list) else [value]
    held = {each for each in texts if isinstance(each, str) and not isinstance(each, Number)}
    return (key in held for key in keys if key is not None)


def contains(text: str, part: str) -> bool:
    """`@>`."""
    whole, searched = parsed(text), parsed(part)
    if isinstance(whole, list) and not isinstance(searched, dict | list):
        return _scalar(searched) in _Containers().scalars(whole)
    return _Containers().contain(whole, searched)


class _Containers:
    """Containment of parts of two documents, scalars by a lookup; of objects in arrays, each is compared with each."""

    def __init__(self) -> None:
        self._scalars: dict[int, set[Any]] = {}

    def contain(self, whole: Any, part: Any) -> bool:  # noqa: ANN401 - parts of documents
        """Return whether a part of a document contains another; raises Cancelled."""
        if isinstance(part, dict):
            return isinstance(whole, dict) and all(k in whole and self.contain(whole[k], v) for k, v in part.items())
        if isinstance(part, list):
            return isinstance(whole, list) and self._in_array(whole, part)
        return _scalar(whole) == _scalar(part)

    def _in_array(self, whole: Sequence[Any], part: Sequence[Any]) -> bool:
        containers = [each for each in whole if isinstance(each, dict | list)]
        for each in cancellable_loop(part):
            if not isinstance(each, dict | list):
                if _scalar(each) not in self.scalars(whole):
                    return False
            elif not any(self.contain(other, each) for other in cancellable_loop(containers)):
                return False
        return True

    def scalars(self, array: Sequence[Any]) -> set[Any]:
        """Return the scalars of an array, which lives as long as this."""
        if (found := self._scalars.get(id(array))) is None:
            found = {_scalar(each) for each in cancellable_loop(array) if not isinstance(each, dict | list)}
            self._scalars[id(array)] = found
        return found


def _scalar(value: Any) -> tuple[type, Any]:  # noqa: ANN401 - a scalar of a document
    """Return what is equal for equal scalars: numbers are compared by their values, and 1 is not true."""
    return type(value), Decimal(value) if isinstance(value, Number) else value


def equal(one: str, other: str) -> bool:
    """`=`: numbers are compared by their values."""
    return one == other or _equal(parsed(one), parsed(other))


def _equal(one: Any, other: Any) -> bool:  # noqa: ANN401 - parts of documents
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(each, other[key]) for key, each in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_equal(*each) for each in cancellable_loop(zip(one, other, strict=True)))
    return _scalar(one) == _scalar(other)


def number_of(text: str) -> str | None:
    """Return the number of a document that is one; None for null. As in PostgreSQL 18.

    Raises Failed.
    """
    value = parsed(text)
    if value is not None and not isinstance(value, Number):
        raise Failed(f"cannot cast jsonb {kind(text)} to a number")
    return None if value is None else str(value)


def truth(text: str) -> bool | None:
    """Return the boolean of a document that is one; None for null; raises Failed."""
    value = parsed(text)
    if value is not None and not isinstance(value, bool):
        raise Failed(f"cannot cast jsonb {kind(text)} to type boolean")
    return value


def kind(text: str) -> str:
    """`jsonb_typeof`."""
    value = parsed(text)
    if isinstance(value, Number):
        return "number"
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return kinds[type(value)]


def merged(one: str, other: str) -> str:
    """`||`: of two objects, or of arrays, of which any other value is one."""
    left, right = parsed(one), parsed(other)
    if isinstance(left, dict) and isinstance(right, dict):
        return jsonb.canonical(printed_jsonb({**left, **right}))
    return printed_jsonb([*_listed(left), *_listed(right)])


def _listed(value: Any) -> list[Any]:  # noqa: ANN401 - a document
    return value if isinstance(value, list) else [value]


def without_keys(text: str, keys: Sequence[str | None]) -> str:
    """`-` of keys: members of an object, texts of an array; raises Failed."""
    value, gone = parsed(text), {*keys}
    if isinstance(value, dict):
        return printed_jsonb({key: each for key, each in value.items() if key not in gone})
    if not isinstance(value, list):
        raise Failed("cannot delete from scalar")
    return printed_jsonb(
        [each for each in value if isinstance(each, Number) or not isinstance(each, str) or each not in gone]
    )


def without_element(text: str, place: int) -> str:
    """`-` of a place; raises Failed."""
    value = parsed(text)
    if not isinstance(value, list):
        raise Failed(
            "cannot delete from object using integer index" if isinstance(value, dict) else "cannot delete from scalar"
        )
    return printed_jsonb([each for n, each in enumerate(value) if n not in {place, place + len(value)}])


def without_path(text: str, path: Sequence[str | None]) -> str:
    """`#-`; raises Failed."""
    value = parsed(text)
    if not isinstance(value, dict | list):
        raise Failed("cannot delete path in scalar")
    return printed_jsonb(_without_path(value, path, 0) if value else value)


def _without_path(value: Any, path: Sequence[str | None], at: int) -> Any:  # noqa: ANN401 - parts of documents
    if at == len(path):
        return value
    step, rest = path[at], at + 1 < len(path)
    if step is None:
        raise Failed("path element is null")
    if not isinstance(value, dict | list):
        return value
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if rest or key != step}
        return {**kept, step: _without_path(kept[step], path, at + 1)} if step in kept else kept
    if not PLACE.fullmatch(step):
        raise Failed("path element is not an integer")
    place = int(step) + (len(value) if int(step) < 0 else 0)
    return [
        _without_path(each, path, at + 1) if n == place else each for n, each in enumerate(value) if rest or n != place
    ]


def without_nulls(text: str) -> str:
    """`jsonb_strip_nulls`: members only."""
    return printed_jsonb(_without_nulls(parsed(text)))


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - a part of a document
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _parts(text: str, kind: type, what: str) -> Any:  # noqa: ANN401 - an array or an object
    value = parsed(text)
    if not isinstance(value, kind):
        raise Failed(f"cannot extract {what}")
    return value


def elements(text: str) -> list[str | None]:
    """`jsonb_array_elements`; raises Failed."""
    return [_document(each) for each in _parts(text, list, "elements from a value that is no array")]


def element_texts(text: str) -> list[str | None]:
    """`jsonb_array_elements_text`; raises Failed."""
    return [_text(each) for each in _parts(text, list, "elements from a value that is no array")]


def keys(text: str) -> list[str]:
    """`jsonb_object_keys`; raises Failed."""
    return [*_parts(text, dict, "members of a value that is no object")]


def members(text: str) -> list[str | None]:
    """The values of `jsonb_each`, in the order of `keys`; raises Failed."""
    return [*map(_document, _parts(text, dict, "members of a value that is no object").values())]


def member_texts(text: str) -> list[str | None]:
    """The values of `jsonb_each_text`; raises Failed."""
    return [*map(_text, _parts(text, dict, "members of a value that is no object").values())]


def string(text: str) -> str:
    """Return a text as a JSON string."""
    return printed_jsonb(text)


def length(text: str) -> int:
    """`jsonb_array_length`."""
    value = parsed(text)
    if not isinstance(value, list):
        raise Failed("cannot get the array length of what is not an array")
    return len(value)
