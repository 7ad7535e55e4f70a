"""Spark SQL with `FOR SYSTEM_TIME`: sqlglot's Spark parser, extended by SQL:2011 periods and by offsets.

sqlglot reads canonical texts (`query.lexical`), which its lexer and Spark's divide into the same tokens. It only finds
which identifiers of a statement name tables, and their offsets. Its generated SQL is never used, because that changes
what a statement means (`a[0]`, `interval 1 year 2 months`, INTERSECT after UNION); a statement that sqlglot cannot
parse is BadUsage, even if Spark could parse it.

A parsed table's `version` is an `exp.Version` with `kind` (`AS OF`, `FROM`, `BETWEEN`, `CONTAINED IN`, `ALL`) and the
texts of its moments; its meta, like that of a `sample`, has `start` and `end`: offsets into the text, both inclusive.
It is accepted before the table's alias, as in SQL:2011, MariaDB and Db2, or after it.

Delta's own `TIMESTAMP AS OF` and `VERSION AS OF` are refused: on a history they select the rows loaded by then, not
those valid then.
"""

import re
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.parsers.spark import SparkParser

from auditlake.errors import BadUsage

QUERY_STARTS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "("})
"""First tokens of queries, in upper case."""

_WRITES = (exp.DML, exp.DDL, exp.Command, exp.Into, exp.QueryTransform)
_SPARK = Spark()
NAME_ONE = "Name one, or ask for count(*)."
READ_ONLY = "Write a query, or EXPLAIN, DESCRIBE or SHOW TABLES: nothing here changes a lake."
_HINT = (
    "The SQL is Spark's; the dialect postgres reads PostgreSQL's. "
    "FOR SYSTEM_TIME goes right after the name of a table, or after its alias."
)
SIGNS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
"""Arithmetic operators, written alike in Spark, PostgreSQL and DuckDB."""
COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "is not distinct from",
    exp.NullSafeNEQ: "is distinct from",
}
"""Comparison operators as DuckDB writes them."""
_DELTA_CLAUSES = ("TIMESTAMP", "VERSION", "SYSTEM_TIME", "SYSTEM_VERSION")


def spark_tokens(sql: str) -> list[Token]:
    """Split a canonical text into tokens; raises BadUsage if a string, quoted name or comment does not end."""
    try:
        return _SPARK.tokenize(sql)
    except TokenError as exc:
        line = sql.count("\n", 0, exc.end or 0) + 1
        raise BadUsage(f"cannot read the SQL up to line {line}: a quote or a comment does not end", _HINT) from exc


def split_at_semicolons(script: str, tokens: Iterable[Token]) -> list[str]:
    """Split a script, which these tokens are, into its statements, leaving out the empty ones; each keeps its place."""
    statements, start, filled = [], 0, False
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            filled = True
            continue
        if filled:
            statements.append(placed(script, start, token.start))
        start, filled = token.end + 1, False
    return [*statements, placed(script, start, len(script))] if filled else statements


def placed(script: str, start: int, end: int) -> str:
    """Return a part of a script at its place: all before it is blank."""
    return re.sub(r"\S", " ", script[:start]) + script[start:end]


def parse_query(sql: str, tokens: list[Token]) -> exp.Expr:
    """Parse the one query in `sql` that `tokens` are; raises BadUsage if it cannot be parsed, or as `one_query`."""
    return one_query(_parse(sql, tokens), tokens, _HINT, READ_ONLY)


@contextmanager
def nested() -> Iterator[None]:
    """Read a statement in the block or the function; raises BadUsage if it is nested deeper than Python calls."""
    try:
        yield
    except RecursionError:
        raise BadUsage("the SQL is nested too deep", "Write the query in a simpler form.") from None


def first_word(tokens: Sequence[Token]) -> str:
    """Return the first token in upper case; empty without one."""
    return tokens[0].text.upper() if tokens else ""


def require_start(tokens: Sequence[Token], starts: Container[str], hint: str) -> None:
    """Require that a statement begins as queries do; raises BadUsage with this hint."""
    word = first_word(tokens)
    if word not in starts:
        raise BadUsage(f"{word} is not a query" if word else "the SQL is empty", hint)


def one_query(trees: Iterable[exp.Expr | None], tokens: Sequence[Token], hint: str, read_only: str) -> exp.Expr:
    """Return the one statement of a text, a query that changes nothing; raises BadUsage with one of these hints."""
    statements = [tree for tree in trees if tree is not None and not isinstance(tree, exp.Semicolon)]
    if len(statements) != 1:
        raise BadUsage(f"the SQL is {len(statements)} statements, need one", hint)
    if not isinstance(statements[0], exp.Query | exp.Values) or statements[0].find(*_WRITES):
        raise BadUsage(f"this {first_word(tokens)} does more than read", read_only)
    return statements[0]


