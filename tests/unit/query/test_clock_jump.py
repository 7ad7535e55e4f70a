"""The source's clock was an hour ahead for a second: moments in that hour are refused, never guessed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from auditlake.capture import change_log as changes
from auditlake.capture.change_log import CaptureLog, CommitEnd
from auditlake.errors import NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA, TRANSACTIONS_SCHEMA
from auditlake.query import exported_views
from auditlake.relation import Column, TableName
from auditlake.snapshot.ctid_ranges import SnapshotMark
from auditlake.snapshot.scheduler import begin_table, commit_table
from auditlake.temporal import moments
from auditlake.temporal.moments import just_before, last_up_to, read_known, resolve, without_exact_lsn
from auditlake.temporal.when import AtTime
from tests.s3_server import chosen_lake

T0 = datetime(2026, 11, 21, 9, 0, 0, tzinfo=UTC)
HOUR_S = 3600


class Clock:
    """A clock of capture that the test sets."""

    def __init__(self) -> None:
        self.now_s = T0.timestamp()

    def now_us(self) -> int:
        return round(self.now_s * 1_000_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock that capture reads."""
    made = Clock()
    monkeypatch.setattr(changes, "now_us", made.now_us)
    return made


def at(seconds: float) -> int:
    """Return a moment in microseconds."""
    return round((T0 + timedelta(seconds=seconds)).timestamp() * 1_000_000)


@pytest.fixture
def jumped(tmp_path: Path, clock: Clock) -> tuple[Lake, CaptureLog]:
    """Commit 1 s, 10 s, 11 s and 12 s after the snapshot; the second commit has a time one hour later."""
    lake = chosen_lake(tmp_path / "lake")
    commit_table(begin_table(lake, TableName("public", "t"), (Column("id", 23, -1, key=True),), 1), [], mark())
    log = CaptureLog(lake)
    log.start_at(Lsn(0x101))
    for number, (happened_s, said_s) in enumerate([(1, 1), (10, 10 + HOUR_S), (11, 11), (12, 12)], start=2):
        clock.now_s = T0.timestamp() + happened_s
        commit(log, 0x100 * number, said_s)
    return lake, log


def mark() -> SnapshotMark:
    """Write a history with only a snapshot."""
    return SnapshotMark(Lsn(0x100), at(0))


def commit(log: CaptureLog, lsn: int, said_s: float) -> None:
    """Capture a transaction with this commit time."""
    row = {"lsn": lsn, "end_lsn": lsn + 8, "xid": lsn, "time": at(said_s)}
    transactions = pa.RecordBatch.from_pylist([row], schema=TRANSACTIONS_SCHEMA)
    log.append(pa.RecordBatch.from_pylist([], schema=CHANGES_SCHEMA), transactions, CommitEnd(Lsn(lsn), Lsn(lsn + 8)))


def test_a_moment_after_the_currency_of_capture_is_refused(jumped: tuple[Lake, CaptureLog]) -> None:
    """The commit time of the jump does not move the currency ahead of capture's clock."""
    lake, log = jumped
    assert at(12) <= log.current_us <= at(12 + 5)
    with pytest.raises(NotAnswerable, match="knows every commit up to 2026-11-21"):
        resolve(read_known(lake), AtTime(at(HOUR_S / 2)))


def test_the_currency_of_an_idle_source_is_at_most_captures_clock(
    jumped: tuple[Lake, CaptureLog], clock: Clock
) -> None:
    """The source's clock may be ahead when the end of WAL is read."""
    _, log = jumped
    clock.now_s = T0.timestamp() + 20
    log.record_idle(Lsn(0x600), at(20 + HOUR_S))
    assert log.current_us <= at(20 + 5)


@pytest.mark.parametrize("seconds", [1.5, 10, 11.5, 12])
def test_a_moment_inside_the_jump_is_refused(jumped: tuple[Lake, CaptureLog], seconds: float) -> None:
    """The error names both times and the LSNs around the jump."""
    lake, _ = jumped
    with pytest.raises(NotAnswerable) as refused:
        resolve(read_known(lake), AtTime(at(seconds)))
    assert "10:00:10" in refused.value.message
    assert "09:00:11" in refused.value.message
    assert "commits 0/300 to 0/500" in refused.value.message
    assert refused.value.hint == "Ask by LSN: 0/2FF is before the jump, 0/500 after it."


