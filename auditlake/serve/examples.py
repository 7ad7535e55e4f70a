"""Examples with which the pages Find and SQL begin: questions about this lake's own tables that have an answer."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import TokenType

from auditlake.errors import AuditlakeError
from auditlake.lake.history import type_of
from auditlake.lsn import Lsn
from auditlake.query.dialect import spark_tokens
from auditlake.relation import Column, TableName
from auditlake.serve.resources import Resources
from auditlake.serve.table_answers import state_of
from auditlake.serve.table_rows import OpenState, Order, RowSelection
from auditlake.values.types import Conversion

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_MOST_TABLES = 3
_LONGEST = 40


@dataclass(frozen=True, slots=True)
class Value:
    """A value of some row of a table."""

    table: str
    column: str
    value: str


def values(resources: Resources, names: Sequence[str], at: str | None) -> Iterator[Value]:
    """Yield a value of each of the first tables that can be read: a short text if there is one, else the key."""
    for name in names[:_MOST_TABLES]:
        try:
            state, _ = state_of(resources, name, at)
            with resources.cursor() as cursor:
                rows = OpenState(state, cursor).page(RowSelection((), Order(None, False, ()), 0, 1)).to_pylist()
        except AuditlakeError:  # it is not known at this moment; its page says why
            continue
        if rows and (column := _telling(state.columns, rows[0])) is not None:
            yield Value(state.name, column, rows[0][column])


def _telling(columns: Sequence[Column], row: Mapping[str, str | None]) -> str | None:
    short = [column for column in columns if 0 < len(row[column.name] or "") <= _LONGEST]
    ranked = sorted(short, key=lambda column: (type_of(column).kind is not Conversion.TEXT, not column.key))
    return ranked[0].name if ranked else None


def statements(
    tables: Mapping[TableName, Sequence[Column]], begin: Lsn, *, with_logs: bool
) -> Iterator[tuple[str, str]]:
    """Yield titles and statements, which mean the same in both dialects; `with_logs`: also on the lake's own tables.

    At `begin` all tables are known.
    """
    plain = {name: columns for name, columns in tables.items() if all(map(_PLAIN.fullmatch, name))}
    for name, columns in list(plain.items())[:1]:
        yield f"rows of {name}", f"select * from {name} limit 20"
        yield f"how many rows {name} has", f"select count(*) as n from {name}"
        for column in list(filter(_is_grouped, columns))[:1]:
            sql = f"select {column.name}, count(*) as n from {name} group by {column.name} order by n desc limit 20"
            yield f"{name} by {column.name}", sql
        then = f"select 'then' as moment, count(*) as n from {name} for system_time as of '{begin}'"
        yield f"{name} then and now", f"{then} union all select 'now', count(*) from {name}"
        yield f"every version of rows of {name}", f"select * from {name} for system_time all limit 20"
    if with_logs:
        yield "last transactions", "select * from auditlake.transactions order by lsn desc limit 20"


def _is_grouped(column: Column) -> bool:
    if column.key or type_of(column).kind is not Conversion.TEXT or not _PLAIN.fullmatch(column.name):
        return False
    tokens = spark_tokens(column.name)
    return len(tokens) == 1 and tokens[0].token_type is TokenType.VAR  # no keyword
