"""Grants: what a user may not see is reached by no route, under no name, and in no list, count, file or statement."""

import asyncio
import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.transactions import TransactionFilters, find
from auditlake.delta.log_writer import moved, put_commit
from auditlake.errors import ConfigError, LakeUnusable
from auditlake.feed.feed import Feed, Start
from auditlake.feed.selection import FeedSelection
from auditlake.lake.gaps import Gap, record_gaps
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import HISTORY_APP, Lake
from auditlake.lake.parking import Cause, Parked, park
from auditlake.lake.records import record_publication
from auditlake.lake.relations import RelationsLog
from auditlake.ledger.seal import Sealer
from auditlake.lsn import Lsn
from auditlake.relation import Relation, ReplicaIdentity, TableName
from auditlake.serve.access import Access, networks, require_safe
from auditlake.serve.access_log import AccessLog
from auditlake.serve.grants import PageUser, parse_users
from auditlake.source.publication_membership import Member, Membership
from auditlake.temporal.grants import Grant
from auditlake.temporal.moments import read_known
from tests.page import HOST, Page, write_lake
from tests.small_lake import CUSTOMER_COLUMNS, CUSTOMERS, ORDER_COLUMNS, ORDERS, T0, T0_US, write_log

_TOKENS = {name: f"{name}-has-a-token-of-its-own" for name in ("ann", "bob", "carl", "dora")}
_PATTERNS = {"ann": ["*"], "bob": ["public.orders"], "carl": ["public.cust*"], "dora": ["*", "!public.orders"]}
_USERS = {name: PageUser(_TOKENS[name], Grant(tuple(patterns))) for name, patterns in _PATTERNS.items()}
_SECRET = "Anne"
"""A value of customers: its row 1 after 0/250, a transaction that changed orders, too."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The small lake."""
    return write_lake(tmp_path_factory.mktemp("grants") / "lake")


@pytest.fixture(scope="module")
def page(lake: Lake) -> Page:
    """Its page for the four users, each with a token."""
    return Page(lake, Access(frozenset({HOST}), users=_USERS))


