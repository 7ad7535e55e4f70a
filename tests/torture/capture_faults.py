"""Faults of capture, and of the server and the network under it: each fault is a function of the testbed.

Each ends with its process gone. After each, the lake must hold whatever was acknowledged; the end of the campaign shows
whether the next start resumed correctly.
"""

import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

import psycopg

from auditlake.failpoints import After
from auditlake.lake.positions import read_positions
from tests import oracle
from tests.faulty_store import REFUSED
from tests.torture.testbed import Process, Testbed, await_watermark, expect
from tests.torture.work import LOST

SMALL_PARTS = """
import auditlake.capture.capture as capture
import auditlake.delta.append_table as log
from auditlake.replication.stream import BufferLimits
capture._BATCH = BufferLimits(frames=200, size_bytes=20_000)
capture._FULL = BufferLimits(frames=600, size_bytes=60_000)
log._TIDY_EVERY = 12
"""
LOST_REPLY = """
import itertools
import auditlake.delta.append_table as log
written, count = log.put_entry, itertools.count(1)
def lose(*arguments):
    written(*arguments)
    if next(count) == {times}:
        raise OSError("the reply was lost")
log.put_entry = lose
"""
_PLACES = {
    After.RELATIONS: 3,
    After.TRANSACTIONS: 12,
    After.CHANGES: 12,
    After.PART: 8,
    After.ACKNOWLEDGED: 12,
    After.TIDIED: 2,
    After.IDLE: 1,
}
_KILLED, _DONE, _LAKE = -9, 0, 6
_START_S = 20.0

Fault = Callable[[Testbed, random.Random], None]


def failpoint(bed: Testbed, chance: random.Random) -> None:
    """Kill capture right after an effect."""
    place = chance.choice(list(_PLACES))
    line = bed.arguments("capture", *(["--until-current"] if place == After.IDLE else []))
    process = bed.start(line, place, times=chance.randint(1, _PLACES[place]), code=SMALL_PARTS)
    code = process.wait(_START_S, bed.stop)
    expect(bed, process, code, (_KILLED, _DONE) if place == After.IDLE else (_KILLED,))
    process.kill()
    bed.count(f"capture killed after {place}" if code == _KILLED else f"capture killed, {place} not reached")


def killed(bed: Testbed, chance: random.Random) -> None:
    """Kill capture at a random moment."""
    process = bed.start(bed.arguments("capture"), code=SMALL_PARTS if chance.randrange(2) else "")
    expect(bed, process, process.wait(chance.uniform(0.3, 5), bed.stop), ())
    process.kill()
    bed.count("capture killed at random")


def stopped(bed: Testbed, chance: random.Random) -> None:
    """Stop capture with SIGTERM."""
    process = bed.start(bed.arguments("capture"))
    expect(bed, process, process.wait(chance.uniform(2, 5), bed.stop), ())
    _end(bed, process)
    bed.count("capture stopped by SIGTERM")


def _end(bed: Testbed, process: Process) -> None:
    process.terminate()
    code = process.wait(60)
    expect(bed, process, code, (_DONE, -15))
    if code is None:
        process.send(signal.SIGABRT, group=False)  # on which it prints the stacks of its threads
        process.wait(10)
        bed.fail(f"capture did not end after SIGTERM: {process.output}")
        process.kill()


def _disturb(bed: Testbed, chance: random.Random, what: str, disturb: Callable[[], None]) -> None:
    """Disturb a running capture, which must continue by itself."""
    process = bed.start(bed.arguments("capture"), code=SMALL_PARTS if chance.randrange(2) else "")
    await_watermark(bed, process)
    for _ in range(chance.randint(1, 3)):
        disturb()
        process.wait(chance.uniform(0.1, 1.5), bed.stop)
    if await_watermark(bed, process) and process.process.poll() is None:
        bed.count(f"capture survived: {what}")
    elif not bed.stop.is_set():
        bed.fail(f"capture did not survive: {what}: {process.output}")
    _end(bed, process)


def cut(bed: Testbed, chance: random.Random) -> None:
    """Close every connection."""
    _disturb(bed, chance, "network cut", bed.proxy.cut)


def silent(bed: Testbed, chance: random.Random) -> None:
    """Keep connections open and pass no data."""
    _disturb(bed, chance, "network silent", bed.proxy.go_deaf)


