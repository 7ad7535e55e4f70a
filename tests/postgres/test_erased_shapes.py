"""Erasures in tables of other shapes: no byte has the values, all other answers are as before, and digests fit."""

import json
import secrets
import signal
from collections.abc import Iterable
from pathlib import Path

import psycopg
import pytest

import auditlake
from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from auditlake.ledger.blocks import read_entries
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from tests import oracle
from tests.capture_once import capture
from tests.command import Done, run, run_here
from tests.erasure_lake import apply, found_in, require_sound
from tests.ledger_lake import compared, sealed
from tests.read_lake import history_of
from tests.server import install_trigger

pytestmark = pytest.mark.pg

_REASON = ("--reason", "request 7")
_PERSON = "create table person (id int primary key, mail text)"
Rows = list[dict[str, str | None]]


@pytest.fixture
def source(database: str, tmp_path: Path) -> "_Source":
    """A database, and the place of its lake."""
    return _Source(database, Lake(tmp_path / "lake"))


class _Source:
    def __init__(self, dsn: str, lake: Lake) -> None:
        self.dsn, self.lake = dsn, lake

    def execute(self, *statements: str) -> None:
        """Execute each statement in a transaction of its own."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            for statement in statements:
                conn.execute(statement.encode())

    def bootstrap(self, *options: str) -> None:
        """Copy the tables that have no history."""
        done = run_here(["bootstrap", *options, "--source", self.dsn, "--engine", "duckdb", "--lake", self.lake.root])
        assert done.code == 0, done.stderr

    def follow(self) -> None:
        """Bring what was committed into the histories."""
        capture(self.dsn, self.lake)
        apply(self.lake)

    def forget(self, *arguments: str) -> Done:
        """Erase, and require that digests from before and after fit."""
        digest = sealed(self.lake)
        done = run_here(["forget", *arguments, *_REASON, "--lake", self.lake.root])
        assert done.code == 0, done.stderr
        assert compared(self.lake, digest, sealed(self.lake)).failure() is None
        require_sound(self.lake)
        return done

    def states(self, table: str) -> dict[str, Rows]:
        """Return the rows of a table after each commit that changed it."""
        log = run_here(["log", "--json", "--lake", self.lake.root]).stdout.splitlines()
        opened = auditlake.Lake(self.lake.root)
        return {
            lsn: _sorted(opened.as_of(lsn).table(table).texts()) for lsn in (json.loads(each)["lsn"] for each in log)
        }

    def oid(self, table: str) -> int:
        """Return the OID of a table."""
        with psycopg.connect(self.dsn) as conn:
            return int((conn.execute("select %s::regclass::oid", [table]).fetchone() or (0,))[0])


def _found(source: _Source, *texts: str) -> set[str]:
    """Return which texts are in the files of the lake."""
    return set[str]().union(*found_in(source.lake, texts).values())


def _sorted(rows: Iterable[dict[str, str | None]]) -> Rows:
    return sorted(rows, key=lambda row: str(row["id"]))


def test_arrays_json_and_toasted_values_are_gone(source: _Source) -> None:
    """Also if a later change of the same transaction leaves a value out, because it is toasted and unchanged."""
    old, new, other = (f"Eve {secrets.token_hex(4000)}" for _ in range(3))
    eve = "'{Eve-tag,b}', '{\"mail\": \"eve@example.org\"}'"
    source.execute(
        "create table doc (id int primary key, tags text[], data jsonb, long text)",
        "alter table doc alter long set storage external, replica identity full",
        f"insert into doc values (1, {eve}, '{old}'), (2, null, null, '{other}')",
    )
    source.bootstrap()
    source.execute(
        "update doc set tags = array_append(tags, 'c')",
        f"update doc set long = '{new}' where id = 1; update doc set tags = null, data = '{{}}' where id = 1",
        "update doc set tags = '{d}' where id = 2",
    )
    source.follow()
    before = source.states("doc")
    first, last = (chosen(before, key=Lsn.parse) for chosen in (min, max))
    before[first][0] |= dict.fromkeys(("tags", "data", "long"))
    source.forget("doc", "1", "--columns", "tags,data,long")
    assert found_in(source.lake, ("Eve-tag", "eve@example.org", old)) == {}
    assert source.states("doc") == before
    assert before[last][0]["long"] == new
    assert [each["ordinal"] for each in oracle.changes(source.lake) if new in (each["new"] or ())] == [0]
    assert _found(source, other) == {other}


def test_a_column_that_was_dropped_is_erased_by_the_name_that_it_has_now(source: _Source) -> None:
    """The erasure of the column that has the name now reports that there was another one."""
    source.execute(_PERSON, "insert into person values (1, 'eve@example.org')")
    source.bootstrap()
    source.execute(
        "alter table person drop mail",
        "update person set id = 1",
        "alter table person add mail text",
        "update person set mail = 'eve.neu@example.org'",
        "update person set mail = null",
    )
    source.follow()
    done = source.forget("person", "1", "--columns", "mail")
    assert "public.person had another column mail, which is mail~2 now: erase that, too" in done.stderr
    assert set().union(*found_in(source.lake, ("eve@example.org", "eve.neu@example.org")).values()) == {
        "eve@example.org"
    }
    source.forget("person", "1", "--columns", "mail~2")
    assert found_in(source.lake, ("eve@example.org",)) == {}


def test_a_row_of_a_dropped_table_whose_name_another_has_is_erased(source: _Source) -> None:
    """By the name with its OID, which is told; also what PostgreSQL had until the end."""
    source.execute(_PERSON, "insert into person values (1, 'eve@old.org'), (2, 'adam@old.org')")
    source.bootstrap()
    oid = source.oid("person")
    source.execute("update person set mail = 'eve@older.org' where id = 1")
    source.follow()
    source.execute(f"drop table person; {_PERSON}")
    source.follow()
    source.bootstrap("--table", "public.person")
    source.execute("insert into person values (1, 'eve@new.org')", "delete from person")
    source.follow()
    done = source.forget("person", "1")
    assert f'too: to erase from that, name it public."person@{oid}"' in done.stderr
    assert _found(source, "eve@old.org", "eve@older.org", "eve@new.org") == {"eve@old.org", "eve@older.org"}
    source.forget(f'"person@{oid}"', "1")
    assert _found(source, "eve@old.org", "eve@older.org", "adam@old.org") == {"adam@old.org"}


def test_columns_of_a_row_of_a_dropped_table_are_erased(source: _Source) -> None:
    """Nothing can be overwritten there any more."""
    source.execute(_PERSON, "insert into person values (1, 'eve@example.org'), (2, 'adam@example.org')")
    source.bootstrap()
    source.execute("update person set id = 3 where id = 1")
    source.follow()
    source.execute("drop table person")
    source.follow()
    first = str(history_of(source.lake, TableName("public", "person")).horizon)
    source.forget("person", "3", "--columns", "mail")
    assert _found(source, "eve@example.org", "adam@example.org") == {"adam@example.org"}
    rows = auditlake.Lake(source.lake.root).as_of(first).table("person").texts()
    assert [(row["id"], row["mail"]) for row in _sorted(rows)] == [("1", None), ("2", "adam@example.org")]


def test_a_key_without_room_for_a_token_goes_with_its_row_once_another_row_stands_for_it(source: _Source) -> None:
    """Delete the row, insert it again under another key, then erase the old one as a whole."""
    source.execute(
        "create table account (iban numeric, tenant int, name text, primary key (iban, tenant))",
        "insert into account values (4711081547110815, 1, 'Eve'), (12, 1, 'Adam')",
    )
    source.bootstrap()
    source.execute(
        "update account set name = 'Eve Example' where iban > 12",
        "with gone as (delete from account where iban > 12 returning *)"
        " insert into account select 13, tenant, name from gone",
        "update account set name = 'Adam Example' where iban = 12",
    )
    source.follow()
    refused = run_here(
        ["forget", "account", "4711081547110815", "1", "--columns", "iban", *_REASON, "--lake", source.lake.root]
    )
    assert refused.code == 2
    source.forget("account", "4711081547110815", "1")
    assert found_in(source.lake, ("4711081547110815",)) == {}
    now = auditlake.Lake(source.lake.root).as_of().table("account").texts()
    assert {(row["iban"], row["name"]) for row in now} == {("12", "Adam Example"), ("13", "Eve Example")}


def test_a_column_that_another_replaced_in_the_transaction_of_its_last_change_is_erased(source: _Source) -> None:
    """By its own name; the values of the other column of its name stay, and none is shown as a change of that one."""
    install_trigger(source.dsn)
    source.execute(
        "create table t (id int primary key, v text, w text)", "insert into t values (1, 'a', 'Adamsson OLD')"
    )
    source.bootstrap()
    source.execute(
        "begin; alter table t add c int; update t set w = 'Adamsson NEW' where id = 1;"
        "alter table t drop w; alter table t add w text; commit",
        "update t set w = 'other' where id = 1",
    )
    source.follow()
    row = run_here(["row", "t", "1", "--json", "--lake", source.lake.root])
    shown = [json.loads(line) for line in row.stdout.splitlines()]
    assert row.code == 0, row
    assert [each["changed"].get("w") for each in shown] == [
        {"old": None, "new": "other"},
        None,
        {"new": "Adamsson OLD"},
    ]
    source.forget("t", "1", "--columns", "w~2")
    assert _found(source, "Adamsson OLD", "Adamsson NEW", "other") == {"other"}


def test_versions_under_another_type_of_the_key_are_erased(source: _Source) -> None:
    """Those of the first copy have the key in a column of its former type; the ledger's secrets of them go, too."""
    source.execute(
        "create table t (id int, k text, v text, primary key (id, k))",
        "insert into t select n, 'key ' || n, 'first ' || n from generate_series(1, 3) n",
    )
    source.bootstrap()
    source.execute("update t set v = 'second 1' where id = 1")
    source.follow()
    sealed(source.lake)
    source.execute("alter table t alter id type bigint", "update t set v = 'third 1' where id = 1")
    settings: list[str | Path] = ["--source", source.dsn, "--engine", "duckdb", "--lake", source.lake.root]
    assert run_here(["follow", "--until-current", *settings]).code == 0
    source.execute("update t set v = 'last ' || id", "delete from t where id = 3")
    assert run_here(["follow", "--until-current", *settings]).code == 0
    texts = [f"{word} {number}" for word in ("key", "first", "second", "third", "last") for number in (1, 2, 3)]
    assert _found(source, *texts) == set(texts) - {"second 2", "second 3", "third 2", "third 3"}
    source.forget("t", "1", "key 1", "--columns", "v")
    left = {"key 1", "last 1", "key 2", "first 2", "last 2", "key 3", "first 3", "last 3"}
    assert _found(source, *texts) == left
    source.forget("t", "3", "key 3")
    assert _found(source, *texts) == left - {"key 3", "first 3", "last 3"}
    kinds = [row["kind"] for row in read_entries(source.lake, "secret is null and lookup is null").to_pylist()]
    assert set(kinds) >= {"row", "ended", "change"}
    source.execute("insert into t values (3, 'key 3', 'again')")
    assert run_here(["follow", "--until-current", *settings]).code == 0
    returned = run_here(["forget", "--returned", "--json", "--lake", source.lake.root])
    assert [json.loads(line)["key"] for line in returned.stdout.splitlines()] == [["3", "key 3"]]


