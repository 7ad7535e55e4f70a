"""What is told of a copy: rates, what is left, and every table once."""

import json
from collections.abc import Iterator

import pytest

from auditlake.copying import _Lines, _Patience, as_event, draw, show_copied, spell_bytes, spell_seconds, sum_up
from auditlake.errors import InvariantBroken, SourceUnready, all_in_one
from auditlake.relation import TableName
from auditlake.snapshot.progress import CopiedTable, CopyState, Progress
from auditlake.terminal import STDERR

_BIG, _SMALL, _GONE = (TableName("public", name) for name in ("big", "small", "gone"))


@pytest.fixture
def state() -> CopyState:
    """Half a minute after the begin: one table is done, one is not, one has failed."""
    clock: Iterator[float] = iter([0.0, 10.0])
    progress = Progress(clock=lambda: next(clock, 40.0))
    progress.hold()
    progress.expect(_BIG, 6000, 100)
    progress.expect(_SMALL, 1000, None)
    progress.expect(_GONE, 9000, 5)
    for name, rows, size_bytes in ((_BIG, 40, 2000), (_SMALL, 7, 1000)):
        progress.begin(name)
        progress.advance(name, rows, size_bytes)
    progress.finish(CopiedTable(_SMALL, 7, 123, 0.5, 0x1_0000_0001))
    progress.fail(_GONE, SourceUnready("table public.gone was dropped", "Run it again."))
    return progress.state()


def test_rate_and_what_is_left(state: CopyState) -> None:
    """Bytes are those of the source; a table that failed is not waited for; one unknown guess makes the sum unknown."""
    assert (state.seconds, state.held_s) == (30.0, 40.0)
    assert (state.rows, state.done_bytes, state.expected_bytes, state.expected_rows) == (47, 3000, 7000, None)
    assert (state.bytes_per_s, state.left_s) == (100.0, 40.0)
    assert [table.name for table in state.running] == [_BIG]
    assert sum_up(state) == "3 kB of 7 kB, 47 rows, 100 B/s, about 40 s left; snapshot held for 40 s"


def test_json_lines(state: CopyState, capsys: pytest.CaptureFixture[str]) -> None:
    """Every table ends once, however often the state is shown, and the last line is the sum."""
    lines = _Lines()
    lines.show(state)
    lines.end(state)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["copied", "failed", "progress", "progress", "done"]
    copied, failed, _, progress, done = events
    assert (copied["table"], copied["snapshot_lsn"], copied["lake_bytes"]) == ("public.small", "1/1", 123)
    assert (failed["table"], failed["error"]) == ("public.gone", "table public.gone was dropped")
    assert progress == as_event(state)
    assert (progress["seconds_left"], progress["expected_rows"]) == (40.0, None)
    assert (done["tables"], done["failed"], done["rows"]) == (1, 1, 7)


def test_on_a_terminal(state: CopyState, capsys: pytest.CaptureFixture[str]) -> None:
    """The table in work and the sum can be seen; the table at the end has what is in the lake, and where it begins."""
    with STDERR.capture() as captured:
        STDERR.print(draw(state))
    assert "40 of about 100 rows, 2 kB of 6 kB" in captured.get()
    assert "1 of 2 tables" in captured.get()
    show_copied(state.copied)
    assert capsys.readouterr().out.split()[-5:] == ["public.small", "7", "123", "0.5", "1/1"]


def test_a_snapshot_that_is_held_long(state: CopyState) -> None:
    """One warning after ten minutes, the next after an hour."""
    said: list[str] = []
    patience = _Patience(say=said.append)
    for held_s in (599, 600, 601, 4199, 4200):
        patience.look(CopyState(1, held_s, 0, 0, 0, 0, (), (), ()))
    assert [line.split("held for ")[1].split(":")[0] for line in said] == ["10 min 0 s", "1 h 10 min"]
    assert state.held_s < 600


def test_units() -> None:
    """Three digits and a unit."""
    assert [spell_bytes(size) for size in (0, 999, 12_345, 949_000_000)] == ["0 B", "999 B", "12.3 kB", "949 MB"]
    assert [spell_seconds(seconds) for seconds in (0.4, 59.6, 3600)] == ["0 s", "1 min 0 s", "1 h 0 min"]


def test_several_failures_are_one() -> None:
    """All are named; the exit code is that of what weighs most."""
    one = SourceUnready("a", "Do this.")
    assert all_in_one([one]) is one
    both = all_in_one([one, InvariantBroken("b"), SourceUnready("c", "Do this.")])
    assert (both.message, both.hint, both.exit_code) == ("a; b; c", "Do this.", 1)
