"""Shape records (shapes/<schema>.<table>.json): each followed table as of capture's last comparison with the catalog.

Bootstrap writes it before the table's snapshot, while it holds the table's lock; afterwards only capture does. So a
change of the table is detected even if nothing captured when it was made. Written by rename.
"""

import json
from dataclasses import asdict
from typing import Any

from auditlake.errors import LakeUnusable
from auditlake.lake.json_file import write_record
from auditlake.lake.layout import Lake
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.table_shape import Shape


def read_shape(lake: Lake, name: TableName) -> Shape | None:
    """Read the last recorded shape of a table; None if there is none.

    Raises LakeUnusable if it cannot be read.
    """
    path = lake.shape(name)
    try:
        return _shape(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        raise LakeUnusable(f"{path} cannot be read: {exc}", "Restore it: it shows how the table was changed.") from exc


def write_shape(lake: Lake, name: TableName, shape: Shape) -> None:
    """Record the shape of a table.

    Raises LakeUnusable if the folder cannot be written.
    """
    content = asdict(shape)
    relation = content["relation"]
    relation["columns"] = [[c.attnum, c.name, c.type_oid, c.typmod, c.key] for c in shape.relation.columns]
    relation["replica_identity"] = shape.relation.replica_identity.value
    write_record(lake, lake.shape(name), content, durable=True)


def _shape(content: dict[str, Any]) -> Shape:
    found = content["relation"]
    columns = tuple(
        Column(name, type_oid, typmod, key, attnum=attnum) for attnum, name, type_oid, typmod, key in found["columns"]
    )
    relation = Relation(
        found["oid"], TableName(*found["name"]), ReplicaIdentity(found["replica_identity"]), tuple(columns)
    )
    return Shape(
        relation=relation,
        kind=content["kind"],
        persistence=content["persistence"],
        files={int(oid): file for oid, file in content["files"].items()},
        generated={int(attnum): stored for attnum, stored in content["generated"].items()},
        missing={int(attnum): text for attnum, text in content["missing"].items()},
        types=content["types"],
        entries=content["entries"],
    )
