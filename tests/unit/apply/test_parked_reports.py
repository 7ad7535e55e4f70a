"""What `follow` reports of parked tables: each once, and nothing of those that are only held for a moment."""

import time

import pytest

from auditlake.follow import ParkedReports
from auditlake.lake.parking import RENEWED_BY_FOLLOW, Cause, Parked
from auditlake.lsn import Lsn
from auditlake.relation import TableName

_NAME = TableName("public", "orders")


def _parked(cause: Cause, reason: str = "its rows were rewritten") -> Parked:
    return Parked(_NAME, cause, Lsn(0x100), Lsn(0x200), reason, RENEWED_BY_FOLLOW)


def test_a_table_is_reported_when_it_is_parked_and_when_it_is_followed_again() -> None:
    """Once each, also if the resync that ends it holds the table for the same reason."""
    said: list[str] = []
    reports = ParkedReports(said.append)
    for cause in (Cause.SHAPE, Cause.SHAPE, Cause.RESYNC):
        reports.update({_NAME: _parked(cause)})
    reports.update({})
    reports.update({})
    parked, again = said
    assert parked.startswith("public.orders is parked at 0/100: its rows were rewritten; all other tables are followed")
    assert parked.endswith("by itself, and its history goes on; so does auditlake resync.")
    assert again == "public.orders is followed again"


@pytest.mark.parametrize("cause", [Cause.PENDING, Cause.RESYNC])
def test_a_table_that_is_held_for_a_moment_is_not_reported(cause: Cause, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only once it takes long."""
    said: list[str] = []
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    reports = ParkedReports(said.append)
    for now_s in (0.0, 50.0):  # noqa: B007 - the clock
        reports.update({_NAME: _parked(cause)})
    reports.update({})
    assert said == []
    for now_s in (100.0, 161.0, 170.0):  # noqa: B007 - the clock
        reports.update({_NAME: _parked(cause)})
    reports.update({})
    assert [line.split(":")[0] for line in said] == [
        "public.orders is parked at 0/100",
        "public.orders is followed again",
    ]
