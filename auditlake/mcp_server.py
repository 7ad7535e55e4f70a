"""MCP server: the audit questions as read-only tools for a language model, over stdio.

Every tool is a question of `api.lake.Lake`, answered with the models of `audit.json_output`. An answer has at most
`rows` entries, and not more than `characters` in them (`audit.bounds`); `more` is true if there are others. One entry
that is longer is refused. Values of masked columns (`audit.masked_columns`) are replaced wherever they would appear,
NULL too, and a question that filters or sorts by one, or names a row by one, is refused, because its answer would
reveal it. Actor and reason are shown as the application wrote them.

`sql` answers in DuckDB, without a JVM, in a process of its own (`sandbox`): in PostgreSQL's dialect, or what means in
DuckDB the same as in Spark. It refuses a statement that reads a masked column anywhere, `*` included, and
`auditlake.changes` if a column is masked: DuckDB gets no text of the statement, only its translation, in which all
columns are known.

A call runs in a thread, `CALLS_AT_ONCE` at the same time. One that takes longer than `CALL_S`, waiting included, or
that the client gives up, is cancelled (`cancellation`); its thread is free once it has ended.

What is not known beside an answer, because it has expired or was erased, is in its `notes`: messages of the command
line. Errors are those of the command line, with their hint. An unexpected exception is reported by its type only: its
message might quote a row. stdout is the protocol's; messages go to stderr, but not those of the SDK, which quote what a
client sends.

Authority: modelcontextprotocol.io/specification, "Tools"
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from itertools import chain
from typing import Any, Generic, NotRequired, TypeVar

import anyio
from anyio import BrokenResourceError, ClosedResourceError
from mcp.server.fastmcp.utilities.func_metadata import ArgModelBase, func_metadata
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequest,
    CallToolResult,
    ListToolsRequest,
    ListToolsResult,
    ServerResult,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import StrictInt, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from auditlake.api.lake import Lake, Rows, opened
from auditlake.audit import json_output as objects
from auditlake.audit.bounds import first_fitting
from auditlake.audit.lake_reader import Reader
from auditlake.audit.masked_columns import MaskedColumns, masked_columns
from auditlake.audit.queries import DiffQuestion
from auditlake.audit.row_key import as_written, by_column, is_value
from auditlake.audit.transactions import Transaction
from auditlake.cancellation import Cancellation
from auditlake.errors import BadUsage, ConfigError
from auditlake.messages import as_known, is_json, noted
from auditlake.query.embedded.cells import NotEmbedded
from auditlake.query.languages import DEFAULT, Dialect
from auditlake.relation import TableName
from auditlake.sandbox.processes import Processes, Setup, Statement
from auditlake.status import judge
from auditlake.temporal.when import format_us
from auditlake.values.escapes import visible
from auditlake.values.strict_json import decode_json
from auditlake.verify.damage import damage_behind

CALL_S = 30.0
_GRACE_S = 10.0
CALLS_AT_ONCE = 4
CHARACTERS = 2**20
"""More than a language model takes; a value of PostgreSQL has up to 1 GB."""
_INSTRUCTIONS = """The history of a PostgreSQL database: every version of every row, who changed it and why.
To learn why a value is what it is, call blame with table and key; row lists all changes of a row; deleted finds rows
that are gone; diff compares two moments; rows reads a table as of a moment; sql joins and counts across tables and
moments; log lists transactions. A key is a value, 7, several in the order of the key, [7, 2], or an object from column
to value, {"id": 7}. Moments are ISO times, -2h, LSNs such as 0/16B3748, xid:750 or now. Answers are exact; a question
without an exact answer is an error that says why."""
T = TypeVar("T")
Entry = TypeVar("Entry")
Key = dict[str, Any] | list[Any] | StrictInt | str
"""A key by column, or its values in the order of the key; of a key with one column, its value alone."""
_AS_SENT = (str, str | None, Key, Key | None)


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """At most `rows` entries in an answer, and so many `characters`.

    `masked` are patterns of schema.table.column (`audit.masked_columns`).
    """

    rows: int
    masked: tuple[str, ...] = ()
    characters: int = CHARACTERS

    def cut(self, entries: Iterable[Entry]) -> "Bounded[Entry]":
        """Return the first entries, and whether there are more; raises NotAnswerable if the first one is too long."""
        found, more = first_fitting(entries, self.rows, self.characters)
        return {"found": found, "more": more}


class ToolAnswer(TypedDict):
    """An answer; `notes` say what is not known beside it, because it has expired, was erased, or is in a gap."""

    notes: NotRequired[list[str]]


class Bounded(ToolAnswer, Generic[Entry]):
    """The first entries, and whether there are more."""

    found: list[Entry]
    more: bool


class RowAnswer(ToolAnswer):
    """The first events of a row, whether there are more, and the `gaps` in which its changes are unknown."""

    found: list[objects.EventJson]
    more: bool
    gaps: list[objects.GapJson]


class SqlAnswer(ToolAnswer):
    """The first rows of a statement, whether there are more, the LSN of its moment, and whose SQL was read."""

    found: list[list[str | None]]
    more: bool
    columns: list[str]
    lsn: str
    dialect: Dialect


class TableJson(TypedDict):
    """A table, known from an LSN on; `parked` is the reason if it is not followed."""

    table: str
    columns: list[str]
    key: list[str]
    known_from: str
    parked: str | None


class StatusJson(ToolAnswer):
    """How current the lake is."""

    verdict: str
    watermark: str | None
    known_up_to: str | None
    tables: int


class Tools:
    """The tools, with the lake and the limits of the server; `dialect` is that of statements that name none."""

    def __init__(self, lake: Lake, limits: AnswerLimits, dialect: Dialect = DEFAULT) -> None:
        self._lake = lake
        self._limits = limits
        self._dialect = dialect
        self._processes = Processes(
            lambda lake: Setup(lake, masks=limits.masked, json_messages=is_json()), CALLS_AT_ONCE, CALLS_AT_ONCE
        )

    def tables(self) -> Bounded[TableJson]:
        """List the tables with their columns, key and the LSN from which on they are known."""
        return self._limits.cut(
            TableJson(
                table=each.name,
                columns=list(each.columns),
                key=list(each.key),
                known_from=str(each.horizon),
                parked=each.parked,
            )
            for each in self._lake.tables()
        )

    def log(  # noqa: PLR0913, PLR0917 - the arguments of a tool
        self,
        table: str | None = None,
        key: Key | None = None,
        column: str | None = None,
        actor: str | None = None,
        reason: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Bounded[objects.TransactionJson]:
        """List transactions, newest first: when, who, why, which tables, how many changes.

        Filters: a table, a row of it by key, a column of it whose value changed, the actor, a part of the reason.
        """
        of_row = None if key is None or table is None else self._key(table, key, until)

        def question() -> Iterable[Transaction]:
            return self._lake.log(
                table=table,
                key=key if of_row is None else of_row,
                column=column,
                actor=actor,
                reason=reason,
                since=since,
                until=until,
                limit=self._limits.rows + 1,
            )

        if table is None:
            return self._limits.cut(map(objects.transaction_json, question()))
        asked = [*(of_row or ()), *([column] if column else [])]
        found, _ = self._asked(table, asked, question)
        return self._limits.cut(map(objects.transaction_json, found))

    def row(self, table: str, key: Key, since: str | None = None, until: str | None = None) -> RowAnswer:
        """Show the history of one row, newest first: what changed, when, who changed it and why."""
        of_row = self._key(table, key, until)
        found, masked = self._asked(table, of_row, lambda: self._lake.row(table, of_row, since=since, until=until))
        answer = self._limits.cut(objects.event_json(each, masked) for each in found)
        return {**answer, "gaps": list(map(objects.gap_json, found.gaps))}

    def blame(self, table: str, key: Key, as_of: str | None = None) -> Bounded[objects.BlameJson]:
        """Show for each column of a row its value, and who set it, when and why; for a deleted row, who deleted it."""
        of_row = self._key(table, key, as_of)
        found, masked = self._asked(table, of_row, lambda: self._lake.blame(table, of_row, as_of=as_of))
        return self._limits.cut(objects.blame_json(each, masked) for each in found)

    def deleted(self, table: str, since: str | None = None, as_of: str | None = None) -> Bounded[objects.DeletedJson]:
        """List deleted rows of a table with their last state, newest deletion first, and who deleted them."""
        found, masked = self._asked(table, (), lambda: self._lake.deleted(table, since=since, as_of=as_of))
        return self._limits.cut(objects.deleted_json(each, masked) for each in found)

    def diff(
        self, before: str, after: str = "now", tables: list[str] | None = None
    ) -> Bounded[objects.DifferenceJson | objects.SchemaChangeJson]:
        """Compare two moments, net: columns that differ, rows removed, modified and added, and their values."""
        reader = Reader(opened(self._lake), datetime.now(UTC))
        compared = DiffQuestion(before, after, tuple(tables or ()), reverse=False).diffs(reader)
        differing = (objects.differences_json(table, self._masked_in(reader, table.table.name)) for table in compared)
        return self._limits.cut(chain.from_iterable(differing))

    def rows(  # noqa: PLR0913, PLR0917 - the arguments of a tool
        self,
        table: str,
        as_of: str | None = None,
        columns: list[str] | None = None,
        where: list[tuple[str, str, str | None]] | None = None,
        order_by: list[str] | None = None,
        offset: int = 0,
    ) -> Bounded[objects.Texts]:
        """Read a table as of a moment, now by default.

        `where` are conditions [column, op, value], all of which must hold; op is =, <>, <, <=, >, >=, contains,
        begins with, is null or is not null. `order_by` are columns, -name descending. Read on with `offset`.
        """
        hidden = self._masked(table).hidden  # also of a column whose name begins with the sign
        sorted_by = [each if each in hidden else each.removeprefix("-") for each in order_by or ()]
        asked = [*(each[0] for each in where or ()), *sorted_by]

        def question() -> Rows:
            return self._lake.as_of(as_of).table(
                table,
                columns=columns,
                where=[(column, op, value) for column, op, value in where or ()],
                order_by=order_by or (),
                limit=self._limits.rows + 1,
                offset=offset,
            )

        found, masked = self._asked(table, asked, question)
        return self._limits.cut(objects.row_json(each, masked) for each in found.texts())

    def sql(self, statement: str, as_of: str | None = None, dialect: Dialect | None = None) -> SqlAnswer:
        """Answer one SELECT, all tables as of a moment, now by default.

        `dialect` is postgres, for PostgreSQL's SQL, or spark; the answer names the one that was read.
        `from orders for system_time as of '-2h'` reads one table at another moment, `for system_time all` every version
        with _from_lsn, _to_lsn, _from_time, _to_time, _op; auditlake.transactions has time, xid, context by lsn. Give
        computed columns a name with AS. Values are PostgreSQL's texts.
        """
        read = dialect or self._dialect
        limits = self._limits
        asked = Statement(statement, as_of, UTC, read, limits.rows, limits.characters, CALL_S + _GRACE_S, as_texts=True)
        try:
            prepared, answer = self._processes.answer(None, opened(self._lake), asked, lambda _: None)
        except NotEmbedded as reason:
            raise reason.refusal("Write it in simpler SQL.") from None
        names = [name for name, *_ in answer.columns]
        return {"found": answer.rows, "more": answer.more, "columns": names, "lsn": str(prepared.lsn), "dialect": read}

    def status(self) -> StatusJson:
        """Report how current the lake is, and whether something is wrong with it."""
        status = self._lake.status()
        verdict = judge(status)
        positions = status.positions
        return {
            "verdict": verdict.sentence,
            "watermark": None if positions is None else str(positions.watermark),
            "known_up_to": None if positions is None or not positions.current_us else format_us(positions.current_us),
            "tables": len(status.tables),
        }

    def _key(self, table: str, key: Key, when: str | None) -> dict[str, str]:
        """Return a key by the columns that it has at a moment: the question depends on these, and on no others.

        Raises BadUsage if it has others, or if a text may be a value of it, or a list or an object sent as a text.
        """
        reader = Reader(opened(self._lake), datetime.now(UTC))
        keyed = reader.keyed_table(table, reader.moment(when))
        columns = keyed.key
        parsed = _sent_as_text(key) if isinstance(key, str) else None
        if parsed is not None and len(columns) == 1 and is_value(columns[0], str(key)):
            raise BadUsage(
                f"the key is a text that may be one value of {table}.{columns[0].name}, or a list or object of values",
                'Send one value as a list of one text, ["…"], or, if it is no JSON, alone.',
            )
        given = key if parsed is None else parsed
        if isinstance(given, dict):
            _require_shown(table, self._masked(table), list(given))
        return by_column(keyed, as_written(given))

    def _masked(self, table: str) -> MaskedColumns:
        """Return the masked columns of the tables that a name means or meant."""
        reader = Reader(opened(self._lake), datetime.now(UTC))
        return self._masked_in(reader, reader.named(table))

    def _masked_in(self, reader: Reader, table: TableName) -> MaskedColumns:
        return masked_columns(reader, reader.known.had(table), self._limits.masked)

    def _asked(self, table: str, columns: Iterable[str], question: Callable[[], T]) -> tuple[T, MaskedColumns]:
        """Ask a question that depends on some columns of a table; return its answer with the masked columns.

        They are read again after the answer: a change of the table may be captured meanwhile.

        Raises BadUsage if the question depends on a masked column.
        """
        asked = list(columns)
        _require_shown(table, self._masked(table), asked)
        answer = question()
        masked = self._masked(table)
        _require_shown(table, masked, asked)
        return answer, masked


def _require_shown(table: str, masked: MaskedColumns, columns: Sequence[str]) -> None:
    """Require that a question does not depend on masked columns; raises BadUsage."""
    hidden = [column for column in columns if masked.hides(column)]
    if any(column in masked.hidden for column in hidden):
        raise BadUsage(f"column {hidden[0]} of {table} is masked", "Ask without it.")
    if hidden:
        raise BadUsage(f"{table} has no column {hidden[0]}", f"It has {', '.join(sorted(masked.shown))}.")


@dataclass(frozen=True, slots=True)
class _Offered:
    """A tool as clients see it, with the model of its arguments, and the type of its answer."""

    tool: Callable[..., objects.Fields]
    arguments: type[ArgModelBase]
    answer: TypeAdapter[objects.Fields]

    @classmethod
    def of(cls, tool: Callable[..., objects.Fields]) -> "_Offered":
        """Describe a method of `Tools`; its arguments are those of the method, and no others."""
        known = func_metadata(tool, structured_output=False).arg_model
        arguments = type(known.__name__, (known,), {"__module__": __name__}, extra="forbid")
        return cls(tool, arguments, TypeAdapter(tool.__annotations__["return"]))

    @property
    def described(self) -> Tool:
        return Tool(
            name=self.tool.__name__,
            description=self.tool.__doc__,
            inputSchema=self.arguments.model_json_schema(),
            outputSchema=self.answer.json_schema(mode="serialization"),
            annotations=ToolAnnotations(readOnlyHint=True, destructiveHint=False, openWorldHint=False),
        )

    def call(self, given: Mapping[str, object]) -> objects.Fields:
        """Call it; raises BadUsage, which does not repeat the values that were given."""
        try:
            read = self.arguments.model_validate({name: self._read(name, value) for name, value in given.items()})
        except ValidationError as exc:
            problems = exc.errors(include_url=False, include_input=False, include_context=False)
            texts = (f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in problems)
            names = ", ".join(self.arguments.model_fields) or "none"
            raise BadUsage("; ".join(texts), f"The arguments of {self.tool.__name__} are {names}.") from None
        return self.tool(**read.model_dump_one_level())

    def _read(self, name: str, value: object) -> object:
        """Return an argument; some clients send lists and objects as JSON in a text."""
        field = self.arguments.model_fields.get(name)
        if field is None or field.annotation in _AS_SENT or not isinstance(value, str):
            return value
        parsed = _sent_as_text(value)
        return value if parsed is None else parsed


def _sent_as_text(value: str) -> list[Any] | dict[str, Any] | None:
    """Return the list or object that a text is in JSON; None if it is none."""
    try:
        parsed = decode_json(value)
    except ValueError:
        return None
    return parsed if isinstance(parsed, list | dict) else None


async def _answer(lake: Lake, question: Callable[[], objects.Fields], threads: ThreadPoolExecutor) -> CallToolResult:
    """Answer in one of the threads, for `CALL_S` at most."""
    cancellation = Cancellation()
    try:
        async with asyncio.timeout(CALL_S):
            call = partial(_call, lake, question, cancellation)
            return await asyncio.get_running_loop().run_in_executor(threads, call)
    except TimeoutError:
        return _failed(f"the answer takes longer than {CALL_S:g} s. Ask for less.")
    finally:
        cancellation.cancel()


def _call(lake: Lake, question: Callable[[], objects.Fields], cancellation: Cancellation) -> CallToolResult:
    """Turn errors into those of the protocol; add what the command line says beside the answer."""
    try:
        with cancellation.work(), noted() as notes:
            found = question()
    except Exception as exc:  # noqa: BLE001 - as the command line reports errors and bugs
        known = damage_behind(exc, opened(lake)) or as_known(exc)
        if known is None:
            return _failed(f"a bug in auditlake: {type(exc).__name__}")
        return _failed(f"{known.message}. {known.hint or ''}".strip())
    answer = {**found, "notes": notes} if notes else dict(found)
    text = objects.seen(json.dumps(answer, ensure_ascii=False, indent=2))
    return CallToolResult(content=[TextContent(type="text", text=text)], structuredContent=answer)


def _failed(why: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=visible(why))], isError=True)


def serve_stdio(server: Server) -> None:
    """Serve on stdin and stdout until the client ends, also while it is answered."""
    logging.disable()  # the SDK quotes what a client sends

    async def run() -> None:
        async with stdio_server() as (reads, writes):
            await server.run(reads, writes, server.create_initialization_options())

    try:
        anyio.run(run)
    except* (BrokenPipeError, ClosedResourceError, BrokenResourceError):
        pass  # the client has ended


def make_server(lake: Lake, limits: AnswerLimits, dialect: Dialect = DEFAULT) -> Server:
    """Return a lake's server; raises ConfigError if a pattern matches no column: a misspelt one masks nothing."""
    reader = Reader(opened(lake), datetime.now(UTC))
    for pattern in limits.masked:
        if not masked_columns(reader, reader.known.tables.values(), (pattern,)).hidden:
            raise ConfigError(f"mask {pattern!r} matches no column of the lake", "Write schema.table.column.")
    threads = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="call")
    tools = Tools(lake, limits, dialect)
    listed: Sequence[Callable[..., objects.Fields]] = (
        tools.tables,
        tools.log,
        tools.row,
        tools.blame,
        tools.deleted,
        tools.diff,
        tools.rows,
        tools.sql,
        tools.status,
    )
    offered = {tool.__name__: _Offered.of(tool) for tool in listed}
    server: Server = Server("auditlake", version("auditlake"), _INSTRUCTIONS)

    async def describe(_: ListToolsRequest) -> ServerResult:
        return ServerResult(ListToolsResult(tools=[each.described for each in offered.values()]))

    async def call(request: CallToolRequest) -> ServerResult:
        name, given = request.params.name, request.params.arguments or {}

        def question() -> objects.Fields:
            if name not in offered:
                raise BadUsage(f"there is no tool {name}", f"The tools are {', '.join(offered)}.")
            return offered[name].call(given)

        return ServerResult(await _answer(lake, question, threads))

    server.request_handlers |= {ListToolsRequest: describe, CallToolRequest: call}
    return server