def _ask(page: Page, user: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
    headers = {"authorization": f"Bearer {_TOKENS[user]}"}
    if body is None:
        return page.ask("GET", path, headers=headers)
    return page.ask("POST", path, headers=headers, json=body)


_OF_CUSTOMERS = (
    "rows?table=customers",
    "rows?table=public.customers&at=0/300",
    "facets?table=customers&column=name",
    "row?table=customers&key=1",
    "find?table=customers&value=1",
    "export?table=customers",
    "log?table=customers",
    "compare?before=0/200&table=customers",
    "undo?before=0/200&table=customers",
    "transaction?transaction=0/250&table=customers&key=1",
)


@pytest.mark.parametrize("asked", _OF_CUSTOMERS)
def test_a_table_that_is_not_seen_does_not_exist(page: Page, asked: str) -> None:
    """On no route: the answer is the one about a table that there is not; who sees it gets one."""
    refused = _ask(page, "bob", f"/api/v1/{asked}")
    nothing = _ask(page, "bob", f"/api/v1/{asked}".replace("customers", "nothing"))
    assert refused.status_code == nothing.status_code == 400
    assert refused.json()["error"] == nothing.json()["error"].replace("nothing", "customers")
    assert "customers" not in (refused.json()["hint"] or "")
    assert _ask(page, "ann", f"/api/v1/{asked}").status_code == 200
    name = asked.split("?", maxsplit=1)[0]
    if name in {"rows", "row", "log", "compare", "find", "transaction"}:
        for more in ("", "&_fragment=1", "&_evidence=1"):
            shown = _ask(page, "bob", f"/{asked}{more}")
            assert shown.status_code == 400
            assert _SECRET not in shown.text


@pytest.mark.parametrize(
    "path",
    ["/", "/log", "/transaction?transaction=0/250", "/compare?before=0/100", "/find", "/sql", "/rows?table=orders"],
)
def test_no_page_names_a_table_that_is_not_seen(page: Page, path: str) -> None:
    """Lists, menus, schemas, transactions, comparisons and evidence have the others only."""
    for more in ("", "&_evidence=1") if "?" in path else ("",):
        html = _ask(page, "bob", path + more).text
        assert "public.orders" in html
        assert "customers" not in html
        assert "hostile" not in html
        assert _SECRET not in html


def test_a_transaction_has_the_changes_that_are_seen(page: Page) -> None:
    """Of 0/250, which changed orders and customers, one user each; no counts, which are of both."""
    for user, tables, count in (("ann", ["public.customers", "public.orders"], 3), ("bob", ["public.orders"], 2)):
        answer = _ask(page, user, "/api/v1/transaction?transaction=0/250").json()
        assert sorted(answer["transaction"]["tables"]) == tables
        assert {change["table"] for change in answer["changes"] if change["kind"] != "message"} == set(tables)
        assert len([change for change in answer["changes"] if change["kind"] != "message"]) == count
        assert (answer["transaction"]["updates"] is None) == (user == "bob")
        assert all("customers" not in each["by"] for each in answer["neighbours"] if user == "bob")


@pytest.mark.parametrize(("user", "ordinals"), [("ann", [0, 1, 2]), ("bob", [0, 1]), ("carl", [0])])
def test_places_of_changes_do_not_count_those_that_are_not_seen(page: Page, user: str, ordinals: list[int]) -> None:
    """Of 0/250, whose last change is that of customers."""
    answer = _ask(page, user, "/api/v1/transaction?transaction=0/250").json()
    assert [each["ordinal"] for each in answer["changes"]] == ordinals


@pytest.mark.parametrize("path", ["rows?table=customers", "row?table=customers&key=1", "log?limit=1", "lake?at=now"])
def test_a_moment_is_that_of_a_transaction_that_is_seen(page: Page, path: str) -> None:
    """Times and xids would else show when others were made."""
    late, xid = (f"/api/v1/{path.removesuffix('at=now')}&at={at}" for at in ("2026-11-21T09:00:40Z", "xid:11"))
    for user, lsn in (("ann", "0/300"), ("carl", "0/250")):
        assert _ask(page, user, late).json()["at"]["lsn"] == lsn
    assert _ask(page, "ann", xid).json()["at"]["lsn"] == "0/200"
    unknown = _ask(page, "carl", xid.replace("11", "4711"))
    assert unknown.status_code == 422
    assert _ask(page, "carl", xid).json()["error"] == unknown.json()["error"].replace("4711", "11")


def test_the_moment_of_a_statement_is_that_of_a_transaction_that_is_seen(page: Page) -> None:
    """As on every other route."""
    body = {"sql": "select id from customers"}
    for user, lsn in (("ann", "0/300"), ("carl", "0/250")):
        assert _ask(page, user, "/api/v1/sql", body | {"at": "2026-11-21T09:00:40Z"}).json()["at"]["lsn"] == lsn
    hidden, unknown = (_ask(page, "carl", "/api/v1/sql", body | {"at": f"xid:{number}"}) for number in (11, 4711))
    assert hidden.status_code == unknown.status_code == 422
    assert hidden.json()["error"] == unknown.json()["error"].replace("4711", "11")


def test_transactions_of_other_tables_are_not_known(page: Page) -> None:
    """Not in the log, the timeline, the steps, nor by their LSN or xid."""
    assert [each["lsn"] for each in _ask(page, "carl", "/api/v1/log").json()["transactions"]] == ["0/250"]
    assert [each["lsn"] for each in _ask(page, "ann", "/api/v1/log").json()["transactions"]][:2] == ["0/300", "0/250"]
    assert _ask(page, "carl", "/api/v1/timeline").json()["commits"] == 1
    assert _ask(page, "carl", "/api/v1/step?number=1").json()["lsn"] == "0/250"
    assert _ask(page, "carl", "/api/v1/tables").json()["at"]["commits"] == 1
    for name in ("0/200", "0/300", "xid:11"):
        refused = _ask(page, "carl", f"/api/v1/transaction?transaction={name}")
        assert refused.status_code == 422
        assert "no transaction" in refused.json()["error"]
    for op, user, lsns in (
        ("insert", "carl", []),
        ("update", "carl", ["0/250"]),
        ("insert", "ann", ["0/250", "0/200"]),
    ):
        found = _ask(page, user, f"/api/v1/log?op={op}").json()["transactions"]
        assert [each["lsn"] for each in found] == lsns
    compared = _ask(page, "carl", "/api/v1/compare?before=0/200").json()
    assert [table["table"] for table in compared["tables"]] == ["public.customers"]


@pytest.mark.parametrize("dialect", ["spark", "postgres"])
@pytest.mark.parametrize(
    "sql",
    [
        "select * from customers",
        "select o.id from orders o join public.customers c on c.id = o.id",
        "select id from orders where exists (select 1 from customers)",
        "with c as (select * from customers) select * from c",
        "select * from customers for system_time all",
    ],
)
def test_no_statement_reads_a_table_that_is_not_seen(page: Page, dialect: str, sql: str) -> None:
    """In either dialect; nor is its name among those that are meant perhaps."""
    body = {"sql": sql, "dialect": dialect}
    for path in ("/api/v1/sql", "/sql/answer"):
        refused = _ask(page, "bob", path, body)
        assert refused.status_code == 400
        assert "there is no table" in refused.json()["error"]
        assert "ustomers" not in (refused.json()["hint"] or "")
    typo = _ask(page, "bob", "/api/v1/sql", {"sql": "select * from custmers", "dialect": dialect})
    assert "customers" not in typo.text
    seen = _ask(page, "bob", "/api/v1/sql", {"sql": "select id from orders", "dialect": dialect})
    assert (seen.status_code, seen.json()["tables"]) == (200, ["public.orders"])


@pytest.mark.parametrize(
    ("dialect", "table"),
    [
        *(("spark", table) for table in ("changes", "transactions", "relations", "gaps")),
        *(("postgres", table) for table in ("changes", "transactions", "gaps")),
    ],
)
def test_the_lake_s_own_tables_are_for_those_who_see_all(page: Page, dialect: str, table: str) -> None:
    """They have the rows and names of every table."""
    body = {"sql": f"select count(*) as n from auditlake.{table}", "dialect": dialect}
    assert _ask(page, "dora", "/api/v1/sql", body).status_code == 403
    if table != "relations":  # which needs Spark
        assert _ask(page, "ann", "/api/v1/sql", body).status_code == 200


def test_answers_that_are_kept_are_not_those_of_others(page: Page) -> None:
    """The same question of one who sees more was answered before."""
    assert "customers" in _ask(page, "ann", "/api/v1/complete", {"sql": "select * from cust"}).text
    assert _ask(page, "bob", "/api/v1/complete", {"sql": "select * from cust"}).json()["completions"] == []
    assert _ask(page, "ann", "/api/v1/rows?table=customers").status_code == 200
    assert _ask(page, "bob", "/api/v1/rows?table=customers").status_code == 400
    assert _ask(page, "ann", "/api/v1/sql", {"sql": "select * from customers"}).status_code == 200
    assert _ask(page, "bob", "/api/v1/sql", {"sql": "select * from customers"}).status_code == 400


def test_the_status_has_the_tables_that_are_seen(tmp_path: Path) -> None:
    """Their positions and sizes, and whether capture runs; nothing of the slot, of charts, and of tables parked."""
    lake = write_lake(tmp_path / "lake")
    park(lake, Parked(CUSTOMERS, Cause.SHAPE, Lsn(0x250), Lsn(0x300), "a reason", "a remedy", 0))
    page = Page(lake, Access(frozenset({HOST}), users=_USERS))
    whole, bob, carl = (_ask(page, user, "/api/v1/status").json() for user in ("ann", "bob", "carl"))
    assert "public.customers is parked" in str(whole["status"]["tables"]) + carl["verdict"]
    assert (bob["code"], bob["charts"], bob["status"]["lag_bytes"]) == (0, [], None)
    assert [each["table"] for each in bob["sizes"]] == [each["table"] for each in bob["status"]["tables"]]
    assert [each["table"] for each in bob["sizes"]] == ["public.orders"]
    assert bob["verdict"].startswith("behind: 1 table,")
    assert (carl["code"], carl["remedy"]) == (3, "Ask who runs this server.")
    html = _ask(page, "bob", "/status").text
    for text in (html, json.dumps(bob)):
        assert "public.orders" in text
        assert "customers" not in text
        assert "hostile" not in text
    assert "Slot " not in html
    assert "Slot " in _ask(page, "ann", "/status").text


def _streamed(page: Page, user: str, query: str, until: str) -> list[dict[str, Any]]:
    """Return the data of a stream's events, up to the first that has a text, or its end."""
    sent, done = bytearray(), asyncio.Event()
    headers = {"host": HOST, "authorization": f"Bearer {_TOKENS[user]}"}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/api/v1/changes",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8640),
    }

    async def receive() -> dict[str, str]:
        await done.wait()
        return {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        sent.extend(message.get("body", b""))
        if until in sent.decode():
            done.set()

    asyncio.run(asyncio.wait_for(page.app(scope, receive, send), 30))
    return [json.loads(line.removeprefix("data: ")) for line in sent.decode().splitlines() if line[:6] == "data: "]


@pytest.mark.parametrize(
    ("user", "query", "lsns"),
    [
        ("ann", "since=beginning", ["0/150", "0/200", "0/250", "0/300"]),
        ("bob", "since=beginning", ["0/150", "0/200", "0/250", "0/300"]),
        ("bob", "since=beginning&op=insert", ["0/200", "0/250"]),
        ("carl", "since=beginning", ["0/250"]),
        ("dora", "since=beginning&table=customers", ["0/250"]),
    ],
)
def test_live_changes_are_those_that_are_seen(page: Page, user: str, query: str, lsns: list[str]) -> None:
    """Transactions that changed a table that is seen, with its changes alone, and no counts of others."""
    events = _streamed(page, user, query, f'"lsn": "{lsns[-1]}"')
    assert [each["lsn"] for each in events] == lsns
    shared = next(each for each in events if each["lsn"] == "0/250")
    assert {change["table"] for change in shared["changes"]} == set(shared["tables"])
    assert (shared["updates"] is None) == (user != "ann")
    assert (_SECRET in json.dumps(events)) == (user != "bob")
    if user == "bob":
        assert "customers" not in json.dumps(events)
    if user in {"carl", "dora"}:
        assert "public.orders" not in json.dumps(events)


def test_a_stream_says_nothing_of_tables_that_are_not_seen(tmp_path: Path) -> None:
    """Not that there are any, nor their transactions; what is unknown of them neither ends it nor is named."""
    lake = write_lake(tmp_path / "lake")
    page = Page(lake, Access(frozenset({HOST}), users=_USERS))
    refused, nothing = (_ask(page, "carl", f"/api/v1/changes?table={each}") for each in ("orders", "nothing"))
    assert refused.status_code == nothing.status_code == 400
    assert refused.json()["error"] == nothing.json()["error"].replace("nothing", "orders")
    refused, nothing = (_ask(page, "carl", f"/api/v1/changes?since={each}") for each in ("xid:11", "xid:99"))
    assert refused.status_code == nothing.status_code == 422
    assert refused.json()["error"] == nothing.json()["error"].replace("99", "11")
    record_gaps(lake, [Gap(CUSTOMERS, Lsn(0x160), Lsn(0x1F0), "a reason")])
    assert _streamed(page, "bob", "since=beginning", '"lsn": "0/300"')[-1]["lsn"] == "0/300"
    assert "public.customers" in _streamed(page, "carl", "since=beginning", "problem")[-1]["error"]


def test_a_feed_delivers_no_table_that_is_not_seen(lake: Lake) -> None:
    """Although it was selected: it may have got a name that is seen since the subscriber's tables were read."""
    selection = FeedSelection(frozenset({ORDERS, CUSTOMERS}), only=frozenset({str(ORDERS)}))
    with Feed(lake, Start(Lsn(0x100), follow=False), selection) as feed:
        assert {change.table for each in feed for change in each.changes} == {ORDERS}


def test_a_table_without_a_history_is_not_in_a_stream(tmp_path: Path) -> None:
    """Its former names are not known, so it may have had one that is not seen."""
    lake, late = write_lake(tmp_path / "lake"), TableName("public", "late")
    relations = RelationsLog(lake)
    number = relations.register(Relation(9, late, ReplicaIdentity.DEFAULT, CUSTOMER_COLUMNS), Lsn(0x500))
    relations.flush()
    common = {"lsn": 0x500, "xid": 21, "time": T0}
    of_late = {
        "ordinal": 0,
        "op": "insert",
        "schema": "public",
        "table": "late",
        "relation": number,
        "new": ["1", "new"],
    }
    of_orders = {"ordinal": 1, "op": "delete", "schema": "public", "table": "orders", "relation": 1}
    transaction = {"end_lsn": 0x520, "time_mono": T0, "inserts": 1, "deletes": 1, "tables": [str(late), str(ORDERS)]}
    changes = [common | of_late, common | of_orders | {"old": ["4", None, None, None]}]
    write_log(lake, [common | transaction], changes, acknowledged_lsn=0x520, current_us=T0_US + 200_000_000)
    for only, tables in ((None, [late, ORDERS]), (frozenset({str(late), str(ORDERS)}), [ORDERS])):
        with Feed(lake, Start(Lsn(0x400), follow=False), FeedSelection(frozenset({late, ORDERS}), only=only)) as feed:
            assert [change.table for each in feed for change in each.changes] == tables


def test_a_stream_ends_when_other_tables_are_seen(lake: Lake) -> None:
    """Before the next event: here orders had a name by then that bob may not see."""
    page = Page(lake, Access(frozenset({HOST}), users=_USERS))
    known = read_known(lake)
    _renamed(page, lake, replace(known.tables[ORDERS], names=((Lsn(0x260), TableName("hr", "orders")),)))
    assert _streamed(page, "bob", "since=beginning", "transaction") == []


def test_the_refusal_of_a_lake_names_no_table_that_is_not_seen(tmp_path: Path) -> None:
    """The history that is ahead of `changes` is of a table that bob may not see."""
    lake = write_lake(tmp_path / "lake")
    history = lake.history(CUSTOMERS)
    last = max(int(entry.stem) for entry in (history / "_delta_log").glob("*.json"))
    put_commit(history, last + 1, "MERGE", moved({HISTORY_APP: 0x400}))
    page = Page(lake, Access(frozenset({HOST}), users=_USERS))
    for path in ("/api/v1/status", "/api/v1/rows?table=orders"):
        refused = _ask(page, "bob", path)
        assert (refused.status_code, "the lake cannot be read" in refused.text) == (503, True), refused.text
        assert "customers" not in refused.text
        assert "older than the rest of the lake" in _ask(page, "ann", path).text


def test_the_refusal_of_a_damaged_history_names_it_to_those_who_see_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And to whom reads the server's messages."""
    lake = write_lake(tmp_path / "lake")
    max((lake.history(CUSTOMERS) / "_delta_log").glob("*.json")).write_text("")
    page = Page(lake, Access(frozenset({HOST}), users=_USERS))
    for path in ("/api/v1/status", "/api/v1/rows?table=orders", "/log", "/compare?before=0/150", "/api/v1/changes"):
        refused = _ask(page, "bob", path)
        assert (refused.status_code, "the lake cannot be read" in refused.text) == (503, True), refused.text
        assert "customers" not in refused.text
        assert "customers" in _ask(page, "ann", path).text
    statement = _ask(page, "bob", "/api/v1/sql", {"sql": "select id from orders"})
    assert "customers" not in statement.text
    assert "history/public/customers" in capfd.readouterr().err


def test_a_failure_of_the_store_names_no_table_that_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither while the lake is read, nor while its status is."""
    lake = write_lake(tmp_path / "lake")

    def fail(*_: object) -> None:
        raise OSError(5, "The store failed", "s3://bucket/lake/history/public/customers/_delta_log/1.json")

    for failing, path in (
        ("lake_answers.read_status", "/api/v1/status"),
        ("resources.Reader", "/api/v1/rows?table=orders"),
    ):
        monkeypatch.setattr(f"auditlake.serve.{failing}", fail)
        page = Page(lake, Access(frozenset({HOST}), users=_USERS))
        refused = _ask(page, "bob", path)
        assert (refused.status_code, "the lake cannot be read" in refused.text) == (503, True), refused.text
        assert "customers" not in refused.text
        assert "customers" in _ask(page, "ann", path).text


def test_the_failure_of_a_stream_names_no_table_that_is_not_seen(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Those that are seen are the same: the state of the lake is read again only seconds later."""

    def fail(*_: object) -> None:
        raise LakeUnusable("the Delta log of history/public/customers cannot be read", "Restore the folder.")

    monkeypatch.setattr(Feed, "take", fail)
    page = Page(lake, Access(frozenset({HOST}), users=_USERS))
    found = _streamed(page, "bob", "since=beginning", "event: problem")
    assert [each["error"] for each in found] == ["the lake cannot be read"]
    assert "customers" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("user", "until", "time"), [("ann", 0x300, "09:00:30"), ("carl", 0x300, "09:00:10"), ("carl", 0x200, "09:00:08")]
)
def test_a_schema_change_has_the_time_of_a_commit_that_is_seen(
    tmp_path: Path, user: str, until: int, time: str
) -> None:
    """If its own was not recorded; before any, that of the snapshot."""
    lake = write_lake(tmp_path / "lake")
    gone = Parked(CUSTOMERS, Cause.PUBLICATION, Lsn(0x180), Lsn(until), "a reason", "a remedy", ended=True)
    park(lake, gone)
    known = read_known(lake)
    seen = known.limited_to(Grant(tuple(_PATTERNS[user])).seen(known), lambda _: False) if user != "ann" else known
    found = find(Reader(lake, datetime.now(UTC), seen), Span(Lsn(0), Lsn(0x400)), TransactionFilters(), None)
    assert [f"{each.time:%H:%M:%S}" for each in found if each.schema_changes] == [time]


