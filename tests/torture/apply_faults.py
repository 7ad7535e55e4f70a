"""What is done to apply, to follow and to their JVM: each fault is a function of the site.

Where only one half of a process is killed the other may go on for a while, which is the worst that can happen to a
history: two that write to it. The next start must find whatever they have left.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from auditlake.failpoints import After
from tests.torture.capture_faults import SMALL_PARTS
from tests.torture.site import Process, Site, expect

LOST_ANSWER = """
import itertools
import auditlake.apply.apply as apply
written, count = apply.merge, itertools.count(1)
def lose(*arguments):
    written(*arguments)
    if next(count) == {times}:
        raise OSError("the answer was lost")
apply.merge = lose
"""
NOTHING_HELD = """
import auditlake.lake.upkeep as upkeep
upkeep.HELD_BYTES = 0
"""
_KILLED, _DONE, _BUG, _LAKE = -9, 0, 1, 6
_START_S = 180.0
_TABLES = 6
_POLL_S = 0.01

Fault = Callable[[Site, random.Random], None]


def failpoint(site: Site, chance: random.Random) -> None:
    """Apply killed after the commit of one of its tables."""
    place = chance.choice([After.TABLE_MERGED, After.ROWS_WRITTEN])
    process = Process(site.apply_arguments(), place, times=chance.randint(1, _TABLES + 3))
    code = process.ended(_START_S, site.stop)
    expect(site, process, code, (_KILLED,))
    process.kill()
    site.count(f"apply killed after {place}" if code == _KILLED else "apply killed, nothing merged")


def killed_while_writing(site: Site, chance: random.Random) -> None:
    """Apply killed when files of a history appear that no commit has yet."""
    before = _files(site)
    process = Process(site.apply_arguments())
    deadline = time.monotonic() + _START_S
    wanted = chance.randint(1, 8)
    while len(_files(site) - before) < wanted and time.monotonic() < deadline and not site.stop.is_set():
        if process.ended(_POLL_S) is not None:
            break
    expect(site, process, process.process.poll(), ())
    process.kill()
    site.count("apply killed while it wrote")


def _files(site: Site) -> set[Path]:
    return set(site.lake.histories.glob("*/*/_part=*/*.parquet"))


def killed(site: Site, chance: random.Random) -> None:
    """Apply killed at a random moment, JVM and all."""
    process = Process(site.apply_arguments())
    expect(site, process, process.ended(chance.uniform(5, 60), site.stop), ())
    process.kill()
    site.count("apply killed at random")


def python_killed(site: Site, chance: random.Random) -> None:
    """Only Python is killed: its JVM may finish what it is at, while the next apply begins."""
    before = _files(site)
    process = Process(site.apply_arguments())
    while not _files(site) - before and process.ended(_POLL_S, site.stop) is None and not site.stop.is_set():
        pass
    process.ended(chance.uniform(0, 1))
    process.process.kill()
    process.process.wait()
    site.count("apply killed, its JVM left alone")
    other = Process(site.apply_arguments(), After.TABLE_MERGED, times=chance.randint(1, _TABLES))
    code = other.ended(_START_S, site.stop)
    expect(site, other, code, (_KILLED, _LAKE))
    for each in (process, other):
        each.kill()


def jvm_killed(site: Site, chance: random.Random) -> None:
    """Only the JVM is killed: Python must end and say so."""
    before = _files(site)
    process = Process(site.apply_arguments())
    while not _files(site) - before and process.ended(_POLL_S, site.stop) is None and not site.stop.is_set():
        pass
    process.ended(chance.uniform(0, 1))
    for pid in _jvms(process.process.pid):
        os.kill(pid, signal.SIGKILL)
    code = process.ended(90)
    site.count(f"apply lost its JVM, ended with {code}")
    process.kill()


def _jvms(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            name = (stat.parent / "comm").read_text().strip()
        except OSError:
            continue
        if int(fields[2]) == parent and name == "java":  # of the process's group
            found.append(int(stat.parent.name))
    return found


def two_at_once(site: Site, _: random.Random) -> None:
    """Two applies on one lake: what one has moved the other must not move again."""
    both = [Process(site.apply_arguments()) for _ in range(2)]
    deadline = time.monotonic() + _START_S
    while all(each.process.poll() is None for each in both) and time.monotonic() < deadline and not site.stop.is_set():
        time.sleep(0.1)
    for each in both:
        expect(site, each, each.process.poll(), (_LAKE,))
        each.kill()
    stopped = sum(each.process.returncode == _LAKE for each in both)
    site.count(f"two applies at once, {stopped} gave way")


def answer_lost(site: Site, chance: random.Random) -> None:
    """A merge is committed and its answer lost."""
    process = Process(site.apply_arguments(), code=LOST_ANSWER.format(times=chance.randint(1, _TABLES + 2)))
    expect(site, process, process.ended(_START_S, site.stop), (_BUG,))
    process.kill()
    site.count("apply lost the answer of a commit")


def followed(site: Site, chance: random.Random) -> None:
    """Follow killed, at a failpoint of either half or at random."""
    place = chance.choice([After.TABLE_MERGED, After.ROWS_WRITTEN, After.CHANGES, None])
    with site.slot:
        code = SMALL_PARTS if chance.randrange(2) else ""
        process = Process(site.arguments("follow"), place, times=chance.randint(1, _TABLES), code=code)
        ended = process.ended(_START_S if place else chance.uniform(10, 60), site.stop)
        expect(site, process, ended, (_KILLED,))
        process.kill()
    site.count(f"follow killed after {place}" if place and ended == _KILLED else "follow killed at random")


def looked_after(site: Site, chance: random.Random) -> None:
    """Files are joined and laid in order, by either way, while apply merges; what does it is killed, or not."""
    apply = Process(site.apply_arguments())
    place = chance.choice([After.FILES_JOINED, None, None])
    way, times = NOTHING_HELD if chance.randrange(2) else "", chance.randint(1, _TABLES)
    other = Process(["maintain", "--lake", site.lake.root], place, times=times, code=way)
    at_random = place is None and chance.randrange(2)
    code = other.ended(chance.uniform(8, 40) if at_random else _START_S, site.stop)
    # A table that apply moved meanwhile is left alone, so the place may not be passed often enough.
    expect(site, other, code, (_KILLED, _DONE) if place else (_DONE,))
    expect(site, apply, apply.process.poll(), ())
    for each in (apply, other):
        each.kill()
    where = place or ("at random" if code is None else None)
    site.count(f"maintain killed {where}" if code in (_KILLED, None) else "maintain beside apply")


def stopped(site: Site, chance: random.Random) -> None:
    """Apply asked to stop."""
    process = Process(site.apply_arguments())
    expect(site, process, process.ended(chance.uniform(10, 60), site.stop), ())
    process.terminate()
    code = process.ended(120)
    expect(site, process, code, (_DONE, -15))
    process.kill()
    site.count("apply asked to stop")


_FAULTS: dict[Fault, int] = {
    killed_while_writing: 3,
    failpoint: 3,
    followed: 3,
    killed: 2,
    python_killed: 2,
    answer_lost: 1,
    two_at_once: 1,
    looked_after: 2,
    jvm_killed: 1,
    stopped: 1,
}


class ApplyFaults(threading.Thread):
    """Does one fault after the other, until the campaign stops; the first round has each once."""

    def __init__(self, site: Site) -> None:
        super().__init__(name="apply", daemon=True)
        self._site = site
        self._chance = random.Random(f"{site.seed}/apply")  # noqa: S311 - no secret

    def run(self) -> None:
        first = self._chance.sample(list(_FAULTS), len(_FAULTS))
        while not self._site.stop.is_set():
            fault = first.pop() if first else self._chance.choices([*_FAULTS], [*_FAULTS.values()])[0]
            try:
                fault(self._site, self._chance)
            except Exception as exc:  # noqa: BLE001 - a fault that fails is reported, and the campaign goes on
                self._site.fail(f"{fault.__name__}: {exc!r}")
