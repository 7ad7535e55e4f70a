"""The heartbeat is heard through the stream, says nothing about anybody's changes, and needs one right."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from auditlake.capture.running import make_task, run_capture
from auditlake.errors import SourceUnready
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from auditlake.postgres.connection import connect
from auditlake.postgres.heartbeat import PREFIX, Heartbeat
from tests import oracle
from tests.capture_lake import make_lake
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
    """Up to when everything is known to be there."""
    positions = read_positions(lake)
    assert positions is not None
    return positions.current_us


def test_an_idle_source_stays_current(database: str, tmp_path: Path) -> None:
    """Beats come back as messages without a context, and each moves the time up to which the lake is current."""
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


def test_what_it_may_need(database: str) -> None:
    """A role that may only read can beat; one that may not execute the function is told what to grant."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create role heart login; alter role heart set default_transaction_read_only = on")
        try:
            with closing(connect(make_conninfo(database, user="heart"))) as allowed:
                Heartbeat(1).beat(allowed)
            conn.execute(REVOKE)
            refused = pytest.raises(SourceUnready, match="role heart may not")
            with closing(connect(make_conninfo(database, user="heart"))) as denied, refused:
                Heartbeat(1).beat(denied)
        finally:
            conn.execute("drop role heart")
