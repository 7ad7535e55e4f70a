"""JSON Lines output of the audit commands, with the fields that docs/audit.md lists. Pure.

Values are PostgreSQL's text or null, LSNs in PostgreSQL's notation, times ISO 8601 in UTC.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from auditlake.attribution import Context
from auditlake.audit.changes import Values
from auditlake.audit.diff import ADDED, MODIFIED, REMOVED, Compared, Entry
from auditlake.audit.row_history import Blame, Deleted, Event
from auditlake.audit.transactions import Message, Shown, Transaction
from auditlake.audit.versions import Mark
from auditlake.lake.gaps import Gap
from auditlake.relation import Column, TableName
from auditlake.temporal.when import format_us

Fields = dict[str, Any]
_UNESCAPED = re.compile("[\x7f-\x9f\u2028\u2029]")


def line(fields: Mapping[str, Any]) -> str:
    """Format one object; control characters are escaped, also those that JSON allows in a string."""
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(fields, ensure_ascii=False))


def transaction(committed: Transaction) -> Fields:
    """Return the fields of a transaction in `auditlake log` and `show`."""
    return {
        **_commit(committed, committed),
        "origin": committed.origin,
        "context": {"app": committed.context.app, "db": committed.context.db},
        "tables": list(committed.tables),
        "inserts": committed.inserts,
        "updates": committed.updates,
        "deletes": committed.deletes,
        "truncates": committed.truncates,
        "schema_changes": list(committed.schema_changes),
    }


def _commit(mark: Mark | Transaction | None, committed: Transaction | None) -> Fields:
    """Return when, who and why: the fields that every commit has; null if not known."""
    context = committed.context if committed else Context()
    return {
        "lsn": None if mark is None else str(mark.lsn),
        "xid": None if mark is None else mark.xid or None,
        "time": None if mark is None else format_us(mark.time_us),
        "actor": context.actor,
        "reason": context.reason,
    }


def _changed(before: Values | None, after: Values | None) -> Fields:
    """Return old and new value of every column that differs; a side without a row has no entry."""
    changed: Fields = {}
    for name in dict.fromkeys((*(before or {}), *(after or {}))):
        sides = {side: row[name] for side, row in (("old", before), ("new", after)) if row is not None and name in row}
        if sides.get("old", "") != sides.get("new", "") or len(sides) == 1:
            changed[name] = sides
    return changed


def content(each: Shown | Message) -> Fields:
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
        "changed": _changed(step.before, step.after),
        "actor": each.context.actor,
        "reason": each.context.reason,
    }


def event(each: Event, committed: Transaction | None, key: tuple[Column, ...], *, full: bool) -> Fields:
    """Return the fields of an event in `auditlake row`."""
    names = [column.name for column in key]
    before, after = (version.values if version else None for version in (each.before, each.after))
    fields = {
        **_commit(each.mark, committed),
        "op": each.mark.op,
        "before_capture": each.mark.op == "snapshot",
        "key": dict(zip(names, each.key, strict=True)),
        "key_before": None if each.key_before is None else dict(zip(names, each.key_before, strict=True)),
        "changed": _changed(before, after),
    }
    return {**fields, "row": after} if full else fields


def gap(gap: Gap) -> Fields:
    """Return the fields of a gap among the events of a row."""
    return {"op": "gap", "lsn": str(gap.lsn_from), "to_lsn": str(gap.lsn_to), "reason": gap.reason}


def blame(each: Blame, committed: Transaction | None, ended: tuple[Mark | None, Transaction | None]) -> Fields:
    """Return the fields of a column in `auditlake blame`; `ended` is the commit that deleted the row, if any."""
    return {
        "column": each.column,
        "value": each.value,
        "before_capture": each.mark is None,
        **_commit(each.mark, committed),
        "deleted": None if ended[0] is None else {**_commit(*ended), "op": ended[0].op},
    }


def deleted(each: Deleted, committed: Transaction | None, table: TableName) -> Fields:
    """Return the fields of a row in `auditlake deleted`."""
    return {
        "table": str(table),
        "key": each.key,
        **_commit(each.mark, committed),
        "op": each.mark.op,
        "row": each.last.values,
    }


def diff_lines(tables: Iterable[Compared], *, stat: bool) -> Iterator[str]:
    """Yield the lines of `auditlake diff --json`."""
    for table in tables:
        if stat:
            yield line({"table": str(table.name), **asdict(table.stat()), "unmodified": table.stat().unmodified})
            continue
        for change in table.schema_changes():
            yield line({"table": str(table.name), "diff": "schema", "change": change})
        for kind in (REMOVED, MODIFIED, ADDED):
            for each in table.entries(kind):
                yield line(_entry(each, table.name))


def _entry(each: Entry, table: TableName) -> Fields:
    """Return the fields of a row; of a modified row only the columns that differ."""
    before = None if each.before is None else {name: each.before[name] for name in each.changed}
    after = None if each.after is None else {name: each.after[name] for name in each.changed}
    return {"table": str(table), "diff": each.kind, "key": each.key, "from": before, "to": after}
