"""When two expressions are one to PostgreSQL, as GROUP BY, GROUPING and DISTINCT require. Pure.

PostgreSQL compares analysed trees: functions and types by their names here, constants by their text. DuckDB compares
what was translated, where different functions and types may be one. Expressions that are written alike are one to both.
"""

import re
from collections.abc import Callable, Hashable, Iterable

from sqlglot import exp

from auditlake.query.postgres.cells import Cell, Refused
from auditlake.query.postgres.conversions import named_type
from auditlake.query.postgres.scopes import folded

_COLUMN = re.compile(r"[a-z]\d+\.[a-z]\d+")
_GROUPED = str.maketrans("", "", "() ")


def ungrouped(sql: str) -> str:
    """Return a translated text without the parentheses that DuckDB does not compare."""
    return sql.translate(_GROUPED)


def require_one_form(
    keys: Iterable[str], written: Iterable[tuple[str, exp.Expr]], cell: Callable[[exp.Expr], Cell]
) -> None:
    """Check that expressions whose translation is that of a key are written alike; raises Refused."""
    sought = {text for each in keys if not _COLUMN.fullmatch(text := ungrouped(each))}
    found: dict[str, list[Hashable]] = {}
    for sql, node in written if sought else ():
        if (text := ungrouped(sql)) in sought and found.setdefault(text, identity := _identity(node, cell)) != identity:
            what = "an expression that is written in another way in GROUP BY, GROUPING, DISTINCT or ORDER BY"
            raise Refused(node, what, "Write it there as here: to PostgreSQL x::text and x::varchar are two.")


def _identity(node: exp.Expr, cell: Callable[[exp.Expr], Cell]) -> list[Hashable]:
    """Return names, types and constants of an expression, in their order; columns by what they mean."""
    parts: list[Hashable] = []
    left = [node]
    while left:
        node = left.pop()
        match node:
            case exp.Paren():
                left.append(node.this)
            case exp.Column():
                parts.append(_column(node, cell))
            case exp.Identifier():
                parts.append(folded(node))
            case exp.DataType():
                parts.append(_type(node))
            case exp.Literal():
                parts.append((node.is_string, str(node.this)))
            case exp.Cast():
                parts.append(exp.Cast)
                left += (node.this, node.args["to"])
            case _:
                given = {name: value for name, value in node.args.items() if value not in (None, False, [], "")}
                plain = tuple((name, str(v).lower()) for name, v in given.items() if not isinstance(v, exp.Expr | list))
                parts.append((type(node), node.meta.get("spelled"), tuple(given), plain))
                left += node.iter_expressions()
    return parts


def _column(node: exp.Column, cell: Callable[[exp.Expr], Cell]) -> str:
    try:
        return cell(node).sql
    except Refused:  # of a subquery
        return ".".join(map(folded, node.parts))


def _type(node: exp.DataType) -> Hashable:
    return (
        (node.this, *(_type(each) for each in node.expressions)) if node.this == exp.DType.ARRAY else named_type(node)
    )
