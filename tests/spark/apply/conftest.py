"""One Spark session for all tests of the apply stage."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from auditlake.lake.session import spark_session

_SETTINGS = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session; it ends with the process, because a second JVM start would cost more than all tests."""
    return spark_session(_SETTINGS)
