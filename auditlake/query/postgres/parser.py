"""PostgreSQL's SQL with `FOR SYSTEM_TIME`: sqlglot's parser for it, and what its trees do not show. Pure.

No engine gets what was typed: DuckDB's text is generated from the tree, node by node (`expressions`, `queries`). So
only a statement that sqlglot reads in another way than PostgreSQL could be answered wrongly. What is known of that kind
is changed here before it is parsed. sqlglot knows functions of many databases and translates their arguments: a call is
left as it is written, but for functions with a syntax of their own, aggregates and window functions.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parsers.postgres import PostgresParser

from auditlake.errors import BadUsage, NotAnswerable
from auditlake.query.dialect import Periods, bad_syntax, nested, one_query, require_start, split_at_semicolons
from auditlake.query.lexical import LONGEST_NUMBER
from auditlake.query.postgres.identifiers import RESERVED
from auditlake.query.postgres.number_syntax import NUMBER, plain
from auditlake.values.types import BUILT_IN

_SIGNS = """
!= :: => % && & * + - -> ->> -|- / < <-> <= <> <@ = > >= #- #> #>> ? ?& ?| @> @? @@ ^ ^@ | |/ || ||/ ~ ~* ~~ ~~* &< &>
"""
_WORDS = """
cube delete escape filter first insert merge next ordinality over partition range recursive rollup rows set type unnest
update unknown
"""
"""Words with a meaning in a query, beside reserved ones and types."""
_PAIRS = """
order by,group by,grouping sets,partition by,similar to,double precision,char varying,character varying
"""
_READ = frozenset({*_SIGNS.split(), *_WORDS.split(), *_PAIRS.strip().split(","), *RESERVED, *BUILT_IN})


class _Dialect(Postgres):
    """PostgreSQL's dialect with subscripts as they are written: sqlglot would count those of some arrays from 0."""

    INDEX_OFFSET = 0

    class Tokenizer(Postgres.Tokenizer):
        """Without the words of other dialects: RLIKE, LONG and SEMI are names, and `==` is no operator."""

        KEYWORDS: ClassVar = {word: kind for word, kind in Postgres.Tokenizer.KEYWORDS.items() if word.lower() in _READ}


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
_AFTER_AS = """
array char character create day except fetch filter for from grant group having hour intersect into isnull limit minute
month notnull offset on order over overlaps precision returning second to union varying where window with within without
year
"""
"""Words that name a column only after AS: AS_LABEL in PostgreSQL's src/include/parser/kwlist.h."""


class _Parser(Periods, PostgresParser):
    FUNCTIONS: ClassVar = {
        name: make for name, make in PostgresParser.FUNCTIONS.items() if name.lower() in _CALLS.split()
    }
    LAMBDAS: ClassVar = {sign: make for sign, make in PostgresParser.LAMBDAS.items() if sign != TokenType.ARROW}
    JSON_OPERATORS: ClassVar = {  # sqlglot's would translate the key
        **PostgresParser.JSON_OPERATORS,
        TokenType.ARROW: lambda self, this, key: self.expression(exp.JSONExtract(this=this, expression=key)),
        TokenType.DARROW: lambda self, this, key: self.expression(exp.JSONExtractScalar(this=this, expression=key)),
    }
    FUNCTION_PARSERS: ClassVar = {
        **{name: parse for name, parse in PostgresParser.FUNCTION_PARSERS.items() if name in _OWN_SYNTAX},
        "STRING_AGG": lambda self: self._joined_texts(),
    }
    UNARY_PARSERS: ClassVar = {**PostgresParser.UNARY_PARSERS, TokenType.PLUS: lambda self: self._plus()}

    def _joined_texts(self) -> exp.Expr:
        start = self._index
        found = self._parse_string_agg()
        if any(token.text.upper() == "WITHIN" for token in self._tokens[start : self._index]):
            self.raise_error("WITHIN GROUP is for aggregates of ordered sets, such as percentile_cont", self._prev)
        return found

    def _plus(self) -> exp.Expr:
        """Read the sign +, which sqlglot leaves out: neither is `order by +1` a place, nor has `+id` the name of id."""
        place = f"line {self._prev.line}, column {self._prev.col}"
        operand = self._parse_unary()
        number = operand.this if isinstance(operand, exp.Neg) else operand
        if not isinstance(number, exp.Literal) or number.is_string:
            raise NotAnswerable(f"the sign + at {place} is not translated", "Leave it out.")
        return exp.Paren(this=exp.Add(this=exp.Literal.number(0), expression=operand))

    def _parse_string_as_identifier(self) -> exp.Identifier | None:
        return None

    def _parse_limit(self, *given: Any, **named: Any) -> exp.Expr | None:  # noqa: ANN401 - as sqlglot's own
        found = super()._parse_limit(*given, **named)
        if isinstance(found, exp.Limit) and found.args.get("offset"):
            self.raise_error("after LIMIT stands one number, and OFFSET before the other one", self._prev)
        return found

    def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:  # noqa: FBT001, FBT002
        word = self._curr
        found = super()._parse_alias(this, explicit)
        if found is not this and self._prev.token_type in _STRINGS:
            self.raise_error("a name is in double quotes", self._prev)
        if found is not this and word.token_type is not TokenType.IDENTIFIER and word.text.lower() in _AFTER_AS.split():
            self.raise_error(f"write AS before {word.text}, or quote it", word)
        return found


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


