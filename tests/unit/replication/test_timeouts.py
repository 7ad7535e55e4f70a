"""Tests of the replication timeouts, and of the hosts of a connection string."""

import pytest

from auditlake.replication.start import timeouts_of
from auditlake.source.connection import one_host_each


@pytest.mark.parametrize("timeout_s", [0.3, 1, 9, 15, 60, 3600])
def test_status_updates_are_three_times_as_frequent_as_required(timeout_s: float) -> None:
    """The interval is at most a third, and we wait for a dead reader's slot longer than the server keeps it."""
    timeouts = timeouts_of(timeout_s)
    assert timeouts.status_s <= timeout_s / 3
    assert timeouts.silence_s == timeout_s
    assert timeouts.slot_free_s > timeout_s


def test_without_wal_sender_timeout_both_sides_are_still_checked() -> None:
    """We still send status updates, and still detect a silent server."""
    timeouts = timeouts_of(0)
    assert 0 < timeouts.status_s < timeouts.silence_s == 60


def test_each_host_is_tried_on_its_own() -> None:
    """Each host has its own port and address, paired as in libpq; a single port applies to all."""
    assert list(one_host_each({"host": "a,b", "port": "1,2", "user": "me"})) == [
        {"host": "a", "port": "1", "user": "me"},
        {"host": "b", "port": "2", "user": "me"},
    ]
    assert [parts["port"] for parts in one_host_each({"host": "a,b", "hostaddr": "::1,::2", "port": "1"})] == ["1", "1"]
    assert list(one_host_each({"service": "shop"})) == [{"service": "shop"}]
