"""The embedded engine on the small lake: the statements that it answers, and those that it leaves to Spark. No JVM.

`tests/spark/query/test_engines.py` compares its answers with Spark's.
"""

import random
from datetime import UTC, date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from sqlglot import exp

from auditlake.errors import BadUsage
from auditlake.lake.duckdb_rows import connect_for_statements
from auditlake.lake.layout import (
    HISTORY_APP,
    SNAPSHOT_APP,
    SNAPSHOT_TIME_APP,
    Lake,
)
from auditlake.lake.relations import RelationsLog
from auditlake.lsn import Lsn
from auditlake.query.dialect import parse_query, spark_tokens
from auditlake.query.embedded.cells import NotEmbedded, SparkCell
from auditlake.query.embedded.engine import Embedded
from auditlake.query.embedded.queries import translate_query
from auditlake.query.engine_choice import Engines
from auditlake.query.formats import python_rows
from auditlake.query.statement import prepare_statement, read_state
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.schema.missing_values import AddedLog, Existing
from auditlake.store.files import remove_folder
from auditlake.temporal.table_lookup import SYSTEM_TABLES
from tests.random_sql import write_lake as write_random_lake
from tests.s3_server import chosen_lake
from tests.small_lake import ORDER_COLUMNS, ORDERS, T0, T0_US, version, write_history, write_log, write_small_lake

_OWN = [("auditlake", name.table) for name in SYSTEM_TABLES]