def _parse(sql: str, tokens: list[Token]) -> list[exp.Expr | None]:
    try:
        return _Parser(dialect=_SPARK, error_level=ErrorLevel.IMMEDIATE).parse(tokens, sql)
    except ParseError as exc:
        raise bad_syntax(exc, _HINT) from exc


def place_in(sql: str, offset: int) -> str:
    """Return line and column of an offset."""
    return f"line {sql.count(chr(10), 0, offset) + 1}, column {offset - sql.rfind(chr(10), 0, offset)}"


def bad_syntax(exc: ParseError, hint: str) -> BadUsage:
    """Return the error for a statement that cannot be parsed, with its place."""
    error = exc.errors[0]
    near = str(error["highlight"] or "").split("\n")[0]
    # sqlglot counts the column at the token's end, from 1.
    column = max(1, int(error["col"]) - len(near) + 1)
    what = re.sub(r"<Token .*?>", "something else", str(error["description"]).split("\n")[0])
    return BadUsage(
        f"cannot parse the SQL at line {error['line']}, column {column}, near {near!r}: {what[:1].lower()}{what[1:]}",
        hint,
    )


class Periods(Parser):
    """FOR SYSTEM_TIME after a table, before its alias or after it; a part of a dialect's parser."""

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        alias = super()._parse_table_alias(alias_tokens)
        if alias is not None and (version := self._parse_version()):
            alias.meta["version"] = version
        return alias

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:  # noqa: ANN401 - sqlglot's parameters
        parsed = super()._parse_table(*args, **kwargs)
        if parsed is not None and (alias := parsed.args.get("alias")) and (version := alias.meta.get("version")):
            if not isinstance(parsed, exp.Table) or not isinstance(parsed.this, exp.Identifier):
                raise BadUsage(f"FOR SYSTEM_TIME on {alias.name}, which is not a table", "Put it on the tables inside.")
            if parsed.args.get("version") is not None:
                raise BadUsage(f"FOR SYSTEM_TIME twice on {parsed.name}", "A table is read at one moment or period.")
            parsed.set("version", version)
        return parsed

    def _parse_version(self) -> exp.Version | None:
        first = self._curr
        if self._match_text_seq("FOR", "SYSTEM_TIME"):
            kind, moments = self._period()
            version = self.expression(
                exp.Version(this="SYSTEM_TIME", kind=kind, expression=exp.Tuple(expressions=moments))
            )
            version.meta.update(start=first.start, end=self._prev.end)
            return version
        self._refuse_delta_time_travel()
        return None

    def _period(self) -> tuple[str, list[exp.Expr]]:
        if self._match_text_seq("AS", "OF"):
            return "AS OF", [self._moment()]
        if self._match_text_seq("FROM"):
            return "FROM", self._two_moments("TO")
        if self._match_text_seq("BETWEEN"):
            return "BETWEEN", self._two_moments("AND")
        if self._match_text_seq("CONTAINED", "IN"):
            self._need("(")
            moments = self._two_moments(",")
            self._need(")")
            return "CONTAINED IN", moments
        if not self._match_text_seq("ALL"):
            self.raise_error("expected AS OF, FROM, BETWEEN, CONTAINED IN or ALL after FOR SYSTEM_TIME")
        return "ALL", []

    def _two_moments(self, separator: str) -> list[exp.Expr]:
        start = self._moment()
        self._need(separator)
        return [start, self._moment()]

    def _moment(self) -> exp.Expr:
        self._match_text_seq("TIMESTAMP")
        if not self._match(TokenType.STRING):
            self.raise_error(
                "a moment is a text in quotes, not an expression, such as '2026-11-21T09:30:00Z', '-2h' or '0/16B3748'"
            )
        return exp.Literal.string(self._prev.text)

    def _need(self, text: str) -> None:
        if not self._match_text_seq(text):
            self.raise_error(f"expected {text} in FOR SYSTEM_TIME")

    def _refuse_delta_time_travel(self) -> None:
        for clause in _DELTA_CLAUSES:
            if self._match_text_seq("FOR", clause, "AS", "OF") or self._match_text_seq(clause, "AS", "OF"):
                raise BadUsage(
                    f"{clause} AS OF asks for what was loaded into the lake by then, not for what was true then",
                    "Write FOR SYSTEM_TIME AS OF '2026-11-21T09:30:00Z' for the state at that moment. Every version "
                    "of a row is kept in the table itself, so no version of the Delta table is needed for it.",
                )

    def _parse_table_sample(self, as_modifier: bool = False) -> exp.TableSample | None:  # noqa: FBT001, FBT002 - sqlglot's
        sample = super()._parse_table_sample(as_modifier)
        if sample is not None:
            sample.meta["end"] = self._prev.end
        return sample


class _Parser(Periods, SparkParser):
    pass
