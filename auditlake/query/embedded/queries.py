"""Queries of Spark SQL in DuckDB's SQL: names, joins, grouping, order, set operations. See `expressions` for the rest.

`translate_query` returns DuckDB text with columns `o0`, `o1` …, of the names and types that Spark gives them. Tables
are views of DuckDB with columns `c0`, `c1` …, so that no name of the source is ever a name of DuckDB's. A name must
have one meaning: if Spark would choose between an alias and a column, Spark is asked.

The rows of a query without ORDER BY come in any order, as in Spark; of equal rows under LIMIT any may be chosen.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from sqlglot import exp

from auditlake.errors import BadUsage
from auditlake.query.embedded.cells import NotEmbedded, SparkCell, as_kind, construct
from auditlake.query.embedded.conversions import common_of
from auditlake.query.embedded.expressions import SparkExpressions, require_distinct_intervals
from auditlake.query.embedded.spark_types import VOID, is_groupable
from auditlake.query.parts import conjuncts, unread, watch_parts
from auditlake.query.room import TooLong, limited, require_plannable

_WITHOUT_MEANING = frozenset(
    {(exp.Identifier, "quoted"), (exp.Greatest, "ignore_nulls"), (exp.Least, "ignore_nulls")}  # both engines skip NULL
)


@dataclass(frozen=True, slots=True)
class Translated:
    """A query in DuckDB's SQL, with its columns; `may_fail`: an expression of it can fail on a row."""

    sql: str
    fields: tuple[SparkCell, ...]
    may_fail: bool


Tables = Mapping[str, Sequence[SparkCell]]
"""Columns of each view by the view's name; they get their texts where a query names the view."""


def translate_query(tree: exp.Expr, tables: Tables) -> Translated:
    """Translate a query over these views; raises NotEmbedded, BadUsage if it reads a masked column."""
    watched = watch_parts(tree)
    try:
        with limited():
            translated = _Names(tables, {}).query(tree)
        require_plannable(translated.sql)
        require_distinct_intervals(translated.sql)
    except TooLong:
        raise NotEmbedded("expressions nested so deep") from None
    for node, name in unread(watched, _WITHOUT_MEANING):
        raise NotEmbedded(f"{construct(node)} with {name.strip('_').replace('_', ' ')}")
    for each in translated.fields:
        if each.name is None:
            raise NotEmbedded("a computed column without AS")
        if each.kind == VOID:
            raise NotEmbedded("a column of type void")
    return translated


def _same(one: str, other: str) -> bool:
    """Return whether two names are one in Spark; raises NotEmbedded for letters that Java may fold otherwise."""
    if one == other:
        return True
    if one.casefold() == other.casefold() and not (one.isascii() and other.isascii()):
        raise NotEmbedded(f"the names {one} and {other}")
    return one.lower() == other.lower()


@dataclass(frozen=True, slots=True)
class _Source:
    """A table of a FROM clause: its alias, and its columns as `alias.name` in DuckDB."""

    alias: str
    cells: tuple[SparkCell, ...]
    joined: tuple[str, ...] = ()
    """Columns that USING has joined: shown once, and only with the alias under their own."""

    def shows(self, name: str | None) -> bool:
        """Return whether a column is part of `*`, and found without the alias."""
        return name is None or not any(_same(each, name) for each in self.joined)


def _named(cells: Iterable[SparkCell], name: str) -> list[SparkCell]:
    """Return the columns that a name can mean; raises BadUsage if one is masked."""
    return [_usable(cell) for cell in cells if cell.name is not None and _same(cell.name, name)]


def _usable(cell: SparkCell) -> SparkCell:
    if cell.masked:
        raise BadUsage(f"column {cell.name} is masked", "Ask without it: name the columns that you need in place of *.")
    return cell


