"""A script of several statements, each ended by a semicolon; those in texts, quoted names and comments end nothing.

One kind of statement has no answer: `create temporary view NAME as QUERY` gives a query a name for those after it.

Pure. A statement keeps its place in the script: what came before it is blanked, so that a message that names a line
means the script's.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from sqlglot import TokenType

from auditlake.errors import BadUsage
from auditlake.query.dialect import tokenize

_DEFINES = re.compile(r"CREATE( OR REPLACE)?( TEMPORARY| TEMP)? VIEW ")
_LONGEST_HEAD = 6


@dataclass(frozen=True, slots=True)
class Definition:
    """A view that lasts as long as the session: its name, and its query, which stands where it stood."""

    name: str
    query: str


def split(script: str) -> list[str]:
    """Split a script into its statements, leaving out the empty ones.

    Raises BadUsage where a string, quoted name or comment does not end.
    """
    statements, start, filled = [], 0, False
    for token in tokenize(script):
        if token.token_type is not TokenType.SEMICOLON:
            filled = True
            continue
        if filled:
            statements.append(_placed(script, start, token.start))
        start, filled = token.end + 1, False
    return [*statements, _placed(script, start, len(script))] if filled else statements


def definition_in(sql: str, defined: Collection[str] = ()) -> Definition | None:
    """Read the definition that a statement is, if it is one; `defined` are the views there are, in lower case.

    Raises BadUsage where it is not of this form, or gives a name a second time without OR REPLACE.
    """
    tokens = tokenize(sql)
    head = _DEFINES.match(" ".join(token.text.upper() for token in tokens[:_LONGEST_HEAD]))
    if head is None:
        return None
    match tokens[len(head[0].split()) :]:
        case [name, as_, _, *_] if as_.text.upper() == "AS" and name.token_type is not TokenType.STRING:
            pass
        case _:
            raise BadUsage("this CREATE VIEW is not a name and a query", "Write CREATE TEMPORARY VIEW name AS SELECT …")
    if head[1] is None and name.text.casefold() in defined:
        raise BadUsage(f"a view {name.text} is defined already", "Write CREATE OR REPLACE TEMPORARY VIEW.")
    return Definition(name.text, _placed(sql, as_.end + 1, len(sql)))


def _placed(script: str, start: int, end: int) -> str:
    return re.sub(r"\S", " ", script[:start]) + script[start:end]
