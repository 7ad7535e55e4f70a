"""PostgreSQL's SQL with `FOR SYSTEM_TIME`: sqlglot's parser for it, and what its trees do not show. Pure.

No engine gets what was typed: DuckDB's text is generated from the tree, node by node (`expressions`, `queries`). So
only a statement that sqlglot reads in another way than PostgreSQL could be answered wrongly. Those are refused
(`one_reading`), unless they can be changed here before they are parsed. sqlglot knows functions of many databases and
translates their arguments: a call is left as it is written, but for functions with a syntax of their own, aggregates
and window functions.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NoReturn

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parsers.postgres import PostgresParser

from auditlake.errors import BadUsage, NotAnswerable
from auditlake.query.dialect import (
    Periods,
    bad_syntax,
    nested,
    one_query,
    place_in,
    require_start,
    split_at_semicolons,
)
from auditlake.query.lexical import LONGEST_NUMBER
from auditlake.query.postgres.grammar import require_statement
from auditlake.query.postgres.identifiers import RESERVED
from auditlake.query.postgres.number_syntax import NUMBER, plain
from auditlake.values.types import BUILT_IN

_WORDS = """
cube delete escape filter first insert merge next ordinality over partition range recursive rollup rows set type unnest
update unknown
"""
"""Words with a meaning in a query, beside reserved ones and types."""
_PAIRS = """
order by,group by,grouping sets,partition by,similar to,double precision,char varying,character varying
"""
_READ = frozenset({*_WORDS.split(), *_PAIRS.strip().split(","), *RESERVED, *BUILT_IN})


class _Dialect(Postgres):
    """PostgreSQL's dialect with subscripts as they are written: sqlglot would count those of some arrays from 0."""

    INDEX_OFFSET = 0

    class Tokenizer(Postgres.Tokenizer):
        """Without the words of other dialects: RLIKE, LONG and SEMI are names."""

        KEYWORDS: ClassVar = {
            word: kind
            for word, kind in Postgres.Tokenizer.KEYWORDS.items()
            if not word[0].isalpha() or word.lower() in _READ
        }


