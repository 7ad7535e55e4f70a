"""Rewrite a statement: replace names of tables by names of views, and leave every other token as it was.

    select o.id from public.orders for system_time as of '-2h' o join customers using (id)
    select o.id from v0 o join v1 as `customers` using (id)

Each view is one Reading: a table with its period. Names of common table expressions are not tables, by Spark's rule:
inside WITH only the earlier ones are visible (all of them under RECURSIVE). A table without an alias gets its own name
as alias, and a column qualified with a schema (`public.orders.id`) loses the schema.

The result is composed from the tokens of the canonical text (`query.lexical`), so no engine ever gets the text that was
typed: not its comments, hints and escapes. Its tree has been checked, and so has each call (`query.functions`).

Only reading is allowed: a query, EXPLAIN and DESCRIBE of one, DESCRIBE of a table, SHOW TABLES. Not SET, because the
fold of a tail runs in the same session and would be evaluated by other rules. A table is one of the lake, a common
table expression, a view of the session, VALUES, a subquery or a listed function. Pure.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlglot import Token, exp

from auditlake.errors import BadUsage
from auditlake.query.dialect import QUERY_STARTS, READ_ONLY, first_word, parse_query, require_start, spark_tokens
from auditlake.query.functions import EXACT_TEXT, check_calls
from auditlake.query.lexical import canonical_sql, tokens_of
from auditlake.query.system_time import Period, PeriodForm, Reading
from auditlake.relation import SYSTEM_SCHEMA, TableName
from auditlake.sql_names import spark_identifier, spark_literal
from auditlake.temporal.table_lookup import SYSTEM_TABLES, check_copied, find_table
from auditlake.temporal.when import parse_when

_EXPLAIN = re.compile(r"explain(\s+(extended|codegen|cost|formatted))?(?![\w])", re.IGNORECASE)
_DESCRIBE = re.compile(r"desc(ribe)?(\s+(table|query))?(\s+(extended|formatted))?(?![\w])", re.IGNORECASE)
_SHOW_TABLES = re.compile(r"\s*show\s+tables\s*;?\s*", re.IGNORECASE)
_WITH_SCHEMA = 3


@dataclass(frozen=True, slots=True)
class NamedTables:
    """Tables that a statement may name, the `now` of its relative times, and the prefix of its views' names."""

    tables: tuple[TableName, ...]
    now: datetime
    prefix: str
    copying: tuple[TableName, ...] = ()
    defined: frozenset[str] = frozenset()
    """Views that the user defined in the session, in lower case; they hide tables named without a schema."""
    in_doubt: tuple[TableName, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A statement for Spark, and the reading that each of its views shows."""

    sql: str
    views: dict[str, Reading]
    exact: bool = False
    """Whether it calls `exact_text`, which needs the `_raw` of a state."""


def rewrite(sql: str, names: NamedTables) -> Rewritten:
    """Rewrite one statement; raises BadUsage if it is malformed, does not just read, or names an unknown table."""
    sql = canonical_sql(sql)
    if _SHOW_TABLES.fullmatch(sql):
        return Rewritten(_list_tables(names.tables), {})
    tokens = spark_tokens(sql)
    start = tokens[0].start if tokens else 0
    if match := _EXPLAIN.match(sql, start):
        return _Rewriter(sql, names).query(spark_tokens(_blank(sql, start, match.end())))
    if match := _DESCRIBE.match(sql, start):
        return _describe(sql, names, match)
    return _Rewriter(sql, names).query(tokens)


def _describe(sql: str, names: NamedTables, head: re.Match[str]) -> Rewritten:
    text = _blank(sql, head.start(), head.end())
    if first_word(spark_tokens(text)) in QUERY_STARTS:
        return _Rewriter(sql, names).query(spark_tokens(text))
    # A table alone is not a query; FROM in place of DESC makes it one without moving an offset.
    text = text[: head.start()] + "from" + text[head.start() + len("from") :]
    return _Rewriter(sql, names, aliases=False).query(spark_tokens(text))


def _blank(sql: str, start: int, end: int) -> str:
    """Replace a part by spaces, so that the parser skips it and the rest keeps its offsets and lines."""
    return sql[:start] + re.sub(r"\S", " ", sql[start:end]) + sql[end:]


def _list_tables(tables: Sequence[TableName]) -> str:
    rows = ", ".join(
        f"({spark_literal(name.schema)}, {spark_literal(name.table)})" for name in (*tables, *SYSTEM_TABLES)
    )
    return f"select * from values {rows} as tables(`schema`, `table`)"


@dataclass(frozen=True, slots=True)
class _Edit:
    """Replace `sql[start:end]`."""

    start: int
    end: int
    text: str


class _Rewriter:
    """Edits and views of one statement, collected while its tree is walked."""

    def __init__(self, sql: str, names: NamedTables, *, aliases: bool = True) -> None:
        self._sql = sql
        self._names = names
        self._aliases = aliases
        self._edits: list[_Edit] = []
        self._views: dict[Reading, str] = {}
        self._unaliased: set[tuple[str, str]] = set()

    def query(self, tokens: list[Token]) -> Rewritten:
        require_start(tokens, QUERY_STARTS, READ_ONLY)
        tree = parse_query(self._sql, tokens)
        check_calls(tokens_of(self._sql), {start for each in tree.find_all(exp.TableAlias) for start in _named(each)})
        for table in tree.find_all(exp.Table):
            if isinstance(table.this, exp.Identifier):
                self._table(table)
            elif not isinstance(table.this, exp.Func):
                raise BadUsage(f"{table.sql('spark')} is not a table of the lake", READ_ONLY)
        for column in tree.find_all(exp.Column):
            self._column(column)
        calls = [call for call in tree.find_all(exp.Anonymous) if call.name.casefold() == EXACT_TEXT]
        for call in calls:
            self._exact_text(call)
        return Rewritten(self._spliced(), {name: reading for reading, name in self._views.items()}, bool(calls))

    def _table(self, table: exp.Table) -> None:
        parts, version = table.parts, table.args.get("version")
        if len(parts) == 1 and (is_query_of_with(table) or table.name.casefold() in self._names.defined):
            if version is not None:
                raise BadUsage(f"FOR SYSTEM_TIME on {table.name}, the name of a query", "Put it on the tables inside.")
            return
        asked = [part.name for part in parts]
        check_copied(asked, self._names.copying, self._names.tables)
        name = find_table(asked, self._names.tables, self._names.in_doubt)
        start, end = self._offset(parts[0], "start"), self._offset(parts[-1], "end")
        if self._sql[start] in "\"'":
            raise BadUsage(
                f"{self._sql[start : end + 1]} is a string in Spark SQL", "Quote names with backticks: `Name`."
            )
        view = self._view(Reading(name, None if version is None else period_of(version, name, self._names.now)))
        self._edits.append(_Edit(start, end + 1, view))
        if version is not None:
            start, end = version.meta["start"], version.meta["end"]
            self._edits.append(_Edit(start, end + 1, ""))
        if not table.alias and self._aliases:
            self._keep_name(table, name, end + 1)

    def _keep_name(self, table: exp.Table, name: TableName, after: int) -> None:
        """Alias a table with the name that the statement uses."""
        if sample := table.args.get("sample"):
            after = sample.meta["end"] + 1
        self._edits.append(_Edit(after, after, f" as {spark_identifier(table.name)}"))
        self._unaliased.add((name.schema.casefold(), name.table.casefold()))

    def _column(self, column: exp.Column) -> None:
        """Rewrite `public.orders.id` to `orders.id`, if that table has no alias of its own."""
        parts = column.parts
        if len(parts) < _WITH_SCHEMA:
            return
        if (parts[0].name.casefold(), parts[1].name.casefold()) in self._unaliased:
            self._edits.append(_Edit(self._offset(parts[0], "start"), self._offset(parts[1], "start"), ""))

    def _exact_text(self, call: exp.Anonymous) -> None:
        """Rewrite `exact_text(o.price)` to `exact_text(o.price, o._raw, 'price')`."""
        match call.expressions:
            case [exp.Column() as column]:
                *_, name = parts = column.parts
                table = (
                    "" if len(parts) == 1 else self._sql[self._offset(parts[-2], "start") : self._offset(name, "start")]
                )
                end = self._offset(name, "end") + 1
                self._edits.append(_Edit(end, end, f", {table}_raw, {spark_literal(name.name)}"))
            case [_, _, _]:
                pass
            case _:
                raise BadUsage("exact_text takes a column", "Write exact_text(price), or exact_text(o.price).")

    def _view(self, reading: Reading) -> str:
        return self._views.setdefault(reading, f"{self._names.prefix}{len(self._views)}")

    def _offset(self, part: exp.Expr, end: str) -> int:
        offset = part.meta.get(end)
        if not isinstance(offset, int):
            raise BadUsage(f"cannot find the position of {part.name} in the SQL", "Write the query in a simpler form.")
        return offset

    def _spliced(self) -> str:
        pieces, done = [], 0
        for edit in sorted(self._edits, key=lambda edit: (edit.start, edit.end)):
            pieces += [self._sql[done : edit.start], edit.text]
            done = edit.end
        return "".join([*pieces, self._sql[done:]])


def period_of(version: exp.Version, name: TableName, now: datetime) -> Period:
    """Return the period of FOR SYSTEM_TIME; raises BadUsage for a log or a malformed moment."""
    if name.schema == SYSTEM_SCHEMA:
        raise BadUsage(f"{name} has no system time", "It is a log: filter it by its column lsn.")
    moments = (parse_when(moment.name, now) for moment in version.expression.expressions)
    return Period(PeriodForm(version.args["kind"]), tuple(moments))


def _named(alias: exp.TableAlias) -> Iterator[int]:
    """Yield the offset of an alias that names its columns."""
    if alias.columns and isinstance(alias.this, exp.Identifier):
        yield alias.this.meta["start"]


def is_query_of_with(table: exp.Table) -> bool:
    """Return whether a name means a common table expression."""
    name, node = table.name.casefold(), table.parent
    came_from: exp.Expr = table
    while node is not None:
        if isinstance(node, exp.With):
            known = node.expressions if node.recursive else node.expressions[: node.expressions.index(came_from)]
        else:
            with_ = node.args.get("with_")
            known = [] if with_ is None or with_ is came_from else with_.expressions
        if any(cte.alias.casefold() == name for cte in known):
            return True
        came_from, node = node, node.parent
    return False
