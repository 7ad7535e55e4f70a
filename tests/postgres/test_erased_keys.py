"""A key that is personal data, of a row that PostgreSQL keeps under another one: the past of the row loses it."""

import json
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

import auditlake
from auditlake.audit.lake_reader import Reader
from auditlake.audit.versions import history_texts
from auditlake.erasure import returned
from auditlake.erasure.retention import expire
from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from auditlake.relation import TableName
from auditlake.settings.retention_rules import RetentionPeriods
from tests import oracle
from tests.capture_once import capture
from tests.command import Done, run, run_here
from tests.erasure_lake import apply, found_in, require_sound
from tests.expiry import AT_ONCE
from tests.ledger_lake import compared, sealed
from tests.read_lake import history_of

pytestmark = pytest.mark.pg

_TABLE = "create table login (tenant int, email varchar(60), name text, primary key (tenant, email))"
_EVE = ("eve@example.org", "eve.neu@example.org", "Eve Example")
_OTHER = ("adam@example.org", "Adam Example")
_FORGET = ("forget", "login", "1", "anon-7", "--columns", "email,name", "--reason", "request 7")


@pytest.fixture
def lake(database: str, tmp_path: Path) -> Lake:
    """A lake in which Eve had two addresses and now has none; PostgreSQL keeps her row, and so do others."""
    return make(database, tmp_path)


def make(database: str, folder: Path) -> Lake:
    """Make it."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(_TABLE)
        conn.execute("insert into login values (1, 'eve@example.org', 'Eve Example'), (1, 'adam@example.org', 'Adam')")
        settings: list[str | Path] = ["--source", database, "--engine", "duckdb", "--lake", folder / "lake"]
        copied = run_here(["bootstrap", *settings])
        assert copied.code == 0, copied.stderr
        lake = Lake(folder / "lake")
        actor = json.dumps({"actor": "eve.neu@example.org", "as": "anon-7 of Adam"})
        with conn.transaction():
            conn.execute("select pg_logical_emit_message(true, 'auditlake', %s)", [actor])
            conn.execute("update login set email = 'eve.neu@example.org' where email like 'eve@%'")
        conn.execute("update login set name = 'Adam Example' where email like 'adam@%'")
        capture(database, lake)
        apply(lake)
        conn.execute("update login set email = 'anon-7', name = 'Nobody' where email like 'eve%'")
        conn.execute("update login set name = '-' where email = 'anon-7'")
        conn.execute("insert into login values (2, 'eve@example.org', 'another tenant')")
        conn.execute("delete from login where tenant = 2")
        capture(database, lake)
        apply(lake)
    return lake


def _states(lake: Lake) -> dict[str, list[dict[str, str | None]]]:
    opened = auditlake.Lake(lake.root)
    first = str(history_of(lake, TableName("public", "login")).horizon)
    lsns = [json.loads(line)["lsn"] for line in run_here(["log", "--json", "--lake", lake.root]).stdout.splitlines()]
    return {
        lsn: sorted(opened.as_of(lsn).table("public.login").texts(), key=lambda row: (row["tenant"], row["name"] or ""))
        for lsn in (first, *lsns)
    }


def _history(lake: Lake, *key: str) -> list[dict[str, object]]:
    done = run_here(["row", "login", *key, "--json", "--lake", lake.root])
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_key_of_a_row_that_stays_is_gone(lake: Lake) -> None:
    """From every byte; the row is one history as before, every other value and state is as it was, and digests fit."""
    before, digest, history = _states(lake), sealed(lake), _history(lake, "1", "anon-7")
    done = run_here([*_FORGET, "--lake", lake.root])
    assert done.code == 0, done.stderr
    assert set(found_in(lake, (_EVE[1], _EVE[2]))) == set()
    assert set().union(*found_in(lake, _OTHER).values()) == {*_OTHER}
    (context,) = (row["context"] for row in oracle.transactions(lake) if row["context"])
    assert json.loads(context)["app"] == {"actor": "[erased]", "as": "anon-7 of Adam"}
    _require_same(before, _states(lake))
    assert _events(_history(lake, "1", "anon-7")) == _events(history)
    assert compared(lake, digest, sealed(lake)).failure() is None
    require_sound(lake)


def test_a_key_that_only_changes_have_is_erased(lake: Lake) -> None:
    """Its versions have expired."""
    expire(lake, RetentionPeriods((("public.login", AT_ONCE),)), "tests", lambda _: None)
    done = run_here([*_FORGET[:3], _EVE[1], *_FORGET[4:], "--lake", lake.root])
    assert (done.code, found_in(lake, (_EVE[1], _EVE[2]))) == (0, {}), done.stderr


def test_a_key_that_two_rows_had_is_erased(database: str, lake: Lake) -> None:
    """PostgreSQL has both under other keys, and keeps these."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("insert into login values (1, 'eve.neu@example.org', 'Second')")
        conn.execute("update login set email = 'anon-8', name = 'Third' where email = 'eve.neu@example.org'")
    capture(database, lake)
    apply(lake)
    done = run_here([*_FORGET, "--lake", lake.root])
    assert (done.code, found_in(lake, (_EVE[1], _EVE[2]))) == (0, {}), done.stderr
    now = auditlake.Lake(lake.root).as_of().table("public.login").texts()
    assert {row["email"] for row in now} == {"anon-7", "anon-8", "adam@example.org"}
    require_sound(lake)


