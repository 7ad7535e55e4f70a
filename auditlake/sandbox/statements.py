"""A process of statements: read the lake, prepare a statement, answer it in DuckDB, and say so in JSON.

It answers one statement after the other (`sandbox.processes` has the protocol), and ends with the process that started
it: on Linux by the kernel, else once a thread of Python may run, or by its alarm. Its connection is its standard input.
"""

import ctypes
import json
import os
import pickle
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC
from functools import partial
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from auditlake.audit.bounds import ANSWER_CHARACTERS, First, Room, first_batches, first_fitting
from auditlake.errors import BadUsage
from auditlake.lake.duckdb_rows import connect_for_statements
from auditlake.messages import as_known, noted, use_format
from auditlake.query.embedded.cells import NotEmbedded
from auditlake.query.formats import parts, plain_text, python_rows
from auditlake.query.in_duckdb import InDuckDb
from auditlake.query.languages import DEFAULT
from auditlake.query.postgres.engine import PostgresRows
from auditlake.query.postgres.statement import PostgresQuery
from auditlake.query.statement import LakeState, Log, PreparedQuery, read_state
from auditlake.sandbox.failures import Busy, failure
from auditlake.sandbox.processes import DATABASE_BYTES, ERRORS, HEAD, Answered, Setup, Statement
from auditlake.temporal.grants import Hidden
from auditlake.temporal.moments import Known

_TYPE_NAMES = {
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "bool": "boolean",
    "date32[day]": "date",
    "timestamp[us, tz=UTC]": "timestamp",
    "timestamp[us]": "timestamp_ntz",
}
_MOST_BYTES = 4 * ANSWER_CHARACTERS
"""Of a row in Arrow, in which a number may have more bytes than characters."""
_SET_DEATH_SIGNAL = 1
_EASIER_TO_KILL = "500"


def read_shown(statement: Statement, known: Known) -> Known:
    """Return what the reader sees of a state that may lack tables; raises Hidden if there is none in the lake."""
    if statement.grant.is_whole:
        return known
    # The server's state knows which tables share a name with others, this one their names now.
    return known.limited_to(statement.grant.seen(known) & statement.seen, statement.grant.takes)


def prepare_shown(engine: InDuckDb, state: LakeState, statement: Statement) -> tuple[PreparedQuery, list[str]]:
    """Prepare a statement; return it with the names of the tables that it reads.

    Raises BadUsage, NotAnswerable, Hidden.
    """
    query = engine.prepare(state, statement.sql, statement.dialect)
    tables = _require_seen(statement, query)
    if not statement.as_texts and query.defines is not None:
        raise BadUsage("a statement of the page cannot define a view", "Write the query itself.")
    if not statement.as_texts and query.sql.lstrip().lower().startswith("explain"):
        raise BadUsage("EXPLAIN shows files of the server, which this page does not", "Use auditlake sql.")
    return query, tables


def _require_seen(statement: Statement, query: PreparedQuery) -> list[str]:
    """Return the names of the tables that a statement reads.

    The lake's own tables are about every table of the source, so only a user who may see all reads them.

    Raises Hidden.
    """
    views = list(query.views.values())
    if any(isinstance(selection, Log) for _, selection in views):
        statement.grant.require_whole("the tables of auditlake itself are")
    if not statement.grant.is_whole and not {name for name, _ in views} <= statement.seen:
        raise Hidden("the statement reads a table that you may not see", "Ask who runs this server.")
    known = query.known.tables
    return sorted({str(known[name].last_name) if name in known else str(name) for name, _ in views})


def cache_key(query: PreparedQuery, sql: str) -> Hashable | None:
    """Return what an answer of DuckDB depends on; None if its statement reads a log, which has no version here.

    Relative times of a statement are other LSNs in each of its runs. DuckDB answers no statement with a function of the
    clock, of chance or of the session, but `now()` in PostgreSQL's dialect, of which the translation has the time;
    answers of Spark, which may have one, are not kept.
    """
    if any(isinstance(selection, Log) for _, selection in query.views.values()):
        return None
    read = ((name, selection, query.known.tables[name].delta_version) for name, selection in query.views.values())
    translated = query.translated.sql if isinstance(query, PostgresQuery) else None
    return ("sql", query.lsn, sql, translated, *read)


def as_texts(
    names: Sequence[str],
    types: Sequence[str] | None,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    most: Statement,
) -> Answered:
    """Return the first rows of an answer, every value as `auditlake sql --format csv` writes it.

    `types` are the names of its columns' types, by default those of Spark SQL.

    Raises NotAnswerable if the first row alone has more characters than an answer.
    """
    first = first_batches(batches, most.rows + 1)
    rows: list[list[str | None]] = []
    room = Room(most.characters)
    for row in _bounded(schema, first, room):
        texts = [None if value is None else plain_text(value) for value in row]
        if not room.takes(sum(len(text or "") for text in texts)):
            break
        rows.append(texts)
    room.require(rows, "the first row", "Ask for less, or use auditlake sql.")
    kinds = types or [_type_name(field.type) for field in schema]
    columns = [
        (name, kind, kind == "numeric" or _is_number(field.type))
        for name, kind, field in zip(names, kinds, schema, strict=True)
    ]
    return Answered(columns, rows[: most.rows], first.is_cut or room.is_cut or len(rows) > most.rows)


