"""DDL recorder: record changed shapes of followed tables from the DDL trigger's messages.

`DdlRecorder` turns the messages into versions of `relations`, at their exact commits. It runs in the writer's thread,
for each message in the order of the stream, before the changes after it are written:

1. A followed table whose shape in the message differs from the version in force gets a new version at this commit. The
   message also has the value of an added column in older rows, if that is a constant.
2. If rows were rewritten, or the table became unlogged, the table is parked just before this commit, because its rows
   changed without row messages. If it was dropped, its history ends here.
3. A partition that was removed before the catalog was compared is noticed, too: the server describes it before its
   first row (`Described.root`), and a message other than that of its CREATE TABLE lists it, because it may have been
   attached with rows. The table is then parked just before that commit: later ones may have truncated the partition,
   which no message shows. If it is still there, its first row shows whether it may have been truncated
   (`first_rows`).
4. The description of a partition also has the key of its old rows. If that was another one than the table's for some
   time, its changes do not show which row was changed: the table is parked just before the first of them.

A message may be sent again after a crash; its versions and records then exist already. Only messages get here that the
trigger has sent (`DdlProof`): any role may send others, which have no effect.

ddl_trigger.json records which trigger was installed at the last comparison that settled everything. Some changes leave
no trace in the stream or the catalog, and need not be suspected while the trigger reports every command. One that was
installed, enabled or replaced since has not reported those before; nor has one that failed. Bootstrap creates the file;
from then on only capture writes it.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
import pyarrow as pa

from auditlake.capture.change_log import CaptureLog
from auditlake.capture.first_rows import FindWriters, FirstRows
from auditlake.capture.partition_watch import find_lacking_key, key_columns
from auditlake.lake.history import open_history
from auditlake.lake.layout import Lake
from auditlake.lake.parking import NO_MORE_CHANGES, RENEWED_BY_FOLLOW, Cause, Parked, park, unpark
from auditlake.lake.positions import last_known
from auditlake.lake.records import read_record, write_record
from auditlake.lake.relations import RelationsLog, ShapeSource
from auditlake.lsn import LAST_LSN, Lsn
from auditlake.messages import Say
from auditlake.pgoutput.batch_decoder import Decoded
from auditlake.pgoutput.batch_layout import DdlReport, Described, Entry
from auditlake.pgoutput.ddl_message import PREFIX, DdlMessage, Seal, seal_of
from auditlake.pgoutput.table_shape import Shape, compare_shapes, hides_key
from auditlake.relation import Relation, TableName
from auditlake.schema.catalog_snapshot import only_element
from auditlake.schema.missing_values import CatalogSnapshot, ColumnEntry, StoringTable, decide
from auditlake.source.connection import Row, answering_within, connect
from auditlake.source.ddl_trigger import are_sealed, read_ddl_trigger
from auditlake.source.publication import Entries
from auditlake.values.types import is_widened

_PERSISTENCE, _TYPE, _ACCESS_METHOD = 1, 4, 8
_STORED = "r"  # relkind of a table that is neither partitioned nor foreign
_CREATED_EMPTY = "CREATE TABLE"
"""Tag of the only command after which a partition that it lists has no rows."""
_FAILED = "failed"
"""Recorded instead of the installed trigger after it failed."""


def read_trigger_record(lake: Lake) -> str | None:
    """Read which trigger was installed; None if it was never recorded. Raises LakeUnusable if it cannot be read."""

    def read(content: Mapping[str, Any]) -> str:
        return str(content["trigger"])

    return read_record(lake.ddl_trigger, read, "Restore it: it shows which trigger has reported every change.")


def record_trigger(lake: Lake, trigger: str) -> None:
    """Record which trigger is installed, unless that is recorded; raises LakeUnusable."""
    if read_trigger_record(lake) != trigger:
        write_record(lake, lake.ddl_trigger, {"trigger": trigger}, durable=True)


def record_first_trigger(control: psycopg.Connection[Row], lake: Lake) -> None:
    """Record which trigger is installed now, before the first snapshot of the lake; raises LakeUnusable."""
    if read_trigger_record(lake) is None:
        record_trigger(lake, read_ddl_trigger(control).entries)


@dataclass(frozen=True, slots=True)
class _Commit:
    lsn: Lsn
    time_us: int


@dataclass(slots=True)
class DdlProof:
    """Asks the source which messages the DDL trigger has sent; reports once that there are others."""

    conninfo: str
    silence_s: float
    report: Say
    _reported: bool = False

    def __call__(self, messages: Sequence[tuple[int, bytes]]) -> list[bool]:
        """Return which messages, of xid and content, the trigger has sent; raises SourceUnreachable."""
        seals = [seal_of(xid, content) for xid, content in messages]
        sealed = [seal for seal in seals if seal is not None]
        right = self._right(sealed) if sealed else frozenset[Seal]()
        if not self._reported and not right.issuperset(seals):
            self._reported = True
            self.report(
                f"a message with the prefix {PREFIX} is ignored: the DDL trigger has not sent it, or is of another"
                " release; auditlake check shows whether it is installed. Others are ignored without a message"
            )
        return [seal in right for seal in seals]

    def _right(self, seals: Sequence[Seal]) -> frozenset[Seal]:
        with closing(connect(self.conninfo)) as conn, answering_within(conn, self.silence_s):
            found = are_sealed(conn, seals)
        return frozenset(seal for seal, is_right in zip(seals, found, strict=True) if is_right)


@dataclass(slots=True)
class DdlRecorder:
    """Records DDL messages of one lake's `tables`, by OID; `shapes` are as of the last agreement with the catalog."""

    lake: Lake
    log: CaptureLog
    tables: Mapping[int, TableName] = field(default_factory=dict)
    shapes: dict[int, Shape] = field(default_factory=dict)
    entries: Entries = field(default_factory=Entries)
    find_writers: FindWriters = lambda rows: [()] * len(rows)
    _reported: dict[int, Shape] = field(default_factory=dict)
    _labels: dict[int, frozenset[str]] = field(default_factory=dict)
    _relabelled: set[int] = field(default_factory=set)
    renamed: set[int] = field(default_factory=set)
    """Enum types that have lost a label since the tables agreed with the catalog."""
    _parents: dict[int, int] = field(default_factory=dict)
    """The parent of each partition that a message has shown, by OID."""
    _roots: dict[int, Relation] = field(default_factory=dict)
    """Tables as described last under their own names, by OID."""
    _seen: dict[tuple[int, int], tuple[TableName, _Commit]] = field(default_factory=dict)
    """The first commit since the last comparison with rows of a partition, by the OIDs of its root and itself.

    With the root's name: before the comparison, another table may be followed under it."""
    _first_rows: FirstRows = field(default_factory=FirstRows)
    _repeated_to: int = 0
    failed: bool = False
    """Whether the trigger has failed for some command: from then on its silence proves nothing."""

    def __post_init__(self) -> None:
        # After a restart the server sends again everything that was not acknowledged.
        self._repeated_to = self.relations.last_lsn

    @property
    def relations(self) -> RelationsLog:
        """The versions of relations, among them those that are recorded here."""
        return self.log.relations

    def __call__(self, report: DdlReport) -> None:
        """Record a message."""
        message = report.message
        if message is None:
            self.failed = True
            record_trigger(self.lake, _FAILED)
            return
        commit = _Commit(report.lsn, report.time_us)
        for shape in message.shapes:
            if shape.relation.oid in self.tables:
                self._follow(shape, message, commit)
        self._follow_rows(message, commit)
        for each in message.dropped:
            if not each.attnum and each.oid in self.tables:
                self._end(self.tables[each.oid], commit)

    def _follow(self, shape: Shape, message: DdlMessage, commit: _Commit) -> None:
        oid = shape.relation.oid
        former = self._reported.get(oid, self.shapes.get(oid))
        before = self._record(shape, message, commit.lsn)
        if former is not None:
            self._tell_missing_values(former, shape, message, commit)
        if former is not None and hides_key(former, shape):
            reason = f"{message.tag} changed the key of {self.tables[oid]}, which has REPLICA IDENTITY FULL"
            self._park(commit, self.tables[oid], reason, RENEWED_BY_FOLLOW)
        if not (message.plain and before is not None and _is_lossless(before, shape, message)):
            self._park_rewritten(shape, message, commit)

    def _follow_rows(self, message: DdlMessage, commit: _Commit) -> None:
        """Park the tables whose rows a message without their shapes reports as changed."""
        followed = [shape for shape in message.shapes if shape.relation.oid in self.tables]
        unshaped = message.rewritten.keys() - {oid for shape in followed for oid in (shape.relation.oid, *shape.files)}
        changed = {oid: self._changed_labels(oid, labels) for oid, labels in message.labels.items()}
        for oid, shape in self.shapes.items():
            if unshaped & shape.files.keys():
                self._park_rewritten(shape, message, commit)
            if changed and (shape.shows(changed) or self._has_new_column(oid, changed)):
                name = self.tables[oid]
                self._reported.setdefault(oid, shape)
                self._relabelled.add(oid)
                reason = f"{message.tag} changed the text of existing rows of {name}: a label or column of a type"
                self._park(commit, name, reason, RENEWED_BY_FOLLOW)

    def note_partitions(self, decoded: Decoded) -> None:
        """Note the partitions of followed tables in a buffer that have rows, or may have, and are not durable yet."""
        shown = [self._roots.get(each) if isinstance(each, int) else _described(each) for each in decoded.entries]
        for entry in decoded.entries:
            match entry:
                case Described(relation, root=None):
                    self._roots[relation.oid] = relation
                case Described(_, lsn, time_us, int(root)) if lsn > self.log.watermark:
                    self._note(root, entry.relation.oid, _Commit(lsn, time_us))
                    self._note_rows(root, entry, decoded)
                case DdlReport(DdlMessage() as message, lsn, time_us):
                    self._parents |= message.parents
                    if message.tag != _CREATED_EMPTY and lsn > self.log.watermark:
                        for oid, parent in message.parents.items():
                            self._note(self._root_of(parent), oid, _Commit(lsn, time_us))
        self._first_rows.count(decoded, shown)

    def _note(self, root: int | None, oid: int, commit: _Commit) -> None:
        if root is not None and root in self.tables:
            self._seen.setdefault((root, oid), (self.tables[root], commit))

    def _note_rows(self, root: int, partition: Described, decoded: Decoded) -> None:
        """Note a partition's first row, and park a table whose partition logs another key.

        The server describes the root before it.
        """
        name, relation, shape = self.tables.get(root), self._roots.get(root), self.shapes.get(root)
        if name is None or relation is None or shape is None:
            return
        key = key_columns(relation, shape)
        self._first_rows.note(decoded, partition, relation, key)
        if (problem := find_lacking_key(key, partition.relation)) is not None:
            self._park(_Commit(partition.lsn, partition.time_us), name, problem, RENEWED_BY_FOLLOW)

    def park_lost_partitions(self, changes: pa.RecordBatch, present: Mapping[int, Mapping[int, int]]) -> None:
        """Park the tables with rows in a partition that the catalog does not show any more, or may show empty.

        `changes` are those of the last buffer that was noted, `present` the partitions by their root as the catalog
        has them after it, each with the xid that created it.
        """
        truncated = set(self._first_rows.take(changes, present, self.find_writers))
        for (root, oid), (name, commit) in self._seen.items():
            if oid not in present.get(root, {oid}):
                reason = "a partition that was created or attached since was dropped or detached, perhaps with rows"
                self._park(commit, name, reason, RENEWED_BY_FOLLOW, known=self._held_before(root, oid))
            elif (root, oid) in truncated:
                reason = "a partition may have been truncated in the transaction that created it"
                self._park(commit, name, reason, RENEWED_BY_FOLLOW)
        self._seen.clear()

    def _held_before(self, root: int, oid: int) -> _Commit | None:
        """Return what is durable, if a partition may have been attached with rows at any time since; None if not."""
        shape = self.shapes.get(root)
        if oid in self._parents or (shape is not None and oid in shape.files):
            return None
        return _Commit(last_known(self.log.watermark, self.log.acknowledged), self.log.current_us)

    def _root_of(self, oid: int) -> int | None:
        """Return the followed table that a parent of partitions is, or is a partition of; None if there is none."""
        for _ in self._parents:  # at most: an OID may be used again
            if oid in self.tables or oid not in self._parents:
                break
            oid = self._parents[oid]
        return next((root for root, shape in self.shapes.items() if oid in shape.files), None)

    def _has_new_column(self, oid: int, changed: Mapping[int, frozenset[str] | None]) -> bool:
        """Return whether the last message about a table has a column whose type's rows change, which may be new."""
        columns = self._reported[oid].relation.columns if oid in self._reported else ()
        return any(changed.get(column.type_oid, ()) is None for column in columns)

    def _changed_labels(self, oid: int, labels: frozenset[str] | None) -> frozenset[str] | None:
        """Return the labels of a type; None if one that an earlier message had is gone: it may be in rows since."""
        if labels is None:
            return None
        before = self._labels.get(oid, labels)
        self._labels[oid] = labels
        if before <= labels:
            return labels
        self.renamed.add(oid)
        return None

    def _tell_missing_values(self, former: Shape, shape: Shape, message: DdlMessage, commit: _Commit) -> None:
        """Decide what older rows show in added columns, where the message and the shape before it prove it."""
        oid, had = shape.relation.oid, {column.attnum for column in former.relation.columns}
        stored = [each for each in message.shapes if each.kind == _STORED and each.relation.oid in shape.files]
        parts = [shape] if shape.kind == _STORED else stored  # a child that only inherits has rows of its own
        for column in shape.relation.columns:
            if column.attnum is None or column.attnum in had:
                continue
            found = {each.relation.oid: _part(each, column.name) for each in parts}
            before = CatalogSnapshot(oid, Lsn(0), 0, former.files)
            existing = decide(before, ColumnEntry(column.attnum, 0, found), Lsn(commit.lsn), column.attnum)
            if existing.problem is None:
                self.log.tell_missing_value(oid, column.attnum, existing)

    def take(self, oid: int, now: Shape) -> bool:
        """Return whether the last message about a table reported this shape; it is not used again."""
        reported, is_relabelled = self._reported.get(oid), oid in self._relabelled
        self._relabelled.discard(oid)
        if reported is None or reported.persistence != now.persistence:
            return False
        # A message about the table has no types: these have messages of their own, but not the row types of tables.
        before = now if is_relabelled else self.shapes.get(oid, now)
        if compare_shapes(replace(reported, types=before.types), now):
            return False
        del self._reported[oid]
        return True

    def _record(self, shape: Shape, message: DdlMessage, commit_lsn: Lsn) -> Relation | None:
        """Record the shape, if it is new; return the relation in force before."""
        self._reported[shape.relation.oid] = shape
        before = self.relations.in_force(shape.relation.oid, commit_lsn)
        published = self.published(shape)
        if commit_lsn <= self._repeated_to and self.relations.is_recorded(
            published, commit_lsn, ShapeSource.DDL_TRIGGER
        ):
            return None
        if before is None or not before.shows(published):
            source = ShapeSource.DDL_TRIGGER
            self.relations.record(published, commit_lsn, source=source, command=message.tag)
        if before is not None:
            return before.relation
        recorded = self.shapes.get(shape.relation.oid)
        return recorded.relation if recorded is not None else None

    def published(self, shape: Shape) -> Relation:
        """Return the relation of a shape with its published columns only."""
        oid = shape.relation.oid
        version = self.relations.in_force(oid, LAST_LSN)
        columns = version.relation.columns if version is not None and version.attnums is not None else None
        if columns is None and (history := open_history(self.lake, self.tables[oid])) is not None:
            columns = history.current if history.oid == oid else None
        return shape.published(columns, stored=self.entries.stored, listed=oid in self.entries.with_columns)

    def _park_rewritten(self, shape: Shape, message: DdlMessage, commit: _Commit) -> None:
        reasons = {message.rewritten[oid] for oid in shape.files if oid in message.rewritten} - {_ACCESS_METHOD}
        if reasons:
            name = self.tables[shape.relation.oid]
            what = "was set logged or unlogged" if reasons == {_PERSISTENCE} else "was rewritten"
            self._park(commit, name, f"table {name} {what} by {message.tag}", RENEWED_BY_FOLLOW)

    def _end(self, name: TableName, commit: _Commit) -> None:
        self._park(commit, name, f"table {name} was dropped at the source", NO_MORE_CHANGES, ended=True)
        unpark(self.lake, name, Cause.PUBLICATION)  # the catalog may have shown it first, less exactly

    def _park(  # noqa: PLR0913 - the parts of a record
        self,
        commit: _Commit,
        name: TableName,
        reason: str,
        remedy: str,
        *,
        ended: bool = False,
        known: _Commit | None = None,
    ) -> None:
        """Park a table at a commit; `known` is up to where it is known, None: to before the commit."""
        history = open_history(self.lake, name)
        if history is None or commit.lsn <= history.snapshot_lsn:
            return
        last, until = known or _Commit(Lsn(commit.lsn - 1), commit.time_us - 1), commit.lsn
        lsn = max(last.lsn, history.snapshot_lsn)
        park(self.lake, Parked(name, Cause.DDL, lsn, until, reason, remedy, last.time_us, ended))


def _described(entry: Entry) -> Relation | None:
    return entry.relation if isinstance(entry, Described) else None


def _part(shape: Shape, column: str) -> StoringTable:
    """Return the file of a table and the missing value of its column."""
    missing = next((shape.missing.get(c.attnum or 0) for c in shape.relation.columns if c.name == column), None)
    return StoringTable(shape.files[shape.relation.oid], None if missing is None else only_element(missing))


def _is_lossless(before: Relation, shape: Shape, message: DdlMessage) -> bool:
    """Whether a rewrite without USING only gave columns wider types, which keep the text of every value."""
    reasons = {message.rewritten[oid] for oid in shape.files if oid in message.rewritten}
    now = {column.attnum: column.type for column in shape.relation.columns}
    was = {column.attnum: column.type for column in before.columns}
    return reasons <= {_TYPE} and all(attnum in now and is_widened(was[attnum], now[attnum]) for attnum in was)
