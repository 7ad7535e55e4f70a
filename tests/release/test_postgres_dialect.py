"""Random statements in PostgreSQL's dialect, answered by DuckDB over a lake and by PostgreSQL. No JVM.

A statement may be refused by name, and one of the two may fail on a value that the other does not compute, because
neither defines the order of conditions; what both answer is equal in names, rows and texts. The summary has the share
that is answered.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, write_manifest
from tests.postgres.test_postgres_dialect import check_doubles
from tests.postgres_dialect import SCHEMA, Both, copied_lake, create_database
from tests.random_postgres_sql import Draw
from tests.random_seeds import random_seeds
from tests.server import Server

pytestmark = [pytest.mark.pg, pytest.mark.timeout(1800)]
_STATEMENTS = 200


@pytest.fixture
def both(server: Server, tmp_path: Path) -> Iterator[Both]:
    """Both, with the same rows."""
    base = server.create_database()
    create_database(server.dsn(base), "random_dialect")
    with psycopg.connect(server.dsn("random_dialect"), autocommit=True, options="-c timezone=UTC") as conn:
        conn.execute(SCHEMA.encode())
        lake = Lake(tmp_path / "lake")
        write_manifest(lake, Manifest("1", 1, "d", "s", "p"))
        yield Both(conn, copied_lake(conn, lake), lenient=True)
    server.drop_database("random_dialect")
    server.drop_database(base)


def test_functions_of_doubles_are_those_of_postgresql(both: Both) -> None:
    """Each with each."""
    check_doubles(both, range(1, 14))


def test_random_statements_have_the_answers_of_postgresql(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expressions of every type, aggregates, windows, set operations and order, over joins with NULL."""
    monkeypatch.setenv("AUDITLAKE_PROPERTY_S", os.environ.get("AUDITLAKE_ENGINES_S", "60"))
    drawn = 0
    for seed in random_seeds():
        draw = Draw(random.Random(seed))  # noqa: S311 - no secret
        statements = [draw.statement() for _ in range(_STATEMENTS)]
        different = [found for sql in statements if (found := both.difference(sql))]
        assert not different, "\n".join(different)
        drawn += len(statements)
    print(f"{drawn} statements, {len(both.refused)} refused")  # noqa: T201 - shown with -s
    assert len(both.refused) < drawn / 10
