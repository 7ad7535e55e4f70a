"""Whether sqlglot reads a statement as PostgreSQL does. Pure.

What is translated is sqlglot's tree. It is written as PostgreSQL's SQL again, with each operation in parentheses and
each name in quotes, and PostgreSQL's parser must find in this text what it finds in the typed one. So a clause that
sqlglot leaves out or takes for another, operators that it groups otherwise, and a word that is a name to it alone, are
in only one of the two.

Both of PostgreSQL's trees are brought to one form first, in which these are alike:

- `x not in (…)` and `not (x in (…))`, so for BETWEEN, LIKE, SIMILAR TO, IS and the operators of patterns
- a function and its syntax: `substring(x from 2)`, `x ^ y`, CURRENT_TIMESTAMP, `variance`
- the spellings of types, numbers, frames and ORDER BY … USING

Authority: github.com/postgres/postgres, src/backend/parser/gram.y, which makes the former of the latter, or operators
and functions of one implementation (pg_proc.dat, pg_operator.dat).
"""

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.generators.postgres import PostgresGenerator

from auditlake.query.postgres.cells import is_array_of_query
from auditlake.query.postgres.number_syntax import plain
from auditlake.query.postgres.scopes import folded
from auditlake.sql_names import standard_identifier

_Node = dict[str, Any]
_FRAME_BETWEEN = 0x10  # FRAMEOPTION_BETWEEN of src/include/nodes/parsenodes.h: only how a frame is written
_ZERO: _Node = {"A_Const": {"ival": {}}}
_NOT_COMPARED = frozenset({"location", "stmt_len", "stmt_location", "funcformat"}) | {
    f"{name}_{end}" for name in ("list", "rexpr_list") for end in ("start", "end")
}
_POSITIVE = {
    ("AEXPR_IN", "<>"): "=",
    ("AEXPR_LIKE", "!~~"): "~~",
    ("AEXPR_ILIKE", "!~~*"): "~~*",
    ("AEXPR_SIMILAR", "!~"): "~",
    ("AEXPR_OP", "!~"): "~",
    ("AEXPR_OP", "!~*"): "~*",
}
_OPERATORS = {"^": "power", "^@": "starts_with", "|/": "sqrt", "||/": "cbrt"}
_FUNCTIONS = {"variance": "var_samp", "stddev": "stddev_samp"}
_NULLS = {"SORTBY_ASC": "SORTBY_NULLS_LAST", "SORTBY_DESC": "SORTBY_NULLS_FIRST"}
_WAYS = {"<": "SORTBY_ASC", ">": "SORTBY_DESC"}


def _array(generator: PostgresGenerator, node: exp.Array) -> str:
    inner = generator.expressions(node, flat=True)
    return f"ARRAY({inner})" if is_array_of_query(node) else f"ARRAY[{inner}]"


def _window(generator: PostgresGenerator, node: exp.Window) -> str:
    text = generator.window_sql(node)
    name = generator.sql(node, "alias")
    return f"{text.removesuffix(name)}({name})" if node.meta.get("copied") and text.endswith(f" {name}") else text


class _Written(Postgres):
    """PostgreSQL's dialect, written as it is read: sqlglot's generator makes other calls of some functions."""

    INDEX_OFFSET = 0

    class Generator(PostgresGenerator):
        MULTI_ARG_DISTINCT = True
        JSON_TYPE_REQUIRED_FOR_EXTRACTION = False
        TRANSFORMS: ClassVar = {
            **PostgresGenerator.TRANSFORMS,
            exp.Array: _array,
            exp.BitwiseNot: lambda self, node: f"~ {self.sql(node, 'this')}",
            exp.ArrayAgg: lambda self, node: self.function_fallback_sql(node),
            exp.Identifier: lambda _, node: standard_identifier(folded(node)),
            exp.Interval: lambda self, node: f"INTERVAL {self.sql(node, 'this')} {self.sql(node, 'unit')}",
            exp.Null: lambda _, node: "UNKNOWN" if node.meta.get("unknown") else "NULL",
            exp.Round: lambda self, node: self.function_fallback_sql(node),
            exp.Select: lambda self, node: self.select_sql(node),
            exp.Version: lambda *_: "",
            exp.Window: _window,
        }


