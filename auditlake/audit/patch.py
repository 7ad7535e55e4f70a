"""A diff as SQL that PostgreSQL runs: what brings the state of A to the state of B, or back.

One transaction; per key one DELETE, UPDATE or INSERT, in this order, so that a unique value is free before it is taken.
Every value is PostgreSQL's own text as a quoted literal: the target column's type reads it back exactly, under the
settings that the patch makes for itself. Columns are named, so their order at the target does not matter.

It does not know foreign keys and triggers: constraints that are deferrable are deferred, others may refuse.
`session_replication_role = replica` switches them off for who may. A schema that differs is no patch's work.
"""

from collections.abc import Iterator, Sequence

from auditlake.audit.changes import Values
from auditlake.audit.compared import Compared
from auditlake.audit.diff import ADDED, MODIFIED, REMOVED, Entry
from auditlake.errors import NotAnswerable
from auditlake.literals import standard_literal
from auditlake.relation import Column, TableName

_BEGIN = """begin;
set local standard_conforming_strings = on;
set local datestyle = 'ISO, YMD';
set local intervalstyle = 'postgres';
set local timezone = 'UTC';
set local bytea_output = 'hex';
set local extra_float_digits = 3;
set local lc_monetary = 'C';
set constraints all deferred;"""

_BPCHAR, _BOOL, _INET, _CIDR = 1042, 16, 869, 650
_BY_VALUE = frozenset({_BPCHAR, _BOOL, _INET, _CIDR})
"""Types whose cast to text is not what their output function prints."""


def patch(tables: Sequence[Compared]) -> Iterator[str]:
    """Give the statements.

    Raises NotAnswerable where a table's columns differ between the two moments.
    """
    for table in tables:
        if _shape(table.columns_before) != _shape(table.columns_after):
            raise NotAnswerable(
                f"the columns of {table.name} differ between the two moments, no patch can bring one to the other",
                "Leave the table out, or choose moments on one side of the change.",
            )
    yield _BEGIN
    for kind in (REMOVED, MODIFIED, ADDED):
        for table in tables:
            for entry in table.entries(kind):
                yield _statement(table, entry)
    yield "commit;"


def _shape(columns: Sequence[Column]) -> list[tuple[str, int]]:
    return sorted((column.name, column.type_oid) for column in columns)


def _statement(table: Compared, entry: Entry) -> str:
    name = table.name
    if entry.kind == ADDED:
        assert entry.after is not None  # noqa: S101 - it was added
        return _insert(name, entry.after)
    if entry.kind == MODIFIED:
        assert entry.after is not None  # noqa: S101 - it is on both sides
        new = entry.after
        sets = ", ".join(f"{_name(column)} = {_literal(new[column])}" for column in entry.changed)
        return f"update {_table(name)} set {sets} where {_is(entry.key)};"
    if not entry.key:
        assert entry.before is not None  # noqa: S101 - it was removed
        return _delete_one(name, entry.before, table.columns_before)
    return f"delete from {_table(name)} where {_is(entry.key)};"


def _insert(name: TableName, row: Values) -> str:
    columns, values = ", ".join(map(_name, row)), ", ".join(map(_literal, row.values()))
    return f"insert into {_table(name)} ({columns}) overriding system value values ({values});"


def _delete_one(name: TableName, row: Values, columns: Sequence[Column]) -> str:
    same = " and ".join(_same_text(column, row[column.name]) for column in columns)
    return f"delete from {_table(name)} where ctid = (select ctid from {_table(name)} where {same} limit 1);"


def _same_text(column: Column, value: str | None) -> str:
    if value is None:
        return f"{_name(column.name)} is null"
    cast = "" if column.type_oid in _BY_VALUE else "::text"
    return f"{_name(column.name)}{cast} = {_literal(value)}"


def _is(key: Values) -> str:
    return " and ".join(f"{_name(name)} = {_literal(value)}" for name, value in key.items())


def _literal(value: str | None) -> str:
    return "null" if value is None else standard_literal(value)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _table(name: TableName) -> str:
    return f"{_name(name.schema)}.{_name(name.table)}"
