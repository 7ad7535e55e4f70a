"""One checksum for the rows of tables, equal in PostgreSQL and DuckDB if and only if the rows are (by 48 bits of MD5).

Each row is turned into one text; the sum of the texts' hashes does not depend on the order of rows. Columns of
integers, `numeric`, texts and dates take part; timestamps do not, because some contenders have them as numbers of other
units. Trailing spaces do not count, because char(n) has them in some engines only.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import psycopg

_COLUMNS = """
select a.attname, t.typname, a.atttypmod, coalesce(a.attnum = any(i.indkey), false)
from pg_attribute a join pg_type t on t.oid = a.atttypid
left join pg_index i on i.indrelid = a.attrelid and i.indisprimary
where a.attrelid = %s::text::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum
"""
_INTEGERS = frozenset({"int2", "int4", "int8"})
_TEXTS = frozenset({"text", "varchar", "bpchar"})


@dataclass(frozen=True)
class Column:
    """A column that takes part; `days`: its dates are numbers of days since 1970."""

    name: str
    type_name: str
    typmod: int
    key: bool
    days: bool = False

    def text(self) -> str:
        """Return SQL of both engines for the text of its value."""
        name = f'"{self.name}"'
        if self.type_name in _INTEGERS:
            return f"{name}::bigint::text"
        if self.type_name in _TEXTS:
            return f"rtrim({name}::text)"
        if self.type_name == "date":
            return f"(date '1970-01-01' + {name}::int)::text" if self.days else f"{name}::date::text"
        precision, scale = (self.typmod - 4) >> 16, (self.typmod - 4) & 0xFFFF
        return f"{name}::decimal({precision},{scale})::text"


@dataclass(frozen=True)
class Digest:
    """Number of rows, and the checksum of all tables."""

    rows: int
    checksum: str

    @staticmethod
    def of_tables(found: Mapping[str, tuple[int, int]]) -> "Digest":
        """Join the tables' own counts and sums."""
        lines = "\n".join(f"{table} {rows} {total}" for table, (rows, total) in sorted(found.items()))
        return Digest(sum(rows for rows, _ in found.values()), hashlib.sha256(lines.encode()).hexdigest()[:12])


def columns_of(dsn: str, *tables: str) -> dict[str, list[Column]]:
    """Return the columns of each table that take part."""
    with psycopg.connect(dsn) as conn:
        return {table: _columns(conn, table) for table in tables}


def _columns(conn: psycopg.Connection[Any], table: str) -> list[Column]:
    known = _INTEGERS | _TEXTS | {"date", "numeric"}
    found = [Column(*row) for row in conn.execute(_COLUMNS, [f'"{table}"'])]
    return [column for column in found if column.type_name in known]


def on_server(dsn: str, tables: Iterable[str]) -> Digest:
    """Compute the digest of tables in PostgreSQL."""
    found = {}
    with psycopg.connect(dsn) as conn:
        for table in tables:
            hashed = "('x' || substr(md5(" + _line(_columns(conn, table)) + "), 1, 12))::bit(48)::bigint"
            row = conn.execute(f'select count(*), coalesce(sum({hashed}), 0) from "{table}"').fetchone()
            found[table] = _pair(row)
    return Digest.of_tables(found)


def of_relation(conn: duckdb.DuckDBPyConnection, relation: str, columns: Iterable[Column]) -> tuple[int, int]:
    """Compute count and sum of a relation in DuckDB, which is SQL after FROM."""
    hashed = "('0x' || substr(md5(" + _line(columns) + "), 1, 12))::bigint"
    return _pair(conn.execute(f"select count(*), coalesce(sum({hashed}), 0) from {relation}").fetchone())


def _line(columns: Iterable[Column]) -> str:
    return " || '|' || ".join(f"coalesce({column.text()}, '~')" for column in columns)


def _pair(row: tuple[Any, ...] | None) -> tuple[int, int]:
    rows, total = row or (0, 0)
    return int(rows), int(total)
