"""A value is the same from the snapshot and from the stream, and what PostgreSQL itself holds, on a hostile server.

Every literal is inserted twice, before the snapshot and after it. Database and role set everything that changes how
PostgreSQL spells a value; both roads must not care, and every reader of the history must see the same.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, cast

import duckdb
import duckdb_extension_delta
import polars as pl
import pyarrow as pa
import pytest
from deltalake import QueryBuilder
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

import auditlake
from auditlake.apply.apply import apply_pending
from auditlake.capture.supervisor import make_task, run_capture
from auditlake.delta.table import open_table
from auditlake.errors import ConfigError
from auditlake.lake.history import type_of
from auditlake.lake.layout import Lake
from auditlake.query.spark_engine import run_sql
from auditlake.relation import Column, TableName
from auditlake.snapshot.bootstrap import Target, bootstrap
from auditlake.snapshot.worker_pool import SparkWorkers
from auditlake.source.connection import connect
from auditlake.sql_names import standard_identifier
from auditlake.store.objects import endpoint_options
from auditlake.values.exact_text import exact_texts, held_in
from auditlake.values.types import BUILT_IN, has_padded_elements, is_padded
from tests.read_lake import history_of
from tests.s3_server import chosen_lake, on_disk
from tests.server import Server
from tests.spark.walk.corpus import CORPUS, DOES_NOT_FIT, HOSTILE, TYPES, draw_rows

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_LITERALS = {type_name: [*values, *DOES_NOT_FIT.get(type_name, [])] for type_name, values in CORPUS.items()}
_COLUMNS = {type_name: f"c{n}" for n, type_name in enumerate(_LITERALS)}
_DEPTH = max(map(len, _LITERALS.values()))
_STREAMED = 1_000_000
_TEXTS = ", ".join(f"case when num_nulls({c}) = 0 then format('%s', {c}) end" for c in _COLUMNS.values())
_EXACT = ", ".join(f"exact_text(v.{column}) as {column}" for column in _COLUMNS.values())


@dataclass(frozen=True)
class Versions:
    """Every literal as copied and as streamed, and PostgreSQL's own text of each, ordered by `id`."""

    lake: Lake
    columns: Sequence[Column]
    snapshot: pa.Table
    stream: pa.Table
    printed: pa.Table
    texts: list[list[str | None]]
    types: set[str]


