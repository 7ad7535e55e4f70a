"""Exact texts against a server: our text of a value is PostgreSQL's, and our table of types is its catalog's."""

import os
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from auditlake.source.connection import connect
from auditlake.values.exact_text import array_elements, array_text, exact_texts
from auditlake.values.types import BUILT_IN, ColumnType, column_type
from tests.server import Server

pytestmark = pytest.mark.pg

_EXAMPLES = int(os.environ.get("AUDITLAKE_PROPERTY_EXAMPLES", "20"))
_PER_EXAMPLE = 100
_NUMERIC_12_4 = ((12 << 16) | 4) + 4
_FLOATS = {701: ("<d", 8), 700: ("<f", 4)}
_TIES = [1e23, 9007199254740993.0, 2.0**60, 1.5e22, 8.5e22, 5e-324, 1e15, 999999999999999.0, 1e-4, 9.5e-5]
_REAL_TIES = [8388608.5, 16777216.0, 33554432.0, 9.8e10, 1e6, 999999.0, 1e-45, 0.1]


def _floats(type_oid: int) -> st.SearchStrategy[list[float]]:
    layout, width = _FLOATS[type_oid]
    bits = st.binary(min_size=width, max_size=width).map(lambda raw: float(struct.unpack(layout, raw)[0]))
    whole = st.integers(1, 2**63).map(float) if type_oid == 701 else st.integers(1, 2**30).map(_real)
    powers = st.builds(lambda digits, power: digits * 10.0**power, st.integers(1, 99), st.integers(0, 25))
    return st.lists(st.one_of(bits, whole, powers.map(float if type_oid == 701 else _real)), min_size=_PER_EXAMPLE)


def _real(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


_TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))  # noqa: DTZ001 - naive ones too
_CHARACTERS = st.characters(min_codepoint=1, exclude_categories=["Cs"])
_VALUES: dict[str, tuple[int, int, st.SearchStrategy[Any]]] = {
    "bool": (16, -1, st.booleans()),
    "int8": (20, -1, st.integers(-(2**63), 2**63 - 1)),
    "numeric(12,4)": (1700, _NUMERIC_12_4, st.decimals(-99999999, 99999999, places=4).map(Decimal)),
    "date": (1082, -1, st.dates(date(1, 1, 1))),
    "timestamp": (1114, -1, _TIMES),
    "timestamptz": (1184, -1, _TIMES.map(lambda value: value.replace(tzinfo=UTC))),
    "bytea": (17, -1, st.binary()),
    "text": (25, -1, st.text(_CHARACTERS)),
}


@pytest.fixture(scope="module")
def conn(server: Server) -> "Iterator[psycopg.Connection[Any]]":
    """A connection with the pinned settings."""
    with connect(server.dsn()) as conn:
        yield conn


_here = settings(max_examples=_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("type_oid", _FLOATS)
@_here
@given(data=st.data())
def test_a_float_has_the_text_of_postgresql(
    conn: "psycopg.Connection[Any]", type_oid: int, data: st.DataObject
) -> None:
    """The shortest digits, also at ties, and exponents in the same range."""
    values = data.draw(_floats(type_oid)) + (_TIES if type_oid == 701 else list(map(_real, _REAL_TIES)))
    name = "float8" if type_oid == 701 else "float4"
    _same(conn, name, column_type(type_oid, -1), values)


@pytest.mark.parametrize("name", _VALUES)
@_here
@given(data=st.data())
def test_values_and_arrays_have_the_text_of_postgresql(
    conn: "psycopg.Connection[Any]", name: str, data: st.DataObject
) -> None:
    """Every type, alone and in an array with NULLs."""
    type_oid, typmod, strategy = _VALUES[name]
    values = data.draw(st.lists(st.none() | strategy, min_size=1))
    _same(conn, name, column_type(type_oid, typmod), values)
    array = _one(conn, f"select %s::{name}[]::text", values)
    array_oid = BUILT_IN[name.partition("(")[0]][1]
    held = column_type(type_oid, typmod)
    in_arrow = pa.array([values, None, values], pa.list_(_ARROW[held.delta]))
    assert exact_texts(in_arrow, column_type(array_oid, typmod)).to_pylist() == [array, None, array]
    assert array_elements(array) == exact_texts(pa.array(values, _ARROW[held.delta]), held).to_pylist()


def _same(conn: "psycopg.Connection[Any]", name: str, held: ColumnType, values: list[Any]) -> None:
    expected = _one(
        conn,
        f"select array_agg(format('%%s', v) order by n) from unnest(%s::{name}[]) with ordinality as u(v, n)",
        values,
    )
    found = exact_texts(pa.array(values, _ARROW[held.delta]), held).to_pylist()
    assert [text or "" for text in found] == expected


_ARROW = {
    "boolean": pa.bool_(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(12,4)": pa.decimal128(12, 4),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
    "string": pa.string(),
}


def _one(conn: "psycopg.Connection[Any]", query: str, values: list[Any]) -> Any:
    row = conn.execute(query.encode(), [values]).fetchone()
    assert row is not None
    return row[0]


def test_only_plain_arrays_are_parsed(conn: "psycopg.Connection[Any]") -> None:
    """One dimension from 1 is parsed; more dimensions and other bounds are not; empty and quoted texts are kept."""
    row = conn.execute(
        "select '{{1,2},{3,4}}'::int[]::text, '[0:1]={1,2}'::int[]::text, '[2:2]={{}'::text, '{}'::int[]::text,"
        " array['', 'NULL', 'null', NULL, 'a b', e'\\t', '{', 'x,y', '\\', '\"', '🐘']::text"
    ).fetchone()
    assert row is not None
    nested, bounds, _, empty, texts = row
    assert array_elements(nested) is None
    assert array_elements(bounds) is None
    assert array_elements(empty) == []
    assert array_text([]) == empty
    assert array_text(array_elements(texts) or []) == texts


def test_the_table_of_types_equals_the_catalog(conn: "psycopg.Connection[Any]") -> None:
    """Every built-in column type with its OID and its array's, and no other."""
    rows = conn.execute(
        "select t.typname::text, t.oid::int, t.typarray::int from pg_catalog.pg_type t"
        " where t.typnamespace = 'pg_catalog'::regnamespace and t.typtype in ('b', 'r', 'm')"
        " and not exists (select from pg_catalog.pg_type e where e.typarray = t.oid)"
    ).fetchall()
    assert {name: (type_oid, array_oid) for name, type_oid, array_oid in rows} == BUILT_IN
    other = conn.execute(
        "select typname::text from pg_catalog.pg_type where typdelim <> ',' and typtype = 'b' and typarray <> 0"
    ).fetchall()
    assert {column_type(BUILT_IN[name][1], -1).kind.value for (name,) in other} == {"text"}
