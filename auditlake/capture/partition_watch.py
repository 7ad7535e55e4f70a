"""Partition watch: compare the partitions of published tables with their record before the watermark moves.

DROP, DETACH, ATTACH and TRUNCATE of a partition change rows of the published table without a trace in the stream
(`source.partitions`).

1. Every batch and every idle stretch becomes durable only after this comparison. So a change of the partitions comes
   after the last durable commit.
2. If the change removed or added rows, or may have, the table is parked at that commit; capture continues.
3. A new file of a partition may be due to TRUNCATE of the whole table, which is in the stream. That is decided only
   when the stream has reached the LSN at which the new file was read; until then the table is parked, too.

If a table is partitioned, this costs one query per batch, otherwise nothing.

The record (partitions/<schema>.<table>.json) has the last known partitions of a table. It is written before the table's
snapshot, then by capture for every difference that neither added nor removed rows, before the watermark passes it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psycopg

from auditlake.delta.append_table import open_delta, select
from auditlake.errors import LakeUnusable
from auditlake.lake.history import open_history
from auditlake.lake.json_file import write_record
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Cause, Parked, extend, find_parked, unpark
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.source.connection import Row
from auditlake.source.partitions import (
    Differences,
    Part,
    PartNow,
    compare,
    is_empty,
    keeps_rows,
    read_digests,
    read_insert_lsn,
    read_parts,
)
from auditlake.sql_names import standard_literal
from auditlake.store.files import fingerprint

_SINCE = """
select op, xid, count(*) as rows from changes
where "schema" = {schema} and "table" = {table} and lsn > {lsn} and op in ('insert', 'truncate')
group by op, xid
"""


@dataclass(frozen=True, slots=True)
class Known:
    """OID of a partitioned table, and its partitions at all levels, by OID."""

    relation: int
    parts: Mapping[int, Part]


@dataclass(frozen=True, slots=True)
class Since:
    """Changes of a table in the stream: the xids of every TRUNCATE, and the number of inserted rows."""

    truncates: frozenset[int]
    inserts: int


def read_partitions(lake: Lake, name: TableName) -> Known | None:
    """Read the last known partitions of a table; None if there is no record.

    Raises LakeUnusable if it cannot be read.
    """
    path = lake.partitions_of(name)
    try:
        content = json.loads(path.read_text())
        parts = {int(oid): Part(part["name"], part["file"], part["attached"]) for oid, part in content["parts"].items()}
        return Known(content["relation"], parts)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        raise LakeUnusable(
            f"{path} cannot be read: {exc}", "Restore it: it shows which partitions were changed."
        ) from exc


def write_partitions(lake: Lake, name: TableName, known: Known) -> None:
    """Record the current partitions of a table.

    Raises LakeUnusable if the folder cannot be written.
    """
    parts = {
        str(oid): {"name": part.name, "file": part.file, "attached": part.attached}
        for oid, part in sorted(known.parts.items())
    }
    write_record(lake, lake.partitions_of(name), {"relation": known.relation, "parts": parts}, durable=True)


def read_since(lake: Lake, name: TableName, lsn: Lsn) -> Since:
    """Read the changes of a table after an LSN, also those above the watermark."""
    changes = open_delta(lake.changes)
    if changes is None:
        return Since(frozenset(), 0)
    literals = {"schema": standard_literal(name.schema), "table": standard_literal(name.table)}
    rows = select(changes, "changes", _SINCE.format(**literals, lsn=f"{lsn:d}")).to_pylist()
    truncates = frozenset(row["xid"] for row in rows if row["op"] == "truncate")
    return Since(truncates, sum(row["rows"] for row in rows if row["op"] == "insert"))


@dataclass(frozen=True, slots=True)
class Held:
    """The lake's position, the LSN before which everything is durable, and its currency in microseconds since 1970."""

    lsn: Lsn
    time_us: int


@dataclass(slots=True)
class _Watched:
    known: Known
    digest: str | None = None
    """Digest of the partitions when they last equalled the record."""
    pending: tuple[str, Lsn] | None = None
    """A digest that is not explained yet, and the end of the log when it was read."""
    settled: str | None = None
    """The digest of a change that is known to have added or removed rows, or may have."""
    reported: bool = False


def record_partitions(control: psycopg.Connection[Row], lake: Lake, tables: Mapping[TableName, int]) -> None:
    """Record the partitions of tables (by OID) without a history, before their snapshot."""
    partitioned = read_digests(control, tables.values())
    for name, relation in tables.items():
        if relation in partitioned:
            parts = {oid: each.part for oid, each in read_parts(control, relation).items()}
            write_partitions(lake, name, Known(relation, parts))


