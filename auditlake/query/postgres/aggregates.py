"""Aggregates and window functions. Pure.

Sums of floats depend on the order of the rows, in PostgreSQL too, and are refused.

Authority: postgresql.org/docs/current/functions-aggregate.html, functions-window.html
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from auditlake.query.postgres.arithmetic import MIXED, sort_key
from auditlake.query.postgres.cells import Cell, Refused, construct, spelled
from auditlake.query.postgres.conversions import coerced, common, known, numeric_text, of_parts, parts_of, with_zeros
from auditlake.query.postgres.frames import FEW_ROWS
from auditlake.query.postgres.growth import MOST_ELEMENTS, TOO_MANY, held, once
from auditlake.query.postgres.identity import require_one_form
from auditlake.query.postgres.json_operators import json_text, member
from auditlake.query.postgres.types import (
    BOOL,
    FLOAT4,
    FLOAT8,
    INT4,
    INT8,
    INTEGERS,
    INTERVAL,
    JSON,
    JSONB,
    NUMERIC,
    TEXT,
    TEXTS,
    array,
    decimal,
)
from auditlake.sql_names import standard_literal
from auditlake.values.types import MOST_DIGITS


@dataclass(frozen=True, slots=True)
class Frame:
    """What follows OVER; `is_small`: it has few rows, whatever the partition has (`frames.has_few_rows`)."""

    by: Sequence[str]
    order: Sequence[str]
    spec: str
    is_small: bool

    @property
    def sql(self) -> str:
        """Return the text after OVER."""
        parts = [f"partition by {', '.join(self.by)}"] if self.by else []
        parts += [f"order by {', '.join(self.order)}"] if self.order else []
        return f"({' '.join(parts)}{self.spec})"


_NAMED_ALIKE: tuple[type[exp.Func], ...] = (
    *(exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max),
    *(exp.ArrayAgg, exp.AnyValue, exp.StddevSamp, exp.StddevPop),
)
AGGREGATES: dict[type[exp.Expr] | str, str] = {each: each.sql_name().lower() for each in _NAMED_ALIKE}
AGGREGATES |= {exp.GroupConcat: "string_agg", exp.LogicalAnd: "bool_and", exp.LogicalOr: "bool_or", "every": "bool_and"}
AGGREGATES |= {
    name: name for name in ("jsonb_agg", "json_agg", "jsonb_object_agg", "json_object_agg", "bit_and", "bit_or")
}
AGGREGATES |= {exp.Variance: "var_samp", exp.VariancePop: "var_pop", exp.Stddev: "stddev_samp"}
_DEVIATIONS = {
    "var_samp": ("pg_variance", 1),
    "var_pop": ("pg_variance", 0),
    "stddev_samp": ("pg_deviation", 1),
    "stddev_pop": ("pg_deviation", 0),
}
_ONLY_WITH_OVER: tuple[type[exp.Func], ...] = (
    *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile),
    *(exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue),
)
WINDOWS: dict[type[exp.Expr], str] = {each: each.sql_name().lower() for each in _ONLY_WITH_OVER}
_NEAR = f"Write ROWS with two bounds of at most {FEW_ROWS:,}."
Translate = Callable[[exp.Expr], Cell]
Ordered = Callable[[exp.Expr, Cell], str]


@dataclass(frozen=True, slots=True)
class _Call:
    """An aggregate's argument, and what stands after it; DISTINCT sorts by the value, so its `order` is a direction."""

    value: Cell
    distinct: bool
    order: str
    where: str | None
    frame: Frame | None
    node: exp.Expr

    def of(self, function: str, value: str | None = None) -> str:
        """Return a call of a function of DuckDB."""
        word = "distinct " if self.distinct else ""
        value = self.value.sql if value is None else value
        order = "" if self.distinct else self.order
        return f"{function}({word}{value}{order}){self.tail}"

    @property
    def listed(self) -> str:
        """Return a list of the values in their order; DuckDB sorts no DISTINCT values whose expression may fail."""
        if not self.distinct:
            return self.of("list")
        if self.value.type.labels:
            raise Refused(self.node, f"DISTINCT of {self.value.type.shown}")
        return f"list_sort({self.of('list')}, {self.order or _way(exp.Ordered())})"

    @property
    def tail(self) -> str:
        """Return FILTER and OVER."""
        return _tail(self.where, self.frame)

    @property
    def texts(self) -> str:
        """Return the group's numbers as one text, without NULL: a list costs DuckDB an object for each."""
        word = "distinct " if self.distinct else ""
        return f"string_agg({word}{numeric_text(self.value, self.node)}, ' '){self.tail}"


