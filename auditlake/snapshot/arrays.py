"""Arrays as typed Arrow columns, read from PostgreSQL's text of them. Pure.

An array that is not one-dimensional from 1, or has an element that its element type cannot hold, is NULL in the typed
column and exact text beside it, as it is from the stream (`apply.typing`).
"""

from collections.abc import Callable

import pyarrow as pa

from auditlake.lake.arrow import arrow_type
from auditlake.values.arrays import elements
from auditlake.values.types import ColumnType, Kind

_NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})
_ISO_DATE_LENGTH = len("2026-11-21")
_YEAR_END = 4

_Texts = list[str | None]


def read_arrays(texts: pa.Array, held: ColumnType) -> tuple[pa.Array, pa.Array | None]:
    """Read a column of array texts: the typed column, and the texts of those that do not fit, if there are any."""
    assert held.element is not None  # noqa: S101 - the kind says so
    found = [None if text is None else _flat(text, held.element) for text in texts.to_pylist()]
    offsets, flat = _flattened(found)
    typed = pa.ListArray.from_arrays(offsets, _typed(flat, held.element))
    odd = [text if row is None else None for text, row in zip(texts.to_pylist(), found, strict=True)]
    return typed.cast(arrow_type(held)), pa.array(odd, pa.string()) if any(odd) else None


def _flat(text: str, held: ColumnType) -> _Texts | None:
    found = elements(text)
    if found is None or not held.may_not_fit:
        return found
    return found if all(each is None or _fits(each, held) for each in found) else None


def _fits(text: str, held: ColumnType) -> bool:
    match held.kind:
        case Kind.DECIMAL:
            return text not in _NOT_FINITE
        case Kind.DATE:
            return len(text) == _ISO_DATE_LENGTH
        case _:
            return text[_YEAR_END] == "-" and not text.endswith(" BC")


def _flattened(rows: list[_Texts | None]) -> tuple[pa.Array, _Texts]:
    """Return offsets, NULL where a row is, and all elements one after the other."""
    offsets: list[int | None] = []
    flat: _Texts = []
    for row in rows:
        offsets.append(None if row is None else len(flat))
        flat += row or []
    return pa.array([*offsets, len(flat)], pa.int32()), flat


def _typed(texts: _Texts, held: ColumnType) -> pa.Array:
    read = _READERS.get(held.kind)
    if read is None:
        return pa.array(texts, pa.string()).cast(arrow_type(held))
    return pa.array([None if text is None else read(text) for text in texts], arrow_type(held))


_READERS: dict[Kind, Callable[[str], object]] = {
    Kind.BOOLEAN: lambda text: text == "t",
    Kind.BYTEA: lambda text: bytes.fromhex(text.removeprefix("\\x")),
}
