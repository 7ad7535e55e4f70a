"""Schema changes while tables are followed: every answer equals what PostgreSQL showed at that LSN, or is refused.

One walk makes every change of docs/schema-changes.md, each in a schema of its own and without a row after it; the other
random changes with rows between them (`tests/random_ddl.py`), beneath a running `follow`; the third random changes for
each kind of publication, beneath a `capture` that is killed again and again. Afterwards every table is asked for as of
moments before, right after and long after each change. No answer may be wrong, and many must be right.
"""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psycopg
import pytest

from auditlake.apply.apply import apply_pending
from auditlake.lake.layout import Lake
from auditlake.temporal.moments import read_known
from tests import command
from tests.capture_lake import make_lake
from tests.crash.killed import SPARK
from tests.random_ddl import SCHEMAS, SETUP, Conn, RandomDdl
from tests.release.test_schema_changes import SCHEMA, STATEMENTS
from tests.running import await_true
from tests.server import install_trigger
from tests.shape_oracle import Moment, Verdict, ask_python, ask_sql, compare, observe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.crash, pytest.mark.timeout(1800)]

_EVERYTHING = "create publication auditlake for all tables with (publish_via_partition_root = true)"
_STOP_S = 300
_STEPS, _PAUSES_S = 60, (0, 0, 0.3, 1, 4)
_RIGHT = {True: 220, False: 180}
# Half of the least that a busy machine answered in five runs, when follow was not waited for.
_RIGHT_RANDOM = {True: 60, False: 20}
_PUBLICATIONS = {
    "all tables": _EVERYTHING,
    "partitions": "create publication auditlake for all tables with (publish_via_partition_root = false)",
    "schemas": _EVERYTHING.replace("all tables", "tables in schema shapes, others"),
    "listed": "",  # by bootstrap
}
_LOCKED = 6
_SETTLED_EVERY, _SETTLED_S, _POLL_S = 12, 30.0, 0.2
_RIGHT_KILLED = 15  # half of the least of 20 runs
_KILLED_STEPS, _LIVES_S, _COPIED_EVERY = 40, (0.8, 3.0), 8


def _seed() -> str:
    """Return the seed of a walk, and print it, which is shown if the test fails."""
    seed = os.environ.get("AUDITLAKE_PROPERTY_SEED") or str(random.SystemRandom().randrange(10**6))
    print(f"AUDITLAKE_PROPERTY_SEED={seed}")  # noqa: T201
    return seed


@contextmanager
def _followed(dsn: str, folder: Path) -> Iterator[Lake]:
    """Run `follow` for the duration of a context, then once more up to the end of the log."""
    lake = Lake(folder / "lake")
    line: list[str | Path] = ["--source", dsn, "--lake", lake.root]
    assert command.run(["bootstrap", *line], SPARK).code == 0
    with (folder / "follow.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "auditlake", "follow", *map(str, line)],
            env={**os.environ, **SPARK},
            stdout=log,
            stderr=log,
        )
        try:
            yield lake
            process.terminate()
            assert process.wait(_STOP_S) == 0, (folder / "follow.log").read_text()[-3000:]
        finally:
            process.kill()
            process.wait()
    settled = command.run(["follow", "--until-current", *line], SPARK)
    assert settled.code in {0, 3}, settled.stderr  # 3: a table is parked


def _prepare(dsn: str, schema: str, *, with_trigger: bool, publication: str = _EVERYTHING) -> Conn:
    conn = psycopg.connect(dsn, autocommit=True)
    conn.execute(schema.encode())
    if publication:
        conn.execute(publication.encode())
    if with_trigger:
        install_trigger(dsn)
    return conn


@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
def test_every_kind_of_change_is_answered_right_or_refused(
    database_of_version: str, tmp_path: Path, *, with_trigger: bool
) -> None:
    """No rows after a change, and nothing applied."""
    dsn, lake = database_of_version, Lake(tmp_path / "lake")
    schemas = [f"k{number:02}" for number in range(len(STATEMENTS))]
    setup = "".join(f"create schema {schema}; set search_path = {schema}; {SCHEMA}" for schema in schemas)
    seen = [*schemas, *(f"{schema}_elsewhere" for schema in schemas)]
    verdict = Verdict()
    with closing(_prepare(dsn, setup, with_trigger=with_trigger)) as conn:
        _run("bootstrap", dsn, lake)
        moments = [observe(conn, seen, "nothing")]
        for schema, (kind, change) in zip(schemas, STATEMENTS.items(), strict=True):
            conn.execute(f"set search_path = {schema}".encode())
            for statement in [change] if "begin" in change else change.split("; "):
                here = statement.replace("schema public", f"schema {schema}")
                conn.execute(here.replace("elsewhere", f"{schema}_elsewhere").encode())
            moments.append(observe(conn, seen, kind))
            _run("capture", dsn, lake, "--until-current")
    for number, schema in enumerate(schemas):
        chosen = [moments[at] for at in sorted({number, number + 1, len(moments) - 1})]
        compare(lake, [_of(moment, schema) for moment in chosen], ask_sql("duckdb"), verdict)
    print(verdict, verdict.refused)  # noqa: T201 - shown if the test fails
    assert verdict.wrong == []
    assert verdict.right >= _RIGHT[with_trigger]


def _run(what: str, dsn: str, lake: Lake, *options: str) -> None:
    done = command.run_here([what, "--source", dsn, "--lake", lake.root, *options])
    assert done.code == 0, done.stderr


def _of(moment: Moment, schema: str) -> Moment:
    """Return a moment with the tables of one change."""
    tables = {name: shown for name, shown in moment.tables.items() if name.schema.startswith(schema)}
    return Moment(moment.lsn, moment.after, tables)


