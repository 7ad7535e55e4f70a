"""Tables that capture writes: `added`, `relations`, `transactions` and `changes`.

Order of effects, for each batch:

1. Append to `added` the missing values of columns that are new in a relation version.
2. Append to `relations` the new relation versions: rows of `changes` refer to them.
3. Append to `transactions`. Readers ignore rows above the watermark.
4. Append to `changes`, in a commit that moves the watermark and so makes the batch visible.
   It records what the tables above have, so that an older copy of one of them is refused (`lake.belonging`).
5. Only now may the source be sent an acknowledgement.

Before that, the buffer's messages about tables are taken in their order: relation versions are numbered, and those of
the DDL trigger are recorded, which may park a table. Then values are masked (`capture.masking`), before anything of
the batch is written. A buffer that cannot be decoded has no effect.

After a crash between 3 and 4 the server sends the transactions again; those already written are recognized by their LSN
and not written twice.

`time_mono` is the running maximum of commit times in LSN order. A time far ahead of our clock, as a session with a
replication origin may set it, does not move it; only such a time is later than its `time_mono`. `current_us` is the
time up to which every commit is known to be captured. The next transaction's `time_mono` starts above it, so a query
about a time never gets two different answers.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.capture.masking import ChangeMasker
from auditlake.delta.append_table import NOT_JOINED, AppendLog
from auditlake.errors import InvariantBroken
from auditlake.failpoints import After, reach
from auditlake.instants import now_us
from auditlake.lake.belonging import ADDED, GAPS, RELATIONS, TRANSACTIONS
from auditlake.lake.gaps import GAPS_SCHEMA
from auditlake.lake.layout import ACKNOWLEDGED_APP, CHANGES_APP, CURRENT_APP, ERASED_APP, TRANSACTIONS_APP, Lake
from auditlake.lake.masks import Masks
from auditlake.lake.positions import CLOCK_TOLERANCE_US
from auditlake.lake.relations import RelationsLog, RelationVersion
from auditlake.lsn import Lsn
from auditlake.messages import FailureReports
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA, TRANSACTIONS_SCHEMA
from auditlake.pgoutput.batch_layout import DdlReport, Described, Entry
from auditlake.schema.attribute_numbers import AttributeNumbers
from auditlake.schema.missing_values import AddedLog, Ask, Existing
from auditlake.sql_names import standard_literal

_TIME = pa.timestamp("us", tz="UTC")
_FAR_AHEAD_US = 86_400_000_000
"""How far a source's clock may be ahead of ours: one that is set in the wrong time zone is less than a day off."""
# Quoted parts, bounds of an array, and other members of a composite look like other values.
_ONLY_INSIDE = """{value} = 'empty' or ({value}[1] in ('{{', '[', '(') and list_has_all(
    ['', 'NULL', {values}], regexp_split_to_array({value}, '[][{{}}(),]')))"""
MONO_SCHEMA = TRANSACTIONS_SCHEMA.insert(TRANSACTIONS_SCHEMA.get_field_index("time") + 1, pa.field("time_mono", _TIME))


@dataclass(frozen=True, slots=True)
class Partial:
    """A transaction that is durable in part: its LSN and the first missing ordinal."""

    lsn: Lsn
    next_ordinal: int


RecordDdl = Callable[[DdlReport], None]


@dataclass(frozen=True, slots=True)
class TableMessages:
    """The messages about tables in a buffer; `record_ddl` records those of the DDL trigger."""

    entries: Sequence[Entry]
    record_ddl: RecordDdl


