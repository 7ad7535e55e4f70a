"""The service manager that the environment names: its address, and how often it is notified."""

import os

import pytest

from auditlake.errors import ConfigError
from auditlake.metrics.service import find_manager


def test_an_address_is_a_path_or_an_abstract_name() -> None:
    """An abstract name begins with a zero byte, written as @ (sd_notify(3)); without one there is no manager."""
    found = [find_manager({"NOTIFY_SOCKET": name}) for name in ("/run/notify", "@notify")]
    assert [each.address for each in found if each] == ["/run/notify", "\0notify"]
    assert find_manager({}) is None


@pytest.mark.parametrize(
    "environment", [{"NOTIFY_SOCKET": "vsock:2:1"}, {"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "1s"}]
)
def test_what_is_not_known_is_refused(environment: dict[str, str]) -> None:
    """A process that nobody hears would be ended by its manager."""
    with pytest.raises(ConfigError, match="need"):
        find_manager(environment)


def test_the_watchdog_of_another_process_is_not_ours() -> None:
    """WATCHDOG_PID names whom the manager watches; the interval is half of the watchdog's (sd_watchdog_enabled(3))."""
    watched = {"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "4000000"}
    cases = {str(os.getpid()): 2.0, str(os.getppid()): 10.0}
    for pid, interval_s in cases.items():
        found = find_manager({**watched, "WATCHDOG_PID": pid})
        assert found is not None
        assert found.interval_s == interval_s
