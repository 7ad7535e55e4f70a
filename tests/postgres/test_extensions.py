"""Types that the other test server lacks: xml, and extension types, whose OIDs differ between databases."""

from pathlib import Path

import psycopg
import pytest

from auditlake.source.connection import connect
from tests.roads import both_roads
from tests.server import Server

pytestmark = pytest.mark.pg

_EXTENSIONS = ("hstore", "citext", "ltree", "cube", "seg", "isn", "lo", "intarray", "earthdistance")
_LITERALS: dict[str, list[str | None]] = {
    "xml": ['<a b="1">x<!-- c --> &amp;</a>', "plain content", "<?xml version='1.0'?><é/>", ""],
    "xml[]": ["{<a/>,NULL,\"<b c='1, 2'/>\"}"],
    "hstore": [r'a=>1, "b c"=>NULL, "say \"hi\""=>"x\\y"', ""],
    "hstore[]": ['{"a=>1",NULL}'],
    "citext": ["HeLLo", "ÄÖ", ""],
    "citext[]": ["{HeLLo,NULL,NULL}", "[0:1]={a,b}"],
    "ltree": ["Top.Science.Astronomy", ""],
    "lquery": ["Top.*{1,2}.a@|b"],
    "ltxtquery": ["Europe & Russia*@ & !Transportation"],
    "cube": ["(1,2),(3.5,-4)", "(0)", "(1e300)"],
    "earth": [None],
    "seg": ["1.50 .. 3", "~6.5", "<0.1"],
    "isbn": ["978-0-393-04002-9", "0-393-04002-X"],
    "ean13": ["978-0-393-04002-9"],
    "lo": ["4294967295"],
    "query_int": ["1&(2|!3)"],
}
_COLUMNS = {type_name: f"c{n}" for n, type_name in enumerate(_LITERALS)}
_TEXTS = ", ".join(f"case when num_nulls({column}) = 0 then format('%s', {column}) end" for column in _COLUMNS.values())


def test_extension_types_and_xml_have_the_servers_text(complete_server: Server, tmp_path: Path) -> None:
    """Snapshot and stream have the same text, whatever the OIDs of the types."""
    dsn = complete_server.dsn(complete_server.create_database())
    typed = ", ".join(f"{column} {type_name}" for type_name, column in _COLUMNS.items())
    with psycopg.connect(dsn, client_encoding="UTF8") as conn:
        for extension in _EXTENSIONS:
            conn.execute(f"create extension {extension}".encode())
        conn.execute(f"create table t (id int primary key, {typed})".encode())
    deepest = max(map(len, _LITERALS.values()))
    inserts = [f"insert into t values ({n}, {_row(n)})" for n in range(deepest)]
    copied, streamed = both_roads(dsn, tmp_path, *inserts)
    with connect(dsn) as conn:
        rows = conn.execute(f"select array[id::text, {_TEXTS}] from public.t order by id".encode()).fetchall()
    expected = [row[0] for row in rows]
    assert copied == expected
    assert streamed == expected


def _row(n: int) -> str:
    literals = [values[n] if n < len(values) else None for values in _LITERALS.values()]
    return ", ".join("null" if text is None else "'" + text.replace("'", "''") + "'" for text in literals)
