"""Entries of a lake: its logical rows as records and hashes, whatever files they are in.

`Entry` is an entry with its values, as a proof shows it. Changes and transactions are hashed by SQL (`sql_of`), the
others one by one, because they are few or need the exact text of typed values. CHANGES and TRANSACTIONS have their
columns in the order of the canonical form, for SQL and for `entry_of`.

A change's column names are in the entry of its relation version; `relation` has the number. A row of a copy has the
names in the entry of its copy. Values of such a row are the exact texts of the columns that the table had at the
snapshot; they stay what they are when the version ends, when columns are added, and when files are rewritten.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from auditlake.delta.small_tables import read_small_table
from auditlake.lake.erasures import read_erasures
from auditlake.lake.expiries import read_runs
from auditlake.lake.gaps import GAPS_SCHEMA
from auditlake.lake.holds import read_events
from auditlake.lake.layout import Lake
from auditlake.lake.relations import RELATIONS_SCHEMA
from auditlake.ledger.canonical import (
    OF_COPIES,
    EngineSql,
    Identity,
    Kind,
    Value,
    commitment_of,
    hash_of,
    record_of,
    secret_of,
    sql_bytes,
    sql_commitment,
    sql_constant,
    sql_field,
    sql_hash,
    sql_is_canonical,
    sql_list,
    sql_number,
    sql_secret,
    sql_time,
)
from auditlake.relation import TableName
from auditlake.schema.missing_values import ADDED_SCHEMA

_TEXTS, _LISTS, _TIMES = "text", "list", "time"


@dataclass(frozen=True, slots=True)
class Entry:
    """A logical row: what identifies it, the fields of its record, and the values that it commits to."""

    identity: Identity
    fields: tuple[Value, ...]
    values: tuple[Value, ...] = ()

    def record(self, secret: bytes) -> str:
        """Return the record, with the entry's secret; raises NotCanonical."""
        return self.record_with(self.commitment(secret))

    def record_with(self, commitment: bytes) -> str:
        """Return the record with a commitment, whose values and secret may be gone."""
        return record_of(self.identity.kind, self.fields, commitment)

    def commitment(self, secret: bytes) -> bytes:
        """Return the commitment to the values; raises NotCanonical."""
        return commitment_of(secret, self.values)

    def secret(self, key: bytes) -> bytes:
        """Return the secret of the entry, with the key of its block."""
        return secret_of(key, self.identity, self.values if self.identity.kind in OF_COPIES else ())

    def hash(self, secret: bytes) -> bytes:
        """Return the hash of the entry; raises NotCanonical."""
        return hash_of(self.record(secret))


@dataclass(frozen=True, slots=True)
class _Kind:
    """The columns of a table whose rows are hashed by SQL; `fields` and `values` with how each is formatted."""

    kind: Kind
    fields: Mapping[str, str]
    values: Mapping[str, str]


CHANGES = _Kind(
    Kind.CHANGE,
    {"lsn": "", "ordinal": "", "xid": "", "time": _TIMES, "origin": "", "op": "", "schema": "", "table": ""}
    | {"relation": ""},
    {"old": _LISTS, "new": _LISTS, "unchanged": _LISTS, "prefix": "", "content": "bytes"},
)
TRANSACTIONS = _Kind(
    Kind.TRANSACTION,
    {"lsn": "", "end_lsn": "", "xid": "", "time": _TIMES, "time_mono": _TIMES, "origin": "", "inserts": ""}
    | {"updates": "", "deletes": "", "truncates": "", "tables": _LISTS},
    {"context": ""},
)


@dataclass(frozen=True, slots=True)
class Stored:
    """SQL for the stored secret of an entry, and for its commitment if its values were erased, both in hexadecimal."""

    secret: str
    commitment: str


_SQL: Mapping[str, Callable[[str, EngineSql], str]] = {
    _LISTS: sql_list,
    _TIMES: sql_time,
    "": lambda value, _: sql_field(value),
    "bytes": sql_bytes,
}
_PLAIN_TEXTS = {
    Kind.CHANGE: ("origin", "op", "schema", "table", "prefix"),
    Kind.TRANSACTION: ("origin", "context"),
}


def sql_of(table: _Kind, key: str, engine: EngineSql, alias: str = "", stored: Stored | None = None) -> str:
    """Return SQL for the hash of a row.

    `key` is SQL of a field with the key of the row's block, `alias` that of the table. `stored` replaces the computed
    secret and commitment of a row for which it is not NULL.
    """
    ordinal = _named("ordinal", alias) if table.kind is Kind.CHANGE else "0"
    identity = [sql_constant(table.kind), sql_number(_named("lsn", alias)), sql_number(ordinal), sql_constant("")]
    fields, values = (
        [_SQL[form](_named(name, alias), engine) for name, form in columns.items()]
        for columns in (table.fields, table.values)
    )
    secret = sql_secret(key, identity, engine)
    if stored is not None:
        secret = f"coalesce({stored.secret}, {secret})"
    commitment = sql_commitment(secret, values, engine)
    if stored is not None:
        commitment = f"coalesce({stored.commitment}, {commitment})"
    return sql_hash(table.kind, fields, commitment, engine)


