r"""Characters that a text has and a reader does not see: which they are, and how they are written. Pure.

An escape of `values.escapes` for a byte that is not valid text (NUL, `x`, two digits) is written as `\xe9`.
"""

import re

CONTROLS = "\x7f-\x9f\u2028-\u202e\u2066-\u2069"
"""Ranges of a character class: control characters that JSON allows in a string, and those that change the direction."""
INVISIBLE = f"{CONTROLS}\xad\u061c\u180e\u200b-\u200f\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
"""These and characters without a shape."""
BYTE = "\x00x[0-9a-f]{2}"
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LAST_OF_FOUR_DIGITS = 0xFFFF


def escaped(found: re.Match[str] | str) -> str:
    """Write a character, or a byte, as an escape; PostgreSQL and Python read that of a character, JSON up to U+FFFF."""
    text = found if isinstance(found, str) else found[0]
    if len(text) > 1:
        return "\\" + text[1:]
    code = ord(text)
    return _NAMED.get(text) or (f"\\u{code:04x}" if code <= _LAST_OF_FOUR_DIGITS else f"\\U{code:08x}")
