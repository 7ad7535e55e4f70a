"""Functions of arrays of one dimension. Pure.

Authority: postgresql.org/docs/current/functions-array.html
"""

from collections.abc import Sequence

from sqlglot import exp

from auditlake.query.postgres.arithmetic import concatenated, sort_key
from auditlake.query.postgres.cells import Cell, Refused
from auditlake.query.postgres.conversions import coerced, shown_text, with_common_element
from auditlake.query.postgres.growth import may_be_long, once
from auditlake.query.postgres.types import BOOL, FLOAT4, FLOAT8, INT4, INTERVAL, NUMERIC, TEXT, Type

_EQUAL_BY_KEY = (NUMERIC, FLOAT4, FLOAT8, INTERVAL)


def called_on_array(  # noqa: C901, PLR0911 - one case for each function
    name: str, cells: Sequence[Cell], node: exp.Expr
) -> Cell | None:
    """Translate a function of an array; None if it is another one; raises Refused."""
    value = cells[0].sql
    match name, cells[1:]:
        case "cardinality", []:
            return Cell(f"cast(len({value}) as integer)", INT4)
        case "array_length" | "array_upper", [Cell() as dimension]:
            return _length(cells[0], dimension, node)
        case "array_lower", [Cell() as dimension]:
            return Cell(f"case when {_length(cells[0], dimension, node).sql} > 0 then 1 end", INT4)
        case "array_append", [Cell(type=Type(element=None)) as added]:
            return concatenated(*with_common_element(cells[0], added, node), node)
        case "array_prepend", [Cell() as array_] if cells[0].type.element is None:
            return concatenated(*with_common_element(cells[0], array_, node), node)
        case "array_cat", [Cell() as added] if all(each.type.element or each.is_unknown for each in cells):
            return concatenated(cells[0], added, node)
        case "array_remove", [Cell(type=Type(element=None)) as removed]:
            whole, of_element, key = _keys(name, *with_common_element(cells[0], removed, node), node)
            kept = f"list_filter(s[1], lambda e: {of_element} is distinct from s[2])"
            return Cell(once([whole.sql, key], kept), whole.type)
        case "array_position", [Cell(type=Type(element=None)) as searched]:
            whole, of_element, key = _keys(name, *with_common_element(cells[0], searched, node), node)
            keys = whole.sql if of_element == "e" else f"list_transform({whole.sql}, lambda e: {of_element})"
            return Cell(f"cast(nullif(list_position({keys}, {key}), 0) as integer)", INT4)
        case "array_to_string", [Cell() as between, *nulls]:
            return _joined(cells[0], [between, *nulls], node)
        case _:
            return None


def _keys(name: str, array: Cell, value: Cell, node: exp.Expr) -> tuple[Cell, str, str]:
    """Return an array, the key of its element `e`, and that of a value; equal ones have one key. Raises Refused."""
    element = array.type.element or TEXT
    if element in _EQUAL_BY_KEY:
        return array, sort_key(Cell("e", element), node), sort_key(value, node)
    if not array.type.is_groupable:
        raise Refused(node, f"{name} of {array.type.shown}", "Cast both to one type.")
    return array, "e", value.sql


def operated(op: str, left: Cell, right: Cell, node: exp.Expr) -> Cell:
    """Translate @>, <@ or && of two arrays; raises Refused."""
    if op == "<@":
        op, left, right = "@>", right, left
    kind = right.type if left.is_unknown else left.type
    pair = [coerced(each, kind, node) if each.is_unknown else each for each in (left, right)]
    if pair[0].type != pair[1].type or not kind.is_groupable:
        hint = "Cast both to one type of array."
        is_wrong = pair[0].type.name != pair[1].type.name and not any(each.type.is_opaque for each in pair)
        raise Refused(node, f"{left.type.shown} {op} {right.type.shown}", hint, wrong=is_wrong)
    texts = ", ".join(f"cast({each.sql} as varchar[])" for each in pair)
    return Cell(f"pg_array_{'contains' if op == '@>' else 'overlaps'}({texts})", BOOL)


def array_contains(whole: Sequence[str | None], part: Sequence[str | None]) -> bool:
    """`@>` of arrays; a NULL is in none."""
    return None not in part and set(part) <= set(whole)


def overlaps(one: Sequence[str | None], other: Sequence[str | None]) -> bool:
    """`&&`."""
    return bool((set(one) & set(other)) - {None})


def _joined(array: Cell, words: Sequence[Cell], node: exp.Expr) -> Cell:
    """Translate array_to_string: a separator, and perhaps what stands for NULL."""
    text = shown_text(Cell("e", array.type.element or TEXT))
    if text is None:
        raise Refused(node, f"array_to_string of {array.type.shown}")
    if len(words) > 2 or any(each.literal is None or may_be_long(each) for each in words):  # noqa: PLR2004
        raise Refused(node, "array_to_string with a separator that is not a short literal")
    between, *nulls = (coerced(each, TEXT, node).sql for each in words)
    texts = f"list_transform({array.sql}, lambda e: {f'coalesce({text}, {nulls[0]})' if nulls else text})"
    return Cell(f"array_to_string(list_filter({texts}, lambda x: x is not null), {between})", TEXT)


def _length(array: Cell, dimension: Cell, node: exp.Expr) -> Cell:
    size = f"case when {coerced(dimension, INT4, node).sql} = 1 then nullif(len({array.sql}), 0) end"
    return Cell(f"cast({size} as integer)", INT4)