@dataclass
class SparkScope:
    """The tables of one FROM clause, and the columns that USING joined."""

    names: "_Names"
    sources: list[_Source] = field(default_factory=list)
    joined: list[SparkCell] = field(default_factory=list)
    may_fail: bool = False
    outer: "SparkScope | None" = None
    """The scope around an EXISTS, for names that are not found here."""
    result: Sequence[SparkCell] = ()
    """The columns of the result, in a HAVING, which finds them by their aliases."""
    is_hidden: bool = False
    """Whether an ORDER BY after DISTINCT is translated, which sees the columns of the result only."""

    def column(self, node: exp.Column) -> SparkCell:
        """Find the column that a name means; raises NotEmbedded."""
        if (named := _aliased(node, self.result)) is not None:
            return named
        if self.is_hidden:
            raise NotEmbedded(f"ORDER BY {node.name}, which DISTINCT does not show")
        if isinstance(node.this, exp.Star):
            raise NotEmbedded("* in an expression")
        found = self.find(node.name, node.text("table"))
        if not found and self.outer is not None:
            found = self.outer.find(node.name, node.text("table"))
        if len(found) != 1:
            raise NotEmbedded(f"the {'ambiguous' if found else 'unknown'} column {node.name}")
        return found[0]

    def find(self, name: str, table: str = "") -> list[SparkCell]:
        """Find the columns that a name can mean."""
        sources = (each for each in self.sources if (_same(each.alias, table) if table else each.shows(name)))
        cells = chain(() if table else self.joined, *(source.cells for source in sources))
        return [replace(cell, name=name) for cell in _named(cells, name)]

    def values_of(self, query: exp.Expr) -> SparkCell:
        """Translate a subquery of one column that refers to nothing outside of it; raises NotEmbedded."""
        if self.is_hidden:
            raise NotEmbedded(f"ORDER BY of {type(query).__name__}")
        inner = self.names.query(query)
        self.may_fail |= inner.may_fail
        if len(inner.fields) != 1:
            raise NotEmbedded("a subquery of several columns")
        return SparkCell(f"({inner.sql})", inner.fields[0].kind)

    def value_of(self, query: exp.Expr) -> SparkCell:
        """Translate a subquery of one value; an aggregate's WHERE may refer to the tables around it."""
        try:
            return self.values_of(query)
        except NotEmbedded:
            if self.result or self.is_hidden or not isinstance(query, exp.Select):
                raise
        sql, kind = _Select(self.names, query).aggregate_in(self)
        return SparkCell(f"({sql})", kind)

    def exists(self, query: exp.Expr) -> str:
        """Translate the subquery of an EXISTS, whose WHERE may refer to the tables around it."""
        if not isinstance(query, exp.Select):
            raise NotEmbedded(f"EXISTS of {type(query).__name__.upper()}")
        return _Select(self.names, query).exists_in(self)

    def star(self, table: str | None = None) -> list[SparkCell]:
        """Return the columns of `*` or `table.*`, in Spark's order."""
        if table is None:
            rest = (cell for source in self.sources for cell in source.cells if source.shows(cell.name))
            return [_usable(cell) for cell in (*self.joined, *rest)]
        sources = [source for source in self.sources if _same(source.alias, table)]
        if len(sources) != 1:
            raise NotEmbedded(f"{table}.* of an {'ambiguous' if sources else 'unknown'} table")
        return [_usable(cell) for cell in sources[0].cells]


