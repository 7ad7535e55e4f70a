"""JSON Lines output of the audit commands, with the fields that docs/audit.md lists. Pure.

Values are PostgreSQL's text or null, LSNs in PostgreSQL's notation, times ISO 8601 in UTC.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from auditlake.audit.answers import BlamedColumn, Commit, DeletedRow, RowEvent, changed_sides, differences
from auditlake.audit.diff import Compared
from auditlake.audit.transaction_contents import Message, ShownChange
from auditlake.audit.transactions import Transaction
from auditlake.invisible import CONTROLS, escaped
from auditlake.lake.gaps import Gap
from auditlake.relation import TableName
from auditlake.temporal.when import format_us

Fields = dict[str, Any]
_UNESCAPED = re.compile(f"[{CONTROLS}]")


def line(fields: Mapping[str, Any]) -> str:
    """Format one object; what `escapes.visible` escapes is escaped, also where JSON allows it in a string."""
    return _UNESCAPED.sub(escaped, json.dumps(fields, ensure_ascii=False))


def transaction_fields(committed: Transaction) -> Fields:
    """Return the fields of a transaction in `auditlake log` and `show`."""
    return {
        **_commit(committed),
        "origin": committed.origin,
        "context": {"app": committed.context.app, "db": committed.context.db},
        "tables": list(committed.tables),
        **committed.counts,
        "schema_changes": list(committed.schema_changes),
    }


def _commit(commit: Commit | Transaction) -> Fields:
    """Return when, who and why: the fields that every commit has; null if not known."""
    return {
        "lsn": None if commit.lsn is None else str(commit.lsn),
        "xid": commit.xid or None,
        "time": None if commit.time_us is None else format_us(commit.time_us),
        "actor": commit.actor,
        "reason": commit.reason,
    }


def content_fields(each: ShownChange | Message) -> Fields:
    """Return the fields of a change or a message in `auditlake show`."""
    if isinstance(each, Message):
        text = each.content.decode(errors="backslashreplace")
        return {"kind": "message", "ordinal": each.ordinal, "prefix": each.prefix, "content": text}
    step = each.step
    fields = {"kind": "change", "ordinal": step.change.ordinal, "op": step.change.op, "table": str(each.table)}
    if step.change.op == "truncate":
        return {**fields, "rows": step.removed}
    keys = (step.key_before, step.key_after)
    before, after = (None if key is None or not each.key else dict(zip(each.key, key, strict=True)) for key in keys)
    return {
        **fields,
        "key_before": before,
        "key": after,
        "changed": dict(changed_sides(step.before, step.after)),
        "actor": each.context.actor,
        "reason": each.context.reason,
    }


def event_fields(each: RowEvent, *, full: bool) -> Fields:
    """Return the fields of an event in `auditlake row`."""
    fields = {
        **_commit(each.at),
        "op": each.op,
        "before_capture": each.is_before_capture,
        "key": each.key_texts,
        "key_before": each.key_texts_before,
        "changed": dict(changed_sides(each.before_texts, each.after_texts)),
    }
    return {**fields, "row": each.after_texts} if full else fields


def gap_fields(gap: Gap) -> Fields:
    """Return the fields of a gap among the events of a row."""
    return {"op": "gap", "lsn": str(gap.lsn_from), "to_lsn": str(gap.lsn_to), "reason": gap.reason}


def blame_fields(each: BlamedColumn) -> Fields:
    """Return the fields of a column in `auditlake blame`."""
    return {
        "column": each.column,
        "value": each.text,
        "before_capture": each.commit.lsn is None,
        **_commit(each.commit),
        "deleted": None if each.deleted is None else {**_commit(each.deleted), "op": each.deleted_by},
    }


def deleted_fields(each: DeletedRow, table: TableName) -> Fields:
    """Return the fields of a row in `auditlake deleted`."""
    return {"table": str(table), "key": each.key_texts, **_commit(each.commit), "op": each.op, "row": each.texts}


def diff_lines(tables: Iterable[Compared], *, stat: bool) -> Iterator[str]:
    """Yield the lines of `auditlake diff --json`."""
    for table in tables:
        if stat:
            size = table.stat()
            yield line({"table": str(table.name), **asdict(size), "unmodified": size.unmodified})
            continue
        for change in table.schema_changes():
            yield line({"table": str(table.name), "diff": "schema", "change": change})
        for each in differences(table):
            sides = {"from": each.changed_before, "to": each.changed_after}
            yield line({"table": each.table, "diff": each.kind, "key": each.key_texts, **sides})
