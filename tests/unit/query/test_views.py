"""The views of `auditlake views`, run by DuckDB over a small lake. Trino's are parsed, Spark's run in tests/spark."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from auditlake.capture.change_log import MONO_SCHEMA
from auditlake.delta.append_table import AppendLog
from auditlake.engine import Engine
from auditlake.erasure.retention import expire
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.follow import Applier
from auditlake.lake.gaps import Gap, record_gaps
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import CHANGES_APP, CURRENT_APP, Lake
from auditlake.lake.parking import Cause, Parked, park
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from auditlake.query.exported_views import (
    ENGINES,
    Choice,
    Reach,
    Unexpired,
    clock,
    live_views,
    lsn_at,
    parametrised,
    view_script,
    views_at,
    views_by_name,
)
from auditlake.query.system_time import select_state
from auditlake.relation import Column, TableName
from auditlake.settings.retention_rules import RetentionPeriods, parse_period
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.temporal.moments import read_known, resolve
from auditlake.temporal.when import parse_when
from tests.read_lake import history_of
from tests.s3_server import on_disk
from tests.small_lake import (
    CUSTOMERS,
    ORDERS,
    STRANGE_COLUMNS,
    STRANGE_TABLES,
    T0,
    T0_US,
    add_columns,
    write_lake_with_manifest,
    write_small_lake,
    write_strange_lake,
)

LIVE = Choice(None, open_end=False, parametrised=False)
PARAMETRISED = Choice(None, open_end=False, parametrised=True)
DUCK = ENGINES["duckdb"]
_KEPT = Unexpired(Lsn(50), None, 0)
_GONE = "have been removed since this was generated: run auditlake views again"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Write the small lake, in a folder whose name needs quoting."""
    return write_small_lake(tmp_path_factory.mktemp("it's a lake") / "`lake`")


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Write the lake of strange names."""
    return write_strange_lake(tmp_path_factory.mktemp("strange") / "lake")


@pytest.fixture(scope="module")
def reader() -> Iterator["duckdb.DuckDBPyConnection"]:
    """Return DuckDB with the Delta extension of its wheel."""
    folder = Path(duckdb_extension_delta.__file__).parent
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.load_extension(str(next(folder.rglob("delta.duckdb_extension"))))
        yield connection


def made(reader: "duckdb.DuckDBPyConnection", lake: Lake, choice: Choice) -> None:
    """Create views; the extension is loaded already, not downloaded."""
    reader.execute(view_script(lake, "duckdb", choice).removeprefix("install delta;\nload delta;\n"))


@on_disk("DuckDB needs another extension")
def test_live_views_show_open_versions_and_all_versions(reader: "duckdb.DuckDBPyConnection", lake: Lake) -> None:
    """Open versions are the state at the position, 0x200; versions have their periods, open ones without an end."""
    made(reader, lake, LIVE)
    rows = reader.execute("select id, note from public.orders order by id").fetchall()
    assert rows == [(1, "b"), (3, None)]
    versions = "select id, _from_lsn, _to_lsn, _to_time is null, _op from public_versions.orders order by 1, 2"
    assert reader.execute(versions).fetchall() == [
        (1, 0x100, 0x150, False, "snapshot"),
        (1, 0x150, None, True, "update"),
        (2, 0x100, 0x200, False, "snapshot"),
        (3, 0x200, None, True, "insert"),
    ]


@on_disk("DuckDB needs another extension")
def test_an_open_version_can_end_in_9999(reader: "duckdb.DuckDBPyConnection", lake: Lake) -> None:
    """For queries that compare with BETWEEN."""
    made(reader, lake, Choice(None, open_end=True, parametrised=False))
    ends = reader.execute("select _to_lsn, year(_to_time) from public_versions.orders where id = 3").fetchall()
    assert ends == [(2**63 - 1, 9999)]


@on_disk("DuckDB needs another extension")
def test_views_of_one_moment_show_its_state(reader: "duckdb.DuckDBPyConnection", lake: Lake) -> None:
    """A moment that is not applied yet, or not known for every table, is refused."""
    made(reader, lake, Choice("0/180", open_end=False, parametrised=False))
    joined = "select o.id, o.note, c.name from public.orders o join public.customers c using (id)"
    assert reader.execute(joined).fetchall() == [(1, "b", "Ann")]
    for when, words in (("0/250", "applied up to 0/180"), ("0/150", "begins at 0/180"), ("9/0", "knows every commit")):
        with pytest.raises(NotAnswerable, match=words):
            view_script(lake, "duckdb", Choice(when, open_end=False, parametrised=False))


@on_disk("DuckDB needs another extension")
def test_a_function_of_an_lsn_returns_its_state(reader: "duckdb.DuckDBPyConnection", lake: Lake) -> None:
    """One table at two moments in one query; an LSN that is not applied raises an error."""
    made(reader, lake, PARAMETRISED)
    two = "from public.orders_as_of(335) a join public.orders_as_of(336) b using (id)"
    query = f"select a.note, b.note {two} order by id"
    assert reader.execute(query).fetchall() == [("a", "b"), ("", "")]
    for lsn in (0xFF, 0x201):
        with pytest.raises(duckdb.InvalidInputException, match="known from LSN 256 to 512"):
            reader.execute(f"select * from public.orders_as_of({lsn})")


@on_disk("DuckDB needs another extension")
def test_functions_refuse_what_is_inside_a_gap(reader: "duckdb.DuckDBPyConnection", tmp_path: Path) -> None:
    """As every question is refused there, also at a time without a commit; the reason is in the error."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    lost = "it's \x1b lost"
    record_gaps(lake, [Gap(ORDERS, Lsn(0x110), Lsn(0x160), lost, T0_US + 1_000_000, T0_US + 7_000_000)])
    made(reader, lake, PARAMETRISED)
    known = read_known(lake)
    orders = known.tables[ORDERS]
    seconds = [(f"at(timestamptz '{time}')", time) for each in range(10) if (time := f"{T0 + timedelta(seconds=each)}")]
    lsns = [(f"as_of({lsn:d})", f"{Lsn(lsn)}") for lsn in (0x100, 0x110, 0x111, 0x15F, 0x160, 0x200)]
    refused = []
    for call, text in [*seconds, *lsns]:
        when = parse_when(text, T0)
        try:
            select_state(known, orders, resolve(known, when), when)
        except NotAnswerable:
            refused.append(call)
            with pytest.raises(
                duckdb.InvalidInputException, match=r"orders between LSN 272 and 352 are missing: it's \\u"
            ):
                reader.execute(f"select * from public.orders_{call}")
        else:
            assert reader.execute(f"select count(*) from public.orders_{call}").fetchall() == [(2,)]
    assert len(refused) == 5 + 2


