"""Ten questions that an auditor answers in Chromium by what the page itself says: labels, links, buttons.

The shop is a PostgreSQL that is captured. Between two of its transactions the changes of the table `stock` are unknown.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.ui import Select

from auditlake.lake.gaps import Gap, record_gaps
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from tests.browser import resize, serving, wait
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.server import Server

pytestmark = pytest.mark.pg

_SHOP = """
create table customers (customer_id int primary key, name text, address text);
create table orders (order_id int primary key, customer_id int, status text, total numeric(8,2));
create table stock (item int primary key, pieces int);
"""


@dataclass(frozen=True)
class Shop:
    """The page of the shop; `before` is a time between its first transaction and the others."""

    url: str
    before: str
    gap: tuple[str, str]


@pytest.fixture(scope="module")
def shop(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop in which five people changed something."""
    name = server.create_database()
    with psycopg.connect(server.dsn(name), autocommit=True) as conn:
        conn.execute(_SHOP)
        lake = make_lake(server.dsn(name), tmp_path_factory.mktemp("shop") / "lake")
        _transaction(
            conn,
            '{"actor": "import", "reason": "from the old shop"}',
            "insert into customers values (1, 'Ada', '1 Old Street'), (2, 'Bert', '5 High Street');"
            "insert into orders values (10, 1, 'placed', 20.00), (11, 2, 'placed', 30.50);"
            "insert into stock values (7, 100)",
        )
        before = _value(conn, "select clock_timestamp() at time zone 'UTC'")
        carol = '{"actor": "carol", "reason": "moved house"}'
        _transaction(conn, carol, "update customers set address = '2 New Street' where customer_id = 1")
        _transaction(
            conn,
            '{"actor": "dave", "reason": "refund"}',
            "update orders set status = 'cancelled', total = 0 where order_id = 10;"
            "update customers set name = 'Ada L.' where customer_id = 1",
        )
        _transaction(conn, '{"actor": "mallory"}', "delete from orders where order_id = 11")
        gap = (
            _value(conn, "select pg_current_wal_lsn()"),
            _value(conn, "select pg_logical_emit_message(true, 'shop', 'closed')"),
        )
        _transaction(conn, '{"actor": "erin", "reason": "count"}', "update stock set pieces = 90 where item = 7")
        capture(server.dsn(name), lake)
        record_gaps(
            lake, [Gap(TableName("public", "stock"), Lsn.parse(gap[0]), Lsn.parse(gap[1]), "the slot was lost")]
        )
        with serving(lake) as url:
            yield Shop(url, before, gap)
    server.drop_database(name)


def _transaction(conn: psycopg.Connection, context: str, statements: str) -> None:
    conn.execute(
        f"begin; select pg_logical_emit_message(true, 'auditlake', '{context}'); {statements}; commit".encode()
    )


def _value(conn: psycopg.Connection, query: str) -> str:
    (found,) = conn.execute(query.encode()).fetchone() or (None,)
    return str(found)


class Auditor:
    """A person at the page, who sees labels, links, buttons and texts."""

    def __init__(self, browser: webdriver.Chrome, url: str, downloads: Path) -> None:
        """Open the first page."""
        self._browser = browser
        self._downloads = downloads
        resize(browser, 1440, 900)
        browser.get(url)

    def follows(self, text: str) -> None:
        """Follow the first link with a text."""
        self._leave(self._seen(f"//a[normalize-space() = '{text}']"))

    def opens_the_first_transaction(self) -> None:
        """Follow the LSN of the first transaction of a list."""
        self._leave(self._seen("//ol[@class = 'transactions']//a[@class = 'lsn']"))

    def fills(self, label: str, text: str) -> None:
        """Write into the field with a label."""
        field = self._seen(f"//label[starts-with(normalize-space(), '{label}')]//input")
        field.clear()
        field.send_keys(text)

    def chooses(self, label: str, option: str) -> None:
        """Choose from the list with a label."""
        field = self._seen(f"//label[starts-with(normalize-space(), '{label}')]//select")
        Select(field).select_by_visible_text(option)

    def presses(self, button: str) -> None:
        """Press the button with a text."""
        self._leave(self._seen(f"//main//button[normalize-space() = '{button}']"))

    def goes_to(self, moment: str) -> None:
        """Enter a moment beside the timeline."""
        self._seen("//input[@id = 'at']").send_keys(moment)
        self._leave(self._seen("//button[normalize-space() = 'Go']"))

    def asks(self, statement: str) -> None:
        """Run a statement."""
        self._seen("//textarea").send_keys(statement)
        self._seen("//button[normalize-space() = 'Run']").click()

    def unfolds(self, text: str) -> None:
        """Open what is folded below a text."""
        self._seen(f"//summary[contains(., '{text}')]").click()

    def reads(self, *texts: str) -> None:
        """Require that the page shows each text, one after the other."""
        wait(self._browser, lambda _: self._shows(texts))

    def saves_evidence(self) -> str:
        """Return the file that the page offers."""
        self._seen("//a[normalize-space() = 'Save as evidence']").click()
        (file,) = wait(self._browser, lambda _: list(self._downloads.glob("*.html")))
        return str(file.read_text())

    def _shows(self, texts: tuple[str, ...]) -> bool:
        shown, place = " ".join(self._browser.find_element(By.TAG_NAME, "body").text.split()), 0
        for text in texts:
            place = shown.find(text, place)
            if place < 0:
                return False
        return True

    def _seen(self, path: str) -> WebElement:
        found: WebElement = wait(
            self._browser, lambda b: next((e for e in b.find_elements(By.XPATH, path) if e.is_displayed()), None)
        )
        return found

    def _leave(self, element: WebElement) -> None:
        """Click, and wait for the next page; that of a statement stays."""
        stays = self._browser.find_elements(By.CSS_SELECTOR, "[data-fixed]")
        page = self._browser.find_element(By.TAG_NAME, "html")
        element.click()
        if not stays:
            wait(self._browser, staleness_of(page))
        wait(self._browser, lambda b: b.execute_script("return document.readyState") == "complete")


