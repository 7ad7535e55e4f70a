"""Operators of jsonb and json by the types of their operands, and functions that make one. Pure.

Authority: postgresql.org/docs/current/functions-json.html
"""

from collections.abc import Sequence

from sqlglot import exp

from auditlake.query.postgres.arrays import operated
from auditlake.query.postgres.cells import Cell, Refused
from auditlake.query.postgres.conversions import as_text, coerced, failed, known
from auditlake.query.postgres.types import BOOL, INT4, JSON, JSONB, TEXT, Type
from auditlake.sql_names import standard_literal

OPERATORS: dict[type[exp.Expr], str] = {
    exp.JSONExtract: "->",
    exp.JSONExtractScalar: "->>",
    exp.JSONBExtract: "#>",
    exp.JSONBExtractScalar: "#>>",
    exp.ArrayContainsAll: "@>",
    exp.ArrayContainedBy: "<@",
    exp.ArrayOverlaps: "&&",
    exp.JSONBDeleteAtPath: "#-",
    exp.JSONBContainsTopKey: "?",
    exp.JSONBContainsAnyTopKeys: "?|",
    exp.JSONBContainsAllTopKeys: "?&",
}
OF_TEXTS = frozenset({"#>", "#>>", "?|", "?&", "#-"})
"""Operators whose right operand is an array of texts."""
_STEPS = {"->": "", "->>": "_text", "#>": "", "#>>": "_text"}
"""Operators that find a part of a document; the ends of their functions' names."""
_NO_NAME = failed("null value not allowed for object key")
_FUNCTIONS = {"?|": "pg_has_any", "?&": "pg_has_all", "#-": "pg_without_path"}


def operate_on_json(op: str, left: Cell, right: Cell, node: exp.Expr) -> Cell:
    """Translate `left op right`; raises Refused."""
    if op in {"@>", "<@", "&&"} and (left.type.element is not None or right.type.element is not None):
        return operated(op, left, right, node)
    if op == "<@":
        left, right = right, left
    if op in {"@>", "<@"}:
        left, right = (_literal_as_jsonb(*pair, node) for pair in ((left, right), (right, left)))
    if op in _STEPS and left.type in {JSON, JSONB}:
        return _step(op, left, right, node)
    if left.type != JSONB or op == "&&" or (op in {"@>", "<@"} and right.type != JSONB):
        raise Refused(node, f"{left.type.shown} {op} {right.type.shown}", "It is translated for jsonb: cast to it.")
    match op:
        case "@>" | "<@":
            return Cell(f"pg_contains({left.sql}, {right.sql})", BOOL)
        case "?":
            key = coerced(right, TEXT, node).sql
            return Cell(f"pg_has_any({left.sql}, case when {key} is not null then [{key}] end)", BOOL)
        case _:
            kind = JSONB if op == "#-" else BOOL
            return Cell(f"{_FUNCTIONS[op]}({left.sql}, {right.sql})", kind)


def without(left: Cell, right: Cell, node: exp.Expr) -> Cell:
    """Translate jsonb - key, - place or - keys; raises Refused."""
    if right.type.element is not None and right.type.element.is_text:
        return Cell(f"pg_without({left.sql}, {right.sql})", JSONB)
    if right.is_unknown or right.type.is_text:
        key = coerced(right, TEXT, node).sql
        return Cell(f"pg_without({left.sql}, case when {key} is not null then [{key}] end)", JSONB)
    return Cell(f"pg_without_element({left.sql}, {coerced(right, INT4, node).sql})", JSONB)


def json_text(cell: Cell, node: exp.Expr) -> str:
    """Return the text of a value as `to_jsonb` gives it, NULL as null; raises Refused."""
    cell = known(cell, node)
    text = as_text(cell)
    match cell.type.name:
        case _ if text is None or cell.type.element is not None or cell.type.name in {"interval", "bytea", "bpchar"}:
            raise Refused(node, f"a jsonb of {cell.type.shown}", "Cast it to text.")
        case "int2" | "int4" | "int8" | "bool" | "jsonb":
            pass
        case "numeric":  # JSON has no such numbers: they are strings
            text = f"regexp_replace({text}, '^(NaN|-?Infinity)$', '\"\\1\"')"
        case "float4" | "float8":
            raise Refused(node, f"a jsonb of {cell.type.shown}", "Cast it to numeric.")
        case "json":
            text = f"pg_jsonb({cell.sql})"
        case "timestamp" | "timestamptz":
            text = f"('\"' || {_time(cell.type, text or '')} || '\"')"
        case _:
            text = f"pg_json_string({text})"
    return f"coalesce({text}, 'null')"


def _time(kind: Type, text: str) -> str:
    return f"(replace({text}, ' ', 'T') || '{':00' if kind.name == 'timestamptz' else ''}')"


def _name(cell: Cell, node: exp.Expr) -> str:
    """Return the text of a name of a member; raises Refused."""
    is_null, cell = cell.null, known(cell, node)
    text = as_text(cell)
    if text is None or is_null or cell.type.element is not None or cell.type.name in {"json", "jsonb", "bpchar"}:
        raise Refused(node, "a name of this type in jsonb_build_object", "Cast it to text.")
    return _time(cell.type, text) if cell.type.name in {"timestamp", "timestamptz"} else text


def built(name: str, cells: Sequence[Cell], node: exp.Expr) -> Cell:
    """Translate to_jsonb, jsonb_build_array and jsonb_build_object; raises Refused."""
    if name == "to_jsonb" and len(cells) == 1 and not cells[0].is_unknown:
        return Cell(f"case when {cells[0].sql} is not null then {json_text(cells[0], node)} end", JSONB)
    if name == "jsonb_build_array":
        return Cell(_composed("[]", [json_text(each, node) for each in cells]), JSONB)
    if name != "jsonb_build_object" or len(cells) % 2:
        raise Refused(node, f"the function {name} of such arguments")
    members = [member(*pair, ": ", node) for pair in zip(cells[::2], cells[1::2], strict=True)]
    return Cell(f"pg_jsonb({_composed('{}', members)})", JSONB)


def member(name: Cell, value: Cell, between: str, node: exp.Expr) -> str:
    """Return the text of a member of an object; raises Refused."""
    # Without the cast, DuckDB 1.5 takes `'a' || error(…)` for NULL where it has computed the name beforehand.
    key = f"coalesce({_name(name, node)}, cast({_NO_NAME} as varchar))"
    return f"(pg_json_string({key}) || {standard_literal(between)} || {json_text(value, node)})"


def _composed(brackets: str, parts: Sequence[str]) -> str:
    start, end = map(standard_literal, brackets)
    return f"({start} || concat_ws(', ', {', '.join(parts)}) || {end})" if parts else standard_literal(brackets)


def _literal_as_jsonb(cell: Cell, other: Cell, node: exp.Expr) -> Cell:
    """Return a literal beside a jsonb as one."""
    return coerced(cell, JSONB, node) if cell.is_unknown and other.type == JSONB else cell


def _step(op: str, left: Cell, by: Cell, node: exp.Expr) -> Cell:
    """Translate a step with a key, a place or a path."""
    function = "pg_raw_" if left.type == JSON else "pg_"
    if op in OF_TEXTS:
        function += "at_path"
    elif by.is_unknown or by.type.is_text:
        function, by = f"{function}member", coerced(by, TEXT, node)
    else:
        function, by = f"{function}element", coerced(by, INT4, node)
    return Cell(f"{function}{_STEPS[op]}({left.sql}, {by.sql})", TEXT if _STEPS[op] else left.type)
