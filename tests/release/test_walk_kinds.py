"""Test of tables of every kind on a real server: at each moment the lake has PostgreSQL's rows.

The publication is ours, so each partitioned table is one table. Rows exist before the snapshot, and the steps change
them. One moment is queried while everything is in the tail, and every moment after everything was applied.
AUDITLAKE_WIDE_COLUMNS is the number of columns of the widest table; PostgreSQL allows 1,600.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import QueryBuilder

import auditlake
from auditlake.apply.apply import apply_pending
from auditlake.audit.lake_reader import Reader
from auditlake.capture.supervisor import make_task, run_capture
from auditlake.delta.table import open_table
from auditlake.lake.histories import list_histories
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.snapshot.bootstrap import Target, bootstrap
from auditlake.snapshot.worker_pool import SparkWorkers
from auditlake.source.connection import connect, fetch
from auditlake.source.server import wal_end
from auditlake.sql_names import standard_identifier
from tests.arrow_state import texts_at
from tests.s3_server import chosen_lake
from tests.server import Server, chosen_version

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_BIG = "(select string_agg(md5(n::text || '{}'), '') from generate_series(1, 300) n)"
_BIG_A, _BIG_B = _BIG.format("a"), _BIG.format("b")
_STORED_IS_SENT = chosen_version() >= 18
_GENERATED = "virtual" if _STORED_IS_SENT else "stored"
_WIDTH = int(os.environ.get("AUDITLAKE_WIDE_COLUMNS", "9"))
_WIDE_TYPES = ("int", "numeric(10,2)", "date", "text")
_WIDE_COLUMNS = ", ".join(f"c{n} {_WIDE_TYPES[n % 4]}" for n in range(_WIDTH - 1))
_WIDE_VALUES = ", ".join(("7", "1.5", "'2026-01-01'::date", "'x'")[n % 4] for n in range(_WIDTH - 1))

_SCHEMA = f"""
set search_path = public;
create table bag (n int, amount numeric, ratio float8, note text, days date[]) partition by list (n);
create table bag_1 (days date[], note text, dropped int, ratio float8, amount numeric, n int);
alter table bag_1 drop column dropped;
alter table bag_1 alter note set storage external;
alter table bag attach partition bag_1 for values in (1);
create table bag_other partition of bag default;
alter table bag replica identity full;
alter table bag_1 replica identity full;
alter table bag_other replica identity full;
insert into bag select 1, 1.0, '-0', {_BIG_A}, '{{2026-11-21,NULL}}' from generate_series(1, 3);
insert into bag values (null, null, null, null, null), (null, null, null, null, null), (1, 1.00, 0, null, '{{}}');

create table by_index (id int primary key, email text not null, extra int);
create unique index by_email on by_index (email) include (extra);
alter table by_index replica identity using index by_email;
insert into by_index values (1, 'a', 1), (2, 'b', 2);

create table keys (n numeric, f float8, k text, v int, note text, primary key (n, f, k));
alter table keys alter k set storage external, alter note set storage external;
insert into keys values (1.0, 0, left({_BIG_A}, 2500), 1, {_BIG_B}), ('NaN', 2, '', 2, null);

create table events (id int, kind text, note text, at date default '2026-01-01', primary key (id, kind))
  partition by list (kind);
create table events_a partition of events for values in ('a') partition by range (id);
create table events_a_low partition of events_a for values from (0) to (100);
create table events_a_high partition of events_a default;
create table events_b (note text, kind text not null, id int not null, at date, primary key (id, kind));
alter table events attach partition events_b for values in ('b');
insert into events select n, case n % 2 when 0 then 'a' else 'b' end, 'note ' || n from generate_series(1, 200) n;

create table computed (
  id int generated always as identity primary key, a int, gone text,
  doubled int generated always as (a * 2) stored, tripled int generated always as (a * 3) {_GENERATED});
alter table computed drop column gone;
alter table computed add column last text default 'x';
insert into computed (a) values (1), (2);

