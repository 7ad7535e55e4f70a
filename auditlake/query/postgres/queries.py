"""Queries of a checked tree in DuckDB's SQL: names, joins, grouping, order, set operations. See `expressions`.

The columns of a translated query are `o0`, `o1` …, those of a table's view `c0`, `c1` …, so that no name of the source
is ever a name of DuckDB's. Names are PostgreSQL's: without quotes they are in lower case, with quotes exact; in GROUP
BY a name is first a column, in ORDER BY first a column of the result. A name is looked up in the query, then in those
around it. Rows without ORDER BY come in any order.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from math import prod

from sqlglot import exp

from auditlake.query.dialect import NAME_ONE
from auditlake.query.postgres.aggregates import AGGREGATES
from auditlake.query.postgres.arithmetic import mixed_texts, unmixed
from auditlake.query.postgres.cells import Cell, Refused, construct
from auditlake.query.postgres.conversions import coerced, common, in_common, known, with_distinct_intervals
from auditlake.query.postgres.expressions import Expressions
from auditlake.query.postgres.identity import require_one_form
from auditlake.query.postgres.joins import Joins
from auditlake.query.postgres.order import inside, limit_text, of_result, place_in_result, sorted_rows
from auditlake.query.postgres.scopes import FromItem, Opened, Query, Scope, folded, nearest, renamed, settled
from auditlake.query.postgres.set_returning import is_unnested, series_of, unnested
from auditlake.query.postgres.types import TEXT
from auditlake.query.room import limited, require_plannable

_FEW_ROWS = 16
"""Of VALUES: as UNION ALL they may name columns of a table before them without a join; many take long to plan so."""
Catalog = Callable[[exp.Table], Opened | None]
"""Return what a table's name means; None if it is no table of the lake, but perhaps a query of WITH."""


def translate(tree: exp.Expr, catalog: Catalog, now: datetime) -> Query:
    """Translate a query; raises Refused, TooLong."""
    with limited():
        found = Names(catalog, now, {}, [0]).query(tree, None)
    require_plannable(found.sql)
    return replace(found, sql=with_distinct_intervals(found.sql))


