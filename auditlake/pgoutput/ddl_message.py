"""DDL message: the content of the logical messages that the DDL event triggers send, parsed. Pure.

`source.ddl_trigger` sends transactional messages with prefix `auditlake:ddl`. The content is the form (`3`), a seal of
64 hexadecimal digits, and this JSON in UTF-8, separated by blanks:

    tag, session_user        the command tag, the role that logged in
    plain                    the client's query was one ALTER TABLE without USING; its text is not sent
    relations                tables changed by the command and their partitions, each with its shape after it: oid,
                             schema, name, kind, persistence, identity, file (relfilenode), partition, parents, columns
    columns                  [attnum, name, type, typmod, flags, base, missing]: flags n (not null), k (part of the
                             replica identity, or of the primary key), g (stored generated), v (virtual generated),
                             a and d (identity always, by default), m (has a missing value); base: schema and name of a
                             domain's base type; missing: the missing value as an array's text
    dropped                  [object type, OID, attnum or 0, address] of tables and columns
    rewritten                [OID, reason]: 1 persistence, 2 default value, 4 column type, 8 access method
    types                    types changed by the command: oid, array, schema, name, kind, base, labels, attributes

or {"failed": true}, also in place of a message longer than `MOST_BYTES`. A missing member is empty. The message stands
in the stream where the command ran: rows before it have the former shape, except those of CREATE TABLE AS, which come
before its message. What a command rewrites comes in a message of its own, before those with the shapes, with which
`with_rewrites` joins it.

Any role can send a message with this prefix. One without a seal (`seal_of`), or whose seal the source does not
recognize, is none of the triggers': it is not parsed, and has no effect.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from auditlake.pgoutput.table_shape import Shape
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.values.types import base_type

PREFIX = "auditlake:ddl"
FORM = "3"
MOST_BYTES = 2**24
"""Bytes of the longest message that the triggers send; a longer one is cut, so its seal is wrong."""
_SEALED = re.compile(rb"%s ([0-9a-f]{64}) " % FORM.encode())
_COLUMN_MEMBERS = 7


@dataclass(frozen=True, slots=True)
class Seal:
    """Seal of a message: the xid of its transaction, the hash of its content, and the seal itself."""

    xid: int
    digest: bytes
    seal: bytes


def seal_of(xid: int, content: bytes) -> Seal | None:
    """Return the seal of a message; None if it has none."""
    found = _SEALED.match(content)
    if found is None:
        return None
    return Seal(xid, hashlib.sha256(content[found.end() :]).digest(), bytes.fromhex(found[1].decode()))


Prove: TypeAlias = Callable[[Sequence[tuple[int, bytes]]], Sequence[bool]]
"""Function that returns of each message, given as xid and content, whether the triggers sent it."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A dropped table, or a dropped column of a table if `attnum` is not 0; `name` is that of the table."""

    oid: int
    attnum: int
    name: TableName
    column: str | None


@dataclass(frozen=True, slots=True)
class DdlMessage:
    """One command: its tag, the role that ran it, and what it changed.

    `rewritten` has reasons by OID, `labels` the labels of changed enum types, None for other types, by OID. `plain`: it
    was an ALTER TABLE without USING. `parents` has the table of each partition in `shapes`, by OID.
    """

    tag: str
    session_user: str
    shapes: tuple[Shape, ...]
    dropped: tuple[Dropped, ...]
    rewritten: Mapping[int, int]
    labels: Mapping[int, frozenset[str] | None]
    plain: bool
    parents: Mapping[int, int] = field(default_factory=dict)


def parse_ddl_message(content: bytes) -> DdlMessage | None:
    """Parse the content of a message; None if it is not as described in the module's header, or that one failed."""
    header = _SEALED.match(content)
    try:
        found = json.loads(content[header.end() if header else 0 :])
        return DdlMessage(
            str(found["tag"]),
            str(found["session_user"]),
            _shapes(found.get("relations", ())),
            tuple(_dropped(*each) for each in found.get("dropped", ())),
            {int(oid): int(reason) for oid, reason in found.get("rewritten", ())},
            _labels(found.get("types", ())),
            found.get("plain") is True,
            {int(each["oid"]): int(each["parents"][0]) for each in found.get("relations", ()) if each.get("partition")},
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError):
        return None


