"""Queries that the demo runs on PostgreSQL and on the lake: whole tables and a join, in SQL common to both engines."""

from typing import LiteralString

from pyspark.sql import SparkSession

from auditlake.lake.layout import Lake
from auditlake.query.sql import run_sql
from auditlake.source.connection import Row

JOIN = "revenue by customer"

CHECKED: dict[str, LiteralString] = {
    "customers": "select customer_id, name, cast(extract(day from joined_on) as int) from public.customers order by 1",
    "products": "select product_id, name, price from public.products order by 1",
    "orders": "select order_id, customer_id, status, cast(extract(second from placed_at) as numeric(8,6))"
    " from public.orders order by 1",
    "order lines": "select order_id, line_no, product_id, quantity, unit_price from public.order_lines order by 1, 2",
    JOIN: """
        select c.name, count(*), sum(l.quantity * l.unit_price)
          from public.customers c
          join public.orders o on o.customer_id = c.customer_id
          join public.order_lines l on l.order_id = o.order_id
         where o.status <> 'cancelled' group by c.name order by 1""",
}
"""Queries by name; each orders its rows, identically in both engines."""


def spark_rows(spark: SparkSession, lake: Lake, question: str, when: str) -> list[Row]:
    """Run one of `CHECKED` on the lake as of a moment."""
    return [tuple(row) for row in run_sql(spark, lake, CHECKED[question], when).collect()]


def compare(expected: list[Row], actual: list[Row]) -> str | None:
    """Describe the difference between the lake's answer and PostgreSQL's; None if there is none."""
    if len(expected) != len(actual):
        return f"{len(actual)} rows, PostgreSQL had {len(expected)}"
    wrong = sum(ours != theirs for ours, theirs in zip(actual, expected, strict=True))
    return f"{wrong} of {len(expected)} rows differ" if wrong else None
