"""Audit commands across schema changes, while every change is still in the tail, against PostgreSQL's own states.

A row is known by `rid`, which never changes, and a column by its attribute number. So what happened to a row follows
from the states that PostgreSQL shows after each step, whatever the table, its columns and its keys are called.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

import auditlake
from auditlake.errors import NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.command import Done, run_here
from tests.server import Server, install_trigger, oid_of

pytestmark = pytest.mark.pg

_STEPS = """
insert into t select n, n, 'a' || n, n from generate_series(1, 5) n
update t set a = 'second' where rid = 1
alter table t rename a to c
update t set c = 'third' where rid = 1
alter table t add d text default 'x'
update t set d = 'y' where rid = 2
delete from t where rid = 3
alter table t rename to u
update u set b = 20 where rid = 2
alter table u rename b to z; alter table u rename d to b; alter table u rename z to d
update u set b = 'swapped', d = 10 where rid = 1
alter table u drop c
insert into u values (3, 33, 30, 'again')
update u set d = 11 where rid = 1
alter table u alter d type bigint
update u set d = 5000000000 where rid = 2
delete from u where rid = 2
alter table u alter id type bigint
insert into u values (6000000000, 35, 60, 'of a wider key')
update u set b = 'wider' where rid = 35
alter table u rename id to key
update u set key = 7 where rid = 1
delete from u where rid = 4
create schema s
alter table u set schema s
insert into s.u values (1, 34, 40, 'of the former key')
alter table s.u add c int
update s.u set c = 3 where rid = 1
update s.u set b = 'swapped again', c = 0 where rid = 33
alter table s.u rename b to a; alter table s.u drop d
delete from s.u where rid in (5, 33)
delete from s.u where rid = 35
""".strip().splitlines()
_STATE = """
select a.attnum, a.attname, c.oid::regclass::text, coalesce(a.attnum = any (i.indkey), false)
  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
  join pg_index i on i.indrelid = c.oid and i.indisprimary
 where c.oid = %s order by a.attnum
