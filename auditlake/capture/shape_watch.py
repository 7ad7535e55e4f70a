"""Shape watch: find changed shapes of followed tables by comparing the catalog with their record.

`ShapeWatch` compares shapes with their record before the watermark moves. Without messages, a schema change is in the
stream with the table's next row, or never, and some change rows without row messages (`pgoutput.table_shape`). So the
catalog is compared before every batch and every idle stretch becomes durable:

1. A new difference came after the last durable commit: the comparison before that commit found none. The table is
   parked at that commit at once, so that no query uses the former shape for later moments. After a restart, capture
   reads the commit from the parking record, because more has become durable since.
2. The difference is settled when the stream has reached the LSN at which it was read. By then the DDL trigger or a
   Relation message has recorded the new shape in `relations`. Otherwise it is recorded with source `catalog`: in force
   at that LSN at the latest, and not before the commit in 1.
3. The table is then followed again, unless its rows changed, or may have changed, without row messages: it stays parked
   until a new copy. A new file alone means TRUNCATE, VACUUM FULL or CLUSTER, which need no copy. The exception is a
   table that may have been unlogged in between: the publication does not list it by name, the DDL trigger is not
   installed, and it has another TOAST table, or none. If it has none, and a TRUNCATE in the stream belongs to the
   transaction that wrote its entry in pg_class, it is known again from that TRUNCATE on, and before there is a gap.
4. Moments between the two LSNs cannot be answered. The range is recorded in `gaps` if the change affects answers (a
   changed replica identity does not). There is no gap if the DDL trigger reported the change. Rows in the stream prove
   their shape and shorten the range, unless rows may have changed without messages, or the definition may have been
   changed and changed back (`ShapeDifference.touched`).
   A label that was added to an enum type is a difference, too: a row may have it under a former name, if it was renamed
   since. Rows in the stream show that.
5. A table that has the same name again may have been in another schema meanwhile. If the publication does not list it,
   its changes there are missing: it is parked, whatever the DDL trigger has reported. So is a table that may have been
   a partition meanwhile: if its root was published, its changes came under the root's name. For one that is a partition
   now, the publication is compared at once, as for a renamed one: no entry of it shows that.

One query per batch, of about 1 ms for 50 tables (`source.catalog`); others only after a change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import psycopg

from auditlake.capture.change_log import CaptureLog
from auditlake.capture.ddl_recorder import DdlRecorder, read_trigger_record, record_trigger
from auditlake.capture.partition_watch import HeldUpTo, read_since
from auditlake.lake.gaps import UNKNOWN_SHAPE, Gap, record_gaps
from auditlake.lake.layout import Lake
from auditlake.lake.parking import (
    NO_MORE_CHANGES,
    RENEWED_BY_FOLLOW,
    Cause,
    Parked,
    find_parked,
    names_with,
    park,
    unpark,
)
from auditlake.lake.records import read_shape, write_shape
from auditlake.lake.relations import RelationVersion, ShapeSource, is_same_shape
from auditlake.lsn import LAST_LSN, Lsn
from auditlake.messages import Event, Notice, Say
from auditlake.pgoutput.table_shape import (
    Shape,
    ShapeDifference,
    compare_shapes,
    enlarged_enums,
    has_altered_type,
    visible_differences,
)
from auditlake.relation import TableName
from auditlake.source.catalog import read_catalog_digest, read_composites, read_shapes, read_table_digests, read_types
from auditlake.source.connection import Row
from auditlake.source.ddl_trigger import DdlTrigger, read_ddl_trigger
from auditlake.source.publication import read_publication_entries
from auditlake.source.server import WalEnd, wal_end
from auditlake.store.files import file_versions, fingerprint, read_each

_TOUCHED = "its definition may have been changed, and changed back"
_UNLOGGED = "it may have been unlogged before it was truncated"
_LEFT = "it may have been in another schema, which the publication may not carry"
_DETACHED = "it may have been a partition of another table, under whose name its changes were sent"
_PENDING = "its definition or a type of its columns was changed, and the stream has not reached that yet"
_CHANGED_BEFORE = "its definition was changed before it was dropped, and is not known in between"
_SETTLES = "A running auditlake follow or auditlake capture settles it when the stream has reached that change."
_PARTITIONED = "p"


def _last_seen(read_at: WalEnd) -> WalEnd:
    """Return the last LSN at which a commit can start that the catalog showed: it ended before `read_at`."""
    return WalEnd(Lsn(read_at.lsn - 1), read_at.time_us)


def _gap(name: TableName, held: HeldUpTo, end: WalEnd, changes: tuple[str, ...]) -> Gap:
    """Return the range of a table that begins at the first LSN which is not certain, and ends at `end`."""
    reason = f"{UNKNOWN_SHAPE}: {', '.join(changes)}"
    return Gap(name, Lsn(held.lsn - 1), end.lsn, reason, held.time_us, end.time_us)


@dataclass(frozen=True, slots=True)
class _Unsettled:
    """A shape that differs from the record: read at an LSN and not in force up to `held`; `changed_by` is an xid."""

    shape: Shape
    changed_by: int
    read_at: WalEnd
    held: HeldUpTo
    found: ShapeDifference

    @property
    def is_difference(self) -> bool:
        """Whether more differs than that an enum type has more labels."""
        return bool(self.found) or self.found.touched


@dataclass(slots=True)
class _Watched:
    oid: int
    shape: Shape
    digest: str | None = None
    unsettled: _Unsettled | None = None
    attached: HeldUpTo | None = None
    """Up to when the table was known to be no partition, while it is one."""
    left_at: Lsn | None = None
    """The end of the log when the table was found to be dropped, with a difference that an earlier capture saw."""


def record_shapes(control: psycopg.Connection[Row], lake: Lake, tables: Mapping[TableName, int]) -> None:
    """Record the shapes of tables (by OID) without a history, before their snapshot."""
    shapes = read_shapes(control, tables.values())
    for name, oid in tables.items():
        if oid in shapes:
            write_shape(lake, name, shapes[oid][0])


def _is_unlimited(before: Shape, unsettled: _Unsettled) -> bool:
    """Whether rows prove no shape: those of a renamed partitioned table still come under its former name."""
    renamed = before.relation.name != unsettled.shape.relation.name
    return unsettled.found.touched or (renamed and unsettled.shape.kind == _PARTITIONED)


@dataclass(slots=True)
class ShapeWatch:
    """Compares the shapes of one lake's tables with the record.

    `dropped` has the tables that no longer exist. `moved` is set when a table was dropped or renamed, or became a
    partition: then the publication must be compared, too.
    """

    lake: Lake
    log: CaptureLog
    recorder: DdlRecorder
    report: Say
    publication: str
    dropped: set[TableName] = field(default_factory=set)
    moved: bool = False
    _watched: dict[TableName, _Watched] = field(default_factory=dict)
    _composites: list[int] = field(default_factory=list)
    _digest: str | None = None
    _written_at: object = None
    _read_at: Mapping[str, object] = field(default_factory=dict)
    _trigger: DdlTrigger | None = None
    _recorded: str | None = None
    _parked_pending: frozenset[TableName] = frozenset()

    @property
    def pending(self) -> bool:
        """Whether a difference waits for the stream to reach the LSN at which it was read."""
        return any(each.unsettled is not None or each.left_at is not None for each in self._watched.values())

    def refresh(self, control: psycopg.Connection[Row], tables: Mapping[TableName, int]) -> None:
        """Watch these tables (by OID); record the shapes of those of another source."""
        self._read_records(control)
        others = [name for name, oid in tables.items() if name not in self._watched or self._watched[name].oid != oid]
        recorded = read_each(self.lake.shapes, partial(read_shape, self.lake), others)
        pairs = zip(others, recorded, strict=True)
        lacking = [name for name, shape in pairs if shape is None or shape.relation.oid != tables[name]]
        if lacking:
            record_shapes(control, self.lake, {name: tables[name] for name in lacking})
        self._read_trigger(control)
        self.recorder.entries = read_publication_entries(control, self.publication)
        if others:
            self._read_records(control)

    def check(self, control: psycopg.Connection[Row], held: HeldUpTo) -> None:
        """Compare every table with its record; call it before more becomes durable."""
        if self._written_at != fingerprint(self.lake.shapes):
            self._read_records(control)
        if not self._watched:
            return
        digest = read_catalog_digest(control, self._oids, self._composites)
        if digest != self._digest:
            self._compare_all(control, held)
            self._composites = read_composites(control, self._oids)
            # Read before the comparison, so that nothing in between is missed.
            self._digest = digest
        for name, watched in self._watched.items():
            if watched.unsettled is not None and held.lsn >= watched.unsettled.read_at.lsn:
                self._settle(name, watched, watched.unsettled)
            if watched.left_at is not None and held.lsn >= watched.left_at:
                self._settle_dropped(name, watched, watched.left_at)
        if not self.pending:
            self.recorder.renamed.clear()

    @property
    def _oids(self) -> list[int]:
        return [each.oid for name, each in self._watched.items() if name not in self.dropped]

    def _read_records(self, control: psycopg.Connection[Row]) -> None:
        self._written_at = fingerprint(self.lake.shapes)
        before_at, self._read_at = self._read_at, file_versions(self.lake.shapes)
        changed = [name for name in self.lake.shape_names() if not self._is_read(name, before_at)]
        shapes = read_each(self.lake.shapes, partial(read_shape, self.lake), changed)
        for name, shape in zip(changed, shapes, strict=True):
            before = self._watched.get(name)
            if shape is not None and (before is None or before.oid != shape.relation.oid):
                self._watched[name] = _Watched(shape.relation.oid, shape)
                self.dropped.discard(name)
                self._digest = None
        self._composites = read_composites(control, self._oids)
        self.recorder.tables = {each.oid: name for name, each in self._watched.items()}
        self.recorder.shapes = {each.oid: each.shape for each in self._watched.values()}

    def _is_read(self, name: TableName, before_at: Mapping[str, object]) -> bool:
        """Whether the file of a table is the one that was read before."""
        file = self.lake.shape(name).name
        return name in self._watched and file in before_at and before_at[file] == self._read_at.get(file)

    def _compare_all(self, control: psycopg.Connection[Row], held: HeldUpTo) -> None:
        self._read_trigger(control)  # first: one that is installed after a change has not reported it
        digests, types = read_table_digests(control, self._oids), read_types(control, self._oids)
        changed, dropped = {}, list[TableName]()
        for name, watched in self._watched.items():
            if name in self.dropped:
                continue
            if watched.oid not in digests:
                dropped.append(name)
            elif digests[watched.oid] != watched.digest or types.get(watched.oid, {}) != watched.shape.types:
                changed[name] = watched
        shapes = read_shapes(control, [each.oid for each in changed.values()]) if changed else {}
        read_at = wal_end(control)
        self._parked_pending = names_with(self.lake, Cause.PENDING) if changed or dropped else frozenset()
        for name in dropped:
            self._drop(name, self._watched[name], read_at)
        for name, watched in changed.items():
            if watched.oid in shapes:
                watched.digest = digests[watched.oid]
                self._compare(name, watched, shapes[watched.oid], read_at, held)

    def _compare(
        self, name: TableName, watched: _Watched, now: tuple[Shape, int], read_at: WalEnd, held: HeldUpTo
    ) -> None:
        shape, changed_by = now
        found = compare_shapes(watched.shape, shape)
        since = self._since(name, watched)
        entries, unsettled = self.recorder.entries, _Unsettled(shape, changed_by, read_at, since or held, found)
        if found.renamed and entries.schemas and watched.oid not in entries.tables:
            self._park_changed(name, _LEFT, unsettled)
        if entries.via_root:
            self._follow_partition(name, watched, unsettled)
        if not found and not found.touched:
            if since is not None and (watched.unsettled is None or watched.unsettled.is_difference):
                self._record_return(name, since, read_at)
            if not enlarged_enums(watched.shape, shape):
                if since is not None:
                    unpark(self.lake, name, Cause.PENDING)
                self._accept(name, watched, shape)
                return
        self.moved |= shape.relation.name != watched.shape.relation.name
        watched.unsettled = unsettled
        self._park(Cause.PENDING, name, _PENDING, watched.unsettled)

    def _follow_partition(self, name: TableName, watched: _Watched, unsettled: _Unsettled) -> None:
        """Have the publication compared if a table is a partition now or was one; park it if that shows nothing.

        It may have been detached again when the publication is compared, which the end of being one then shows.
        """
        found = unsettled.found
        if found.attached:
            watched.attached = unsettled.held
        self.moved |= found.attached or found.detached
        if found.detached and find_parked(self.lake, name, Cause.PUBLICATION) is None:
            self._park_changed(name, _DETACHED, replace(unsettled, held=watched.attached or unsettled.held))
        if not unsettled.shape.partition:
            watched.attached = None

    def _drop(self, name: TableName, watched: _Watched, read_at: WalEnd) -> None:
        self.dropped.add(name)
        self.moved = True
        if watched.unsettled is None and name in self._parked_pending:
            watched.left_at = read_at.lsn

    def _settle_dropped(self, name: TableName, watched: _Watched, left_at: Lsn) -> None:
        """Replace the record of a difference that was never settled: the table is uncertain from then on.

        Unless the trigger has reported a shape since.
        """
        watched.left_at, parked = None, find_parked(self.lake, name, Cause.PENDING)
        if parked is None:
            return
        last = self.log.relations.in_force(watched.oid, LAST_LSN)
        if last is None or last.source is not ShapeSource.DDL_TRIGGER or last.lsn <= parked.lsn:
            ended = replace(parked, reason=_CHANGED_BEFORE, remedy=NO_MORE_CHANGES, ended=True)
            park(self.lake, replace(ended, cause=Cause.SHAPE, until=left_at))
        unpark(self.lake, name, Cause.PENDING)

    def _since(self, name: TableName, watched: _Watched) -> HeldUpTo | None:
        """Return since when a difference is not settled, also one that an earlier capture saw; None without one."""
        if watched.unsettled is not None:
            return watched.unsettled.held
        parked = find_parked(self.lake, name, Cause.PENDING) if name in self._parked_pending else None
        return None if parked is None else HeldUpTo(Lsn(parked.lsn + 1), cast("int", parked.time_us))

    def _record_return(self, name: TableName, since: HeldUpTo, read_at: WalEnd) -> None:
        """Record that the table may have had another shape, unless the DDL trigger has reported every change."""
        if not self.trigger_reports:
            record_gaps(self.lake, [_gap(name, since, _last_seen(read_at), (_TOUCHED,))])

    def _accept(self, name: TableName, watched: _Watched, shape: Shape) -> None:
        if shape != watched.shape:
            write_shape(self.lake, name, shape)
        watched.shape, watched.unsettled = shape, None
        self.recorder.shapes[watched.oid] = shape

    def _settle(self, name: TableName, watched: _Watched, unsettled: _Unsettled) -> None:
        """Record what the stream has not shown, and follow the table again unless rows may have changed."""
        reported = self.recorder.take(watched.oid, unsettled.shape)
        # A message about a type does not name the tables that have got a column of it since the last agreement.
        problem = self._changed_type(watched, unsettled)
        if unsettled.is_difference and not reported:
            problem = self._changed_rows(name, watched, unsettled) or problem
            self._record(watched, unsettled)
        if problem is not None:
            self._park_changed(name, problem, unsettled)
        elif not reported and (unsettled.found.visible or self._may_be_unseen(unsettled.found)):
            self._record_gaps(name, watched, unsettled)
        unpark(self.lake, name, Cause.PENDING)
        self._accept(name, watched, unsettled.shape)

    def _may_be_unseen(self, found: ShapeDifference) -> bool:
        """Return whether a definition that is the same again may have been another one, which no message reported."""
        return found.touched and (bool(found) or not self.trigger_reports)

    def _record(self, watched: _Watched, unsettled: _Unsettled) -> None:
        """Record the shape in `relations`, unless the stream has shown it by then; it may have shown it later."""
        seen = _last_seen(unsettled.read_at).lsn
        before = self.log.relations.in_force(watched.oid, seen)
        published = self.recorder.published(unsettled.shape)
        former = self.recorder.published(watched.shape) if before is None else before.relation
        if is_same_shape(former, published):
            return
        certain = max(Lsn(unsettled.held.lsn - 1), Lsn(before.lsn - 1) if before is not None else Lsn(0))
        self.log.relations.record(published, seen, after_lsn=certain, source=ShapeSource.CATALOG)
        self.log.flush_relations()

    def _record_gaps(self, name: TableName, watched: _Watched, unsettled: _Unsettled) -> None:
        """Record the moments at which the table may have had either of two shapes: a range for each new shape.

        A row proves a shape up to the moment before its commit: until then only its own transaction could change it,
        and it may have done so after the row.
        """
        if _is_unlimited(watched.shape, unsettled):
            what = (*unsettled.found.visible, *([_TOUCHED] if unsettled.found.touched else []))
            record_gaps(self.lake, [_gap(name, unsettled.held, _last_seen(unsettled.read_at), what)])
            return
        shape, now = (self.recorder.published(each) for each in (watched.shape, unsettled.shape))
        held, end, relations = unsettled.held, _last_seen(unsettled.read_at), self.log.relations
        before, gaps = relations.in_force(watched.oid, Lsn(held.lsn - 1)), []
        # A version whose columns may be other ones of the same names proves nothing.
        number = before.number if before is not None and before.attnums is not None else None
        for version in relations.after(watched.oid, Lsn(held.lsn - 1)):
            if version.attnums is None or version.lsn >= end.lsn:
                continue
            if visible := visible_differences(shape, version.relation):
                held = self._proved(held, number, version)
                shown_us = self.log.time_of(version.lsn) or end.time_us
                gaps.append(_gap(name, held, WalEnd(version.lsn, shown_us), visible))
                held = HeldUpTo(version.lsn, shown_us - 1)
            shape, number = version.relation, version.number
        if (visible := visible_differences(shape, now)) or not gaps:
            held = self._proved(held, number, end.lsn)
            gaps.append(_gap(name, held, end, visible or unsettled.found.visible))
        record_gaps(self.lake, gaps)

    def _proved(self, held: HeldUpTo, number: int | None, until: RelationVersion | Lsn) -> HeldUpTo:
        """Return up to when rows of the version `number` before `until` prove its shape; `held` if there are none."""
        found = self.log.last_change(number, held.lsn, until) if number is not None else None
        return held if found is None else HeldUpTo(found[0], found[1] - 1)

    @property
    def trigger_reports(self) -> bool:
        """Whether the DDL trigger has reported every change since the last comparison."""
        trigger = self._trigger
        if trigger is None or self.recorder.failed:
            return False
        return trigger.records and self._recorded in {None, trigger.entries}

    def _read_trigger(self, control: psycopg.Connection[Row]) -> None:
        self._trigger, self._recorded = read_ddl_trigger(control), read_trigger_record(self.lake)

    def record_trigger(self) -> None:
        """Record which trigger is installed; call it when nothing is left to settle, here and of partitions."""
        if self._trigger is not None and self._trigger.entries != self._recorded:
            self._recorded = self._trigger.entries
            record_trigger(self.lake, self._recorded)

    def _changed_rows(self, name: TableName, watched: _Watched, unsettled: _Unsettled) -> str | None:
        """Describe why rows may have changed without row messages; None if they have not."""
        if unsettled.found.rows:
            return "; ".join(unsettled.found.rows)
        listed = unsettled.shape.relation.oid in self.recorder.entries.tables
        if self._hides_columns(unsettled):
            return "its columns were changed, which the DDL trigger did not report"
        if not unsettled.found.rewritten or self.trigger_reports or listed:
            return None
        former, certain = watched.shape.toast, Lsn(unsettled.held.lsn - 1)
        if former and former == unsettled.shape.toast:
            return None
        whole = read_since(self.lake, watched.oid, certain, unsettled.read_at.lsn).truncates.get(unsettled.changed_by)
        if whole is None or former:
            return "it has a new file: it was rewritten by VACUUM FULL or CLUSTER, or it was unlogged for some time"
        record_gaps(self.lake, [Gap(name, certain, whole.lsn, _UNLOGGED, unsettled.held.time_us, whole.time_us)])
        return None

    def _changed_type(self, watched: _Watched, unsettled: _Unsettled) -> str | None:
        """Describe that a row may have a label, or a composite, that is new and was changed; None if none has."""
        if has_altered_type(watched.shape, unsettled.shape, self.recorder.renamed):
            return "a new column has a type that was altered, perhaps since rows have values of it"
        first, oid, enlarged = unsettled.held.lsn, watched.oid, enlarged_enums(watched.shape, unsettled.shape)
        before = self.log.relations.in_force(oid, first)
        for version in [*([] if before is None else [before]), *self.log.relations.after(oid, first)]:
            for place, column in enumerate(version.relation.columns):
                labels = enlarged.get(column.type_oid)
                if labels and self.log.has_other_value(version, first, place, labels):
                    return f"an enum label of column {column.name} was added and renamed"
                inside = unsettled.shape.enums_inside(column.attnum)
                if not inside.isdisjoint(enlarged) and self.log.has_other_value(
                    version, first, place, unsettled.shape.labels_of(inside), inside=True
                ):
                    return f"an enum label inside column {column.name} may have been added and renamed"
        return None

    def _hides_columns(self, unsettled: _Unsettled) -> bool:
        """Return whether other columns have the names and types of those that the DDL trigger reported last.

        The stream shows no difference then, and while the trigger reports every change, none is sought.
        """
        before = self.log.relations.in_force(unsettled.shape.relation.oid, unsettled.held.lsn)
        now = self.recorder.published(unsettled.shape)
        if before is None or before.source is not ShapeSource.DDL_TRIGGER:
            return False
        return before.relation == now and not before.shows(now)

    def _park_changed(self, name: TableName, problem: str, unsettled: _Unsettled) -> None:
        self._park(Cause.SHAPE, name, problem, unsettled)
        parked = f"{name}: {problem}; it is parked, capture goes on with all other tables"
        self.report(Notice(Event.TABLE_PARKED, parked))

    def _park(self, cause: Cause, name: TableName, reason: str, unsettled: _Unsettled) -> None:
        held = unsettled.held
        remedy = _SETTLES if cause is Cause.PENDING else RENEWED_BY_FOLLOW
        park(self.lake, Parked(name, cause, Lsn(held.lsn - 1), unsettled.read_at.lsn, reason, remedy, held.time_us))
