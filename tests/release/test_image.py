"""The image, built without a registry, and what is beside it: the Containerfile, compose.yaml, Prometheus's settings.

No container runtime runs here, so the image's files are entered by chroot(1), as its user. No test starts compose.yaml.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psycopg
import pytest
import yaml  # type: ignore[import-untyped]

from auditlake.cli.main import auditlake
from auditlake.config import Settings
from tests import command
from tests.capture_lake import make_lake
from tests.running import await_true
from tests.s3_server import on_disk

pytestmark = pytest.mark.timeout(1800)  # the image is built: minutes

_ROOT = Path(__file__).parents[2]
_STORAGE = ["--storage-driver", "vfs", "--root", str(_ROOT / "build/images"), "--runroot", str(_ROOT / "build/run")]
_MOST_BYTES = 1_000_000_000
_USER = 10001


def _run(*line: str | Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, line)), cwd=_ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _buildah(*line: str) -> str:
    return _run("buildah", *_STORAGE, *line)


@pytest.fixture(scope="module")
def image() -> Iterator[dict[str, Any]]:
    """Build the image; its description, and in `mounted` its files."""
    _run("scripts/image.sh", BUILDAH_OPTIONS=" ".join(_STORAGE))
    container = _buildah("from", "--pull-never", "localhost/auditlake").strip()
    mounted = _buildah("mount", container).strip()
    try:
        yield {**json.loads(_buildah("inspect", "--type=image", "localhost/auditlake")), "mounted": Path(mounted)}
    finally:
        _buildah("rm", container)


def test_the_containerfile_has_no_remarks() -> None:
    """Hadolint knows the mistakes that are often made."""
    assert _run(Path(sys.executable).with_name("hadolint"), "Containerfile") == ""


def test_compose_is_valid_and_its_commands_exist() -> None:
    """The settings are interpolated, every container of ours has a read-only root, and click parses its command."""
    secrets = {"POSTGRES_PASSWORD": "of-the-test", "AUDITLAKE_SERVE_TOKEN": "token"}
    compose = Path(sys.executable).with_name("podman-compose")
    shown = yaml.safe_load(_run(compose, "--file", "compose.yaml", "config", **secrets))
    ours = [each for each in shown["services"].values() if each["image"] == "localhost/auditlake"]
    assert len(ours) == 3
    for service in ours:
        name, *arguments = service["command"]
        auditlake.commands[name].make_context(name, arguments)
        assert service["read_only"]
        assert service["user"] == f"{_USER}:{_USER}"
        settings = {each for each in service["environment"] if each.startswith("AUDITLAKE_")}
        known = {f"AUDITLAKE_{field.upper()}" for field in Settings.model_fields} | {"AUDITLAKE_SERVE_TOKEN"}
        assert settings <= known
    _run("promtool", "check", "config", "conf/prometheus/prometheus.yaml")


def test_the_image_is_small_and_not_roots(image: dict[str, Any]) -> None:
    """Its size is that of its files; it has a health check, and SIGTERM is what ends it."""
    files = (path for path in image["mounted"].rglob("*") if not path.is_symlink())
    assert sum(path.stat().st_size for path in files if path.is_file()) < _MOST_BYTES
    settings = image["Docker"]["config"]
    assert settings["User"] == f"{_USER}:{_USER}"
    assert settings["StopSignal"] == "SIGTERM"
    assert "/healthz" in " ".join(settings["Healthcheck"]["Test"])
    assert settings["Entrypoint"] == ["auditlake"]


@on_disk("the lake is moved into the image")
def test_the_image_applies_answers_and_ends_at_sigterm(image: dict[str, Any], database: str, tmp_path: Path) -> None:
    """As its user, in its files: a captured change is applied, shown, and served with the health check well."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key)")
        lake = make_lake(database, tmp_path / "lake")
        conn.execute("insert into t values (42)")
    assert command.capture_here(database, lake).code == 0
    mounted: Path = image["mounted"]
    shutil.move(str(lake.root), mounted / "lake" / "lake")
    _run("chown", "-R", f"{_USER}:{_USER}", mounted / "lake")
    inside = ["/usr/sbin/chroot", f"--userspec={_USER}:{_USER}", str(mounted), "auditlake"]
    variables = dict(each.split("=", 1) for each in image["Docker"]["config"]["Env"])
    free = {**variables, "AUDITLAKE_METRICS_PORT": "0"}
    _run(*inside, "apply", "--until-current", **free)
    assert _run(*inside, "sql", "--format", "csv", "select id from t", **free) == "id\n42\n"
    line = [*inside, "serve", "--listen", "127.0.0.1:0", "--log-format", "json"]
    with command.Process(line, env=free, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        metrics = re.search(r"http://\S+/metrics", process.stderr.readline())
        assert metrics is not None
        with urlopen(metrics[0].replace("/metrics", "/healthz")) as answer:  # noqa: S310 - our own
            assert answer.status == 200
        page = re.search(r"http://[^\s;]+/", process.stderr.readline())
        assert page is not None
        with urlopen(page[0]) as answer:  # noqa: S310 - our own
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        await_true(lambda: process.poll() is not None)
        assert process.returncode == 0
