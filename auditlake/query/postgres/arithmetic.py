"""Operators + - * / % || and comparisons, by the types of their operands. Pure.

Authority: postgresql.org/docs/current/functions-math.html, functions-datetime.html; src/backend/utils/adt/numeric.c
"""

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from auditlake.lake.duckdb_rows import unpushed
from auditlake.query.postgres.cells import Cell, Refused
from auditlake.query.postgres.conversions import (
    COMPARISON,
    as_text,
    coerced,
    common,
    failed,
    in_common,
    known,
    literal,
    numeric_text,
    parts_of,
    unfolded,
    with_common_element,
)
from auditlake.query.postgres.growth import MOST_BYTES, bytes_of_array, held, joined, repeatable
from auditlake.query.postgres.types import BOOL as BOOLEAN
from auditlake.query.postgres.types import (
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT4,
    INTEGERS,
    INTERVAL,
    JSONB,
    NUMBERS,
    NUMERIC,
    TEXT,
    TIMES,
    TIMESTAMP,
    Type,
    as_decimal,
    decimal,
)
from auditlake.sql_names import standard_literal
from auditlake.values.types import MOST_DIGITS

_DIGITS_OF_BIGINT = 18
_ON_TEXT = {"+": "pg_add", "-": "pg_subtract", "*": "pg_multiply", "/": "pg_divide", "%": "pg_remainder"}


def operate(op: str, left: Cell, right: Cell, node: exp.Expr) -> Cell:
    """Translate `left op right`; raises Refused."""
    left, right = _typed(op, left, right, node)
    one, other = left.type.name, right.type.name
    if one in NUMBERS and other in NUMBERS:
        return _numbers(op, left, right, node)
    found = _times(op, left, right)
    if found is None:
        raise Refused(node, f"{left.type.shown} {op} {right.type.shown}")
    return found


def _typed(op: str, left: Cell, right: Cell, node: exp.Expr) -> tuple[Cell, Cell]:
    """Give a literal the type of the other operand; beside a time, it may be an interval or a time."""
    if left.is_unknown and right.is_unknown:
        raise Refused(node, f"{op} of two literals without a type", "Write a cast.", wrong=True)
    for cell, other in ((left, right), (right, left)):
        if cell.is_unknown and other.type.is_time:
            if op == "-" and cell is right and other.type == DATE:
                return left, literal(right, DATE, node)
            raise Refused(node, f"{other.type.shown} {op} a literal", "Write interval '1 day', or a cast.")
        if cell.is_unknown and not other.type.is_number and other.type != INTERVAL:
            raise Refused(node, f"{left.type.shown} {op} {right.type.shown}")
    if left.is_unknown:
        return literal(left, right.type if not right.type.is_decimal else NUMERIC, node), right
    if right.is_unknown:
        return left, literal(right, left.type if not left.type.is_decimal else NUMERIC, node)
    return left, right


def _numbers(op: str, left: Cell, right: Cell, node: exp.Expr) -> Cell:
    names = {left.type.name, right.type.name}
    if names & {"float4", "float8"}:
        kind = Type("float4") if names == {"float4"} else FLOAT8
        return _of_floats(op, coerced(left, kind, node), coerced(right, kind, node), node)
    if names <= set(INTEGERS):
        kind = Type(max(names, key=NUMBERS.index))
        return _of_integers(op, coerced(left, kind, node), coerced(right, kind, node))
    one, other = as_decimal(left.type), as_decimal(right.type)
    on_text = f"{_ON_TEXT[op]}({numeric_text(left, node)}, {numeric_text(right, node)})"
    if one is not None and other is not None and op in {"+", "-", "*"}:
        exact = _result(op, one, other)
        if exact is not None:
            one, other = (_held(op, each, exact) for each in (one, other))
        sides = [f"cast({cell.sql} as {held.duckdb})" for cell, held in ((left, one), (right, other))]
        if exact is not None:
            return Cell(f"cast({sides[0]} {op} {sides[1]} as {exact.duckdb})", exact)
        if op == "*":
            return Cell(_long_product(sides, (one.scale or 0) + (other.scale or 0), on_text), NUMERIC)
    return Cell(on_text, NUMERIC)


def _held(op: str, kind: Type, result: Type) -> Type:
    """Return the type in which an operand gets to DuckDB, which keeps to 18 digits if both operands do, and fails."""
    if (result.digits or 0) <= _DIGITS_OF_BIGINT:
        return kind
    return result if op != "*" else decimal(max(kind.digits or 0, _DIGITS_OF_BIGINT + 1), kind.scale or 0)


