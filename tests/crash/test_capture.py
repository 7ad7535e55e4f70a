"""Capture killed after its effects, with concurrent writers: one kill per case."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from tests import oracle
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.crash.killed import killed_at
from tests.read_lake import positions_of
from tests.writers import LEDGER, SCHEMA, TABLES, Writers

pytestmark = [pytest.mark.pg, pytest.mark.crash]

SMALL_PARTS = """
import auditlake.capture.capture as capture
from auditlake.replication.stream import BufferLimits
capture._BATCH = BufferLimits(frames=100, size_bytes=10_000)
capture._FULL = BufferLimits(frames=500, size_bytes=50_000)
"""
_LARGE = "insert into accounts select n, 'many' from generate_series(900000, 903000) n"


@dataclass(frozen=True)
class Kill:
    """A kill at the `times`-th effect of this kind; `large`: while a transaction is appended in parts."""

    place: After
    times: int
    large: bool = False

    def __str__(self) -> str:
        return f"{self.place}-{self.times}"


KILLS = [Kill(After.TRANSACTIONS, 3), Kill(After.PART, 4, large=True)]


@pytest.mark.parametrize("kill", KILLS, ids=str)
def test_a_killed_capture_continues_and_every_change_is_there_once(database: str, tmp_path: Path, kill: Kill) -> None:
    """`changes` has the number of changes that PostgreSQL counted; `tests/release` has the other effects."""
    kill_capture(database, tmp_path, kill)


def kill_capture(database: str, folder: Path, kill: Kill) -> None:
    """Kill `capture`, continue without it, and compare the log, and the states at two moments, with PostgreSQL."""
    with psycopg.connect(database) as conn:
        conn.execute(SCHEMA)
    lake = make_lake(database, folder / "lake", without=[LEDGER])
    command: list[str | Path] = ["capture", "--source", database, "--lake", lake.root]
    with Writers(database) as writers:
        writers.await_transactions(20)
        if kill.large:
            with psycopg.connect(database) as conn:
                conn.execute(_LARGE)
        killed_at(kill.place, command, times=kill.times, code=SMALL_PARTS if kill.large else None)
        _check_acknowledged(database, lake)
        moments = [oracle.take_moment(database, TABLES)]
        writers.await_transactions(10)
    moments.append(oracle.take_moment(database, TABLES))
    capture(database, lake)

    found = Counter((row["table"], row["op"]) for row in oracle.changes(lake))
    with psycopg.connect(database) as conn:
        counted = {
            (table, op): n for table, op, n in conn.execute("select tab, op, count(*) from ledger group by 1, 2")
        }
    assert counted == found
    assert (found["accounts", "insert"] > 3000) == kill.large
    oracle.transactions(lake)
    assert oracle.assert_log(lake, moments) == [len(TABLES)] * len(moments)


def _check_acknowledged(dsn: str, lake: Lake) -> None:
    """Check that the slot is not ahead of the lake."""
    positions = positions_of(lake)
    assert oracle.confirmed_flush(dsn) <= positions.acknowledged
