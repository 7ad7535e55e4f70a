"""Columns and rows of every table at exact LSNs, as PostgreSQL showed them, compared with the answers of a lake.

One session changes the tables of some schemas, and nobody else does. So what it sees between two of its commits is the
state at every LSN between them. Columns and rows are compared, and that a name is no table's at a moment. An answer is
right, wrong, or refused; a refusal has the exit code of a question that has no exact answer.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from auditlake.api.lake import Lake as PythonLake
from auditlake.errors import AuditlakeError
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from tests import command

Conn = psycopg.Connection[Any]
_BAD_USAGE, _NOT_ANSWERABLE = 2, 7
_WRITTEN = {"t": "true", "f": "false", None: None}
_TABLES = """
select nspname, relname, c.oid, relkind = 'r' from pg_class c join pg_namespace n on n.oid = relnamespace
 where relkind in ('r', 'p') and (not relispartition or %s) and relpersistence <> 't' and nspname = any(%s)
 order by 1, 2
"""
_COLUMNS = """
select attname, coalesce(nullif(typbasetype, 0), t.oid) in ('bpchar'::regtype, 'inet'::regtype, 'bool'::regtype),
       coalesce(nullif(typbasetype, 0), t.oid) = 'bool'::regtype
  from pg_attribute join pg_type t on t.oid = atttypid
 where attrelid = %s and attnum > 0 and not attisdropped and (attgenerated = '' or (attgenerated = 's' and %s))
 order by attnum
