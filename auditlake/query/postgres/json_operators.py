"""Operators of jsonb by the types of their operands. Pure.

Authority: postgresql.org/docs/current/functions-json.html
"""

from sqlglot import exp

from auditlake.query.postgres.cells import Cell, Refused
from auditlake.query.postgres.conversions import coerced
from auditlake.query.postgres.types import BOOL, INT4, JSONB, TEXT

OPERATORS: dict[type[exp.Expr], str] = {
    exp.JSONExtract: "->",
    exp.JSONExtractScalar: "->>",
    exp.JSONBExtract: "#>",
    exp.JSONBExtractScalar: "#>>",
    exp.ArrayContainsAll: "@>",
    exp.ArrayContainedBy: "<@",
    exp.JSONBContainsTopKey: "?",
    exp.JSONBContainsAnyTopKeys: "?|",
    exp.JSONBContainsAllTopKeys: "?&",
}
OF_TEXTS = frozenset({"#>", "#>>", "?|", "?&"})
"""Operators whose right operand is an array of texts."""
_FUNCTIONS = {"#>": "pg_at_path", "#>>": "pg_at_path_text", "?|": "pg_has_any", "?&": "pg_has_all"}


def operate_on_json(op: str, left: Cell, right: Cell, node: exp.Expr) -> Cell:
    """Translate `left op right`; raises Refused."""
    if op == "<@":
        left, right = right, left
    if op in {"@>", "<@"}:
        left, right = (_literal_as_jsonb(*pair, node) for pair in ((left, right), (right, left)))
    if left.type != JSONB or (op in {"@>", "<@"} and right.type != JSONB):
        raise Refused(node, f"{left.type.shown} {op} {right.type.shown}", "It is translated for jsonb: cast to it.")
    match op:
        case "@>" | "<@":
            return Cell(f"pg_contains({left.sql}, {right.sql})", BOOL)
        case "?":
            key = coerced(right, TEXT, node).sql
            return Cell(f"pg_has_any({left.sql}, case when {key} is not null then [{key}] end)", BOOL)
        case "->" | "->>":
            return _step(left, right, node, suffix="_text" if op == "->>" else "")
        case _:
            kind = {"#>": JSONB, "#>>": TEXT}.get(op, BOOL)
            return Cell(f"{_FUNCTIONS[op]}({left.sql}, {right.sql})", kind)


def _literal_as_jsonb(cell: Cell, other: Cell, node: exp.Expr) -> Cell:
    """Return a literal beside a jsonb as one."""
    return coerced(cell, JSONB, node) if cell.is_unknown and other.type == JSONB else cell


def _step(left: Cell, key: Cell, node: exp.Expr, *, suffix: str) -> Cell:
    """Translate -> or ->> with a key or a place."""
    kind = TEXT if suffix else JSONB
    if key.is_unknown or key.type.is_text:
        return Cell(f"pg_member{suffix}({left.sql}, {coerced(key, TEXT, node).sql})", kind)
    return Cell(f"pg_element{suffix}({left.sql}, {coerced(key, INT4, node).sql})", kind)
