"""Text of somebody's rows, made safe to look at: nothing in it moves the cursor or speaks to the terminal. Pure."""

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """Escape control characters."""
    return _CONTROL.sub(lambda match: _NAMED.get(match[0]) or f"\\u{ord(match[0]):04x}", text)
