"""Timeline: an index of all commits in memory, for the density chart, the slider, and "previous" and "next".

It has the LSN and the time of each commit, 16 bytes together. The time is `time_mono`, the running maximum of commit
times in LSN order, by which the lake resolves times, so the order of both is the same. `CommitIndex.refreshed` reads
only new commits, of those that the reader shows, and the last known one: a lake that was restored, or replaced, under a
running server does not have it.
"""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from auditlake.audit.lake_reader import Reader
from auditlake.delta.sql import select
from auditlake.lsn import Lsn
from auditlake.serve import models

Longs = npt.NDArray[np.int64]
_MOST_BARS = 2_000


def _empty() -> Longs:
    return np.array([], np.int64)


@dataclass(frozen=True, slots=True)
class CommitIndex:
    """Commits in LSN order."""

    lsns: Longs = field(default_factory=_empty)
    times_us: Longs = field(default_factory=_empty)

    def refreshed(self, reader: Reader) -> "CommitIndex":
        """Return the index with the commits up to the reader's watermark, without those that have expired."""
        last, gone = int(self.lsns[-1]) if self.lsns.size else -1, self.number(reader.known.expired_transactions)
        if gone:
            return CommitIndex(self.lsns[gone:], self.times_us[gone:]).refreshed(reader)
        if reader.transactions is None:
            return CommitIndex()
        rows = select(
            "select lsn, epoch_us(time_mono) as time_us from transactions"
            f" where lsn >= {last:d} and lsn <= {reader.watermark:d} and {reader.known.shown_sql} order by lsn",
            transactions=reader.transactions.within(lsn=(last, reader.watermark)),
        )
        lsns, times = (rows[name].to_numpy().astype(np.int64) for name in ("lsn", "time_us"))
        if self.lsns.size and (not lsns.size or (lsns[0], times[0]) != (last, self.times_us[-1])):
            return CommitIndex().refreshed(reader)
        return CommitIndex(np.concatenate([self.lsns[:-1], lsns]), np.concatenate([self.times_us[:-1], times]))

    @property
    def count(self) -> int:
        return int(self.lsns.size)

    def number(self, lsn: Lsn) -> int:
        """Return how many commits are at or before `lsn`."""
        return int(np.searchsorted(self.lsns, lsn, side="right"))

    def time_us(self, lsn: Lsn) -> int | None:
        """Return the time of the last commit at or before `lsn`."""
        number = self.number(lsn)
        return int(self.times_us[number - 1]) if number else None

    def commit(self, number: int) -> tuple[Lsn, int] | None:
        """Return LSN and time of a commit by its number, from 1."""
        if not 1 <= number <= self.count:
            return None
        return Lsn(int(self.lsns[number - 1])), int(self.times_us[number - 1])

    def at_time(self, time_us: int) -> tuple[Lsn, int] | None:
        """Return the last commit at or before a time."""
        return self.commit(int(np.searchsorted(self.times_us, time_us, side="right")))

    def bars(self, from_us: int, to_us: int, count: int) -> list[models.BarJson]:
        """Return the number of commits in equal parts of a period."""
        parts = max(1, min(count, _MOST_BARS, to_us - from_us))
        edges = [from_us + (to_us - from_us) * part // parts for part in range(parts + 1)]
        places = np.searchsorted(self.times_us, np.array(edges, np.int64), side="left").tolist()
        lasts = [str(Lsn(int(self.lsns[place - 1]))) if place else None for place in places[1:]]
        return [
            models.BarJson(from_us=a, to_us=b, commits=last - first, lsn=lsn)
            for (a, b), (first, last), lsn in zip(pairwise(edges), pairwise(places), lasts, strict=True)
        ]
