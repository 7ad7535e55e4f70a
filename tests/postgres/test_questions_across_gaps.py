"""Audit questions across a gap of a table, and of all tables: a trigger in PostgreSQL records who did what.

In the gap mallory and bob change rows of `accounts`: one is changed and changed back, one keeps another value, one is
deleted, and one is there only inside. Before it ann has changed rows, after it eve.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

import auditlake
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.mcp_server import AnswerLimits, Tools
from auditlake.messages import noted
from tests.command import Done, run_here
from tests.page import Page
from tests.server import Server, execute

pytestmark = pytest.mark.pg

_BEFORE = """
create table accounts (id int primary key, iban text, w text);
insert into accounts select n, 'DE' || n, '5' from generate_series(1, 6) n;
create schema truth;
create table truth.did (n bigserial primary key, actor text, op text, id int, changed text[]);
create function truth.record() returns trigger language plpgsql security definer as $$
declare was jsonb := to_jsonb(old); is_now jsonb := to_jsonb(new);
begin
  insert into truth.did (actor, op, id, changed) select current_setting('test.actor', true), tg_op,
    coalesce((is_now ->> 'id')::int, (was ->> 'id')::int), array(select name from
    jsonb_object_keys(coalesce(is_now, was)) name where was -> name is distinct from is_now -> name);
  return null;
end $$;
create trigger recorded after insert or update or delete on accounts for each row execute function truth.record()
"""
_ANN = "update accounts set iban = 'right' where id in (1, 2, 4)", "delete from accounts where id = 6"
_MALLORY = (
    "update accounts set iban = 'wrong' where id in (1, 4)",
    "delete from accounts where id = 5",
    "insert into accounts values (7, 'stolen', '7')",
    "delete from accounts where id = 7",
)
_BOB = ("update accounts set iban = 'right' where id = 1",)
_EVE = "update accounts set iban = 'new' where id = 2", "insert into accounts values (8, 'eight', '8')"


_LACKS = "; the answer may lack what happened then"


@dataclass(frozen=True)
class Site:
    """A lake with one gap, and the LSN before it."""

    dsn: str
    root: Path
    before: Lsn
    is_whole: bool

    @property
    def lake(self) -> auditlake.Lake:
        """The lake."""
        return auditlake.Lake(self.root)

    def run(self, *line: str) -> Done:
        """Run a command on the lake; it answers."""
        done = run_here([*line, "--lake", self.root])
        assert done.code == 0, done
        return done

    def told(self, *line: str) -> list[str]:
        """Return what a command says of gaps on stderr."""
        lines = self.run(*line).stderr.splitlines()
        return [line.removeprefix("auditlake: ") for line in lines if line.endswith(_LACKS)]

    @property
    def whose(self) -> str:
        """The tables that have the gap."""
        return "public.accounts, truth.did are" if self.is_whole else "public.accounts is"

    def notice(self, whose: str = "public.accounts is") -> str:
        """Return what is said beside an answer that has a part in the gap."""
        (gap,) = self.lake.row("accounts", 7).gaps
        return f"{whose} not known between {gap.lsn_from} and {gap.lsn_to}: {gap.reason}{_LACKS}"

    def set_by(self, key: int, column: str) -> str | None:
        """Return who set the value of a column last, as PostgreSQL has recorded it; None if it was before."""
        sql = f"select actor from truth.did where id = {key} and '{column}' = any(changed) and op <> 'DELETE'"
        with psycopg.connect(self.dsn) as conn:
            row = conn.execute(f"{sql} order by n desc limit 1".encode()).fetchone()
        return None if row is None else row[0]


def _act(dsn: str, actor: str, statements: tuple[str, ...]) -> None:
    for each in statements:
        context = f"select pg_logical_emit_message(true, 'auditlake', '{{\"actor\":\"{actor}\"}}')"
        execute(dsn, f"set test.actor = '{actor}'; begin; {context}; {each}; commit")


@pytest.fixture(scope="module", params=["of a table", "of all tables"])
def site(request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A lake whose table was rewritten, or whose slot was lost."""
    name, root = server.create_database(), tmp_path_factory.mktemp("gaps") / "lake"
    dsn = server.dsn(name)
    given = ["--source", dsn, "--lake", str(root), "--slot", name, "--publication", name]
    follow = ["follow", "--until-current", "--engine", "duckdb", *given]
    execute(dsn, _BEFORE)
    assert run_here(["bootstrap", *given]).code == 0
    _act(dsn, "ann", _ANN)
    assert run_here(follow).code == 0
    before = auditlake.Lake(root).as_of().lsn
    if request.param == "of a table":
        execute(dsn, "alter table accounts alter w type int using w::int")
    else:
        execute(dsn, f"select pg_drop_replication_slot('{name}')")
    _act(dsn, "mallory", _MALLORY)
    _act(dsn, "bob", _BOB)
    if request.param == "of all tables":
        assert run_here(["resync", "--all", "--yes", "--engine", "duckdb", *given]).code == 0
    assert run_here(follow).code == 0
    _act(dsn, "eve", _EVE)
    assert run_here(follow).code == 0
    yield Site(dsn, root, before, request.param == "of all tables")
    server.drop_database(name)


