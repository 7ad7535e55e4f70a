"""The feed as JSON lines: each transaction is a line, a line for every change, and a line that ends it. Pure.

    {"kind": "transaction", "lsn": …, "xid": …, "time": …, "actor": …, "reason": …, …}
    {"kind": "change", "ordinal": …, "op": …, "table": …, "key": …, "before": …, "after": …, "unchanged": […]}
    {"kind": "end", "lsn": …, "cursor": …}

Values are PostgreSQL's text or null, as in all JSON of the audit commands, so nothing is rounded. A reader that acts on
a transaction only when it has read its end never acts on part of one. docs/changes.md lists the fields.
"""

from collections.abc import Iterator
from typing import Any

from auditlake.audit.json_output import line, transaction
from auditlake.feed.change import Change, ChangedTransaction

Fields = dict[str, Any]


def lines(committed: ChangedTransaction) -> Iterator[str]:
    """Yield the lines of one transaction."""
    yield line({"kind": "transaction", **transaction(committed)})
    for each in committed.changes:
        yield line(change_fields(each))
    yield line({"kind": "end", "lsn": str(committed.lsn), "cursor": committed.cursor})


def change_fields(change: Change) -> Fields:
    """Return the fields of a change."""
    key, key_before = dict(change.key_texts), dict(change.key_texts_before)
    return {
        "kind": "change",
        "ordinal": change.ordinal,
        "op": change.op,
        "table": str(change.table),
        "key": key,
        "key_before": None if key_before == key or change.op == "insert" else key_before,
        "before": None if change.before_texts is None else dict(change.before_texts),
        "after": None if change.after_texts is None else dict(change.after_texts),
        "unchanged": list(change.unchanged),
    }
