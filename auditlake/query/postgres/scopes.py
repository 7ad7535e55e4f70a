"""The names that a query can use: the tables of a FROM clause, their columns, and those of the queries around. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sqlglot import exp

from auditlake.query.dialect import COMPARISONS
from auditlake.query.postgres.cells import Cell, Refused
from auditlake.query.postgres.types import FLOAT4, FLOAT8, INTERVAL, TEXT
from auditlake.relation import TableName

if TYPE_CHECKING:
    from auditlake.query.postgres.queries import Names

_LONGEST_NAME = 63
"""Bytes: PostgreSQL cuts a longer name off."""
_MOST_TABLES = 64
"""DuckDB needs 1.8 s of CPU to order so many joins, 5 s for 80 and 15 s for 100 (2026-11): nothing interrupts it."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A table of the lake as a statement reads it: its view, and the view's columns by name, `c0` and so on.

    `key` are the columns that are different in any two rows, none for the versions of a period.
    """

    view: str
    name: TableName
    columns: tuple[Cell, ...]
    key: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Query:
    """A translated query, and its columns, which are `o0`, `o1` … in DuckDB."""

    sql: str
    columns: tuple[Cell, ...]


def folded(identifier: exp.Expr) -> str:
    """Return the name that an identifier means."""
    name = str(identifier.this).encode()[:_LONGEST_NAME].decode(errors="ignore")
    if isinstance(identifier, exp.Identifier) and identifier.quoted:
        return name
    return "".join(each.lower() if each.isascii() else each for each in name)


def settled(columns: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return the columns of a query for those around it, where a literal is a text."""
    kinds = (TEXT if cell.is_unknown else cell.type for cell in columns)
    pairs = enumerate(zip(columns, kinds, strict=True))
    return tuple(replace(cell, sql=f"o{n}", type=kind, literal=None, null=False) for n, (cell, kind) in pairs)


@dataclass(frozen=True, slots=True)
class FromItem:
    """A table of a FROM clause by the names that it has there, its columns, and the texts of those of its key."""

    given: str
    schema: str | None
    cells: tuple[Cell, ...]
    key: frozenset[str] = frozenset()
    is_value: bool = False
    """Whether its name means its only column, as that of a function does."""


