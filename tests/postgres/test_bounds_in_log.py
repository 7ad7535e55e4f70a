"""Columns whose least and greatest values are in the transaction logs, as docs/operating.md says."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from auditlake.lake.layout import Lake
from auditlake.relation import TableName
from tests.capture_once import capture
from tests.command import run_here
from tests.erasure_lake import apply

pytestmark = pytest.mark.pg

Action = dict[str, dict[str, Any]]

_TABLE = """
create table login (
  email text, tenant int, seen date, name text, price numeric(9, 2), tags text[], data jsonb, here boolean,
  "at home" int,
  primary key (email, tenant)
)
"""
_ROW = "('eve@example.org', 1, '2026-01-01', 'Eve', 1.5, '{a}', '{}', true, 7)"


def test_columns_with_bounds_are_those_of_the_documentation(database: str, tmp_path: Path) -> None:
    """In files that are written without Spark, and those that Spark is told to write."""
    lake = Lake(tmp_path / "lake")
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(_TABLE)
        conn.execute(f"insert into login values {_ROW}".encode())
        settings: list[str | Path] = ["--source", database, "--engine", "duckdb", "--lake", lake.root]
        assert run_here(["bootstrap", *settings]).code == 0
        history = lake.history(TableName("public", "login"))
        copied = _actions(history)
        assert _bounded(copied) == {"_from_lsn", "tenant", "seen", "at home"}
        conn.execute("update login set name = 'Eva'")
        capture(database, lake)
        apply(lake)
    actions = [each for each in _actions(history) if each not in copied]
    assert _bounded(actions) == {"_from_lsn", "_to_lsn", "tenant"}
    assert _bounded(_actions(lake.changes)) == {"lsn", "ordinal", "xid", "relation"}
    assert _bounded(_actions(lake.transactions)) == {
        "lsn",
        "end_lsn",
        "xid",
        "inserts",
        "updates",
        "deletes",
        "truncates",
    }
    metadata = next(each["metaData"] for each in copied if "metaData" in each)
    told = metadata["configuration"]["delta.dataSkippingStatsColumns"].split(",")
    assert told == ["_from_lsn", "_to_lsn", "_from_time", "_to_time", "email", "tenant", "seen", "price"]
    assert "eve@example.org" not in "".join(map(json.dumps, _actions(history)))


def _bounded(actions: list[Action]) -> set[str]:
    """Return the columns that have a bound in some `add`."""
    stats = [json.loads(each["add"]["stats"]) for each in actions if "add" in each]
    return {name for each in stats for part in ("minValues", "maxValues") for name in each[part]}


def _actions(table: Path) -> list[Action]:
    entries = sorted((table / "_delta_log").glob("*.json"))
    return [json.loads(line) for entry in entries for line in entry.read_text().splitlines()]
