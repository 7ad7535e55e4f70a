"""PostgreSQL's own parser as the judge of what is a statement: its errors, and the operators and types named. Pure.

The tree that is translated is sqlglot's, which reads more than PostgreSQL does: clauses in any order, operators, types
and literals of other dialects. So a statement must be one for PostgreSQL's parser, too (libpg_query, by pgparse). To
that parser operators and types are names, which need not exist; those that PostgreSQL does not have are refused here.

libpg_query writes its tree by calls within calls and does not check their depth: 5,000 need a megabyte of stack.
"""

from collections.abc import Iterator
from typing import Any

from auditlake.errors import BadUsage, NotAnswerable
from auditlake.query.dialect import place_in
from auditlake.values.types import BUILT_IN

OPERATORS = frozenset(
    """
    !! !~ !~* !~~ !~~* # ## #- #> #>> % & && &< &<| &> * *< *<= *<> *= *> *>= + - -> ->> -|- / < <-> << <<= <<|
    <= <> <@ <^ = > >= >> >>= >^ ? ?# ?& ?- ?-| ?| ?|| @ @-@ @> @? @@ @@@ ^ ^@ | |&> |/ |>> || ||/ ~ ~* ~<=~ ~<~ ~=
    ~>=~ ~>~ ~~ ~~*
    """.split()  # noqa: SIM905 - readable
)
"""Those of PostgreSQL 18: `select distinct oprname from pg_operator`."""
_VALUES = frozenset({"SVFOP_CURRENT_DATE", "SVFOP_CURRENT_TIMESTAMP", "SVFOP_LOCALTIMESTAMP"})
"""Words that are values, of those that no column has as its name without quotes."""
_LONGEST_MESSAGE = 200
_IN_QUOTES = "The name of a column of this name is in quotes."


def require_statement(sql: str, hint: str) -> Any:  # noqa: ANN401 - JSON
    """Return PostgreSQL's tree of a statement without FOR SYSTEM_TIME, of bounded depth.

    Raises BadUsage, NotAnswerable.
    """
    from pgparse import PGQueryError, parse  # noqa: PLC0415 - 18 ms that only a statement of this dialect takes

    try:
        tree = parse(sql)
    except PGQueryError as exc:
        message, position = exc.args
        at = f" at {place_in(sql, position - 1)}" if position > 0 else ""
        raise BadUsage(f"cannot parse the SQL{at}: {_short(message)}", hint) from None
    for node in _nodes(tree):
        _check_names(sql, node, hint)
    return tree


def _short(message: str) -> str:
    """Return a message with the begin of the token that it quotes, which may be a long string."""
    line = message.partition("\n")[0]
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}…"


def _check_names(sql: str, node: dict[str, Any], hint: str) -> None:
    """Check that what a node of PostgreSQL's tree names exists, and is no column to sqlglot."""
    match node:
        case {"kind": "AEXPR_OP" | "AEXPR_OP_ANY" | "AEXPR_OP_ALL", "name": name} | {"operName": name}:
            if (sign := _text(name).removeprefix("pg_catalog.")) not in OPERATORS:
                raise BadUsage(f"the operator {sign} at {_place(sql, node)} does not exist", hint)
        case {"names": [_] as name, "typemod": _} if _text(name) not in BUILT_IN:
            what = f"the type {_text(name)} at {_place(sql, node)} is not translated"
            raise NotAnswerable(what, "Write the name of one of PostgreSQL's own types.")
        case {"op": str(word), "typmod": _} if word.startswith("SVFOP_") and word not in _VALUES:
            word = word.removeprefix("SVFOP_").removesuffix("_N").lower()
            raise NotAnswerable(f"{word} at {_place(sql, node)} is not translated", _IN_QUOTES)
        case {"funcname": [{"String": {"sval": "position"}}]}:  # its arguments are in another order
            raise NotAnswerable(f'"position" at {_place(sql, node)} is not translated', "Write position('b' in 'abc').")


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - JSON
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            yield node
            left += node.values()
        elif isinstance(node, list):
            left += node


def _text(name: list[dict[str, dict[str, str]]]) -> str:
    return ".".join(part["String"]["sval"] for part in name)


def _place(sql: str, node: dict[str, Any]) -> str:
    return place_of_byte(sql, max(0, node.get("location", 0)))


def place_of_byte(sql: str, offset: int) -> str:
    """Return line and column of an offset in bytes, as PostgreSQL counts."""
    return place_in(sql, len(sql.encode()[:offset].decode()))
