"""A value is the same from the snapshot and from the stream, and what PostgreSQL itself holds, on a hostile server.

Every literal is inserted twice, before the snapshot and after it. Database and role set everything that changes how
PostgreSQL spells a value; both roads must not care.
"""

from dataclasses import dataclass
from datetime import datetime
from threading import Event
from typing import TYPE_CHECKING, Any, cast

import pytest

from auditlake.apply.apply import apply_tail
from auditlake.follow import make_task, run_capture
from auditlake.lake.layout import Lake
from auditlake.postgres.connection import connect
from auditlake.query.sql import run_sql
from auditlake.snapshot.bootstrap import Target, bootstrap
from tests.server import Server

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import Row, SparkSession

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
    "numeric(10,2)": ["12345678.90", "-0.01", "NaN", "99999999.99"],
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
    "date": ["2026-11-21", "0001-01-01", "9999-12-31", "infinity", "-infinity", "0044-03-15 BC", "5874897-12-31"],
    "timestamp": [
        "2026-11-21 09:30:00.123456",
        "1582-10-10 00:00:00",
        "0001-01-01 00:00:00",
        "9999-12-31 23:59:59.999999",
        "infinity",
        "-infinity",
        "294276-12-31 23:59:59.999999",
        "4713-01-01 00:00:00 BC",
    ],
    "timestamptz": [
        "2026-11-21 09:30:00.5+05:30",
        "1900-01-01 00:00:00+00",
        "9999-12-31 23:59:59.999999+00",
        "infinity",
        "-infinity",
        "294276-12-31 23:59:59.999999+00",
        "0044-03-15 00:00:00+00 BC",
    ],
    "time": ["24:00", "09:30:00.000001"],
    "timetz": ["24:00:00+15:59:59"],
    "interval": ["-1 mons +2 days -00:00:01", "1 year 2 hours"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "json": ['{"a":  1, "a": 2}', "null"],
    "jsonb": ['{"b": 1.50, "a": [1, null]}', "null"],
    "bytea": ["\\x", "\\x00ff5c27", "\\xdeadbeef"],
    "int[]": ["{1,NULL,3}", "{{1,2},{3,NULL}}", "[0:1]={1,2}", "{}"],
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
}


@dataclass(frozen=True)
class Versions:
    """Every literal by the road it took, and by row PostgreSQL's own text of each column."""

    snapshot: "list[Row]"
    stream: "list[Row]"
    texts: dict[int, dict[str, str]]


@pytest.fixture(scope="module")
def rows(server: Server, spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> "Versions":
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
        _insert(conn, 0)
        bootstrap(Target(conninfo, lake, "values", "values", None), lambda: spark, lambda _: None)
        _insert(conn, _STREAMED)
        run_capture(make_task(conninfo, lake, "current"), Event(), lambda _: None)
        apply_tail(spark, lake)
        found = run_sql(spark, lake, "select * from public.v for system_time all order by id").collect()
        texts = conn.execute(f"select id, jsonb_object({_TEXTS}) from public.v").fetchall()
    server.drop_database(name)
    half = len(found) // 2
    return Versions(found[:half], found[half:], {cast("int", key): cast("dict[str, str]", row) for key, row in texts})


_STREAMED = 1000
_COLUMNS = {type_name: f"c{n}" for n, type_name in enumerate(_CORPUS)}
_DDL = (
    "create type public.pair as (a int, b text); create type public.mood as enum ('happy');"
    " create domain public.price as numeric(10,2);"
    f" create table public.v (id int primary key, {', '.join(f'{c} {t}' for t, c in _COLUMNS.items())})"
)
_TEXTS = "array[" + ", ".join(f"'{c}', format('%s', {c})" for c in _COLUMNS.values()) + "]::text[]"
_DEPTH = max(map(len, _CORPUS.values()))


def _insert(conn: "psycopg.Connection[Any]", offset: int) -> None:
    """One row per depth of the corpus: the n-th literal of every type, NULL where there is none."""
    for depth in range(_DEPTH + 1):
        literals = [values[depth] if depth < len(values) else None for values in _CORPUS.values()]
        places = ", ".join(f"%s::{type_name}" for type_name in _CORPUS)
        conn.execute(f"insert into public.v values (%s, {places})", [offset + depth, *literals])


def test_snapshot_and_stream_give_the_same(rows: Versions) -> None:
    """Typed columns and `_raw` are equal for every literal, bit for bit."""
    assert _DEPTH + 1 == len(rows.snapshot) == len(rows.stream)
    for one, other in zip(rows.snapshot, rows.stream, strict=True):
        assert one.id + _STREAMED == other.id
        for type_name, column in {**_COLUMNS, "_raw": "_raw"}.items():
            assert repr(one[column]) == repr(other[column]), (type_name, one.id)


def test_exact_text_is_what_the_server_prints(rows: Versions) -> None:
    """Text columns and `_raw` hold PostgreSQL's text; typed columns hold the value it stands for."""
    for row in rows.snapshot:
        for type_name, column in _COLUMNS.items():
            text, value = rows.texts[row.id][column], row[column]
            raw = (row["_raw"] or {}).get(column)
            if raw is not None:
                assert (text, None) == (raw, value), type_name
            elif isinstance(value, str):
                assert text == value, type_name
            elif value is not None:
                assert _same(type_name, text, value), (type_name, text)
            else:
                assert text == "", type_name  # format() prints nothing for NULL


def test_values_out_of_range_are_raw_and_only_they(rows: Versions) -> None:
    """What the typed column cannot hold is NULL there and in `_raw`: infinities, BC, far years, NaN in a decimal."""
    odd = ("infinity", "BC", "NaN", "294276", "5874897")
    for row in rows.stream:
        depth = row.id - _STREAMED
        expected = {
            _COLUMNS[type_name]
            for type_name in ("numeric(10,2)", "date", "timestamp", "timestamptz")
            if depth < len(_CORPUS[type_name]) and any(word in _CORPUS[type_name][depth] for word in odd)
        }
        assert expected == set(row["_raw"] or {})


def _same(type_name: str, text: str, value: object) -> bool:
    if isinstance(value, bool):
        return text == ("t" if value else "f")
    if isinstance(value, bytearray | bytes):
        return text == "\\x" + bytes(value).hex()
    if isinstance(value, datetime):
        wanted = datetime.fromisoformat(text.removesuffix("+00"))
        return wanted == value.replace(tzinfo=None)
    if isinstance(value, float):
        return repr(float(text)) == repr(value) if type_name == "double precision" else _same_real(text, value)
    return text == str(value)


def _same_real(text: str, value: float) -> bool:
    import numpy as np  # noqa: PLC0415

    return repr(np.float32(text)) == repr(np.float32(value))
