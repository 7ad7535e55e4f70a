"""Partition watch: compare the partitions of published tables with their record before the watermark moves.

Under publish_via_partition_root, DROP, DETACH and TRUNCATE of a partition remove rows of the published table, and
ATTACH of a filled one adds rows, without a trace in the stream. The catalog shows them:

    dropped, detached       the partition is missing. One that was also created since is reported by the DDL trigger
    attached                it is new. CREATE TABLE … PARTITION OF creates it and its columns in one command; ATTACH
                            updates the entries of the columns. An empty one adds no rows, unless it was a partition
                            before, or was truncated since: then it does not have its first file, of the table's OID.
                            Nor may it have been vacuumed: it had rows, if they were deleted. VACUUM sets `reltuples`,
                            which the owner can set back since 18, and is counted, which only a superuser can undo.
    truncated               it has a new file. So it has after VACUUM FULL, CLUSTER and SET TABLESPACE, which keep the
                            rows, and after TRUNCATE of the whole table, which is in the stream.
    unlogged, foreign       its changes are not in the stream
    unlogged, then logged   it has a new file and a new TOAST table, which the commands above keep. Without a TOAST
                            table it looks like them. So it has after a new type of a column, which also updates the
                            entries of the root's columns.
    another identity        its old rows lack columns of the table's key. Changes of its rows are sent as the table's,
                            and do not show which row was changed.

A truncated partition has at most the rows that were inserted since. More prove that it was not truncated. They are
counted: the estimate of ANALYZE (`reltuples`) stays although its transaction is rolled back with the rows. If the
transaction that gave it the new file is that of a TRUNCATE in the stream, it was truncated with the whole table.
Nothing shows what happened to the partition before that since the last comparison, so these moments become a gap. Nor
does anything show a second TRUNCATE, of the partition alone, in that transaction: if it inserted rows later, they may
be gone.

1. Every batch and every idle stretch becomes durable only after this comparison. So a change of the partitions comes
   after the last durable commit.
2. If the change removed or added rows, or may have, the table is parked at that commit; capture continues.
3. A new file of a partition may be due to TRUNCATE of the whole table, which is in the stream. That is decided only
   when the stream has reached the LSN at which the new file was read; until then the table is parked, too. In between
   a TRUNCATE is looked for in `changes`, for a tenth of the time at most: in a store that takes longer than a batch.

If a table is partitioned, this costs one query per batch, otherwise nothing.

The record (partitions/<schema>.<table>.json) has the last known partitions of a table. It is written before the table's
snapshot, then by capture for every difference that neither added nor removed rows, before the watermark passes it.

Only catalogs are read and no function is called that opens a table, so nothing waits for VACUUM FULL or TRUNCATE. The
exceptions are in `capture.partition_rows`.

Authority: postgresql.org/docs/current/catalog-pg-class.html, catalog-pg-inherits.html; tablecmds.c, ExecuteTruncateGuts
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any, cast

import psycopg

from auditlake.capture.partition_rows import count_rows, is_empty
from auditlake.delta.sql import read_newest, select
from auditlake.lake.gaps import Gap, record_gaps
from auditlake.lake.layout import Lake
from auditlake.lake.parking import RENEWED_BY_FOLLOW, Cause, Parked, find_parked, park, unpark
from auditlake.lake.partition_records import RESTORE, former_parts
from auditlake.lake.records import read_record, update_record
from auditlake.lake.relations import read_versions
from auditlake.lsn import Lsn
from auditlake.messages import Event, Notice, Say
from auditlake.pgoutput.table_shape import Shape
from auditlake.relation import Relation, ReplicaIdentity, TableName
from auditlake.source.catalog import read_shapes
from auditlake.source.connection import Row, fetch
from auditlake.source.server import wal_end
from auditlake.store.files import fingerprint

_PAUSE = 9
"""Times that a look into `changes` took, before the next one."""
_SINCE = """
select lsn, xid, max(epoch_us(time)) as time, max(ordinal) filter (op = 'truncate') as truncated,
       coalesce(max(ordinal) filter (op = 'insert'), -1) as inserted, count(*) filter (op = 'insert') as inserts