def _long_product(sides: Sequence[str], scale: int, on_text: str) -> str:
    """Return the text of a product whose type is too long for DuckDB: its own multiplication for values that are not.

    TPC-H's first query has 217,000 such products: 2.5 s of CPU with `on_text` alone, 1.6 s with this (2026-11-27,
    start included, `make peers JOBS=as-of:0.05`).
    """
    if scale > MOST_DIGITS:
        return on_text
    one, other = (f"cast({side} as double)" for side in sides)
    fits = f"abs({one} * {other}) < 1e{MOST_DIGITS - 1 - scale}"
    return f"case when {fits} then cast({sides[0]} * {sides[1]} as varchar) else {on_text} end"


def _result(op: str, one: Type, other: Type) -> Type | None:
    digits, scale = one.digits or 0, one.scale or 0
    digits2, scale2 = other.digits or 0, other.scale or 0
    if op == "*":
        digits, scale = digits + digits2, scale + scale2
    else:
        digits, scale = max(digits - scale, digits2 - scale2) + max(scale, scale2) + 1, max(scale, scale2)
    return decimal(digits, scale) if digits <= MOST_DIGITS else None


def _of_integers(op: str, left: Cell, right: Cell) -> Cell:
    kind = left.type.duckdb
    if op not in {"/", "%"}:
        return Cell(f"cast({left.sql} {op} {right.sql} as {kind})", left.type)

    def checked(one: str, other: str) -> str:
        inner = f"({one}) {'//' if op == '/' else '%'} ({other})"
        zero = f"({other}) = 0 and ({one}) is not null then {failed('division by zero')}"
        of_one = f" when ({other}) = -1 then ({one}) & 0" if op == "%" else ""  # DuckDB fails on the least integer
        return f"case when {zero}{of_one} else cast({inner} as {kind}) end"

    return Cell(repeatable((left.sql, right.sql), checked), left.type)


def _of_floats(op: str, left: Cell, right: Cell, node: exp.Expr) -> Cell:
    if op == "%":
        raise Refused(node, "% of double precision", wrong=True)

    def checked(one: str, other: str) -> str:
        value = f"(({one}) {op} ({other}))"
        lost = f"not isfinite({value}) and isfinite({one}) and isfinite({other})"
        if op in {"*", "/"}:
            beside = f"{other} <> 0" if op == "*" else f"isfinite({other})"
            lost = f"({lost} or {value} = 0 and {one} <> 0 and {beside})"
        found = f"case when {lost} then {failed('value out of range')} else {value} end"
        if op == "/":
            by_zero = f"({other}) = 0 and not isnan({one})"
            found = f"case when {by_zero} then {failed('division by zero')} else {found} end"
        return found

    if unfolded(right) != right:
        left = unfolded(left)
    return Cell(repeatable((left.sql, right.sql), checked), left.type)


def _times(op: str, left: Cell, right: Cell) -> Cell | None:  # noqa: PLR0911, C901 - one case for each operator
    one, other = left.type.name, right.type.name
    sql = f"({left.sql} {op} {right.sql})"
    match one, op, other:
        case "date", "+" | "-", "int2" | "int4":
            return Cell(f"cast({left.sql} {op} cast({right.sql} as integer) as date)", DATE)
        case "int2" | "int4", "+", "date":
            return Cell(f"cast({right.sql} + cast({left.sql} as integer) as date)", DATE)
        case "date", "-", "date":
            return Cell(f"cast({sql} as integer)", INT4)
        case "date", "+" | "-", "interval":
            return Cell(f"(cast({left.sql} as timestamp) {op} {right.sql})", TIMESTAMP)
        case "timestamp" | "timestamptz", "+" | "-", "interval":
            return Cell(sql, left.type)
        case "interval", "+", "timestamp" | "timestamptz":
            return Cell(f"({right.sql} + {left.sql})", right.type)
        case "interval", "+", "date":
            return Cell(f"(cast({right.sql} as timestamp) + {left.sql})", TIMESTAMP)
        case "interval", "+" | "-", "interval":
            return Cell(sql, INTERVAL)
        case "interval", "*" | "/", _ if right.type.is_number:
            return _scaled("pg_times" if op == "*" else "pg_over", left, right)
        case _, "*", "interval" if left.type.is_number:
            return _scaled("pg_times", right, left)
        case _:
            return _difference(left, right) if op == "-" and one in TIMES and other in TIMES else None


def _scaled(function: str, interval: Cell, number: Cell) -> Cell:
    return Cell(f"pg_of_parts({function}(pg_parts({interval.sql}), {coerced(number, FLOAT8).sql}))", INTERVAL)


