"""The key of one row: from the command line to PostgreSQL's text, and to conditions on `history` and `changes`. Pure.

A key is a tuple of texts in the order of the table's key columns. What a person types is brought to the text that
PostgreSQL would print, so that `007` finds 7 and `2026-1-1` is refused rather than not found.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from uuid import UUID

from auditlake.audit.reading import identifier
from auditlake.errors import BadUsage
from auditlake.lake.history import HistoryTable, type_of
from auditlake.literals import standard_literal
from auditlake.query.when import to_us
from auditlake.relation import Column, Relation, TableName
from auditlake.values.types import Kind

HERE, THERE = '"`a"', '"`b"'
"""What history is called where it is joined with itself: no stored column has a backtick in its name."""
Key = tuple[str, ...]

_UUID_OID, _BPCHAR_OID = 2950, 1042
_VARHDRSZ = 4
_OUTSIDE = ("infinity", "-infinity", "NaN", "Infinity", "-Infinity")
_TRUE, _FALSE = frozenset({"t", "true", "yes", "on", "1"}), frozenset({"f", "false", "no", "off", "0"})


def parse_key(table: HistoryTable, given: tuple[str, ...]) -> Key:
    """Read a key: `id=7 line=2` in any order, or the bare values in the order of the key's columns.

    Raises BadUsage.
    """
    names = [column.name for column in table.key]
    if not names:
        raise BadUsage(f"{table.name} has no key, so none of its rows can be named", "Ask auditlake diff or show.")
    form = " ".join(f"{name}=…" for name in names)
    pairs = [value.partition("=") for value in given]
    if given and all(head in names and equals for head, equals, _ in pairs):
        values = {head: value for head, _, value in pairs}
    else:
        values = dict(zip(names, given, strict=False))
    if len(values) != len(names) or len(given) != len(names):
        raise BadUsage(f"the key of {table.name} is {', '.join(names)}, got {len(given)} values", f"Write {form}.")
    return tuple(canonical(column, values[column.name]) for column in table.key)


def canonical(column: Column, value: str) -> str:
    """Spell a value of the column's type as PostgreSQL does.

    Raises BadUsage where it is no value of that type.
    """
    kind = type_of(column).kind
    if value in _OUTSIDE and type_of(column).may_not_fit:
        return value
    if column.type_oid == _BPCHAR_OID:
        return value.ljust(column.typmod - _VARHDRSZ)
    spell = (lambda given: str(UUID(given))) if column.type_oid == _UUID_OID else _SPELLINGS.get(kind)
    try:
        return value if spell is None else _scaled(column, spell(value))
    except (ValueError, InvalidOperation) as exc:
        raise BadUsage(f"the value for {column.name} is no {type_of(column).kind.value}", "Correct the key.") from exc


def _scaled(column: Column, spelled: str) -> str:
    if type_of(column).kind is not Kind.DECIMAL:
        return spelled
    scale = int(type_of(column).delta.rstrip(")").split(",")[1])
    return f"{Decimal(spelled).quantize(Decimal(1).scaleb(-scale)):f}"


def _boolean(value: str) -> str:
    if value.lower() in _TRUE | _FALSE:
        return "t" if value.lower() in _TRUE else "f"
    raise ValueError(value)


def _time(value: str) -> str:
    moment = datetime.fromisoformat(value)
    naive = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    spelled = naive.isoformat(sep=" ")
    return spelled.rstrip("0") if "." in spelled else spelled


_SPELLINGS: dict[Kind, Callable[[str], str]] = {
    Kind.INTEGER: lambda value: str(int(value)),
    Kind.BOOLEAN: _boolean,
    Kind.DECIMAL: lambda value: str(Decimal(value)),
    Kind.DATE: lambda value: date.fromisoformat(value).isoformat(),
    Kind.TIMESTAMP: _time,
    Kind.TIMESTAMPTZ: lambda value: _time(value.removesuffix("+00")) + "+00",
    Kind.BYTEA: lambda value: "\\x" + bytes.fromhex(value.removeprefix("\\x")).hex(),
}


def in_history(table: HistoryTable, key: Key) -> str:
    """The condition that a history row may have this key; of values outside their type it cannot tell all."""
    return " and ".join(_equals(column, value) for column, value in zip(table.key, key, strict=True))


def _equals(column: Column, value: str) -> str:
    name, typed = identifier(column.stored), type_of(column)
    literal = _LITERALS.get(typed.kind)
    if literal is None:
        return "true"
    try:
        return f"{name} = {literal(value)}"
    except ValueError:  # BC, a far year, infinity: not in the typed column
        return f"{name} is null"


def _decimal_literal(value: str) -> str:
    if value in _OUTSIDE:
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
    """The condition that a row of `changes` is about one of these keys, before it or after it."""
    wanted = list(keys)
    names = [column.name for column in table.key]
    found = []
    for number, places in key_places(table.name, relations, names).items():
        for side in ("new", "old"):
            one = " or ".join(
                "("
                + " and ".join(f"{side}[{p + 1}] = {standard_literal(v)}" for p, v in zip(places, key, strict=True))
                + ")"
                for key in wanted
            )
            found.append(f"(relation = {number:d} and ({one}))")
    return f"({' or '.join(found)})" if found else "false"


def key_places(name: TableName, relations: Mapping[int, Relation], key: list[str]) -> dict[int, tuple[int, ...]]:
    """Where the key's columns are in each relation version of a table, from 0."""
    found = {}
    for number, relation in relations.items():
        names = [column.name for column in relation.columns]
        if relation.name == name and all(column in names for column in key):
            found[number] = tuple(names.index(column) for column in key)
    return found


def same_in_history(table: HistoryTable, name: str) -> str:
    """The condition that the history rows HERE and THERE have the same value in a column."""
    column = next(c for c in table.columns if c.name == name)
    quoted = identifier(column.stored)
    if column.key and not type_of(column).may_not_fit:
        return f"({HERE}.{quoted} = {THERE}.{quoted})"  # what a hash join is planned for
    same = f"({HERE}.{quoted} is not distinct from {THERE}.{quoted})"
    entry = f"_raw[{standard_literal(column.stored)}]"
    if not type_of(column).may_not_fit:
        return same
    return f"({same} and ({HERE}.{entry} is not distinct from {THERE}.{entry}))"
