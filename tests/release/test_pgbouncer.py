"""PgBouncer itself between auditlake and PostgreSQL: recognised in each way that it is set up, and never a bug.

`make release` installs it (Debian's package `pgbouncer`).
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests import command
from tests.running import await_true
from tests.server import PASSWORD, SUPERUSER, Server, free_port

pytestmark = pytest.mark.pg

_SETTINGS = """
[databases]
* = host=127.0.0.1 port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
ignore_startup_parameters = {ignored}
"""


@contextmanager
def pooled(server: Server, database: str, folder: Path, mode: str, ignored: str) -> Iterator[str]:
    """Run PgBouncer, which refuses to run as root; yield the connection string through it."""
    listen = free_port()
    file = folder / "pgbouncer.ini"
    given = {"port": server.port, "user": SUPERUSER, "password": PASSWORD, "listen": listen}
    file.write_text(_SETTINGS.format(**given, mode=mode, ignored=ignored))
    user = "nobody" if os.geteuid() == 0 else None
    with file.open() as settings:
        line = ["/usr/sbin/pgbouncer", "--quiet", "/dev/stdin"]
        process = subprocess.Popen(
            line, stdin=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=user
        )
    dsn = make_conninfo("", host="127.0.0.1", port=listen, dbname=database, user=SUPERUSER, sslmode="disable")
    try:
        await_true(lambda: _answers(dsn))
        yield dsn
    finally:
        process.terminate()
        process.wait()


def _answers(dsn: str) -> bool:
    try:
        with psycopg.connect(dsn):
            return True
    except psycopg.OperationalError:
        return False


@pytest.mark.parametrize("mode", ["session", "transaction"])
@pytest.mark.parametrize(
    ("ignored", "expected"),
    [("extra_float_digits", (4, "unsupported startup parameter")), ("extra_float_digits, options", (3, "setting"))],
)
def test_it_is_named_as_what_stands_between(
    server: Server, tmp_path: Path, mode: str, ignored: str, expected: tuple[int, str]
) -> None:
    """With its defaults it refuses settings of auditlake; told to ignore these, it drops them. Nothing begins."""
    name = server.create_database()
    try:
        with pooled(server, name, tmp_path, mode, ignored) as dsn:
            for line in (["check"], ["bootstrap"]):
                done = command.run_here([*line, "--source", dsn, "--lake", tmp_path / "lake"])
                shown = done.stdout + done.stderr
                code, word = expected
                assert (done.code, word in shown, "not the pooler" in shown) == (code, True, True), shown
    finally:
        server.drop_database(name)
    assert not (tmp_path / "lake").exists()