def test_moments_of_a_jump_that_several_commits_saw_are_refused(tmp_path: Path, clock: Clock) -> None:
    """Those of the hour that the clock showed twice and of its commits, too; not those before, nor of a later reset."""
    lake = chosen_lake(tmp_path / "lake")
    commit_table(begin_table(lake, TableName("public", "t"), (Column("id", 23, -1, key=True),), 1), [], mark())
    log = CaptureLog(lake)
    log.start_at(Lsn(0x101))
    ahead = [(10, 10 + HOUR_S), (20, 20 + HOUR_S), (30, 30 + HOUR_S)]
    reset = [(HOUR_S + 60, HOUR_S + 60), (HOUR_S + 70, -9 * HOUR_S), (HOUR_S + 80, HOUR_S + 80)]
    for number, (happened_s, said_s) in enumerate([(1, 1), *ahead, (40, 40), (50, 50), *reset], start=2):
        clock.now_s = T0.timestamp() + happened_s
        commit(log, 0x100 * number, said_s)
    for seconds in (1.5, 15, 45, 60, HOUR_S + 5, HOUR_S + 10, HOUR_S + 15, HOUR_S + 20, HOUR_S + 25):
        with pytest.raises(NotAnswerable, match=r"from \S*T10:00:30\S* back to \S*T09:00:40"):
            resolve(read_known(lake), AtTime(at(seconds)))
    assert resolve(read_known(lake), AtTime(at(0.5))) == 0x100
    assert resolve(read_known(lake), AtTime(at(1))) == 0x200
    assert resolve(read_known(lake), AtTime(at(HOUR_S + 30))) == 0x700
    assert resolve(read_known(lake), AtTime(at(HOUR_S + 50))) == 0x700
    assert resolve(read_known(lake), AtTime(at(HOUR_S + 60))) == 0x800
    assert resolve(read_known(lake), AtTime(at(HOUR_S + 80))) == 0xA00


def test_a_time_in_the_far_future_takes_only_the_moments_beside_it(tmp_path: Path, clock: Clock) -> None:
    """A session with a replication origin sets any time: of two commits in a row here, and of the last one."""
    lake = chosen_lake(tmp_path / "lake")
    commit_table(begin_table(lake, TableName("public", "t"), (Column("id", 23, -1, key=True),), 1), [], mark())
    log, far_s = CaptureLog(lake), (datetime(9999, 12, 31, tzinfo=UTC) - T0).total_seconds()
    log.start_at(Lsn(0x101))
    said = [(1, 1), (10, far_s), (11, 3 * 24 * HOUR_S), (20, 20), (30, 30), (40, far_s)]
    for number, (happened_s, said_s) in enumerate(said, start=2):
        clock.now_s = T0.timestamp() + happened_s
        commit(log, 0x100 * number, said_s)
    log.record_idle(Lsn(0x800), at(44))
    known = read_known(lake)
    answered = {0.5: 0x100, 1: 0x200, 20: 0x500, 29: 0x500, 30: 0x600}
    assert {seconds: resolve(known, AtTime(at(seconds))) for seconds in answered} == answered
    assert just_before(known, AtTime(at(20))) == 0x400
    for seconds in (1.5, 10, 19):
        with pytest.raises(NotAnswerable, match="0/400 is 2026-11-24T09:00:00Z, far ahead of the clock") as refused:
            resolve(known, AtTime(at(seconds)))
        times = "2026-11-21T09:00:01Z or earlier; or for 2026-11-21T09:00:20Z or later"
        assert refused.value.hint == f"Ask by LSN: 0/3FF is before it, 0/400 after it; or for {times}."
    with pytest.raises(NotAnswerable, match="0/700 is 9999-12-31") as refused:
        resolve(known, AtTime(at(42)))
    assert (refused.value.hint or "").endswith("0/700 after it; or for 2026-11-21T09:00:30Z or earlier.")
    assert [last_up_to(known, at(seconds)) for seconds in (15, 25, 42)] == [0x200, 0x500, 0x600]


def test_the_clock_of_capture_does_not_decide_which_times_are_far_ahead(tmp_path: Path, clock: Clock) -> None:
    """It may be that of a machine that has just started, without the time; the source is at a time that was known."""
    lake = chosen_lake(tmp_path / "lake")
    commit_table(begin_table(lake, TableName("public", "t"), (Column("id", 23, -1, key=True),), 1), [], mark())
    log = CaptureLog(lake)
    log.start_at(Lsn(0x101), at(0))
    clock.now_s = 0
    for number in range(2, 5):
        commit(log, 0x100 * number, number)
    clock.now_s = T0.timestamp() + 10
    log.record_idle(Lsn(0x500), at(10))
    assert [resolve(read_known(lake), AtTime(at(seconds))) for seconds in (2, 3, 4, 9)] == [0x200, 0x300, 0x400, 0x400]


def test_moments_before_and_after_the_jump_are_answered(jumped: tuple[Lake, CaptureLog], clock: Clock) -> None:
    """After the clock has caught up, moments have exact LSNs again."""
    lake, log = jumped
    assert resolve(read_known(lake), AtTime(at(0.5))) == 0x100
    assert resolve(read_known(lake), AtTime(at(1))) == 0x200
    clock.now_s = T0.timestamp() + HOUR_S + 30
    commit(log, 0x600, HOUR_S + 30)
    assert resolve(read_known(lake), AtTime(at(HOUR_S + 20))) == 0x500
    assert resolve(read_known(lake), AtTime(at(HOUR_S + 30))) == 0x600


