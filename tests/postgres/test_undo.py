"""Undo scripts on a real server: each restores the earlier state exactly, or fails and changes nothing.

PostgreSQL is the oracle: the rows are compared as it prints them before the changes and after the script.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import psycopg
import pytest

from auditlake.audit import undo_script
from auditlake.audit.diff import Compared
from auditlake.audit.undo_script import patch
from auditlake.errors import NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.source.connection import Row, connect
from tests import command
from tests.compared import ComparedRows, Rows, read_rows
from tests.random_schema import RandomSchema
from tests.random_seeds import random_seeds
from tests.server import Server, chosen_version, execute

pytestmark = pytest.mark.pg

Keys = dict[str, tuple[str, ...]]
_ID: Keys = {"t": ("id",)}


@pytest.fixture(scope="module")
def connection(server: Server) -> Iterator[psycopg.Connection[Row]]:
    """A connection to a database of this module's own."""
    with connect(server.dsn(server.create_database("undo"))) as conn:
        yield conn


@pytest.fixture
def conn(connection: psycopg.Connection[Row]) -> psycopg.Connection[Row]:
    """The same with an empty schema."""
    connection.execute("drop schema if exists public cascade")
    connection.execute("create schema public")
    connection.execute("set search_path = public")
    return connection


def _script(was: list[Rows], becomes: list[Rows]) -> Iterator[str]:
    return patch([cast(Compared, ComparedRows(one, other)) for one, other in zip(was, becomes, strict=True)])


def _run(conn: psycopg.Connection[Row], was: list[Rows], becomes: list[Rows]) -> str | None:
    """Run the script; return PostgreSQL's message if it fails."""
    try:
        for statement in _script(was, becomes):
            conn.execute(statement.encode())
    except psycopg.Error as refusal:
        conn.execute("rollback")
        return str(refusal)
    return None


