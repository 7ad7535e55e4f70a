"""Every version of every row of a PostgreSQL database, and the whole database as of any commit.

    import auditlake
    from auditlake.spark.session import spark_session

    spark = spark_session()
    auditlake.read(spark, "./lake", "public.orders", as_of="-2h").show()
    auditlake.sql(spark, "./lake", "select * from orders for system_time all where order_id = 7").show()
    auditlake.register(spark, "./lake", as_of="2026-11-21T09:30:00Z")
    spark.sql("select * from orders join customers using (customer_id)").show()

Without Spark and without a JVM:

    lake = auditlake.Lake("./lake")
    lake.as_of("-2h").table("public.orders").to_pandas()
    lake.row("public.orders", 7)
    for transaction in auditlake.changes("./lake", since="-1h", tables=["public.orders"]):
        print(transaction.time, transaction.actor, [change.after for change in transaction.changes])

The import is cheap: it starts nothing and imports no Spark.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame, SparkSession

    from auditlake.api.lake import Lake
    from auditlake.feed.feed import Feed
    from auditlake.lake.layout import Lake as Layout
    from auditlake.pgoutput.decoder import UNCHANGED
    from auditlake.values.python_values import ExactText

__all__ = ["UNCHANGED", "ExactText", "Lake", "changes", "exact_text", "read", "register", "sql"]

_FOUND_IN = {
    "Lake": "auditlake.api.lake",
    "UNCHANGED": "auditlake.pgoutput.decoder",
    "ExactText": "auditlake.values.python_values",
}


def __getattr__(name: str) -> object:
    """Import a class when it is first used: commands import this package too, and most need none of them."""
    if name not in _FOUND_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - as the classes

    return getattr(import_module(_FOUND_IN[name]), name)


def changes(  # noqa: PLR0913 - independent filters, all optional
    lake: str | Path,
    since: "str | datetime | None" = None,
    *,
    after: str | None = None,
    tables: Iterable[str] = (),
    key: object = None,
    column: str | None = None,
    ops: Iterable[str] = (),
    follow: bool = True,
    allow_gaps: bool = False,
) -> "Feed":
    """Yield whole transactions in commit order, and new ones as capture makes them durable.

    `since` is a WHEN or an aware datetime, inclusive, or `beginning`; `after` is the `cursor` of the last transaction
    that was processed; without either the feed starts with the next transaction. `tables`, `key` (of one table: a
    value, several, or a mapping by column) and `ops` (insert, update, delete, truncate) select changes; transactions
    without a selected change are omitted, and with `column` those that did not change its value in some row of the
    one table. `follow=False` ends at the last transaction that is in the lake.

    Store the cursor together with the effects of a transaction to process each exactly once. The feed reads files of
    the lake only, so a slow subscriber delays neither capture nor the source.

    Raises BadUsage, LakeUnusable, WrongSource (the cursor belongs to another source), NotAnswerable (the lake does not
    have every change from there on; `allow_gaps` continues without the missing ones).
    """
    from auditlake.api.lake import Lake  # noqa: PLC0415 - the import of this package is cheap

    given: dict[str, Any] = {"tables": tables, "ops": ops, "key": key, "column": column}
    return Lake(lake).changes(since, after=after, follow=follow, allow_gaps=allow_gaps, **given)


def read(
    spark: "SparkSession", lake: str | Path, table: str, as_of: "str | datetime | None" = None, *, raw: bool = False
) -> "DataFrame":
    """Read a table as of a moment.

    `table` is named as in SQL: `public.orders`, `orders`, `auditlake.changes`, special names in backticks. `as_of` is a
    WHEN (an ISO time, `-2h`, an LSN or `xid:N`) or an aware datetime; None is the latest complete transaction of the
    lake. `raw` adds the column `_raw`: the exact text of values that their typed column cannot hold.

    Raises BadUsage (the name or the WHEN), LakeUnusable, NotAnswerable (the lake does not know that moment).
    """
    from auditlake.query.spark_engine import read_table  # noqa: PLC0415 - pyspark takes a second to import

    return read_table(spark, _lake(lake), table, _written(as_of), raw=raw)


def sql(spark: "SparkSession", lake: str | Path, statement: str, as_of: "str | datetime | None" = None) -> "DataFrame":
    """Plan one statement in Spark's dialect: its tables are those of the lake as of one moment, with FOR SYSTEM_TIME.

    Raises BadUsage (the SQL or a WHEN), LakeUnusable, NotAnswerable (the lake does not know that moment).
    """
    from auditlake.query.spark_engine import run_sql  # noqa: PLC0415 - pyspark takes a second to import

    return run_sql(spark, _lake(lake), statement, _written(as_of))


def register(
    spark: "SparkSession", lake: str | Path, as_of: "str | datetime | None" = None, *, raw: bool = False
) -> list[str]:
    """Register every table as temporary views as of one moment, and return the views' names.

    A temporary view's name has one part: each table is `schema__table`, and `table` too if only one schema has it.
    Names that differ only in case are escaped as the lake's folders are, because Spark's names are case-insensitive.
    Existing views of these names are replaced. `raw` adds the column `_raw`, from which the SQL function
    `exact_text(column, _raw, 'column')` returns PostgreSQL's own text of any value.

    Raises as `read` does; then nothing is registered.
    """
    from auditlake.query.spark_engine import register_tables  # noqa: PLC0415 - pyspark takes a second to import

    return register_tables(spark, _lake(lake), _written(as_of), raw=raw)


def exact_text(name: str, of: str | None = None) -> "Column":
    """Return PostgreSQL's own text of column `name`: from the typed value if that is lossless, else from `_raw`.

    For rows of `read(…, raw=True)` or of versions; `of` is the table's alias, if there are several tables.
    """
    from auditlake.query.spark_values import exact_text_column as column  # noqa: PLC0415 - as above

    return column(name, of)


def _written(when: "str | datetime | None") -> str | None:
    from auditlake.temporal.when import written  # noqa: PLC0415 - as above

    return written(when)


def _lake(root: str | Path) -> "Layout":
    from auditlake.lake.layout import Lake as Layout  # noqa: PLC0415 - as above

    return Layout.at(root)
