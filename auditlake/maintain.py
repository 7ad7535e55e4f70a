"""Upkeep of all histories: at once for the command, a little after every batch for a process that applies for long.

What is done and why is `lake/upkeep`'s. `changes` and what belongs to it are looked after by capture, which alone may
write them.
"""

import time
from collections.abc import Callable, Iterable

from pyspark.sql import SparkSession

from auditlake.lake.files import data_files
from auditlake.lake.history import HistoryTable, list_histories, open_history
from auditlake.lake.layout import Lake
from auditlake.lake.upkeep import checkpoint, expire, find_due, rewrite
from auditlake.relation import TableName

# Listing a table's folder takes seconds on an object store, and files are kept for hours anyway.
_EXPIRE_EVERY_S = 3 * 3600.0


def maintain(spark: SparkSession, lake: Lake, say: Callable[[str], None]) -> None:
    """Join and order what can be, write checkpoints and delete what has expired, table by table."""
    session = spark.newSession()
    for table in list_histories(lake):
        files = data_files(table)
        done = rewrite(session, table, find_due(files, everything=True))
        checkpoint(table)
        expire(session, table)
        now = open_history(lake, table.name) or table
        remark = "" if done else "; another process commits to it, run this again"
        say(f"maintained {table.name}: {len(files):,} files are {len(data_files(now)):,}{remark}")


class Upkeep:
    """The same between the batches of one process, only where it is worth its time."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._session = spark.newSession()
        self._lake = lake
        self._begun_s = time.monotonic()
        self._expired_s: dict[TableName, float] = {}

    def after(self, merged: Iterable[TableName]) -> None:
        """Look after the tables that a batch moved."""
        for name in merged:
            if table := open_history(self._lake, name):
                self._look_after(table)

    def _look_after(self, table: HistoryTable) -> None:
        if due := find_due(data_files(table)):
            rewrite(self._session, table, due)
            checkpoint(table)
        now_s = time.monotonic()
        if now_s - self._expired_s.get(table.name, self._begun_s) > _EXPIRE_EVERY_S:
            self._expired_s[table.name] = now_s
            expire(self._session, table)
