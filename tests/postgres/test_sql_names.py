"""PostgreSQL reads back exactly the identifiers and literals that auditlake quotes."""

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditlake.source.connection import connect, fetch_one
from auditlake.sql_names import postgres_literal, standard_identifier
from tests.server import Server

pytestmark = pytest.mark.pg

_CHARACTERS = st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")
_TEXTS = st.text(st.sampled_from("'\"\\E\n\r\t\x1b\x9b\u202e\U000e0001é ") | _CHARACTERS, max_size=20)


def test_postgres_reads_back_what_is_quoted(server: Server) -> None:
    """Literals under both settings of `standard_conforming_strings`; identifiers of up to 15 characters (60 bytes)."""
    with connect(server.dsn("postgres")) as conn:

        @settings(max_examples=40, deadline=None)
        @given(texts=st.lists(_TEXTS, min_size=1, max_size=20), name=st.text(_CHARACTERS, min_size=1, max_size=15))
        def read_back(texts: list[str], name: str) -> None:
            statement = f"select {', '.join(map(postgres_literal, texts))}, 1 as {standard_identifier(name)}"
            for setting in ("on", "off"):
                conn.execute(f"set standard_conforming_strings = {setting}")
                cursor = conn.execute(statement.encode())
                assert cursor.fetchone() == (*texts, 1)
                assert cursor.description is not None
                assert cursor.description[-1].name == name

        read_back()


def test_postgres_refuses_a_literal_with_an_invalid_byte(server: Server) -> None:
    r"""No form of literal can carry it: `\xHH` is verified against the encoding, so `postgres_literal` raises."""
    with connect(server.dsn("postgres")) as conn, pytest.raises(psycopg.errors.CharacterNotInRepertoire):
        conn.execute(r"select E'\xe9'")


def test_a_name_of_a_database_with_another_encoding_is_shown_with_escapes(server: Server) -> None:
    """Roles are shared: one that holds a lock is named, whatever the bytes of its name."""
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        conn.execute("create database latin template template0 encoding 'LATIN1' locale 'C'")
    with psycopg.connect(server.dsn("latin"), autocommit=True) as latin:
        latin.execute('create role "räuber"')
        with connect(server.dsn()) as conn:
            query = "select array_agg(rolname), max(rolname::text) from pg_roles where rolname like 'r%uber'"
            assert fetch_one(conn, query) == (["r\\xe4uber"], "r\\xe4uber")
        latin.execute('drop role "räuber"')
    server.drop_database("latin")
