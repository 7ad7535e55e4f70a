"""Statements in PostgreSQL's dialect, answered by DuckDB over a lake and by PostgreSQL over the same rows. No JVM."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from auditlake.errors import NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.query.postgres.functions import FORMS
from auditlake.query.postgres.grammar import OPERATORS
from auditlake.query.postgres.types import FLOAT8
from tests.postgres_dialect import SCHEMA, Both, answer_of_postgresql, copied_lake, create_database
from tests.random_postgres_sql import Draw
from tests.server import Server

pytestmark = pytest.mark.pg

DATA = Path(__file__).parents[1] / "data" / "sql"
ANSWERED = (DATA / "postgres_dialect.sql").read_text().splitlines()
REFUSED = (DATA / "postgres_dialect_refused.sql").read_text().splitlines()
"""Statements that are refused by name."""
FOREIGN = (DATA / "postgres_dialect_foreign.sql").read_text().splitlines()
"""Statements that PostgreSQL refuses: those of other dialects, and mistakes that sqlglot's parser passes over."""


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


def test_no_statement_is_answered_that_postgresql_refuses(both: Both) -> None:
    """Each is a mistake in both."""
    refused = Both(both.conn, both.lake)
    different = [found for sql in FOREIGN if (found := refused.difference(sql))]
    assert not different, "\n".join(different)
    assert [sql for sql in FOREIGN if not isinstance(answer_of_postgresql(both.conn, sql), str)] == []
    assert refused.answered + len(refused.refused) == len(FOREIGN)


def test_the_known_operators_are_those_of_postgresql(both: Both) -> None:
    """An operator is a name to PostgreSQL's parser, and need not exist."""
    names = both.conn.execute("select distinct oprname from pg_operator where oid < 16384").fetchall()
    assert {name for (name,) in names} <= OPERATORS


def test_functions_of_doubles_are_those_of_postgresql(both: Both) -> None:
    """Of NaN, infinities, zeros, and least and greatest numbers; `tests/release` has all, and each with each."""
    check_doubles(both, range(1, 14, 3))


def check_doubles(both: Both, ids: range) -> None:
    """Compare functions of one argument, and those of two, of each of these rows with each."""
    ones = [f"{name}(f)" for name, forms in FORMS.items() if any(form.takes == (FLOAT8,) for form in forms)]
    twos = [f"{name}(a.f, b.f)" for name, forms in FORMS.items() if any(form.takes == (FLOAT8,) * 2 for form in forms)]
    assert {"exp(f)", "sin(f)"} <= {*ones}
    assert twos == ["power(a.f, b.f)", "atan2(a.f, b.f)"]
    statements = [f"select {one}, {one} is null from doubles where id = {n}" for one in ones for n in ids]
    pairs = [
        (f"select {two} from doubles a, doubles b where a.id = {n} and b.id = {m}")
        for two in twos
        for n in ids
        for m in ids
    ]
    asked = Both(both.conn, both.lake)
    different = [found for sql in (*statements, *pairs) if (found := asked.difference(sql))]
    assert not different, "\n".join(different)
    assert {sql for sql in asked.refused if "to_timestamp" not in sql} == set()


def test_random_statements_have_the_answers_of_postgresql(both: Both) -> None:
    """The first statements of a seed; `tests/release` has more."""
    draw, lenient = Draw(random.Random(0)), replace(both, lenient=True)  # noqa: S311 - no secret
    different = [found for sql in (draw.statement() for _ in range(50)) if (found := lenient.difference(sql))]
    assert not different, "\n".join(different)


def test_every_keyword_is_quoted_as_in_postgresql(both: Both) -> None:
    """Those that PostgreSQL reads as a name without quotes have none."""
    words = [word for (word,) in both.conn.execute("select word from pg_get_keywords() order by word")]
    calls = [f"quote_ident('{word}'), format('%I', '{word}')" for word in words]
    found = [both.difference(f"select {', '.join(calls[n : n + 100])}") for n in range(0, len(calls), 100)]
    assert not any(found)
    assert len(words) > 400


def test_numbers_that_json_does_not_have_are_strings_in_it(both: Both, tmp_path: Path) -> None:
    """NaN and the infinities, as values and in arrays and objects."""
    both.conn.execute(b"create table unbounded (id int primary key, n numeric)")
    both.conn.execute(
        b"insert into unbounded values (1, 'NaN'), (2, 'Infinity'), (3, '-Infinity'), (4, 1.50), (5, null)"
    )
    lake = Lake(tmp_path / "lake")
    write_manifest(lake, Manifest("1", 1, "d", "s", "p"))
    other = Both(both.conn, copied_lake(both.conn, lake, ("unbounded",)))
    for made in (
        "to_jsonb(n), jsonb_typeof(to_jsonb(n)), jsonb_build_array(n, 1.50), jsonb_build_object('n', n)",
        "to_jsonb(n) = '\"NaN\"', jsonb_build_array(n) ->> 0",
    ):
        assert other.difference(f"select id, {made} from unbounded order by id") is None
    aggregates = "jsonb_agg(n order by id), json_agg(n order by id), jsonb_object_agg(id, n)"
    assert other.difference(f"select {aggregates} from unbounded") is None
    assert other.difference("select id, scale(n) from unbounded order by id") is None
    assert not other.refused


def test_a_statement_that_reads_an_infinite_interval_is_refused(both: Both, tmp_path: Path) -> None:
    """The error names the column; a statement that leaves the row out has PostgreSQL's answer."""
    both.conn.execute(b"create table endless (id int primary key, span interval)")
    both.conn.execute(b"insert into endless values (1, '1 day'), (2, '-infinity'), (3, 'infinity'), (4, null)")
    lake = Lake(tmp_path / "lake")
    write_manifest(lake, Manifest("1", 1, "d", "s", "p"))
    other = Both(both.conn, copied_lake(both.conn, lake, ("endless",)))
    with pytest.raises(NotAnswerable, match=r"public.endless.span has a value here that only its text holds"):
        other.of_lake("select id from endless where span > '1 hour'")
    assert other.difference("select * from endless where id in (1, 4) order by id") is None
    assert other.difference("select id from endless order by id") is None
    assert not other.refused
