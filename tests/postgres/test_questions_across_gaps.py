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


@dataclass(frozen=True)
class Site:
    """A lake with one gap, and the LSN before it."""

    dsn: str
    root: Path
    before: Lsn

    @property
    def lake(self) -> auditlake.Lake:
        """The lake."""
        return auditlake.Lake(self.root)

    def run(self, *line: str) -> Done:
        """Run a command on the lake; it answers."""
        done = run_here([*line, "--lake", self.root])
        assert done.code == 0, done
        return done

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
    yield Site(dsn, root, before)
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