@pytest.fixture
def auditor(browser: webdriver.Chrome, shop: Shop, tmp_path: Path) -> Auditor:
    """A person at the first page."""
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    return Auditor(browser, shop.url, tmp_path)


def test_who_changed_the_address(auditor: Auditor) -> None:
    """Who changed this customer's address, and when? I know the old one."""
    auditor.follows("Find")
    auditor.chooses("Table", "public.customers")
    auditor.fills("Value", "1 Old Street")
    auditor.presses("Find")
    auditor.follows("history")
    auditor.reads("UTC", "carol", "moved house", "address", "1 Old Street → 2 New Street")


def test_what_an_order_looked_like(auditor: Auditor, shop: Shop) -> None:
    """What did this order look like then?"""
    auditor.follows("public.orders")
    auditor.goes_to(shop.before)
    auditor.reads("10 1 placed 20.00", "11 2 placed 30.50")


def test_what_was_deleted_and_by_whom(auditor: Auditor) -> None:
    """What was deleted in the last hour, and by whom?"""
    auditor.follows("Transactions")
    auditor.fills("Since", "-1h")
    auditor.chooses("Rows", "deleted")
    auditor.presses("Filter")
    auditor.reads("\N{MINUS SIGN}1", "mallory", "public.orders", "There are no more; the lake begins at")


def test_which_rows_differ(auditor: Auditor, shop: Shop) -> None:
    """Which rows differ between two moments?"""
    auditor.follows("Compare")
    auditor.fills("From", shop.before)
    auditor.presses("Compare")
    auditor.reads(
        "public.customers 2 2 0 0 ~1", "public.orders 2 1 0 \N{MINUS SIGN}1 ~1", "removed 11", "placed → cancelled"
    )


def test_which_transactions_touched_two_tables(auditor: Auditor) -> None:
    """Which transactions touched two tables?"""
    auditor.follows("Transactions")
    auditor.chooses("Table", "public.orders")
    auditor.presses("Filter")
    auditor.chooses("and", "public.customers")
    auditor.presses("Filter")
    auditor.reads("dave", "refund", "import", "from the old shop", "There are no more")


def test_what_a_person_did(auditor: Auditor) -> None:
    """What did dave do?"""
    auditor.follows("dave")
    auditor.reads("~2 dave", "public.customers, public.orders", "refund", "There are no more")


def test_the_history_of_one_field(auditor: Auditor) -> None:
    """What was the status of order 10 over time?"""
    auditor.follows("public.orders")
    auditor.follows("history")
    auditor.follows("status")
    auditor.reads("History of status", "update", "dave", "placed → cancelled", "insert", "import", "placed")


def test_what_happened_around_a_gap(auditor: Auditor, shop: Shop) -> None:
    """What happened around the stretch in which changes are unknown?"""
    auditor.unfolds("shaded: 1 stretch with unknown changes")
    auditor.reads(f"public.stock: from {shop.gap[0]} to {shop.gap[1]}, the slot was lost")
    auditor.follows("public.stock")
    auditor.follows("history")
    auditor.reads("pieces 100 → 90", f"Unknown from {shop.gap[0]} to {shop.gap[1]}: the slot was lost", "insert")


def test_a_total_then_and_now(auditor: Auditor, shop: Shop) -> None:
    """What was the total of the orders then, and what is it now?"""
    auditor.follows("SQL")
    auditor.asks("select sum(total) as total from orders")
    auditor.reads("total numeric 0.00")
    auditor.goes_to(shop.before)
    auditor.reads("total numeric 50.50")
    auditor.follows("Latest")
    auditor.reads("total numeric 0.00")


def test_evidence_to_hand_over(auditor: Auditor) -> None:
    """What can I hand over about the refund?"""
    auditor.follows("Transactions")
    auditor.fills("Reason contains", "refund")
    auditor.presses("Filter")
    auditor.opens_the_first_transaction()
    evidence = auditor.saves_evidence()
    for text in ("dave", "refund", "placed", "cancelled", "20.00", "Ada L."):
        assert text in evidence
