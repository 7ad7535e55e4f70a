"""The Spark session has Delta, runs in UTC and keeps the working folder clean."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.spark.jars import delta_jars
from auditlake.spark.java import archive_path, driver_options
from auditlake.spark.session import spark_session

pytestmark = pytest.mark.spark


def test_every_time_zone_is_utc(spark: SparkSession) -> None:
    """Session, JVM default and user.timezone: Delta verifies each commit in full unless all three are UTC."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001  # there is no public way to it
    assert jvm is not None
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert jvm.java.util.TimeZone.getDefault().getID() == "UTC"
    assert jvm.java.lang.System.getProperty("user.timezone") == "UTC"


def test_merges_into_a_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    """The jars that are kept suffice for a MERGE with deletion vectors."""
    table = f"delta.`{tmp_path / 'table'}`"
    spark.sql(
        f"create table {table} (id bigint, v string) using delta tblproperties (delta.enableDeletionVectors = true)"
    )
    spark.sql(f"insert into {table} values (1, 'a'), (2, 'b')")
    spark.sql(
        f"merge into {table} t using (select * from values (2, 'c'), (3, 'd') as s (id, v)) s on t.id = s.id "
        "when matched then update set * when not matched then insert *"
    )
    rows = spark.sql(f"select id, v from {table} order by id").collect()
    assert [tuple(row) for row in rows] == [(1, "a"), (2, "c"), (3, "d")]


def test_a_second_call_returns_the_running_session(spark: SparkSession) -> None:
    """Settings that can still change are applied."""
    again = spark_session({"spark.sql.shuffle.partitions": "2"})
    assert again.sparkContext is spark.sparkContext


def test_workers_run_the_same_python(spark: SparkSession) -> None:
    """Not the first python3 on the PATH."""
    pythons = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert [Path(python).resolve() for python in pythons] == [Path(sys.executable).resolve()]


START = """
from auditlake.spark.session import spark_session
spark = spark_session({"spark.master": "local[1]", "spark.sql.session.timeZone": "Asia/Tokyo"})
spark._jvm.java.lang.System.out.println("Deleted 0 files and directories in a total of 2 directories.")
spark._jvm.java.lang.System.out.println("something else")
print(spark.conf.get("spark.sql.session.timeZone"), spark.range(3).count())
"""


def test_starts_quietly_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """No message at start, none of the JVM on stdout, no file in the working folder; the caller's setting applies."""
    run = subprocess.run([sys.executable, "-c", START], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("Asia/Tokyo 3\n", "something else\n")
    assert list(tmp_path.iterdir()) == []


def test_the_class_data_archive_fits_the_jvm_that_spark_starts(tmp_path: Path) -> None:
    """`-Xshare:on` ends a JVM that cannot map its archive; setting up this checkout has written one."""
    jars = delta_jars({})
    assert archive_path(jars).is_file(), "run `python -m auditlake.apply.warmup`"
    assert driver_options(jars)
    start = START.replace('"local[1]"', '"local[1]", "spark.driver.extraJavaOptions": "-Xshare:on"')
    run = subprocess.run([sys.executable, "-c", start], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("Asia/Tokyo 3\n", "something else\n")


def test_reports_a_jvm_that_refuses_its_settings(tmp_path: Path) -> None:
    """The JVM's messages reach standard error."""
    start = START.replace('"local[1]"', '"local[1]", "spark.driver.memory": "lots"')
    run = subprocess.run([sys.executable, "-c", start], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "ConfigError: the JVM under Spark did not start" in run.stderr
    assert "lots" in run.stderr