"""
_RID = 2

Row = Mapping[int, str | None]


@dataclass(frozen=True)
class State:
    """The table after a step: names and values by attribute number, rows by `rid`."""

    lsn: Lsn
    table: str
    names: Mapping[int, str]
    key: int
    rows: Mapping[str, Row]

    def named(self, row: Row) -> dict[str, str | None]:
        """Return a row by the names of this moment."""
        return {name: row[attnum] for attnum, name in self.names.items() if attnum in row}


@dataclass(frozen=True)
class Happened:
    """What a step did to a row."""

    step: int
    before: Row | None
    after: Row | None


def _read_state(conn: psycopg.Connection[Any], oid: int) -> State:
    columns = conn.execute(_STATE, [oid]).fetchall()
    texts = ", ".join(f'"{name}"::text' for _, name, _, _ in columns)
    found = conn.execute(f"select {texts} from {columns[0][2]}").fetchall()
    rows = [dict(zip((attnum for attnum, *_ in columns), row, strict=True)) for row in found]
    lsn = conn.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert lsn is not None
    key = next(attnum for attnum, _, _, is_key in columns if is_key)
    names = {attnum: name for attnum, name, *_ in columns}
    return State(Lsn(Lsn.parse(lsn[0]) - 1), columns[0][2], names, key, {row[_RID]: row for row in rows})


class Walked:
    """A lake, and the states of PostgreSQL after each step; the first is empty."""

    def __init__(self, dsn: str, lake: Lake, states: list[State]) -> None:
        self.dsn = dsn
        self.lake = lake
        self.states = states

    @property
    def now(self) -> State:
        """The last state."""
        return self.states[-1]

    def ask(self, *line: str) -> list[dict[str, Any]]:
        """Run an audit command; return its objects."""
        done = self.run(*line, "--json")
        assert (done.code, done.stderr) == (0, ""), done
        return [json.loads(each) for each in done.stdout.splitlines()]

    def run(self, *line: str) -> Done:
        """Run an audit command."""
        return run_here([*line, "--lake", self.lake.root])

    def step_of(self, lsn: str) -> int:
        """Return the number of the step whose commit has this LSN."""
        return next(number for number, state in enumerate(self.states) if Lsn.parse(lsn) <= state.lsn)

    def life(self, rid: str) -> list[Happened]:
        """Return what happened to a row; a new or dropped column alone is nothing."""
        found = []
        for step, (was, now) in enumerate(pairwise(self.states), 1):
            before, after = was.rows.get(rid), now.rows.get(rid)
            both = (before or {}).keys() & (after or {}).keys()
            if (before is None) != (after is None) or any((before or {})[n] != (after or {})[n] for n in both):
                found.append(Happened(step, before, after))
        return found

    @property
    def rids(self) -> list[str]:
        """Every row that ever was."""
        return sorted({rid for state in self.states for rid in state.rows})

    def added_at(self, attnum: int) -> int:
        """Return the step that added a column; 0 if the table always had it."""
        return next(number for number, state in enumerate(self.states) if attnum in state.names)


@pytest.fixture(scope="module")
def walked(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    """Make a lake of an empty table, make the steps, capture once."""
    name = server.create_database()
    with closing(psycopg.connect(server.dsn(name), autocommit=True)) as conn:
        conn.execute("create table t (id int primary key, rid int, a text, b int)")
        lake = make_lake(server.dsn(name), tmp_path_factory.mktemp("shapes") / "lake")
        install_trigger(server.dsn(name))
        oid = oid_of(conn, "t")
        states = [_read_state(conn, oid)]
        for statement in _STEPS:
            conn.execute(statement.encode())
            states.append(_read_state(conn, oid))
    capture(server.dsn(name), lake)
    yield Walked(server.dsn(name), lake, states)
    server.drop_database(name)


def test_row_has_every_event_by_the_names_of_its_moment(walked: Walked) -> None:
    """The events of all rows that ever had a key, also of those that got or left it."""
    for key in ("1", "2", "3", "4", "5", "7", "6000000000"):
        rids = [r for r in walked.rids if any(key == s.rows[r][s.key] for s in walked.states if r in s.rows)]
        events = sorted((event for rid in rids for event in walked.life(rid)), key=lambda event: event.step)
        found = walked.ask("row", "s.u", key)
        assert [_told(walked, event) for event in events] == [
            (walked.step_of(each["lsn"]), each["op"], each["changed"]) for each in reversed(found)
        ]


def _told(walked: Walked, event: Happened) -> tuple[int, str, dict[str, dict[str, str | None]]]:
    state = walked.states[event.step]
    sides = [("old", event.before), ("new", event.after)]
    of_column = {n: {side: row[n] for side, row in sides if row is not None and n in row} for n in state.names}
    changed = {
        state.names[number]: values
        for number, values in of_column.items()
        if len(values) == 1 or values.get("old") != values.get("new")
    }
    return event.step, {0: "insert", 1: "delete", 2: "update"}[_case(event)], changed


def _case(event: Happened) -> int:
    return 0 if event.before is None else 1 if event.after is None else 2


def test_blame_names_the_commit_that_set_each_value(walked: Walked) -> None:
    """Also a value that came with its column, as of every moment."""
    for step, state in list(enumerate(walked.states))[4::3]:
        for rid, row in list(state.rows.items())[:2]:
            found = walked.ask("blame", state.table, str(row[state.key]), "--as-of", str(state.lsn))
            expected = {state.names[n]: (row[n], _set_at(walked, rid, n, step)) for n in row}
            assert {each["column"]: (each["value"], walked.step_of(each["lsn"])) for each in found} == expected, step


def _set_at(walked: Walked, rid: str, attnum: int, upto: int) -> int:
    def sets(event: Happened) -> bool:
        was, now = event.before, event.after
        return now is not None and (was is None or was.get(attnum) != now.get(attnum)) and event.step <= upto

    return max(*(event.step for event in walked.life(rid) if sets(event)), walked.added_at(attnum))


def test_deleted_rows_have_the_columns_of_their_moment(walked: Walked) -> None:
    """Rows whose key no row has, newest first."""
    there = {row[walked.now.key] for row in walked.now.rows.values()}
    last_of: dict[str | None, tuple[int, dict[str, str | None], dict[str, str | None]]] = {}
    for last in sorted((walked.life(rid)[-1] for rid in walked.rids), key=lambda event: event.step):
        state = walked.states[last.step]
        if last.after is None and last.before is not None and (key := last.before[state.key]) not in there:
            last_of[key] = (last.step, {state.names[state.key]: key}, state.named(last.before))
    found = [(walked.step_of(e["lsn"]), e["key"], e["row"]) for e in walked.ask("deleted", "s.u")]
    assert {"id", "key"} == {name for _, key, _ in last_of.values() for name in key}
    assert sorted(last_of.values(), key=str) == sorted(found, key=str)
    text = walked.run("deleted", "s.u").stdout
    assert all(str(value) in text for _, _, row in found for value in row.values() if value is not None)


def test_diff_compares_columns_that_both_moments_have(walked: Walked) -> None:
    """From each state to some later ones, by the names of the later moment."""
    for step in range(1, len(walked.states) - 1, 3):
        for later in {step + 1, step + 5, len(walked.states) - 1} & set(range(len(walked.states))):
            was, now = walked.states[step], walked.states[later]
            found = walked.ask("diff", str(was.lsn), str(now.lsn), now.table)
            rows = [(e["diff"], e["key"], e["from"], e["to"]) for e in found if e["diff"] != "schema"]
            assert sorted(rows, key=str) == sorted(_differences(was, now), key=str), (step, later)


def test_diff_returns_values_under_renamed_columns(walked: Walked) -> None:
    """In both directions, a modified row has the names of the later moment on both sides, and types of its own."""
    lake = auditlake.Lake(walked.lake.root)
    for was, now in [(walked.states[step], walked.states[-1]) for step in range(2, len(walked.states) - 1, 4)]:
        after = {row[now.key]: row for row in now.rows.values()}
        for way, moments in {1: (was.lsn, now.lsn), -1: (now.lsn, was.lsn)}.items():
            for each in lake.diff(*map(str, moments), tables=[now.table]):
                first, second = (each.before_texts, each.after_texts)[::way]
                if first is None or second is None:
                    continue
                last = after[second[now.names[now.key]]]
                before = next(row for row in was.rows.values() if row[was.key] == last[now.key])
                assert second == now.named(last)
                common = {now.names[n]: before[n] for n in before if n in now.names}
                assert {name: first[name] for name in common} == common
                typed = (each.before, each.after)[::way][0]
                assert typed is not None
                assert {name: None if typed[name] is None else str(typed[name]) for name in common} == common


def _differences(was: State, now: State) -> Iterator[tuple[str, dict[str, str | None], Any, Any]]:
    before = {row[was.key]: row for row in was.rows.values()}
    after = {row[now.key]: row for row in now.rows.values()}
    names = {**was.names, **now.names}
    for key in before.keys() | after.keys():
        one, other = before.get(key), after.get(key)
        named = {names[now.key]: key}
        if one is None or other is None:
            kind = "added" if one is None else "removed"
            yield kind, named, one and was.named(one), other and now.named(other)
            continue
        changed = [n for n in one if n in other and one[n] != other[n]]
        if changed:
            yield "modified", named, {names[n]: one[n] for n in changed}, {names[n]: other[n] for n in changed}


def test_the_log_of_a_table_has_every_step_under_all_its_names(walked: Walked) -> None:
    """Rows and schema changes; and for a column the steps that left another value in it."""
    found = {walked.step_of(each["lsn"]): each for each in walked.ask("log", "--table", "s.u", "-n", "0")}
    for step, (was, now) in enumerate(pairwise(walked.states), 1):
        kinds = [_case(event) for rid in walked.rids for event in walked.life(rid) if event.step == step]
        entry = found.pop(step, {"inserts": 0, "deletes": 0, "updates": 0, "schema_changes": []})
        assert [entry[name] for name in ("inserts", "deletes", "updates")] == [kinds.count(n) for n in range(3)], step
        reshaped = (was.table, was.names) != (now.table, now.names) or "type" in _STEPS[step - 1]
        assert bool(entry["schema_changes"]) == reshaped, step
    assert not found
    for attnum, name in walked.now.names.items():
        happened = [event for rid in walked.rids for event in walked.life(rid) if event.before and event.after]
        steps = {e.step for e in happened if (e.before or {}).get(attnum) != (e.after or {}).get(attnum)}
        listed = walked.ask("log", "--table", "s.u", "--column", name, "-n", "0")
        assert {walked.step_of(each["lsn"]) for each in listed} == steps, name


def test_a_state_has_only_the_names_of_its_moment(walked: Walked) -> None:
    """As of each step, by every name that the table ever had: its rows and columns, or a refusal."""
    for state in walked.states:
        moment = auditlake.Lake(walked.lake.root).as_of(str(state.lsn))
        rows = sorted((state.named(row) for row in state.rows.values()), key=str)
        for name in {each.table for each in walked.states} - {state.table}:
            with pytest.raises(NotAnswerable, match=state.table):
                moment.table(name)
        assert sorted((dict(row) for row in moment.table(state.table).texts()), key=str) == rows
        assert moment.tables() == [state.table if "." in state.table else f"public.{state.table}"]


def test_who_writes_the_first_row_in_a_new_shape_has_not_changed_it(database: str, tmp_path: Path) -> None:
    """Without the DDL trigger the change is in an entry of its own, with a range that has its commit."""
    run: list[str | Path] = ["--lake", tmp_path / "lake", "--source", database]
    positions = []
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key, a text, b text)")
        conn.execute("insert into t values (1, 'a', 'b')")
        assert run_here(["bootstrap", *run, "--slot", "shapes"]).code == 0
        for actor, statement in (("alice", "alter table t drop column b"), ("bob", "update t set a = 'x'")):
            positions.append(_written_upto(conn))
            with conn.transaction():
                conn.execute("select pg_logical_emit_message(true, 'auditlake', %s)", [json.dumps({"actor": actor})])
                conn.execute(statement.encode())
        positions.append(_written_upto(conn))
    assert run_here(["capture", "--until-current", *run]).code == 0
    entries = [json.loads(line) for line in run_here(["log", "--json", *run[:2]]).stdout.splitlines()]
    assert {entry["context"]["app"]["actor"]: entry["schema_changes"] for entry in entries if entry["xid"]} == {
        "alice": [],
        "bob": [],
    }
    (found,) = (entry["schema_changes"] for entry in entries if not entry["xid"])
    told = re.fullmatch(r"public\.t: column b was dropped, between (\S+) and (\S+)", *found)
    assert told is not None, found
    first, last = map(Lsn.parse, told.groups())
    assert first <= positions[0] <= positions[1] <= last <= positions[2]
    # That it is seen with bob's row takes nothing of that row from him.
    lake = auditlake.Lake(tmp_path / "lake")
    assert lake.row("t", 1)[0].commit.actor == "bob"
    assert {each.column: each.commit.actor for each in lake.blame("t", 1)} == {"id": None, "a": "bob"}
    (shown, *_) = run_here(["show", str(lake.row("t", 1)[0].commit.lsn), "--json", *run[:2]]).stdout.splitlines()
    assert (json.loads(shown)["actor"], json.loads(shown)["updates"]) == ("bob", 1)


def _written_upto(conn: psycopg.Connection[Any]) -> Lsn:
    row = conn.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0])
