"""Structured Streaming over `changes`, as docs/changes.md shows it: each row once, also across a compaction."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from auditlake.capture.change_log import CaptureLog, CommitEnd
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA, TRANSACTIONS_SCHEMA
from tests.small_lake import T0_US, write_small_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_DOCUMENT = Path(__file__).parents[2] / "docs" / "changes.md"


def _insert(log: CaptureLog, lsn: int) -> None:
    """Capture a transaction that inserts one order."""
    new = [str(lsn), "x", "1.00", None]
    change = {"lsn": lsn, "ordinal": 0, "xid": 7, "time": T0_US, "op": "insert", "relation": 1, "new": new}
    names = {"schema": "public", "table": "orders"}
    committed = {"lsn": lsn, "end_lsn": lsn + 1, "xid": 7, "time": T0_US, "inserts": 1, "tables": ["public.orders"]}
    log.append(
        pa.RecordBatch.from_pylist([change | names], schema=CHANGES_SCHEMA),
        pa.RecordBatch.from_pylist([committed], schema=TRANSACTIONS_SCHEMA),
        CommitEnd(Lsn(lsn), Lsn(lsn + 1)),
    )


def test_a_stream_reads_every_change_once(spark: "SparkSession", tmp_path: Path) -> None:
    """Stopped and started again from its checkpoint, with new changes and joined files in between."""
    lake = write_small_lake(tmp_path / "lake")
    block = _DOCUMENT.read_text().split("    stream = (spark", 1)[1].split("\n\n", 1)[0]
    program = "stream = (spark" + block.replace("\n    ", "\n")
    program = program.replace('"lake/changes"', json.dumps(str(lake.changes)))
    program = program.replace('"checkpoint")', json.dumps(str(tmp_path / "checkpoint")) + ")")
    to_table = (
        f'.format("delta").trigger(availableNow=True).start({json.dumps(str(tmp_path / "out"))}).awaitTermination()'
    )
    program = program.replace('.toTable("inserted_orders")', to_table)
    names: dict[str, Any] = {"spark": spark}
    exec(program, names)  # noqa: S102 - the document's example
    log = CaptureLog(lake)
    for lsn in range(0x500, 0x50A):
        _insert(log, lsn)
    exec(program, names)  # noqa: S102 - the same
    log._changes.tidy()  # noqa: SLF001 - compaction, without waiting for 200 appends
    _insert(log, 0x600)
    exec(program, names)  # noqa: S102 - the same
    found = sorted(row["lsn"] for row in spark.read.format("delta").load(str(tmp_path / "out")).collect())
    assert found == [0x200, 0x250, 0x400, *range(0x500, 0x50A), 0x600]
