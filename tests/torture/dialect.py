"""PostgreSQL's own tests as statements of PostgreSQL's dialect: the lake's answers compared with PostgreSQL's.

    python -m tests.torture.dialect --sql POSTGRES/src/test/regress/sql [--files select,join] [--report FILE]

The source tree of PostgreSQL is not part of this repository; any major version will do.

1. Each file gets a database with the locale of the dialect. Its statements that define or change something are run
   before any query, with TEMPORARY tables as plain ones and no transaction; rows of the tables that are loaded from
   files (`tenk1`, `onek`) are generated. Tables that inherit are dropped; views and functions are no part of a lake.
2. All rows go through `capture` and `apply`. PostgreSQL answers every query of the file; then rows of every table are
   deleted, doubled and updated, captured but not applied, and PostgreSQL answers again.
3. The lake answers each query as of both moments. An answer counts as exact if names and texts are equal. It is not
   determined if PostgreSQL itself gives another one with other plans, or with its rows in another order.

Exit code 0 if no answer is wrong.
"""

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from threading import Timer
from typing import Any, NoReturn

import psycopg
from duckdb import DuckDBPyConnection

from auditlake.apply.apply import apply_pending
from auditlake.errors import AuditlakeError, BadUsage, NotAnswerable
from auditlake.lake.duckdb_rows import connect_for_statements
from auditlake.lake.layout import Lake
from auditlake.query.duckdb_views import StatementDatabase
from auditlake.query.postgres.engine import PostgresEngines
from auditlake.query.postgres.statement import prepare_query
from auditlake.query.statement import LakeState, read_state
from auditlake.sql_names import standard_identifier
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.postgres_dialect import answer_of_postgresql, create_database, in_any_order, is_ordered
from tests.server import Server, chosen_version

FILES = ("select", "join", "aggregates", "window", "subselect", "with", "union", "case")
_SCHEMA_FILE = "test_setup"
_QUERY = re.compile(r"\(*\s*(select|with|values|table)\b", re.IGNORECASE)
_CHANGES = re.compile(
    r"\b(insert\s+into|update\s+\w+\s+set|delete\s+from|merge\s+into|for\s+update|into\s+temp)\b", re.IGNORECASE
)
_NOT_RUN = re.compile(
    r"(drop|explain|begin|start|commit|rollback|abort|end|savepoint|release|set|reset|prepare|execute|deallocate|declare|"
    r"fetch|close|move|truncate|grant|copy|vacuum|create\s+tablespace)\b",
    re.IGNORECASE,
)
_TEMPORARY = re.compile(r"\bcreate\s+(local\s+)?temp(orary)?\b", re.IGNORECASE)
_TOKEN = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"[^\"]*\"|\$(\w*)\$.*?\$\1\$|;|\n\\[^\n]*", re.DOTALL)
_ROWS = """
insert into {table} select a, b, a % 2, a % 4, a % 10, a % 20, a % 100, a % 1000, a % 2000, a % 5000, a,
  a % 100 * 2 + 1, a % 100 * 2, chr(65 + a % 26) || chr(65 + a / 26 % 26) || chr(65 + a / 676 % 26) || 'AAA',
  chr(65 + b % 26) || chr(65 + b / 26 % 26) || chr(65 + b / 676 % 26) || 'AAA',
  (array['AAAAxx', 'HHHHxx', 'OOOOxx', 'VVVVxx'])[1 + b % 4]
  from (select n * 7919 % {rows} as a, n as b from generate_series(0, {rows} - 1) n) r
"""
_LIMIT_S = 10
_COMPUTED = ("timeout", "division by zero")
"""Errors of PostgreSQL that depend on its plan: it folds constants that no row needs."""
_OF_PEERS = re.compile(
    r"select null, 42\s+union all select null, 43\).*last_value|last_value.*union all select null, 43\)", re.DOTALL
)
"""First and last values of rows of equal rank that are no rows of a table, so that no other plan shows their order."""
_SESSION = "reset all; set timezone = 'UTC'; set statement_timeout = '5s'; set session_replication_role = replica"
_SHUFFLED = 5
_PLANS = (
    *(f"set search_path = shuffled{n}, public" for n in range(_SHUFFLED)),
    "set enable_hashjoin = off; set enable_mergejoin = off; set enable_hashagg = off",
    "set search_path = shuffled0, public; set enable_nestloop = off; set enable_seqscan = off; set enable_sort = off",
    "set enable_mergejoin = off; set enable_seqscan = on; set enable_indexscan = off; set enable_bitmapscan = off",
)


@dataclass
class Verdicts:
    """What became of the queries, with the statement of each."""

    counts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)


def statements(text: str) -> Iterator[str]:
    """Split a file of psql, without its own commands and its comments."""
    part = ""
    start = 0
    for found in _TOKEN.finditer("\n" + text):
        part += ("\n" + text)[start : found.start()]
        start = found.end()
        if found[0] == ";":
            if part.strip():
                yield part.strip()
            part = ""
        elif found[0].startswith(("--", "/*")):
            part += " "
        elif not found[0].startswith("\n\\"):
            part += found[0]


