"""The page in Chromium, as a person uses it: slider by mouse and keyboard, zoom, links, SQL's completion, undo script.

The lake is the small one of tests.page.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from tests.browser import resize, serving, wait
from tests.page import capture_transaction, write_lake

_WIDTHS = ((1440, 900), (390, 844))
_PAGES = (
    "/",
    "/rows?table=hostile",
    "/rows?table=orders&facet=note",
    "/row?table=orders&key=1",
    "/row?table=orders&key=1&versus=0/200&column=note",
    "/log",
    "/transaction?transaction=0/250",
    "/compare?before=0/200",
    "/find?table=orders&value=b",
    "/find",
    "/sql",
    "/status",
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page of the small lake."""
    with serving(write_lake(tmp_path_factory.mktemp("browser") / "lake")) as found:
        yield found


def _errors(browser: webdriver.Chrome) -> list[Any]:
    """Return the messages of the console since the last call."""
    return list(browser.get_log("browser"))  # type: ignore[no-untyped-call]


def _slider(browser: webdriver.Chrome) -> WebElement:
    return browser.find_element(By.ID, "slider")


def _wait_for(browser: webdriver.Chrome, lsn: str) -> None:
    """Wait until the address has the LSN."""
    wait(browser, lambda b: f"at={lsn.replace('/', '%2F')}" in b.current_url)


def _cells(browser: webdriver.Chrome) -> list[list[str]]:
    """Return the texts of the table of rows."""
    rows = browser.find_elements(By.CSS_SELECTOR, ".rows tbody tr")
    return [[cell.text for cell in row.find_elements(By.TAG_NAME, "td")] for row in rows]


@pytest.mark.parametrize(("width", "height"), _WIDTHS)
@pytest.mark.parametrize("path", _PAGES)
def test_pages_fit_and_have_no_errors(browser: webdriver.Chrome, url: str, path: str, width: int, height: int) -> None:
    """No error in the console (a violated policy is one), no page wider than the window, every control has a name."""
    resize(browser, width, height)
    _errors(browser)
    browser.get(url + path)
    wait(browser, lambda b: b.execute_script("return document.readyState") == "complete")
    assert _errors(browser) == []
    assert browser.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    controls = [
        n for n in tree if n.get("role", {}).get("value") in {"button", "link", "textbox", "combobox", "slider"}
    ]
    assert controls
    assert [n["role"]["value"] for n in controls if not n.get("ignored") and not n.get("name", {}).get("value")] == []