def test_a_change_whose_columns_only_their_order_shows_is_erased(source: _Source) -> None:
    """In a gap, under names that other columns had before and after."""
    source.execute(
        "create table t (a text primary key, b text, v text)", "insert into t values ('p 1', 'b 1', 'Adamsson 0')"
    )
    source.bootstrap()
    source.execute(
        "update t set v = 'Adamsson 1'",
        "alter table t rename a to c; alter table t rename b to a",
        "update t set v = 'Adamsson 2'",
        "alter table t rename a to b; alter table t rename c to a",
        "update t set v = 'Adamsson 3'",
        "alter table t drop v, add v text",
        "update t set v = 'Adamsson 4'",
        "delete from t",
    )
    settings: list[str | Path] = ["--source", source.dsn, "--engine", "duckdb", "--lake", source.lake.root]
    assert run_here(["follow", "--until-current", *settings]).code == 0
    source.forget("t", "p 1")
    assert _found(source, *(f"Adamsson {number}" for number in range(5))) == set()


def test_a_killed_erasure_is_finished_by_the_key_of_its_time(source: _Source) -> None:
    """The table has another key when it is resumed."""
    source.execute("create table t (id int primary key, code text not null, v text)")
    source.bootstrap()
    source.execute(
        "insert into t values (1, 'code 1', 'Adamsson 1'), (2, 'code 2', 'other')", "delete from t where id = 1"
    )
    source.follow()
    arguments: list[str | Path] = ["forget", "t", "1", *_REASON, "--lake", source.lake.root]
    assert run(arguments, {"AUDITLAKE_FAILPOINT": After.ERASURE_BEGUN.value}).code == -signal.SIGKILL
    source.execute("alter table t drop constraint t_pkey, add primary key (code)", "update t set v = 'new'")
    source.follow()
    assert run_here(["forget", "--resume", "--lake", source.lake.root]).code == 0
    assert _found(source, "Adamsson 1", "code 1", "other") == {"other"}