def queries(texts: list[str]) -> list[str]:
    """Return the queries that change nothing."""
    return [each for each in texts if _QUERY.match(each) and not _CHANGES.search(each)]


def _build(conn: "psycopg.Connection[Any]", texts: list[str]) -> None:
    for text in texts:
        if _NOT_RUN.match(text) or (_QUERY.match(text) and not _CHANGES.search(text)):
            continue
        with suppress(psycopg.Error):
            conn.execute(_TEMPORARY.sub("create", text).encode())


_TABLES = """
select c.relname, exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary) from pg_class c
 where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace order by 1
"""
_UNFOLLOWED = """
select format('drop table if exists %s cascade', c.oid::regclass) from pg_class c
 where c.relnamespace = 'public'::regnamespace and (c.relkind = 'p' or c.relkind = 'r' and (c.relispartition
   or exists (select from pg_inherits where c.oid in (inhrelid, inhparent)) or c.relpersistence <> 'p'))
"""


def _followed(conn: "psycopg.Connection[Any]", dsn: str, folder: Path) -> Lake:
    for (drop,) in conn.execute(_UNFOLLOWED).fetchall():
        conn.execute(drop.encode())
    tables = [str(name) for name, _ in conn.execute(_TABLES).fetchall()]
    rows = {}
    for name, keyed in conn.execute(_TABLES).fetchall():
        with conn.cursor().copy(f'copy "{name}" to stdout'.encode()) as copy:
            rows[name] = b"".join(map(bytes, copy))
        conn.execute(f'alter table "{name}" replica identity {"default" if keyed else "full"}'.encode())
        conn.execute(f'alter table "{name}" disable trigger user'.encode())
    listed = ", ".join(map(standard_identifier, tables))
    conn.execute(f"truncate {listed} cascade".encode())
    lake = make_lake(dsn, folder, name=f"of_{folder.name}")
    conn.execute(b"set session_replication_role = replica")
    for name, text in rows.items():
        with conn.cursor().copy(f'copy "{name}" from stdin'.encode()) as copy:
            copy.write(text)
    return lake


def _change(conn: "psycopg.Connection[Any]") -> None:
    """Delete, double and update rows of every table."""
    for name, keyed in conn.execute(_TABLES).fetchall():
        with suppress(psycopg.Error):  # its key is deferrable
            conn.execute(f"delete from \"{name}\" where ctid::text ~ '[37]\\)$'".encode())
        if not keyed:
            with suppress(psycopg.Error):
                conn.execute(f'insert into "{name}" select * from "{name}" where ctid::text ~ \'[2]\\)$\''.encode())
        for (column,) in conn.execute(
            "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and atttypid in (20, 23)"
            " and not attisdropped",
            (f'"{name}"',),
        ).fetchall()[-1:]:
            with suppress(psycopg.Error):
                conn.execute(
                    f'update "{name}" set "{column}" = "{column}" - 1 where ctid::text ~ \'[15]\\)$\''.encode()
                )


def _shuffle(conn: "psycopg.Connection[Any]") -> None:
    """Copy every table into other schemas, with its rows in other orders."""
    tables = conn.execute(_TABLES).fetchall()
    for schema in (f"shuffled{n}" for n in range(_SHUFFLED)):
        conn.execute(f"drop schema if exists {schema} cascade; create schema {schema}".encode())
        for name, _ in tables:
            conn.execute(f'create table {schema}."{name}" as select * from public."{name}" order by random()'.encode())


def _without_spark() -> NoReturn:
    raise AssertionError("Spark was started")


class Expected:
    """PostgreSQL's answer to a query, and those that it gives with other plans, which are asked for if need be."""

    def __init__(self, conn: "psycopg.Connection[Any]", sql: str) -> None:
        self.conn: psycopg.Connection[Any] | None = conn
        self.sql = sql
        self.answer = answer_of_postgresql(conn, sql)
        self._others: list[Any] = []

    def others(self) -> list[Any]:
        """Return the answers of other plans."""
        if self.conn is not None and not self._others:
            for plans in _PLANS:
                self.conn.execute(plans.encode())
                self._others.append(answer_of_postgresql(self.conn, self.sql))
                self.conn.execute(_SESSION.encode())
        return [each for each in self._others if not isinstance(each, str)]


