"""Time that a request may take, and what does not count."""

import asyncio
import gc
import shutil
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import duckdb
import pyarrow as pa
import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from auditlake.cancellation import Cancellation, Cancelled
from auditlake.delta.sql import select
from auditlake.errors import LakeUnusable
from auditlake.lake.layout import Lake
from auditlake.query.embedded.cells import NotEmbedded
from auditlake.sandbox.failures import Busy
from auditlake.serve import sql_answers
from auditlake.serve.resources import Limits, Resources
from auditlake.serve.sql_answers import OfSql, Statements
from auditlake.serve.streams import StreamPlaces
from auditlake.temporal.grants import WHOLE, Grant
from tests.page import HOST, Page, capture_transaction, write_lake
from tests.running import await_true

_LIMIT_S = 0.3
_ENDLESS = "select sum(a.range * b.range) from range(10000000) a, range(10000000) b"


@pytest.fixture
def resources(tmp_path: Path) -> Resources:
    """The resources of a server with a short limit."""
    return Resources(write_lake(tmp_path / "lake"), UTC, Limits(timeout_s=_LIMIT_S))


def _run(resources: Resources, work: Callable[[], str]) -> str:
    return asyncio.run(resources.run(work))


def _after(seconds: float) -> str:
    time.sleep(seconds)
    return "found"


def test_an_answer_in_time_is_given_and_a_late_one_refused(resources: Resources) -> None:
    """The error names the limit; an error of the work itself is passed on, also one of time."""
    assert _run(resources, lambda: _after(0)) == "found"
    with pytest.raises(Busy, match=r"longer than 0\.3 s$"):
        _run(resources, lambda: _after(2 * _LIMIT_S))

    def fail() -> str:
        raise TimeoutError("of the work")

    with pytest.raises(TimeoutError, match="of the work"):
        _run(resources, fail)


def test_what_is_uncounted_may_take_longer(resources: Resources) -> None:
    """Twice the limit, and the rest of the limit afterwards; then the limit holds again."""

    def work(then_s: float) -> str:
        time.sleep(_LIMIT_S / 3)
        with resources.uncounted("the other", 60):
            time.sleep(2 * _LIMIT_S)
        return _after(then_s)

    assert _run(resources, lambda: work(_LIMIT_S / 3)) == "found"
    with pytest.raises(Busy, match=r"longer than 0\.3 s$"):
        _run(resources, lambda: work(2 * _LIMIT_S))


def test_what_is_uncounted_has_a_limit_too(resources: Resources) -> None:
    """The error says what the request waits for."""

    def work() -> str:
        with resources.uncounted("the other", 0.1):
            return _after(4 * _LIMIT_S)

    with pytest.raises(Busy, match=r"0\.3 s, waiting for the other") as refused:
        _run(resources, work)
    assert refused.value.hint == "Try again: it goes on."


def test_a_client_that_has_gone_ends_its_query(tmp_path: Path) -> None:
    """It does not occupy a thread until the limit."""
    resources = Resources(write_lake(tmp_path / "lake"), UTC, Limits(timeout_s=600))
    ended: list[str] = []

    def work() -> str:
        try:
            resources.cursor().execute(_ENDLESS)
        except Exception as exc:
            ended.append(type(exc).__name__)
            raise
        return "found"

    answers = iter([False, True])

    async def has_gone() -> bool:
        return next(answers)

    with pytest.raises(ClientDisconnect):
        asyncio.run(resources.run(work, has_gone))
    await_true(lambda: ended == ["InterruptException"], 60)


def test_a_request_that_is_over_asks_no_more(resources: Resources) -> None:
    """Of a list of tables, each is counted: the interruption of one is no reason to go on with the next."""
    ended: list[str] = []

    def work() -> str:
        for _ in range(2):
            try:
                with resources.cursor() as cursor:
                    cursor.execute(_ENDLESS)
            except Exception as exc:  # noqa: BLE001 - as the list of tables does
                ended.append(type(exc).__name__)
        return "found"

    resources.cursor().close()  # the first one takes longer
    with pytest.raises(Busy, match="longer than"):
        _run(resources, work)
    await_true(lambda: ended == ["InterruptException", "Cancelled"], 60)
    assert _run(resources, lambda: _after(0)) == "found"
    with resources.cursor() as cursor:
        assert cursor.execute("select 1").fetchone() == (1,)


