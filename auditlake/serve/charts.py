"""Charts as paths of SVG: the density of commits, and lines over time. Pure.

A path is drawn in a box of WIDTH by HEIGHT, which the page stretches to its width.
"""

from auditlake.serve import models

WIDTH, HEIGHT = 1000, 100
_LEAST = 6


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
