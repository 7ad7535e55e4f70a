"""Bar charts as SVG, written by hand: no library, the same bytes for the same figures."""

from collections.abc import Sequence
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