def sql_has_form(table: _Kind, alias: str = "") -> str:
    """Return SQL of DuckDB for the condition that a row has a canonical form."""
    lists = [_named(name, alias) for name, form in {**table.fields, **table.values}.items() if form == _LISTS]
    return sql_is_canonical([_named(name, alias) for name in _PLAIN_TEXTS[table.kind]], lists)


def _named(name: str, alias: str) -> str:
    return f'{alias}."{name}"' if alias else f'"{name}"'


def entry_of(table: _Kind, row: Mapping[str, Any]) -> Entry:
    """Return the entry of a row of `changes` or `transactions`, as `to_pylist` returns it."""
    ordinal = row["ordinal"] if table.kind is Kind.CHANGE else 0
    fields, values = (
        tuple(_value(row[name], form) for name, form in columns.items()) for columns in (table.fields, table.values)
    )
    return Entry(Identity(table.kind, row["lsn"], ordinal, ""), fields, values)


def _value(value: Any, form: str) -> Value:  # noqa: ANN401 - of any column
    if value is None:
        return None
    if form == _LISTS:
        return [None if each is None else str(each) for each in value]
    if form == "bytes":
        return bytes(value).hex()
    return value if isinstance(value, int) else str(value)


def small_entries(lake: Lake) -> Iterator[Entry]:
    """Yield the entries of small tables, holds, erasures and expiries, in an order independent of files."""
    found = [*_relations(lake), *_added(lake), *_gaps(lake), *_holds(lake), *_erasures(lake), *_expiries(lake)]
    yield from sorted(found, key=lambda entry: (entry.identity.kind, *map(str, entry.identity[1:])))


def _relations(lake: Lake) -> Iterator[Entry]:
    for row in read_small_table(lake.session, lake.relations, RELATIONS_SCHEMA).to_pylist():
        columns = [text for each in row["columns"] for text in _column(each)]
        fields = {**row, "columns": columns, "attnums": _numbers(row["attnums"])}
        name = f"{_table(row)} {row['relation']}"
        yield Entry(Identity(Kind.RELATION, row["lsn"], row["entry"], name), tuple(fields.values()))


def _column(column: Mapping[str, Any]) -> Iterator[str]:
    yield from (column["name"], f"{column['type_oid']}", f"{column['typmod']}", "t" if column["key"] else "f")


def _numbers(numbers: Iterable[int | None] | None) -> list[str | None] | None:
    return None if numbers is None else [None if each is None else f"{each}" for each in numbers]


def _added(lake: Lake) -> Iterator[Entry]:
    for row in with_us(read_small_table(lake.session, lake.added, ADDED_SCHEMA)).to_pylist():
        value = row.pop("value")
        name = f"{_table(row)} {row['column']}"
        yield Entry(Identity(Kind.ADDED, row["lsn"], row["time"], name), tuple(row.values()), (value,))


def _gaps(lake: Lake) -> Iterator[Entry]:
    for row in with_us(read_small_table(lake.session, lake.gaps, GAPS_SCHEMA)).to_pylist():
        name = f"{'' if row['table'] is None else _table(row)} {row['lsn_to']}"
        yield Entry(Identity(Kind.GAP, row["lsn_from"], row["time"], name), tuple(row.values()))


def _holds(lake: Lake) -> Iterator[Entry]:
    for number, each in enumerate(read_events(lake)):
        fields = (number, each.event, each.name, each.tables, each.token, each.until_us, each.time_us)
        yield Entry(Identity(Kind.HOLD, None, number, each.name), fields, (each.reason, each.by))


def _erasures(lake: Lake) -> Iterator[Entry]:
    for each in read_erasures(lake):
        counts = (each.upto_lsn, each.from_lsn, each.to_lsn, each.versions, each.changes, each.time_us)
        lists = (list(each.tokens), list(each.columns), [f"{number}" for number in each.entries])
        fields = (each.number, each.schema, each.table, *counts, *lists)
        yield Entry(Identity(Kind.ERASURE, None, each.number, str(each.name)), fields, (each.reason, each.by))


def _expiries(lake: Lake) -> Iterator[Entry]:
    for number, run in enumerate(read_runs(lake)):
        tables = [f"{each.name} {each.horizon} {each.versions}" for each in run.tables]
        yield Entry(Identity(Kind.EXPIRY, None, number, ""), (number, run.time_us, tables))


def with_us(rows: pa.Table) -> pa.Table:
    """Return the rows with times as microseconds since 1970."""
    fields = [
        pa.field(each.name, pa.int64() if pa.types.is_timestamp(each.type) else each.type) for each in rows.schema
    ]
    return rows.cast(pa.schema(fields))


def _table(row: Mapping[str, Any]) -> str:
    return str(TableName(row["schema"], row["table"]))
