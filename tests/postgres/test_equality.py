"""Comparisons of every type: DuckDB gives PostgreSQL's answers, or the statement is refused before an engine starts."""

from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import UTC
from pathlib import Path
from typing import Any

import psycopg
import pytest

from auditlake.errors import NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.query.embedded.cells import NotEmbedded
from auditlake.query.embedded.engine import Embedded, translated_query
from auditlake.query.formats import python_rows
from auditlake.query.statement import prepare_statement, read_state
from tests import type_values
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.server import execute

pytestmark = pytest.mark.pg

_REFUSED_ALWAYS = {
    *("numeric", "interval", "json", "jsonb", "numrange", "nummultirange", "tsquery", "point", "box", "circle"),
    *("lseg", "path", "line", "regclass", "numeric[]", "interval[]"),
}


class _Both:
    """A followed table, and PostgreSQL's own."""

    def __init__(self, conn: "psycopg.Connection[Any]", lake: Lake) -> None:
        self._conn = conn
        self._state = read_state(lake, None, UTC)

    def literal(self, number: int) -> str:
        """Return a value of a column, as PostgreSQL prints it."""
        row = self._conn.execute(f"select c{number}::text from t where id = 1".encode()).fetchone()
        return "'" + str(row[0] if row else "").replace("'", "''").replace("\\", "\\\\") + "'"

    def reach(self, sql: str) -> str:
        """Return which engine answers a statement, or that it is refused."""
        try:
            translated_query(prepare_statement(self._state, sql, {}))
        except NotAnswerable:
            return "refused"
        except NotEmbedded:
            return "spark"
        return "duckdb"

    def of_lake(self, sql: str) -> Counter[tuple[Any, ...]]:
        """Return the answer of DuckDB."""
        schema, batches = Embedded({}).answer(self._state, prepare_statement(self._state, sql, {})).batches()
        return Counter(python_rows(schema, batches))

    def of_postgresql(self, number: int, sql: str) -> Counter[tuple[Any, ...]] | None:
        """Return the answer of PostgreSQL; None if it has none: an `xid` can be compared, but not sorted by."""
        try:
            return Counter((number, row[0]) for row in self._conn.execute(sql.encode()).fetchall())
        except psycopg.Error:
            return None


_KINDS = (
    *("boolean", "integer", "double precision", "numeric", 'text collate "C"', 'char(5) collate "C"', "bytea", "date"),
    *("timestamptz", "interval", "uuid", "jsonb", "int4range", "xid", "double precision[]", "numeric[]", "mood"),
)


def test_a_comparison_is_that_of_postgresql_or_refused(database: str, tmp_path: Path) -> None:
    """Of types whose comparisons differ in kind; `tests/release` has all types."""
    check_comparisons(database, tmp_path, _KINDS)


def check_comparisons(database: str, folder: Path, chosen: Collection[str]) -> None:
    """Compare with the values as PostgreSQL prints them, in each clause that compares."""
    execute(database, *type_values.schema())
    lake = make_lake(database, folder / "lake")
    execute(database, *type_values.rows())
    capture(database, lake)
    kinds, answered = list(type_values.TYPES), Counter[str]()
    asked: dict[str, dict[int, str]] = defaultdict(dict)
    answers: dict[str, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    with psycopg.connect(database, autocommit=True, options="-c timezone=UTC") as conn:
        both = _Both(conn, lake)
        for number, kind in ((number, kind) for number, kind in enumerate(kinds) if kind in chosen):
            for clause, sql in type_values.comparisons(f"c{number}", both.literal(number)).items():
                reach = both.reach(sql)
                answered[kind] += reach != "refused"
                expected = both.of_postgresql(number, sql) if reach == "duckdb" else None
                if expected is not None:
                    asked[clause][number] = sql
                    answers[clause] += expected
        for clause, statements in asked.items():
            ours, theirs = both.of_lake(type_values.together(statements)), answers[clause]
            wrong = {f"{kinds[number]}: {value}" for number, value in (ours - theirs) + (theirs - ours)}
            assert not wrong, f"{clause}: {wrong}"
    assert {kind for kind in chosen if not answered[kind]} == _REFUSED_ALWAYS & {*chosen}
