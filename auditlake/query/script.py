"""A script of several statements, each ended by a semicolon; those in texts, quoted names and comments end nothing.

Pure. A statement keeps its place in the script: what came before it is blanked, so that a message that names a line
means the script's.
"""

import re

from sqlglot import TokenType

from auditlake.query.dialect import tokenize


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


def _placed(script: str, start: int, end: int) -> str:
    return re.sub(r"\S", " ", script[:start]) + script[start:end]
