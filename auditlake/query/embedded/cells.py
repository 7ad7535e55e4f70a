"""Translated expressions of Spark SQL, and what is raised for one that only Spark answers. Pure."""

import re
from dataclasses import dataclass, replace

from sqlglot import exp

from auditlake.delta.sql import duckdb_type
from auditlake.errors import BadUsage
from auditlake.query.room import take
from auditlake.relation import TableName


class NotEmbedded(Exception):
    """A statement, or a part of it, that only Spark answers; the text names the construct."""

    def refusal(self, hint: str) -> BadUsage:
        """Return the error for a statement that has to be answered in DuckDB."""
        return BadUsage(f"DuckDB does not answer this exactly as Spark: {self}", hint)


@dataclass(frozen=True, slots=True)
class SparkCell:
    """An expression: its DuckDB text, its type in Spark, and the name that Spark gives a column of it, if known."""

    sql: str
    kind: str
    name: str | None = None
    origin: tuple[TableName, str] | None = None
    """The column of a table that it shows unchanged, if that column's type cannot hold every value."""
    is_lsn: bool = False
    number: int | None = None
    """The value of an integer literal."""
    text: str | None = None
    """The value of a string literal."""
    masked: bool = False
    """Whether it is a column that a statement must not read."""

    def __post_init__(self) -> None:
        take(self.sql)

    @property
    def computed(self) -> "SparkCell":
        """The same value, without what only a column has."""
        return replace(self, origin=None, is_lsn=False, number=None, text=None)


def as_kind(cell: SparkCell, kind: str) -> str:
    """Return DuckDB text that has this type."""
    return cell.sql if cell.kind == kind and cell.number is None else f"cast({cell.sql} as {duckdb_type(kind)})"


def construct(node: exp.Expr) -> str:
    """Name a node."""
    if isinstance(node, exp.Anonymous):
        return f"{node.name.lower()}()"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).upper()
