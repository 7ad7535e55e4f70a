"""Tables so wide that compiling the code of a batch takes longer than the batch: there Spark interprets its plans.

Spark writes Java for each projection and compiles it, at every batch of a table anew; with hundreds of columns that is
most of a MERGE's time. Which code runs is all that differs.

Authority: spark.apache.org/docs/4.2.0/configuration.html, "Runtime SQL Configuration"; Spark's SQLConf.scala
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

WIDE_COLUMNS = 200
"""From so many columns on plans are interpreted. Above 100 Spark compiles no stage as one anyway."""

_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.constraintPropagation.enabled": "false",  # looks at every column for each column
}


@contextmanager
def interpreted_if_wide(session: SparkSession, width: int) -> Iterator[None]:
    """Interpret what this session runs meanwhile, if it is about a table of so many columns."""
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
