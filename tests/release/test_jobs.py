"""The jobs, as documented: spark-submit on a standalone master with two workers."""

import os
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import cast

import psycopg
import pyspark
import pytest

from auditlake.lake.history import open_history
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.store.place import Remote
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.s3_server import SECRET
from tests.small_lake import ORDERS, write_small_lake

pytestmark = [pytest.mark.spark, pytest.mark.crash]  # it has JVMs of its own

_ROOT = Path(__file__).parent.parent.parent
_SPARK = Path(pyspark.__file__).parent
_SCRIPTS = Path(sysconfig.get_path("scripts"))
_STARTS_FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
_ENVIRONMENT = {
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
        environment = {**os.environ, **_ENVIRONMENT}
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
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


def _submit(
    master: str, job: str, arguments: Sequence[str | Path], cores: int = 1, more: Sequence[str] = ()
) -> tuple[str, str]:
    environment = {**os.environ, **_ENVIRONMENT, "AUDITLAKE_LAKE": str(arguments[0])}
    jars = subprocess.check_output([sys.executable, "-m", "auditlake.spark.jars"], env=environment, text=True).strip()
    options = ["--master", master, "--jars", jars, "--executor-memory", "512m", "--driver-memory", "1g"]
    options += ["--driver-java-options", _STARTS_FAST, "--conf", "spark.sql.shuffle.partitions=2"]
    options += ["--total-executor-cores", str(cores), *more]
    command = [_SCRIPTS / "spark-submit", *options, _ROOT / "jobs" / job, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, done.stderr


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
    assert _submit(master, "sql.py", [lake.root, query])[0].splitlines() == ["id,note", "1,c", "4,new"]
    _submit(master, "maintain.py", [lake.root])
    again = open_history(lake, ORDERS)
    assert again is not None
    assert (again.position, again.horizon) == (table.position, table.horizon)


@pytest.mark.timeout(1200)
def test_jobs_run_on_a_lake_in_s3_while_executors_are_killed(
    remote_folder: Remote, master: str, database: str, tmp_path: Path
) -> None:
    """The answer is PostgreSQL's; the secret of the store is in no log and no event of Spark."""
    with psycopg.connect(database) as conn:
        conn.execute("create table orders (id int primary key, note text)")
    lake = make_lake(database, cast("Path", remote_folder))
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("insert into orders select n, 'note ' || n from generate_series(1, 2000) n")
        conn.execute("update orders set note = 'second' where id % 3 = 0")
        expected = conn.execute("select count(*), count(*) filter (where note = 'second') from orders").fetchone()
    capture(database, lake)
    events = tmp_path / "events"
    events.mkdir()
    more = ["--conf", "spark.speculation=true", "--conf", "spark.speculation.interval=10ms"]
    more += ["--conf", "spark.speculation.multiplier=1.01", "--conf", "spark.speculation.quantile=0.1"]
    more += ["--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={events.as_uri()}"]
    stop = threading.Event()
    killer = threading.Thread(target=_kill_executors, args=(stop, tmp_path / "work"))
    killer.start()
    try:
        _, logged = _submit(master, "apply.py", [str(lake.root)], 2, more)
    finally:
        stop.set()
        killer.join()
    query = "select count(*), count(*) filter (where note = 'second') from public.orders"
    answer, _ = _submit(master, "sql.py", [str(lake.root), query], 2, more)
    assert answer.splitlines()[1] == ",".join(map(str, expected or ()))
    _submit(master, "maintain.py", [str(lake.root)], 2, more)
    written = [
        path.read_bytes() for folder in (events, tmp_path / "work") for path in folder.rglob("*") if path.is_file()
    ]
    assert written
    assert not [text for text in (logged.encode(), *written) if SECRET.encode() in text]


def _kill_executors(stop: threading.Event, work: Path) -> None:
    """Kill one executor of this test's workers by its PID, twice, a while after it started."""
    for _ in range(2):
        if stop.wait(20):
            return
        found = [pid for pid, line in _processes() if "CoarseGrainedExecutorBackend" in line and str(work) in line]
        for pid in found[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _processes() -> list[tuple[int, str]]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            place = (path / "cwd").readlink()
            found.append((int(path.name), f"{(path / 'cmdline').read_text()} {place}"))
    return found
