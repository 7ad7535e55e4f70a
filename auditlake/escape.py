"""Escape control characters, so that the text of a row cannot move the cursor or command the terminal. Pure."""

import re

_CONTROL = re.compile(r"\x00x[0-9a-f]{2}|[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """Escape control characters, and bytes that are not valid text (`values.encoding`)."""
    return _CONTROL.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    found = match[0]
    if len(found) > 1:
        return "\\" + found[1:]
    return _NAMED.get(found) or f"\\u{ord(found):04x}"