@dataclass(slots=True)
class PartitionWatch:
    """Compares the partitions of one lake's tables with the record, and parks tables that lost or gained rows."""

    lake: Lake
    report: Callable[[str], None]
    _tables: dict[TableName, int] = field(default_factory=dict)
    _watched: dict[TableName, _Watched] = field(default_factory=dict)
    _written_at: object = None

    @property
    def pending(self) -> bool:
        """Whether a difference waits for the stream to reach the LSN at which it was read."""
        return any(each.pending is not None for each in self._watched.values())

    def refresh(self, control: psycopg.Connection[Row], tables: Mapping[TableName, int]) -> None:
        """Watch the partitioned ones of these tables (by OID); record those that an earlier version did not."""
        partitioned = read_digests(control, tables.values())
        self._tables = {name: relation for name, relation in tables.items() if relation in partitioned}
        lacking = [name for name in self._tables if read_partitions(self.lake, name) is None]
        record_partitions(control, self.lake, {name: self._tables[name] for name in lacking})
        self._read_records()

    def check(self, control: psycopg.Connection[Row], held: Held) -> None:
        """Compare every table with its record; call it before more becomes durable."""
        if self._written_at != fingerprint(self.lake.partitions):
            self._read_records()
        if not self._watched:
            return
        digests = read_digests(control, [each.known.relation for each in self._watched.values()])
        for name, watched in self._watched.items():
            digest = digests.get(watched.known.relation)
            if digest is not None and digest not in {watched.digest, watched.settled}:
                self._compare(control, name, watched, digest, held)

    def _read_records(self) -> None:
        self._written_at = fingerprint(self.lake.partitions)
        names = dict.fromkeys([*self._tables, *self.lake.partitioned_names()])
        for name in names:
            known = read_partitions(self.lake, name)
            before = self._watched.get(name)
            if known is not None and (before is None or before.known != known):
                self._watched[name] = _Watched(known)

    def _compare(
        self, control: psycopg.Connection[Row], name: TableName, watched: _Watched, digest: str, held: Held
    ) -> None:
        now = read_parts(control, watched.known.relation)
        read_at = read_insert_lsn(control)
        differences = compare(watched.known.parts, now)
        problem = _lost_or_gained(control, watched, differences, now)
        if problem is not None or not differences.rewritten:
            watched.pending = None
        elif watched.pending is None or watched.pending[0] != digest:
            watched.pending = digest, read_at
        if watched.pending is not None:
            problem = self._truncated(name, watched.pending[1], differences, now, held)
            if problem is None or held.lsn >= watched.pending[1]:
                watched.pending = None
        if problem is None:
            self._accept(name, watched, digest, now)
            return
        self._park(name, problem, read_at, held)
        if watched.pending is None:
            watched.settled = digest
            if not watched.reported:
                self.report(f"{name}: {problem}; it is parked, capture goes on with all other tables")
            watched.reported = True

    def _truncated(
        self, name: TableName, read_at: Lsn, differences: Differences, now: Mapping[int, PartNow], held: Held
    ) -> str | None:
        """Describe the partition with a new file that may not have kept its rows; None without one."""
        parked = find_parked(self.lake, name, Cause.PARTITIONS)
        since = read_since(self.lake, name, Lsn(min(parked.lsn, held.lsn - 1) if parked else held.lsn - 1))
        inserts = since.inserts if held.lsn >= read_at else None
        for oid in differences.rewritten:
            if not keeps_rows(now[oid], since.truncates, inserts):
                return f"its partition {now[oid].part.name} was truncated"
        return None

    def _accept(self, name: TableName, watched: _Watched, digest: str, now: Mapping[int, PartNow]) -> None:
        known = Known(watched.known.relation, {oid: each.part for oid, each in now.items()})
        if known != watched.known:
            write_partitions(self.lake, name, known)
        unpark(self.lake, name, Cause.PARTITIONS)
        watched.known, watched.digest, watched.settled, watched.reported = known, digest, None, False

    def _park(self, name: TableName, problem: str, read_at: Lsn, held: Held) -> None:
        remedy = "The stream does not show it. follow takes a new snapshot by itself; so does auditlake resync."
        history = open_history(self.lake, name)
        parked = Parked(name, Cause.PARTITIONS, Lsn(held.lsn - 1), read_at, problem, remedy, held.time_us)
        extend(self.lake, parked, history.snapshot_lsn if history else 0)


def _lost_or_gained(
    control: psycopg.Connection[Row], watched: _Watched, differences: Differences, now: Mapping[int, PartNow]
) -> str | None:
    """Describe the partition that took rows with it, or may have added some; None without one."""
    if differences.gone:
        return f"its partition {watched.known.parts[differences.gone[0]].name} was dropped or detached"
    for oid in differences.attached:
        if not now[oid].part.file or is_empty(control, oid) is not True:
            return f"its partition {now[oid].part.name} was attached, perhaps with rows"
    return None
