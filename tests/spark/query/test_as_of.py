"""As-of queries of a small lake through Spark, before and after apply. Moments to LSNs: tests/unit/query."""

import io
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality
from pyspark.errors import SparkRuntimeException
from pyspark.sql import SparkSession

import auditlake
from auditlake.apply.apply import apply_pending
from auditlake.delta.append_table import AppendLog
from auditlake.erasure.retention import expire
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.gaps import Gap, record_gaps
from auditlake.lake.layout import CURRENT_APP, Lake
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from auditlake.query import as_of as state
from auditlake.query.exported_views import Choice, view_script
from auditlake.query.languages import SPARK_SQL
from auditlake.query.output import OutputForm, answer, render
from auditlake.query.spark_engine import plan, run_sql
from auditlake.query.statement import read_state, split_script
from auditlake.settings.retention_rules import RetentionPeriods, parse_period
from tests.small_lake import ORDERS, T0_US, write_lake_with_manifest, write_small_lake

pytestmark = pytest.mark.spark

STATES = {
    "0/14F": {(1, "a"), (2, "")},
    "0/200": {(1, "b"), (3, None)},
    "0/250": {(1, "c"), (3, None), (4, "new")},
    "0/300": {(1, "c"), (4, "new")},
}
PERIODS = {
    "all": {"1a", "1b", "1c", "2", "3", "4"},
    "from '0/100' to '0/151'": {"1a", "1b", "2"},
    "contained in ('0/101', '0/250')": {"1b"},
    "between '0/200' and '0/150'": set(),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The small lake, in a path that looks like a glob pattern; Spark reads its tables' logs once for all tests."""
    return write_small_lake(tmp_path_factory.mktemp("as of") / "a {b,c} lake")


@pytest.fixture
def own(tmp_path: Path) -> Lake:
    """The same lake, to be changed."""
    return write_small_lake(tmp_path / "a {b,c} lake")


def states(spark: SparkSession, lake: Lake) -> dict[str, set[tuple[int, str | None]]]:
    """Read orders at every LSN of STATES."""
    each = [f"select '{lsn}' as lsn, id, note from orders for system_time as of '{lsn}'" for lsn in STATES]
    found: dict[str, set[tuple[int, str | None]]] = {lsn: set() for lsn in STATES}
    for lsn, number, note in run_sql(spark, lake, " union all ".join(each)).collect():
        assert (number, note) not in found[lsn]
        found[lsn].add((number, note))
    return found


def periods(spark: SparkSession, lake: Lake) -> dict[str, set[str]]:
    """Read the versions of orders in every clause of PERIODS, each named by its id, and its note if it is order 1."""
    name = "concat(id, if(id = 1, note, ''))"
    each = [f"select {n}, {name} from orders for system_time {clause}" for n, clause in enumerate(PERIODS)]
    found: dict[str, set[str]] = {clause: set() for clause in PERIODS}
    for number, version in run_sql(spark, lake, " union all ".join(each)).collect():
        assert version not in found[list(PERIODS)[number]]
        found[list(PERIODS)[number]].add(version)
    return found


def test_applying_the_tail_changes_no_answer(spark: SparkSession, own: Lake) -> None:
    """States and periods are right, and equal before, during and after apply."""
    assert periods(spark, own) == PERIODS
    versions = auditlake.sql(spark, own.root, "select * from orders for system_time all").localCheckpoint()
    with ThreadPoolExecutor(1) as pool:
        merging = pool.submit(apply_pending, lambda: spark, own)
        asked = 0
        while not merging.done():
            assert states(spark, own) == STATES
            asked += 1
        assert merging.result().rows
    assert asked
    assert states(spark, own) == STATES
    assert periods(spark, own) == PERIODS
    merged = auditlake.sql(spark, own.root, "select * from orders for system_time all")
    assert_df_equality(versions.drop("_raw"), merged.drop("_raw"), ignore_row_order=True)


def test_delta_reads_a_history_with_foreign_features(
    spark: SparkSession, own: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it; `tests/release` has one with many marked rows, whose open versions it reads."""
    apply_pending(lambda: spark, own)
    monkeypatch.setattr(state, "find_files", lambda _: None)
    assert states(spark, own) == STATES


def test_a_state_up_to_the_position_needs_no_fold(spark: SparkSession, lake: Lake) -> None:
    """Only the history is read."""
    rows = run_sql(spark, lake, "explain select * from orders", "0/200").collect()[0][0]
    assert str(lake.changes) not in rows
    assert "Window" not in rows
    assert "Window" in run_sql(spark, lake, "explain select * from orders", "0/300").collect()[0][0]


def test_a_join_reads_one_lsn_and_a_period_another(spark: SparkSession, lake: Lake) -> None:
    """Both tables of a join are read at one LSN; FOR SYSTEM_TIME changes it for its table."""
    sql = "select orders.note, c.name from public.orders join customers c on c.id = public.orders.id"
    assert [tuple(row) for row in run_sql(spark, lake, sql, "0/200").collect()] == [("b", "Ann")]
    assert [tuple(row) for row in run_sql(spark, lake, sql).collect()] == [("c", "Anne")]
    two = (
        "with was as (select * from orders for system_time as of '0/150') "
        "select was.id, was.note, orders.note from was full outer join orders using (id) order by coalesce(was.id, 99)"
    )
    rows = [tuple(row) for row in run_sql(spark, lake, two).collect()]
    assert rows == [(1, "b", "c"), (2, "", None), (None, None, "new")]


def test_a_state_has_the_sources_columns_and_versions_their_period(spark: SparkSession, lake: Lake) -> None:
    """Versions have LSNs, times and xids too, but not the partition column."""
    assert run_sql(spark, lake, "select * from orders for system_time as of '0/300'").columns == [
        "id",
        "note",
        "price",
        "at",
    ]
    versions = run_sql(spark, lake, "select * from orders for system_time all where note = 'b'")
    assert versions.columns == [
        *("id", "note", "price", "at"),
        *("_from_lsn", "_to_lsn", "_from_time", "_to_time", "_op", "_end_op", "_xid", "_end_xid", "_ordinal", "_raw"),
    ]
    [row] = versions.collect()
    assert (row["_from_lsn"], row["_to_lsn"], row["_op"], row["_end_op"]) == (0x150, 0x250, "update", "update")
    assert (row["_xid"], row["_end_xid"]) == (10, 12)


def test_the_lakes_own_tables_end_at_the_moment(spark: SparkSession, lake: Lake) -> None:
    """Changes and transactions end at the watermark, or at the statement's moment."""
    count = "select (select count(*) from auditlake.changes) as c, (select count(*) from auditlake.transactions) as t"
    assert tuple(run_sql(spark, lake, count).collect()[0]) == (7, 4)
    assert tuple(run_sql(spark, lake, count, "0/200").collect()[0]) == (3, 2)
    assert tuple(run_sql(spark, lake, count, "0/380").collect()[0]) == (7, 4)
    assert run_sql(spark, lake, "select * from auditlake.gaps").collect() == []
    names = "select auditlake.relations.table, relations.columns.name from auditlake.relations order by relation"
    rows = run_sql(spark, lake, names).collect()
    assert [tuple(row) for row in rows] == [("orders", ["id", "note", "price", "at"]), ("customers", ["id", "name"])]


def test_explain_describe_and_show_work_on_tables_of_the_lake(spark: SparkSession, lake: Lake) -> None:
    """The three statements besides queries."""
    assert "Filter" in run_sql(spark, lake, "explain select * from orders", "0/150").collect()[0][0]
    described = run_sql(spark, lake, "describe public.orders").collect()
    assert [(row["col_name"], row["data_type"]) for row in described][2] == ("price", "decimal(10,2)")
    shown = run_sql(spark, lake, "show tables").collect()
    assert ("public", "orders") in [tuple(row) for row in shown]
    assert run_sql(spark, lake, "values (1)").collect()[0][0] == 1


def test_a_statement_leaves_no_view_in_the_session(spark: SparkSession, lake: Lake) -> None:
    """Views are dropped when the DataFrame is returned, and after an error; the DataFrame still runs."""
    rows = run_sql(spark, lake, "select * from orders")
    with pytest.raises(BadUsage):
        run_sql(spark, lake, "select nothing from orders")
    assert [table.name for table in spark.catalog.listTables() if table.name.startswith("auditlake_")] == []
    assert rows.count() == 2


def test_an_analysis_error_is_one_short_line(
    spark: SparkSession, lake: Lake, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither the error nor stderr has a plan, a name of our views, or a stack."""
    refused = {
        "select nte from orders": ["nte", "note"],
        "select orders.id from orders o": ["orders"],
        "select no_such_function(id) from orders": ["no_such_function"],
        "select id, count(*) from orders": ["GROUP BY"],
        "select * from identifier('public.orders')": ["identifier"],
    }
    for sql, words in refused.items():
        with pytest.raises(BadUsage) as caught:
            run_sql(spark, lake, sql, "0/200")
        message = caught.value.message
        assert all(word in message for word in words), message
        assert not any(word in message for word in ("\n", "auditlake_", "SQLSTATE", "line 1")), message
        assert caught.value.hint
    assert "Project" not in capfd.readouterr().err


def test_a_failing_row_shows_no_value(spark: SparkSession, lake: Lake, capfd: pytest.CaptureFixture[str]) -> None:
    """Spark quotes the failing value; neither our error nor pyspark's log does."""
    failing = run_sql(spark, lake, "select cast(note as int) from orders where note = 'b'", "0/200")
    with pytest.raises(BadUsage) as caught:
        render(failing, "csv", io.StringIO())
    assert "'b'" not in caught.value.message
    assert "CAST_INVALID_INPUT" in caught.value.message
    assert "'b'" not in capfd.readouterr().err


def test_typed_values_are_rendered_exactly(spark: SparkSession, lake: Lake) -> None:
    """CSV and JSON lines of typed values: decimals exact, instants in UTC, NULL distinct from ''."""
    rows = run_sql(spark, lake, "select * from orders order by id", "0/1FF")
    out = io.StringIO()
    assert render(rows, "csv", out) == 2
    at = "2026-01-01T12:00:00.250000Z"
    assert out.getvalue() == f'id,note,price,at\n1,b,2.00,{at}\n2,"",10.50,{at}\n'
    out = io.StringIO()
    render(
        run_sql(spark, lake, "select id, note, price, array(at) as ats from orders where id = 3", "0/200"), "json", out
    )
    assert out.getvalue() == f'{{"id": 3, "note": null, "price": null, "ats": ["{at}"]}}\n'
    out = io.StringIO()
    assert render(rows, "table", out) == 2
    assert "10.50" in out.getvalue()


def test_every_type_is_rendered_exactly(spark: SparkSession) -> None:
    """Also types that Python or Arrow would alter or lack, and inside arrays, maps and structs."""
    expected = {
        "cast(0.1 as float)": 0.1,
        "array(cast(0.1 as float), null)": [0.1, None],
        "map('k', named_struct('f', cast(0.1 as float), 'at', timestamp'2026-01-01 00:00:00Z'))": {
            "k": {"f": 0.1, "at": "2026-01-01T00:00:00Z"}
        },
        "x'00ff'": "\\x00ff",
        "map('k', 1.50)": {"k": 1.5},
        "timestamp_ntz'2026-01-01 00:00:00.25'": "2026-01-01T00:00:00.250000",
        "timestamp_micros(-62135596800000001)": "-62135596800000001 µs since 1970",
        "interval '1' month": "INTERVAL '1' MONTH",
        "interval '25' hour": "INTERVAL '25' HOUR",
        "array(interval '1' month)": ["INTERVAL '1' MONTH"],
        "parse_json('{\"a\": 1}')": {"a": 1},
        "double('nan')": "NaN",
        "null": None,
    }
    out = io.StringIO()
    render(spark.sql("select " + ", ".join(f"{sql} as c{n}" for n, sql in enumerate(expected))), "json", out)
    assert dict(zip(expected, json.loads(out.getvalue()).values(), strict=True)) == expected


def test_a_script_is_answered_as_of_one_moment(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """Results come in order; a Parquet file has typed rows; a failure leaves no file."""
    script = "select count(*) as n from orders; select note from orders order by id;"
    queries = SPARK_SQL.prepare_all(read_state(lake, "0/1FF", UTC, script=script), script)
    path = tmp_path / "answer"
    answer([plan(spark, query) for query in queries], OutputForm("csv", path))
    assert path.read_text() == 'n\n2\n\nnote\nb\n""\n'
    wanted = OutputForm("parquet", path)
    with pytest.raises(BadUsage):
        wanted.check(len(queries))
    orders = run_sql(spark, lake, "select * from orders order by id", "0/1FF")
    answer([orders], wanted)
    found = pq.read_table(path)
    assert pa.types.is_decimal128(found.schema.field("price").type)
    assert [tuple(row.values())[:3] for row in found.to_pylist()] == [
        (1, "b", Decimal("2.00")),
        (2, "", Decimal("10.50")),
    ]
    with pytest.raises(BadUsage, match="fails on some row"):
        answer([orders, run_sql(spark, lake, "select cast(note as int) from orders")], OutputForm("json", path))
    assert pq.read_table(path).equals(found)
    assert set(tmp_path.iterdir()) == {path}


def test_read_and_register_work_from_python(spark: SparkSession, lake: Lake) -> None:
    """`read` returns a DataFrame; `register` creates a qualified and a bare view for each table."""
    rows = auditlake.read(spark, lake.root, "public.orders", as_of="0/200").collect()
    assert {(row["id"], row["note"]) for row in rows} == STATES["0/200"]
    assert auditlake.read(spark, str(lake.root), "auditlake.transactions", as_of="0/200").count() == 2
    views = auditlake.register(spark, lake.root, as_of="0/200")
    assert views == ["customers", "orders", "public__customers", "public__orders"]
    try:
        assert spark.sql("select count(*) from orders join public__customers using (id)").collect()[0][0] == 1
        with pytest.raises(NotAnswerable):
            auditlake.register(spark, lake.root, as_of="0/FF")
        with pytest.raises(BadUsage):
            auditlake.read(spark, lake.root, "public.orders limit 1")
    finally:
        for view in views:
            spark.catalog.dropTempView(view)


def test_exported_views_run_in_spark(spark: SparkSession, lake: Lake) -> None:
    """The scripts of `auditlake views --engine spark` run as they are; an LSN that is not applied fails."""
    live = Choice(None, open_end=True, parametrised=False)
    functions = Choice(None, open_end=False, parametrised=True)
    session = spark.newSession()
    try:
        for choice in (live, functions):
            for statement in split_script(view_script(lake, "spark", choice)):
                session.sql(statement)
        found = session.sql("select id, note from public.orders").collect()
        assert {tuple(row) for row in found} == STATES["0/200"]
        found = session.sql("select id, note from public.orders_as_of(512)").collect()
        assert {tuple(row) for row in found} == STATES["0/200"]
        at = "timestamp'2026-11-21 09:00:10Z' - interval 1 second"
        found = session.sql(f"select id, note from public.orders_at({at})").collect()
        assert {tuple(row) for row in found} == {(1, "b"), (2, "")}
        with pytest.raises(SparkRuntimeException, match="begins later"):
            session.sql("select auditlake.lsn_at(timestamp'2026-11-21 08:00:00Z')").collect()
        found = session.sql("select year(_to_time), _to_lsn from public_versions.orders where id = 3").collect()
        assert [tuple(row) for row in found] == [(9999, 2**63 - 1)]
        with pytest.raises(SparkRuntimeException, match="known from LSN 256 to 512"):
            session.sql("select * from public.orders_as_of(513)").collect()
    finally:
        session.sql("drop schema if exists public cascade")
        session.sql("drop schema if exists public_versions cascade")
        session.sql("drop schema if exists auditlake cascade")


def test_exported_functions_refuse_a_gap_in_spark(spark: SparkSession, own: Lake) -> None:
    """By the LSN, and by a time to which only the LSN before it belongs."""
    record_gaps(own, [Gap(ORDERS, Lsn(0x110), Lsn(0x160), "it's lost", T0_US + 1_000_000, T0_US + 7_000_000)])
    session = spark.newSession()
    at = "timestamp'2026-11-21 09:00:0{}Z'"
    try:
        for statement in split_script(view_script(own, "spark", Choice(None, open_end=False, parametrised=True))):
            session.sql(statement)
        for call in ("as_of(273)", f"at({at.format(2)})"):
            with pytest.raises(SparkRuntimeException, match="between LSN 272 and 352 are missing: it's lost"):
                session.sql(f"select * from public.orders_{call}").collect()
        for call in ("as_of(352)", f"at({at.format(7)})"):
            found = session.sql(f"select id, note from public.orders_{call}").collect()
            assert {tuple(row) for row in found} == {(1, "b"), (2, "")}
    finally:
        session.sql("drop schema if exists public cascade")
        session.sql("drop schema if exists auditlake cascade")


def test_exported_views_refuse_what_has_expired_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """A view of a moment, and the functions; later moments are as they were."""
    own = write_lake_with_manifest(tmp_path / "lake")
    apply_pending(lambda: spark, own)
    session = spark.newSession()
    at = "at(timestamp'2026-11-21 09:00:07Z')"
    functions = Choice(None, open_end=False, parametrised=True)
    try:
        for choice in (functions, Choice("0/180", open_end=False, parametrised=False)):
            for statement in split_script(view_script(own, "spark", choice)):
                session.sql(statement)
        early = [f"select id, note from public.orders{each}" for each in ("", "_as_of(384)", f"_{at}")]
        late = "select id, note from public.orders_as_of(768)"
        for sql, rows in (*((sql, {(1, "b"), (2, "")}) for sql in early), (late, STATES["0/300"])):
            assert {tuple(row) for row in session.sql(sql).collect()} == rows
        AppendLog(own.changes, CHANGES_SCHEMA).append(None, {CURRENT_APP: T0_US + 86_400_000_000 + 10_000_000})
        expire(own, RetentionPeriods((("public.orders", parse_period("1 day")),)), "tests", lambda _: None)
        for sql in early:
            with pytest.raises(SparkRuntimeException, match=r"versions of public\.orders have been removed since"):
                session.sql(sql).collect()
        assert {tuple(row) for row in session.sql(late).collect()} == STATES["0/300"]
    finally:
        session.sql("drop schema if exists public cascade")
        session.sql("drop schema if exists auditlake cascade")
