"""Keys of ORDER BY and GROUP BY that name columns of the result, by place or name; LIMIT and OFFSET. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from auditlake.query.postgres.cells import Cell, Refused
from auditlake.query.postgres.scopes import folded


def of_result(node: exp.Expr, columns: Sequence[Cell]) -> Cell | None:
    """Return the column of a result that a key of ORDER BY names, by place or name; None if it names none."""
    node = node.unnest()
    if (at := place_in_result(node, columns)) is not None:
        return replace(columns[at], sql=f"o{at}")
    if not isinstance(node, exp.Column) or node.args.get("table") is not None:
        return None
    places = [n for n, cell in enumerate(columns) if cell.name == folded(node.this)]
    if len({columns[n].sql for n in places}) > 1:
        raise Refused(node, f"ORDER BY {node.name} is ambiguous", wrong=True)
    return replace(columns[places[0]], sql=f"o{places[0]}") if places else None


def inside(node: exp.Expr, columns: Sequence[Cell]) -> Cell | None:
    """Return the expression of a column of the result that a key names."""
    found = of_result(node, columns)
    return None if found is None else columns[int(found.sql[1:])]


def place_in_result(node: exp.Expr, columns: Sequence[Cell]) -> int | None:
    """Return the index of a column given by its place, None for an expression; raises Refused for other constants."""
    if isinstance(node, exp.Boolean | exp.Null) or (isinstance(node, exp.Literal) and node.is_string):
        raise Refused(node, "a constant in GROUP BY or ORDER BY", wrong=True)
    key, sign = node, ""
    while isinstance(key, exp.Neg | exp.Paren):
        sign = ("" if sign else "-") if isinstance(key, exp.Neg) else sign
        key = key.this
    if not isinstance(key, exp.Literal) or key.is_string:
        return None
    place = f"{sign}{key.this}"
    if not place.isdecimal() or not 1 <= int(place) <= len(columns):
        raise Refused(node, f"position {place} is not in the select list", wrong=True)
    return int(place) - 1


def sorted_rows(listed: str, rows: str, keys: Sequence[str], node: exp.Expr) -> str:
    """Return a query of columns from a FROM clause, by the keys of ORDER BY, with LIMIT and OFFSET of `node`."""
    sorted_, limit = f" order by {', '.join(keys)}" if keys else "", node.args.get("limit")
    if not isinstance(limit, exp.Fetch) or not _has_ties(limit):
        return f"select {listed} from {rows}{sorted_}{limit_text(node)}"
    if not keys:
        raise Refused(node, "WITH TIES without ORDER BY", wrong=True)
    count, offset = int(_count(limit.args.get("count") or exp.Literal.number(1))), node.args.get("offset")
    skipped = 0 if offset is None else int(_count(offset.expression))
    window = f"(order by {', '.join(keys)})"
    placed = f"select *, rank() over {window} as place, row_number() over {window} as nth from {rows}"
    return f"select {listed} from ({placed}) where nth > {skipped} and place <= {count and skipped + count}{sorted_}"


def _has_ties(limit: exp.Fetch) -> bool:
    options = limit.args.get("limit_options")
    return options is not None and bool(options.args.get("with_ties"))


def limit_text(node: exp.Expr) -> str:
    """Return LIMIT and OFFSET of a query; raises Refused."""
    text = ""
    limit, offset = node.args.get("limit"), node.args.get("offset")
    if isinstance(limit, exp.Fetch):
        text += f" limit {_count(limit.args.get('count') or exp.Literal.number(1))}"
    elif limit is not None and not _is_all(limit.expression):
        text += f" limit {_count(limit.expression)}"
    if offset is not None:
        text += f" offset {_count(offset.expression)}"
    return text


def _is_all(limit: exp.Expr) -> bool:
    return isinstance(limit, exp.Null) or (isinstance(limit, exp.Var) and limit.name.upper() == "ALL")


def _count(node: exp.Expr) -> str:
    if not isinstance(node, exp.Literal) or not str(node.this).isdecimal():
        raise Refused(node, "LIMIT or OFFSET of an expression")
    return str(node.this)