"""
_PUBLISHES_GENERATED = "select coalesce(bool_or(to_jsonb(p) ->> 'pubgencols' = 's'), false) from pg_publication p"
_VARYING = re.compile(r"[0-9A-F]+/[0-9A-F]+|\b\w+\.\w+\b|\b\d+\b")


@dataclass(frozen=True)
class Shown:
    """Columns of a table in their order, and its rows as texts, counted; `booleans` are the places of such columns.

    Texts are as the server sends them, or, `in_sql`, booleans are written out.
    """

    columns: tuple[str, ...]
    rows: Counter[tuple[str | None, ...]]
    booleans: frozenset[int] = field(default=frozenset(), compare=False)
    in_sql: bool = field(default=False, compare=False)

    def written_out(self) -> "Shown":
        """Return the same with booleans as SQL writes them."""
        rows = Counter[tuple[str | None, ...]]()
        for row, count in self.rows.items():
            rows[tuple(_WRITTEN[c] if n in self.booleans else c for n, c in enumerate(row))] += count
        return replace(self, rows=rows, in_sql=True)


@dataclass(frozen=True)
class Moment:
    """Every table of the schemas at an LSN; `after` is the last statement before."""

    lsn: Lsn
    after: str
    tables: Mapping[TableName, Shown]


def observe(conn: Conn, schemas: Sequence[str], after: str, *, partitions: bool = False) -> Moment:
    """Read every table, and each of the `partitions` if these are tables of their own in the publication.

    The LSN is after every commit of this session, and the state is the same up to the next one.
    """
    tables = {}
    with conn.transaction():
        conn.execute("set transaction isolation level repeatable read")
        for schema, table, oid, alone in conn.execute(_TABLES, [partitions, list(schemas)]).fetchall():
            tables[TableName(schema, table)] = _shown(conn, TableName(schema, table), oid, alone=alone)
        row = conn.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return Moment(Lsn(Lsn.parse(row[0]) - 1), after, tables)


def _shown(conn: Conn, name: TableName, oid: int, *, alone: bool) -> Shown:
    """Read a table; `alone` without the tables that inherit from it, which have histories of their own."""
    published = conn.execute(_PUBLISHES_GENERATED).fetchone()
    columns = conn.execute(_COLUMNS, [oid, published and published[0]]).fetchall()
    # A cast to text would lose spaces of character(n), add the length of the mask to inet, and write out booleans.
    as_sent, plain = sql.SQL("case when {0} is not null then format('%%s', {0}) end"), sql.SQL("{}::text")
    texts = sql.SQL(", ").join(
        (as_sent if differs else plain).format(sql.Identifier(each)) for each, differs, _ in columns
    )
    only = sql.SQL("only " if alone else "")
    rows = conn.execute(sql.SQL("select {} from {}{}").format(texts, only, sql.Identifier(*name)), []).fetchall()
    booleans = frozenset(place for place, (*_, is_boolean) in enumerate(columns) if is_boolean)
    return Shown(tuple(column for column, *_ in columns), Counter(rows), booleans)


class Refused(Exception):
    """A question that the lake refuses, with its reason."""


Answer = Callable[[TableName], Shown]
Ask = Callable[[Lake, Lsn], Answer]
"""Opens a moment of a lake; the answer about each of its tables may raise Refused."""


def ask_python(lake: Lake, lsn: Lsn) -> Answer:
    """Ask the Python API, which reads the lake once for all tables of a moment."""
    at = cache(lambda: PythonLake(lake.root).as_of(str(lsn)))

    def answer(name: TableName) -> Shown:
        try:
            rows = at().table(str(name))
            texts = list(rows.texts())
            columns = tuple(texts[0] if texts else rows.batches().schema.names)
        except AuditlakeError as exc:
            if exc.exit_code not in {_BAD_USAGE, _NOT_ANSWERABLE}:
                raise
            raise Refused(exc.message) from exc
        return Shown(columns, Counter(tuple(row.values()) for row in texts))

    return answer


def ask_sql(engine: str) -> Ask:
    """Return a way to ask `auditlake sql` with an engine; an empty text cannot be told from NULL."""

    def answer(lake: Lake, lsn: Lsn, name: TableName) -> Shown:
        options: list[str | Path] = ["--lake", lake.root, "--as-of", str(lsn), "--engine", engine, "--format", "csv"]
        done = command.run_here(
            ["sql", "--dialect", "spark", *options, f"select * from `{name.schema}`.`{name.table}`"]
        )
        if done.code in {_BAD_USAGE, _NOT_ANSWERABLE}:
            raise Refused(done.stderr.strip().splitlines()[0])
        assert done.code == 0, done.stderr
        header, *rows = csv.reader(io.StringIO(done.stdout))
        # The reader returns nothing of a line without a character, which is a NULL in the only column.
        texts = Counter(tuple(cell or None for cell in row or [""]) for row in rows)
        return Shown(tuple(header), texts, in_sql=True)

    return lambda lake, lsn: partial(answer, lake, lsn)


@dataclass
class Verdict:
    """Answers counted; `wrong` names each, `refused` counts the reasons, `names` has the tables of each reason."""

    right: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    names: dict[str, Counter[str]] = field(default_factory=dict)

    def refuse(self, name: TableName, message: str) -> None:
        """Count a refusal."""
        reason = _VARYING.sub("…", message)
        self.refused[reason] += 1
        self.names.setdefault(reason, Counter())[str(name)] += 1

    def __str__(self) -> str:
        return f"{self.right} right, {self.refused.total()} refused, {len(self.wrong)} wrong"


def compare(lake: Lake, moments: Iterable[Moment], ask: Ask, verdict: Verdict) -> None:
    """Ask for every table at every moment, and for the names that tables had before or later."""
    listed = list(moments)
    names = sorted({name for moment in listed for name in moment.tables}, key=str)
    for moment in listed:
        answer = ask(lake, moment.lsn)
        for name in names:
            _compare_one(moment, name, answer, verdict)


def _compare_one(moment: Moment, name: TableName, answer: Answer, verdict: Verdict) -> None:
    expected = moment.tables.get(name)
    try:
        found = answer(name)
    except Refused as exc:
        if expected is not None:
            verdict.refuse(name, str(exc))
        return
    if expected is not None and found.in_sql:
        expected = expected.written_out()
    if expected == found:
        verdict.right += 1
    else:
        verdict.wrong.append(f"{name} as of {moment.lsn}, after {moment.after}: {_difference(expected, found)}")


def _difference(expected: Shown | None, found: Shown) -> str:
    if expected is None:
        return "no table has that name"
    if expected.columns != found.columns:
        return f"columns are {found.columns}, expected {expected.columns}"
    return f"{(found.rows - expected.rows).total()} rows too many, {(expected.rows - found.rows).total()} missing"