_VERSIONS = [  # the last two commits are not applied
    (1, "a", 0x100, 0x150, "snapshot", "update"),
    (1, "b", 0x150, 0x250, "update", "update"),
    (1, "c", 0x250, None, "update", None),
    (2, "", 0x100, 0x200, "snapshot", "delete"),
    (3, None, 0x200, 0x300, "insert", "delete"),
    (4, "new", 0x250, None, "insert", None),
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The small lake, in a folder that looks like a pattern."""
    return write_small_lake(tmp_path_factory.mktemp("embedded") / "a {b,c} lake")


def _ask(lake: Lake, sql: str, as_of: str | None = None) -> tuple[pa.Schema, list[tuple[Any, ...]]]:
    state = read_state(lake, as_of, UTC)
    schema, batches = Embedded({}).answer(state, prepare_statement(state, sql, {})).batches()
    return schema, list(python_rows(schema, batches))


@pytest.mark.parametrize(
    ("sql", "as_of", "rows"),
    [
        ("select id, note from orders order by id", "0/14F", [(1, "a"), (2, "")]),
        ("select id, note from public.orders order by 1 desc", None, [(4, "new"), (1, "c")]),
        ("select id from orders order by note", "0/250", [(3,), (1,), (4,)]),  # NULL first, as in Spark
        ("select note from orders for system_time as of '0/150' where id = 1", None, [("b",)]),
        ("select count(*), sum(price), avg(price) from orders", None, [(2, Decimal("7.00"), Decimal("3.500000"))]),
        ("select o.id, c.name from orders o join customers c using (id)", None, [(1, "Anne")]),
        ("select ORDERS.Id from orders left join customers c on c.id = orders.id where name is null", None, [(4,)]),
        (
            "select a.*, b.* from (select id, note from orders) a join customers b using (id)",
            None,
            [(1, "c", 1, "Anne")],
        ),
        ("describe table customers", None, [("id", "int", None), ("name", "string", None)]),
        ("show tables", None, [("public", "customers"), ("public", "orders"), *_OWN]),
        ("with q as (select id * 2 as n from orders) select n from q order by n", None, [(2,), (8,)]),
        ("select 7 / 2 as a, 7 % 4 as b, 1.5 + 1 as c, -7 as d", None, [(3.5, 3, Decimal("2.5"), -7)]),
        (
            "select note, count(*) as n from orders group by note having n > 0 order by n, note",
            None,
            [("c", 1), ("new", 1)],
        ),
        (
            "select id from orders where at >= '2026-01-01' and at < '2026-01-01 12:00:00.3' order by id",
            None,
            [(1,), (4,)],
        ),
        ("select id from orders where id in (select id from customers)", None, [(1,)]),
        ("select id from orders union all select id from customers order by id limit 2", None, [(1,), (1,)]),
        ("select id from orders o where exists (select 1 from customers c where c.id = o.id)", None, [(1,)]),
        ("select id from orders o where not exists (select 1 from customers where id = o.id)", None, [(4,)]),
        ("select id from orders where id > 1 and 1 / (id - 1) > 0 and note is not null", None, [(4,)]),
        ("select price / 3 as a from orders where id = 1", None, [(Decimal("1.0000000000000"),)]),
        (
            "select date '2024-01-31' + interval '1' month as a, date '2024-02-29' - interval '400' day as b",
            None,
            [(date(2024, 2, 29), date(2023, 1, 25))],
        ),
        (
            "select id from orders o where price > (select min(price) / 2 from orders where id = o.id) order by 1",
            None,
            [(1,), (4,)],
        ),
        (
            "select (select count(*) from customers c where c.id = o.id) as n from orders o order by id",
            None,
            [(1,), (0,)],
        ),
        ("select cast(1.005 as decimal(38,4)) * 100.00 as a", None, [(Decimal("100.500000"),)]),
        (  # Spark rounds 0.00004 to four digits
            "select id from orders where cast(0 as decimal(36,2)) < cast(0.00004 as decimal(38,6))",
            None,
            [],
        ),
        ("select 2 / 3.0 as a, -1.5 / 0.7 as b", None, [(Decimal("0.666667"), Decimal("-2.142857"))]),
        ("select cast(0.00001 as string) as a, concat('x', -0.5) as b", None, [("0.00001", "x-0.5")]),
        ("select lsn, xid from auditlake.transactions where lsn > 336", "0/250", [(512, 11), (592, 12)]),
        ("select lsn, op from auditlake.changes where op = 'delete' order by lsn", "0/250", [(512, "delete")]),
        ("select lsn from auditlake.changes where op = 'delete' order by 1", None, [(512,), (768,)]),
        ("select count(*) from auditlake.gaps", None, [(0,)]),
        ("select extract(second from at) as s from orders where id = 1", None, [(Decimal("0.250000"),)]),
        (
            "select id, note, _from_lsn as b, _to_lsn as e, _op, _end_op from orders for system_time all",
            None,
            _VERSIONS,
        ),
        ("select _xid, _end_xid, _ordinal from orders for system_time all where note = 'b'", None, [(10, 12, 0)]),
    ],
)
def test_an_answer_is_that_of_spark(lake: Lake, sql: str, as_of: str | None, rows: list[Any]) -> None:
    """Expected by hand."""
    found = _ask(lake, sql, as_of)[1]
    assert found == rows or ("order by" not in sql and sorted(found, key=repr) == rows)


def _add_columns(lake: Lake) -> None:
    """Add two columns to orders at 0x600, whose missing values are 'x' and infinity; one row is changed before."""
    columns = (*ORDER_COLUMNS, Column("extra", 25, -1, key=False), Column("far", 1082, -1, key=False))
    reshaped = Relation(1, ORDERS, ReplicaIdentity.DEFAULT, columns)
    relations = RelationsLog(lake)
    number = relations.register(reshaped, Lsn(0x600))
    relations.flush()
    versions = [(Lsn(0x150), Relation(1, ORDERS, ReplicaIdentity.DEFAULT, ORDER_COLUMNS)), (Lsn(0x600), reshaped)]
    AddedLog(lake, lambda _: [Existing("x"), Existing("infinity")]).resolve(versions, frozenset({1}))
    at = "2026-01-01 12:00:00.25+00"
    common = {"xid": 90, "time": T0, "schema": ORDERS.schema, "table": ORDERS.table}
    changes = [
        {"lsn": 0x500, "ordinal": 0, "op": "update", "relation": 1, "new": ["1", "d", None, at]},
        {
            "lsn": 0x600,
            "ordinal": 0,
            "op": "insert",
            "relation": number,
            "new": ["6", "e", None, at, "y", "2026-01-02"],
        },
    ]
    log = [
        {"lsn": n, "end_lsn": n, "xid": 90, "time": T0, "time_mono": T0, "tables": [str(ORDERS)]}
        for n in (0x500, 0x600)
    ]
    write_log(lake, log, [each | common for each in changes], acknowledged_lsn=0x608, current_us=T0_US + 200_000_000)


def test_versions_have_the_columns_that_a_tail_adds(tmp_path: Path) -> None:
    """Versions that ended before had none; those that were open then have the missing value."""
    lake = write_small_lake(tmp_path / "lake")
    _add_columns(lake)
    sql = "select id, note, extra, far, _from_lsn, _to_lsn, _raw from orders for system_time all order by id, _from_lsn"
    raw = {"far": "infinity"}
    assert [(*row[:6], dict(row[6] or ())) for row in _ask(lake, sql)[1]] == [
        (1, "a", None, None, 0x100, 0x150, {}),
        (1, "b", None, None, 0x150, 0x250, {}),
        (1, "c", None, None, 0x250, 0x500, {}),
        (1, "d", "x", None, 0x500, None, raw),
        (2, "", None, None, 0x100, 0x200, {}),
        (3, None, None, None, 0x200, 0x300, {}),
        (4, "new", "x", None, 0x250, None, raw),
        (5, "half", "x", None, 0x400, None, raw),
        (6, "e", "y", date(2026, 1, 2), 0x600, None, {}),
    ]


@pytest.mark.parametrize(
    ("sql", "names", "types"),
    [
        (
            "select * from orders",
            ["id", "note", "price", "at"],
            ["int32", "string", "decimal128(10, 2)", "timestamp[us, tz=UTC]"],
        ),
        ("select count(*), sum(id) from orders", ["count(1)", "sum(id)"], ["int64", "int64"]),
        (
            "select ID, price * 2 as p, price + price as q from orders",
            ["ID", "p", "q"],
            ["int32", "decimal128(12, 2)", "decimal128(11, 2)"],
        ),
        ("select avg(id), sum(price) from orders", ["avg(id)", "sum(price)"], ["double", "decimal128(20, 2)"]),
    ],
)
def test_names_and_types_are_those_of_spark(lake: Lake, sql: str, names: list[str], types: list[str]) -> None:
    """Also of computed columns without AS."""
    schema, _ = _ask(lake, sql)
    assert (schema.names, [str(field.type) for field in schema]) == (names, types)


@pytest.mark.parametrize(
    ("sql", "construct"),
    [
        ("select rand() as r", "RAND"),
        ("select current_timestamp() as now", "CURRENT TIMESTAMP"),
        ("select exact_text(price) from orders", "exact_text"),
        ("select * from auditlake.relations", "auditlake.relations"),
        ("select id + 0.5 from orders", "without AS"),
        ("select mod(id, 2) from orders", "without AS"),
        ("select + id as n from orders", "a sign"),
        ("select case when null then 1 else 2 end as n", "a condition of type void"),
        ("select id from orders where null", "a condition of type void"),
        ("select id from orders where exists (select count(*) from customers)", "EXISTS of an aggregate"),
        ("select id from orders where exists (select 1 from customers limit 1)", "limit"),
        ("select replace(note, 'a') as n from orders", "REPLACE without"),
        ("select sum(cast(id as double)) from orders", "SUM of double"),
        ("select note like 'a\\\\_' as l from orders", "escape"),
        ("select 'it''s' as s", "an escape in a string"),
        ("select try_cast(id as bigint) as n from orders", "safe"),
        ("select cast(note as int) as n from orders", "CAST of string to int"),
        ("select id = note as same from orders", "beside"),
        ("select id from orders order by id limit 1 + 1", "LIMIT"),
        ("select (exists (select 1 from customers)) as e from orders", "EXISTS"),
        ("select id from orders, lateral (select 1)", "LATERAL"),
        ("explain select 1", "EXPLAIN"),
        ("describe extended orders", "DESCRIBE"),
        ("describe auditlake.relations", "auditlake.relations"),
        ("select id from orders group by rollup (id)", "ROLLUP"),
        ("select nothing from orders", "unknown column nothing"),
        ("select id from orders, customers", "ambiguous column id"),
        ("select 1 / 0 as n", "DuckDB"),
        ("select id from orders where 1 / (id - 1) > 0 and id > 1", "DuckDB"),
        ("select 2147483647 + 1 as n", "DuckDB"),
        ("select date '9999-12-31' + interval '1' day as d", "the years 1 to 9999"),
        ("select cast(at as date) + interval '9999' year as d from orders", "DuckDB"),
        ("select at + interval '1' week as d from orders", "INTERVAL of WEEK beside timestamp"),
        ("select at + interval '1' month as m, at + interval '30' day as d from orders", "months beside as many days"),
        ("select id from orders o where id > (select id from customers where id = o.id)", "other values than one agg"),
        ("select id from orders o where id > (select max(id) from customers c where c.id > o.id)", "unknown column id"),
        ("select upper(note || 'é') as n from orders", "DuckDB"),
        (f"select price{' / 2' * 40} as n from orders", "expressions nested so deep"),
        ("select null as n", "void"),
        ("select * from (values ((select 1))) v(x)", "VALUES of this form"),
        ("select second(at) as s from orders", "SECOND"),
        ("select - id as id from orders order by id + 0", "ambiguous"),
        ("select - id as id from orders order by id", "ambiguous"),
        ("select note as id, count(*) as n from orders group by id", "ambiguous"),
        ("select id from orders join customers using (id) cross join orders o", "ambiguous column id"),
    ],
)
def test_everything_else_is_left_to_spark(lake: Lake, sql: str, construct: str) -> None:
    """With the name of the construct; so is what fails on a row, which Spark reports."""
    with pytest.raises(NotEmbedded, match=construct):
        _ask(lake, sql)


@pytest.mark.parametrize(
    ("part", "added"), [(exp.Select, "into"), (exp.Column, "join_mark"), (exp.Sum, "expressions"), (exp.And, "flag")]
)
def test_a_part_that_is_not_translated_is_left_to_spark(part: type[exp.Expr], added: str) -> None:
    """Whichever node has it; sqlglot may learn to read what no rule of the translation knows."""
    columns = [SparkCell("c0", "int", "id")]
    trees = [parse_query(sql, spark_tokens(sql)) for sql in ["select sum(id) as s from v where id > 1 and id < 9"] * 2]
    trees[1].find(part).set(added, exp.Boolean(this=True))  # type: ignore[union-attr]
    assert translate_query(trees[0], {"v": columns}).fields[0].kind == "bigint"
    with pytest.raises(NotEmbedded, match=f" with {added.replace('_', ' ')}"):
        translate_query(trees[1], {"v": columns})


@pytest.mark.parametrize(
    "aggregate", ["sum(wide)", "sum(wide) filter (where id > 0)", "avg(cast(wide as decimal(34, 6)))"]
)
def test_a_sum_that_overflows_is_left_to_spark(tmp_path: Path, aggregate: str) -> None:
    """Also if its 128 bits wrap around, which DuckDB does not always report."""
    lake = write_random_lake(tmp_path / "lake", 2459858992, 60)
    total = sum((wide for (wide,) in _ask(lake, "select wide from things where wide is not null")[1]), Decimal(0))
    assert abs(total) > 10**28
    with pytest.raises(NotEmbedded):
        _ask(lake, f"select {aggregate} from things")
    assert _ask(lake, f"select {aggregate} as c from things where wide > 0 and wide < 1 and id < 0")[1] == [(None,)]


def test_an_array_of_floats_is_no_value_of_a_subquery(tmp_path: Path) -> None:
    """DuckDB would make 0 of -0 in it."""
    lake, name = write_small_lake(tmp_path / "lake"), TableName("public", "samples")
    columns = (Column("id", 23, -1, key=True), Column("readings", 1022, -1, key=False))
    rows = [{"id": 1, "readings": [-0.0]} | version(0x100, None, "snapshot", None)]
    write_history(lake, name, columns, rows, {HISTORY_APP: 0x100, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US})
    assert str(_ask(lake, "select readings from samples")[1]) == "[([-0.0],)]"
    with pytest.raises(NotEmbedded, match="array<double>"):
        _ask(lake, "select (select readings from samples where id = 1) as readings")


def test_a_question_reads_only_files_of_its_moment(tmp_path: Path) -> None:
    """A history may have ten thousand files of closed versions: not even their ends are read for the state after."""
    lake = write_small_lake(tmp_path / "lake")
    remove_folder(lake.history(TableName("public", "orders")) / "_part=2026-11")
    assert _ask(lake, "select id from orders order by id", "0/200")[1] == [(1,), (3,)]
    with pytest.raises(NotEmbedded, match="FileNotFoundError"):
        _ask(lake, "select id from orders", "0/14F")


def test_a_demanded_engine_that_cannot_answer_is_an_error(lake: Lake) -> None:
    """It names the construct; with `auto` Spark is started, with a setting that changes SQL it always is."""
    state = read_state(lake, None, UTC)
    query = prepare_statement(state, "select rand() as r", {})
    with pytest.raises(BadUsage, match="DuckDB does not answer this exactly as Spark: RAND"):
        Engines("duckdb", {}, lambda: pytest.fail("starts Spark")).answer(state, [query])
    plain = prepare_statement(state, "select 1 as n", {})
    with pytest.raises(BadUsage, match=r"spark\.sql\.ansi\.enabled"):
        Engines("duckdb", {"spark.sql.ansi.enabled": "false"}, lambda: pytest.fail("starts Spark")).answer(
            state, [plain]
        )
    answers = Engines("auto", {"spark.driver.memory": "1g"}, lambda: pytest.fail("starts Spark")).answer(state, [plain])
    assert len(answers) == 1


_ROWS = (Column("id", 23, -1, key=True), Column("body", 25, -1, key=False))


@pytest.mark.parametrize("seed", range(6))
def test_versions_of_a_tail_are_the_states_of_the_table(tmp_path: Path, seed: int) -> None:
    """Random transactions with key changes, rows that come and go in one, and values that were not sent.

    The states are those of a dictionary that the same changes are applied to.
    """
    draw, lake, name = random.Random(seed), chosen_lake(tmp_path / "lake"), TableName("public", "rows")  # noqa: S311 - a test
    state: dict[int, str] = {1: "a", 2: "b", 3: "c"}
    positions = {HISTORY_APP: 0x100, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    first = [{"id": n, "body": body} | version(0x100, None, "snapshot", None) for n, body in state.items()]
    write_history(lake, name, _ROWS, first, positions, 1)
    relations = RelationsLog(lake)
    number = relations.register(Relation(1, name, ReplicaIdentity.DEFAULT, _ROWS), Lsn(0x110))
    relations.flush()
    states, changes = {0x100: dict(state)}, list[dict[str, Any]]()
    for lsn in range(0x110, 0x190, 0x10):
        for ordinal in range(draw.randint(1, 4)):
            place = {"lsn": lsn, "ordinal": ordinal, "xid": lsn, "time": T0, "relation": number}
            changes.append({**place, "schema": "public", "table": "rows", **_changed(draw, state)})
        states[lsn] = dict(state)
    _write_log(lake, changes)
    _, found = _ask(lake, "select id, body, _from_lsn, _to_lsn, _from_time from rows for system_time all")
    assert all(begin < (end or begin + 1) for _, _, begin, end, _ in found)
    for lsn, expected in states.items():
        shown = [(key, body) for key, body, begin, end, _ in found if begin <= lsn and (end is None or end > lsn)]
        assert sorted(shown) == sorted(expected.items()), lsn


def _changed(draw: random.Random, state: dict[int, str]) -> dict[str, Any]:
    """Change the state, and return the change."""
    key, free = draw.choice([*state, 0]) if state else 0, draw.choice([n for n in range(1, 9) if n not in state])
    body = f"{draw.randint(0, 99)}"
    if key == 0:
        state[free] = body
        return {"op": "insert", "old": None, "new": [str(free), body]}
    form = draw.choice(["delete", "update", "move", "unsent"])
    before = state.pop(key)
    if form == "delete":
        return {"op": "delete", "old": [str(key), None], "new": None}
    there = free if form == "move" or draw.random() < 0.2 else key
    state[there] = before if form == "unsent" else body
    sent = {"new": [str(there), None], "unchanged": [1]} if form == "unsent" else {"new": [str(there), body]}
    return {"op": "update", "old": None if there == key else [str(key), None], **sent}


def _write_log(lake: Lake, changes: list[dict[str, Any]]) -> None:
    lsns = sorted({change["lsn"] for change in changes})
    transactions = [
        {"lsn": n, "end_lsn": n + 8, "xid": n, "time": T0, "time_mono": T0, "tables": ["public.rows"]} for n in lsns
    ]
    write_log(lake, transactions, changes, acknowledged_lsn=lsns[-1] + 9, current_us=T0_US + 100_000_000)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_text('/etc/hostname')",
        "select * from read_csv('{other}')",
        "select * from read_text('{root}/../other.csv')",
        "copy (select 1) to '{other}'",
        "attach '{other}.db'",
        "set enable_external_access = true",
        "set memory_limit = '100GB'",
        "set allowed_directories = ['/']",
        "install httpfs",
        "load httpfs",
    ],
)
def test_the_database_of_statements_reads_one_lake(lake: Lake, tmp_path: Path, sql: str) -> None:
    """Whatever a statement is translated to: no other file, no extension, no setting."""
    other = tmp_path / "other.csv"
    other.write_text("a\n1\n")
    connection = connect_for_statements(lake)
    with pytest.raises((duckdb.PermissionException, duckdb.InvalidInputException)):
        connection.cursor().execute(sql.format(root=lake.root, other=other))