def _way(term: exp.Expr) -> str:
    """Return the direction of a term of ORDER BY as arguments of list_sort."""
    way = "desc" if term.args.get("desc") else "asc"
    return f"'{way}', 'nulls {'first' if term.args.get('nulls_first') else 'last'}'"


def _tail(where: str | None, frame: Frame | None) -> str:
    """Return what stands after the parentheses of a call."""
    return ("" if where is None else f" filter (where {where})") + ("" if frame is None else f" over {frame.sql}")


def _known(value: Cell, where: str | None) -> str:
    """Return the condition for the rows with a value, of those that FILTER keeps."""
    return f"{value.sql} is not null" + ("" if where is None else f" and {where}")


def aggregate(node: exp.Expr, cell: Translate, ordered: Ordered, where: str | None, frame: Frame | None) -> Cell:
    """Translate an aggregate; raises Refused."""
    name = AGGREGATES.get(node.name.lower() if isinstance(node, exp.Anonymous) else type(node), "")
    shown = spelled(node, name)
    if not name:
        raise Refused(node, construct(node))
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return Cell(f"count(*){_tail(where, frame)}", INT8, "count")
    inner = node.expressions[-1] if isinstance(node, exp.Anonymous) and node.expressions else node.this
    if isinstance(node, exp.Anonymous) and len(node.expressions) != 1 + (name in _OF_MEMBERS):
        is_wrong = not isinstance(inner, exp.Distinct)
        raise Refused(node, f"{node.name.lower()} of {len(node.expressions)} arguments", wrong=is_wrong)
    if inner is None:
        raise Refused(node, f"{shown} of nothing", f"Write {shown}(*), or name a column.", wrong=True)
    call = _parts(node, inner, cell, ordered, where, frame)
    if where is not None:  # DuckDB may compute the argument for all rows, and fail on one that is left out
        only_then = f"case when {where} then {call.value.sql} end"
        call = replace(call, value=replace(call.value, sql=only_then))
    return _made(name, call, cell).named(shown)


def _parts(  # noqa: PLR0913, PLR0917 - what makes a call
    node: exp.Expr, inner: exp.Expr, cell: Translate, ordered: Ordered, where: str | None, frame: Frame | None
) -> _Call:
    order = ""
    distinct = False
    terms: list[exp.Expr] = []
    keys: list[Cell] = []
    if isinstance(inner, exp.Order):
        terms = [each.this for each in inner.expressions]
        keys = [cell(each) for each in terms]
        pairs = zip(inner.expressions, keys, strict=True)
        order = " order by " + ", ".join(ordered(each, key) for each, key in pairs)
        first, inner = inner.expressions[0], inner.this
        order = _way(first) if isinstance(inner, exp.Distinct) else order
    if isinstance(inner, exp.Distinct):
        if len(inner.expressions) != 1:
            raise Refused(node, "DISTINCT of several columns")
        inner, distinct = inner.expressions[0], True
        if isinstance(inner, exp.Order):
            raise Refused(node, "DISTINCT with ORDER BY in an aggregate")
    value = cell(inner)
    value = _typed(value, node)
    if distinct and any((key.sql, key.type) != (value.sql, value.type) for key in keys):
        raise Refused(node, "DISTINCT with ORDER BY of something else in an aggregate", wrong=True)
    require_one_form([value.sql], [(value.sql, each) for each in (inner, *terms) if distinct], cell)
    if distinct and not value.type.is_groupable:
        raise Refused(node, f"DISTINCT of {value.type.shown}")
    if frame is not None and (distinct or order):
        raise Refused(node, "DISTINCT or ORDER BY in an aggregate with OVER", wrong=distinct)
    return _Call(value, distinct, order, where, frame, node)


