"""Schema changes beneath a running `follow`: every answer equals what PostgreSQL showed at that LSN, or is refused.

One walk makes every change of docs/schema-changes.md, each in a schema of its own and without a row after it; the other
random changes with rows between them (`tests/random_ddl.py`). Afterwards every table is asked for as of moments before,
right after and long after each change. No answer may be wrong, and many must be right.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from auditlake.lake.layout import Lake
from auditlake.source.connection import connect
from auditlake.source.ddl_trigger import install
from tests import command
from tests.crash.killed import SPARK
from tests.random_ddl import SCHEMAS, SETUP, Conn, RandomDdl
from tests.release.test_schema_changes import SCHEMA, STATEMENTS
from tests.server import Server
from tests.shape_oracle import Moment, Verdict, ask_sql, compare, observe

pytestmark = [pytest.mark.pg, pytest.mark.crash]

_EVERYTHING = "create publication auditlake for all tables with (publish_via_partition_root = true)"
_STOP_S = 300
_STEPS, _PAUSES_S = 60, (0, 0, 0.3, 1, 4)
_RIGHT = {True: 350, False: 300}
_RIGHT_RANDOM = {True: 60, False: 25}


@pytest.fixture(scope="module", params=[16, 18])
def of_version(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each version."""
    with Server(request.param) as running:
        yield running


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
    settled = command.run(["follow", "--until-current", *line], SPARK)
    assert settled.code in {0, 3}, settled.stderr  # 3: a table is parked


def _prepare(dsn: str, schema: str, *, with_trigger: bool) -> Conn:
    conn = psycopg.connect(dsn, autocommit=True)
    conn.execute(schema.encode())
    conn.execute(_EVERYTHING)
    if with_trigger:
        with connect(dsn) as control:
            install(control)
    return conn


@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
def test_every_kind_of_change_is_answered_right_or_refused(
    of_version: Server, tmp_path: Path, *, with_trigger: bool
) -> None:
    """No rows after a change."""
    name = of_version.create_database()
    schemas = [f"k{number:02}" for number in range(len(STATEMENTS))]
    setup = "".join(f"create schema {schema}; set search_path = {schema}; {SCHEMA}" for schema in schemas)
    moments: list[Moment] = []
    seen = [*schemas, *(f"{schema}_elsewhere" for schema in schemas)]
    with closing(_prepare(of_version.dsn(name), setup, with_trigger=with_trigger)) as conn:
        with _followed(of_version.dsn(name), tmp_path) as lake:
            moments.append(observe(conn, seen, "nothing"))
            for schema, (kind, change) in zip(schemas, STATEMENTS.items(), strict=True):
                conn.execute(f"set search_path = {schema}")
                for statement in [change] if "begin" in change else change.split("; "):
                    here = statement.replace("schema public", f"schema {schema}")
                    conn.execute(here.replace("elsewhere", f"{schema}_elsewhere").encode())
                moments.append(observe(conn, seen, kind))
                time.sleep(1)
        moments.append(observe(conn, seen, "everything"))
        verdict = Verdict()
        for number, schema in enumerate(schemas):
            chosen = [moments[at] for at in sorted({0, number, number + 1, number + 2, len(moments) - 1})]
            compare(lake, [_of(moment, schema) for moment in chosen], ask_sql("duckdb"), verdict)
    of_version.drop_database(name)
    print(verdict, verdict.refused)  # noqa: T201 - shown if the test fails
    assert verdict.wrong == []
    assert verdict.right >= _RIGHT[with_trigger]


def _of(moment: Moment, schema: str) -> Moment:
    """Return a moment with the tables of one change."""
    tables = {name: shown for name, shown in moment.tables.items() if name.schema.startswith(schema)}
    return Moment(moment.lsn, moment.after, tables)


@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
def test_random_changes_are_answered_right_or_refused(
    of_version: Server, tmp_path: Path, *, with_trigger: bool
) -> None:
    """AUDITLAKE_PROPERTY_SEED repeats the changes; what follow has seen of them by then depends on the machine."""
    seed = os.environ.get("AUDITLAKE_PROPERTY_SEED") or str(random.SystemRandom().randrange(10**6))
    name, chance = of_version.create_database(), random.Random(seed)  # noqa: S311 - no secret
    with closing(_prepare(of_version.dsn(name), SETUP, with_trigger=with_trigger)) as conn:
        conn.execute("set lock_timeout = '3s'")
        ddl = RandomDdl(conn, chance)
        with _followed(of_version.dsn(name), tmp_path) as lake:
            moments = [observe(conn, SCHEMAS, "nothing")]
            for _ in range(_STEPS):
                moments.append(observe(conn, SCHEMAS, ddl.step()))
                time.sleep(chance.choice(_PAUSES_S))
        verdict = Verdict()
        compare(lake, moments, ask_sql("duckdb"), verdict)
    of_version.drop_database(name)
    print(f"AUDITLAKE_PROPERTY_SEED={seed}", verdict, verdict.refused, ddl.made)  # noqa: T201
    assert verdict.wrong == []
    assert verdict.right >= _RIGHT_RANDOM[with_trigger]