@on_disk("DuckDB needs another extension")
def test_a_state_that_lost_versions_is_refused(reader: "duckdb.DuckDBPyConnection", tmp_path: Path) -> None:
    """A function refuses up to the first end of a version that is left, a view only what is lost.

    Versions of orders ended at 0x150, 0x200, 0x250 and 0x300; later states are as they were.
    """
    lake = write_lake_with_manifest(tmp_path / "lake")
    Applier(lake, SparkOnDemand({}, Engine.DUCKDB), lambda _: None).apply()
    pinned = Choice("0/180", open_end=False, parametrised=False)
    made(reader, lake, PARAMETRISED)
    made(reader, lake, pinned)
    function, of_time = "orders_as_of(384)", f"orders_at(timestamptz '{T0 + timedelta(seconds=7)}')"
    then = [(1, "b"), (2, "")]
    late = {"orders_as_of(512)": [(1, "b"), (3, None)], "orders_as_of(768)": [(1, "c"), (4, "new")]}
    assert [rows_of(reader, name) for name in ("orders", function, of_time)] == [then] * 3
    assert rows_of(reader, "orders_as_of(256)") == [(1, "a"), (2, "")]
    expire_versions(lake, "public.orders", 6)
    for name in ("orders_as_of(256)", function, of_time):
        require_lost(reader, name)
    assert {name: rows_of(reader, name) for name in ("orders", *late)} == {"orders": then, **late}
    made(reader, lake, PARAMETRISED)
    assert [rows_of(reader, name) for name in (function, of_time)] == [then] * 2
    with pytest.raises(duckdb.InvalidInputException, match="orders is known from LSN 336 to"):
        rows_of(reader, "orders_as_of(256)")
    expire_versions(lake, "public.orders", 31)
    for name in ("orders", function, of_time, *late):
        require_lost(reader, name)