@pytest.mark.parametrize("last_s", [0, 10])
def test_a_time_that_capture_knew_too_early_is_refused_until_it_has_come(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, last_s: int
) -> None:
    """Both clocks were ahead: the next commit may be at any time after the last one, or after the snapshot."""
    lake = chosen_lake(tmp_path / "lake")
    commit_table(begin_table(lake, TableName("public", "t"), (Column("id", 23, -1, key=True),), 1), [], mark())
    log, asked = CaptureLog(lake), Clock()
    monkeypatch.setattr(moments, "now_us", asked.now_us)
    log.start_at(Lsn(0x101))
    if last_s:
        commit(log, 0x200, last_s)
    clock.now_s += HOUR_S
    log.record_idle(log.acknowledged, at(HOUR_S))
    asked.now_s += 40
    known = read_known(lake)
    for seconds in (last_s + 1, 40, HOUR_S):
        with pytest.raises(NotAnswerable, match="which is in the future"):
            resolve(known, AtTime(at(seconds)))
    assert resolve(known, AtTime(at(last_s))) == (0x200 if last_s else 0x100)
    assert resolve(known, None) == known.now_lsn
    assert exported_views.clock(known).current_us == at(last_s)
    asked.now_s += HOUR_S
    assert resolve(known, AtTime(at(40))) == (0x200 if last_s else 0x100)
    assert exported_views.clock(known).current_us == at(HOUR_S)


_BEGINNINGS = {
    "twice, and back to a commit": ([(1, 1), (2, 100), (3, 200), (4, 1), (5, 6)], 3),
    "a clock that begins too late": ([(1, -HOUR_S)], 2),
    "a first commit ahead": ([(1, 200), (2, 2)], 3),
}


@pytest.mark.parametrize("name", _BEGINNINGS)
def test_the_times_without_an_lsn_are_those_that_are_refused(tmp_path: Path, clock: Clock, name: str) -> None:
    """For engines: every moment around each commit, and those between them."""
    lake, (begun, jumps) = chosen_lake(tmp_path / "lake"), _BEGINNINGS[name]
    commit_table(begin_table(lake, TableName("public", "t"), (Column("id", 23, -1, key=True),), 1), [], mark())
    log = CaptureLog(lake)
    log.start_at(Lsn(0x101))
    course = [*begun, (250, 250), (260, 300), (270, 350), (280, 280), (360, 360), (370, -HOUR_S), (380, 380)]
    for number, (happened_s, said_s) in enumerate(course, start=2):
        clock.now_s = T0.timestamp() + happened_s
        commit(log, 0x100 * number, said_s)
    known = read_known(lake)
    periods = without_exact_lsn(known)
    seconds = {*range(0, 400, 50), *(said_s for _, said_s in course if said_s >= 0)}
    for time_us in (at(second) + more for second in seconds for more in (-1, 0, 1)):
        message = ""
        try:
            resolve(known, AtTime(time_us))
        except NotAnswerable as refused:
            message = refused.message
        is_inside = any((first is None or time_us >= first) and time_us < until for first, until in periods)
        assert is_inside == ("clock went" in message), time_us
    assert len(periods) == jumps


COURSES = {
    "small steps": [(0, 0), (20, 3), (40, -1), (60, 4), (80, 0)],
    "ahead twice": [(0, 0), (20, 100), (35, 0), (60, 40), (75, 0)],
    "back for good": [(0, 0), (50, -20)],
}
"""How far the source's clock is ahead of capture's, in seconds, from which second on."""


@pytest.mark.parametrize("name", COURSES)
def test_every_answer_is_a_state_at_a_moment_when_the_clock_showed_that_time(
    tmp_path: Path, clock: Clock, name: str
) -> None:
    """Within the tolerance of 5 s; where no such moment is certain, it is refused."""
    course = COURSES[name]
    lake = chosen_lake(tmp_path / "lake")
    commit_table(begin_table(lake, TableName("public", "t"), (Column("id", 23, -1, key=True),), 1), [], mark())
    log = CaptureLog(lake)
    log.start_at(Lsn(0x101))
    happened = [0, *range(3, 100, 8)]  # the snapshot, then commits

    def shown(second: float) -> float:
        return second + next(ahead for since, ahead in reversed(course) if since <= second)

    def state(second: float) -> int:
        return 0x100 * len([each for each in happened if each <= second])

    for number, second in enumerate(happened[1:], start=2):
        clock.now_s = T0.timestamp() + second
        commit(log, 0x100 * number, shown(second))
        if number % 3 == 0:
            clock.now_s += 1
            log.record_idle(Lsn(0x100 * number + 0x20), at(shown(second + 1)))
    known, answered = read_known(lake), 0
    for second in range(1, happened[-1], 3):
        try:
            found = resolve(known, AtTime(at(shown(second))))
        except NotAnswerable:
            continue
        answered += 1
        near = [each / 4 for each in range(4 * 110) if abs(shown(each / 4) - shown(second)) <= 5]
        assert found in {state(each) for each in near}, (second, shown(second))
    assert answered
