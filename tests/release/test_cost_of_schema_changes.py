"""Cost of a schema change: at most one commit besides its batch's, and no file of closed versions is removed."""

import pytest
from deltalake import DeltaTable

from auditlake.relation import TableName
from tests.server import install_trigger
from tests.spark.resync.site import Site, site

__all__ = ["site"]

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_CHANGES = {
    "added": "alter table other add a int default 5, add b text",
    "renamed": "alter table other rename v to w",
    "dropped": "alter table other drop d",
    "longer": "alter table other alter n type varchar(20)",
    "wider": "alter table other alter s type bigint",
    "several": "alter table other add c int; alter table other rename c to e; alter table other drop w",
    "table renamed": "alter table other rename to another",
}


def _read(site: Site) -> tuple[int, set[str]]:
    """Return version and files of closed versions."""
    table = DeltaTable(site.lake.history(TableName("public", "other")))
    return table.version(), {file for file in table.file_uris() if "_part=open" not in file}


@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
def test_a_schema_change_costs_one_commit_and_removes_no_closed_version(site: Site, *, with_trigger: bool) -> None:
    """Alone, and with a row after it; each is captured and applied."""
    site.run(
        "alter table other add n varchar(10), add s int", "update other set v = 'x'", "delete from other where id = 1"
    )
    if with_trigger:
        install_trigger(site.dsn)
    site.catch_up()
    assert _read(site)[1], "no closed version"
    name = "other"
    for number, (kind, change) in enumerate(_CHANGES.items()):
        if kind == "wider" and not with_trigger:
            continue  # PostgreSQL rewrites the rows: a new snapshot follows
        name = "another" if kind == "table renamed" else name
        for statement in (change, f"insert into {name} (id) values (1{number})"):
            version, files = _read(site)
            site.run(statement)
            site.catch_up()
            later, now = _read(site)
            assert later - version <= 2, statement
            assert files <= now, statement
