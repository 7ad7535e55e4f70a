"""The same rows in PostgreSQL and in a small lake, and the answers of both to a statement in PostgreSQL's dialect.

The texts of all values are compared, the names and types of the columns, and whether a statement fails. PostgreSQL's
database has the locale that the dialect has: code points, and Unicode's simple case mapping.
"""

import re
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import psycopg
import pyarrow as pa

from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.history import type_of
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.lake.records import write_shape
from auditlake.query.postgres.engine import PostgresEngines
from auditlake.query.postgres.statement import prepare_query
from auditlake.query.statement import LakeState, read_state
from auditlake.relation import Column, TableName
from auditlake.source.catalog import read_shapes
from auditlake.values.exact_text import exact_texts, held_in, outside, typed_values
from tests.small_lake import T0, T0_US, version, write_history, write_log

SCHEMA = """
create table customers (id int primary key, name text, email varchar(40), code char(5), vip boolean, born date,
  tags text[], settings jsonb, ref uuid);
create type stage as enum ('new', 'paid', 'sent', 'back');
create type size as enum ('small', 'large');
alter type size add value 'middle' before 'large';
create table parcels (id int primary key, stage stage, other stage, of_order bigint);
create table boxes (id int primary key, size size);
insert into parcels select n, (array['new', 'paid', 'sent', 'back', null])[1 + n % 5]::stage,
  (array['sent', 'new', null])[1 + n % 3]::stage, n
  from generate_series(1, 30) n;
insert into boxes values (1, 'small'), (2, 'large'), (3, 'middle'), (4, null);
create table spans (id int primary key, span interval, moments timestamptz[]);
insert into spans (id, span) values (1, '1 month'), (2, '30 days'), (3, '1 year'), (4, '-1 day 2 hours'), (5, null),
  (6, '-1 years -2 mons +3 days -04:05:06.789'), (7, '1 mon -30 days'), (8, '-00:00:00.000001'),
  (9, '1780 years 100:00');
update spans set moments = array['2026-03-29 02:30:00.5+01', null]::timestamptz[] where id < 3;
create type pair as (a int, b text);
create collation folded from "C";
set allow_system_table_mods = on;
update pg_collation set collisdeterministic = false where collname = 'folded';
create table kinds (id int primary key, pair pair, pairs pair[], stages stage[], ref oid, prices numeric(6,2)[],
  sums numeric[], word text collate folded, words text[] collate folded, code char(4) collate folded);
insert into kinds values
  (1, '(1,x)', '{"(1,x)"}', '{new,sent}', 4000000000, '{1,2.5}', '{1.0,2.50}', 'a', '{a,B}', 'ab'),
  (2, '(,)', '{}', null, 7, '{1.00,2.50}', '{}', 'A', null, 'AB'),
  (3, null, null, '{}', null, null, null, null, '{}', null);
create table orders (id bigint primary key, customer_id int, status text, qty smallint, price numeric(10,2),
  rate numeric(6,4), total numeric, weight float8, placed timestamptz, shipped timestamp, note text);
insert into customers select n, (array['Anna','bob','Čeněk','O''Neil','  pad ','', 'x_y', '50%', null])[1 + n % 9],
  'user' || n || '@example.' || (array['com','org','net'])[1 + n % 3],
  (array['a','ab ','EU','','abcde', null])[1 + n % 6],
  (array[true, false, null])[1 + n % 3], date '1970-01-01' + n * 397,
  (array['{a,b}', '{}', '{"x y",NULL}', null, '{c}'])[1 + n % 5]::text[],
  (array['{"plan": "pro", "seats": 3, "on": true}', '{"plan": null, "n": {"x": [1, 2.50, "t"]}}', '[1, "a", null]',
    '"text"', '{}', null])[1 + n % 6]::jsonb,
  ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid
  from generate_series(1, 24) n;
insert into orders select n, 1 + n * 7 % 29, (array['new','paid','sent','lost', null])[1 + n % 5], n % 11 - 3,
  (n * 137 % 1000 - 100) / 8.0, (n * 71 % 600) / 7.0, (array[1.5, 22.250, 0, -3, 1000000.001, null])[1 + n % 6],
  (array[0.1, 2.5, -3.5, 1e20, 0, null])[1 + n % 6],
  timestamptz '2026-01-31 22:30:00.25+00' + n * interval '13 hours 7 minutes',
  timestamp '2025-12-31 23:59:59.999999' + n * interval '29 days 5 hours',
  (array['12','-7',' 5','x','1.5', null])[1 + n % 6]
  from generate_series(1, 60) n;
create table doubles (id int primary key, f float8);
insert into doubles values (1, 'NaN'), (2, 'Infinity'), (3, '-Infinity'), (4, 0), (5, '-0'), (6, 5e-324), (7, 1),
  (8, -1), (9, 0.5), (10, -2.5), (11, 1e308), (12, -1e308), (13, null);
"""
TABLES = ("customers", "orders", "parcels", "boxes", "spans", "kinds", "doubles")
_LSN = 0x100
_PARENTHESES = re.compile(r"\([^()]*\)")


