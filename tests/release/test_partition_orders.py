"""Two changes of a partitioned table in every order, with a look at the catalog between them or none.

Each pair has a schema of its own in one lake without the DDL trigger. A look is that of a capture that makes everything
durable, or of one that is killed before. PostgreSQL's rows and columns after each change are answered, or refused.
"""

from collections.abc import Mapping
from contextlib import closing
from itertools import product
from pathlib import Path
from threading import Event

import psycopg
import pytest

from auditlake.capture.preconditions import CaptureSource
from auditlake.capture.supervisor import open_capture
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from tests import command
from tests.shape_oracle import Conn, Moment, Verdict, ask_python, compare, observe

pytestmark = [pytest.mark.pg, pytest.mark.timeout(900)]

_SETUP = """
create table t (id int primary key, a text, b int) partition by range (id);
create table t_0 partition of t for values from (0) to (10);
create table t_1 partition of t for values from (10) to (20);
insert into t select n, 'a', n from generate_series(5, 14) n
"""
_CHANGES = {
    "attach": """create table t_2 (like t); insert into t_2 (id) values (20);
                 alter table t attach partition t_2 for values from (20) to (30)""",
    "truncate a partition": "truncate t_0",
    "add": "alter table t add d int default 5",
    "row": "update t set b = b + 1",
    "undone": "drop table t; rollback; begin",
    "undone rows": "insert into t select n from generate_series(0, 4) n; analyze t; rollback; begin",
}
_BETWEEN = ("nothing", "capture", "a killed capture")
_RIGHT = 40


def _look(dsn: str, lake: Lake, between: str) -> None:
    if between == "capture":
        assert command.capture_here(dsn, lake).code == 0
    elif between == "a killed capture":
        opened = open_capture(CaptureSource(dsn, require_manifest(lake)), lake, Event())
        opened._stop.set()  # noqa: SLF001 - it looks at the catalog when it is opened, and makes nothing durable
        opened.run(None)


def test_every_answer_after_two_changes_is_right_or_refused(database: str, tmp_path: Path) -> None:
    """A capture that is killed leaves only its records."""
    lake, moments = Lake(tmp_path / "lake"), dict[str, list[Moment]]()
    pairs = {f"k{n}": pair for n, pair in enumerate(product(_BETWEEN, _CHANGES, _CHANGES))}
    with closing(psycopg.connect(database, autocommit=True)) as conn:
        for schema in pairs:
            conn.execute(f"create schema {schema}; set search_path = {schema}; {_SETUP}".encode())
        assert command.run_here(["bootstrap", "--source", database, "--lake", lake.root]).code == 0
        for between in _BETWEEN:
            of_look = {schema: pair for schema, pair in pairs.items() if pair[0] == between}
            _change(conn, of_look, 1, moments)
            _look(database, lake, between)
            _change(conn, of_look, 2, moments)
    assert command.capture_here(database, lake).code == 0
    verdict = Verdict()
    for schema, pair in pairs.items():
        seen = len(verdict.wrong)
        compare(lake, moments[schema], ask_python, verdict)
        assert verdict.wrong[seen:] == [], pair
    print(verdict, verdict.refused)  # noqa: T201 - shown if the test fails
    assert verdict.right >= _RIGHT


def _change(
    conn: Conn, pairs: Mapping[str, tuple[str, str, str]], place: int, moments: dict[str, list[Moment]]
) -> None:
    """Make one change of each pair, unless PostgreSQL refuses it, and record what it shows then."""
    for schema, pair in pairs.items():
        try:
            conn.execute(f"set search_path = {schema}; begin; {_CHANGES[pair[place]]}; commit".encode())
        except psycopg.Error:
            conn.execute("rollback")
        moments.setdefault(schema, []).append(observe(conn, [schema], pair[place]))
