"""`char(n)` in SQL, the Python API, audit commands and exported views: a value without padding, or the printed text."""

from datetime import UTC
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import pytest

import auditlake
from auditlake.lake.layout import Lake
from auditlake.query.embedded.engine import Embedded
from auditlake.query.exported_views import Choice, view_script
from auditlake.query.formats import python_rows
from auditlake.query.statement import prepare_statement, read_state
from tests import command
from tests.padded_lake import NAMES, write_padded_lake
from tests.s3_server import on_disk


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The lake of `padded_lake`."""
    return write_padded_lake(tmp_path_factory.mktemp("padded") / "lake")


def _ask(lake: Lake, sql: str, as_of: str | None = None) -> list[tuple[Any, ...]]:
    state = read_state(lake, as_of, UTC)
    schema, batches = Embedded({}).answer(state, prepare_statement(state, sql, {})).batches()
    return list(python_rows(schema, batches))


@pytest.mark.parametrize("as_of", ["0/100", None])
def test_a_padded_value_is_found_without_its_padding(lake: Lake, as_of: str | None) -> None:
    """In a history, and in changes that are not applied yet."""
    assert _ask(lake, "select name from nations where code = 'AT'", as_of) == [("Österreich",)]
    german = "Germany" if as_of is None else "Deutschland"
    assert _ask(lake, f"select code from nations where name in ('{german}', 'x')", as_of) == [("DE",)]
    assert _ask(lake, "select length(name) as n from nations where code = 'AT'", as_of) == [(10,)]


def test_padding_counts_in_no_group_and_no_join(lake: Lake) -> None:
    """Also of a type without a length, whose texts differ."""
    assert _ask(lake, "select free, count(*) as n from nations group by free order by free") == [("", 1), ("a", 3)]
    joined = "select count(*) as n from nations x join nations y on x.free = y.free"
    assert _ask(lake, joined) == [(10,)]
    assert sorted(_ask(lake, "select code, tags from nations")) == [
        ("AT", ["x", None]),
        ("DE", []),
        ("FR", None),
        ("I", ["xy", ""]),
    ]


def test_arrow_has_values_and_texts_are_printed(lake: Lake) -> None:
    """`raw` has the printed text of the values that differ from it."""
    moment = auditlake.Lake(lake.root).as_of()
    rows = moment.table("nations", order_by=["code"], raw=True).to_arrow().to_pylist()
    assert {row["code"]: row["name"] for row in rows} == NAMES
    assert dict(rows[0]["_raw"]) == {"code": "AT ", "name": "Österreich  ", "free": "a "}
    printed = {row["code"]: (row["name"], row["tags"]) for row in moment.table("nations").texts()}
    assert printed["AT "] == ("Österreich  ", '{"x ",NULL}')
    assert [row["code"] for row in moment.table("nations", where=[("name", "=", "Germany")])] == ["DE"]
    assert moment.to_duckdb().execute("select code from public.nations where name = 'Germany'").fetchall() == [("DE",)]


def test_a_row_is_found_by_its_key_and_printed(lake: Lake) -> None:
    """With and without the padding of the key; the history shows PostgreSQL's text."""
    for key in ("DE", "DE ", "code=DE"):
        done = command.run_here(["row", "--lake", lake.root, "nations", key, "--json"])
        assert (done.code, '"Germany     "' in done.stdout) == (0, True), done.stderr


@on_disk("DuckDB needs another extension")
@pytest.mark.parametrize("parametrised", [False, True])
def test_exported_views_show_values(lake: Lake, *, parametrised: bool) -> None:
    """Of states and of versions."""
    script = view_script(lake, "duckdb", Choice(None, open_end=False, parametrised=parametrised))
    with duckdb.connect() as reader:
        folder = Path(duckdb_extension_delta.__file__).parent
        reader.load_extension(str(next(folder.rglob("delta.duckdb_extension"))))
        reader.execute(script.removeprefix("install delta;\nload delta;\n"))
        sources = ["public.nations_as_of(256)"] if parametrised else ["public.nations", "public_versions.nations"]
        for source in sources:
            found = reader.execute(f"select name, tags from {source} where code = 'AT'").fetchall()
            assert found == [("Österreich", ["x", None])]
