"""Reference model of the batch decoder: one message after the other into dictionaries."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA, Decoded
from auditlake.pgoutput.batch_layout import DdlReport, Entry
from auditlake.pgoutput.decoder import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldTuple,
    Origin,
    Truncate,
    Type,
    Update,
    Value,
)
from auditlake.relation import Relation
from auditlake.values.types import base_type


@dataclass
class Model:
    """Rows of `changes` and `transactions`, and the relation versions in order of arrival."""

    changes: list[dict[str, Any]] = field(default_factory=list)
    transactions: list[dict[str, Any]] = field(default_factory=list)
    registered: list[tuple[Relation, int]] = field(default_factory=list)
    _relations: dict[int, Relation] = field(default_factory=dict)
    _base_types: dict[int, int] = field(default_factory=dict)
    _open: dict[str, Any] = field(default_factory=dict)

    def feed(self, messages: Iterable[Message]) -> "Model":
        """Process messages in stream order."""
        for message in messages:
            self._take(message)
        return self

    def _take(self, message: Message) -> None:
        match message:
            case Begin(lsn, time, xid):
                self._open = {"lsn": lsn, "xid": xid, "time": time, "origin": None, "context": None, "rows": []}
            case Commit(end_lsn=end_lsn):
                self._commit(end_lsn)
            case Origin(_, name):
                self._open["origin"] = name
            case Type(oid, schema, name):
                self._base_types[oid] = base_type(oid, schema, name)
            case Relation(oid):
                columns = (replace(c, type_oid=self._base_types.get(c.type_oid, c.type_oid)) for c in message.columns)
                message = replace(message, columns=tuple(columns))
                self.registered.append((message, self._open["lsn"]))
                self._relations[oid] = message
            case _:
                self._take_change(message)

    def _take_change(self, message: Message) -> None:
        match message:
            case Insert(oid, new):
                self._row("insert", oid, new=new)
            case Update(oid, old, new):
                self._row("update", oid, old=old, new=new)
            case Delete(oid, old):
                self._row("delete", oid, old=old)
            case Truncate(oids):
                for oid in oids:
                    self._row("truncate", oid)
            case LogicalMessage(transactional=True, prefix=prefix, content=content):
                self._row("message", prefix=prefix, content=content)
                if prefix == "auditlake":
                    self._open["context"] = '{"app": ' + context(content) + "}"
            case _:
                pass

    def _row(self, op: str, oid: int | None = None, **more: Any) -> None:
        row = dict.fromkeys(CHANGES_SCHEMA.names) | {k: self._open[k] for k in ("lsn", "xid", "time", "origin")}
        row |= {"op": op, "ordinal": len(self._open["rows"])} | {k: v for k, v in more.items() if k[0] in "pc"}
        if oid is not None:
            relation = self._relations[oid]
            row |= {"schema": relation.name.schema, "table": relation.name.table, "relation": version(relation)}
        row |= tuples(**{k: v for k, v in more.items() if k in ("old", "new")})
        self._open["rows"].append(row)
        self.changes.append(row)

    def _commit(self, end_lsn: int) -> None:
        rows = self._open.pop("rows")
        counts = {f"{op}s": sum(row["op"] == op for row in rows) for op in ("insert", "update", "delete", "truncate")}
        names = {str(self._name(row)) for row in rows if row["table"] is not None}
        if rows:
            self.transactions.append(self._open | {"end_lsn": end_lsn, "tables": sorted(names)} | counts)

    def _name(self, row: dict[str, Any]) -> object:
        return next(relation.name for relation, _ in self.registered if version(relation) == row["relation"])


def version(relation: Relation) -> int:
    """Return an id of a relation version: equal for equal relations."""
    return hash(relation)


class Versions:
    """Puts `version` of each relation in the place of its entry, as `CaptureLog` puts the number of its version."""

    def __init__(self) -> None:
        self.registered: list[tuple[Relation, int]] = []
        self._of: dict[int, int] = {}

    def rows(self, decoded: Decoded) -> pa.RecordBatch:
        """Return the rows of `changes` of the next buffer."""
        versions = pa.array([self._version(entry) for entry in decoded.entries], pa.int64())
        place = CHANGES_SCHEMA.get_field_index("relation")
        changes = decoded.changes
        return changes.set_column(place, CHANGES_SCHEMA.field(place), versions.take(changes["relation"]))

    def _version(self, entry: Entry) -> int | None:
        if isinstance(entry, int):
            return self._of[entry]
        if isinstance(entry, DdlReport):
            return None
        self.registered.append((entry.relation, entry.lsn))
        self._of[entry.relation.oid] = version(entry.relation)
        return self._of[entry.relation.oid]


def tuples(old: OldTuple | None = None, new: tuple[Value, ...] | None = None) -> dict[str, Any]:
    """Return the tuples of a change as columns of `changes`."""
    unchanged = [i for i, value in enumerate(new or ()) if value is UNCHANGED]
    return {
        "old": None if old is None else list(old.values),
        "new": None if new is None else [None if value is UNCHANGED else value for value in new],
        "unchanged": unchanged or None,
    }


def context(content: bytes) -> str:
    """Return an assertion's content: unchanged if it is JSON, else as a JSON string; in hex if it is no text."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return '"\\\\x' + content.hex() + '"'
    try:
        json.loads(text, parse_constant=int)
    except ValueError:
        return json.dumps(text, ensure_ascii=False)
    return text.strip()
