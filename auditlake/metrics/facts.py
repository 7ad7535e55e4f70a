"""Facts of lake and source that metrics show: positions, tables, backlog; the slot, the WAL that it retains, its limit.

They are few numbers whatever the size of the lake: tables are counted, never named.
"""

import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

import psycopg
import pyarrow as pa

from auditlake.counters import Mark, read_marks
from auditlake.feed.log_tail import Group, LogTail, in_span
from auditlake.lake.histories import histories_of
from auditlake.lake.layout import TRANSACTIONS_APP, Lake
from auditlake.lake.manifest import Manifest, require_manifest
from auditlake.lake.parking import Parked, read_saved
from auditlake.lake.positions import Positions, read_positions
from auditlake.lake.records import read_capture_state
from auditlake.lsn import Lsn
from auditlake.source.connection import Row, answering_within, connect, fetch_one
from auditlake.source.slot import SlotState, read_slot
from auditlake.store.files import free_bytes

_ANSWER_S = 10.0
_RATE_OVER_S = 600.0
_KEPT_WAL = "select pg_catalog.pg_size_bytes(pg_catalog.current_setting('max_slot_wal_keep_size'))"
FOLLOWED, PARKED, ENDED = "followed", "parked", "ended"


@dataclass(frozen=True, slots=True)
class LakeFacts:
    """The lake at one moment. `tables` counts them by state and cause; only a parked or ended one has a cause.

    `backlog` are transactions that are captured and not applied; None if this process does not apply. `free_bytes` is
    the space left on its disk; None in a store.
    """

    manifest: Manifest
    positions: Positions | None
    tables: Mapping[tuple[str, str], int]
    capture: str | None
    backlog: int | None
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """The slot at one moment; None if it does not exist. `keep_bytes` is max_slot_wal_keep_size, None without a limit.

    `left_s` is the time until the slot is lost if its reserve goes on to shrink as in the last ten minutes: infinite if
    it does not, None without a limit.
    """

    slot: SlotState | None
    keep_bytes: int | None
    left_s: float | None


class LakeFactsReader:
    """Reads the facts of a lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._transactions: LogTail | None = None

    def read(self) -> LakeFacts:
        """Read the facts; raises LakeUnusable."""
        manifest, positions = require_manifest(self._lake), read_positions(self._lake)
        tables, parked = read_saved(self._lake, histories_of(self._lake))
        counts = Counter(_state(parked.get(table.name)) for table in tables)
        state = read_capture_state(self._lake)
        backlog, free = self._backlog(positions), free_bytes(self._lake.root)
        return LakeFacts(manifest, positions, counts, state.state if state else None, backlog, free)

    def _backlog(self, positions: Positions | None) -> int | None:
        applied = read_marks().get(Mark.APPLIED_LSN)
        if applied is None or positions is None:
            return None
        if applied >= positions.watermark:
            return 0
        if self._transactions is None:
            self._transactions = LogTail(self._lake.transactions, TRANSACTIONS_APP)
        self._transactions.refresh()
        after, upto = Lsn(int(applied)), positions.watermark
        return sum(_rows_within(group, after, upto) for group in self._transactions.groups(after, upto))

    def close(self) -> None:
        """Open the log again the next time."""
        self._transactions = None


def _state(parked: Parked | None) -> tuple[str, str]:
    if parked is None:
        return FOLLOWED, ""
    return (ENDED if parked.ended else PARKED), str(parked.cause)


def _rows_within(group: Group, after: Lsn, upto: Lsn) -> int:
    if after < group.first and group.last <= upto:
        return group.rows
    lsns: pa.Table = in_span(group.read(["lsn"]), after, upto)
    return int(lsns.num_rows)


class SlotFactsReader:
    """Reads the facts of the slot, over one connection that is opened again after a failure."""

    def __init__(self, lake: Lake, conninfo: str) -> None:
        self._lake, self._conninfo = lake, conninfo
        self._conn: psycopg.Connection[Row] | None = None
        self._shrinking = Shrinking()

    def read(self) -> SlotFacts:
        """Read the facts; raises SourceUnreachable, LakeUnusable."""
        manifest = require_manifest(self._lake)
        if self._conn is None:
            self._conn = connect(self._conninfo, manifest.lsn_offset)
        with answering_within(self._conn, _ANSWER_S):
            slot = read_slot(self._conn, manifest.slot)
            keep = int(str(fetch_one(self._conn, _KEPT_WAL)[0]))
        left_s = self._shrinking.left_s(time.monotonic(), slot.safe_wal_bytes if slot else None)
        return SlotFacts(slot, keep if keep >= 0 else None, left_s)

    def close(self) -> None:
        """Close the connection."""
        if self._conn is not None:
            self._conn.close()
        self._conn = None


class Shrinking:
    """How fast the reserve of a slot shrinks: from its sizes in the last ten minutes."""

    def __init__(self) -> None:
        self._sizes: deque[tuple[float, int]] = deque()

    def left_s(self, now_s: float, size: int | None) -> float | None:
        """Return the seconds until nothing is left of `size`, in bytes; None if there is no limit."""
        if size is None:
            self._sizes.clear()
            return None
        self._sizes.append((now_s, size))
        while now_s - self._sizes[0][0] > _RATE_OVER_S:
            self._sizes.popleft()
        begun_s, first = self._sizes[0]
        if size <= 0:
            return 0.0
        return size * (now_s - begun_s) / (first - size) if first > size else float("inf")
