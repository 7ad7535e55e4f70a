"""Comparisons that a statement makes of columns whose text is not their value, and the refusal of those. Pure.

`check_comparisons` refuses a comparison that `compared_columns` does not allow, and names the column, before an engine
starts, so that both engines refuse the same statements.

The check follows the columns of each table through the statement's tree: through subqueries, common table expressions,
set operations and functions that return one of their arguments. Functions that compute from a text (`OF_TEXT`) end it,
and so does a cast. It errs on the side of refusing: a name with several meanings has all of them, and a function that
is not listed may compare. Names that are not found are left to the engine, which reports them.

It also returns the columns that are computed with although they are NULL for some values (`Checked.computed`); an
engine refuses the statement if its rows have such a value (`held_error`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from sqlglot import exp

from auditlake.errors import NotAnswerable
from auditlake.query.compared_columns import (
    EVERY,
    NO_MARKS,
    Columns,
    ComparedColumn,
    Marks,
    Shown,
    all_marks,
    check_marks,
    check_matches,
    check_texts,
    compared_elements,
    union,
)
from auditlake.query.compared_functions import COMPARES, IS_PLAIN, OF_ELEMENTS, OF_TEXT, ORDERS, RETURNS, function_name
from auditlake.values.types import element_of


class Checked(NamedTuple):
    """The columns that a query shows, and those that it computes with although they are NULL for some values."""

    shown: Columns = ()
    computed: Marks = NO_MARKS


def check_comparisons(tree: exp.Expr, tables: Mapping[str, Columns]) -> Checked:
    """Check every comparison of a query over these tables, by name in lower case; raises NotAnswerable."""
    walk = _Walk(tables)
    return Checked(walk.query(tree, {}, None), frozenset(walk.computed))


@dataclass(slots=True)
class _Scope:
    """The tables of one SELECT, with their columns, and the names of its own columns so far."""

    outer: "_Scope | None"
    sources: list[tuple[str, Columns]] = field(default_factory=list)
    own: list[Shown] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    """Columns that USING or NATURAL made one."""
    hidden: list[int] = field(default_factory=list)
    """Places of the sources that a SEMI or ANTI JOIN does not show."""
    ctes: Mapping[str, Columns] = field(default_factory=dict)

    def find(self, name: str, of: str | None) -> Marks | None:
        """Return the marks of a column; None if there is none of this name."""
        sources = [columns for alias, columns in self.sources if of is None or alias.casefold() == of.casefold()]
        found = [each.marks for columns in sources for each in columns if each.is_named(name)]
        if not found and of is None:
            found = [each.marks for each in self.own if each.is_named(name)]
        if found:
            return union(found)
        return None if self.outer is None else self.outer.find(name, of)

    def star(self, of: str) -> list[Shown]:
        """Return the columns of `*`, or of `of.*`."""
        sources = [
            columns
            for place, (alias, columns) in enumerate(self.sources)
            if place not in self.hidden and of.casefold() in {"", alias.casefold()}
        ]
        first = [] if of else [Shown(name, self.find(name, None) or NO_MARKS) for name in self.merged]
        rest = (each for columns in sources for each in columns)
        return first + [each for each in rest if of or each.name.casefold() not in self.merged]


_COMPARISONS: dict[type[exp.Expr], tuple[str, bool]] = {
    exp.EQ: ("=", False),
    exp.NEQ: ("<>", False),
    exp.NullSafeEQ: ("<=>", False),
    exp.NullSafeNEQ: ("IS DISTINCT FROM", False),
    exp.In: ("IN", False),
    exp.LT: ("<", True),
    exp.LTE: ("<=", True),
    exp.GT: (">", True),
    exp.GTE: (">=", True),
    exp.Between: ("BETWEEN", True),
}
"""The comparisons, and whether they need an order."""
_SORTED_BY = ("order", "sort", "cluster")
_CALLED = {"argmax": "max_by()", "argmin": "min_by()", "arrayuniqueagg": "collect_set()"}
_CALLED |= {"mul": "*", "add": "+", "sub": "-", "div": "/", "mod": "%", "neg": "-"}
"""Names of functions and operators, if they are not those of sqlglot's nodes."""
_EXACT_TEXT = "exacttext"
_NOT_SHOWN = {"SEMI", "ANTI"}
Names = Mapping[str, Columns]


