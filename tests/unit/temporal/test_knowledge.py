"""Tests of the timeline of a table: one case for each state and its edges, and the refusal in it."""

from pathlib import Path

import duckdb
import pytest

from auditlake.errors import NotAnswerable
from auditlake.lake.gaps import Gap
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.parking import RULES, Cause, Parked, SegmentState, park, unpark
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.temporal.knowledge import Segment, Timeline, timeline_of
from auditlake.temporal.when import AtLsn, AtNow, AtTime

_T = TableName("public", "t")
_GAPS = Gap(_T, Lsn(20), Lsn(30), "lost", 200, 300), Gap(None, Lsn(28), Lsn(40), "lost, too")
_SILENT = Parked(_T, Cause.PUBLICATION, Lsn(60), Lsn(70), "it left", "Add it.", 600)


def _timeline(root: Path, *parked: Parked, resynced: int = 0) -> Timeline:
    table = HistoryTable(_T, Lake(root), (), 0, Lsn(50), Lsn(10), as_made=True, oid=1, resynced=Lsn(resynced))
    return timeline_of(Lake(root), table, Lsn(90), _GAPS, parked)


@pytest.mark.parametrize(
    ("lsn", "state"),
    [
        (0, SegmentState.EARLY),
        (9, SegmentState.EARLY),
        (10, None),
        (20, None),
        (21, SegmentState.GAP),
        (30, SegmentState.GAP),
        (39, SegmentState.GAP),
        (40, None),
        (60, None),
        (61, SegmentState.PARKED),
        (90, SegmentState.PARKED),
        (91, SegmentState.AHEAD),
    ],
)
def test_every_lsn_is_known_or_in_a_segment(tmp_path: Path, lsn: int, state: SegmentState | None) -> None:
    """Both ends of a gap are known, unless another one has them; a refusal names the first segment."""
    timeline = _timeline(tmp_path, _SILENT)
    found = timeline.at(Lsn(lsn))
    assert (found and found.state) == state
    assert timeline.last == 60
    if state is None:
        timeline.require((Lsn(lsn), AtLsn(Lsn(lsn))))
    else:
        with pytest.raises(NotAnswerable, match=f"asked for public.t as of {Lsn(lsn)}"):
            timeline.require((Lsn(lsn), AtLsn(Lsn(lsn))))


@pytest.mark.parametrize(("lsn", "time_us", "reason"), [(20, 200, ""), (20, 201, "lost"), (20, 299, "lost")])
def test_a_time_after_the_last_commit_may_be_inside_a_gap(tmp_path: Path, lsn: int, time_us: int, reason: str) -> None:
    """Its LSN alone is known."""
    timeline, when = _timeline(tmp_path), AtTime(time_us)
    if not reason:
        return timeline.require((Lsn(lsn), when))
    with pytest.raises(NotAnswerable, match=rf"{when} \({Lsn(lsn)}\), its changes .* missing: {reason}"):
        timeline.require((Lsn(lsn), when))
    return None


@pytest.mark.parametrize("from_us", [None, 200])
@pytest.mark.parametrize("to_us", [None, 300])
@pytest.mark.parametrize("upto", [None, Lsn(30)])
@pytest.mark.parametrize("silent", [False, True])
def test_engines_find_the_same_moments_in_a_segment(
    from_us: int | None, to_us: int | None, upto: Lsn | None, *, silent: bool
) -> None:
    """Each LSN, alone and with a time that resolved to it, around the edges."""
    times = (from_us, None) if upto is None else (from_us, to_us)
    segment = Segment(SegmentState.GAP, _T, Lsn(20), upto, "", "", *times, silent=silent)
    for lsn in map(Lsn, (0, 19, 20, 21, 29, 30, 31)):
        for time_us in (None, 0, 199, 200, 201, 299, 300, 301):
            time = None if time_us is None else f"{time_us:d}"
            found = duckdb.execute(f"select {segment.contains_sql(f'{lsn:d}', time)}").fetchall()
            when = AtLsn(lsn) if time_us is None else AtTime(time_us)
            assert found == [(segment.contains((lsn, when), Lsn(90)),)], (lsn, time_us)


@pytest.mark.parametrize("cause", Cause)
def test_only_a_reason_outside_of_the_stream_affects_moments_between_commits(tmp_path: Path, cause: Cause) -> None:
    """Apply parks a table at a commit, so everything before that commit is known, now too."""
    parked = Parked(_T, cause, Lsn(60), Lsn(70), "it left", "Add it.", 600)
    timeline = _timeline(tmp_path, parked)
    timeline.require((Lsn(60), AtTime(600)))
    for when in (None, AtNow(), AtTime(601)):
        if not parked.silent:
            timeline.require((Lsn(60), when))
            continue
        asked = AtNow() if when is None else when
        known = rf"as of {asked} \({Lsn(60)}\), it is known up to {Lsn(60)}: it left \(seen by {Lsn(70)}\)"
        with pytest.raises(NotAnswerable, match=known):
            timeline.require((Lsn(60), when))


def test_the_last_snapshot_of_a_parked_table_is_known(tmp_path: Path) -> None:
    """Whatever came before or after it."""
    timeline = _timeline(tmp_path, _SILENT, resynced=65)
    assert timeline.at(Lsn(65)) is None
    assert [timeline.at(Lsn(lsn)) is None for lsn in (64, 66)] == [False, False]


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        (10, 20, ""),
        (40, 60, ""),
        (9, 15, "begins at"),
        (15, 45, "from 0/F to 0/2D, its changes between 0/14 and 0/1E are missing: lost"),
        (45, 61, "known up to 0/3C: it left"),
        (45, 91, "known up to 0/5A"),
    ],
)
def test_a_period_is_known_if_all_its_states_are(tmp_path: Path, start: int, end: int, reason: str) -> None:
    """The error is that of the first segment that it meets."""
    timeline = _timeline(tmp_path, _SILENT)
    period = (Lsn(start), AtLsn(Lsn(start))), (Lsn(end), AtLsn(Lsn(end)))
    if not reason:
        return timeline.require(*period)
    with pytest.raises(NotAnswerable, match=reason):
        timeline.require(*period)
    return None


@pytest.mark.parametrize("cause", Cause)
def test_a_record_that_only_a_snapshot_ends_cannot_be_removed(tmp_path: Path, cause: Cause) -> None:
    """So no process can follow a table whose rows it has lost."""
    lake, parked = Lake(tmp_path), Parked(_T, cause, Lsn(60), Lsn(70), "it left", "Add it.")
    assert park(lake, parked)
    if RULES[cause].freed:
        assert unpark(lake, _T, cause)
        return
    with pytest.raises(ValueError, match="only a new snapshot"):
        unpark(lake, _T, cause)
