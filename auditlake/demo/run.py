"""Demo: bootstrap, follow and query a real PostgreSQL, and compare every answer with PostgreSQL's own.

A shop's database on an embedded server is bootstrapped and followed while transactions run, every stage on Spark if it
is installed. Three times the shop is paused and PostgreSQL runs the queries of `CHECKED`: whole tables and a join, in
SQL common to all engines. Later the lake runs them as of those moments, by LSN and by time, in DuckDB, and in Spark if
it is installed. One transaction is undone in PostgreSQL by the script of `auditlake diff`. `run_demo` returns 0 only if
all answers are equal, row for row, and the undo has restored its rows.
"""

import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, LiteralString

from auditlake.audit.answers import RowEvent
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.queries import DiffQuestion, RowQuestion, life_of
from auditlake.audit.text_output import show_event, show_transaction
from auditlake.audit.transaction_contents import contents
from auditlake.audit.transactions import Transaction, TransactionFilters, find
from auditlake.audit.undo_script import patch
from auditlake.capture.supervisor import make_task
from auditlake.demo.server import Server
from auditlake.demo.shop import ACTOR, Pause, Shop
from auditlake.engine import Engine
from auditlake.errors import ConfigError
from auditlake.extras import SPARK
from auditlake.follow import follow
from auditlake.instants import to_time
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.messages import say
from auditlake.query.embedded.engine import Embedded
from auditlake.query.engine_choice import AUTO, Engines
from auditlake.query.formats import python_rows
from auditlake.query.output import render
from auditlake.query.statement import prepare_statement, read_state
from auditlake.signals import handled
from auditlake.snapshot.bootstrap import Target, bootstrap
from auditlake.snapshot.progress import show_copied
from auditlake.snapshot.worker_pool import start_workers
from auditlake.source.connection import Row, connect, fetch
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.terminal import working

if TYPE_CHECKING:  # it need not be installed
    from pyspark.sql import SparkSession

JOIN = "revenue by customer"

CHECKED: dict[str, LiteralString] = {
    "customers": "select customer_id, name, cast(extract(day from joined_on) as int) as day"
    " from public.customers order by 1",
    "products": "select product_id, name, price from public.products order by 1",
    "orders": "select order_id, customer_id, status, cast(extract(second from placed_at) as numeric(8,6)) as second"
    " from public.orders order by 1",
    "order lines": "select order_id, line_no, product_id, quantity, unit_price from public.order_lines order by 1, 2",
    JOIN: """
        select c.name, count(*), sum(l.quantity * l.unit_price)
          from public.customers c
          join public.orders o on o.customer_id = c.customer_id
          join public.order_lines l on l.order_id = o.order_id
         where o.status <> 'cancelled' group by c.name order by 1""",
}
"""Queries by name; each orders its rows, identically in both engines."""


def spark_rows(spark: "SparkSession", lake: Lake, question: str, when: str) -> list[Row]:
    """Run one of `CHECKED` on the lake as of a moment."""
    from auditlake.query.spark_engine import run_sql  # noqa: PLC0415 - only with Spark

    return [tuple(row) for row in run_sql(spark, lake, CHECKED[question], when).collect()]


def duckdb_rows(lake: Lake, question: str, when: str) -> list[Row]:
    """Run the same without Spark."""
    state = read_state(lake, when, UTC)
    rows = Embedded({}).answer(state, prepare_statement(state, CHECKED[question], {}))
    return list(python_rows(*rows.batches()))


def _compare(expected: list[Row], actual: list[Row]) -> str | None:
    """Describe the difference between the lake's answer and PostgreSQL's; None if there is none."""
    if len(expected) != len(actual):
        return f"{len(actual)} rows, PostgreSQL had {len(expected)}"
    wrong = sum(ours != theirs for ours, theirs in zip(actual, expected, strict=True))
    return f"{wrong} of {len(expected)} rows differ" if wrong else None


_ENGINES = ("Spark", "DuckDB") if SPARK.is_installed else ("DuckDB",)
_PRODUCT, _ORDER = 3, 42
_TRADE_S = 3.0
_STATUS: LiteralString = f"select status from public.orders where order_id = {_ORDER}"
_LINES: LiteralString = f"select count(*) from public.order_lines where order_id = {_ORDER}"