def _difference(left: Cell, right: Cell) -> Cell:
    """Subtract two times: days of 24 hours, and the rest of the same sign."""
    micros = f"(epoch_us(cast({left.sql} as timestamp)) - epoch_us(cast({right.sql} as timestamp)))"
    day = "86400000000"
    days = f"to_days(cast({micros} // {day} as integer))"
    return Cell(f"({days} + to_microseconds({micros} % {day}))", INTERVAL)


def concatenated(left: Cell, right: Cell, node: exp.Expr) -> Cell:
    """Translate `||` of arrays, or of texts, one of which may have another type; raises Refused."""
    if left.type.element is not None or right.type.element is not None:
        return _appended(left, right, node)
    for kind, form in ((JSONB, "pg_merged({}, {})"), (BYTEA, "cast({} || {} as blob)")):
        if kind in {left.type, right.type} and all(each.is_unknown or each.type == kind for each in (left, right)):
            return Cell(joined((left, right), [coerced(each, kind, node).sql for each in (left, right)], form), kind)
    if not any(cell.is_unknown or cell.type.is_text for cell in (left, right)):
        raise Refused(node, f"{left.type.shown} || {right.type.shown}")
    one, other = (as_text(known(cell, node)) for cell in (left, right))
    if one is None or other is None:
        raise Refused(node, f"{left.type.shown} || {right.type.shown}")
    return Cell(joined((left, right), (one, other), "({} || {})"), TEXT)


def _appended(left: Cell, right: Cell, node: exp.Expr) -> Cell:
    """Translate `||` of two arrays, or of an array and an element; NULL is an empty array, but a NULL element."""
    kind = left.type if left.type.element is not None else right.type
    left, right = (literal(cell, kind, node) if cell.is_unknown else cell for cell in (left, right))
    if left.type.element is None or right.type.element is None:
        left, right = with_common_element(left, right, node)
    kind = left.type if left.type.element is not None else right.type
    if any(cell.type not in {kind, kind.element} for cell in (left, right)):
        raise Refused(node, f"{left.type.shown} || {right.type.shown}", "Cast both to one type of array.")
    texts = [cell.sql if cell.type == kind else f"[{cell.sql}]" for cell in (left, right)]
    whole = "list_concat(coalesce(s[1], []), coalesce(s[2], []))"
    if left.type == right.type:
        whole = f"case when s[1] is not null or s[2] is not null then {whole} end"
    sizes = (f"{bytes_of_array(part, kind)} > {MOST_BYTES}" for part in ("s[1]", "s[2]"))
    return Cell(held(texts, " and ".join(sizes), whole), kind)


def compared(op: str, left: Cell, right: Cell, node: exp.Expr) -> Cell:
    """Translate a comparison, also IS [NOT] DISTINCT FROM; raises Refused."""
    left, right = _settled(left, right.type, node), _settled(right, left.type, node)
    one, other = as_decimal(left.type), as_decimal(right.type)
    if one is not None and other is not None and (left.type.is_decimal or right.type.is_decimal):
        kind = _wider(one, other)
        if kind is not None:
            return Cell(f"(cast({left.sql} as {kind.duckdb}) {op} cast({right.sql} as {kind.duckdb}))", BOOLEAN)
    kind = common((left, right), node, COMPARISON)
    if kind.element is not None and kind.is_groupable:
        return Cell(f"({in_common(left, kind, node)} {op} {in_common(right, kind, node)})", BOOLEAN)
    if kind.name == "bpchar":
        kind = Type("bpchar")
        left, right = (literal(c, kind, node) if c.is_unknown else Cell(c.sql, kind) for c in (left, right))
    if kind == NUMERIC or (kind == JSONB and op not in _ORDERS):
        return _by_function(op, in_common(left, kind, node), in_common(right, kind, node), kind)
    if not kind.is_comparable:
        raise Refused(node, f"a comparison of {kind.shown}", _COMPARE_TEXTS)
    left, right = coerced(left, kind, node), coerced(right, kind, node)
    if kind.labels and op in _ORDERS:
        return Cell(f"({place_of_label(left, node)} {op} {place_of_label(right, node)})", BOOLEAN)
    key = _COMPARED_BY.get(kind, str)
    return Cell(f"({key(left.sql)} {op} {key(right.sql)})", BOOLEAN)


def _length(interval: str) -> str:
    """Return an interval's length in us, with months of 30 days; to DuckDB, '1 mon -1 days' is longer than 29 days."""

    def length(once: str) -> str:
        months, days, micros = parts_of(once)
        return f"(cast({months} * 30 + {days} as hugeint) * 86400000000 + {micros})"

    return repeatable((interval,), length)


