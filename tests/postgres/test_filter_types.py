"""Filters and order of every type: as PostgreSQL's under the collation C, or they are not offered and refused."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

import auditlake
from auditlake.audit.filters import Operation, filter_on, may_sort, operations_of, ordered, signed
from auditlake.audit.lake_reader import Reader
from auditlake.audit.state import columns_of, open_state, with_comparisons
from auditlake.delta.sql import open_duckdb
from auditlake.errors import BadUsage
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.relation import Column
from auditlake.serve.held_tables import HeldTables
from auditlake.values.types import BUILT_IN
from tests.page import Page
from tests.postgres_dialect import copied_lake, create_database
from tests.server import Server
from tests.type_values import MOOD, TYPES

pytestmark = pytest.mark.pg

_SIGNS = ("=", "<>", "<", "<=", ">", ">=")
_YEARS = ("-infinity", "infinity", "0044-03-15 BC", "0044-03-14 BC", "0100-01-01 BC", "20000-01-01", "9999-12-31")
_TIMES = ("-infinity", "infinity", "0044-03-15 00:00:00.5{} BC", "0044-03-15 00:00:00{} BC", "4000-01-01 00:00:00{} BC")
_FAR_TIMES = ("100000-01-01 00:00:00{}", "20000-01-01 00:00:00{}", "20000-01-01 00:00:00.51{}", "2026-01-09 00:00:00{}")
_MORE: Mapping[str, tuple[str, ...]] = {
    "numeric": (
        "-1e-10",
        "-1",
        "-1.5",
        "-1.05",
        "-10",
        "0",
        "0.00",
        "1e40",
        "0.5",
        "0.05",
        "-Infinity",
        "100",
        "1e-30",
    ),
    "numeric(60,2)": ("1", "-1", "10", "9.50", "NaN"),
    "numeric(6,2)": ("NaN", "2", "-1.5"),
    "real": ("1e-45", "3.4e38", "0.1"),
    "double precision": ("5e-324", "0.1", "-1e308"),
    "double precision[]": ("{-0,-1}", "{0,NaN}", "{0,NULL}", "{-0,1}", "[0:1]={-0,1}", "{{-0},{0}}", "{-Infinity,-0}"),
    "real[]": ("{-0}", "{-1,-0}", "{0,1}", "{-0,NaN}", "{NULL}", "{}", "{0}"),
    "date": _YEARS,
    "timestamp": tuple(each.format("") for each in (*_TIMES, *_FAR_TIMES)),
    "timestamptz": tuple(each.format("+00") for each in (*_TIMES, *_FAR_TIMES)),
    "interval": (
        *("-1 year", "-1 years -2 mons +3 days -04:05:06.789", "1 mon -30 days", "-00:00:00.000001", "29 days"),
        *(
            "-1 days +24:00:00",
            "178000000 years",
            "-178000000 years",
            "1 mon -1 days",
            "00:00:00.5",
            "360 days",
            "1 year",
        ),
        *("infinity", "-infinity"),
    ),
    "jsonb": ("1", "1.00", "1.05", '"1.50"', '"a\\"1.0"', "[1.0, 10, 100]", "[1, 10.0, 1e2]", "null", '{"1.0": 1.50}'),
    'text collate "folded"': ("a", "A"),
    "money": ("$0.00", "-$9.50", "$92,233,720,368,547,758.07", "-$92,233,720,368,547,758.08"),
    "timetz": ("09:30:00+05:30", "24:00:00-03:30:20", "09:30:00.25+00:00:15"),
    '"char"': ("\n",),
    "cid": ("9", "10"),
    "pair": ("(1,a)", "(,)"),
}
_KEYS = (
    *("money", "date", "timestamp", "timestamptz", "numeric(6,2)", "numeric", "interval", "double precision", "jsonb"),
    *("integer[]", "numeric[]", "bytea", 'char(5) collate "C"', "inet", "int4range", "mood", "boolean"),
    *("double precision[]", "real[]"),
)
"""Types of keys whose rows are walked; some have no order here."""
_REFUSED = ('text collate "folded"', "pair")
_INFINITE_INTERVALS = 170_000
_MADE = (
    'create collation folded from "C"',
    "set allow_system_table_mods = on",
    "update pg_collation set collisdeterministic = false where collname = 'folded'",
    "create type pair as (a int, b text)",
    MOOD,
)


class Both:
    """A table with a column for each type, in PostgreSQL and in a lake."""

    def __init__(self, conn: "psycopg.Connection[Any]", lake: Lake) -> None:
        self.conn, self.lake = conn, lake
        self.values = {kind: (*TYPES.get(kind, ()), *_MORE.get(kind, ())) for kind in {**TYPES, **_MORE}}
        if conn.info.server_version < _INFINITE_INTERVALS:
            self.values["interval"] = tuple(each for each in self.values["interval"] if "infinity" not in each)
        for each in _MADE:
            conn.execute(each.encode())
        columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(self.values))
        conn.execute(f"create table t (id int primary key, {columns})".encode())
        for number in range(max(map(len, self.values.values())) + 1):
            row = [v[number] if number < len(v) else None for v in self.values.values()]
            places = ", ".join(f"%s::{kind.partition(' collate')[0]}" for kind in self.values)
            conn.execute(f"insert into t values ({number}, {places})".encode(), row)
        self.keyed = {kind: f"k{n}" for n, kind in enumerate(_KEYS)}
        for (kind, pair), other in zip(self.keyed.items(), (*_KEYS[1:], _KEYS[0]), strict=True):
            first, second = f"c{[*self.values].index(kind)}", f"c{[*self.values].index(other)}"
            conn.execute(f"create table {pair} (a {kind}, b {other}, primary key (a, b))".encode())
            pairs = f"select x.{first}, y.{second} from t x join t y on (x.id + y.id) % 5 = 1"
            whole = f"where x.{first} is not null and y.{second} is not null"
            conn.execute(f"insert into {pair} {pairs} {whole} on conflict do nothing".encode())
        copied_lake(conn, lake, ("t", *self.keyed.values()))
        self.reader = Reader(lake, datetime.now(UTC))
        table, lsn = self.reader.table("t"), self.reader.watermark
        found = with_comparisons(self.reader, table, columns_of(self.reader, table, lsn))
        self.columns = dict(zip(self.values, found[1:], strict=True))
        self.duckdb = open_duckdb()
        self.duckdb.register("t", open_state(self.reader, table, lsn, raw=True, printed=True).read_all())

    def of_postgresql(self, kind: str, operation: Operation, value: str) -> list[int] | None:
        """Return the rows that meet a condition; None if PostgreSQL has no such operator."""
        name, of_type = self.columns[kind].name, kind.partition(" collate")[0]
        condition = f"{name} {operation.sign} %s::{of_type}"
        if operation.sign == "<>":  # which cid has not
            condition = f"not {name} = %s::{of_type}"
        sql = f"select id from t where {condition} order by id"
        try:
            return [number for (number,) in self.conn.execute(sql.encode(), [value])]
        except psycopg.errors.UndefinedFunction:
            return None

    def of_lake(self, kind: str, operation: Operation, value: str) -> list[int]:
        """Return the same from the lake; raises BadUsage."""
        condition, values = filter_on(self.columns[kind], operation, value).sql()
        rows = self.duckdb.execute(f"select id from t h where {condition} order by id", values)
        return [number for (number,) in rows.fetchall()]

    def place(self, kind: str, descending: str) -> list[tuple[Any, ...]] | None:
        """Return the rows with the rank of their value in PostgreSQL's order; None if it has none."""
        name = self.columns[kind].name
        rank = f"rank() over (order by {name} {descending})"
        try:
            return self.conn.execute(f"select id, {rank} from t order by 2, 1".encode()).fetchall()
        except psycopg.errors.UndefinedFunction:
            return None


