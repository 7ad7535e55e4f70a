"""Names of columns in Spark's dialect that no table of a statement has, or that differ in case alone: refused. Pure.

Spark has more ways to make a name than are known here. So only a statement is checked that is one SELECT over tables of
the lake, and of it only names in conditions, comparisons, arithmetic and plain aggregates. Spark judges all others.
"""

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches

from sqlglot import exp

from auditlake.errors import BadUsage
from auditlake.query.functions import FUNCTIONS

_PLAIN = (
    *(exp.Where, exp.Group, exp.Order, exp.Ordered, exp.Having, exp.Alias, exp.Join, exp.Paren, exp.Distinct),
    *(exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.In),
    *(exp.Between, exp.Like, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max),
)
_OTHERS = (exp.Lateral, exp.Lambda, exp.Pivot, exp.With, exp.Subquery, exp.Values, exp.SetOperation)
_MOST_PARTS = 2
_LISTED = 12
_OF_FILES = "_metadata"


def check_case(tree: exp.Expr, escaped: Mapping[str, str]) -> None:
    """Check that no name is that of a column which Spark, telling no case apart, would take for another one.

    `escaped` has the names in Spark of such columns, by their own. Raises BadUsage.
    """
    aliases = {each.alias for each in tree.find_all(exp.Alias)}
    for name in tree.find_all(exp.Identifier):
        shown = escaped.get(name.name)
        if shown is not None and isinstance(name.parent, exp.Column | exp.Join) and name.name not in aliases:
            raise BadUsage(
                f"Spark's dialect tells no case apart and takes {name.name} for another column",
                f"Column {name.name} is called `{shown}` there; write another one as PostgreSQL has it.",
            )


def check_columns(tree: exp.Expr, tables: Mapping[str, Collection[str]]) -> None:
    """Check that a statement's columns exist; `tables` has the names of its views' columns. Raises BadUsage."""
    if not isinstance(tree, exp.Select) or tree.find(*_OTHERS) or len(list(tree.find_all(exp.Select))) > 1:
        return
    sources = {each.alias_or_name.casefold(): tables.get(each.name) for each in tree.find_all(exp.Table)}
    if not sources or None in sources.values():
        return
    known = {alias: {name.casefold(): name for name in names or ()} for alias, names in sources.items()}
    aliases = {each.alias.casefold() for each in tree.find_all(exp.Alias)}
    for column in _plain_columns(tree):
        _check(column, known, aliases)


def _plain_columns(tree: exp.Expr) -> Iterator[exp.Column]:
    """Yield the columns around which there is nothing but plain nodes."""
    for column in tree.find_all(exp.Column):
        node = column.parent
        while isinstance(node, _PLAIN):
            node = node.parent
        if node is tree and isinstance(column.this, exp.Identifier) and len(column.parts) <= _MOST_PARTS:
            yield column


def _check(column: exp.Column, known: Mapping[str, Mapping[str, str]], aliases: Collection[str]) -> None:
    name, table = column.name.casefold(), column.text("table").casefold()
    if table:
        if table not in known:
            return
        columns = dict(known[table])
    else:
        columns = {folded: shown for names in known.values() for folded, shown in names.items()}
        if name in aliases or name in FUNCTIONS:
            return
    if name in columns or name == _OF_FILES:
        return
    close = get_close_matches(name, columns, n=3)
    hint = f"Did you mean {' or '.join(columns[each] for each in close)}?" if close else f"There are {_some(columns)}."
    raise BadUsage(f"there is no column {'.'.join(part.name for part in column.parts)}", hint)


def _some(columns: Mapping[str, str]) -> str:
    return ", ".join(list(columns.values())[:_LISTED]) + (" …" if len(columns) > _LISTED else "")
