"""Frames of windows: ROWS, RANGE and GROUPS with their bounds. Pure.

RANGE adds an offset to the key of the order, so the key is widened until no sum overflows.

Authority: postgresql.org/docs/current/sql-expressions.html#SYNTAX-WINDOW-FUNCTIONS
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from auditlake.query.postgres.cells import Cell, Refused
from auditlake.query.postgres.conversions import coerced
from auditlake.query.postgres.texts import NotRead, interval_parts
from auditlake.query.postgres.types import INTERVAL, UNKNOWN

_EXCLUDED = frozenset({"", "current row", "group", "ties", "no others"})
_BEYOND_EVERY_ROW = 2**62
FEW_ROWS = 1_000


def with_offsets(spec: exp.Expr | None, terms: Sequence[exp.Expr], keys: Sequence[Cell]) -> Sequence[Cell]:
    """Return the keys of an order as RANGE with offsets needs them; raises Refused."""
    if spec is None or _kind(spec) != "range":
        return keys
    if not any(isinstance(spec.args.get(each), exp.Expr) for each in ("start", "end")):
        return keys
    if len(keys) != 1:
        raise Refused(spec, "RANGE with an offset and not one key of ORDER BY", wrong=True)
    if terms[0].find(exp.Query) is not None:  # DuckDB does not copy it
        raise Refused(terms[0], "RANGE with an offset over a subquery")
    if keys[0].type.is_integer:
        return [replace(keys[0], sql=f"cast({keys[0].sql} as hugeint)")]
    if keys[0].type.is_time:
        return [replace(keys[0], sql=f"cast({keys[0].sql} as timestamp)")]
    raise Refused(spec, f"RANGE with an offset over {keys[0].type.shown}")


def frame_text(spec: exp.Expr | None, cell: Callable[[exp.Expr], Cell], keys: Sequence[Cell]) -> str:
    """Translate a frame; raises Refused."""
    if spec is None:
        return ""
    kind = _kind(spec)
    ends = [_bound(spec, name, cell, keys) for name in ("start", "end")]
    if not _is_forward(spec, cell):  # of such a frame without rows DuckDB counts a negative number
        raise Refused(spec, "a window whose end may be before its start")
    left_out = spec.args.get("exclude")
    word = "" if left_out is None else str(left_out.name if isinstance(left_out, exp.Expr) else left_out).lower()
    if kind not in {"rows", "range", "groups"} or word not in _EXCLUDED:
        raise Refused(spec, f"{kind.upper()} {word.upper()} of a window".replace("  ", " "))
    return f" {kind} between {ends[0]} and {ends[1] or 'current row'}{' exclude ' if word else ''}{word}"


def _is_forward(spec: exp.Expr, cell: Callable[[exp.Expr], Cell]) -> bool:
    """Return whether a frame certainly does not end before it starts; both bounds are known to be translated."""
    sides = [str(spec.args.get(f"{name}_side") or "").lower() for name in ("start", "end")]
    bounds = [each for name in ("start", "end") if isinstance(each := spec.args.get(name), exp.Expr)]
    if sides[0] != sides[1] or len(bounds) < len(sides):
        return True
    first, last = (_size(each, cell) for each in (bounds if sides[0] == "following" else reversed(bounds)))
    return all(less <= more for less, more in zip(first, last, strict=True))


def _size(bound: exp.Expr, cell: Callable[[exp.Expr], Cell]) -> Sequence[int]:
    """Return a whole number, or the parts of an interval."""
    text = str(_constant(bound).this)
    try:
        return (int(text),) if cell(bound).type.is_integer else interval_parts(text)
    except NotRead:
        raise Refused(bound, "a window's bound of this form") from None


def has_few_rows(spec: exp.Expr | None) -> bool:
    """Return whether a frame has at most `FEW_ROWS` rows before and after the current one."""
    if spec is None or _kind(spec) != "rows":
        return False
    bounds = (spec.args.get("start"), spec.args.get("end") or "current row")
    return all(_is_near(each) for each in bounds)


def _is_near(bound: exp.Expr | str | None) -> bool:
    if not isinstance(bound, exp.Expr):
        return str(bound).lower() == "current row"
    constant = _constant(bound)
    return isinstance(constant, exp.Literal) and constant.name.isdecimal() and int(constant.name) <= FEW_ROWS


def _kind(spec: exp.Expr) -> str:
    return str(spec.args.get("kind") or "").lower()


def _bound(spec: exp.Expr, name: str, cell: Callable[[exp.Expr], Cell], keys: Sequence[Cell]) -> str:
    value, side = spec.args.get(name), str(spec.args.get(f"{name}_side") or "").lower()
    if value is None:
        return ""
    return f"{value.lower() if isinstance(value, str) else _offset(spec, value, cell, keys)} {side}".strip()


def _constant(value: exp.Expr) -> exp.Expr:
    """Return what a cast is of, without parentheses."""
    bare = value.unnest()
    found: exp.Expr = bare.this if isinstance(bare, exp.Cast) else bare
    return found


def _offset(spec: exp.Expr, value: exp.Expr, cell: Callable[[exp.Expr], Cell], keys: Sequence[Cell]) -> str:
    constant = _constant(value)
    if not isinstance(constant, exp.Literal) or "-" in str(constant.this):
        raise Refused(spec, "a window's bound of this form")
    found = cell(value)
    if _kind(spec) != "range" or keys[0].type.is_integer:
        if not found.type.is_integer:
            raise Refused(spec, f"a window's bound of {found.type.shown}")
        if _kind(spec) == "range":
            return f"cast({found.sql} as hugeint)"
        return f"least({found.sql}, {_BEYOND_EVERY_ROW})"  # DuckDB adds it to the number of the row, and wraps around
    if found.type not in {INTERVAL, UNKNOWN}:
        raise Refused(spec, f"a window's bound of {found.type.shown} over {keys[0].type.shown}", wrong=True)
    return coerced(found, INTERVAL, spec).sql