_RESTORED = {
    "stored generated column": (
        (
            "create table t (id int primary key, x int, g int generated always as (x * 2) stored);"
            "insert into t values (1, 1), (2, 2)"
        ),
        "update t set x = 5; delete from t where id = 2; insert into t values (3, 1)",
        _ID,
    ),
    "unique values change places": (
        "create table t (id int primary key, x int unique not null); insert into t values (1, 1), (2, 2), (3, 3)",
        "update t set x = -x; update t set x = 1 - x % 3 + 3 where true",
        _ID,
    ),
    "exclusion constraint": (
        (
            "create table t (id int primary key, r int4range, exclude using gist (r with &&));"
            "insert into t values (1, '[1,5)'), (2, '[5,9)')"
        ),
        "update t set r = null; update t set r = '[4,9)' where id = 1; update t set r = '[1,4)' where id = 2",
        _ID,
    ),
    "identity always changed": (
        "create table t (id int primary key, x int generated always as identity); insert into t (id) values (1), (2)",
        "update t set x = default",
        _ID,
    ),
    "self-referencing foreign key": (
        "create table t (id int primary key, p int references t); insert into t values (1, null), (2, 1), (3, 2)",
        "delete from t; insert into t values (9, null), (5, 9)",
        _ID,
    ),
    "cascading foreign key between named tables": (
        (
            "create table p (id int primary key);"
            "create table c (id int primary key, p int references p on delete cascade on update cascade);"
            "insert into p values (1), (2); insert into c values (1, 1), (2, 2)"
        ),
        "insert into p values (7); update c set p = 7 where id = 1; delete from p where id = 1",
        {"p": ("id",), "c": ("id",)},
    ),
    "an order with lines and payments, children first": (
        (
            "create table o (id int primary key); create table l (o int references o, n int, primary key (o, n));"
            "create table pay (id int primary key, o int not null references o, l int,"
            " foreign key (o, l) references l);"
            "insert into o values (1); insert into l values (1, 1); insert into pay values (1, 1, 1)"
        ),
        "delete from pay; delete from l; delete from o; insert into o values (2)",
        {"pay": ("id",), "l": ("o", "n"), "o": ("id",)},
    ),
    "equal rows in two partitions without a key": (
        (
            "create table t (a int, b text) partition by list (a); create table t1 partition of t for values in (1);"
            "create table t2 partition of t for values in (2);"
            "insert into t values (1, 'x'), (2, 'x'), (1, null), (1, null)"
        ),
        (
            "delete from t where a = 2; delete from t where ctid = (select max(ctid) from t1);"
            "insert into t values (1, 'x'), (2, 'y'), (2, 'y')"
        ),
        {"t": ()},
    ),
    "a row that moved to another partition": (
        (
            "create table t (a int, id int, c int) partition by list (a);"
            "create table t1 partition of t for values in (1);"
            "create table t2 (c int, id int, a int); alter table t attach partition t2 for values in (2);"
            "insert into t values (1, 1), (2, 2)"
        ),
        "update t set a = 3 - a",
        _ID,
    ),
    "an inheritance parent with a child that has equal keys": (
        (
            "create table t (id int primary key, x text); create table child () inherits (t);"
            "insert into t values (1, 'a'), (2, 'b'); insert into child values (1, 'z'), (3, 'c')"
        ),
        "update only t set x = 'z'; insert into t values (3, 'c')",
        _ID,
    ),
    "bpchar without length, trailing blanks": (
        "create table t (a bpchar, b int); insert into t values ('x  ', 1), ('x', 1), ('x', 2)",
        "delete from t where b = 1; insert into t values ('x ', 1)",
        {"t": ()},
    ),
    "equal keys in another spelling": (
        "create table t (id numeric primary key); insert into t values (1.0)",
        "update t set id = 1.00",
        _ID,
    ),
    "rows without columns": ("create table t (); insert into t default values", "delete from t", {"t": ()}),
    "a trigger that looks up its own search path": (
        (
            "create table t (id int primary key, x text); create table seen (n int);"
            "create function f() returns trigger language plpgsql as 'begin perform n from seen; return new; end';"
            "create trigger f before insert on t for each row execute function f(); insert into t values (1, 'a')"
        ),
        "delete from t",
        _ID,
    ),
    "no difference": ("create table t (id int primary key)", "select 1", _ID),
}
if chosen_version() >= 18:
    _RESTORED["virtual generated column"] = (
        (
            "create table t (g int generated always as (x * 2) virtual, id int primary key, x int);"
            "insert into t (id, x) values (1, 1), (2, 2)"
        ),
        "update t set x = 5; delete from t where id = 2; insert into t (id, x) values (3, 1)",
        _ID,
    )


@pytest.mark.parametrize(("setup", "change", "keys"), _RESTORED.values(), ids=_RESTORED)
def test_a_script_restores_the_earlier_state(
    conn: psycopg.Connection[Row], setup: str, change: str, keys: Keys
) -> None:
    """Rows, generated columns, identities and foreign keys are as they were."""
    conn.execute(setup.encode())
    earlier = read_rows(conn, keys)
    conn.execute(change.encode())
    assert _run(conn, read_rows(conn, keys), earlier) is None
    assert read_rows(conn, keys) == earlier