def _typed(value: Cell, node: exp.Expr) -> Cell:
    """Return the argument of an aggregate, a literal in the type that the aggregate takes."""
    if isinstance(node, exp.ArrayAgg | exp.AnyValue) or node.name.lower() in _OF_JSON:
        return _of_known_type(value, node)
    is_condition = isinstance(node, exp.LogicalAnd | exp.LogicalOr) or node.name.lower() == "every"
    return value if is_condition else known(value)


def _made(name: str, call: _Call, cell: Translate) -> Cell:  # noqa: PLR0911, C901 - one case for each aggregate
    kind = call.value.type
    match name:
        case "count":
            return Cell(call.of("count"), INT8)
        case "sum":
            return _sum(call)
        case "var_samp" | "var_pop" | "stddev_samp" | "stddev_pop":
            return _deviation(name, call)
        case "any_value":
            value = f"cast({call.value.sql} as varchar[])" if kind.loses_zeros else None
            return Cell(with_zeros(call.of("any_value", value), kind), kind)
        case "avg":
            total = _sum(call)
            if total.type == INTERVAL:
                parts = ", ".join(f"cast({each} as bigint)" for each in _sums(call))
                return Cell(f"pg_of_parts(pg_over([{parts}], nullif({call.of('count')}, 0)))", INTERVAL)
            text = total.sql if total.type == NUMERIC else f"cast({total.sql} as varchar)"
            return Cell(f"pg_divide({text}, cast(nullif({call.of('count')}, 0) as varchar))", NUMERIC)
        case "min" | "max":
            return _extreme(name, call)
        case "bool_and" | "bool_or":
            return Cell(call.of(name, coerced(call.value, BOOL, call.node).sql), BOOL)
        case "string_agg":
            return _joined(call, cell)
        case "jsonb_object_agg" | "json_object_agg":
            return _members(name, call, cell)
        case "bit_and" | "bit_or" if kind.is_integer:
            return Cell(call.of(name), kind)
        case _:
            return _collected(name, call)


def _collected(name: str, call: _Call) -> Cell:
    """Translate array_agg, jsonb_agg and json_agg."""
    kind = call.value.type
    if name in _OF_JSON and kind != JSON and not call.distinct and call.frame is None:
        text = call.of("string_agg", f"{json_text(call.value, call.node)}, ', '")
        return Cell(f"('[' || {text} || ']')", _OF_JSON[name])
    if name != "array_agg" or not kind.is_element:
        raise Refused(call.node, f"{name} of {kind.shown}")
    if call.frame is not None and not call.frame.is_small:  # DuckDB holds the arrays of 2,048 rows at once
        raise Refused(call.node, f"{name} over a frame of many rows", _NEAR)
    if call.frame is not None:
        return Cell(call.listed, array(kind))
    return Cell(held((call.listed,), f"len(s[1]) > {MOST_ELEMENTS}", "s[1]", TOO_MANY), array(kind))


def _members(name: str, call: _Call, cell: Translate) -> Cell:
    """Translate jsonb_object_agg and json_object_agg, whose text has blanks around colons and inside the braces."""
    kind = _OF_MEMBERS[name]
    if call.distinct or call.frame is not None or (kind == JSON and call.value.type == JSON):
        raise Refused(call.node, f"{name} of {call.value.type.shown}, or with DISTINCT or OVER")
    text = member(cell(call.node.expressions[0]), call.value, " : " if kind == JSON else ": ", call.node)
    if call.where is not None:  # as in `aggregate`: a name of a row that is left out may be NULL
        text = f"case when {call.where} then {text} end"
    listed = call.of("string_agg", f"{text}, ', '")
    return Cell(f"('{{ ' || {listed} || ' }}')" if kind == JSON else f"pg_jsonb('{{' || {listed} || '}}')", kind)


_OF_MEMBERS = {"jsonb_object_agg": JSONB, "json_object_agg": JSON}
_OF_JSON = {"jsonb_agg": JSONB, "json_agg": JSON}