class _Names:
    """Translation of a query with the tables and common table expressions that it may name."""

    def __init__(self, tables: Tables, queries: Mapping[str, Translated], counter: list[int] | None = None) -> None:
        self._tables = tables
        self._queries = queries
        self._counter = counter if counter is not None else [0]

    def query(self, node: exp.Expr) -> Translated:
        """Translate a query of any form."""
        names = self._with(node)
        match node:
            case exp.Select():
                return _Select(names, node).translated()
            case exp.Union():
                return names.union(node)
            case exp.Subquery() if not node.alias:
                return names.query(node.this)
            case exp.Values():
                return names.values(node)
            case _:
                raise NotEmbedded(type(node).__name__.upper())

    def _with(self, node: exp.Expr) -> "_Names":
        if (clause := node.args.get("with_")) is None:
            return self
        names = self
        for cte in clause.expressions:
            inner = names.query(cte.this)
            inner = replace(inner, fields=_with_names(inner.fields, cte.args["alias"]))
            names = _Names(self._tables, {**names._queries, cte.alias.lower(): inner}, self._counter)
        return names

    def alias(self) -> str:
        self._counter[0] += 1
        return f"t{self._counter[0]}"

    def source(self, node: exp.Expr, scope: SparkScope) -> str:
        """Add a table or subquery of a FROM clause to its scope, and return its text."""
        inner, given = self._named_source(node)
        alias = self.alias()
        prefix, fields = ("c", tuple(self._tables[inner])) if isinstance(inner, str) else ("o", inner.fields)
        text = f'"{inner}"' if isinstance(inner, str) else f"({inner.sql})"
        scope.may_fail |= not isinstance(inner, str) and inner.may_fail
        if isinstance(columns := node.args.get("alias"), exp.TableAlias):
            fields = _with_names(fields, columns)
        cells = tuple(replace(each, sql=f"{alias}.{prefix}{n}") for n, each in enumerate(fields))
        scope.sources.append(_Source(given, cells))
        return f"{text} as {alias}"

    def _named_source(self, node: exp.Expr) -> tuple["str | Translated", str]:
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier) and len(node.parts) == 1:
                name = node.name
                if name in self._tables:
                    return name, node.alias or name
                if (query := self._queries.get(name.lower())) is not None:
                    return query, node.alias or name
                raise NotEmbedded(f"the table {name}")
            case exp.Subquery():
                return self.query(node.this), node.alias
            case exp.Values():
                return self.values(node), node.alias
            case _:
                raise NotEmbedded(f"{type(node).__name__.upper()} in FROM")

    def values(self, node: exp.Values) -> Translated:
        """Translate VALUES."""
        expressions = SparkExpressions(SparkScope(self))
        rows = [
            [expressions.cell(each) for each in row.expressions]
            for row in node.expressions
            if isinstance(row, exp.Tuple)
        ]
        queries = any(row.find(exp.Query) for row in node.expressions)  # Spark refuses them here
        if queries or len(rows) != len(node.expressions) or len({len(row) for row in rows}) != 1:
            raise NotEmbedded("VALUES of this form")
        kinds = [common_of(column) for column in zip(*rows, strict=True)]
        selects = [_as_kinds(row, kinds) for row in rows]
        fields = tuple(SparkCell(f"o{n}", kind, f"col{n + 1}") for n, kind in enumerate(kinds))
        return Translated(" union all ".join(f"select {each}" for each in selects), fields, expressions.may_fail)

    def union(self, node: exp.Union) -> Translated:
        """Translate UNION and UNION ALL."""
        left, right = self.query(node.this), self.query(node.expression)
        if len(left.fields) != len(right.fields):
            raise NotEmbedded("UNION of different widths")
        kinds = [common_of(pair) for pair in zip(left.fields, right.fields, strict=True)]
        if node.args.get("distinct") and not all(map(is_groupable, kinds)):
            raise NotEmbedded("UNION of such values")
        sides = [f"select {_as_kinds(side.fields, kinds)} from ({side.sql})" for side in (left, right)]
        pairs = zip(left.fields, kinds, strict=True)
        fields = tuple(of if of.kind == kind else SparkCell(of.sql, kind, of.name) for of, kind in pairs)
        word = "union" if node.args.get("distinct") else "union all"
        tail = _Order(SparkExpressions(SparkScope(self)), fields).text(node)
        return Translated(f"select * from ({f' {word} '.join(sides)}){tail}", fields, left.may_fail or right.may_fail)


def _as_kinds(cells: Sequence[SparkCell], kinds: Sequence[str]) -> str:
    return _numbered([as_kind(cell, kind) for cell, kind in zip(cells, kinds, strict=True)])


