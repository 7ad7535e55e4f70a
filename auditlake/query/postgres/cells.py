"""Translated expressions, and what is raised for one that is not translated. Pure."""

from dataclasses import dataclass, replace

from sqlglot import exp

from auditlake.query.postgres.types import UNKNOWN, Type
from auditlake.query.room import take
from auditlake.relation import TableName

NO_NAME = "?column?"


@dataclass(frozen=True, slots=True)
class Cell:
    """An expression in DuckDB's SQL with its type; `name` is PostgreSQL's name for a column of it.

    `literal` is the text of a literal whose type is not decided yet, `null` says that it is NULL.
    """

    sql: str
    type: Type
    name: str = NO_NAME
    literal: str | None = None
    null: bool = False
    origin: tuple[TableName, str] | None = None
    is_lsn: bool = False
    weak: bool = False
    """Whether the name is that of a type, or `case`, which a cast or a CASE around it replaces."""
    masked: bool = False
    """Whether it is a column that a statement must not read."""

    def __post_init__(self) -> None:
        take(self.sql)

    @property
    def is_unknown(self) -> bool:
        """Whether it is a literal, or NULL, whose type is not decided yet."""
        return self.type == UNKNOWN

    def named(self, name: str, *, weak: bool = False) -> "Cell":
        """Return it under another name."""
        return replace(self, name=name, weak=weak)


NULL = Cell("null", UNKNOWN, null=True)


class Refused(Exception):
    """A construct that is not translated, at a node of the tree; `wrong`: PostgreSQL refuses it as well."""

    def __init__(self, node: exp.Expr | None, what: str, hint: str = "", *, wrong: bool = False) -> None:
        super().__init__(what)
        self.node = node
        self.what = what
        self.hint = hint
        self.wrong = wrong


def is_array_of_query(node: exp.Expr) -> bool:
    """Return whether an array is `ARRAY(…)`, of a query, rather than `ARRAY[…]`."""
    return "value_constructor" not in node.args


def construct(node: exp.Expr) -> str:
    """Name a node as a person would."""
    if isinstance(node, exp.Anonymous):
        return f"the function {node.name}"
    if isinstance(node, exp.Func):
        return f"the function {spelled(node, node.sql_name().lower())}"
    return type(node).__name__.upper()


def spelled(node: exp.Expr, name: str) -> str:
    """Return the name that the statement uses for a function that has several."""
    given = node.meta.get("spelled")
    return given if isinstance(given, str) else name
