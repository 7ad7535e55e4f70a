"""Copy tables with Spark's JDBC reader into Delta tables: spark_jdbc.py URL DRIVER_JAR FOLDER TABLE=PAGES..."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from auditlake.spark.jars import delta_jars

_RANGES, _SMALL_PAGES = 4, 1000
_URL, _JAR, _FOLDER, *_TABLES = sys.argv[1:]


def _predicates(pages: int) -> list[str]:
    if pages < _SMALL_PAGES:
        return ["true"]
    bounds = [pages * number // _RANGES for number in range(_RANGES)]
    upper = [*(f" and ctid < '({bound},0)'" for bound in bounds[1:]), ""]
    return [f"ctid >= '({bound},0)'{end}" for bound, end in zip(bounds, upper, strict=True)]


def main() -> None:
    """Copy one table after the other, large ones in four ranges of pages, each in a connection of its own."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join([*map(str, delta_jars({})), _JAR]))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    options = {"driver": "org.postgresql.Driver", "fetchsize": "10000"}
    for argument in _TABLES:
        table, pages = argument.split("=")
        rows = spark.read.jdbc(_URL, f'"{table}"', predicates=_predicates(int(pages)), properties=options)
        rows.write.format("delta").save(str(Path(_FOLDER, table)))
    spark.stop()


if __name__ == "__main__":
    main()
