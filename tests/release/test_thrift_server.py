"""The recipe of docs/bi.md for the Spark Thrift Server: its commands as written, then statements over JDBC."""

import os
import re
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyspark
import pytest

from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.spark.jars import delta_jars
from tests.server import free_port
from tests.small_lake import write_small_lake, write_strange_lake

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(1500)]  # it has a JVM of its own

_ROOT = Path(__file__).parents[2]
_SPARK = Path(pyspark.__file__).parent
_COMMANDS = re.search(
    r"^    export SPARK_HOME=.*?(?=^\S)", (_ROOT / "docs" / "bi.md").read_text(), re.DOTALL | re.MULTILINE
)
_START_TIMEOUT_S = 400


def test_the_views_are_served_over_jdbc(tmp_path: Path) -> None:
    """Values by hand; the small lake's history of orders is merged up to 0/200."""
    lake = Lake(tmp_path / "lake")
    write_manifest(lake, Manifest("7", 1, "shop", "auditlake", "auditlake"))
    write_small_lake(lake.root)
    port = free_port()
    views, start, create = _documented(port)
    environment = _environment(lake)
    _run(views, tmp_path, environment)
    with _server(start, port, tmp_path, environment):
        _run(create, tmp_path, environment)
        asked = "select id, note, price, at from public.orders order by id; select count(*) from public_versions.orders"
        client = create.split(" -f ")[0]
        found = _run(
            f"{client} --silent=true --outputformat=csv2 --showHeader=false -e '{asked}'", tmp_path, environment
        )
    rows = "1,b,2.00,2026-01-01 12:00:00.25 3,NULL,NULL,2026-01-01 12:00:00.25 4"
    assert " ".join(found.split()).endswith(rows), found  # after beeline's prompt


def test_a_column_name_runs_no_command_of_the_client(tmp_path: Path) -> None:
    """Beeline reads a name with a semicolon and a line of its own; it goes on after errors."""
    lake = write_strange_lake(tmp_path / "lake")
    port = free_port()
    views, start, create = _documented(port)
    environment = _environment(lake)
    with _server(start, port, tmp_path, environment):
        _run(views, tmp_path, environment)
        _run(create.replace(" -f ", " --force=true -f "), tmp_path, environment)
        client = f"{create.split(' -f ')[0]} --silent=true --outputformat=csv2 --showHeader=false"
        found = _run(f"{client} -e 'select id from `public`.`_____sh_touch_ran_`'", tmp_path, environment)
    assert found.split()[-1] == "4"
    assert not (tmp_path / "ran").exists()


def _environment(lake: Lake) -> dict[str, str]:
    return {
        **os.environ,
        "SPARK_HOME": str(_SPARK),
        "PYTHONPATH": str(_ROOT),
        "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
        "AUDITLAKE_LAKE": str(lake.root),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _documented(port: int) -> tuple[str, str, str]:
    """Return the commands: of the views, of the server with the jars of this machine, of the client."""
    assert _COMMANDS is not None
    text = _COMMANDS[0].replace("\\\n", " ").replace("localhost:10000", f"127.0.0.1:{port}")
    _, views, start, create = (line.strip() for line in text.strip().splitlines())
    jars = f"{delta_jars({})[0].parent}/*"
    start = re.sub(
        r'--driver-class-path "[^"]+"', f'--driver-class-path "{jars}" --driver-memory 1g', start.removesuffix("&")
    )
    return views, f"{start} --hiveconf hive.server2.thrift.port={port}", create


def _run(command: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


@contextmanager
def _server(command: str, port: int, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    log = folder / "server.log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            ["/bin/bash", "-c", f"exec {command}"],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            deadline = time.monotonic() + _START_TIMEOUT_S
            while time.monotonic() < deadline and process.poll() is None and not _listens(port):
                time.sleep(0.5)
            assert _listens(port), log.read_text()[-5000:]
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _listens(port: int) -> bool:
    with closing(socket.socket()) as tried:
        if tried.connect_ex(("127.0.0.1", port)):
            return False
        return bool(tried.getsockname() != tried.getpeername())  # TCP may connect a free port with itself