def create_database(server_dsn: str, name: str) -> None:
    """Create a database with the locale of the dialect."""
    with psycopg.connect(server_dsn, autocommit=True) as conn:
        conn.execute(
            f"create database {name} template template0 encoding 'UTF8' locale_provider builtin"
            " builtin_locale 'C.UTF-8' locale 'C'".encode()
        )


def copied_lake(conn: "psycopg.Connection[Any]", lake: Lake, tables: tuple[str, ...] = TABLES) -> Lake:
    """Write the rows of tables of PostgreSQL into a lake."""
    for table in tables:
        found = conn.execute(
            "select attname, atttypid::int, atttypmod, attnum = any(i.indkey), attnum from pg_attribute"
            " left join pg_index i on i.indrelid = attrelid and i.indisprimary"
            " where attrelid = %s::regclass and attnum > 0 order by attnum",
            (table,),
        ).fetchall()
        columns = tuple(Column(name, oid, typmod, key=key, attnum=n) for name, oid, typmod, key, n in found)
        texts = _texts(conn, f"select * from {table}")[1]
        rows: list[dict[str, Any]] = [version(_LSN, None, "snapshot", None) for _ in texts]
        for n, column in enumerate(columns):
            given = pa.array([row[n] for row in texts], pa.string())
            apart = outside(given, type_of(column)).to_pylist() if type_of(column).may_not_fit else [None] * len(rows)
            for row, value, raw in zip(rows, typed_values(given, type_of(column)).to_pylist(), apart, strict=True):
                row[column.name] = value
                if raw is not None:
                    row["_raw"] = [*(row["_raw"] or []), (column.name, raw)]
        positions = {HISTORY_APP: _LSN, SNAPSHOT_APP: _LSN, SNAPSHOT_TIME_APP: T0_US}
        write_history(lake, TableName("public", table), columns, rows, positions)
        oid = conn.execute("select %s::regclass::oid::bigint", (table,)).fetchone()
        for shape, _ in read_shapes(conn, oid or ()).values():
            write_shape(lake, TableName("public", table), shape)
    write_rest(lake)
    return lake


def write_rest(lake: Lake) -> None:
    """Write the logs of a lake in which nothing has happened since the snapshot."""
    transaction = {
        "lsn": _LSN,
        "end_lsn": _LSN + 0x20,
        "xid": 1,
        "time": T0,
        "time_mono": T0,
        "tables": [],
        **dict.fromkeys(("inserts", "updates", "deletes", "truncates"), 0),
    }
    write_log(lake, [transaction], [], acknowledged_lsn=_LSN + 0x20, current_us=T0_US + 1_000_000)


def _texts(conn: "psycopg.Connection[Any]", sql: str) -> tuple[list[tuple[str, str]], list[tuple[str | None, ...]]]:
    """Return names and types of the columns, and the rows in PostgreSQL's texts."""
    result = conn.pgconn.exec_(sql.encode())
    if result.error_message:
        raise psycopg.DatabaseError(result.error_message.decode())
    columns = [(_decoded(result.fname(n)) or "", str(result.ftype(n))) for n in range(result.nfields)]
    rows = [tuple(_decoded(result.get_value(row, n)) for n in range(result.nfields)) for row in range(result.ntuples)]
    return columns, rows


def _outside(sql: str) -> str:
    """Return what is outside of all parentheses."""
    while (shorter := _PARENTHESES.sub("", sql)) != sql:
        sql = shorter
    return sql


