"""Tables of the source in the schema `auditlake`, which is the lake's own in questions: not copied, but named."""

import json
import threading
from pathlib import Path

import pytest

from auditlake.lake.layout import Lake
from auditlake.snapshot import new_tables
from auditlake.snapshot.bootstrap import Target
from tests import command
from tests.server import execute

pytestmark = pytest.mark.pg

_SHADOWING = (
    "create schema auditlake",
    "create table auditlake.gaps (id int primary key)",
    "insert into auditlake.gaps values (7)",
    "create table orders (id int primary key)",
    "insert into orders values (1)",
)


def settings_of(database: str, folder: Path, *, for_all_tables: bool) -> list[str]:
    """Make the tables; return the arguments of commands, for a publication of bootstrap's, or of every table."""
    execute(database, *_SHADOWING)
    if for_all_tables:
        execute(database, "create publication auditlake for all tables")
    return ["--source", database, "--lake", str(folder / "lake")]


@pytest.fixture(params=["ours", "for all tables"])
def settings(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> list[str]:
    """The arguments of commands, for each publication."""
    return settings_of(database, tmp_path, for_all_tables=request.param == "for all tables")


def _reports(settings: list[str]) -> list[str]:
    """Look for new tables once, as `follow` does; return what it says."""
    said: list[str] = []
    target = Target(settings[1], Lake(Path(settings[3])), "auditlake", "auditlake", None, failover=False)
    looks = new_tables._Looks(new_tables.Job(target, {}), threading.Event(), lambda line: said.append(str(line)))  # noqa: SLF001
    looks.look()
    looks.look()
    looks.close()
    return said


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_they_are_left_out_by_name(database: str, tmp_path: Path) -> None:
    """Although the publication carries them; `tests/release` has one of bootstrap's."""
    check_left_out(settings_of(database, tmp_path, for_all_tables=True))


def check_left_out(settings: list[str]) -> None:
    """By `check`, `bootstrap`, `follow` and `status`; the names mean the lake's tables, and the others are copied."""
    checked = command.run_here(["check", *settings])
    made = command.run_here(["bootstrap", *settings])
    assert made.code == 0
    for done in (checked, made):
        assert "auditlake.gaps is left out: the schema auditlake is the lake's own" in done.stdout + done.stderr
    execute(settings[1], "insert into auditlake.gaps values (8)", "insert into orders values (2)")
    assert command.run_here(["follow", "--until-current", *settings]).code == 0
    assert [each for each in _reports(settings) if each.startswith("auditlake.gaps is not followed: the schema")]
    lake = settings[2:]
    for table, rows in (("orders", "2"), ("auditlake.gaps", "0")):
        answer = command.run_here(["sql", *lake, "--format", "csv", f"select count(*) from {table}"])
        assert answer.stdout.split() == ["count", rows]
    refused = command.run_here(["row", *lake, "auditlake.gaps", "7"])
    assert refused.code == 2
    assert "auditlake.gaps is the lake's own table" in refused.stderr
    status = json.loads(command.run_here(["status", *settings, "--json"]).stdout)
    assert (status["new_tables"], status["unfollowed_tables"]) == ([], ["auditlake.gaps"])
    verified = command.run_here(["verify", *settings])
    assert verified.code == 0, verified.stdout + verified.stderr


def test_nothing_else_is_no_table_to_follow(database: str, tmp_path: Path) -> None:
    """The refusal says why."""
    execute(database, *_SHADOWING[:3])
    done = command.run_here(
        ["bootstrap", "--source", database, "--lake", str(tmp_path / "lake"), "--table", "auditlake.*"]
    )
    assert done.code != 0
    assert "auditlake.gaps, in the schema auditlake, which is the lake's own" in done.stderr


def test_a_table_that_is_moved_there_keeps_its_history(settings: list[str]) -> None:
    """It is reported; its changes are asked for by the former name, and by the new one refused."""
    assert command.run_here(["bootstrap", *settings]).code == 0
    execute(settings[1], "insert into orders values (2)")
    assert command.run_here(["follow", "--until-current", *settings]).code == 0
    execute(settings[1], "alter table orders set schema auditlake", "insert into auditlake.orders values (3)")
    assert command.run_here(["follow", "--until-current", *settings]).code == 0
    assert "auditlake.orders is followed on, but no question finds it by this name" in "\n".join(_reports(settings))
    lake = settings[2:]
    assert '"3"' in command.run_here(["row", *lake, "public.orders", "3", "--json"]).stdout
    for question in (["sql", *lake, "select * from auditlake.orders"], ["row", *lake, "auditlake.orders", "3"]):
        refused = command.run_here(question)
        assert refused.code == 2
        assert "auditlake.orders is in the schema auditlake, whose tables are the lake's own" in refused.stderr