_COMPARED_BY: Mapping[Type, Callable[[str], str]] = {FLOAT4: unpushed, FLOAT8: unpushed, INTERVAL: _length}


def _settled(cell: Cell, beside: Type, node: exp.Expr) -> Cell:
    """Return a literal beside a numeric or a character as one."""
    if not cell.is_unknown or beside.name not in {"numeric", "bpchar"}:
        return cell
    return literal(cell, NUMERIC if beside.name == "numeric" else Type("bpchar"), node)


def place_of_label(cell: Cell, node: exp.Expr) -> str:
    """Return a label's place in the order of its enum; raises Refused."""
    if not cell.type.is_ordered:
        raise Refused(node, f"an order of {cell.type.shown}, whose new labels are not the last", "Sort by the ::text.")
    listed = ", ".join(map(standard_literal, cell.type.labels))
    unknown = failed(f"a label of {cell.type.shown} is not recorded yet")
    place = f"coalesce(list_position([{listed}], {cell.sql}), {unknown})"
    return f"case when {cell.sql} is not null then {place} end"


_COMPARE_TEXTS = "Equal values of this type may have different texts: compare the texts with ::text, if they matter."


_ORDERS = frozenset({"<", "<=", ">", ">="})


def _by_function(op: str, one: str, other: str, kind: Type) -> Cell:
    """Compare two texts by a function: numbers, or documents whether they are equal."""
    compare = f"pg_compare({one}, {other})"
    same = f"{compare} = 0" if kind == NUMERIC else f"pg_json_equal({one}, {other})"
    if "distinct" in op:
        same = f"coalesce({same}, {one} is null and {other} is null)"
    elif op in _ORDERS:
        same = f"{compare} {op} 0"
    return Cell(f"(not ({same}))" if op in {"<>", "is distinct from"} else f"({same})", BOOLEAN)


def _wider(one: Type | None, other: Type | None) -> Type | None:
    if one is None or other is None:
        return None
    scale = max(one.scale or 0, other.scale or 0)
    digits = max((one.digits or 0) - (one.scale or 0), (other.digits or 0) - (other.scale or 0)) + scale
    return decimal(digits, scale) if digits <= MOST_DIGITS else None


def sort_key(cell: Cell, node: exp.Expr) -> str:
    """Return what sorts as the value does; raises Refused."""
    if cell.is_unknown:  # DuckDB refuses the literal itself as a key
        return f"cast({coerced(cell, TEXT, node).sql} as varchar)"
    if cell.type == NUMERIC:
        return f"pg_sort_key({cell.sql})"
    if cell.type.labels:
        return place_of_label(cell, node)
    if cell.type == INTERVAL:
        return _length(cell.sql)
    if cell.type in {FLOAT4, FLOAT8}:  # DuckDB shows a column by its key of the order, in which -0 is 0
        return f"({cell.sql} + 0)"
    if not cell.type.is_comparable and not (cell.type.element is not None and cell.type.is_groupable):
        raise Refused(node, f"an order of {cell.type.shown}", "Sort by the text with ::text, if its order is wanted.")
    return cell.sql


def mixed_texts(keys: Sequence[Cell]) -> str:
    """Return a condition on groups by these keys: equal numbers have different texts, such as 1.0 and 1.00.

    It has an aggregate and a window. If it is false for every group, groups by texts are those of PostgreSQL.
    """
    parts = [
        f"coalesce(bool_or({key.sql} = 0 and signbit({key.sql})), false)"
        for key in keys
        if key.type.name in {"float4", "float8"}
    ]
    if any(key.type == NUMERIC for key in keys):
        values = [f"pg_sort_key({key.sql})" if key.type == NUMERIC else key.sql for key in keys]
        parts.append(f"count(*) over (partition by {', '.join(values)}) > 1")
    return " or ".join(parts) or "false"


MIXED = "equal numbers with different texts\n"


def unmixed(groups: str) -> str:
    """Return a FROM clause of groups that fails if `mixed_texts`, their column `mixed`, is true for one.

    A window over all groups computes the failure, so that no condition of an outer query removes one of them first.
    """
    failure = f"case when mixed then error({standard_literal(MIXED)}) else false end"
    return f"(select *, bool_or({failure}) over () as failed from ({groups})) where not failed"


def negated(cell: Cell, node: exp.Expr) -> Cell:
    """Translate a sign; raises Refused."""
    if cell.type == NUMERIC:
        return Cell(f"pg_negate({cell.sql})", NUMERIC)
    if cell.type.is_number or cell.type == INTERVAL:
        return Cell(f"(- {unfolded(cell).sql})", cell.type)
    raise Refused(node, f"- {cell.type.shown}")