def _bounded(schema: pa.Schema, first: First, room: Room) -> Iterator[tuple[Any, ...]]:
    """Yield the rows up to one that cannot fit, whose values are not converted."""
    for part in chain.from_iterable(parts(batch, ANSWER_CHARACTERS) for batch in first.batches):
        if part.nbytes > _MOST_BYTES:
            room.takes(part.nbytes)
            return
        yield from python_rows(schema, [part])


def _type_name(kind: pa.DataType) -> str:
    """Return the name that Spark SQL has for an Arrow type."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _TYPE_NAMES.get(str(kind), str(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


class _Server:
    """The other end of the connection."""

    def __init__(self) -> None:
        self._socket = socket.socket(fileno=sys.stdin.fileno())

    def receive(self, wait_s: float | None = None) -> bytes:
        """Return the next message; end the process if there is none, or none in time."""
        self._socket.settimeout(wait_s)
        try:
            (size,) = HEAD.unpack(self._received(HEAD.size))
            self._socket.settimeout(None)
            return self._received(size)
        except TimeoutError:
            sys.exit(0)

    def _received(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            if not (part := self._socket.recv(size - len(found))):
                os._exit(1)
            found += part
        return bytes(found)

    def say(self, message: Mapping[str, object]) -> None:
        """Send a message."""
        text = json.dumps(message, ensure_ascii=False).encode(errors="surrogatepass")
        self._socket.sendall(HEAD.pack(len(text)) + text)

    def end_with_it(self) -> None:
        """End this process with that one: by the kernel where it can, which also ends one call of Python's.

        Linux ends it with the thread that started it, so that has to be one that lives as long as the server.
        """
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
            with suppress(OSError):
                Path("/proc/self/oom_score_adj").write_text(_EASIER_TO_KILL, encoding="ascii")
        threading.Thread(target=self._await_end, name="end", daemon=True).start()

    def _await_end(self) -> None:
        ended = select.poll()
        ended.register(self._socket, select.POLLHUP)
        ended.poll()
        os._exit(1)


class Responder:
    """The engine of one process."""

    def __init__(self, setup: Setup, server: _Server) -> None:
        self._lake, self._server = setup.lake, server
        self._engine = InDuckDb(setup.spark, connect_for_statements(setup.lake, DATABASE_BYTES).cursor, setup.masks)

    def warm(self) -> None:
        """Answer a statement, which registers the functions; what fails is reported by the first one that is asked."""
        with suppress(Exception):
            state = read_state(self._lake, None, UTC)
            self._found(state, self._engine.prepare(state, _FIRST.sql, _FIRST.dialect), _FIRST)

    def answer(self, statement: Statement) -> Mapping[str, object] | None:
        """Answer a statement, or say why not; None if the server has its answer already."""
        with noted() as notes:
            try:
                found = self._answer(statement)
            except NotEmbedded as reason:
                return {"spark": str(reason)}
            except Exception as exc:  # noqa: BLE001 - said to the server, without values of rows
                return self._problem(exc)
            return found and {**found, "notes": notes}

    def _answer(self, statement: Statement) -> Mapping[str, object] | None:
        shown = partial(read_shown, statement)
        state = read_state(self._lake, statement.at, statement.zone, script=statement.sql, shown=shown)
        query, tables = prepare_shown(self._engine, state, statement)
        key = cache_key(query, statement.sql)
        self._server.say({"lsn": int(state.lsn), "tables": tables, "key": None if key is None else _hashed(key)})
        if not self._server.receive():
            return None
        return asdict(self._found(state, query, statement))

    def _found(self, state: LakeState, query: PreparedQuery, statement: Statement) -> Answered:
        rows = self._engine.answer(state, query)
        if statement.as_texts:
            texts = map(list, rows.texts(8 * statement.characters))
            found, more = first_fitting(texts, statement.rows, statement.characters)
            return Answered([(name, "", False) for name in rows.columns], found, more)
        schema, batches = rows.batches()
        return as_texts(
            rows.columns, rows.types if isinstance(rows, PostgresRows) else None, schema, batches, statement
        )

    def _problem(self, exc: Exception) -> Mapping[str, object]:
        """Return what the server may know of an exception, whose own text may have values of rows."""
        from auditlake.verify.damage import damage_behind  # noqa: PLC0415 - only after a failure

        found = failure(exc)
        if not isinstance(found, Busy):
            found = damage_behind(exc, self._lake) or found or as_known(exc)
        if found is None:
            return {"bug": type(exc).__name__, "place": "".join(traceback.format_tb(exc.__traceback__)).rstrip()}
        kind = next(each.__name__ for each in type(found).__mro__ if each.__name__ in ERRORS)
        return {"error": kind, "message": found.message, "hint": found.hint}


def _hashed(key: Hashable) -> str:
    return blake2b(repr(key).encode(errors="surrogatepass")).hexdigest()


_FIRST = Statement("select 1", None, UTC, DEFAULT, 1, 1, 0)


def main() -> None:
    """Answer the statements of the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    server = _Server()
    server.end_with_it()
    setup: Setup = pickle.loads(server.receive())  # noqa: S301 - from our own parent
    use_format("json" if setup.json_messages else "text")
    answers = Responder(setup, server)
    answers.warm()
    server.say({"ready": True})
    while True:
        statement: Statement = pickle.loads(server.receive(setup.idle_s))  # noqa: S301 - as above
        signal.setitimer(signal.ITIMER_REAL, statement.most_s)
        if (found := answers.answer(statement)) is not None:
            server.say(found)
        signal.setitimer(signal.ITIMER_REAL, 0)