def _numbered(columns: Sequence[str]) -> str:
    return ", ".join(f"{column} as o{n}" for n, column in enumerate(columns))


def _with_names(fields: tuple[SparkCell, ...], alias: exp.TableAlias) -> tuple[SparkCell, ...]:
    columns = alias.args.get("columns") or []
    if not columns:
        return fields
    if len(columns) != len(fields):
        raise NotEmbedded("an alias with another number of columns")
    return tuple(replace(of, name=column.name) for of, column in zip(fields, columns, strict=True))


class _Order:
    """ORDER BY, LIMIT and OFFSET of a query with these columns."""

    def __init__(self, expressions: SparkExpressions, columns: Sequence[SparkCell]) -> None:
        self._expressions = expressions
        self._columns = columns

    def text(self, node: exp.Expr) -> str:
        parts = [
            f" order by {', '.join(self._keys(order))}" for order in (node.args.get("order"),) if order is not None
        ]
        for name in ("limit", "offset"):
            if (clause := node.args.get(name)) is not None:
                if not isinstance(clause.expression, exp.Literal) or not str(clause.expression.this).isdecimal():
                    raise NotEmbedded(f"{name.upper()} of an expression")
                parts.append(f" {name} {clause.expression.this}")
        return "".join(parts)

    def _keys(self, order: exp.Expr) -> list[str]:
        return [self._expressions.ordered(each, self._key(each.this)) for each in order.expressions]

    def _key(self, node: exp.Expr) -> SparkCell:
        if isinstance(node, exp.Literal) and not node.is_string:
            return replace(_at_place(node, self._columns, "ORDER BY"), number=None)
        if not isinstance(node, exp.Column):
            self._check_names(node)
        named = _aliased(node, self._columns)
        inside = self._inside(node)
        if named is None or inside is None or named.sql == inside.sql:
            cell = named or inside
            if cell is not None:
                return cell
        raise NotEmbedded(f"ORDER BY {node.name or type(node).__name__.lower()}, which is ambiguous")

    def _check_names(self, node: exp.Expr) -> None:
        """Check that no name in an expression is also that of another column of the result, which Spark prefers."""
        for column in node.find_all(exp.Column):
            named = _aliased(column, self._columns)
            if named is not None and named.sql != self._expressions.cell(column).sql:
                raise NotEmbedded(f"ORDER BY with {column.name}, which is ambiguous")

    def _inside(self, node: exp.Expr) -> SparkCell | None:
        try:
            return self._expressions.cell(node)
        except NotEmbedded:
            if isinstance(node, exp.Column):
                return None
            raise


def _at_place(node: exp.Literal, columns: Sequence[SparkCell], clause: str) -> SparkCell:
    """Return the column of a result at a place that a number names."""
    place = int(str(node.this)) if not node.is_string and str(node.this).isdecimal() else 0
    if not 1 <= place <= len(columns):
        raise NotEmbedded(f"{clause} {node.this}")
    return columns[place - 1]


def _aliased(node: exp.Expr, columns: Sequence[SparkCell]) -> SparkCell | None:
    """Return the column of a result that a name means, or None; raises NotEmbedded if there are several."""
    if not isinstance(node, exp.Column) or node.text("table"):
        return None
    found = {cell.sql: cell for cell in columns if cell.name is not None and _same(cell.name, node.name)}
    if len(found) > 1:
        raise NotEmbedded(f"the column {node.name}, which is ambiguous")
    return next(iter(found.values()), None)


