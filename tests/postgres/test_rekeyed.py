"""A primary key that one transaction drops and creates again: exact with the DDL trigger, now without it."""

from collections import Counter
from pathlib import Path

import pytest

import auditlake
from auditlake.lake.gaps import read_gaps
from auditlake.lake.layout import Lake
from tests import command, oracle
from tests.server import execute, install_trigger

pytestmark = pytest.mark.pg

_SCHEMA = """
create table {0} (id int primary key, other int not null, v text);
insert into {0} select n, n * 10, 'old' from generate_series(1, 5) n;
"""
_KEYS = {
    "same": "add primary key (id)",
    "another": "add primary key (other)",
    "wide": "add primary key (other, id)",
    "by_index": "add constraint by_index_key unique (other), replica identity using index by_index_key",
}
_ROWS = """
insert into {0} values (9, 90, 'new');
update {0} set v = 'set' where id = 1;
update {0} set id = 8, other = 80 where id = 2;
delete from {0} where id = 3
"""
_REKEYED = "alter table {0} drop constraint {0}_pkey; alter table {0} {1}"


@pytest.mark.parametrize("with_rows", [True, False], ids=["rows", "no rows"])
@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
def test_a_key_that_is_dropped_and_created_in_one_transaction_needs_no_new_snapshot(
    database: str, tmp_path: Path, *, with_trigger: bool, with_rows: bool
) -> None:
    """Between the two commands no row had another key; rows after them are identified by the new one."""
    settings = ["--source", database, "--lake", str(tmp_path / "lake")]
    execute(database, *map(_SCHEMA.format, _KEYS))
    if with_trigger:
        install_trigger(database)
    assert command.run_here(["bootstrap", *settings]).code == 0
    after = f"; {_ROWS}" if with_rows else ""
    execute(database, *(f"begin; {_REKEYED}{after}; commit".format(*each) for each in _KEYS.items()))
    done = command.run_here(["follow", "--until-current", *settings])
    assert (done.code, "new snapshot" in done.stderr) == (0, False), done.stderr
    assert all(not gap.lacks_changes for gap in read_gaps(Lake(tmp_path / "lake")))
    assert not with_trigger or not read_gaps(Lake(tmp_path / "lake"))
    now = oracle.take_moment(database, list(_KEYS))
    for name, rows in now.states.items():
        found = auditlake.Lake(tmp_path / "lake").as_of().table(name).texts()
        assert Counter(tuple(row.values()) for row in found) == rows, name