create table deferred (id int primary key deferrable);
alter table deferred replica identity full;
create table parent (id int primary key, v text);
create table child (extra int, primary key (id)) inherits (parent);
insert into parent values (1, 'of the parent');
insert into child values (1, 'of the child', 5);
create unlogged table unlogged (id int primary key);
create table wide (id int primary key, {_WIDE_COLUMNS});
insert into wide select n, {_WIDE_VALUES} from generate_series(1, 3) n;
create table nothing ();
alter table nothing replica identity full;
insert into nothing select from generate_series(1, 3);

create schema "My.Schema";
create schema "my.schema";
create table "My.Schema"."Größe d:\\`""x" (id int primary key);
create table "My.Schema"."_größe" (id int primary key);
create table "My.Schema"."_Größe" (id int primary key);
create table "my.schema"."_größe" (id int primary key);
create table "my.schema"."{"ü" * 31}." (id int primary key);
"""

_ODD = (
    TableName("My.Schema", 'Größe d:\\`"x'),
    TableName("My.Schema", "_größe"),
    TableName("My.Schema", "_Größe"),
    TableName("my.schema", "_größe"),
    TableName("my.schema", "ü" * 31 + "."),
)
_STEPS = (
    (
        "insert into bag values (1, 1.0, 0, null, '{}')",
        f"insert into bag values (1, 1.0, '-0', {_BIG_A}, '{{2026-11-21,NULL}}')",
        "update bag_1 set amount = 1.00 where ctid = (select min(ctid) from bag_1 where note is not null)",
        "update bag_1 set ratio = 0, days = '{}' where ctid = (select max(ctid) from bag_1 where note is not null)",
        "update keys set n = 1.00 where n = 1",
        "update keys set f = '-0' where f = 0",
        "update keys set v = 2 where n = 1",
        "update events set note = note || '!' where id % 10 = 0",
        "insert into computed (a) values (-1)",
        "insert into nothing default values",
        f"insert into wide values (4, {_WIDE_VALUES})",
    ),
    (
        "delete from bag_other where ctid = (select max(ctid) from bag_other where n is null)",
        "update bag set n = 2 where note is not null and amount = 1.00",
        "delete from keys where n = 'NaN'",
        f"update keys set k = left({_BIG_B}, 2600)",
        "update events set kind = 'b' where id in (2, 4)",
        "update events set id = 1000 where id = 6",
        "create table events_c partition of events for values in ('c')",
        "insert into events values (1, 'c', 'new partition')",
        "insert into computed (a) values (7)",
        "update wide set c0 = 8 where id = 1",
        "delete from wide where id = 2",
        "delete from nothing where ctid in (select ctid from nothing limit 2)",
    ),
    (
        "update bag set note = note",
        "delete from bag where n = 1",
        "insert into bag (n) values (9), (9)",
        "truncate events",
        "insert into events values (5, 'a', 'after')",
    ),
    ("truncate bag", "insert into bag (n) values (9)", "truncate nothing", "insert into nothing default values"),
)
_PUBLIC = tuple(TableName("public", n) for n in ("bag", "by_index", "keys", "events", "computed", "parent", "child"))
_NOTHING = TableName("public", "nothing")
_WIDE = TableName("public", "wide")
_TABLES = (*_PUBLIC, _NOTHING, _WIDE, *_ODD)
_SENT = {"computed": "id, a, doubled, last" if _STORED_IS_SENT else "id, a, last"}


@dataclass(frozen=True)
class Walk:
    """A lake, PostgreSQL's rows of every table by LSN, and the messages of bootstrap."""

    lake: Lake
    moments: list[tuple[Lsn, dict[TableName, Counter[Any]]]]
    said: list[str]
    texts: list[dict[TableName, Counter[Any]]]


