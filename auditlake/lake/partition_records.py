"""Which tables had a partition, by the records that `capture.partition_watch` writes of partitioned tables.

A record has the OIDs of present partitions, `parts`, and of former ones, `former`; one of an earlier release lacks the
latter.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from auditlake.lake.layout import Lake
from auditlake.lake.records import read_record

RESTORE = "Restore it: it shows which partitions were changed."


def former_parts(content: Mapping[str, Any]) -> set[int]:
    """Return the OIDs of all partitions that a record's table had until now."""
    return {*map(int, content["parts"]), *content.get("former", ())}


def roots_of(lake: Lake, oid: int) -> Iterator[int]:
    """Yield the OIDs of the tables of which a table is a partition, or was one; raises LakeUnusable."""

    def read(content: Mapping[str, Any]) -> int | None:
        return int(content["relation"]) if oid in former_parts(content) else None

    for name in lake.partitioned_names():
        found = read_record(lake.partitions_of(name), read, RESTORE)
        if found is not None:
            yield found
