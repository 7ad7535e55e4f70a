"""Installing the context trigger: it never makes writers wait for long, and names the privilege it lacks."""

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from auditlake.errors import SourceUnready
from auditlake.relation import TableName
from auditlake.source.connection import connect
from auditlake.source.context_trigger import Installed, install_context_trigger
from tests import command
from tests.server import execute

pytestmark = pytest.mark.pg

A, B = TableName("public", "a"), TableName("public", "b")


@pytest.fixture
def tables(database: str) -> str:
    """A database with two tables and a role that owns neither."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table a (id int primary key)")
        conn.execute("create table b (id int primary key)")
    return database


@pytest.fixture
def role(tables: str) -> str:
    """Name of a role that owns nothing, which SQL has to quote."""
    name = f"{conninfo_to_dict(tables)['dbname']}-Observer"
    execute(tables, f'create role "{name}" login')
    return name


def install_as(dsn: str, role: str) -> Installed:
    """Install as a role."""
    with connect(make_conninfo(dsn, user=role)) as conn:
        return install_context_trigger(conn, [A, B])


def test_a_locked_table_is_skipped_and_the_others_take_writes_at_once(tables: str) -> None:
    """The next run installs what is missing and locks nothing else."""
    with psycopg.connect(tables) as writer:
        writer.execute("insert into a values (1)")
        done = command.run_here(["check", "--install-context", "--yes", "--source", tables])
        assert done.code == 3
        assert f"skipped public.a: locked by pid {writer.info.backend_pid} of postgres" in done.stderr
        execute(tables, "insert into b values (1)")
    with psycopg.connect(tables) as writer, connect(tables) as conn:
        writer.execute("insert into b values (2)")
        assert install_context_trigger(conn, [A, B]) == Installed((A,), (B,), {})


def test_a_missing_privilege_is_named_with_its_grant(tables: str, role: str) -> None:
    """First on the database, then on the table; the owner of the function is named too. PostgreSQL runs each remedy."""
    with pytest.raises(SourceUnready, match="may not create schema auditlake") as refused:
        install_as(tables, role)
    execute(tables, str(refused.value.hint).removeprefix("Run ").removesuffix("."))
    execute(tables, f'grant trigger on b to "{role}"')
    installed = install_as(tables, role)
    assert installed.new == (B,)
    execute(tables, installed.skipped[A].partition(": ")[2])
    assert install_as(tables, role) == Installed((A,), (B,), {})
    execute(tables, "alter function auditlake.observe() owner to postgres")
    with pytest.raises(SourceUnready, match="which postgres owns"):
        install_as(tables, role)
    execute(tables, f'drop owned by "{role}" cascade; drop role "{role}"')
