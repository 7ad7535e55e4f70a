"""Publication record (publication.json): what the publication carried of the tables that have a history.

Bootstrap records each table when it copies it; from then on, all of its changes must be published. In a lake of an
earlier version, without the record, capture creates it at its first comparison. Written by rename.
"""

import json
from collections.abc import Collection

from auditlake.errors import LakeUnusable
from auditlake.lake.json_file import write_record
from auditlake.lake.layout import Lake
from auditlake.membership import Member, Membership
from auditlake.relation import TableName


def read_recorded(lake: Lake) -> Membership | None:
    """Read the record; None if there is none yet.

    Raises LakeUnusable if it cannot be read.
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
    """Record the current publication of the tables copied now; the other entries stay.

    Raises LakeUnusable if the folder cannot be written.
    """
    recorded = read_recorded(lake) or Membership(found.publication, found.operations, {})
    fresh = {name: member for name, member in found.tables.items() if name in tables}
    _write(lake, Membership(recorded.publication, recorded.operations, {**recorded.tables, **fresh}))


def record_publication(lake: Lake, membership: Membership) -> None:
    """Replace the record, for a publication that was created again.

    Raises LakeUnusable if the folder cannot be written.
    """
    _write(lake, membership)


def recorded_or_new(lake: Lake, found: Membership) -> Membership:
    """Read the record; if there is none, create it from the tables that have a history.

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