def _deviation(name: str, call: _Call) -> Cell:
    kind = call.value.type
    if kind.name not in {*INTEGERS, "numeric"}:
        hint = "It depends on the order of the rows: cast them to numeric." if "float" in kind.name else ""
        raise Refused(call.node, f"{name} of {kind.shown}", hint)
    function, is_sample = _DEVIATIONS[name]
    return Cell(f"{function}({call.texts}, {is_sample})", NUMERIC)


def _sum(call: _Call) -> Cell:
    kind = call.value.type
    if kind.name in {"int2", "int4"}:
        return Cell(f"cast({call.of('sum')} as bigint)", INT8)
    if kind.name == "int8":
        return Cell(f"cast({call.of('sum')} as decimal(38,0))", decimal(MOST_DIGITS, 0))
    if kind.is_decimal:
        held = decimal(MOST_DIGITS, kind.scale or 0)
        return Cell(f"cast({call.of('sum')} as {held.duckdb})", held)
    if kind == NUMERIC and not call.distinct:
        return Cell(f"pg_total({call.texts})", NUMERIC)
    if kind == INTERVAL and not call.distinct:
        return Cell(of_parts(*_sums(call)), INTERVAL)
    hint = "The sum of floats depends on the order of the rows: cast them to numeric." if "float" in kind.name else ""
    raise Refused(call.node, f"{construct(call.node)} of {kind.shown}", hint)


def _sums(call: _Call) -> list[str]:
    """Return the sums of months, days and microseconds."""
    return [call.of("sum", part) for part in parts_of(call.value.sql)]


def _extreme(name: str, call: _Call) -> Cell:
    kind = call.value.type
    if not kind.is_comparable or kind.name in {"bool", "uuid", "bytea"}:
        raise Refused(call.node, f"{name} of {kind.shown}")
    if kind in {NUMERIC, INTERVAL} or kind.labels:
        if call.distinct or call.frame is not None:
            raise Refused(call.node, f"{name} of {kind.shown} with DISTINCT or OVER")
        key = sort_key(call.value, call.node)
        if kind == INTERVAL:  # DuckDB would show a day as 24 hours
            return Cell(f"pg_of_parts(arg_{name}(pg_parts({call.value.sql}), {key}){call.tail})", kind)
        return Cell(f"arg_{name}({call.value.sql}, {key}){call.tail}", kind)
    if call.frame is not None and kind in {FLOAT4, FLOAT8}:
        zeros = (f"{call.value.sql} = 0 and {sign}signbit({call.value.sql})" for sign in ("", "not "))
        parts = call.of(name), *(call.of("bool_or", each) for each in zeros)
        mixed = f"s[1] = 0 and s[2] and s[3] then error({standard_literal(MIXED)})"  # PostgreSQL shows the last one
        return Cell(once(parts, f"case when {mixed} else s[1] end"), kind)
    return Cell(call.of(name), TEXT if kind.name in {"varchar", "name"} else kind)


def _joined(call: _Call, cell: Translate) -> Cell:
    separator = call.node.args.get("separator")
    if not call.value.type.is_text or separator is None or call.frame is not None:
        is_wrong = call.value.type.name not in TEXTS | {"bytea"} and not call.value.type.is_opaque
        raise Refused(call.node, f"string_agg of {call.value.type.shown}", wrong=is_wrong)
    if not isinstance(separator, exp.Literal):
        raise Refused(call.node, "string_agg with a separator that is not a literal")
    between = coerced(cell(separator), TEXT).sql
    if call.distinct:
        known_values = replace(call, where=_known(call.value, call.where)).listed
        return Cell(f"array_to_string({known_values}, {between})", TEXT)
    return Cell(call.of("string_agg", f"{call.value.sql}, {between}"), TEXT)


