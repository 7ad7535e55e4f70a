"""Key of one row: from the command line to PostgreSQL's text, and to conditions on `history` and `changes`. Pure.

A key is a tuple of texts in the order of the table's key columns. Input is converted to the text that PostgreSQL prints
(`values.input_syntax`), so `007` finds 7. If equal values of a type can have several texts, or its input rules are not
implemented, `GivenKey.other_texts` has the column: a key that is not found may then exist under another text.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime

from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.history import HistoryTable, type_of
from auditlake.relation import Column, Relation, TableName
from auditlake.sql_names import standard_identifier, standard_literal
from auditlake.temporal.when import to_us
from auditlake.values.input_syntax import Spelling, spelling, type_name
from auditlake.values.types import NOT_FINITE, Kind

HERE, THERE = '"`a"', '"`b"'
"""Aliases of `history` in a self-join; no column name contains a backtick (`lake.column_names`)."""
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GivenKey:
    """A key from the command line; `other_texts` are the columns in which an equal value may have another text."""

    table: TableName
    key: Key
    other_texts: tuple[Column, ...] = ()

    def check_absent(self) -> None:
        """Check that a key that was not found cannot exist under another text.

        Raises NotAnswerable.
        """
        if self.other_texts:
            columns = ", ".join(f"{each.name} of {type_name(*each.type)}" for each in self.other_texts)
            raise NotAnswerable(
                f"no row of {self.table} has a key with this text, but an equal key can have another text ({columns})",
                "Write the key as PostgreSQL prints it.",
            )


def parse_key(table: HistoryTable, given: tuple[str, ...]) -> GivenKey:
    """Parse a key: `id=7 line=2` in any order, or the values alone in the order of the key's columns.

    Raises BadUsage.
    """
    names = [column.name for column in table.key]
    if not names:
        raise BadUsage(f"{table.label} has no key, so its rows cannot be identified", "Use auditlake diff or show.")
    form = " ".join(f"{name}=…" for name in names)
    pairs = [value.partition("=") for value in given]
    if given and all(head in names and equals for head, equals, _ in pairs):
        values = {head: value for head, _, value in pairs}
    else:
        values = dict(zip(names, given, strict=False))
    if len(values) != len(names) or len(given) != len(names):
        raise BadUsage(f"the key of {table.label} is {', '.join(names)}, not {len(given)} values", f"Write {form}.")
    read = [(column, read_value(column, values[column.name])) for column in table.key]
    unsure = tuple(column for column, value in read if not value.exact)
    return GivenKey(table.name, tuple(value.text for _, value in read), unsure)


def read_value(column: Column, value: str) -> Spelling:
    """Return PostgreSQL's text of a value of the column's type.

    Raises BadUsage if the input is not a value of that type without rounding.
    """
    try:
        return spelling(*column.type, value)
    except ValueError as exc:
        kind = type_name(*column.type)
        raise BadUsage(f"the value for {column.name} is not a valid {kind}", f"Write {exc}.") from exc


def in_history(table: HistoryTable, key: Key) -> str:
    """Return a condition that every history row with this key fulfils; values in `_raw` alone make it wider."""
    return " and ".join(_equals(column, value) for column, value in zip(table.key, key, strict=True))


def _equals(column: Column, value: str) -> str:
    name, typed = standard_identifier(column.stored), type_of(column)
    literal = _LITERALS.get(typed.kind)
    if literal is None:
        return "true"
    try:
        return f"{name} = {literal(value)}"
    except ValueError:  # BC, a year past 9999, infinity: NULL in the typed column
        return f"{name} is null"


def _decimal_literal(value: str) -> str:
    if value in NOT_FINITE:
        raise ValueError(value)
    digits = len(value.replace("-", "").replace(".", ""))
    scale = len(value.partition(".")[2])
    return f"cast({standard_literal(value)} as decimal({digits},{scale}))"


def _us(value: str) -> int:
    return to_us(datetime.fromisoformat(value.removesuffix("+00")).replace(tzinfo=UTC))


_LITERALS: dict[Kind, Callable[[str], str]] = {
    Kind.TEXT: standard_literal,
    Kind.BOOLEAN: lambda value: "true" if value == "t" else "false",
    Kind.INTEGER: lambda value: value,
    Kind.DECIMAL: _decimal_literal,
    Kind.DATE: lambda value: f"date '{date.fromisoformat(value)}'",
    Kind.TIMESTAMP: lambda value: f"arrow_cast({_us(value)}, 'Timestamp(Microsecond, None)')",
    Kind.TIMESTAMPTZ: lambda value: f"arrow_cast({_us(value)}, 'Timestamp(Microsecond, Some(\"UTC\"))')",
}


def in_changes(table: HistoryTable, relations: Mapping[int, Relation], keys: Iterable[Key]) -> str:
    """Return the condition that a row of `changes` has one of these keys, before or after the change."""
    wanted = list(keys)
    names = [column.name for column in table.key]
    conditions = []
    for number, places in key_places(table, relations, names).items():
        for side in ("new", "old"):
            any_key = " or ".join(
                "("
                + " and ".join(f"{side}[{p + 1}] = {standard_literal(v)}" for p, v in zip(places, key, strict=True))
                + ")"
                for key in wanted
            )
            conditions.append(f"(relation = {number:d} and ({any_key}))")
    return f"({' or '.join(conditions)})" if conditions else "false"


def key_places(table: HistoryTable, relations: Mapping[int, Relation], key: list[str]) -> dict[int, tuple[int, ...]]:
    """Return the positions of the key's columns in each relation version of a table, from 0."""
    places = {}
    for number, relation in relations.items():
        names = [column.name for column in relation.columns]
        is_own = relation.name == table.name if table.oid is None else relation.oid == table.oid
        if is_own and all(column in names for column in key):
            places[number] = tuple(names.index(column) for column in key)
    return places


def same_in_history(table: HistoryTable, name: str) -> str:
    """Return the condition that the history rows HERE and THERE are equal in a column."""
    column = next(c for c in table.columns if c.name == name)
    quoted = standard_identifier(column.stored)
    if column.key and not type_of(column).may_not_fit:
        return f"({HERE}.{quoted} = {THERE}.{quoted})"  # DataFusion plans a hash join for `=` only
    same = f"({HERE}.{quoted} is not distinct from {THERE}.{quoted})"
    entry = f"_raw[{standard_literal(column.stored)}]"
    if not type_of(column).may_not_fit:
        return same
    return f"({same} and ({HERE}.{entry} is not distinct from {THERE}.{entry}))"
