r"""Escapes of text: bytes that are not UTF-8 when it is read, control characters when it is shown. Pure.

PostgreSQL validates text on input, not on output, so a UTF-8 database can contain invalid bytes (from an extension's
function, a binary-coercible cast, an old release). Arrow, Parquet and Spark require UTF-8. Each byte that is not part
of a character becomes NUL, `x` and two hexadecimal digits; all others stay unchanged. PostgreSQL's text never contains
NUL, so the escape is unambiguous, and texts are equal exactly if their escaped forms are.

`visible` is the one place where text of others is made fit for a line that people read: no name or value ends the
line, moves the cursor, commands the terminal, changes the direction of the text after it, or hides a part of itself. It
shows an invalid byte as `\xe9`.
"""

import codecs
import re
from typing import TYPE_CHECKING

from auditlake.invisible import BYTE, CONTROLS, INVISIBLE, escaped

if TYPE_CHECKING:  # the decoder of single messages needs no Arrow, and its importers start sooner without it
    import pyarrow as pa

_HANDLER = "auditlake-bytes"
_CONTROL = re.compile(rf"[\x00-\x1f{CONTROLS}]")
_UNSEEN = re.compile(rf"{BYTE}|[\x00-\x1f\ud800-\udfff{INVISIBLE}]")


def _escaped_bytes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(f"\0x{byte:02x}" for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_HANDLER, _escaped_bytes)


def decode_bytes(raw: bytes) -> str:
    """Decode bytes, with escapes for invalid ones."""
    return raw.decode(errors=_HANDLER)


def escape_column(values: "pa.Array") -> "pa.Array":
    """Escape the invalid bytes in a column of unchecked strings; a valid column is returned unchanged."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        raws = values.cast(pa.large_binary() if pa.types.is_large_string(values.type) else pa.binary())
        return pa.array([None if raw is None else decode_bytes(raw) for raw in raws.to_pylist()], values.type)
    return values


def visible(text: str) -> str:
    """Escape line breaks, all other control and invisible characters, and bytes that are not valid text."""
    return _UNSEEN.sub(escaped, text)


def has_controls(text: str) -> bool:
    """Return whether a terminal would execute a part of the text, or show the rest in another direction."""
    return _CONTROL.search(text) is not None