from changes
where relation in ({relations}) and lsn > {lsn} and lsn < {end} and op in ('insert', 'truncate')
group by lsn, xid
"""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: its name, its file (0 if it is partitioned itself), and the xid that attached it.

    `toast` is the OID of its TOAST table, 0 without one.
    """

    name: str
    file: int
    attached: str
    toast: int = 0


@dataclass(frozen=True, slots=True)
class PartNow:
    """A partition's current catalog entry.

    `made_here`: one command created and attached it. `changed_by` is the xid that last wrote its row of pg_class;
    `reshaped`: that transaction changed the root's columns, too. `created_by` is the xid that created it, perhaps that
    of a subtransaction. `unlogged` is "unlogged" or "foreign" if the stream lacks its changes.
    """

    part: Partition
    made_here: bool
    changed_by: int
    vacuumed: bool
    reshaped: bool = False
    created_by: int = 0
    unlogged: str | None = None


@dataclass(frozen=True, slots=True)
class Differences:
    """Partitions that are gone or may have added rows, by OID, and the former entries of those with a new file."""

    gone: tuple[int, ...]
    attached: tuple[int, ...]
    rewritten: Mapping[int, Partition]


def compare_partitions(before: Mapping[int, Partition], now: Mapping[int, PartNow]) -> Differences:
    """Compare the partitions of a table with their record."""
    fresh = {oid: _as_created(oid, each.part) for oid, each in now.items() if oid not in before}
    again = [oid for oid in now if oid in before and before[oid].attached != now[oid].part.attached]
    made_here = all(now[oid].made_here for oid in fresh) and not again
    candidates = [*again, *([] if made_here else fresh)]
    was = {**fresh, **before}
    return Differences(
        gone=tuple(oid for oid, part in before.items() if part.file and oid not in now),
        attached=tuple(oid for oid in candidates if now[oid].part.file or oid in again),
        rewritten={
            oid: was[oid]
            for oid, each in now.items()
            if oid not in candidates and was[oid].file not in {0, each.part.file}
        },
    )


def _as_created(oid: int, part: Partition) -> Partition:
    """Return a partition as CREATE TABLE made it: the number of its first file is the table's OID."""
    return replace(part, file=part.file and oid, toast=0)


def may_have_been_unlogged(before: Partition, now: PartNow, *, reports: bool) -> bool:
    """Whether a partition with a new file may have been unlogged since the record.

    If the DDL trigger `reports` every change, a new type of a column of the root explains the file.
    """
    return not (now.reshaped and reports) and (not before.toast or before.toast != now.part.toast)


_TREE = """
with recursive tree (root, relid, attached) as (
    select c.oid, c.oid, '' from pg_catalog.pg_class c where c.oid = any (%s::oid[]) and c.relkind = 'p'
    union all
    select tree.root, i.inhrelid, i.xmin::text
      from tree join pg_catalog.pg_inherits i on i.inhparent = tree.relid)
"""

_DIGESTS = f"""{_TREE}
select t.root::bigint,
       pg_catalog.md5(pg_catalog.string_agg(
           pg_catalog.concat_ws(':', t.relid, c.relfilenode, t.attached, c.relreplident,
               (select i.indexrelid from pg_catalog.pg_index i where i.indrelid = t.relid and i.indisreplident)),
           ',' order by t.relid))
  from tree t join pg_catalog.pg_class c on c.oid = t.relid and c.relkind in ('r', 'p', 'f')
 group by t.root
"""

