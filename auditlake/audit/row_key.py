"""Key of one row, as a person or a program writes it, in PostgreSQL's text. Pure.

A key is given without its table: which columns its values belong to depends on the table that a question means, and on
the key that this table has at the moment of the question.

A key is a tuple of texts in the order of the table's key columns. Input is converted to the text that PostgreSQL prints
(`values.input_syntax`), so `007` finds 7. If equal values of a type can have several texts, or its input rules are not
implemented, `GivenKey.other_texts` has the column: a key that is not found may then exist under another text.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from numbers import Number

from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.history import HistoryTable
from auditlake.relation import Column, TableName
from auditlake.values.input_syntax import Spelling, spelling, type_name

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InOrder:
    """The values of a key in the order of its columns: none of them is `column=value`, whatever it looks like."""

    values: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.values)


Written = tuple[str, ...] | InOrder | Mapping[str, str]
"""A key as a person types it, `id=7 line=2` in any order or the values in that of the key; its values; or by column."""


@dataclass(frozen=True, slots=True)
class GivenKey:
    """A key from the command line; `other_texts` are the columns in which an equal value may have another text."""

    table: TableName
    key: Key
    other_texts: tuple[Column, ...] = ()

    @property
    def columns_in_doubt(self) -> str:
        """The columns of `other_texts` with their types."""
        return in_doubt(self.other_texts)

    def check_absent(self) -> None:
        """Check that a key that was not found cannot exist under another text; raises NotAnswerable."""
        if self.other_texts:
            raise NotAnswerable(
                f"no row of {self.table} has a key with this text, but an equal key can have another text "
                f"({self.columns_in_doubt})",
                "Write the key as PostgreSQL prints it.",
            )


def in_doubt(columns: Iterable[Column]) -> str:
    """Return columns whose equal values may have several texts, with their types."""
    return ", ".join(f"{each.name} of {type_name(*each.type)}" for each in columns)


def parse_key(table: HistoryTable, given: Written) -> GivenKey:
    """Parse a key of a table; raises BadUsage."""
    values = by_column(table, given)
    read = [(column, read_value(column, values[column.name])) for column in table.key]
    unsure = tuple(column for column, value in read if not value.exact)
    return GivenKey(table.name, tuple(value.text for _, value in read), unsure)


def by_column(table: HistoryTable, given: Written) -> dict[str, str]:
    """Return the values of a key by the columns of the table's key; raises BadUsage for others, or another number."""
    names = [column.name for column in table.key]
    if not names:
        raise BadUsage(f"{table.label} has no key, so its rows cannot be identified", "Use auditlake diff or show.")
    read = _typed(table, given) if isinstance(given, tuple) else given
    if isinstance(read, Mapping) and (wrong := [name for name in read if name not in names]):
        raise _not_the_key(table, wrong[0])
    if len(read) != len(names):
        raise _not_the_key(table, f"{len(read)} values")
    return dict(read if isinstance(read, Mapping) else zip(names, read.values, strict=True))


def _typed(table: HistoryTable, given: tuple[str, ...]) -> InOrder | Mapping[str, str]:
    """Tell names from values in a key that a person typed; raises BadUsage."""
    names = {column.name for column in table.key}
    pairs = [(head, value) for head, equals, value in (each.partition("=") for each in given) if equals]
    if len(pairs) == len(given) and all(head in names for head, _ in pairs):
        if len(dict(pairs)) != len(pairs):
            raise _not_the_key(table, f"{len(pairs)} values")
        return dict(pairs)
    others = {column.name for column in table.current} - names
    if wrong := [head for head, _ in pairs if head in others]:
        raise _not_the_key(table, wrong[0])
    return InOrder(given)


def _not_the_key(table: HistoryTable, given: str) -> BadUsage:
    names = [column.name for column in table.key]
    form = " ".join(f"{name}=…" for name in names)
    return BadUsage(f"the key of {table.label} is {', '.join(names)}, not {given}", f"Write {form}.")


def as_written(value: object) -> Written:
    """Return a key that Python has: a value, a sequence in the order of the key, or a mapping; raises BadUsage."""
    if isinstance(value, Mapping):
        return {str(name): input_text(each) for name, each in value.items()}
    return InOrder(tuple(map(input_text, value if isinstance(value, list | tuple) else (value,))))


def input_text(value: object) -> str:
    """Return a Python value as a person writes it, for `read_value`; raises BadUsage for one that has no such text."""
    if value is None:
        raise BadUsage("a value of the key is NULL, which no key has", "Give the values of the row's key.")
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if not isinstance(value, str | Number) and (
        isinstance(value, Collection) or type(value).__str__ is object.__str__
    ):  # its text is only Python's, but a column of texts would take it
        raise BadUsage(f"a value is of type {type(value).__name__}, need one of a column", "Give PostgreSQL's text.")
    try:
        return str(value)
    except ValueError:  # Python's limit
        raise BadUsage("a value is a number of too many digits", "Give it as a text.") from None


def read_value(column: Column, value: str) -> Spelling:
    """Return PostgreSQL's text of a value of the column's type; raises BadUsage if it is none without rounding."""
    try:
        return spelling(*column.type, value)
    except ValueError as exc:
        kind = type_name(*column.type)
        raise BadUsage(f"the value for {column.name} is not a valid {kind}", f"Write {exc}.") from exc


def is_value(column: Column, text: str) -> bool:
    """Return whether a text is a value of the column's type, or may be one."""
    try:
        read_value(column, text)
    except BadUsage:
        return False
    return True
