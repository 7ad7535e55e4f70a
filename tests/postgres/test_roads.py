"""Copy and capture have the server's own texts, without a JVM.

For cases that are slow in Spark: other encodings, every character, very wide tables and very long values.
"""

import os
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from auditlake.errors import SourceUnready, WrongSource
from auditlake.schema.missing_values import read_added
from auditlake.snapshot.plan import make_plan, survey
from auditlake.source.connection import connect
from auditlake.source.ddl_trigger import install_ddl_trigger
from auditlake.source.preflight import advise_on_encoding
from auditlake.values.escapes import decode_bytes, visible
from tests import oracle
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.roads import attempt_copy, both_roads
from tests.server import Server

pytestmark = pytest.mark.pg

_ENCODINGS = {
    "LATIN1": "ÀÿÑ ¿",
    "WIN1252": "€ŠŒ‰",
    "LATIN9": "€Žœ",
    "KOI8R": "Жёлтый ░",
    "EUC_JP": "日本語ｱｲｳ",
    "EUC_KR": "한국어",
    "UTF8": "🐘é",
}


@pytest.mark.parametrize("encoding", _ENCODINGS)
def test_other_encodings_are_converted_to_utf8(server: Server, tmp_path: Path, encoding: str) -> None:
    """Names and values, in copy and stream."""
    text = _ENCODINGS[encoding]
    name = _database(server, encoding)
    try:
        with psycopg.connect(server.dsn(name), client_encoding="UTF8") as conn:
            conn.execute(f'create table t (id int primary key, "{text}" text, a text[])'.encode())
        copied, streamed = both_roads(
            server.dsn(name), tmp_path, f"insert into t values (1, '{text}', array['{text}'])"
        )
        quoted = f'"{text}"' if " " in text else text
        assert copied == streamed == [["1", text, f"{{{quoted}}}"]]
    finally:
        server.drop_database(name)


def test_messages_of_the_ddl_trigger_are_in_utf8(server: Server, tmp_path: Path) -> None:
    """The stream does not convert messages, and the bytes of this syllable in EUC_KR are a letter in UTF-8, too."""
    name = _database(server, "EUC_KR")
    try:
        with connect(server.dsn(name)) as conn:
            conn.execute("create table public.t (id int primary key)")
            lake = make_lake(server.dsn(name), tmp_path / "lake")
            install_ddl_trigger(conn)
            conn.execute("insert into public.t values (1)")
            conn.execute("alter table public.t add column \"천\" text default '천'".encode())
            capture(server.dsn(name), lake)
        assert [(added.column, answer.value) for added, answer in read_added(lake).items()] == [("천", "천")]
    finally:
        server.drop_database(name)


def test_who_and_why_is_converted_to_utf8(server: Server, tmp_path: Path) -> None:
    """The bytes of this syllable in EUC_KR are a letter in UTF-8, too; messages of other prefixes stay bytes."""
    name = _database(server, "EUC_KR")
    try:
        with connect(server.dsn(name)) as conn:
            conn.execute("create table public.t (id int primary key)")
            lake = make_lake(server.dsn(name), tmp_path / "lake")
            for prefix in ("auditlake", "other"):
                content = '{"actor": "천"}'
                conn.execute("select pg_logical_emit_message(true, %s, %s)", (prefix, content))
            capture(server.dsn(name), lake)
        contents = {row["prefix"]: row["content"] for row in oracle.changes(lake)}
        assert [row["context"] for row in oracle.transactions(lake)] == ['{"app": {"actor": "천"}}', None]
        assert contents == {"auditlake": content.encode(), "other": content.encode("euc_kr")}
    finally:
        server.drop_database(name)


def test_a_value_without_an_equivalent_in_utf8_ends_the_stream(server: Server, tmp_path: Path) -> None:
    """Trying again would not help: the server cannot send the change."""
    name = _database(server, "WIN1252")
    try:
        with psycopg.connect(server.dsn(name), autocommit=True, client_encoding="WIN1252") as conn:
            conn.execute("create table t (id int primary key, v text)")
            lake = make_lake(server.dsn(name), tmp_path / "lake")
            conn.execute(b"insert into t values (1, E'\\x81')")
            with pytest.raises(WrongSource, match=r"can be read no further: .*0x81") as refused:
                capture(server.dsn(name), lake)
            assert "pg_drop_replication_slot" in (refused.value.hint or "")
    finally:
        server.drop_database(name)


def test_an_untranslatable_row_is_named_by_its_table_in_the_copy(server: Server, tmp_path: Path) -> None:
    """The plan has a warning for such a database before anything is copied."""
    name = _database(server, "WIN1252")
    try:
        with psycopg.connect(server.dsn(name), client_encoding="WIN1252") as conn:
            conn.execute(b"create table t as select 1 as id, E'\\x81' as v")
        with connect(server.dsn(name)) as conn:
            plan = survey(conn, None, "auditlake", "auditlake")
        assert [advice.object for advice in plan.advice] == [f"database {name}"]
        refused = attempt_copy(server.dsn(name), tmp_path)
        assert isinstance(refused, SourceUnready)
        assert "table public.t could not be copied: a row has bytes" in refused.message
        assert "leave the table out" in (refused.hint or "")
    finally:
        server.drop_database(name)


def test_the_server_alone_decides_which_encodings_are_complete(database: str) -> None:
    """Encodings of one byte without a warning are those in which the server converts each byte to UTF-8."""
    encodings = "select pg_encoding_to_char(n) from generate_series(1, 34) n"
    with psycopg.connect(database, autocommit=True) as conn:
        single = [name for (name,) in conn.execute(encodings) if re.match("LATIN|ISO|KOI|WIN", name)]
        complete = {name for name in single if all(_is_converted(conn, byte, name) for byte in range(1, 256))}
    assert {name for name in single if not advise_on_encoding(name, "d")} == complete
    assert {"LATIN1", "KOI8R"} < complete < set(single)