# The entry of a system column is written only when the table is created; ATTACH also updates the first column's. A
# command that was rolled back leaves its own number as `cmin`, DROP the same in both. Its xid stays in `xmax`: VACUUM
# removes none from a catalog that is newer than the position of our slot. An xid of more than 2^31 ago looks like a
# later one, and has a negative age.
_PARTS = f"""{_TREE}
select t.relid::bigint, c.relname::text,
       c.relfilenode::bigint, t.attached, c.xmin::text::bigint,
       c.reltuples >= 0
         or pg_catalog.pg_stat_get_vacuum_count(c.oid) + pg_catalog.pg_stat_get_autovacuum_count(c.oid) > 0,
       coalesce(t.attached = s.xmin::text and s.xmin = a.xmin and s.cmin = a.cmin and s.xmax = 0 and a.xmax = 0, false),
       c.reltoastrelid::bigint,
       exists (select from pg_catalog.pg_attribute r where r.attrelid = t.root and r.attnum > 0 and r.xmin = c.xmin),
       case when pg_catalog.age(s.xmin) > 0 then s.xmin::text::bigint else 0 end,
       case when c.relkind = 'f' then 'foreign' when c.relkind = 'r' and c.relpersistence <> 'p' then 'unlogged' end
  from tree t
  join pg_catalog.pg_class c on c.oid = t.relid and c.relkind in ('r', 'p', 'f')
  left join pg_catalog.pg_attribute s on s.attrelid = t.relid and s.attname = 'tableoid'
  left join pg_catalog.pg_attribute a on a.attrelid = t.relid and a.attnum = 1
 where t.relid <> t.root
"""

_TRUNCATED_BEFORE = "its partitions may have lost rows before the whole table was truncated"
_DROPPED = "it was dropped, and its partitions may have lost or gained rows before"


def read_digests(conn: psycopg.Connection[Row], relations: Iterable[int]) -> dict[int, str]:
    """Read a digest of the partitions of each partitioned one of these tables, by OID."""
    return {cast("int", oid): str(digest) for oid, digest in fetch(conn, _DIGESTS, list(relations))}


def read_parts(conn: psycopg.Connection[Row], relation: int) -> dict[int, PartNow]:
    """Read the partitions of a table at all levels, by OID, including partitioned ones."""
    parts = {}
    for oid, name, file, attached, changed_by, vacuumed, made_here, toast, reshaped, created_by, unlogged in fetch(
        conn, _PARTS, [relation]
    ):
        part = Partition(str(name), cast("int", file), str(attached), cast("int", toast))
        parts[cast("int", oid)] = PartNow(
            part,
            bool(made_here),
            cast("int", changed_by),
            bool(vacuumed),
            bool(reshaped),
            cast("int", created_by),
            cast("str | None", unlogged),
        )
    return parts


def find_unlogged(conn: psycopg.Connection[Row], relation: int, parts: Mapping[int, PartNow]) -> str | None:
    """Describe a partition whose changes the stream lacks, or the key of its old rows; None without one."""
    for each in parts.values():
        if each.unlogged is not None:
            return f"its partition {each.part.name} is {each.unlogged}, so its changes are not in the stream"
    return _find_unlogged_key(conn, relation, parts)


def _find_unlogged_key(conn: psycopg.Connection[Row], relation: int, parts: Mapping[int, PartNow]) -> str | None:
    shapes = {oid: shape for oid, (shape, _) in read_shapes(conn, [relation, *parts]).items()}
    if relation not in shapes:
        return None
    key = key_columns(shapes[relation].relation, shapes[relation])
    for oid in (each for each in parts if each in shapes):
        if parts[oid].part.file and (problem := find_lacking_key(key, shapes[oid].relation)) is not None:
            return problem
    return None


def key_columns(relation: Relation, shape: Shape) -> frozenset[str]:
    """Return the names of the columns by which a partitioned table's rows are known; `shape` may be an older one.

    REPLICA IDENTITY FULL flags all columns, and only the shape has the primary key. If that was renamed since, all
    columns are returned.
    """
    flagged = _flagged(relation)
    key = frozenset(column.name for column in shape.relation.columns if column.attnum in shape.key)
    is_known = relation.replica_identity is ReplicaIdentity.FULL and key <= flagged
    return key if key and is_known else flagged


def _flagged(relation: Relation) -> frozenset[str]:
    return frozenset(column.name for column in relation.columns if column.key)


def find_lacking_key(key: frozenset[str], partition: Relation) -> str | None:
    """Describe that old rows of a partition lack columns of the table's key; None if they have all."""
    if key <= _flagged(partition):
        return None
    return f"the replica identity of its partition {partition.name.table} lacks columns of its key"