@on_disk("DuckDB needs another extension")
def test_views_of_a_moment_read_files_from_before_a_column(reader: "duckdb.DuckDBPyConnection", tmp_path: Path) -> None:
    """Closed ones, and open ones of a table of which no version has ended."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    for table in (ORDERS, CUSTOMERS):
        add_columns(history_of(lake, table), Column("added", 23, -1, key=False, since=Lsn(0x170)))
    made(reader, lake, PARAMETRISED)
    made(reader, lake, Choice("0/180", open_end=False, parametrised=False))
    for name in ("orders", "orders_as_of(384)"):
        found = reader.execute(f"select id, note, added from public.{name} order by id").fetchall()
        assert found == [(1, "b", None), (2, "", None)]
    for name in ("customers", "customers_as_of(384)"):
        assert reader.execute(f"select name, added from public.{name}").fetchall() == [("Ann", None)]


@on_disk("DuckDB needs another extension")
def test_a_state_whose_versions_all_ended_and_expired_later_is_refused(
    reader: "duckdb.DuckDBPyConnection", tmp_path: Path
) -> None:
    """None of customers had ended when the views were made."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    made(reader, lake, PARAMETRISED)
    made(reader, lake, Choice("0/180", open_end=False, parametrised=False))
    shown = [f"select name from public.{name}" for name in ("customers", "customers_as_of(384)")]
    Applier(lake, SparkOnDemand({}, Engine.DUCKDB), lambda _: None).apply()
    assert [reader.execute(sql).fetchall() for sql in shown] == [[("Ann",)]] * 2
    expire_versions(lake, "public.customers", 31)
    for sql in shown:
        with pytest.raises(duckdb.InvalidInputException, match=rf"versions of public\.customers {_GONE}"):
            reader.execute(sql)


@on_disk("DuckDB needs another extension")
def test_functions_refuse_times_after_a_table_was_parked(reader: "duckdb.DuckDBPyConnection", tmp_path: Path) -> None:
    """Its LSN is known, but the stream does not have what came after it."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    park(lake, Parked(ORDERS, Cause.PUBLICATION, Lsn(0x150), Lsn(0x180), "it left", "Add it.", T0_US + 7_000_000))
    made(reader, lake, PARAMETRISED)
    found = reader.execute(f"select note from public.orders_at(timestamptz '{T0 + timedelta(seconds=7)}') order by id")
    assert found.fetchall() == [("b",), ("",)]
    for call in (f"at(timestamptz '{T0 + timedelta(seconds=7.5)}')", "as_of(337)"):
        with pytest.raises(duckdb.InvalidInputException, match="orders is known up to LSN 336: it left"):
            reader.execute(f"select * from public.orders_{call}")


@on_disk("DuckDB needs another extension")
def test_a_function_of_a_time_resolves_it_as_when_does(reader: "duckdb.DuckDBPyConnection", lake: Lake) -> None:
    """A time before the lake, or after its currency, raises an error."""
    made(reader, lake, PARAMETRISED)
    known = read_known(lake)
    for seconds in (0, 5, 6, 8, 9, 10, 29.999999, 30, 100):
        time = T0 + timedelta(seconds=seconds)
        [(found,)] = reader.execute("select auditlake.lsn_at(?::timestamptz)", [time]).fetchall()
        assert found == resolve(known, parse_when(time.isoformat(), time)), seconds
    just_before = "timestamptz '2026-11-21 09:00:10Z' - interval 1 second"
    states = f"select id, note from public.orders_at({just_before})"
    assert sorted(reader.execute(states).fetchall()) == [(1, "b"), (2, "")]
    for seconds, words in ((-1, "begins later"), (101, "knew every commit up to")):
        with pytest.raises(duckdb.InvalidInputException, match=words):
            reader.execute("select auditlake.lsn_at(?::timestamptz)", [T0 + timedelta(seconds=seconds)])


@on_disk("DuckDB needs another extension")
def test_a_function_of_a_time_refuses_what_has_expired(reader: "duckdb.DuckDBPyConnection", tmp_path: Path) -> None:
    """Transactions that expired after it was made, or before; later times mean what they meant."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    make_moments(reader, lake)
    AppendLog(lake.changes, CHANGES_SCHEMA).append(None, {CURRENT_APP: T0_US + 86_400_000_000 + 12_000_000})
    day = parse_period("1 day")
    Applier(lake, SparkOnDemand({}, Engine.DUCKDB), lambda _: None).apply()
    expire(lake, RetentionPeriods(changes=day, transactions=day), "tests", lambda _: None)
    for again in (False, True):
        if again:
            make_moments(reader, lake)
        for seconds in (6, 9):
            with pytest.raises(duckdb.InvalidInputException, match="the transactions of this time have expired"):
                reader.execute("select auditlake.lsn_at(?::timestamptz)", [T0 + timedelta(seconds=seconds)])
        for seconds, lsn in ((10, 0x250), (29, 0x250), (30, 0x300)):
            time = T0 + timedelta(seconds=seconds)
            assert reader.execute("select auditlake.lsn_at(?::timestamptz)", [time]).fetchall() == [(lsn,)]