def _await_snapshots(lake: Lake) -> None:
    """Wait until follow has copied every parked table again that it can, or tried for a while: no load decides that."""
    deadline = time.monotonic() + _SETTLED_S
    while time.monotonic() < deadline and any(each.is_renewed for each in read_known(lake).parked.values()):
        time.sleep(_POLL_S)


@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
def test_random_changes_are_answered_right_or_refused(
    database_of_version: str, tmp_path: Path, *, with_trigger: bool
) -> None:
    """AUDITLAKE_PROPERTY_SEED repeats the changes; what follow has seen of them by then depends on the machine."""
    chance, dsn = random.Random(_seed()), database_of_version  # noqa: S311 - no secret
    with closing(_prepare(dsn, SETUP, with_trigger=with_trigger)) as conn:
        conn.execute("set lock_timeout = '3s'")
        ddl = RandomDdl(conn, chance)
        with _followed(dsn, tmp_path) as lake:
            moments = [observe(conn, SCHEMAS, "nothing")]
            for step in range(_STEPS):
                moments.append(observe(conn, SCHEMAS, ddl.step()))
                time.sleep(chance.choice(_PAUSES_S))
                if step % _SETTLED_EVERY == _SETTLED_EVERY - 1:
                    _await_snapshots(lake)
        verdict = Verdict()
        compare(lake, moments, ask_sql("duckdb"), verdict)
    print(verdict, verdict.refused, ddl.made)  # noqa: T201 - shown if the test fails
    assert verdict.wrong == []
    assert verdict.right >= _RIGHT_RANDOM[with_trigger]


class _KilledCapture(threading.Thread):
    """Runs `capture`, kills it at random moments, and runs it again; it ends at once while bootstrap captures.

    On a busy machine it is killed before it has read anything, many times in a row, and all tables are parked at once.
    """

    def __init__(self, dsn: str, lake: Lake, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._line: list[str | Path] = ["capture", "--source", dsn, "--lake", lake.root]
        self._chance = chance
        self._ended = threading.Event()
        self._wanted = threading.Event()
        self.kills = 0

    def renew(self) -> None:
        """Take new snapshots of parked tables, and let one capture read all that was committed; none is killed."""
        self._wanted.set()
        await_true(lambda: not self._wanted.is_set(), _STOP_S)

    def run(self) -> None:
        while not self._ended.is_set():
            with command.start(self._line) as process:
                self._ended.wait(self._chance.uniform(*_LIVES_S))
                assert process.poll() in {None, _LOCKED}, process.communicate()[1]
                process.kill()
            self.kills += 1
            if self._wanted.is_set():
                done = command.run([*self._line, "--until-current"])
                assert done.code == 0, done.stderr
                command.run(["resync", *self._line[1:]], SPARK)  # of tables that can be followed
                self._wanted.clear()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()


@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
@pytest.mark.parametrize("publication", _PUBLICATIONS)
def test_random_changes_beneath_a_killed_capture(
    database_of_version: str, tmp_path: Path, publication: str, *, with_trigger: bool
) -> None:
    """Nothing is applied; new tables are copied from time to time. AUDITLAKE_PROPERTY_SEED repeats the changes."""
    seed = _seed()
    dsn, lake, chance = database_of_version, Lake(tmp_path / "lake"), random.Random(seed)  # noqa: S311 - no secret
    verdict = Verdict()
    how = _PUBLICATIONS[publication]
    with closing(_prepare(dsn, SETUP, with_trigger=with_trigger, publication=how)) as conn:
        conn.execute("set lock_timeout = '3s'")
        _run("bootstrap", dsn, lake)
        ddl = RandomDdl(conn, chance)
        see = partial(observe, conn, SCHEMAS, partitions=publication == "partitions")
        moments = [see("nothing")]
        with _KilledCapture(dsn, lake, random.Random(f"{seed}/kills")) as killed:  # noqa: S311 - no secret
            for step in range(_KILLED_STEPS):
                moments.append(see(ddl.step()))
                time.sleep(chance.choice(_PAUSES_S[:-1]))
                if step % _COPIED_EVERY == _COPIED_EVERY - 1:
                    command.run(["bootstrap", "--source", dsn, "--lake", lake.root])  # of tables that can be followed
                    killed.renew()
    _run("capture", dsn, lake, "--until-current")
    compare(lake, moments, ask_python, verdict)
    print(verdict, verdict.refused, killed.kills, ddl.made)  # noqa: T201 - shown if the test fails
    assert verdict.wrong == []
    assert verdict.right >= _RIGHT_KILLED
    assert killed.kills


def test_rows_before_and_after_a_dropped_column_are_applied(
    database: str, tmp_path: Path, spark: "SparkSession"
) -> None:
    """A table without a key; in one transaction an unchanged TOAST value is left out, and then its column dropped."""
    changes = (
        "alter table t add c int",
        "alter table t drop a",
        "insert into t values (1, repeat('x', 3000))",
        "insert into t values (1, 'y')",
        "begin; update t set n = 2; alter table t drop b; update t set c = 5; commit",
        "insert into t values (3)",
    )
    schema = "create table t (n int, a text, b text); alter table t alter b set storage external;"
    moments, verdict = [], Verdict()
    with closing(psycopg.connect(database, autocommit=True)) as conn:
        conn.execute(f"{schema} alter table t replica identity full".encode())
        lake = make_lake(database, tmp_path / "lake")
        install_trigger(database)
        for change in changes:
            conn.execute(change.encode())
            moments.append(observe(conn, ["public"], change))
        _run("capture", database, lake, "--until-current")
    assert apply_pending(lambda: spark, lake).parked == {}
    compare(lake, moments, ask_sql("duckdb"), verdict)
    assert (verdict.wrong, verdict.refused.total()) == ([], 0)
