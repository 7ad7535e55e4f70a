"""The wheel, installed by pip, uv and pipx outside the repository, does everything that a clone does.

Without its extra `spark` as much as is documented, with it the rest; with the lowest versions that it allows, and, as
all installers choose them, with the highest.

The home folder is empty, so neither jars nor a class-data archive are in a cache; nothing may be added there but the
archive. Needs the index of packages that pip uses.
"""

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.command import Process
from tests.server import Server, execute

_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 600

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as `make wheel` does."""
    command: list[str | Path] = [sys.executable, _ROOT / "scripts" / "wheel.py", tmp_path_factory.mktemp("dist")]
    return Path(subprocess.check_output(command, text=True, env={**os.environ, "PYTHONPATH": str(_ROOT)}).strip())


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a user who has never seen the repository."""
    ours = ("AUDITLAKE_", "PYTHONPATH", "VIRTUAL_ENV", "XDG_", "UV_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**inherited, "HOME": str(home), **more}


def make_venv(folder: Path, *packages: str) -> Path:
    """Make a virtual environment with these packages; return its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, cwd="/")
    if packages:
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", *packages], check=True, cwd="/")
    return folder / "bin"


@pytest.fixture(scope="module", params=["pip", "uv", "pipx", "spark", "lowest"])
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed command: by each installer without Spark, and with it in the highest and the lowest versions."""
    folder = tmp_path_factory.mktemp("installed")
    if request.param == "lowest":
        return install_lowest(folder, f"auditlake[demo,spark] @ {wheel.as_uri()}")
    if request.param == "spark":
        return make_venv(folder / "venv", f"auditlake[demo,spark] @ {wheel.as_uri()}") / "auditlake"
    wanted = f"auditlake[demo] @ {wheel.as_uri()}"
    if request.param == "pip":
        return make_venv(folder / "venv", wanted) / "auditlake"
    tool = make_venv(folder / "tools", request.param) / request.param
    places = {
        "uv": {"UV_TOOL_DIR": str(folder / "uv"), "UV_TOOL_BIN_DIR": str(folder / "bin")},
        "pipx": {"PIPX_HOME": str(folder / "pipx"), "PIPX_BIN_DIR": str(folder / "bin")},
    }[request.param]
    line = {"uv": ["tool", "install", "--python", sys.executable], "pipx": ["install", "--python", sys.executable]}
    subprocess.run([tool, *line[request.param], wanted], check=True, cwd="/", env={**os.environ, **places})
    return folder / "bin" / "auditlake"


def install_lowest(folder: Path, wanted: str) -> Path:
    """Install the lowest version of each dependency that the wheel allows."""
    uv = make_venv(folder / "tools", "uv") / "uv"
    programs = make_venv(folder / "venv")
    line: list[str | Path] = [
        uv,
        "pip",
        "install",
        "--python",
        programs / "python",
        "--resolution",
        "lowest-direct",
        wanted,
    ]
    subprocess.run(line, check=True, cwd="/")
    return programs / "auditlake"


class User:
    """Someone with a home folder, a working folder and the installed command; `has_spark` if it has the extra."""

    def __init__(self, command: Path, folder: Path) -> None:
        self.command, self.home, self.work = command, folder / "home", folder / "work"
        self.home.mkdir()
        self.work.mkdir()

    @property
    def has_spark(self) -> bool:
        """Whether the extra is installed."""
        python = self.command.resolve().with_name("python")
        asked = "import importlib.util as u, sys; sys.exit(u.find_spec('pyspark') is None)"
        return subprocess.run([python, "-c", asked], check=False, cwd="/").returncode == 0

    def run(self, *arguments: str, settings: Mapping[str, str] | None = None) -> str:
        """Run the command to its end; it must succeed."""
        done = self.ended(*arguments, settings=settings)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ended(self, *arguments: str, settings: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        return subprocess.run(
            [self.command, *arguments],
            cwd=self.work,
            env=environment(self.home, **(settings or {})),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )


@pytest.fixture
def user(installed: Path, tmp_path: Path) -> User:
    """Someone who has just installed auditlake."""
    return User(installed, tmp_path)


def test_a_history_is_kept_and_asked(user: User, server: Server) -> None:
    """From `check` to the page, on both engines if both are installed."""
    database = server.create_database()
    source = server.dsn(database)
    settings = {"AUDITLAKE_SOURCE": source}
    try:
        execute(source, "create table orders (id int primary key, status text)", "insert into orders values (1, 'new')")
        assert "bootstrap" in user.run("--help")
        user.run("check", settings=settings)
        user.run("bootstrap", settings=settings)
        execute(source, "update orders set status = 'paid'")
        user.run("follow", "--until-current", settings=settings)
        assert_answers(user, settings)
        user.run("maintain", settings=settings)
        assert "~1" in user.run("log", settings=settings)
        assert "orders" in user.run("status", settings=settings)
        assert_page(user)
        user.run("drop", "--yes", settings=settings)
    finally:
        server.drop_database(database)
    assert not (user.home / ".cache" / "auditlake" / "jars").exists()


def assert_answers(user: User, settings: Mapping[str, str]) -> None:
    """Each engine answers, or says how it is installed."""
    question = "select status, _op from orders for system_time all order by _from_lsn"
    for engine in ("duckdb", "spark"):
        asked = user.ended("sql", "--engine", engine, "--format", "csv", question, settings=settings)
        if engine == "spark" and not user.has_spark:
            assert (asked.returncode, "pip install 'auditlake[spark]'" in asked.stderr) == (3, True), asked.stderr
            continue
        assert asked.stdout.splitlines() == ["status,_op", "new,snapshot", "paid,update"], asked.stderr


def assert_page(user: User) -> None:
    """The page and its style sheet are served."""
    line = [str(user.command), "serve", "--listen", "127.0.0.1:0"]
    with Process(
        line, cwd=user.work, env=environment(user.home), text=True, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stderr is not None
        address = next(word.rstrip(";") for text in process.stderr for word in text.split() if "http://" in word)
        with urllib.request.urlopen(address, timeout=60) as page:  # noqa: S310 - our own server
            assert "orders" in page.read().decode()
        process.terminate()
    assert process.returncode == 0


@pytest.mark.parametrize("installed", ["pip", "spark"], indirect=True)
def test_the_demo_runs(user: User) -> None:
    """It compares its answers with PostgreSQL's, and fails if one differs."""
    done = user.ended("demo")
    lake = re.search(r"serve --lake (\S+)", done.stderr)
    assert (done.returncode, lake is None) == (0, False), done.stderr
    assert lake is not None
    try:
        assert "public.orders" in user.run("log", "--lake", lake[1])
    finally:
        shutil.rmtree(Path(lake[1]).parent)
    engines = "in Spark and in DuckDB" if user.has_spark else "in DuckDB"
    assert f"answers equal PostgreSQL's at those moments, {engines}" in done.stderr
