"""Partitions of a table that is published through its root, compared with their record. Pure.

Under publish_via_partition_root, DROP, DETACH and TRUNCATE of a partition remove rows, and ATTACH of a filled one adds
rows, without a trace in the stream. The catalog shows them:

    dropped, detached       the partition is missing
    attached                it is new. CREATE TABLE … PARTITION OF creates it and its columns in one command; ATTACH
                            updates the entries of the columns. An empty one adds no rows.
    truncated               it has a new file. So it has after VACUUM FULL, CLUSTER and SET TABLESPACE, which keep the
                            rows, and after TRUNCATE of the whole table, which is in the stream.

TRUNCATE resets the estimated number of rows (`reltuples`), and a truncated partition has at most the rows that were
inserted since. More rows prove that it was not truncated. If the transaction that gave it the new file is that of a
TRUNCATE in the stream, it was truncated with the whole table.

Authority: postgresql.org/docs/current/catalog-pg-class.html, catalog-pg-inherits.html; tablecmds.c, ExecuteTruncateGuts
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """A partition: its name, its file (0 if it is partitioned itself), and the xid that attached it."""

    name: str
    file: int
    attached: str


@dataclass(frozen=True, slots=True)
class PartNow:
    """A partition's current catalog entry.

    `made_here`: one command created and attached it. `changed_by` is the xid that last wrote its row of pg_class.
    """

    part: Part
    made_here: bool
    changed_by: int
    rows: float
    pages: int


@dataclass(frozen=True, slots=True)
class Differences:
    """OIDs of partitions that are gone, that may have added rows, and that have a new file."""

    gone: tuple[int, ...]
    attached: tuple[int, ...]
    rewritten: tuple[int, ...]


def compare(before: Mapping[int, Part], now: Mapping[int, PartNow]) -> Differences:
    """Compare the partitions of a table with their record."""
    fresh = [oid for oid in now if oid not in before]
    again = [oid for oid in now if oid in before and before[oid].attached != now[oid].part.attached]
    made_here = all(now[oid].made_here for oid in fresh) and not again
    candidates = [*again, *([] if made_here else fresh)]
    return Differences(
        gone=tuple(oid for oid, part in before.items() if part.file and oid not in now),
        attached=tuple(oid for oid in candidates if now[oid].part.file or oid in again),
        rewritten=tuple(
            oid
            for oid in now
            if oid in before and oid not in again and before[oid].file and before[oid].file != now[oid].part.file
        ),
    )


def keeps_rows(now: PartNow, truncates: Collection[int], inserts: int | None) -> bool:
    """Whether a partition with a new file lost no rows, except by a TRUNCATE in the stream.

    `truncates` are the xids of every TRUNCATE of the whole table since the record, `inserts` is the number of inserted
    rows; None while the stream has not reached the LSN at which `now` was read.
    """
    if now.changed_by in truncates:
        return True
    return inserts is not None and now.pages > 0 and now.rows > inserts
