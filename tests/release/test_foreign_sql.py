"""Words in places where PostgreSQL has none, and statements with a token too many, too few or elsewhere. No JVM.

The words are all that sqlglot or PostgreSQL knows, the tokens those of the statements that `tests/postgres` asks. What
PostgreSQL refuses for its form is not answered; it may fail on a value that the lake does not compute.
"""

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlglot.dialects.postgres import Postgres

from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, write_manifest
from tests.postgres_dialect import SCHEMA, Both, answer_of_postgresql, copied_lake, create_database, fails_on_a_value
from tests.random_seeds import random_seeds
from tests.server import Server

pytestmark = [pytest.mark.pg, pytest.mark.timeout(1800)]

_FORMS = (
    *(
        "select 1::{}",
        "select {} '1'",
        "select 1 {} 2",
        "select 'a' {} 'b'",
        "select {} 1",
        "select {}(1)",
        "select {}",
    ),
    *("select {0} from (select 1 as {0}) v", "select 1 {}", "select id from boxes {} order by 1", "select (1) {} (1)"),
    *("select id from boxes as {} order by 1", "select id from boxes b {} join parcels p using (id) order by 1"),
    *("select id from boxes where id {} 1", "select id from boxes order by id {}", "select count({} id) from boxes"),
    *("select count(id) {} (order by id) from boxes", "select * {} id from boxes", "select 1 {} select 2"),
    *("with {0} as (select 1) select * from {0}", "select max(id) over ({}) from boxes", "select array {} [1]"),
)
_STATEMENTS = (Path(__file__).parents[1] / "data" / "sql" / "postgres_dialect.sql").read_text().splitlines()
_TOKEN = re.compile(r"\s*('(?:[^']|'')*'|\"[^\"]*\"|\w+|::|[-+*/<>=~!@#%^&|`?]+|.)")
_TOKENS = [found for each in _STATEMENTS if len(found := _TOKEN.findall(each)) < 60]
_MUTANTS = 500


@pytest.fixture(scope="module")
def both(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Both, with the same rows, which no statement changes."""
    base = server.create_database()
    create_database(server.dsn(base), "foreign_sql")
    options = "-c timezone=UTC -c statement_timeout=5s"
    with psycopg.connect(server.dsn("foreign_sql"), autocommit=True, options=options) as conn:
        conn.execute(SCHEMA.encode())
        conn.execute(b"set default_transaction_read_only = on")
        lake = Lake(tmp_path_factory.mktemp("foreign") / "lake")
        write_manifest(lake, Manifest("1", 1, "d", "s", "p"))
        yield Both(conn, copied_lake(conn, lake))
    server.drop_database("foreign_sql")
    server.drop_database(base)


def _answered_wrongly(both: Both, sql: str) -> str | None:
    expected = answer_of_postgresql(both.conn, sql)
    if not isinstance(expected, str) or fails_on_a_value(expected):
        return None
    try:
        both.of_lake(sql)
    except (BadUsage, NotAnswerable) as exc:
        return f"{sql}\n  {exc.message}" if "DuckDB does not run" in exc.message else None
    return f"{sql}\n  PostgreSQL: {expected}"


def test_no_word_of_another_dialect_is_read(both: Both) -> None:
    """Each in every form: as a type, an operator, a function, a name, an alias and a clause."""
    keywords = {word for (word,) in both.conn.execute("select word from pg_get_keywords()")}
    words = sorted(keywords | {word.lower() for word in Postgres.Tokenizer.KEYWORDS if word[0].isalpha()})
    assert len(words) > 500
    wrong = [found for word in words for form in _FORMS if (found := _answered_wrongly(both, form.format(word)))]
    assert not wrong, "\n".join(wrong)


def _mutant(draw: random.Random) -> str:
    tokens, other = list(draw.choice(_TOKENS)), draw.choice(_TOKENS)
    for _ in range(draw.choice((1, 1, 2))):
        at, start = draw.randrange(len(tokens)), draw.randrange(len(other))
        taken = other[start : start + draw.choice((0, 1, 1, 2, 5))]
        tokens[at : at + draw.choice((0, 1))] = taken
    return " ".join(tokens) or "select"


def test_no_mistake_is_answered(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements with tokens of others."""
    monkeypatch.setenv("AUDITLAKE_PROPERTY_S", os.environ.get("AUDITLAKE_ENGINES_S", "60"))
    for seed in random_seeds():
        draw = random.Random(seed)  # noqa: S311 - no secret
        wrong = [found for _ in range(_MUTANTS) if (found := _answered_wrongly(both, _mutant(draw)))]
        assert not wrong, "\n".join(wrong)
