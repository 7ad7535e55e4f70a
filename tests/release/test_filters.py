"""Filters and order of the Python API, compared with PostgreSQL's under the collation C."""

from collections.abc import Iterable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

import auditlake
from tests.capture_lake import make_lake
from tests.capture_once import capture

pytestmark = pytest.mark.pg
_VALUES = {
    "boolean": ["true", "false"],
    "bytea": ["\\x", "\\x00", "\\xff01", "\\x7f"],
    "char(4)": ["a", "a\t", "ab", "", "é"],
    "name": ["a", "B", "_"],
    "text": ["", "a", "a b", "Z", "é"],
    "time": ["00:00", "09:30", "09:30:00.5", "09:30:00.49", "24:00"],
    "uuid": ["00000000-0000-0000-0000-00000000000f", "f0000000-0000-0000-0000-000000000000"],
    "money": ["$9.00", "$10.00", "-$1,000.00"],
    "numeric(6,2)": ["NaN", "-1.50", "2", "10"],
    "date": ["0044-03-15 BC", "2026-01-01", "infinity"],
    "double precision": ["-Infinity", "-0", "0", "1.5", "NaN"],
}


def test_filters_and_order_are_those_of_postgresql(database: str, tmp_path: Path) -> None:
    """Every value of several types, compared with every other by every sign that the type has."""
    with psycopg.connect(database, autocommit=True) as conn:
        for number, kind in enumerate(_VALUES):
            conn.execute(f"create table t{number} (id int primary key, v {kind})".encode())
        made = make_lake(database, tmp_path / "lake")
        for number, values in enumerate(_VALUES.values()):
            rows = [*enumerate(values), (len(values), None)]
            conn.cursor().executemany(f"insert into t{number} values (%s, %s)".encode(), rows)
        capture(database, made)
        lake = auditlake.Lake(made.root)
        wrong = [each for number, kind in enumerate(_VALUES) for each in _differences(conn, lake, f"t{number}", kind)]
    assert not wrong


def _differences(conn: psycopg.Connection, lake: auditlake.Lake, table: str, kind: str) -> list[tuple[str, ...]]:
    by = 'v collate "C"' if kind in {"text", "char(4)"} else "v"
    rows = partial(lake.as_of().table, table, columns=["id"])
    found = []
    for value, sign in product(_VALUES[kind], ("=", "<>", "<", "<=", ">", ">=")):
        asked = rows(where=[("v", sign, value)], order_by=["id"])
        query = f"select id from {table} where {by} {sign} %s::{kind} order by id"
        found += _difference(asked, conn.execute(query.encode(), [value]), (kind, sign, value))
    for order, way in (("v", "asc"), ("-v", "desc")):
        query = f"select id from {table} order by {by} {way}, id"
        found += _difference(rows(order_by=[order, "id"]), conn.execute(query.encode()), (kind, order))
    return found


def _difference(
    answered: Iterable[dict[str, Any]], expected: Iterable[tuple[int]], asked: tuple[str, ...]
) -> list[tuple[str, ...]]:
    ours, theirs = [row["id"] for row in answered], [number for (number,) in expected]
    return [] if ours == theirs else [(*asked, str(ours), str(theirs))]
