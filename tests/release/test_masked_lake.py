"""A masked lake by every stage: copied, followed, folded by Spark, resynced, and equal to its masked source."""

import json
import tomllib
from pathlib import Path

import pytest

from auditlake.lake.history import open_history
from auditlake.relation import TableName
from tests import command
from tests.crash.killed import SPARK
from tests.postgres.test_masked_chains import check_chains
from tests.postgres.test_masking import CHANGES, SECRET, Site, check_first_seen, check_people, hashed, leaks, make_site
from tests.running import await_true

pytestmark = [pytest.mark.pg, pytest.mark.spark]


@pytest.mark.usefixtures("spark")
def test_every_stage_keeps_values_out(database: str, tmp_path: Path) -> None:
    """The histories are masked, too, a new snapshot changes no masked row, and `verify` finds the lake equal."""
    site: Site = make_site(database, tmp_path)
    site.well("bootstrap")
    site.execute(*CHANGES)
    site.well("follow", "--until-current")
    assert not list(leaks(site.lake))
    check_people(site)
    done = site.run("verify")
    assert (done.code, "different" in done.stdout) == (0, False), done.stderr
    said = site.run("resync", "--table", "people")
    assert (said.code, "0 versions ended, 0 began" in said.stderr) == (0, True), said.stderr
    site.execute("update people set mail = 'zzclear8@x.org' where id = 2")
    site.well("follow", "--until-current")
    assert not list(leaks(site.lake))
    assert site.run("verify").code == 0


def test_follow_masks_a_new_table(database: str, tmp_path: Path) -> None:
    """A table that is created while follow runs is copied by a process of its own, under the same rules."""
    site = make_site(database, tmp_path)
    site.well("bootstrap")
    settings = ["--source", database, "--lake", str(site.lake.root)]
    environment = {
        **SPARK,
        "AUDITLAKE_MASK": json.dumps(tomllib.loads((tmp_path / "auditlake.toml").read_text())["mask"]),
        "AUDITLAKE_MASK_SECRET": SECRET,
    }
    with command.following(settings, environment):
        site.execute(
            "create table visits (id int primary key, email text)",
            "insert into visits values (1, 'zzclear1@x.org')",
        )
        await_true(lambda: open_history(site.lake, TableName("public", "visits")) is not None, 90)
        site.execute("insert into visits values (2, 'zzclear2@x.org')")
    site.well("capture", "--until-current")
    assert not list(leaks(site.lake))
    visits = site.rows("select email from public.visits order by id")
    assert visits == [{"email": hashed("zzclear1@x.org")}, {"email": hashed("zzclear2@x.org")}]


@pytest.mark.usefixtures("spark")
def test_a_column_that_verify_sees_before_capture_is_not_shown(database: str, tmp_path: Path) -> None:
    """It records no column."""
    check_first_seen(make_site(database, tmp_path), "verify")


@pytest.mark.parametrize("trigger", [False, True])
def test_no_chain_of_changes_shows_a_value(database_of_version: str, tmp_path: Path, *, trigger: bool) -> None:
    """On both versions, with the DDL trigger and without it."""
    check_chains(database_of_version, tmp_path, trigger=trigger)
