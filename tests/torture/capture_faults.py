"""What is done to capture, and to the server and the network under it: each fault is a function of the site.

Every one ends with the process gone. Afterwards nothing may be acknowledged that is not in the lake; what a later
start makes of it is seen at the end of the campaign.
"""

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg

from auditlake.failpoints import After
from auditlake.lake.positions import read_positions
from tests import oracle
from tests.torture.site import Process, Site, await_watermark, expect
from tests.torture.work import LOST

SMALL_PARTS = """
import auditlake.capture.capture as capture
import auditlake.lake.log as log
from auditlake.postgres.buffer import Limits
capture._BATCH = Limits(frames=200, size_bytes=20_000)
capture._FULL = Limits(frames=600, size_bytes=60_000)
log._TIDY_EVERY = 12
"""
LOST_ANSWER = """
import itertools
import auditlake.lake.log as log
written, count = log.put_commit, itertools.count(1)
def lose(*arguments):
    written(*arguments)
    if next(count) == {times}:
        raise {error}("the answer was lost")
log.put_commit = lose
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

Fault = Callable[[Site, random.Random], None]


def failpoint(site: Site, chance: random.Random) -> None:
    """Killed right after an effect."""
    place = chance.choice(list(_PLACES))
    line = site.arguments("capture", *(["--until-current"] if place == After.IDLE else []))
    process = Process(line, place, times=chance.randint(1, _PLACES[place]), code=SMALL_PARTS)
    code = process.ended(_START_S, site.stop)
    expect(site, process, code, (_KILLED, _DONE) if place == After.IDLE else (_KILLED,))
    process.kill()
    site.count(f"capture killed after {place}" if code == _KILLED else f"capture killed, {place} not reached")


def killed(site: Site, chance: random.Random) -> None:
    """Killed at a random moment."""
    process = Process(site.arguments("capture"), code=SMALL_PARTS if chance.randrange(2) else "")
    expect(site, process, process.ended(chance.uniform(0.3, 5), site.stop), ())
    process.kill()
    site.count("capture killed at random")


def stopped(site: Site, chance: random.Random) -> None:
    """Asked to stop."""
    process = Process(site.arguments("capture"))
    expect(site, process, process.ended(chance.uniform(2, 5), site.stop), ())
    _end(site, process)
    site.count("capture asked to stop")


def _end(site: Site, process: Process) -> None:
    process.terminate()
    code = process.ended(60)
    expect(site, process, code, (_DONE, -15))
    if code is None:
        site.fail(f"capture did not end when asked to: {process.said}")
        process.kill()


def _through(site: Site, chance: random.Random, what: str, disturb: Callable[[], None]) -> None:
    """A running capture must come through a disturbance by itself."""
    process = Process(site.arguments("capture"), code=SMALL_PARTS if chance.randrange(2) else "")
    await_watermark(site, process)
    for _ in range(chance.randint(1, 3)):
        disturb()
        process.ended(chance.uniform(0.1, 1.5), site.stop)
    if await_watermark(site, process) and process.process.poll() is None:
        site.count(f"capture came through: {what}")
    elif not site.stop.is_set():
        site.fail(f"capture did not come through: {what}: {process.said}")
    _end(site, process)


def cut(site: Site, chance: random.Random) -> None:
    """The network ends every connection."""
    _through(site, chance, "network cut", site.proxy.cut)


def deaf(site: Site, chance: random.Random) -> None:
    """The network passes nothing any more."""
    _through(site, chance, "network deaf", site.proxy.go_deaf)


def refused(site: Site, chance: random.Random) -> None:
    """Nothing can connect for a while."""

    def away() -> None:
        site.proxy.refuse()
        time.sleep(chance.uniform(0.2, 2))
        site.proxy.refuse(refuse=False)

    _through(site, chance, "network away", away)


def walsender_ended(site: Site, chance: random.Random) -> None:
    """The server ends the walsender."""
    ask = "select pg_terminate_backend(active_pid) from pg_replication_slots where active_pid is not null"

    def end() -> None:
        with suppress(*LOST), psycopg.connect(site.dsn) as conn:
            conn.execute(ask)

    _through(site, chance, "walsender terminated", end)


def server_crashed(site: Site, chance: random.Random) -> None:
    """The server is stopped without a chance to write anything, and recovers from its log."""
    _through(site, chance, "server stopped immediately", site.server.restart)


def disk_full(site: Site, chance: random.Random) -> None:
    """The lake's disk takes no more."""
    if site.disk is None:
        return killed(site, chance)
    process = Process(site.arguments("capture"))
    await_watermark(site, process)
    with site.disk.full():
        code = process.ended(30, site.stop)
    expect(site, process, code, (_LAKE,))
    process.kill()
    site.count("capture met a full disk" if code is not None else "capture killed on a full disk")
    return None


def answer_lost(site: Site, chance: random.Random) -> None:
    """A commit is made and its answer lost, so that capture takes it for failed."""
    error = chance.choice(["OSError", "log.CommitFailedError"])
    code = LOST_ANSWER.format(times=chance.randint(1, 12), error=error)
    process = Process(site.arguments("capture"), code=SMALL_PARTS + code)
    expect(site, process, process.ended(_START_S, site.stop), (_LAKE,))
    process.kill()
    site.count("capture lost the answer of a commit")


_FAULTS: dict[Fault, int] = {
    failpoint: 12,
    killed: 6,
    stopped: 1,
    cut: 1,
    deaf: 1,
    refused: 1,
    walsender_ended: 1,
    server_crashed: 2,
    disk_full: 1,
    answer_lost: 3,
}


class CaptureFaults(threading.Thread):
    """Does one fault after the other, until the campaign stops; the first round has each once."""

    def __init__(self, site: Site) -> None:
        super().__init__(name="capture", daemon=True)
        self._site = site
        self._chance = random.Random(f"{site.seed}/capture")  # noqa: S311 - no secret

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
        _see_acknowledged(self._site)


def _see_acknowledged(site: Site) -> None:
    with suppress(*LOST):
        confirmed, positions = oracle.confirmed_flush(site.dsn), read_positions(site.lake)
        if positions is None or confirmed > positions.acknowledged:
            site.fail(f"{confirmed} was acknowledged, the lake holds {positions}")
