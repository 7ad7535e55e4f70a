"""A value is the same from the snapshot and from the stream, and what PostgreSQL itself holds, on a hostile server.

Every literal is inserted twice, before the snapshot and after it. Database and role set everything that changes how
PostgreSQL spells a value; both roads must not care.
"""

from dataclasses import dataclass
from datetime import date, timedelta
from threading import Event
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

import auditlake
from auditlake.apply.apply import apply_tail
from auditlake.capturing import make_task, run_capture
from auditlake.exact import exact_texts
from auditlake.lake.history import open_history, type_of
from auditlake.lake.layout import Lake
from auditlake.postgres.connection import connect
from auditlake.query.sql import run_sql
from auditlake.relation import Column, TableName
from auditlake.snapshot.bootstrap import Target, bootstrap
from tests.server import Server

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_HOSTILE = {
    "datestyle": "German, DMY",
    "intervalstyle": "iso_8601",
    "timezone": "Asia/Kolkata",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "client_encoding": "LATIN1",
    "search_path": "public",
}

_CORPUS = {
    "smallint": ["-32768", "32767"],
    "integer": ["-2147483648", "0"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "oid": ["4294967295"],
    "numeric(10,2)": ["12345678.90", "-0.01", "99999999.99"],
    "numeric(38,10)": ["1234567890123456789012345678.0123456789"],
    "numeric(50,2)": ["1.50"],
    "numeric(5,-2)": ["12300"],
    "numeric": ["1e30", "0.1000", "NaN", "Infinity", "-Infinity", "123456789012345678901234567890.123456789"],
    "boolean": ["true", "false"],
    "real": ["0.1", "-0", "NaN", "Infinity", "1e-40", "3.4028235e38"],
    "double precision": ["0.1", "-0", "NaN", "-Infinity", "1e-320", "1.7976931348623157e308", "0.30000000000000004"],
    "text": ["", "plain", "ünïcødé 🐘", "NULL", "quote ' \" \\ , {}", "line\nbreak\ttab"],
    "varchar(5)": ["x  "],
    "char(5)": ["ab"],
    '"char"': ["a"],
    "name": ["pg"],
    "date": ["2026-11-21", "0001-01-01", "9999-12-31"],
    "timestamp": [
        "2026-11-21 09:30:00.123456",
        "1582-10-10 00:00:00",
        "0001-01-01 00:00:00",
        "9999-12-31 23:59:59.999999",
    ],
    "timestamptz": [
        "2026-11-21 09:30:00.5+05:30",
        "1900-01-01 00:00:00+00",
        "9999-12-31 23:59:59.999999+00",
    ],
    "time": ["24:00", "09:30:00.000001"],
    "timetz": ["24:00:00+15:59:59"],
    "interval": ["-1 mons +2 days -00:00:01", "1 year 2 hours"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "json": ['{"a":  1, "a": 2}', "null"],
    "jsonb": ['{"b": 1.50, "a": [1, null]}', "null"],
    "bytea": ["\\x", "\\x00ff5c27", "\\xdeadbeef"],
    "int[]": ["{1,NULL,3}", "{}"],
    "text[]": ['{"a b",c,"",NULL,"NULL","say \\"hi\\"","back\\\\slash","{","x,y",🐘}', "{}"],
    "bytea[]": ['{"\\\\x00ff",NULL}'],
    "numeric(10,2)[]": ["{1.5,NULL}"],
    "numeric[]": ["{1.50,NaN}"],
    "timestamptz[]": ['{"2026-11-21 09:30:00.5+05:30",NULL}'],
    "timestamp[]": ['{"2026-11-21 09:30:00.5"}'],
    "date[]": ["{2026-11-21}"],
    "boolean[]": ["{t,f,NULL}"],
    "real[]": ["{0.1,NaN,-0,1e-40,-Infinity}"],
    "double precision[]": ["{0.1,NaN,-0,5e-324,1e23}"],
    "box[]": ["{(1,1),(0,0);(2,2),(1,1)}"],
    "uuid[]": ["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}"],
    "inet": ["192.168.0.1", "10.0.0.0/8", "::1"],
    "money": ["1234.50"],
    "bit(3)": ["101"],
    "point": ["(0.1,2)"],
    "int4range": ["(,5]", "empty"],
    "pg_lsn": ["16/B374D848"],
    "tsvector": ["'fat':2 'rat':3"],
    "public.pair": ['(1,"a,""b")', "(,)"],
    "public.mood": ["happy"],
    "public.price": ["1.5"],
    "public.day_off": ["2026-12-24"],
    "public.whole": ["7"],
    "public.wholes": ["{1,NULL}"],
    "public.moods": ["{happy,NULL}"],
}


_DOES_NOT_FIT = {
    "numeric(10,2)": ["NaN"],
    "date": ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "5874897-12-31"],
    "timestamp": [
        "infinity",
        "-infinity",
        "10000-01-01 00:00:00",
        "294276-12-31 23:59:59.999999",
        "4713-01-01 00:00:00 BC",
    ],
    "timestamptz": [
        "infinity",
        "-infinity",
        "10000-01-01 00:00:00+00",
        "294276-12-31 23:59:59.999999+00",
        "0044-03-15 00:00:00+00 BC",
    ],
    "int[]": ["{{1,2},{3,NULL}}", "[0:1]={1,2}"],
    "text[]": ["{{a}}"],
    "numeric(10,2)[]": ["{1,NaN}"],
    "timestamptz[]": ["{infinity}", '{"0044-03-15 00:00:00+00 BC"}'],
    "timestamp[]": ["{-infinity}"],
    "date[]": ["{2026-11-21,infinity}"],
    "public.day_off": ["infinity"],
    "public.wholes": ["{{1}}"],
}
"""Values that PostgreSQL holds and the typed column cannot."""


@dataclass(frozen=True)
class Versions:
    """Every literal by the road it took, and PostgreSQL's own text of each, in the order of `id`."""

    lake: Lake
    columns: tuple[Column, ...]
    snapshot: pa.Table
    stream: pa.Table
    printed: pa.Table
    texts: list[list[str | None]]


@pytest.fixture(scope="module")
def versions(server: Server, spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> "Versions":
    """Versions of every literal, by how they came, with PostgreSQL's own text beside them."""
    name = server.create_database("values")
    lake = Lake(tmp_path_factory.mktemp("values") / "lake")
    with connect(server.dsn()) as admin:
        for setting, value in _HOSTILE.items():
            admin.execute(f"alter database \"{name}\" set {setting} = '{value}'")
            admin.execute(f"alter role postgres in database \"{name}\" set {setting} = '{value}'")
    conninfo = server.dsn(name)
    with connect(conninfo) as conn:
        conn.execute(_DDL)
        columns = ", ".join(f"{_quoted(name)} date" for name in _NAMES)
        conn.execute(f"create table public.names ({_quoted(_KEY)} int primary key, {columns})".encode())
        _insert(conn, 0)
        _insert_names(conn, 1)
        bootstrap(Target(conninfo, lake, "values", "values", None), lambda: spark, lambda _: None)
        _insert(conn, _STREAMED)
        _insert_names(conn, 2)
        run_capture(make_task(conninfo, lake, "current"), Event(), lambda _: None)
        apply_tail(spark, lake)
        conn.execute(f"update public.names set {_set_names()} where {_quoted(_KEY)} = 2".encode())
        run_capture(make_task(conninfo, lake, "current"), Event(), lambda _: None)
        found = run_sql(spark, lake, "select * from public.v for system_time all order by id").toArrow()
        exact = ", ".join(f"exact_text(v.{column}) as {column}" for column in _COLUMNS.values())
        printed = run_sql(spark, lake, f"select {exact} from public.v order by id").toArrow()
        texts = conn.execute(f"select array[{_TEXTS}] from public.v order by id").fetchall()
    server.drop_database(name)
    history = open_history(lake, TableName("public", "v"))
    assert history is not None
    half = _DEPTH + 1
    return Versions(
        lake,
        history.columns[1:],
        found[:half],
        found[half:],
        printed,
        [cast("list[str | None]", row) for (row,) in texts],
    )


_STREAMED = 1000
_LITERALS = {type_name: [*values, *_DOES_NOT_FIT.get(type_name, [])] for type_name, values in _CORPUS.items()}
_COLUMNS = {type_name: f"c{n}" for n, type_name in enumerate(_LITERALS)}
_DDL = (
    "create type public.pair as (a int, b text); create type public.mood as enum ('happy');"
    " create domain public.price as numeric(10,2); create domain public.day as date;"
    " create domain public.day_off as public.day;"
    " create domain public.whole as int; create domain public.wholes as int[];"
    " create domain public.moods as public.mood[];"
    f" create table public.v (id int primary key, {', '.join(f'{c} {t}' for t, c in _COLUMNS.items())})"
)
_TEXTS = ", ".join(f"case when num_nulls({c}) = 0 then format('%s', {c}) end" for c in _COLUMNS.values())
_DEPTH = max(map(len, _LITERALS.values()))


def _insert(conn: "psycopg.Connection[Any]", offset: int) -> None:
    """One row per depth of the corpus: the n-th literal of every type, NULL where there is none."""
    for depth in range(_DEPTH + 1):
        literals = [values[depth] if depth < len(values) else None for values in _LITERALS.values()]
        places = ", ".join(f"%s::{type_name}" for type_name in _LITERALS)
        conn.execute(f"insert into public.v values (%s, {places})", [offset + depth, *literals])


def test_snapshot_and_stream_give_the_same(versions: Versions) -> None:
    """Typed columns and `_raw` are equal for every literal, bit for bit."""
    assert _DEPTH + 1 == len(versions.snapshot) == len(versions.stream)
    for type_name, column in {**_COLUMNS, "_raw": "_raw"}.items():
        assert repr(versions.snapshot[column].to_pylist()) == repr(versions.stream[column].to_pylist()), type_name


def test_exact_text_is_what_the_server_prints(versions: Versions) -> None:
    """The text made of the typed column, or kept in `_raw`, is PostgreSQL's own; NULL is NULL."""
    for rows, texts in ((versions.snapshot, versions.texts), (versions.stream, versions.texts[_DEPTH + 1 :])):
        for n, (column, type_name) in enumerate(zip(versions.columns, _LITERALS, strict=True)):
            found = exact_texts(rows[column.name].combine_chunks(), type_of(column), _raws(rows, column))
            assert [row[n] for row in texts[: _DEPTH + 1]] == found.to_pylist(), type_name


def test_exact_text_in_sql_is_what_the_server_prints(versions: Versions) -> None:
    """`exact_text` of a state, whose `_raw` is not among its columns."""
    for n, (type_name, column) in enumerate(_COLUMNS.items()):
        assert [row[n] for row in versions.texts] == versions.printed[column].to_pylist(), type_name


def test_values_that_do_not_fit_are_raw_and_only_they(versions: Versions) -> None:
    """What the typed column cannot hold is NULL there and in `_raw`; what it can hold is not in `_raw`."""
    for column, (type_name, literals) in zip(versions.columns, _LITERALS.items(), strict=True):
        fitting = len(_CORPUS[type_name])
        raws = _raws(versions.stream, column).to_pylist()
        typed = versions.stream[column.name].to_pylist()
        for depth in range(_DEPTH + 1):
            fits, missing = depth < fitting, depth >= len(literals)
            assert ((typed[depth] is None), (raws[depth] is None)) == (not fits, fits or missing), (type_name, depth)


_KEY = 'the "key"`'
_NAMES = [
    *("a b", "c,d;e", "f{g}(h)", "i\nj\tk", "l=m", "n.o", "100%", 'p"q', "r's", "🐘", "select", "~", "x" * 63),
    *("Case", "case", "CASE", "_part", "_From_Lsn", "_raw", "lsn", "new"),
]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _insert_names(conn: "psycopg.Connection[Any]", key: int) -> None:
    days = ", ".join(["'infinity'"] * len(_NAMES))
    conn.execute(f"insert into public.names values ({key}, {days})".encode())


def _set_names() -> str:
    return ", ".join(f"{_quoted(name)} = date '2026-11-21' + {n}" for n, name in enumerate(_NAMES))


def test_columns_of_any_name(versions: Versions, spark: "SparkSession") -> None:
    """Every name goes down both roads, through fold, tail and SQL; only what Delta cannot have is spelled otherwise."""
    spelled = {"Case": "~43ase", "CASE": "~43~41~53~45", "_part": "~5fpart", "_raw": "~5fraw"}
    spelled |= {"_From_Lsn": "~5fFrom_Lsn", _KEY: 'the "key"~60'}
    listed = ", ".join("`" + spelled.get(name, name) + "`" for name in _NAMES)
    key = spelled[_KEY]
    rows = run_sql(spark, versions.lake, f"select {listed} from names order by `{key}`").collect()
    days = [date(2026, 11, 21) + timedelta(n) for n in range(len(_NAMES))]
    assert [tuple(row) for row in rows] == [(None,) * len(_NAMES), tuple(days)]
    query = f"select `{key}`, _raw from names for system_time all order by `{key}`, _from_lsn"
    raws = run_sql(spark, versions.lake, query).collect()
    printed = ", ".join(f"exact_text(`{spelled.get(name, name)}`)" for name in _NAMES)
    texts = run_sql(spark, versions.lake, f"select {printed} from names order by `{key}`").collect()
    assert [tuple(row) for row in texts] == [("infinity",) * len(_NAMES), tuple(map(str, days))]
    frame = auditlake.read(spark, versions.lake.root, "names", raw=True)
    in_python = frame.orderBy(F.col(f"`{key}`")).select(auditlake.exact_text("~43ASE"), auditlake.exact_text("n.o"))
    assert [tuple(row) for row in in_python.collect()] == [
        ("infinity",) * 2,
        tuple(str(days[_NAMES.index(n)]) for n in ("Case", "n.o")),
    ]
    auditlake.register(spark, versions.lake.root, raw=True)
    in_view = spark.sql("select exact_text(c0, _raw, 'c0') from v where id = 0").collect()
    assert in_view == [("-32768",)]
    infinite = {spelled.get(name, name): "infinity" for name in _NAMES}
    assert [(1, infinite), (2, infinite), (2, None)] == [tuple(row) for row in raws]


def _raws(rows: pa.Table, column: Column) -> pa.Array:
    return pa.array([dict(raw or ()).get(column.name) for raw in rows["_raw"].to_pylist()], pa.string())