def test_evidence_has_no_proof_of_what_is_not_seen(tmp_path: Path) -> None:
    """It would name the tables and the number of changes of a transaction."""
    lake = write_lake(tmp_path / "lake")
    Sealer(lake).seal("tests")
    page = Page(lake, Access(frozenset({HOST}), users=_USERS))
    for path in ("/row?table=orders&key=1&_evidence=1", "/transaction?transaction=0/250&_evidence=1"):
        assert 'id="proof"' in _ask(page, "ann", path).text
        html = _ask(page, "bob", path).text
        assert 'id="proof"' not in html
        assert "left out" in html
        assert "customers" not in html


def _renamed(page: Page, lake: Lake, *tables: HistoryTable) -> None:
    """Show the page a lake in which these tables are as given."""
    known = read_known(lake, by_commits=True)
    changed = {table.name: table for table in tables}
    latest = page.resources._latest  # noqa: SLF001 - as if it had just been read
    latest.reader = Reader(lake, datetime.now(UTC), replace(known, tables={**known.tables, **changed}))
    latest.read_at = float("inf")


def test_a_table_is_not_seen_from_its_new_name_on(tmp_path: Path) -> None:
    """By a statement and the status, although the state that other answers share was read before."""
    lake = write_lake(tmp_path / "lake")
    record_publication(lake, Membership(1, frozenset(), {ORDERS: Member(1, None)}))
    page = Page(lake, Access(frozenset({HOST}), users=_USERS))
    statement = {"sql": "select id from orders"}
    assert _ask(page, "bob", "/api/v1/sql", statement).status_code == 200
    page.resources._latest.read_at = float("inf")  # noqa: SLF001 - it is not read again
    relations = RelationsLog(lake)
    relations.register(Relation(1, TableName("hr", "orders"), ReplicaIdentity.DEFAULT, ORDER_COLUMNS), Lsn(0x380))
    relations.flush()
    assert "hr.orders" in _ask(page, "ann", "/api/v1/status").text
    assert "hr.orders" not in _ask(page, "bob", "/api/v1/status").text
    assert _ask(page, "bob", "/api/v1/sql", statement).status_code == 400