def test_an_erased_key_that_returns_is_found(database: str, lake: Lake) -> None:
    """Not the key that the row has now, which changes again."""
    assert run_here([*_FORGET, "--lake", lake.root]).code == 0
    returned: list[str | Path] = ["forget", "--returned", "--lake", lake.root]
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("update login set name = 'later' where email = 'anon-7'")
        capture(database, lake)
        assert run_here(returned).code == 0
        conn.execute("insert into login values (1, 'eve.neu@example.org', 'again')")
        capture(database, lake)
    found = run_here(returned)
    assert (found.code, "eve.neu@example.org" in found.stdout) == (3, True), found.stderr


def _events(history: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(each["lsn"], each["op"]) for each in history]


def _require_same(
    before: dict[str, list[dict[str, str | None]]], after: dict[str, list[dict[str, str | None]]]
) -> None:
    """Require that only Eve's past has other values, with one key for each that she had."""
    assert before.keys() == after.keys()
    tokens: dict[str, set[str]] = {}
    for lsn, rows in before.items():
        left = list(after[lsn])
        for row in rows:
            if row in left:
                left.remove(row)
            else:
                assert row["email"] in {*_EVE, "anon-7"}
                (new,) = (each for each in left if each["name"] is None)
                left.remove(new)
                assert (new["tenant"], new["name"]) == (row["tenant"], None)
                tokens.setdefault(str(row["email"]), set()).add(str(new["email"]))
        assert left == []
    assert {key: len(found) for key, found in tokens.items()} == dict.fromkeys([*_EVE[:2], "anon-7"], 1)
    assert tokens["anon-7"] == {"anon-7"}
    assert len(set().union(*tokens.values())) == 3


@pytest.mark.crash
def test_a_killed_erasure_of_a_key_is_finished(database: str, lake: Lake) -> None:
    """Within the history; `tests/release` has the next step."""
    kill_erasure(database, lake, f"{After.VALUES_ERASED}:2")


def kill_erasure(database: str, lake: Lake, step: str) -> None:
    """Also if the row changed since: what PostgreSQL wrote after the intent stays."""
    before = _states(lake)
    assert run([*_FORGET, "--lake", lake.root], {"AUDITLAKE_FAILPOINT": step}).code == -9
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("update login set name = 'later' where email = 'anon-7'")
    capture(database, lake)
    apply(lake)
    assert run_here(["forget", "--resume", "--lake", lake.root]).code == 0
    assert set(found_in(lake, (_EVE[1], _EVE[2]))) == set()
    after = _states(lake)
    _require_same(before, {lsn: rows for lsn, rows in after.items() if lsn in before})
    assert _history(lake, "1", "anon-7")[0]["changed"] == {"name": {"old": "-", "new": "later"}}


def test_a_key_that_postgresql_has_is_refused(lake: Lake) -> None:
    """And one of a type that has no room for a token."""
    refused: list[Done] = [
        run_here(
            ["forget", "login", "1", "adam@example.org", "--columns", "email", "--reason", "x", "--lake", lake.root]
        ),
        run_here(["forget", "login", "1", "anon-7", "--columns", "tenant", "--reason", "x", "--lake", lake.root]),
    ]
    assert [each.code for each in refused] == [7, 2]
    assert "not of a type that can have a token in its place" in refused[1].stderr


def test_rows_of_a_table_whose_key_changed_are_refused_and_expire(database: str, tmp_path: Path) -> None:
    """With the reason; no answer has the values once everything older has expired."""
    settings: list[str | Path] = ["--source", database, "--engine", "duckdb", "--lake", tmp_path / "lake"]
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table login (id int primary key, email text not null)")
        conn.execute("insert into login values (1, 'eve@example.org'), (2, 'adam@example.org')")
        assert run_here(["bootstrap", *settings]).code == 0
        lake = Lake(tmp_path / "lake")
        conn.execute("alter table login drop constraint login_pkey, add primary key (email)")
        conn.execute("delete from login where id = 1")
        conn.execute("update login set id = 3")
        capture(database, lake)
        apply(lake)
        conn.execute("update login set id = 4")
        capture(database, lake)
        apply(lake)
    refused = run_here(["forget", "login", "eve@example.org", "--reason", "x", "--lake", lake.root])
    assert (refused.code, "the columns that identify a row of public.login changed at" in refused.stderr) == (3, True)
    periods = RetentionPeriods((("public.login", AT_ONCE),), AT_ONCE, AT_ONCE)
    expire(lake, periods, "tests", lambda _: None)
    table = history_of(lake, TableName("public", "login"))
    left = [rows.to_pylist() for rows in (history_texts(Reader(lake, datetime.now(UTC)), table, "true"),)]
    assert "adam" in str(left)
    assert "eve" not in str([*left, *oracle.changes(lake)])
    assert run_here(["row", "login", "eve@example.org", "--lake", lake.root]).stdout == ""


def test_an_erased_key_comes_back_beside_an_equal_one(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are in one file of the history, with zeros of either sign."""
    settings: list[str | Path] = ["--source", database, "--engine", "duckdb", "--lake", tmp_path / "lake"]
    lake = Lake(tmp_path / "lake")
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table place (at float8[] primary key)")
        assert run_here(["bootstrap", *settings]).code == 0
        for change in ("insert into place values ('{-0}')", "delete from place"):
            conn.execute(change.encode())
        capture(database, lake)
        apply(lake)
        assert run_here(["forget", "place", "{-0}", "--reason", "x", "--lake", lake.root]).code == 0
        for change in ("insert into place values ('{0}')", "update place set at = '{-0}'", "delete from place"):
            conn.execute(change.encode())
        capture(database, lake)
        apply(lake)
    monkeypatch.setattr(returned, "_changed", lambda *_: ())
    done = run_here(["forget", "--returned", "--json", "--lake", lake.root])
    assert (done.code, [json.loads(line)["key"] for line in done.stdout.splitlines()]) == (3, [["{-0}"]])
