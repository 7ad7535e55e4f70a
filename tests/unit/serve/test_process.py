"""Process of the page: it prints its address, answers without a JVM, and ends on a signal."""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from auditlake.cli.main import auditlake
from auditlake.errors import ConfigError
from tests.page import write_lake
from tests.running import await_true


@contextmanager
def _started(lake: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "auditlake", "serve", "--lake", str(lake), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_server_answers_and_ends(tmp_path: Path) -> None:
    """No JVM, and no line on stderr but the address; SIGTERM ends it with 0."""
    with _started(write_lake(tmp_path / "lake").root, "--listen", "127.0.0.1:0") as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "serving" in line, line + process.stderr.read()
        connection = http.client.HTTPConnection(urlsplit(line.split(" at ")[1].split(";")[0]).netloc)
        connection.request("GET", "/api/v1/rows?table=orders&at=0/200")
        assert json.loads(connection.getresponse().read())["count"] == 2
        connection.request("GET", "/")
        assert b"public.orders" in connection.getresponse().read()
        connection.close()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        assert not children.exists() or children.read_text() == ""
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_of_a_statement_outlives_the_server(tmp_path: Path, number: int) -> None:
    """However it ends, and although the statement hears nothing: a stopped process runs no code."""
    with _started(write_lake(tmp_path / "lake").root, "--listen", "127.0.0.1:0") as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        connection = http.client.HTTPConnection(urlsplit(line.split(" at ")[1].split(";")[0]).netloc)
        _ask(connection, "select 1")
        assert connection.getresponse().read()
        (child,) = _children(process.pid)
        before = _cpu_ticks(child)
        _ask(connection, "select count(*) from generate_series(1, 1000000000000000)")
        await_true(lambda: _cpu_ticks(child) > before + os.sysconf("SC_CLK_TCK"), 60)
        os.kill(child, signal.SIGSTOP)
        os.kill(process.pid, number)
        assert process.wait(60) == (0 if number == signal.SIGTERM else -number)
        await_true(lambda: not Path(f"/proc/{child}").exists(), 60)
        connection.close()


def _children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(each) for file in found for each in file.read_text().split()]


def _ask(connection: http.client.HTTPConnection, sql: str) -> None:
    connection.request("POST", "/api/v1/sql", json.dumps({"sql": sql}), {"content-type": "application/json"})


def _cpu_ticks(pid: int) -> int:
    """Return the time that a process has computed."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


def test_an_unsafe_address_is_refused(tmp_path: Path) -> None:
    """Before anything listens, with the remedy."""
    lake = str(write_lake(tmp_path / "lake").root)
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0 can be reached from other machines, need a token"):
        auditlake(["serve", "--lake", lake, "--listen", "0.0.0.0:0"], standalone_mode=False)
