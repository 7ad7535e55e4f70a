"""What the demo asks both PostgreSQL and the lake: whole tables and a join, in terms that both engines spell alike."""

from typing import LiteralString

from pyspark.sql import SparkSession

from auditlake.lake.layout import Lake
from auditlake.postgres.connection import Row
from auditlake.query.sql import run_sql

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
"""Question by name; each gives rows in an order that is the same in both engines."""


def spark_rows(spark: SparkSession, lake: Lake, question: str, when: str) -> list[Row]:
    """Ask the lake one of `CHECKED` as of a moment."""
    return [tuple(row) for row in run_sql(spark, lake, CHECKED[question], when).collect()]


def compare(expected: list[Row], found: list[Row]) -> str | None:
    """Say how the lake's answer differs from PostgreSQL's; None if it does not."""
    if len(expected) != len(found):
        return f"{len(found)} rows, PostgreSQL had {len(expected)}"
    wrong = sum(ours != theirs for ours, theirs in zip(found, expected, strict=True))
    return f"{wrong} of {len(expected)} rows differ" if wrong else None