def refused(bed: Testbed, chance: random.Random) -> None:
    """Refuse connections for a while."""

    def away() -> None:
        bed.proxy.refuse()
        time.sleep(chance.uniform(0.2, 2))
        bed.proxy.refuse(refuse=False)

    _disturb(bed, chance, "network away", away)


def walsender_ended(bed: Testbed, chance: random.Random) -> None:
    """Terminate the walsender."""
    ask = "select pg_terminate_backend(active_pid) from pg_replication_slots where active_pid is not null"

    def end() -> None:
        with suppress(*LOST), psycopg.connect(bed.dsn) as conn:
            conn.execute(ask)

    _disturb(bed, chance, "walsender terminated", end)


def server_crashed(bed: Testbed, chance: random.Random) -> None:
    """Stop the server immediately, so that it recovers from WAL."""
    _disturb(bed, chance, "server stopped immediately", bed.server.restart)


def lake_unusable(bed: Testbed, chance: random.Random) -> None:
    """Fill up the lake's disk; let the credentials of its store expire, or deny them the bucket."""
    if bed.disk is None and bed.store is None:
        return killed(bed, chance)
    process = bed.start(bed.arguments("capture"))
    await_watermark(bed, process)
    with _unusable(bed, chance):
        code = process.wait(30, bed.stop)
    expect(bed, process, code, (_LAKE,))
    process.kill()
    bed.count("capture killed on an unusable lake" if code is None else "capture met an unusable lake")
    return None


def _unusable(bed: Testbed, chance: random.Random) -> AbstractContextManager[None]:
    if bed.disk is not None:
        return bed.disk.full()
    return bed.store.refusing(chance.choice(REFUSED)) if bed.store else nullcontext()


def throttled(bed: Testbed, chance: random.Random) -> None:
    """Let the store answer nothing but SlowDown for a while."""
    store = bed.store
    if store is None:
        return killed(bed, chance)

    def throttle() -> None:
        with store.refusing("SlowDown"):
            time.sleep(chance.uniform(0.5, 4))

    return _disturb(bed, chance, "store throttled", throttle)


def reply_lost(bed: Testbed, chance: random.Random) -> None:
    """Lose the reply to a commit, so that capture takes it for failed."""
    code = LOST_REPLY.format(times=chance.randint(1, 12))
    process = bed.start(bed.arguments("capture"), code=SMALL_PARTS + code)
    expect(bed, process, process.wait(_START_S, bed.stop), (_LAKE,))
    process.kill()
    bed.count("capture lost the reply to a commit")


_FAULTS: dict[Fault, int] = {
    failpoint: 12,
    killed: 6,
    stopped: 1,
    cut: 1,
    silent: 1,
    refused: 1,
    walsender_ended: 1,
    server_crashed: 2,
    lake_unusable: 1,
    throttled: 1,
    reply_lost: 3,
}


class CaptureFaults(threading.Thread):
    """Injects one fault after the other until the campaign stops, each at least once."""

    def __init__(self, bed: Testbed) -> None:
        super().__init__(name="capture", daemon=True)
        self._site = bed
        self._chance = random.Random(f"{bed.seed}/capture")  # noqa: S311 - no secret

    def run(self) -> None:
        first = self._chance.sample(list(_FAULTS), len(_FAULTS))
        while not self._site.stop.is_set():
            fault = first.pop() if first else self._chance.choices([*_FAULTS], [*_FAULTS.values()])[0]
            with self._site.slot:
                self._do(fault)

    def _do(self, fault: Fault) -> None:
        try:
            fault(self._site, self._chance)
        except LOST as exc:
            self._site.count(f"{fault.__name__} cut short: {type(exc).__name__}")
        except Exception as exc:  # noqa: BLE001 - a fault that fails is reported, and the campaign goes on
            self._site.fail(f"{fault.__name__}: {exc!r}")
        _check_acknowledged(self._site)


def _check_acknowledged(bed: Testbed) -> None:
    with suppress(*LOST):
        confirmed, positions = oracle.confirmed_flush(bed.dsn), read_positions(bed.lake)
        if positions is None or confirmed > positions.acknowledged:
            bed.fail(f"{confirmed} was acknowledged, the lake holds {positions}")
