"""Health of a process whose one merge takes hours: it is alive while its JVM works."""

import subprocess
import sys

import pytest

from auditlake import counters
from auditlake.counters import Beat
from auditlake.metrics import health

_APPLY = frozenset({Beat.APPLY})
_HOUR_S = 3600.0


class Clock:
    """The time, and the CPU that the children have used by then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.cpu_s = 1_000_000.0, 500.0
        monkeypatch.setattr("time.monotonic", lambda: self.now_s)
        monkeypatch.setattr(health, "children_cpu_s", lambda: self.cpu_s)
        monkeypatch.setattr(health, "_work", health._Work())  # noqa: SLF001 - of another process
        monkeypatch.setitem(counters._beats, Beat.APPLY, self.now_s)  # noqa: SLF001 - the merge begins

    def is_alive_after(self, seconds: float, cpu_s: float) -> bool:
        """Let time pass, and CPU be used."""
        self.now_s += seconds
        self.cpu_s += cpu_s
        return not health.alive(_APPLY)


def test_a_merge_of_hours_is_alive_while_its_jvm_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once that only waits, apply counts as dead after an hour, and as alive if it goes on."""
    clock = Clock(monkeypatch)
    assert all(clock.is_alive_after(60, 60) for _ in range(5 * 60))
    assert all(clock.is_alive_after(60, 0.6) for _ in range(60)), "an idle JVM, for an hour"
    assert not clock.is_alive_after(60, 0.6)
    assert health.alive(_APPLY) == ("apply has not run for 3660 s",)
    assert clock.is_alive_after(60, 6)


def test_a_clock_that_is_set_back_hides_no_loop_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that is set forward make others look dead."""
    clock = Clock(monkeypatch)
    for now_s in (3_000_000.0, 0.0):
        monkeypatch.setattr("time.time", lambda now_s=now_s: now_s)
        counters.beat(Beat.APPLY)
        monkeypatch.setattr("time.time", lambda now_s=now_s: 1_500_000.0 - now_s)
        assert clock.is_alive_after(60, 0.6)
        assert not clock.is_alive_after(_HOUR_S, 36.0)


def test_looks_in_quick_succession_see_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tick of the clock between two of them is no work."""
    clock = Clock(monkeypatch)
    assert clock.is_alive_after(_HOUR_S, 36.0)
    for _ in range(5):
        assert not clock.is_alive_after(0.05, 0.01)


def test_children_that_end_are_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they have used is no longer counted."""
    clock = Clock(monkeypatch)
    assert clock.is_alive_after(_HOUR_S, -400.0)
    assert not clock.is_alive_after(60, 0.0)


def test_the_cpu_of_a_child_is_counted() -> None:
    """That of this process is not among it; it runs in a process of its own, which has no other children."""
    child = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\nimport sys; sys.stdin.read()"
    code = f"""
import subprocess, sys
from auditlake.metrics import children
assert children.children_cpu_s() == 0
with subprocess.Popen([sys.executable, "-c", {child!r}], stdin=-1, stdout=-1) as child:
    child.stdout.readline()
    print(children.children_cpu_s(), children.children_bytes())
    child.communicate()
"""
    cpu_s, size_bytes = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    # The kernel counts in ticks of 10 ms, and rounds user and system time of each process down.
    assert float(cpu_s) >= 0.27
    assert int(size_bytes) > 1 << 20
