"""The jobs, as documented: spark-submit on a standalone master with two workers."""

import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from auditlake.lake.history import open_history
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, write_manifest
from tests.small_lake import ORDERS, write_small_lake

pytestmark = [pytest.mark.spark, pytest.mark.crash]  # it has JVMs of its own

_ROOT = Path(__file__).parent.parent.parent
_SPARK = Path(pyspark.__file__).parent
_SCRIPTS = Path(sysconfig.get_path("scripts"))
_STARTS_FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
_ENVIRONMENT = {
    **os.environ,
    "PATH": f"{_SCRIPTS}:{os.environ['PATH']}",  # as an activated environment has it
    "PYTHONPATH": str(_ROOT),
    "SPARK_HOME": str(_SPARK),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "128m",
    "SPARK_DAEMON_JAVA_OPTS": f"{_STARTS_FAST} -Dspark.master.rest.enabled=false",
}
_START_TIMEOUT_S = 120


@contextmanager
def _daemon(log: Path, *arguments: str) -> Iterator[None]:
    """Run a class of Spark's until the context is left."""
    with log.open("w") as output:
        command = [str(_SPARK / "bin" / "spark-class"), *arguments]
        process = subprocess.Popen(command, env=_ENVIRONMENT, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def _await_line(log: Path, words: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while words not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A standalone master with two workers of one core each; gives its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    url, deploy, web = f"spark://127.0.0.1:{port}", "org.apache.spark.deploy", ["--webui-port", "0"]
    with ExitStack() as running:
        log = tmp_path / "master.log"
        running.enter_context(_daemon(log, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", port, *web))
        _await_line(log, "I have been elected leader")
        size = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work")]
        logs = [tmp_path / f"worker{number}.log" for number in range(2)]
        for each in logs:
            running.enter_context(_daemon(each, f"{deploy}.worker.Worker", *size, *web, url))
        for each in logs:
            _await_line(each, "Successfully registered with master")
        yield url


def _submit(master: str, job: str, arguments: Sequence[str | Path], cores: int = 1) -> str:
    jars = subprocess.check_output([sys.executable, "-m", "auditlake.spark.jars"], env=_ENVIRONMENT, text=True).strip()
    options = ["--master", master, "--jars", jars, "--executor-memory", "512m", "--driver-memory", "1g"]
    options += ["--driver-java-options", _STARTS_FAST, "--conf", "spark.sql.shuffle.partitions=2"]
    options += ["--total-executor-cores", str(cores)]
    command = [_SCRIPTS / "spark-submit", *options, _ROOT / "jobs" / job, *arguments]
    done = subprocess.run(command, env=_ENVIRONMENT, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _write_manifest(lake: Lake) -> None:
    """Give a lake that was written by hand its manifest, which is only written into an empty folder."""
    empty = Lake(lake.root.with_name("empty"))
    write_manifest(empty, Manifest("1", 1, "shop", "auditlake", "auditlake"))
    empty.manifest.rename(lake.manifest)


def test_jobs_run_on_a_standalone_cluster(master: str, tmp_path: Path) -> None:
    """Apply brings the captured changes into the history, SQL answers from it, maintain goes through the files."""
    lake = write_small_lake(tmp_path / "lake")
    _write_manifest(lake)
    _submit(master, "apply.py", [lake.root], cores=2)
    table = open_history(lake, ORDERS)
    assert table is not None
    assert table.position == 0x300
    query = "select id, note from public.orders order by id"
    assert _submit(master, "sql.py", [lake.root, query]).splitlines() == ["id,note", "1,c", "4,new"]
    _submit(master, "maintain.py", [lake.root])
    again = open_history(lake, ORDERS)
    assert again is not None
    assert (again.position, again.horizon) == (table.position, table.horizon)
