"""The PostgreSQL under the tests: the class the demo uses, in the version AUDITLAKE_TEST_PG names (18 or 16)."""

import os
from typing import Any

import psycopg

from auditlake.demo.server import PASSWORD, SUPERUSER, Server, StopMode
from auditlake.source.connection import connect
from auditlake.source.ddl_trigger import install

__all__ = ["PASSWORD", "SUPERUSER", "Server", "StopMode", "chosen_version", "execute"]


def chosen_version() -> int:
    """The major version to test against."""
    return int(os.environ.get("AUDITLAKE_TEST_PG", "18"))


def execute(dsn: str, *statements: str) -> None:
    """Run statements, each in a transaction of its own."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement.encode())


def install_trigger(dsn: str) -> None:
    """Install the DDL trigger in a database."""
    with connect(dsn) as control:
        install(control)


def oid_of(conn: psycopg.Connection[Any], table: str) -> int:
    """Return the OID of a table of the schema `public`."""
    row = conn.execute("select %s::regclass::oid::bigint", (f"public.{table}",)).fetchone()
    assert row is not None
    return int(row[0])
