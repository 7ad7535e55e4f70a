"""DDL recorder: turn the messages of the DDL trigger into versions of `relations`, at their exact commits.

Runs in the writer's thread, for each message in the order of the stream, before the changes after it are written:

1. Every followed table in the message whose shape differs from the version in force gets a new one, exact.
2. If its rows were rewritten, or it became unlogged, it is parked just before that commit: the rows changed without row
   messages. If it was dropped, it ends there.

A message may come again after a crash; then its versions and records are there already.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from auditlake.lake.history import open_history
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Cause, Parked, extend, unpark
from auditlake.lake.relations import RelationsLog, ShapeSource, attnums_of
from auditlake.lsn import Lsn
from auditlake.pgoutput.ddl_message import DdlMessage, parse_ddl_message
from auditlake.relation import Relation, TableName
from auditlake.source.publication import Entries
from auditlake.table_shape import Shape, compare
from auditlake.values.types import is_widened

_LAST_LSN = 1 << 62
_PERSISTENCE, _TYPE, _ACCESS_METHOD = 1, 4, 8
_REMEDY = "Run auditlake resync: it copies the table again and keeps its history."
_DROPPED = "It has no more changes; its history up to then can be queried."


@dataclass(frozen=True, slots=True)
class _Commit:
    lsn: int
    time_us: int


@dataclass(slots=True)
class DdlRecorder:
    """Records DDL messages about the tables of one lake; `tables` are those that are followed, by OID.

    `shapes` are their shapes when capture last agreed with the catalog.
    """

    lake: Lake
    relations: RelationsLog
    tables: Mapping[int, TableName] = field(default_factory=dict)
    shapes: Mapping[int, Shape] = field(default_factory=dict)
    entries: Entries = field(default_factory=Entries)
    _reported: dict[int, Shape] = field(default_factory=dict)
    _repeated_to: int = 0

    def __post_init__(self) -> None:
        # The stream repeats after a restart what was not acknowledged.
        self._repeated_to = self.relations.last_lsn

    def __call__(self, content: bytes, commit_lsn: int, time_us: int) -> None:
        """Record a message of the transaction that committed at `commit_lsn`, at `time_us` in us since 1970."""
        message = parse_ddl_message(content)
        if message is None:
            return
        commit = _Commit(commit_lsn, time_us)
        for shape in message.shapes:
            if shape.relation.oid in self.tables:
                self._follow(shape, message, commit)
        for oid, shape in self.shapes.items():
            if shape.shows(message.labels):
                name = self.tables[oid]
                self._reported.setdefault(oid, replace(shape, types={}))
                reason = f"{message.tag} changed the text of existing rows of {name}: a label or column of a type"
                self._park(commit, name, reason, _REMEDY)
        for each in message.dropped:
            if not each.attnum and each.oid in self.tables:
                self._end(self.tables[each.oid], commit)

    def _follow(self, shape: Shape, message: DdlMessage, commit: _Commit) -> None:
        before = self._record(shape, message, commit.lsn)
        if not (message.plain and before is not None and _is_lossless(before, shape, message)):
            self._park_rewritten(shape, message, commit)

    def take(self, oid: int, now: Shape) -> bool:
        """Return whether the last message about a table reported this shape; it is not used again."""
        reported = self._reported.get(oid)
        if reported is None or reported.persistence != now.persistence:
            return False
        if compare(reported, now):
            return False
        del self._reported[oid]
        return True

    def _record(self, shape: Shape, message: DdlMessage, commit_lsn: int) -> Relation | None:
        """Record the shape, if it is new; return the relation in force before."""
        self._reported[shape.relation.oid] = shape
        before = self.relations.in_force(shape.relation.oid, commit_lsn)
        published = self.published(shape)
        if commit_lsn <= self._repeated_to and self.relations.is_recorded(
            published, commit_lsn, ShapeSource.DDL_TRIGGER
        ):
            return None
        if before is None or (before.relation, before.attnums) != (published, attnums_of(published)):
            source = ShapeSource.DDL_TRIGGER
            self.relations.record(published, commit_lsn, source=source, command=message.tag)
        if before is not None:
            return before.relation
        recorded = self.shapes.get(shape.relation.oid)
        return recorded.relation if recorded is not None else None

    def published(self, shape: Shape) -> Relation:
        """Return the relation of a shape with its published columns only."""
        oid = shape.relation.oid
        version = self.relations.in_force(oid, _LAST_LSN)
        columns = version.relation.columns if version is not None and version.attnums is not None else None
        if columns is None and (history := open_history(self.lake, self.tables[oid])) is not None:
            columns = history.current if history.oid == oid else None
        return shape.published(columns, stored=self.entries.stored, listed=oid in self.entries.with_columns)

    def _park_rewritten(self, shape: Shape, message: DdlMessage, commit: _Commit) -> None:
        reasons = {message.rewritten[oid] for oid in shape.files if oid in message.rewritten} - {_ACCESS_METHOD}
        if reasons:
            name = self.tables[shape.relation.oid]
            what = "was set logged or unlogged" if reasons == {_PERSISTENCE} else "was rewritten"
            self._park(commit, name, f"table {name} {what} by {message.tag}", _REMEDY)

    def _end(self, name: TableName, commit: _Commit) -> None:
        self._park(commit, name, f"table {name} was dropped at the source", _DROPPED, ended=True)
        unpark(self.lake, name, Cause.PUBLICATION)  # the catalog may have shown it first, less exactly

    def _park(self, commit: _Commit, name: TableName, reason: str, remedy: str, *, ended: bool = False) -> None:
        history = open_history(self.lake, name)
        if history is None or commit.lsn <= history.snapshot_lsn:
            return
        last, until = Lsn(commit.lsn - 1), Lsn(commit.lsn)
        parked = Parked(name, Cause.DDL, last, until, reason, remedy, commit.time_us - 1, ended)
        extend(self.lake, parked, history.snapshot_lsn)


def _is_lossless(before: Relation, shape: Shape, message: DdlMessage) -> bool:
    """Whether a rewrite without USING only gave columns wider types, which keep the text of every value."""
    reasons = {message.rewritten[oid] for oid in shape.files if oid in message.rewritten}
    now = {column.attnum: (column.type_oid, column.typmod) for column in shape.relation.columns}
    was = {column.attnum: (column.type_oid, column.typmod) for column in before.columns}
    return reasons <= {_TYPE} and all(attnum in now and is_widened(was[attnum], now[attnum]) for attnum in was)
