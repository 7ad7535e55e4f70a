"""The DDL trigger: what it sends, where in the stream, and that no failure of it reaches the application."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from auditlake.errors import SourceUnready
from auditlake.pgoutput.ddl_message import MOST_BYTES, PREFIX
from auditlake.pgoutput.decoder import Insert, LogicalMessage, decode
from auditlake.source.connection import connect
from auditlake.source.ddl_trigger import install_ddl_trigger, read_ddl_trigger, remove
from tests import command

pytestmark = pytest.mark.pg

_CHANGES = """
select data from pg_logical_slot_get_binary_changes('trigger', null, null,
  'proto_version', '1', 'publication_names', 'trigger', 'messages', 'true')
"""


@dataclass
class Source:
    """A database with the trigger, a connection to it, and a slot."""

    dsn: str
    conn: psycopg.Connection[Any]
    warnings: list[str] = field(default_factory=list)

    def stream(self, *statements: str) -> list[dict[str, Any] | tuple[str | None, ...]]:
        """Run statements; return the DDL messages and inserted rows that they send."""
        for statement in statements:
            self.conn.execute(statement)
        found: list[dict[str, Any] | tuple[str | None, ...]] = []
        for (data,) in self.conn.execute(_CHANGES).fetchall():
            match decode(bytes(data)):
                case LogicalMessage(transactional=True, prefix=prefix, content=content):
                    assert prefix == PREFIX
                    found.append(json.loads(content.split(b" ", 2)[2]))
                case Insert(new=new):
                    found.append(tuple(None if value is None else str(value) for value in new))
        return found

    def message(self, *statements: str) -> dict[str, Any]:
        """Run a command, and return what its messages contain."""
        found: dict[str, Any] = {}
        for message in self.stream(*statements):
            assert isinstance(message, dict)
            found |= message
        return found


def columns(message: dict[str, Any], place: int = 0) -> list[tuple[int, str]]:
    """Return the numbers and names of a relation's columns."""
    return [(number, name) for number, name, *_ in message["relations"][place]["columns"]]


@pytest.fixture
def source(database: str) -> Iterator[Source]:
    """A database with a table `a` and the trigger."""
    with connect(database) as conn:
        install_ddl_trigger(conn)
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table a (id int primary key, b text, c numeric(8,2))")
        conn.execute("create publication trigger for all tables")
        conn.execute("select pg_create_logical_replication_slot('trigger', 'pgoutput')")
        source = Source(database, conn)
        conn.add_notice_handler(lambda notice: source.warnings.append(str(notice.message_primary)))
        yield source


def test_a_message_that_would_be_cut_reports_a_failure(source: Source) -> None:
    """A cut one would look like a forged one, which has no effect."""
    found = source.conn.execute("select pg_get_functiondef('auditlake.record_ddl'::regproc)").fetchone()
    assert found is not None
    limit, shorter = f"length(content) > {MOST_BYTES - 128} then", "length(content) > 2000 then"
    assert limit in found[0]
    source.conn.execute(found[0].replace(limit, shorter))
    assert source.message(f"alter table a add d text default '{'x' * 2000}'") == {"failed": True}
    assert "failed" not in source.message("alter table a drop d")


def test_a_message_stands_between_the_rows_of_its_transaction(source: Source) -> None:
    """In all nestings of savepoints; the rows of CREATE TABLE AS come before its message."""
    nested = "begin; alter table a add {} int; savepoint s; insert into a (id) values ({}); commit"
    released = "begin; savepoint s; alter table a add {} int; release s; insert into a (id) values ({}); commit"
    found = source.stream(nested.format("d", 1), released.format("e", 2), "create table f as select 7 as x")
    kinds = ["ddl" if isinstance(each, dict) else "row" for each in found]
    assert kinds == ["ddl", "row", "ddl", "row", "row", "ddl"]


