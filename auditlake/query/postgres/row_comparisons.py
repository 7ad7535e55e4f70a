"""Comparisons with several values: rows, IN, ANY and ALL. Pure.

Authority: postgresql.org/docs/current/functions-comparisons.html, functions-subquery.html
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from auditlake.query.postgres.arithmetic import compared
from auditlake.query.postgres.cells import Cell, Refused, construct
from auditlake.query.postgres.conversions import COMPARISON, cast, coerced, common
from auditlake.query.postgres.growth import once
from auditlake.query.postgres.types import BOOL, INTEGERS, INTERVAL, NUMERIC, UNKNOWN

_LISTED = frozenset({*INTEGERS, "text", "varchar", "date", "timestamp", "timestamptz", "uuid", "bool"})


def fields_of(node: exp.Expr) -> Sequence[exp.Expr] | None:
    """Return the fields of a row, None for another expression."""
    is_row = isinstance(node, exp.Tuple) or (isinstance(node, exp.Anonymous) and node.name.lower() == "row")
    return node.expressions if is_row else None


def fields_compared(op: str, one: Sequence[Cell], other: Sequence[Cell], node: exp.Expr) -> Cell:
    """Compare two rows: in an order, the first fields that are not equal decide."""
    if "distinct" in op:
        raise Refused(node, "a comparison of rows")
    if op in {"=", "<>"}:
        parts = [compared(op, *pair, node).sql for pair in zip(one, other, strict=True)]
        return Cell(f"({(' and ' if op == '=' else ' or ').join(parts)})", BOOL)
    *before, last = zip(one, other, strict=True)
    sql = compared(op, *last, node).sql
    for pair in reversed(before):
        sql = f"case when {compared('=', *pair, node).sql} then {sql} else {compared(op[0], *pair, node).sql} end"
    return Cell(f"({sql})", BOOL)


def in_list(left: Cell, cells: Sequence[Cell], node: exp.Expr) -> Cell:
    """Translate IN of a list; raises Refused."""
    if not cells:
        raise Refused(node, "IN of nothing")
    cells = _constants_in_common(left, cells, node)
    if {each.type.name for each in (left, *cells)} - {UNKNOWN.name} <= _LISTED:
        kind = common((left, *cells), node, "IN")  # DuckDB plans a long list faster than as many comparisons
        texts = [coerced(each, kind, node).sql for each in (left, *cells)]
        return Cell(f"({texts[0]} in ({', '.join(texts[1:])}))", BOOL)
    parts = [compared("=", left, each, node).sql for each in cells]
    return Cell(f"({' or '.join(parts)})", BOOL)


def with_query(op: str, left: Cell, query: tuple[str, Sequence[Cell]], node: exp.Expr) -> Cell:
    """Translate IN, or `op ANY` or ALL, of a translated query; raises Refused."""
    sql, columns = query
    if len(columns) != 1:
        raise Refused(node, "a subquery of several columns", wrong=True)
    kind = common((left, columns[0]), node, COMPARISON)
    if kind in {NUMERIC, INTERVAL} or kind.name == "bpchar" or not kind.is_comparable:
        raise Refused(node, f"IN, ANY or ALL of a query of {kind.shown}", "Write EXISTS.")
    if kind.labels and op not in {"=", "<>"}:
        raise Refused(node, f"{op} of a query of {kind.shown}")
    value = f"(select {coerced(columns[0], kind, node).sql} from ({sql}))"
    return Cell(f"({coerced(left, kind, node).sql} {op} {'all' if is_all(node) else 'any'} {value})", BOOL)


def row_in_query(row: Sequence[Cell], query: tuple[str, Sequence[Cell]], node: exp.Expr) -> Cell:
    """Translate IN of a translated query for a row; raises Refused."""
    sql, columns = query
    if len(columns) != len(row):
        raise Refused(node, "a subquery of another number of columns", wrong=True)
    inner = [replace(each, sql=f"r.o{n}") for n, each in enumerate(columns)]
    if any(each.is_unknown for each in inner):
        raise Refused(node, "IN of a query of literals", "Cast them.")
    same = fields_compared("=", row, inner, node).sql
    found, unknown = (f"exists(select 1 from ({sql}) r where {each})" for each in (same, f"{same} is null"))
    return Cell(f"case when {found} then true when {unknown} then null else false end", BOOL)


def with_array(op: str, left: Cell, array: Cell, node: exp.Expr) -> Cell:
    """Translate `left op ANY (array)` or ALL of an array that is not written out; raises Refused."""
    if array.type.element is None:
        is_wrong = not (array.is_unknown or array.type.is_opaque)
        raise Refused(node, f"{op} {construct(node)} of {array.type.shown}", wrong=is_wrong)
    value = left if left.is_unknown else replace(left, sql="s[1]")
    test = compared(op, value, Cell("e", array.type.element), node).sql
    tests = f"list_transform(s[2], lambda e: {test})"
    decides, else_ = ("true", "false") if isinstance(node, exp.Any) else ("false", "true")
    unknown = f"len({tests}) <> list_count({tests})"
    found = f"case when list_contains({tests}, {decides}) then {decides} when {unknown} then null else {else_} end"
    return Cell(once([left.sql, array.sql], f"case when s[2] is not null then {found} end"), BOOL)


def _constants_in_common(left: Cell, cells: Sequence[Cell], node: exp.Expr) -> list[Cell]:
    """Return the elements of IN: of several constants PostgreSQL makes an array in the type common with left."""
    pairs = [(cell, each.find(exp.Column) is None) for cell, each in zip(cells, node.expressions, strict=True)]
    constants = [cell for cell, is_constant in pairs if is_constant]
    names = {cell.type.name for cell in (left, *constants)}
    if len(constants) > 1 and left.type.name == "bpchar" and names & {"text", "varchar"}:
        raise Refused(node, "IN of character and text", "Cast it to text.")
    if len(constants) == 1 or not names & {"float4", "float8"}:
        return list(cells)
    kind = common((left, *constants), node, "IN")
    return [cast(cell, kind, node) if is_constant else cell for cell, is_constant in pairs]


def is_quantified(node: exp.Expr | None) -> bool:
    """Return whether an operand is ANY or ALL."""
    return isinstance(node, exp.Any) or is_all(node)


def is_all(node: exp.Expr | None) -> bool:
    """Return whether an operand is ALL."""
    is_call = isinstance(node, exp.Anonymous) and node.name.lower() == "all" and len(node.expressions) == 1
    return isinstance(node, exp.All) or is_call


def quantity(node: exp.Expr) -> exp.Expr:
    """Return what ANY or ALL is of, without parentheses."""
    given: exp.Expr = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
    return given.unnest()


def any_or_all(node: exp.Expr, parts: Sequence[Cell]) -> Cell:
    """Combine the tests of the elements."""
    word, of_none = (" or ", "false") if isinstance(node, exp.Any) else (" and ", "true")
    return Cell(f"({word.join(each.sql for each in parts) or of_none})", BOOL)
