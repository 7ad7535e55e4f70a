"""The answers for programs: one JSON object a line, with the fields that docs/audit.md names. Pure.

Values are PostgreSQL's texts or null; LSNs are written as PostgreSQL does; times are ISO in UTC.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from auditlake.audit.changes import Values
from auditlake.audit.compared import Compared
from auditlake.audit.deleted import Deleted
from auditlake.audit.diff import ADDED, MODIFIED, REMOVED, Entry
from auditlake.audit.life import Blame, Event
from auditlake.audit.show import Message, Shown
from auditlake.audit.transactions import Transaction
from auditlake.audit.versions import Mark
from auditlake.lsn import Lsn
from auditlake.query.when import format_us
from auditlake.relation import Column, TableName

Fields = dict[str, Any]


def line(fields: Mapping[str, Any]) -> str:
    """Write one object."""
    return json.dumps(fields, ensure_ascii=False)


def _who(mark: Mark | None, transaction: Transaction | None) -> Fields:
    context = transaction.context if transaction else None
    return {
        "lsn": None if mark is None else str(Lsn(mark.lsn)),
        "xid": None if mark is None else mark.xid,
        "time": None if mark is None else format_us(mark.time_us),
        "actor": context.actor if context else None,
        "reason": context.reason if context else None,
    }


def _changed(before: Values | None, after: Values | None) -> Fields:
    """Old and new value of every column that differs; a side that is not there has no entry."""
    found: Fields = {}
    for name in dict.fromkeys((*(before or {}), *(after or {}))):
        sides = {side: row[name] for side, row in (("old", before), ("new", after)) if row is not None and name in row}
        if sides.get("old", "") != sides.get("new", "") or len(sides) == 1:
            found[name] = sides
    return found


def content(each: Shown | Message) -> Fields:
    """A change or a message of `auditlake show`."""
    if isinstance(each, Message):
        said = each.content.decode(errors="backslashreplace")
        return {"kind": "message", "ordinal": each.ordinal, "prefix": each.prefix, "content": said}
    step = each.step
    fields = {"kind": "change", "ordinal": step.change.ordinal, "op": step.change.op, "table": str(each.table)}
    if step.change.op == "truncate":
        return {**fields, "rows": step.removed}
    keys = (step.key_before, step.key_after)
    named = [None if key is None or not each.key else dict(zip(each.key, key, strict=True)) for key in keys]
    return {
        **fields,
        "key_before": named[0],
        "key": named[1],
        "changed": _changed(step.before, step.after),
        "actor": each.context.actor,
        "reason": each.context.reason,
    }


def event(each: Event, transaction: Transaction | None, key: tuple[Column, ...], *, full: bool) -> Fields:
    """An event of `auditlake row`."""
    names = [column.name for column in key]
    before, after = (version.values if version else None for version in (each.before, each.after))
    fields = {
        **_who(each.mark, transaction),
        "op": each.mark.op,
        "before_capture": each.mark.op == "snapshot",
        "key": dict(zip(names, each.key, strict=True)),
        "key_before": None if each.key_before is None else dict(zip(names, each.key_before, strict=True)),
        "changed": _changed(before, after),
    }
    return {**fields, "row": after} if full else fields


def gap(row: Mapping[str, Any]) -> Fields:
    """A gap among the events of a row."""
    return {"op": "gap", "lsn": str(Lsn(row["lsn_from"])), "to_lsn": str(Lsn(row["lsn_to"])), "reason": row["reason"]}


def blame(each: Blame, transaction: Transaction | None, ended: tuple[Mark | None, Transaction | None]) -> Fields:
    """A column of `auditlake blame`; `deleted` says who ended the row, null where it is there."""
    return {
        "column": each.column,
        "value": each.value,
        "before_capture": each.mark is None,
        **_who(each.mark, transaction),
        "deleted": None if ended[0] is None else {**_who(*ended), "op": ended[0].op},
    }


def deleted(each: Deleted, transaction: Transaction | None, table: TableName, key: tuple[Column, ...]) -> Fields:
    """A row of `auditlake deleted`."""
    return {
        "table": str(table),
        "key": {column.name: each.last.values[column.name] for column in key},
        **_who(each.mark, transaction),
        "op": each.mark.op,
        "row": each.last.values,
    }


def diff_lines(tables: Iterable[Compared], *, stat: bool) -> Iterator[str]:
    """The lines of `auditlake diff --json`."""
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
    """A row; of a modified one only the columns that differ."""
    before = None if each.before is None else {name: each.before[name] for name in each.changed}
    after = None if each.after is None else {name: each.after[name] for name in each.changed}
    return {"table": str(table), "diff": each.kind, "key": each.key, "from": before, "to": after}