@pytest.fixture(scope="module")
def versions(server: Server, spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> "Versions":
    """Write every literal before and after the snapshot, and return both versions with PostgreSQL's text."""
    name = server.create_database("values")
    lake = chosen_lake(tmp_path_factory.mktemp("values") / "lake")
    with connect(server.dsn()) as admin:
        for setting, value in HOSTILE.items():
            admin.execute(f"alter database \"{name}\" set {setting} = '{value}'")
            admin.execute(f"alter role postgres in database \"{name}\" set {setting} = '{value}'")
    conninfo = server.dsn(name)
    rows = _corpus_rows() + draw_rows()
    with connect(conninfo) as conn:
        _create(conn)
        _insert(conn, rows, 0)
        bootstrap(Target(conninfo, lake, "values", "values", None), lambda: SparkWorkers(spark), lambda _: None)
        _insert(conn, rows, _STREAMED)
        conn.execute("delete from public.v where id < 0")
        _change_moods(conn)
        run_capture(make_task(conninfo, lake, "current"), Event(), lambda _: None)
        apply_pending(lambda: spark, lake)
        conn.execute(f"update public.names set {_set_names()} where {standard_identifier(_KEY)} = 2".encode())
        run_capture(make_task(conninfo, lake, "current"), Event(), lambda _: None)
        query = "select * from public.v for system_time all where id >= 0 order by id"
        found = run_sql(spark, lake, query).toArrow()
        printed = run_sql(spark, lake, f"select {_EXACT} from public.v order by id").toArrow()
        texts = conn.execute(f"select array[{_TEXTS}] from public.v order by id").fetchall()
        types = conn.execute(_TYPES_OF_V).fetchall()
    server.drop_database(name)
    history = history_of(lake, TableName("public", "v"))
    return Versions(
        lake,
        history.columns[1:],
        found[: len(rows)],
        found[len(rows) :],
        printed,
        [cast("list[str | None]", row) for (row,) in texts],
        {str(row[0]) for row in types},
    )


_TYPES_OF_V = """
select t.typname::text from pg_catalog.pg_attribute a join pg_catalog.pg_type t on t.oid = a.atttypid
 where a.attrelid = 'public.v'::regclass and a.attnum > 0
"""


def _create(conn: "psycopg.Connection[Any]") -> None:
    typed = ", ".join(f"{column} {type_name}" for type_name, column in _COLUMNS.items())
    named = ", ".join(f"{standard_identifier(name)} date" for name in _NAMES)
    days = ", ".join(["'infinity'"] * len(_NAMES))
    conn.execute(f"{TYPES}; create table public.v (id int primary key, {typed})".encode())
    conn.execute(f"create table public.names ({standard_identifier(_KEY)} int primary key, {named})".encode())
    conn.execute(f"insert into public.names values (1, {days})".encode())
    conn.execute("create type public.feeling as enum ('happy')")
    conn.execute("create table public.feelings (id int primary key, mood public.feeling)")
    conn.execute("insert into public.feelings values (1, 'happy')")
    conn.execute("insert into public.v (id) values (-1)")


def _corpus_rows() -> list[dict[str, str]]:
    """Return rows with the n-th literal of every type; the last row is all NULL."""
    depths = range(_DEPTH + 1)
    return [{t: literals[n] for t, literals in _LITERALS.items() if n < len(literals)} for n in depths]


def _insert(conn: "psycopg.Connection[Any]", rows: list[dict[str, str]], offset: int) -> None:
    for n, row in enumerate(rows):
        places = ", ".join(f"%s::{type_name}" for type_name in row)
        columns = ", ".join(_COLUMNS[type_name] for type_name in row)
        query = (
            f"insert into public.v (id, {columns}) values (%s, {places})"
            if row
            else "insert into public.v (id) values (%s)"
        )
        conn.execute(query.encode(), [offset + n, *row.values()])


def _change_moods(conn: "psycopg.Connection[Any]") -> None:
    conn.execute("insert into public.feelings values (2, 'happy')")
    conn.execute("alter type public.feeling add value 'sad' before 'happy'")
    conn.execute("insert into public.feelings values (3, 'happy'), (4, 'sad')")
    days = ", ".join(["'infinity'"] * len(_NAMES))
    conn.execute(f"insert into public.names values (2, {days})".encode())


def test_the_corpus_has_every_type(versions: Versions) -> None:
    """These are all built-in types that a column can have."""
    assert set(BUILT_IN) <= versions.types


def test_snapshot_and_stream_store_the_same_values(versions: Versions) -> None:
    """Typed columns and `_raw` are equal for every literal, bit for bit."""
    assert len(versions.snapshot) == len(versions.stream) > _DEPTH
    for type_name, column in {**_COLUMNS, "_raw": "_raw"}.items():
        assert repr(versions.snapshot[column].to_pylist()) == repr(versions.stream[column].to_pylist()), type_name


def test_exact_text_is_what_the_server_prints(versions: Versions) -> None:
    """The text of the typed column, or of `_raw`, is PostgreSQL's own; NULL stays NULL."""
    half = len(versions.snapshot)
    for rows, texts in ((versions.snapshot, versions.texts[:half]), (versions.stream, versions.texts[half:])):
        for n, (column, type_name) in enumerate(zip(versions.columns, _LITERALS, strict=True)):
            found = exact_texts(rows[column.name].combine_chunks(), type_of(column), _raws(rows, column.name))
            assert [row[n] for row in texts] == found.to_pylist(), type_name


def test_exact_text_in_sql_is_what_the_server_prints(versions: Versions) -> None:
    """`exact_text` works on a state, which does not show `_raw`."""
    for n, (type_name, column) in enumerate(_COLUMNS.items()):
        assert [row[n] for row in versions.texts] == versions.printed[column].to_pylist(), type_name


def test_only_values_that_do_not_fit_are_in_raw(versions: Versions) -> None:
    """A value that its typed column cannot represent is NULL there, and in `_raw`."""
    for n, (column, (type_name, literals)) in enumerate(zip(versions.columns, _LITERALS.items(), strict=True)):
        fitting = len(CORPUS[type_name])
        raws = _raws(versions.stream, column.name).to_pylist()
        typed = versions.stream[column.name].to_pylist()
        if is_padded(column.type_oid) or has_padded_elements(column.type_oid):  # `_raw` has the printed text as well
            raws = [None if value is not None else raw for value, raw in zip(typed, raws, strict=True)]
        for depth in range(_DEPTH + 1):
            fits, missing = depth < fitting, depth >= len(literals)
            assert ((typed[depth] is None), (raws[depth] is None)) == (not fits, fits or missing), (type_name, depth)
        for value, raw, row in zip(typed, raws, versions.texts, strict=False):
            assert (value is not None) + (raw is not None) == (row[n] is not None), type_name


def test_a_new_enum_label_works_at_once(versions: Versions, spark: "SparkSession") -> None:
    """`postgres/test_shape_watch.py` has renamed labels."""
    rows = run_sql(spark, versions.lake, "select mood from feelings order by id").collect()
    assert [row.mood for row in rows] == ["happy", "happy", "happy", "sad"]


def _by_spark(spark: "SparkSession", path: Path) -> pa.Table:
    return spark.read.format("delta").load(str(path)).orderBy("id").toArrow()


def _by_deltalake(_: "SparkSession", path: Path) -> pa.Table:
    return pa.table(QueryBuilder().register("t", open_table(path)).execute("select * from t order by id").read_all())


def _by_polars(_: "SparkSession", path: Path) -> pa.Table:
    return pl.scan_delta(str(path), storage_options=endpoint_options()).sort("id").collect().to_arrow()


def _by_duckdb(_: "SparkSession", path: Path) -> pa.Table:
    folder = Path(duckdb_extension_delta.__file__).parent
    with duckdb.connect() as connection:
        connection.load_extension(str(next(folder.rglob("delta.duckdb_extension"))))
        connection.execute("set timezone = 'UTC'")
        return connection.execute(f"select * from delta_scan('{path}') order by id").to_arrow_table()


_READERS: dict[str, Callable[["SparkSession", Path], pa.Table]] = {
    "spark": _by_spark,
    "deltalake": _by_deltalake,
    "polars": _by_polars,
    "duckdb": _by_duckdb,
}


@pytest.mark.parametrize(
    "reader",
    [
        "spark",
        "deltalake",
        "polars",
        pytest.param("duckdb", marks=on_disk("DuckDB needs another extension")),
    ],
)
def test_readers_agree(versions: Versions, spark: "SparkSession", reader: str) -> None:
    """Every reader returns the same rows and values of a table with deletion vectors."""
    path = versions.lake.history(TableName("public", "v"))
    assert any("deletionVector" in log.read_text() for log in (path / "_delta_log").glob("0*2.json"))
    rows = _READERS[reader](spark, path)
    assert rows["id"].to_pylist() == [-1, *versions.snapshot["id"].to_pylist(), *versions.stream["id"].to_pylist()]
    assert rows["_end_op"].to_pylist()[:2] == ["delete", None]
    for n, (type_name, column) in enumerate(_COLUMNS.items()):
        values = rows[column].combine_chunks()
        found = exact_texts(values, held_in(values.type), _raws(rows, column)).to_pylist()
        assert [None, *(row[n] for row in versions.texts)] == found, type_name


def _raws(rows: pa.Table, column: str) -> pa.Array:
    return pa.array([dict(raw or ()).get(column) for raw in rows["_raw"].to_pylist()], pa.string())


_KEY = 'the "key"`'
_NAMES = [
    *("a b", "c,d;e", "f{g}(h)", "i\nj\tk", "l=m", "n.o", "100%", 'p"q', "r's", "🐘", "select", "~", "x" * 63),
    *("Case", "case", "CASE", "_part", "_From_Lsn", "_raw", "lsn", "new"),
]


def _set_names() -> str:
    return ", ".join(f"{standard_identifier(name)} = date '2026-11-21' + {n}" for n, name in enumerate(_NAMES))


def test_columns_may_have_any_name(versions: Versions, spark: "SparkSession") -> None:
    """Names survive copy, stream, fold, tail and SQL; versions also escape the names of their own columns."""
    of_state = {"Case": "~43ase", "CASE": "~43~41~53~45", _KEY: 'the "key"~60'}
    spelled = of_state | {"_part": "~5fpart", "_raw": "~5fraw", "_From_Lsn": "~5fFrom_Lsn"}
    listed = ", ".join("`" + of_state.get(name, name) + "`" for name in _NAMES)
    key = spelled[_KEY]
    rows = run_sql(spark, versions.lake, f"select {listed} from names order by `{key}`").collect()
    days = [date(2026, 11, 21) + timedelta(n) for n in range(len(_NAMES))]
    assert [tuple(row) for row in rows] == [(None,) * len(_NAMES), tuple(days)]
    printed = re.sub("(`[^`]+`)", r"exact_text(\1)", listed.replace("`_raw`", "`~5fraw`"))  # it is beside `_raw`
    texts = run_sql(spark, versions.lake, f"select {printed} from names order by `{key}`").collect()
    assert [tuple(row) for row in texts] == [("infinity",) * len(_NAMES), tuple(map(str, days))]
    query = f"select `{key}`, _raw from names for system_time all order by `{key}`, _from_lsn"
    raws = run_sql(spark, versions.lake, query).collect()
    infinite = {spelled.get(name, name): "infinity" for name in _NAMES}
    assert [(1, infinite), (2, infinite), (2, None)] == [tuple(row) for row in raws]


def test_exact_text_works_in_python_and_in_views(versions: Versions, spark: "SparkSession") -> None:
    """Python takes rows with `_raw`; the SQL function takes registered views."""
    rows = auditlake.read(spark, versions.lake.root, "names", raw=True).orderBy(F.col('`the "key"~60`'))
    texts = rows.select(auditlake.exact_text("~43ASE"), auditlake.exact_text("n.o")).collect()
    assert [tuple(row) for row in texts] == [("infinity", "infinity"), ("2026-12-04", "2026-11-26")]
    auditlake.register(spark, versions.lake.root, raw=True)
    assert spark.sql("select exact_text(c0, _raw, 'c0') from v where id = 0").collect() == [("-32768",)]


def test_a_setting_returns_json_as_variant(versions: Versions, spark: "SparkSession") -> None:
    """The documents are equal, NULL for a repeated key, and their text stays exact."""
    columns = [_COLUMNS[kind] for kind in ("json", "jsonb")]
    printed = ", ".join(f"typeof({c}), to_json({c}), exact_text({c})" for c in columns)
    texts = [versions.printed[column].to_pylist() for column in columns]
    spark.conf.set("spark.auditlake.json", "variant")
    try:
        rows = run_sql(spark, versions.lake, f"select {printed} from v order by id").collect()
        query = f"select id, {columns[0]}, _raw from v for system_time all where id = 0"
        (version,) = run_sql(spark, versions.lake, query).collect()
        spark.conf.set("spark.auditlake.json", "varient")
        with pytest.raises(ConfigError, match="varient"):
            auditlake.read(spark, versions.lake.root, "v")
    finally:
        spark.conf.unset("spark.auditlake.json")
    for n, expected in enumerate(texts):
        kinds, documents, exact = zip(*((row[3 * n : 3 * n + 3]) for row in rows), strict=True)
        assert set(kinds) == {"variant"}
        assert list(exact) == expected
        for document, text in zip(documents, expected, strict=True):
            if text is None or text == '{"a":  1, "a": 2}':
                assert document is None
            else:
                assert json.loads(document) == json.loads(text)
    assert version["_raw"][columns[0]] == texts[0][0] == '{"a":  1, "a": 2}'