def test_a_former_name_does_not_help(lake: Lake) -> None:
    """A table is seen if every name that it had is; and no table that shares a name with one that is not."""
    page = Page(lake, Access(frozenset({HOST}), users=_USERS))
    known = read_known(lake)
    customers = replace(known.tables[CUSTOMERS], names=((Lsn(0x260), TableName("hr", "people")),))
    _renamed(page, lake, customers)
    for name in ("customers", "hr.people", "people"):
        for at in ("", "&at=0/200", "&at=0/300"):
            assert _ask(page, "carl", f"/api/v1/rows?table={name}{at}").status_code in {400, 403}
    again = replace(known.tables[ORDERS], names=((Lsn(0), CUSTOMERS),))
    seen = Grant(("public.*",)).seen(replace(known, tables={ORDERS: again, CUSTOMERS: customers}))
    assert seen == frozenset()
    assert Grant(("public.*", "hr.*")).seen(replace(known, tables={CUSTOMERS: customers})) == {CUSTOMERS}


def test_patterns_take_names() -> None:
    """Schema and name apart, case counts, an exception wins wherever it stands; nothing is taken by default."""
    taken = {
        ("*",): {"a.b", "A.b", "a.c.d"},
        ("a.*",): {"a.b", "a.c.d"},
        ("*.b",): {"a.b", "A.b"},
        ("!a.b", "*"): {"A.b", "a.c.d"},
        ("a.?",): {"a.b"},
        (): set(),
        ("!a.b",): set(),
    }
    names = [TableName("a", "b"), TableName("A", "b"), TableName("a", "c.d")]
    for patterns, expected in taken.items():
        assert {f"{name.schema}.{name.table}" for name in names if Grant(patterns).takes(name)} == expected