@on_disk("DuckDB needs another extension")
def test_a_function_of_a_time_refuses_one_beside_a_commit_set_far_ahead(
    reader: "duckdb.DuckDBPyConnection", tmp_path: Path
) -> None:
    """As WHEN does, until the next commit; it was made before or after that time."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    far, later = T0 + timedelta(days=365 * 9), T0 + timedelta(seconds=50)
    made = [{"lsn": 0x350, "time": far, "time_mono": T0 + timedelta(seconds=31)}]
    made.append({"lsn": 0x360, "time": later, "time_mono": later})
    AppendLog(lake.transactions, MONO_SCHEMA).append(pa.RecordBatch.from_pylist(made, schema=MONO_SCHEMA), {})
    AppendLog(lake.changes, CHANGES_SCHEMA).append(None, {CHANGES_APP: 0x360})
    make_moments(reader, lake)
    known = read_known(lake)
    for seconds, lsn in ((30, 0x300), (50, 0x360), (60, 0x360)):
        time = T0 + timedelta(seconds=seconds)
        assert reader.execute("select auditlake.lsn_at(?::timestamptz)", [time]).fetchall() == [(lsn,)]
        assert resolve(known, parse_when(time.isoformat(), time)) == lsn
    for seconds in (31, 49):
        time = T0 + timedelta(seconds=seconds)
        with pytest.raises(duckdb.InvalidInputException, match="far ahead of the clock"):
            reader.execute("select auditlake.lsn_at(?::timestamptz)", [time])
        with pytest.raises(NotAnswerable, match="far ahead of the clock"):
            resolve(known, parse_when(time.isoformat(), time))


@on_disk("DuckDB needs another extension")
def test_a_function_of_a_time_refuses_those_of_a_clock_that_went_back(
    reader: "duckdb.DuckDBPyConnection", tmp_path: Path
) -> None:
    """As WHEN does, from the last commit before on, until the clock has caught up."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    ahead, back, later = (T0 + timedelta(seconds=each) for each in (90, 40, 95))
    made = [(0x350, ahead, ahead), (0x360, back, ahead), (0x370, later, later)]
    rows = [{"lsn": lsn, "time": time, "time_mono": mono} for lsn, time, mono in made]
    AppendLog(lake.transactions, MONO_SCHEMA).append(pa.RecordBatch.from_pylist(rows, schema=MONO_SCHEMA), {})
    AppendLog(lake.changes, CHANGES_SCHEMA).append(None, {CHANGES_APP: 0x370})
    make_moments(reader, lake)
    known = read_known(lake)
    for seconds, lsn in ((30, 0x300), (90, 0x360), (94, 0x360), (95, 0x370)):
        time = T0 + timedelta(seconds=seconds)
        assert reader.execute("select auditlake.lsn_at(?::timestamptz)", [time]).fetchall() == [(lsn,)]
        assert resolve(known, parse_when(time.isoformat(), time)) == lsn
    for beside in (30.000001, 40, 50, 89):
        time = T0 + timedelta(seconds=beside)
        with pytest.raises(duckdb.InvalidInputException, match="clock went back"):
            reader.execute("select auditlake.lsn_at(?::timestamptz)", [time])
        with pytest.raises(NotAnswerable, match="clock went"):
            resolve(known, parse_when(time.isoformat(), time))


def expire_versions(lake: Lake, table: str, seconds: int) -> None:
    """Remove the versions of a table that ended in so many seconds of the lake."""
    AppendLog(lake.changes, CHANGES_SCHEMA).append(None, {CURRENT_APP: T0_US + 86_400_000_000 + seconds * 1_000_000})
    expire(lake, RetentionPeriods(((table, parse_period("1 day")),)), "tests", lambda _: None)


def require_lost(reader: "duckdb.DuckDBPyConnection", name: str) -> None:
    """Require that a view or function of orders raises an error."""
    with pytest.raises(duckdb.InvalidInputException, match=rf"versions of public\.orders {_GONE}"):
        rows_of(reader, name)


def rows_of(reader: "duckdb.DuckDBPyConnection", name: str) -> list[tuple[object, ...]]:
    """Read what a view or function of orders shows."""
    return reader.execute(f"select id, note from public.{name} order by id").fetchall()


def make_moments(reader: "duckdb.DuckDBPyConnection", lake: Lake) -> None:
    """Create the function anew."""
    reader.execute("drop schema if exists auditlake cascade")
    for statement in lsn_at("duckdb", clock(read_known(lake))):
        reader.execute(statement)


