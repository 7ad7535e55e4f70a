"""JSON of the audit answers: one model of each, for `--json`, webhooks, the page's API and MCP.

A model is a TypedDict: surfaces print the dict itself, and pydantic makes the OpenAPI document and the schemas of MCP
from its annotations. A pydantic model of each row, validated from the record, would add 9 µs to the 20 µs of CPU that a
line of `diff --json` takes (100,000 added rows, 2026-11). A surface adds only what surrounds answers: limits, `more`,
the moment.

Values are PostgreSQL's text or null, LSNs in PostgreSQL's notation, times ISO 8601 in UTC. `masked` are columns whose
values, NULL too, are replaced by `MASKED`. docs/audit.md describes the fields.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from auditlake.audit import answers
from auditlake.audit.diff import Compared
from auditlake.audit.masked_columns import MaskedColumns
from auditlake.audit.transaction_contents import Message, ShownChange
from auditlake.audit.transactions import Transaction
from auditlake.invisible import INVISIBLE
from auditlake.lake.gaps import Gap
from auditlake.temporal.when import format_us

MASKED = "(masked)"
SUFFIX = "Json"
"""Suffix of a model's name, which the page's OpenAPI document omits."""
Fields = Mapping[str, Any]
Texts: TypeAlias = dict[str, str | None]
"""Values by column."""
Changed: TypeAlias = dict[str, dict[Literal["old", "new"], str | None]]
"""Each column that differs; a row that begins has no `old`, one that ends no `new`."""
Masked: TypeAlias = MaskedColumns | None
_UNESCAPED = re.compile(f"[{INVISIBLE}]")
_encode = json.JSONEncoder(ensure_ascii=False).encode


def line(fields: Fields) -> str:
    """Format one object; what `escapes.visible` escapes is escaped, also where JSON allows it in a string."""
    return seen(_encode(fields))


def seen(text: str) -> str:
    """Escape what a reader of JSON would not see; it means the same."""
    return _UNESCAPED.sub(lambda found: json.dumps(found[0])[1:-1], text)


class AttributionJson(TypedDict):
    """When, who and why: the fields that every commit has; null if not known.

    `actor` and `reason` are as the application recorded them; `db_user` is the role that the server observed.
    """

    lsn: str | None
    xid: int | None
    time: str | None
    actor: str | None
    reason: str | None
    db_user: str | None


def _commit(commit: answers.Commit | Transaction) -> AttributionJson:
    return {
        "lsn": None if commit.lsn is None else str(commit.lsn),
        "xid": commit.xid or None,
        "time": None if commit.time_us is None else format_us(commit.time_us),
        "actor": commit.actor,
        "reason": commit.reason,
        "db_user": commit.db_user,
    }


class ContextJson(TypedDict):
    """The context that the application recorded, and that the server observed; null if there is none."""

    app: Any
    db: Any


class TransactionJson(AttributionJson):
    """A transaction, and how many changes it has; null if the reader may not see all of them.

    `xid` is null for `schema_changes` that the DDL trigger did not report.
    """

    origin: str | None
    context: ContextJson
    tables: list[str]
    inserts: int | None
    updates: int | None
    deletes: int | None
    truncates: int | None
    schema_changes: list[str]


def transaction_json(committed: Transaction) -> TransactionJson:
    """Return the JSON of a transaction."""
    return {
        **_commit(committed),
        "origin": committed.origin,
        "context": {"app": committed.context.app, "db": committed.context.db},
        "tables": list(committed.tables),
        **committed.counts,  # type: ignore[typeddict-item] # the four above
        "schema_changes": list(committed.schema_changes),
    }


def changed_json(before: answers.Texts | None, after: answers.Texts | None, masked: Masked = None) -> Changed:
    """Return each column that differs with its `old` and `new` value."""
    sides = answers.changed_sides(before, after)
    return {name: dict.fromkeys(each, MASKED) if masked and masked.hides(name) else each for name, each in sides}


def row_json(texts: answers.Texts, masked: Masked = None) -> Texts:
    """Return the values of a row."""
    return {name: MASKED if masked and masked.hides(name) else text for name, text in texts.items()}


def _row_or_null(texts: answers.Texts | None, masked: Masked) -> Texts | None:
    return None if texts is None else row_json(texts, masked)


class ContentJson(TypedDict):
    """A change of a transaction, with its own actor and reason, or a logical message of it, in order of `ordinal`.

    A message has `prefix` and `content`, a TRUNCATE the number of `rows` that it removed, if that is known; the keys of
    a table without one are null. The page adds how many columns are `unchanged`.
    """

    kind: Literal["change", "message"]
    ordinal: int
    op: NotRequired[Literal["insert", "update", "delete", "truncate"]]
    table: NotRequired[str]
    key_before: NotRequired[Texts | None]
    key: NotRequired[Texts | None]
    changed: NotRequired[Changed]
    unchanged: NotRequired[int]
    actor: NotRequired[str | None]
    reason: NotRequired[str | None]
    rows: NotRequired[int | None]
    prefix: NotRequired[str]
    content: NotRequired[str]


def content_json(each: ShownChange | Message) -> ContentJson:
    """Return the JSON of a change or a message."""
    if isinstance(each, Message):
        text = each.content.decode(errors="backslashreplace")
        return {"kind": "message", "ordinal": each.ordinal, "prefix": each.prefix, "content": text}
    step = each.step
    found: ContentJson = {
        "kind": "change",
        "ordinal": step.change.ordinal,
        "op": step.change.op,  # type: ignore[typeddict-item] # one of the row operations
        "table": str(each.table),
    }
    if step.change.op == "truncate":
        return {**found, "rows": step.removed}
    return {
        **found,
        "key_before": _key(each.key, step.key_before),
        "key": _key(each.key, step.key_after),
        "changed": changed_json(step.before, step.after),
        "actor": each.context.actor,
        "reason": each.context.reason,
    }


def _key(names: tuple[str, ...], key: tuple[str, ...] | None) -> Texts | None:
    return None if key is None or not names else dict(zip(names, key, strict=True))


class EventJson(AttributionJson):
    """One event in the life of a row, and the row after it: snapshot, insert, update, delete, truncate or resync."""

    op: str
    before_capture: bool
    key: Texts
    key_before: Texts | None
    changed: Changed
    row: Texts | None


def event_json(each: answers.RowEvent, masked: Masked = None) -> EventJson:
    """Return the JSON of an event; of a snapshot with the LSN and time of the snapshot."""
    return {
        **_commit(each.at),
        "op": each.op,
        "before_capture": each.is_before_capture,
        "key": row_json(each.key_texts, masked),
        "key_before": _row_or_null(each.key_texts_before, masked),
        "changed": changed_json(each.before_texts, each.after_texts, masked),
        "row": _row_or_null(each.after_texts, masked),
    }


class GapJson(TypedDict):
    """A range of LSNs in which changes of the table are unknown; without an end, it is parked from there on."""

    op: Literal["gap"]
    lsn: str
    to_lsn: str | None
    reason: str


def gap_json(gap: Gap) -> GapJson:
    """Return the JSON of a gap among the events of a row."""
    return {"op": "gap", "lsn": str(gap.lsn_from), "to_lsn": str(gap.lsn_to), "reason": gap.reason}


class DeletionJson(AttributionJson):
    """The commit that deleted a row: by `op` delete or truncate."""

    op: str | None


def _deletion(commit: answers.Commit, op: str | None) -> DeletionJson:
    return {**_commit(commit), "op": op}


class BlameJson(AttributionJson):
    """A column, its value, and the commit that set it; of a deleted row also the one that deleted it.

    With a `gap`, the value may have been set in it, or set again: who did it when is not known.
    """

    column: str
    value: str | None
    before_capture: bool
    gap: GapJson | None
    deleted: DeletionJson | None


def blame_json(each: answers.BlamedColumn, masked: Masked = None) -> BlameJson:
    """Return the JSON of a column."""
    (value,) = row_json({each.column: each.text}, masked).values()
    return {
        "column": each.column,
        "value": value,
        "before_capture": each.is_before_capture,
        "gap": None if each.gap is None else gap_json(each.gap),
        **_commit(each.commit),
        "deleted": None if each.deleted is None else _deletion(each.deleted, each.deleted_by),
    }


class DeletedJson(DeletionJson):
    """A deleted row, its last state, and the commit that deleted it."""

    table: str
    key: Texts
    row: Texts


def deleted_json(each: answers.DeletedRow, masked: Masked = None) -> DeletedJson:
    """Return the JSON of a deleted row."""
    return {
        "table": each.table,
        "key": row_json(each.key_texts, masked),
        **_deletion(each.commit, each.op),
        "row": row_json(each.texts, masked),
    }


DifferenceJson = TypedDict(
    "DifferenceJson",
    {
        "table": str,
        "diff": Literal["removed", "modified", "added"],
        "key": Texts,
        "from": Texts | None,
        "to": Texts | None,
    },
)
"""A row that was removed, modified or added; of a modified one the columns that differ. Without a key it has none."""


def difference_json(each: answers.RowDifference, masked: Masked = None) -> DifferenceJson:
    """Return the JSON of a row that differs."""
    return {
        "table": each.table,
        "diff": each.kind,  # type: ignore[typeddict-item] # one of the three
        "key": row_json(each.key_texts, masked),
        "from": _row_or_null(each.changed_before, masked),
        "to": _row_or_null(each.changed_after, masked),
    }


class SchemaChangeJson(TypedDict):
    """A difference in the columns of a table."""

    table: str
    diff: Literal["schema"]
    change: str


def differences_json(table: Compared, masked: Masked = None) -> Iterator[DifferenceJson | SchemaChangeJson]:
    """Yield the JSON of the columns and rows of a table that differ."""
    for change in table.schema_changes():
        yield {"table": str(table.name), "diff": "schema", "change": change}
    for each in answers.differences(table):
        yield difference_json(each, masked)


def stat_fields(table: Compared) -> Fields:
    """Return the fields of the size of a difference."""
    size = table.stat()
    return {"table": str(table.name), **asdict(size), "unmodified": size.unmodified}
