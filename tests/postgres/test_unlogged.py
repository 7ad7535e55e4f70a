"""Tables that may have been unlogged for some time, of a publication FOR ALL TABLES: rows changed without a trace."""

from pathlib import Path

import pytest

import auditlake
from auditlake.errors import NotAnswerable
from auditlake.lsn import Lsn
from tests import command
from tests.server import execute, install_trigger, wal_end

pytestmark = pytest.mark.pg

_UNLOGGED = "alter table {0} set unlogged", "delete from {0} where id < 9", "alter table {0} set logged"


def _settings(dsn: str, root: Path, *, with_trigger: bool = False) -> list[str | Path]:
    """Make a lake of three tables: one with rows, one with rows and a TOAST table, one without rows."""
    execute(
        dsn,
        "create table small (id int primary key)",
        "create table large (id int primary key, v text)",
        "create table other (id int primary key)",
        "insert into small select generate_series(1, 9)",
        "insert into large select n, 'v' from generate_series(1, 9) n",
        "create publication auditlake for all tables",
    )
    if with_trigger:
        install_trigger(dsn)
    settings: list[str | Path] = ["--source", dsn, "--lake", root]
    assert command.run_here(["bootstrap", *settings]).code == 0
    return settings


def _capture(settings: list[str | Path]) -> None:
    done = command.run_here(["capture", "--until-current", *settings])
    assert done.code == 0, done.stderr


def _refusal(root: Path, table: str, lsn: Lsn | None = None) -> str:
    """Return the error for a table as of an LSN, or now; empty if it can be answered."""
    try:
        auditlake.Lake(root).as_of(str(lsn) if lsn else None).table(f"public.{table}")
    except NotAnswerable as refused:
        return refused.message
    return ""


def test_a_truncate_after_it_makes_only_the_moments_before_uncertain(database: str, tmp_path: Path) -> None:
    """From then on the stream has all rows."""
    settings = _settings(database, tmp_path / "lake")
    before = auditlake.Lake(tmp_path / "lake").as_of().lsn  # the server writes WAL by itself, too
    execute(database, "insert into other values (1)", *(each.format("small") for each in _UNLOGGED))
    execute(database, "insert into other values (2)")
    between = Lsn(wal_end(database) - 1)
    execute(database, "truncate small", "insert into small values (7)")
    _capture(settings)
    assert _refusal(tmp_path / "lake", "small", before) == ""
    assert "it may have been unlogged before it was truncated" in _refusal(tmp_path / "lake", "small", between)
    assert [*auditlake.Lake(tmp_path / "lake").as_of().table("public.small").texts()] == [{"id": "7"}]


@pytest.mark.parametrize("together", [True, False])
def test_another_toast_table_shows_it_also_after_a_truncate(database: str, tmp_path: Path, *, together: bool) -> None:
    """Rows that were written meanwhile may be there."""
    settings = _settings(database, tmp_path / "lake")
    lines = [*(each.format("large") for each in _UNLOGGED), "truncate large"]
    if together:
        lines = [
            (
                "begin; truncate large; alter table large set unlogged; insert into large values (5);"
                " alter table large set logged; commit"
            )
        ]
    execute(database, *lines)
    _capture(settings)
    assert "it was unlogged for some time" in _refusal(tmp_path / "lake", "large")


@pytest.mark.parametrize("statement", ["vacuum full large", "cluster large using large_pkey", "truncate large"])
def test_the_same_toast_table_shows_that_it_was_not(database: str, tmp_path: Path, statement: str) -> None:
    """So the history goes on, without a range that is refused; so it does if only the definition changed."""
    settings = _settings(database, tmp_path / "lake")
    execute(database, "insert into other values (1)")
    between = Lsn(wal_end(database) - 1)
    execute(database, statement, "alter table other add v int")
    _capture(settings)
    assert _refusal(tmp_path / "lake", "other") == ""
    assert _refusal(tmp_path / "lake", "large", between) == ""
    assert _refusal(tmp_path / "lake", "large") == ""


def test_a_trigger_that_was_installed_later_has_not_reported_it(database: str, tmp_path: Path) -> None:
    """Capture was away; what it finds then came before the trigger, or after it."""
    settings = _settings(database, tmp_path / "lake")
    execute(database, *(each.format("small") for each in _UNLOGGED))
    install_trigger(database)
    _capture(settings)
    assert "it was unlogged for some time" in _refusal(tmp_path / "lake", "small")


def test_a_trigger_that_was_disabled_for_some_time_has_not_reported_it(database: str, tmp_path: Path) -> None:
    """It is enabled again when capture looks."""
    settings = _settings(database, tmp_path / "lake", with_trigger=True)
    named = [f"auditlake_{event}" for event in ("table_rewrite", "sql_drop", "ddl_command_end")]
    execute(database, *(f"alter event trigger {name} disable" for name in named))
    execute(database, *(each.format("small") for each in _UNLOGGED))
    execute(database, *(f"alter event trigger {name} enable always" for name in named))
    _capture(settings)
    assert "it was unlogged for some time" in _refusal(tmp_path / "lake", "small")


def test_a_trigger_reports_a_file_that_vacuum_has_written(database: str, tmp_path: Path) -> None:
    """By its silence: the table was not unlogged."""
    settings = _settings(database, tmp_path / "lake")
    install_trigger(database)
    _capture(settings)
    execute(database, "vacuum full small")
    _capture(settings)
    assert _refusal(tmp_path / "lake", "small") == ""