def _is_converted(conn: psycopg.Connection[Any], byte: int, encoding: str) -> bool:
    try:
        conn.execute("select convert(%s, %s, 'UTF8')", (bytes([byte]), encoding))
    except psycopg.errors.UntranslatableCharacter:
        return False
    return True


def test_a_database_without_an_encoding_is_refused(server: Server) -> None:
    """SQL_ASCII stores bytes without a defined encoding."""
    name = _database(server, "SQL_ASCII")
    try:
        with psycopg.connect(server.dsn(name)) as conn:
            conn.execute("create table t (id int primary key)")
        with connect(server.dsn(name)) as conn, pytest.raises(SourceUnready, match="SQL_ASCII"):
            make_plan(conn, None, "auditlake", "auditlake")
        with psycopg.connect(server.dsn(name), client_encoding="SQL_ASCII") as conn:
            conn.execute(b'create table "\xe9" (id int primary key)')
        with connect(server.dsn(name)) as conn, pytest.raises(SourceUnready, match="no text in UTF-8"):
            make_plan(conn, None, "auditlake", "auditlake")
    finally:
        server.drop_database(name)


def _database(server: Server, encoding: str) -> str:
    name = f"in_{encoding.lower()}"
    query = sql.SQL("create database {} template template0 encoding {} locale 'C'")
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        conn.execute(query.format(sql.Identifier(name), sql.Literal(encoding)))
    return name


def test_every_character_is_exact_in_copy_and_stream(database: str, tmp_path: Path) -> None:
    """Every code point of PostgreSQL: all but NUL and the surrogates."""
    with psycopg.connect(database) as conn:
        conn.execute("create table t (id int primary key, v text)")
    points = "generate_series(%s, %s)"
    blocks = [(1, 0xD7FF), (0xE000, 0xFFFF), *((first, first + 0xFFFF) for first in range(0x10000, 0x110000, 0x10000))]
    inserts = [
        f"insert into t select {n}, string_agg(chr(c), '' order by c) from {points % block} c"
        for n, block in enumerate(blocks)
    ]
    copied, streamed = both_roads(database, tmp_path, *inserts)
    expected = [[str(n), "".join(map(chr, range(first, last + 1)))] for n, (first, last) in enumerate(blocks)]
    assert copied == expected
    assert streamed == expected


def test_invalid_utf8_is_exact_in_copy_and_stream(database: str, tmp_path: Path) -> None:
    """Text values with bytes that are not characters."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create cast (bytea as text) without function")
        conn.execute("create table t (id int primary key, v text, c varchar, a text[], j json, n numeric(4,1))")
    odd = "'\\x63c3a9e92c'::bytea::text"
    copied, streamed = both_roads(
        database,
        tmp_path,
        f"insert into t select 1, {odd}, {odd}, array[{odd}, 'b', null], null, 'NaN'",
        "insert into t values (2, 'plain', 'é', '{é}', '{}', 1)",
    )
    text = "cé\0xe9,"
    assert (
        copied
        == streamed
        == [["1", text, text, f'{{"{text}",b,NULL}}', None, "NaN"], ["2", "plain", "é", "{é}", "{}", "1.0"]]
    )
    assert decode_bytes(b"c\xc3\xa9\xe9,") == text
    assert visible(text) == "cé\\xe9,"


_WIDE = ["7", "x", "2026-11-21 09:30:00+00", "1.50", "{1,NULL}"]
_ODD = ["7", "x", "infinity", "NaN", "[0:1]={1,2}"]


def test_a_table_of_1600_columns_is_copied_and_streamed(database: str, tmp_path: Path) -> None:
    """PostgreSQL's maximum, of several types, with typed values and with values that need the exact text."""
    types = ["int", "text", "timestamptz", "numeric(10,2)", "int[]"]
    columns = ", ".join(f"c{n} {types[n % 5]}" for n in range(1599))
    with psycopg.connect(database) as conn:
        conn.execute(f"create table t (id int primary key, {columns})".encode())
    rows = [
        [values[n % 5] if n < len(values) or n % 5 == also else None for n in range(1599)]
        for values, also in ((_WIDE, 0), (_ODD, 2))
    ]
    spelled = [["null" if text is None else f"'{text}'" for text in row] for row in rows]
    inserts = [f"insert into t values ({n}, {', '.join(row)})" for n, row in enumerate(spelled)]
    copied, streamed = both_roads(database, tmp_path, *inserts)
    assert copied == streamed == [[str(n), *row] for n, row in enumerate(rows)]


def test_long_values_are_exact_in_copy_and_stream(database: str, tmp_path: Path) -> None:
    """Up to AUDITLAKE_LONGEST_VALUE bytes, in characters of two bytes, as text and bytea."""
    with psycopg.connect(database) as conn:
        conn.execute("create table t (id int primary key, v text, b bytea)")
    sizes = [0, 1, int(os.environ.get("AUDITLAKE_LONGEST_VALUE", "4_000_000")) // 2]
    inserts = [
        f"insert into t values ({n}, repeat('é', {size}), decode(repeat('ab', {size // 10}), 'hex'))"
        for n, size in enumerate(sizes)
    ]
    roads: dict[str, Any] = dict(zip(("copied", "streamed"), both_roads(database, tmp_path, *inserts), strict=True))
    for rows in roads.values():
        assert [row[1] for row in rows] == ["é" * size for size in sizes]
        assert [row[2] for row in rows] == ["\\x" + "ab" * (size // 10) for size in sizes]
