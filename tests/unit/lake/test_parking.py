"""Tests of the records of parked tables: the first moment of a silent reason is kept, and the last `until`."""

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from auditlake.lake.parking import Cause, Parked, find_parked, park
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from tests.s3_server import chosen_lake

T = TableName("public", "t")
SEEN = Parked(T, Cause.PUBLICATION, Lsn(90), Lsn(120), "it left", "Add it.", 7)
LATER = replace(SEEN, lsn=Lsn(150), until=Lsn(180), reason="it left again", time_us=9)


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.APPLY])
def test_a_reason_that_is_seen_again_is_in_force_for_longer(tmp_path: Path, cause: Cause) -> None:
    """So a snapshot between the two does not end it; nothing new is to be reported."""
    lake = chosen_lake(tmp_path)
    assert park(lake, replace(SEEN, cause=cause))
    assert not park(lake, replace(SEEN, cause=cause))
    assert not park(lake, replace(LATER, cause=cause))
    assert find_parked(lake, T, cause) == replace(SEEN, cause=cause, until=Lsn(180))


def test_an_earlier_moment_replaces_the_first_one(tmp_path: Path) -> None:
    """With its reason."""
    lake = chosen_lake(tmp_path)
    assert park(lake, LATER)
    assert park(lake, SEEN)
    assert find_parked(lake, T, SEEN.cause) == replace(SEEN, until=Lsn(180))


def test_a_dropped_table_that_is_created_again_is_not_ended(tmp_path: Path) -> None:
    """Nor is a lost table known to be complete when it is dropped."""
    lake = chosen_lake(tmp_path)
    assert park(lake, replace(SEEN, ended=True))
    assert park(lake, LATER)
    assert find_parked(lake, T, SEEN.cause) == replace(LATER, lsn=Lsn(90), time_us=7)
    assert park(lake, replace(LATER, ended=True, reason="it was dropped"))
    assert find_parked(lake, T, SEEN.cause) == replace(
        LATER, lsn=Lsn(90), time_us=7, ended=True, reason="it was dropped"
    )


def test_a_snapshot_ends_a_record(tmp_path: Path) -> None:
    """A later reason makes a new record."""
    lake = chosen_lake(tmp_path)
    park(lake, SEEN)
    with mock.patch("auditlake.lake.parking.open_history", return_value=mock.Mock(snapshot_lsn=120)):
        assert park(lake, LATER)
    assert find_parked(lake, T, SEEN.cause) == LATER


def test_what_apply_parks_is_recorded_as_it_is(tmp_path: Path) -> None:
    """Apply folds in order: a later record means that the reason of an earlier one is gone."""
    lake = chosen_lake(tmp_path)
    assert park(lake, replace(SEEN, cause=Cause.APPLY))
    assert park(lake, replace(LATER, cause=Cause.APPLY))
    assert find_parked(lake, T, Cause.APPLY) == replace(LATER, cause=Cause.APPLY)


def test_that_only_spark_can_fold_a_table_is_part_of_its_record(tmp_path: Path) -> None:
    """And that it is not."""
    lake = chosen_lake(tmp_path)
    stopped = replace(SEEN, cause=Cause.APPLY, needs_spark=True)
    park(lake, stopped)
    assert find_parked(lake, T, Cause.APPLY) == stopped
    park(lake, replace(stopped, needs_spark=False))
    assert find_parked(lake, T, Cause.APPLY) == replace(stopped, needs_spark=False)
