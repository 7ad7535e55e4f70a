"""Record of the DDL trigger, ddl_trigger.json: which one was installed at the last comparison that settled everything.

Some changes leave no trace in the stream or the catalog, and need not be suspected while the trigger reports every
command. One that was installed, enabled or replaced since has not reported those before; nor has one that failed.

Bootstrap creates the file. From then on only capture writes it.
"""

from collections.abc import Mapping
from typing import Any

import psycopg

from auditlake.lake.layout import Lake
from auditlake.lake.records import read_record, write_record
from auditlake.source.connection import Row
from auditlake.source.ddl_trigger import read_ddl_trigger

FAILED = "failed"
"""Recorded instead of the installed trigger after it failed."""


def read_trigger_record(lake: Lake) -> str | None:
    """Read which trigger was installed; None if it was never recorded. Raises LakeUnusable if it cannot be read."""

    def read(content: Mapping[str, Any]) -> str:
        return str(content["trigger"])

    return read_record(lake.ddl_trigger, read, "Restore it: it shows which trigger has reported every change.")


def record_trigger(lake: Lake, trigger: str) -> None:
    """Record which trigger is installed, unless that is recorded; raises LakeUnusable."""
    if read_trigger_record(lake) != trigger:
        write_record(lake, lake.ddl_trigger, {"trigger": trigger}, durable=True)


def record_first_trigger(control: psycopg.Connection[Row], lake: Lake) -> None:
    """Record which trigger is installed now, before the first snapshot of the lake; raises LakeUnusable."""
    if read_trigger_record(lake) is None:
        record_trigger(lake, read_ddl_trigger(control).entries)