def test_a_question_about_rows_ends_with_its_request(resources: Resources) -> None:
    """It reads in the database of the lake's session, not in that of statements."""
    ended: list[str] = []

    def work() -> str:
        try:
            select(_ENDLESS, one=pa.table({"a": [1]}))
        except Exception as exc:
            ended.append(type(exc).__name__)
            raise
        return "found"

    with pytest.raises(Busy, match="longer than"):
        _run(resources, work)
    await_true(lambda: ended == ["Cancelled"], 60)


def test_a_query_that_begins_after_the_end_of_its_request_is_interrupted(
    resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cursor was open before, and had no query that could be interrupted."""
    ended, interrupted, cancel = list[str](), threading.Event(), Cancellation.cancel

    def recorded(cancellation: Cancellation) -> None:
        cancel(cancellation)
        interrupted.set()

    def work() -> str:
        try:
            with resources.cursor() as cursor:
                interrupted.wait()
                cursor.execute(_ENDLESS)
        except Exception as exc:  # noqa: BLE001 - compared below
            ended.append(type(exc).__name__)
        return "found"

    async def ask() -> None:
        with pytest.raises(Busy, match="longer than"):
            await resources.run(work)
        await asyncio.to_thread(await_true, lambda: ended == ["InterruptException"], 60)

    monkeypatch.setattr(Cancellation, "cancel", recorded)
    resources.cursor().close()  # as above
    asyncio.run(ask())


def test_a_lake_that_is_restored_under_the_server_has_no_later_commit(tmp_path: Path) -> None:
    """Neither on the timeline nor beside its last one; and an empty folder is no lake."""
    lake = write_lake(tmp_path / "lake")
    shutil.copytree(lake.root, tmp_path / "older")
    capture_transaction(lake, 0x500)
    page = Page(lake)
    assert page.json("step", number=99)["lsn"] == "0/500"
    shutil.rmtree(lake.root)
    shutil.copytree(tmp_path / "older", lake.root)
    page.resources._latest.read_at = 0.0  # noqa: SLF001 - as a second later
    assert page.json("step", number=99) == page.json("step", number=4)
    assert (page.json("timeline")["commits"], page.json("lake")["at"]["commits"]) == (4, 4)
    shutil.rmtree(lake.root)
    page.resources._latest.read_at = 0.0  # noqa: SLF001 - as above
    refused = [page.get(path, before="0/150") for path in ("/compare", "/api/v1/compare")]
    assert [each.status_code for each in refused] == [503, 503]
    assert "Not answered" in refused[0].text


def test_a_lake_is_read_again_whatever_the_clock_shows(tmp_path: Path) -> None:
    """Also without a commit, and if the clock was ahead: a table may be parked since."""
    page = Page(write_lake(tmp_path / "lake"))
    latest, kept = page.resources._latest, page.resources.reader()  # noqa: SLF001 - what requests share
    latest.reader = kept = kept.with_clock(datetime.now(UTC) + timedelta(hours=1))
    latest.read_at = 0.0
    assert page.resources.reader() is kept
    latest.read_at = latest.made_at = float("-inf")
    assert page.resources.reader() is not kept


def test_two_clients_that_ask_for_much_keep_no_third_from_an_answer(tmp_path: Path) -> None:
    """Neither by the threads that their questions occupy, nor by those that wait."""
    whole = Resources(write_lake(tmp_path / "lake"), UTC, Limits(timeout_s=600))

    def endless(client: Resources) -> Callable[[], object]:
        return lambda: client.cursor().execute(_ENDLESS)

    async def ask() -> str:
        asked = []
        for name in ("ann", "bob"):
            client = whole.for_client(name, WHOLE)
            asked += [asyncio.create_task(client.run(endless(client))) for _ in range(40)]
        await asyncio.to_thread(await_true, lambda: len(whole._running) >= 6, 60)  # noqa: SLF001 - no other sign
        found = await whole.for_client("eve", WHOLE).run(lambda: "found")
        for each in asked:
            each.cancel()
        await asyncio.wait(asked)
        whole.close()
        return found

    assert asyncio.run(ask()) == "found"


def test_a_client_that_asks_nothing_more_is_forgotten(resources: Resources) -> None:
    """Else every address that ever asked would stay in memory."""

    def is_forgotten() -> bool:
        gc.collect()
        return not resources._latest.clients  # noqa: SLF001 - no other sign

    assert _run(resources.for_client("ann", WHOLE), lambda: _after(0)) == "found"
    await_true(is_forgotten, 60)  # the thread holds it until it has ended its work


def test_a_question_ends_with_its_task(tmp_path: Path) -> None:
    """As that of a stream does whose client has gone."""
    resources = Resources(write_lake(tmp_path / "lake"), UTC, Limits(timeout_s=600))
    ended: list[str] = []

    def work() -> None:
        try:
            with resources.cursor() as cursor:
                cursor.execute(_ENDLESS)
        except Exception as exc:  # noqa: BLE001 - compared below
            ended.append(type(exc).__name__)

    async def ask() -> None:
        asked = asyncio.create_task(resources.run(work))
        await asyncio.to_thread(await_true, lambda: bool(resources._running), 60)  # noqa: SLF001 - no other sign
        asked.cancel()
        await asyncio.to_thread(await_true, lambda: bool(ended), 60)

    try:
        asyncio.run(ask())
    finally:
        resources.close()
    assert ended[0] in {"InterruptException", "Cancelled"}  # the latter if it had no cursor yet


def test_an_interruption_is_no_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To a user who may not see all tables, and to whoever reads the server's log."""
    resources = Resources(write_lake(tmp_path / "lake"), UTC).for_client("ann", Grant(("public.orders",)))
    interrupted = threading.Event()

    def work() -> None:
        interrupted.wait()
        raise LakeUnusable("the rows cannot be read: InterruptException")

    async def ask() -> None:
        asked = asyncio.create_task(resources.run(work))
        await asyncio.to_thread(await_true, lambda: bool(resources._running), 60)  # noqa: SLF001 - no other sign
        resources.close()
        interrupted.set()
        with pytest.raises(Cancelled):
            await asked

    asyncio.run(ask())
    assert capsys.readouterr().err == ""


def test_spark_does_not_answer_a_client_that_has_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not hear that, and others wait for it."""
    resources, cancellation = Resources(write_lake(tmp_path / "lake"), UTC), Cancellation()

    def interrupted(*_: object) -> None:
        cancellation.cancel()
        raise NotEmbedded("a function that DuckDB lacks")

    monkeypatch.setattr(Statements, "_in_duckdb", interrupted)
    monkeypatch.setattr(Statements, "_in_spark", lambda *_: pytest.fail("Spark was asked"))
    asked = OfSql(sql="select id from orders", dialect="spark")
    with pytest.raises(Cancelled), cancellation.work():
        Statements({}).answer(resources, asked)


class _Spark:
    """A session of Spark that records its jobs; `sparkContext` is the session itself."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.groups: list[str] = []

    @property
    def sparkContext(self) -> "_Spark":  # noqa: N802 - Spark's name
        return self

    def setJobGroup(self, group: str, _: str, *, interruptOnCancel: bool) -> None:  # noqa: N802, N803 - as above
        assert interruptOnCancel
        self.groups.append(group)

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802 - as above
        assert group in self.groups
        self.cancelled.set()


def test_a_client_that_has_gone_ends_its_statement_in_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait for it: statements run there one after the other."""
    spark, cancellation = _Spark(), Cancellation()
    monkeypatch.setattr(sql_answers, "_is_idle", lambda _: True)
    limit = sql_answers._Limit(600)  # noqa: SLF001 - the limit of a statement

    def work() -> None:
        with cancellation.work(), limit.of(cast("Any", spark)):
            cancellation.cancel()
            assert spark.cancelled.wait(60)
            raise RuntimeError("the job was cancelled")

    with pytest.raises(Cancelled):
        work()
    assert limit.passed


def test_one_client_has_less_than_half_of_the_streams() -> None:
    """A place that is given back is free, once."""
    places = StreamPlaces(5, "streams", "the command line")

    async def opened() -> str:
        return "opened"

    def take(client: str) -> Callable[[], None]:
        return asyncio.run(places.open(client, opened))[1]

    given_back = [take("ann") for _ in range(2)]
    with pytest.raises(Busy, match="too many streams are open"):
        take("ann")
    for _ in range(2):
        take("bob")
        given_back[0]()
    take("ann")
    with pytest.raises(Busy):
        take("ann")
    take("eve")
    with pytest.raises(Busy):
        take("dan")


def test_answers_of_a_lake_that_another_one_replaces_are_forgotten(tmp_path: Path) -> None:
    """Also if both have the same versions and LSNs, and their sources went on differently from a backup on."""
    lake = write_lake(tmp_path / "lake")
    shutil.copytree(lake.root, tmp_path / "other")
    capture_transaction(lake, 0x500, order=4)
    capture_transaction(Lake(tmp_path / "other"), 0x500, order=1)
    page = Page(lake)

    def answers() -> list[Any]:
        found = page.json("rows", table="orders", at="0/500", sort="id")["rows"]
        sql = {"sql": "select id from orders order by id", "at": "0/500"}
        asked = page.ask("POST", "/api/v1/sql", json=sql).json()["rows"]
        facets = page.json("facets", table="orders", column="id", at="0/500")["values"]
        return [[row["key"] for row in found], asked, [each["value"] for each in facets]]

    assert answers() == [[["1"], ["5"]], [["1"], ["5"]], ["1", "5"]]
    lake.root.rename(tmp_path / "former")
    (tmp_path / "other").rename(lake.root)
    page.resources._latest.read_at = 0.0  # noqa: SLF001 - as a second later
    assert answers() == [[["4"], ["5"]], [["4"], ["5"]], ["4", "5"]]


@pytest.mark.parametrize("path", ["/api/v1/rows", "/api/v1/export", "/rows", "/api/v1/undo", "/api/v1/changes"])
def test_a_question_is_not_answered_to_a_client_that_has_gone(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does one that waits for a thread take it: a browser gives up each page that the slider leaves."""
    asked: list[bool] = []

    async def run(_: Resources, *given: Any) -> None:
        asked.append(await given[1]())
        raise ClientDisconnect

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        """Send nothing to nobody."""

    monkeypatch.setattr(Resources, "run", run)
    page = Page(write_lake(tmp_path / "lake"))
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": path, "headers": [(b"host", HOST.encode())]}
    scope |= {"query_string": b"before=0/150" if path.endswith("undo") else b"table=orders", "scheme": "http"}
    asyncio.run(page.app(scope, receive, send))
    assert asked == [True]


def test_the_end_of_the_server_ends_a_query(tmp_path: Path) -> None:
    """The process ends only after its threads."""
    resources = Resources(write_lake(tmp_path / "lake"), UTC, Limits(timeout_s=600))
    ended = threading.Event()

    def work() -> str:
        try:
            resources.cursor().execute(_ENDLESS)
        finally:
            ended.set()
        return "found"

    async def ask() -> None:
        asked = asyncio.create_task(resources.run(work))
        for _ in range(600):  # the query may not have begun
            await asyncio.wait({asked}, timeout=0.1)
            if asked.done():
                break
            resources.close()
        with pytest.raises((duckdb.InterruptException, Cancelled)):  # the latter if it had no cursor yet
            asked.result()

    asyncio.run(ask())
    assert ended.is_set()
