"""PostgreSQL's dialect: what is refused and where, names, numbers and documents by themselves, and the command line."""

import gc
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, date
from decimal import Context, Decimal
from functools import cache, wraps
from pathlib import Path
from typing import Any

import pytest

from auditlake import cancellation
from auditlake.cancellation import Cancellation, Cancelled
from auditlake.delta.sql import open_duckdb
from auditlake.errors import AuditlakeError, BadUsage, NotAnswerable
from auditlake.lake.duckdb_rows import connect_for_statements
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.query import duckdb_views
from auditlake.query.duckdb_views import StatementDatabase
from auditlake.query.in_duckdb import InDuckDb
from auditlake.query.languages import POSTGRES, SPARK, Dialect
from auditlake.query.postgres import documents, json_texts, numbers, parser, powers
from auditlake.query.postgres import engine as postgres_engine
from auditlake.query.postgres.engine import _FUNCTIONS, PostgresEngines, _guarded
from auditlake.query.postgres.numbers import divide
from auditlake.query.postgres.parser import is_complete, split
from auditlake.query.postgres.statement import prepare_query
from auditlake.query.postgres.texts import NotRead, interval_parts, interval_text
from auditlake.query.statement import LakeState, read_state
from auditlake.relation import Column, TableName
from tests.command import run_here
from tests.page import write_lake as write_page_lake
from tests.small_lake import T0_US, version, write_history, write_lake_with_manifest


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small lake."""
    root = tmp_path_factory.mktemp("small") / "lake"
    write_lake_with_manifest(root)
    return root


@pytest.fixture(scope="module")
def state(lake: Path) -> LakeState:
    """Its state."""
    return read_state(Lake(lake), None, UTC)


@cache
def _engines(root: str) -> PostgresEngines:  # noqa: ARG001 - a database reads one lake
    """Return one database for all statements, as a server has: each would register 130 functions."""
    return PostgresEngines()


def _rows(state: LakeState, sql: str, engines: PostgresEngines | None = None) -> list[tuple[object, ...]]:
    engines = engines or _engines(str(state.known.lake.root))
    _, batches = engines.rows(state, prepare_query(state, sql)).batches()
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("select id, note from orders order by note desc, id", [(4, "new"), (1, "c")]),
        ("select id, note from orders for system_time as of '0/180' order by id", [(1, "b"), (2, "")]),
        (
            "select o.note, b.note as b from orders for system_time as of '0/100' b join orders o using (id)",
            [("c", "a")],
        ),
        ("select count(*), min(_from_lsn) from orders for system_time all", [(6, 0x100)]),
        ("select coalesce(null, _raw) from orders for system_time all limit 1", [(None,)]),
        ("select lsn from auditlake.transactions order by lsn desc limit 1", [(0x300,)]),
        (
            "select r.table, columns->0->>'name', (columns #> '{0,key}')::bool from auditlake.relations r order by 1",
            [("customers", "id", True), ("orders", "id", True)],
        ),
    ],
)
def test_tables_are_read_at_their_moments(state: LakeState, sql: str, rows: list[tuple[object, ...]]) -> None:
    """Changes that are not applied yet are part of a state: order 3 is gone, order 4 is there."""
    assert _rows(state, sql) == rows


@pytest.mark.parametrize(
    "value", ["repeat('x', 40000)", "decode(repeat('61', 40000), 'hex')", "array[repeat('x', 40000)]"]
)
def test_rows_that_are_too_long_together_are_refused(state: LakeState, value: str) -> None:
    """DuckDB copies 2,048 rows at once, outside of its limit of memory."""
    sql = f"select 1 as a, {value} as v from generate_series(1, 2048)"
    with pytest.raises(NotAnswerable, match="2,048 rows have texts of more than 64 MB"):
        _rows(state, sql)
    assert len(_rows(state, f"{sql} limit 100")) == 100


def test_one_row_may_be_longer_than_many(state: LakeState, monkeypatch: pytest.MonkeyPatch) -> None:
    """No LIMIT would make it shorter."""
    monkeypatch.setattr(postgres_engine, "HELD_BYTES", 1 << 20)
    assert _rows(state, "select string_agg(repeat('x', 200000), '') as v from generate_series(1, 10)") == [
        ("x" * 2_000_000,)
    ]


def test_rows_are_padded_in_short_batches(state: LakeState) -> None:
    """A batch of all rows would have 131 MB."""
    sql = "select g::text::char(32000) as a, null::char(32000) as b, g as c from generate_series(1, 2048) g"
    _, fetched = PostgresEngines().rows(state, prepare_query(state, sql)).batches()
    batches = list(fetched)
    assert max(batch.nbytes for batch in batches) < 20 << 20
    assert [row["c"] for batch in batches for row in batch.to_pylist()] == list(range(1, 2049))
    assert batches[0]["a"][0].as_py() == "1".ljust(32000)


def test_a_row_of_too_many_blanks_is_refused(state: LakeState) -> None:
    """Nothing else would bound its length."""
    columns = ", ".join(f"'a'::char(10000000) as c{n}" for n in range(7))
    with pytest.raises(NotAnswerable, match=r"a row has 70,000,000 characters of char\(n\)"):
        _rows(state, f"select {columns}")


def _points(folder: Path, values: Sequence[float | None]) -> LakeState:
    """Return the state of a lake with a table of floats."""
    lake = write_lake_with_manifest(folder / "lake")
    columns = (Column("id", 23, -1, key=True), Column("v", 701, -1, key=False))
    rows = [version(0x100, None, "snapshot", None) | {"id": n, "v": v} for n, v in enumerate(values, 1)]
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    write_history(lake, TableName("public", "points"), columns, rows, positions)
    return read_state(lake, None, UTC)


def test_nan_is_greater_than_every_number(tmp_path: Path) -> None:
    """As in PostgreSQL: the statistics of a file do not count it."""
    points = _points(tmp_path, [1.0, float("nan")])
    for condition in ("v > 5", "v <> 1", "v not in (0, 1)", "v is distinct from 1"):
        assert _rows(points, f"select id from points where {condition}") == [(2,)]


def test_a_document_that_is_nested_too_deep_is_named_so(tmp_path: Path) -> None:
    """It can be read, but not taken apart."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    columns = (Column("id", 23, -1, key=True), Column("doc", 3802, -1, key=False))
    document = {"id": 1, "doc": f'{{"a": {"[" * 5000}{"]" * 5000}}}'}
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    rows = [version(0x100, None, "snapshot", None) | document]
    write_history(lake, TableName("public", "documents"), columns, rows, positions)
    state = read_state(lake, None, UTC)
    for operation in ("doc -> 'a'", "doc @> doc"):
        with pytest.raises(BadUsage, match="a document is nested too deep"):
            _rows(state, f"select {operation} from documents")


