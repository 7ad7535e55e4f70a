"""Audit commands of a table whose key changes, and of one created again, against PostgreSQL's own states.

Random transactions in periods: with key `id`, then `n`, then both, then `id` and `n` in another table of the same name.
A row is known by `rid`, which never changes. As of the end of each period, `row`, `blame`, `deleted`, `log` and `diff`
mean the table and the key of that period, and report where their answers begin. They are asked while the changes of
the period are not applied, and again when all are.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from auditlake.apply.apply import apply_pending
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from tests.capture_once import capture
from tests.command import Done, run_here
from tests.random_seeds import random_seeds
from tests.server import Server, install_trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_CREATE = "create table t (id int primary key, n int not null, v text, rid int)"
_AGAIN = "create table t (rid int, v text, id int primary key, n int not null)"
# Each with a row after it, by which a lake without the trigger knows the transaction.
_ROW = "insert into t (id, n, v, rid) values ({0}, {0}, 'new key', {0})"
_BY_N = f"alter table t drop constraint t_pkey, add primary key (n); {_ROW.format(900)}"
_BY_BOTH = f"alter table t drop constraint t_pkey, add primary key (id, n); {_ROW.format(901)}"
_PERIODS = (("id",), ("n",), ("id", "n"), ("id",), ("n",))
_BEGINS = ("", _BY_N, _BY_BOTH, "", _BY_N)
_CREATED_AT = 3
# The row of the transaction that begins a period.
_FIRST = {1: {"900"}, 2: {"901"}, 4: {"900"}}
_STEPS = 14
_KEYS, _DIFFS = 5, 3  # questions of each kind in a period
_REFUSED = 7
# Answers of each command that every walk must compare.
_LEAST = {"row": 30, "log": 60, "blame": 10, "deleted": 9, "diff": 27}

Row = dict[str, str | None]
Key = tuple[str, ...]
Tally = Counter[tuple[str, int]]
"""Questions by command and exit code."""


@dataclass(frozen=True)
class State:
    """The rows by `rid` after a transaction, and which transaction wrote each; the LSN is after its commit."""

    lsn: Lsn
    rows: dict[str, Row]
    written: dict[str, str]


@dataclass(frozen=True)
class Event:
    """What one transaction did to a row."""

    step: int
    before: Row | None
    after: Row | None

    @property
    def told(self) -> tuple[int, str, dict[str, dict[str, str | None]]]:
        """Return what `row` shows of it."""
        sides = [("old", self.before), ("new", self.after)]
        values = {name: {s: row[name] for s, row in sides if row} for name in self.after or self.before or {}}
        changed = {name: each for name, each in values.items() if len(each) == 1 or each["old"] != each["new"]}
        return self.step, "insert" if not self.before else "update" if self.after else "delete", changed


class Walk:
    """Random transactions on a table, each of one statement, and the states of PostgreSQL after them."""

    def __init__(self, conn: psycopg.Connection[Any], seed: int) -> None:
        self._conn = conn
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._rid = 0
        self.states: list[State] = []

    def run(self, statement: str) -> None:
        """Run a transaction, and record the state after it; what a key refuses is left out."""
        try:
            self._conn.execute(statement.encode())
        except psycopg.errors.UniqueViolation:
            return
        found = self._conn.execute("select rid::text, id::text, n::text, v, xmin::text from t").fetchall()
        lsn = self._conn.execute("select pg_current_wal_insert_lsn()::text").fetchone()
        assert lsn is not None
        rows = {rid: {"id": key, "n": n, "v": v, "rid": rid} for rid, key, n, v, _ in found}
        written = {rid: xmin for rid, *_, xmin in found}
        self.states.append(State(Lsn(Lsn.parse(lsn[0]) - 1), rows, written))

    def step(self) -> None:
        """Run a random transaction."""
        key, other, column = self._chance.randrange(7), self._chance.randrange(7), self._chance.choice(("id", "n"))
        match self._chance.randrange(8):
            case 0 | 1 | 2:
                self._rid += 1
                self.run(f"insert into t (id, n, v, rid) values ({key}, {other}, 'v{other}', {self._rid})")
            case 3 | 4:
                self.run(f"update t set v = 'w{key}' where id = {other}")
            case 5 | 6:
                self.run(f"update t set {column} = {key} where id = {other}")
            case _:
                self.run(f"delete from t where id = {other}")


@dataclass(frozen=True)
class Period:
    """The transactions of one table with one key, and the states after them; the first one is from before."""

    number: int
    lake: Lake
    states: list[State]
    tally: Tally
    trigger: bool

    @property
    def key(self) -> Key:
        return _PERIODS[self.number]

    @property
    def lives(self) -> dict[str, list[Event]]:
        """What happened to each row."""
        found: dict[str, list[Event]] = {}
        for step, (was, now) in enumerate(pairwise(self.states), 1):
            for rid in was.rows.keys() | now.rows.keys():
                if was.written.get(rid) != now.written.get(rid):
                    found.setdefault(rid, []).append(Event(step, was.rows.get(rid), now.rows.get(rid)))
        return found

    def key_of(self, row: Row) -> Key:
        return tuple(str(row[name]) for name in self.key)

    @property
    def keys(self) -> dict[Key, set[str]]:
        """Every key, with the rows that had it."""
        found: dict[Key, set[str]] = {}
        for state in self.states:
            for rid, row in state.rows.items():
                found.setdefault(self.key_of(row), set()).add(rid)
        return found

    def step_of(self, lsn: str) -> int:
        return next(number for number, state in enumerate(self.states) if Lsn.parse(lsn) <= state.lsn)

    def run(self, *line: str) -> Done:
        """Run an audit command as of the end of the period."""
        until = "--as-of" if line[0] in {"deleted", "blame"} else "--until"
        return self._told(*line, until, str(self.states[-1].lsn))

    def _told(self, *line: str) -> Done:
        done = run_here([*line, "--json", "--lake", self.lake.root])
        self.tally[line[0], done.code] += 1
        return done

    def _may_be_refused(self, done: Done) -> bool:
        """Whether a question is about a moment after the last sign of a table that was dropped without the trigger."""
        unsure = self.number == _CREATED_AT - 1 and not self.trigger
        return unsure and (done.code, done.stdout) == (_REFUSED, "") and "it is known up to" in done.stderr

    def ask(self, *line: str) -> list[dict[str, Any]] | None:
        """Run an audit command, and check that it reports where its answer begins; None if it may not know it.

        Return its objects, without those of the transaction that begins the period.
        """
        done = self.run(*line)
        if self._may_be_refused(done):
            return None
        assert done.code == 0, (line, done)
        begun = re.search(r"changed at ([0-9A-F/]+): the answer starts there", done.stderr)
        assert (begun is not None) == (self.number not in {0, _CREATED_AT}), (line, done)
        assert begun is None or self.step_of(begun[1]) == 0, (line, done)
        if line[0] != "log":
            assert ("is another table since" in done.stderr) == (self.number >= _CREATED_AT), (line, done)
        return [each for each in _objects(done) if self.step_of(each["lsn"])]

    def check(self) -> None:
        """Compare the answers of every command with the states."""
        chance = random.Random(self.number)  # noqa: S311 - no secret
        keys = self.keys
        for key in chance.sample(sorted(keys), min(_KEYS, len(keys))):
            self._check_row(key, keys[key])
        there = sorted(self.states[-1].rows)
        for rid in chance.sample(there, min(_KEYS, len(there))):
            self._check_blame(rid, self.states[-1].rows[rid])
        self._check_deleted()
        for column in ("v", "id", "n"):
            self._check_column(column)
        for _ in range(_DIFFS):
            self._check_diff(*sorted(chance.sample(range(len(self.states)), 2)))

    def _check_row(self, key: Key, rids: set[str]) -> None:
        events = [event for rid in rids for event in self.lives.get(rid, [])]
        found = self.ask("row", "t", *key)
        if found is not None:
            told = [(self.step_of(each["lsn"]), each["op"], each["changed"]) for each in found]
            assert _in_order(told) == _in_order(event.told for event in events), (self.number, key)
        of_key = [e for e in events if any(row and self.key_of(row) == key for row in (e.before, e.after))]
        listed = self.ask("log", "--table", "t", *(f"--key={part}" for part in key), "-n", "0")
        assert listed is not None
        assert {self.step_of(each["lsn"]) for each in listed} == {e.step for e in of_key}, (self.number, key)

    def _check_blame(self, rid: str, row: Row) -> None:
        """Check who set each column; a value from before the period was set under another key, which is refused."""
        done = self.run("blame", "t", *self.key_of(row))
        expected = {name: self._last_set(rid, name) for name in row}
        if self._may_be_refused(done):
            return
        if done.code:
            assert (done.code, done.stdout) == (_REFUSED, "")
            assert None in expected.values(), (self.number, rid, done)
        else:
            found = {each["column"]: (each["value"], self.step_of(each["lsn"])) for each in _objects(done)}
            assert found == {name: (row[name], step) for name, step in expected.items()}, (self.number, rid)

    def _last_set(self, rid: str, column: str) -> int | None:
        """Return the step that set the value of a column, 0 for the transaction that begins the period."""
        for event in reversed(self.lives.get(rid, [])):
            if not event.before or (event.after or {}).get(column) != event.before[column]:
                return event.step
        return 0 if rid in _FIRST.get(self.number, ()) else None

    def _check_deleted(self) -> None:
        there = {self.key_of(row) for row in self.states[-1].rows.values()}
        ends = [life[-1] for life in self.lives.values() if life[-1].after is None]
        last = {self.key_of(e.before): (e.step, e.before) for e in sorted(ends, key=lambda e: e.step) if e.before}
        found = self.ask("deleted", "t")
        if found is not None:
            expected = [each for key, each in last.items() if key not in there]
            told = [(self.step_of(each["lsn"]), each["row"]) for each in found]
            assert _in_order(told) == _in_order(expected), self.number

    def _check_column(self, column: str) -> None:
        events = [each for life in self.lives.values() for each in life if each.before and each.after]
        steps = {e.step for e in events if (e.before or {})[column] != (e.after or {})[column]}
        found = self.ask("log", "--table", "t", "--column", column, "-n", "0")
        assert found is not None
        assert {self.step_of(each["lsn"]) for each in found} == steps, (self.number, column)

    def _check_diff(self, first: int, last: int) -> None:
        one, other = (self._by_key(self.states[step]) for step in (first, last))
        moments = [str(self.states[step].lsn) for step in (first, last)]
        done = self._told("diff", *moments, "t")
        if self._may_be_refused(done):
            return
        assert done.code == 0, (moments, done)
        objects = [each for each in _objects(done) if each["diff"] != "schema"]
        found = {(each["diff"], tuple(each["key"].values())): (each["from"], each["to"]) for each in objects}
        expected: dict[tuple[str, Key], tuple[Row | None, Row | None]] = {}
        for key in one.keys() | other.keys():
            was, now = one.get(key), other.get(key)
            if was is None or now is None:
                expected["removed" if was else "added", key] = was, now
            elif was != now:
                differ = [name for name in was if was[name] != now[name]]
                expected["modified", key] = {n: was[n] for n in differ}, {n: now[n] for n in differ}
        assert found == expected, (self.number, first, last)

    def _by_key(self, state: State) -> dict[Key, Row]:
        return {self.key_of(row): row for row in state.rows.values()}


def _in_order(found: Iterable[Any]) -> list[str]:
    """Sort objects whatever the order of their columns, which differs in the table created again."""
    return sorted(json.dumps(each, sort_keys=True) for each in found)


def _objects(done: Done) -> list[dict[str, Any]]:
    return [json.loads(each) for each in done.stdout.splitlines()]


@dataclass(frozen=True)
class Site:
    """A database with the table, and its lake."""

    dsn: str
    lake: Lake
    spark: "SparkSession"

    def bootstrap(self) -> None:
        """Copy the table."""
        line: list[str | Path] = ["bootstrap", "--table", "public.*", "--source", self.dsn, "--lake", self.lake.root]
        assert run_here(line).code == 0

    def apply(self) -> None:
        """Capture and apply everything."""
        capture(self.dsn, self.lake)
        apply_pending(lambda: self.spark, self.lake)

    def walk(self, seed: int, tally: Tally, *, trigger: bool) -> Iterator[Period]:
        """Yield each period while its changes are in the tail, then every one with all applied."""
        with closing(psycopg.connect(self.dsn, autocommit=True)) as conn:
            conn.execute(_CREATE.encode())
            self.bootstrap()
            if trigger:
                install_trigger(self.dsn)
            walk, periods = Walk(conn, seed), []
            for number, begin in enumerate(_BEGINS):
                if number == _CREATED_AT:
                    conn.execute(f"drop table t; {_AGAIN}".encode())
                    self.apply()
                    self.bootstrap()
                if begin == _BY_N:  # makes it unique
                    walk.run("update t set n = 50 + rid")
                first = len(walk.states)
                walk.run(begin or "select")
                self.apply()
                for _ in range(_STEPS):
                    walk.step()
                capture(self.dsn, self.lake)
                periods.append(Period(number, self.lake, walk.states[first:], tally, trigger))
                yield periods[-1]
        self.apply()
        yield from periods


@pytest.mark.parametrize("trigger", [True, False])
def test_audit_commands_mean_the_table_and_the_key_of_their_moment(
    server: Server, spark: "SparkSession", tmp_path: Path, *, trigger: bool
) -> None:
    """Every answer equals the states; blame refuses values from before a change of the key."""
    for seed in random_seeds():
        name, tally = server.create_database(), Tally()
        try:
            for period in Site(server.dsn(name), Lake(tmp_path / str(seed)), spark).walk(seed, tally, trigger=trigger):
                period.check()
        finally:
            server.drop_database(name)
        print(f"questions by command and exit code: {dict(tally)}")  # noqa: T201 - shown if the test fails
        for command, least in _LEAST.items():
            assert tally[command, 0] >= least, (command, tally)
