"""The Spark session has Delta, runs in UTC and keeps the working folder clean."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.spark.jars import delta_jars
from auditlake.spark.jvm import archive_path, driver_options
from auditlake.spark.session import spark_session
from auditlake.store.process_folder import process_folder
from tests.running import await_true

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


def test_rows_that_leave_memory_end_with_the_process(spark: SparkSession) -> None:
    """In a folder of its own, which the next process removes if this one is killed."""
    folder = Path(spark.sparkContext.getConf().get("spark.local.dir") or "")
    assert folder == process_folder()
    assert list(folder.glob("blockmgr-*"))


def test_workers_run_the_same_python(spark: SparkSession) -> None:
    """Not the first python3 on the PATH."""
    pythons = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert [Path(python).resolve() for python in pythons] == [Path(sys.executable).resolve()]


def test_a_jvm_that_is_slow_to_answer_is_waited_for(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark connects to it for every result: a JVM suspended for 20 s then ended verify with an UnboundLocalError."""
    allowed = list[float]()

    class Recorded(socket.socket):
        def settimeout(self, value: float | None, /) -> None:
            allowed.extend([] if value is None else [value])
            super().settimeout(value)

    monkeypatch.setattr(socket, "socket", Recorded)
    assert spark.range(3).toArrow().num_rows == 3
    assert allowed
    assert min(allowed) >= 600
    assert spark.conf.get("spark.sql.broadcastTimeout") == "-1"


START = """
from auditlake.spark.session import spark_session
spark = spark_session({"spark.master": "local[1]", "spark.sql.session.timeZone": "Asia/Tokyo"})
spark._jvm.java.lang.System.out.println("Deleted 0 files and directories in a total of 2 directories.")
spark._jvm.java.lang.System.out.println("something else")
print(spark.conf.get("spark.sql.session.timeZone"), spark.range(3).count())
"""


def test_starts_quietly_from_the_archive_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """No message at start, none of the JVM on stdout, no file in the working folder; the caller's setting applies.

    `-Xshare:on` ends a JVM that cannot map its class-data archive; setting up this checkout has written one.
    """
    jars = delta_jars({})
    assert archive_path(jars).is_file(), "run `python -m auditlake.apply.warmup`"
    assert driver_options(jars)
    start = START.replace('"local[1]"', '"local[1]", "spark.driver.extraJavaOptions": "-Xshare:on"')
    run = subprocess.run([sys.executable, "-c", start], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("Asia/Tokyo 3\n", "something else\n")
    assert list(tmp_path.iterdir()) == []


def test_reports_a_jvm_that_refuses_its_settings(tmp_path: Path) -> None:
    """The JVM's messages reach standard error."""
    start = START.replace('"local[1]"', '"local[1]", "spark.driver.memory": "lots"')
    run = subprocess.run([sys.executable, "-c", start], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "ConfigError: the JVM under Spark did not start" in run.stderr
    assert "lots" in run.stderr


def _in_group(group: int) -> list[str]:
    """Return the processes of a process group that still run."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            command, rest = file.read_text().rsplit(")", 1)
            state, _, of = rest.split()[:3]
            found += [command] if int(of) == group and state != "Z" else []
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_spark_starts_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    """The JVM has a session of its own, and would wait for ever for a client that has gone."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", START], cwd="/", env=environment, stderr=subprocess.PIPE) as run:
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        await_true(lambda: children.read_text() != "")
        group = int(children.read_text())
        run.send_signal(number)
        run.communicate(timeout=120)
    assert run.returncode == -number
    await_true(lambda: _in_group(group) == [])  # a killed process takes a moment to leave
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_a_jvm_that_is_killed_while_it_starts_is_reported_as_killed(tmp_path: Path) -> None:
    """It has left no messages."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", START], cwd="/", env=environment, stderr=subprocess.PIPE) as run:
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        await_true(lambda: children.read_text() != "")
        os.kill(int(children.read_text()), signal.SIGKILL)
        _, stderr = run.communicate(timeout=120)
    assert b"the JVM under Spark was killed (SIGKILL) while it started, its heap is " in stderr
