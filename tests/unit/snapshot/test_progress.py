"""Tests of a copy's progress and its display, as text, bars and JSON."""

import io
import json
import re
from collections.abc import Iterator

import pytest

from auditlake.errors import InvariantBroken, SourceUnready, all_in_one
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.snapshot.progress import (
    CopiedTable,
    CopyState,
    Progress,
    _Lines,
    _SnapshotAgeWarning,
    as_event,
    draw,
    format_bytes,
    format_seconds,
    show_copied,
    sum_up,
)
from auditlake.terminal import STDERR, console_for

_BIG, _SMALL, _DROPPED = (TableName("public", name) for name in ("big", "small", "dropped"))


@pytest.fixture
def state() -> CopyState:
    """Return the state after 30 s: one table is copied, one is running, one has failed."""
    clock: Iterator[float] = iter([0.0, 10.0])
    progress = Progress(clock=lambda: next(clock, 40.0))
    progress.record_snapshot()
    progress.expect(_BIG, 6000, 100)
    progress.expect(_SMALL, 1000, None)
    progress.expect(_DROPPED, 9000, 5)
    for name, rows, size_bytes in ((_BIG, 40, 2000), (_SMALL, 7, 1000)):
        progress.begin(name)
        progress.advance(name, rows, size_bytes)
    progress.finish(CopiedTable(_SMALL, 7, 123, 0.5, Lsn(0x1_0000_0001)))
    progress.fail(_DROPPED, SourceUnready("table public.dropped was dropped", "Run it again."))
    return progress.state()


def test_totals_leave_out_failed_tables(state: CopyState) -> None:
    """Sizes are the source's; one unknown estimate makes the expected number of rows unknown."""
    assert (state.seconds, state.held_s) == (30.0, 40.0)
    assert (state.rows, state.done_bytes, state.expected_bytes, state.expected_rows) == (47, 3000, 7000, None)
    assert (state.bytes_per_s, state.left_s) == (100.0, 40.0)
    assert [table.name for table in state.running] == [_BIG]
    assert sum_up(state) == "3 kB of 7 kB, 47 rows, 100 B/s, about 40 s left; snapshot held for 40 s"


def test_json_reports_each_finished_table_once(state: CopyState, capsys: pytest.CaptureFixture[str]) -> None:
    """Showing a state again repeats only its progress; the last line is the total."""
    lines = _Lines()
    lines.show(state)
    lines.end(state)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["copied", "failed", "progress", "progress", "done"]
    copied, failed, _, progress, done = events
    assert (copied["table"], copied["snapshot_lsn"], copied["lake_bytes"]) == ("public.small", "1/1", 123)
    assert (failed["table"], failed["error"]) == ("public.dropped", "table public.dropped was dropped")
    assert progress == as_event(state)
    assert (progress["seconds_left"], progress["expected_rows"]) == (40.0, None)
    assert (done["tables"], done["failed"], done["rows"]) == (1, 1, 7)


def test_a_terminal_shows_running_tables_and_the_total(state: CopyState, capsys: pytest.CaptureFixture[str]) -> None:
    """The final list has each table's size in the lake and its snapshot LSN."""
    with STDERR.capture() as captured:
        STDERR.print(draw(state))
    assert "2 kB of 6 kB, 40 rows" in captured.get()
    assert "1 of 2 tables" in captured.get()
    show_copied(state.copied)
    assert capsys.readouterr().out.split()[-5:] == ["public.small", "7", "123", "0.5", "1/1"]


def test_progress_fits_80_columns() -> None:
    """Names and numbers of usual length take one line per table and are not truncated."""
    progress = Progress(clock=iter([0.0, *[3600.0] * 9]).__next__)
    for number in range(3):
        name = TableName("public", f"order_line_{number}")
        progress.expect(name, 987_654_321_000, 1_234_567_890)
        progress.begin(name)
        progress.advance(name, 987_654_321, 123_456_789_000)
    out = io.StringIO()
    console_for(out, terminal_width=80).print(draw(progress.state()))
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in out.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80
    assert sum("of 988 GB, 987,654,321 rows" in line and "public.order_line_" in line for line in lines) == 3
    assert "snapshot held for 0 s" in " ".join(lines)


def test_a_long_held_snapshot_causes_a_warning_every_hour(state: CopyState) -> None:
    """The first warning comes after ten minutes."""
    warnings: list[str] = []
    warning = _SnapshotAgeWarning(report=warnings.append)
    for held_s in (599, 600, 601, 4199, 4200):
        warning.check(CopyState(1, held_s, 0, 0, 0, 0, (), (), ()))
    assert [line.split("held for ")[1].split(":")[0] for line in warnings] == ["10 min 0 s", "1 h 10 min"]
    assert state.held_s < 600


def test_sizes_and_durations_have_two_or_three_significant_digits() -> None:
    """Sizes use decimal units; durations their two largest units."""
    assert [format_bytes(size) for size in (0, 999, 12_345, 949_000_000)] == ["0 B", "999 B", "12.3 kB", "949 MB"]
    assert [format_seconds(seconds) for seconds in (0.4, 59.6, 3600)] == ["0 s", "1 min 0 s", "1 h 0 min"]


def test_several_failures_become_one_error() -> None:
    """The message names all of them; a bug's exit code has precedence."""
    one = SourceUnready("a", "Do this.")
    assert all_in_one([one]) is one
    both = all_in_one([one, InvariantBroken("b"), SourceUnready("c", "Do this.")])
    assert (both.message, both.hint, both.exit_code) == ("a; b; c", "Do this.", 1)