@dataclass
class Scope:
    """The tables of one FROM clause, what `*` shows of them, and the scope around."""

    names: "Names"
    outer: "Scope | None"
    sources: list[FromItem] = field(default_factory=list)
    shown: list[Cell] = field(default_factory=list)
    windows: dict[str, exp.Expr] = field(default_factory=dict)
    used_windows: set[str] = field(default_factory=set)

    @property
    def now(self) -> datetime:
        """The time of the statement."""
        return self.names.now

    def column(self, node: exp.Column) -> Cell:
        """Find the column that a name means; raises Refused."""
        for scope in self._outward():
            found = scope.find(node)
            if len(found) > 1:
                raise Refused(node, f"column {node.name} is ambiguous", "Write the table before it.", wrong=True)
            if found and scope is not self:
                return _from_outside(found[0], node)
            if found:
                return usable(found[0], node)
        raise self._unknown(node)

    def _outward(self) -> "Iterator[Scope]":
        """Yield this scope and those around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def is_outer(self, node: exp.Column) -> bool:
        """Return whether a name means a column of a query around this one."""
        return not self.find(node) and any(scope.find(node) for scope in self._outward())

    def find(self, node: exp.Column) -> list[Cell]:
        """Find the columns of this FROM clause that a name can mean."""
        name = folded(node.this)
        if node.args.get("table") is None:
            found = [cell for cell in self.shown if cell.name == name]
            return found or [each.cells[0].named(name) for each in self.sources if each.is_value and each.given == name]
        return [cell for source in self.named(node) for cell in source.cells if cell.name == name]

    def named(self, node: exp.Column) -> list[FromItem]:
        """Return the tables that the qualifier of a column can mean."""
        table, schema = folded(node.args["table"]), node.args.get("db")
        return [
            source
            for source in self.sources
            if source.given == table and (schema is None or source.schema == folded(schema))
        ]

    def _unknown(self, node: exp.Column) -> Refused:
        if isinstance(node.this, exp.Star):
            raise Refused(node, "table.* in an expression")
        name, table = folded(node.this), node.args.get("table")
        scopes = list(self._outward())
        if table is None and any(source.given == name for each in scopes for source in each.sources):
            raise Refused(node, f"a row of {name} as a value", "Name its columns.")
        if table is not None and not any(each.named(node) for each in scopes):
            known = [source.given for each in scopes for source in each.sources]
            return Refused(
                node, f"there is no table {folded(table)} in this FROM", nearest(folded(table), known), wrong=True
            )
        columns = [
            cell.name
            for each in scopes
            for source in (each.sources if table is None else each.named(node))
            for cell in source.cells
        ]
        where = "" if table is None else f" in {folded(table)}"
        hint = nearest(name, columns)
        if table is None and node.this.args.get("quoted") and not hint.startswith("Did"):
            hint = f"A text is in single quotes. {hint}"
        return Refused(node, f"there is no column {name}{where}", hint, wrong=True)

    def subquery(self, node: exp.Expr) -> tuple[str, Sequence[Cell]]:
        """Translate a query in an expression; return its text, and its columns as `o0` …."""
        inner = self.names.query(node, self)
        return inner.sql, settled(inner.columns)

    def window(self, name: exp.Expr) -> exp.Expr | None:
        """Return the definition of a window by its name, which counts as used."""
        self.used_windows.add(folded(name))
        return self.windows.get(folded(name))

    def star(self, node: exp.Expr) -> list[Cell]:
        """Return the columns of `*` or `table.*`."""
        if isinstance(node, exp.Star):
            if not self.sources:
                raise Refused(node, "* without FROM", wrong=True)
            return [usable(cell, node) for cell in self.shown]
        # a column whose name is a star
        found = next(filter(None, (scope.named(node) for scope in self._outward())), [])  # type: ignore[arg-type]
        if len(found) != 1:
            raise self._unknown(exp.Column(this=exp.Identifier(this="*"), table=node.args["table"]))
        is_own = found[0] in self.sources
        return [usable(cell, node) if is_own else _from_outside(cell, node) for cell in found[0].cells]

    def add(self, source: FromItem, node: exp.Expr) -> None:
        """Add a table."""
        alike = [each.schema for each in self.sources if each.given == source.given]
        if source.given and alike and (None in {*alike, source.schema} or source.schema in alike):
            raise Refused(node, f"the table {source.given} twice", "Give one of them another alias.", wrong=True)
        if len(self.sources) == _MOST_TABLES:
            raise Refused(node, f"more than {_MOST_TABLES} tables in one FROM", "Join some of them in a subquery.")
        self.sources.append(source)


def nearest(name: str, known: Sequence[str]) -> str:
    """Return a hint with the names nearest to one that does not exist."""
    close = get_close_matches(name, list(dict.fromkeys(known)), n=3)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    listed = list(dict.fromkeys(known))
    return f"There are {', '.join(listed[:12])}{' …' if len(listed) > 12 else ''}." if listed else ""  # noqa: PLR2004


def usable(cell: Cell, node: exp.Expr) -> Cell:
    """Return a column that a statement may read; raises Refused."""
    if cell.masked:
        hint = "Ask without it: name the columns that you need in place of *."
        raise Refused(node, f"column {cell.name} is masked", hint, wrong=True)
    if cell.type.element is not None and cell.type.element.name == "bpchar":
        raise Refused(node, f"column {cell.name}, an array of character")
    return cell


def _from_outside(cell: Cell, node: exp.Expr) -> Cell:
    """Return a column of a query around; raises Refused.

    DuckDB computes a subquery once for equal values: for 0 and -0, or 1 day and 24 hours, which compare alike.
    """
    kind = cell.type.element or cell.type
    if kind in {FLOAT4, FLOAT8, INTERVAL} and type(node.parent) not in _COMPARED:
        raise Refused(
            node, f"{cell.name}, {cell.type.shown} of a query around", "Only comparisons of it are translated."
        )
    return usable(cell, node)


_COMPARED = frozenset({*COMPARISONS, exp.Between})


def renamed(columns: Sequence[Cell], alias: exp.Expr, node: exp.Expr) -> Sequence[Cell]:
    """Give columns the names of an alias, which may name the first of them only; raises Refused."""
    given = alias.args.get("columns") or []
    if any(isinstance(each, exp.ColumnDef) for each in given):
        raise Refused(node, "a column definition list, which is for functions that return records", wrong=True)
    if len(given) > len(columns):
        raise Refused(node, "an alias with more columns than there are", wrong=True)
    names = [folded(each) for each in given] + [cell.name for cell in columns[len(given) :]]
    return [cell.named(name) for cell, name in zip(columns, names, strict=True)]