def test_a_message_has_the_shape_after_the_command(source: Source) -> None:
    """With attribute numbers, dropped columns, rewrites, and the catalog's view of a table whose schema is renamed."""
    assert columns(source.message("alter table a rename b to x")) == [(1, "id"), (2, "x"), (3, "c")]
    dropped = source.message("alter table a drop x")
    oid = dropped["relations"][0]["oid"]
    assert (dropped["dropped"], columns(dropped)) == (
        [["table column", oid, 2, ["public", "a", "x"]]],
        [(1, "id"), (3, "c")],
    )
    retyped = source.message("alter table a alter c type int using c::int, add d int not null default 3")
    assert (retyped["rewritten"], retyped["tag"], retyped["session_user"]) == ([[oid, 4]], "ALTER TABLE", "postgres")
    assert [each[4] for each in retyped["relations"][0]["columns"]] == ["nk", "", "n"]
    added = source.message("alter table a add e text default 'x y'")
    assert added["relations"][0]["columns"][-1] == [5, "e", 25, -1, "m", None, '{"x y"}']
    assert source.message("alter table a replica identity full")["relations"][0]["identity"] == "f"
    source.stream("create schema s1", "alter table a set schema s1")
    assert source.message("alter schema s1 rename to s2")["relations"][0]["schema"] == "s2"
    assert source.message("drop table s2.a")["dropped"] == [["table", oid, 0, ["s2", "a"]]]


def test_a_session_can_neither_hide_nor_excuse_a_rewrite(source: Source) -> None:
    """By a setting, or with a command inside a function, whose query is that of the client."""
    source.stream(
        "create function hides(numeric) returns int language plpgsql as"
        " $$ begin perform set_config('auditlake.ddl', '', true); return -$1; end $$",
        "create table r (id int primary key, n int)",
        "create function rewrites() returns bool language plpgsql as"
        " $$ begin alter table r alter n type bigint using -n; return true; end $$",
        "insert into a values (1, 'x', 2)",
    )
    hidden = source.message("alter table a alter c type int using hides(c)")
    assert hidden["rewritten"] == [[hidden["relations"][0]["oid"], 4]]
    nested = source.stream("alter table a add check (rewrites())")
    found = [message for message in nested if isinstance(message, dict) and "rewritten" in message]
    assert [message["plain"] for message in found] == [False]


def test_partitions_and_types_are_in_the_message(source: Source) -> None:
    """ATTACH reports the parent alone; the message has the whole tree. Types come with their labels and columns."""
    source.stream("create table p (id int primary key) partition by range (id)", "create table q (id int primary key)")
    attached = source.message("alter table p attach partition q for values from (0) to (9)")
    parent, leaf = attached["relations"]
    assert (leaf["parents"], leaf["partition"], parent["kind"]) == ([parent["oid"]], True, "p")
    source.stream("create type mood as enum ('sad', 'ok')", "create domain d as int", "create table m (x d, y mood)")
    assert source.message("alter type mood rename value 'sad' to 'low'")["types"][0]["labels"] == ["low", "ok"]
    source.stream("create type pair as (a int, b text)")
    assert source.message("alter type pair add attribute c int")["types"][0]["attributes"][2][:2] == [3, "c"]
    assert source.message("alter table m add z d")["relations"][0]["columns"][-1][5] == ["pg_catalog", "int4"]
    assert source.message("drop type mood cascade")["dropped"][0][3] == ["public", "m", "y"]


def test_what_does_not_concern_a_lake_sends_nothing(source: Source) -> None:
    """Temporary tables, indexes, comments, grants and rolled-back commands."""
    quiet = ("create temp table t (id int)", "alter table pg_temp.t add x int", "drop table pg_temp.t")
    others = (
        "create index on a (b)",
        "comment on table a is 'x'",
        "grant select on a to public",
        "create view v as select 1",
    )
    undone = (
        "begin; alter table a drop c; rollback",
        "begin; savepoint s; alter table a drop c; rollback to s; commit",
    )
    assert source.stream(*quiet, *others, *undone) == []


def test_the_trigger_fires_for_a_replica_too(source: Source) -> None:
    """`session_replication_role = replica` suppresses ordinary event triggers."""
    source.conn.execute("set session_replication_role = replica")
    assert source.message("alter table a add d int")["tag"] == "ALTER TABLE"


