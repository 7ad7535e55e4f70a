"""publication.json: what the publication carries of the tables that have a history. Written whole, by rename.

Bootstrap records each table when it copies it, because from there on its changes must not fail to come. A lake without
the record (made before there was one) gets it when capture first looks.
"""

import json
from collections.abc import Collection

from auditlake.errors import LakeUnusable
from auditlake.lake.layout import Lake
from auditlake.lake.record import write_record
from auditlake.membership import Member, Membership
from auditlake.relation import TableName


def read_recorded(lake: Lake) -> Membership | None:
    """Read the record; None where there is none yet.

    Raises LakeUnusable where it cannot be read.
    """
    try:
        content = json.loads(lake.publication.read_text())
        return Membership(
            content["publication"],
            frozenset(content["operations"]),
            {TableName(t["schema"], t["table"]): Member(t["relation"], t["entry"]) for t in content["tables"]},
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as exc:
        raise LakeUnusable(f"{lake.publication} cannot be read: {exc}", "Restore it, or use another lake.") from exc


def record_tables(lake: Lake, found: Membership, tables: Collection[TableName]) -> None:
    """Record the tables that are copied now as they are published now; the other entries stay.

    Raises LakeUnusable where the folder cannot be written.
    """
    recorded = read_recorded(lake) or Membership(found.publication, found.operations, {})
    fresh = {name: member for name, member in found.tables.items() if name in tables}
    _write(lake, Membership(recorded.publication, recorded.operations, {**recorded.tables, **fresh}))


def recorded_or_new(lake: Lake, found: Membership) -> Membership:
    """Read the record; where there is none, make it of the tables that have a history.

    Raises LakeUnusable.
    """
    if (recorded := read_recorded(lake)) is not None:
        return recorded
    record_tables(lake, found, lake.history_names())
    return read_recorded(lake) or found


def _write(lake: Lake, membership: Membership) -> None:
    content = {
        "publication": membership.publication,
        "operations": sorted(membership.operations),
        "tables": [
            {"schema": name.schema, "table": name.table, "relation": member.relation, "entry": member.entry}
            for name, member in sorted(membership.tables.items())
        ],
    }
    write_record(lake, lake.publication, content)
