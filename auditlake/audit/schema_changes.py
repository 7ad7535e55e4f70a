"""Schema changes of tables, in words: the differences between two consecutive versions of a relation.

A change that the DDL trigger reported belongs to its own transaction, one that a Relation message showed to the
transaction after the message. A change that only the catalog showed has a range of LSNs. A dropped table has no
version; its parking record has the commit or the range (`lake.parking`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from auditlake.audit.lake_reader import Reader
from auditlake.lake.history import HistoryTable
from auditlake.lake.parking import Cause
from auditlake.lake.relations import ShapeSource, attnums_of
from auditlake.lsn import Lsn
from auditlake.pgoutput.table_shape import IDENTITY, definition_differences
from auditlake.relation import Relation, TableName


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A change of one table's definition in words, by the table's OID, or by its history if it was dropped.

    It is of the commit at `lsn` or, if it is not `exact`, was seen by then, at `time_us`. `names` are those of the
    table before and after it.
    """

    lsn: Lsn
    what: str
    names: frozenset[TableName]
    oid: int | None = None
    history: TableName | None = None
    exact: bool = True
    time_us: int | None = None

    def is_of(self, table: HistoryTable) -> bool:
        """Return whether it is a change of this table."""
        return self.history == table.name if self.oid is None else self.oid == table.oid


def read_schema_changes(reader: Reader) -> list[SchemaChange]:
    """Read the schema changes of all tables, in order."""
    tables = {table.oid: table for table in reader.known.tables.values()}
    seen_us = {(gap.table, gap.lsn_to): gap.to_us for gap in reader.known.gaps}
    changes: list[SchemaChange] = []
    before: dict[int, Relation] = {}
    for version in reader.known.versions:
        now, table = version.relation, tables.get(version.relation.oid)
        was = before.get(now.oid) or (_first(reader, table, now) if table is not None else None)
        before[now.oid] = now
        words = list(definition_differences(was, now)) if was is not None else []
        if version.source is ShapeSource.STREAM and not words:
            continue
        is_seen = version.source is ShapeSource.CATALOG
        what = ", ".join(words) or version.command or (IDENTITY if is_seen else "changed")
        if is_seen:
            what += f", between {Lsn(version.after_lsn or 0)} and {version.lsn}"
        name = was.name if was is not None else now.name
        time_us = None if table is None else seen_us.get((table.name, version.lsn))
        changes.append(
            SchemaChange(
                version.lsn, f"{name}: {what}", frozenset({name, now.name}), now.oid, None, not is_seen, time_us
            )
        )
    return sorted([*changes, *_drops(reader)], key=lambda each: each.lsn)


def _first(reader: Reader, table: HistoryTable, now: Relation) -> Relation:
    """Return the relation of a table at its snapshot, as far as it can be compared with its first version."""
    columns = reader.columns_at(table, table.first_snapshot_lsn)
    if attnums_of(now) is None or any(column.attnum is None for column in columns):
        return replace(now, name=table.name_at(table.first_snapshot_lsn))
    keys = {column.attnum for column in now.columns if column.key}
    had = tuple(replace(column, key=column.attnum in keys) for column in columns)
    return replace(now, name=table.name_at(table.first_snapshot_lsn), columns=had)


def _drops(reader: Reader) -> Iterator[SchemaChange]:
    for parked in reader.known.records:
        table = reader.known.tables.get(parked.table)
        if not parked.ended or table is None or parked.cause not in {Cause.DDL, Cause.PUBLICATION}:
            continue
        exact, name = parked.cause is Cause.DDL, table.last_name
        what = f"{name}: it was dropped" + ("" if exact else f", between {parked.lsn} and {parked.until}")
        yield SchemaChange(parked.until, what, frozenset({name}), None, table.name, exact, parked.time_us)