BREAKS = {
    "without its key": "drop materialized view auditlake.ddl_key",
    "privileges of its owner revoked": (
        "alter function auditlake.record_ddl() owner to {role};"
        " revoke execute on function pg_logical_emit_message(boolean, text, text{flush}) from public"
    ),
    "replaced by one that fails": (
        "create or replace function pg_temp.no() returns int language sql as 'select 1';"
        " alter function auditlake.record_ddl() set search_path = nowhere"
    ),
}


@pytest.mark.parametrize("broken", BREAKS.values(), ids=BREAKS)
def test_a_broken_trigger_does_not_fail_the_command(source: Source, broken: str) -> None:
    """The application's DDL and rows go through; the worst is a warning."""
    role = f"{conninfo_to_dict(source.dsn)['dbname']}_powerless"
    flush = ", boolean" if source.conn.info.server_version >= 170000 else ""
    source.conn.execute(f"create role {role}")
    source.conn.execute(broken.format(role=role, flush=flush))
    found = source.stream("begin; alter table a add d int; insert into a (id, d) values (1, 2); commit", "drop table a")
    assert ("1", None, None, "2") in found
    assert all("SQLSTATE" in warning for warning in source.warnings)
    assert source.warnings or len(found) == 3
    source.conn.execute(f"drop owned by {role} cascade; drop role {role}")


def test_the_schema_can_be_dropped_with_everything_in_it(source: Source) -> None:
    """By a command that its own triggers are firing for."""
    source.stream("drop schema auditlake cascade", "alter table a add d int")
    with connect(source.dsn) as conn:
        assert read_ddl_trigger(conn).state == "none"


def test_a_lock_is_not_awaited_and_makes_nobody_wait(source: Source) -> None:
    """Installing gives up after two seconds; the application's DDL passes meanwhile."""
    with psycopg.connect(source.dsn) as holder, connect(source.dsn) as conn:
        holder.execute("lock table pg_event_trigger in share mode")
        began = time.monotonic()
        with pytest.raises(SourceUnready, match="could not be changed in 2 s"):
            install_ddl_trigger(conn)
        assert time.monotonic() - began < 10
        source.conn.execute("alter table a add d int")
    with connect(source.dsn) as conn:
        install_ddl_trigger(conn)
        assert read_ddl_trigger(conn).records


def test_check_installs_it_and_says_whether_it_works(database: str) -> None:
    """Also if event_triggers is off (17), or one trigger is disabled."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table a (id int primary key)")
    arguments = ["check", "--source", database]
    assert "the DDL trigger is not installed" in command.run_here(arguments).stderr
    printed = command.run_here([*arguments, "--install-ddl-trigger"])
    assert "create event trigger auditlake_sql_drop" in printed.stdout
    assert "the DDL trigger is not installed" in command.run_here(arguments).stderr
    done = command.run_here([*arguments, "--install-ddl-trigger", "--yes"])
    assert (done.code, "the DDL trigger is installed" in done.stderr) == (0, True)
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("alter event trigger auditlake_sql_drop disable")
        assert "disabled or incomplete" in command.run_here(arguments).stderr
        conn.execute("alter event trigger auditlake_sql_drop enable always")
        if conn.info.server_version >= 170000:
            name = conninfo_to_dict(database)["dbname"]
            conn.execute(f"alter database {name} set event_triggers = off")
            assert "event_triggers is off" in command.run_here(arguments).stderr
            conn.execute(f"alter database {name} reset event_triggers")
    with connect(database) as conn:
        assert (remove(conn), remove(conn), read_ddl_trigger(conn).state) == (True, False, "none")


def test_a_missing_privilege_is_named(database: str) -> None:
    """With the roles of managed services that have it."""
    role = f"{conninfo_to_dict(database)['dbname']}_owner"
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(f"create role {role} login")
        conn.execute(f"grant create on database {conninfo_to_dict(database)['dbname']} to {role}")
    with connect(make_conninfo(database, user=role)) as conn:
        with pytest.raises(SourceUnready, match=f"role {role}, which is no superuser") as refused:
            install_ddl_trigger(conn)
        assert "rds_superuser" in str(refused.value.hint)
        assert read_ddl_trigger(conn).state == "none"
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(f"drop owned by {role} cascade; drop role {role}")
