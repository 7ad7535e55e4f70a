"""The capture's side of the lake: `added`, `relations`, `transactions` and `changes`, written in that order.

Order, and why: a row of `changes` points at `relations`, and a column that is new there is explained in `added`, so
they come first. A transaction is in `transactions`
before the watermark in `changes` makes it visible; rows above the watermark are ignored by every reader, and after a
crash in between they are recognised by their LSN and not written twice. Only then may the source be told to forget.

`time_mono` is the running maximum of commit times in LSN order. A promise once made (`current_us`: everything
committed up to then is here) is kept by starting the next transaction's `time_mono` above it, so a question about a
time never gets two answers.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.errors import InvariantBroken
from auditlake.failpoints import After, reach
from auditlake.lake.added import AddedLog, Ask
from auditlake.lake.layout import ACKNOWLEDGED_APP, CHANGES_APP, CURRENT_APP, TRANSACTIONS_APP, Lake
from auditlake.lake.log import AppendLog, select
from auditlake.lake.relations import RelationsLog
from auditlake.lsn import Lsn
from auditlake.pgoutput.schema import CHANGES_SCHEMA, TRANSACTIONS_SCHEMA

_TIME = pa.timestamp("us", tz="UTC")
MONO_SCHEMA = TRANSACTIONS_SCHEMA.insert(TRANSACTIONS_SCHEMA.get_field_index("time") + 1, pa.field("time_mono", _TIME))
GAPS_SCHEMA = pa.schema(
    [
        ("schema", pa.string()),
        ("table", pa.string()),
        ("lsn_from", pa.int64()),
        ("lsn_to", pa.int64()),
        ("reason", pa.string()),
        ("time", _TIME),
    ]
)


@dataclass(frozen=True, slots=True)
class Partial:
    """The transaction of which only some parts are durable: its LSN and the first ordinal that is missing."""

    lsn: Lsn
    next_ordinal: int


class CaptureLog:
    """What capture writes. One process at a time; a second one is refused at its first commit."""

    def __init__(self, lake: Lake, ask: Ask | None = None) -> None:
        """Open what capture writes; `ask` asks the source about columns that were added, None leaves that open."""
        self.relations = RelationsLog(lake)
        self._added = AddedLog(lake, ask)
        self._transactions = AppendLog(lake.transactions, MONO_SCHEMA)
        self._changes = AppendLog(lake.changes, CHANGES_SCHEMA)
        AppendLog(lake.gaps, GAPS_SCHEMA)
        self._last_mono_us = max(self.current_us, _last_time_us(self._transactions))

    @property
    def started(self) -> bool:
        """Whether the slot's starting point is recorded."""
        return self._changes.position(CHANGES_APP) is not None

    @property
    def watermark(self) -> Lsn:
        return Lsn(self._changes.position(CHANGES_APP) or 0)

    @property
    def acknowledged(self) -> Lsn:
        return Lsn(self._changes.position(ACKNOWLEDGED_APP) or 0)

    @property
    def current_us(self) -> int:
        return self._changes.position(CURRENT_APP) or 0

    @property
    def held_to(self) -> Lsn:
        """Just behind the start of the last commit of which anything is held, be it visible or not."""
        partial = self.partial()
        last = max(self.watermark, self._transactions.position(TRANSACTIONS_APP) or 0, partial.lsn if partial else 0)
        return Lsn(last + 1)

    def return_to(self, lsn: Lsn) -> None:
        """Go back to `lsn` where nothing is held beyond it: the source has taken another way from there."""
        if lsn < self.held_to:
            raise InvariantBroken(f"{lsn} is asked for again, and transactions up to {self.held_to} are held")
        if lsn < self.acknowledged:
            self._changes.put_back(ACKNOWLEDGED_APP, lsn)

    def start_at(self, consistent_point: Lsn) -> None:
        """Record where the slot starts: everything before `consistent_point` is the snapshot's."""
        positions = {CHANGES_APP: consistent_point - 1, ACKNOWLEDGED_APP: consistent_point, CURRENT_APP: 0}
        self._changes.append(None, positions)
        reach(After.START)

    def partial(self) -> Partial | None:
        """The transaction that a crash left in parts above the watermark, if any."""
        query = f"select lsn, max(ordinal) as ordinal from changes where lsn > {self.watermark:d} group by lsn"
        rows = select(self._changes.table, "changes", query).to_pylist()
        found = [Partial(Lsn(row["lsn"]), row["ordinal"] + 1) for row in rows]
        return max(found, key=lambda partial: partial.lsn, default=None)

    def settle(self) -> None:
        """Ask the source what an earlier run could not find out about columns that were added."""
        versions = self.relations.versions
        self._added.settle(versions, frozenset(relation.name for _, relation in versions))

    def _flush_relations(self) -> None:
        if fresh := self.relations.fresh:
            # First: whoever sees a change in a new shape finds the answer there.
            self._added.settle(self.relations.versions, fresh)
            reach(After.ADDED)
        self.relations.flush()
        reach(After.RELATIONS)

    def append_part(self, changes: pa.RecordBatch) -> None:
        """Make part of an unfinished transaction durable; readers do not see it."""
        self._flush_relations()
        self._changes.append(changes, {})
        reach(After.PART)

    def append(self, changes: pa.RecordBatch, transactions: pa.RecordBatch, end: "CommitEnd") -> None:
        """Make whole transactions durable and visible, up to and including the commit at `end`."""
        self._flush_relations()
        self._append_transactions(transactions, end)
        reach(After.TRANSACTIONS)
        positions = {CHANGES_APP: end.commit_lsn, ACKNOWLEDGED_APP: end.end_lsn, CURRENT_APP: self._current_at(end)}
        self._changes.append(changes, positions)
        reach(After.CHANGES)

    def _current_at(self, end: "CommitEnd") -> int:
        """Up to when everything is here once `end` is; a killed run may have left later `transactions` behind."""
        if (self._transactions.position(TRANSACTIONS_APP) or 0) > end.commit_lsn:
            return self.current_us
        return max(self.current_us, self._last_mono_us)

    def _append_transactions(self, transactions: pa.RecordBatch, end: "CommitEnd") -> None:
        written = self._transactions.position(TRANSACTIONS_APP) or 0
        fresh = transactions.filter(pc.greater(transactions["lsn"], written))
        if fresh.num_rows:
            self._transactions.append(self._with_mono(fresh), {TRANSACTIONS_APP: end.commit_lsn})

    def _with_mono(self, transactions: pa.RecordBatch) -> pa.RecordBatch:
        floor = max(self.current_us + 1, self._last_mono_us)
        times = transactions["time"].cast(pa.int64()).to_numpy()
        mono = np.maximum.accumulate(np.maximum(times, floor))
        self._last_mono_us = int(mono[-1])
        columns = [*transactions.columns]
        columns.insert(MONO_SCHEMA.get_field_index("time_mono"), pa.array(mono).cast(_TIME))
        return pa.RecordBatch.from_arrays(columns, schema=MONO_SCHEMA)

    @property
    def untidy(self) -> bool:
        """Whether `tidy` is worth its time."""
        return any(log.untidy for log in (self._changes, self._transactions))

    def tidy(self) -> None:
        """Join the small files of one log that many small batches have left."""
        for log in (self._changes, self._transactions):
            if log.untidy:
                log.tidy()
                reach(After.TIDIED)
                return

    def note_idle(self, acknowledged: Lsn, current_us: int) -> None:
        """Record that nothing for us lies below `acknowledged`, and that all commits up to `current_us` are here."""
        self._last_mono_us = max(self._last_mono_us, current_us)
        positions = {
            ACKNOWLEDGED_APP: max(acknowledged, self.acknowledged),
            CURRENT_APP: max(current_us, self.current_us),
        }
        self._changes.append(None, positions)
        reach(After.IDLE)


@dataclass(frozen=True, slots=True)
class CommitEnd:
    """The last commit of a batch: where its record starts and where it ends."""

    commit_lsn: Lsn
    end_lsn: Lsn


def _last_time_us(transactions: AppendLog) -> int:
    query = "select max(time_mono) as last from transactions"
    last = select(transactions.table, "transactions", query)["last"].cast(pa.int64())[0].as_py()
    return 0 if last is None else int(last)
