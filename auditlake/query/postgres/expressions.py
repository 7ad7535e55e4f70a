"""Expressions of a checked tree in DuckDB's SQL with PostgreSQL's meaning: operators, CASE, IN, patterns, documents.

See `arithmetic`, `conversions`, `functions`, `aggregates`. A node that is not listed here is refused with its name and
place; nothing of the typed text reaches DuckDB.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC
from itertools import chain
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.helper import ensure_list

from auditlake.query.dialect import COMPARISONS, SIGNS
from auditlake.query.postgres.aggregates import AGGREGATES, WINDOWS, Frame, aggregate, percentile, window_function
from auditlake.query.postgres.arithmetic import compared, concatenated, negated, operate, sort_key
from auditlake.query.postgres.cells import NO_NAME, NULL, Cell, Refused, construct, is_array_of_query, spelled
from auditlake.query.postgres.conversions import (
    COMPARISON,
    cast,
    coerced,
    common,
    elements_of,
    in_common,
    interval,
    known,
    literal,
    named_type,
    number,
    with_zeros,
)
from auditlake.query.postgres.formats import to_char
from auditlake.query.postgres.frames import frame_text, has_few_rows, with_offsets
from auditlake.query.postgres.functions import (
    called,
    concat,
    extracted,
    extracted_as_float,
    formatted,
    trimmed,
    truncated_time,
    zoned,
)
from auditlake.query.postgres.growth import listed
from auditlake.query.postgres.json_operators import OF_TEXTS, OPERATORS, built, operate_on_json, without
from auditlake.query.postgres.patterns import called_with_pattern, liked, read_pattern, searched, similar_pattern
from auditlake.query.postgres.row_comparisons import (
    any_or_all,
    fields_compared,
    fields_of,
    in_list,
    is_quantified,
    quantity,
    row_in_query,
    with_array,
    with_query,
)
from auditlake.query.postgres.scopes import Scope, folded
from auditlake.query.postgres.types import (
    BOOL,
    DATE,
    FLOAT4,
    FLOAT8,
    INT4,
    INTEGERS,
    INTERVAL,
    JSONB,
    NUMBERS,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    Type,
    array,
)
from auditlake.sql_names import standard_literal

_NUMBER = re.compile(r"-?(\d+|(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d{1,3})?)", re.ASCII)
_UNIT_COUNT = re.compile(r"[+-]?\d+", re.ASCII)
_BY_CODE_POINTS = frozenset({"C", "POSIX", "ucs_basic", "pg_c_utf8"})
_WITH_MODIFIER = frozenset({"varchar", "timestamp", "timestamptz"})
"""Types of columns whose modifier a cast takes away, so that it is another expression, though the value is the same."""
_UNNAMED = "case"
_PartsOfWindow = tuple[list[exp.Expr] | None, exp.Expr | None, exp.Expr | None]
_LONGEST = (1 << 31) - 1
_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Sqrt: "sqrt",
    exp.Cbrt: "cbrt",
    exp.Pow: "power",
    exp.StartsWith: "starts_with",
    exp.BitwiseNot: "~",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "#",
}
"""Operators by the names of functions that mean the same, or by their own."""


class Expressions:
    """Expressions over one scope; `aggregates`, `windows`: whether they may have such functions."""

    def __init__(self, scope: Scope, *, aggregates: bool = True, windows: bool | None = None) -> None:
        self._scope = scope
        self._aggregates = aggregates
        self._windows = aggregates if windows is None else windows
        self.aggregated = 0
        """How many aggregates and window functions were translated, without those in another one."""
        self.written: list[tuple[str, exp.Expr]] = []
        """What was translated, without arguments of aggregates: the texts, and how they are written."""

    def cell(self, node: exp.Expr) -> Cell:
        """Translate an expression; raises Refused."""
        if node.args.get("negate") and not (isinstance(node, exp.Is) or is_quantified(node.expression)):
            node.set("negate", None)  # a copy would have other tables than those that the catalog knows
            positive = coerced(self.cell(node), BOOL, node)
            node.set("negate", True)
            return Cell(f"(not {positive.sql})", BOOL)
        translate = self._NODES.get(type(node))
        if translate is None:
            raise Refused(node, construct(node))
        found = translate(self, node)
        self.written.append((found.sql, node))
        return found

    def condition(self, node: exp.Expr) -> str:
        """Translate a condition."""
        return coerced(self.cell(node), BOOL, node).sql

    def _cells(self, node: exp.Expr, *names: str) -> list[Cell]:
        """Translate the arguments of a node; raises Refused."""
        parts = chain.from_iterable(ensure_list(node.args.get(name)) for name in names)
        return [self.cell(each) for each in parts if isinstance(each, exp.Expr)]

    def _arithmetic(self, node: exp.Expr) -> Cell:
        left, right = self._cells(node, "this", "expression", "typed", "safe")
        if isinstance(node, exp.Sub) and left.type == JSONB:
            return without(left, right, node)
        return operate(SIGNS[type(node)], left, right, node)

    def _operator(self, node: exp.Expr) -> Cell:
        """Translate an operator that is a function."""
        cells = self._cells(node, "this", "expression")
        if isinstance(node, exp.Sqrt):  # the function is also one of numeric
            cells = [coerced(cells[0], FLOAT8, node)]
        return called(_OPERATORS[type(node)], cells, node).named(NO_NAME)

    def _position(self, node: exp.Expr) -> Cell:
        return called("strpos", self._cells(node, "this", "substr"), node).named("position")

    def _overlay(self, node: exp.Expr) -> Cell:
        return called("overlay", self._cells(node, "this", "expression", "from_", "for_"), node).named("overlay")

    def _comparison(self, node: exp.Expr) -> Cell:
        op = COMPARISONS[type(node)]
        if is_quantified(node.expression):
            return self._quantified(op, self.cell(node.this), node.expression)
        if fields_of(node.this) is not None:
            return self._rows_compared(op, node.this, node.expression, node)
        return compared(op, self.cell(node.this), self.cell(node.expression), node)

    def _rows_compared(self, op: str, left: exp.Expr, right: exp.Expr, node: exp.Expr) -> Cell:
        one, other = fields_of(left), fields_of(right)
        if one is None or other is None or len(one) != len(other) or not one:
            raise Refused(node, "a comparison of rows")
        return fields_compared(op, [self.cell(each) for each in one], [self.cell(each) for each in other], node)

    def _quantified(self, op: str, left: Cell, node: exp.Expr) -> Cell:
        inner = quantity(node)
        if isinstance(inner, exp.Query):
            return with_query(op, left, self._scope.subquery(inner), node)
        if isinstance(inner, exp.Array) and not is_array_of_query(inner):
            elements = self._elements(inner)
            kind = common(elements, node, "ARRAY")
            if kind.element is not None:
                raise Refused(node, f"{op} {construct(node)} of arrays of {kind.element.shown}")
            if kind in {FLOAT4, FLOAT8}:  # of other types, the values of the array are the same
                elements = [coerced(each, kind, node) for each in elements]
            elements = [literal(each, kind, node) if each.is_unknown else each for each in elements]
            return any_or_all(node, [compared(op, left, each, node) for each in elements])
        array_ = self.cell(inner)
        if array_.literal is not None:
            return any_or_all(node, [compared(op, left, each, node) for each in elements_of(array_, node)])
        return with_array(op, left, array_, node)

    def _anonymous(self, node: exp.Expr) -> Cell:  # noqa: C901 - one case for each kind of function
        name = folded(node.this) if isinstance(node.this, exp.Identifier) else node.name.lower()
        if name in AGGREGATES:
            return self._aggregate(node)
        cells = [self.cell(each) for each in node.expressions]
        match name, cells:
            case "to_char", _:
                return to_char(cells, node)
            case "format", [_, *_]:
                found = formatted(cells, node)
            case "timezone", [Cell(literal=str(zone)), at]:
                found = zoned(zone, at, node)
            case "pg_typeof", [cell] if not cell.type.is_opaque:
                shown = standard_literal(cell.type.shown)  # the argument is computed, because it may be an aggregate
                found = Cell(f"case when {cell.sql} is null then {shown} else {shown} end", Type("regtype"))
            case "date_part", _:
                found = self._date_part(cells, node)
            case "date_trunc", [Cell(literal=str(unit)), at]:
                found = truncated_time(unit.lower(), at, node)
            case "to_jsonb" | "jsonb_build_array" | "jsonb_build_object", _:
                found = built(name, cells, node)
            case _ if name.startswith("regexp_"):
                found = called_with_pattern(name, cells, node)
            case "ltrim" | "rtrim" | "btrim", _:
                found = trimmed({"ltrim": "LEADING", "rtrim": "TRAILING"}.get(name, "BOTH"), cells, node)
            case _:
                found = called(name, cells, node)
        return found.named(name)

    @staticmethod
    def _date_part(cells: Sequence[Cell], node: exp.Expr) -> Cell:
        if len(cells) != 2 or cells[0].literal is None:  # noqa: PLR2004 - a field and a time
            raise Refused(node, "date_part of a field that is not a literal")
        return extracted_as_float(cells[0].literal.lower(), cells[1], node).named("date_part")

    def _literal(self, node: exp.Expr) -> Cell:
        text = str(node.this)
        if node.is_string:
            return Cell(standard_literal(text), UNKNOWN, literal=text)
        return self._number(text, node)

    def _negated(self, node: exp.Expr) -> Cell:
        """Translate a sign, which belongs to a number that follows it: -2147483648 is an integer."""
        if (constant := _signed(node)) is not None:
            return self._number(constant, node)
        return negated(self.cell(node.this), node)

    @staticmethod
    def _number(text: str, node: exp.Expr) -> Cell:
        if not _NUMBER.fullmatch(text):
            raise Refused(node, f"the number {text}")
        return number(text)

    def _cast(self, node: exp.Expr) -> Cell:
        if node.args["to"].this == exp.DType.ARRAY:
            return self._cast_to_array(node)
        to = named_type(node.args["to"])
        inner = self.cell(node.this)
        weak = inner.name == NO_NAME or inner.weak
        made = cast(inner, to, node)
        if made.sql == inner.sql and (
            to.name != inner.type.name or to.name in _WITH_MODIFIER
        ):  # else it is no other key
            made = replace(made, sql=f"cast({made.sql} as {made.type.duckdb})")
        return made.named(to.name if weak else inner.name, weak=weak)

    def _cast_to_array(self, node: exp.Expr) -> Cell:
        kind, given = named_type(node.args["to"].expressions[0]), node.this
        if not kind.is_element:
            raise Refused(node, f"ARRAY of {kind.shown}")
        if not isinstance(given, exp.Array) or is_array_of_query(given):
            cell = self.cell(given)
            weak = cell.name == NO_NAME or cell.weak
            return cast(cell, array(kind), node).named(kind.name if weak else cell.name, weak=weak)
        elements = self._cells(given, "expressions", "value_constructor")
        whole = listed(elements, [cast(each, kind, node).sql for each in elements])
        return Cell(f"cast({whole} as {kind.duckdb}[])", array(kind), "array")

    def _parenthesised(self, node: exp.Expr) -> Cell:
        inner = self.cell(node.this)
        return inner if inner.literal is not None else replace(inner, sql=f"({inner.sql})")

    def _logical(self, node: exp.Expr) -> Cell:
        word = "and" if isinstance(node, exp.And) else "or"
        return Cell(f"({self.condition(node.this)} {word} {self.condition(node.expression)})", BOOL)

    def _is(self, node: exp.Expr) -> Cell:
        word = "is not" if node.args.get("negate") else "is"
        inner = self.cell(node.this)
        match node.expression:
            case exp.Null() as null if null.meta.get("unknown"):
                return Cell(f"({coerced(inner, BOOL, node).sql} {word} null)", BOOL)
            case exp.Null() if inner.type.may_be_row:
                hint = "PostgreSQL says so of a composite value of NULLs, too; the dialect spark tests its text."
                raise Refused(node, f"IS NULL of {inner.type.shown}", hint)
            case exp.Null():
                return Cell(f"({known(inner).sql} {word} null)", BOOL)
            case exp.Boolean() as value:
                sql = coerced(inner, BOOL, node).sql
                same = f"{sql} is not distinct from {'true' if value.this else 'false'}"
                return Cell(f"({'not ' if word == 'is not' else ''}({same}))", BOOL)
            case _:
                raise Refused(node, f"IS {node.expression.sql('postgres')}")

    def _between(self, node: exp.Expr) -> Cell:
        cell, low, high = self._cells(node, "this", "low", "high", "symmetric")
        bounds = [(low, high), (high, low)] if node.args.get("symmetric") else [(low, high)]
        within = (f"({compared('>=', cell, a, node).sql} and {compared('<=', cell, b, node).sql})" for a, b in bounds)
        return Cell(f"({' or '.join(within)})", BOOL)

    def _in(self, node: exp.Expr) -> Cell:
        query, row = node.args.get("query"), fields_of(node.this)
        if query is not None and row is not None:
            return row_in_query([self.cell(each) for each in row], self._scope.subquery(query.unnest()), node)
        if query is not None:
            return with_query("=", self.cell(node.this), self._scope.subquery(query.unnest()), node)
        if row is not None:
            rows = [self._rows_compared("=", node.this, each, node) for each in node.expressions]
            return Cell(f"({' or '.join(row.sql for row in rows)})", BOOL)
        return in_list(self.cell(node.this), [self.cell(each) for each in node.expressions], node)

    def _exists(self, node: exp.Expr) -> Cell:
        query = node.this
        if isinstance(query, exp.Select) and not query.expressions:
            query.set("expressions", [exp.Literal.number(1)])
            sql, _ = self._scope.subquery(query)
            query.set("expressions", [])
        else:
            sql, _ = self._scope.subquery(query)
        return Cell(f"exists({sql})", BOOL, "exists")

    def _scalar(self, node: exp.Expr) -> Cell:
        sql, columns = self._scope.subquery(node.this)
        if len(columns) != 1:
            raise Refused(node, "a subquery of several columns", wrong=True)
        inner = known(columns[0])
        if inner.type.loses_zeros:
            sql = f"select cast(o0 as varchar[]) from ({sql})"
        return Cell(with_zeros(f"({sql})", inner.type), inner.type, inner.name)

    def _case(self, node: exp.Expr) -> Cell:
        subject = node.args.get("this")
        default = node.args.get("default")
        results = [self.cell(each.args["true"]) for each in node.args["ifs"]]
        other = NULL if default is None else self.cell(default)
        kind = common([other, *results], node, "CASE")
        parts = []
        for each, result in zip(node.args["ifs"], results, strict=True):
            when = self.condition(each.this) if subject is None else self._matches(subject, each.this, node)
            parts.append(f"when {when} then {in_common(result, kind, node)}")
        weak = other.name == NO_NAME or other.weak
        found = Cell(f"case {' '.join(parts)} else {in_common(other, kind, node)} end", kind)
        return found.named(_UNNAMED if weak else other.name, weak=weak)

    def _matches(self, subject: exp.Expr, value: exp.Expr, node: exp.Expr) -> str:
        return compared("=", known(self.cell(subject)), self.cell(value), node).sql

    def _extreme(self, node: exp.Expr) -> Cell:
        cells = self._cells(node, "this", "expressions", "ignore_nulls")
        name = "greatest" if isinstance(node, exp.Greatest) else "least"
        kind = common(cells, node, name.upper())
        if kind == NUMERIC:
            texts = ", ".join(in_common(each, kind, node) for each in cells)
            return Cell(f"pg_{name}([{texts}])", kind, name)
        if not kind.is_comparable or kind.name in {"interval", "bpchar"} or kind.labels:
            raise Refused(node, f"{name} of {kind.shown}")
        if kind == FLOAT4:  # DuckDB's makes 0 of -0, but not for double precision
            values = ", ".join(f"cast({in_common(each, kind, node)} as double)" for each in cells)
            return Cell(f"cast({name}({values}) as float)", kind, name)
        return self._first_of(name, cells, node)

    def _first_of(self, name: str, cells: Sequence[Cell], node: exp.Expr) -> Cell:
        kind = common(cells, node, name.upper())
        return Cell(f"{name}({', '.join(in_common(each, kind, node) for each in cells)})", kind, name)

    def _nullif(self, node: exp.Expr) -> Cell:
        left, right = self._cells(node, "this", "expression")
        if left.is_unknown and right.type.name == "bpchar":
            raise Refused(node, "nullif of a literal and character", "Cast it to text.")  # whose blanks are shown
        left = coerced(left, TEXT if right.is_unknown else right.type, node) if left.is_unknown else left
        same = compared("=", left, right, node).sql
        left = _as_operand(left, right, node)
        return Cell(f"case when {same} then null else {left.sql} end", left.type, "nullif")

    def _concatenation(self, node: exp.Expr) -> Cell:
        left, right = self._cells(node, "this", "expression", "safe")
        return concatenated(left, right, node)

    def _concat(self, node: exp.Expr) -> Cell:
        cells = self._cells(node, "expressions", "safe", "coalesce")
        if not node.args.get("safe"):
            text = "".join(cell.literal or "" for cell in cells)
            return Cell(standard_literal(text), UNKNOWN, literal=text)
        if isinstance(node, exp.ConcatWs):
            return concat(cells[1:], cells[0], node).named("concat_ws")
        return concat(cells, None, node).named("concat")

    def _trim(self, node: exp.Expr) -> Cell:
        cells, sides = self._cells(node, "this", "expression", "position"), str(node.args.get("position") or "BOTH")
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(sides, "btrim")
        return trimmed(sides, cells, node).named(name)

    def _like(self, node: exp.Expr) -> Cell:
        escape = "\\"
        if isinstance(node, exp.Escape):
            if not isinstance(node.expression, exp.Literal) or len(str(node.expression.this)) != 1:
                raise Refused(node, "ESCAPE of this form")
            node, escape = node.this, str(node.expression.this)
        if isinstance(node, exp.SimilarTo) and escape not in str(node.expression.this):
            return self._similar(node)
        if not isinstance(node, exp.Like | exp.ILike):
            raise Refused(node, "ESCAPE of SIMILAR TO")
        word = ("not " if node.args.get("negate") else "") + ("ilike" if isinstance(node, exp.ILike) else "like")
        if is_quantified(node.expression):
            return self._like_quantified(word, self.cell(node.this), node.expression)
        return liked(word, self.cell(node.this), self.cell(node.expression), escape, node)

    def _like_quantified(self, word: str, left: Cell, node: exp.Expr) -> Cell:
        given = quantity(node)
        if isinstance(given, exp.Array) and not is_array_of_query(given):
            elements = self._elements(given)
        elif isinstance(given, exp.Literal):
            elements = elements_of(self.cell(given), node)
        else:
            raise Refused(node, f"{word.upper()} {construct(node)} of an array that is not written out")
        return any_or_all(node, [liked(word, left, each, "\\", node) for each in elements])

    def _regexp(self, node: exp.Expr) -> Cell:
        text = standard_literal(read_pattern(node.expression)[0])
        of = searched(self.cell(node.this), node)
        if not isinstance(node, exp.RegexpILike):
            return Cell(f"regexp_matches({of}, {text}, 's')", BOOL)
        # For DuckDB the long s is another case of s, and the kelvin sign one of k; the pattern has neither letter.
        return Cell(f"regexp_matches(translate({of}, 'ſ\u212a', 'ƀƀ'), {text}, 'si')", BOOL)  # noqa: RUF001 - meant

    def _similar(self, node: exp.Expr) -> Cell:
        pattern = standard_literal(similar_pattern(node.expression))
        return Cell(f"regexp_full_match({searched(self.cell(node.this), node)}, {pattern}, 's')", BOOL)

    def _substring(self, node: exp.Expr) -> Cell:
        """Translate substring, of places or of what a regular expression finds."""
        start = node.args.get("start")
        if not isinstance(start, exp.Literal) or not start.is_string:
            cells = self._cells(node, "this", "start", "length")
            if len(cells) > 2 and cells[1].null and cells[2].literal is not None:  # noqa: PLR2004 - perhaps patterns
                raise Refused(node, "substring from NULL for a text")
            return called("substring", cells, node).named("substring")
        if node.args.get("length") is not None:
            raise Refused(node, "substring with an escape")
        pattern, groups = read_pattern(start, finds=True)
        of, text = searched(self.cell(node.this), node), standard_literal(pattern)
        found = f"regexp_extract({of}, {text}, {groups}, 's')"
        return Cell(f"case when regexp_matches({of}, {text}, 's') then {found} end", TEXT, "substring")

    def _of_json(self, node: exp.Expr) -> Cell:
        op = OPERATORS[type(node)]
        left = self.cell(node.this)
        right = self._texts(node.expression) if op in OF_TEXTS else self.cell(node.expression)
        return operate_on_json(op, left, right, node)

    def _texts(self, node: exp.Expr) -> Cell:
        """Translate an array of texts, which may be a literal."""
        found = self.cell(node)
        found = literal(found, array(TEXT), node) if found.is_unknown else found
        if found.type.element is None or not found.type.element.is_text:
            raise Refused(node, f"{found.type.shown} where text[] is needed", wrong=True)
        return found

    def _interval(self, node: exp.Expr) -> Cell:
        unit = node.args.get("unit")
        text = str(node.this.this) if isinstance(node.this, exp.Literal) else ""
        if unit is not None and not (_UNIT_COUNT if unit.name.lower() != "second" else _NUMBER).fullmatch(text.strip()):
            raise Refused(node, f"the interval {text!r} of {unit.sql('postgres').lower()}", "Write interval '1 day'.")
        if isinstance(unit, exp.IntervalSpan):  # it leaves parts of a text out
            raise Refused(node, f"an interval of {unit.sql('postgres').lower()}", "Write interval '1 day 02:30'.")
        try:
            return Cell(interval(f"{text} {unit.name.lower()}" if unit is not None else text), INTERVAL, "interval")
        except ValueError:
            raise Refused(node, f"the interval {text!r}", "Write it as '1 day 02:30:00'.") from None

    def _extract(self, node: exp.Expr) -> Cell:
        return extracted(node.this.name.lower(), self.cell(node.expression), node).named("extract")

    def _now(self, node: exp.Expr) -> Cell:
        at = self._scope.now.astimezone(UTC).replace(tzinfo=None)
        text = standard_literal(at.isoformat(" "))
        match node:
            case exp.CurrentDate():
                return Cell(f"date {standard_literal(at.date().isoformat())}", DATE, "current_date")
            case exp.Localtimestamp():
                return Cell(f"timestamp {text}", TIMESTAMP, "localtimestamp")
            case _:
                return Cell(f"timestamp {text}", TIMESTAMPTZ, spelled(node, "current_timestamp"))

    def _zoned(self, node: exp.Expr) -> Cell:
        cell, zone = self.cell(node.this), node.args["zone"]
        if not isinstance(zone, exp.Literal):
            raise Refused(node, "AT TIME ZONE of an expression", "Write the zone: at time zone 'Europe/Paris'.")
        return zoned(str(zone.this), cell, node).named("timezone")

    def _subscript(self, node: exp.Expr) -> Cell:
        if isinstance(node.this, exp.Array):
            raise Refused(node, "a subscript of ARRAY without parentheses", wrong=True)
        cell, place = self.cell(node.this), node.expressions[0]
        element = cell.type.element
        if element is None or len(node.expressions) != 1:
            raise Refused(node, f"a subscript of {cell.type.shown} of this form", "Write a number: tags[1].")
        if isinstance(place, exp.Slice):
            ends = [_place(each, node) for each in (place.this, place.expression)]
            return Cell(f"list_slice({cell.sql}, {ends[0] or 1}, {ends[1] or _LONGEST})", cell.type).named(
                cell.name, weak=cell.weak
            )
        index = self.cell(place)
        at = (cast if index.type.is_number else coerced)(index, INT4, node).sql
        found = f"cast(list_extract({cell.sql}, nullif(greatest({at}, 0), 0)) as {element.duckdb})"
        return Cell(found, element).named(cell.name, weak=cell.weak)

    def _collated(self, node: exp.Expr) -> Cell:
        named = node.expression.this if isinstance(node.expression, exp.Column) else node.expression
        if folded(named) not in _BY_CODE_POINTS:
            raise Refused(node, f"COLLATE {node.expression.sql('postgres')}", "Texts sort by code points.")
        cell = self.cell(node.this)
        if not (cell.is_unknown or cell.type.is_text):
            raise Refused(
                node,
                f"COLLATE of {cell.type.shown}",
                wrong=not (cell.type.element or isinstance(node.this, exp.AtTimeZone)),
            )
        if folded(named) != "pg_c_utf8" and any(map(_maps_case, _with_collation(node))):
            what = f"COLLATE {node.expression.sql('postgres')} beside a function of upper and lower case"
            raise Refused(node, what, "By it they know ASCII only.")
        return cell

    def _elements(self, node: exp.Expr) -> list[Cell]:
        """Translate the elements of ARRAY[…], of which there is one or more if no cast says their type."""
        if cells := self._cells(node, "expressions", "value_constructor"):
            return cells
        raise Refused(node, "cannot determine the type of an empty array", "Write array[]::text[].", wrong=True)

    def _array(self, node: exp.Expr) -> Cell:
        if is_array_of_query(node):
            sql, columns = self._scope.subquery(node.expressions[0])
            kind = known(columns[0]).type
            if len(columns) != 1 or not kind.is_element:
                raise Refused(node, f"ARRAY of a query of {kind.shown}")
            if array(kind).loses_zeros:
                raise Refused(node, f"ARRAY of a query of {kind.shown}", "Write (select array_agg(…) from …).")
            return Cell(f"coalesce(array({sql}), cast([] as {kind.duckdb}[]))", array(kind), "array")
        cells = self._elements(node)
        kind = common(cells, node, "ARRAY")
        if not kind.is_element:
            raise Refused(node, f"ARRAY of {kind.shown}")
        return Cell(listed(cells, [in_common(each, kind, node) for each in cells]), array(kind), "array")

    def _grouping(self, node: exp.Expr) -> Cell:
        if not self._aggregates:
            raise Refused(node, "GROUPING here", wrong=True)
        keys = ", ".join(cell.sql for cell in self._cells(node, "expressions"))
        return Cell(f"cast(grouping({keys}) as integer)", INT4, "grouping")

    def _aggregate(self, node: exp.Expr) -> Cell:
        return self._aggregated(node, None, None)

    def _within_group(self, node: exp.Expr, condition: exp.Expr | None = None) -> Cell:
        self._check_aggregate(node, None)
        inner = Expressions(self._scope, aggregates=False)
        return percentile(node, inner.cell, None if condition is None else inner.condition(condition))

    def _filtered(self, node: exp.Expr) -> Cell:
        if isinstance(node.this, exp.WithinGroup):
            return self._within_group(node.this, node.expression.this)
        return self._aggregated(node.this, node.expression.this, None)

    def _aggregated(self, node: exp.Expr, condition: exp.Expr | None, frame: Frame | None) -> Cell:
        self._check_aggregate(node, frame)
        outside = Expressions(self._scope, aggregates=frame is not None and self._aggregates, windows=False)
        if frame is not None:
            outside.written = self.written
        where = None if condition is None else outside.condition(condition)
        return aggregate(node, outside.cell, outside.ordered, where, frame)

    def _check_aggregate(self, node: exp.Expr, frame: Frame | None) -> None:
        columns = list(node.find_all(exp.Column))
        if columns and all(map(self._scope.is_outer, columns)):  # PostgreSQL computes it in the query around this one
            raise Refused(node, "an aggregate of columns of an outer query")
        if not self._aggregates and frame is None:
            raise Refused(node, "an aggregate here", wrong=True)
        self.aggregated += 1

    def _window(self, node: exp.Expr) -> Cell:
        if not self._windows:
            raise Refused(node, "a window function here", wrong=True)
        within = Expressions(self._scope, aggregates=self._aggregates, windows=False)
        within.written = self.written
        frame, inner = within._frame(node), node.this
        self.aggregated += 1
        if type(inner) in WINDOWS:
            return window_function(inner, within.cell, frame)
        if isinstance(inner, exp.Filter):
            return self._aggregated(inner.this, inner.expression.this, frame)
        if type(inner) in AGGREGATES or (isinstance(inner, exp.Anonymous) and inner.name.lower() in AGGREGATES):
            return self._aggregated(inner, None, frame)
        raise Refused(node, f"{construct(inner)} with OVER")

    def _frame(self, node: exp.Expr) -> Frame:
        partition, order, spec = _parts_of_window(node)
        if (alias := node.args.get("alias")) is not None:
            partition, order, spec = self._extended(node, alias)
        by = [sort_key(self.cell(each), each) for each in partition or []]
        terms = [] if order is None else order.expressions
        cells = with_offsets(spec, terms, [self.cell(each.this) for each in terms])
        keys = [self.ordered(*pair) for pair in zip(terms, cells, strict=True)]
        text = frame_text(spec, self.cell, cells)
        if not keys and text.startswith(" groups"):
            raise Refused(node, "GROUPS of a window without ORDER BY", wrong=True)
        return Frame(by, keys, text, has_few_rows(spec))

    def _extended(self, node: exp.Expr, alias: exp.Expr) -> _PartsOfWindow:
        """Return partition, order and frame of a window that a name means, with what is added to it."""
        found = self._scope.window(alias)
        if found is None:
            raise Refused(node, f"the window {alias.name} does not exist", wrong=True)
        by, order, spec = self._extended(found, of) if (of := found.args.get("alias")) else _parts_of_window(found)
        if node.args.get("partition_by") or (order is not None and node.args.get("order") is not None):
            raise Refused(node, f"PARTITION BY or a second ORDER BY for the window {alias.name}", wrong=True)
        own = [node.args.get(name) for name in ("order", "spec")]
        if spec is not None and (node.meta.get("copied") or any(each is not None for each in own)):
            raise Refused(node, f"the window {alias.name}, which has a frame, with more", wrong=True)
        return by, order or own[0], spec or own[1]

    def ordered(self, node: exp.Expr, cell: Cell) -> str:
        """Return a key of an ORDER BY: NULL sorts as the largest value."""
        way = "desc" if node.args.get("desc") else "asc"
        nulls = "first" if node.args.get("nulls_first") else "last"
        return f"{sort_key(cell, node)} {way} nulls {nulls}"

    _NODES: ClassVar[dict[type[exp.Expr], Callable[["Expressions", Any], Cell]]] = {
        exp.Column: lambda self, node: self._scope.column(node),
        exp.Null: lambda _, __: NULL,
        exp.Literal: _literal,
        exp.Boolean: lambda _, node: Cell("true" if node.this else "false", BOOL),
        exp.Cast: _cast,
        exp.Paren: _parenthesised,
        **dict.fromkeys((exp.And, exp.Or), _logical),
        exp.Not: lambda self, node: Cell(f"(not {self.condition(node.this)})", BOOL),
        exp.Neg: _negated,
        exp.Is: _is,
        exp.Between: _between,
        exp.In: _in,
        exp.Exists: _exists,
        exp.Subquery: _scalar,
        exp.Case: _case,
        exp.Coalesce: lambda self, node: self._first_of("coalesce", self._cells(node, "this", "expressions"), node),
        **dict.fromkeys((exp.Greatest, exp.Least), _extreme),
        exp.Nullif: _nullif,
        exp.DPipe: _concatenation,
        **dict.fromkeys((exp.Concat, exp.ConcatWs), _concat),
        exp.Trim: _trim,
        **dict.fromkeys((exp.Like, exp.ILike, exp.Escape), _like),
        **dict.fromkeys((exp.RegexpLike, exp.RegexpILike), _regexp),
        exp.SimilarTo: _similar,
        exp.Interval: _interval,
        exp.Extract: _extract,
        **dict.fromkeys((exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp), _now),
        exp.AtTimeZone: _zoned,
        exp.Array: _array,
        exp.Bracket: _subscript,
        exp.Collate: _collated,
        exp.Substring: _substring,
        exp.Anonymous: _anonymous,
        exp.Grouping: _grouping,
        exp.Filter: _filtered,
        exp.Window: _window,
        exp.WithinGroup: _within_group,
        **dict.fromkeys(SIGNS, _arithmetic),
        **dict.fromkeys(COMPARISONS, _comparison),
        **dict.fromkeys(_OPERATORS, _operator),
        exp.StrPosition: _position,
        exp.Overlay: _overlay,
        **dict.fromkeys(OPERATORS, _of_json),
        **dict.fromkeys((each for each in AGGREGATES if isinstance(each, type)), _aggregate),
    }
    """The translation of each node."""


def _signed(node: exp.Expr) -> str | None:
    """Return the text of a number with its signs; None for another expression."""
    if isinstance(node, exp.Paren):
        return _signed(node.this)
    if isinstance(node, exp.Neg):
        inner = _signed(node.this)
        return None if inner is None else inner[1:] if inner.startswith("-") else f"-{inner}"
    return str(node.this) if isinstance(node, exp.Literal) and not node.is_string else None


def _with_collation(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield what may have the collation of a node: what it is in, and of a subquery, whose columns keep it, all."""
    queries, above = 0, node.parent
    while above is not None:
        yield above
        queries += isinstance(above, exp.Query)
        above = above.parent
    if queries > 1:
        yield from node.root().walk()


