"""`verify` of a history that a new snapshot has cut, and whose columns were changed afterwards."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from auditlake.lake.history import HistoryTable
from auditlake.relation import TableName
from tests import command
from tests.damage import file_of, rewrite
from tests.read_lake import history_of
from tests.running import Running
from tests.spark.resync.site import Site, site

__all__ = ["site"]

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_DAMAGED = 6


def _change_row(table: HistoryTable) -> None:
    def changed(rows: pa.Table) -> pa.Table:
        values = pc.if_else(pc.equal(rows["id"], _DAMAGED), "another", rows["v"])
        return rows.set_column(rows.column_names.index("v"), "v", values)

    rewrite(table, file_of(table, _DAMAGED), changed)


def _remove_file(table: HistoryTable) -> None:
    file_of(table, _DAMAGED).unlink()


@pytest.mark.parametrize("damage", [_change_row, _remove_file])
def test_a_cut_history_is_verified_damaged_and_repaired(site: Site, damage: Callable[[HistoryTable], None]) -> None:
    """Its rows were rewritten without row messages; after the new snapshot it got, lost and renamed columns."""
    site.run("insert into other select n, '2026-01-01', 'n' || n from generate_series(4, 9) n")
    site.catch_up()
    site.run("alter table other alter v type varchar(20) using upper(v)", "update other set v = 'late' where id = 4")
    site.catch_up()
    site.resync("other")
    assert len(site.versions("other", "_end_op = 'resync'")) > 1
    site.run(
        "alter table other add w int default 5, drop d",
        "alter table other rename v to text",
        "update other set w = 6 where id < 3",
        "delete from other where id = 5",
    )
    site.catch_up()
    _check(site, code=0, word=" equal ")
    table = history_of(site.lake, TableName("public", "other"))
    damage(table)
    _check(site, code=6, word="other")
    site.resync("other")
    site.catch_up()
    _check(site, code=0, word=" equal ")
    assert site.rows("select id, text, w from other") == site.shown("select id, text, w from other")


def _check(site: Site, *, code: int, word: str) -> None:
    """Run `auditlake verify` at one LSN while capture runs."""
    line: list[str | Path] = ["verify", "--table", "other", "--source", site.dsn, "--lake", site.lake.root]
    with Running(site.dsn, site.lake):
        done = command.run_here(line)
    assert done.code == code, done.stdout + done.stderr
    assert word in done.stdout + done.stderr