@dataclass(frozen=True, slots=True)
class KnownPartitions:
    """OID of a partitioned table, and its partitions at all levels, by OID.

    `problem`: the table needs a new snapshot, although its partitions may be as recorded again.
    """

    relation: int
    parts: Mapping[int, Partition]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Truncated:
    """Commit of a TRUNCATE of a whole table: its LSN and time, in us since 1970; `filled`: it inserted rows later."""

    lsn: Lsn
    time_us: int
    filled: bool


@dataclass(frozen=True, slots=True)
class Since:
    """Changes of a table in the stream: every TRUNCATE by its xid, and the number of inserted rows (at most)."""

    truncates: Mapping[int, Truncated]
    inserts: float


def lost_rows(before: Partition, now: PartNow, rows: int, since: Since, *, reports: bool) -> str | None:
    """Describe why a partition with a new file may not have logged or kept its rows; None if it has.

    `rows` it has at least, at an LSN up to which `since` has all that were inserted.
    Rows that it lost before a TRUNCATE of the whole table do not count: that one is in the stream.
    """
    whole = since.truncates.get(now.changed_by)
    if may_have_been_unlogged(before, now, reports=reports) and (whole is None or before.toast):
        return "has a new file, and may have been unlogged for some time"
    kept_rows = not whole.filled if whole is not None else rows > since.inserts
    return None if kept_rows else "was truncated"


def read_partitions(lake: Lake, name: TableName) -> KnownPartitions | None:
    """Read the last known partitions of a table; None without a record. Raises LakeUnusable."""

    def read(content: Mapping[str, Any]) -> KnownPartitions:
        parts = {int(oid): Partition(**part) for oid, part in content["parts"].items()}
        return KnownPartitions(content["relation"], parts, content.get("problem"))

    return read_record(lake.partitions_of(name), read, RESTORE)


def write_partitions(lake: Lake, name: TableName, known: KnownPartitions) -> None:
    """Record the current partitions of a table, and the OIDs of former ones; raises LakeUnusable."""
    parts = {str(oid): asdict(part) for oid, part in sorted(known.parts.items())}
    problem = {} if known.problem is None else {"problem": known.problem}

    def changed(before: set[int] | None) -> object:
        former = sorted((before or set()) - known.parts.keys())
        return {"relation": known.relation, "parts": parts, "former": former, **problem}

    update_record(lake, lake.partitions_of(name), former_parts, changed, RESTORE)


def read_since(lake: Lake, oid: int, lsn: Lsn, end: Lsn) -> Since:
    """Read the changes of a table after an LSN, by transactions that begin to commit before `end`."""
    changes = read_newest(lake.changes)
    numbers = {version.number for version in read_versions(lake).of_oid(oid)}
    if changes is None or not numbers:
        return Since({}, 0)
    query = _SINCE.format(relations=", ".join(map(str, sorted(numbers))), lsn=f"{lsn:d}", end=f"{end:d}")
    rows = select(query, changes=changes.within(lsn=(lsn + 1, end))).to_pylist()
    truncates = {
        row["xid"]: Truncated(Lsn(row["lsn"]), row["time"], filled=row["inserted"] > row["truncated"])
        for row in rows
        if row["truncated"] is not None
    }
    return Since(truncates, sum(row["inserts"] for row in rows))


@dataclass(frozen=True, slots=True)
class HeldUpTo:
    """What the lake holds: everything before an LSN, and every commit up to a time, in microseconds since 1970."""

    lsn: Lsn
    time_us: int


@dataclass(frozen=True, slots=True)
class _Undecided:
    """A digest that is not explained yet, and the end of the log after it was read; rows of partitions, by OID."""

    digest: str
    read_at: Lsn
    rows: Mapping[int, int]


@dataclass(slots=True)
class _Watched:
    known: KnownPartitions
    digest: str | None = None
    """Digest of the partitions when they last equalled the record."""
    pending: _Undecided | None = None
    next_look_at: float = 0.0
    """The monotonic time from which on `changes` may be read again while it is not explained."""
    found: Mapping[int, int] = field(default_factory=dict)
    """The partitions in the catalog when it was read last, each with the xid that created it."""
    settled: str | None = None
    """The digest of a change that is known to have added or removed rows, or may have."""
    reported: bool = False

    def is_to_explain(self, digest: str, lsn: Lsn) -> bool:
        """Return whether these partitions are to be compared now, with everything before `lsn` durable."""
        if digest in {self.digest, self.settled}:
            return False
        undecided = self.pending is not None and digest == self.pending.digest and lsn < self.pending.read_at
        return not undecided or time.monotonic() >= self.next_look_at


