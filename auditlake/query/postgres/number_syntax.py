"""Numbers as PostgreSQL 16 and later read them: also 1_000, 0x1F, 0o17 and 0b11. Pure.

Authority: postgresql.org/docs/current/sql-syntax-lexical.html, "Numeric Constants"
"""

import re

_DIGITS = r"\d(?:_?\d)*"
_BASES = "0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+"
NUMBER = re.compile(
    rf"(?P<based>{_BASES})|(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?", re.ASCII
)
_LONGEST_BASED = 3000


def plain(text: str) -> str | None:
    """Return a number, perhaps with a sign and blanks around, in decimal digits alone; None for another text."""
    bare = text.strip(" \t\n\v\f\r")
    sign = bare[:1] if bare.startswith(("+", "-")) else ""
    found = NUMBER.fullmatch(bare, len(sign))
    if found is None or (found["based"] and len(bare) > _LONGEST_BASED):
        return None
    digits = found[0].replace("_", "")
    return f"{sign}{int(digits, 0) if found['based'] else digits}"
