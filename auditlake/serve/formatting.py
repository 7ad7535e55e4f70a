r"""Formatting: what pages show of values, times, sizes and charts, as HTML and SVG. Exact, visible and harmless. Pure.

    NULL                      a dim word, so that it is not taken for the text NULL
    ''                        the empty text as two quotes
    control characters        an escape in a box: \n, \u0007; also those that change the direction of text
    a byte that is not valid  \\xhh in a box (`values.escapes`)
    a long text               its beginning, and the rest when opened

Everything else is escaped by markupsafe. A value is isolated (`<bdi>`), so that right-to-left text does not reorder
what stands next to it. A chart is a path in a box of WIDTH by HEIGHT, which the page stretches to its width.
"""

import re
from collections.abc import Iterator

from markupsafe import Markup, escape

from auditlake.serve import models

_INVISIBLE = re.compile(
    "\x00x[0-9a-f]{2}|[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
    "|[\ud800-\udfff\U000e0000-\U000e007f]"
)
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LAST_OF_FOUR_DIGITS = 0xFFFF
SHORT = 120
_KILO = 1024
_NULL = Markup('<span class="null">NULL</span>')
_EMPTY = Markup('<span class="empty" title="empty text">\'\'</span>')
WIDTH, HEIGHT = 1000, 100
_LEAST = 6


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


def bars_path(timeline: models.Timeline) -> str:
    """Return the bars of the density chart; heights are by the square root, so that single commits are visible."""
    most = max((bar.commits for bar in timeline.bars), default=0)
    width = WIDTH / max(1, len(timeline.bars))
    parts = []
    for place, bar in enumerate(timeline.bars):
        if bar.commits:
            height = max(_LEAST, (bar.commits / most) ** 0.5 * HEIGHT)
            parts.append(f"M{place * width:.1f} {HEIGHT}v-{height:.1f}h{width * 0.8:.1f}V{HEIGHT}z")
    return "".join(parts)


def line_path(chart: models.Chart) -> str:
    """Return a line over time; a value that is not known interrupts it."""
    known = [(t, v) for t, v in zip(chart.times_us, chart.values, strict=True) if v is not None]
    if not known:
        return ""
    first, last = chart.times_us[0], chart.times_us[-1]
    most = max(1e-9, *(v for _, v in known))
    parts, drawing = [], False
    for time_us, value in zip(chart.times_us, chart.values, strict=True):
        if value is None:
            drawing = False
            continue
        x = WIDTH * (time_us - first) / max(1, last - first)
        parts.append(f"{'L' if drawing else 'M'}{x:.1f} {HEIGHT - 4 - value / most * (HEIGHT - 8):.1f}")
        drawing = True
    return "".join(parts)


def time_html(text: str | None) -> Markup:
    """Return an ISO time as HTML, its date and its fraction of a second less prominent."""
    if text is None:
        return Markup('<span class="none">—</span>')
    day, _, clock = text.removesuffix("Z").removesuffix("+00:00").partition("T")
    whole, _, fraction = clock.partition(".")
    shown = Markup('<span class="day">{}</span> {}').format(day, whole)
    if fraction:
        shown += Markup('<span class="fraction">.{}</span>').format(fraction)
    return Markup('<time datetime="{}">{}<span class="zone"> UTC</span></time>').format(text, shown)


def bytes_text(count: float | None) -> str:
    """Format a number of bytes in a unit that leaves few digits."""
    if count is None:
        return "—"
    size, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= _KILO and len(units) > 1:
        size, units = size / _KILO, units[1:]
    return f"{size:,.0f} {units[0]}" if units[0] == "bytes" else f"{size:,.1f} {units[0]}"