class Names:
    """Translation of a query with the queries of WITH that it may name; the text of these is their label in DuckDB."""

    def __init__(self, catalog: Catalog, now: datetime, queries: Mapping[str, Query], counter: list[int]) -> None:
        self._catalog = catalog
        self.now = now
        self._queries = queries
        self._counter = counter

    def with_query(self, name: str, query: Query) -> "Names":
        """Return the same with one more query of WITH."""
        return Names(self._catalog, self.now, {**self._queries, name: query}, self._counter)

    def alias(self, letter: str = "t") -> str:
        self._counter[0] += 1
        return f"{letter}{self._counter[0]}"

    def query(self, node: exp.Expr, outer: Scope | None) -> Query:
        """Translate a query of any form."""
        names, prefix = self._with(node, outer)
        match node:
            case exp.Select():
                found = _Select(names, node, outer).translated()
            case exp.SetOperation():
                found = names.set_operation(node, outer)
            case exp.Subquery() if not node.alias:
                found = names.limited(names.query(node.this, outer), node)
            case exp.Values():
                found = names.limited(names.values(node, outer), node)
            case _:
                raise Refused(node, construct(node))
        return replace(found, sql=prefix + found.sql) if prefix else found

    def _with(self, node: exp.Expr, outer: Scope | None) -> "tuple[Names, str]":
        clause = node.args.get("with_")
        if clause is None:
            return self, ""
        names, texts, named = self, [], set[str]()
        for cte in clause.expressions:
            label = self.alias("q")
            name = folded(cte.args["alias"].this)
            if name in named:
                raise Refused(cte, f"two queries of WITH have the name {name}", wrong=True)
            named.add(name)
            made = names._recursive(cte, label, outer) if clause.recursive and _names_itself(cte, name) else None
            inner = made or names.query(cte.this, outer)
            columns = renamed(inner.columns, cte.args["alias"], cte)
            texts.append(f"{label} as ({inner.sql})")
            names = names.with_query(name, Query(label, settled(columns)))
        return names, f"with {'recursive ' if clause.recursive else ''}{', '.join(texts)} "

    def _recursive(self, cte: exp.Expr, label: str, outer: Scope | None) -> Query:
        body = cte.this
        if not isinstance(body, exp.Union) or any(body.args.get(each) for each in ("order", "limit", "offset")):
            raise Refused(cte, "a recursive query that is not a UNION")
        _check_recursion(body, folded(cte.args["alias"].this))
        first = self.query(body.this, outer)
        columns = settled(renamed(first.columns, cte.args["alias"], cte))
        name = folded(cte.args["alias"].this)
        rest = self.with_query(name, Query(label, columns)).query(body.expression, outer)
        if len(rest.columns) != len(columns):
            raise Refused(cte, "UNION of different numbers of columns", wrong=True)
        sides = []
        for side in (first, rest):
            texts = []
            for n, (cell, column) in enumerate(zip(side.columns, columns, strict=True)):
                cell = replace(cell, sql=f"o{n}")  # noqa: PLW2901 - the column of the side
                found = coerced(cell, column.type, cte) if cell.is_unknown else cell
                is_text = column.type == TEXT and found.type.name == "varchar"
                if (found.type != column.type and not is_text) or column.type.name == "varchar":
                    raise Refused(cte, f"a recursive column of {column.type.shown} and {found.type.shown}", "Cast it.")
                texts.append(f"{found.sql} as o{n}")
            sides.append(f"select {', '.join(texts)} from ({side.sql})")
        word = "union" if body.args.get("distinct") else "union all"
        if word == "union" and not all(each.type.is_groupable for each in columns):
            raise Refused(cte, "UNION of such values")
        return Query(f"{sides[0]} {word} {sides[1]}", columns)

    def set_operation(self, node: exp.Expr, outer: Scope | None) -> Query:
        """Translate UNION, INTERSECT and EXCEPT."""
        left, right = self.query(node.this, outer), self.query(node.expression, outer)
        if len(left.columns) != len(right.columns):
            raise Refused(node, f"{construct(node)} of different numbers of columns", wrong=True)
        columns = []
        for n, pair in enumerate(zip(left.columns, right.columns, strict=True)):
            kind = common(pair, node, construct(node))
            columns.append(Cell(f"o{n}", replace(kind, length=None) if kind.name != "bpchar" else kind, pair[0].name))
        every = bool(node.args.get("distinct")) is False
        sides = [f"select {_as_types(side, columns, node)} from ({side.sql})" for side in (left, right)]
        word = construct(node).lower() + (" all" if every else "")
        if not (every and isinstance(node, exp.Union)):
            for kind in (each.type for each in columns):
                if not kind.is_groupable and not (isinstance(node, exp.Union) and kind.may_have_mixed_texts):
                    raise Refused(node, f"{construct(node)} of {kind.shown}")
            if not all(each.type.is_groupable for each in columns):
                sql = _without_repetitions(f"({sides[0]}) union all ({sides[1]})", columns)
                return self.limited(Query(sql, tuple(columns)), node)
        return self.limited(Query(f"({sides[0]}) {word} ({sides[1]})", tuple(columns)), node)

    def limited(self, query: Query, node: exp.Expr) -> Query:
        """Add ORDER BY and LIMIT, whose keys are columns of the result."""
        order, limit = node.args.get("order"), limit_text(node)
        if order is None and not limit:
            return query
        keys = []
        for each in [] if order is None else order.expressions:
            cell = of_result(each.this, query.columns)
            if cell is None:
                raise Refused(each, "ORDER BY of an expression after a set operation", wrong=True)
            keys.append(Expressions(Scope(self, None)).ordered(each, cell))
        listed = ", ".join(f"o{n}" for n in range(len(query.columns)))
        return Query(sorted_rows(listed, f"({query.sql})", keys, node), query.columns)

    def values(self, node: exp.Expr, outer: Scope | None) -> Query:
        """Translate VALUES."""
        expressions = Expressions(Scope(self, outer), aggregates=False)
        rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in node.expressions]
        if len({len(row) for row in rows}) != 1:
            raise Refused(node, "VALUES of different lengths", wrong=True)
        cells = [[expressions.cell(each) for each in row] for row in rows]
        kinds = [common(column, node, "VALUES") for column in zip(*cells, strict=True)]
        columns = tuple(Cell(f"o{n}", kind, f"column{n + 1}") for n, kind in enumerate(kinds))
        texts = [[in_common(c, k, node) for c, k in zip(row, kinds, strict=True)] for row in cells]
        if len(texts) <= _FEW_ROWS:
            selects = (", ".join(f"{each} as o{n}" for n, each in enumerate(row)) for row in texts)
            return Query(" union all ".join(f"select {each}" for each in selects), columns)
        listed = ", ".join(f"({', '.join(row)})" for row in texts)
        names = ", ".join(column.sql for column in columns)
        return Query(f"select * from (values {listed}) v({names})", columns)

    def source(self, node: exp.Expr, scope: Scope) -> str:
        """Add a table of a FROM clause to its scope, and return its text."""
        label = self.alias()
        text, item = self._opened(node, scope)
        columns: Sequence[Cell] = item.cells
        alias = node.args.get("alias")
        if isinstance(alias, exp.TableAlias) and alias.this is not None:
            item = replace(item, given=folded(alias.this), schema=None)
        if isinstance(alias, exp.TableAlias):
            columns = renamed(columns, alias, node)
        cells = tuple(replace(cell, sql=f"{label}.{cell.sql}") for cell in columns)
        key = frozenset(f"{label}.{each}" for each in item.key)
        scope.add(replace(item, cells=cells, key=key), node)
        return f"{text} as {label}"

    def _opened(self, node: exp.Expr, scope: Scope) -> tuple[str, FromItem]:
        """Return the text of a table, and the table by its own name, its columns without an alias of DuckDB."""
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier):
                return self._table(node)
            case exp.Table():
                return self._function(node.this, scope, node)
            case exp.Subquery():
                inner = self.query(node.this, scope.outer)
                return f"({inner.sql})", FromItem("", None, settled(inner.columns))
            case exp.Lateral():
                return self._lateral(node, scope)
            case exp.Values():
                inner = self.values(node, scope.outer)
                return f"({inner.sql})", FromItem("", None, inner.columns)
            case exp.Unnest():
                return self._function(node, scope, node)
            case _:
                raise Refused(node, f"{construct(node)} in FROM")

    def _lateral(self, node: exp.Expr, scope: Scope) -> tuple[str, FromItem]:
        if not isinstance(node.this, exp.Subquery):
            return self._function(node.this, scope, node)
        inner = self.query(node.this.this, scope)
        return f"lateral ({inner.sql})", FromItem("", None, settled(inner.columns))

    def _table(self, node: exp.Expr) -> tuple[str, FromItem]:
        name = folded(node.this)
        opened = self._catalog(node)  # type: ignore[arg-type]  # the caller has checked it
        if opened is not None:
            return f'"{opened.view}"', FromItem(name, opened.name.schema, opened.columns, opened.key)
        if node.args.get("only"):
            raise Refused(node, f"ONLY {name}, which is no table")
        query = self._queries.get(name)
        if query is None:
            raise Refused(node, f"there is no table {name}", nearest(name, list(self._queries)), wrong=True)
        return query.sql, FromItem(name, None, query.columns)

    def _function(self, node: exp.Expr, scope: Scope, place: exp.Expr) -> tuple[str, FromItem]:
        """Translate a function in FROM, which may name the tables before it."""
        inner = Scope(self, scope)
        expressions = Expressions(inner, aggregates=False)
        alias = place.args.get("alias")
        given = folded(alias.this) if isinstance(alias, exp.TableAlias) and alias.this is not None else None
        offset = node.args.get("offset") or place.args.get("ordinality")
        if isinstance(node, exp.ExplodingGenerateSeries | exp.GenerateSeries) and not offset:
            series = series_of(expressions, node)
            cell = Cell("o0", series.type, given or "generate_series")
            return f"lateral ({series.rows})", FromItem(cell.name, None, (cell,))
        if not is_unnested(node):
            raise Refused(node, f"{construct(node)} in FROM")
        cells = unnested(expressions, node, ordinality=bool(offset))
        text = ", ".join(f"{cell.sql} as o{n}" for n, cell in enumerate(cells))
        columns = [replace(cell, sql=f"o{n}") for n, cell in enumerate(cells)]
        if isinstance(offset, exp.Identifier):  # sqlglot takes it from the alias
            given_names = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
            if not given_names or len(given_names) >= len(columns):
                raise Refused(node, "an alias with other columns than there are", wrong=True)
            columns[-1] = columns[-1].named(folded(offset))
        if given and len(cells) - bool(offset) == 1 and columns[0].name != "value":
            columns[0] = columns[0].named(given)
        name = node.name.lower() if isinstance(node, exp.Anonymous) else "unnest"
        return f"lateral (select {text})", FromItem(name, None, tuple(columns), is_value=len(cells) == 1)


