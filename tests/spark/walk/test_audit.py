"""Test of the audit commands against PostgreSQL's own states, half applied and completely applied."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from auditlake.apply.apply import apply_pending
from auditlake.source.connection import connect
from tests.audit_oracle import AuditOracle
from tests.audit_walk import SCHEMA, Walk
from tests.capture_lake import make_lake
from tests.capture_once import capture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_TRANSACTIONS = int(os.environ.get("AUDITLAKE_AUDIT_TRANSACTIONS", "20"))
_MOST = int(os.environ.get("AUDITLAKE_AUDIT_MOST", "4"))


def test_answers_do_not_depend_on_apply(database: str, spark: "SparkSession", tmp_path: Path) -> None:
    """Every answer follows from the states, with one half of a walk in the tail and with all applied."""
    with connect(database) as conn:
        conn.execute(SCHEMA.encode())
    lake = make_lake(database, tmp_path / "lake")
    with Walk(database, seed=5) as walk:
        walk.step(_TRANSACTIONS)
        capture(database, lake)
        apply_pending(lambda: spark, lake)
        walk.step(_TRANSACTIONS)
        capture(database, lake)
    moments = walk.placed(lake)
    AuditOracle(lake, moments, _MOST).check(pairs=3)
    apply_pending(lambda: spark, lake)
    AuditOracle(lake, moments, _MOST).check(pairs=3)
