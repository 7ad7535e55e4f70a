"""Plans of a running session: read a table's version and files, and interpret wide plans. Imports no pyspark.

`interpreted_if_wide` makes Spark interpret plans whose compilation would take longer than the batch. Spark generates
and compiles Java for each projection, again for every batch of a table; with hundreds of columns that is most of a
MERGE's time. Results do not depend on it.

Authority: Spark's SQLConf.scala; docs.delta.io, "Table batch reads and writes"
"""

from __future__ import annotations  # types of Spark are imported for mypy only

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Otherwise Spark reads braces and brackets in a path as patterns.
PATHS_AS_THEY_ARE = ("__globPaths__", "false")
WIDE_COLUMNS = 200
"""Plans are interpreted from this number of columns on. Above 100 Spark does no whole-stage compilation anyway."""

_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.constraintPropagation.enabled": "false",  # quadratic in the number of columns
}


def read_version(spark: SparkSession, path: str, version: int) -> DataFrame:
    """Read one version of a Delta table; later commits change nothing."""
    return spark.read.format("delta").option("versionAsOf", version).load(path)


@contextmanager
def interpreted_if_wide(session: SparkSession, width: int) -> Iterator[None]:
    """Disable code generation in this session for the duration of the block if `width` columns are wide."""
    if width < WIDE_COLUMNS:
        yield
        return
    before = {name: str(session.conf.get(name)) for name in _INTERPRETED}
    try:
        _set(session, _INTERPRETED)
        yield
    finally:
        _set(session, before)


def _set(session: SparkSession, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        session.conf.set(name, value)