@pytest.mark.parametrize(("width", "height"), _WIDTHS)
@pytest.mark.parametrize("path", _PAGES)
def test_pages_keep_the_rules_of_wcag(browser: webdriver.Chrome, url: str, path: str, width: int, height: int) -> None:
    """By axe-core, levels A and AA, in light and in dark: contrast, names, roles, landmarks, order of headings."""
    resize(browser, width, height)
    for scheme in ("light", "dark"):
        with _scheme(browser, scheme):
            browser.get(url + path)
            browser.execute_script(_axe())
            found = browser.execute_async_script(_RUN_AXE)
            assert [f"{each['id']}: {each['nodes']}" for each in found] == [], scheme
            background = browser.execute_script("return getComputedStyle(document.documentElement).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 200) == (scheme == "dark")


_RUN_AXE = """
const done = arguments[arguments.length - 1];
const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];
axe.run(document, {runOnly: tags}).then(found => done(found.violations.map(
  rule => ({id: rule.id, nodes: rule.nodes.map(node => node.html.slice(0, 150) + " " + node.failureSummary)}))));
"""


def _axe() -> str:
    return (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")


@contextmanager
def _scheme(browser: webdriver.Chrome, scheme: str) -> Iterator[None]:
    """Prefer a scheme of colours."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize("path", _PAGES)
def test_pages_are_walked_by_keyboard(browser: webdriver.Chrome, url: str, path: str) -> None:
    """Tab reaches every control once, in the order of the page, with a visible focus; none of them is a trap."""
    resize(browser, *_WIDTHS[0])
    browser.get(url + path)
    browser.execute_script("document.activeElement.blur(); scrollTo(0, 0)")
    wanted = browser.execute_script(_TABBABLE)
    walked = []
    for _ in range(len(wanted) + 1):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        number, visible, shown = browser.execute_script(_FOCUSED)
        if number is None:
            break
        walked.append(number)
        assert visible, shown
    assert walked == wanted


_TABBABLE = """
const all = document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]");
const reached = [...all].filter(e => e.tabIndex >= 0 && !e.disabled && e.type !== "hidden" && e.checkVisibility());
reached.forEach((e, n) => { e.dataset.walk = n; });
return reached.map((_, n) => n);
"""
_FOCUSED = """
const e = document.activeElement;
if (!e || e === document.body || e.dataset.walk === undefined) return [null, false, e && e.outerHTML.slice(0, 200)];
const style = getComputedStyle(e), box = e.getBoundingClientRect();
const ring = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
return [Number(e.dataset.walk), ring && box.bottom > 0 && box.top < innerHeight, e.outerHTML.slice(0, 200)];
"""


def test_the_slider_moves_by_keyboard(browser: webdriver.Chrome, url: str) -> None:
    """Arrow keys go to the next commit, Home to the first copies, End to the last commit; rows and address follow."""
    resize(browser, *_WIDTHS[0])
    browser.get(f"{url}/rows?table=orders")
    for key, lsn, rows in (
        (Keys.HOME, "0/100", [["1", "a"], ["2", "''"]]),
        (Keys.ARROW_RIGHT, "0/150", [["1", "b"], ["2", "''"]]),
        (Keys.ARROW_RIGHT, "0/200", [["1", "b"], ["3", "NULL"]]),
        (Keys.ARROW_RIGHT, "0/250", [["1", "c"], ["3", "NULL"], ["4", "new"]]),
        (Keys.ARROW_LEFT, "0/200", [["1", "b"], ["3", "NULL"]]),
        (Keys.END, "0/300", [["1", "c"], ["4", "new"]]),
    ):
        _slider(browser).send_keys(key)
        _wait_for(browser, lsn)
        assert [row[1:3] for row in _cells(browser)] == rows
        assert lsn in (_slider(browser).get_attribute("aria-valuetext") or "")
        assert lsn in (browser.find_element(By.ID, "announcement").get_attribute("textContent") or "")
    assert browser.execute_script("return document.activeElement.id") == "slider"


def test_back_returns_from_moves_of_the_slider(browser: webdriver.Chrome, url: str) -> None:
    """Moves that follow each other closely are one step; the rows are those of the moment that Back leads to."""
    resize(browser, *_WIDTHS[0])
    browser.get(f"{url}/rows?table=orders&at=0/300&sort=id")
    browser.execute_script("window.same = true; performance.now = () => 0")  # a busy machine is slower than a person
    for key, lsn in ((Keys.HOME, "0/100"), (Keys.ARROW_RIGHT, "0/150")):
        _slider(browser).send_keys(key)
        _wait_for(browser, lsn)
    browser.back()
    wait(browser, lambda b: "at=0/300" in b.current_url and b.execute_script(_IDS) == ["1", "4"])
    assert browser.find_element(By.ID, "moment-lsn").text == "0/300"
    browser.forward()
    wait(browser, lambda b: "at=0%2F150" in b.current_url and b.execute_script(_IDS) == ["1", "2"])
    assert browser.execute_script("return window.same") is True


_IDS = "return [...document.querySelectorAll('.rows tbody tr')].map(row => row.cells[1].innerText)"


@pytest.mark.parametrize(
    ("asked", "address"),
    [
        ("/rows?table=orders&at=2026-11-21T09:00:07Z", "/rows?table=orders&at=0%2F150"),
        ("/log?at=xid:11", "/log?at=0%2F200"),
        ("/compare?before=2026-11-21T09:00:07Z&after=xid:12", "/compare?before=0%2F150&after=0%2F250"),
    ],
)
def test_the_address_has_the_lsn_of_a_moment(browser: webdriver.Chrome, url: str, asked: str, address: str) -> None:
    """Of a time or an xid that was entered, too: later these may mean another one."""
    browser.get(url + asked)
    wait(browser, lambda b: b.current_url == url + address)


def test_the_slider_moves_by_mouse(browser: webdriver.Chrome, url: str) -> None:
    """A click at the left end is the first commit; the count of the tables follows."""
    resize(browser, *_WIDTHS[0])
    browser.get(f"{url}/?at=0/300")
    slider = _slider(browser)
    ActionChains(browser).move_to_element_with_offset(slider, -slider.size["width"] // 2 + 2, 0).click().perform()
    wait(browser, lambda b: "at=0%2F150" in b.current_url)
    text = browser.find_element(By.CSS_SELECTOR, ".tables").text
    assert "its history begins at 0/180" in text


def test_zoom_shows_a_part_of_the_time(browser: webdriver.Chrome, url: str) -> None:
    """Zooming in shortens the period of the chart, `All` shows the whole again."""
    resize(browser, *_WIDTHS[0])
    browser.get(f"{url}/?at=0/250")
    whole = browser.find_element(By.ID, "ticks").text
    browser.find_element(By.CSS_SELECTOR, "[data-zoom=in]").click()
    wait(browser, lambda b: b.find_element(By.ID, "ticks").text != whole)
    browser.find_element(By.CSS_SELECTOR, "[data-zoom=all]").click()
    wait(browser, lambda b: b.find_element(By.ID, "ticks").text == whole)


def test_zoom_shows_the_time_around_the_moment(browser: webdriver.Chrome, url: str) -> None:
    """Before and after it, although it was near an end of the chart; there is no other way to move the chart."""
    resize(browser, *_WIDTHS[0])
    browser.get(f"{url}/?at=0/200")
    handle = browser.find_element(By.ID, "handle")
    assert _share(handle) < 20
    browser.find_element(By.CSS_SELECTOR, "[data-zoom=in]").click()
    wait(browser, lambda _: _share(handle) > 40)
    browser.find_element(By.CSS_SELECTOR, "[data-zoom=in]").click()
    wait(browser, lambda _: 45 < _share(handle) < 55)


def _share(handle: WebElement) -> float:
    """Return the place of the handle in percent of the chart."""
    return float((handle.get_attribute("style") or "").partition("left: ")[2].partition("%")[0])


def test_the_undo_script_is_shown(browser: webdriver.Chrome, url: str) -> None:
    """The button shows the script as text, and the next one copies it."""
    browser.get(f"{url}/compare?before=0/200&after=0/300&table=orders")
    browser.find_element(By.CSS_SELECTOR, "[data-undo]").click()
    wait(browser, lambda b: "begin isolation level" in b.find_element(By.ID, "script").text)
    assert browser.find_element(By.ID, "copy").is_displayed()


def test_sql_is_completed(browser: webdriver.Chrome, url: str) -> None:
    """Typing shows completions, Tab inserts one; a statement that writes is refused with a message."""
    browser.get(f"{url}/sql")
    area = browser.find_element(By.ID, "statement")
    area.send_keys("delete from cust")
    wait(browser, lambda b: b.find_element(By.ID, "completions").is_displayed())
    area.send_keys(Keys.TAB)
    assert area.get_attribute("value") == "delete from customers"
    area.send_keys(Keys.CONTROL, Keys.ENTER)
    wait(browser, lambda b: "changes a lake" in b.find_element(By.ID, "sql-answer").text)


@pytest.mark.parametrize(("width", "height"), _WIDTHS)
def test_a_statement_is_painted(browser: webdriver.Chrome, url: str, width: int, height: int) -> None:
    """The colours are exactly below the text, also after a completion, and if it is longer than its field."""
    resize(browser, width, height)
    browser.get(f"{url}/sql")
    area = browser.find_element(By.ID, "statement")
    area.send_keys("select note, 'it''s <b>' as \"as\", 1.5e3 -- from here\nfrom orders where note like '%x")
    assert browser.execute_script(_PAINTED) == [
        ["word", "select"],
        ["text", "'it''s <b>'"],
        ["word", "as"],
        ["digits", "1.5e3"],
        ["comment", "-- from here"],
        ["word", "from"],
        ["word", "where"],
        ["word", "like"],
        ["text", "'%x"],
    ]
    area.clear()
    area.send_keys("select count(*) from cust")
    wait(browser, lambda b: b.find_element(By.ID, "completions").is_displayed())
    area.send_keys(Keys.TAB)
    assert browser.find_element(By.ID, "painted").get_attribute("textContent") == "select count(*) from customers\n"
    long = ", ".join(f"'{'x' * (n % 40)}' as a_column_{n}" for n in range(80))
    browser.execute_script("arguments[0].value = arguments[1]", area, f"select {long}")
    area.send_keys(Keys.CONTROL, Keys.END)
    area.send_keys(" ")
    wait(browser, lambda b: b.execute_script(_SAME_PLACE))


_PAINTED = "return [...document.querySelectorAll('#painted span')].map(each => [each.className, each.textContent])"
_SAME_PLACE = """
const area = document.getElementById("statement"), below = document.getElementById("painted");
return area.scrollTop > 0 && area.scrollTop === below.scrollTop && area.clientWidth === below.clientWidth
  && Math.abs(area.scrollHeight - below.scrollHeight) <= 1;
"""


def _statement(browser: webdriver.Chrome, text: str) -> None:
    area = browser.find_element(By.ID, "statement")
    area.clear()
    area.send_keys(text, Keys.CONTROL, Keys.ENTER)


def _answer(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.ID, "sql-answer").text


def test_a_failed_statement_leaves_no_earlier_answer(browser: webdriver.Chrome, url: str) -> None:
    """Refused or cancelled, the place of the answer shows nothing else."""
    browser.get(f"{url}/sql")
    _statement(browser, "select note from orders where id = 1")
    wait(browser, lambda b: "\nc" in _answer(b))
    _statement(browser, "select * from nothing")
    wait(browser, lambda b: "nothing" in _answer(b))
    assert browser.find_elements(By.CSS_SELECTOR, "#sql-answer table") == []
    _statement(browser, "select note from orders where id = 1")
    wait(browser, lambda b: "\nc" in _answer(b))
    joined = " cross join ".join(f"orders o{n}" for n in range(24))
    _statement(browser, f"select sum(o0.id + o23.id) as n from {joined}")
    wait(browser, lambda b: b.find_element(By.ID, "cancel").is_displayed())
    browser.find_element(By.ID, "cancel").click()
    wait(browser, lambda b: b.find_element(By.ID, "sql-state").text == "cancelled")
    assert _answer(browser) == ""
    assert not browser.find_element(By.ID, "cancel").is_displayed()


def test_two_columns_of_an_answer_are_drawn(browser: webdriver.Chrome, url: str) -> None:
    """A bar for each row with a number, the tallest one for the greatest; no chart without two columns or rows."""
    browser.get(f"{url}/sql")
    _statement(browser, "select note, price, id from orders for system_time all where id <= 4 order by price")
    chart = browser.find_element(By.ID, "chart")
    wait(browser, lambda _: chart.is_displayed())
    chart.find_element(By.TAG_NAME, "summary").click()
    Select(browser.find_element(By.ID, "chart-of")).select_by_visible_text("price")
    titles = browser.execute_script(
        "return [...document.querySelectorAll('#chart-drawn title')].map(t => t.textContent)"
    )
    assert titles == ["a: 1.00", "b: 2.00", "c: 3.00", "new: 4.00", "'': 10.50"]
    heights = browser.execute_script(
        "return [...document.querySelectorAll('#chart-drawn path')].map(p => p.getBBox().height)"
    )
    assert heights == sorted(heights)
    assert heights[0] == pytest.approx(heights[-1] * 1.0 / 10.5, rel=0.02)
    assert browser.find_element(By.ID, "chart-note").text == "0 to 10.5; 1 row has no number"
    _statement(browser, "select count(*) as n from orders")
    wait(browser, lambda b: "2" in _answer(b) and not chart.is_displayed())


def test_statements_are_kept_in_the_browser(browser: webdriver.Chrome, url: str) -> None:
    """The answered ones without being asked for, others under a name; a link has the moment of its answer."""
    browser.get(f"{url}/sql")
    browser.execute_script("localStorage.clear()")
    _statement(browser, "select 41 + 1 as n from orders limit 1")
    wait(browser, lambda b: "42" in _answer(b))
    assert "at=0%2F300" in str(browser.find_element(By.ID, "sql-link").get_attribute("href"))
    area = browser.find_element(By.ID, "statement")
    area.clear()
    area.send_keys("select 1")
    browser.find_element(By.ID, "keep-name").send_keys("<b>mine</b>")
    browser.find_element(By.ID, "keep").click()
    browser.get(f"{url}/sql")
    listed = Select(browser.find_element(By.ID, "kept"))
    assert [each.text for each in listed.options] == [
        "choose one",
        "<b>mine</b>",
        "select 41 + 1 as n from orders limit 1",
    ]
    listed.select_by_index(2)
    assert browser.find_element(By.ID, "statement").get_attribute("value") == "select 41 + 1 as n from orders limit 1"
    listed.select_by_index(1)
    browser.find_element(By.ID, "forget").click()
    assert len(Select(browser.find_element(By.ID, "kept")).options) == 2


def test_a_refusal_leads_to_the_nearest_moment(browser: webdriver.Chrome, url: str) -> None:
    """Its button shows the same page there."""
    browser.get(f"{url}/rows?table=orders&at=0/99")
    browser.find_element(By.PARTIAL_LINK_TEXT, "First known after: 0/100").click()
    wait(browser, lambda b: len(_cells(b)) == 2)
    assert "at=0%2F100" in browser.current_url


def test_hostile_values_do_not_run(browser: webdriver.Chrome, url: str) -> None:
    """The script of a value is text, after the page was loaded and after the slider has replaced its main part."""
    browser.get(f"{url}/rows?table=hostile")
    _slider(browser).send_keys(Keys.HOME)
    wait(browser, lambda b: "at=0%2F100" in b.current_url)
    assert "<script>alert(1)</script>" in browser.find_element(By.CSS_SELECTOR, ".rows").text
    assert browser.execute_script("return document.querySelectorAll('main script').length") == 0


def test_newer_commits_are_announced_and_followed(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """A page of the latest state says how many there are, and shows them on request or by itself."""
    lake = write_lake(tmp_path / "lake")
    with serving(lake) as url:
        browser.get(f"{url}/rows?table=orders&sort=id")
        browser.execute_script("window.same = true")
        assert len(_cells(browser)) == 2
        capture_transaction(lake, 0x500)  # which completes the one at 0x400
        newer = browser.find_element(By.ID, "newer")
        wait(browser, lambda _: newer.text == "2 newer commits: show")
        newer.click()
        wait(browser, lambda b: b.find_element(By.ID, "moment-lsn").text == "0/500")
        assert not any(row[0] == "4" for row in _cells(browser))
        browser.find_element(By.ID, "follow").click()
        capture_transaction(lake, 0x600)
        wait(browser, lambda b: b.find_element(By.ID, "moment-lsn").text == "0/600")
        assert browser.execute_script("return window.same") is True
        assert not newer.is_displayed()


def test_live_ends_where_the_browser_ends_it(
    browser: webdriver.Chrome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not reconnect once its request is refused, so the button must not say that it listens."""
    monkeypatch.setattr("auditlake.serve.live._MOST", 0)
    with serving(write_lake(tmp_path / "lake")) as url:
        browser.get(f"{url}/log")
        browser.find_element(By.ID, "live").click()
        wait(browser, lambda b: b.find_element(By.ID, "live").get_attribute("aria-pressed") == "false")
        assert browser.execute_script("return source") is None


def test_live_shows_a_transaction_when_it_is_captured(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """The list of transactions and the moment follow, without a reload."""
    lake = write_lake(tmp_path / "lake")
    with serving(lake) as url:
        browser.get(f"{url}/log")
        browser.execute_script("window.same = true")
        browser.find_element(By.ID, "live").click()
        time.sleep(1)
        capture_transaction(lake, 0x500)
        wait(browser, lambda b: b.find_element(By.ID, "moment-lsn").text == "0/500")
        assert browser.find_element(By.CSS_SELECTOR, ".transactions .lsn").text == "0/500"
        assert browser.execute_script("return window.same")
        assert browser.find_element(By.ID, "live").get_attribute("aria-pressed") == "true"
        browser.get("about:blank")
