r"""Escapes for text that is not UTF-8: exact and reversible.

PostgreSQL validates text on input, not on output, so a UTF-8 database can contain invalid bytes (from an extension's
function, a binary-coercible cast, an old release). Arrow, Parquet and Spark require UTF-8. Each byte that is not part
of a character becomes NUL, `x` and two hexadecimal digits; all others stay unchanged. PostgreSQL's text never contains
NUL, so the escape is unambiguous, and texts are equal exactly if their escaped forms are. Terminals show it as `\xe9`
(`visible`).
"""

import codecs
import re

import pyarrow as pa

_HANDLER = "auditlake-bytes"
_BYTE = re.compile("\0x([0-9a-f]{2})")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(f"\0x{byte:02x}" for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_HANDLER, _escaped)


def text_of(raw: bytes) -> str:
    """Decode bytes, with escapes for invalid ones."""
    return raw.decode(errors=_HANDLER)


def bytes_of(text: str) -> bytes:
    """Encode text, with escapes as the bytes they stand for."""
    parts = _BYTE.split(text)
    return b"".join(bytes.fromhex(part) if place % 2 else part.encode() for place, part in enumerate(parts))


def texts_of(values: pa.Array) -> pa.Array:
    """Escape the invalid bytes in a column of unchecked strings; a valid column is returned unchanged."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        raws = values.cast(pa.large_binary() if pa.types.is_large_string(values.type) else pa.binary())
        return pa.array([None if raw is None else text_of(raw) for raw in raws.to_pylist()], values.type)
    return values