class _Walk:
    """One check of one statement."""

    def __init__(self, tables: Names) -> None:
        self._tables = tables
        self._parameters: dict[str, Marks] = {}
        self.computed: set[ComparedColumn] = set()

    def check(self, marks: Marks, what: str, *, ordered: bool = False) -> None:
        """Check that these columns may be compared, for equality or by order."""
        self._compute(marks)
        check_marks(marks, what, ordered=ordered)

    def _compute(self, marks: Marks) -> None:
        """Note that something is computed from these columns, so that a NULL would stand for a value unseen."""
        self.computed |= {each for each in marks if each.may_not_fit}

    def query(self, node: exp.Expr, ctes: Names, outer: _Scope | None) -> Columns:
        """Check a query; return its columns."""
        if (with_ := node.args.get("with_")) is not None:
            ctes = self._with(with_, ctes, outer)
        match node:
            case exp.Subquery() | exp.Paren() | exp.Table() | exp.Lateral():
                scope = _Scope(outer, ctes=ctes)
                self.source(node, scope)
                columns: Columns = [each for _, found in scope.sources for each in found]
                self.sorts(node, columns, scope)
                return columns
            case exp.SetOperation():
                return self._set_operation(node, ctes, outer)
            case exp.Values():
                scope = _Scope(outer, ctes=ctes)
                return [Shown(EVERY, union(self.marks(row, scope) for row in node.expressions))]
            case exp.Select():
                return _Select(self, node, _Scope(outer, ctes=ctes)).columns()
            case _:
                return [Shown(EVERY, self._children(node, _Scope(outer, ctes=ctes)))]

    def _with(self, with_: exp.Expr, ctes: Names, outer: _Scope | None) -> Names:
        known = dict(ctes)
        for cte in with_.expressions:
            name = cte.alias.casefold()
            if with_.args.get("recursive"):  # what a step shows may come from any column of the step before
                known[name] = []
                marks = all_marks(_renamed(self.query(cte.this, known, outer), cte.args.get("alias")))
                known[name] = [Shown(EVERY, marks)]
            known[name] = _renamed(self.query(cte.this, known, outer), cte.args.get("alias"))
        return known

    def _set_operation(self, node: exp.SetOperation, ctes: Names, outer: _Scope | None) -> Columns:
        left, right = (self.query(side, ctes, outer) for side in (node.this, node.expression))
        whole = all_marks([*left, *right])
        if not isinstance(node, exp.Union) or node.args.get("distinct"):
            self.check(whole, type(node).__name__.upper())
            for columns, other in ((left, node.expression.unnest()), (right, node.this.unnest())):
                texts = other.expressions if isinstance(other, exp.Select) else []
                for column, text in zip(columns, texts, strict=False):
                    check_texts(column.marks, [text.unalias()])
        paired = len(left) == len(right) and not node.args.get("by_name")
        columns = (
            [Shown(one.name, one.marks | other.marks) for one, other in zip(left, right, strict=True)]
            if paired
            else [Shown(each.name, whole) for each in left]
        )
        self.sorts(node, columns, _Scope(outer, ctes=ctes))
        return columns

    def source(self, node: exp.Expr, scope: _Scope) -> Columns:
        """Add a table of FROM to a scope, with the tables joined to it; return its columns."""
        alias = node.args.get("alias")
        columns = self._columns_of(node, scope)
        for pivot in node.args.get("pivots") or ():
            self.check(all_marks(columns), "PIVOT")
            columns = [Shown(EVERY, all_marks(columns))]
            alias = pivot.args.get("alias") or alias
        columns = _renamed(columns, alias)
        scope.sources.append((node.alias_or_name if alias is None else alias.name, columns))
        for join in node.args.get("joins") or ():
            self.join(join, scope)
        return columns

    def _columns_of(self, node: exp.Expr, scope: _Scope) -> Columns:
        match node:
            case exp.Table(this=exp.Identifier()):
                name = node.name.casefold()
                return scope.ctes.get(name) or self._tables.get(name) or []
            case exp.Lateral() if not isinstance(node.this, exp.Subquery):
                marks = self.marks(node.this, scope)
                named = node.args.get("alias")
                names = [each.name for each in named.columns] if named is not None else []
                return [Shown(name, marks) for name in names or [EVERY]]
            case exp.Table() | exp.Unnest():
                return [Shown(EVERY, compared_elements(self._children(node, scope)))]
            case exp.Subquery() | exp.Paren() | exp.Lateral():
                return self.query(node.this, scope.ctes, scope if isinstance(node, exp.Lateral) else scope.outer)
            case _:
                return self.query(node, scope.ctes, scope.outer)

    def join(self, join: exp.Expr, scope: _Scope) -> None:
        """Add a joined table to a scope."""
        before = [each.name.casefold() for _, columns in scope.sources for each in columns]
        columns = self.source(join.this, scope)
        merged = [each.name.casefold() for each in join.args.get("using") or ()]
        if str(join.args.get("method") or "").upper() == "NATURAL":
            merged = [each.name.casefold() for each in columns if each.name.casefold() in before]
        for name in merged:
            self.check(scope.find(name, None) or NO_MARKS, "JOIN USING")
        scope.merged += [name for name in merged if name not in scope.merged]
        self.marks(join.args.get("on"), scope)
        if str(join.args.get("kind") or "").upper() in _NOT_SHOWN:
            scope.hidden.append(len(scope.sources) - 1)

    def sorts(self, node: exp.Expr, columns: Columns, scope: _Scope) -> None:
        """Check the ORDER BY and the like of a query that shows these columns."""
        for name in _SORTED_BY:
            if (clause := node.args.get(name)) is not None:
                for each in clause.expressions:
                    key = each.this if isinstance(each, exp.Ordered) else each
                    self.check(self.key(key, columns, scope, own_first=True), "ORDER BY", ordered=True)

    def key(self, node: exp.Expr, columns: Columns, scope: _Scope, *, own_first: bool) -> Marks:
        """Return the marks of an item of ORDER BY or GROUP BY: a place, a name of a column, or an expression."""
        if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdecimal():
            place = int(str(node.this)) - 1
            return columns[place].marks if place < len(columns) and EVERY not in _names(columns) else all_marks(columns)
        if isinstance(node, exp.Var):
            return all_marks(columns)
        if isinstance(node, exp.Column) and own_first and not node.table:
            named = [each.marks for each in columns if each.is_named(node.name)]
            return union(named) if named else self.marks(node, scope)
        return self.marks(node, scope) | (self.marks(node, _Scope(None, own=list(columns))) if own_first else NO_MARKS)

    def marks(self, node: exp.Expr | None, scope: _Scope) -> Marks:
        """Check the comparisons in an expression; return the columns whose values it may have."""
        if node is None:
            return NO_MARKS
        check = next((check for kinds, check in self._CHECKS if isinstance(node, kinds)), _Walk._children)
        return check(self, node, scope)

    def _children(self, node: exp.Expr, scope: _Scope) -> Marks:
        return union([self.marks(each, scope) for each in node.iter_expressions()])

    def _parameter(self, node: exp.Expr, _scope: _Scope) -> Marks:
        return self._parameters.get(node.name.casefold(), NO_MARKS)

    def _body(self, node: exp.Expr, scope: _Scope) -> Marks:
        return self.marks(node.this, scope)

    def _inner_query(self, node: exp.Expr, scope: _Scope) -> Marks:
        return all_marks(self.query(node, scope.ctes, scope))

    def _exists(self, node: exp.Expr, scope: _Scope) -> Marks:
        if not isinstance(node.this, exp.Query):
            return self._function(node, scope)
        self.query(node.this, scope.ctes, scope)
        return NO_MARKS

    def _of_other_type(self, node: exp.Expr, scope: _Scope) -> Marks:
        self._compute(self._children(node, scope))
        return NO_MARKS

    def _cast(self, node: exp.Expr, scope: _Scope) -> Marks:
        """Check a cast. One to another type than text says that values of that type are meant, and no others."""
        marks = self._children(node, scope)
        if node.args["to"].is_type(*exp.DataType.TEXT_TYPES):
            self._compute(marks)
        return NO_MARKS

    def _distinct(self, node: exp.Expr, scope: _Scope) -> Marks:
        marks = self._children(node, scope)
        self.check(marks, "DISTINCT")
        return marks

    def _column(self, node: exp.Expr, scope: _Scope) -> Marks:
        parts = (
            [each.name for each in node.parts if isinstance(each, exp.Identifier)]
            if isinstance(node, exp.Column)
            else []
        )
        if isinstance(node.this, exp.Star):
            return union(all_marks(columns) for alias, columns in scope.sources if not parts or alias == parts[-1])
        *before, name = parts
        if not before and (found := self._parameters.get(name.casefold())) is not None:
            return found
        found = scope.find(name, before[-1] if before else None)
        if found is None and before:  # a field of a struct
            found = union(scope.find(each, None) or NO_MARKS for each in before)
        return found or NO_MARKS

    def _case(self, node: exp.Expr, scope: _Scope) -> Marks:
        branches = node.args["ifs"]
        conditions = [each.this for each in branches]
        if node.this is not None:
            self._compare([node.this, *conditions], "CASE", scope)
        else:
            for condition in conditions:
                self.marks(condition, scope)
        values = [*(each.args["true"] for each in branches), node.args.get("default")]
        marks = union([self.marks(each, scope) for each in values])
        self._compute(marks)
        return marks

    def _comparison(self, node: exp.Expr, scope: _Scope) -> Marks:
        sign, ordered = _COMPARISONS[type(node)]
        self._compare(list(node.iter_expressions()), sign, scope, ordered=ordered)
        return NO_MARKS

    def _compare(self, operands: Sequence[exp.Expr], what: str, scope: _Scope, *, ordered: bool = False) -> None:
        sides = [self.marks(each, scope) for each in operands]
        marks = union(sides)
        self.check(marks, what, ordered=ordered)
        check_texts(marks, operands)
        kinds = {each.type_oid: each for each in marks if not each.is_plain}
        if len(kinds) > 1:
            one, other = list(kinds.values())[:2]
            names = [f"{each.name} ({each.type_name})" for each in (one, other)]
            raise NotAnswerable(
                f"{what} of {one.table}.{names[0]} and {other.table}.{names[1]} would compare texts of different types",
                "Cast both to string to compare PostgreSQL's texts.",
            )

    def _window(self, node: exp.Expr, scope: _Scope) -> Marks:
        for each in node.args.get("partition_by") or ():
            self.check(self.marks(each, scope), "PARTITION BY")
        marks = self.marks(node.this, scope)
        order = node.args.get("order") or node.args.get("expression")
        if isinstance(order, exp.Order):
            for each in order.expressions:
                sorted_by = self.marks(each.this, scope)
                self.check(sorted_by, "ORDER BY", ordered=True)
                marks |= sorted_by if isinstance(node, exp.WithinGroup) else NO_MARKS
        return marks

    def _function(self, node: exp.Expr, scope: _Scope) -> Marks:
        name = function_name(node)
        arguments = list(node.iter_expressions())
        lambdas = [each for each in arguments if isinstance(each, exp.Lambda)]
        given = [(each, self.marks(each, scope)) for each in arguments if not isinstance(each, exp.Lambda)]
        marks = union(each for _, each in given)
        parameters = {each.name.casefold() for body in lambdas for each in body.expressions}
        outside = self._parameters
        self._parameters = outside | dict.fromkeys(parameters, compared_elements(marks))
        marks |= union([self.marks(each.this, scope) for each in lambdas])
        self._parameters = outside
        return self._result(name, marks, given)

    def _result(self, name: str, marks: Marks, given: Sequence[tuple[exp.Expr, Marks]]) -> Marks:
        called = _CALLED.get(name, f"{name}()")
        if name != _EXACT_TEXT:
            self._compute(marks)
        if name in OF_TEXT:
            check_matches(marks, name)
            return frozenset(each for each in marks if element_of(each.type_oid) is not None)
        if name in ORDERS:
            of_array = name.startswith(("array", "sort"))
            compared = given[1][1] if name in {"argmax", "argmin"} and len(given) > 1 else marks
            self.check(compared_elements(compared) if of_array else compared, called, ordered=True)
        elif name in COMPARES:
            self.check(marks, called)
            check_texts(marks, [argument for argument, _ in given])
        elif name not in RETURNS and name not in IS_PLAIN:
            self.check(marks, called)
        if name in IS_PLAIN:
            return NO_MARKS
        return compared_elements(marks) if name in OF_ELEMENTS else marks

    _CHECKS: ClassVar[Sequence[tuple[tuple[type[exp.Expr], ...], Callable[["_Walk", exp.Expr, _Scope], Marks]]]] = (
        ((exp.Column,), _column),
        ((exp.Identifier,), _parameter),
        ((exp.Exists,), _exists),
        ((exp.Query,), _inner_query),
        ((exp.Cast, exp.TryCast), _cast),
        ((exp.Is, exp.And, exp.Or, exp.Not), _of_other_type),
        (tuple(_COMPARISONS), _comparison),
        ((exp.Case,), _case),
        ((exp.Window, exp.WithinGroup), _window),
        ((exp.Distinct,), _distinct),
        ((exp.Lambda, exp.Paren), _body),
        ((exp.Func, exp.Binary, exp.Unary, exp.Bracket), _function),
    )
    """What checks a node; the first that fits. Any other node has the values of its parts."""