@on_disk("DuckDB needs another extension")
def test_each_table_has_views_of_its_own_rows(reader: "duckdb.DuckDBPyConnection", strange: Lake) -> None:
    """Names that differ only in case, that DuckDB reserves, that other views have, and with line breaks."""
    names = {name: STRANGE_TABLES[table.name] for name, table in views_by_name(read_known(strange), DUCK).items()}
    assert sorted(names.values()) == sorted(STRANGE_TABLES.values())
    for choice in (LIVE, Choice("0/180", open_end=False, parametrised=False), PARAMETRISED):
        made(reader, strange, choice)
        for (schema, table), number in names.items():
            view = f"{table}_as_of" if choice.parametrised else table
            found = reader.execute(f"select * from {DUCK.name(schema, view)}{'(384)' * choice.parametrised}")
            assert [description[0] for description in found.description][1:] == list(STRANGE_COLUMNS)
            assert found.fetchall() == [(number,) * (1 + len(STRANGE_COLUMNS))]
        for (schema, table), number in names.items() if choice == LIVE else ():
            found = reader.execute(f"select id from {DUCK.name(f'{schema}_versions', table)}")
            assert found.fetchall() == [(number,)]


def test_clients_of_spark_find_only_the_ends_of_statements(strange: Lake) -> None:
    """Beeline splits a script at each semicolon, in backticks too, and takes what follows -- there as a comment."""
    for choice in (LIVE, Choice("0/180", open_end=False, parametrised=False), PARAMETRISED):
        lines = view_script(strange, "spark", choice).split("\n")
        assert not [line for line in lines if ";" in line.removesuffix(";") or "--" in line or line.startswith("!")]


def test_an_added_column_is_null_before_it_existed() -> None:
    """Views of a moment have its columns; a function has every applied column."""
    added, ahead = Column("c", 23, -1, key=False, since=Lsn(60)), Column("d", 23, -1, key=False, since=Lsn(200))
    columns = (Column("id", 23, -1, key=True), added, ahead)
    table = HistoryTable(TableName("public", "t"), Lake(Path("/t")), columns, 3, Lsn(100), Lsn(50), as_made=True, oid=1)
    (before,) = [each for each in views_at(DUCK, {table.name: table}, Lsn(59), {table: _KEPT}) if "view" in each]
    (then,) = [each for each in views_at(DUCK, {table.name: table}, Lsn(60), {table: _KEPT}) if "view" in each]
    assert '"c"' not in before
    assert 'select "id", "c"\n' in then
    assert not [each for each in live_views(DUCK, {table.name: table}, open_end=False) if '"d"' in each]
    function, _ = [
        each for each in parametrised("duckdb", [Reach(table, Lsn(100), table.name, _KEPT)]) if "macro" in each
    ]
    assert 'select "id", case when _at_lsn >= 60 then "c" end as "c"\n' in function


def test_a_table_without_columns_has_only_a_view_of_versions() -> None:
    """No engine has a view without columns."""
    table = HistoryTable(TableName("public", "t"), Lake(Path("/t")), (), 3, Lsn(100), Lsn(50), as_made=True, oid=1)
    (versions,) = [each for each in live_views(DUCK, {table.name: table}, open_end=False) if "view" in each]
    assert versions.startswith('create or replace view "public_versions"."t" as\nselect "_from_lsn", ')
    assert [
        *views_at(DUCK, {table.name: table}, Lsn(60), {table: _KEPT}),
        *parametrised("duckdb", [Reach(table, Lsn(100), table.name, _KEPT)]),
    ] == []


def test_contradicting_choices_are_refused(lake: Lake) -> None:
    """Functions for Trino, or two kinds of views at once."""
    with pytest.raises(BadUsage, match="trino"):
        view_script(lake, "trino", PARAMETRISED)
    with pytest.raises(BadUsage, match="exclude"):
        view_script(lake, "spark", Choice("0/180", open_end=False, parametrised=True))


@pytest.mark.parametrize("choice", [LIVE, Choice("0/180", open_end=True, parametrised=False)])
def test_statements_for_trino_are_parsed(lake: Lake, choice: Choice) -> None:
    """Every statement is parsed by sqlglot in Trino's dialect; the recipe was run by hand (docs/bi.md)."""
    parsed = sqlglot.parse(view_script(lake, "trino", choice).replace("call system", "call_system"), dialect="trino")
    names = {statement.this.sql("trino") for statement in parsed if isinstance(statement, exp.Create)}
    assert {'"public"."orders"', '"public"."customers"'} <= names
