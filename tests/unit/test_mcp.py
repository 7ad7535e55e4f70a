"""The MCP server, asked by the SDK's own client: tools, caps, masks and errors; values are those of the small lake."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.memory import create_connected_server_and_client_session
from mcp.types import CancelledNotification, CancelledNotificationParams, ClientNotification, TextContent

from auditlake import mcp_server
from auditlake.api.lake import Lake as LakeApi
from auditlake.audit.bounds import characters
from auditlake.audit.json_output import MASKED, Fields
from auditlake.audit.lake_reader import Reader
from auditlake.cancellation import Cancelled
from auditlake.delta.sql import select
from auditlake.errors import BadUsage, ConfigError, NotAnswerable
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.lsn import Lsn
from auditlake.mcp_server import CALLS_AT_ONCE, AnswerLimits, Tools, make_server
from auditlake.relation import Column, Former, TableName
from tests.command import run_here
from tests.running import await_true
from tests.small_lake import ORDERS, T0_US, version, write_history, write_lake_with_manifest

_ROOT = Path(__file__).parents[2]
_ENDLESS = "select count(*) as n from generate_series(1, 1000000000000000) a"
Ask = Callable[..., Coroutine[Any, Any, Any]]
Script = Callable[[ClientSession, Ask], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The small lake, with a manifest."""
    return write_lake_with_manifest(tmp_path_factory.mktemp("mcp") / "lake")


def _session(lake: Lake, script: Script) -> None:
    """Run a script of a client, with a server in this process that shows two entries."""
    server = make_server(LakeApi(lake.root), AnswerLimits(2))

    async def run() -> None:
        async with create_connected_server_and_client_session(server) as session:
            await script(session, _asking(session))

    anyio.run(run)


def _session_of_process(lake: Lake, script: Script, **settings: str) -> None:
    """Start `auditlake mcp`, and run a script of a client that speaks to it over pipes."""
    of_lake = {"AUDITLAKE_LAKE": str(lake.root)}
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), **of_lake, **settings}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "auditlake", "mcp", "--rows", "2"], env=environment, cwd="/"
    )

    async def run() -> None:
        async with stdio_client(command) as (reads, writes), ClientSession(reads, writes) as session:
            await session.initialize()
            await script(session, _asking(session))

    anyio.run(run)


def _asking(session: ClientSession) -> Ask:
    async def ask(tool: str, **arguments: Any) -> Any:
        answer = await session.call_tool(tool, arguments)
        (content,) = answer.content
        assert isinstance(content, TextContent)
        return content.text if answer.isError else json.loads(content.text)

    return ask


