"""Tests of the replication timeouts."""

import psycopg
import pytest

from auditlake.errors import SourceAway
from auditlake.replication.start import timeouts_of
from auditlake.source.connection import translated_errors


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


@pytest.mark.parametrize("ended", [psycopg.errors.TransactionTimeout, psycopg.errors.IdleInTransactionSessionTimeout])
def test_a_session_that_a_timeout_ended_is_a_lost_connection(ended: type[psycopg.Error]) -> None:
    """The setting of a role or a database may apply before ours does."""
    with pytest.raises(SourceAway, match="terminating connection due to"), translated_errors():
        raise ended("terminating connection due to a timeout")
