"""The jobs, as documented: spark-submit on a standalone master with two workers."""

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast
from urllib.request import urlopen

import psycopg
import pyspark
import pytest
from psycopg.conninfo import make_conninfo

from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.store.place import Remote
from tests import command
from tests.capture_once import capture
from tests.read_lake import history_of
from tests.s3_server import SECRET
from tests.server import free_port
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
    "SPARK_DAEMON_JAVA_OPTS": f"{_STARTS_FAST} -Dspark.master.rest.enabled=false",
}
_START_TIMEOUT_S = 120
DATABASE_SECRET = "database-secret-of-the-tests"


@contextmanager
def daemon(log: Path, *arguments: str, memory: str = "128m") -> Iterator[None]:
    """Run a class of Spark's until the context is left."""
    with log.open("w") as output:
        command = [str(_SPARK / "bin" / "spark-class"), *arguments]
        environment = {**os.environ, **_ENVIRONMENT, "SPARK_DAEMON_MEMORY": memory}
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def await_line(log: Path, words: str) -> None:
    """Wait until a log has these words."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while words not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A standalone master with two workers of one core each; gives its URL."""
    port = str(free_port())
    url, deploy, web = f"spark://127.0.0.1:{port}", "org.apache.spark.deploy", ["--webui-port", "0"]
    with ExitStack() as running:
        log = tmp_path / "master.log"
        running.enter_context(daemon(log, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", port, *web))
        await_line(log, "I have been elected leader")
        size = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work")]
        logs = [tmp_path / f"worker{number}.log" for number in range(2)]
        for each in logs:
            running.enter_context(daemon(each, f"{deploy}.worker.Worker", *size, *web, url))
        for each in logs:
            await_line(each, "Successfully registered with master")
        yield url


@dataclass(frozen=True)
class _Cluster:
    """spark-submit as documented, with more options and variables; `has_jars`: every machine has the jars."""

    master: str
    cores: int = 1
    has_jars: bool = False
    more: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def submit(self, job: str, *arguments: str | Path) -> tuple[str, str]:
        """Run a job that must succeed; return its stdout and stderr."""
        done = self._run(job, arguments, {})
        assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout, done.stderr

    def killed(self, place: After, job: str, *arguments: str | Path) -> None:
        """Run a job whose driver dies by SIGKILL right after an effect."""
        done = self._run(job, arguments, {"AUDITLAKE_FAILPOINT": f"{place}:1"})
        assert done.returncode == 128 + signal.SIGKILL, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"

    def _run(
        self, job: str, arguments: Sequence[str | Path], more: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, **_ENVIRONMENT, "AUDITLAKE_LAKE": str(arguments[0]), **self.environment, **more}
        printed = subprocess.check_output([sys.executable, "-m", "auditlake.spark.jars"], env=environment, text=True)
        options = ["--master", self.master, *self._jars(printed.strip()), "--executor-memory", "512m"]
        options += ["--driver-memory", "1g", "--driver-java-options", _STARTS_FAST]
        options += ["--conf", "spark.sql.shuffle.partitions=2", "--total-executor-cores", str(self.cores), *self.more]
        line = [_SCRIPTS / "spark-submit", *options, _ROOT / "jobs" / job, *arguments]
        return subprocess.run(line, env=environment, capture_output=True, text=True, check=False, cwd="/")

    def _jars(self, listed: str) -> list[str]:
        """Return the options for jars: with `--jars`, each executor copies them, 671 MB for a lake in S3."""
        if not self.has_jars:
            return ["--jars", listed]
        path = listed.replace(",", ":")
        return ["--driver-class-path", path, "--conf", f"spark.executor.extraClassPath={path}"]


def _write_manifest(lake: Lake) -> None:
    """Write the manifest of a lake that was written by hand; `write_manifest` needs an empty folder."""
    empty = Lake(lake.root.with_name("empty"))
    write_manifest(empty, Manifest("1", 1, "shop", "auditlake", "auditlake"))
    empty.manifest.rename(lake.manifest)


def test_jobs_run_on_a_standalone_cluster(master: str, tmp_path: Path) -> None:
    """Apply brings the captured changes into the history, SQL answers from it, maintain goes through the files."""
    lake = write_small_lake(tmp_path / "lake")
    _write_manifest(lake)
    _Cluster(master, 2).submit("apply.py", lake.root)
    table = history_of(lake, ORDERS)
    assert table.position == 0x300
    query = "select id, note from public.orders order by id"
    assert _Cluster(master).submit("sql.py", lake.root, query)[0].splitlines() == ["id,note", "1,c", "4,new"]
    _Cluster(master).submit("maintain.py", lake.root)
    again = history_of(lake, ORDERS)
    assert (again.position, again.horizon) == (table.position, table.horizon)


@pytest.mark.timeout(3600)
def test_all_jobs_on_a_lake_in_s3_while_drivers_and_executors_are_killed(
    remote_folder: Remote, master: str, database: str, tmp_path: Path
) -> None:
    """Nothing is lost or doubled, and no secret is in a plan, the UI, an event, a log or a list of processes."""
    lake = Lake(cast("Path", remote_folder))
    folder = str(remote_folder)
    _fill(database)
    with _role_with_password(database) as source, _watched(tmp_path) as watched:
        variables = {"AUDITLAKE_SOURCE": source, "PGPASSWORD": DATABASE_SECRET, "AUDITLAKE_TABLES": "public.*"}
        cluster = _Cluster(master, 2, has_jars=True, more=watched.settings, environment=variables)
        cluster.killed(After.FILES_COPIED, "bootstrap.py", folder)
        slow = replace(cluster, environment={**variables, "AUDITLAKE_COPY_BYTES_PER_S": "1000000"})
        with _executors_killed(tmp_path / "work", times=2, every_s=8):
            watched.take(slow.submit("bootstrap.py", folder))
        expected = _change(database)
        capture(database, lake)
        cluster.killed(After.TABLE_MERGED, "apply.py", folder)
        with _executors_killed(tmp_path / "work", times=2, every_s=12):
            watched.take(cluster.submit("apply.py", folder))
        distributed = replace(cluster, has_jars=False)
        assert watched.take(distributed.submit("sql.py", folder, _QUESTION)).splitlines()[1] == expected
        watched.take(cluster.submit("maintain.py", folder))
        with command.start(["capture", "--lake", folder, "--source", database]) as following:
            report = watched.take(cluster.submit("verify.py", folder))
            following.terminate()
            following.communicate()
        assert len(re.findall(r"^public\.\w+ +equal ", report, re.MULTILINE)) == 1 + _SMALL, report
    assert watched.pages > 20
    watched.check(DATABASE_SECRET, SECRET)


_SMALL = 2
_QUESTION = (
    "select o.*, s.* from (select count(*), sum(id), count(distinct id), sum(length(note)) from public.orders) o"
    " cross join (select count(*), sum(id), count(distinct id), sum(length(note)) from public.small_1) s"
)


def _fill(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table orders (id int primary key, note text, pad text)")
        conn.execute("insert into orders select n, 'note ' || n, repeat('x', 2000) from generate_series(1, 8000) n")
        for number in range(_SMALL):
            rows = "select n as id, 'row ' || n as note from generate_series(1, 300) n"
            conn.execute(f"create table small_{number} as {rows}")
            conn.execute(f"alter table small_{number} add primary key (id)")


def _change(database: str) -> str:
    """Change the rows, and return PostgreSQL's answer."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("update orders set note = 'second' where id % 3 = 0")
        conn.execute("delete from orders where id % 7 = 0")
        conn.execute("insert into orders select n, 'new', '' from generate_series(9001, 9500) n")
        conn.execute("update small_1 set note = 'second'")
        return ",".join(map(str, conn.execute(_QUESTION).fetchone() or ()))


@contextmanager
def _role_with_password(database: str) -> Iterator[str]:
    """Yield the connection string, by TCP and without the password, of a role that needs one."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(f"create role clustered superuser login password '{DATABASE_SECRET}'")
        port = conn.info.port
    try:
        yield make_conninfo(database, host="127.0.0.1", port=port, user="clustered")
    finally:
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute("alter role clustered nologin")
            conn.execute("select pg_terminate_backend(pid, 10000) from pg_stat_activity where usename = 'clustered'")
            conn.execute("drop owned by clustered cascade")
            conn.execute("drop role clustered")


class _Watched:
    """Everything of the jobs that is visible on the cluster: UI and REST API, events, logs, lists of processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[str] = set()
        self._ended = threading.Event()
        self.pages = 0
        self._url = f"http://127.0.0.1:{free_port()}"
        events = folder / "events"
        events.mkdir()
        settings = {
            "spark.speculation": "true",
            "spark.speculation.interval": "10ms",
            "spark.speculation.multiplier": "1.01",
            "spark.speculation.quantile": "0.1",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.ui.enabled": "true",
            "spark.ui.port": self._url.rpartition(":")[2],
        }
        self.settings = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]

    def take(self, printed: tuple[str, str]) -> str:
        self._seen.update(printed)
        return printed[0]

    def watch(self) -> None:
        while not self._ended.wait(1):
            self._seen.update(line for _, line in _processes())
            with suppress(OSError, ValueError):
                for application in json.loads(self._page("/api/v1/applications")):
                    for page in _PAGES:
                        with suppress(OSError):
                            self._seen.add(self._page(page.format(f"/api/v1/applications/{application['id']}")))
                            self.pages += 1

    def _page(self, path: str) -> str:
        with urlopen(f"{self._url}{path}", timeout=10) as answer:  # noqa: S310 - on this machine
            return str(answer.read().decode())

    def end(self) -> None:
        self._ended.set()

    def check(self, *secrets: str) -> None:
        """Fail if a secret is anywhere, naming only the kind of place."""
        files = [path for path in self._folder.rglob("*") if path.is_file() and path.suffix != ".jar"]
        assert {"events", "work"} <= {path.relative_to(self._folder).parts[0] for path in files}
        for secret in secrets:
            assert not [path for path in files if secret.encode() in path.read_bytes()]
            assert not [text[:200] for text in self._seen if secret in text]


_PAGES = (
    "{}/environment",
    "{}/sql?details=true&planDescription=true&length=1000",
    "{}/jobs",
    "{}/stages?details=true",
    "{}/allexecutors",
    "/environment/",
    "/SQL/",
    "/jobs/",
    "/stages/",
)


@contextmanager
def _watched(folder: Path) -> Iterator[_Watched]:
    watched = _Watched(folder)
    watching = threading.Thread(target=watched.watch)
    watching.start()
    try:
        yield watched
    finally:
        watched.end()
        watching.join()


@contextmanager
def _executors_killed(work: Path, times: int, every_s: float) -> Iterator[None]:
    """Kill an executor of this test's workers by its PID, a few times, a while after one started."""
    stop = threading.Event()
    killer = threading.Thread(target=_kill_executors, args=(stop, work, times, every_s))
    killer.start()
    try:
        yield
    finally:
        stop.set()
        killer.join()


def _kill_executors(stop: threading.Event, work: Path, times: int, every_s: float) -> None:
    for _ in range(times):
        while not (found := _executors(work)):
            if stop.wait(0.2):
                return
        if stop.wait(every_s):
            return
        for pid in (_executors(work) or found)[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _executors(work: Path) -> list[int]:
    return [pid for pid, line in _processes() if "CoarseGrainedExecutorBackend" in line and str(work) in line]


def _processes() -> list[tuple[int, str]]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            place = (path / "cwd").readlink()
            found.append((int(path.name), f"{(path / 'cmdline').read_text()} {place}"))
    return found
