"""Bootstrap killed after its effects, with concurrent writers: one kill per case."""

from pathlib import Path

import psycopg
import pytest

from auditlake.failpoints import After
from auditlake.lake.histories import list_histories
from tests import oracle
from tests.capture_once import capture
from tests.crash.killed import finished, killed_at
from tests.read_lake import positions_of
from tests.s3_server import chosen_lake
from tests.writers import LEDGER, SCHEMA, TABLES, Writers

pytestmark = [pytest.mark.pg, pytest.mark.crash]

FILLED = """
insert into accounts select n, 'owner ' || n, n, n % 2 = 0 from generate_series(0, 299) n;
insert into orders select n, 1, 'item', n from generate_series(0, 299) n;
insert into notes select n, 'title', repeat(md5(n::text), 90) from generate_series(0, 29) n;
insert into marks select 'mark', n % 3 from generate_series(0, 29) n;
"""


def test_a_killed_bootstrap_continues_with_the_same_slot(database: str, tmp_path: Path) -> None:
    """The slot is created once and kept; `tests/release` has the other effects."""
    kill_bootstrap(database, tmp_path, After.FILES_COPIED)


def kill_bootstrap(database: str, folder: Path, place: After) -> None:
    """Kill `bootstrap`, continue without it, and compare the states at three moments with PostgreSQL."""
    with psycopg.connect(database) as conn:
        conn.execute(SCHEMA + FILLED)
    lake = chosen_lake(folder / "lake")
    bootstrap: list[str | Path] = [
        *("bootstrap", "--source", database, "--lake", lake.root, "--table", f"!public.{LEDGER}")
    ]
    with Writers(database) as writers:
        killed_at(place, bootstrap)
        copied = len(list_histories(lake))
        # Two workers copy at once: the second table may be whole before the kill ends its process.
        assert (copied > 0) == (place == After.TABLE_COPIED)
        start = oracle.confirmed_flush(database) if place == After.SLOT else 0  # capture runs beside the copy
        writers.await_transactions(5)
        moments = [oracle.take_moment(database, TABLES)]
        finished(bootstrap)
        moments.append(oracle.take_moment(database, TABLES))
        writers.await_transactions(20)
    moments.append(oracle.take_moment(database, TABLES))
    positions = positions_of(lake)
    assert positions.acknowledged >= start, "changes begin where the killed run created the slot"
    capture(database, lake)

    with psycopg.connect(database) as conn:
        slots = conn.execute(
            "select slot_name from pg_replication_slots where database = current_database()"
        ).fetchall()
    assert slots == [("auditlake",)]
    known = oracle.assert_log(lake, moments)
    assert known[0] == copied
    assert known[1:] == [len(TABLES), len(TABLES)]
    assert oracle.changes(lake)[0]["lsn"] >= start
