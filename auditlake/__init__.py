"""Every version of every row of a PostgreSQL database, and the whole database as of any commit.

    import auditlake
    from auditlake.lake.session import spark_session

    spark = spark_session()
    auditlake.read(spark, "./lake", "public.orders", as_of="-2h").show()
    auditlake.register(spark, "./lake", as_of="2026-11-21T09:30:00Z")
    spark.sql("select * from orders join customers using (customer_id)").show()

Importing it starts nothing and loads nothing heavy.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from auditlake.lake.layout import Lake

__all__ = ["read", "register"]


def read(spark: "SparkSession", lake: str | Path, table: str, as_of: str | None = None) -> "DataFrame":
    """Read a table as of a moment.

    `table` is named as in SQL: `public.orders`, `orders`, `auditlake.changes`, odd names in backticks. `as_of` is a
    WHEN: an ISO time, `-2h`, an LSN or `xid:N`; None is the latest complete transaction of the lake.

    Raises BadUsage (the name or the WHEN), LakeUnusable, NotAnswerable (the lake does not know that moment).
    """
    from auditlake.query.frames import read_table  # noqa: PLC0415 - pyspark takes a second to import

    return read_table(spark, _lake(lake), table, as_of)


def register(spark: "SparkSession", lake: str | Path, as_of: str | None = None) -> list[str]:
    """Register every table as temporary views as of one moment, and return the views' names.

    A temporary view's name has one part: each table is `schema__table`, and `table` too where only one schema has it.
    Views of these names that exist already are replaced.

    Raises as `read` does; then nothing is registered.
    """
    from auditlake.query.frames import register_tables  # noqa: PLC0415 - pyspark takes a second to import

    return register_tables(spark, _lake(lake), as_of)


def _lake(root: str | Path) -> "Lake":
    from auditlake.lake.layout import Lake  # noqa: PLC0415 - as above

    return Lake(Path(root).expanduser().absolute())
