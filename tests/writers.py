"""Writers: several connections that change several tables, many rows per transaction, until stopped.

Every table has a trigger that writes each row change to `ledger` in the same transaction, so PostgreSQL itself counts
the changes that the lake must have. Each writer has its own keys, so none waits for another.
"""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import TracebackType
from typing import Any, Self

import psycopg

TABLES = ("accounts", "marks", "notes", "orders")
LEDGER = "ledger"
_WRITERS = 3
_PAUSE_S = 0.02
_OWN_KEYS = 100_000

SCHEMA = """
create table accounts (id int primary key, owner text, balance numeric(12,2), open boolean);
create table orders (id bigint, line int, item text, price numeric(10,2), primary key (id, line));
create table notes (id int primary key, title text, body text);
alter table notes alter column body set storage external;
create table marks (label text, worth numeric(10,2));
alter table marks replica identity full;
create table ledger (n bigint generated always as identity primary key, tab text, op text);
create function note_change() returns trigger language plpgsql as $$
begin
  insert into public.ledger (tab, op) values (tg_table_name, lower(tg_op));
  return null;
end $$;
create trigger counted after insert or update or delete on accounts for each row execute function note_change();
create trigger counted after insert or update or delete on marks for each row execute function note_change();
create trigger counted after insert or update or delete on orders for each row execute function note_change();
create trigger counted after insert or update or delete on notes for each row execute function note_change();
"""


class Writers:
    """Writers that run for the duration of a context."""

    def __init__(self, dsn: str, seed: int = 1, pause_s: float = _PAUSE_S) -> None:
        self._dsn = dsn
        self._seed = seed
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._written = threading.Semaphore(0)
        self._pool = ThreadPoolExecutor(_WRITERS)

    def __enter__(self) -> Self:
        self._running = [self._pool.submit(self._write, number) for number in range(_WRITERS)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._pool.shutdown()
        for writer in self._running:
            writer.result()

    def await_transactions(self, count: int) -> None:
        """Wait until this many more transactions are committed."""
        for _ in range(count):
            assert self._written.acquire(timeout=60)

    def _write(self, number: int) -> None:
        chance = random.Random(self._seed * 100 + number)  # noqa: S311 - no secret, and a seed that can be repeated
        with closing(psycopg.connect(self._dsn, autocommit=True)) as conn:
            while not self._stop.wait(self._pause_s):
                with conn.transaction():
                    for _ in range(chance.randint(1, 8)):
                        change(conn, chance, number * _OWN_KEYS)
                self._written.release()


def change(conn: psycopg.Connection[Any], chance: random.Random, first_key: int) -> None:
    """Change a random row of a random table; keys start at `first_key`."""
    if chance.randrange(4):
        _change_keyed(conn, chance, first_key)
    else:
        _mark(conn, chance, f"mark {chance.randrange(3)} of {first_key}")


def _change_keyed(conn: psycopg.Connection[Any], chance: random.Random, first_key: int) -> None:
    key, other = (first_key + chance.randrange(30) for _ in range(2))
    price = round(chance.uniform(0, 1000), 2)
    match chance.randrange(9):
        case 0 | 1:
            conn.execute(
                "insert into accounts values (%s, %s, %s, true)"
                " on conflict (id) do update set balance = accounts.balance + 1",
                [key, f"owner {key}", price],
            )
        case 2:
            conn.execute("update accounts set balance = null, open = not open where id = %s", [key])
        case 3:
            conn.execute("delete from accounts where id = %s", [key])
        case 4:
            lines = [(key, line, f"item {line}", price) for line in range(chance.randint(1, 4))]
            with conn.cursor() as cursor:
                cursor.executemany("insert into orders values (%s, %s, %s, %s) on conflict do nothing", lines)
        case 5:
            conn.execute("update orders set price = price + 1 where id = %s", [key])
            conn.execute("delete from orders where id = %s and line > 1", [other])
        case 6:
            body = chance.randbytes(1500).hex()  # long enough for TOAST
            conn.execute(
                "insert into notes values (%s, 'new', %s) on conflict (id) do update set body = excluded.body",
                [key, body],
            )
        case 7:
            conn.execute("update notes set title = title || '.' where id = %s", [key])
        case _:
            conn.execute(
                "update notes set id = %s where id = %s and not exists (select from notes where id = %s)",
                [other, key, other],
            )


def _mark(conn: psycopg.Connection[Any], chance: random.Random, label: str) -> None:
    """Change rows without a key, some of them more than once."""
    match chance.randrange(4):
        case 0 | 1:
            rows = [(label, chance.randrange(2))] * chance.randint(1, 3)
            with conn.cursor() as cursor:
                cursor.executemany("insert into marks values (%s, %s)", rows)
        case 2:
            some = "select ctid from marks where label = %s limit 3"
            conn.execute(f"update marks set worth = 1 - worth where ctid in ({some})", [label])
        case _:
            one = "select ctid from marks where label = %s limit 1"
            conn.execute(f"delete from marks where ctid = ({one})", [label])