def _decoded(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def answer_of_postgresql(conn: "psycopg.Connection[Any]", sql: str) -> Any:
    """Return the names and rows of a query; the first line of the message if it fails."""
    try:
        columns, rows = _texts(conn, sql)
    except psycopg.Error as exc:
        return str(exc).split("\n")[0]
    return [name for name, _ in columns], rows


def in_any_order(answer: Any) -> Any:
    """Return an answer with its rows sorted."""
    return answer if isinstance(answer, str) else (answer[0], sorted(answer[1], key=repr))


def is_ordered(sql: str) -> bool:
    """Return whether the rows of a query have an order."""
    return " order by " in _outside(" ".join(sql.lower().split()))


_ON_VALUES = (
    "invalid input syntax",
    "division by zero",
    "out of range",
    "square root",
    "overflow",
    "negative substring",
    "base64",
    "stride must be",
    "must not be null",
    "cannot delete",
    "path element",
    "array length of",
    "cannot cast jsonb",
    "zero raised to a negative power",
)


def fails_on_a_value(message: str) -> bool:
    """Return whether PostgreSQL failed on a value, not on the form of a statement."""
    return any(each in message for each in _ON_VALUES)


@dataclass
class Both:
    """One set of rows in both."""

    conn: "psycopg.Connection[Any]"
    lake: Lake
    lenient: bool = False
    """Whether one of the two may fail on a value that the other does not compute: the order is not defined."""

    def __post_init__(self) -> None:
        self.state: LakeState = read_state(self.lake, None, UTC)
        self.engine = PostgresEngines()
        self.refused: dict[str, str] = {}
        self.answered = 0
        self.types: list[str] = []
        """Those of the columns that the lake answered with last."""

    def of_lake(self, sql: str) -> tuple[list[str], list[tuple[str | None, ...]]]:
        """Return names and rows as the lake gives them."""
        rows = self.engine.rows(self.state, prepare_query(self.state, sql))
        _, batches = rows.batches()
        found: list[tuple[str | None, ...]] = []
        self.types = [*rows.types]
        for batch in batches:
            columns = [exact_texts(c, held_in(c.type)).to_pylist() for c in batch.columns]
            found += zip(*columns, strict=True)
        return rows.columns, found

    def types_of_postgresql(self, sql: str) -> list[str]:
        """Return the types of a query's columns, without their modifiers."""
        self.conn.pgconn.prepare(b"", sql.encode())
        described = self.conn.pgconn.describe_prepared(b"")
        oids = [described.ftype(n) for n in range(described.nfields)]
        rows = self.conn.execute("select format_type(o, null) from unnest(%s::oid[]) o", (oids,)).fetchall()
        return [name for (name,) in rows]

    def difference(self, sql: str) -> str | None:  # noqa: PLR0911, C901 - one kind after the other
        """Return where the answers differ; None if they do not, or the statement is refused by name."""
        expected = answer_of_postgresql(self.conn, sql)
        try:
            found: Any = self.of_lake(sql)
        except NotAnswerable as exc:
            if "DuckDB does not run" in exc.message:
                return f"{sql}\n  {exc.message}, PostgreSQL: {expected if isinstance(expected, str) else 'rows'}"
            if not (self.lenient and isinstance(expected, str)):
                self.refused[sql] = exc.message
            return None
        except BadUsage as exc:
            if self.lenient and "fails on a row" in exc.message:
                return None
            self.answered += isinstance(expected, str)
            return None if isinstance(expected, str) else f"{sql}\n  refused: {exc.message} {exc.hint or ''}"
        self.answered += 1
        if isinstance(expected, str) and self.lenient and fails_on_a_value(expected):
            return None
        if isinstance(expected, str):
            return f"{sql}\n  PostgreSQL: {expected}\n  found {found[1][:3]}"
        found, expected = (each if is_ordered(sql) else in_any_order(each) for each in (found, expected))
        ours, rows = found[1], expected[1]
        if found[0] != expected[0]:
            return f"{sql}\n  names {found[0]}, PostgreSQL {expected[0]}"
        kinds = self.types_of_postgresql(sql)
        if any(a != b and not a.startswith("another type") for a, b in zip(self.types, kinds, strict=True)):
            return f"{sql}\n  types {self.types}, PostgreSQL {kinds}"
        if ours != rows:
            pairs = [pair for pair in zip(ours, rows, strict=False) if pair[0] != pair[1]]
            return f"{sql}\n  {len(ours)} rows, PostgreSQL {len(rows)}: {pairs[:3]}"
        return None