def test_statements_of_both_dialects_run_in_one_database(state: LakeState, monkeypatch: pytest.MonkeyPatch) -> None:
    """So they share one limit of memory, also with functions that only one of them needs."""
    opened, engine = list[Lake](), InDuckDb({})

    def connect(lake: Lake) -> object:
        opened.append(lake)
        return connect_for_statements(lake)

    monkeypatch.setattr(duckdb_views, "connect_for_statements", connect)
    for dialect in (SPARK, POSTGRES, SPARK):
        query = engine.prepare(state, "select count(*) as n from orders", dialect)
        assert list(engine.answer(state, query).texts()) == [("2",)]
    assert opened == [state.known.lake]


def test_functions_outlive_the_statement_that_needed_them_first(state: LakeState) -> None:
    """DuckDB frees those of a connection that is closed, and would crash in the next statement."""
    gc.freeze()  # what exists already: a collection of all of it takes 0.1 s
    root = connect_for_statements(state.known.lake)
    for engine in (PostgresEngines(), PostgresEngines(StatementDatabase(root.cursor))):
        for n in range(1, 12):
            rows = engine.rows(state, prepare_query(state, f"select count(*) * 1.0 / {n} from orders"))
            assert [row[0] for row in rows.texts()] == [divide("2.0", str(n))]
            gc.collect()