def test_the_server_ends_with_its_client(lake: Lake) -> None:
    """The end of stdin is no error, although the SDK closes stdout."""
    command = [sys.executable, "-m", "auditlake", "mcp", "--lake", str(lake.root)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr == f"auditlake: answering questions about {lake.root} on stdin\n"


def test_the_tools_answer_the_audit_questions(lake: Lake) -> None:
    """Exact texts, at most as many entries as allowed, and whether there are more."""

    async def script(session: ClientSession, ask: Ask) -> None:
        tools = (await session.list_tools()).tools
        assert {tool.name for tool in tools} == {
            *("tables", "log", "row", "blame", "deleted", "diff", "rows", "sql", "status"),
        }
        assert all(tool.annotations is not None and tool.annotations.readOnlyHint for tool in tools)
        blamed = await ask("blame", table="orders", key={"id": 1}, as_of="0/250")
        assert (len(blamed["found"]), blamed["more"]) == (2, True)
        note = blamed["found"][1]
        assert (note["column"], note["value"], note["lsn"], note["xid"]) == ("note", "c", "0/250", 12)
        assert (note["before_capture"], note["deleted"]) == (False, None)
        history = await ask("row", table="public.orders", key={"id": 1})
        assert [(each["op"], list(each["changed"])) for each in history["found"]] == [("update", ["note", "price"])] * 2
        assert (history["found"][0]["row"]["price"], history["more"]) == ("3.00", True)
        assert [each["row"]["id"] for each in (await ask("deleted", table="orders"))["found"]] == ["3", "2"]
        assert [each["lsn"] for each in (await ask("log", since="0/250"))["found"]] == ["0/300", "0/250"]
        differing = await ask("diff", before="0/200", tables=["orders"])
        first = differing["found"][0]
        assert (first["diff"], list(first["from"]), first["to"]) == ("removed", ["id", "note", "price", "at"], None)
        page = await ask("rows", table="orders", as_of="0/250", where=[["price", ">", "1"]], order_by=["-price"])
        assert [each["price"] for each in page["found"]] == ["4.00", "3.00"]
        assert [each["table"] for each in (await ask("tables"))["found"]] == ["public.customers", "public.orders"]
        found = await ask("sql", statement="select id, price / 2 as half from orders order by id", as_of="0/250")
        assert (found["columns"], found["more"], found["lsn"]) == (["id", "half"], True, "0/250")
        assert [row[0] for row in found["found"]] == ["1", "3"]
        unnamed = "select id + 0.5 from orders"
        assert "computed column without AS" in await ask("sql", statement=unnamed, dialect="spark")
        assert "does more than read" in await ask("sql", statement="with a as (select 1) insert into orders select 1")
        assert (await ask("status"))["watermark"] == "0/300"

    _session(lake, script)


def test_answers_have_the_schema_of_their_tool(lake: Lake) -> None:
    """The client validates each against it; entries are described by the models of the commands."""

    async def script(session: ClientSession, _: Ask) -> None:
        schemas = {tool.name: tool.outputSchema or {} for tool in (await session.list_tools()).tools}
        models = ("log", "TransactionJson"), ("row", "EventJson"), ("blame", "BlameJson"), ("deleted", "DeletedJson")
        for tool, model in models:
            assert {"lsn", "db_user"} <= set(schemas[tool]["$defs"][model]["required"])
            assert schemas[tool]["properties"]["found"]["items"] == {"$ref": f"#/$defs/{model}"}
        assert all({"found", "more"} <= set(schemas[tool]["required"]) for tool in schemas if tool != "status")
        more = [set(schemas[tool]["properties"]) - {"notes", "found", "more"} for tool in ("log", "row", "sql")]
        assert more == [set(), {"gaps"}, {"columns", "lsn", "dialect"}]

    _session(lake, script)


def test_the_lake_is_read_once_to_compare_tables(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for the masks of each table: a lake may have thousands."""
    read: list[None] = []

    def counted(*given: Any) -> Reader:
        read.append(None)
        return Reader(*given)

    monkeypatch.setattr(mcp_server, "Reader", counted)
    answer = Tools(LakeApi(lake.root), AnswerLimits(50, ("public.orders.note",))).diff("0/180")
    assert {each["table"] for each in answer["found"]} == {"public.orders", "public.customers"}
    assert len(read) == 1


def test_an_answer_is_cut_at_a_number_of_characters(lake: Lake) -> None:
    """Of every tool: an entry that does not fit is left out, and the first one refused."""
    api = LakeApi(lake.root)
    questions: list[Callable[[Tools], Fields]] = [
        lambda tools: tools.rows("orders", as_of="0/250", order_by=["id"]),
        lambda tools: tools.row("orders", {"id": 1}),
        lambda tools: tools.blame("orders", {"id": 1}),
        lambda tools: tools.deleted("orders"),
        lambda tools: tools.diff("0/180", tables=["orders"]),
        lambda tools: tools.log(),
        lambda tools: tools.sql("select id, note from orders", as_of="0/250"),
    ]
    for question in questions:
        whole = question(Tools(api, AnswerLimits(50)))
        assert len(whole["found"]) > 1
        first = whole["found"][0]
        length = characters(first)
        cut = question(Tools(api, AnswerLimits(50, characters=length)))
        assert (cut["found"], cut["more"]) == ([first], True)
        with pytest.raises(NotAnswerable, match=f"the first entry has more than {length - 1:,} characters"):
            question(Tools(api, AnswerLimits(50, characters=length - 1)))


_REVEALING = (
    "select note from orders",
    "select * from orders",
    "select o.* from orders o",
    "select length(NOTE) as n from orders",
    "select id from orders where note like 'c%'",
    "select id from orders order by note",
    "select count(*) as n from orders group by note",
    "select min(note) as n from orders",
    "select id from orders o join customers c on c.name = o.note",
    "select id from customers where name in (select note from orders)",
    "select id from customers c where exists (select 1 from orders o where o.note = c.name)",
    "select id from customers c where exists (select * from orders)",
    "with q as (select * from orders) select id from q",
    "select b from orders as t(a, b, c, d)",
    "select (select max(note) from orders) as n",
    "select note from orders for system_time as of '0/180'",
    "select id from orders union select note from orders",
    "select row_number() over (partition by note order by id) as n from orders",
    "select id from orders join orders b using (id, note)",
    "select new from auditlake.changes",
)


def test_masked_columns_are_never_shown_and_cannot_be_asked_for(lake: Lake) -> None:
    """In no answer; a filter, an order or a key would reveal them. Errors carry message and hint.

    The process takes mask and dialect from its settings.
    """

    async def script(_: ClientSession, ask: Ask) -> None:
        answers = [
            await ask("row", table="orders", key={"id": 1}),
            await ask("blame", table="orders", key={"id": 1}),
            await ask("diff", before="0/180", tables=["orders"]),
            await ask("deleted", table="orders"),
            await ask("rows", table="orders", as_of="0/250"),
        ]
        assert {cell["note"] for cell in answers[4]["found"]} == {"(masked)"}
        assert [each["row"]["note"] for each in answers[3]["found"]] == ["(masked)", "(masked)"]
        assert answers[0]["found"][0]["changed"]["note"] == {"old": "(masked)", "new": "(masked)"}
        everything = json.dumps(answers)
        assert not any(f': "{note}"' in everything for note in ("a", "b", "c", "new"))
        for arguments in ({"where": [["note", "=", "c"]]}, {"order_by": ["-note"]}):
            refused = await ask("rows", table="orders", **arguments)
            assert "column note of orders is masked. Ask without it." in refused
        assert "is masked" in await ask("log", table="orders", column="note")
        for sql in _REVEALING:
            assert "mask" in await ask("sql", statement=sql, dialect="spark"), sql
            assert "mask" in await ask("sql", statement=sql, dialect="postgres"), sql
        for sql in ("select id from orders natural join orders b", "select _raw from orders for system_time all"):
            assert "mask" in await ask("sql", statement=sql, dialect="postgres"), sql
        counted = "select count(*), max(price) from orders"
        assert (await ask("sql", statement=counted, dialect="postgres"))["found"] == [["2", "4.00"]]
        shown = await ask("sql", statement="select count(*) as `n`, max(o.price) as p from orders o where o.id < 4")
        assert (shown["found"], shown["dialect"]) == ([["1", "3.00"]], "spark")
        described = await ask("sql", statement="describe orders", dialect="spark")
        assert ["note", "string", None] in [described["found"][0], *described["found"]]
        assert "its history begins at 0/180" in await ask("rows", table="customers", as_of="0/100")
        assert "there is no table ordres" in await ask("row", table="ordres", key={"id": 1})

    _session_of_process(lake, script, AUDITLAKE_MASK="public.orders.note", AUDITLAKE_DIALECT="spark")


def test_statements_are_in_the_dialect_of_the_server(lake: Lake) -> None:
    """Unless one names another."""

    async def script(_: ClientSession, ask: Ask) -> None:
        assert (await ask("sql", statement="select id::text || 'x' from orders where id = 1"))["found"] == [["1x"]]
        spark = await ask("sql", statement="select `id` from orders", dialect="spark")
        placed = await ask(
            "sql", statement="select at::date, id::numeric / 2 from orders where id = 1", dialect="postgres"
        )
        assert (placed["found"], placed["columns"]) == ([["2026-01-01", "0.50000000000000000000"]], ["at", "?column?"])
        assert (placed["dialect"], spark["dialect"]) == ("postgres", "spark")
        assert "division by zero" in await ask("sql", statement="select id / 0 from orders")
        assert "not translated" in await ask("sql", statement="select pg_sleep(1)")

    _session(lake, script)


def test_a_key_is_a_value_a_list_or_an_object(lake: Lake) -> None:
    """All three mean the same row."""
    tools = Tools(LakeApi(lake.root), AnswerLimits(10))
    one, two, three = (tools.blame("orders", key) for key in (1, [1], {"id": 1}))
    assert one["found"]
    assert one == two == three


def test_a_key_sent_as_a_text_of_json_is_read_if_it_can_be_no_value(tmp_path: Path) -> None:
    """A number cannot be `[7]`, but a text can: then one question would be answered with another row."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    columns = (Column("id", 25, -1, key=True), Column("note", 25, -1, key=False))
    rows = [version(0x100, None, "snapshot", None) | {"id": key, "note": key} for key in ("7", "[7]", "null")]
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    write_history(lake, TableName("public", "named"), columns, rows, positions)

    async def script(_: ClientSession, ask: Ask) -> None:
        numbered = await ask("blame", table="orders", key=1)
        for sent in ("[1]", '{"id": 1}'):
            assert await ask("blame", table="orders", key=sent) == numbered
        for key, value in (("7", "7"), ("null", "null"), (["[7]"], "[7]"), ({"id": "[7]"}, "[7]")):
            assert (await ask("blame", table="named", key=key))["found"][0]["value"] == value
        for tool, sent in (("blame", "[7]"), ("row", '["7"]'), ("log", '{"id": "7"}')):
            assert "may be one value of named.id, or a list" in await ask(tool, table="named", key=sent)
        assert "valid integer" in await ask("blame", table="orders", key=True)

    _session(lake, script)


def test_a_mask_that_matches_nothing_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt one would mask nothing; so is a mask without three parts."""
    for mask, message in (("public.orders.nose", "matches no column"), ("orders.note", "need patterns of schema")):
        monkeypatch.setenv("AUDITLAKE_MASK", mask)
        done = run_here(["mcp", "--lake", lake.root])
        assert (done.code, message in done.stderr) == (ConfigError.exit_code, True), done.stderr


def test_without_the_library_the_command_says_what_to_install(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra `mcp` is optional."""
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel", None)
    monkeypatch.delitem(sys.modules, "auditlake.mcp_server", raising=False)
    done = run_here(["mcp", "--lake", lake.root])
    assert (done.code, "pip install 'auditlake[mcp]'" in done.stderr) == (3, True)


def test_a_mask_matches_former_names_in_the_history(tmp_path: Path) -> None:
    """Of columns and tables, once apply has recorded them; a name of no column is refused, as a masked one is."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    former = Former(Lsn(0x150), "email", key=False)
    columns = (Column("id", 23, -1, key=True), Column("code", 25, -1, key=False, stored_as="email", former=(former,)))
    row = version(0x100, None, "snapshot", None) | {"id": 1, "email": "hidden"}
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    write_history(lake, TableName("public", "people"), columns, [row], positions)
    make_server(LakeApi(lake.root), AnswerLimits(10, ("*.*.email",)))
    tools = Tools(LakeApi(lake.root), AnswerLimits(10, ("public.people.email",)))
    for moment in ("0/120", "0/300"):
        (shown,) = tools.rows("people", moment)["found"]
        assert list(shown.values()) == ["1", MASKED]
        assert "hidden" not in json.dumps([tools.blame("people", {"id": 1}, moment), tools.row("people", {"id": 1})])
        with pytest.raises(BadUsage, match="is masked"):
            tools.sql("select * from people", moment)
    with pytest.raises(BadUsage, match="has no column e_mail"):
        tools.rows("people", where=[("e_mail", "=", "x")])


def test_rows_are_not_sorted_by_a_masked_column_whose_name_begins_with_a_sign(tmp_path: Path) -> None:
    """The sign would mean the order of another column."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    columns = (Column("id", 23, -1, key=True), Column("-pay", 23, -1, key=False), Column("pay", 23, -1, key=False))
    rows = [{"id": n, "-pay": -n, "pay": n} | version(0x100, None, "snapshot", None) for n in range(3)]
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    write_history(lake, TableName("public", "paid"), columns, rows, positions, 9)
    tools = Tools(LakeApi(lake.root), AnswerLimits(9, ("public.paid.-pay",)))
    with pytest.raises(BadUsage, match="column -pay of paid is masked"):
        tools.rows("paid", order_by=["-pay"])
    assert [each["id"] for each in tools.rows("paid", order_by=["-id"])["found"]] == ["2", "1", "0"]


def test_a_masked_key_cannot_be_given_as_a_value(lake: Lake) -> None:
    """Whether it is named or not, the answer would tell who has it."""
    tools = Tools(LakeApi(lake.root), AnswerLimits(2, ("public.orders.id",)))
    keys: tuple[int | str | dict[str, int], ...] = (1, "1", {"id": 1})
    for key in keys:
        with pytest.raises(BadUsage, match="column id of orders is masked"):
            tools.row("orders", key)


def test_a_key_may_be_a_value(lake: Lake) -> None:
    """A number or a text, if the key has one column."""

    async def script(_: ClientSession, ask: Ask) -> None:
        for tool in ("row", "blame"):
            by_column = await ask(tool, table="orders", key={"id": 1})
            assert by_column["found"]
            assert by_column == await ask(tool, table="orders", key=1) == await ask(tool, table="orders", key="1")
        assert [each["lsn"] for each in (await ask("log", table="orders", key=3))["found"]] == ["0/300", "0/200"]

    _session(lake, script)


def test_a_call_does_not_wait_for_a_slow_one(lake: Lake) -> None:
    """A call that the client gives up ends, so that as many as run at once keep no thread."""

    async def script(session: ClientSession, ask: Ask) -> None:
        refused: list[str] = []

        async def ask_endlessly() -> None:
            try:
                refused.append(await ask("sql", statement=_ENDLESS))
            except McpError as exc:
                refused.append(str(exc))

        for _ in range(2):
            first = session._request_id  # noqa: SLF001 - the client does not tell the numbers of its requests
            async with anyio.create_task_group() as calls:
                for _ in range(CALLS_AT_ONCE - 1):
                    calls.start_soon(ask_endlessly)
                await anyio.wait_all_tasks_blocked()
                assert (await ask("status"))["watermark"] == "0/300"
                for number in range(first, first + CALLS_AT_ONCE - 1):
                    given_up = CancelledNotificationParams(requestId=number)
                    notification = CancelledNotification(method="notifications/cancelled", params=given_up)
                    await session.send_notification(ClientNotification(notification))
        assert refused == ["Request cancelled"] * (2 * (CALLS_AT_ONCE - 1))

    _session_of_process(lake, script)


@pytest.mark.parametrize("tool", ["log", "sql"])
def test_a_call_that_takes_too_long_ends(lake: Lake, monkeypatch: pytest.MonkeyPatch, tool: str) -> None:
    """With its query in DuckDB: a question about rows, too."""
    ended: list[str] = []

    def endless(*_: object, **__: object) -> None:
        try:
            select(_ENDLESS, one=pa.table({"a": [1]}))
        except Cancelled as exc:
            ended.append(type(exc).__name__)
            raise

    monkeypatch.setattr(LakeApi, "log", endless)
    monkeypatch.setattr(mcp_server, "CALL_S", 0.2)

    async def script(_: ClientSession, ask: Ask) -> None:
        answer = await ask(tool, **({"statement": _ENDLESS} if tool == "sql" else {}))
        assert answer == "the answer takes longer than 0.2 s. Ask for less."

    _session(lake, script)
    await_true(lambda: ended == ["Cancelled"] or tool == "sql", 60)


@pytest.mark.parametrize("tool", ["rows", "row", "blame", "deleted"])
def test_a_damaged_file_is_no_bug(tmp_path: Path, tool: str) -> None:
    """Nor one that is missing; the error names it, as the command line does."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    for file in lake.history(ORDERS).glob("_part=*/*.parquet"):
        file.unlink()
    given: dict[str, Any] = {"table": "orders"} | ({"key": 1} if tool in {"row", "blame"} else {})

    async def script(_: ClientSession, ask: Ask) -> None:
        answer = await ask(tool, **given)
        assert re.search(r"a file of the lake is damaged: public\.orders, _part=.*: missing file", answer)

    _session(lake, script)


def test_arguments_mean_what_they_say(lake: Lake) -> None:
    """A text is a text, also if it is JSON; an argument that does not exist is refused; lists may come as JSON."""

    async def script(_: ClientSession, ask: Ask) -> None:
        for text in ("null", "[1]", "{}"):
            assert (await ask("log", actor=text))["found"] == []
        assert "not a moment: 'null'" in await ask("log", since="null")
        assert "the value for id is not a valid integer" in await ask("log", table="orders", key="null")
        refused = await ask("log", sicne="0/250")
        assert "sicne: Extra inputs are not permitted. The arguments of log are table, key," in refused
        listed = await ask("rows", table="orders", columns='["id"]', order_by='["-id"]')
        assert listed["found"][0] == {"id": "4"}
        assert "offset: Input should be a valid integer" in await ask("rows", table="orders", offset="zz")

    _session(lake, script)


def test_an_error_repeats_little_of_what_was_sent(lake: Lake) -> None:
    """Whatever quotes it: a long text is shortened in the middle."""
    long = "x" * 100_000

    async def script(_: ClientSession, ask: Ask) -> None:
        asked: list[tuple[str, dict[str, Any]]] = [
            (long, {}),
            ("log", {long: 1}),
            ("log", {"table": long}),
            ("rows", {"table": "orders", "where": [[long, "=", "1"]]}),
            ("rows", {"table": "orders", "where": [["id", "=", "1", "x"]] * 10_000}),
            ("diff", {"before": "now", "after": long}),
            ("sql", {"statement": f"select {long}"}),
            ("sql", {"statement": f"select {long}()", "dialect": "spark"}),
        ]
        for tool, given in asked:
            error = await ask(tool, **given)
            assert isinstance(error, str)
            assert len(error) < 10_000, error[:100]
        error = await ask("log", table=long)
        assert error.startswith("there is no table xx")
        assert re.search("x … 96,[0-9]{3} characters … x", error)
        assert "x in this lake. auditlake status lists" in error

    _session(lake, script)


def test_a_row_that_is_too_long_is_refused(lake: Lake) -> None:
    """Before its values are converted, which takes several times its memory."""
    tools = Tools(LakeApi(lake.root), AnswerLimits(10, characters=1_000))
    with pytest.raises(BadUsage, match="a row has more than 8,000 bytes"):
        tools.sql("select array_agg(g) as a from generate_series(1, 2000) g")
    with pytest.raises(NotAnswerable, match="the first entry has more than 1,000 characters"):
        tools.sql("select array_agg(g) as a from generate_series(1, 300) g")


def test_messages_of_the_client_are_not_repeated(lake: Lake) -> None:
    """On stderr, which is kept: neither those that are no messages, nor those with wrong parameters."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "zzname", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": ["zzwrong"]},
        {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "tools/call",
            "params": {"name": "zztool", "arguments": {"key": "zzkey"}},
        },
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {"zz": "zzcancelled"}}},
        {"jsonrpc": "2.0", "id": "zzanswer", "result": {"zz": "zzresult"}},
        {"zz": "zzobject"},
    ]
    command = [sys.executable, "-m", "auditlake", "mcp", "--lake", str(lake.root)]
    given = "".join(f"{json.dumps(line)}\n" for line in lines) + "{zzbroken\n"
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, f"auditlake: answering questions about {lake.root} on stdin\n")