def parse(sql: str) -> exp.Query:
    """Parse one query; raises BadUsage if it cannot be parsed or does more than read."""
    tokens = tokenize(sql)
    require_start(tokens, _STARTS, _READ_ONLY)
    _check_tokens(sql, tokens)
    _check_pairs(sql, tokens)
    _check_constructs(sql, tokens)
    try:
        with nested():
            found = _Parser(dialect=_POSTGRES, error_level=ErrorLevel.IMMEDIATE).parse(
                _with_casts(_with_strings(_with_numbers(_with_ways(tokens), sql), sql)), sql
            )
    except ParseError as exc:
        if "does not support CTE" in str(exc):
            raise NotAnswerable("VALUES after WITH is not translated", "Write select … from (values …).") from exc
        raise bad_syntax(exc, HINT) from exc
    tree = one_query(found, tokens, HINT, _READ_ONLY)
    _note(tree, sql)
    return tree  # type: ignore[return-value]  # VALUES is a query as well


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
    """Write 1_000 and 0x1F as decimal numbers; sqlglot reads the former as `1 as _000`. Raises BadUsage for 1x."""
    written: list[Token] = []
    end = 0
    for token in tokens:
        if token.start < end:
            continue
        written.append(token)
        if token.token_type not in _NUMBERS or (found := NUMBER.match(sql, token.start)) is None:
            continue
        end = found.end()
        if re.match(r"\w", sql[end:]):
            raise BadUsage(f"the number at {place_in(sql, token.start)} ends in letters", HINT)
        text = plain(found[0]) or found[0]
        written[-1] = Token(TokenType.NUMBER, text, token.line, token.col, token.start, end - 1)
    return written


_NUMBERS = frozenset({TokenType.NUMBER, TokenType.HEX_STRING, TokenType.BIT_STRING})


def _with_strings(tokens: list[Token], sql: str) -> list[Token]:
    r"""Write E'…' and $$…$$ as '…', and strings on several lines as one.

    Raises NotAnswerable for other escapes than those of `_ESCAPES`, such as \x41, BadUsage for strings side by side.
    """
    written: list[Token] = []
    for token in tokens:
        before = written[-1] if written else None
        if before is not None and before.token_type is TokenType.STRING and token.token_type in _STRINGS:
            between = sql[before.end + 1 : token.start]
            if token.token_type is not TokenType.STRING or not _NEW_LINE.fullmatch(between):
                raise BadUsage(f"a string follows a string at {place_in(sql, token.start)}", "Write || between them.")
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


_STRINGS = frozenset({TokenType.STRING, TokenType.BYTE_STRING, TokenType.RAW_STRING, TokenType.HEREDOC_STRING})
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


