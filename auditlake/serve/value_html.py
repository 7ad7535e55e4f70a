r"""Values of rows as HTML: exact, visible and harmless, whatever they contain. Pure.

    NULL                      a dim word, so that it is not taken for the text NULL
    ''                        the empty text as two quotes
    control characters        an escape in a box: \n, \u0007; also those that change the direction of text
    a byte that is not valid  \\xhh in a box (`values.encoding`)
    a long text               its beginning, and the rest when opened

Everything else is escaped by markupsafe. A value is isolated (`<bdi>`), so that right-to-left text does not reorder
what stands next to it.
"""

import re
from collections.abc import Iterator

from markupsafe import Markup, escape

_INVISIBLE = re.compile(
    "\x00x[0-9a-f]{2}|[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
    "|[\ud800-\udfff\U000e0000-\U000e007f]"
)
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LAST_OF_FOUR_DIGITS = 0xFFFF
SHORT = 120
_NULL = Markup('<span class="null">NULL</span>')
_EMPTY = Markup('<span class="empty" title="empty text">\'\'</span>')


def value(text: str | None, most: int = SHORT) -> Markup:
    """Return a value as HTML; a text of more than `most` characters is folded."""
    if text is None:
        return _NULL
    if text == "":
        return _EMPTY
    if len(text) <= most:
        return Markup("<bdi>{}</bdi>").format(visible(text))
    head = Markup("<bdi>{}</bdi>…").format(visible(text[: most - 20]))
    size = f"{len(text):,} characters"
    return Markup(
        '<details class="long"><summary>{} <span class="size">{}</span></summary><bdi>{}</bdi></details>'
    ).format(head, size, visible(text))


def visible(text: str) -> Markup:
    """Return a text as HTML in which every invisible character is shown as its escape."""
    return Markup("").join(_parts(text))


def _parts(text: str) -> Iterator[Markup]:
    at = 0
    for match in _INVISIBLE.finditer(text):
        yield escape(text[at : match.start()])
        yield Markup('<span class="ctl">{}</span>').format(_escaped(match[0]))
        if match[0] == "\n":
            yield Markup("<wbr>")
        at = match.end()
    yield escape(text[at:])


def _escaped(found: str) -> str:
    if len(found) > 1:
        return "\\" + found[1:]
    code = ord(found)
    return _NAMED.get(found) or (f"\\u{code:04x}" if code <= _LAST_OF_FOUR_DIGITS else f"\\U{code:08x}")
