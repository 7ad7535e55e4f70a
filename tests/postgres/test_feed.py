"""The feed of a live PostgreSQL: the values that a client reads, large transactions, a subscriber that hangs."""

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

import auditlake
from auditlake.capture.preconditions import CaptureSource
from auditlake.capture.supervisor import open_capture
from auditlake.feed.change import ChangedTransaction
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.pgoutput.decoder import UNCHANGED
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.command import run_here, start
from tests.s3_server import CHOSEN

pytestmark = pytest.mark.pg

_TABLE = """
create table t (id int primary key, b boolean, i bigint, f double precision, r real, n numeric, p numeric(10,2),
                d date, ts timestamp, tz timestamptz, bytes bytea, ints int[], nums numeric[], txt text, j jsonb,
                long text)
"""
_ROW = r"""
insert into t values (1, true, 9223372036854775807, 0.30000000000000004, 0.1, 1.50, -0.10, '2026-11-22',
  '2026-11-22 14:30:00.25', '2026-11-22 14:30:00.123456+02', '\xdead00', '{1,NULL,3}', '{1.50,NULL}', 'ünï "c" ødé',
  '{"a": 1.10}', (select string_agg(md5(g::text), '') from generate_series(1, 500) g))
"""


def _feed(lake: Lake, **given: Any) -> list[ChangedTransaction]:
    return list(auditlake.changes(lake.root, since="beginning", follow=False, **given))


def test_values_are_those_that_a_client_reads(database: str, tmp_path: Path) -> None:
    """A client reads the same row in binary format; a long value that an UPDATE left alone is marked."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(_TABLE)
        lake = make_lake(database, tmp_path / "lake")
        conn.execute("set timezone to 'UTC'")
        conn.execute(_ROW)
        cursor = conn.execute("select * from t", binary=True)
        expected = dict(zip([column.name for column in cursor.description or ()], cursor.fetchone() or (), strict=True))
        conn.execute("update t set p = 2, d = 'infinity' where id = 1")
        conn.execute("update t set id = 2")
        conn.execute("delete from t")
    capture(database, lake)
    (inserted,), (updated,), (moved,), (deleted,) = (each.changes for each in _feed(lake))
    assert inserted.after is not None
    found = inserted.after | {"j": json.loads(inserted.after["j"])}
    assert found == expected | {"tz": expected["tz"].astimezone(UTC)}
    assert {name: type(value) for name, value in found.items()} == {n: type(v) for n, v in expected.items()}
    assert updated.after is not None
    assert (str(updated.after["p"]), updated.after["d"], updated.after["long"]) == ("2.00", "infinity", UNCHANGED)
    assert (moved.before, moved.key) == ({"id": 1}, {"id": 2})
    assert (deleted.before, deleted.after) == ({"id": 2}, None)


def test_large_transactions_truncates_and_context(database: str, tmp_path: Path) -> None:
    """Every change in its order, counted by PostgreSQL; who and why come with the transaction."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table a (id int primary key, v text); create table b (id int primary key)")
        lake = make_lake(database, tmp_path / "lake")
        conn.execute("insert into a select g, g::text from generate_series(1, 25000) g")
        with conn.transaction():
            conn.execute("""select pg_logical_emit_message(true, 'auditlake', '{"actor": "ann", "reason": "tidy"}')""")
            conn.execute("truncate a, b")
            conn.execute("insert into b values (1)")
    capture(database, lake)
    large, small = _feed(lake)
    for _ in range(2):
        assert [change.key["id"] for change in large.changes] == list(range(1, 25001))
    assert (small.actor, small.reason) == ("ann", "tidy")
    assert sorted((change.op, change.table.table) for change in small.changes) == [
        ("insert", "b"),
        ("truncate", "a"),
        ("truncate", "b"),
    ]
    assert [each.lsn for each in _feed(lake, ops=["truncate"])] == [small.lsn]
    (keyed,) = (list(each.changes) for each in _feed(lake, tables=["a"], key=24999, ops=["insert"]))
    assert [change.ordinal for change in keyed] == [24998]


def test_a_subscriber_that_hangs_delays_nothing(database: str, tmp_path: Path) -> None:
    """One never reads its pipe, another gets every transaction soon after its commit."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key, v text)")
    lake = make_lake(database, tmp_path / "lake")
    stop = threading.Event()
    capturing = open_capture(CaptureSource(database, require_manifest(lake)), lake, stop)
    thread = threading.Thread(target=lambda: capturing.run(None))
    thread.start()
    with start(["log", "--follow", "--changes", "--json", "--since", "now", "--lake", lake.root]) as hung:
        try:
            delays = _delays(database, lake, 40)
        finally:
            stop.set()
            thread.join()
            hung.kill()
    assert len(delays) == 40
    assert sorted(delays)[20] < (1.0 if CHOSEN == "disk" else 2.0)  # a bucket is asked every second


def _delays(database: str, lake: Lake, count: int) -> list[float]:
    """Commit transactions that fill a pipe of 64 KiB, and measure when the feed delivers each."""
    delays = []
    with auditlake.changes(lake.root) as feed, psycopg.connect(database, autocommit=True) as conn:
        for number in range(count):
            conn.execute("insert into t values (%s, repeat('x', 10000))", [number])
            (found,) = feed.take(30)
            (change,) = found.changes
            assert change.key == {"id": number}
            delays.append((datetime.now(UTC) - found.time).total_seconds())
    return delays


@pytest.mark.parametrize("form", ["json", "debezium"])
def test_the_command_prints_the_feed(database: str, tmp_path: Path, form: str) -> None:
    """One JSON object a line; the cursor of the last transaction continues after it."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key, p numeric(8,2), at timestamptz, f float8, raw bytea)")
        lake = make_lake(database, tmp_path / "lake")
        conn.execute(r"insert into t values (1, 9.50, '2026-11-22 12:00+00', 'NaN', '\x00ff')")
        conn.execute("update t set at = 'infinity'")
        conn.execute("delete from t")
    capture(database, lake)
    done = run_here(["log", "--changes", "--format", form, "--lake", lake.root])
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if form == "json":
        assert [each["kind"] for each in found] == ["transaction", "change", "end"] * 3
        assert found[1]["after"] == {
            "id": "1",
            "p": "9.50",
            "at": "2026-11-22 12:00:00+00",
            "f": "NaN",
            "raw": "\\x00ff",
        }
        rest = run_here(["log", "--changes", "--json", "--after", found[2]["cursor"], "--lake", lake.root])
        assert rest.stdout.splitlines() == done.stdout.splitlines()[3:]
        return
    assert [each.get("op", each.get("status")) for each in found] == [
        *("BEGIN", "c", "END"),
        *("BEGIN", "u", "END"),
        *("BEGIN", "d", "END"),
    ]
    assert found[1]["after"] == {"id": 1, "p": "9.50", "at": "2026-11-22T12:00:00Z", "f": "NaN", "raw": "AP8="}
    assert found[4]["after"]["at"] == "infinity"
    assert found[2]["data_collections"] == [{"data_collection": "public.t", "event_count": 1}]
    assert found[1]["transaction"] == {"id": found[0]["id"], "total_order": 1, "data_collection_order": 1}
