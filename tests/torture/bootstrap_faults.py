"""Faults of bootstrap: kills after each effect, a second bootstrap beside it, and the loss of the snapshot session.

A copy gives way to TRUNCATE. On a slow machine there is one in every attempt of a bootstrap, which then ends with exit
code 4, as documented; the last one is run once more without. A copy to an object store takes longer than the time
between two of them, so that its faults would not be reached: there they begin after the bootstrap.
"""

import random
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import psycopg

from auditlake.failpoints import After
from tests.torture.schema import LEDGER
from tests.torture.testbed import Process, Testbed, await_true, expect
from tests.torture.work import LOST

_BEFORE_COPY = (After.MANIFEST_WRITTEN, After.MANIFEST, After.PUBLICATION, After.MEMBERSHIP, After.SLOT, After.START)
_IN_COPY = (After.HISTORY_CREATED, After.FILES_COPIED, After.TABLE_COPIED)
_KILLED, _DONE, _SOURCE, _LAKE = -9, 0, 4, 6
_LONG_S = 900.0
_START_S = 60.0
_END_SESSION = """
select pg_terminate_backend(pid) from pg_stat_activity
 where application_name = 'auditlake' and state = 'idle in transaction' and backend_xmin is not null
   and pid in (select pid from pg_locks where relation = 'public.orders'::regclass and mode = 'AccessShareLock')
"""


def bootstrap(bed: Testbed, no_truncate: threading.Event) -> None:
    """Bootstrap with every fault, then once more to the end, at last with `no_truncate` set for the workers.

    If the lake is in an object store, it is set from the beginning.
    """
    if bed.store is not None:
        no_truncate.set()
    chance = random.Random(f"{bed.seed}/bootstrap")  # noqa: S311 - no secret
    line = bed.arguments("bootstrap", "--table", f"!public.{LEDGER}")
    for place in _BEFORE_COPY:
        _kill_after(bed, line, place, 1)
    _start_second(bed, line)
    _end_snapshot_session(bed, line)
    for place in chance.sample(_IN_COPY, 2):
        _kill_after(bed, line, place, chance.randint(1, 3))
    if finish(bed, line, (_DONE, _SOURCE)) == _SOURCE:
        no_truncate.set()
        finish(bed, line)
        bed.count("bootstrap gave way until TRUNCATE stopped")
    no_truncate.clear()


def _kill_after(bed: Testbed, line: list[str | Path], place: After, times: int) -> None:
    process = bed.start(line, place, times=times)
    code = _end_of_killed(bed, process)
    bed.count(f"bootstrap killed after {place}" if code == _KILLED else f"bootstrap did not pass {place}")


def _end_of_killed(bed: Testbed, process: Process) -> int | None:
    """Wait for a run that is killed at some place; return its exit code.

    If the run before came past this place, or every copy gives way, it does not reach it and ends by itself.
    """
    code = process.wait(_LONG_S)
    gave_way = "the copy gave way to it" in process.output
    expect(bed, process, code, (_KILLED, _DONE, _SOURCE) if gave_way else (_KILLED, _DONE))
    process.kill()
    return code


def _end_snapshot_session(bed: Testbed, line: list[str | Path]) -> None:
    """End the session that holds locks and snapshot, and truncate a table: no table may be committed empty."""
    process = bed.start(line)
    ended = await_true(lambda: process.process.poll() is not None or _end_session(bed), _START_S, bed.stop)
    if ended:
        with suppress(*LOST), psycopg.connect(bed.dsn) as conn:
            conn.execute("set lock_timeout = '5s'")
            conn.execute("truncate orders")
    code = process.wait(_LONG_S)
    expect(bed, process, code, (_SOURCE, _DONE))
    process.kill()
    bed.count(f"bootstrap lost its snapshot session, ended with {code}")


def _end_session(bed: Testbed) -> bool:
    with psycopg.connect(bed.dsn) as conn:
        return bool(conn.execute(_END_SESSION).fetchall())


def _start_second(bed: Testbed, line: list[str | Path]) -> None:
    """Start a second bootstrap while the first is paused: it must name the first, exit 6 and change nothing."""
    first = bed.start(line, After.HISTORY_CREATED)
    await_true(lambda: first.process.poll() is not None or bed.holds_lock(first, "bootstrap"), _START_S, bed.stop)
    first.send(signal.SIGSTOP, group=True)
    is_paused = first.process.poll() is None  # else it was killed before
    second = bed.start(line)
    code = second.wait(_START_S)
    if is_paused and (code != _LAKE or f"process {first.process.pid} " not in second.output):
        bed.fail(f"a second bootstrap ended with {code}: {second.output}")
    second.kill()
    first.send(signal.SIGCONT, group=True)
    _end_of_killed(bed, first)
    bed.count(f"second bootstrap beside the first ended with {code}")


def finish(
    bed: Testbed,
    line: list[str | Path],
    allowed: Sequence[int] = (_DONE,),
    settings: Mapping[str, str] = MappingProxyType({}),
) -> int | None:
    """Run a command undisturbed to its end; return its exit code."""
    process = bed.start(line, settings=settings)
    begun = time.monotonic()
    code = process.wait(_LONG_S)
    expect(bed, process, code, allowed)
    if process.process.poll() is None:
        bed.fail(f"{line[0]} did not end in {time.monotonic() - begun:.0f} s: {process.output}")
        process.kill()
    return code
