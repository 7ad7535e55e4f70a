"""Workload: random transactions over all tables, some rolled back, some so large that they are streamed.

Each connection has keys of its own, so that few block each other; TRUNCATE causes the deadlocks. A transaction that
fails because the server is down is not repeated: the ledger has exactly those that were committed.
"""

import random
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import psycopg

_PAUSE_S = 0.06
_OWN_KEYS = 100_000
_KEYS = 25
_LARGE_ROWS = 1500

LOST = (psycopg.OperationalError, psycopg.InterfaceError)
Conn = psycopg.Connection[Any]
Change = Callable[[Conn, random.Random, int], None]


def account(conn: Conn, chance: random.Random, key: int) -> None:
    """Insert, update, move or delete a row; or insert and delete it several times."""
    born = (
        "insert into accounts values (%s, 'owner', %s, true) on conflict (id) do update set balance = excluded.balance"
    )
    match chance.randrange(6):
        case 0 | 1:
            conn.execute(born, [key, chance.randrange(10_000)])
        case 2:
            conn.execute("update accounts set balance = null, open = not open where id = %s", [key])
        case 3:
            conn.execute("delete from accounts where id = %s", [key])
        case 4:
            move = "update accounts set id = %s where id = %s and not exists (select from accounts where id = %s)"
            conn.execute(move, [key + 1, key, key + 1])
        case _:
            for _ in range(2):
                conn.execute(born, [key, chance.randrange(100)])
                conn.execute("delete from accounts where id = %s", [key])
            conn.execute(born, [key, 1])


def order(conn: Conn, chance: random.Random, key: int) -> None:
    """Change rows with a key of two columns."""
    match chance.randrange(4):
        case 0 | 1:
            for line in range(chance.randint(1, 4)):
                conn.execute("insert into orders values (%s, %s, 'item', 1) on conflict do nothing", [key, line])
        case 2:
            conn.execute("update orders set price = price + 0.25 where id = %s", [key])
        case _:
            conn.execute("delete from orders where id = %s and line > 1", [key])


def note(conn: Conn, chance: random.Random, key: int) -> None:
    """Change rows with a value that is stored out of line and rarely sent."""
    match chance.randrange(4):
        case 0:
            body = chance.randbytes(1500).hex()
            conn.execute("insert into notes values (%s, 'new', %s) on conflict do nothing", [key, body])
        case 1:
            conn.execute("update notes set title = title || '.' where id = %s", [key])
        case 2:
            move = "update notes set id = %s where id = %s and not exists (select from notes where id = %s)"
            conn.execute(move, [key + 1, key, key + 1])
        case _:
            conn.execute("update notes set body = null where id = %s and length(title) > 12", [key])


def long_key(conn: Conn, chance: random.Random, key: int) -> None:
    """Change rows whose key is stored out of line."""
    name = f"{key % 8}-{key // _OWN_KEYS}-" + "k" * 2300
    match chance.randrange(3):
        case 0:
            conn.execute("insert into long_keys values (%s, 0) on conflict do nothing", [name])
        case 1:
            conn.execute("update long_keys set n = n + 1 where name = %s", [name])
        case _:
            conn.execute("delete from long_keys where name = %s", [name])


def bag(conn: Conn, chance: random.Random, key: int) -> None:
    """Change rows without a key, some of them equal."""
    label, some = f"bag {key % 4} of {key // _OWN_KEYS}", "select ctid from bags where label = %s limit 3"
    match chance.randrange(5):
        case 0 | 1:
            body = "b" * 2500 if chance.randrange(3) == 0 else None
            for _ in range(chance.randint(1, 3)):
                conn.execute("insert into bags values (%s, 0, %s)", [label, body])
        case 2:
            conn.execute(f"update bags set n = 1 - n where ctid in ({some})", [label])
        case 3:
            conn.execute(f"update bags set n = n where ctid in ({some})", [label])
        case _:
            conn.execute(f"delete from bags where ctid in ({some})", [label])