def record_partitions(control: psycopg.Connection[Row], lake: Lake, tables: Mapping[TableName, int]) -> None:
    """Record the partitions of tables (by OID) without a history, before their snapshot."""
    partitioned = read_digests(control, tables.values())
    for name, relation in tables.items():
        if relation in partitioned:
            parts = {oid: each.part for oid, each in read_parts(control, relation).items()}
            write_partitions(lake, name, KnownPartitions(relation, parts))


@dataclass(slots=True)
class PartitionWatch:
    """Compares the partitions of one lake's tables with the record, and parks tables that lost or gained rows.

    `reports`: whether the DDL trigger has reported every change.
    """

    lake: Lake
    report: Say
    reports: Callable[[], bool] = lambda: False
    _watched: dict[TableName, _Watched] = field(default_factory=dict)
    _written_at: object = None

    @property
    def pending(self) -> bool:
        """Whether a difference waits for the stream to reach the LSN at which it was read."""
        return any(each.pending is not None for each in self._watched.values())

    @property
    def present(self) -> dict[int, dict[int, int]]:
        """The partitions of each table in the catalog or the record, at the last comparison, all by OID.

        Each with the xid that created it, 0 if it is not in the catalog.
        """
        return {
            each.known.relation: dict.fromkeys(each.known.parts, 0) | {**each.found} for each in self._watched.values()
        }

    def refresh(self, control: psycopg.Connection[Row], tables: Mapping[TableName, int]) -> None:
        """Watch the partitioned ones of these tables (by OID); record those that have no record."""
        partitioned = read_digests(control, tables.values())
        followed = {name: relation for name, relation in tables.items() if relation in partitioned}
        lacking = {name: oid for name, oid in followed.items() if read_partitions(self.lake, name) is None}
        record_partitions(control, self.lake, lacking)
        self._read_records()

    def check(self, control: psycopg.Connection[Row], held: HeldUpTo) -> None:
        """Compare every table with its record; call it before more becomes durable."""
        if self._written_at != fingerprint(self.lake.partitions):
            self._read_records()
        if not self._watched:
            return
        digests = read_digests(control, [each.known.relation for each in self._watched.values()])
        for name, watched in self._watched.items():
            digest = digests.get(watched.known.relation)
            if digest is None and not watched.reported:
                self._park(name, _DROPPED, wal_end(control).lsn, held)
                watched.reported = True
            elif digest is not None and watched.is_to_explain(digest, held.lsn):
                self._compare(control, name, watched, digest, held)

    def _read_records(self) -> None:
        self._written_at = fingerprint(self.lake.partitions)
        for name in self.lake.partitioned_names():
            known = read_partitions(self.lake, name)
            before = self._watched.get(name)
            if known is not None and (before is None or before.known != known):
                self._watched[name] = _Watched(known)

    def _compare(
        self, control: psycopg.Connection[Row], name: TableName, watched: _Watched, digest: str, held: HeldUpTo
    ) -> None:
        now = read_parts(control, watched.known.relation)
        watched.found = {oid: each.created_by for oid, each in now.items()}
        differences = compare_partitions(watched.known.parts, now)
        problem = self._lasting(control, name, watched, now) or _lost_or_gained(control, watched, differences, now)
        if problem is not None or not differences.rewritten:
            watched.pending = None
        elif watched.pending is None or watched.pending.digest != digest:
            rows = count_rows(control, watched.known.relation, differences.rewritten)
            watched.pending = _Undecided(digest, wal_end(control).lsn, rows)
        read_at = wal_end(control).lsn
        if watched.pending is not None:
            rewritten = [(each, now[oid], watched.pending.rows[oid]) for oid, each in differences.rewritten.items()]
            problem = self._truncated(name, watched, rewritten, held)
            if problem is None or held.lsn >= watched.pending.read_at:
                watched.pending = None
            else:  # the others are known: without a record, one that is removed meanwhile would leave no trace
                self._record(name, watched, {oid: each.part for oid, each in now.items()} | {**differences.rewritten})
        if problem is None:
            self._accept(name, watched, digest, now)
            return
        self._park(name, problem, read_at, held)
        if watched.pending is None:
            watched.settled = digest
            if not watched.reported:
                parked = f"{name}: {problem}; it is parked, capture goes on with all other tables"
                self.report(Notice(Event.TABLE_PARKED, parked))
            watched.reported = True

    def _lasting(
        self, control: psycopg.Connection[Row], name: TableName, watched: _Watched, now: Mapping[int, PartNow]
    ) -> str | None:
        """Describe a partition that does not log all of its changes; recorded, because it may do so again later."""
        known = watched.known
        if known.problem is None and (problem := find_unlogged(control, known.relation, now)) is not None:
            watched.known = replace(known, problem=problem)
            write_partitions(self.lake, name, watched.known)
        return watched.known.problem

    def _truncated(
        self, name: TableName, watched: _Watched, rewritten: Sequence[tuple[Partition, PartNow, int]], held: HeldUpTo
    ) -> str | None:
        """Describe the partition with a new file that may not have logged or kept its rows; None without one.

        Then the moments before the TRUNCATE that explains a new file are recorded as a gap.
        """
        parked = find_parked(self.lake, name, Cause.PARTITIONS)
        certain = Lsn(min(parked.lsn, held.lsn - 1) if parked else held.lsn - 1)
        began_at = time.monotonic()
        since = read_since(self.lake, watched.known.relation, certain, held.lsn)
        watched.next_look_at = time.monotonic() + _PAUSE * (time.monotonic() - began_at)
        if watched.pending is None or held.lsn < watched.pending.read_at:
            since = replace(since, inserts=inf)
        for before, each, rows in rewritten:
            if (problem := lost_rows(before, each, rows, since, reports=self.reports())) is not None:
                return f"its partition {each.part.name} {problem}"
        xids = since.truncates.keys() & {each.changed_by for _, each, _ in rewritten}
        if xids:
            last = max((since.truncates[xid] for xid in xids), key=lambda each: each.lsn)
            from_us = held.time_us if parked is None else parked.time_us
            record_gaps(self.lake, [Gap(name, certain, last.lsn, _TRUNCATED_BEFORE, from_us, last.time_us)])
        return None

    def _accept(self, name: TableName, watched: _Watched, digest: str, now: Mapping[int, PartNow]) -> None:
        self._record(name, watched, {oid: each.part for oid, each in now.items()})
        unpark(self.lake, name, Cause.PARTITIONS)
        watched.digest, watched.settled, watched.reported = digest, None, False

    def _record(self, name: TableName, watched: _Watched, parts: Mapping[int, Partition]) -> None:
        known = replace(watched.known, parts=parts)
        if known != watched.known:
            write_partitions(self.lake, name, known)
            watched.known, watched.digest = known, None

    def _park(self, name: TableName, problem: str, read_at: Lsn, held: HeldUpTo) -> None:
        remedy = f"The stream does not show it. {RENEWED_BY_FOLLOW}"
        parked = Parked(name, Cause.PARTITIONS, Lsn(held.lsn - 1), read_at, problem, remedy, held.time_us)
        park(self.lake, parked)


def _lost_or_gained(
    control: psycopg.Connection[Row], watched: _Watched, differences: Differences, now: Mapping[int, PartNow]
) -> str | None:
    """Describe the partition that took rows with it, or may have added some; None without one."""
    if differences.gone:
        return f"its partition {watched.known.parts[differences.gone[0]].name} was dropped or detached"
    for oid in differences.attached:
        is_new = oid not in watched.known.parts and now[oid].part.file == oid and not now[oid].vacuumed
        if not is_new or is_empty(control, oid) is not True:
            return f"its partition {now[oid].part.name} was attached, perhaps with rows"
    return None
