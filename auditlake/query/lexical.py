r"""The one text of a statement that every reader of it takes in the same way: `canonical_sql`. Pure.

sqlglot finds the tables of a statement, DuckDB and Spark run it. Where two lexers differ, a part of a statement can be
a comment for one and code for the other. So the text is divided here, by the rules of Spark's lexer, and composed again
from the tokens found, in forms that all lexers read alike:

- comments and hints become blanks; the rest of the text keeps its place if it has no string with escapes,
- a string is written again from its value, with the escapes `\\`, `\'` and `\uXXXX` only,
- between two operators there is a blank.

Refused: what the lexers read differently (a comment in a comment, one that ends in a backslash), characters that are
none of Spark's tokens, names without quotes that are not ASCII, and `${`, which Spark replaces by a setting, a property
or a variable of the environment wherever it is.

Authority: Spark's SqlBaseLexer.g4 and SparkParserUtils.scala, 4.2.0
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from auditlake.errors import BadUsage

_LEXER = re.compile(
    r"""
      (?P<blank>[ \t\n\r\f\v\u00a0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000]+)
    | (?P<line>--[^\r\n]*)
    | (?P<hint>/\*\+(?:[^*]|\*(?!/))*\*/)
    | (?P<comment>/\*(?:[^*]|\*(?!/))*\*/)
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<number>(?:[0-9]+[lLsSyY]
        |(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:[fFdD]|[bB][dD])?)(?![\w.]))
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<bracket>[()\[\],;.])
    | (?P<open>/\*|['"`])
    | (?P<operator><=>|<>|<=|>=|!=|!<|!>|==|\|\||\|>|->|=>|::|<<+|>>+|[-+*/%~&|^=<>!:?])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_ESCAPE = re.compile(
    r"\\(?:u(?P<u>[0-9A-Fa-f]{4})|U(?P<U>[0-9A-Fa-f]{8})|(?P<octal>[01][0-7]{2})|(?P<other>.))|(?P<twice>''|\"\")",
    re.DOTALL,
)
_AS_IT_IS = re.compile(r"[^\\'\"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NO_NAME = re.compile(r"\$\{|[\ud800-\udfff]")
LONGEST_NUMBER = 1_000
"""The most characters of a number: Python converts at most 4,300 digits."""
_OPERANDS = frozenset({"word", "quoted", "number"})
_SUBSTITUTED = "${"
_QUOTES_IN_HINT = re.compile(r"""['"`]|--|/\*""")
_BLANK = re.compile(r"[^\n\r\t]")
_CLOSED = {"/*": "a comment", "'": "a string", '"': "a string", "`": "a name"}
_HINT = "The SQL is Spark's; names with other characters go in backticks, text in quotes."


class Unfinished(BadUsage):
    """A string, quoted name or comment that does not end."""


class TokenKind(Enum):
    """Kinds of tokens."""

    WORD = auto()
    QUOTED = auto()
    STRING = auto()
    NUMBER = auto()
    OPERATOR = auto()
    BRACKET = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a canonical text, at `sql[start:end]`."""

    kind: TokenKind
    text: str
    start: int
    end: int


_KINDS = {
    "word": TokenKind.WORD,
    "quoted": TokenKind.QUOTED,
    "string": TokenKind.STRING,
    "raw": TokenKind.STRING,
    "number": TokenKind.NUMBER,
    "operator": TokenKind.OPERATOR,
    "bracket": TokenKind.BRACKET,
}


def canonical_sql(sql: str) -> str:
    """Return the canonical text; that of a canonical text is the text itself; raises BadUsage, Unfinished."""
    return "".join(piece for _, piece in _pieces(sql))


def tokens_of(sql: str) -> list[Token]:
    """Return the tokens of a canonical text; raises as `canonical` does."""
    found, start = [], 0
    for kind, piece in _pieces(sql):
        if kind is not None:
            found.append(Token(kind, piece, start, start + len(piece)))
        start += len(piece)
    return found


def _pieces(sql: str) -> Iterator[tuple[TokenKind | None, str]]:
    """Yield the tokens in order, and the blanks between them, which are of no kind."""
    at, before, last = 0, "", ""
    while at < len(sql):
        match = _LEXER.match(sql, at)
        group = "" if match is None else match.lastgroup or ""
        if match is None or group == "open":
            raise _unread(sql, at)
        text = match[0]
        if group == "number" and text[0] == "." and before in _OPERANDS:
            raise _refused(sql, at, f"{text} after a name or a number")
        if group == "number" and len(text) > LONGEST_NUMBER:
            raise _refused(sql, at, f"a number of {len(text):,} characters")
        if _touches(before, last, group):
            yield None, " "
        yield _KINDS.get(group), _again(sql, at, group, text)
        at, before, last = match.end(), group, text


def _touches(before: str, last: str, group: str) -> bool:
    """Return whether a token must be separated from the one before it, so that no lexer joins them."""
    if group in {"string", "raw"}:
        return before in {"string", "raw"} or (before == "word" and (last not in "xX" or group == "raw"))
    return before == group == "operator"


def _again(sql: str, at: int, group: str, text: str) -> str:
    """Return a token, or what is between tokens, in its canonical form."""
    if group in {"blank", "line", "comment", "hint"}:
        _check_comment(sql, at, group, text)
        return _BLANK.sub(" ", text)
    if group == "quoted" and (text == "``" or _NO_NAME.search(text)):
        raise _refused(sql, at, "an empty name, or one with ${,")
    if group == "raw":
        return _string(sql, at, text[2:-1])
    return _string(sql, at, _value(text)) if group == "string" and not _is_plain(text) else text


def _check_comment(sql: str, at: int, group: str, text: str) -> None:
    if group == "line" and text.endswith("\\"):
        raise _refused(sql, at, "a comment that ends in a backslash")
    if group in {"comment", "hint"} and "/*" in text[2:]:
        raise _refused(sql, at, "a comment in a comment")
    if group == "hint" and _QUOTES_IN_HINT.search(text, 3):
        raise _refused(sql, at, "a quote in a hint")


def _is_plain(literal: str) -> bool:
    return _AS_IT_IS.fullmatch(literal, 1, len(literal) - 1) is not None and _SUBSTITUTED not in literal


def _value(literal: str) -> str:
    """Return the value of a string literal."""
    return _ESCAPE.sub(lambda match: _unescaped(match, literal[0]), literal[1:-1])


def _unescaped(match: re.Match[str], quote: str) -> str:
    if match["twice"]:
        return quote if match["twice"][0] == quote else match["twice"]
    if match["octal"]:
        return chr(int(match["octal"], 8))
    if code := match["u"] or match["U"]:
        return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else "\ud800"  # noqa: PLR2004 - Unicode's last
    return _ESCAPES.get(match["other"], match["other"])


def _string(sql: str, at: int, value: str) -> str:
    try:
        text = value.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise _refused(sql, at, "a string that is not Unicode") from None
    return f"'{''.join(map(_escaped, text)).replace(_SUBSTITUTED, _DOLLAR)}'"


_DOLLAR = "\\u0024{"


def _escaped(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    return f"\\u{ord(char):04x}" if _CONTROL.match(char) else char


def _unread(sql: str, at: int) -> BadUsage:
    opened = "/*" if sql.startswith("/*", at) else sql[at]
    if opened in _CLOSED:
        line = sql.count("\n", 0, at) + 1
        return Unfinished(f"cannot read the SQL from line {line}: {_CLOSED[opened]} does not end", _HINT)
    if sql[at].isascii() and sql[at].isdigit():
        return _refused(sql, at, "a number that ends in a point, or a name that begins with a digit,")
    return _refused(sql, at, f"{sql[at]!r}" if sql[at].isprintable() else f"character U+{ord(sql[at]):04X}")


def _refused(sql: str, at: int, what: str) -> BadUsage:
    line, column = sql.count("\n", 0, at) + 1, at - sql.rfind("\n", 0, at)
    return BadUsage(f"cannot read the SQL at line {line}, column {column}: {what} has no one meaning", _HINT)
