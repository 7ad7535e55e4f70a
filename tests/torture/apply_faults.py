"""Faults of apply, follow, maintain and their JVMs: each is a function of the testbed.

If only Python or only the JVM is killed, the other half may continue for a while, beside the next process that writes
to the same histories. The next start must resume from whatever they have left.
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
from tests.torture.testbed import Testbed, await_true, expect

LOST_REPLY = """
import itertools
import auditlake.apply.apply as apply
written, count = apply.merge, itertools.count(1)
def lose(*arguments):
    written(*arguments)
    if next(count) == {times}:
        raise OSError("the reply was lost")
apply.merge = lose
"""
THROUGH_SPARK = """
import auditlake.lake.maintenance as maintenance
maintenance.may_hold = lambda _: False
maintenance._STREAMED_BYTES = 0
"""
_KILLED, _DONE, _BUG, _LAKE = -9, 0, 1, 6
_START_S = 180.0
_TABLES = 7
_POLL_S = 0.01
_PAUSES = 6

Fault = Callable[[Testbed, random.Random], None]


def failpoint(bed: Testbed, chance: random.Random) -> None:
    """Kill apply right after an effect."""
    place = chance.choice([After.TABLE_MERGED, After.ROWS_WRITTEN])
    process = bed.start(bed.apply_arguments(), place, times=chance.randint(1, _TABLES + 3))
    code = process.wait(_START_S, bed.stop)
    expect(bed, process, code, (_KILLED,))
    process.kill()
    bed.count(f"apply killed after {place}" if code == _KILLED else "apply killed, nothing merged")


def killed_while_writing(bed: Testbed, chance: random.Random) -> None:
    """Kill apply when it has written files that are in no commit yet."""
    before = bed.data_files()
    process = bed.start(bed.apply_arguments())
    deadline = time.monotonic() + _START_S
    wanted = chance.randint(1, 8)
    while len(bed.data_files() - before) < wanted and time.monotonic() < deadline and not bed.stop.is_set():
        if process.wait(_POLL_S) is not None:
            break
    expect(bed, process, process.process.poll(), ())
    process.kill()
    bed.count("apply killed while it wrote")


def killed(bed: Testbed, chance: random.Random) -> None:
    """Kill apply and its JVM at a random moment."""
    process = bed.start(bed.apply_arguments())
    expect(bed, process, process.wait(chance.uniform(5, 60), bed.stop), ())
    process.kill()
    bed.count("apply killed at random")


def python_killed(bed: Testbed, chance: random.Random) -> None:
    """Kill only Python: its JVM may finish a commit while the next apply starts."""
    before = bed.data_files()
    process = bed.start(bed.apply_arguments())
    while not bed.data_files() - before and process.wait(_POLL_S, bed.stop) is None and not bed.stop.is_set():
        pass
    process.wait(chance.uniform(0, 1))
    process.process.kill()
    process.process.wait()
    bed.count("apply killed, its JVM left alone")
    other = bed.start(bed.apply_arguments(), After.TABLE_MERGED, times=chance.randint(1, _TABLES))
    code = other.wait(_START_S, bed.stop)
    expect(bed, other, code, (_KILLED, _LAKE))
    for each in (process, other):
        each.kill()


def jvm_killed(bed: Testbed, chance: random.Random) -> None:
    """Kill only the JVM: Python must end with an error."""
    before = bed.data_files()
    process = bed.start(bed.apply_arguments())
    while not bed.data_files() - before and process.wait(_POLL_S, bed.stop) is None and not bed.stop.is_set():
        pass
    process.wait(chance.uniform(0, 1))
    for pid in _jvms(process.process.pid):
        os.kill(pid, signal.SIGKILL)
    code = process.wait(90)
    bed.count(f"apply lost its JVM, ended with {code}")
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


def two_at_once(bed: Testbed, _: random.Random) -> None:
    """Two applies on one lake: the second names the first and exits 6, the first goes on."""
    first = bed.start(bed.apply_arguments())
    held = await_true(lambda: bed.holds_lock(first, "apply"), _START_S, bed.stop)
    second = bed.start(bed.apply_arguments())
    code = second.wait(_START_S, bed.stop)
    if held and code is not None and (code != _LAKE or f"process {first.process.pid} " not in second.output):
        bed.fail(f"a second apply ended with {code}: {second.output}")
    expect(bed, first, first.process.poll(), ())
    for process in (first, second):
        process.kill()
    bed.count(f"second apply beside the first ended with {code}")


def reply_lost(bed: Testbed, chance: random.Random) -> None:
    """Lose the reply to the commit of a merge."""
    process = bed.start(bed.apply_arguments(), code=LOST_REPLY.format(times=chance.randint(1, _TABLES + 2)))
    expect(bed, process, process.wait(_START_S, bed.stop), (_BUG,))
    process.kill()
    bed.count("apply lost the reply to a commit")


def follow_killed(bed: Testbed, chance: random.Random) -> None:
    """Kill follow at a failpoint of capture or apply, or at random."""
    place = chance.choice([After.TABLE_MERGED, After.ROWS_WRITTEN, After.CHANGES, None])
    with bed.slot:
        code = SMALL_PARTS if chance.randrange(2) else ""
        process = bed.start(bed.arguments("follow"), place, times=chance.randint(1, _TABLES), code=code)
        ended = process.wait(_START_S if place else chance.uniform(10, 60), bed.stop)
        expect(bed, process, ended, (_KILLED,))
        process.kill()
    bed.count(f"follow killed after {place}" if place and ended == _KILLED else "follow killed at random")


def maintained(bed: Testbed, chance: random.Random) -> None:
    """Run maintain beside apply, in Python or through Spark, and kill it or not."""
    apply = bed.start(bed.apply_arguments())
    place = chance.choice([After.FILES_JOINED, None, None])
    way, times = THROUGH_SPARK if chance.randrange(2) else "", chance.randint(1, _TABLES)
    other = bed.start(["maintain", "--lake", bed.lake.root], place, times=times, code=way)
    at_random = place is None and chance.randrange(2)
    code = other.wait(chance.uniform(8, 40) if at_random else _START_S, bed.stop)
    # maintain skips a table that apply commits to, so it may pass the failpoint less often than `times`.
    expect(bed, other, code, (_KILLED, _DONE) if place else (_DONE,))
    expect(bed, apply, apply.process.poll(), ())
    for each in (apply, other):
        each.kill()
    where = place or ("at random" if code is None else None)
    bed.count(f"maintain killed {where}" if code in (_KILLED, None) else "maintain beside apply")


def killed_when_parked(bed: Testbed, chance: random.Random) -> None:
    """Kill apply right after it has parked the table whose column changed its type."""
    if not bed.retyped.is_set():
        return failpoint(bed, chance)
    process = bed.start(bed.apply_arguments(), After.PARKED)
    code = process.wait(_START_S, bed.stop)
    expect(bed, process, code, (_KILLED,))
    process.kill()
    bed.count(f"apply killed after {After.PARKED}" if code == _KILLED else "apply killed, nothing parked")
    return None


def paused(bed: Testbed, chance: random.Random) -> None:
    """Pause and resume follow and maintain at random beside each other, with or without their JVMs."""
    with bed.slot:
        follow = bed.start(bed.arguments("follow"))
        maintain = bed.start(["maintain", "--lake", bed.lake.root], code=THROUGH_SPARK if chance.randrange(2) else "")
        pauses = 0
        while pauses < _PAUSES and follow.process.poll() is None and not bed.stop.is_set():
            follow.wait(chance.uniform(0.5, 6), bed.stop)
            chosen, group = chance.sample([follow, maintain], chance.randint(1, 2)), chance.randrange(2) == 1
            for process in chosen:
                process.send(signal.SIGSTOP, group=group)
            time.sleep(chance.uniform(0.2, 6))
            for process in chosen:
                process.send(signal.SIGCONT, group=group)
            pauses += 1
        expect(bed, maintain, maintain.wait(_START_S, bed.stop), (_DONE,))
        expect(bed, follow, follow.process.poll(), ())
        for process in (follow, maintain):
            process.kill()
    bed.count("follow and maintain paused")


def stopped(bed: Testbed, chance: random.Random) -> None:
    """Stop apply with SIGTERM."""
    process = bed.start(bed.apply_arguments())
    expect(bed, process, process.wait(chance.uniform(10, 60), bed.stop), ())
    process.terminate()
    code = process.wait(120)
    expect(bed, process, code, (_DONE, -15))
    process.kill()
    bed.count("apply stopped by SIGTERM")


_FAULTS: dict[Fault, int] = {
    killed_while_writing: 3,
    failpoint: 3,
    follow_killed: 3,
    killed: 2,
    python_killed: 2,
    reply_lost: 1,
    two_at_once: 1,
    maintained: 2,
    killed_when_parked: 2,
    paused: 2,
    jvm_killed: 1,
    stopped: 1,
}


class ApplyFaults(threading.Thread):
    """Injects one fault after the other until the campaign stops, each at least once."""

    def __init__(self, bed: Testbed) -> None:
        super().__init__(name="apply", daemon=True)
        self._site = bed
        self._chance = random.Random(f"{bed.seed}/apply")  # noqa: S311 - no secret

    def run(self) -> None:
        first = self._chance.sample(list(_FAULTS), len(_FAULTS))
        while not self._site.stop.is_set():
            fault = first.pop() if first else self._chance.choices([*_FAULTS], [*_FAULTS.values()])[0]
            try:
                fault(self._site, self._chance)
            except Exception as exc:  # noqa: BLE001 - a fault that fails is reported, and the campaign goes on
                self._site.fail(f"{fault.__name__}: {exc!r}")