def test_a_cancelled_statement_ends_within_a_batch(state: LakeState, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB does not look before the next one: 2,048 calls may take half an hour, and occupy a thread of a server."""
    running, calls, engines = Cancellation(), list[str](), PostgresEngines()
    function, takes, gives = _FUNCTIONS["pg_reverse"]

    def slow(text: str) -> Any:
        calls.append(text)
        running.cancel()
        return function(text)

    monkeypatch.setitem(_FUNCTIONS, "pg_reverse", (slow, takes, gives))
    with pytest.raises(Cancelled), running.work():
        _rows(state, "select reverse(a.id::text || b.id::text) from orders a, orders b", engines)
    assert len(calls) == 1
    assert _rows(state, "select reverse('pg_reverse(' || id::text) from orders where id = 1", engines) == [
        ("1(esrever_gp",)
    ]


_MANY = 5000
_LISTS = f"[{', '.join(['[1]'] * _MANY)}]"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("pg_contains", (_LISTS, _LISTS)),
        ("pg_contains", (f"[{_LISTS}]", f"[[[2], {_LISTS[1:]}]")),
        ("pg_json_equal", (_LISTS, f" {_LISTS}")),
        ("pg_raw_element", (_LISTS, 0)),
        ("pg_raw_at_path", (f"{'[' * _MANY}{']' * _MANY}", ["0"] * _MANY)),
        ("pg_initcap", ("a" * _MANY,)),
        ("pg_encode", (b"a" * _MANY, "escape")),
        ("pg_total", ("1 " * _MANY,)),
        ("pg_variance", ("1 " * _MANY, 1)),
        ("pg_like", ("a" * _MANY, "")),
    ],
)
def test_a_cancelled_call_ends_within_it(monkeypatch: pytest.MonkeyPatch, name: str, given: tuple[object, ...]) -> None:
    """DuckDB interrupts no call, and one of large documents would compute for hours."""
    running, looks, require = Cancellation(), list[int](), cancellation.require_uncancelled_work

    def looked(number: int) -> None:
        looks.append(number)
        if len(looks) == 3:
            running.cancel()
        require(number)

    monkeypatch.setattr(cancellation, "require_uncancelled_work", looked)
    called = _guarded(_FUNCTIONS[name][0])
    with pytest.raises(Cancelled), running.work():
        called(running.number, *given)
    assert looks == [running.number] * 3


def test_exp_computes_with_a_bounded_number_of_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two million it takes 26 s, which nothing interrupts, and has the same result."""
    digits = list[int]()

    class Counting(Context):
        def exp(self, value: Decimal | int, /) -> Decimal:
            digits.append(len(Decimal(value).as_tuple().digits))
            return super().exp(value)

    monkeypatch.setattr(powers, "Context", Counting)
    assert powers.exp_of("3." + "7" * 9000) == powers.exp_of("3." + "7" * 3999)
    assert digits == [numbers.DIGITS, numbers.DIGITS]


def test_an_interval_is_read_once_from_its_first_to_its_last_character() -> None:
    """Blanks that are searched again from each place on would take a billion steps here."""
    with pytest.raises(NotRead):
        interval_parts(f"1 day{' ' * 1_000_000}x")


@pytest.mark.parametrize("sql", ["select '1'::jsonb || '[2]'", "select (note || '{')::jsonb from orders"])
def test_a_statement_leaves_no_document_in_memory(state: LakeState, sql: str) -> None:
    """The rows that have it may be erased while a server runs. The second statement fails."""
    kept = documents.parsed('{"a": "erased"}')
    assert documents.parsed('{"a": "erased"}') is kept
    with suppress(BadUsage):
        _rows(state, sql)
    assert documents.parsed('{"a": "erased"}') is not kept


def test_an_interval_is_computed_once(state: LakeState, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although its parts are needed in several places: the calls of a chain would multiply."""
    calls: list[str] = []
    for name in ("pg_times", "pg_interval"):
        function, takes, gives = _FUNCTIONS[name]

        @wraps(function)
        def recorded(*given: object, name: str = name, function: Callable[..., object] = function) -> object:
            calls.append(name)
            return function(*given)

        monkeypatch.setitem(_FUNCTIONS, name, (recorded, takes, gives))
    chain = "(id || ' days')::interval::text::interval::text::interval * id * 0.5 * id * 2"
    assert _rows(state, f"select {chain} from orders where id = 1", PostgresEngines()) == [("24:00:00",)]
    assert sorted(calls) == ["pg_interval"] * 3 + ["pg_times"] * 4


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        ("select nte from orders", "there is no column nte at line 1, column 8", "Did you mean note?"),
        ("select sum(prce) from orders", "there is no column prce at line 1, column 12", "Did you mean price?"),
        ("select max(o.nte) over () from orders o", "there is no column nte in o at line 1", "Did you mean note?"),
        ("select id from customers where exists (select sum(prce) from orders)", "there is no column prce", None),
        ("select o.nte from orders o", "there is no column nte in o at line 1, column 8", "Did you mean note?"),
        ("select id\nfrom orders where )", "cannot parse the SQL at line 2", None),
        (
            "select 1 from ordrs",
            "there is no table ordrs in this lake at line 1, column 15",
            "Did you mean public.orders?",
        ),
        ("select x.id from orders o", "there is no table x in this FROM", None),
        ("select orders.id from orders o", "there is no table orders in this FROM", "There are o."),
        ('select "Note" from orders', "there is no column Note", "Did you mean note?"),
        ("select id from orders join customers on true", "column id is ambiguous", "Write the table before it."),
        ("select 'x'::int", "invalid input syntax for type integer: 'x' at line 1, column 8", None),
        ("select id from orders where note = 1", "a comparison of text and integer", "Write a cast."),
        ("insert into orders values (1)", "INSERT is not a query", None),
        ("with x as (delete from orders returning id) select * from x", "this WITH does more than read", None),
        ("select id into y from orders", "this SELECT does more than read", None),
        ("select 1; select 2", "the SQL is 2 statements", None),
        ("select 'a", "a quote or a comment does not end", None),
        ("select " + "(" * 5000 + "1", "nested too deep", None),
        ("select * from orders for system_time as of 'soon'", "soon", None),
        ("with q as (select 1) select * from q for system_time all", "the name of a query", None),
    ],
)
def test_wrong_statements_are_bad_usage(state: LakeState, sql: str, message: str, hint: str | None) -> None:
    """No engine has started by then."""
    with pytest.raises(BadUsage) as caught:
        prepare_query(state, sql)
    assert message in caught.value.message
    assert hint is None or caught.value.hint == hint


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("select id,\n  to_tsvector(note) from orders", "the function to_tsvector(text) at line 2, column 3"),
        ("select pg_read_file('/etc/passwd')", "the function pg_read_file(unknown) at line 1, column 8"),
        ("select * from pg_ls_dir('/')", "pg_ls_dir in FROM at line 1, column 15"),
        ("select * from read_csv('/etc/passwd')", "in FROM"),
        ("select count(*) from orders group by distinct rollup (note)", "GROUP BY DISTINCT at line 1, column 55"),
        ("select id from orders for update", "LOCKS of SELECT"),
        ("select * from orders tablesample system (10)", "SAMPLE of TABLE"),
        ("select price from orders where note ~ '(?i)a'", "a regular expression that engines read differently"),
        (f"select 1 from orders o0 {' '.join(f'cross join orders o{n}' for n in range(1, 65))}", "more than 64 tables"),
        ("select 'today'::date", "'today' of date at line 1, column 8"),
        ("select current_user", "current_user at line 1, column 8"),
        ("select e'\\x41'", "an escape at line 1, column 8"),
        ("select $1", "PARAMETER"),
        ("select at::date at time zone 'Europe/Paris' from orders", "AT TIME ZONE of date"),
        (
            "select (select max(o.id) from customers) from orders o",
            "an aggregate of columns of an outer query at line 1, column 16",
        ),
        (
            "select json_build_object(id, note) from orders",
            "the function json_build_object(integer, text) at line 1, column 8",
        ),
        (f"select array_to_string(array[id], '{'-' * 101}') from orders", "a separator that is not a short literal"),
        ("select convert_from()", "the function convert_from()"),
        ("select array[_raw] from orders for system_time all", "ARRAY of map"),
        ("select greatest(_raw, null) from orders for system_time all", "greatest of map"),
        ("select '1e5000'::numeric(10,2)", "'1e5000' of numeric"),
        (
            "select array_agg(id) over (order by id rows between 1001 preceding and current row) from orders",
            "array_agg over a frame of many rows",
        ),
        ("select orders from orders", "a row of orders as a value at line 1, column 8"),
    ],
)
def test_what_is_not_translated_is_named_with_its_place(state: LakeState, sql: str, what: str) -> None:
    """The exit code is 7, or 2 if it cannot be told from a mistake."""
    with pytest.raises(AuditlakeError) as caught:
        prepare_query(state, sql)
    assert caught.value.exit_code in {2, 7}
    assert what.lower() in caught.value.message.lower()


def test_a_text_of_the_statement_is_no_part_of_a_message(state: LakeState) -> None:
    """DuckDB quotes the statement in its own."""
    with pytest.raises(NotAnswerable, match="a column is neither grouped nor in an aggregate"):
        _rows(state, "select 'GROUPING ' as a, note, count(*) from orders")


@pytest.mark.parametrize(
    "value",
    [
        "date '0001-01-01' - 1",
        "timestamp '0001-01-01' - interval '1 second'",
        "(timestamptz '0001-01-01' - interval '1 year')::text",
        "extract(year from date '0001-01-01' - 1)",
        "concat(date '0001-01-01' - 1)",
    ],
)
def test_a_time_before_the_year_1_is_not_shown(state: LakeState, value: str) -> None:
    """PostgreSQL writes it with BC, and counts its years in another way than DuckDB."""
    with pytest.raises(NotAnswerable, match="the year is not between 1 and 9999"):
        _rows(state, f"select {value}")


@pytest.mark.parametrize(
    "value",
    [
        "make_date(400000, 1, 1)",
        "date '9999-12-31' + id",
        "array[date '9999-12-31' + 1]",
        "array_agg(date '0001-01-01' - id)",
        "timestamp '9999-12-31' + interval '1 day'",
        "timestamptz '9999-12-31 23:59:59.999999+00' + interval '1 microsecond'",
    ],
)
def test_a_time_after_the_year_9999_is_not_shown(state: LakeState, value: str) -> None:
    """Python has none, nor a text for it; the last one before is shown."""
    rows = f"select {value} as v from orders{'' if 'agg' in value else ' limit 1'}"
    with pytest.raises(NotAnswerable, match="the year is not between 1 and 9999"):
        _rows(state, rows)
    latest = "select timestamptz '9999-12-31 23:59:59.999999+00' as t, array[date '9999-12-31', '0001-01-01'] as d"
    ((time, days),) = _rows(state, latest)
    assert (str(time), days) == ("9999-12-31 23:59:59.999999+00:00", [date.max, date.min])


def test_a_local_time_after_the_year_9999_is_not_shown(state: LakeState) -> None:
    """Not as a number of too many digits."""
    for time in ("timestamptz '9999-12-31 23:30:00+00'", "timestamptz '9999-12-31 23:30:00+00' - id * interval '1 us'"):
        with pytest.raises(NotAnswerable, match="the year is not between 1 and 9999"):
            _rows(state, f"select ({time}) at time zone 'Europe/Paris' from orders")


@pytest.mark.parametrize(
    "value",
    [
        "repeat('a', 2000000000)",
        "repeat(repeat('a', 1000), 500)",
        "lpad('a', 2000000000)",
        "rpad('a', 2000000000, 'xy')",
        "rpad('a', 100000, '€')",
        "replace(repeat('a', 1000000), 'a', repeat('b', 10000))",
        "rpad(repeat('a', 200000), 300000) || rpad(repeat('b', 200000), 300000)",
        "concat(repeat('a', 250000), '-', repeat('b', 250000), repeat('c', 250000))",
        "concat_ws(repeat('a', 200000), 'a', 'b', 'c', 'd')",
        "array_to_string(array[repeat('a', 200000), repeat('b', 200000), repeat('c', 200000)], '')",
        "array_to_string(array[repeat('a', 200000), repeat('b', 200000), repeat('c', 200000)]::text[], '')",
        "array_to_string(array[rpad(repeat('a', 200000), 300000)] || array[rpad(repeat('b', 200000), 300000)], '')",
    ],
)
def test_a_function_makes_no_text_of_gigabytes(state: LakeState, value: str) -> None:
    """Of 2,048 rows at once: DuckDB's limit of memory does not count texts."""
    for column, rows in ((value, ""), (value.replace("0)", "0 + id::int)"), " from orders")):
        with pytest.raises(BadUsage, match="a value would become longer by more than 256 KB"):
            _rows(state, f"select length({column}){rows}")


def test_an_array_does_not_grow_without_end(state: LakeState) -> None:
    """Twenty doublings would make a million elements of each row."""
    steps = "select 0 as n, array[1, 2] as a union all select n + 1, a || a from t where n < {}"
    counted = "with recursive t(n, a) as ({}) select max(cardinality(a)) from t"
    assert _rows(state, counted.format(steps.format(5))) == [(64,)]
    with pytest.raises(BadUsage, match="a value would become longer"):
        _rows(state, counted.format(steps.format(20)))


def test_a_function_takes_a_text_of_any_length(state: LakeState) -> None:
    """That of a row may be long, and a function makes it little longer, or shorter."""
    texts = "(select string_agg('ab', '') as t from generate_series(1, 200000) g) x"
    assert _rows(state, f"select length('x' || t || 'y'), right(reverse(t), 2) from {texts}") == [(400_002, "ba")]
    calls = ("repeat(t, 1)", "lpad(t, 400010)", "replace(t, 'a', 'c')", "replace(t, 'a', '')")
    lengths = [_rows(state, f"select length({call}) from {texts} limit 1") for call in calls]
    assert lengths == [[(400_000,)], [(400_010,)], [(400_000,)], [(200_000,)]]
    assert _rows(state, f"select replace(t, 'z', 'long') as z, replace(t, '', 'long') as e from {texts} limit 1") == [
        ("ab" * 200_000,) * 2
    ]


_LISTED = """
import sys
from auditlake.startup import lean

searched = []
lean()
hidden = sys.meta_path[0].find_spec
sys.meta_path[0].find_spec = lambda name, *given: searched.append(name) or hidden(name, *given)
import duckdb
from auditlake.query.postgres.engine import register_functions

connection = duckdb.connect()
register_functions(connection)
searched.clear()
print(connection.execute("select len(pg_split(0, repeat('1,', 999) || '1', ',', '7'))").fetchone()[0], len(searched))
"""


def test_the_elements_of_a_list_are_not_looked_at_one_by_one() -> None:
    """DuckDB asks for each value from Python whether it is one of pandas, and commands have no pandas."""
    done = subprocess.run([sys.executable, "-c", _LISTED], capture_output=True, check=True)
    length, searches = map(int, done.stdout.split())
    assert length == 1000
    assert searches < length


@pytest.mark.parametrize(
    "call",
    [
        "initcap(string_agg(x::text, ','))",
        "string_to_array(string_agg(x::text, ','), ',')",
        "jsonb_array_length(jsonb_agg(x))",
        "length(encode(convert_to(string_agg(x::text, ','), 'UTF8'), 'base64'))",
    ],
)
def test_python_computes_with_no_text_of_gigabytes(
    state: LakeState, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """An aggregate may be as long as DuckDB's memory, and Python takes a hundred bytes for each part of it."""
    statement = f"select {call} from generate_series(1, {{}}) x"
    monkeypatch.setattr(postgres_engine, "LONGEST", 30)
    engines = PostgresEngines()
    assert _rows(state, statement.format(2), engines)
    with pytest.raises(BadUsage, match="a function here takes texts of at most 30 characters"):
        _rows(state, statement.format(1000), engines)
    assert _rows(state, "select sum(x::numeric) from generate_series(1, 1000) x", engines) == [("500500",)]


def test_an_aggregate_makes_no_array_of_gigabytes(state: LakeState) -> None:
    """With values of texts, DISTINCT and ORDER BY, too; a million is as many as a series in SELECT may have."""
    statement = "select cardinality(array_agg({})) from generate_series(1, {}) x"
    assert _rows(state, statement.format("x", 1_000_000)) == [(1_000_000,)]
    for value in ("x", "x::text", "distinct x", "x order by x desc"):
        with pytest.raises(BadUsage, match="an array would have more than 1,000,000 values"):
            _rows(state, statement.format(value, 1_000_001))


def test_numbers_of_a_group_are_read_one_by_one() -> None:
    """A list of them would be a hundred bytes for each."""
    texts = "1 2.5 " * 20_000
    tracemalloc.start()
    try:
        found = numbers.total(texts), numbers.variance(texts, 1), numbers.deviation(texts, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == ("70000.0", "0.56251406285157128928", "0.75000000000000000000")  # those of PostgreSQL
    assert peak < len(texts)


@pytest.mark.parametrize("sign", ["x", "\\\\"])
def test_a_long_string_of_a_document_is_not_read_sign_by_sign(sign: str) -> None:
    """A pattern that may go back to each of them remembers it: 130 bytes for a character."""
    text = '{"a": 1, "b": "' + sign * 500_000 + '"}'
    tracemalloc.start()
    try:
        found = json_texts.member(text, "a")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == "1"
    assert peak < 4 * len(text)


def test_percentiles_sort_as_postgresql(tmp_path: Path) -> None:
    """NaN is the greatest, an infinity is a number, and a group without values has none."""
    points = _points(tmp_path, [float("nan"), 3.0, float("-inf"), 1.0, None, 2.0])
    asked = "select percentile_cont({}) within group (order by v){} as c from points"
    found = [_rows(points, asked.format(fraction, ""))[0][0] for fraction in (0, 0.25, 0.4, 0.5, 0.75)]
    assert found == [float("-inf"), 1.0, 1.6, 2.0, 3.0]
    assert str(_rows(points, asked.format(0.9, ""))) == "[(nan,)]"
    assert _rows(points, asked.format(0.9, " filter (where v between 5 and 6)")) == [(None,)]


def test_a_statement_that_needs_too_much_memory_is_refused_so(state: LakeState) -> None:
    """Not as one that DuckDB does not understand."""
    small = open_duckdb(32 << 20)
    query = prepare_query(state, "select count(distinct a) from generate_series(1, 10000000) a")
    with pytest.raises(NotAnswerable, match="the statement needs more memory than is left"):
        PostgresEngines(StatementDatabase(small.cursor)).rows(state, query)


@pytest.mark.parametrize(
    "series",
    [
        "generate_series(1, 1000001)",
        "generate_series(-9223372036854775807, 9223372036854775807, 7)",
        "generate_series(0, -3000000, -2)",
        "generate_series(timestamp '2026-01-01', timestamp '2026-03-01', interval '1 second')",
    ],
)
def test_a_series_is_not_longer_than_memory(state: LakeState, series: str) -> None:
    """In SELECT DuckDB computes it whole, before the statement runs, which nothing interrupts; in FROM it does not."""
    with pytest.raises(BadUsage, match="a series in SELECT would have more than 1,000,000 values; write it in FROM"):
        _rows(state, f"select {series} limit 1")
    first = series.removeprefix("generate_series(").split(",")[0]
    assert _rows(state, f"select x = {first} from {series} x limit 1") == [(True,)]


def test_a_series_whose_bounds_depend_on_a_row_is_read_in_from(state: LakeState) -> None:
    """In SELECT DuckDB would hold those of 2,048 rows at once."""
    with pytest.raises(NotAnswerable, match="generate_series of columns in SELECT"):
        _rows(state, "select generate_series(1, id) from orders")
    many = "(select 3000000 + o.id as n from orders o, generate_series(1, 1000)) t"
    counted = f"select count(*) from (select 1 from {many}, generate_series(1, t.n) x limit 4000000) each"
    assert _rows(state, counted) == [(4_000_000,)]


def test_a_series_may_be_empty_and_backwards(state: LakeState) -> None:
    """Its length is that of the direction in which it goes."""
    for series, count in (("1, 3000000", 3_000_000), ("9000000, 1", 0), ("9, 1, -4", 3), ("null::int, 5", 0)):
        assert _rows(state, f"select count(*) from generate_series({series})") == [(count,)]
    for place in ("select {}", "select 1 from {} x"):
        with pytest.raises(BadUsage, match="step size cannot equal zero"):
            _rows(state, place.format("generate_series(timestamp '2026-01-01', timestamp '2026-03-01', interval '0')"))


def test_strings_on_several_lines_are_one(state: LakeState) -> None:
    """With comments to the end of a line between them, as in PostgreSQL; not after E'…', whose escapes go on."""
    assert _rows(state, "select 'a' -- first\n  -- more\n 'it''s' as v, date '2024-'\n'01-31'") == [
        ("ait's", date(2024, 1, 31))
    ]
    with pytest.raises(BadUsage, match=r"at line 2, column 2: syntax error at or near \"'b'\""):
        _rows(state, "select 'a' /* no end of a line */\n 'b'")
    with pytest.raises(NotAnswerable, match="a string in parts"):
        _rows(state, "select E'a'\n'b'")


@pytest.mark.parametrize("dialect", ["postgres", "spark"])
@pytest.mark.parametrize(
    "sql", ["select {n}", "select 1 order by {n}", "select cast(1 as numeric({n}, 2))", "select 1 limit {n}"]
)
def test_a_number_of_thousands_of_digits_is_refused(state: LakeState, dialect: Dialect, sql: str) -> None:
    """Python converts at most 4,300."""
    with pytest.raises(BadUsage, match=r"number .*5,000 characters"):
        InDuckDb({}).prepare(state, sql.format(n="9" * 5_000), dialect)


@pytest.mark.parametrize(
    "sql",
    [
        f"select {'nullif(' * 20}id{', 1)' * 20} from orders",
        f"select {', '.join(['nullif(' * 7 + 'id' + ', 1)' * 7] * 400)} from orders",
    ],
)
def test_a_short_statement_with_a_long_translation_is_refused(state: LakeState, sql: str) -> None:
    """The text of an operand is several times in that of its operator: 20 of them would be 10^9 characters."""
    with pytest.raises(NotAnswerable, match="nested too deep"):
        prepare_query(state, sql)


@pytest.mark.parametrize(
    "sql",
    [
        f"select 1::float8{' + 1' * 40}",
        f"select id{' / 1' * 40} from orders",
        f"select {'split_part(' * 20}note{', note, 1)' * 20} from orders",
    ],
)
def test_a_long_operand_is_in_a_translation_once(state: LakeState, sql: str) -> None:
    """Forty operators make it forty times as long, not 10^19 times."""
    assert len(prepare_query(state, sql).translated.sql) < 40 * 400


def test_a_group_by_a_key_reads_no_column_that_is_not_shown(tmp_path: Path) -> None:
    """A value that its column cannot hold is refused if it is shown, and only then."""
    state = read_state(write_page_lake(tmp_path / "lake"), None, UTC)
    assert len(_rows(state, "select h.id, h.text, count(*) from hostile h group by h.id order by h.id")) > 1
    for sql in ("select h.*, count(*) from hostile h group by h.id", "select id from hostile group by id order by day"):
        with pytest.raises(NotAnswerable, match="only its text holds"):
            _rows(state, sql)


def test_a_value_that_its_column_cannot_hold_is_never_null() -> None:
    """Refusing NaN is tested through numbers, which gets the texts of numeric columns."""
    with pytest.raises(numbers.NotFinite):
        numbers.add("NaN", "1")


@pytest.mark.parametrize(
    ("one", "other", "quotient"),
    [
        ("1", "3", "0.33333333333333333333"),
        ("10", "4", "2.5000000000000000"),
        ("1000000", "3", "333333.333333333333"),
        ("0.001", "7", "0.00014285714285714286"),
        ("-7", "2.00", "-3.5000000000000000"),
        ("0", "5", "0.00000000000000000000"),
    ],
)
def test_quotients_have_the_scale_of_postgresql(one: str, other: str, quotient: str) -> None:
    """Expected values: `select 1/3.0` and so on in PostgreSQL 18."""
    assert numbers.divide(one, other) == quotient


def test_a_number_of_many_digits_is_exact_or_refused(state: LakeState) -> None:
    """It is never rounded where PostgreSQL does not round."""
    long = "9" * 4_000
    assert numbers.add(long, "-1") == f"{'9' * 3_999}8"
    for sql in (
        f"cast('{long}9' as numeric) + 0",
        f"abs(cast('-{long}9' as numeric))",
        f"cast('{long}' as numeric) * 10.5",
        f"cast('{long}9' as numeric) / 3",
        "cast('1e4000' as numeric) + 0.5",
        "cast('1e' || '131071' as numeric)",
        "power(10.5, 100000)",
        "round(1.5, 2000000000)",
    ):
        with pytest.raises(NotAnswerable, match="a number has more than 4,000 digits"):
            _rows(state, f"select {sql}")


@pytest.mark.parametrize("cast", ["numeric", "float8", "interval", "jsonb"])
def test_a_long_text_that_is_no_value_is_refused_at_once(state: LakeState, cast: str) -> None:
    """A pattern that divides its digits in every way takes hours, in which no other thread of a server runs."""
    for text in ("repeat('1', 240000) || 'x'", f"'{'1' * 240_000}x'"):
        with pytest.raises(AuditlakeError):
            _rows(state, f"select ({text})::{cast} as a")


def test_numbers_sort_by_their_keys() -> None:
    """Sign, magnitude and digits, whatever the scale."""
    texts = ["-1000", "-10.5", "-10.45", "-2", "-0.001", "0.00", "0.0009", "0.01", "1", "1.5", "10", "99.9", "100"]
    assert sorted(sorted(texts), key=numbers.number_key) == texts
    assert numbers.number_key("1.0") == numbers.number_key("1.000")


def test_a_part_of_a_document_keeps_its_text() -> None:
    """Digits, escapes and the order of keys."""
    text = '{"a": [1.50, 1e400, "é\\n\\"", {"z": null, "aa": true}]}'
    assert documents.member(text, "a") == text.removeprefix('{"a": ').removesuffix("}")
    assert documents.member_text('{"a": 1.50}', "a") == "1.50"


def test_texts_of_intervals() -> None:
    """Expected values: PostgreSQL 18, intervalstyle `postgres`."""
    assert interval_text(14, 3, 3_661_500_000) == "1 year 2 mons 3 days 01:01:01.5"
    assert interval_text(-1, 2, -60_000_000) == "-1 mons +2 days -00:01:00"
    assert interval_text(0, 0, 0) == "00:00:00"


def test_scripts_are_divided_outside_of_strings_and_comments() -> None:
    """Backslashes are no escapes, dollar quotes are quotes, comments nest."""
    assert [each.strip() for each in split("select ';\\'; select 2 -- ;\n; /* ; /* ; */ */ select $$;$$")] == [
        "select ';\\'",
        "select 2 -- ;",
        "/* ; /* ; */ */ select $$;$$",
    ]
    assert is_complete("select 1;")
    assert not any(map(is_complete, ("select ';", "select 1 -- ;")))


def test_the_command_line(lake: Path) -> None:
    """`sql` and `shell` take the dialect; Spark is never asked."""
    sql = "select id, price::text || '!' as p from orders order by 1 desc; select 7 / 2"
    found = run_here(["sql", "--lake", lake, "--dialect", "postgres", "--format", "csv", sql])
    assert (found.code, found.stdout) == (0, "id,p\n4,4.00!\n1,3.00!\n\n?column?\n3\n")
    assert "in PostgreSQL's dialect" in found.stderr
    refused = run_here(["sql", "--lake", lake, "--dialect", "postgres", "select cot(1) from orders"])
    assert refused.code == NotAnswerable.exit_code
    failed = run_here(["sql", "--lake", lake, "--dialect", "postgres", "select 1 / (id - id) from orders"])
    assert failed.code == BadUsage.exit_code
    assert "division by zero" in failed.stderr
    clash = run_here(["sql", "--lake", lake, "--dialect", "postgres", "--engine", "spark", "select 1"])
    assert clash.code == BadUsage.exit_code


def test_the_dialect_is_the_default_unless_spark_is_to_answer(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's comes back by a setting, by an option, and if Spark is demanded."""
    asked = ["sql", "--lake", str(lake), "--format", "csv"]
    monkeypatch.chdir(lake.parent)
    monkeypatch.setenv("AUDITLAKE_DIALECT", "")
    found = run_here([*asked, "select 7 / 2 as n, 'a'::text as t; describe orders; show tables"])
    assert found.code == 0, found.stderr
    assert found.stdout.startswith("n,t\n3,a\n\n")
    assert "note,string" in found.stdout
    assert "public.customers" in found.stdout.replace(",", ".")
    back = run_here([*asked, "--dialect", "spark", "select `id` from orders where id = 1"])
    assert (back.code, back.stdout) == (0, "id\n1\n")
    lost = run_here([*asked, "select id from orders where `id` = 1"])
    assert lost.code == BadUsage.exit_code
    assert "the dialect spark reads Spark's" in lost.stderr
    monkeypatch.setattr("auditlake.cli.commands.query._start_spark", lambda _: pytest.fail("Spark was started"))
    demanded = run_here([*asked, "--engine", "spark", "select nte from orders"])
    assert demanded.code == BadUsage.exit_code
    assert "the SQL is Spark's" in demanded.stderr


@pytest.mark.parametrize("sql", [f"select 1{'+1' * 1_100}", f"select 1 from orders{' cross join orders' * 1_100}"])
def test_postgresql_s_parser_is_not_asked_about_a_deep_statement(
    state: LakeState, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    """Its stack would overflow, and end the process."""
    asked = list[str]()
    monkeypatch.setattr(parser, "require_statement", lambda sql, _: asked.append(sql))
    with pytest.raises(BadUsage, match="nested too deep"):
        prepare_query(state, sql)
    assert not asked


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select * from orders for system_time as of now()", "a moment is a text in quotes"),
        ("select id from orders for system_time from '0/100' o", "expected TO in FOR SYSTEM_TIME"),
        ("select id rlike 'a' from orders for system_time all", "column 17: syntax error at or near \"'a'\""),
        ("select 'é' as é, id == 1 from orders", "the operator == at line 1, column 21 does not exist"),
        ("select 'é🙂' as é limit 1\norder by 'ü' 'é'", 'line 2, column 1: syntax error at or near "order"'),
        ("select '🙂'\n, 'é' 'ü'", "line 2, column 7: syntax error at or near \"'ü'\""),
        ("select 1 'a\nb'", "column 10: syntax error at or near \"'a"),
    ],
)
def test_messages_of_both_parsers_have_their_places(state: LakeState, sql: str, message: str) -> None:
    """That of FOR SYSTEM_TIME, which PostgreSQL does not know, and PostgreSQL's own."""
    with pytest.raises(BadUsage) as caught:
        prepare_query(state, sql)
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_a_message_quotes_the_begin_of_a_long_string(state: LakeState) -> None:
    """The token at which PostgreSQL's parser ends may be a document."""
    with pytest.raises(BadUsage) as caught:
        prepare_query(state, f"select 1 '{'x' * 5_000}'")
    assert "syntax error at or near \"'xxx" in caught.value.message
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select 'é' as é, 1::long", "the type long at line 1, column 21 is not translated"),
        ("select id from orders limit 1 + cast('1' as int) for read only", "this is not translated"),
        ("select id operator(pg_catalog.+) 1 from orders", "this is not translated"),
    ],
)
def test_what_postgresql_may_answer_is_not_called_wrong(state: LakeState, sql: str, message: str) -> None:
    """A type may be one of the source's own, and sqlglot does not read all that PostgreSQL does."""
    with pytest.raises(NotAnswerable) as caught:
        prepare_query(state, sql)
    assert message in caught.value.message
