"""`auditlake status --watch` over the small lake, on a terminal made up for the test."""

import io
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from auditlake.cli.status_watch import rates, watch_status
from auditlake.lsn import Lsn
from auditlake.status import Status, read_status
from tests.command import run_here
from tests.small_lake import write_lake_with_manifest


@pytest.fixture
def status(tmp_path: Path) -> Status:
    """The status of the small lake, without its source."""
    return read_status(write_lake_with_manifest(tmp_path / "lake"), None)


def later(status: Status) -> Status:
    """Two seconds later, after 2,000 bytes of WAL."""
    assert status.positions is not None
    acknowledged = Lsn(status.positions.acknowledged + 2000)
    return replace(
        status, read_at_s=status.read_at_s + 2, positions=replace(status.positions, acknowledged=acknowledged)
    )


def test_shows_the_status_again_and_again_until_stopped(status: Status) -> None:
    """The verdict, the rate since the last reading, and the tables."""
    out, stop = io.StringIO(), threading.Event()
    terminal = Console(file=out, force_terminal=True, width=100, height=60)

    def readings() -> Iterator[Status]:
        yield status
        yield later(status)
        stop.set()
        yield later(later(status))

    reading = readings()
    watch_status(lambda: next(reading), 0.01, stop, terminal)
    shown = out.getvalue()
    assert shown.count("no source is set") >= 2
    assert "WAL captured: 1,000 bytes/s" in shown
    assert "public.orders" in shown


def test_a_rate_needs_two_readings(status: Status) -> None:
    """Nothing is shown at first, nor about a source that was not asked."""
    assert list(rates(status, status)) == []
    assert list(rates(later(status), status)) == [("WAL captured", 1000.0)]


def test_is_refused_without_a_terminal_and_with_other_formats(tmp_path: Path) -> None:
    """A pipe would get the codes that move the cursor."""
    root = write_lake_with_manifest(tmp_path / "lake").root
    assert "needs a terminal" in run_here(["status", "--lake", root, "--watch"]).stderr
    assert run_here(["status", "--lake", root, "--watch", "3", "--json"]).code == 2
