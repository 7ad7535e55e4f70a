"""The audit questions against PostgreSQL's own states, while every change is still in the tail."""

import os
from pathlib import Path

import pytest

from auditlake.postgres.connection import connect
from tests.audit_oracle import AuditOracle
from tests.audit_walk import SCHEMA, Walk
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.server import Server

pytestmark = pytest.mark.pg

_SEEDS = range(1, 1 + int(os.environ.get("AUDITLAKE_AUDIT_WALKS", "1")))
_MOST = int(os.environ.get("AUDITLAKE_AUDIT_MOST", "4"))
_TRANSACTIONS = int(os.environ.get("AUDITLAKE_AUDIT_TRANSACTIONS", "40"))


@pytest.fixture
def target(server: Server) -> str:
    """Another database with the tables of the walk."""
    dsn = server.dsn(server.create_database("patched"))
    with connect(dsn) as conn:
        conn.execute(SCHEMA.encode())
    return dsn


@pytest.mark.parametrize("seed", _SEEDS)
def test_every_answer_follows_from_the_states(database: str, target: str, tmp_path: Path, seed: int) -> None:
    """Differences, lives, blame, deletions, columns, transactions and patches of a random walk."""
    with connect(database) as conn:
        conn.execute(SCHEMA.encode())
    lake = make_lake(database, tmp_path / "lake")
    with Walk(database, seed) as walk:
        walk.step(_TRANSACTIONS)
    capture(database, lake)
    oracle = AuditOracle(lake, walk.placed(lake), _MOST)
    oracle.check(pairs=4)
    oracle.check_patches(target, count=2)