@pytest.mark.parametrize(
    ("pattern", "schema", "table"),
    [
        ("hr.pay[2024]", "hr", "pay[2024]"),
        ("a.b.pay", "a.b", "pay"),
        ("a.b.pay", "a", "b.pay"),
        ('a."b.pay"', "a", "b.pay"),
        ('hr."Order Items"', "hr", "Order Items"),
        ('"HR"."Order Items"', "HR", "Order Items"),
        ('"hr"."salaries"', "hr", "salaries"),
        ('hr."?rder*', "hr", "Order Items"),
        ('"a.b".pay', "a.b", "pay"),
        ('"a.b"."x""y.z"', "a.b", 'x"y.z'),
        ('"a.?".pa*', "a.b", "pay"),
    ],
)
def test_a_pattern_takes_special_names(pattern: str, schema: str, table: str) -> None:
    """As they are, and quoted; an exception in any reading."""
    name = TableName(schema, table)
    assert not Grant(("*", f"!{pattern}")).takes(name)
    assert Grant((pattern,)).takes(name) is (pattern.startswith('"') or "." not in schema)
    others = (TableName(schema, f"{table}x"), TableName("hr", "pay2"), TableName("a", "pay"))
    assert all(Grant(("*", f"!{pattern}")).takes(other) for other in others if "*" not in pattern)


