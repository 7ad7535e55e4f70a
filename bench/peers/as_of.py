"""Queries as of a moment after which the tables have changed, against plain copies of that state.

TPC-H's 22 queries, or one over a history of any size. Each contender is one process that asks all of them; the time
includes its start. Answers are compared with
PostgreSQL's, given at that moment: numbers by four digits, because averages have other scales in other engines.
"""

import hashlib
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi
import duckdb
import duckdb_extension_tpch
import psycopg
from deltalake import write_deltalake
from harness.versions import Versions, factor

from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.relation import Column, TableName
from peers import measured
from peers.arena import Arena, our_client
from peers.contest import Contender
from peers.copies import TPCH, load_tpch
from peers.digest import Digest
from peers.followers import bootstrap
from peers.measured import Figures
from tests import tpch

_CHANGES = (
    "delete from lineitem where l_orderkey % 7 = 0",
    "delete from orders where o_orderkey % 7 = 0",
    "update lineitem set l_discount = 0.10, l_shipmode = 'RAIL' where l_orderkey % 11 = 1",
    "update customer set c_acctbal = -c_acctbal, c_mktsegment = 'BUILDING' where c_custkey % 5 = 2",
    """insert into orders select o_orderkey + 70000000, o_custkey, 'F', 1, o_orderdate, '1-URGENT', o_clerk, 0, ''
         from orders where o_orderkey % 17 = 2""",
)
_TABLE = "accounts"
_COLUMNS = tuple(Column(name, 20, -1, key=name == "id") for name in ("id", "v0", "v1", "v2", "v3"))
_QUESTION = f"select v0, count(*) as n, sum(id) as ids, max(v1) as most from {_TABLE} group by v0"
_ENGINES = {"parquet": "parquet", "auditlake": "lake", "delta": "delta", "auditlake-spark": "lake-spark"}


@dataclass(frozen=True)
class Past:
    """A moment of a lake, the same state as plain files, and PostgreSQL's answers to `queries.json` at that moment."""

    arena: Arena
    moment: str
    answers: Digest

    def contenders(self) -> list[Contender]:
        """Return the engines, each over the lake and over plain files."""
        return [
            Contender(name, partial(self._measured, engine), self._digest_of_answers)
            for name, engine in _ENGINES.items()
        ]

    def _measured(self, engine: str, folder: Path) -> Figures:
        where = self.arena.folder / ("lake" if engine.startswith("lake") else engine)
        folder.mkdir()
        line = [*our_client("queries"), engine, where, _queries(self.arena), folder / "answers.json", self.moment]
        return measured.run(self.arena.server, line)

    def _digest_of_answers(self, folder: Path) -> Digest:
        return _digest(json.loads((folder / "answers.json").read_text()))


def of_tpch(arena: Arena, scale: float) -> Past:
    """Load TPC-H, make a lake and plain copies, and change the tables afterwards."""
    source = load_tpch(arena, scale, TPCH)
    (extension,) = Path(duckdb_extension_tpch.__file__).parent.rglob("tpch.duckdb_extension")
    with duckdb.connect() as conn:
        conn.execute(f"load '{extension}'")
        conn.execute(f"call dbgen(sf = {scale})")
        for table in TPCH:
            _copy_plainly(arena, conn, table)
    environment = bootstrap(arena, source.database, arena.folder / "lake")
    moment = arena.sql(source.database, "select pg_current_wal_insert_lsn()")
    past = Past(arena, moment, _answers(arena, source.dsn, {str(n): query for n, query in tpch.QUERIES.items()}))
    for change in _CHANGES:
        arena.sql(source.database, change)
    command = [sys.executable, "-m", "auditlake", "follow", "--until-current"]
    measured.run(arena.server, command, environment)
    return past


def of_versions(arena: Arena, versions: Versions) -> Past:
    """Write a history, and copy its state after half of its changes."""
    lake = Lake(arena.folder / "lake")
    lake.root.mkdir()
    write_manifest(lake, Manifest("1", 1, "source", "peer", "peer"))
    versions.write(lake, TableName("public", _TABLE), _COLUMNS)
    half = versions.closed // 2
    values = ", ".join(f"n * {factor(place)} % 1000 as {each.name}" for place, each in enumerate(_COLUMNS[1:]))
    rows = (
        f"select n % {versions.keys} as id, {values} from generate_series({half}::bigint, {half + versions.keys - 1}) n"
    )
    database = arena.database("source")
    arena.sql(database, f"create table {_TABLE} as {rows}")
    with duckdb.connect() as conn, adbc_driver_postgresql.dbapi.connect(arena.url(database)) as source:
        with source.cursor() as cursor:
            cursor.execute(f"select * from {_TABLE}")
            conn.register(_TABLE, cursor.fetch_arrow_table())
        _copy_plainly(arena, conn, _TABLE)
    return Past(arena, str(versions.after(half)), _answers(arena, arena.server.dsn(database), {"1": _QUESTION}))


def _copy_plainly(arena: Arena, conn: duckdb.DuckDBPyConnection, table: str) -> None:
    """Copy a table of DuckDB into a Parquet file and a Delta table."""
    files = arena.folder / "parquet"
    files.mkdir(exist_ok=True)
    conn.execute(f"copy {table} to '{files}/{table}.parquet' (format parquet)")
    write_deltalake(arena.folder / "delta" / table, conn.execute(f"from {table}").to_arrow_reader())


def _queries(arena: Arena) -> Path:
    return arena.folder / "queries.json"


def _answers(arena: Arena, dsn: str, queries: dict[str, str]) -> Digest:
    """Write down the queries of all contenders, and ask PostgreSQL."""
    _queries(arena).write_text(json.dumps(queries))
    with psycopg.connect(dsn) as conn:
        return _digest({number: conn.execute(query.encode()).fetchall() for number, query in queries.items()})


def _digest(answers: dict[str, Iterable[Iterable[Any]]]) -> Digest:
    lines = {number: sorted("|".join(map(_shown, row)) for row in rows) for number, rows in answers.items()}
    text = json.dumps(lines, sort_keys=True)
    return Digest(sum(map(len, lines.values())), hashlib.sha256(text.encode()).hexdigest()[:12])


def _shown(value: object) -> str:
    text = str(value).rstrip()
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text