_TRIGGER = (
    "create table t (id int primary key, x text); create table log (x text); insert into t values (1, 'a');"
    "create function f() returns trigger language plpgsql as $$begin {} return new; end$$;"
    "create trigger f {} update on t for each row execute function f();"
)
_REFUSED = {
    "a foreign key deletes rows of a table that is not named": (
        (
            "create table t (id int primary key);"
            "create table c (id int primary key, p int references t on delete cascade); insert into t values (1)"
        ),
        "insert into t values (2); insert into c values (1, 2)",
        "public.c: a trigger or a foreign key changed rows",
    ),
    "a trigger changes the row": (
        _TRIGGER.format("new.x = new.x || '!';", "before"),
        "update t set x = 'b'",
        "public.t: the rows are not as they were",
    ),
    "a trigger skips the row": (
        (
            "create table t (id int primary key, x text); insert into t values (1, 'a');"
            "create function f() returns trigger language plpgsql as 'begin return null; end'"
        ),
        "update t set x = 'b'; create trigger f before update on t for each row execute function f()",
        "public.t: the rows are not as they were",
    ),
    "a trigger writes another table": (
        _TRIGGER.format("insert into log values (new.x);", "after"),
        "update t set x = 'b'",
        "public.log: a trigger or a foreign key changed rows",
    ),
    "a trigger truncates another table": (
        _TRIGGER.format("truncate log;", "after"),
        "update t set x = 'b'",
        "public.log: a trigger truncated, rewrote or dropped this table",
    ),
    "a trigger drops a partition of another table": (
        (
            "create table p (a int) partition by list (a); create table p1 partition of p for values in (1);"
            + _TRIGGER.format("drop table if exists p1;", "after")
        ),
        "update t set x = 'b'; create table if not exists p1 partition of p for values in (1)",
        "public.p1: a trigger truncated, rewrote or dropped this table",
    ),
    "a trigger removes a large object": (
        _TRIGGER.format("perform lo_unlink(loid) from pg_largeobject;", "after"),
        "update t set x = 'b'; select lo_from_bytea(0, 'x')",
        "pg_catalog.pg_largeobject: a trigger or a foreign key changed rows",
    ),
    "a trigger touches another row of the table": (
        "create table t (id int primary key, x text); insert into t values (1, 'a'), (2, 'a')",
        (
            "update t set x = 'b' where id = 1;"
            "create function f() returns trigger language plpgsql as"
            " $$begin if pg_trigger_depth() = 1 then update t set x = 'c' where id = 2; end if; return new; end$$;"
            "create trigger f after update on t for each row execute function f()"
        ),
        "public.t: other rows were changed",
    ),
    "a column that the lake has no values of": (
        "create table t (id int primary key); insert into t values (1)",
        "delete from t; alter table t add column later int default 5",
        "public.t has the column later",
    ),
    "a column of a narrower type": (
        "create table t (id int primary key, x numeric); insert into t values (1, 1.25)",
        "update t set x = 2; alter table t alter x type numeric(10, 1)",
        "",
    ),
}


@pytest.mark.parametrize(("setup", "change", "message"), _REFUSED.values(), ids=_REFUSED)
def test_a_script_that_cannot_restore_fails_and_changes_nothing(
    conn: psycopg.Connection[Row], setup: str, change: str, message: str
) -> None:
    """The message names the table."""
    keys = _ID
    conn.execute(setup.encode())
    earlier = read_rows(conn, keys)
    conn.execute(change.encode())
    later = read_rows(conn, keys)
    if earlier[0].columns != later[0].columns:
        later = [Rows("t", ("id",), earlier[0].columns, ())]
    present = read_rows(conn, keys)
    refusal = _run(conn, later, earlier)
    assert refusal is not None
    assert message in refusal
    assert read_rows(conn, keys) == present


def test_rows_of_a_named_table_that_a_trigger_truncates_are_not_lost(conn: psycopg.Connection[Row]) -> None:
    """Those that the script does not name, after its statement."""
    keys: Keys = {"t": ("id",), "u": ("id",)}
    conn.execute("create table t (id int primary key); create table u (id int primary key)")
    conn.execute("insert into t values (1), (2); insert into u values (1)")
    earlier = read_rows(conn, keys)
    conn.execute("create function f() returns trigger language plpgsql as 'begin truncate t; return null; end'")
    conn.execute(
        "create constraint trigger f after insert on u deferrable initially deferred for each row execute function f()"
    )
    conn.execute("delete from u; insert into t values (3)")
    later = read_rows(conn, keys)
    assert "public.t: a trigger truncated" in str(_run(conn, later, earlier))
    assert read_rows(conn, keys) == later


