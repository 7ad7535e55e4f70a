"""Positions of a lake: the LSN and time up to which it can be queried. Reads only, no JVM.

The watermark is the commit LSN of the last complete transaction in `changes`. The acknowledged LSN may be greater, if
there is no transaction of ours between the two. `current_us` is the latest time that a query can name: capture
guarantees that every later commit gets a later `time_mono`.

Capture writes the positions with almost every commit, so the last entries of the transaction log have them. Only if
these lack one is the table opened, which needs deltalake: loading it takes longer than everything else here.

Authority: Delta's PROTOCOL.md, "Delta Log Entries", "Transaction Identifiers"
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from auditlake.delta.log_reader import TailTransactions, read_newest_state, tail_transactions
from auditlake.lake.layout import ACKNOWLEDGED_APP, CHANGES_APP, CURRENT_APP, Lake
from auditlake.lsn import Lsn
from auditlake.store.place import Place

_APPS = (CHANGES_APP, ACKNOWLEDGED_APP, CURRENT_APP)
CLOCK_TOLERANCE_US = 5_000_000
"""Tolerated difference of two clocks, or of the commit times of neighbouring transactions."""
_PAGE_BYTES, _SEGMENT_BYTES_AT_LEAST = 1 << 13, 1 << 20
_PAGE_HEADERS = (24, 40)


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions in one Delta version of `changes`; all inclusive. `current_us` is in microseconds since 1970.

    `etag` is that of the version's log entry in a store, if it was read; `requires` what its commit recorded of other
    tables (`lake.belonging`).
    """

    delta_version: int
    watermark: Lsn
    acknowledged: Lsn
    current_us: int
    etag: str | None = field(default=None, compare=False)
    requires: Mapping[str, int] = field(default_factory=dict, compare=False, hash=False)

    @property
    def known_lsn(self) -> Lsn:
        """Return the highest LSN up to which every commit is in the lake."""
        return last_known(self.watermark, self.acknowledged)

    def is_known_end(self, lsn: Lsn) -> bool:
        """Return whether `lsn` is the end of the known WAL, as pg_current_wal_insert_lsn() returns it.

        That function skips the header of a page on which there is no record yet.
        """
        page, segment = self.acknowledged % _PAGE_BYTES == 0, self.acknowledged % _SEGMENT_BYTES_AT_LEAST == 0
        headers = (0, *(_PAGE_HEADERS[: 1 + segment] if page else ()))
        return self.acknowledged > self.watermark and lsn - self.acknowledged in headers


def last_known(watermark: Lsn, acknowledged: int) -> Lsn:
    """Return the highest LSN up to which every commit is in the lake; one may start exactly at `acknowledged`."""
    return Lsn(max(watermark, acknowledged - 1))


def read_positions(lake: Lake) -> Positions | None:
    """Read the positions; None if capture has never started."""
    read = tail_transactions(lake.changes, _APPS) or _from_table(lake.changes)
    if read is None:
        return None
    positions = read.transactions
    if CHANGES_APP not in positions or ACKNOWLEDGED_APP not in positions:
        return None
    watermark, acknowledged = Lsn(positions[CHANGES_APP]), Lsn(positions[ACKNOWLEDGED_APP])
    return Positions(read.version, watermark, acknowledged, positions.get(CURRENT_APP, 0), read.etag, read.requires)


def _from_table(path: Place) -> TailTransactions | None:
    found = read_newest_state(path)
    return None if found is None else TailTransactions(found.version, None, found.transactions)
