"""Joins of a FROM clause, also in parentheses. Pure.

An alias of a join in parentheses hides the names of its tables; DuckDB's aliases of them stay.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from auditlake.query.postgres.arithmetic import compared
from auditlake.query.postgres.cells import Cell, Refused
from auditlake.query.postgres.conversions import coerced, common
from auditlake.query.postgres.expressions import Expressions
from auditlake.query.postgres.scopes import FromItem, Scope, folded, renamed, usable
from auditlake.query.postgres.types import TIMES


class Joins:
    """Tables that are joined to those of a scope; a condition sees those since the last comma, LATERAL sees all."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._before_comma = 0, 0
        """Tables and columns of the scope that a comma separates from those that are joined now."""

    def text(self, first: exp.Expr, joins: Sequence[exp.Expr]) -> str:
        """Add a table and what is joined to it, and return their text; raises Refused."""
        return self._joined(self._operand(first), joins)

    def _joined(self, first: tuple[str, Sequence[Cell]], joins: Sequence[exp.Expr]) -> str:
        text, cells = first
        self._scope.shown += cells
        after_comma = False
        for join in joins:
            if not any(join.args.get(name) for name in ("side", "kind", "on", "using", "method")):
                after_comma, self._before_comma = True, (len(self._scope.sources), len(self._scope.shown))
            text += self._join(join, after_comma=after_comma)
        return text

    def _joined_now(self) -> Scope:
        """Return the scope of a condition."""
        tables, columns = self._before_comma
        sources, shown = self._scope.sources[tables:], self._scope.shown[columns:]
        return Scope(self._scope.names, self._scope.outer, sources, shown)

    def _operand(self, node: exp.Expr) -> tuple[str, Sequence[Cell]]:
        """Return the text of a table or of a join in parentheses, and its columns."""
        joins = node.args.get("joins")
        if not joins:
            return self._alone(node)
        within = Joins(Scope(self._scope.names, self._scope.outer))
        return self._placed(within._joined(within._alone(node), joins), within._scope, None, node)

    def _apart(self, node: exp.Expr) -> tuple[str, Sequence[Cell]]:
        """Return what `_operand` does; even with LATERAL it does not see the tables before it."""
        within = Joins(Scope(self._scope.names, self._scope.outer))
        text, cells = within._operand(node)
        for each in within._scope.sources:
            self._scope.add(each, node)
        return text, cells

    def _check_full(self, on: exp.Expr, right: set[str]) -> None:
        """Check that a condition of FULL JOIN has an equality of its sides, without which PostgreSQL has no plan."""
        condition = on.unnest()
        terms = condition.flatten() if isinstance(condition, exp.And) else [condition]
        equated = [self._equated(each.unnest(), right) for each in terms]
        if not (isinstance(condition, exp.Boolean) or True in equated or None not in equated):
            hint = "One of the conditions must be that a column of one side equals a column of the other one."
            raise Refused(on, "FULL JOIN on such a condition", hint)

    def _equated(self, term: exp.Expr, right: set[str]) -> bool | None:
        """Return whether a term equates both sides by hashing, False by their order None if by neither."""
        if not isinstance(term, exp.EQ) or term.find(exp.Query) is not None:
            return None
        scope = self._joined_now()
        sides = [[*each.find_all(exp.Column)] for each in (term.this, term.expression)]
        pair = [{cell.sql for column in side for cell in scope.find(column)} for side in sides]
        if not any(one and other and one <= right and not other & right for one, other in (pair, pair[::-1])):
            return None
        kinds = {Expressions(scope, aggregates=False).cell(each).type.name for each in (term.this, term.expression)}
        return len(kinds) == 1 or not kinds <= {*TIMES}

    def _alone(self, node: exp.Expr) -> tuple[str, Sequence[Cell]]:
        if not _is_wrapped(node):
            return self._scope.names.source(node, self._scope), self._scope.sources[-1].cells
        within = Joins(Scope(self._scope.names, self._scope.outer))
        return self._placed(within.text(node.this, []), within._scope, node.args.get("alias"), node)

    def _placed(self, text: str, inner: Scope, alias: exp.Expr | None, node: exp.Expr) -> tuple[str, Sequence[Cell]]:
        """Add the tables of a join, or one table with the name of an alias."""
        if not isinstance(alias, exp.TableAlias):
            for each in inner.sources:
                self._scope.add(each, node)
            return f"({text})", inner.shown
        cells = tuple(renamed(inner.shown, alias, node))
        self._scope.add(FromItem(folded(alias.this), None, cells), node)
        return f"({text})", cells

    def _join(self, join: exp.Expr, *, after_comma: bool) -> str:
        side, kind, method = (str(join.args.get(name) or "").lower() for name in ("side", "kind", "method"))
        if (
            side not in {"", "left", "right", "full"}
            or kind not in {"", "inner", "outer", "cross"}
            or method not in {"", "natural"}
        ):
            raise Refused(join, f"{method} {side} {kind} JOIN".strip())
        if after_comma and side in {"right", "full"}:
            raise Refused(join, f"{side.upper()} JOIN after a comma", "Write CROSS JOIN in place of the comma.")
        text, right = self._operand(join.this) if side not in {"right", "full"} else self._apart(join.this)
        using = [folded(each) for each in join.args.get("using") or []]
        if method:
            mine = {cell.name for cell in right}
            using = [cell.name for cell in self._joined_now().shown if cell.name in mine]
        if using:
            return f" {side or 'inner'} join {text} on {self._using(using, side, right, join)}"
        self._scope.shown += right
        on = join.args.get("on")
        if on is None:
            if side and not method:
                raise Refused(join, f"{side.upper()} JOIN without ON", wrong=True)
            return f" cross join {text}" if not side else f" {side} join {text} on true"
        condition = Expressions(self._joined_now(), aggregates=False).condition(on)
        if side == "full":
            self._check_full(on, {cell.sql for cell in right})
        return f" {side or 'inner'} join {text} on {condition}"

    def _using(self, names: Sequence[str], side: str, right: Sequence[Cell], join: exp.Expr) -> str:
        conditions, merged, shown = [], [], self._joined_now().shown
        for name in names:
            one = [cell for cell in shown if cell.name == name]
            other = [cell for cell in right if cell.name == name]
            if len(one) != 1 or len(other) != 1:
                raise Refused(join, f"USING ({name})", "It must be one column of each side.", wrong=True)
            left, right_ = usable(one[0], join), usable(other[0], join)
            conditions.append(compared("=", left, right_, join).sql)
            merged.append(_merged(left, right_, side, join))
        rest = [cell for cell in (*shown, *right) if cell.name not in names]
        self._scope.shown[self._before_comma[1] :] = [*merged, *rest]
        return " and ".join(conditions)


def _is_wrapped(node: exp.Expr) -> bool:
    """Return whether parentheses are around a table or a join, rather than a query."""
    inner = node.this
    if not isinstance(node, exp.Subquery):
        return False
    is_named = isinstance(inner, exp.Subquery) and bool(inner.alias or inner.args.get("joins"))
    return is_named or not isinstance(inner, exp.Query | exp.Values)


def _merged(one: Cell, other: Cell, side: str, join: exp.Expr) -> Cell:
    """Return the one column that USING makes of two."""
    kind = common((one, other), join, "USING")
    left, right = coerced(one, kind, join), coerced(other, kind, join)
    if side == "full":
        return Cell(f"coalesce({left.sql}, {right.sql})", kind, one.name)
    is_right = side == "right" or (not side and one.type != kind == other.type)
    return replace(right if is_right else left, name=one.name)
