"""Alerts of a Prometheus server that scrapes running stages: each fires for its cause, which is made to happen.

No alert waits for its `for`, and a digest is stale after seconds. `make release` installs Debian's package
`prometheus`. The full disk is a tmpfs, so that test has to run as root.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError
from urllib.request import urlopen

import psycopg
import pytest
import yaml  # type: ignore[import-untyped]

from tests import command
from tests.capture_lake import make_lake
from tests.metrics import Stage, running
from tests.running import await_true
from tests.s3_server import on_disk
from tests.server import Server, execute, free_port

_RULES = Path(__file__).parents[2] / "conf" / "prometheus" / "auditlake.rules.yaml"
_TIMEOUT_S = 90

pytestmark = pytest.mark.pg


class Prometheus:
    """A server that scrapes stages every second, with the alert rules of `conf`, for the duration of a context."""

    def __init__(self, folder: Path, *stages: Stage) -> None:
        self._address = f"127.0.0.1:{free_port()}"
        self._folder = folder / "prometheus"
        self._folder.mkdir()
        (self._folder / "rules.yaml").write_text(_hasty_rules())
        targets = [stage.url.removeprefix("http://").removesuffix("/metrics") for stage in stages]
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{"job_name": "auditlake", "static_configs": [{"targets": targets}]}],
        }
        (self._folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))

    def __enter__(self) -> Self:
        line = [
            "prometheus",
            f"--config.file={self._folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={self._address}",
        ]
        with (self._folder / "log").open("w") as log:
            self._process = subprocess.Popen(line, stdout=log, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def _asked(self, path: str) -> Any:
        """Return the data of an answer; None while the server does not answer."""
        try:
            with urlopen(f"http://{self._address}/api/v1/{path}") as answer:
                return json.load(answer)["data"]
        except URLError:
            return None

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        alerts = (self._asked("alerts") or {"alerts": []})["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

    def await_firing(self, *names: str) -> None:
        """Wait until these alerts fire."""
        await_true(lambda: self.firing().issuperset(names), _TIMEOUT_S)

    def await_quiet(self, metric: str, *names: str) -> None:
        """Wait until a stage exports the metric of these alerts, and none of them fires."""

        def is_quiet() -> bool:
            found = self._asked(f"query?query={metric}")
            return bool(found and found["result"]) and self.firing().isdisjoint(names)

        await_true(is_quiet, _TIMEOUT_S)


def _hasty_rules() -> str:
    """Return the rules without the times that let a short disturbance pass."""
    rules = yaml.safe_load(_RULES.read_text().replace("3 * auditlake_digest_interval_seconds + 300", "5"))
    for rule in rules["groups"][0]["rules"]:
        rule["for"] = "0s"
    return str(yaml.safe_dump(rules))


def test_a_killed_capture(database: str, tmp_path: Path) -> None:
    """After SIGKILL its series end, so neither alert needs a number that it would write."""
    execute(database, "create table t (id int primary key)")
    lake = make_lake(database, tmp_path / "lake")
    with (
        running(["capture", "--source", database, "--lake", lake.root]) as stage,
        Prometheus(tmp_path, stage) as prometheus,
    ):
        prometheus.await_quiet("auditlake_current_timestamp_seconds", "AuditlakeDown", "AuditlakeCaptureGone")
        stage.process.kill()
        prometheus.await_firing("AuditlakeDown", "AuditlakeCaptureGone")


def test_a_killed_apply(database: str, tmp_path: Path) -> None:
    """Apply needs no source, and ends like capture."""
    execute(database, "create table t (id int primary key)")
    lake = make_lake(database, tmp_path / "lake")
    assert command.capture_here(database, lake).code == 0
    with running(["apply", "--lake", lake.root]) as stage, Prometheus(tmp_path, stage) as prometheus:
        prometheus.await_quiet("auditlake_applied_timestamp_seconds", "AuditlakeDown", "AuditlakeApplyGone")
        stage.process.kill()
        prometheus.await_firing("AuditlakeDown", "AuditlakeApplyGone")


def test_wal_near_its_limit_and_then_a_lost_slot(tmp_path: Path) -> None:
    """An open transaction retains WAL: first capture warns, then it ends, and the page shows the lost slot."""
    limits = {"max_slot_wal_keep_size": "32MB", "checkpoint_timeout": "1h"}
    with Server(settings=limits) as server, psycopg.connect(server.dsn()) as writer:
        dsn = server.dsn()
        execute(dsn, "create table t (id int primary key)")
        lake = make_lake(dsn, tmp_path / "lake")
        settings: list[str | Path] = ["--source", dsn, "--lake", lake.root]
        with (
            running(["capture", *settings]) as capture,
            running(["serve", *settings, "--listen", "127.0.0.1:0"]) as page,
            Prometheus(tmp_path, capture, page) as prometheus,
        ):
            alerts = ("AuditlakeSlotNearLimit", "AuditlakeSlotLost")
            prometheus.await_quiet("auditlake_slot_wal_status", *alerts)
            writer.execute("insert into t values (1)")
            for number in range(2, 8):  # a segment of 16 MB each
                execute(dsn, f"insert into t values ({number})", "select pg_switch_wal()")
            prometheus.await_firing("AuditlakeSlotNearLimit")
            assert "AuditlakeSlotLost" not in prometheus.firing()
            execute(dsn, "checkpoint")
            prometheus.await_firing("AuditlakeSlotLost")
            assert capture.process.wait(_TIMEOUT_S) == 5


def test_a_parked_table(database: str, tmp_path: Path) -> None:
    """The publication loses a table, capture goes on without it."""
    execute(database, "create table t (id int primary key)", "create table kept (id int primary key)")
    lake = make_lake(database, tmp_path / "lake")
    with (
        running(["capture", "--source", database, "--lake", lake.root]) as stage,
        Prometheus(tmp_path, stage) as prometheus,
    ):
        prometheus.await_quiet("auditlake_tables", "AuditlakeTableParked")
        execute(database, "alter publication auditlake drop table t", "insert into kept values (1)")
        prometheus.await_firing("AuditlakeTableParked")
        assert "AuditlakeCaptureGone" not in prometheus.firing()


@on_disk("digests are kept in a folder")
def test_a_digest_that_was_never_kept_and_one_that_is_stale(database: str, tmp_path: Path) -> None:
    """Digests are kept in a folder with a file in its place, then as they should, then not any more."""
    execute(database, "create table t (id int primary key)")
    lake = make_lake(database, tmp_path / "lake")
    place, key = tmp_path / "digests", tmp_path / "key"
    place.write_text("in the way")
    assert command.run_here(["digest", "--new-key", key]).code == 0
    digest = json.dumps({"to": str(place), "key": str(key), "every_s": 0.1})
    environment = {"AUDITLAKE_DIGEST": digest, "AUDITLAKE_SEAL_EVERY_S": "1"}
    line: list[str | Path] = ["capture", "--source", database, "--lake", lake.root]
    with running(line, environment) as stage, Prometheus(tmp_path, stage) as prometheus:
        execute(database, "insert into t values (1)")
        prometheus.await_firing("AuditlakeDigestStale")
        place.unlink()
        prometheus.await_quiet("auditlake_digest_timestamp_seconds", "AuditlakeDigestStale")
        place.rename(tmp_path / "earlier")
        place.write_text("in the way again")
        execute(database, "insert into t values (2)")
        prometheus.await_firing("AuditlakeDigestStale")
        assert "AuditlakeCaptureGone" not in prometheus.firing()


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a file system of its own, of four gigabytes that take no memory."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4g", "tests", folder], check=True)  # noqa: S607 - Debian's
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)  # noqa: S607 - Debian's


def _fill(disk: Path) -> None:
    """Leave no byte free, as another program does that logs a lot."""
    room = shutil.disk_usage(disk).free
    with (disk / "others").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, room)


@on_disk("a store has no size")
def test_a_full_disk(database: str, tmp_path: Path) -> None:
    """The alert fires while there is still room for capture, which then ends because there is none."""
    execute(database, "create table t (id int primary key)")
    with small_disk(tmp_path / "disk") as disk:
        lake = make_lake(database, disk / "lake")
        with (
            running(["capture", "--source", database, "--lake", lake.root]) as stage,
            Prometheus(tmp_path, stage) as prometheus,
        ):
            prometheus.await_quiet("auditlake_lake_free_bytes", "AuditlakeDiskFull")
            subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)  # noqa: S607 - Debian's
            prometheus.await_firing("AuditlakeDiskFull")
            assert stage.process.poll() is None
            _fill(disk)
            execute(database, "insert into t select generate_series(1, 10000)")
            assert stage.process.wait(_TIMEOUT_S) == 6
