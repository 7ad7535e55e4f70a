"""A capture stopped by a signal reports start and stop in one line each, and exits with 0."""

import signal
from pathlib import Path

import psycopg
import pytest

from tests import command
from tests.capture_lake import make_lake

pytestmark = pytest.mark.pg


def test_every_termination_signal_is_a_clean_stop(database: str, tmp_path: Path) -> None:
    """SIGHUP is sent when the terminal is closed."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key)")
    lake = make_lake(database, tmp_path / "lake")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        with command.start(["capture", "--source", database, "--lake", lake.root]) as process:
            assert process.stderr is not None
            started = process.stderr.readline()
            process.send_signal(number)
            _, last = process.communicate(timeout=30)
        assert started.startswith("auditlake: started: slot auditlake of database ")
        assert last == f"auditlake: stopped by {number.name}; the next run continues where this one ended\n"
        assert process.returncode == 0
