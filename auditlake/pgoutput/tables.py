"""Which relation version each row is of: the relations known by OID, and how that changes inside a buffer.

A row belongs to the last Relation message for its OID before it. The server sends one before the first change of a
table and again after anything that may have changed it, each time after a Type message for every type that is not
built in. For a domain that message names the base type, which then stands for it in the relation
(`values.types.base_type`), as it does in the catalog's (`postgres.catalog`): what decides about a value is its base
type.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from auditlake.pgoutput.frames import Frames, Ints, require
from auditlake.pgoutput.messages import Type
from auditlake.pgoutput.rows import NO_TABLE, Rare, Rows
from auditlake.pgoutput.spans import Spans
from auditlake.relation import Relation
from auditlake.values.types import base_type

_NUMBER_BITS = 31
"""A buffer under 2 GiB has fewer messages than this; an OID and these bits fit 63."""


@dataclass(frozen=True, slots=True)
class Known:
    """A relation as it is now, and the id of this version of it."""

    relation: Relation
    version: int


@dataclass(frozen=True, slots=True)
class Placed:
    """The rows of a buffer, each with its transaction and its relation version: `known[slots[row]]`."""

    frames: Frames
    spans: Spans
    rare: Rare
    rows: Rows
    slots: Ints
    known: list[Known]


class Timeline:
    """The relation versions a buffer may speak of; a row's *slot* is its place in `known`."""

    def __init__(self, known: Mapping[int, Known], base_types: Mapping[int, int]) -> None:
        self.latest = dict(known)
        self.base_types = dict(base_types)
        self.known: list[Known] = list(known.values())
        # (OID, number of the first message it holds for): sorted, the last one not above a row is the row's.
        self._from: list[tuple[int, int]] = [(oid, 0) for oid in known]

    def follow(self, rare: Rare, spans: Spans, register: Callable[[Relation, int], int]) -> None:
        """Take in the buffer's Relation messages; one that says nothing new is not registered again."""
        for number, message in rare.described:
            if isinstance(message, Type):
                self.base_types[message.oid] = base_type(message.oid, message.schema, message.name)
                continue
            relation = self._resolved(message)
            before = self.latest.get(relation.oid)
            if before is not None and before.relation == relation:
                continue
            version = register(relation, int(spans.lsn[spans.of[number]]))
            self.latest[relation.oid] = Known(relation, version)
            self.known.append(self.latest[relation.oid])
            self._from.append((relation.oid, number))

    def _resolved(self, relation: Relation) -> Relation:
        columns = (replace(c, type_oid=self.base_types.get(c.type_oid, c.type_oid)) for c in relation.columns)
        return replace(relation, columns=tuple(columns))

    def slots(self, rows: Rows) -> Ints:
        """Find the slot of each row, NO_TABLE for one that is about no table."""
        about_table = np.flatnonzero(rows.oid != NO_TABLE)
        slots = np.full(rows.count, NO_TABLE, np.int64)
        if about_table.size:
            slots[about_table] = self._find(rows.oid[about_table], rows.message[about_table])
        return slots

    def _find(self, oids: Ints, messages: Ints) -> Ints:
        keys = np.array([(oid << _NUMBER_BITS) | number for oid, number in self._from], np.int64)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        place = np.searchsorted(keys, (oids << _NUMBER_BITS) | messages, side="right") - 1
        found = place >= 0
        found[found] = keys[place[found]] >> _NUMBER_BITS == oids[found]
        require(found, messages, "a change of a relation that was not described")
        return order[place]
