"""Every version of every row of a PostgreSQL database, and the whole database as of any commit.

    import auditlake
    from auditlake.lake.session import spark_session

    spark = spark_session()
    auditlake.read(spark, "./lake", "public.orders", as_of="-2h").show()
    auditlake.sql(spark, "./lake", "select * from orders for system_time all where order_id = 7").show()
    auditlake.register(spark, "./lake", as_of="2026-11-21T09:30:00Z")
    spark.sql("select * from orders join customers using (customer_id)").show()

Importing it starts nothing and loads nothing heavy.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from auditlake.lake.layout import Lake

__all__ = ["exact_text", "read", "register", "sql"]


def read(
    spark: "SparkSession", lake: str | Path, table: str, as_of: str | None = None, *, raw: bool = False
) -> "DataFrame":
    """Read a table as of a moment.

    `table` is named as in SQL: `public.orders`, `orders`, `auditlake.changes`, odd names in backticks. `as_of` is a
    WHEN: an ISO time, `-2h`, an LSN or `xid:N`; None is the latest complete transaction of the lake. `raw` adds the
    column `_raw`: the exact text of values that their typed column cannot hold.

    Raises BadUsage (the name or the WHEN), LakeUnusable, NotAnswerable (the lake does not know that moment).
    """
    from auditlake.query.frames import read_table  # noqa: PLC0415 - pyspark takes a second to import

    return read_table(spark, _lake(lake), table, as_of, raw=raw)


def sql(spark: "SparkSession", lake: str | Path, statement: str, as_of: str | None = None) -> "DataFrame":
    """Plan one statement of `auditlake sql`: its tables are those of the lake as of one moment, with FOR SYSTEM_TIME.

    Raises BadUsage (the SQL or a WHEN), LakeUnusable, NotAnswerable (the lake does not know that moment).
    """
    from auditlake.query.sql import run_sql  # noqa: PLC0415 - pyspark takes a second to import

    return run_sql(spark, _lake(lake), statement, as_of)


def register(spark: "SparkSession", lake: str | Path, as_of: str | None = None, *, raw: bool = False) -> list[str]:
    """Register every table as temporary views as of one moment, and return the views' names.

    A temporary view's name has one part: each table is `schema__table`, and `table` too where only one schema has it.
    Names that differ in case alone are spelled as the lake's folders are, because Spark does not tell them apart.
    Views of these names that exist already are replaced. With `raw` they have the column `_raw` too, and the SQL
    function `exact_text(column, _raw, 'column')` gives PostgreSQL's own text of any value.

    Raises as `read` does; then nothing is registered.
    """
    from auditlake.query.frames import register_tables  # noqa: PLC0415 - pyspark takes a second to import

    return register_tables(spark, _lake(lake), as_of, raw=raw)


def exact_text(name: str, of: str | None = None) -> "Column":
    """Give PostgreSQL's own text of column `name`: from the typed value where that is lossless, else from `_raw`.

    For rows of `read(…, raw=True)` or of versions; `of` is the table's alias where there are several.
    """
    from auditlake.query.exact import exact_text as column  # noqa: PLC0415 - as above

    return column(name, of)


def _lake(root: str | Path) -> "Lake":
    from auditlake.lake.layout import Lake  # noqa: PLC0415 - as above

    return Lake(Path(root).expanduser().absolute())