@pytest.fixture(scope="module")
def both(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """In a database with the locale C."""
    with made(server, tmp_path_factory.mktemp("filters")) as found:
        yield found


@contextmanager
def made(server: Server, folder: Path) -> Iterator[Both]:
    """Make the table, in a database with the locale C."""
    base = server.create_database()
    create_database(server.dsn(base), "filter_types")
    lake = Lake(folder / "lake")
    write_manifest(lake, Manifest("1", 1, "d", "s", "p"))
    with psycopg.connect(server.dsn("filter_types"), autocommit=True, options="-c timezone=UTC") as conn:
        yield Both(conn, lake)
    server.drop_database("filter_types")
    server.drop_database(base)


def test_every_condition_is_postgresqls_or_refused(both: Both) -> None:
    """Every value of every type with every other, by two signs; `tests/release` has all signs."""
    assert check_conditions(both, 3) > 300


def check_conditions(both: Both, every: int) -> int:
    """Compare each value with all of its type, by one in so many signs; return how many conditions are answered."""
    wrong: list[tuple[object, ...]] = []
    answered = 0
    for kind, (place, sign) in product(both.values, enumerate(_SIGNS)):
        operation = signed(sign)
        for value in both.values[kind][place % every :: every]:
            try:
                found = both.of_lake(kind, operation, value)
            except BadUsage as exc:
                wrong += [] if both.columns[kind].name in exc.message else [(kind, exc.message)]
                continue
            answered += 1
            if found != (expected := both.of_postgresql(kind, operation, value)):
                wrong.append((kind, sign, value, found, expected))
    assert not wrong
    return answered


def test_every_order_is_postgresqls_or_refused(both: Both) -> None:
    """Values of one place may be in any order; NULL is last, first if descending."""
    for kind, way in product(both.values, ("", "desc")):
        column = both.columns[kind]
        if not may_sort(column):
            continue
        ranked = both.place(kind, way)
        assert ranked is not None
        rows = both.duckdb.execute(
            f"select id from t h order by {ordered(column, descending=bool(way))}, id"
        ).fetchall()
        assert [number for number, _ in ranked] == [number for (number,) in rows], (kind, way)


def test_what_is_offered_is_answered(both: Both) -> None:
    """An operation that a column has takes the values that PostgreSQL prints, where they fit their type."""
    for kind, column in both.columns.items():
        offered = {each.sign for each in operations_of(column)} & set(_SIGNS)
        assert not (offered and kind in _REFUSED), kind
        assert ("<" in offered) == may_sort(column), kind
        for sign in offered & {"=", "<>"}:
            for (text,) in both.conn.execute(
                f"select {column.name}::text from t where {column.name} is not null".encode()
            ):
                filter_on(column, signed(sign), text)


def test_every_type_that_is_compared_has_values_here(both: Both) -> None:
    """Of the others, only NULL and parts of the text are offered."""
    tested = {*("bool", "int2", "int4", "int8", "float4", "float8", "varbit")}
    tested |= {kind.strip('"').partition("(")[0].partition(" ")[0] for kind in both.values}
    for name, (type_oid, _) in BUILT_IN.items():
        offered = {each.sign for each in operations_of(Column("c", type_oid, -1, key=False))}
        assert name in tested or not offered & set(_SIGNS), name


def test_the_first_rows_of_an_order_are_the_right_ones(both: Both) -> None:
    """With a limit and an offset, through the API; a float that is sorted by keeps the sign of its zero."""
    at = auditlake.Lake(str(both.lake.root)).as_of(None)
    for kind in ("numeric", "interval", "double precision", "date"):
        name = both.columns[kind].name
        for way, sql in (("", "asc"), ("-", "desc")):
            found = at.table("t", columns=[name], order_by=[way + name, "id"], limit=3, offset=1).texts()
            query = f"select {name}::text from t order by t.{name} {sql}, id limit 3 offset 1"
            expected = [text for (text,) in both.conn.execute(query.encode())]
            assert [row[name] for row in found] == expected, (kind, way)
    name = both.columns["double precision"].name
    texts = [
        row[name] for row in at.table("t", columns=[name], where=[(name, "=", "0")], order_by=[name, "id"]).texts()
    ]
    assert texts == ["0", "-0"]


def test_arrays_are_compared_with_lists(both: Both) -> None:
    """Of elements whose equal values have one text, each read as PostgreSQL reads it; else refused."""
    at = auditlake.Lake(str(both.lake.root)).as_of(None)
    for kind, given, literal in (("integer[]", [1, 10], "{1,10}"), ("integer[]", [1, None], "{1,NULL}")):
        name = both.columns[kind].name
        for sign in ("=", "<>"):
            query = f"select id from t where {name} {sign} %s order by id"
            expected = [number for (number,) in both.conn.execute(query.encode(), [literal])]
            found = at.table("t", columns=["id"], where=[(name, sign, given)], order_by=["id"])
            assert [row["id"] for row in found] == expected, (given, sign)
    for kind, value in (("numeric[]", "1.0"), ("double precision[]", 0.0), ("interval[]", "1 day")):
        name = both.columns[kind].name
        with pytest.raises(BadUsage, match=f"{name} .*cannot be filtered"):
            at.table("t", where=[(name, "=", [value])]).to_arrow()


@pytest.mark.parametrize("held", ["files", "memory", "far"])
def test_a_page_has_the_rows_of_its_place(both: Both, held: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From files, from rows in memory, and found there by the first and last value of the page."""
    page = Page(Lake(both.lake.root))  # answers are kept by its session
    if held != "files":
        monkeypatch.setattr("auditlake.serve.table_rows._FAR", 0 if held == "far" else 10**9)
        page.resources.held = HeldTables(page.resources.cursor, least_rows=0, quiet_s=0)
        page.json("rows", table="t", limit=1)
        page.resources.held.wait()
        assert page.resources.held.names == ["public.t"]
    for kind, (way, sql), offset in product(
        ("numeric", "interval", "real", 'char(5) collate "C"', "timestamp"), (("", "asc"), ("-", "desc")), (0, 2)
    ):
        name = both.columns[kind].name
        found = page.json("rows", table="t", sort=way + name, limit=3, offset=offset, where=[f"{name}:notnull:"])
        query = f"select id::text from t where {name} is not null order by t.{name} {sql}, id limit 3 offset {offset}"
        assert [(row["key"][0],) for row in found["rows"]] == both.conn.execute(query.encode()).fetchall(), (kind, way)


def test_the_page_offers_no_order_that_it_refuses(both: Both) -> None:
    """Nor a filter by a value of a type without equality; the values are shown all the same."""
    page = Page(Lake(both.lake.root))  # answers are kept by its session
    for kind in ("inet", "mood", "point"):
        name = both.columns[kind].name
        text = page.get("/rows", table="t", facet=name).text
        assert f"sort={name}" not in text
        assert (f"where={name}%3Ais%3A" in text) == (kind != "point")
        assert f"where={name}%3Anull%3A" in text
        assert f"rows cannot be sorted by {name}" in page.get("/api/v1/rows", table="t", sort=name).json()["error"]


@pytest.mark.parametrize("held", [False, True], ids=["files", "memory"])
def test_facets_are_the_groups_of_postgresql_or_refused(both: Both, held: bool) -> None:  # noqa: FBT001 - a parameter
    """Equal values are one, with one of their texts; a type that PostgreSQL does not group is counted by its texts."""
    page = _page(both, held=held)
    offered = {column["name"]: column["counted"] for column in page.json("rows", table="t", limit=1)["columns"]}
    refused = []
    for kind, name in ((kind, column.name) for kind, column in both.columns.items()):
        if not offered[name]:
            refused.append(kind)
            answer = page.get("/api/v1/facets", table="t", column=name)
            assert (answer.status_code, f"{name} (" in answer.json()["error"]) == (400, True), kind
            assert f"facet={name}" not in page.get("/rows", table="t").text
            continue
        found = page.json("facets", table="t", column=name)
        ours = {each["value"]: each["rows"] for each in found["values"]}
        assert (found["distinct"], ours) == (len(ours), _groups(both, name, ours)), kind
    unknown = {"numrange", "nummultirange", "tsquery", "regclass", "numeric[]", "interval[]"}
    assert set(refused) == {*unknown, "double precision[]", "real[]", 'text collate "folded"'}


def _groups(both: Both, name: str, shown: Mapping[str | None, int]) -> dict[str | None, int]:
    """Count the rows of each group in PostgreSQL, by that text of it which is shown."""
    key, absent = f"t.{name}", f"num_nulls(t.{name}) = 1"  # (,) is no NULL
    try:
        both.conn.execute(f"select from t group by {key}".encode())
    except psycopg.errors.UndefinedFunction:
        key = f"{key}::text"
    found: dict[str | None, int] = {}
    query = f"select count(*), {absent}, array_agg(concat('', t.{name})) from t group by {key}, {absent}"
    for number, is_null, texts in both.conn.execute(query.encode()):
        found[None if is_null else next((each for each in texts if each in shown), texts[0])] = number
    return found


@pytest.mark.parametrize("held", [False, True], ids=["files", "memory"])
def test_rows_beside_a_key_are_those_of_its_page(both: Both, held: bool) -> None:  # noqa: FBT001 - a parameter
    """Each row's next and previous one, in the order of the pages: PostgreSQL's if both columns of the key have one."""
    page = _page(both, held=held)
    sorted_here = 0
    for kind, table in both.keyed.items():
        answer = page.json("rows", table=table, limit=500)
        keys = [row["key"] for row in answer["rows"]]
        paged = [page.json("rows", table=table, limit=19, offset=at)["rows"] for at in range(0, len(keys), 19)]
        assert [row["key"] for rows in paged for row in rows] == keys, kind
        query = f"select concat('', a), concat('', b) from {table} t order by t.a, t.b"
        expected = [list(pair) for pair in both.conn.execute(query.encode())]
        if all(column["sortable"] for column in answer["columns"]):
            sorted_here += 1
            assert keys == expected, kind
        assert sorted(keys) == sorted(expected), kind
        for way, walked in (("next", keys), ("previous", keys[::-1])):
            beside = [page.json("neighbour", table=table, key=key, way=way)["key"] for key in walked[:6]]
            assert beside == [*walked[1:], None][: len(beside)], (kind, way)
            assert page.json("neighbour", table=table, key=walked[-1], way=way)["key"] is None, (kind, way)
    assert sorted_here == 8
    refused = page.get("/api/v1/neighbour", table=both.keyed["integer[]"], key=["{1,x}", "{}"])
    assert (refused.status_code, "the value for a is not known" in refused.text) == (400, True)


def test_every_value_is_found_by_its_text(both: Both) -> None:
    """Of the types where that is a trap; `tests/release` has all types."""
    kinds = ("numeric", "double precision", "double precision[]", "interval", "jsonb", "integer[]", "bytea")
    check_found(both, kinds)


def check_found(both: Both, kinds: Iterable[str]) -> None:
    """Find each value, and no other one: -0 is not 0, 1.5 is not 1.50, and arrays have bounds."""
    page, found, least = Page(Lake(both.lake.root)), 0, 0  # answers are kept by its session
    for kind in kinds:
        column, least = both.columns[kind], least + 2
        query = f"select concat('', t.{column.name}), array_agg(id::text) from t where {column.name} is not null"
        for text, keys in both.conn.execute(f"{query} group by 1".encode()).fetchall():
            answer = page.json("find", table="t", value=text, column=column.name, limit=100)
            assert sorted(each["key"][0] for each in answer["found"]) == sorted(keys), (kind, text)
            found += 1
    assert found > least
    assert page.json("find", table="t", value="{1,x", limit=100)["found"] == []


def _page(both: Both, *, held: bool) -> Page:
    """Return the page of the lake, with every table in memory, or none."""
    page = Page(Lake(both.lake.root))  # answers are kept by its session
    if held:
        page.resources.held = HeldTables(page.resources.cursor, least_rows=0, quiet_s=0)
        for table in ("t", *both.keyed.values()):
            page.json("rows", table=table, limit=1)
            page.resources.held.wait()
        assert len(page.resources.held.names) == 1 + len(both.keyed)
    return page