def _maps_case(node: exp.Expr) -> bool:
    is_call = isinstance(node, exp.Anonymous) and node.name.lower() in {"lower", "upper", "initcap"}
    return is_call or isinstance(node, exp.ILike | exp.RegexpILike)


def _parts_of_window(node: exp.Expr) -> _PartsOfWindow:
    """Return partition, order and frame of a window."""
    return node.args.get("partition_by"), node.args.get("order"), node.args.get("spec")


def _place(node: exp.Expr | None, array_: exp.Expr) -> str:
    """Return a bound of a slice, empty if there is none."""
    if node is None:
        return ""
    if not isinstance(node, exp.Literal) or not re.fullmatch("[1-9][0-9]{0,8}", str(node.this)):
        raise Refused(array_, "a bound of an array that is not a number from 1 on")
    return str(node.this)


def _as_operand(left: Cell, right: Cell, node: exp.Expr) -> Cell:
    """Return the left operand of = as its operator takes it: varchar as text, integers beside others than those."""
    names = {left.type.name, right.type.name}
    if left.type.name == "varchar" or names == {"bpchar", "text"}:
        return Cell(left.sql, TEXT)
    as_is = left.type in {FLOAT4, FLOAT8} or names <= set(INTEGERS) or names == {"numeric"}
    if as_is or not names <= set(NUMBERS):
        return left
    kind = common((left, right), node, COMPARISON)
    return Cell(in_common(left, kind, node), kind)
