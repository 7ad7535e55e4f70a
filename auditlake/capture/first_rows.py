"""First rows: partitions that may have been truncated in the transaction that created them.

Such a TRUNCATE keeps the partition's file, so the catalog has no trace of it, and under publish_via_partition_root
neither has the stream. But the server describes a partition before its first row. While that row is there, written
by the same transaction, which inserted its key once, no TRUNCATE came after it. Else the rows may have been truncated,
or deleted, updated, or inserted in another subtransaction.

Authority: tablecmds.c, ExecuteTruncateGuts; pgoutput.c, maybe_send_schema
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.pgoutput.batch_decoder import Decoded
from auditlake.pgoutput.batch_layout import Described
from auditlake.relation import Relation

_XIDS = 1 << 32


@dataclass(frozen=True, slots=True)
class FirstRow:
    """The first row of a partition in the stream: its xid, and each column of its key by place and text.

    `created_by` is the xid that created the partition, 0 if it is not known.
    """

    root: Relation
    partition: int
    xid: int
    key: tuple[tuple[int, str | None], ...]
    created_by: int = 0

    @property
    def may_have_created(self) -> bool:
        """Whether its transaction, or a subtransaction of it, may be the one that created the partition."""
        return bool(self.created_by) and (self.created_by - self.xid) % _XIDS < _XIDS // 2


AreThere: TypeAlias = Callable[[Sequence[FirstRow]], Sequence[bool]]
"""Returns for each row whether it is known to be in its partition, as its transaction wrote it."""


@dataclass(slots=True)
class FirstRows:
    """The first row of each partition since the last comparison with the catalog, with how often its key came."""

    _inserts: dict[tuple[int, int], tuple[FirstRow, int]] = field(default_factory=dict)

    def note(self, decoded: Decoded, partition: Described, root: Relation, key: Collection[str]) -> None:
        """Note the first row of a partition, if it is an insert; `key` are the columns of its root's key."""
        changes, row, oid = decoded.changes, partition.row, partition.relation.oid
        if (root.oid, oid) in self._inserts or changes["op"][row].as_py() != "insert":
            return
        new = changes["new"][row].as_py()
        values = tuple((place, new[place]) for place, column in enumerate(root.columns) if column.name in key)
        self._inserts[root.oid, oid] = FirstRow(root, oid, changes["xid"][row].as_py(), values), 0

    def count(self, decoded: Decoded, shown: Sequence[Relation | None]) -> None:
        """Count the inserts of each row's key in a buffer; `shown` are the relations of its entries."""
        for place, (row, inserts) in self._inserts.items():
            self._inserts[place] = row, inserts + _count_inserts(decoded.changes, shown, row)

    def take(self, present: Mapping[int, Mapping[int, int]], are_there: AreThere) -> list[tuple[int, int]]:
        """Return the OIDs of root and partition of each that may have been truncated; nothing is noted then.

        `present` are the partitions in the catalog by their root, each with the xid that created it.
        """
        created = {(root, oid): xid for root, oids in present.items() for oid, xid in oids.items()}
        noted = [(replace(row, created_by=created.get(place, 0)), n) for place, (row, n) in self._inserts.items()]
        self._inserts.clear()
        doubtful = [each for each in noted if each[0].may_have_created]
        there = are_there([row for row, _ in doubtful]) if doubtful else ()
        return [
            (row.root.oid, row.partition)
            for (row, inserts), is_there in zip(doubtful, there, strict=True)
            if not is_there or inserts > 1
        ]


def _count_inserts(changes: pa.RecordBatch, shown: Sequence[Relation | None], row: FirstRow) -> int:
    """Count the inserts of a row's key in its transaction; while the table has another shape, any insert."""
    same = [place for place, relation in enumerate(shown) if relation == row.root]
    others = [place for place, each in enumerate(shown) if each and each.oid == row.root.oid and each != row.root]
    inserts = pc.and_(pc.equal(changes["xid"], row.xid), pc.equal(changes["op"], "insert"))
    of_others = pc.and_(inserts, pc.is_in(changes["relation"], pa.array(others, pa.int64())))
    news = changes.filter(pc.and_(inserts, pc.is_in(changes["relation"], pa.array(same, pa.int64()))))["new"]
    for place, text in row.key:
        value = pc.list_element(news, place)
        news = news.filter(pc.is_null(value) if text is None else pc.fill_null(pc.equal(value, text), False))
    return len(news) + cast("int", pc.sum(of_others).as_py() or 0)