def percentile(node: exp.Expr, cell: Translate, where: str | None) -> Cell:
    """Translate percentile_cont and percentile_disc of one fraction; raises Refused."""
    call, order = node.this, node.expression.expressions
    name = _PERCENTILES.get(type(call))
    if name is None or len(order) != 1 or not isinstance(call.this, exp.Literal) or call.this.is_string:
        raise Refused(node, f"{construct(call)} within group")
    fraction = float(str(call.this.this))
    if not 0 <= fraction <= 1:
        raise Refused(node, f"percentile value {fraction:g} is not between 0 and 1", wrong=True)
    way = "desc" if order[0].args.get("desc") else "asc"
    order[0].args.get("nulls_first")  # is read, and means nothing: NULLs do not count
    value = cell(order[0].this)
    tail = _tail(_known(value, where), None)
    if name == "percentile_cont":
        if way == "desc" or not value.type.is_number:
            raise Refused(node, f"percentile_cont of {value.type.shown} {way}")
        number = coerced(value, FLOAT8, node).sql
        place = f"cast({fraction!r} as double) * (count({number}){tail} - 1)"
        return Cell(once((f"list({number} order by {number}){tail}", place), _INTERPOLATED), FLOAT8, name)
    values = f"list({value.sql} order by {sort_key(value, node)} {way}){tail}"
    place = f"greatest(cast(ceil(cast({fraction!r} as double) * count({value.sql}){tail}) as bigint), 1)"
    return Cell(f"list_extract({values}, {place})", value.type, name)


_LOW = "cast(floor(s[2]) as bigint)"
_INTERPOLATED = (
    f"case when s[2] = {_LOW} then s[1][{_LOW} + 1]"
    f" else s[1][{_LOW} + 1] + (s[2] - {_LOW}) * (s[1][{_LOW} + 2] - s[1][{_LOW} + 1]) end"
)
_PERCENTILES = {exp.PercentileCont: "percentile_cont", exp.PercentileDisc: "percentile_disc"}


def window_function(node: exp.Expr, cell: Translate, frame: Frame) -> Cell:
    """Translate a function that exists only with OVER; raises Refused."""
    name = WINDOWS[type(node)]
    over = f" over {frame.sql}"
    match name:
        case "row_number" | "rank" | "dense_rank":
            return Cell(f"{name}(){over}", INT8, name)
        case "percent_rank" | "cume_dist":
            return Cell(f"{name}(){over}", FLOAT8, name)
        case "ntile":
            return Cell(f"cast(ntile({_positive(node, 'this')}){over} as integer)", INT4, name)
        case "lag" | "lead":
            return _shifted(name, node, cell, frame)
        case "nth_value":
            value = _of_known_type(cell(node.this), node)
            return Cell(f"nth_value({value.sql}, {_positive(node, 'offset')}){over}", value.type, name)
        case _:
            value = _of_known_type(cell(node.this), node)
            return Cell(f"{name}({value.sql}){over}", value.type, name)


def _of_known_type(cell: Cell, node: exp.Expr) -> Cell:
    if cell.is_unknown:
        raise Refused(node, "could not determine the type of a literal", "Write a cast.", wrong=True)
    return cell


def _positive(node: exp.Expr, name: str) -> str:
    """Return an argument that is a positive number."""
    given = node.args.get(name)
    if not isinstance(given, exp.Literal) or not str(given.this).isdecimal() or not int(str(given.this)):
        raise Refused(node, f"{construct(node)} of this form")
    return str(given.this)


def _shifted(name: str, node: exp.Expr, cell: Translate, frame: Frame) -> Cell:
    value = cell(node.this)
    offset, default = node.args.get("offset"), node.args.get("default")
    other = None if default is None else cell(default)
    value = _of_known_type(value, node) if other is None else value
    kind = value.type if other is None or other.null else common((value, other), node, name)
    if other is not None and kind.name == "bpchar":
        raise Refused(node, f"{name} of character with a default", "Cast it to text.")
    parts = [numeric_text(value, node) if kind == NUMERIC else coerced(value, kind, node).sql]
    far = "1" if offset is None else coerced(cell(offset), INT4, node).sql
    if not frame.by and not frame.order:  # DuckDB 1.5 shifts rows as they come, and repeats those of a UNION ALL
        far = f"{far} + cast(random() * 0 as bigint)"
    parts.append(f"cast({far} as bigint)")
    if other is not None:
        parts.append(numeric_text(other, node) if kind == NUMERIC else coerced(other, kind, node).sql)
    return Cell(f"{name}({', '.join(parts)}) over {frame.sql}", kind, name)