def test_blame_names_no_author_from_before_a_gap(site: Site) -> None:
    """The value may have been set in it, or set again; whoever set it after the gap, or before a moment, is named."""
    for key in (1, 2, 3, 4, 8):
        for each in site.lake.blame("accounts", key):
            assert each.gap is not None or each.commit.actor == site.set_by(key, each.column), (key, each)
    found = {key: {each.column: each for each in site.lake.blame("accounts", key)} for key in (1, 2, 3, 4, 5, 8)}
    assert [name for name, each in found[2].items() if each.gap is None] == ["iban"]
    assert [each.gap for each in found[8].values()] == [None, None, None]
    (gap,) = {each.gap for key in (1, 3, 4, 5) for each in found[key].values()}
    assert gap is not None
    assert site.before <= gap.lsn_from < gap.lsn_to
    earlier = site.lake.blame("accounts", 1, as_of=str(site.before))
    assert [(each.column, each.gap, each.commit.actor) for each in earlier] == [
        ("id", None, None),
        ("iban", None, "ann"),
        ("w", None, None),
    ]


def test_every_surface_shows_that_the_author_is_unknown(site: Site) -> None:
    """The command, its JSON, the tool and the page; a value from before capture is not said to be one."""
    text = site.run("blame", "accounts", "1").stdout
    assert text.count("unknown: set or kept in the gap ") == 3
    assert "ann" not in text
    assert "before capture" not in text
    json_lines = site.run("blame", "accounts", "1", "--json").stdout.splitlines()
    tool = Tools(site.lake, AnswerLimits(10)).blame("accounts", 1)["found"]
    answer = Page(Lake(site.root)).json("row", table="accounts", key="1")["blame"]
    html = Page(Lake(site.root)).get("/row", table="accounts", key="1").text
    assert html.count("unknown: set or kept in the gap ") == 3
    answers: list[Sequence[Mapping[str, Any]]] = [list(map(json.loads, json_lines)), tool, answer]
    for found in answers:
        states = [(each["actor"], each["before_capture"], each["gap"]["op"]) for each in found]
        assert states == [(None, False, "gap")] * 3


def test_log_and_deleted_say_what_they_lack(site: Site) -> None:
    """What PostgreSQL had in the period and the answer has not is in a gap that every surface names, once."""
    accounts = ("--table", "accounts")
    of_all: list[tuple[str, ...]] = [
        ("log", "-n", "0"),
        ("log", "--actor", "nobody", "--json"),
        ("log", "--since", str(site.before)),
    ]
    assert {line: site.told(*line) for line in of_all} == {key: [site.notice(site.whose)] for key in of_all}
    of_one: list[tuple[str, ...]] = [
        ("log", *accounts),
        ("log", *accounts, "--key", "1"),
        ("log", *accounts, "--column", "iban"),
        ("deleted", "accounts"),
        ("blame", "accounts", "6"),
        ("blame", "accounts", "99"),
    ]
    assert {line: site.told(*line) for line in of_one} == {key: [site.notice()] for key in of_one}
    assert site.lake.log().notes == (site.notice(site.whose),)
    assert site.lake.deleted("accounts").notes == site.lake.blame("accounts", 99).notes == (site.notice(),)
    with noted() as notes:
        Tools(site.lake, AnswerLimits(10)).deleted("accounts")
    assert notes == [site.notice()]
    page = Page(Lake(site.root))
    assert page.json("log")["notes"] == [site.notice(site.whose)]
    assert page.json("log", table=["accounts"])["notes"] == [site.notice()]
    assert page.json("row", table="accounts", key="99")["notes"] == [site.notice()]
    stolen = page.json("find", table="accounts", value="stolen")
    assert (stolen["found"], stolen["notes"]) == ([], [site.notice()])
    assert site.notice().split(": ")[0] in page.get("/log", table="accounts").text


def test_answers_outside_of_a_gap_say_nothing_of_it(site: Site) -> None:
    """Before it, after it, and in the last transactions, which do not reach back to it."""
    before, (gap,) = str(site.before), site.lake.row("accounts", 7).gaps
    after = str(Lsn(gap.lsn_to + 1))
    for line in (
        ("log", "--until", before),
        ("log", "--since", after),
        ("log", "-n", "1"),
        ("deleted", "accounts", "--as-of", before),
        ("deleted", "accounts", "--since", after),
        ("blame", "accounts", "6", "--as-of", before),
        ("blame", "accounts", "8"),
    ):
        assert site.told(*line) == [], line
    last = site.lake.log(limit=1)
    assert ([each.actor for each in last], last.notes) == (["eve"], ())
    (newest,) = Page(Lake(site.root)).json("log", limit="1")["transactions"]
    assert newest["actor"] == "eve"
    assert Page(Lake(site.root)).json("log", limit="1")["notes"] == []


def test_a_key_of_a_gap_is_not_said_to_be_of_no_row(site: Site) -> None:
    """Row 7 was there inside, as PostgreSQL has recorded."""
    with psycopg.connect(site.dsn) as conn:
        row = conn.execute("select actor from truth.did where id = 7 and op = 'INSERT'").fetchone()
    assert row == ("mallory",)
    for command, until in (("row", "--until"), ("blame", "--as-of")):
        told = site.run(command, "accounts", "7").stderr
        assert "had this key at any moment from" in told
        assert ", except in its gaps, where that is not known\n" in told
        told = site.run(command, "accounts", "7", until, str(site.before)).stderr
        assert told.endswith(f" to {site.before}\n")
    html = Page(Lake(site.root)).get("/row", table="accounts", key="7").text
    assert "no row had this key up to this moment, except in its gaps" in html


def test_sql_over_the_log_says_what_is_missing(site: Site) -> None:
    """For `transactions` and `changes`; the tables themselves refuse such a moment."""
    for name in ("transactions", "changes"):
        told = site.told("sql", "--engine", "duckdb", f"select count(*) as n from auditlake.{name}")
        assert told == [f"auditlake.{name}: {site.notice(site.whose)}"]
    assert site.told("sql", "--engine", "duckdb", "select count(*) as n from auditlake.gaps") == []