_OF_FROM = (exp.From, exp.Join, exp.Lateral, exp.Subquery, exp.SetOperation, exp.CTE)
"""Parents of a query that is no value."""
_OF_AGGREGATES = (*(each for each in AGGREGATES if isinstance(each, type)), exp.WithinGroup, exp.Anonymous)


def _has_aggregates(select: exp.Select) -> bool:
    """Return whether a query has an aggregate that is not in one of its subqueries."""
    every: Iterator[exp.Expr] = select.find_all(*_OF_AGGREGATES)
    found = (each for each in every if each.find_ancestor(exp.Select) is select)
    return any(not isinstance(each, exp.Anonymous) or each.name.lower() in AGGREGATES for each in found)


def _names_itself(cte: exp.Expr, name: str) -> bool:
    return any(
        isinstance(each.this, exp.Identifier) and len(each.parts) == 1 and folded(each.this) == name
        for each in cte.this.find_all(exp.Table)
    )


def _check_recursion(body: exp.Expr, name: str) -> None:
    """Check that a recursive query names itself once, and where PostgreSQL allows it; raises Refused.

    DuckDB computes an aggregate beside it for ever.
    """
    named = [
        each
        for each in body.find_all(exp.Table)
        if isinstance(each.this, exp.Identifier) and len(each.parts) == 1 and folded(each.this) == name
    ]
    if len(named) > 1:
        raise Refused(named[1], f"the recursive query {name} more than once", wrong=True)
    if any(each is named[0] for each in body.this.find_all(exp.Table)):
        raise Refused(named[0], f"the recursive query {name} in its first part", wrong=True)
    within = named[0].parent
    while within is not None and within is not body:
        if isinstance(within, exp.Except):
            raise Refused(named[0], f"the recursive query {name} in EXCEPT")
        if isinstance(within, exp.Select) and any(join.args.get("side") for join in within.args.get("joins") or []):
            raise Refused(named[0], f"the recursive query {name} in an outer join")
        if isinstance(within, exp.Select) and _has_aggregates(within):
            raise Refused(named[0], f"the recursive query {name} beside an aggregate")
        if isinstance(within, exp.Query) and not isinstance(within.parent, _OF_FROM):
            raise Refused(named[0], f"the recursive query {name} in a subquery", wrong=True)
        within = within.parent


