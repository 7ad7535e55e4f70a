"""Shop of the demo: four tables, and transactions that run while they are copied and followed.

All writes use one connection under one lock, so that the demo can pause the shop, query PostgreSQL at that moment, and
resume. The transactions come from a seeded generator; their times depend on the machine.
"""

import json
import random
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import LiteralString, Self

from auditlake.lsn import Lsn
from auditlake.source.connection import Row, connect, fetch
from auditlake.source.server import wal_end

ACTOR = "back office"
"""Actor of the transactions that change the price and cancel the order."""
_PAUSE_S = 0.01
_CUSTOMERS, _ORDERS_AT_START = 200, 1000

_PRODUCTS = (
    ("desk lamp", "39.90"),
    ("office chair", "189.00"),
    ("standing desk", "449.00"),
    ("bookshelf", "129.50"),
    ("monitor arm", "79.95"),
    ("cable tray", "19.90"),
)

SCHEMA = """
create table customers (
    customer_id int primary key, name text not null, joined_on date not null);
create table products (
    product_id int primary key, name text not null, price numeric(10,2) not null);
create table orders (
    order_id int primary key, customer_id int not null references customers, status text not null,
    placed_at timestamptz not null default clock_timestamp());
create table order_lines (
    order_id int references orders, line_no smallint, product_id int not null references products,
    quantity int not null, unit_price numeric(10,2) not null, primary key (order_id, line_no));
"""


@dataclass(frozen=True, slots=True)
class Pause:
    """A moment at which the shop was paused: end of the log, server's clock, and PostgreSQL's answers."""

    lsn: Lsn
    time_us: int
    answers: dict[str, list[Row]]


class Shop:
    """The shop and the thread that runs its transactions, from `__enter__` to `close`."""

    def __init__(self, dsn: str, seed: int = 7) -> None:
        self._conn = connect(dsn)
        self._conn.execute("set search_path = public")
        self._random = random.Random(seed)  # noqa: S311 - goods, not secrets
        self._next_order = 1
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._trade, daemon=True)
        self.transactions = 0

    def __enter__(self) -> Self:
        self._open()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> None:
        self._conn.execute(SCHEMA)
        with self._conn.transaction(), self._conn.cursor() as cursor:
            customers = [(n, f"customer {n:03}") for n in range(1, _CUSTOMERS + 1)]
            cursor.executemany("insert into customers values (%s, %s, date '2026-01-01')", customers)
            cursor.executemany(
                "insert into products values (%s, %s, %s)", [(n, *p) for n, p in enumerate(_PRODUCTS, 1)]
            )
        with self._conn.transaction():
            for _ in range(_ORDERS_AT_START):
                self._place_order()

    def _trade(self) -> None:
        try:
            while not self._closed.wait(_PAUSE_S):
                with self._lock, self._conn.transaction():
                    self._random.choices((self._place_order, self._move_on, self._change_quantity), (3, 5, 2))[0]()
                    self.transactions += 1
        except BaseException as exc:  # noqa: BLE001 - raised again by close()
            self._failure = exc

    def _place_order(self) -> None:
        order, customer = self._next_order, self._random.randint(1, _CUSTOMERS)
        self._next_order += 1
        self._conn.execute("insert into orders values (%s, %s, 'placed')", (order, customer))
        for line, product in enumerate(
            self._random.sample(range(1, len(_PRODUCTS) + 1), self._random.randint(1, 3)), 1
        ):
            self._conn.execute(
                "insert into order_lines select %s, %s, product_id, %s, price from products where product_id = %s",
                (order, line, self._random.randint(1, 4), product),
            )

    def _move_on(self) -> None:
        self._conn.execute(
            "update orders set status = case status when 'placed' then 'paid' else 'shipped' end"
            " where order_id = %s and status in ('placed', 'paid')",
            (self._random.randrange(1, self._next_order),),
        )

    def _change_quantity(self) -> None:
        self._conn.execute(
            "update order_lines set quantity = quantity %% 4 + 1 where order_id = %s and line_no = 1",
            (self._random.randrange(1, self._next_order),),
        )

    def pause_and_query(self, questions: dict[str, LiteralString]) -> Pause:
        """Pause the transactions and run queries on PostgreSQL."""
        with self._lock:
            answers = {name: fetch(self._conn, question) for name, question in questions.items()}
            end = wal_end(self._conn)
            # Commit times are in microseconds: wait, so that the next commit's time is later than this moment.
            time.sleep(0.001)
        return Pause(end.lsn, end.time_us, answers)

    def change_price_and_cancel(self, product_id: int, order_id: int) -> None:
        """Raise a price and cancel an order in one transaction with actor and reason as its context."""
        context = json.dumps({"actor": ACTOR, "reason": "supplier raised the price"})
        with self._lock, self._conn.transaction():
            self._conn.execute("select pg_logical_emit_message(true, 'auditlake', %s)", (context,))
            self._conn.execute("update products set price = price * 1.25 where product_id = %s", (product_id,))
            self._conn.execute("update orders set status = 'cancelled' where order_id = %s", (order_id,))
            self._conn.execute("delete from order_lines where order_id = %s", (order_id,))

    def close(self) -> None:
        """Stop the transactions; raises the exception that ended them early, if any."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        self._conn.close()
        if self._failure is not None:
            raise self._failure