def test_a_quote_is_no_character_of_a_name() -> None:
    """A pattern of three characters takes no table with one, whose name pages quote."""
    assert not Grant(("hr.?A?",)).takes(TableName("hr", "A"))


def test_the_proxy_names_users_from_its_addresses_only(lake: Lake) -> None:
    """Not from others, not twice, not without a name, and only listed users; an IPv4 address in IPv6 counts."""
    access = Access(frozenset({HOST}), None, "X-Forwarded-User", networks(["10.0.0.7", "10.1.0.0/24"]), _USERS)

    def status(address: str, *names: str, path: str = "/api/v1/rows?table=orders") -> int:
        headers = [("x-forwarded-user", name) for name in names]
        return Page(lake, access, address=address).ask("GET", path, headers=headers).status_code

    for address in ("10.0.0.7", "10.1.0.200", "::ffff:10.0.0.7"):
        assert status(address, "bob") == 200
        assert status(address, "bob", path="/api/v1/rows?table=customers") == 400
    for address in ("10.0.0.8", "127.0.0.1", "::1", "10.2.0.1", "testclient"):
        assert status(address, "ann") == 401
    assert status("10.0.0.7", "bob", "ann") == 401
    assert status("10.0.0.7", "") == 401
    assert status("10.0.0.7") == 401
    assert status("10.0.0.7", "mallory") == 403
    assert status("10.0.0.7", "bob,ann") == 403
    forwarded = [("x-forwarded-user", "ann"), ("x-forwarded-for", "10.0.0.7")]
    asked = Page(lake, access, address="10.9.9.9").ask("GET", "/api/v1/tables", headers=forwarded)
    assert asked.status_code == 401


