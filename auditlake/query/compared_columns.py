"""Columns whose text is not their value, or that are NULL for some values; and what may be done with them.

Spark and DuckDB compare an `interval` by its text; PostgreSQL compares values, and equal values may have different
texts (`values.equality`). So such a column may be shown, cast and passed to functions of text, but not compared,
grouped, joined, made distinct or sorted by. A typed column is NULL for a value that its type cannot hold,
such as NaN and infinity; it may be shown, but a computation would leave that value out. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sqlglot import exp

from auditlake.errors import NotAnswerable
from auditlake.query.compared_functions import MATCHES
from auditlake.query.system_time import Selection
from auditlake.relation import TableName
from auditlake.values.equality import UNRECORDED, differs_in, has_equality, has_order, is_plain, printed
from auditlake.values.input_syntax import type_name
from auditlake.values.types import DOES_NOT_FIT, ColumnType, element_of


@dataclass(frozen=True, slots=True)
class PartialColumn:
    """A column, in the rows of a selection, that is NULL for some values (`values.types`)."""

    table: TableName
    selection: Selection
    stored: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """A column of a table whose comparisons are checked; or, of an array, its elements.

    `recorded` is what the lake recorded of comparisons with it (`values.equality`), `origin` the column itself if it is
    NULL for some values.
    """

    table: TableName
    name: str
    type_oid: int
    typmod: int
    recorded: tuple[str, ...] | None = None
    origin: PartialColumn | None = None

    @property
    def may_not_fit(self) -> bool:
        """Whether it is NULL here for some values that exist."""
        return self.origin is not None

    @property
    def differs_in(self) -> str | None:
        """Return on what a comparison depends besides the text; None if on nothing."""
        return differs_in(self.type_oid, self.recorded)

    @property
    def is_plain(self) -> bool:
        """Whether no comparison of it has to be checked."""
        return is_plain(self.type_oid, self.typmod) and self.differs_in is None

    @property
    def type_name(self) -> str:
        """The name of its type, with that of an own type as it was recorded."""
        return self.recorded[0] if self.recorded else type_name(self.type_oid, self.typmod)

    @property
    def element(self) -> "ComparedColumn | None":
        """The elements of an array; None if nothing has to be checked of them."""
        element = element_of(self.type_oid)
        if element is None:
            return self
        of_element = replace(self, type_oid=element)
        return None if of_element.is_plain else of_element


Marks = frozenset[ComparedColumn]
NO_MARKS: Marks = frozenset()


class Shown(NamedTuple):
    """A column that a query shows, and the columns of tables whose values it may have; EVERY stands for any name."""

    name: str
    marks: Marks

    def is_named(self, name: str) -> bool:
        """Return whether a name may mean it."""
        return self.name == EVERY or self.name.casefold() == name.casefold()


EVERY = "*"
Columns = Sequence[Shown]


def columns_shown_of(columns: Iterable[ComparedColumn]) -> list[Shown]:
    """Return the columns of a table."""
    return [Shown(e.name, NO_MARKS if e.is_plain and not e.may_not_fit else frozenset({e})) for e in columns]


def union(marks: Iterable[Marks]) -> Marks:
    """Return all of these marks."""
    return frozenset().union(*marks)


def all_marks(columns: Columns) -> Marks:
    """Return the marks of all columns."""
    return union(each.marks for each in columns)


def compared_elements(marks: Marks) -> Marks:
    """Return the marks of the elements of arrays."""
    return frozenset(each for mark in marks if (each := mark.element) is not None)


def check_marks(marks: Marks, what: str, *, ordered: bool = False) -> None:
    """Check that columns may be compared as texts, for equality or by order; raises NotAnswerable."""
    for each in sorted(marks, key=lambda mark: (mark.table, mark.name)):
        _check_recorded(each, what)
        fits = has_order if ordered else has_equality
        if not fits(each.type_oid, each.typmod):
            equal = has_equality(each.type_oid, each.typmod)
            why = "is in another order than its values" if equal else "may differ for equal values"
            raise NotAnswerable(
                f"{what} would compare the text of {each.table}.{each.name} ({each.type_name}), which {why}",
                f"Write cast({each.name} as string) to compare texts all the same, or cast it to a type of Spark's.",
            )


def held_error(column: ComparedColumn) -> NotAnswerable:
    """Return the refusal of a computation with a column that is NULL for a value that exists."""
    assert column.origin is not None  # noqa: S101 - only such columns are computed with
    kind = column.origin.type
    return NotAnswerable(
        f"the statement computes with {column.table}.{column.name}, which is NULL here for a value that exists and "
        f"{kind.delta} cannot hold ({DOES_NOT_FIT[kind.kind]})",
        f"Write cast({column.name} as {kind.delta}) to take it for NULL; exact_text({column.name}) shows it.",
    )


def _check_recorded(column: ComparedColumn, what: str) -> None:
    part = column.differs_in
    if part is None:
        return
    hint = f"Write cast({column.name} as string) to compare texts all the same."
    if part is UNRECORDED:
        hint = f"auditlake follow records it. {hint}"
    raise NotAnswerable(
        f"{what} would compare the text of {column.table}.{column.name} ({column.type_name}), "
        f"which may differ for equal values, depending on {part}",
        hint,
    )


def check_matches(marks: Marks, name: str) -> None:
    """Check that columns may be matched by a function, which may depend on a collation; raises NotAnswerable."""
    for each in sorted(marks, key=lambda mark: (mark.table, mark.name)) if name in MATCHES else ():
        _check_recorded(each, f"{name}()")


def check_texts(marks: Marks, operands: Iterable[exp.Expr]) -> None:
    """Check that the texts among the operands are as PostgreSQL prints the values that it reads from them."""
    compared = [each for each in marks if not each.is_plain]
    for text in (each.unnest() for each in operands):
        if isinstance(text, exp.Tuple | exp.Array):
            check_texts(marks, text.expressions)
        for each in compared if isinstance(text, exp.Literal) and text.is_string else ():
            _check_text(each, str(text.this))


def _check_text(column: ComparedColumn, text: str) -> None:
    element = column.element
    if element is None or (element is not column and text.startswith("{")):
        return
    subject = f"{column.table}.{column.name} is compared with a text"
    try:
        shown = printed(element.type_oid, element.typmod, text)
    except ValueError as exc:
        raise NotAnswerable(
            f"{subject} that is not known to be a value of {element.type_name}", f"Write {exc}."
        ) from exc
    if shown != text:
        raise NotAnswerable(f"{subject} that PostgreSQL prints in another form", f"Write '{shown}'.")
