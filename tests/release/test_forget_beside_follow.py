"""Erasures beside a running follow, while others write: nothing ends, nothing else changes, nothing comes back."""

from functools import partial
from pathlib import Path

import psycopg
import pytest

from auditlake.delta.data_files import check_files
from auditlake.delta.log_reader import list_newest
from auditlake.verify.lake_files import tables_of
from tests import command, oracle
from tests.capture_lake import make_lake
from tests.erasure_lake import found_in
from tests.running import await_true
from tests.server import execute
from tests.writers import SCHEMA, TABLES, Writers

pytestmark = pytest.mark.pg
_PERSONS = 4
_TIMEOUT_S = 120


def _is_erased(forget: list[str | Path]) -> bool:
    """Try an erasure, which is refused until apply has what was changed at the source."""
    return command.run_here(forget).code == 0


def test_erasures_beside_follow(database: str, tmp_path: Path) -> None:
    """Each person is made anonymous at the source, then erased; every other state is PostgreSQL's."""
    with psycopg.connect(database) as conn:
        conn.execute(SCHEMA)
    execute(database, "create table person (id int primary key, name text, city text)")
    lake = make_lake(database, tmp_path / "lake")
    settings: list[str | Path] = ["--source", database, "--lake", lake.root]
    moments = list[oracle.Moment]()
    with Writers(database) as writers, command.following(settings, {}):
        for number in range(_PERSONS):
            name = f"Mechthild Nummer {number:06}"
            execute(database, f"insert into person values ({number}, '{name}', 'Ulm')")
            writers.await_transactions(20)
            execute(database, f"update person set name = 'gone', city = 'Bonn' where id = {number}")
            moments.append(oracle.take_moment(database, TABLES))
            forget: list[str | Path] = [
                "forget",
                "person",
                str(number),
                "--columns",
                "name",
                "--reason",
                "test",
                "--lake",
                lake.root,
            ]
            await_true(partial(_is_erased, forget), _TIMEOUT_S)
            assert found_in(lake, (name,)) == {}
    assert command.run_here(["capture", "--until-current", *settings]).code == 0
    assert command.run_here(["apply", "--until-current", "--lake", lake.root]).code == 0
    assert found_in(lake, ("Mechthild",)) == {}
    assert all(oracle.assert_histories_at(lake, moments))
    for _, place in tables_of(lake):
        assert check_files(place, list_newest(place).newest) == ()
