"""Scripts: split SQL at semicolons outside of strings, quoted names and comments, and recognise view definitions. Pure.

One kind of statement has no result: `create temporary view NAME as QUERY` names a query for the statements after it.

A statement keeps its position in the script: everything before it is blanked, so that an error names the script's line.
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
    """A view that lasts as long as the session: its name, and its query at its position in the script."""

    name: str
    query: str


def split(script: str) -> list[str]:
    """Split a script into its statements, leaving out the empty ones.

    Raises BadUsage if a string, quoted name or comment does not end.
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
    """Parse a view definition; None if the statement is not one. `defined` are existing views, in lower case.

    Raises BadUsage if it is malformed, or defines an existing view without OR REPLACE.
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