class Campaign:
    """One file, in a database and a lake of its own."""

    def __init__(self, dsn: str, folder: Path, setup: list[str], texts: list[str], verdicts: Verdicts) -> None:
        self._dsn = dsn
        self._verdicts = verdicts
        self._cursor: DuckDBPyConnection | None = None
        with psycopg.connect(dsn, autocommit=True, options="-c timezone=UTC -c statement_timeout=5s") as conn:
            _build(conn, setup)
            for table, rows in (("onek", 1000), ("tenk1", 10000), ("onek2", 1000), ("tenk2", 10000)):
                conn.execute(_ROWS.format(table=table, rows=rows).encode())
            _build(conn, texts)
            lake = _followed(conn, dsn, folder)
            root = connect_for_statements(lake)

            def opened() -> DuckDBPyConnection:
                self._cursor = root.cursor()
                return self._cursor

            self._engine = PostgresEngines(StatementDatabase(opened))
            capture(dsn, lake)
            apply_pending(_without_spark, lake)
            asked = queries(texts)
            conn.execute(b"analyze")
            _shuffle(conn)
            first = read_state(lake, None, UTC)
            answers = [Expected(conn, sql) for sql in asked]
            self._ask_all(first, answers)
            for each in answers:
                each.conn = None  # other plans would read other rows from now on
            _change(conn)
            _shuffle(conn)
            capture(dsn, lake)
            self._ask_all(read_state(lake, str(first.lsn), UTC), answers)
            self._ask_all(read_state(lake, None, UTC), [Expected(conn, sql) for sql in asked])

    def _ask_all(self, state: LakeState, answers: list[Expected]) -> None:
        for expected in answers:
            self._judge(state, expected)

    def _judge(self, state: LakeState, expected: Expected) -> None:
        verdict, detail = self._verdict(state, expected)
        sql = expected.sql
        self._verdicts.counts[verdict] += 1
        if verdict in {"wrong", "refused as wrong"}:
            self._verdicts.wrong.append(f"{verdict} as of {state.lsn}: {sql}\n    {detail}")
        if verdict == "refused":
            self._verdicts.refusals[re.sub(r" at line \d+, column \d+|\d+", "", detail)] += 1
            self._verdicts.refused.append((detail, sql))

    def _verdict(  # noqa: C901, PLR0911 - one verdict after the other
        self, state: LakeState, asked: Expected
    ) -> tuple[str, str]:
        expected, sql = asked.answer, asked.sql
        try:
            found: Any = self._ask(state, sql)
        except NotAnswerable as exc:
            return ("failed in both" if isinstance(expected, str) else "refused"), exc.message
        except AuditlakeError as exc:
            if isinstance(expected, str):
                return "failed in both", exc.message
            known = isinstance(exc, BadUsage) and ("there is no table" in exc.message)
            return ("refused" if known else "refused as wrong"), f"{exc.message} ({exc.hint})"
        except Exception as exc:  # noqa: BLE001 - a bug is what is looked for
            return "wrong", f"{type(exc).__name__}: {exc}"
        if isinstance(expected, str):
            return (
                "not determined" if any(each in expected for each in _COMPUTED) else "wrong"
            ), f"PostgreSQL: {expected}; {found[1][:3]}"
        if found == expected or (not is_ordered(sql) and in_any_order(found) == in_any_order(expected)):
            return "exact", ""
        if any(in_any_order(each) != in_any_order(expected) for each in asked.others()):
            return "not determined", ""
        if in_any_order(found) == in_any_order(expected) and any(each != expected for each in asked.others()):
            return "not determined", ""
        if _OF_PEERS.search(sql):
            return "not determined", ""
        return "wrong", f"{found[0]} {found[1][:4]}; PostgreSQL: {expected[0]} {expected[1][:4]}"

    def _ask(self, state: LakeState, sql: str) -> Any:
        query = prepare_query(state, sql)
        timer = Timer(_LIMIT_S, lambda: self._cursor.interrupt() if self._cursor else None)
        timer.start()
        try:
            rows = self._engine.rows(state, query)
            return rows.columns, list(rows.texts())
        finally:
            timer.cancel()


def _run(given: argparse.Namespace, folder: Path, server: Server) -> Verdicts:
    """Run the files, and print what was found in each."""
    setup = list(statements((given.sql / f"{_SCHEMA_FILE}.sql").read_text()))
    total = Verdicts()
    for name in given.files.split(","):
        base = server.create_database()
        create_database(server.dsn(base), f"of_{name}")
        verdicts = Verdicts()
        texts = list(statements((given.sql / f"{name}.sql").read_text()))
        Campaign(server.dsn(f"of_{name}"), folder / name, setup, texts, verdicts)
        print(name, dict(verdicts.counts), *verdicts.wrong, sep="\n  ", flush=True)  # noqa: T201 - its report
        total.counts += verdicts.counts
        total.refusals += verdicts.refusals
        total.wrong += verdicts.wrong
        total.refused += verdicts.refused
    return total


def main() -> int:
    """Run the files; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sql", type=Path, required=True, help="src/test/regress/sql of PostgreSQL")
    parser.add_argument("--files", default=",".join(FILES))
    parser.add_argument("--report", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="auditlake-dialect-") as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)  # the server runs as another user
        with Server(chosen_version(), folder / "server") as server:
            total = _run(given, folder, server)
    print("all", dict(total.counts))  # noqa: T201 - its report
    for reason, count in total.refusals.most_common(60):
        print(f"  {count:4} {reason}")  # noqa: T201 - its report
    if given.report is not None:
        given.report.write_text(json.dumps({"refused": total.refused, "wrong": total.wrong}, indent=1))
    return int(bool(total.wrong))


if __name__ == "__main__":
    sys.exit(main())
