"""SQL examples of the documents are valid and have the results that the text names."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from auditlake.query.rewrite import Names, rewrite
from auditlake.relation import TableName
from auditlake.snapshot.plan import make_plan
from auditlake.source.connection import connect

_DOCS = Path(__file__).parents[2] / "docs"


def _sql(document: str) -> list[str]:
    return re.findall(r"```sql\n(.*?)```", (_DOCS / document).read_text(), re.DOTALL)


def test_the_example_of_two_moments_is_valid() -> None:
    """The query of asking.md reads one table at its two moments."""
    (query,) = [block for block in _sql("asking.md") if "system_time" in block]
    names = Names((TableName("public", "orders"),), datetime.now(UTC), "view_")
    found = rewrite(query, names)
    assert len(found.views) == 2
    assert {"orders"} == {reading.table.table for reading in found.views.values()}


def test_the_example_of_exact_text_is_valid() -> None:
    """The query of asking.md reads the raw column of its table."""
    (query,) = [block for block in _sql("asking.md") if "exact_text" in block]
    assert rewrite(query, Names((TableName("public", "products"),), datetime.now(UTC), "view_")).exact


@pytest.mark.pg
def test_the_example_of_a_context_runs(database: str) -> None:
    """PostgreSQL accepts the transaction of asking.md."""
    (transaction,) = [block for block in _sql("asking.md") if "pg_logical_emit_message" in block]
    with connect(database) as conn:
        conn.execute("set search_path = public")
        conn.execute("create table products (product_id int primary key, price numeric)")
        conn.execute(transaction.encode())


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
