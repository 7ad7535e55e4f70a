r"""Python values of PostgreSQL's text: exact, or the text itself, marked. Pure.

    decoder(type_oid, typmod)    a function from a value's text to its Python value

    boolean                          bool
    smallint, integer, bigint, oid   int
    real, double precision           float, with the value that PostgreSQL stores
    numeric                          Decimal, with every digit; also NaN and the infinities
    date                             date
    timestamp                        datetime without a zone
    timestamp with time zone         datetime in UTC
    bytea                            bytes
    arrays of these                  list, elements may be None
    every other type                 str, PostgreSQL's text

A value that its Python type cannot hold is `ExactText`: infinite dates, BC, years after 9999, arrays of several
dimensions or with another lower bound than 1, an array with such an element, and text with invalid bytes
(`values.escapes`). SQL NULL never reaches a decoder; callers keep it None.
"""

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from auditlake.values.exact_text import array_elements
from auditlake.values.types import (
    BUILT_IN,
    DATE_LENGTH,
    NUMERIC_OID,
    TEXT,
    YEAR_LENGTH,
    ColumnType,
    Conversion,
    column_type,
)

Decoder = Callable[[str], Any]


class ExactText(str):
    """PostgreSQL's exact text of a value that its Python type cannot hold."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"ExactText({super().__repr__()})"


@lru_cache(maxsize=1024)
def decoder(type_oid: int, typmod: int) -> Decoder:
    """Return the decoder of a PostgreSQL type."""
    if type_oid == NUMERIC_OID:
        return Decimal
    if type_oid == BUILT_IN["numeric"][1]:
        return _array_of(Decimal)
    return _decoder_of(column_type(type_oid, typmod))


def _decoder_of(stored: ColumnType) -> Decoder:
    if stored.element is not None:
        return _array_of(_decoder_of(stored.element))
    if stored == ColumnType(Conversion.FLOAT, "float"):
        return _real
    return _DECODERS.get(stored.kind, _text)


def _array_of(element: Decoder) -> Decoder:
    def decode(text: str) -> list[Any] | ExactText:
        texts = array_elements(text)
        if texts is None:
            return ExactText(text)
        values = [None if each is None else element(each) for each in texts]
        return ExactText(text) if any(isinstance(value, ExactText) for value in values) else values

    return decode


def _text(text: str) -> str:
    return ExactText(text) if "\0" in text else text


def _boolean(text: str) -> bool:
    return text == "t"


def _real(text: str) -> float:
    single: float = struct.unpack("f", struct.pack("f", float(text)))[0]
    return single


def _date(text: str) -> date | ExactText:
    return date.fromisoformat(text) if len(text) == DATE_LENGTH else ExactText(text)


def _timestamp(text: str) -> datetime | ExactText:
    return datetime.fromisoformat(text) if _has_year_of_four_digits(text) else ExactText(text)


def _timestamptz(text: str) -> datetime | ExactText:
    if not _has_year_of_four_digits(text):
        return ExactText(text)
    return datetime.fromisoformat(text.removesuffix("+00")).replace(tzinfo=UTC)


def _has_year_of_four_digits(text: str) -> bool:
    return text[YEAR_LENGTH] == "-" and text[0] != "-" and not text.endswith(" BC")


def _bytea(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))


_DECODERS: dict[Conversion, Decoder] = {
    TEXT.kind: _text,
    Conversion.BOOLEAN: _boolean,
    Conversion.INTEGER: int,
    Conversion.FLOAT: float,
    Conversion.DATE: _date,
    Conversion.TIMESTAMP: _timestamp,
    Conversion.TIMESTAMPTZ: _timestamptz,
    Conversion.BYTEA: _bytea,
}
