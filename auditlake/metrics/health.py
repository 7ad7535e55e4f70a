"""Health of a process, from memory alone: whether its loops run (alive), and whether it does its work (ready).

Alive does not depend on PostgreSQL or the lake: a process is not to be started again because its source is down, and
one that has a day of changes to catch up with is alive. Ready does: a lost source or a lag makes a stage unready.

One merge in Spark may take longer than any limit, and then its loop does not run. But its JVM works: so apply is also
alive as long as the children of the process use CPU, which those that only wait do not. In process a batch is small.
"""

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from auditlake.counters import Beat, Mark, read_beats, read_marks
from auditlake.metrics.children import children_cpu_s

if TYPE_CHECKING:  # its library is imported only by what exports metrics
    from auditlake.metrics.exposition import Sources

_DEAD_AFTER_S = {Beat.CAPTURE: 300.0, Beat.APPLY: 3600.0, Beat.SERVE: 60.0, Beat.WEBHOOK: 300.0}
"""Longer than one turn of the loop takes: a comparison with a large catalog, a merge of a large table, a request."""
_BEHIND_S = 300.0
_WORKING_SHARE = 0.05
"""Of a core, since the last look. An idle JVM uses a hundredth."""
_LOOK_S = 10.0
"""In less time, one tick of the clock would look like work."""


class _Work:
    """When the children of this process were last seen to work."""

    def __init__(self) -> None:
        self._looked_s, self._cpu_s, self._worked_s = float("-inf"), float("inf"), float("-inf")
        self._lock = threading.Lock()

    def last_s(self) -> float:
        """Look, unless the last look was just now; return the last time when they had used CPU since the one before."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._looked_s < _LOOK_S:
                return self._worked_s
            cpu_s = children_cpu_s()
            if cpu_s - self._cpu_s > _WORKING_SHARE * (now_s - self._looked_s):
                self._worked_s = now_s
            self._looked_s, self._cpu_s = now_s, cpu_s
            return self._worked_s


_work = _Work()


Problems = tuple[str, ...]
"""Problems of a process; empty for a healthy one."""


def alive(stages: frozenset[Beat]) -> Problems:
    """Name the loops that have not run for too long: not apply while its JVM works, nor one that has not begun yet."""
    now, beats = time.monotonic(), {**read_beats()}
    if Beat.APPLY in beats:
        beats[Beat.APPLY] = max(beats[Beat.APPLY], _work.last_s())
    ages = {stage: now - at for stage, at in beats.items() if stage in stages}
    return tuple(f"{stage} has not run for {age:.0f} s" for stage, age in ages.items() if age > _DEAD_AFTER_S[stage])


def ready(sources: "Sources") -> Problems:
    """Name these loops, the stages that have not begun or are far behind, and the files that cannot be read."""
    return *alive(sources.stages), *_unready(sources)


def _unready(sources: "Sources") -> Iterator[str]:
    beats = read_beats()
    yield from (f"{stage} has not begun" for stage in sorted(sources.stages - beats.keys()))
    lake = sources.lake() if sources.lake else None
    if sources.lake and lake is None:
        yield "the lake has not been read lately"
    now = time.time()
    if Beat.CAPTURE in sources.stages:
        slot = sources.slot() if sources.slot else None
        if slot is None or slot.slot is None or slot.slot.active_pid is None:
            yield "the slot has no reader, or the source does not answer"
        current_us = lake.positions.current_us if lake and lake.positions else 0
        if now - current_us / 1_000_000 > _BEHIND_S:
            yield f"capture is more than {_BEHIND_S:.0f} s behind"
    for stage, of in ((Beat.APPLY, Mark.APPLIED_TIME), (Beat.WEBHOOK, Mark.DELIVERED_TIME)):
        if stage in sources.stages and now - read_marks().get(of, 0.0) > _BEHIND_S:
            yield f"{stage} is more than {_BEHIND_S:.0f} s behind"
