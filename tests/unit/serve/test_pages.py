"""Pages: every one shows the moment and keeps it in its links; hostile values are shown, not executed."""

import asyncio
import json
import re
from html import unescape
from pathlib import Path

import pytest
from starlette.responses import StreamingResponse

from auditlake.feed.request import FeedRequest
from auditlake.lake.gaps import Gap, record_gaps
from auditlake.lake.parking import Cause, Parked, park
from auditlake.ledger.seal import Sealer
from auditlake.lsn import Lsn
from auditlake.sandbox.failures import Busy
from auditlake.serve.formatting import SHORT, time_html, value_html
from auditlake.serve.live import event
from auditlake.serve.resources import Limits
from tests import answered_lake
from tests.page import Page, write_lake
from tests.proof_verifier import verify
from tests.small_lake import ORDERS

_PAGES = {
    "/": "Tables",
    "/rows?table=orders": "public.orders",
    "/rows?table=orders&facet=note&where=id:ge:1&sort=-id": "Values of note",
    "/row?table=orders&key=1": "history",
    "/log": "Transactions",
    "/transaction?transaction=0/250": "neighbours",
    "/compare": "Compare two moments",
    "/compare?before=0/200": "Undo",
    "/find": "Find a row",
    "/find?table=orders&value=b": "history",
    "/sql": "Statement",
    "/status": "Watermark",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of the small lake."""
    return Page(write_lake(tmp_path_factory.mktemp("pages") / "lake"))


def test_a_transaction_shows_what_it_consists_of(tmp_path: Path) -> None:
    """Messages, a row under another key, an inserted one, a TRUNCATE; a deleted row has its old values."""
    page = Page(answered_lake.write_lake(tmp_path / "lake"))
    html = page.get("/transaction", transaction="0/410").text
    assert re.findall(r'<li class="(\w+)" value="(\d)">', html) == [
        *(("message", "0"), ("message", "1"), ("update", "2"), ("insert", "3"), ("truncate", "4"))
    ]
    assert "key was <bdi>4</bdi>" in html
    assert "2 unchanged" in html
    assert "1 rows" in html
    assert "hello \\xff" in html
    deleted = page.get("/transaction", transaction="0/200").text
    assert re.search(
        r'<a class="key" href="/row[^"]*key=2&[^>]*><bdi>2</bdi>.*?<dl class="pairs gone">', deleted, re.DOTALL
    )


@pytest.mark.parametrize("path", _PAGES)
def test_every_page_shows_the_moment(page: Page, path: str) -> None:
    """Landmarks, one heading of the first level, the slider with its value, and the page's own part."""
    response = page.ask("GET", path)
    assert response.status_code == 200
    html = response.text
    assert _PAGES[path] in html
    assert len(re.findall("<h1", html)) == 1
    assert '<main id="main"' in html
    assert re.search(r'role="slider" tabindex="0".*?aria-valuetext="[^"]*0/\d+', html, re.DOTALL)
    assert html.count("<table") == html.count("<caption")
    assert not re.search(r"<input(?![^>]*type=\"hidden\")(?![^>]*\bid=)[^>]*>(?!.*</label>)", html)


@pytest.mark.parametrize(
    "given",
    [{"before": "9" * 201}, {"before": "0/200", "at": "9" * 201}, {"before": "0/200", "table": ["orders"] * 51}],
)
def test_a_comparison_of_too_much_is_a_mistake_of_the_client(page: Page, given: dict[str, str | list[str]]) -> None:
    """Not a bug: the limits of the API are those of the page."""
    response = page.get("/compare", **given)
    assert response.status_code == 400
    assert "a bug" not in response.text


def test_links_carry_the_moment(page: Page) -> None:
    """A page of the past leads to pages of the same past; one of now leads to now."""
    html = page.get("/", at="0/200").text
    links = [link for link in re.findall(r'href="(/[^"]*)"', html) if not link.startswith("/static")]
    to_now = [link for link in links if "at=0%2F" not in link]
    assert to_now == ["/?"]
    assert 'data-lsn="0/200"' in html
    assert not any("at=" in link for link in re.findall(r'href="(/rows[^"]*)"', page.get("/").text)[:3])


def test_every_time_has_one_form() -> None:
    """The lake writes Z, the record of capture an offset."""
    expected = '<span class="day">2026-11-23</span> 05:11:12<span class="zone"> UTC</span></time>'
    for text in ("2026-11-23T05:11:12Z", "2026-11-23T05:11:12+00:00"):
        assert time_html(text) == f'<time datetime="{text}">{expected}'


def test_a_fragment_is_the_part_below_the_timeline(page: Page) -> None:
    """The script requests it when the slider moves: the main block, with the moment in a header."""
    response = page.get("/rows", table="orders", at="0/150", _fragment="1")
    assert json.loads(response.headers["x-moment"])["lsn"] == "0/150"
    assert "<html" not in response.text
    assert "10.50" in response.text
    assert page.get("/rows", table="orders", at="0/99", _fragment="1").status_code == 422


def test_a_refused_comparison_offers_its_own_moments(page: Page) -> None:
    """The button replaces the moment that is not known, the first or the second, and leads to an answer."""
    for given, wanted in (
        ({"before": "2026-11-21T08:00:00Z"}, "/compare?before=0%2F100"),
        ({"before": "0/200", "after": "0/999999"}, "/compare?before=0%2F200&after=0%2F300"),
    ):
        response = page.get("/compare", **given)
        assert response.status_code == 422
        (link,) = re.findall(r'<a class="button" href="(/compare[^"]*)">', response.text)
        assert unescape(link) == wanted
        assert page.ask("GET", unescape(link)).status_code == 200
    (link,) = re.findall(r'<li><a href="(/compare[^"]*)">from the beginning', page.get("/compare").text)
    assert page.ask("GET", unescape(link)).status_code == 200


@pytest.mark.parametrize(
    ("path", "kept", "name", "now"),
    [
        ("/rows?table=orders&sort=id&at=0/200", {"table": "orders", "sort": "id"}, "at", "/rows?table=orders&sort=id"),
        ("/compare?before=0/150&after=0/200", {"before": "0/150"}, "after", "/compare?before=0%2F150"),
        ("/transaction?transaction=0/250&at=0/250", {}, "at", "/log?"),
    ],
)
def test_another_moment_can_be_entered(page: Page, path: str, kept: dict[str, str], name: str, now: str) -> None:
    """It is the second one of a comparison; from a transaction it leads to the list of them."""
    html = page.ask("GET", path).text
    form = html.split('<form class="go"')[1].split("</form>")[0]
    assert f'action="{now.partition("?")[0]}"' in form
    assert dict(re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', form)) == kept
    assert f'<input id="at" name="{name}"' in form
    assert f'<a id="to-now" class="button" href="{now}"' in unescape(html)


@pytest.mark.parametrize("names", [["orders"], ["public.orders"], ["orders", "customers", "public.hostile"]])
def test_the_list_of_transactions_shows_its_tables(page: Page, names: list[str]) -> None:
    """Under the names that were asked for, which need not be those of the menu: they stay if a filter is added."""
    assert re.findall("<option selected>(.*?)</option>", page.get("/log", table=names).text) == names


def test_an_error_is_a_page(page: Page) -> None:
    """With its message and hint, and the timeline to choose another moment."""
    response = page.get("/rows", table="orders", at="0/99")
    assert response.status_code == 422
    assert 'role="alert"' in response.text
    assert "its history begins at 0/100" in response.text
    assert 'role="slider"' in response.text
    assert page.get("/nothing").status_code == 404


def test_a_refusal_offers_the_nearest_moments(tmp_path: Path) -> None:
    """Before and after a gap, of the table parked above it, and none that would be refused, too."""
    lake = write_lake(tmp_path / "lake")
    record_gaps(lake, [Gap(ORDERS, Lsn(0x150), Lsn(0x250), "a reason")])
    park(lake, Parked(ORDERS, Cause.SHAPE, Lsn(0x280), Lsn(0x300), "a reason", "a remedy", 0))
    page = Page(lake)

    def offered(at: str) -> list[str]:
        response = page.get("/rows", table="orders", sort="id", at=at)
        assert response.status_code == 422
        assert f"Asked as of <strong><bdi>{at}</bdi></strong>" in response.text
        return re.findall(r'<a class="button" href="/rows\?table=orders&amp;sort=id&amp;at=([^"]*)">', response.text)

    assert offered("0/99") == ["0%2F100"]
    assert offered("0/200") == ["0%2F150", "0%2F250"]
    assert offered("2026-11-21T08:00:00Z") == ["0%2F100"]
    assert offered("0/300") == ["0%2F280"]
    assert offered("0/999999") == ["0%2F280"]
    for lsn in ("0/100", "0/150", "0/250", "0/280"):
        assert page.get("/rows", table="orders", at=lsn).status_code == 200


def test_a_lake_that_does_not_know_a_moment_offers_its_last(page: Page) -> None:
    """Without a table; text that is not a moment is refused without an offer, and shown escaped."""
    response = page.get("/log", at="0/999999")
    assert (response.status_code, "Last known before: 0/300" in response.text) == (422, True)
    response = page.get("/log", at="<b>x</b>")
    assert (response.status_code, "known before" in response.text, "<b>x</b>" in response.text) == (400, False, False)


def test_the_page_of_sql_offers_both_dialects(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one of the settings first, unless the link names another."""
    chosen = '<option value="{}" selected>'
    assert chosen.format("postgres") in page.get("/sql").text
    assert chosen.format("spark") in page.get("/sql", dialect="spark").text
    monkeypatch.setattr(page.resources, "dialect", "spark")
    assert chosen.format("spark") in page.get("/sql").text
    assert chosen.format("postgres") in page.get("/sql", dialect="postgres").text


def test_the_page_of_sql_lists_tables_and_columns_of_the_moment(page: Page) -> None:
    """A table that is not known yet is not among them."""
    now, then = page.get("/sql").text, page.get("/sql", at="0/150").text
    assert "<code><bdi>public.customers</bdi></code>" in now
    assert "id, note, price, at" in then
    assert "public.customers" not in then


@pytest.mark.parametrize(
    "path", ["/row?table=hostile&key=5", "/transaction?transaction=0/250", "/compare?before=0/200"]
)
def test_evidence_is_one_file(page: Page, path: str) -> None:
    """It says what was asked as of which commit of which server, loads nothing, leads nowhere, and folds no value."""
    (href,) = re.findall(r'<a class="button evidence" href="([^"]*)"', page.ask("GET", path).text)
    response = page.ask("GET", href.replace("&amp;", "&"))
    assert response.status_code == 200
    assert re.fullmatch(r'attachment; filename="[a-z]+-0-\w+-\w+\.html"', response.headers["content-disposition"])
    html = response.text
    assert path.partition("?")[0] in html
    assert "shop of the server 7, timeline 1" in html
    assert "none: nothing shows whether this lake was changed" in html
    assert not re.search(r"<script|<link|<img|src=|url\(", html)
    assert set(re.findall(r'href="([^"]*)"', html.partition("<main>")[2])) <= {"#", *re.findall(r"#diff-\d+", html)}
    assert '<details class="long">' not in html


def test_evidence_names_the_ledger(tmp_path: Path) -> None:
    """Its tree, up to where it is sealed, and a proof that a verifier accepts; a refused question has no evidence."""
    lake = write_lake(tmp_path / "lake")
    Sealer(lake).seal("tests")
    page = Page(lake)
    html = page.get("/row", table="orders", key="1", _evidence="1").text
    assert re.search(r"sealed up to 0/300; auditlake/7/shop/\w+, size \d+, root [\w+/]{43}=", html)
    for given in ({"table": "orders", "key": "1", "at": "0/250"}, {"transaction": "0/250"}):
        path = "/row" if "key" in given else "/transaction"
        html = page.get(path, _evidence="1", **given).text
        proof = json.loads(unescape(re.findall(r'<pre id="proof">(.*?)</pre>', html, re.DOTALL)[0]))
        rows = verify(proof, None)
        assert len(rows) == len(proof["entries"]) > 1
        assert re.search(r"root ([\w+/]{43}=)", html)[1] in proof["checkpoint"]  # type: ignore[index]
    assert "none: of rows and transactions alone" in page.get("/compare", before="0/200", _evidence="1").text
    refused = page.get("/row", table="orders", key="1", at="0/99", _evidence="1")
    assert (refused.status_code, "content-disposition" in refused.headers) == (422, False)


def test_hostile_values_are_shown_and_not_executed(page: Page) -> None:
    """Scripts are text, control characters and changes of direction are escapes, NULL differs from the empty text."""
    html = page.get("/rows", table="hostile").text
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "\x07" not in html
    assert "\u202e" not in html
    assert '<span class="ctl">\\u202e</span>' in html
    assert '<span class="null">NULL</span>' in html
    assert '<span class="empty" title="empty text">' in html
    assert "500 characters" in html
    for exact in ("NaN", "-Infinity", "0044-03-15 BC", "infinity", "-2.00"):
        assert f"<bdi>{exact}</bdi>" in html


def test_hostile_parameters_are_escaped(page: Page) -> None:
    """Those of the URL come back in forms, links and errors."""
    attack = '"><script>alert(1)</script>'
    for path, parameters in (
        ("/rows", {"table": attack}),
        ("/rows", {"table": "orders", "where": f"note:is:{attack}", "sort": "id"}),
        ("/find", {"table": "orders", "value": attack}),
        ("/log", {"actor": attack}),
        ("/compare", {"before": attack}),
        ("/sql", {"sql": attack}),
        ("/", {"at": attack}),
    ):
        assert "<script>alert" not in page.get(path, **parameters).text, path


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a b", "<bdi>a b</bdi>"),
        ("a\nb", '<bdi>a<span class="ctl">\\n</span><wbr>b</bdi>'),
        ("\x00xff", '<bdi><span class="ctl">\\xff</span></bdi>'),
        ("NULL", "<bdi>NULL</bdi>"),
        ("\u200f", '<bdi><span class="ctl">\\u200f</span></bdi>'),
    ],
)
def test_values_are_exact(text: str, html: str) -> None:
    """Every character is visible or an escape."""
    assert value_html(text) == html


def test_long_values_are_folded() -> None:
    """Up to the limit they are whole; beyond, the whole value is in the part that opens."""
    assert "details" not in value_html("y" * SHORT)
    assert "<bdi>" + "y" * (SHORT + 1) + "</bdi></details>" in value_html("y" * (SHORT + 1))


def test_a_form_adds_a_filter(page: Page) -> None:
    """Without the script too: the form leads to the URL with the filter, from the first page of rows on."""
    response = page.get("/rows", table="orders", offset="50", fc="note", fo="is", fv="b")
    assert response.headers["location"] == "/rows?table=orders&where=note%3Ais%3Ab"


def test_a_change_is_an_event(page: Page) -> None:
    """An event has the transaction, its changes, and the cursor to go on after."""
    with FeedRequest(since="0/300", follow=False).open(page.resources.lake) as feed:
        (text,) = map(event, feed)
    lines = dict(line.split(": ", 1) for line in text.strip().splitlines())
    data = json.loads(lines["data"])
    assert (lines["event"], data["lsn"], data["changes"][0]["op"]) == ("transaction", "0/300", "delete")
    assert lines["id"].endswith("0/300")


@pytest.mark.parametrize("path", ["changes", "export"])
def test_a_head_alone_takes_no_place(page: Page, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its response ends at once; no event is read, and no row."""
    monkeypatch.setattr(StreamingResponse, "__call__", None)
    for _ in range(10):
        response = page.ask("HEAD", f"/api/v1/{path}", params={"table": "orders"})
        assert (response.status_code, response.content) == (200, b"")


def test_a_slow_answer_is_refused(tmp_path: Path) -> None:
    """A request that takes too long, or finds too many waiting, is answered that the server is busy."""
    page = Page(write_lake(tmp_path / "lake"), limits=Limits(timeout_s=0.2))

    def slow() -> None:
        with page.resources.cursor() as cursor:
            cursor.execute("select count(*) from range(100000000) a, range(100000) b").fetchall()

    async def ask() -> None:
        with pytest.raises(Busy, match="longer than"):
            await page.resources.run(slow)

    asyncio.run(ask())
    full = Page(write_lake(tmp_path / "full"), limits=Limits(waiting=0))
    assert full.get("/api/v1/lake").status_code == 503