_DIALECT = _Written()


def misread_at(tree: exp.Query, read: Any) -> int | None:  # noqa: ANN401 - JSON
    """Return the byte of a statement in which PostgreSQL reads something else than in sqlglot's tree; None if nowhere.

    `read` is PostgreSQL's tree of the statement. FOR SYSTEM_TIME is in neither text. sqlglot's tree may be changed.
    """
    from pgparse import PGQueryError, parse  # noqa: PLC0415 - 18 ms that only a statement of this dialect takes

    typed = _Normal(read)
    for node in [*tree.walk()]:
        _group(node)
    try:
        written = _Normal(parse(tree.sql(dialect=_DIALECT, copy=False)))
    except PGQueryError:
        return 0
    return None if typed.form == written.form else typed.place_of_difference(typed.form, written.form, 0)


def _group(node: exp.Expr) -> None:
    """Put parentheses around each operand that is an operation: PostgreSQL's tree has none, and its own precedence."""
    for name, value in node.args.items() if isinstance(node, _OPERATIONS) else ():
        if isinstance(value, list):
            node.set(name, [_grouped(each) for each in value])
        elif value is not (grouped := _grouped(value)) and not isinstance(node, exp.Escape):
            node.set(name, grouped)


def _grouped(value: Any) -> Any:  # noqa: ANN401 - sqlglot's
    return exp.Paren(this=value) if isinstance(value, _OPERATIONS) and not isinstance(value, _CLOSED) else value


_OPERATIONS = (exp.Binary, exp.Unary, exp.Between, exp.In, exp.AtTimeZone, exp.Bracket)
_CLOSED = (exp.Paren, exp.Dot, exp.Slice, exp.Bracket)


class _Normal:
    """A tree of PostgreSQL's in its one form, and where its parts are in the statement."""

    def __init__(self, tree: Any) -> None:  # noqa: ANN401 - JSON
        self._places: dict[int, int] = {}
        self.form = self._of(tree)

    def _of(self, node: Any) -> Any:  # noqa: ANN401 - JSON
        if isinstance(node, list):
            return [self._of(each) for each in node]
        if not isinstance(node, dict):
            return node
        found = {name: self._of(value) for name, value in node.items() if name not in _NOT_COMPARED}
        for name in _RULES.keys() & found.keys():
            found = _RULES[name](found)
        if node.get("location", -1) >= 0:
            self._places[id(found)] = node["location"]
        return found

    def place_of_difference(self, one: Any, other: Any, place: int) -> int:  # noqa: ANN401 - JSON
        """Return where a part of this tree is that differs from one of another tree; `place` is known of its whole."""
        place = self._places.get(id(one), place)
        pairs: list[tuple[Any, Any]] = []
        if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
            pairs = [(one[name], other[name]) for name in one]
        elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            pairs = [*zip(one, other, strict=True)]
        return next((self.place_of_difference(a, b, place) for a, b in pairs if a != b), place)


def _negated(node: _Node) -> _Node:
    return {"BoolExpr": {"boolop": "NOT_EXPR", "args": [node]}}


def _name(text: str) -> list[_Node]:
    return [{"String": {"sval": text}}]


def _operation(node: _Node) -> _Node:
    given = node["A_Expr"]
    kind, sign = given["kind"], given["name"][-1]["String"]["sval"]
    if (positive := _POSITIVE.get((kind, sign))) is not None:
        return _negated({"A_Expr": {**given, "name": _name(positive)}})
    if kind.startswith("AEXPR_NOT_"):  # BETWEEN, BETWEEN SYMMETRIC, DISTINCT, whose name is that of the kind
        return _negated(
            {"A_Expr": {**given, "kind": kind.replace("NOT_", ""), "name": _name(sign.replace("NOT ", ""))}}
        )
    if kind == "AEXPR_OP" and sign in _OPERATORS:
        arguments = [given[side] for side in ("lexpr", "rexpr") if side in given]
        return {"FuncCall": {"funcname": _name(_OPERATORS[sign]), "args": arguments}}
    if kind == "AEXPR_OP" and sign == "+" and "lexpr" not in given:
        return {"A_Expr": {**given, "lexpr": _ZERO}}
    return node


