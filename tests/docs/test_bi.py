"""Recipes of docs/bi.md: the parts that it calls tested are run here."""

import ast
import json
import re
import shlex
from pathlib import Path

import duckdb
import pytest
import sqlglot
import yaml  # type: ignore[import-untyped]

from auditlake.cli.main import auditlake
from auditlake.lake.layout import Lake
from auditlake.query.exported_views import Choice, view_script
from tests.small_lake import write_small_lake

_DOCUMENT = (Path(__file__).parents[2] / "docs" / "bi.md").read_text()
_LIVE = Choice(None, open_end=False, parametrised=False)


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", _DOCUMENT, re.DOTALL)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """The small lake as `lake` in the working folder."""
    monkeypatch.chdir(tmp_path)
    made = write_small_lake(tmp_path / "lake")
    content = {
        "system_identifier": "1",
        "timeline": 1,
        "database": "d",
        "slot": "s",
        "publication": "p",
        "lsn_offset": 0,
    }
    made.manifest.write_text(json.dumps({"format_version": 1, **content}))
    return made


def test_duckdb_reads_the_lake_without_a_network(lake: Lake) -> None:
    """The history through the extension's wheel, up to its position; a moment through auditlake, with the tail."""
    assert lake.root.exists()
    by_hand, by_us = (block for block in _blocks("python") if "connection" in block)
    found: dict[str, duckdb.DuckDBPyRelation] = {}
    exec(by_hand, found)  # noqa: S102 - the document's example
    assert sorted(row[0] for row in found["orders"].fetchall()) == [1, 3]
    answered: dict[str, tuple[int]] = {}
    exec(by_us.replace('"-2h"', '"0/250"'), answered)  # noqa: S102 - the same
    assert answered["total"] == (3,)


def test_a_file_of_views_reads_the_lake(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Superset opens it: read-only, in another connection, the extension from DuckDB's folder."""
    monkeypatch.setenv("HOME", str(lake.root.parent))
    Path("views.sql").write_text(view_script(lake, "duckdb", _LIVE))
    (made,) = (block for block in _blocks("python") if "views.duckdb" in block)
    exec(made, {})  # noqa: S102 - the document's example
    with duckdb.connect("views.duckdb", read_only=True) as opened:
        assert opened.execute("select id from public.orders order by id").fetchall() == [(1,), (3,)]


def test_the_dbt_source_names_views_and_columns_that_exist(lake: Lake) -> None:
    """The schema, the table and the field of the freshness are in the script of `auditlake views`."""
    (source,) = yaml.safe_load(_blocks("yaml")[0])["sources"]
    script = view_script(lake, "duckdb", _LIVE)
    created = [each for each in sqlglot.parse(script, dialect="duckdb") if each is not None]
    names = {f"{each.this.db}.{each.this.name}" for each in created if isinstance(each, sqlglot.exp.Create)}
    assert {f"{source['schema']}.{table['name']}" for table in source["tables"]} <= names
    assert source["loaded_at_field"] in script


def test_an_incremental_model_has_the_versions_of_the_history() -> None:
    """Also when one ends later, and when nothing but ends has come."""
    (model,) = (block for block in _blocks("sql") if "incremental" in block)
    (keys,) = re.findall(r"unique_key=(\[.*?\])", model)
    query = re.sub(r"\{\{ config.*?\}\}|\{% .*? %\}", "", model)
    query = query.replace("{{ source('shop', 'orders') }}", "source").replace("{{ this }}", "model")
    same = " and ".join(f"model.{name} = fresh.{name}" for name in ast.literal_eval(keys))
    with duckdb.connect() as connection:
        connection.execute("create table source (id int, note text, _from_lsn bigint, _to_lsn bigint)")
        connection.execute("create table model as from source")
        for change in (
            "insert into source values (1, 'new', 10, null), (2, 'new', 10, null)",
            "update source set _to_lsn = 20 where id = 1; insert into source values (1, 'paid', 20, null)",
            "update source set _to_lsn = 30 where id = 2",
            "insert into source values (3, 'short', 40, 50)",
        ):
            connection.execute(change)
            connection.execute(f"create or replace temp table fresh as {query}")
            connection.execute(f"delete from model using fresh where {same}; insert into model from fresh")
            assert sorted(connection.sql("from model").fetchall(), key=str) == sorted(
                connection.sql("from source").fetchall(), key=str
            )


def test_commands_and_options_of_the_airflow_recipe_exist() -> None:
    """The file parses, and every command with its options is one of ours."""
    (recipe,) = (block for block in _blocks("python") if "airflow" in block)
    ast.parse(recipe)
    for text in re.findall(r'bash_command="auditlake ([^"]+)"', recipe):
        name, *options = shlex.split(text)
        known = {option for parameter in auditlake.commands[name].params for option in parameter.opts}
        assert set(options) <= known, text


def test_the_configuration_of_a_client_starts_the_server() -> None:
    """Command and options are ours."""
    (server,) = json.loads(_blocks("json")[0])["mcpServers"].values()
    name, *options = server["args"]
    known = {option for parameter in auditlake.commands[name].params for option in parameter.opts}
    assert server["command"] == "auditlake"
    assert {option for option in options if option.startswith("--")} <= known
