"""Columns that are renamed while no row changes, found in the catalog: now shows the names that they have now."""

from pathlib import Path

import pytest

import auditlake
from tests import command
from tests.server import execute

pytestmark = pytest.mark.pg

_EXCHANGE = "alter table t rename id to x; alter table t rename other to id; alter table t rename x to other"


def test_now_shows_the_names_after_a_change_without_rows(database: str, tmp_path: Path) -> None:
    """Two columns exchange their names, so the former ones would be wrong and not only old."""
    settings = ["--source", database, "--lake", str(tmp_path / "lake")]
    execute(database, "create table t (id int primary key, other int)", "insert into t values (1, 10)")
    assert command.run_here(["bootstrap", *settings]).code == 0
    execute(database, f"begin; {_EXCHANGE}; commit")
    assert command.run_here(["follow", "--until-current", *settings]).code == 0
    assert list(auditlake.Lake(tmp_path / "lake").as_of().table("t").texts()) == [{"other": "1", "id": "10"}]
    done = command.run_here(["sql", "--lake", str(tmp_path / "lake"), "--format", "json", "select id, other from t"])
    assert done.stdout.splitlines() == ['{"id": 10, "other": 1}'], done.stdout + done.stderr