class CaptureLog:
    """The tables that capture writes. One process at a time; the first commit of a second one is refused."""

    def __init__(
        self,
        lake: Lake,
        ask: Ask | None = None,
        numbers: AttributeNumbers | None = None,
        masks: Masks | None = None,
    ) -> None:
        """Open the tables; `ask` reads the missing values of added columns, None leaves them undecided.

        `numbers` reads the attribute numbers of columns, None leaves them unknown. Without `masks` nothing is masked.
        """
        self.relations = RelationsLog(lake, numbers, masks.of if masks else lambda _: None)
        self._numbers = numbers
        self._version_of: dict[int, int] = {}
        self._masker = ChangeMasker(lake, masks) if masks else None
        self._added = AddedLog(lake, ask, masks)
        self._transactions = AppendLog(lake.transactions, MONO_SCHEMA)
        self._changes = AppendLog(lake.changes, CHANGES_SCHEMA)
        self._failures = FailureReports()
        self._gaps = AppendLog(lake.gaps, GAPS_SCHEMA).version
        self._last_mono_us = max(self.current_us, _last_time_us(self._transactions))

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
        """The LSN after the last commit with any durable row, visible or not, or version of a relation."""
        partial, written = self.partial(), self._transactions.position(TRANSACTIONS_APP) or 0
        return Lsn(max(self.watermark, written, partial.lsn if partial else 0, self.relations.last_lsn) + 1)

    def return_to(self, lsn: Lsn) -> None:
        """Move the acknowledged position back to `lsn`, the fork of a new timeline; nothing after it may be held."""
        if lsn < self.held_to:
            raise InvariantBroken(f"cannot return to {lsn}: transactions up to {self.held_to} are in the lake")
        if lsn < self.acknowledged:
            self._changes.put_back(ACKNOWLEDGED_APP, lsn)

    def start_at(self, consistent_point: Lsn, time_us: int = 0) -> None:
        """Record the slot's start: everything before `consistent_point` is in the snapshot.

        `time_us` is the source's clock before that, in us since 1970, if it is known.
        """
        current_us = self._limited(time_us)
        at = {CHANGES_APP: consistent_point - 1, ACKNOWLEDGED_APP: consistent_point, CURRENT_APP: current_us}
        self._changes.append(None, at)
        reach(After.START)

    def start_again_at(self, consistent_point: Lsn) -> None:
        """Record the start of a new slot: everything up to it that is not held is missing.

        Parts of a transaction above the watermark are discarded first: they would become visible.
        """
        self._changes.discard_above("lsn", self.watermark)
        self._transactions.discard_above("lsn", self.watermark)
        self.start_at(consistent_point)

    def partial(self) -> Partial | None:
        """Return the transaction that a crash left in parts above the watermark, if any."""
        query = f"select lsn, max(ordinal) as ordinal from log where lsn > {self.watermark:d} group by lsn"
        rows = self._changes.select(query, lsn=(self.watermark + 1, None)).to_pylist()
        partials = [Partial(Lsn(row["lsn"]), row["ordinal"] + 1) for row in rows]
        return max(partials, key=lambda partial: partial.lsn, default=None)

    def discard_uncommitted(self) -> None:
        """Delete what a killed run was writing when rows were erased."""
        for log in (self._changes, self._transactions):
            log.discard_uncommitted(ERASED_APP)

    def tell_missing_value(self, oid: int, attnum: int, existing: Existing) -> None:
        """Record the value of an added column in older rows, as reported by the DDL trigger."""
        self._added.tell(oid, attnum, existing)

    def resolve_missing_values(self) -> None:
        """Read the missing values that an earlier run could not decide."""
        versions = self.relations.versions
        self._added.resolve(versions, frozenset(relation.oid for _, relation in versions))

    def flush_relations(self) -> None:
        """Append the answers about new columns, and the relation versions, that are not durable yet."""
        if self._numbers is not None:
            self._numbers.close()
        if fresh := self.relations.fresh:
            # First, so that a reader of a change in the new shape finds the value.
            self._added.resolve(self.relations.versions, fresh)
            reach(After.ADDED)
        self.relations.flush()
        reach(After.RELATIONS)

    def last_change(self, number: int, first: Lsn, until: RelationVersion | Lsn) -> tuple[Lsn, int] | None:
        """Return commit LSN and time, in us since 1970, of a relation version's last change from `first` on, if any.

        Only changes count that precede the first one of the version `until`, or are of commits before the LSN `until`.
        """
        end = until if isinstance(until, Lsn) else until.lsn
        earlier = f"lsn < {end:d}"
        if isinstance(until, RelationVersion):
            shown = f"select min(ordinal) from log where lsn = {end:d} and relation = {until.number:d}"
            earlier = f"({earlier} or (lsn = {end:d} and ordinal < ({shown})))"
        condition = f"relation = {number:d} and lsn >= {first:d} and {earlier}"
        query = f"select lsn, epoch_us(time) as time from log where {condition} order by lsn desc limit 1"
        rows = self._changes.select(query, lsn=(first, end)).to_pylist()
        return (Lsn(rows[0]["lsn"]), rows[0]["time"]) if rows else None

    def has_other_value(
        self, version: RelationVersion, first: Lsn, place: int, values: Collection[str], *, inside: bool = False
    ) -> bool:
        """Return whether a new row of a relation version, from `first` on, has at `place` none of these values.

        With `inside`, whether it may have another value inside an array, a range or a composite, too.
        """
        listed = ", ".join(map(standard_literal, sorted(values)))
        other = f"new[{place + 1:d}] not in ({listed})"
        if inside:
            other = f"{other} and not ({_ONLY_INSIDE.format(value=f'new[{place + 1:d}]', values=listed)})"
        condition = f"relation = {version.number:d} and lsn >= {first:d} and {other}"
        query = f"select 1 from log where {condition} limit 1"
        return bool(self._changes.select(query, lsn=(first, None)).num_rows)

    def time_of(self, commit_lsn: Lsn) -> int | None:
        """Return the time of a commit, in us since 1970; None if it has no changes."""
        query = f"select epoch_us(time) as time from log where lsn = {commit_lsn:d} limit 1"
        rows = self._changes.select(query, lsn=(commit_lsn, commit_lsn)).to_pylist()
        return int(rows[0]["time"]) if rows else None

    def append_part(self, changes: pa.RecordBatch, messages: TableMessages | None = None) -> None:
        """Make part of an unfinished transaction durable; readers ignore it."""
        changes = self._numbered(changes, messages)
        self.flush_relations()
        self._changes.append(changes, {})
        reach(After.PART)

    def append(
        self,
        changes: pa.RecordBatch,
        transactions: pa.RecordBatch,
        end: "CommitEnd",
        messages: TableMessages | None = None,
    ) -> None:
        """Make whole transactions durable and visible, up to and including the commit at `end`.

        With `messages`, the relations of `changes` are places in its entries, and become numbers of versions.
        """
        changes = self._numbered(changes, messages)
        self.flush_relations()
        self._append_transactions(transactions, end)
        reach(After.TRANSACTIONS)
        positions = {CHANGES_APP: end.commit_lsn, ACKNOWLEDGED_APP: end.end_lsn, CURRENT_APP: self._current_at(end)}
        self._changes.append(changes, positions, self._written())
        reach(After.CHANGES)

    def _written(self) -> dict[str, int]:
        """Return what the other tables have, which every reader of the next commit requires (`lake.belonging`)."""
        versions = {RELATIONS: self.relations.delta_version, ADDED: self._added.delta_version, GAPS: self._gaps}
        return {**versions, TRANSACTIONS: self._transactions.position(TRANSACTIONS_APP) or 0}

    def _numbered(self, changes: pa.RecordBatch, messages: TableMessages | None) -> pa.RecordBatch:
        if messages is None:
            return changes
        numbers = pa.array([self._register(entry, messages.record_ddl) for entry in messages.entries], pa.int64())
        place = CHANGES_SCHEMA.get_field_index("relation")
        numbered = changes.set_column(place, CHANGES_SCHEMA.field(place), numbers.take(changes["relation"]))
        if self._masker is None:
            return numbered
        shown = [number for number in numbered["relation"].unique().to_pylist() if number is not None]
        return self._masker.masked(numbered, {number: self.relations.relation(number) for number in shown})

    def _register(self, entry: Entry, record_ddl: RecordDdl) -> int | None:
        """Return the number of the version of a described table; None for a message of the DDL trigger."""
        match entry:
            case Described(relation, lsn):
                self._version_of[relation.oid] = self.relations.register(relation, lsn)
                return self._version_of[relation.oid]
            case DdlReport():
                record_ddl(entry)
                return None
            case oid:
                return self._version_of[oid]

    def _current_at(self, end: "CommitEnd") -> int:
        """Return the currency after the commit at `end`; unchanged if a killed run left later `transactions`."""
        if (self._transactions.position(TRANSACTIONS_APP) or 0) > end.commit_lsn:
            return self.current_us
        return self._limited(self._last_mono_us)

    def _limited(self, source_us: int) -> int:
        """Return the new currency, limited by our clock: the source's clock may have jumped forward."""
        return max(self.current_us, min(source_us, now_us() + CLOCK_TOLERANCE_US))

    def _append_transactions(self, transactions: pa.RecordBatch, end: "CommitEnd") -> None:
        written = self._transactions.position(TRANSACTIONS_APP) or 0
        fresh = transactions.filter(pc.greater(transactions["lsn"], written))
        if fresh.num_rows:
            self._transactions.append(self._with_mono(fresh), {TRANSACTIONS_APP: end.commit_lsn})

    def _with_mono(self, transactions: pa.RecordBatch) -> pa.RecordBatch:
        floor = max(self.current_us + 1, self._last_mono_us)
        times = transactions["time"].cast(pa.int64()).to_numpy()
        is_ahead = times > max(now_us(), self.current_us) + _FAR_AHEAD_US
        mono = np.maximum.accumulate(np.where(is_ahead, floor, np.maximum(times, floor)))
        mono = np.maximum.accumulate(mono + is_ahead)  # the commit before keeps a time of its own
        self._last_mono_us = int(mono[-1])
        columns = [*transactions.columns]
        columns.insert(MONO_SCHEMA.get_field_index("time_mono"), pa.array(mono).cast(_TIME))
        return pa.RecordBatch.from_arrays(columns, schema=MONO_SCHEMA)

    @property
    def needs_compaction(self) -> bool:
        """Whether a table has enough small files for `compact`."""
        return any(log.untidy for log in (self._changes, self._transactions))

    def compact(self) -> None:
        """Compact the small files of one table."""
        for log in (self._changes, self._transactions):
            if log.untidy:
                for damaged in log.tidy():
                    self._failures.report(NOT_JOINED, damaged)
                reach(After.TIDIED)
                return

    def record_idle(self, acknowledged: Lsn, current_us: int) -> None:
        """Record that every published change below `acknowledged` and every commit up to `current_us` is captured."""
        limited_us = self._limited(current_us)
        self._last_mono_us = max(self._last_mono_us, limited_us)
        positions = {
            CHANGES_APP: self.watermark,  # unchanged: readers take all positions from the last entry
            ACKNOWLEDGED_APP: max(acknowledged, self.acknowledged),
            CURRENT_APP: limited_us,
        }
        self._changes.append(None, positions, self._written())
        reach(After.IDLE)


@dataclass(frozen=True, slots=True)
class CommitEnd:
    """The last commit of a batch: start and end of its record."""

    commit_lsn: Lsn
    end_lsn: Lsn


def _last_time_us(transactions: AppendLog) -> int:
    if not transactions.files.files:  # bootstrap: DuckDB is not even imported
        return 0
    last = transactions.select("select epoch_us(max(time_mono)) as last from log")["last"][0].as_py()
    return 0 if last is None else int(last)