def test_a_session_is_of_the_user_who_signed_in(page: Page) -> None:
    """The cookie leads to the same grant as the token; a token of nobody gives none."""
    origin = {"origin": f"http://{HOST}"}
    signed = page.ask("POST", "/sign-in", data={"token": _TOKENS["bob"]}, headers=origin)
    cookie = {"cookie": signed.headers["set-cookie"].split(";")[0]}
    tables = page.ask("GET", "/api/v1/tables", headers=cookie).json()["tables"]
    assert [each["table"] for each in tables] == ["public.orders"]
    assert ">bob<" in page.ask("GET", "/", headers=cookie).text
    assert page.ask("POST", "/sign-in", data={"token": "x" * 30}, headers=origin).status_code == 401


def test_who_looked_at_what_is_recorded(lake: Lake, tmp_path: Path) -> None:
    """User, route, tables and moment, also of what was refused; never keys, values, filters, statements or tokens."""
    file = tmp_path / "access_log.jsonl"
    file.write_text("before\n")
    page = Page(lake, Access(frozenset({HOST}), users=_USERS), access_log=AccessLog(file))
    _ask(page, "bob", "/rows?table=orders&where=note:is:SECRET&at=0/200")
    _ask(page, "bob", "/api/v1/row?table=customers&key=SECRET")
    _ask(page, "ann", "/api/v1/sql", {"sql": "select 'SECRET' as s, id from orders"})
    _ask(page, "ann", "/find?table=orders&value=SECRET")
    _ask(page, "ann", "/transaction?transaction=0/250")
    _ask(page, "ann", "/api/v1/rows?table=orders&at=0/300&at=0/250")
    _ask(page, "ann", "/row?table=orders&key=1&at=0/250&at=&versus=0/200")
    _ask(page, "ann", "/api/v1/step?number=1")
    page.ask("GET", "/api/v1/tables", headers={"authorization": "Bearer SECRET"})
    page.ask("GET", "/static/app.css")
    first, *lines = file.read_text().splitlines()
    assert first == "before"
    found = [json.loads(line) for line in lines]
    assert [(each["user"], each["route"], each["tables"], each["status"]) for each in found] == [
        ("bob", "/rows", ["orders"], 200),
        ("bob", "/api/v1/row", ["customers"], 400),
        ("ann", "/api/v1/sql", ["public.orders"], 200),
        ("ann", "/find", ["orders"], 200),
        ("ann", "/transaction", [], 200),
        ("ann", "/api/v1/rows", ["orders"], 200),
        ("ann", "/row", ["orders"], 200),
        (None, "/api/v1/tables", [], 401),
    ]
    assert (found[0]["at"], found[4]["transaction"], found[0]["address"]) == ("0/200", "0/250", "127.0.0.1")
    assert (found[5]["at"], "at" in found[6], found[6]["versus"]) == ("0/250", False, "0/200")
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", each["time"]) for each in found)
    assert "SECRET" not in "".join(lines)


