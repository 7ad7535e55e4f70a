"""Expressions of Spark SQL in DuckDB's SQL: an allow-list of nodes, functions, types and casts that mean the same.

`SparkExpressions.cell` returns the DuckDB text of an expression and its type in Spark, which is computed here by
Spark's rules; every operand is cast to the type that Spark would give it, so DuckDB's own rules never apply. Anything
else raises `NotEmbedded` with the name of the construct, and the statement goes to Spark.

Differences between the engines, and how each is avoided:

- integer overflow, division by zero, a value that is too large for its type: an error in Spark. DuckDB raises too (it
  returns NULL for a division by zero, hence `error`), and Spark then runs the statement and names the error.
- decimals: Spark's precision and scale. Sums and remainders that need an adjustment (38 digits) are not accepted; a
  quotient, and a product that needs one, is computed in whole numbers, and too large for them it is an error here.
- dates: a literal of days, months or years may be added and subtracted; beside a timestamp also one of hours, minutes
  or seconds.
- sums of large numbers: an error here if some order of the rows could overflow, as it may in Spark.
- sums and averages of floats depend on the order of rows; grouped floats may show 0 or -0. Neither is accepted. DuckDB
  joins 0 and -0 apart, and shows 0 for -0 in a column that it sorts by, so floats are compared and sorted plus 0.
- case conversion of letters that are not ASCII: an error here, so Spark answers.
- LIKE: only patterns without an escape; strings compare by bytes in both engines.
- text to number, number to date and other casts between kinds: not accepted. A literal beside a date or a timestamp is
  accepted in its full ISO form; the zone is UTC in both engines.

Authority: spark.apache.org/docs/4.2.0/sql-ref-ansi-compliance.html; duckdb.org/docs/stable/sql
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp

from auditlake.delta.sql import duckdb_type
from auditlake.query.dialect import COMPARISONS, SIGNS
from auditlake.query.embedded.arithmetic import average_of, divided, is_adjusted, product, result_type, sum_of
from auditlake.query.embedded.cells import NotEmbedded, SparkCell, as_kind, construct
from auditlake.query.embedded.conversions import (
    common_of,
    integer,
    is_exact_cast,
    later,
    literals_as,
    moment_of,
    type_named,
)
from auditlake.query.embedded.spark_types import (
    FLOATING,
    INTEGRAL,
    VOID,
    common_kind,
    compared_kind,
    decimal_kind,
    is_comparable,
    is_decimal,
    is_groupable,
    precision_and_scale,
)
from auditlake.query.parts import conjuncts
from auditlake.sql_names import standard_literal
from auditlake.values.types import MOST_DIGITS

if TYPE_CHECKING:
    from auditlake.query.embedded.queries import SparkScope

_DECIMAL_LITERAL = re.compile(r"(\d*)\.(\d+)")
_DATE_LITERAL = re.compile(r"date '(\d{4}-\d\d-\d\d)'")
_COUNT = re.compile(r"-?\d{1,4}")
_MOVED = {"DAY": "to_days", "MONTH": "to_months", "YEAR": "to_years"}
_MOVED_TIMES = {**_MOVED, "HOUR": "to_hours", "MINUTE": "to_minutes", "SECOND": "to_seconds"}
_SECONDS = {"to_days": 86_400, "to_hours": 3_600, "to_minutes": 60, "to_seconds": 1}
_CONSTANT = re.compile(r"\b(to_(?:years|months|days|hours|minutes|seconds))\((-?\d+)\)")
_DAYS_OF_MONTH = 30
_TRUNCATED = frozenset({"YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"})
_PLAIN_DECIMAL_SCALE = 6
"""Up to this scale Spark prints every decimal without an exponent."""


def require_distinct_intervals(sql: str) -> None:
    """Raise NotEmbedded if a text has intervals such as 1 month and 30 days: DuckDB computes with one for both."""
    constants = set()
    for unit, count in _CONSTANT.findall(sql):
        months = int(count) * {"to_years": 12, "to_months": 1}.get(unit, 0)
        constants.add((months, int(count) * _SECONDS.get(unit, 0)))
    lengths = {months * _DAYS_OF_MONTH * _SECONDS["to_days"] + seconds for months, seconds in constants}
    if len(lengths) < len(constants):
        raise NotEmbedded("months beside as many days")


def _plain_zero(sql: str, kind: str) -> str:
    """Return 0 for -0: they are equal, but DuckDB joins them apart, and a column that it sorts by loses the sign."""
    return f"({sql} + cast(0 as {duckdb_type(kind)}))" if kind in FLOATING else sql


_AGGREGATES = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)
_ASCII = "case when strlen({{0}}) <> length({{0}}) then error('not ASCII') else {function}({{0}}) end"
_OF_TEXT: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Lower: (_ASCII.format(function="lower"), "string"),
    exp.Upper: (_ASCII.format(function="upper"), "string"),
    exp.Length: ("cast(length({0}) as integer)", "int"),
    exp.Trim: ("trim({0}, ' ')", "string"),
}
"""Functions of one text: DuckDB's text and the type."""
_RANKS = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}


