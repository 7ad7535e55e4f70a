"""Health of a process, from memory alone: whether its loops run (alive), and whether it does its work (ready).

Alive does not depend on PostgreSQL or the lake: a process is not to be started again because its source is down, and
one that has a day of changes to catch up with is alive. Ready does: a lost source or a lag makes a stage unready.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from auditlake.counters import Beat, Mark, read_beats, read_marks

if TYPE_CHECKING:  # its library is imported only by what exports metrics
    from auditlake.metrics.exposition import Sources

_DEAD_AFTER_S = {Beat.CAPTURE: 300.0, Beat.APPLY: 3600.0, Beat.SERVE: 60.0, Beat.WEBHOOK: 300.0}
"""Longer than one turn of the loop takes: a comparison with a large catalog, a merge of a large table, a request."""
_BEHIND_S = 300.0


@dataclass(frozen=True, slots=True)
class Health:
    """The problems of a process; none if it is well."""

    problems: tuple[str, ...]

    @property
    def is_well(self) -> bool:
        return not self.problems


def alive(stages: frozenset[Beat]) -> Health:
    """Return whether each loop has run lately; one that has not begun counts as starting."""
    now, beats = time.time(), read_beats()
    ages = {stage: now - at for stage, at in beats.items() if stage in stages}
    stuck = (f"{stage} has not run for {age:.0f} s" for stage, age in ages.items() if age > _DEAD_AFTER_S[stage])
    return Health(tuple(stuck))


def ready(sources: "Sources") -> Health:
    """Return whether every stage has begun, its lake and source can be read, and it is not far behind."""
    return Health((*alive(sources.stages).problems, *_unready(sources)))


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