@pytest.fixture
def walk(server: Server, spark: "SparkSession", tmp_path: Path) -> Iterator[Walk]:
    """Bootstrap, execute and capture every step; apply nothing yet.

    TRUNCATE of a partitioned table hides what happened to it since the capture before, so each step has one.
    """
    name = server.create_database("kinds")
    conninfo = server.dsn(name)
    made = Walk(chosen_lake(tmp_path / "lake"), [], [], [])
    with connect(conninfo) as conn:
        conn.execute(_SCHEMA)
        bootstrap(
            Target(conninfo, made.lake, "kinds", "kinds", ("*.*",)), lambda: SparkWorkers(spark), made.said.append
        )
        for number, step in enumerate(((), *_STEPS)):
            for statement in step:
                conn.execute(statement)
            for table in _ODD:
                conn.execute(f"insert into {table} values ({number})")
            made.moments.append((Lsn(wal_end(conn).lsn - 1), {table: _shown(conn, table) for table in _TABLES}))
            made.texts.append({table: _printed(conn, table) for table in _TABLES})
            run_capture(make_task(conninfo, made.lake, "current"), Event(), lambda _: None)
    yield made
    server.drop_database(name)


def _shown(conn: "psycopg.Connection[Any]", table: TableName) -> Counter[Any]:
    only = "only " if table.table == "parent" else ""
    return _spelled(fetch(conn, f"select {_SENT.get(table.table, '*')} from {only}{table}"))


def _printed(conn: "psycopg.Connection[Any]", table: TableName) -> Counter[Any]:
    """Return PostgreSQL's own text of every value."""
    only = "only " if table.table == "parent" else ""
    sent = _SENT.get(table.table, "*")
    names = [column.name for column in conn.execute(f"select {sent} from {only}{table} limit 0").description or ()]
    texts = ", ".join(standard_identifier(name) + "::text" for name in names)
    return Counter(conn.execute(f"select {texts} from {only}{table}").fetchall())


def _spelled(rows: Any) -> Counter[Any]:
    """Return rows as texts, which distinguish 0 from -0 and 1.0 from 1.00."""
    return Counter(tuple(map(str, row)) for row in rows)


def test_tables_of_every_kind_equal_postgresql_before_and_after_apply(walk: Walk, spark: "SparkSession") -> None:
    """Bootstrap names the unlogged table; a deferrable key is not used as a key."""
    assert [line for line in walk.said if "public.unlogged is left out" in line]
    keys = {table.name.table: [column.name for column in table.key] for table in list_histories(walk.lake)}
    assert {"bag": [], "deferred": [], "by_index": ["email"], "events": ["id", "kind"]}.items() <= keys.items()
    assert not {"bag_1", "events_a", "events_b", "unlogged"} & keys.keys()
    lsn, states = walk.moments[2]
    for table in (_PUBLIC[0], _NOTHING, _WIDE, _ODD[0]):
        name = ".".join("`" + part.replace("`", "``") + "`" for part in table)
        rows = auditlake.read(spark, walk.lake.root, name, as_of=str(lsn)).collect()
        assert states[table] == _spelled(rows), table

    _check_states(walk)
    apply_pending(lambda: spark, walk.lake)
    _check_histories(walk)
    _check_states(walk)


def _check_states(walk: Walk) -> None:
    """Check every state without Spark."""
    reader = Reader(walk.lake, datetime(2026, 11, 21, tzinfo=UTC))
    for (lsn, _), states in zip(walk.moments, walk.texts, strict=True):
        for table in _TABLES:
            assert states[table] == texts_at(reader, table, lsn)[1], (table, lsn)


def _check_histories(walk: Walk) -> None:
    """Check that the histories have PostgreSQL's rows at every moment, and no empty period."""
    for table in _TABLES:
        columns = [column.name for column in _history(walk, table).columns]
        listed = ", ".join(f'"{name}"' for name in [*columns, "_from_lsn", "_to_lsn"])
        query = QueryBuilder().register("t", open_table(_history(walk, table).path)).execute(f"select {listed} from t")
        versions = [tuple(row.values()) for row in pa.table(query.read_all()).to_pylist()]
        assert all(end is None or begin < end for *_, begin, end in versions)
        for lsn, states in walk.moments:
            held = [row for *row, begin, end in versions if begin <= lsn and (end is None or end > lsn)]
            assert states[table] == _spelled(held), (table, lsn)


def _history(walk: Walk, name: TableName) -> Any:
    return next(table for table in list_histories(walk.lake) if table.name == name)
