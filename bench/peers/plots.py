"""Charts as SVG, written by hand: no library, the same bytes for the same figures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _LABEL, _VALUE, _BAR, _GAP, _TOP = 860, 300, 90, 20, 8, 30
_COLOURS = {"ours": "#0b6e4f", "peer": "#5b7db1", "floor": "#b8bec6"}
_STYLE = "font-family='sans-serif' font-size='13' fill='#222'"


@dataclass(frozen=True)
class Bar:
    """One contender; `kind` is ours, peer or floor (keeps nothing)."""

    label: str
    value: float
    text: str
    kind: str


def bars(title: str, found: Sequence[Bar]) -> str:
    """Draw bars from the top down."""
    height = _TOP + len(found) * (_BAR + _GAP) + _GAP
    largest = max((bar.value for bar in found), default=1.0) or 1.0
    scale = (_WIDTH - _LABEL - _VALUE) / largest
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {height}' role='img'>",
        f"<title>{escape(title)}</title>",
        f"<rect width='{_WIDTH}' height='{height}' fill='white'/>",
        f"<text x='8' y='19' {_STYLE} font-weight='bold'>{escape(title)}</text>",
    ]
    for number, bar in enumerate(found):
        top = _TOP + number * (_BAR + _GAP)
        width = max(1.0, bar.value * scale)
        parts += [
            f"<text x='{_LABEL - 8}' y='{top + 15}' {_STYLE} text-anchor='end'>{escape(bar.label)}</text>",
            f"<rect x='{_LABEL}' y='{top}' width='{width:.1f}' height='{_BAR}' fill='{_COLOURS[bar.kind]}'/>",
            f"<text x='{_LABEL + width + 6:.1f}' y='{top + 15}' {_STYLE}>{escape(bar.text)}</text>",
        ]
    return "\n".join([*parts, "</svg>", ""])


Points = Sequence[tuple[float, float]]
_LINES = ("#0b6e4f", "#5b7db1", "#b5651d", "#7a5195", "#8a8f98", "#c2185b", "#00838f")
_PLOT_HEIGHT, _MARGIN, _LEAST = 320, 60, 0.01


def lines(title: str, x_label: str, found: Mapping[str, Points]) -> str:
    """Draw a line for each contender, with logarithmic axes."""
    xs = [x for points in found.values() for x, _ in points]
    ys = [max(y, _LEAST) for points in found.values() for _, y in points]
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {_PLOT_HEIGHT}' role='img'>",
        f"<title>{escape(title)}</title>",
        f"<rect width='{_WIDTH}' height='{_PLOT_HEIGHT}' fill='white'/>",
        f"<text x='8' y='19' {_STYLE} font-weight='bold'>{escape(title)}</text>",
    ]
    right, bottom = _WIDTH - _LABEL, _PLOT_HEIGHT - _MARGIN
    for x in sorted(set(xs)):
        place = _MARGIN + _log_share(x, xs) * (right - _MARGIN)
        parts.append(f"<text x='{place:.1f}' y='{bottom + 20}' {_STYLE} text-anchor='middle'>{x:,.0f}</text>")
    parts.append(f"<text x='{right / 2:.1f}' y='{bottom + 42}' {_STYLE} text-anchor='middle'>{escape(x_label)}</text>")
    for number, (label, points) in enumerate(found.items()):
        colour = _LINES[number % len(_LINES)]
        places = [
            (
                _MARGIN + _log_share(x, xs) * (right - _MARGIN),
                bottom - _log_share(max(y, _LEAST), ys) * (bottom - _TOP - _GAP),
            )
            for x, y in points
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        end_x, end_y = places[-1]
        parts += [
            f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>",
            f"<text x='{end_x + 6:.1f}' y='{end_y + 4:.1f}' {_STYLE}>{escape(label)}, {points[-1][1]:,.2f}</text>",
        ]
    return "\n".join([*parts, "</svg>", ""])


def _log_share(value: float, among: Sequence[float]) -> float:
    low, high = math.log(min(among)), math.log(max(among))
    return 0.5 if high == low else (math.log(value) - low) / (high - low)
