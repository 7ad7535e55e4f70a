"""Comparisons that a statement makes of columns whose text is not their value, and the refusal of those.

Spark and DuckDB compare an `interval` as the text that they show; PostgreSQL compares values, of which equal ones may
have several texts (`values.equality`). So such a column may be shown, cast and passed to functions of text, but not be
compared, grouped, joined, made distinct or sorted by: `check_comparisons` refuses that and names the column, before an
engine starts, so that both refuse the same statements.

The check follows the columns of each table through the statement's tree: through subqueries, common table expressions,
set operations and functions that return one of their arguments. Functions that compute from a text (`OF_TEXT`) end it,
and so does a cast. It errs on the side of refusing: a name with several meanings has all of them, and a function that
is not listed may compare. Names that are not found are left to the engine, which reports them.

A typed column is NULL for a value that its type cannot hold, such as NaN and infinity. It may be shown, but a
comparison, an aggregate or any other computation would leave that value out. The check returns the columns that are
computed with (`Checked.computed`), and an engine refuses the statement if its rows have such a value (`held_error`).
Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from sqlglot import exp

from auditlake.errors import NotAnswerable
from auditlake.query.compared_functions import (
    COMPARES,
    IS_PLAIN,
    MATCHES,
    OF_ELEMENTS,
    OF_TEXT,
    ORDERS,
    RETURNS,
    function_name,
)
from auditlake.query.system_time import Selection
from auditlake.relation import TableName
from auditlake.values.equality import UNRECORDED, differs_in, has_equality, has_order, is_plain, printed
from auditlake.values.input_syntax import type_name
from auditlake.values.types import DOES_NOT_FIT, ColumnType, element_of


@dataclass(frozen=True, slots=True)
class PartialColumn:
    """A column, in the rows of a selection, that is NULL for some values (`values.types`)."""

    table: TableName
    selection: Selection
    stored: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """A column of a table whose comparisons are checked; or, of an array, its elements.

    `recorded` is what the lake recorded of comparisons with it (`values.equality`), `origin` the column itself if it is
    NULL for some values.
    """

    table: TableName
    name: str
    type_oid: int
    typmod: int
    recorded: tuple[str, ...] | None = None
    origin: PartialColumn | None = None

    @property
    def may_not_fit(self) -> bool:
        """Whether it is NULL here for some values that exist."""
        return self.origin is not None

    @property
    def differs_in(self) -> str | None:
        """Return on what a comparison depends besides the text; None if on nothing."""
        return differs_in(self.type_oid, self.recorded)

    @property
    def is_plain(self) -> bool:
        """Whether no comparison of it has to be checked."""
        return is_plain(self.type_oid, self.typmod) and self.differs_in is None

    @property
    def element(self) -> "ComparedColumn | None":
        """The elements of an array; None if nothing has to be checked of them."""
        element = element_of(self.type_oid)
        if element is None:
            return self
        of_element = replace(self, type_oid=element)
        return None if of_element.is_plain else of_element


Marks = frozenset[ComparedColumn]
_NONE: Marks = frozenset()


class Shown(NamedTuple):
    """A column that a query shows, and the columns of tables whose values it may have; EVERY stands for any name."""

    name: str
    marks: Marks


EVERY = "*"
Columns = Sequence[Shown]


def columns_shown_of(columns: Iterable[ComparedColumn]) -> list[Shown]:
    """Return the columns of a table."""
    return [Shown(e.name, _NONE if e.is_plain and not e.may_not_fit else frozenset({e})) for e in columns]


class Checked(NamedTuple):
    """The columns that a query shows, and those that it computes with although they are NULL for some values."""

    shown: Columns = ()
    computed: Marks = _NONE


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
        found = [each.marks for columns in sources for each in columns if _is(each, name)]
        if not found and of is None:
            found = [each.marks for each in self.own if _is(each, name)]
        if found:
            return _union(found)
        return None if self.outer is None else self.outer.find(name, of)

    def star(self, of: str) -> list[Shown]:
        """Return the columns of `*`, or of `of.*`."""
        sources = [
            columns
            for place, (alias, columns) in enumerate(self.sources)
            if place not in self.hidden and of.casefold() in {"", alias.casefold()}
        ]
        first = [] if of else [Shown(name, self.find(name, None) or _NONE) for name in self.merged]
        rest = (each for columns in sources for each in columns)
        return first + [each for each in rest if of or each.name.casefold() not in self.merged]


def _is(shown: Shown, name: str) -> bool:
    return shown.name == EVERY or shown.name.casefold() == name.casefold()


def _union(marks: Iterable[Marks]) -> Marks:
    return frozenset().union(*marks)


def _all(columns: Columns) -> Marks:
    return _union(each.marks for each in columns)


def _elements(marks: Marks) -> Marks:
    return frozenset(each for mark in marks if (each := mark.element) is not None)


def _check(marks: Marks, what: str, *, ordered: bool = False) -> None:
    for each in sorted(marks, key=lambda mark: (mark.table, mark.name)):
        _check_recorded(each, what)
        fits = has_order if ordered else has_equality
        if not fits(each.type_oid, each.typmod):
            equal = has_equality(each.type_oid, each.typmod)
            why = "is in another order than its values" if equal else "may differ for equal values"
            raise NotAnswerable(
                f"{what} would compare the text of {each.table}.{each.name} ({_type(each)}), which {why}",
                f"Write cast({each.name} as string) to compare texts all the same, or cast it to a type of Spark's.",
            )


def held_error(column: ComparedColumn) -> NotAnswerable:
    """Return the refusal of a computation with a column that is NULL for a value that exists."""
    assert column.origin is not None  # noqa: S101 - only such columns are computed with
    kind = column.origin.type
    return NotAnswerable(
        f"the statement computes with {column.table}.{column.name}, which is NULL here for a value that exists and "
        f"{kind.delta} cannot hold ({DOES_NOT_FIT[kind.kind]})",
        f"Write cast({column.name} as {kind.delta}) to take it for NULL; exact_text({column.name}) shows it.",
    )


def _check_recorded(column: ComparedColumn, what: str) -> None:
    part = column.differs_in
    if part is None:
        return
    hint = f"Write cast({column.name} as string) to compare texts all the same."
    if part is UNRECORDED:
        hint = f"auditlake follow records it. {hint}"
    raise NotAnswerable(
        f"{what} would compare the text of {column.table}.{column.name} ({_type(column)}), "
        f"which may differ for equal values, depending on {part}",
        hint,
    )


def _check_matches(marks: Marks, name: str) -> None:
    for each in sorted(marks, key=lambda mark: (mark.table, mark.name)) if name in MATCHES else ():
        _check_recorded(each, f"{name}()")


def _type(column: ComparedColumn) -> str:
    return column.recorded[0] if column.recorded else type_name(column.type_oid, column.typmod)


def _check_texts(marks: Marks, operands: Iterable[exp.Expr]) -> None:
    """Check that the texts among the operands are as PostgreSQL prints the values that it reads from them."""
    for text in (each.unnest() for each in operands):
        if isinstance(text, exp.Tuple | exp.Array):
            _check_texts(marks, text.expressions)
        if isinstance(text, exp.Literal) and text.is_string:
            for each in marks:
                if not each.is_plain:
                    _check_text(each, str(text.this))


def _check_text(column: ComparedColumn, text: str) -> None:
    element = column.element
    if element is None or (element is not column and text.startswith("{")):
        return
    subject = f"{column.table}.{column.name} is compared with a text"
    try:
        shown = printed(element.type_oid, element.typmod, text)
    except ValueError as exc:
        raise NotAnswerable(f"{subject} that is not known to be a value of {_type(element)}", f"Write {exc}.") from exc
    if shown != text:
        raise NotAnswerable(f"{subject} that PostgreSQL prints in another form", f"Write '{shown}'.")


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
        _check(marks, what, ordered=ordered)

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
                return [Shown(EVERY, _union(self.marks(row, scope) for row in node.expressions))]
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
                marks = _all(_renamed(self.query(cte.this, known, outer), cte.args.get("alias")))
                known[name] = [Shown(EVERY, marks)]
            known[name] = _renamed(self.query(cte.this, known, outer), cte.args.get("alias"))
        return known

    def _set_operation(self, node: exp.SetOperation, ctes: Names, outer: _Scope | None) -> Columns:
        left, right = (self.query(side, ctes, outer) for side in (node.this, node.expression))
        whole = _all([*left, *right])
        if not isinstance(node, exp.Union) or node.args.get("distinct"):
            self.check(whole, type(node).__name__.upper())
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
            self.check(_all(columns), "PIVOT")
            columns = [Shown(EVERY, _all(columns))]
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
                return [Shown(EVERY, _elements(self._children(node, scope)))]
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
            self.check(scope.find(name, None) or _NONE, "JOIN USING")
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
            return columns[place].marks if place < len(columns) and EVERY not in _names(columns) else _all(columns)
        if isinstance(node, exp.Var):
            return _all(columns)
        if isinstance(node, exp.Column) and own_first and not node.table:
            named = [each.marks for each in columns if _is(each, node.name)]
            return _union(named) if named else self.marks(node, scope)
        return self.marks(node, scope) | (self.marks(node, _Scope(None, own=list(columns))) if own_first else _NONE)

    def marks(self, node: exp.Expr | None, scope: _Scope) -> Marks:
        """Check the comparisons in an expression; return the columns whose values it may have."""
        if node is None:
            return _NONE
        check = next((check for kinds, check in self._CHECKS if isinstance(node, kinds)), _Walk._children)
        return check(self, node, scope)

    def _children(self, node: exp.Expr, scope: _Scope) -> Marks:
        return _union([self.marks(each, scope) for each in node.iter_expressions()])

    def _parameter(self, node: exp.Expr, _scope: _Scope) -> Marks:
        return self._parameters.get(node.name.casefold(), _NONE)

    def _body(self, node: exp.Expr, scope: _Scope) -> Marks:
        return self.marks(node.this, scope)

    def _inner_query(self, node: exp.Expr, scope: _Scope) -> Marks:
        return _all(self.query(node, scope.ctes, scope))

    def _exists(self, node: exp.Expr, scope: _Scope) -> Marks:
        if not isinstance(node.this, exp.Query):
            return self._function(node, scope)
        self.query(node.this, scope.ctes, scope)
        return _NONE

    def _of_other_type(self, node: exp.Expr, scope: _Scope) -> Marks:
        self._compute(self._children(node, scope))
        return _NONE

    def _cast(self, node: exp.Expr, scope: _Scope) -> Marks:
        """Check a cast. One to another type than text says that values of that type are meant, and no others."""
        marks = self._children(node, scope)
        if node.args["to"].is_type(*exp.DataType.TEXT_TYPES):
            self._compute(marks)
        return _NONE

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
            return _union(_all(columns) for alias, columns in scope.sources if not parts or alias == parts[-1])
        *before, name = parts
        if not before and (found := self._parameters.get(name.casefold())) is not None:
            return found
        found = scope.find(name, before[-1] if before else None)
        if found is None and before:  # a field of a struct
            found = _union(scope.find(each, None) or _NONE for each in before)
        return found or _NONE

    def _case(self, node: exp.Expr, scope: _Scope) -> Marks:
        branches = node.args["ifs"]
        conditions = [each.this for each in branches]
        if node.this is not None:
            self._compare([node.this, *conditions], "CASE", scope)
        else:
            for condition in conditions:
                self.marks(condition, scope)
        values = [*(each.args["true"] for each in branches), node.args.get("default")]
        marks = _union([self.marks(each, scope) for each in values])
        self._compute(marks)
        return marks

    def _comparison(self, node: exp.Expr, scope: _Scope) -> Marks:
        sign, ordered = _COMPARISONS[type(node)]
        self._compare(list(node.iter_expressions()), sign, scope, ordered=ordered)
        return _NONE

    def _compare(self, operands: Sequence[exp.Expr], what: str, scope: _Scope, *, ordered: bool = False) -> None:
        sides = [self.marks(each, scope) for each in operands]
        marks = _union(sides)
        self.check(marks, what, ordered=ordered)
        _check_texts(marks, operands)
        kinds = {each.type_oid: each for each in marks if not each.is_plain}
        if len(kinds) > 1:
            one, other = list(kinds.values())[:2]
            names = [f"{each.name} ({_type(each)})" for each in (one, other)]
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
                marks |= sorted_by if isinstance(node, exp.WithinGroup) else _NONE
        return marks

    def _function(self, node: exp.Expr, scope: _Scope) -> Marks:
        name = function_name(node)
        arguments = list(node.iter_expressions())
        lambdas = [each for each in arguments if isinstance(each, exp.Lambda)]
        given = [(each, self.marks(each, scope)) for each in arguments if not isinstance(each, exp.Lambda)]
        marks = _union(each for _, each in given)
        parameters = {each.name.casefold() for body in lambdas for each in body.expressions}
        outside, self._parameters = self._parameters, self._parameters | dict.fromkeys(parameters, _elements(marks))
        marks |= _union([self.marks(each.this, scope) for each in lambdas])
        self._parameters = outside
        return self._result(name, marks, given)

    def _result(self, name: str, marks: Marks, given: Sequence[tuple[exp.Expr, Marks]]) -> Marks:
        called = _CALLED.get(name, f"{name}()")
        if name != _EXACT_TEXT:
            self._compute(marks)
        if name in OF_TEXT:
            _check_matches(marks, name)
            return frozenset(each for each in marks if element_of(each.type_oid) is not None)
        if name in ORDERS:
            of_array = name.startswith(("array", "sort"))
            compared = given[1][1] if name in {"argmax", "argmin"} and len(given) > 1 else marks
            self.check(_elements(compared) if of_array else compared, called, ordered=True)
        elif name in COMPARES:
            self.check(marks, called)
            _check_texts(marks, [argument for argument, _ in given])
        elif name not in RETURNS and name not in IS_PLAIN:
            self.check(marks, called)
        if name in IS_PLAIN:
            return _NONE
        return _elements(marks) if name in OF_ELEMENTS else marks

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
    return [Shown(name, _all(columns)) for name in names]


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
            walk.check(_all(columns), "DISTINCT")
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
            self._walk.check(_all(columns), "GROUP BY ALL")