def part(conn: Conn, chance: random.Random, key: int) -> None:
    """Change rows of a partitioned table, and move them between partitions."""
    match chance.randrange(4):
        case 0 | 1:
            conn.execute("insert into parts values (%s, %s, 'new') on conflict do nothing", [key % 3, key])
        case 2:
            conn.execute("update parts set label = label || '.' where id = %s", [key])
        case _:
            free = "not exists (select from parts other where other.id = parts.id and other.region = 3 - parts.region)"
            conn.execute(f"update parts set region = 3 - region where id = %s and {free}", [key])


def retyped(conn: Conn, chance: random.Random, key: int) -> None:
    """Change rows of the table whose column changes its type; a text parameter fits either type."""
    amount = str(chance.randrange(1000))
    match chance.randrange(3):
        case 0:
            conn.execute("insert into retyped values (%s, %s) on conflict do nothing", [key, amount])
        case 1:
            conn.execute("update retyped set amount = %s where id = %s", [amount, key])
        case _:
            conn.execute("delete from retyped where id = %s", [key])


def large(conn: Conn, chance: random.Random, key: int) -> None:
    """Change enough rows to have the transaction streamed before its commit."""
    first = key // _OWN_KEYS * _OWN_KEYS + 50_000
    if chance.randrange(2):
        numbers = f"generate_series({first}, {first + _LARGE_ROWS})"
        conn.execute(f"insert into accounts select n, 'many' from {numbers} n on conflict do nothing")
    else:
        conn.execute("delete from accounts where id between %s and %s", [first, first + _LARGE_ROWS])


def truncate(conn: Conn, chance: random.Random, key: int) -> None:
    """Truncate a table between other changes of it; a partitioned one only after them.

    Rows that the same transaction inserts later would have it copied anew.
    """
    table, change = chance.choice([("orders", order), ("bags", bag), ("parts", part)])
    conn.execute("set local lock_timeout = '2s'")
    if table == "parts":
        change(conn, chance, key)
    conn.execute(f"truncate {table}")
    if table != "parts":
        change(conn, chance, key)


_CHANGES: list[Change] = [account, account, order, note, note, long_key, bag, bag, part, retyped]


def transact(conn: Conn, chance: random.Random, first_key: int, *, truncates: bool = True) -> None:
    """Run one random transaction."""
    with conn.transaction():
        for _ in range(chance.randint(1, 8)):
            change, key = chance.choice(_CHANGES), first_key + chance.randrange(_KEYS)
            if chance.randrange(6) == 0:
                _undone(conn, change, chance, key)
            else:
                change(conn, chance, key)
        match chance.randrange(120):
            case 0 | 1:
                large(conn, chance, first_key)
            case 2 if truncates:
                truncate(conn, chance, first_key)
            case 3:
                conn.execute("select pg_logical_emit_message(true, 'auditlake', '{\"actor\": \"somebody\"}')")
            case 4 | 5:
                large(conn, chance, first_key)
                raise psycopg.Rollback
            case _:
                pass


def _undone(conn: Conn, change: Change, chance: random.Random, key: int) -> None:
    with conn.transaction():
        change(conn, chance, key)
        if chance.randrange(10) == 0:
            large(conn, chance, key)
        raise psycopg.Rollback


class Worker(threading.Thread):
    """Runs transactions on one connection until `stop` is set; `done` counts them."""

    def __init__(self, dsn: str, seed: str, number: int, stop: threading.Event, no_truncate: threading.Event) -> None:
        super().__init__(name=f"worker-{number}", daemon=True)
        self._dsn = dsn
        self._chance = random.Random(f"{seed}/worker/{number}")  # noqa: S311 - no secret
        self._first_key = number * _OWN_KEYS
        self._stopping = stop
        self._no_truncate = no_truncate
        self.done = 0

    def run(self) -> None:
        while not self._stopping.wait(_PAUSE_S):
            with suppress(*LOST, psycopg.Rollback), closing(psycopg.connect(self._dsn, autocommit=True)) as conn:
                self._work(conn)

    def _work(self, conn: Conn) -> None:
        while not self._stopping.wait(_PAUSE_S * self._chance.random() * 2):
            try:
                transact(conn, self._chance, self._first_key, truncates=not self._no_truncate.is_set())
                self.done += 1
            except (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable):
                continue