def _check_pairs(sql: str, tokens: list[Token]) -> None:
    """Refuse what sqlglot ignores: a comma beside nothing, and a sign that is a part of the operator before it."""
    for before, token in zip(tokens, [*tokens[1:], None], strict=True):
        if before.token_type in _OPEN and (token is None or token.token_type in _ENDS):
            raise BadUsage(f"nothing follows {before.text} at {place_in(sql, before.start)}", HINT)
        if token is None:
            continue
        if token.token_type is TokenType.COMMA and before.token_type in _OPEN | _BEGINS:
            raise BadUsage(f"nothing precedes the comma at {place_in(sql, token.start)}", HINT)
        if token.token_type in _OF_OTHERS and _OF_OTHERS[token.token_type].match(sql, token.start):
            raise BadUsage(f"the operator {token.text} at {place_in(sql, token.start)} does not exist", HINT)
        if before.token_type is TokenType.INTERVAL and token.token_type is TokenType.NUMBER:
            raise BadUsage(f"the interval at {place_in(sql, before.start)} is no string", "Write interval '1 day'.")
        operator = sql[before.start : token.end + 1]
        if token.token_type in _PLUS_OR_MINUS and _LONG_OPERATOR.fullmatch(operator):
            hint = "Write a blank before the sign."
            raise BadUsage(f"the operator {operator} at {place_in(sql, before.start)} does not exist", hint)


_OPEN = frozenset({TokenType.COMMA, TokenType.GROUP_BY, TokenType.ORDER_BY})
_BEGINS = frozenset(
    {TokenType.SELECT, TokenType.DISTINCT, TokenType.FROM, TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.VALUES}
)
_OF_OTHERS = {
    TokenType.EQ: re.compile("=="),
    TokenType.NULLSAFE_EQ: re.compile("<=>"),
    TokenType.NOT: re.compile("!(?!~)"),
}
"""Operators of other dialects that sqlglot reads, by their tokens: NOT is also a word and the begin of `!~`."""
_PLUS_OR_MINUS = frozenset({TokenType.DASH, TokenType.PLUS})
_LONG_OPERATOR = re.compile(r"[-+*/<>=~!@#%^&|`?]*[~!@#%^&|`?][-+*/<>=~!@#%^&|`?]*[-+]")
"""An operator that ends in a sign; without one of these characters, the sign would not be a part of it."""


def _check_constructs(sql: str, tokens: list[Token]) -> None:
    """Refuse what sqlglot does not parse and PostgreSQL does: `USING (…) AS x`, SEARCH and CYCLE of WITH, `@ -5`."""
    words = ["" if token.token_type in _STRINGS else token.text.upper() for token in tokens]
    for n, (word, following) in enumerate(pairwise(words)):
        what = _UNPARSED.get((word, following)) if _goes_on(following, words[n + 2 :]) else None
        if word == "USING" and following == "(" and ")" in words[n:]:
            end = words.index(")", n) + 1
            what = "an alias of USING" if words[end : end + 1] == ["AS"] else None
        if word == "SIMILAR" and following != "TO":
            what = "SIMILAR of SUBSTRING"
        if word == "@" and tokens[n].token_type is TokenType.PARAMETER:
            what = "the operator @, which is abs(),"
        if what is not None:
            raise NotAnswerable(f"{what} at {place_in(sql, tokens[n + 1].start)} is not translated", _ELSE)


def _goes_on(word: str, rest: Sequence[str]) -> bool:
    """Return whether the clause of a query of WITH follows its first word, which may be a name as well."""
    if word != "CYCLE":
        return rest[:1] == ["FIRST"]
    return next((each for each in rest[1::2] if each != ","), None) == "SET"


_UNPARSED = {
    ("SEARCH", "DEPTH"): "SEARCH of WITH",
    ("SEARCH", "BREADTH"): "SEARCH of WITH",
    (")", "CYCLE"): "CYCLE of WITH",
}
_ELSE = "Write the query without it."
_ENDS = frozenset(
    {
        *(TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.HAVING, TokenType.LIMIT),
        *(TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.SEMICOLON, TokenType.UNION),
    }
)


def place_in(sql: str, offset: int) -> str:
    """Return line and column of an offset."""
    return f"line {sql.count(chr(10), 0, offset) + 1}, column {offset - sql.rfind(chr(10), 0, offset)}"


def place_of(sql: str, node: exp.Expr | None) -> str | None:
    """Return line and column of a node, or of the first of its parts that has a place."""
    if node is None:
        return None
    starts = [start for each in node.walk() if isinstance(start := each.meta.get("start"), int)]
    return place_in(sql, min(starts)) if starts else place_of(sql, node.parent)
