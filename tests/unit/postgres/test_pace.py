"""How often the server hears from us, and the hosts that are tried."""

import pytest

from auditlake.postgres.connection import one_host_each
from auditlake.postgres.pace import pace_of


@pytest.mark.parametrize("timeout_s", [0.3, 1, 9, 15, 60, 3600])
def test_reports_are_three_times_as_often_as_needed(timeout_s: float) -> None:
    """At least; and a dead reader is waited for longer than the server keeps it."""
    pace = pace_of(timeout_s)
    assert pace.status_s <= timeout_s / 3
    assert pace.deaf_s == timeout_s
    assert pace.slot_free_s > timeout_s


def test_a_server_that_never_gives_up() -> None:
    """It still hears from us, and we still notice that it is gone."""
    pace = pace_of(0)
    assert 0 < pace.status_s < pace.deaf_s == 60


def test_each_host_has_its_own_time() -> None:
    """With its own port and address, as libpq pairs them; one port serves all."""
    assert list(one_host_each({"host": "a,b", "port": "1,2", "user": "me"})) == [
        {"host": "a", "port": "1", "user": "me"},
        {"host": "b", "port": "2", "user": "me"},
    ]
    assert [parts["port"] for parts in one_host_each({"host": "a,b", "hostaddr": "::1,::2", "port": "1"})] == ["1", "1"]
    assert list(one_host_each({"service": "shop"})) == [{"service": "shop"}]
