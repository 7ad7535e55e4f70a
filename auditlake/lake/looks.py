"""looks/<schema>/<table>.json: the last look at a table's catalog entry (`auditlake.added`). Written whole, by rename.

Bootstrap writes it before a table's snapshot, capture whenever what it says has changed; never both for one table.
"""

import json

from auditlake.added import Look
from auditlake.errors import LakeUnusable
from auditlake.lake.layout import Lake
from auditlake.lake.record import write_record
from auditlake.lsn import Lsn
from auditlake.relation import TableName


def read_look(lake: Lake, name: TableName) -> Look | None:
    """Read the last look at a table; None where there was none.

    Raises LakeUnusable where it cannot be read.
    """
    path = lake.look(name)
    try:
        content = json.loads(path.read_text())
        files = {int(oid): int(file) for oid, file in content["files"].items()}
        return Look(content["relation"], Lsn.parse(content["lsn"]), content["attributes"], files)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        raise LakeUnusable(f"{path} cannot be read: {exc}", "Remove it; capture makes it anew.") from exc


def write_look(lake: Lake, name: TableName, look: Look) -> None:
    """Keep a look at a table, in place of the last one.

    Raises LakeUnusable where the folder cannot be written.
    """
    files = {str(oid): file for oid, file in sorted(look.files.items())}
    content = {"relation": look.relation, "lsn": str(look.lsn), "attributes": look.attributes, "files": files}
    write_record(lake, lake.look(name), content)
