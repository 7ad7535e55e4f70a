"""Partition record (partitions/<schema>.<table>.json): the last known partitions of a table, and its changes since.

Written before the table's snapshot, then by capture for every difference that neither added nor removed rows, before
the watermark passes it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from auditlake.delta.append_table import open_delta, select
from auditlake.errors import LakeUnusable
from auditlake.lake.json_file import write_record
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.partitions import Part
from auditlake.relation import TableName
from auditlake.sql_names import standard_literal

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
