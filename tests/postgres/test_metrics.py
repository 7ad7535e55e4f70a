"""Metrics of running stages on a server: lag, slot, backlog; connections of scrapes; a killed stage."""

import signal
import time
from pathlib import Path
from urllib.error import URLError

import psycopg
import pytest

from tests import command
from tests.capture_lake import make_lake
from tests.metrics import running
from tests.running import await_true

pytestmark = pytest.mark.pg


def test_capture_shows_what_it_does_and_the_state_of_its_slot(database: str, tmp_path: Path) -> None:
    """Changes are counted as they become durable, and PostgreSQL's own numbers are those of the slot."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key)")
        lake = make_lake(database, tmp_path / "lake")
        with running(["capture", "--source", database, "--lake", lake.root]) as stage:
            stage.await_sample("auditlake_slot_active", 1)
            conn.execute("insert into t select generate_series(1, 5)")
            conn.execute("insert into t values (6)")
            found = stage.await_sample("auditlake_captured_transactions_total", 2)
            assert found["auditlake_captured_changes_total"] == 6
            assert found["auditlake_commits_total{capture}"] >= 1
            assert time.time() - found["auditlake_heartbeat_timestamp_seconds{capture}"] < 60
            assert (found["auditlake_slot_exists"], found["auditlake_slot_lost"]) == (1, 0)
            assert found["auditlake_slot_wal_status{reserved}"] == 1
            assert found["auditlake_slot_retained_bytes"] >= 0
            assert "auditlake_slot_safe_wal_bytes" not in found  # max_slot_wal_keep_size is -1
            assert "auditlake_applied_lsn" not in found
            await_true(lambda: stage.status("/readyz") == 200)
            assert stage.status("/healthz") == 200
            stage.process.send_signal(signal.SIGTERM)
            assert stage.process.wait(30) == 0


def test_scrapes_open_no_connection_each(database: str, tmp_path: Path) -> None:
    """Capture has its own, and the metrics one, whatever the number of scrapes."""
    count = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key)")
        lake = make_lake(database, tmp_path / "lake")
        with running(["capture", "--source", database, "--lake", lake.root]) as stage:
            stage.await_sample("auditlake_source_up", 1)
            await_true(lambda: stage.status("/readyz") == 200)
            before = conn.execute(count).fetchone()
            for _ in range(50):
                stage.samples()
            assert conn.execute(count).fetchone() == before


def test_metrics_of_a_killed_stage_end_with_it(database: str, tmp_path: Path) -> None:
    """Nothing answers for it, so that its series end; its slot shows elsewhere that nothing reads it."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key)")
        lake = make_lake(database, tmp_path / "lake")
        with running(["capture", "--source", database, "--lake", lake.root]) as capture:
            capture.await_sample("auditlake_slot_active", 1)
            capture.process.send_signal(signal.SIGKILL)
            capture.process.wait(30)
            with pytest.raises(URLError):
                capture.samples()
        conn.execute("insert into t values (1)")
        await_true(lambda: conn.execute("select active from pg_replication_slots").fetchone() == (False,))
        with running(["serve", "--source", database, "--lake", lake.root, "--listen", "127.0.0.1:0"]) as page:
            page.await_sample("auditlake_lake_up", 1)
            found = page.await_sample("auditlake_slot_active", 0)
            assert found["auditlake_capture_lag_bytes"] > 0
            conn.execute("select pg_drop_replication_slot('auditlake')")


def test_apply_shows_its_backlog_and_its_engine(database: str, tmp_path: Path) -> None:
    """What is captured before it starts is applied, in DuckDB, and nothing is left."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key)")
        lake = make_lake(database, tmp_path / "lake")
        conn.execute("insert into t select generate_series(1, 7)")
        assert command.capture_here(database, lake).code == 0
        with running(["apply", "--lake", lake.root]) as stage:
            found = stage.await_sample("auditlake_applied_changes_total{duckdb}", 7)
            assert found["auditlake_applied_batches_total{duckdb}"] == 1
            assert found["auditlake_applied_changes_total{spark}"] == 0
            stage.await_sample("auditlake_apply_lag_transactions", 0)
            assert "auditlake_source_up" not in found
            await_true(lambda: stage.status("/readyz") == 200)