_POSTGRES = _Dialect()
HINT = "The SQL is PostgreSQL's; the dialect spark reads Spark's. FOR SYSTEM_TIME follows a table's name or alias."
_READ_ONLY = (
    "Write a query, DESCRIBE or SHOW TABLES; EXPLAIN and temporary views are in the dialect spark."
    " Nothing here changes a lake."
)
_STARTS = frozenset({"SELECT", "WITH", "VALUES", "(", "TABLE"})
_SHORTER = f"Write at most {LONGEST_NUMBER:,}; a text may be longer, and be cast."
_DEEPEST = 300
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""NUL, and a byte that is not UTF-8, as Python shows it."""
_CALLS = """
any_value array array_agg avg bool_and bool_or coalesce concat concat_ws count cume_dist dense_rank exists first_value
generate_series greatest grouping lag last_value lead least max min now nth_value ntile nullif percent_rank
percentile_cont percentile_disc rank row_number stddev stddev_pop stddev_samp sum unnest var_pop var_samp variance
"""
_OWN_SYNTAX = frozenset({"CAST", "EXTRACT", "OVERLAY", "POSITION", "STRING_AGG", "SUBSTRING", "TRIM"})


class _Parser(Periods, PostgresParser):
    FUNCTIONS: ClassVar = {
        **{name: make for name, make in PostgresParser.FUNCTIONS.items() if name.lower() in _CALLS.split()},
        "ARRAY_AGG": exp.ArrayAgg.from_arg_list,  # sqlglot's leaves out all arguments but the first
        "GENERATE_SERIES": exp.ExplodingGenerateSeries.from_arg_list,  # sqlglot's reads some steps as no interval
    }
    LAMBDAS: ClassVar = {sign: make for sign, make in PostgresParser.LAMBDAS.items() if sign != TokenType.ARROW}
    JSON_OPERATORS: ClassVar = {  # sqlglot's would translate the key
        **PostgresParser.JSON_OPERATORS,
        TokenType.ARROW: lambda self, this, key: self.expression(exp.JSONExtract(this=this, expression=key)),
        TokenType.DARROW: lambda self, this, key: self.expression(exp.JSONExtractScalar(this=this, expression=key)),
    }
    FUNCTION_PARSERS: ClassVar = {
        **{name: parse for name, parse in PostgresParser.FUNCTION_PARSERS.items() if name in _OWN_SYNTAX},
    }
    UNARY_PARSERS: ClassVar = {**PostgresParser.UNARY_PARSERS, TokenType.PLUS: lambda self: self._plus()}
    ARRAY_CONSTRUCTORS: ClassVar = {"ARRAY": exp.Array}

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        is_name = isinstance(this, exp.Column) and (this.args.get("table") or this.this.args.get("quoted"))
        if is_name and self._curr and self._curr.token_type is TokenType.L_BRACKET:
            this = exp.Paren(this=this)  # sqlglot would take t.array[1] and "array"[1] for the constructor
        return super()._parse_bracket(this)

    def _parse_null(self) -> exp.Expr | None:
        word = self._curr
        found = super()._parse_null()
        if isinstance(found, exp.Null):  # IS UNKNOWN is a question about a boolean
            found.meta["unknown"] = word.token_type is TokenType.UNKNOWN
        return found

    def _plus(self) -> exp.Expr:
        """Read the sign +, which sqlglot leaves out: neither is `order by +1` a place, nor has `+id` the name of id."""
        place = f"line {self._prev.line}, column {self._prev.col}"
        operand = self._parse_unary()
        number = operand.this if isinstance(operand, exp.Neg) else operand
        if not isinstance(number, exp.Literal) or number.is_string:
            raise NotAnswerable(f"the sign + at {place} is not translated", "Leave it out.")
        return exp.Paren(this=exp.Add(this=exp.Literal.number(0), expression=operand))


def tokenize(sql: str) -> list[Token]:
    """Split a text into tokens; raises BadUsage if it is none, or a string, quoted name or comment does not end."""
    if (found := _NO_TEXT.search(sql)) is not None:
        line = sql.count("\n", 0, found.start()) + 1
        raise BadUsage(f"the SQL has a byte on line {line} that no text has", "Write it in UTF-8, without NUL.")
    try:
        return _POSTGRES.tokenize(sql)
    except TokenError as exc:
        line = sql.count("\n", 0, getattr(exc, "end", 0) or 0) + 1
        raise BadUsage(f"cannot read the SQL up to line {line}: a quote or a comment does not end", HINT) from exc


def split(script: str) -> list[str]:
    """Split a script into its statements, without empty ones; each keeps its place. Raises BadUsage as `tokenize`."""
    return split_at_semicolons(script, tokenize(script))


def is_complete(text: str) -> bool:
    """Return whether a text ends in a semicolon, outside of strings and comments."""
    try:
        tokens = _POSTGRES.tokenize(text)
    except TokenError:
        return False
    return not tokens or tokens[-1].token_type is TokenType.SEMICOLON


def describes(sql: str) -> bool:
    """Return whether it is DESCRIBE or SHOW TABLES, as in both dialects; raises BadUsage as `tokenize`."""
    words = " ".join(token.text for token in tokenize(sql)[:2]).upper().split()  # after SHOW, a token is the rest
    return words[:1] in (["DESCRIBE"], ["DESC"]) or words[:2] == ["SHOW", "TABLES"]


@dataclass(frozen=True, slots=True)
class Parsed:
    """A query: sqlglot's tree of it, and what PostgreSQL's parser `read` in the text without FOR SYSTEM_TIME."""

    tree: exp.Query
    text: str
    read: Any


def parse(sql: str) -> Parsed:
    """Parse one query; raises BadUsage if PostgreSQL refuses it, or it does more than read, NotAnswerable."""
    tokens = tokenize(sql)
    require_start(tokens, _STARTS, _READ_ONLY)
    _check_tokens(sql, tokens)
    with nested():
        try:
            tree = one_query(_parsed(sql, tokens), tokens, HINT, _READ_ONLY)
        except ParseError as exc:
            _check_unread(sql, tokens, bad_syntax(exc, HINT))
        except (AttributeError, ValueError):  # sqlglot's, of `{:`, of `@x at`
            _check_unread(sql, tokens, BadUsage("cannot parse a part of the SQL", HINT))
        _check_depth(tree)
        typed = _for_postgresql(sql, tokens)
        read = require_statement(typed, HINT)
    _note(tree, sql)
    return Parsed(tree, typed, read)  # type: ignore[arg-type]  # VALUES is a query as well


def _parsed(sql: str, tokens: list[Token]) -> list[exp.Expr | None]:
    parser = _Parser(dialect=_POSTGRES, error_level=ErrorLevel.IMMEDIATE)
    return parser.parse(_with_casts(_with_strings(_with_numbers(_with_ways(tokens), sql), sql)), sql)


def _check_unread(sql: str, tokens: list[Token], reason: BadUsage) -> NoReturn:
    """Raise BadUsage if PostgreSQL does not read what sqlglot does not read, else NotAnswerable."""
    text = _for_postgresql(sql, tokens)
    if len(tokens) > _FEW_TOKENS or _PERIOD.search(text):
        raise reason
    require_statement(text, HINT)
    raise NotAnswerable(f"{reason.message.removeprefix('cannot parse ')}; this is not translated", _ELSE)


def _check_depth(tree: exp.Expr) -> None:
    """Check that no node has too many above it, so that PostgreSQL's parser has room for the statement.

    To PostgreSQL, each join of a list is a node above those before it.
    """
    left = [(tree, 1)]
    while left:
        node, depth = left.pop()
        if depth > _DEEPEST_NODE:
            raise BadUsage("the SQL is nested too deep", "Write the query in a simpler form.")
        below = depth + 1 + len(node.args.get("joins") or ())
        left += ((inner, below) for inner in node.iter_expressions())


_FEW_TOKENS = 5_000
_DEEPEST_NODE = 1_000
_PERIOD = re.compile(r"\bfor\s+system_time\b", re.IGNORECASE)
_PERIODS = frozenset({"ASOF'", "FROM'TO'", "BETWEEN'AND'", "CONTAINEDIN(',')", "ALL"})


def _for_postgresql(sql: str, tokens: list[Token]) -> str:
    """Return a statement with blanks for FOR SYSTEM_TIME, and for comments in a string, which pgparse does not read."""
    left_out = [*_periods(tokens)]
    for before, token in pairwise(tokens):
        start, end = before.end + 1, token.start
        if before.token_type is token.token_type is TokenType.STRING and _NEW_LINE.fullmatch(sql[start:end]):
            left_out.append((start, end))
    parts, done = list[str](), 0
    for start, end in sorted(left_out):
        parts += [sql[done:start], re.sub(r"\S", " ", sql[start:end])]
        done = end
    return "".join([*parts, sql[done:]])


def _periods(tokens: list[Token]) -> Iterator[tuple[int, int]]:
    """Yield where FOR SYSTEM_TIME with its moments begins and ends."""
    words = ["'" if token.token_type is TokenType.STRING else token.text.upper() for token in tokens]
    for n in (n for n, pair in enumerate(pairwise(words)) if pair == ("FOR", "SYSTEM_TIME")):
        ends = range(n + 3, min(n + 10, len(words)) + 1)
        period = next((m for m in ends if "".join(words[n + 2 : m]).replace("TIMESTAMP", "") in _PERIODS), None)
        if period is not None:
            yield tokens[n].start, tokens[period - 1].end + 1


def _note(tree: exp.Expr, sql: str) -> None:
    """Note what nodes do not show: the name of a function as it is written, and parentheses around that of a window."""
    for node in tree.walk():
        if isinstance(node, exp.Func) and isinstance(start := node.meta.get("start"), int):
            node.meta["spelled"] = sql[start : node.meta["end"] + 1].strip('"').lower()
        if isinstance(node, exp.Window) and isinstance(named := node.args.get("alias"), exp.Identifier):
            node.meta["copied"] = sql[: named.meta["start"]].rstrip().endswith("(")


_TYPES = frozenset({"date", "timestamp", "timestamptz", "interval", "bool", "boolean", "int", "integer", "bigint"})
_TYPES |= {"text", "numeric", "uuid", "jsonb", "json", "smallint", "float4", "float8", "real", "time", "varchar"}


def _with_ways(tokens: list[Token]) -> list[Token]:
    """Write ORDER BY … USING < as ASC, and USING > as DESC."""
    written: list[Token] = []
    for token in tokens:
        way = _WAYS.get(token.token_type)
        if way is None or not written or written[-1].token_type is not TokenType.USING:
            written.append(token)
        else:
            written[-1] = _like(token, *way)
    return written


_WAYS = {TokenType.LT: (TokenType.ASC, "asc"), TokenType.GT: (TokenType.DESC, "desc")}


def _with_numbers(tokens: list[Token], sql: str) -> list[Token]:
    """Write 1_000 and 0x1F as decimal numbers; sqlglot reads the former as `1 as _000`."""
    written: list[Token] = []
    end = 0
    for token in tokens:
        if token.start < end:
            continue
        written.append(token)
        if token.token_type not in _NUMBERS or (found := NUMBER.match(sql, token.start)) is None:
            continue
        end = found.end()
        text = plain(found[0]) or found[0]
        written[-1] = Token(TokenType.NUMBER, text, token.line, token.col, token.start, end - 1)
    return written


_NUMBERS = frozenset({TokenType.NUMBER, TokenType.HEX_STRING, TokenType.BIT_STRING})


def _with_strings(tokens: list[Token], sql: str) -> list[Token]:
    r"""Write E'…' and $$…$$ as '…', and strings on several lines as one.

    Raises NotAnswerable for other escapes than those of `_ESCAPES`, such as \x41.
    """
    written: list[Token] = []
    for token in tokens:
        before = written[-1] if written else None
        is_next = before is not None and before.token_type is token.token_type is TokenType.STRING
        if before is not None and is_next and _NEW_LINE.fullmatch(sql[before.end + 1 : token.start]):
            if sql[before.start] != "'":
                raise NotAnswerable(f"a string in parts at {place_in(sql, token.start)} is not translated", _ELSE)
            text = before.text + token.text
            written[-1] = Token(TokenType.STRING, text, before.line, before.col, before.start, token.end)
        elif token.token_type is TokenType.RAW_STRING or token.token_type is TokenType.HEREDOC_STRING:
            written.append(_like(token, TokenType.STRING, token.text))
        elif token.token_type is TokenType.BYTE_STRING:
            given = sql[token.start : token.end + 1][2:-1]
            if _OTHER_ESCAPE.search(_ESCAPE.sub("", given)):
                raise NotAnswerable(f"an escape at {place_in(sql, token.start)} is not translated", _ESCAPES_HINT)
            text = _ESCAPE.sub(lambda found: _ESCAPES.get(found[0][1], found[0][1]), given)
            written.append(_like(token, TokenType.STRING, text))
        else:
            written.append(token)
    return written


_NEW_LINE = re.compile(r"[ \t\f\v]*(--[^\r\n]*)?[\r\n](\s|--[^\r\n]*[\r\n])*")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(r"\\[bfnrt\\']|''")
_OTHER_ESCAPE = re.compile(r"\\")
_ESCAPES_HINT = r"Write the character itself, or one of \n \t \r \b \f \\ \'."


def _with_casts(tokens: list[Token]) -> list[Token]:
    """Write `date '…'` as `('…'::date)`.

    sqlglot takes the type for that of `'…'::text` in `date '…'::text`, and drops parts of the text of an interval.
    """
    written: list[Token] = []
    for n, token in enumerate(tokens):
        type_ = written[-1] if written else None
        is_typed = type_ is not None and type_.text.lower() in _TYPES and _begins(written)
        if token.token_type is not TokenType.STRING or type_ is None or not is_typed:
            written.append(token)
            continue
        if type_.text.lower() == "interval" and n + 1 < len(tokens) and tokens[n + 1].text.lower() in _UNITS:
            written.append(token)
            continue
        written.pop()
        marks = [_like(token, kind, text) for kind, text in ((TokenType.L_PAREN, "("), (TokenType.DCOLON, "::"))]
        written += [marks[0], token, marks[1], type_, _like(token, TokenType.R_PAREN, ")")]
    return written


_UNITS = frozenset({"year", "month", "day", "hour", "minute", "second"})


def _begins(tokens: list[Token]) -> bool:
    """Return whether the last token begins an operand, rather than being a name, a column or a part of a type."""
    if len(tokens) == 1:
        return True
    before = tokens[-2]
    return before.token_type not in {TokenType.DOT, TokenType.DCOLON, TokenType.ALIAS} and before.text.lower() not in {
        "with",
        "without",
        "of",
    }


def _like(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end)


def _check_tokens(sql: str, tokens: list[Token]) -> None:
    """Refuse what is nested too deep, and long numbers."""
    depth = 0
    for token in tokens:
        if token.token_type is TokenType.NUMBER and len(token.text) > LONGEST_NUMBER:
            raise BadUsage(f"the number at {place_in(sql, token.start)} has {len(token.text):,} characters", _SHORTER)
        if token.token_type is TokenType.HEREDOC_STRING and sql[token.start + 1].isdigit():
            raise BadUsage(f"the string at {place_in(sql, token.start)} begins as a parameter does", "Write $$…$$.")
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth > _DEEPEST:
            raise BadUsage("the SQL is nested too deep", "Write the query in a simpler form.")


_ELSE = "Write the query without it."


def place_of(sql: str, node: exp.Expr | None) -> str | None:
    """Return line and column of a node, or of the first of its parts that has a place."""
    if node is None:
        return None
    starts = [start for each in node.walk() if isinstance(start := each.meta.get("start"), int)]
    return place_in(sql, min(starts)) if starts else place_of(sql, node.parent)
