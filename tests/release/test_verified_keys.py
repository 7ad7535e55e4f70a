"""`verify` of histories whose key changed: its type, its columns, their names. None of it is damage.

Rows change or not, with the DDL trigger or without it.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from auditlake.lake.layout import Lake
from auditlake.relation import TableName
from tests import command
from tests.damage import file_of, rewrite
from tests.read_lake import history_of
from tests.running import Running
from tests.s3_server import chosen_lake
from tests.server import execute, install_trigger

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_TABLE = """
create table {0} (id int primary key, other int not null unique, v text);
insert into {0} select n, n * 10, 'v' || n from generate_series(1, 20) n;
"""
_COMPOSITE = """
create table {0} (a int, b int, other int not null, v text, primary key (a, b));
insert into {0} select n, n % 3, n * 10, 'v' || n from generate_series(1, 20) n;
"""
_ROWS = """
update {0} set v = 'set' where other in (10, 20);
delete from {0} where other = 50;
update {0} set other = 31 where other = 30
"""
_CHANGES = {
    "rewritten": "alter table {0} alter id type bigint using id::bigint",
    "wider": "alter table {0} alter id type bigint",
    "to_text": "alter table {0} alter id type text using 'k' || id",
    "renamed": "alter table {0} rename id to number",
    "exchanged": "alter table {0} rename id to x; alter table {0} rename other to id;alter table {0} rename x to other",
    "switched": "alter table {0} drop constraint {0}_pkey; alter table {0} add primary key (other)",
    "dropped": "alter table {0} drop id; alter table {0} add primary key (other)",
    "part_rewritten": "alter table {0} alter b type bigint using b::bigint",
    "part_dropped": "alter table {0} drop b; alter table {0} add primary key (a)",
    "part_added": "alter table {0} drop constraint {0}_pkey; alter table {0} add primary key (a, b, other)",
    "no_key": "alter table {0} replica identity full; alter table {0} drop constraint {0}_pkey",
}
_OF_RELEASE = frozenset({"wider", "to_text", "part_dropped", "part_added", "renamed"})


def changed_keys(
    database: str, folder: Path, names: list[str] | None = None, *, with_trigger: bool, busy: bool
) -> Lake:
    """Change the keys of tables under a lake, with rows before and after if `busy`; require that `verify` agrees."""
    lake = chosen_lake(folder / "lake")
    settings: list[str | Path] = ["--source", database, "--lake", lake.root]
    tables = list(_CHANGES) if names is None else names
    execute(database, *((_COMPOSITE if name.startswith("part") else _TABLE).format(name) for name in tables))
    if with_trigger:
        install_trigger(database)
    assert command.run_here(["bootstrap", *settings]).code == 0
    if busy:
        execute(database, *map(_ROWS.format, tables))
        assert command.run_here(["follow", "--until-current", *settings]).code == 0
    execute(database, *(f"begin; {_CHANGES[name].format(name)}; commit" for name in tables))
    if busy:
        execute(
            database, *(f"update {name} set v = v || 'late'; delete from {name} where other = 60" for name in tables)
        )
    assert command.run_here(["follow", "--until-current", *settings]).code == 0
    if busy:
        execute(database, *(f"update {name} set v = 'last'; delete from {name} where other = 70" for name in tables))
        assert command.run_here(["follow", "--until-current", *settings]).code == 0
    with Running(database, lake):
        done = command.run_here(["verify", *settings])
    assert (done.code, f"{len(tables)} equal" in done.stderr) == (0, True), done.stdout + done.stderr
    return lake


@pytest.mark.usefixtures("spark")
def test_an_overlap_is_found_beside_changed_keys(database: str, tmp_path: Path) -> None:
    """Nothing is written after the changes; two versions of one key in the era before them are found."""
    lake = changed_keys(database, tmp_path, list(_CHANGES.keys() - _OF_RELEASE), with_trigger=False, busy=False)
    table = history_of(lake, TableName("public", "rewritten"))
    month = next(folder.name.removeprefix("_part=") for folder in table.path.glob("_part=2*"))
    rewrite(table, file_of(table, 7, month), _twice)
    line: list[str | Path] = ["verify", "--no-source", "--table", "rewritten", "--lake", lake.root]
    done = command.run_here(line)
    assert (done.code, "overlapping periods  id=7" in done.stdout) == (6, True), done.stdout + done.stderr


def _twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.filter(pc.equal(rows["id"], 7))])


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_a_changed_key_is_no_damage(database: str, tmp_path: Path, *, with_trigger: bool, busy: bool) -> None:
    """Keys get another type, another name, other columns, or none."""
    changed_keys(database, tmp_path, with_trigger=with_trigger, busy=busy)
