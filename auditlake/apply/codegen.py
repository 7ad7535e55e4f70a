"""Code generation for wide tables: make Spark interpret plans whose compilation would take longer than the batch.

Spark generates and compiles Java for each projection, again for every batch of a table; with hundreds of columns that
is most of a MERGE's time. Results do not depend on it.

Authority: spark.apache.org/docs/4.2.0/configuration.html, "Runtime SQL Configuration"; Spark's SQLConf.scala
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

WIDE_COLUMNS = 200
"""Plans are interpreted from this number of columns on. Above 100 Spark does no whole-stage compilation anyway."""

_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.constraintPropagation.enabled": "false",  # quadratic in the number of columns
}


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
