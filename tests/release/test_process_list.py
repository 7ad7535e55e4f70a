"""Secrets of the source: taken from files, and in the arguments of no process, neither of ours nor of a JVM."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests import command
from tests.server import Server, execute

_PASSWORD = "of-nobody-else-7f3a"

pytestmark = [pytest.mark.pg, pytest.mark.spark]


@contextmanager
def arguments_of_processes() -> Iterator[set[str]]:
    """Collect the arguments of every process of this machine during the block, again and again."""
    found: set[str] = set()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.005):
            for place in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    found.add(place.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                except OSError:  # it has ended
                    continue

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def _files(folder: Path, dsn: str) -> dict[str, dict[str, str]]:
    """Return the environments that name the source, each with its password in another place."""
    parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    bare = make_conninfo("", **{name: value for name, value in parts.items() if name != "password"})
    passwords, services = folder / "pgpass", folder / "services"
    passwords.write_text(f"*:*:{parts['dbname']}:{parts['user']}:{_PASSWORD}\n")
    services.write_text("[shop]\n" + "".join(f"{name}={value}\n" for name, value in parts.items()))
    for file in (passwords, services):
        file.chmod(0o600)
    return {
        "a password file": {"AUDITLAKE_SOURCE": bare, "PGPASSFILE": str(passwords)},
        "a service file": {"AUDITLAKE_SOURCE": "service=shop", "PGSERVICEFILE": str(services)},
        "the environment": {"AUDITLAKE_SOURCE": bare, "PGPASSWORD": _PASSWORD},
        "the setting": {"AUDITLAKE_SOURCE": dsn},
    }


@pytest.mark.parametrize("place", ["a password file", "a service file", "the environment", "the setting"])
def test_no_argument_of_a_process_has_the_password(server: Server, tmp_path: Path, place: str) -> None:
    """Of the command, its workers, and the JVM of `verify`; without the password they could not connect."""
    name = server.create_database()
    role = f"{name}_secret"
    dsn = make_conninfo(server.dsn(name, tcp=True), user=role, password=_PASSWORD)
    execute(server.dsn(name), f"create role {role} superuser login password '{_PASSWORD}'")
    execute(dsn, "create table t (id int primary key)", "insert into t select generate_series(1, 1000)")
    environment = {**_files(tmp_path, dsn)[place], "AUDITLAKE_LAKE": str(tmp_path / "lake")}
    lines = [["bootstrap"], ["follow", "--until-current"]]
    if place == "a password file":
        lines.append(["verify"])
    try:
        with arguments_of_processes() as found:
            for line in lines:
                _run(line, environment)
        _run(["drop", "--yes"], environment)
    finally:
        server.drop_database(name)
        execute(server.dsn(), f"drop role {role}")
    assert any("auditlake.snapshot.worker_pool" in each for each in found)
    assert any("java" in each for each in found) or place != "a password file"
    assert not [each for each in found if _PASSWORD in each]


def _run(line: list[str], environment: Mapping[str, str]) -> None:
    with command.start(line, {**os.environ, **environment}) as process:
        _, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr
    assert _PASSWORD not in stderr