@pytest.mark.parametrize("since", ["update t set x = 'c'", "delete from t", "update t set id = 7"])
def test_a_row_that_changed_since_is_not_overwritten(conn: psycopg.Connection[Row], since: str) -> None:
    """Whether another transaction updated, deleted or renamed it."""
    conn.execute("create table t (id int primary key, x text); insert into t values (1, 'a')")
    earlier = read_rows(conn, _ID)
    conn.execute("update t set x = 'b'")
    later = read_rows(conn, _ID)
    conn.execute(since.encode())
    present = read_rows(conn, _ID)
    assert "1 of 1 rows are not there" in str(_run(conn, later, earlier))
    assert read_rows(conn, _ID) == present


def test_side_effects_can_be_accepted(conn: psycopg.Connection[Row]) -> None:
    """An application's trigger may write, or empty, its own table when asked to."""
    conn.execute("create table cache (id int)")
    conn.execute(_TRIGGER.format("insert into log values (new.x); truncate cache;", "after").encode())
    earlier = read_rows(conn, _ID)
    conn.execute("update t set x = 'b'")
    conn.execute("set auditlake.other_tables = 'allow'")
    assert _run(conn, read_rows(conn, _ID), earlier) is None
    conn.execute("reset auditlake.other_tables")
    assert read_rows(conn, _ID) == earlier


