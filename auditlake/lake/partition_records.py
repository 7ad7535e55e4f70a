"""Which tables had a partition, by the records that `capture.partition_watch` writes of partitioned tables.

A record has the OIDs of present partitions, `parts`, and of former ones, `former`; one of an earlier release lacks the
latter.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from auditlake.lake.layout import Lake
from auditlake.lake.records import read_record

RESTORE = "Restore it: it shows which partitions were changed."


def former_parts(content: Mapping[str, Any]) -> set[int]:
    """Return the OIDs of all partitions that a record's table had until now."""
    return {*map(int, content["parts"]), *content.get("former", ())}


def read_roots(lake: Lake) -> dict[int, set[int]]:
    """Return the OIDs of the tables of which each table is a partition, or was one; raises LakeUnusable."""

    def read(content: Mapping[str, Any]) -> tuple[int, set[int]]:
        return int(content["relation"]), former_parts(content)

    found = defaultdict[int, set[int]](set)
    for name in lake.partitioned_names():
        root, parts = read_record(lake.partitions_of(name), read, RESTORE) or (0, ())
        for oid in parts:
            found[oid].add(root)
    return dict(found)
