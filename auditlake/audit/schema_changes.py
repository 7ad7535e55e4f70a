"""Schema changes of the log: what the DDL trigger reported at each commit, in words.

`relations` has the versions of each relation; the words are the differences between two that follow each other. A
dropped table has no version: the record with which it ended has its commit (`lake.parking`). Changes that only the
catalog showed have no commit and are not here; `auditlake.relations` has them with their ranges.
"""

from auditlake.lake.layout import Lake
from auditlake.lake.parking import Cause, read_records
from auditlake.lake.relations import ShapeSource, read_versions
from auditlake.relation import Relation
from auditlake.table_shape import differences


def read_schema_changes(lake: Lake) -> dict[int, list[str]]:
    """Read the schema changes by the LSN of their commit, in words."""
    changes: dict[int, list[str]] = {}
    before: dict[int, Relation] = {}
    for version in read_versions(lake):
        relation = version.relation
        if version.source is ShapeSource.DDL_TRIGGER:
            was = before.get(relation.oid)
            words = list(differences(was, relation)) if was is not None else []
            what = ", ".join(words) or version.command or "changed"
            changes.setdefault(version.lsn, []).append(f"{was.name if was else relation.name}: {what}")
        before[relation.oid] = relation
    for parked in read_records(lake):
        if parked.ended and parked.cause is Cause.DDL:
            changes.setdefault(parked.until, []).append(f"{parked.table}: it was dropped")
    return changes