def test_a_statement_holds_no_more_than_a_server_takes(
    conn: psycopg.Connection[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By bytes, whatever the number of rows; a row that no statement can hold is refused before the first one."""
    monkeypatch.setattr(undo_script, "_BYTES_IN_STATEMENT", 10_000)
    conn.execute("create table t (id int primary key, x text)")
    conn.execute("insert into t select n, repeat('é', n) from generate_series(1, 400, 7) n")
    earlier = read_rows(conn, _ID)
    conn.execute("update t set x = x || 'e' where id % 2 = 0; delete from t where id % 2 = 1")
    later = read_rows(conn, _ID)
    sizes = [
        len(each.encode()) for each in _script(later, earlier) if each.startswith("insert into pg_temp.auditlake_rows")
    ]
    assert len(sizes) > 2
    assert max(sizes) < 11_000
    assert _run(conn, later, earlier) is None
    assert read_rows(conn, _ID) == earlier
    monkeypatch.setattr(undo_script, "_LARGEST_ROW_BYTES", 1_300)
    with pytest.raises(NotAnswerable, match=r"a row that differs has 1,[0-9]{3} bytes at the two moments"):
        next(_script(later, earlier))


def test_psql_in_a_latin1_session_restores_text_exactly(conn: psycopg.Connection[Row], server: Server) -> None:
    """Escape sequences, quotes, backslashes and letters beyond ASCII, in values and in names."""
    texts = ["\x1b[31mred\x1b[0m", 'it\'s \\ "q" :x', "é€😀\u202e\u2028\x85", "$auditlake$", "--", "a\r\nb\tc"]
    keys: Keys = {"T\x1b[1m é'\\": ("\x1b]k",)}
    conn.execute('create table "T\x1b[1m é\'\\" ("\x1b]k" text primary key)')
    conn.execute('insert into "T\x1b[1m é\'\\" select unnest(%s::text[])', [texts])
    earlier = read_rows(conn, keys)
    conn.execute('delete from "T\x1b[1m é\'\\"')
    script = "\n".join(_script(read_rows(conn, keys), earlier))
    assert not any(character < " " and character != "\n" for character in script)
    psql = [str(server.bin / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", conn.info.dsn]
    environment = {**os.environ, "PGCLIENTENCODING": "LATIN1"}
    done = subprocess.run(psql, input=script.encode(), env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    assert read_rows(conn, keys) == earlier


def test_random_scripts_restore_or_change_nothing(conn: psycopg.Connection[Row]) -> None:
    """Random tables, constraints and changes."""
    restored = [_try(conn, RandomSchema(seed)) for seed in random_seeds()]
    assert any(restored)


def _try(conn: psycopg.Connection[Row], schema: RandomSchema) -> bool:
    conn.execute("drop schema public cascade")
    conn.execute("create schema public")
    for statement in schema.ddl():
        conn.execute(statement.encode())
    schema.change(conn, 15)
    earlier = read_rows(conn, schema.keys)
    schema.change(conn, 15)
    later = read_rows(conn, schema.keys)
    refusal = _run(conn, later, earlier)
    assert read_rows(conn, schema.keys) == (later if refusal else earlier), refusal
    assert not refusal or schema.may_fail, refusal
    return refusal is None


def test_a_script_says_what_it_restores(conn: psycopg.Connection[Row]) -> None:
    """Tables, operations, numbers of rows and the first keys, in comments that no value can end."""
    conn.execute("create table t (id text primary key, x int); create table u (a int)")
    conn.execute("insert into t select 'k' || n, n from generate_series(10, 24) n; insert into u values (1), (1)")
    keys: Keys = {"t": ("id",), "u": ()}
    earlier = read_rows(conn, keys)
    conn.execute("delete from t; insert into t values (E'a\n; drop table t;', 1); delete from u")
    script = "\n".join(_script(read_rows(conn, keys), earlier))
    comments = [line.removeprefix("-- ") for line in script.splitlines() if line.startswith("-- ")][:4]
    assert comments[1] == "public.t: delete 1 row: id=a\\n; drop table t;"
    assert comments[2] == f"public.t: insert 15 rows: {', '.join(f'id=k{n}' for n in range(10, 20))}, 5 more"
    assert comments[3] == "public.u: insert 2 rows"
    assert script.startswith(
        "-- Bring these rows from their state at 0/1 to that at 0/2, all of them or none:\n-- public.t"
    )
    assert _run(conn, read_rows(conn, keys), earlier) is None
    assert read_rows(conn, keys) == earlier


@pytest.mark.parametrize("applied", [True, False])
def test_a_script_restores_the_table_that_is_meant_after_another_one_took_its_name(
    database: str, tmp_path: Path, *, applied: bool
) -> None:
    """The usual exchange: the former table is kept under another name. Answers have the name of their moment."""
    settings: list[str | Path] = ["--source", database, "--lake", tmp_path / "lake"]

    def asked(*line: str) -> str:
        done = command.run_here([*line, "--lake", tmp_path / "lake"])
        assert done.code == 0, done.stderr
        return done.stdout

    def rows() -> list[Row]:
        with connect(database) as conn:
            return conn.execute(
                "select 'w', * from public.w union all select 'w_old', * from public.w_old order by 1, 2"
            ).fetchall()

    execute(database, "create table w (id int primary key, v text)", "insert into w values (1, 'a'), (2, 'b')")
    assert command.run_here(["bootstrap", *settings]).code == 0
    execute(database, "alter table w rename to w_old", "create table w (like w_old including all)")
    execute(database, "insert into w table w_old")
    assert command.capture_here(database, Lake(tmp_path / "lake")).code == 0
    before, lsn = rows(), _current_lsn(database)
    execute(database, "update w set v = 'x' where id = 1", "update w_old set v = 'x' where id = 1")
    execute(database, "delete from w_old where id = 2")
    assert command.capture_here(database, Lake(tmp_path / "lake")).code == 0
    if applied:
        asked("apply", "--until-current")
    for line in (["diff", lsn, "now", "w_old", "--json"], ["deleted", "w_old", "--json"]):
        assert {json.loads(found)["table"] for found in asked(*line).splitlines()} == {"public.w_old"}
    script = asked("diff", lsn, "now", "w_old", "--format", "sql", "-R")
    with connect(database) as conn:
        conn.execute(script.encode())
    assert rows() == [("w", 1, "x"), *(row for row in before if row != ("w", 1, "a"))]


def _current_lsn(dsn: str) -> str:
    with connect(dsn) as conn:
        return str(conn.execute("select pg_current_wal_insert_lsn()").fetchone()[0])  # type: ignore[index]
