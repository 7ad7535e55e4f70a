"""TPC-H's 22 queries as of a moment after which the tables have changed, against plain copies of that state.

Each contender is one process that asks all of them; the time includes its start. Answers are compared with
PostgreSQL's, given at that moment: numbers by four digits, because averages have other scales in other engines.
"""

import hashlib
import json
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_tpch
import psycopg
from deltalake import write_deltalake

from peers import measured
from peers.arena import Arena, our_client
from peers.contest import Contender
from peers.copies import TPCH, Source, load_tpch
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
_QUERIES = {str(number): query for number, query in tpch.QUERIES.items()}
_ENGINES = {"parquet": "parquet", "auditlake": "lake", "delta": "delta", "auditlake-spark": "lake-spark"}


class Past:
    """A lake, the same state as plain files, and PostgreSQL's answers at that moment."""

    def __init__(self, arena: Arena, scale: float) -> None:
        self.arena = arena
        self.source: Source = load_tpch(arena, scale, TPCH)
        self._queries = arena.folder / "queries.json"
        self._queries.write_text(json.dumps(_QUERIES))
        self._plain(scale)
        database, lake = self.source.database, arena.folder / "lake"
        environment = bootstrap(arena, database, lake)
        self.moment = arena.sql(database, "select pg_current_wal_insert_lsn()")
        self.answers = self._of_postgresql()
        for change in _CHANGES:
            arena.sql(database, change)
        command = [sys.executable, "-m", "auditlake", "follow", "--until-current"]
        measured.run(arena.server, command, environment)

    def contenders(self) -> list[Contender]:
        """Return the engines, each over the lake and over plain files."""
        return [
            Contender(name, partial(self._measured, engine), self._digest_of_answers)
            for name, engine in _ENGINES.items()
        ]

    def _measured(self, engine: str, folder: Path) -> Figures:
        where = self.arena.folder / ("lake" if engine.startswith("lake") else engine)
        folder.mkdir()
        line = [*our_client("queries"), engine, where, self._queries, folder / "answers.json", self.moment]
        return measured.run(self.arena.server, line)

    def _digest_of_answers(self, folder: Path) -> Digest:
        return _digest(json.loads((folder / "answers.json").read_text()))

    def _of_postgresql(self) -> Digest:
        with psycopg.connect(self.source.dsn) as conn:
            return _digest({number: conn.execute(query.encode()).fetchall() for number, query in _QUERIES.items()})

    def _plain(self, scale: float) -> None:
        (extension,) = Path(duckdb_extension_tpch.__file__).parent.rglob("tpch.duckdb_extension")
        files = self.arena.folder / "parquet"
        files.mkdir()
        with duckdb.connect() as conn:
            conn.execute(f"load '{extension}'")
            conn.execute(f"call dbgen(sf = {scale})")
            for table in TPCH:
                conn.execute(f"copy {table} to '{files}/{table}.parquet' (format parquet)")
                write_deltalake(self.arena.folder / "delta" / table, conn.execute(f"from {table}").fetch_record_batch())


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
