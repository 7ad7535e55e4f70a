"""SQL examples of the documents are valid and have the results that the text names."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from auditlake.query.rewrite import NamedTables, rewrite
from auditlake.relation import TableName
from auditlake.snapshot.plan import make_plan
from auditlake.source.connection import connect
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.command import run_here

_DOCS = Path(__file__).parents[2] / "docs"


def _sql(document: str) -> list[str]:
    return re.findall(r"```sql\n(.*?)```", (_DOCS / document).read_text(), re.DOTALL)


def test_the_example_of_two_moments_is_valid() -> None:
    """The query of asking.md reads one table at its two moments."""
    (query,) = [block for block in _sql("asking.md") if "before" in block]
    names = NamedTables((TableName("public", "orders"),), datetime.now(UTC), "view_")
    found = rewrite(query, names)
    assert len(found.views) == 2
    assert {"orders"} == {reading.table.table for reading in found.views.values()}


def test_the_example_of_exact_text_is_valid() -> None:
    """The query of asking.md reads the raw column of its table."""
    (query,) = [block for block in _sql("asking.md") if "exact_text" in block]
    assert rewrite(query, NamedTables((TableName("public", "products"),), datetime.now(UTC), "view_")).exact


@pytest.mark.pg
def test_the_example_of_a_context_runs(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL accepts the transaction of asking.md, and the query below it names who changed the price and why."""
    (transaction,) = [block for block in _sql("asking.md") if "pg_logical_emit_message" in block]
    (question,) = [block for block in _sql("asking.md") if "context::jsonb" in block]
    with connect(database) as conn:
        conn.execute("set search_path = public")
        conn.execute("create table products (product_id int primary key, price numeric)")
        lake = make_lake(database, tmp_path / "lake")
        conn.execute("insert into products values (3, 8)")
        conn.execute(transaction.encode())
    capture(database, lake)
    monkeypatch.setenv("AUDITLAKE_DIALECT", "")
    answer = run_here(["sql", "--lake", str(lake.root), "--format", "json", question])
    found = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [(row["price"], row["who"], row["why"]) for row in found] == [
        ("8", None, None),
        ("10.00", "back office", "supplier raised the price"),
    ]


@pytest.mark.pg
def test_the_source_is_ready_after_the_documented_steps(database: str) -> None:
    """The role needs nothing beyond the statements of operating.md."""
    (setup,) = _sql("operating.md")
    with connect(database) as conn:
        conn.execute("set search_path = public")
        conn.execute("create table orders (id int primary key); create table customers (id int primary key)")
        conn.execute("create role app")  # owns the application's tables
        try:
            for statement in setup.split(";"):
                conn.execute(statement.encode())
            with connect(make_conninfo(database, user="auditlake")) as ours:
                plan = make_plan(ours, None, "auditlake", "auditlake")
        finally:
            conn.execute("drop owned by auditlake; drop owned by app; drop role auditlake; drop role app")
            conn.execute("alter system reset wal_level")
    assert [table.name.table for table in plan.chosen] == ["customers", "orders"]
