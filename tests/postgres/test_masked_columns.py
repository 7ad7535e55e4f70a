"""Masks of the MCP server follow a column through the life of its table: no tool shows a value of it by any name."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from auditlake.api.lake import Lake as LakeApi
from auditlake.audit.json_output import MASKED
from auditlake.errors import AuditlakeError
from auditlake.lake.layout import Lake
from auditlake.mcp_server import AnswerLimits, Tools
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.command import run_here

pytestmark = pytest.mark.pg

_LIFE = (
    "create table people (id int primary key, ssn text, note text)",
    "insert into people values (1, 'secret-1', 'seen'), (2, 'secret-2', 'seen')",
    "alter table people rename ssn to tax",
    "update people set tax = 'secret-3' where id = 1",
    "alter table people rename to persons",
    "delete from persons where id = 2",
    "alter table persons drop tax, add ssn text",
    "update persons set ssn = 'secret-4' where id = 1",
    "alter table persons rename ssn to code",
    "update persons set code = 'secret-5', note = 'seen too' where id = 1",
    "create table tax (id int primary key, ssn text)",
    "insert into tax values (1, 'other')",
)


def test_a_mask_follows_its_column(database: str, tmp_path: Path) -> None:
    """Asked as of every fifth moment; `tests/release` asks as of every one."""
    check_mask(database, tmp_path, every=5)


def check_mask(database: str, folder: Path, every: int) -> None:
    """Renamed, dropped and added again, in a table that is renamed: nothing is shown, and nothing can be derived."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(_LIFE[0])
        conn.execute(_LIFE[-2])
        lake = make_lake(database, folder / "lake")
        for statement in (*_LIFE[1:-2], _LIFE[-1]):
            conn.execute(statement)
            capture(database, lake)
    open_to_all = "\n".join(_answers(Tools(LakeApi(lake.root), AnswerLimits(100)), _moments(lake)[:2]))
    for number in range(1, 6):
        assert f"secret-{number}" in open_to_all
    tools = Tools(LakeApi(lake.root), AnswerLimits(100, ("public.people.ssn",)))
    masked = "\n".join(_answers(tools, _moments(lake)[::every]))
    assert "secret" not in masked
    for shown in (MASKED, "seen", "seen too", "other"):
        assert f'"{shown}"' in masked
    for name in ("ssn", "tax", "code"):
        for question in _deriving(tools, name):
            with pytest.raises(AuditlakeError, match="mask"):
                question()


def test_a_column_that_may_have_had_a_masked_name_is_masked(database: str, tmp_path: Path) -> None:
    """The catalog does not show which column a row had; a new copy knows the column by its last name only."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table people (id int primary key, ssn text)")
        lake = make_lake(database, tmp_path / "lake")
        conn.execute("insert into people (id, ssn) values (1, 'secret-0')")
        capture(database, lake)
        conn.execute("alter table people drop ssn, add ssn text")
        conn.execute("update people set ssn = 'secret-1'")
        capture(database, lake)
        conn.execute("alter table people rename ssn to code; alter table people add plain text")
        conn.execute("update people set code = 'secret-2', plain = 'seen'")
    capture(database, lake)
    parked = run_here(["apply", "--until-current", "--lake", lake.root])
    assert (parked.code, "does not show which columns id, ssn are" in parked.stderr) == (3, True)
    done = run_here(["resync", "--source", database, "--table", "people", "--lake", lake.root])
    assert done.code == 0, done.stderr
    tools = Tools(LakeApi(lake.root), AnswerLimits(100, ("public.people.ssn",)))
    (row,) = tools.rows("people")["found"]
    assert (row["id"], row["code"], row["plain"]) == ("1", MASKED, "seen")
    assert "secret" not in json.dumps(tools.row("people", {"id": 1}))


def test_a_mask_follows_a_partition_that_is_detached(database: str, tmp_path: Path) -> None:
    """Which is a table of its own, that a client had not seen before."""
    bootstrap: list[str | Path] = ["bootstrap", "--source", database, "--lake", tmp_path / "lake"]
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table people (id int, n int, ssn text, primary key (id, n)) partition by list (n)")
        conn.execute("create table people1 partition of people for values in (1)")
        conn.execute("insert into people values (1, 1, 'secret-1')")
        assert run_here(bootstrap).code == 0
        conn.execute("alter table people detach partition people1")
        conn.execute("alter publication auditlake add table people1")
    done = run_here(bootstrap)
    assert done.code == 0, done.stderr
    tools = Tools(LakeApi(tmp_path / "lake"), AnswerLimits(100, ("public.people.ssn",)))
    (row,) = tools.rows("people1")["found"]
    assert (row["id"], row["ssn"]) == ("1", MASKED)
    with pytest.raises(AuditlakeError, match="mask"):
        tools.sql("select ssn from people1")


def _moments(lake: Lake) -> list[str]:
    return [str(each.lsn) for each in LakeApi(lake.root).log(limit=None)]


def _answers(tools: Tools, moments: list[str]) -> Iterator[str]:
    """Yield what every tool answers about the table, by both of its names, as of every moment; refusals too."""
    for table in ("people", "persons"):
        yield from _answered(tools.row, table, {"id": 1})
        yield from _answered(tools.row, table, {"id": 2})
        yield from _answered(tools.deleted, table)
        for columns in ("*", "id, note", "ssn", "tax", "code", "t.tax as note", "_raw"):
            yield from _answered(tools.sql, f"select {columns} from {table} for system_time all t")
        for moment in moments:
            yield from _answered(tools.blame, table, {"id": 1}, moment)
            yield from _answered(tools.rows, table, moment)
            for columns in ("*", "tax as note", "code"):
                yield from _answered(tools.sql, f"select {columns} from {table}", moment)
    yield from _answered(tools.diff, moments[1], moments[0])
    yield from _answered(tools.log)
    yield from _answered(tools.rows, "tax")
    for columns in ("changes", "transactions"):
        yield from _answered(tools.sql, f"select * from auditlake.{columns}")


def _answered(tool: Callable[..., Any], *given: Any) -> Iterator[str]:
    try:
        yield json.dumps(tool(*given))
    except AuditlakeError as exc:
        yield f"{exc.message} {exc.hint}"


def _deriving(tools: Tools, name: str) -> Iterator[Callable[[], Any]]:
    """Yield questions whose answers depend on the values of a column."""
    for table in ("people", "persons"):
        yield partial(tools.log, table=table, column=name)
        yield partial(tools.log, table=table, key={name: "secret-1"})
        yield partial(tools.row, table, {name: "secret-1"})
        yield partial(tools.blame, table, {name: "secret-1"})
        yield partial(tools.rows, table, where=[(name, "is null", None)])
        yield partial(tools.rows, table, order_by=[f"-{name}"])
