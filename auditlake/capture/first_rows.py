"""First rows: partitions that may have been truncated in the transaction that created them.

Such a TRUNCATE keeps the partition's file, so the catalog has no trace of it, and under publish_via_partition_root
neither has the stream. But the server describes a partition before its first row. While that row is there, as a
transaction of the stream wrote it, and its key was written once, no TRUNCATE came after it. Else the rows may have
been truncated, or were deleted, or written by other subtransactions or since.

Authority: tablecmds.c, ExecuteTruncateGuts; pgoutput.c, maybe_send_schema
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.pgoutput.batch_decoder import Decoded
from auditlake.pgoutput.batch_layout import Described
from auditlake.relation import Relation

_XIDS = 1 << 32


@dataclass(frozen=True, slots=True)
class FirstRow:
    """The first row of a partition in the stream: its transaction, and each column of its key by place and text."""

    root: Relation
    partition: int
    lsn: int
    xid: int
    key: tuple[tuple[int, str | None], ...]

    def may_have_created(self, created_by: int) -> bool:
        """Return whether its transaction, or a subtransaction of it, may be the one that created the partition."""
        return bool(created_by) and (created_by - self.xid) % _XIDS < _XIDS // 2


FindWriters: TypeAlias = Callable[[Sequence[FirstRow]], Sequence[Collection[int]]]
"""Returns for each row the xid that wrote it as it is in its partition; none if it is not known to be there."""


@dataclass(slots=True)
class FirstRows:
    """The first row of each partition since the last comparison with the catalog, and how many changes gave its key."""

    _writes: dict[tuple[int, int], tuple[FirstRow, int]] = field(default_factory=dict)

    def note(self, decoded: Decoded, partition: Described, root: Relation, key: Collection[str]) -> None:
        """Note the first row of a partition, if it is an insert; `key` are the columns of its root's key."""
        changes, row, oid = decoded.changes, partition.row, partition.relation.oid
        if (root.oid, oid) in self._writes or changes["op"][row].as_py() != "insert":
            return
        new = changes["new"][row].as_py()
        values = tuple((place, new[place]) for place, column in enumerate(root.columns) if column.name in key)
        lsn, xid = changes["lsn"][row].as_py(), changes["xid"][row].as_py()
        self._writes[root.oid, oid] = FirstRow(root, oid, lsn, xid, values), 0

    def count(self, decoded: Decoded, shown: Sequence[Relation | None]) -> None:
        """Count the changes of a buffer that gave a row each key; `shown` are the relations of its entries."""
        for place, (row, writes) in self._writes.items():
            self._writes[place] = row, writes + _count_writes(decoded.changes, shown, row)

    def take(
        self, changes: pa.RecordBatch, present: Mapping[int, Mapping[int, int]], find_writers: FindWriters
    ) -> list[tuple[int, int]]:
        """Return the OIDs of root and partition of each that may have been truncated; nothing is noted then.

        `changes` are those of the last buffer, `present` the partitions in the catalog after it by their root, each
        with the xid that created it.
        """
        created = {(root, oid): xid for root, oids in present.items() for oid, xid in oids.items()}
        doubtful = {
            place: each for place, each in self._writes.items() if each[0].may_have_created(created.get(place, 0))
        }
        self._writes.clear()
        found = find_writers([row for row, _ in doubtful.values()]) if doubtful else ()
        return [
            place
            for (place, (row, writes)), writers in zip(doubtful.items(), found, strict=True)
            if writes > 1 or {created[place], *_xids_since(changes, row)}.isdisjoint(writers)
        ]


def _xids_since(changes: pa.RecordBatch, row: FirstRow) -> list[int]:
    """Return the transaction of a row and those after it in a buffer."""
    later = changes["xid"].filter(pc.greater_equal(changes["lsn"], row.lsn))
    return [row.xid, *cast("list[int]", later.unique().to_pylist())]


def _count_writes(changes: pa.RecordBatch, shown: Sequence[Relation | None], row: FirstRow) -> int:
    """Count the changes that gave a row its key, from its transaction on; while the table has another shape, any."""
    same = [place for place, relation in enumerate(shown) if relation == row.root]
    others = [place for place, each in enumerate(shown) if each and each.oid == row.root.oid and each != row.root]
    # An UPDATE of the key has an old one.
    gives_key = pc.or_(pc.equal(changes["op"], "insert"), pc.is_valid(changes["old"]))
    writes = pc.and_(pc.greater_equal(changes["lsn"], row.lsn), pc.and_(gives_key, pc.is_valid(changes["new"])))
    of_others = pc.and_(writes, pc.is_in(changes["relation"], pa.array(others, pa.int64())))
    of_same = pc.and_(writes, pc.is_in(changes["relation"], pa.array(same, pa.int64())))
    news, olds = changes["new"].filter(of_same), changes["old"].filter(of_same)
    has_key = pc.and_(_have_key(news, row), pc.invert(_have_key(olds, row)))
    return cast("int", (pc.sum(has_key).as_py() or 0) + (pc.sum(of_others).as_py() or 0))


def _have_key(rows: pa.Array, row: FirstRow) -> pa.Array:
    """Return which rows have the key of a row; one that is NULL has none."""
    found = pc.is_valid(rows)
    for place, text in row.key:
        value = pc.list_element(rows, place)
        found = pc.and_(found, pc.is_null(value) if text is None else pc.fill_null(pc.equal(value, text), False))
    return found
