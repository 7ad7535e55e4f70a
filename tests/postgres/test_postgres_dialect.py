"""Statements in PostgreSQL's dialect, answered by DuckDB over a lake and by PostgreSQL over the same rows. No JVM."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, write_manifest
from tests.postgres_dialect import SCHEMA, Both, copied_lake, create_database
from tests.random_postgres_sql import Draw
from tests.server import Server

pytestmark = pytest.mark.pg

DATA = Path(__file__).parents[1] / "data" / "sql"
ANSWERED = (DATA / "postgres_dialect.sql").read_text().splitlines()
REFUSED = (DATA / "postgres_dialect_refused.sql").read_text().splitlines()
"""Statements that are refused by name."""


@pytest.fixture(scope="module")
def both(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Both, with the same rows."""
    base = server.create_database()
    create_database(server.dsn(base), "dialect")
    folder = tmp_path_factory.mktemp("dialect") / "lake"
    with psycopg.connect(server.dsn("dialect"), autocommit=True, options="-c timezone=UTC") as conn:
        conn.execute(SCHEMA.encode())
        lake = Lake(folder)
        write_manifest(lake, Manifest("1", 1, "d", "s", "p"))
        yield Both(conn, copied_lake(conn, lake))
    server.drop_database("dialect")
    server.drop_database(base)


def test_answers_are_those_of_postgresql(both: Both) -> None:
    """Names, texts of all values and failures of every statement of the list."""
    different = [found for sql in (*ANSWERED, *REFUSED) if (found := both.difference(sql))]
    assert not different, "\n".join(different)
    assert set(both.refused) == set(REFUSED)
    assert both.answered == len(ANSWERED)


def test_random_statements_have_the_answers_of_postgresql(both: Both) -> None:
    """The first statements of a seed; `tests/release` has more."""
    draw, lenient = Draw(random.Random(0)), replace(both, lenient=True)  # noqa: S311 - no secret
    different = [found for sql in (draw.statement() for _ in range(50)) if (found := lenient.difference(sql))]
    assert not different, "\n".join(different)
