"""Parked tables: parked/<schema>/<table>.<cause>.json records up to which LSN a table is followed, and why no further.

A table is parked, never a stage: capture and all other tables continue.

1. Each cause has one writer (`RULES`), so no two processes write one file: apply parks tables that it cannot fold,
   capture parks tables for reasons that only the catalog shows.
2. A record is on the disk before the watermark or a position passes its LSN. A reader that reads the watermark first,
   then `read_parked`, therefore misses none.
3. Parking is idempotent, so a killed process does no harm.
4. In an object store a record is replaced only as it was read: a process whose lease has passed to another one cannot
   undo what that has recorded.
5. A record ends with a later snapshot of the table: it is in force while `until` is after the table's last snapshot,
   so the commit of that snapshot also ends it. `resync` therefore leaves its own record behind, and no reader can see
   the old history without a record.

Everything here raises LakeUnusable if a record cannot be read or written.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from auditlake.errors import Unsupported
from auditlake.lake.histories import Histories
from auditlake.lake.history import HistoryTable, open_history
from auditlake.lake.layout import Lake, source_name
from auditlake.lake.records import BROKEN, change_record, remove_record, unreadable
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.store.files import read_each, read_versioned
from auditlake.store.place import Place

RENEWED_BY_FOLLOW = (
    "A running auditlake follow takes a new snapshot of the table by itself, and its history goes on; so does auditlake"
    " resync."
)
"""Remedy of a table that `resync.automatic` copies again."""
NO_MORE_CHANGES = "It has no more changes; its history up to then can be queried."
"""Remedy of a table that was dropped."""


class SegmentState(StrEnum):
    """Knowledge of a table in a segment of LSNs (`temporal.knowledge`); outside of all segments its state is exact."""

    EARLY = "early"
    """Nothing: its history begins later, or its versions have expired."""
    AHEAD = "ahead"
    """Nothing yet: capture has not come there."""
    PARKED = "parked"
    """Nothing, until it is followed again, or gets a new snapshot, which leaves a gap."""
    HELD = "held"
    """Nothing, until the commit of a new snapshot that is being taken."""
    WAITING = "waiting"
    """Nothing, until capture has decided what changed."""
    ENDED = "ended"
    """It was dropped."""
    GAP = "gap"
    """Its changes are missing for ever."""


class Cause(StrEnum):
    """Why a table is parked (`RULES`)."""

    APPLY = "apply"
    PUBLICATION = "publication"
    PARTITIONS = "partitions"
    RESYNC = "resync"
    SHAPE = "shape"
    PENDING = "pending"
    DDL = "ddl"
    MASK = "mask"


class Writer(StrEnum):
    """The process that parks a table, and alone may write or remove the record."""

    APPLY = "apply"
    CAPTURE = "capture"
    RESYNC = "resync"


@dataclass(frozen=True, slots=True)
class CauseRule:
    """Rule of a cause: who records it, and as which state; `freed`: also removed without a new snapshot.

    `renewed`: `follow` takes that snapshot by itself.
    """

    writer: Writer
    state: SegmentState = SegmentState.PARKED
    freed: bool = False
    renewed: bool = False


RULES: Mapping[Cause, CauseRule] = {
    # A commit that cannot be folded; freed when a later release, or Spark, can.
    Cause.APPLY: CauseRule(Writer.APPLY, freed=True),
    # A table that the publication has lost; freed for the report of the DDL trigger, which is more exact.
    Cause.PUBLICATION: CauseRule(Writer.CAPTURE, freed=True),
    # Partitions that were attached, detached or unlogged; freed if none can have changed a row.
    Cause.PARTITIONS: CauseRule(Writer.CAPTURE, freed=True, renewed=True),
    # A changed shape until it is settled: freed, with a gap if answers depend on it, or replaced by SHAPE.
    Cause.PENDING: CauseRule(Writer.CAPTURE, SegmentState.WAITING, freed=True),
    # A changed shape that changed rows without messages, or may have.
    Cause.SHAPE: CauseRule(Writer.CAPTURE, renewed=True),
    # A report of the DDL trigger that rows were rewritten, or the table dropped.
    Cause.DDL: CauseRule(Writer.CAPTURE, renewed=True),
    # A column that cannot be masked.
    Cause.MASK: CauseRule(Writer.CAPTURE),
    # Held while `resync` takes a new snapshot; freed if the stream has lost nothing.
    Cause.RESYNC: CauseRule(Writer.RESYNC, SegmentState.HELD, freed=True, renewed=True),
}


@dataclass(frozen=True, slots=True)
class Parked:
    """A table that is known up to `lsn`, inclusive, and no further; the reason had been observed by `until`.

    `renewable`: `follow` may take a new snapshot by itself, although the cause alone does not allow it.
    `needs_spark`: this process could not fold the table's changes, Spark can.
    If the stream does not contain the reason (`silent`), moments between commits are known up to `time_us`, in
    microseconds since 1970; None if that was not recorded. `ended`: the table was dropped, so no changes can follow.
    """

    table: TableName
    cause: Cause
    lsn: Lsn
    until: Lsn
    reason: str
    remedy: str
    time_us: int | None = None
    ended: bool = False
    renewable: bool = False
    needs_spark: bool = False

    @property
    def rule(self) -> CauseRule:
        """Return the rule of its cause."""
        return RULES[self.cause]

    @property
    def state(self) -> SegmentState:
        """Return the state of knowledge of the table after `lsn`."""
        return SegmentState.ENDED if self.ended else self.rule.state

    @property
    def silent(self) -> bool:
        """Return whether the stream does not contain the reason."""
        return self.rule.writer is not Writer.APPLY

    @property
    def is_renewed(self) -> bool:
        """Return whether a new snapshot ends the reason, so that `follow` takes one by itself."""
        return (self.rule.renewed or self.renewable) and not self.ended

    def __str__(self) -> str:
        return f"{self.table} is {'known' if self.ended else 'parked'} at {self.lsn}: {self.reason}"


def park(lake: Lake, parked: Parked) -> bool:
    """Record that a table is parked; return False if it is for this cause, with the same moment or an earlier one.

    A silent reason that is in force keeps its first moment, and ends with a snapshot after the later of both `until`.
    """
    path = lake.parked(parked.table, parked.cause)
    recorded, version = _read(path)
    if recorded is not None and parked.silent and recorded.until > _snapshot_lsn(lake, parked.table):
        parked = _joined(recorded, parked)
    if parked == recorded:
        return False
    change_record(lake, path, _content(parked), version)
    return recorded is None or replace(recorded, until=parked.until) != parked


def _snapshot_lsn(lake: Lake, table: TableName) -> Lsn:
    history = open_history(lake, table)
    return history.snapshot_lsn if history is not None else Lsn(0)


def _joined(recorded: Parked, parked: Parked) -> Parked:
    """Join two records of one cause. A table that was dropped may have been created again, and the other way round."""
    first = min(recorded, parked, key=lambda each: each.lsn)
    said = first if recorded.ended == parked.ended else parked
    until = max(recorded.until, parked.until)
    return replace(said, lsn=first.lsn, time_us=first.time_us, until=until)


def unpark(lake: Lake, table: TableName, cause: Cause) -> bool:
    """Remove the record of a cause; False without one. Raises ValueError if only a new snapshot ends it."""
    if not RULES[cause].freed:
        raise ValueError(f"{table} is parked for {cause}, which only a new snapshot ends")
    path = lake.parked(table, cause)
    recorded, version = _read(path)
    if recorded is not None:
        remove_record(lake, path, version)
    return recorded is not None


def names_with(lake: Lake, cause: Cause) -> frozenset[TableName]:
    """Return the tables that have a record of one cause, in force or not; its content is not read."""
    end = f".{cause}.json"
    found = [place for place in lake.all_parked.glob("*/*.json") if place.name.endswith(end)]
    return frozenset(
        TableName(source_name(each.parent.name), source_name(each.name.removesuffix(end))) for each in found
    )


def find_parked(lake: Lake, table: TableName, cause: Cause) -> Parked | None:
    """Read the record of one cause, ended or not; None if there is none."""
    return _read(lake.parked(table, cause))[0]


def is_held(lake: Lake, table: HistoryTable) -> bool:
    """Return whether a resync holds the table, and has not committed its snapshot."""
    held = find_parked(lake, table.name, Cause.RESYNC)
    return held is not None and held.until > table.snapshot_lsn


def read_records(lake: Lake) -> list[Parked]:
    """Read all records, in force or not."""
    places: list[Place] = sorted(lake.all_parked.glob("*/*.json"), key=str)
    return [record for record, _ in read_each(lake.root, _read, places) if record is not None]


def read_parked(lake: Lake, tables: Iterable[HistoryTable], *, silent: bool = False) -> dict[TableName, Parked]:
    """Read which of these tables are parked, each with its earliest reason; read the watermark before.

    With `silent`, only by the records of capture.
    """
    return in_force(read_records(lake), tables, silent=silent)


def in_force(
    records: Sequence[Parked], tables: Iterable[HistoryTable], *, silent: bool = False, dropped: bool = True
) -> dict[TableName, Parked]:
    """Return which of these tables the records park, as `read_parked`; not dropped ones without `dropped`."""
    if not records:
        return {}
    taken = {table.name: table.snapshot_lsn for table in tables}
    wanted = (record for record in records if dropped or not record.ended)
    current = (record for record in wanted if record.table in taken and record.until > taken[record.table])
    latest_first = sorted((record for record in current if record.silent or not silent), key=lambda record: -record.lsn)
    ends = {record.table: record for record in latest_first if record.ended}
    return {record.table: _ended(record, ends.get(record.table)) for record in latest_first}


def read_saved(lake: Lake, histories: Histories) -> tuple[list[HistoryTable], dict[TableName, Parked]]:
    """Read the tables, and which of them are parked; read the watermark before.

    In a store, a table that `histories` knows is looked at only if it seems to be parked: a new snapshot may have ended
    that. The others are returned as apply saved them last.
    """
    tables = histories.current(lambda _: False)
    parked = read_parked(lake, tables)
    if parked:
        tables = histories.current(lambda table: table.name in parked)
        parked = read_parked(lake, tables)
    return tables, parked


def _ended(record: Parked, end: Parked | None) -> Parked:
    """Return a record of a table that has been dropped since: no snapshot can follow."""
    if end is None or record.ended:
        return record
    return replace(record, ended=True, reason=f"{record.reason}; {end.reason}", remedy=end.remedy)


def check_reached(parked: Iterable[Parked], target: Lsn) -> None:
    """Require that no table is parked before a target; raises Unsupported, which names the tables that are."""
    if behind := [record for record in parked if not record.ended and record.lsn + 1 < target]:
        remedies = dict.fromkeys(record.remedy for record in behind)
        raise Unsupported(f"all other tables have reached {target}; " + "; ".join(map(str, behind)), " ".join(remedies))


def _read(path: Place) -> tuple[Parked | None, str | None]:
    """Read a record, and its version, with which it may be changed."""
    try:
        text, version = read_versioned(path)
        content: Mapping[str, object] = json.loads(text)
        return (_parsed(content) if content else None), version
    except FileNotFoundError:  # removed meanwhile
        return None, None
    except BROKEN as exc:
        raise unreadable(path, exc, "Restore it; it records up to which LSN its table is known.") from exc


def _parsed(content: Mapping[str, object]) -> Parked:
    time_us = content["time_us"]
    return Parked(
        TableName(str(content["schema"]), str(content["table"])),
        Cause(str(content["cause"])),
        Lsn.parse(str(content["lsn"])),
        Lsn.parse(str(content["until"])),
        str(content["reason"]),
        str(content["remedy"]),
        None if time_us is None else int(str(time_us)),
        content["ended"] is True,
        content["renewable"] is True,
        content["needs_spark"] is True,
    )


def _content(parked: Parked) -> dict[str, object]:
    return {**asdict(parked), **parked.table._asdict(), "lsn": str(parked.lsn), "until": str(parked.until)}
