"""The image, built without a registry, and what is beside it: the Containerfile, compose.yaml, Prometheus's settings.

Containers run as the documentation has it: a user without privileges, a root file system that nothing writes to. They
have no network: PostgreSQL is reached by its socket, and the health check asks inside. Those of compose.yaml that are
ours are started by podman-compose; its PostgreSQL and its Prometheus are in registries, and are not.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from psycopg.conninfo import make_conninfo

from auditlake.cli.main import auditlake
from auditlake.config import Settings
from tests.containers import RUN_OPTIONS, STORAGE, podman, podman_line
from tests.running import await_true
from tests.server import Server, execute

pytestmark = pytest.mark.timeout(1800)  # the image is built: minutes

_ROOT = Path(__file__).parents[2]
_IMAGE = "localhost/auditlake"
_MOST_BYTES = 1_000_000_000
_USER = "10001:10001"
_TIMEOUT_S = 120
_SECRETS = {"POSTGRES_PASSWORD": "of-the-test", "AUDITLAKE_SERVE_TOKEN": "of-the-test-and-long-enough"}
_GET = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"


def _run(*line: str | Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, line)), cwd=_ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def image() -> str:
    """Build the image; return its name."""
    _run("scripts/image.sh", BUILDAH_OPTIONS=" ".join(STORAGE))
    return _IMAGE


@dataclass(frozen=True)
class Source:
    """A database, and how a container reaches it: by the folder of the socket, mounted as /postgresql."""

    dsn: str
    inside: str
    volume: str

    def execute(self, statement: str) -> None:
        """Run a statement."""
        execute(self.dsn, statement)


@pytest.fixture
def source(server: Server) -> Iterator[Source]:
    """A database with one row, on the server whose socket other users may use."""
    server.folder.chmod(0o711)
    name = server.create_database()
    dsn = server.dsn(name)
    found = Source(dsn, make_conninfo(dsn, host="/postgresql"), f"{server.folder}:/postgresql")
    found.execute("create table t (id int primary key); insert into t values (42)")
    yield found
    server.drop_database(name)


def test_the_containerfile_has_no_remarks() -> None:
    """Hadolint knows the mistakes that are often made."""
    assert _run(Path(sys.executable).with_name("hadolint"), "Containerfile") == ""


def test_compose_is_valid_and_its_commands_exist() -> None:
    """The settings are interpolated, every container of ours has a read-only root, and click parses its command."""
    compose = Path(sys.executable).with_name("podman-compose")
    shown = yaml.safe_load(_run(compose, "--file", "compose.yaml", "config", **_SECRETS))
    ours = [each for each in shown["services"].values() if each["image"] == _IMAGE]
    assert len(ours) == 3
    for service in ours:
        name, *arguments = service["command"]
        auditlake.commands[name].make_context(name, arguments)
        assert service["read_only"]
        assert service["user"] == _USER
        settings = {each for each in service["environment"] if each.startswith("AUDITLAKE_")}
        known = {f"AUDITLAKE_{field.upper()}" for field in Settings.model_fields} | {"AUDITLAKE_SERVE_TOKEN"}
        assert settings <= known
    _run("promtool", "check", "config", "conf/prometheus/prometheus.yaml")


def test_the_image_is_small_and_not_roots(image: str) -> None:
    """It has a health check, and SIGTERM is what ends it."""
    (shown,) = json.loads(podman("image", "inspect", image))
    assert shown["Size"] < _MOST_BYTES
    settings = shown["Config"]
    assert settings["User"] == _USER
    assert settings["StopSignal"] == "SIGTERM"
    assert "/healthz" in " ".join(shown["Healthcheck"]["Test"])
    assert settings["Entrypoint"] == ["auditlake"]


@contextmanager
def started(options: list[str], *command: str) -> Iterator[str]:
    """Run a container in the background; it is removed at the end."""
    name = podman("run", "--detach", *options, _IMAGE, *command).strip()
    try:
        yield name
    finally:
        podman("rm", "--force", "--time=0", name)


def inside(container: str, *command: str) -> str:
    """Run a command in a container that runs; return its output."""
    return podman("exec", container, *command)


def await_health(container: str) -> None:
    """Wait until the health check of the image succeeds."""
    line = podman_line("healthcheck", "run", container)
    await_true(lambda: subprocess.run(line, check=False, stdout=subprocess.DEVNULL).returncode == 0, _TIMEOUT_S)


def exit_code(container: str) -> int:
    """Return with which code a container ended."""
    return int(podman("inspect", "--format={{.State.ExitCode}}", container))


def test_a_container_follows_answers_and_ends_at_sigterm(image: str, source: Source, tmp_path: Path) -> None:
    """Its user cannot write to the root file system; a change is applied; SIGTERM ends it with 0, not by SIGKILL."""
    lake = tmp_path / "volume"
    lake.mkdir()
    os.chown(lake, *map(int, _USER.split(":")))
    options = [
        *RUN_OPTIONS,
        "--network=none",
        "--read-only",
        "--tmpfs=/tmp:size=1g,mode=1777",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        f"--volume={lake}:/lake",
        f"--volume={source.volume}",
        f"--env=AUDITLAKE_SOURCE={source.inside}",
    ]
    podman("run", "--rm", *options, image, "bootstrap")
    with started(options) as container:
        await_health(container)
        assert inside(container, "id", "--user") == "10001\n"
        podman("exec", container, "touch", "/opt/auditlake/new", code=1)
        source.execute("insert into t values (43)")
        question = ("auditlake", "sql", "--format=csv", "select id from t order by id")
        await_true(lambda: inside(container, *question) == "id\n42\n43\n", _TIMEOUT_S)
        podman("stop", f"--time={_TIMEOUT_S}", container)
        assert exit_code(container) == 0
    with started(options, "serve", "--listen=127.0.0.1:8640") as container:
        await_health(container)
        assert "public.t" in inside(container, "python3", "-c", _GET, "http://127.0.0.1:8640/")
        podman("stop", f"--time={_TIMEOUT_S}", container)
        assert exit_code(container) == 0


def test_the_containers_of_compose_run(image: str, source: Source, tmp_path: Path) -> None:
    """The first copy, `follow` and the page, in their volume; without images of others, and without a network."""
    ours = ("bootstrap", "follow", "serve")
    environment = {"AUDITLAKE_SOURCE": source.inside}
    service = {"network_mode": "none", "volumes": [source.volume], "environment": environment}
    changed = tmp_path / "changed.yaml"
    changed.write_text(yaml.safe_dump({"services": {name: dict(service) for name in ours}}))
    program = tmp_path / "podman"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(podman_line())} "$@"\n')
    program.chmod(0o755)
    line: list[str | Path] = [
        Path(sys.executable).with_name("podman-compose"),
        "--in-pod=false",
        f"--podman-path={program}",
        f"--podman-run-args={shlex.join(RUN_OPTIONS)}",
        "--file=compose.yaml",
        f"--file={changed}",
    ]
    assert image == _IMAGE
    try:
        _run(*line, "up", "--no-deps", "bootstrap", **_SECRETS)
        _run(*line, "up", "--detach", "--no-deps", "follow", "serve", **_SECRETS)
        for name in ("follow", "serve"):
            await_health(f"auditlake_{name}_1")
        source.execute("insert into t values (44)")
        question = ("auditlake", "sql", "--format=csv", "select id from t order by id")
        await_true(lambda: inside("auditlake_serve_1", *question) == "id\n42\n44\n", _TIMEOUT_S)
        _run(*line, "stop", f"--timeout={_TIMEOUT_S}", "follow", "serve", **_SECRETS)
        assert [exit_code(f"auditlake_{name}_1") for name in ours] == [0, 0, 0]
    finally:
        _run(*line, "down", "--volumes", **_SECRETS)
