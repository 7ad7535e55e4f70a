"""Schema changes of tables, in words: the differences between two consecutive versions of a relation.

A change that the DDL trigger reported belongs to its own transaction. Any other has a range of LSNs: the catalog showed
it, or the first row in the new shape, which any transaction may have written. A dropped table has no version; its
parking record has the commit or the range (`lake.parking`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from auditlake.audit.lake_reader import Reader
from auditlake.lake.history import HistoryTable
from auditlake.lake.parking import Cause
from auditlake.lake.relations import RelationVersion, ShapeSource, attnums_of
from auditlake.lsn import Lsn
from auditlake.pgoutput.table_shape import IDENTITY, definition_differences
from auditlake.relation import Relation, TableName
from auditlake.values.types import is_built_in


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A change of one table's definition in words; `history` is the name of the table's history, None without one.

    It is of the commit at `lsn` or, if it is not `exact`, was seen by then, at `time_us`. `names` are those of the
    table before and after it.
    """

    lsn: Lsn
    what: str
    names: frozenset[TableName]
    history: TableName | None
    exact: bool
    time_us: int | None

    def is_of(self, table: HistoryTable) -> bool:
        """Return whether it is a change of this table."""
        return self.history == table.name


def read_schema_changes(reader: Reader) -> list[SchemaChange]:
    """Read the schema changes of all tables, in order."""
    seen_us = {(gap.table, gap.lsn_to): gap.to_us for gap in reader.known.gaps}
    changes: list[SchemaChange] = []
    before: dict[TableName | int, RelationVersion] = {}
    numbered: dict[TableName | int, Relation] = {}
    for version in reader.known.versions:
        now = version.relation
        table = reader.table_with(now.oid, version.lsn)
        history = None if table is None else table.name
        last = before.get(history or now.oid)
        was = last.relation if last else None if table is None else _first(reader, table, now)
        since = last.lsn if last else Lsn(0) if table is None else table.first_snapshot_lsn
        before[history or now.oid] = version
        words = [] if was is None else list(_differences(was, now))
        if not words and (earlier := numbered.get(history or now.oid)) is not None:
            words = list(_differences(earlier, now))  # a message did not show which columns it has
        if attnums_of(now) is not None:
            numbered[history or now.oid] = now
        is_moved = was is not None and was.oid != now.oid  # to another source of the lake
        if not words and (is_moved or version.source is ShapeSource.STREAM):
            continue
        exact = version.source is ShapeSource.DDL_TRIGGER
        what = ", ".join(words) or version.command or ("changed" if exact else IDENTITY)
        if not exact:
            what += f", between {version.after_lsn or since} and {version.lsn}"
        name = now.name if was is None else was.name
        time_us = None if history is None else seen_us.get((history, version.lsn))
        names = frozenset({name, now.name})
        changes.append(SchemaChange(version.lsn, f"{name}: {what}", names, history, exact, time_us))
    return sorted([*changes, *_drops(reader)], key=lambda each: each.lsn)


def _differences(was: Relation, now: Relation) -> Iterator[str]:
    if was.oid != now.oid:
        was, now = _in_any_source(was), _in_any_source(now)
    return definition_differences(was, now)


def _in_any_source(relation: Relation) -> Relation:
    """Return a relation without column numbers and OIDs of own types, which differ in another source."""
    oids = (column.type_oid if is_built_in(column.type_oid) else 0 for column in relation.columns)
    columns = (replace(column, attnum=None, type_oid=oid) for column, oid in zip(relation.columns, oids, strict=True))
    return replace(relation, columns=tuple(columns))


def _first(reader: Reader, table: HistoryTable, now: Relation) -> Relation:
    """Return the relation of a table at its snapshot, as far as it can be compared with its first version."""
    lsn = table.first_snapshot_lsn
    columns, was = reader.columns_at(table, lsn), replace(now, oid=table.oid_at(lsn), name=table.name_at(lsn))
    if table.oid_at(lsn) != table.oid:  # the history has the numbers of a later source
        return replace(was, columns=tuple(replace(column, attnum=None) for column in columns))
    if attnums_of(now) is None or any(column.attnum is None for column in columns):
        return was
    keys = {column.attnum for column in now.columns if column.key}
    return replace(was, columns=tuple(replace(column, key=column.attnum in keys) for column in columns))


def _drops(reader: Reader) -> Iterator[SchemaChange]:
    for parked in reader.known.records:
        table = reader.known.tables.get(parked.table)
        if not parked.ended or table is None or parked.cause not in {Cause.DDL, Cause.PUBLICATION}:
            continue
        exact, name = parked.cause is Cause.DDL, table.last_name
        what = f"{name}: it was dropped" + ("" if exact else f", between {parked.lsn} and {parked.until}")
        yield SchemaChange(parked.until, what, frozenset({name}), table.name, exact, parked.time_us)