def _as_types(side: Query, columns: Sequence[Cell], node: exp.Expr) -> str:
    pairs = zip(side.columns, columns, strict=True)
    return ", ".join(
        f"{in_common(_settled_literal(cell, n), column.type, node)} as o{n}" for n, (cell, column) in enumerate(pairs)
    )


def _settled_literal(cell: Cell, n: int) -> Cell:
    """Return a column of one side of a set operation; a literal is converted as itself."""
    return cell if cell.is_unknown and (cell.null or cell.literal is not None) else replace(cell, sql=f"o{n}")


def _without_repetitions(sql: str, columns: Sequence[Cell]) -> str:
    """Return a query's rows without repetitions; it fails if equal numbers among them have different texts."""
    keys = [replace(each, sql=f"o{n}", literal=None) for n, each in enumerate(columns)]
    listed = ", ".join(each.sql for each in keys)
    groups = f"select {listed}, {mixed_texts(keys)} as mixed from ({sql}) group by {listed}"
    return f"select {listed} from {unmixed(groups)}"


_CLAUSES = (
    *("expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct", "with_"),
    "windows",
)


class _Select:
    """One SELECT."""

    def __init__(self, names: Names, node: exp.Select, outer: Scope | None) -> None:
        self._node = node
        self._scope = Scope(names, outer)
        self._rows = Expressions(self._scope, aggregates=False)
        self._expressions = Expressions(self._scope)
        self._keys_of_groups: list[Cell] = []
        self._shared: list[str] = []
        """The texts of expressions that must be one to PostgreSQL wherever they are written."""
        self._aggregated: set[str] = set()
        """Columns with an aggregate or a window function."""
        self._lists: list[str] = []
        """The lists whose elements are rows."""
        self._mixed: str | None = None
        """The condition that equal keys of the groups have different texts; None if they cannot."""

    def translated(self) -> Query:
        node = self._node
        from_ = self._from()
        for window in node.args.get("windows") or []:
            if folded(window.this) in self._scope.windows:
                raise Refused(window, f"the window {window.this.name} twice", wrong=True)
            if window.args.get("alias") is not None and self._scope.window(window.args["alias"]) is None:
                raise Refused(window, f"the window {window.args['alias'].name} does not exist before", wrong=True)
            self._scope.windows[folded(window.this)] = window
        where = f" where {self._rows.condition(node.args['where'].this)}" if node.args.get("where") else ""
        columns = self._columns()
        group = self._group(columns)
        of_groups = Expressions(self._scope, windows=False)
        having = f" having {of_groups.condition(node.args['having'].this)}" if node.args.get("having") else ""
        found = self._ordered(columns, f"{from_}{where}{group}{having}")
        self._check_windows()
        require_one_form(self._shared, [*self._expressions.written, *of_groups.written], self._rows.cell)
        return found

    def _check_windows(self) -> None:
        """Check that each window is used: PostgreSQL translates also one that is not, and may refuse it."""
        for name, window in self._scope.windows.items():
            if name not in self._scope.used_windows:
                raise Refused(window, f"the window {window.this.name}, which is not used,", "Leave it out.")

    def _ordered(self, columns: list[Cell], rest: str) -> Query:
        """Compute the columns and the keys of the order, then sort."""
        node = self._node
        shown = [f"{'cast(null as varchar)' if c.null else c.sql} as o{n}" for n, c in enumerate(columns)]
        result = tuple(replace(cell, sql=cell.sql if cell.is_unknown else f"o{n}") for n, cell in enumerate(columns))
        listed = ", ".join(f"o{n}" for n in range(len(columns)))
        distinct, on = self._distinct(columns)
        keys, texts = self._keys(columns, distinct=distinct and not on)
        limit = limit_text(node)
        if on:
            shown += [f"{text} as d{n}" for n, text in enumerate(on)]
            self._check_distinct_on(on)
        if distinct and not on and not all(c.type.is_groupable for c in columns if not c.is_unknown):
            inner = _without_repetitions(f"select {', '.join(shown)}{rest}", result)
            return Query(sorted_rows(listed, f"({inner})", texts, node), result)
        if self._mixed is not None:
            shown.append(f"{self._mixed} as mixed")
        elif not texts and not limit and not on:
            return Query(f"select {'distinct ' if distinct else ''}{', '.join(shown)}{rest}", result)
        inner = ", ".join([*shown, *keys])
        sorted_ = f" order by {', '.join(texts)}" if texts else ""
        if on:
            parts = ", ".join(f"d{n}" for n in range(len(on)))
            one = f"select *, row_number() over (partition by {parts}{sorted_}) as first from (select {inner}{rest})"
            return Query(sorted_rows(listed, f"({one}) where first = 1", texts, node), result)
        word = "distinct " if distinct else ""
        rows = f"select {word}{inner}{rest}"
        from_ = f"({rows})" if self._mixed is None else unmixed(rows)
        return Query(sorted_rows(listed, from_, texts, node), result)

    def _keys(self, columns: Sequence[Cell], *, distinct: bool) -> tuple[list[str], list[str]]:
        """Return the columns that only the order needs, and the order."""
        order = self._node.args.get("order")
        added: list[str] = []
        texts: list[str] = []
        for each in [] if order is None else order.expressions:
            cell = of_result(each.this, columns)
            if cell is None:
                found = self._expressions.cell(each.this)
                place = next((n for n, column in enumerate(columns) if column.sql == found.sql), None)
                if place is None and distinct:
                    raise Refused(each, "ORDER BY of what SELECT DISTINCT does not show", wrong=True)
                if place is None:
                    added.append(f"{found.sql} as s{len(added)}")
                    cell = replace(found, sql=f"s{len(added) - 1}")
                else:
                    cell = replace(found, sql=f"o{place}")
                    self._shared += [found.sql] if distinct else []
            texts.append(self._expressions.ordered(each, cell))
        if texts and self._lists and not distinct:  # PostgreSQL makes rows of a list after it has sorted
            lengths = ", ".join(f"len({each})" for each in self._lists)
            added.append(f"unnest(generate_series(1, greatest({lengths}, 0))) as s{len(added)}")
            texts.append(f"s{len(added) - 1}")
        return added, texts

    def _from(self) -> str:
        clause = self._node.args.get("from_")
        if clause is None:
            return ""
        return f" from {Joins(self._scope).text(clause.this, self._node.args.get('joins') or [])}"

    def _columns(self) -> list[Cell]:
        columns = list(self._listed())
        if not columns:
            raise Refused(self._node, "SELECT of no columns", NAME_ONE)
        return columns

    def _listed(self) -> Iterator[Cell]:
        for node in self._node.expressions:
            match node:
                case exp.Star():
                    yield from self._scope.star(node)
                case exp.Column() if isinstance(node.this, exp.Star):
                    yield from self._scope.star(node)
                case exp.Alias():
                    yield self._shown(node.this).named(folded(node.args["alias"]))
                case _:
                    yield self._shown(node)

    def _shown(self, node: exp.Expr) -> Cell:
        """Translate a column of the result, which may be a set of rows."""
        if not is_unnested(node) and not isinstance(node, exp.ExplodingGenerateSeries):
            before = self._expressions.aggregated
            cell = self._expressions.cell(node)
            self._aggregated |= {cell.sql} if self._expressions.aggregated > before else set()
            return cell
        if self._node.args.get("group") or self._node.find(exp.AggFunc, exp.Window):
            raise Refused(node, f"{construct(node)} in SELECT beside an aggregate", "Write it in FROM.")
        if is_unnested(node):
            cells = unnested(self._rows, node)
            if len(cells) > 1:
                raise Refused(
                    node, f"{construct(node)} in SELECT", "Write it in FROM.", wrong=isinstance(node, exp.Explode)
                )
            self._lists.append(cells[0].sql.removeprefix("unnest"))
            return cells[0].named(node.name.lower() if isinstance(node, exp.Anonymous) else "unnest")
        if node.find(exp.Column) is not None:
            raise Refused(node, "generate_series of columns in SELECT", "Write it in FROM.")
        series = series_of(self._rows, node)
        self._lists.append(series.listed)
        return Cell(series.unnested, series.type, "generate_series")

    def _group(self, columns: Sequence[Cell]) -> str:
        clause = self._node.args.get("group")
        if clause is None:
            return ""
        if clause.args.get("all") is not None:
            raise Refused(clause, "GROUP BY DISTINCT")
        items = [self._group_item(each, columns) for each in clause.expressions]
        if self._keys_of_groups and not all(each.type.is_groupable for each in self._keys_of_groups):
            others = [self._node.args.get(each) for each in ("having", "distinct")]
            if any(type(each) in {*_GROUPINGS, exp.Tuple} for each in clause.expressions) or any(others):
                raise Refused(clause, "GROUP BY of numeric or floats beside HAVING, DISTINCT or ROLLUP", _GROUP_HINT)
            self._mixed = mixed_texts(self._keys_of_groups)
        if any(type(each) in _GROUPINGS for each in clause.expressions):
            self._check_sets(clause)
        if prod(map(_sets, clause.expressions)) > _MOST_SETS:
            raise Refused(clause, f"too many grouping sets present (maximum {_MOST_SETS})", wrong=True)
        shown = [] if self._node.find(exp.Grouping) else self._determined(items)  # they are no keys to GROUPING
        return f" group by {', '.join([*items, *shown])}"

    def _check_sets(self, clause: exp.Expr) -> None:
        """Check the keys of grouping sets: DuckDB shows some where they are not grouped by, PostgreSQL other ones."""
        for key in self._keys_of_groups:
            code = _LITERALS.sub("", key.sql)
            if "select " in code:  # DuckDB takes it for a constant of the result
                raise Refused(clause, "a subquery as a key of grouping sets", "Compute it in a subquery of FROM.")
            if not _COLUMN.search(code):  # for DuckDB all of the same text are the key
                raise Refused(clause, "a constant as a key of grouping sets", "Compute it in a subquery of FROM.")

    def _determined(self, keys: Sequence[str]) -> list[str]:
        """Return the columns shown of tables whose keys are grouped by: they have one value in each group."""
        sources = [each for each in self._scope.sources if each.key and each.key <= set(keys)]
        used = self._used() - {each.sql for each in self._keys_of_groups} if sources else set()
        return [cell.sql for source in sources for cell in source.cells if cell.sql in used]

    def _used(self) -> set[str]:
        """Return the columns that the result, HAVING and ORDER BY name: a value of another one must not be read."""
        node = self._node
        parts = [*node.expressions, *filter(None, (node.args.get("having"), node.args.get("order")))]
        stars = [each for each in node.expressions if isinstance(each, exp.Star | exp.Column) and each.is_star]
        named = [each for part in parts for each in part.find_all(exp.Column) if not isinstance(each.this, exp.Star)]
        cells = [*(self._scope.star(each) for each in stars), *map(self._scope.find, named)]
        return {cell.sql for each in cells for cell in each}

    def _group_item(self, node: exp.Expr, columns: Sequence[Cell]) -> str:
        """Translate a key, a list of keys, ROLLUP, CUBE or GROUPING SETS."""
        if isinstance(node, exp.Tuple):
            return f"({', '.join(self._group_key(each, columns) for each in node.expressions)})"
        if (word := _GROUPINGS.get(type(node))) is not None:
            return f"{word} ({', '.join(self._group_item(each, columns) for each in node.expressions)})"
        return self._group_key(node, columns)

    def _group_key(self, node: exp.Expr, columns: Sequence[Cell]) -> str:
        cell, node = None, node.unnest()
        at = place_in_result(node, columns)
        if at is None and isinstance(node, exp.Column) and not node.args.get("table") and not self._scope.find(node):
            named = [n for n, each in enumerate(columns) if each.name == folded(node.this)]
            at = named[0] if len({columns[n].sql for n in named}) == 1 else None
        if at is not None:
            cell = columns[at]
            if cell.sql in self._aggregated:
                raise Refused(node, "an aggregate or a window function in GROUP BY", wrong=True)
        if cell is None:
            cell = self._rows.cell(node)
            self._expressions.written.append((cell.sql, node))
        cell = known(cell, node)
        self._shared.append(cell.sql)
        if not cell.type.is_groupable and not cell.type.may_have_mixed_texts:
            raise Refused(node, f"GROUP BY of {cell.type.shown}", _GROUP_HINT)
        self._keys_of_groups.append(cell)
        return cell.sql

    def _distinct(self, columns: Sequence[Cell]) -> tuple[bool, list[str]]:
        clause = self._node.args.get("distinct")
        if clause is None:
            return False, []
        if (on := clause.args.get("on")) is not None:
            return True, self._distinct_on(on, columns)
        for cell in columns:
            if not cell.is_unknown and not cell.type.is_groupable and not cell.type.may_have_mixed_texts:
                raise Refused(self._node, f"DISTINCT of {cell.type.shown}", _GROUP_HINT)
        return True, []

    def _distinct_on(self, on: exp.Expr, columns: Sequence[Cell]) -> list[str]:
        nodes = on.expressions if isinstance(on, exp.Tuple) else [on.this if isinstance(on, exp.Paren) else on]
        if self._lists:  # PostgreSQL makes their rows afterwards
            raise Refused(self._node, "DISTINCT ON beside a set of rows in SELECT", "Write it in FROM.")
        cells = [inside(each, columns) or self._expressions.cell(each) for each in nodes]
        self._shared += [cell.sql for cell in cells]
        for each, cell in zip(nodes, cells, strict=True):
            if not cell.type.is_groupable:
                raise Refused(each, f"DISTINCT ON of {cell.type.shown}", _GROUP_HINT)
        return [cell.sql for cell in cells]

    def _check_distinct_on(self, on: Sequence[str]) -> None:
        """Check that ORDER BY begins with the expressions of DISTINCT ON, as PostgreSQL requires."""
        order = self._node.args.get("order")
        if order is None:
            raise Refused(self._node, "DISTINCT ON without ORDER BY", "Which row is shown would be chance.")
        columns = self._columns()
        keys = [(inside(each.this, columns) or self._expressions.cell(each.this)).sql for each in order.expressions]
        first = list(takewhile(on.__contains__, keys))
        if set(first) == set(on):
            return
        if len(first) < len(keys):
            raise Refused(self._node, "DISTINCT ON expressions must match the first of ORDER BY", wrong=True)
        raise Refused(self._node, "DISTINCT ON of more than ORDER BY has", "Which row is shown would be chance.")


def _sets(node: exp.Expr) -> int:
    """Return the number of grouping sets of an item of GROUP BY."""
    inner = [_sets(each) for each in node.expressions] if type(node) in _GROUPINGS else []
    if isinstance(node, exp.Cube) and len(inner) > _MOST_OF_CUBE:
        raise Refused(node, f"CUBE is limited to {_MOST_OF_CUBE} elements", wrong=True)
    match node:
        case exp.Cube():
            return 1 << len(inner)
        case exp.Rollup():
            return len(inner) + 1
        case exp.GroupingSets():
            return sum(inner)
    return 1


_MOST_SETS = 4096
_MOST_OF_CUBE = 12
_COLUMN = re.compile(r"\b[a-z]\d+\.")
_LITERALS = re.compile(r"'(?:[^']|'')*'")
_GROUPINGS: dict[type[exp.Expr], str] = {exp.Rollup: "rollup", exp.Cube: "cube", exp.GroupingSets: "grouping sets"}
_GROUP_HINT = "Equal values of this type may have different texts: cast it, to numeric(12,2) or text."
