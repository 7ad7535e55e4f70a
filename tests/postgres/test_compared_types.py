"""Own types and collations: equality of their texts is PostgreSQL's equality of the values, or it is refused."""

import json
from collections import Counter
from datetime import UTC
from pathlib import Path
from typing import Any

import psycopg
import pytest

from auditlake.errors import NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.query.embedded.engine import Embedded
from auditlake.query.formats import python_rows
from auditlake.query.statement import prepare_statement, read_state
from auditlake.relation import TableName
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.server import execute

pytestmark = pytest.mark.pg

_SCHEMA = (
    "create extension citext; create extension ltree; create extension hstore; create extension cube",
    'create collation ci from "C"',
    "set allow_system_table_mods = on; update pg_collation set collisdeterministic = false where collname = 'ci'",
    "create type mood as enum ('sad', 'ok')",
    "create domain folded as citext",
    "create domain ci_text as text collate ci",
    "create domain short as varchar(9)",
    "create type price as (name text, amount numeric)",
    "create type weight as (name char(5), grams float8)",
    "create type plain as (id int, name text, moods mood[], amount numeric(6,2))",
    "create type nested as (inner_price price)",
    "create type ci_part as (name ci_text)",
    "create type floats as range (subtype = float8)",
    "create type texts as range (subtype = text, multirange_type_name = many_texts)",
    "create type foldeds as range (subtype = citext)",
)
_ANSWERED: dict[str, tuple[str, ...]] = {
    "mood": ("sad", "ok"),
    "mood[]": ("{sad,ok}", "{sad}", "[0:1]={sad,ok}"),
    "short": ("a", "A"),
    "plain": ('(1,"a b",{sad},1.0)', "(1,a b,{sad},1.00)", "(1,A,{},1)"),
    "plain[]": ('{"(1,a,{sad},1)","(1,a,{sad},1.00)"}', "{}"),
    "texts": ("[a,b)", '["a",b)', "[A,b)"),
    "many_texts": ("{[a,b),[b,c)}", "{[a,c)}"),
    "ltree": ("Top.a", "top.a"),
    "hstore": ("a=>1, b=>2", "b=>2,a=>1", "a=>NULL"),
}
"""Own types that are compared as in PostgreSQL, with values; others below are refused."""
_REFUSED = {
    "citext": "type public.citext",
    "citext[]": "type public.citext",
    "folded": "type public.citext",
    "foldeds": "type public.citext",
    "cube": "type public.cube",
    "price": "numeric",
    "price[]": "numeric",
    "nested": "numeric",
    "weight": "double precision",
    "floats": "double precision",
    "text collate ci": "collation public.ci",
    "varchar(5)[] collate ci": "collation public.ci",
    "ci_text": "collation public.ci",
    "ci_part": "collation public.ci",
}
_COLUMNS = {kind: f"c{n}" for n, kind in enumerate([*_ANSWERED, *_REFUSED])}


def _lake(dsn: str, folder: Path) -> Lake:
    """Follow a table with a column of each type."""
    execute(dsn, *_SCHEMA)
    columns = ", ".join(f"{column} {kind}" for kind, column in _COLUMNS.items())
    execute(dsn, f"create table t (id int primary key, label text, {columns})")
    lake = make_lake(dsn, folder)
    for n in range(3):
        cells = {c: v[n] for k, c in _COLUMNS.items() if n < len(v := _ANSWERED.get(k, ()))}
        values = ", ".join(f"'{value}'" for value in cells.values())
        execute(dsn, f"insert into t (id, label, {', '.join(cells)}) values ({n}, 'a', {values})")
    capture(dsn, lake)
    return lake


def _of_lake(lake: Lake, sql: str) -> Counter[tuple[Any, ...]]:
    state = read_state(lake, None, UTC)
    schema, batches = Embedded({}).answer(state, prepare_statement(state, sql, {})).batches()
    return Counter(python_rows(schema, batches))


def test_own_types_are_compared_as_in_postgresql_or_refused(complete_database: str, tmp_path: Path) -> None:
    """Whether equal values can have different texts is decided by the parts of the type, and by collations."""
    lake = _lake(complete_database, tmp_path / "lake")
    with psycopg.connect(complete_database, autocommit=True) as conn:
        for column in (_COLUMNS[kind] for kind in _ANSWERED):
            for sql in (
                f"select x.id as a, y.id as b from t x join t y on x.{column} = y.{column}",
                f"select count(*) as n from (select distinct {column} from t) q",
            ):
                assert _of_lake(lake, sql) == Counter(conn.execute(sql.encode()).fetchall()), column
    for kind, part in _REFUSED.items():
        column = _COLUMNS[kind]
        for clause in (f"where {column} = ''", f"group by {column}", f"where {column} in (select {column} from t)"):
            with pytest.raises(NotAnswerable, match=rf"public\.t\.{column} .* depending on {part}$"):
                _of_lake(lake, f"select count(*) as n from t {clause}")
    with pytest.raises(NotAnswerable, match=r"like\(\) .* \(public\.citext\)"):
        _of_lake(lake, f"select id from t where {_COLUMNS['citext']} like 'a%'")


def test_what_is_not_recorded_is_refused_until_it_is_followed(complete_database: str, tmp_path: Path) -> None:
    """Only columns of types that are not built in; comparisons of text, which nearly every table has, are answered."""
    lake = _lake(complete_database, tmp_path / "lake")
    place = lake.shape(TableName("public", "t"))
    place.write_text(json.dumps({**json.loads(place.read_text()), "compared": {}}))
    asked = f"select count(*) as n from t where {_COLUMNS['mood']} = 'sad'"
    with pytest.raises(NotAnswerable, match="not recorded"):
        _of_lake(lake, asked)
    assert _of_lake(lake, "select count(*) as n from t where label = 'a'") == {(3,): 1}
    capture(complete_database, lake)
    assert _of_lake(lake, asked) == {(1,): 1}


def test_a_former_type_stays_recorded(complete_database: str, tmp_path: Path) -> None:
    """For moments before the change; the column has another type since."""
    execute(complete_database, *_SCHEMA[:3], "create table t (id int primary key, name text collate ci, other text)")
    lake = make_lake(complete_database, tmp_path / "lake")
    execute(complete_database, 'alter table t alter name type text collate "C"', "insert into t values (1, 'a', 'b')")
    execute(complete_database, "alter table t alter other type citext")
    capture(complete_database, lake)
    capture(complete_database, lake)
    recorded = json.loads(lake.shape(TableName("public", "t")).read_text())["compared"]
    assert recorded["2 25"] == ["text", "25 -1", "collation public.ci"]
    assert [parts for key, parts in recorded.items() if key.startswith("3 ")] == [
        ["public.citext", "type public.citext"]
    ]
