"""What a feed delivers of the past."""

from typing import Any

import auditlake
from auditlake.lake.layout import Lake


def changes_of(lake: Lake, **given: Any) -> list[tuple[str, str, Any]]:
    """Return every change of the past: the table's name, the operation, and the key."""
    feed = auditlake.changes(lake.root, since="beginning", follow=False, **given)
    return [(change.table.table, change.op, change.key) for each in feed for change in each.changes]
