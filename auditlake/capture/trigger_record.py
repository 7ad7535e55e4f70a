"""Record of the DDL trigger, ddl_trigger.json: what capture must know of it after a restart.

1. `trigger`: which one was installed at the last comparison of the catalog that left nothing to settle. Some changes
   leave no trace in the stream or the catalog, and need not be suspected while the trigger reports every command. One
   that was installed, enabled or replaced since has not reported those before; nor has one that failed.
2. `partitions`: the parent, and the followed table, of each partition that a message has shown. One that was created,
   filled and removed between two comparisons was never in the catalog for capture; then only the message of its removal
   shows that its rows are gone. It may come after a restart.

Bootstrap creates the file. From then on only capture writes it, before the watermark passes what is recorded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg

from auditlake.lake.layout import Lake
from auditlake.lake.records import read_record, write_record
from auditlake.source.connection import Row
from auditlake.source.ddl_trigger import read_ddl_trigger

FAILED = "failed"
"""Recorded instead of the installed trigger after it failed."""


@dataclass(frozen=True, slots=True)
class TriggerRecord:
    """The state of the trigger, None if it was never recorded; partitions by OID (the module's header)."""

    trigger: str | None = None
    partitions: Mapping[int, tuple[int, int]] = field(default_factory=dict)


def read_trigger_record(lake: Lake) -> TriggerRecord:
    """Read the record, which is empty without a file; raises LakeUnusable if it cannot be read."""

    def read(content: Mapping[str, Any]) -> TriggerRecord:
        partitions = {int(oid): (int(parent), int(root)) for oid, (parent, root) in content["partitions"].items()}
        return TriggerRecord(content["trigger"], partitions)

    found = read_record(lake.ddl_trigger, read, "Restore it: it shows which partitions were reported.")
    return found or TriggerRecord()


def record_trigger(lake: Lake, trigger: str) -> None:
    """Record which trigger is installed, unless that is recorded; raises LakeUnusable."""
    record = read_trigger_record(lake)
    if record.trigger != trigger:
        _write(lake, replace(record, trigger=trigger))


def record_first_trigger(control: psycopg.Connection[Row], lake: Lake) -> None:
    """Record which trigger is installed now, before the first snapshot of the lake; raises LakeUnusable."""
    if read_trigger_record(lake).trigger is None:
        record_trigger(lake, read_ddl_trigger(control).entries)


def record_reported(lake: Lake, partitions: Mapping[int, tuple[int, int]]) -> None:
    """Record the partitions that messages have shown, without those that were removed since; raises LakeUnusable."""
    _write(lake, replace(read_trigger_record(lake), partitions=partitions))


def _write(lake: Lake, record: TriggerRecord) -> None:
    partitions = {str(oid): list(place) for oid, place in sorted(record.partitions.items())}
    write_record(lake, lake.ddl_trigger, {"trigger": record.trigger, "partitions": partitions}, durable=True)