REVENUE = """
select p.name, p.price, count(distinct o.order_id) as orders, sum(l.quantity * l.unit_price) as revenue
  from public.products p
  join public.order_lines l on l.product_id = p.product_id
  join public.orders o on o.order_id = l.order_id
 where o.status <> 'cancelled'
 group by p.name, p.price order by p.name
"""


def run_demo(keep: Path | None) -> int:
    """Run the demo; return 0 if all answers were right, else 1. With `keep`, the database stays too, in that folder."""
    # A closed terminal ends the demo as Ctrl-C does: otherwise the server would run for ever.
    with _folder(keep) as folder, handled((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler):
        server = Server(folder=folder / "postgres")
        try:
            server.start()
            dsn = server.dsn(server.create_database("shop"))
            right = _Demo(dsn, Lake(folder / "lake")).run()
        finally:
            if keep is None:
                server.close("immediate")
                shutil.rmtree(server.folder, ignore_errors=True)
        if keep is not None:
            _report_kept(server, dsn, folder)
    _report_page(folder / "lake", temporary=keep is None)
    return 0 if right else 1


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        folder = Path(tempfile.mkdtemp(prefix="auditlake-demo-"))
        folder.chmod(0o755)  # started by root, the server runs as another user, who needs access
        try:
            yield folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return
    if keep.exists() and any(keep.iterdir()):
        raise ConfigError(f"folder {keep} is not empty", "Give --keep a new folder.")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.absolute()


def _report_kept(server: Server, dsn: str, folder: Path) -> None:
    environment = f"AUDITLAKE_SOURCE={shlex.quote(dsn)} AUDITLAKE_LAKE={shlex.quote(str(folder / 'lake'))}"
    say("the server keeps running; to try it:")
    for line in (
        f"export {environment}",
        "auditlake status",
        'auditlake sql "select * from public.products for system_time all order by product_id, _from_lsn"',
        "auditlake follow --until-current",
        f"{server.bin / 'psql'} {shlex.quote(dsn)}",
        f"{server.bin / 'pg_ctl'} stop -D {shlex.quote(str(server.data))}",
    ):
        say(f"    {line}")


def _report_page(lake: Path, *, temporary: bool) -> None:
    """Print how to open the page of the demo's lake."""
    ours = Path(sys.argv[0])
    command = str(ours) if ours.name == "auditlake" else "auditlake"
    stays = f"; the lake stays until you remove {lake.parent}" if temporary else ""
    say(f"to see all of it in a browser, with a slider through time{stays}:")
    say(f"    {command} serve --lake {shlex.quote(str(lake))}")


class _Demo:
    def __init__(self, dsn: str, lake: Lake) -> None:
        self._dsn = dsn
        self._lake = lake
        self._started = time.monotonic()
        self._spark = SparkOnDemand({"spark.master": "local[2]"}, Engine.SPARK if SPARK.is_installed else Engine.DUCKDB)

    def run(self) -> bool:
        """Bootstrap and follow the trading shop, then query and compare."""
        with Shop(self._dsn) as shop:
            self._report("a shop with 4 tables is open; bootstrap while it trades")
            target = Target(self._dsn, self._lake, "auditlake", "auditlake", None)
            with working("copying while the shop trades"):
                copied = bootstrap(target, lambda: start_workers(self._spark), say)
            show_copied(copied)
            with working("following while the shop trades"), self._following():
                moments = self._trade(shop)
            self._report(f"the shop committed {shop.transactions:,} transactions and closes")
            moments["now"] = shop.pause_and_query(CHECKED)
        undone = self._undo()
        with working("applying the remaining changes to the history"):
            follow(make_task(self._dsn, self._lake, "current"), self._spark, threading.Event(), say)
        self._ask(moments)
        return self._check(moments) and undone

    def _report(self, message: str) -> None:
        say(f"[{time.monotonic() - self._started:5.1f} s] {message}")

    @contextmanager
    def _following(self) -> Iterator[None]:
        """Follow in the background, like `auditlake follow`."""
        self._report("follow the log while the shop trades")
        stop = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            try:  # as in `capturing`
                following = pool.submit(follow, make_task(self._dsn, self._lake, None), self._spark, stop, say)
                yield
            finally:
                stop.set()
            following.result()

    def _trade(self, shop: Shop) -> dict[str, Pause]:
        time.sleep(_TRADE_S)
        before = shop.pause_and_query(CHECKED)
        shop.change_price_and_cancel(_PRODUCT, _ORDER)
        self._report(f"product {_PRODUCT} has a new price and order {_ORDER} is cancelled, in one transaction")
        time.sleep(_TRADE_S)
        return {"before": before, "after": shop.pause_and_query(CHECKED)}

    def _ask(self, moments: dict[str, Pause]) -> None:
        at = to_time(moments["before"].time_us).isoformat()
        self._show("revenue by product now", REVENUE, None)
        self._show("the same join as of the moment before the price change", REVENUE, at)
        reader = self._reader()
        self._report(f"who changed order {_ORDER}, when and why: auditlake row orders {_ORDER}")
        life = life_of(reader, RowQuestion("orders", (str(_ORDER),), None, None))
        for entry in life.entries():
            if isinstance(entry, RowEvent):
                show_event(entry, reader.now, full=False)
        cancelled = self._cancelled(reader)
        self._report(f"the transaction that cancelled it: auditlake show {cancelled.lsn}")
        show_transaction(cancelled, contents(reader, cancelled), reader.now)

    def _reader(self) -> Reader:
        return Reader(self._lake, datetime.now(UTC))

    def _cancelled(self, reader: Reader) -> Transaction:
        """Return the transaction that cancelled the order: the only one with an actor."""
        return next(find(reader, Span(Lsn(0), reader.watermark), TransactionFilters(actor=ACTOR), 1))

    def _undo(self) -> bool:
        """Undo that transaction in PostgreSQL; return whether its rows are back."""
        reader = self._reader()
        lsn = self._cancelled(reader).lsn
        when = (str(Lsn(lsn - 1)), str(lsn))
        script = "\n".join(patch(DiffQuestion(*when, ("orders", "order_lines"), reverse=True).diffs(reader)))
        with connect(self._dsn) as conn:
            lines_before = fetch(conn, _LINES)[0][0]
            conn.execute(script.encode())
            status, lines = fetch(conn, _STATUS)[0][0], fetch(conn, _LINES)[0][0]
        command = f"auditlake diff {' '.join(when)} orders order_lines --format sql -R | psql"
        self._report(f"undo the cancellation, across foreign keys: {command}")
        self._report(f"order {_ORDER} is {status} again, with {lines} lines instead of {lines_before}")
        return bool(status != "cancelled" and lines and not lines_before)

    def _show(self, title: str, statement: str, as_of: str | None) -> None:
        self._report(title + (f": auditlake sql --as-of {as_of} …" if as_of else ""))
        with working("querying"):
            state = read_state(self._lake, as_of, UTC)
            (answer,) = Engines(AUTO, {}, self._spark).answer(state, [prepare_statement(state, statement, {})])
        render(answer.rows, "table")

    def _check(self, moments: dict[str, Pause]) -> bool:
        """Compare the lake's answers with PostgreSQL's: for each moment all of them by LSN, the join by time too."""
        right = []
        with working("comparing with PostgreSQL's answers"):
            for name, moment in moments.items():
                # The end of the log itself may be the LSN of the next commit.
                right += [self._check_one(name, str(Lsn(moment.lsn - 1)), moment, query) for query in CHECKED]
                right.append(self._check_one(name, to_time(moment.time_us).isoformat(), moment, JOIN))
        self._report(
            f"{sum(right)} of {len(right)} answers equal PostgreSQL's at those moments, in {' and in '.join(_ENGINES)}"
        )
        return all(right)

    def _check_one(self, name: str, when: str, moment: Pause, question: str) -> bool:
        answers = {"DuckDB": duckdb_rows(self._lake, question, when)}
        if "Spark" in _ENGINES:
            answers["Spark"] = spark_rows(self._spark(), self._lake, question, when)
        differences = {engine: _compare(moment.answers[question], rows) for engine, rows in answers.items()}
        wrong = {engine: difference for engine, difference in differences.items() if difference is not None}
        for engine, difference in wrong.items():
            self._report(f"WRONG {question} {name} (as of {when}) in {engine}: {difference}")
        return not wrong