def test_a_key_with_another_text_under_its_former_type_is_refused(source: _Source) -> None:
    """One key would find a part of the row; a hold would cover a part of it."""
    source.execute("create table t (k varchar(9) primary key, v text)", "insert into t values ('007', 'first')")
    source.bootstrap()
    source.execute("alter table t alter k type int using k::int", "delete from t")
    settings: list[str | Path] = ["--source", source.dsn, "--engine", "duckdb", "--lake", source.lake.root]
    assert run_here(["follow", "--until-current", *settings]).code == 0
    for line in (["forget", "t", "7"], ["hold", "add", "suit", "--table", "t", "--key", "7"]):
        refused = run_here([*line, *_REASON, "--lake", source.lake.root])
        assert refused.code == 3
        assert "k, of the key of public.t, was of character varying(9) before it was of integer" in refused.stderr


def test_a_change_that_does_not_show_which_columns_it_has_refuses_an_erasure_of_one(source: _Source) -> None:
    """A column was replaced twice by another of its name, between changes, before capture looked."""
    source.execute("create table t (id int primary key, v text)", "insert into t values (1, 'Adamsson 0')")
    source.bootstrap()
    for number in (1, 2, 3):
        source.execute(f"update t set v = 'Adamsson {number}'", "alter table t drop v, add v text")
    settings: list[str | Path] = ["--source", source.dsn, "--engine", "duckdb", "--lake", source.lake.root]
    assert run_here(["follow", "--until-current", *settings]).code == 0
    refused = run_here(["forget", "t", "1", "--columns", "v", *_REASON, "--lake", source.lake.root])
    assert refused.code == 3, refused
    assert "which columns the rows of public.t have that changed at" in refused.stderr