def test_a_request_of_many_fields_is_recorded(lake: Lake, tmp_path: Path) -> None:
    """As any other."""
    file = tmp_path / "access_log.jsonl"
    page = Page(lake, access_log=AccessLog(file))
    assert page.ask("GET", "/rows?table=orders" + 2_000 * "&facet=id").status_code == 200
    assert json.loads(file.read_text())["tables"] == ["orders"]


def test_nothing_is_answered_that_cannot_be_recorded(lake: Lake, tmp_path: Path) -> None:
    """Without a row of it; once the file can be written again, the server answers."""
    folder = tmp_path / "folder"
    folder.mkdir()
    page = Page(lake, access_log=AccessLog(folder / "access_log.jsonl"))
    assert page.get("/rows", table="orders").status_code == 200
    folder.rename(tmp_path / "moved")
    refused = page.get("/rows", table="orders")
    assert refused.status_code == 503
    assert "10.50" not in refused.text
    (tmp_path / "moved").rename(folder)
    assert page.get("/rows", table="orders").status_code == 200
    with pytest.raises(ConfigError, match="cannot be appended to"):
        AccessLog(tmp_path / "nowhere" / "access_log.jsonl")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="cannot be appended to"):  # not held until somebody reads it
        AccessLog(tmp_path / "pipe")


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"users": {}},
        {"users": {"ann": {}}},
        {"users": {"ann": {"tables": "*"}}},
        {"users": {"ann": {"tables": ["orders"]}}},
        {"users": {"ann": {"tables": [1]}}},
        {"users": {"ann": {"tables": ["*"], "token": 1}}},
        {"users": {"ann": {"tables": ["*"], "except": ["a.b"]}}},
        {"users": {"ann": {"tables": ["*"]}}, "user": {}},
    ],
)
def test_a_file_of_users_that_is_none_is_refused(content: dict[str, object]) -> None:
    """A field that is misspelt may not become a grant."""
    with pytest.raises(ConfigError):
        parse_users(content, "users.toml")


def test_users_who_cannot_be_told_apart_are_refused() -> None:
    """Without a token or a proxy, with the same token, or beside a token of nobody."""
    hosts, grant = frozenset({HOST}), Grant(("*",))
    for access in (
        Access(hosts, users={"ann": PageUser(None, grant)}),
        Access(hosts, users={"ann": PageUser("t" * 20, grant), "bob": PageUser("t" * 20, grant)}),
        Access(hosts, "t" * 20, users={"ann": PageUser("u" * 20, grant)}),
        Access(hosts, users={"ann": PageUser("short", grant)}),
    ):
        with pytest.raises(ConfigError):
            require_safe("127.0.0.1", access)
    require_safe("127.0.0.1", Access(hosts, None, "X-Forwarded-User", users={"ann": PageUser(None, grant)}))
    with pytest.raises(ConfigError, match="--proxy-address"):
        networks(["nowhere"])
