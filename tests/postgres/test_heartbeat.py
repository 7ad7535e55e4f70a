"""Tests of the heartbeat: it arrives through the stream without a context, and needs one privilege."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from auditlake.capture.supervisor import make_task, run_capture
from auditlake.errors import SourceUnready
from auditlake.lake.layout import Lake
from auditlake.source.connection import connect
from auditlake.source.heartbeat import PREFIX, Heartbeat
from tests import oracle
from tests.capture_lake import make_lake
from tests.read_lake import positions_of
from tests.running import await_true

pytestmark = pytest.mark.pg

REVOKE = """
do $$ declare f regprocedure; begin
  for f in select oid from pg_proc where proname = 'pg_logical_emit_message' loop
    execute format('revoke execute on function %s from public', f);
  end loop;
end $$
"""


def current_us(lake: Lake) -> int:
    """Return the time up to which the lake is current."""
    positions = positions_of(lake)
    return positions.current_us


def test_an_idle_source_stays_current(database: str, tmp_path: Path) -> None:
    """Heartbeats arrive as messages without a context, and each advances the time up to which the lake is current."""
    with psycopg.connect(database) as conn:
        conn.execute("create table t (id int primary key)")
    lake, stop = make_lake(database, tmp_path / "lake"), threading.Event()
    task = make_task(database, lake, None, heartbeat_s=0.2)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_capture, task, stop, lambda _: None)
        await_true(lambda: run.done() or len(oracle.changes(lake)) >= 2)
        first = current_us(lake)
        await_true(lambda: run.done() or current_us(lake) > first)
        stop.set()
        run.result()
    rows = oracle.changes(lake)
    assert {(row["op"], row["prefix"], row["table"]) for row in rows} == {("message", PREFIX, None)}
    assert {row["context"] for row in oracle.transactions(lake)} == {None}


def test_a_heartbeat_needs_execute_on_one_function(database: str) -> None:
    """A read-only role can send heartbeats; a role without EXECUTE gets an error with the GRANT to run."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create role heart login; alter role heart set default_transaction_read_only = on")
        try:
            with closing(connect(make_conninfo(database, user="heart"))) as allowed:
                Heartbeat(1).beat(allowed)
            conn.execute(REVOKE)
            refused = pytest.raises(SourceUnready, match="role heart cannot send heartbeats")
            with closing(connect(make_conninfo(database, user="heart"))) as denied, refused:
                Heartbeat(1).beat(denied)
        finally:
            conn.execute("drop role heart")