def _renamed(columns: Columns, alias: exp.Expr | None) -> Columns:
    names = [each.name for each in alias.args.get("columns") or ()] if isinstance(alias, exp.TableAlias) else []
    if not names:
        return columns
    if len(names) == len(columns) and EVERY not in _names(columns):
        return [Shown(name, each.marks) for name, each in zip(names, columns, strict=True)]
    return [Shown(name, all_marks(columns)) for name in names]


def _names(columns: Columns) -> Iterator[str]:
    return (each.name for each in columns)


class _Select:
    """One SELECT."""

    def __init__(self, walk: _Walk, node: exp.Select, scope: _Scope) -> None:
        self._walk = walk
        self._node = node
        self._scope = scope

    def columns(self) -> Columns:
        """Check it; return its columns."""
        node, walk, scope = self._node, self._walk, self._scope
        if (from_ := node.args.get("from_")) is not None:
            walk.source(from_.this, scope)
        for join in node.args.get("joins") or ():
            walk.join(join, scope)
        for lateral in node.args.get("laterals") or ():
            walk.source(lateral, scope)
        walk.marks(node.args.get("where"), scope)
        for each in node.expressions:
            scope.own += self._shown(each)
        columns = scope.own
        self._group(columns)
        for name in ("having", "qualify", "windows", "limit", "offset"):
            part = node.args.get(name)
            for each in part if isinstance(part, list) else [part]:
                walk.marks(each, scope)
        if node.args.get("distinct"):
            walk.check(all_marks(columns), "DISTINCT")
        walk.sorts(node, columns, scope)
        return columns

    def _shown(self, node: exp.Expr) -> list[Shown]:
        star = node.this if isinstance(node, exp.Column) else node
        if isinstance(star, exp.Star):
            left_out = {each.name.casefold() for each in star.args.get("except_") or ()}
            of = node.table if isinstance(node, exp.Column) else ""
            return [each for each in self._scope.star(of) if each.name.casefold() not in left_out]
        marks = self._walk.marks(node.unalias(), self._scope)
        if isinstance(node, exp.Aliases):
            return [Shown(each.name, marks) for each in node.expressions]
        return [Shown(node.alias_or_name, marks)]

    def _group(self, columns: Columns) -> None:
        clause = self._node.args.get("group")
        if clause is None:
            return
        keys = list(clause.expressions)
        for name in ("rollup", "cube", "grouping_sets"):
            keys += [key for each in clause.args.get(name) or () for key in each.expressions]
        for key in keys:
            self._walk.check(self._walk.key(key, columns, self._scope, own_first=False), "GROUP BY")
        if clause.args.get("all"):
            self._walk.check(all_marks(columns), "GROUP BY ALL")