class SparkExpressions:
    """Translation of the expressions of one SELECT; `may_fail` is set by one that can fail on a row."""

    def __init__(self, scope: "SparkScope") -> None:
        self._scope = scope
        self.may_fail = False

    def cell(self, node: exp.Expr) -> SparkCell:
        """Translate an expression; raises NotEmbedded."""
        translate = self._NODES.get(type(node))
        if translate is None:
            raise NotEmbedded(construct(node))
        return translate(self, node)

    def condition(self, node: exp.Expr) -> str:
        """Translate a condition; raises NotEmbedded."""
        cell = self.cell(node)
        if cell.kind != "boolean":  # Spark refuses a bare NULL
            raise NotEmbedded(f"a condition of type {cell.kind}")
        return cell.sql

    def where(self, node: exp.Expr) -> str:
        """Translate the condition of a WHERE, in which a conjunct may be [NOT] IN a query, or [NOT] EXISTS.

        Elsewhere Spark shows false for an unknown result of IN (query), and DuckDB NULL. Raises NotEmbedded.
        """
        outside, found = self.may_fail, list[tuple[str, bool]]()
        for each in conjuncts(node):
            self.may_fail = False
            found.append((self._conjunct(each), self.may_fail))
        self.may_fail = outside or any(fails for _, fails in found)
        condition = found[-1][0]
        for text, fails in reversed(found[:-1]):
            # Spark goes from left to right. DuckDB may go first to one that excludes the row on which another fails.
            condition = f"case when {text} then {condition} else false end" if fails else f"{text} and {condition}"
        return condition

    def _conjunct(self, node: exp.Expr) -> str:
        inner = node.this if isinstance(node, exp.Not) else node
        word = "not " if inner is not node else ""
        if isinstance(inner, exp.Exists):
            return f"{word}exists ({self._scope.exists(inner.this)})"
        if isinstance(inner, exp.In) and inner.args.get("query") is not None:
            return f"{word}{self._in_query(inner)}"
        return f"({self.condition(node)})"

    def _in_query(self, node: exp.In) -> str:
        _plain_operands(node)
        value, query = self.cell(node.this), node.args["query"]
        found = self._scope.values_of(query.this if isinstance(query, exp.Subquery) else query)
        if value.kind != found.kind or not is_groupable(value.kind):
            raise NotEmbedded(f"IN of {value.kind} and {found.kind}")
        return f"({value.sql} in {found.sql})"

    def _cells(self, nodes: Iterable[exp.Expr]) -> list[SparkCell]:
        return [self.cell(node) for node in nodes]

    def _column(self, node: exp.Column) -> SparkCell:
        return self._scope.column(node)

    def _paren(self, node: exp.Paren) -> SparkCell:
        inner = self.cell(node.this)
        return replace(inner, sql=f"({inner.sql})")

    def _literal(self, node: exp.Literal) -> SparkCell:
        text = str(node.this)
        if node.is_string and "\0" in text:
            raise NotEmbedded("NUL in a string")
        if node.is_string:
            return SparkCell(standard_literal(text), "string", text, text=text)
        if text.isdecimal():
            return integer(int(text))
        if match := _DECIMAL_LITERAL.fullmatch(text):
            whole, scale = match[1].lstrip("0"), len(match[2])
            digits = len((whole + match[2]).lstrip("0")) if not whole else len(whole) + scale
            kind = decimal_kind(max(digits, scale), scale)
            if kind is not None:
                return SparkCell(f"cast({standard_literal(text)} as {kind})", kind)
        raise NotEmbedded(f"the literal {text}")

    def _null(self, _: exp.Null) -> SparkCell:
        return SparkCell("null", VOID, "NULL")

    def _boolean(self, node: exp.Boolean) -> SparkCell:
        return SparkCell("true" if node.this else "false", "boolean", "true" if node.this else "false")

    def _negative(self, node: exp.Neg) -> SparkCell:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            if str(node.this.this).isdecimal():
                return integer(-int(node.this.this))
            inner = self.cell(node.this)
            return replace(inner, sql=f"(- {inner.sql})", name=None)
        inner = self.cell(node.this)
        if inner.kind not in (*INTEGRAL, "double") and not is_decimal(inner.kind):
            raise NotEmbedded(f"- of {inner.kind}")
        self.may_fail = True
        return SparkCell(f"(- {as_kind(inner, inner.kind)})", inner.kind, _call("(- {})", inner))

    def _arithmetic(self, node: exp.Binary) -> SparkCell:
        sign = SIGNS[type(node)]
        if sign in "+-" and isinstance(node.expression, exp.Interval):
            return self._moved(self.cell(node.this), node.expression, 1 if sign == "+" else -1)
        left, right = self.cell(node.this), self.cell(node.expression)
        self.may_fail = True
        name = None if left.name is None or right.name is None else f"({left.name} {sign} {right.name})"
        if sign == "%":  # mod(a, b) is the same node, with another name
            name = None
        if (
            sign == "/"
            and (is_decimal(left.kind) or is_decimal(right.kind))
            and "double" not in {left.kind, right.kind}
        ):
            return replace(divided(left, right), name=name)
        if sign == "*" and is_adjusted(left, right):
            return replace(product(left, right), name=name)
        kind, operands = result_type(sign, left, right)
        texts = [as_kind(each, to) for each, to in zip((left, right), operands, strict=True)]
        if sign in "/%":
            texts[1] = f"case when {texts[1]} = 0 then error('division by zero') else {texts[1]} end"
        return SparkCell(f"cast(({texts[0]} {sign} {texts[1]}) as {duckdb_type(kind)})", kind, name)

    def _moved(self, cell: SparkCell, interval: exp.Expr, sign: int) -> SparkCell:
        """Add to a date or a timestamp; a day that its month lacks becomes the last one, as in PostgreSQL."""
        unit, count = interval.text("unit").upper().removesuffix("S"), interval.this
        known = {"date": _MOVED, "timestamp": _MOVED_TIMES}.get(cell.kind, {})
        if unit not in known or not isinstance(count, exp.Literal):
            raise NotEmbedded(f"INTERVAL of {unit or 'several units'} beside {cell.kind}")
        if not count.is_string or not _COUNT.fullmatch(str(count.this)):
            raise NotEmbedded(f"INTERVAL {count.this}")
        by = sign * int(str(count.this))
        if (literal := _DATE_LITERAL.fullmatch(cell.sql)) is not None:
            return SparkCell(f"date '{later(date.fromisoformat(literal[1]), unit, by)}'", "date")
        self.may_fail = True
        naive = f"cast((cast({cell.sql} as timestamp) + {known[unit]}({by})) as {cell.kind})"
        moved = naive if cell.kind == "date" else f"cast({naive} as timestamptz)"
        return SparkCell(
            f"case when year({naive}) not between 1 and 9999 then error('year') else {moved} end", cell.kind
        )

    def _comparison(self, node: exp.Binary) -> SparkCell:
        _plain_operands(node)
        left, right = self._alike(self.cell(node.this), self.cell(node.expression))
        return SparkCell(f"({left} {COMPARISONS[type(node)]} {right})", "boolean")

    def _alike(self, *cells: SparkCell) -> list[str]:
        """Return the texts of operands that are compared, in their common type."""
        alike = literals_as(cells)
        kind = compared_kind(alike[0].kind, alike[1].kind) if len(alike) == 2 else common_of(alike)  # noqa: PLR2004
        if kind is None:
            raise NotEmbedded(f"{alike[0].kind} beside {alike[1].kind}")
        if not is_comparable(kind):
            raise NotEmbedded(f"a comparison of {kind}")
        self.may_fail |= is_decimal(kind) and common_kind(alike[0].kind, kind) != kind
        return [_plain_zero(as_kind(cell, kind), kind) for cell in alike]

    def _and_or(self, node: exp.Connector) -> SparkCell:
        word = "and" if isinstance(node, exp.And) else "or"
        operands = self._cells((node.this, node.expression))
        if any(cell.kind not in {"boolean", VOID} for cell in operands):
            raise NotEmbedded(f"{word.upper()} of {operands[0].kind} and {operands[1].kind}")
        return SparkCell(f"({f' {word} '.join(as_kind(cell, 'boolean') for cell in operands)})", "boolean")

    def _not(self, node: exp.Not) -> SparkCell:
        return SparkCell(f"(not {self.condition(node.this)})", "boolean")

    def _is(self, node: exp.Is) -> SparkCell:
        _plain_operands(node)
        inner = self.cell(node.this)
        match node.expression:
            case exp.Null():
                return SparkCell(f"({inner.sql} is null)", "boolean")
            case exp.Boolean() if inner.kind == "boolean":
                return SparkCell(f"({inner.sql} is {'true' if node.expression.this else 'false'})", "boolean")
            case _:
                raise NotEmbedded("IS of a value")

    def _between(self, node: exp.Between) -> SparkCell:
        _plain_operands(node)
        value, low, high = self._cells((node.this, node.args["low"], node.args["high"]))
        above, below = self._alike(value, low), self._alike(value, high)
        return SparkCell(f"({above[0]} >= {above[1]} and {below[0]} <= {below[1]})", "boolean")

    def _in(self, node: exp.In) -> SparkCell:
        if node.args.get("query") is not None:
            raise NotEmbedded("IN of a query in an expression")
        _plain_operands(node)
        value = self.cell(node.this)
        texts = self._alike(value, *self._cells(node.expressions))
        return SparkCell(f"({texts[0]} in ({', '.join(texts[1:])}))", "boolean")

    def _scalar(self, node: exp.Subquery) -> SparkCell:
        self.may_fail = True
        found = replace(self._scope.value_of(node.this).computed, name=None)
        if found.kind in {"array<float>", "array<double>"}:
            raise NotEmbedded(f"a subquery of {found.kind}, in which DuckDB makes 0 of -0")
        return found

    def _like(self, node: exp.Like) -> SparkCell:
        _plain_operands(node)
        value, pattern = self.cell(node.this), self.cell(node.expression)
        if value.kind != "string" or pattern.text is None or "\\" in pattern.text:
            raise NotEmbedded("LIKE with such a pattern")
        return SparkCell(f"({value.sql} {'not ' if node.args.get('negate') else ''}like {pattern.sql})", "boolean")

    def _case(self, node: exp.Case | exp.If) -> SparkCell:
        if isinstance(node, exp.Case) and node.this is not None:
            raise NotEmbedded("CASE with a value")
        branches = node.args["ifs"] if isinstance(node, exp.Case) else [node]
        conditions = [self.condition(branch.this) for branch in branches]
        values = self._cells(branch.args["true"] for branch in branches)
        other = node.args.get("default") or node.args.get("false")
        default = self.cell(other) if other else SparkCell("null", VOID)
        kind = common_of([*values, default])
        pairs = zip(conditions, values, strict=True)
        texts = " ".join(f"when {condition} then {as_kind(value, kind)}" for condition, value in pairs)
        return SparkCell(f"case {texts} else {as_kind(default, kind)} end", kind)

    def _coalesce(self, node: exp.Coalesce) -> SparkCell:
        cells = self._cells((node.this, *node.expressions))
        kind = common_of(cells)
        return SparkCell(f"coalesce({', '.join(as_kind(cell, kind) for cell in cells)})", kind)

    def _nullif(self, node: exp.Nullif) -> SparkCell:
        left, right = self._cells((node.this, node.expression))
        if left.kind != right.kind or not is_comparable(left.kind):
            raise NotEmbedded(f"NULLIF of {left.kind} and {right.kind}")
        return SparkCell(f"nullif({as_kind(left, left.kind)}, {as_kind(right, left.kind)})", left.kind)

    def _extreme(self, node: exp.Greatest | exp.Least) -> SparkCell:
        cells = self._cells((node.this, *node.expressions))
        kind = cells[0].kind
        if any(cell.kind != kind for cell in cells) or not is_groupable(kind):
            raise NotEmbedded(f"{construct(node)} of several types")
        return SparkCell(f"{type(node).__name__.lower()}({', '.join(as_kind(cell, kind) for cell in cells)})", kind)

    def _strings(self, nodes: Sequence[exp.Expr], what: str) -> list[SparkCell]:
        cells = self._cells(nodes)
        if any(cell.kind != "string" for cell in cells):
            raise NotEmbedded(f"{what} of {' and '.join(cell.kind for cell in cells)}")
        return cells

    def _joined(self, node: exp.Concat | exp.DPipe) -> SparkCell:
        if isinstance(node, exp.Concat) and not node.args.get("safe"):
            raise NotEmbedded("a string of several literals")
        operands = node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression]
        if isinstance(node, exp.DPipe) and any(
            isinstance(each, exp.Binary) and type(each) is not exp.DPipe for each in operands
        ):
            raise NotEmbedded("|| beside another operator")
        return SparkCell(f"({' || '.join(self._as_text(cell) for cell in self._cells(operands))})", "string")

    def _as_text(self, cell: SparkCell) -> str:
        """Return a value as Spark's text of it."""
        if cell.kind == "string" or cell.kind in (*INTEGRAL, "boolean", "date"):
            return f"cast({cell.sql} as varchar)"
        parts = precision_and_scale(cell.kind)
        if parts is None or parts[1] > _PLAIN_DECIMAL_SCALE:
            raise NotEmbedded(f"text of {cell.kind}")
        # Without a place for it DuckDB writes no zero before the point: .5 as decimal(1,1).
        return f"cast(cast({cell.sql} as decimal({max(parts[0], parts[1] + 1)},{parts[1]})) as varchar)"

    def _of_text(self, node: exp.Expr) -> SparkCell:
        (cell,) = self._strings([node.this], construct(node))
        form, kind = _OF_TEXT[type(node)]
        self.may_fail |= "error" in form
        return SparkCell(form.format(cell.sql), kind)

    def _substring(self, node: exp.Substring) -> SparkCell:
        (cell,) = self._strings([node.this], "SUBSTRING")
        bounds = self._cells([node.args["start"], *([node.args["length"]] if node.args.get("length") else [])])
        numbers = [bound.number for bound in bounds]
        if any(number is None or number < 0 for number in numbers) or not numbers[0]:
            raise NotEmbedded("SUBSTRING with such bounds")
        return SparkCell(f"substring({cell.sql}, {', '.join(map(str, numbers))})", "string")

    def _replace(self, node: exp.Replace) -> SparkCell:
        if node.args.get("replacement") is None:
            raise NotEmbedded("REPLACE without a replacement")
        cells = self._strings([node.this, node.expression, node.args["replacement"]], "REPLACE")
        if not cells[1].text:
            raise NotEmbedded("REPLACE of a value")
        return SparkCell(f"replace({', '.join(cell.sql for cell in cells)})", "string")

    def _abs(self, node: exp.Abs) -> SparkCell:
        cell = self.cell(node.this)
        if cell.kind not in INTEGRAL and not is_decimal(cell.kind):
            raise NotEmbedded(f"ABS of {cell.kind}")
        self.may_fail = True
        return SparkCell(f"cast(abs({as_kind(cell, cell.kind)}) as {duckdb_type(cell.kind)})", cell.kind)

    def _round(self, node: exp.Round) -> SparkCell:
        cell = self.cell(node.this)
        places = self.cell(node.args["decimals"]) if node.args.get("decimals") else integer(0)
        if places.number is None or places.number < 0 or not (is_decimal(cell.kind) or cell.kind in INTEGRAL):
            raise NotEmbedded(f"ROUND of {cell.kind}")
        self.may_fail = True
        name = None if cell.name is None else f"round({cell.name}, {places.number})"
        if cell.kind in INTEGRAL:
            return SparkCell(as_kind(cell, cell.kind), cell.kind, name)
        precision, scale = precision_and_scale(cell.kind) or (0, 0)
        kept = min(scale, places.number)
        kind = f"decimal({min(MOST_DIGITS, precision - scale + 1 + kept)},{kept})"
        return SparkCell(f"cast({cell.sql} as {kind})", kind, name)

    def _truncated(self, node: exp.Expr) -> SparkCell:
        """Translate date_trunc(unit, x), a timestamp in UTC."""
        cell, unit = self.cell(node.this), node.text("unit").upper()
        if cell.kind not in {"date", "timestamp"} or unit not in _TRUNCATED:
            raise NotEmbedded(f"date_trunc of {cell.kind}")
        naive = f"date_trunc('{unit.lower()}', cast({cell.sql} as timestamp))"
        return SparkCell(f"cast(cast({naive} as timestamp) as timestamptz)", "timestamp")

    def _count_if(self, node: exp.Expr) -> SparkCell:
        return SparkCell(f"count(case when {self.condition(node.this)} then 1 end)", "bigint")

    def _listed(self, node: exp.Expr) -> SparkCell:
        """Translate listagg(x, 'text') within group (order by x); in another order equal keys could change places."""
        inner, between = node.this, node.args.get("separator")
        if not isinstance(inner, exp.Order) or len(inner.expressions) != 1 or not isinstance(between, exp.Literal):
            raise NotEmbedded("LISTAGG without an order")
        value, key = self._strings([inner.this, inner.expressions[0].this], "LISTAGG")
        if value.sql != key.sql:
            raise NotEmbedded("LISTAGG in the order of other values")
        order = self.ordered(inner.expressions[0], key)
        return SparkCell(f"string_agg({value.sql}, {self._literal(between).sql} order by {order})", "string")

    def _part(self, node: exp.Expr) -> SparkCell:
        """Translate year(d) and its like."""
        inner = node.this
        if isinstance(inner, exp.TsOrDsToDate):
            inner = inner.this
        return self._of_time(type(node).__name__.lower(), self.cell(inner))

    def _extract(self, node: exp.Extract) -> SparkCell:
        return self._of_time(node.name.lower(), self.cell(node.expression))

    def _of_time(self, part: str, cell: SparkCell) -> SparkCell:
        naive = f"cast({cell.sql} as timestamp)"
        if part in {"year", "quarter", "month", "day"} and cell.kind in {"date", "timestamp", "timestamp_ntz"}:
            return SparkCell(f"cast({part}({naive}) as integer)", "int")
        if part in {"hour", "minute"} and cell.kind in {"timestamp", "timestamp_ntz"}:
            return SparkCell(f"cast({part}({naive}) as integer)", "int")
        if part == "second" and cell.kind in {"timestamp", "timestamp_ntz"}:
            micros = f"cast(extract(microseconds from {naive}) as decimal(8,0))"
            return SparkCell(f"cast({micros} * cast('0.000001' as decimal(6,6)) as decimal(8,6))", "decimal(8,6)")
        raise NotEmbedded(f"{part} of {cell.kind}")

    def _days_between(self, node: exp.DateDiff) -> SparkCell:
        cells = [
            self.cell(each.this if isinstance(each, exp.TsOrDsToDate) else each)
            for each in (node.this, node.expression)
        ]
        if any(cell.kind != "date" for cell in cells):
            raise NotEmbedded("DATEDIFF of other types than dates")
        return SparkCell(f"cast(({cells[0].sql} - {cells[1].sql}) as integer)", "int")

    def _cast(self, node: exp.Cast) -> SparkCell:
        kind, cell = type_named(node.args["to"]), self.cell(node.this)
        if type(node) is exp.Cast or (cell.text is not None and kind in {"date", "timestamp", "timestamp_ntz"}):
            if cell.text is None or kind not in {"date", "timestamp"}:
                raise NotEmbedded(f"CAST of {cell.kind} to {kind}")
            return moment_of(cell, kind)
        if not is_exact_cast(cell.kind, kind):
            raise NotEmbedded(f"CAST of {cell.kind} to {kind}")
        self.may_fail = True
        if kind == "string":
            return SparkCell(self._as_text(cell), "string")
        if cell.kind == "timestamp" and kind == "date":
            return SparkCell(f"cast(cast({cell.sql} as timestamp) as date)", "date")
        return SparkCell(f"cast({as_kind(cell, cell.kind)} as {duckdb_type(kind)})", kind)

    def _filtered(self, node: exp.Filter) -> SparkCell:
        return self._aggregate(node.this, f" filter (where {self.condition(node.expression.this)})")

    def _aggregate(self, node: exp.Expr, condition: str = "") -> SparkCell:
        if type(node) not in _AGGREGATES:
            raise NotEmbedded(construct(node))
        named = condition == ""
        if isinstance(node, exp.Count):
            return self._count(node, condition)
        cell = self.cell(node.this)
        if isinstance(node, exp.Min | exp.Max):
            if not is_groupable(cell.kind):
                raise NotEmbedded(f"{construct(node)} of {cell.kind}")
            word = type(node).__name__.lower()
            name = _call(word + "({})", cell) if named else None
            return SparkCell(f"{word}({as_kind(cell, cell.kind)}){condition}", cell.kind, name)
        self.may_fail = True
        whole = sum_of if isinstance(node, exp.Sum) else average_of
        sql, kind = whole(cell, condition)
        word = "sum({})" if isinstance(node, exp.Sum) else "avg({})"
        return SparkCell(sql, kind, _call(word, cell) if named else None)

    def _count(self, node: exp.Count, condition: str) -> SparkCell:
        if isinstance(node.this, exp.Star):
            return SparkCell(f"count(*){condition}", "bigint", None if condition else "count(1)")
        if isinstance(node.this, exp.Distinct):
            cells = self._cells(node.this.expressions)
            if len(cells) != 1 or not is_groupable(cells[0].kind):
                raise NotEmbedded("COUNT of such distinct values")
            name = None if condition else _call("count(DISTINCT {})", cells[0])
            return SparkCell(f"count(distinct {cells[0].sql}){condition}", "bigint", name)
        cell = self.cell(node.this)
        return SparkCell(f"count({cell.sql}){condition}", "bigint", None if condition else _call("count({})", cell))

    def _window(self, node: exp.Window) -> SparkCell:
        call = node.this
        if type(call) not in _RANKS or node.args.get("order") is None:
            raise NotEmbedded(f"{construct(call)} over a window")
        parts = self._cells(node.args.get("partition_by") or [])
        if not all(is_groupable(part.kind) for part in parts):
            raise NotEmbedded("PARTITION BY of such values")
        by = f"partition by {', '.join(part.sql for part in parts)} " if parts else ""
        order = ", ".join(self.ordered(each, self.cell(each.this)) for each in node.args["order"].expressions)
        return SparkCell(f"cast({_RANKS[type(call)]}() over ({by}order by {order}) as integer)", "int")

    def ordered(self, node: exp.Expr, cell: SparkCell) -> str:
        """Translate one key of an ORDER BY, whose value is `cell`."""
        if not isinstance(node, exp.Ordered) or not is_comparable(cell.kind):
            raise NotEmbedded(f"ORDER BY of {cell.kind}")
        way = "desc" if node.args.get("desc") else "asc"
        return f"{_plain_zero(cell.sql, cell.kind)} {way} nulls {'first' if node.args.get('nulls_first') else 'last'}"

    _NODES: ClassVar[dict[type[exp.Expr], Callable[..., SparkCell]]] = {
        exp.Column: _column,
        exp.Paren: _paren,
        exp.Literal: _literal,
        exp.Null: _null,
        exp.Boolean: _boolean,
        exp.Neg: _negative,
        **dict.fromkeys(SIGNS, _arithmetic),
        **dict.fromkeys(COMPARISONS, _comparison),
        exp.And: _and_or,
        exp.Or: _and_or,
        exp.Not: _not,
        exp.Is: _is,
        exp.Between: _between,
        exp.In: _in,
        exp.Subquery: _scalar,
        exp.Like: _like,
        exp.Case: _case,
        exp.If: _case,
        exp.Coalesce: _coalesce,
        exp.Nullif: _nullif,
        exp.Greatest: _extreme,
        exp.Least: _extreme,
        exp.Concat: _joined,
        exp.DPipe: _joined,
        **dict.fromkeys(_OF_TEXT, _of_text),
        exp.Substring: _substring,
        exp.Replace: _replace,
        exp.Abs: _abs,
        exp.Round: _round,
        **dict.fromkeys((exp.Year, exp.Quarter, exp.Month, exp.Day, exp.Hour, exp.Minute), _part),
        exp.Extract: _extract,
        exp.DateDiff: _days_between,
        exp.Cast: _cast,
        exp.TryCast: _cast,
        exp.TimestampTrunc: _truncated,
        exp.CountIf: _count_if,
        exp.GroupConcat: _listed,
        exp.Filter: _filtered,
        **dict.fromkeys(_AGGREGATES, _aggregate),
        exp.Window: _window,
    }


def _call(form: str, cell: SparkCell) -> str | None:
    return None if cell.name is None else form.format(cell.name)


def _plain_operands(node: exp.Expr) -> None:
    """Refuse operands that sqlglot and Spark may group differently: predicates without parentheses."""
    predicates = (exp.Predicate, exp.Not, exp.Connector)
    for name in ("this", "expression", "low", "high"):
        operand = node.args.get(name)
        if isinstance(operand, predicates) and not isinstance(operand, exp.SubqueryPredicate | exp.Boolean):
            raise NotEmbedded("a comparison of comparisons without parentheses")
