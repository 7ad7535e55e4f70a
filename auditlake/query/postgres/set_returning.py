"""Set-returning functions: generate_series, unnest and those of jsonb, in FROM and in SELECT. Pure.

Authority: postgresql.org/docs/current/functions-srf.html
"""

from dataclasses import dataclass, replace

from sqlglot import exp

from auditlake.query.postgres.cells import Cell, Refused, construct
from auditlake.query.postgres.conversions import coerced, common, failed, parts_of
from auditlake.query.postgres.expressions import Expressions
from auditlake.query.postgres.growth import MOST_ELEMENTS
from auditlake.query.postgres.types import INT2, INT8, INTERVAL, JSONB, TEXT, Type
from auditlake.sql_names import standard_literal

BOTH_WAYS = "a step forth and back\n"
_NO_STEP = failed("step size cannot equal zero")
_TOO_LONG = failed(f"a series in SELECT would have more than {MOST_ELEMENTS:,} values; write it in FROM")


_OF_DOCUMENTS: dict[str, tuple[tuple[str, str, Type], ...]] = {
    "jsonb_array_elements": (("pg_json_elements", "value", JSONB),),
    "jsonb_array_elements_text": (("pg_json_element_texts", "value", TEXT),),
    "jsonb_object_keys": (("pg_json_keys", "jsonb_object_keys", TEXT),),
    "jsonb_each": (("pg_json_keys", "key", TEXT), ("pg_json_members", "value", JSONB)),
    "jsonb_each_text": (("pg_json_keys", "key", TEXT), ("pg_json_member_texts", "value", TEXT)),
}
"""For each function of a jsonb a list of values for each column."""


def is_unnested(node: exp.Expr) -> bool:
    """Return whether a node is a function whose rows are elements of lists."""
    is_call = isinstance(node, exp.Anonymous) and node.name.lower() in _OF_DOCUMENTS
    return is_call or isinstance(node, exp.Unnest | exp.Explode)


def unnested(expressions: Expressions, node: exp.Expr, *, ordinality: bool = False) -> list[Cell]:
    """Translate unnest of arrays, or a function of a jsonb, to columns; the last of `ordinality` is a number."""
    if isinstance(node, exp.Anonymous):
        if len(node.expressions) != 1:
            raise Refused(node, f"{construct(node)} of several arguments", wrong=True)
        document = coerced(expressions.cell(node.expressions[0]), JSONB, node).sql
        lists = [Cell(f"{f}({document})", kind, name) for f, name, kind in _OF_DOCUMENTS[node.name.lower()]]
    else:
        if isinstance(node, exp.Explode) and node.expressions:
            raise Refused(node, "unnest of several arrays outside of FROM", wrong=True)
        arrays = [expressions.cell(each) for each in node.expressions or [node.this]]
        lists = [Cell(each.sql, _element(each, node), "unnest") for each in arrays]
    cells = [replace(each, sql=f"unnest({each.sql})") for each in lists]
    if ordinality:
        longest = f"greatest({', '.join(f'len({each.sql})' for each in lists)}, 0)"
        cells.append(Cell(f"unnest(generate_series(1, {longest}))", INT8, "ordinality"))
    return cells


def _element(array: Cell, node: exp.Expr) -> Type:
    element = array.type.element
    if element is None or element.name in {"timestamptz", "bpchar"}:
        raise Refused(node, f"unnest of {array.type.shown}")
    return element


@dataclass(frozen=True, slots=True)
class Series:
    """Arguments of DuckDB's generate_series, and the type of its values; `length` is SQL for their number, less one."""

    start: str
    end: str
    step: str
    zero: str
    length: str
    type: Type
    mixed: str = "false"
    """Whether the step has parts of both signs, which DuckDB does not add."""

    @property
    def _checks(self) -> str:
        both_ways = f"error({standard_literal(BOTH_WAYS)})"
        return f"when {self.step} = {self.zero} then {_NO_STEP} when {self.mixed} then {both_ways}"

    @property
    def rows(self) -> str:
        """A query of the values, which DuckDB does not hold all at once."""
        step = f"case {self._checks} else {self.step} end"
        call = f"generate_series({self.start}, {self.end}, {step})"
        return f"select cast(each as {self.type.duckdb}) as o0 from {call} of_series(each)"

    @property
    def listed(self) -> str:
        """A list of the values; a long one fails."""
        step = f"case {self._checks} when {self.length} >= {MOST_ELEMENTS} then {_TOO_LONG} else {self.step} end"
        return f"generate_series({self.start}, {self.end}, {step})"

    @property
    def unnested(self) -> str:
        """The values as a set of rows in SELECT, which DuckDB holds in a list."""
        return f"cast(unnest({self.listed}) as {self.type.duckdb})"


def series_of(expressions: Expressions, node: exp.Expr) -> Series:
    """Translate generate_series of whole numbers, or of times by an interval."""
    cells = [expressions.cell(node.args[each]) for each in ("start", "end", "step") if node.args.get(each)]
    first, last, *step = cells
    if first.type.is_integer:
        kind = common(cells, node, "generate_series")
        if not kind.is_integer or kind == INT2:  # for PostgreSQL, smallint may be any of the wider types
            raise Refused(node, f"generate_series of {kind.shown}", wrong=kind == INT2)
        start, end = (f"cast({coerced(cell, kind, node).sql} as bigint)" for cell in (first, last))
        by = f"cast({coerced(step[0], kind, node).sql} as bigint)" if step else "1"
        length = f"(cast({end} as hugeint) - {start}) // {by}"
        return Series(start, end, by, "0", length, kind)
    if first.type.is_time and len(step) == 1:
        by = coerced(step[0], INTERVAL, node).sql
        kind = Type("timestamp") if "timestamp" in {first.type.name, last.type.name} else Type("timestamptz")
        start, end = (f"cast({coerced(cell, kind, node).sql} as timestamp)" for cell in (first, last))
        length = f"(epoch({end}) - epoch({start})) / epoch({by})"
        parts = ", ".join(parts_of(by))
        mixed = f"least({parts}) < 0 and greatest({parts}) > 0"
        return Series(start, end, by, "interval '0 days'", length, kind, mixed)
    raise Refused(node, f"generate_series({', '.join(cell.type.shown for cell in cells)})")