def without_missing_values(content: bytes) -> bytes:
    """Return the content of a message without the missing values of columns; one of another form is unchanged."""
    header = _SEALED.match(content)
    start = header.end() if header else 0
    try:
        found = json.loads(content[start:])
        for entry in found.get("relations") or ():
            entry["columns"] = [[*each[:-1], None] for each in entry.get("columns") or ()]
        return content[:start] + json.dumps(found).encode()
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return content


def with_rewrites(
    messages: Iterable[tuple[int, int, DdlMessage | None]],
) -> Iterator[tuple[int, int, DdlMessage | None]]:
    """Yield messages with the rewrites that were reported before them.

    Each has two numbers: its own, and that of its transaction. A rewrite that no later message of its transaction about
    the table follows comes last.
    """
    rewritten: dict[tuple[int, int], tuple[int, int, DdlMessage]] = {}
    for number, transaction, message in messages:
        if message is None:
            yield number, transaction, None
            continue
        about = {shape.relation.oid for shape in message.shapes}
        earlier = [(transaction, oid) for oid in about if (transaction, oid) in rewritten]
        found = {oid: rewritten.pop((transaction, oid))[2].rewritten[oid] for _, oid in earlier}
        for oid in message.rewritten.keys() - about:
            alone = replace(message, shapes=(), dropped=(), labels={}, rewritten={oid: message.rewritten[oid]})
            rewritten[transaction, oid] = number, transaction, alone
        if message.shapes or message.dropped or message.labels:
            yield number, transaction, replace(message, rewritten={**message.rewritten, **found})
    yield from rewritten.values()


def _shapes(entries: Sequence[Mapping[str, Any]]) -> tuple[Shape, ...]:
    """Parse the shapes of a message; a partitioned table has the files of the partitions that are in the message."""
    parents = {int(entry["oid"]): [int(parent) for parent in entry.get("parents", ())] for entry in entries}
    files: dict[int, dict[int, int]] = {oid: {} for oid in parents}
    for entry in entries:
        above, seen = {int(entry["oid"])}, set[int]()
        while above:
            for oid in above & files.keys():
                files[oid][int(entry["oid"])] = int(entry["file"])
            seen |= above
            above = {parent for oid in above for parent in parents.get(oid, ())} - seen
    return tuple(parse_shape(entry, files[int(entry["oid"])]) for entry in entries)


def parse_shape(entry: Mapping[str, Any], files: Mapping[int, int]) -> Shape:
    """Parse an entry of `relations`, with its files; raises ValueError, TypeError, KeyError or IndexError."""
    columns = entry.get("columns") or ()
    if any(len(each) != _COLUMN_MEMBERS for each in columns):
        raise ValueError(entry["oid"])
    name = TableName(str(entry["schema"]), str(entry["name"]))
    of_columns = tuple(_column(each, entry) for each in columns)
    return Shape(
        relation=Relation(int(entry["oid"]), name, ReplicaIdentity(entry["identity"]), of_columns),
        kind=str(entry["kind"]),
        persistence=str(entry["persistence"]),
        files=files,
        generated={int(each[0]): "g" in each[4] for each in columns if set("gv") & set(each[4])},
        missing={int(each[0]): str(each[6]) for each in columns if each[6] is not None},
        key=tuple(int(each[0]) for each in columns if "k" in each[4]),
        partition=bool(entry.get("partition")),
    )


def _labels(entries: Sequence[Mapping[str, Any]]) -> dict[int, frozenset[str] | None]:
    found: dict[int, frozenset[str] | None] = {}
    for entry in entries:
        if entry["kind"] in {"e", "c"}:
            labels = frozenset(map(str, entry["labels"])) if entry["kind"] == "e" and "labels" in entry else None
            found[int(entry["oid"])] = labels
    return found


def _column(entry: Sequence[Any], table: Mapping[str, Any]) -> Column:
    attnum, name, type_oid, typmod, flags, base, _ = entry
    schema, base_name = base or ("", "")
    # The stream flags every column of a table with REPLICA IDENTITY FULL.
    key = "k" in flags or table["identity"] == ReplicaIdentity.FULL
    of_type = base_type(int(type_oid), str(schema), str(base_name))
    return Column(str(name), of_type, int(typmod), key, attnum=int(attnum))


def _dropped(kind: str, oid: int, attnum: int, address: Sequence[str]) -> Dropped:
    schema, table, *column = address
    if (kind == "table column") != bool(column):
        raise ValueError(kind)
    return Dropped(int(oid), int(attnum), TableName(schema, table), column[0] if column else None)
