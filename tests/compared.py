"""Tables of a server as `patch` compares them, without a lake: their rows as PostgreSQL prints them, read twice."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from auditlake.audit.changes import Values
from auditlake.audit.diff import ADDED, MODIFIED, REMOVED, DifferingRow
from auditlake.lsn import Lsn
from auditlake.relation import Column, TableName
from auditlake.source.connection import Row

_TEXT_OID = 25
_CAPTURED = """
    select coalesce(string_agg(quote_ident(attname), ', ' order by attnum), '') from pg_attribute
    where attrelid = %s::regclass and attnum > 0 and not attisdropped and attgenerated <> 'v'"""
"""The columns that the stream carries: not the virtual ones."""


@dataclass(frozen=True)
class Rows:
    """The rows of one table of the schema `public`; `key` empty: a multiset."""

    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]

    def by_key(self) -> dict[tuple[str | None, ...], Values]:
        """The rows of a table with a key."""
        found = (dict(zip(self.columns, row, strict=True)) for row in self.rows)
        return {tuple(row[name] for name in self.key): row for row in found}


def read_rows(conn: psycopg.Connection[Row], keys: Mapping[str, tuple[str, ...]]) -> list[Rows]:
    """Read tables with the settings of a connection of capture; of an inheritance parent its own rows."""
    with conn.transaction(force_rollback=True):
        conn.execute("set local search_path = pg_catalog")
        return [_read(conn, table, key) for table, key in keys.items()]


def _read(conn: psycopg.Connection[Row], table: str, key: tuple[str, ...]) -> Rows:
    name = sql.Identifier("public", table)
    kind = conn.execute(
        sql.SQL("select relkind = 'p' from pg_class where oid = {}::regclass").format(_text(name, conn))
    )
    only = sql.SQL("") if kind.fetchone() == (True,) else sql.SQL("only")
    columns = conn.execute(_CAPTURED, [name.as_string(conn)]).fetchone()
    cursor = conn.execute(sql.SQL("select {} from {} {}").format(sql.SQL(str(*columns or ())), only, name))
    result = cursor.pgresult
    assert result is not None
    assert cursor.description is not None
    rows = ([result.get_value(i, j) for j in range(result.nfields)] for i in range(result.ntuples))
    texts = sorted((tuple(None if v is None else v.decode() for v in row) for row in rows), key=str)
    return Rows(table, key, tuple(column.name for column in cursor.description), tuple(texts))


def _text(name: sql.Identifier, conn: psycopg.Connection[Row]) -> sql.Literal:
    return sql.Literal(name.as_string(conn))


class ComparedRows:
    """One table at two moments."""

    def __init__(self, was: Rows, becomes: Rows) -> None:
        self._was, self._becomes = was, becomes

    @property
    def name(self) -> TableName:
        return TableName("public", self._was.table)

    @property
    def last_name(self) -> TableName:
        return self.name

    @property
    def key(self) -> Sequence[str]:
        return self._was.key

    @property
    def moments(self) -> tuple[Lsn, Lsn]:
        return Lsn(1), Lsn(2)

    @property
    def own(self) -> Mapping[Column, str]:
        """The columns' own names: both moments are read under the same ones."""
        return {column: column.name for column in self.columns_before}

    @property
    def columns_before(self) -> Sequence[Column]:
        return [Column(name, _TEXT_OID, -1, name in self.key) for name in self._was.columns]

    @property
    def columns_after(self) -> Sequence[Column]:
        return self.columns_before

    def entries(self, kind: str) -> Iterator[DifferingRow]:
        return (entry for entry in (self._keyed() if self.key else self._copies()) if entry.kind == kind)

    @property
    def masked_columns(self) -> Sequence[str]:
        return []

    def columns_with_invalid_text(self) -> Sequence[str]:
        return []

    def _keyed(self) -> Iterator[DifferingRow]:
        one, other = self._was.by_key(), self._becomes.by_key()
        for key in {**one, **other}:
            before, after = one.get(key), other.get(key)
            kind = ADDED if before is None else REMOVED if after is None else MODIFIED
            if before != after:
                yield DifferingRow(kind, dict(zip(self.key, key, strict=True)), before, after, ())

    def _copies(self) -> Iterator[DifferingRow]:
        net = Counter(self._becomes.rows)
        net.subtract(Counter(self._was.rows))
        for row, count in net.items():
            values = dict(zip(self._was.columns, row, strict=True))
            for _ in range(abs(count)):
                kind, sides = (ADDED, (None, values)) if count > 0 else (REMOVED, (values, None))
                yield DifferingRow(kind, {}, sides[0], sides[1], ())