class _Select:
    """One SELECT."""

    def __init__(self, names: _Names, node: exp.Select) -> None:
        self._names = names
        self._node = node
        self._scope = SparkScope(names)
        self._expressions = SparkExpressions(self._scope)

    def translated(self) -> Translated:
        node = self._node
        from_ = self._from()
        where = f" where {self._expressions.where(node.args['where'].this)}" if node.args.get("where") else ""
        columns = self._columns()
        group = self._group(columns)
        having = self._having(columns)
        distinct = self._distinct(columns)
        after = SparkExpressions(SparkScope(self._names, is_hidden=True)) if distinct else self._expressions
        order = _Order(after, columns).text(node)
        shown = _numbered([cell.sql for cell in columns])
        fields = tuple(replace(cell, sql=f"o{n}", number=None, text=None) for n, cell in enumerate(columns))
        sql = f"select {distinct}{shown}{from_}{where}{group}{having}{order}"
        return Translated(sql, fields, self._expressions.may_fail or self._scope.may_fail)

    def exists_in(self, outer: SparkScope) -> str:
        """Translate the query of an EXISTS: its WHERE may refer to the tables of the query around it.

        Only plain rows of tables: with an aggregate it would have a row always, and the rest Spark may refuse.
        """
        if any(each.find(exp.AggFunc) for each in self._node.expressions):
            raise NotEmbedded("EXISTS of an aggregate")
        from_ = self._from()
        self._columns()
        if not from_ or self._expressions.may_fail:
            raise NotEmbedded("EXISTS of expressions")
        self._scope.outer = outer
        inner = SparkExpressions(self._scope)
        where = f" where {inner.where(self._node.args['where'].this)}" if self._node.args.get("where") else ""
        outer.may_fail |= inner.may_fail or self._scope.may_fail
        return f"select 1{from_}{where}"

    def aggregate_in(self, outer: SparkScope) -> tuple[str, str]:
        """Translate the query of one aggregate, which may equate columns with those of `outer`; return its type too."""
        if not any(each.find(exp.AggFunc) for each in self._node.expressions) or not self._node.args.get("where"):
            raise NotEmbedded("a subquery of other values than one aggregate")
        from_ = self._from()
        condition = self._node.args["where"].this
        equated = {each: self._equated(each, outer) for each in conjuncts(condition)}
        rest = [each for each, text in equated.items() if text is None]
        where = [text for text in equated.values() if text is not None]
        if rest:
            where.append(self._expressions.where(exp.and_(*rest, copy=False)))
        if self._expressions.may_fail:  # Spark evaluates them on rows that the equations leave out
            raise NotEmbedded("a subquery with conditions that can fail")
        (column, *others) = self._columns()
        if others:
            raise NotEmbedded("a subquery of several columns")
        outer.may_fail = True
        return f"select {column.sql}{from_} where {' and '.join(where)}", column.kind

    def _equated(self, node: exp.Expr, outer: SparkScope) -> str | None:
        """Translate a condition that equates a column with one of the outer query; None if it is another one."""
        if not isinstance(node, exp.EQ) or not all(
            isinstance(each, exp.Column) for each in (node.this, node.expression)
        ):
            return None
        sides = [self._scope.find(each.name, each.text("table")) for each in (node.this, node.expression)]
        if all(sides):
            return None
        self._scope.outer = outer
        left, right = (self._scope.column(each) for each in (node.this, node.expression))
        self._scope.outer = None
        if left.kind != right.kind or not is_groupable(left.kind) or not any(sides):
            raise NotEmbedded(f"a comparison of {left.kind} with {right.kind} of the outer query")
        return f"({left.sql} = {right.sql})"

    def _from(self) -> str:
        clause = self._node.args.get("from_")
        if clause is None:
            return ""
        text = self._names.source(clause.this, self._scope)
        for join in self._node.args.get("joins") or []:
            text += self._join(join)
        return f" from {text}"

    def _join(self, join: exp.Join) -> str:
        side, kind = (str(join.args.get(name) or "").lower() for name in ("side", "kind"))
        if side not in {"", "left", "right", "full"} or kind not in {"", "inner", "outer", "cross"}:
            raise NotEmbedded(f"{side} {kind} JOIN".strip())
        before = len(self._scope.sources)
        text = self._names.source(join.this, self._scope)
        if using := join.args.get("using"):
            if before != 1 or self._scope.joined:
                raise NotEmbedded("USING after another join")
            return f" {side or 'inner'} join {text} on {self._using(using, side)}"
        if (on := join.args.get("on")) is None:
            if side:
                raise NotEmbedded("an outer JOIN without ON")
            return f" cross join {text}"
        return f" {side or 'inner'} join {text} on {self._expressions.condition(on)}"

    def _using(self, columns: Sequence[exp.Expr], side: str) -> str:
        left, right = self._scope.sources
        conditions = []
        for column in columns:
            one, other = _named(left.cells, column.name), _named(right.cells, column.name)
            if len(one) != 1 or len(other) != 1 or one[0].kind != other[0].kind or not is_groupable(one[0].kind):
                raise NotEmbedded(f"USING ({column.name})")
            conditions.append(f"{one[0].sql} = {other[0].sql}")
            chosen = other[0] if side == "right" else one[0]
            if side == "full":
                chosen = SparkCell(f"coalesce({one[0].sql}, {other[0].sql})", chosen.kind, chosen.name)
            self._scope.joined.append(chosen)
        names = tuple(column.name for column in columns)
        self._scope.sources[:] = [replace(left, joined=names), replace(right, joined=names)]
        return " and ".join(conditions)

    def _columns(self) -> list[SparkCell]:
        columns: list[SparkCell] = []
        for node in self._node.expressions:
            match node:
                case exp.Star():
                    columns += self._scope.star()
                case exp.Column() if isinstance(node.this, exp.Star):
                    columns += self._scope.star(node.text("table"))
                case exp.Alias():
                    columns.append(replace(self._expressions.cell(node.this), name=node.alias))
                case _:
                    columns.append(self._expressions.cell(node))
        if not columns:
            raise NotEmbedded("SELECT of no columns")
        return columns

    def _group(self, columns: Sequence[SparkCell]) -> str:
        clause = self._node.args.get("group")
        if clause is None:
            return ""
        return f" group by {', '.join(self._group_key(each, columns) for each in clause.expressions)}"

    def _group_key(self, node: exp.Expr, columns: Sequence[SparkCell]) -> str:
        if isinstance(node, exp.Literal):
            cell = _at_place(node, columns, "GROUP BY")
        else:
            cell = self._either(node, columns, "GROUP BY")
        if not is_groupable(cell.kind) or cell.number is not None or cell.text is not None:
            raise NotEmbedded(f"GROUP BY of {cell.kind}")
        return cell.sql

    def _either(self, node: exp.Expr, columns: Sequence[SparkCell], clause: str) -> SparkCell:
        """Return what a node means, inside or as the name of a column of the result."""
        named = _aliased(node, columns)
        if isinstance(node, exp.Column) and named is not None:
            inside = self._scope.find(node.name, node.text("table"))
            if inside and [cell.sql for cell in inside] != [named.sql]:
                raise NotEmbedded(f"{clause} {node.name}, which is ambiguous")
            return named
        return self._expressions.cell(node)

    def _having(self, columns: Sequence[SparkCell]) -> str:
        clause = self._node.args.get("having")
        if clause is None:
            return ""
        if self._node.args.get("group") is None:
            raise NotEmbedded("HAVING without GROUP BY")
        for column in clause.find_all(exp.Column):
            self._either(column, columns, "HAVING")
        scope = replace(self._scope, result=columns)
        expressions = SparkExpressions(scope)
        text = expressions.condition(clause.this)
        self._expressions.may_fail |= expressions.may_fail or scope.may_fail
        return f" having {text}"

    def _distinct(self, columns: Sequence[SparkCell]) -> str:
        clause = self._node.args.get("distinct")
        if clause is None:
            return ""
        if not all(is_groupable(cell.kind) for cell in columns):
            raise NotEmbedded("DISTINCT of such values")
        return "distinct "


_CLAUSES = (
    *("expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct", "with_"),
)
