r"""Formatting: what pages show of values, times, sizes and charts, as HTML and SVG. Exact, visible and harmless. Pure.

    NULL                      a dim word, so that it is not taken for the text NULL
    ''                        the empty text as two quotes
    control characters        an escape in a box: \n, \u0007; also those that change the direction of text
    a byte that is not valid  \\xhh in a box (`values.escapes`)
    a long text               its beginning, and the rest when opened; of a very long one only the first characters

Everything else is escaped by markupsafe. A value is isolated (`<bdi>`), so that right-to-left text does not reorder
what stands next to it. A chart is a path in a box of WIDTH by HEIGHT, which the page stretches to its width.
"""

import re

from markupsafe import Markup, escape

from auditlake.invisible import BYTE, INVISIBLE, escaped
from auditlake.serve import models

_ONE_INVISIBLE = re.compile(f"{BYTE}|[\x00-\x1f\ud800-\udfff{INVISIBLE}]")
_INVISIBLE = re.compile(f"(?:{_ONE_INVISIBLE.pattern})+")
SHORT = 120
LONGEST = 10_000
_KILO = 1024
_NULL = Markup('<span class="null">NULL</span>')
_EMPTY = Markup('<span class="empty" title="empty text">\'\'</span>')
WIDTH, HEIGHT = 1000, 100
_LEAST = 6


def value_html(text: str | None, most: int = SHORT, longest: int | None = LONGEST) -> Markup:
    """Return a value as HTML; a text of more than `most` characters is folded, one of more than `longest` is cut."""
    if text is None:
        return _NULL
    if text == "":
        return _EMPTY
    if len(text) <= most:
        return Markup("<bdi>{}</bdi>").format(visible_html(text))
    head = Markup("<bdi>{}</bdi>…").format(visible_html(text[: most - 20]))
    size = f"{len(text):,} characters"
    if longest is not None and is_cut(text, longest):
        size = f"the first {longest:,} of {size}"
    return Markup(
        '<details class="long"><summary>{} <span class="size">{}</span></summary><bdi>{}</bdi></details>'
    ).format(head, size, visible_html(text[:longest]))


def is_cut(text: str | None, longest: int = LONGEST) -> bool:
    """Return whether a value is not shown whole."""
    return text is not None and len(text) > longest


def visible_html(text: str) -> Markup:
    """Return a text as HTML in which every invisible character is shown as its escape."""
    return Markup(_INVISIBLE.sub(_boxed, str(escape(text))))  # noqa: S704 - escaped


def _boxed(match: re.Match[str]) -> str:
    """Return a run of invisible characters in a box; escaping HTML has left them as they are."""
    shown = "".join(map(escaped, _ONE_INVISIBLE.findall(match[0])))
    return f'<span class="ctl">{shown}</span>{"<wbr>" if match[0].endswith(chr(10)) else ""}'


def bars_path(timeline: models.TimelineJson) -> str:
    """Return the bars of the density chart; heights are by the square root, so that single commits are visible."""
    most = max((bar.commits for bar in timeline.bars), default=0)
    width = WIDTH / max(1, len(timeline.bars))
    parts = []
    for place, bar in enumerate(timeline.bars):
        if bar.commits:
            height = max(_LEAST, (bar.commits / most) ** 0.5 * HEIGHT)
            parts.append(f"M{place * width:.1f} {HEIGHT}v-{height:.1f}h{width * 0.8:.1f}V{HEIGHT}z")
    return "".join(parts)


def unknown_path(timeline: models.TimelineJson) -> str:
    """Return the stretches of the density chart in which changes are unknown."""
    begin, end = timeline.from_us, timeline.to_us
    parts = []
    for each in timeline.unknown:
        first = begin if each.from_us is None else max(begin, each.from_us)
        last = end if each.to_us is None else min(end, each.to_us)
        if first <= last:
            x, width = (WIDTH * part / max(1, end - begin) for part in (first - begin, last - first))
            parts.append(f"M{x:.1f} 0h{max(2.0, width):.1f}V{HEIGHT}H{x:.1f}z")
    return "".join(parts)


def has_line(chart: models.ChartJson) -> bool:
    """Return whether a chart shows more than nothing: two known values, and one that is not 0."""
    known = [each for each in chart.values if each is not None]
    return len(known) > 1 and any(known)


def line_path(chart: models.ChartJson) -> str:
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