def _test(kind: str, types: str) -> Callable[[_Node], _Node]:
    def normal(node: _Node) -> _Node:
        given = node[kind]
        positive = given[types].replace("IS_NOT_", "IS_")
        return node if positive == given[types] else _negated({kind: {**given, types: positive}})

    return normal


def _value(node: _Node) -> _Node:
    is_now = node["SQLValueFunction"]["op"] == "SVFOP_CURRENT_TIMESTAMP"
    return {"FuncCall": {"funcname": _name("now"), "args": []}} if is_now else node


def _call(node: _Node) -> _Node:
    given = node["FuncCall"]
    names = _without_catalog(given["funcname"])
    name = names[0]["String"]["sval"] if len(names) == 1 else ""
    arguments = given.get("args", [])
    if name == "substring" and arguments:  # PostgreSQL casts the length of `substring(x for 2)`
        arguments = [*arguments[:-1], _uncast(arguments[-1])]
    return {
        "FuncCall": {**given, "funcname": _name(_FUNCTIONS[name]) if name in _FUNCTIONS else names, "args": arguments}
    }


def _uncast(node: _Node) -> _Node:
    cast = node.get("TypeCast", {})
    is_integer = cast.get("typeName", {}).get("names") == _name("int4")
    return cast["arg"] if is_integer else node


def _without_catalog(names: list[_Node]) -> list[_Node]:
    return [each for each in names if each != {"String": {"sval": "pg_catalog"}}]


def _number(node: _Node) -> _Node:
    text = node["fval"]
    if not isinstance(text, str):
        return node
    text = plain(text) or text
    return {"fval": f"0{text}" if text.startswith(".") else text}


def _order(node: _Node) -> _Node:
    way = node["sortby_dir"]
    if way == "SORTBY_USING":
        way = _WAYS.get(node["useOp"][-1]["String"]["sval"], way)
        node = {name: value for name, value in node.items() if name != "useOp"}
    way = "SORTBY_ASC" if way == "SORTBY_DEFAULT" else way
    nulls = node["sortby_nulls"]
    return {
        **node,
        "sortby_dir": way,
        "sortby_nulls": _NULLS.get(way, nulls) if nulls == "SORTBY_NULLS_DEFAULT" else nulls,
    }


def _values(node: _Node) -> _Node:
    """Return the VALUES of a query that sqlglot makes of them in WITH and set operations."""
    match node["fromClause"]:
        case [{"RangeSubselect": {"subquery": {"SelectStmt": inner}, "alias": alias}}] if alias == _OF_VALUES:
            is_all = node["targetList"] == _ALL and node.keys() == {*_MEMBERS, "targetList", "fromClause"}
            return inner if is_all and inner.keys() == {*_MEMBERS, "valuesLists"} else node
    return node


_OF_VALUES = {"aliasname": "_values"}
_ALL: list[_Node] = [{"ResTarget": {"val": {"ColumnRef": {"fields": [{"A_Star": {}}]}}}}]
_MEMBERS = ("limitOption", "op")
_RULES: dict[str, Callable[[_Node], _Node]] = {
    "A_Expr": _operation,
    "BooleanTest": _test("BooleanTest", "booltesttype"),
    "NullTest": _test("NullTest", "nulltesttype"),
    "SQLValueFunction": _value,
    "FuncCall": _call,
    "fromClause": _values,
    "names": lambda node: {**node, "names": _without_catalog(node["names"])},
    "fval": _number,
    "sortby_dir": _order,
    "frameOptions": lambda node: {**node, "frameOptions": node["frameOptions"] | _FRAME_BETWEEN},
}
"""How a part gets its one form, by the name of one of its members."""
