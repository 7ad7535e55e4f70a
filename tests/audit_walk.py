"""Walk of random transactions on a real server, with every state as PostgreSQL prints it.

Each row of a table with a key has an `rid`, set on insert and never changed, so the states alone identify a row across
key changes. This makes them an oracle for row events, blame and deletions that is independent of changes and versions.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

import psycopg
from psycopg import sql

from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.source.connection import Row, connect
from tests import oracle

Values = dict[str, str | None]
State = dict[str, Values]
"""Rows by rid."""

SCHEMA = """
create table public."Odd Table" (
    k1 int, "k 2" text, rid bigint, num numeric(10,2), at timestamptz, big text, flag boolean, arr int[], f float8,
    primary key (k1, "k 2"));
alter table public."Odd Table" alter big set storage external;
create table public.plain (id int primary key, rid bigint, d date, doc jsonb, n numeric, bin bytea, "a'b""c" char(4));
create table public.heap (x int, y text, big text);
alter table public.heap alter big set storage external;
alter table public.heap replica identity full;
"""
KEYS = {"Odd Table": ("k1", "k 2"), "plain": ("id",)}
HEAP = "heap"
_PLAIN = 15
_TABLES = ("public.plain", "public.heap", 'public."Odd Table"')

_PLAIN_SETS = (
    "d = 'infinity'",
    "d = date '2026-01-01' + (random() * 100)::int",
    "d = '0044-03-15 BC'",
    "d = null",
    """doc = jsonb_build_object('n', (random() * 10)::int, 'q', 'it''s "x"')""",
    "n = (random() * 1000)::numeric",
    "n = 'NaN'",
    "bin = decode('00ff27', 'hex')",
    """"a'b""c" = 'x'""",
    "n = n",
)
_ODD_SETS = (
    "num = num + 1.25",
    "num = 'NaN'",
    "num = 0.01",
    "at = clock_timestamp()",
    "at = '-infinity'",
    "at = date_trunc('second', clock_timestamp())",
    "big = repeat(md5(random()::text), 100)",
    "flag = not coalesce(flag, true)",
    "arr = array[1, null, (random() * 5)::int]",
    "arr = '[2:3]={1,2}'",
    "f = random() * 1e20",
    "f = 1e-7",
    "f = '-0'",
    "big = null",
)


@dataclass
class Moment:
    """The state after one transaction; `lsn` is its commit LSN."""

    xid: int
    states: dict[str, State]
    heap: "Counter[tuple[tuple[str, str | None], ...]]"
    lsn: Lsn = field(default=Lsn(0))


class Walk:
    """Transactions on the tables of SCHEMA, one after the other, and the state after each that changed something."""

    def __init__(self, dsn: str, seed: int) -> None:
        self._conn = connect(dsn)
        self._chance = random.Random(seed)  # noqa: S311 - no secret, and a seed that can be repeated
        self._conn.execute("select setseed(0.5)")
        self._rid = 0
        self.moments: list[Moment] = [Moment(0, *read_states(self._conn))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._conn.close()

    def step(self, transactions: int) -> None:
        """Run some transactions."""
        for _ in range(transactions):
            with self._conn.transaction():
                if self._chance.random() < 0.3:
                    actor = '{"actor": "ann", "reason": "because"}'
                    self._conn.execute("select pg_logical_emit_message(true, 'auditlake', %s)", [actor])
                for _ in range(self._chance.randint(1, 5)):
                    self._change()
                row = self._conn.execute("select pg_current_xact_id_if_assigned()::text").fetchone()
            assert row is not None
            if row[0] is not None:
                self.moments.append(Moment(int(str(row[0])) & 0xFFFF_FFFF, *read_states(self._conn)))

    def _run(self, statement: str, *arguments: object) -> None:
        self._conn.execute(statement.encode(), arguments)

    def _change(self) -> None:
        key, other = self._chance.randrange(8), self._chance.randrange(8)
        match self._chance.randrange(24):
            case 0:
                self._run(f"truncate {self._chance.choice(_TABLES)}")
            case 1 | 2 | 3 | 4:
                self._insert(key)
            case 5 | 6:
                self._heap(key)
            case 7:
                self._ghost()
            case choice if choice < _PLAIN:
                self._change_odd(key, other)
            case _:
                self._change_plain(key, other)

    def _change_odd(self, key: int, other: int) -> None:
        match self._chance.randrange(7):
            case 0:
                self._run('delete from public."Odd Table" where k1 = %s', key)
            case 1:
                free = """not exists (select from public."Odd Table" where k1 = %s and "k 2" = 'it''s')"""
                move = f"""update public."Odd Table" set k1 = %s, num = 7 where k1 = %s and {free}"""
                self._run(move, other, key, other)
            case _:
                self._run(f'update public."Odd Table" set {self._chance.choice(_ODD_SETS)} where k1 = %s', key)

    def _change_plain(self, key: int, other: int) -> None:
        match self._chance.randrange(9):
            case 0:
                self._run("delete from public.plain where id in (%s, %s)", key, other)
            case 1 | 2:
                free = "not exists (select from public.plain where id = %s)"
                self._run(f"update public.plain set id = %s where id = %s and {free}", other, key, other)
            case 3:
                self._swap(key, other)
            case 4:
                self._run("delete from public.plain where id = %s", key)
                self._insert_plain(key)
            case _:
                self._run(f"update public.plain set {self._chance.choice(_PLAIN_SETS)} where id = %s", key)

    def _swap(self, key: int, other: int) -> None:
        for was, now in ((key, -1), (other, key), (-1, other)):
            if was != now:
                self._run("update public.plain set id = %s where id = %s", now, was)

    def _ghost(self) -> None:
        self._insert_plain(900)
        self._run("update public.plain set id = 901 where id = 900")
        self._run("delete from public.plain where id = 901")

    def _insert(self, key: int) -> None:
        if self._chance.random() < 0.5:
            self._insert_plain(key)
        else:
            self._rid += 1
            self._run(
                """insert into public."Odd Table" values (%s, 'it''s', %s, 1, now(), repeat('x', 3000), null, '{}', 0.1)
                   on conflict do nothing""",
                key,
                self._rid,
            )

    def _insert_plain(self, key: int) -> None:
        self._rid += 1
        self._run("insert into public.plain values (%s, %s, '2026-02-03') on conflict do nothing", key, self._rid)

    def _heap(self, key: int) -> None:
        match self._chance.randrange(5):
            case 0 | 1:
                self._run("insert into public.heap values (%s, null, repeat('y', 3000)), (%s, '', null)", key, key)
            case 2:
                self._run("delete from public.heap where x = %s", key)
            case _:
                self._run("update public.heap set y = coalesce(y, '') || '.' where x = %s", key)

    def placed(self, lake: Lake) -> list[Moment]:
        """The moments with the LSNs that the lake gave them; the first is just before the first transaction."""
        lsns = {row["xid"]: Lsn(row["lsn"]) for row in oracle.transactions(lake)}
        found = [moment for moment in self.moments[1:] if moment.xid in lsns]
        for moment in found:
            moment.lsn = lsns[moment.xid]
        assert {moment.xid for moment in found} == set(lsns)
        self.moments[0].lsn = Lsn(found[0].lsn - 1)
        return [self.moments[0], *found]


def read_states(
    conn: psycopg.Connection[Row],
) -> tuple[dict[str, State], "Counter[tuple[tuple[str, str | None], ...]]"]:
    """Ask PostgreSQL for every table as it prints it."""
    states = {table: {str(row["rid"]): row for row in _rows(conn, table)} for table in KEYS}
    return states, Counter(tuple(row.items()) for row in _rows(conn, HEAP))


def _rows(conn: psycopg.Connection[Row], table: str) -> Iterator[Values]:
    cursor = conn.execute(sql.SQL("select * from public.{}").format(sql.Identifier(table)))
    result = cursor.pgresult
    assert result is not None
    assert cursor.description is not None
    names = [column.name for column in cursor.description]
    for i in range(result.ntuples):
        values = [result.get_value(i, j) for j in range(len(names))]
        yield {n: None if v is None else v.decode() for n, v in zip(names, values, strict=True)}


def key_of(table: str, row: Values) -> tuple[str, ...]:
    """Return the key of a row."""
    return tuple(str(row[name]) for name in KEYS[table])


def by_key(table: str, state: State) -> dict[tuple[str, ...], Values]:
    """Return a state by key."""
    return {key_of(table, row): row for row in state.values()}


Happened = tuple[int, Values | None, Values | None]
"""LSN, the row before and after."""


def lives(moments: list[Moment], table: str) -> dict[str, list[Happened]]:
    """Return the events of each row by rid: every transaction that inserted, changed or deleted it."""
    found: dict[str, list[Happened]] = {}
    for before, after in pairwise(moments):
        one, other = before.states[table], after.states[table]
        for rid in one.keys() | other.keys():
            if one.get(rid) != other.get(rid):
                found.setdefault(rid, []).append((after.lsn, one.get(rid), other.get(rid)))
    return found


def table_name(table: str) -> TableName:
    """Return the full name of a table of the walk."""
    return TableName("public", table)
