"""What a role without privileges puts into the schema of the triggers never runs as the superuser who installs them."""

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from auditlake.errors import SourceUnready
from auditlake.relation import TableName
from auditlake.source.connection import connect
from auditlake.source.context_trigger import install_context_trigger
from auditlake.source.ddl_trigger import install_ddl_trigger, read_ddl_trigger
from tests import command
from tests.server import execute

pytestmark = pytest.mark.pg

_TRAP = """
create function public.trap() returns bytea language plpgsql immutable as $$
begin execute 'alter role ' || quote_ident(session_user) || ' superuser'; return '\\x00'; end $$
"""
_STAND_IN = "create view auditlake.ddl_key as select public.trap() as key, 'pg_class'::regclass::oid as tableoid"
_ASK = "select auditlake.sealed_ddl('{1}', array['a'::bytea], array['b'::bytea])"


@dataclass(frozen=True)
class Owned:
    """A database in whose schema auditlake a role without privileges may do what it wants."""

    dsn: str
    role: str
    conn: "psycopg.Connection[tuple[object, ...]]"
    """The role's."""

    def one(self, query: str) -> object:
        """Return the value of a query as the superuser."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            row = conn.execute(query.encode()).fetchone()
        return row and row[0]

    def is_superuser(self) -> bool:
        """Return whether the role has become a superuser."""
        return bool(self.one(f"select rolsuper from pg_roles where rolname = '{self.role}'"))


@pytest.fixture
def owned(database: str) -> Iterator[Owned]:
    """The role may create schemas, and has a function that would make it a superuser."""
    name = str(conninfo_to_dict(database)["dbname"])
    role = f"{name}_owner"
    execute(database, f"create role {role} login", f"grant create on database {name} to {role}")
    execute(database, f"grant create, usage on schema public to {role}", "create table t (id int primary key)")
    with psycopg.connect(make_conninfo(database, user=role), autocommit=True) as conn:
        conn.execute(_TRAP)
        conn.execute("create schema auditlake")
        yield Owned(database, role, conn)
    execute(database, f"drop owned by {role} cascade", f"drop role {role}")


@pytest.mark.parametrize(
    "kind", ["view", "materialized view", "table", "sequence", "type", "index", "nothing"], ids=str
)
def test_installing_takes_the_schema_and_the_name_of_the_key(owned: Owned, kind: str) -> None:
    """Whatever has the name; afterwards the role can neither remove the key nor put another object there."""
    made = {
        "view": [_STAND_IN],
        "materialized view": ["create materialized view auditlake.ddl_key as select 'x'::bytea as key"],
        "table": [
            "create table auditlake.ddl_key (key bytea, tableoid_ oid)",
            "create view public.v as table auditlake.ddl_key",
        ],
        "sequence": ["create sequence auditlake.ddl_key"],
        "type": ["create type auditlake.ddl_key as (key bytea)"],
        "index": ["create table auditlake.x (id int)", "create index ddl_key on auditlake.x (id)"],
        "nothing": [],
    }
    for statement in made[kind]:
        owned.conn.execute(statement.encode())
    done = command.run_here(["check", "--source", owned.dsn, "--install-ddl-trigger", "--yes"])
    assert "Traceback" not in done.stderr
    with connect(owned.dsn) as conn:
        assert read_ddl_trigger(conn).records, done.stderr
    assert owned.conn.execute(_ASK).fetchone() == ([False],)
    for statement in ("drop materialized view auditlake.ddl_key", "alter schema auditlake rename to former"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            owned.conn.execute(statement)
    execute(owned.dsn, "alter table t add a int")
    assert not owned.is_superuser()


def test_a_schema_that_is_given_away_records_nothing_and_runs_nothing(owned: Owned) -> None:
    """Neither a command nor a question about a seal; installing once more mends it."""
    execute(owned.dsn, "drop schema auditlake")
    with connect(owned.dsn) as conn:
        install_ddl_trigger(conn)
        execute(owned.dsn, f"alter schema auditlake owner to {owned.role}")
        owned.conn.execute("drop materialized view auditlake.ddl_key")
        owned.conn.execute(_STAND_IN)
        owned.conn.execute("grant usage on schema auditlake to public")
        assert not read_ddl_trigger(conn).exists or not read_ddl_trigger(conn).records
        assert owned.conn.execute(_ASK).fetchone() == (None,)
        execute(owned.dsn, "alter table t add a int")
        assert not owned.is_superuser()
        install_ddl_trigger(conn)
        assert read_ddl_trigger(conn).records
    execute(owned.dsn, "alter table t add b int")
    assert not owned.is_superuser()


def test_a_role_that_cannot_take_the_schema_is_told_what_to_run(owned: Owned) -> None:
    """An event trigger of its own would run what the owner of the schema puts there."""
    other = f"{owned.role}_2"
    execute(owned.dsn, f"create role {other} login")
    try:
        with connect(make_conninfo(owned.dsn, user=other)) as conn, pytest.raises(SourceUnready) as refused:
            install_ddl_trigger(conn)
    finally:
        execute(owned.dsn, f"drop role {other}")
    assert f"schema auditlake belongs to role {owned.role}" in refused.value.message
    assert f"ALTER SCHEMA auditlake OWNER TO {other}" in str(refused.value.hint)


@pytest.mark.parametrize(
    "statement",
    [
        "create type auditlake.ddl_key as enum ('a')",
        "create function auditlake.record_ddl() returns int language sql as 'select 1'",
    ],
    ids=["a type", "a function"],
)
def test_an_object_in_the_way_is_named(owned: Owned, statement: str) -> None:
    """It cannot be replaced, and is not ours to drop."""
    owned.conn.execute(statement.encode())
    with connect(owned.dsn) as conn, pytest.raises(SourceUnready, match="in the way of the DDL trigger"):
        install_ddl_trigger(conn)
    assert owned.one("select count(*) from pg_event_trigger") == 0


@pytest.mark.parametrize(
    "statement",
    [
        "create procedure auditlake.observe() language sql as 'select 1'",
        "create function auditlake.observe() returns int language sql as 'select 1'",
        "create aggregate auditlake.observe (*) (sfunc = int8inc, stype = int8, initcond = '0')",
    ],
    ids=["a procedure", "a function", "an aggregate"],
)
def test_an_object_in_the_way_of_the_context_trigger_is_named(owned: Owned, statement: str) -> None:
    """As one in the way of the DDL trigger."""
    owned.conn.execute(statement.encode())
    with connect(owned.dsn) as conn, pytest.raises(SourceUnready, match="in the way of the context trigger"):
        install_context_trigger(conn, [TableName("public", "t")])
    assert owned.one("select count(*) from pg_trigger where tgname = 'auditlake_observe'") == 0


def test_a_trigger_in_the_way_is_named_and_the_other_tables_have_theirs(owned: Owned) -> None:
    """CREATE OR REPLACE does not replace a constraint trigger, which the owner of any table may make."""
    owned.conn.execute("create table mine (id int)")
    owned.conn.execute("create function f() returns trigger language plpgsql as 'begin return null; end'")
    made = "create constraint trigger auditlake_observe after insert on mine for each row execute function f()"
    owned.conn.execute(made.encode())
    mine, theirs = TableName("public", "mine"), TableName("public", "t")
    with connect(owned.dsn) as conn:
        done = install_context_trigger(conn, [mine, theirs])
    assert (done.new, list(done.skipped)) == ((theirs,), [mine])
    assert "is a constraint trigger" in done.skipped[mine]


def test_the_context_function_belongs_to_the_superuser_who_installs_it(owned: Owned) -> None:
    """It runs as whoever writes, so a role that made it before could not change it afterwards."""
    body = "begin perform public.trap(); return null; end"
    owned.conn.execute(f"create function auditlake.observe() returns trigger language plpgsql as $${body}$$".encode())
    with connect(owned.dsn) as conn:
        install_context_trigger(conn, [TableName("public", "t")])
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        owned.conn.execute(
            f"create or replace function auditlake.observe() returns trigger language plpgsql as $${body}$$".encode()
        )
    execute(owned.dsn, "insert into t values (1)")
    assert not owned.is_superuser()
