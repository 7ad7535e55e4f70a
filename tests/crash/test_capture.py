"""Test of a capture killed after each of its effects, with concurrent writers."""

from collections import Counter
from pathlib import Path

import psycopg
import pytest

from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from tests import oracle
from tests.capture_lake import make_lake
from tests.crash.killed import finished, killed_at
from tests.writers import LEDGER, SCHEMA, TABLES, Writers

pytestmark = [pytest.mark.pg, pytest.mark.crash]

SMALL_PARTS = """
import auditlake.capture.capture as capture
from auditlake.replication.frame_router import Limits
capture._BATCH = Limits(frames=100, size_bytes=10_000)
capture._FULL = Limits(frames=500, size_bytes=50_000)
"""


def test_a_killed_capture_continues_and_every_change_is_there_once(database: str, tmp_path: Path) -> None:
    """`changes` has the number of changes that PostgreSQL counted; the states at three moments are PostgreSQL's."""
    with psycopg.connect(database) as conn:
        conn.execute(SCHEMA)
    lake = make_lake(database, tmp_path / "lake", without=[LEDGER])
    capture: list[str | Path] = ["capture", "--source", database, "--lake", lake.root]
    moments = []
    with Writers(database) as writers:
        for place, times in (
            (After.RELATIONS, 1),
            (After.TRANSACTIONS, 1),
            (After.CHANGES, 1),
            (After.TRANSACTIONS, 3),
            (After.CHANGES, 4),
        ):
            writers.await_transactions(20)
            killed_at(place, capture, times=times)
            _check_acknowledged(database, lake.root)
        moments.append(oracle.take_moment(database, TABLES))
        with psycopg.connect(database) as conn:
            conn.execute("insert into accounts select n, 'many' from generate_series(900000, 903000) n")
        killed_at(After.PART, [*capture, "--until-current"], times=3, code=SMALL_PARTS)
        _check_acknowledged(database, lake.root)
        moments.append(oracle.take_moment(database, TABLES))
        killed_at(After.PART, [*capture, "--until-current"], times=2, code=SMALL_PARTS)
    moments.append(oracle.take_moment(database, TABLES))
    finished([*capture, "--until-current"])

    found = Counter((row["table"], row["op"]) for row in oracle.changes(lake))
    with psycopg.connect(database) as conn:
        counted = {
            (table, op): n for table, op, n in conn.execute("select tab, op, count(*) from ledger group by 1, 2")
        }
    assert counted == found
    assert found["accounts", "insert"] > 3000
    oracle.transactions(lake)
    assert oracle.assert_log(lake, moments) == [len(TABLES)] * len(moments)


def _check_acknowledged(dsn: str, root: Path) -> None:
    """Check that the slot is not ahead of the lake."""
    confirmed = oracle.confirmed_flush(dsn)
    positions = read_positions(Lake(root))
    assert positions is not None
    assert confirmed <= positions.acknowledged
