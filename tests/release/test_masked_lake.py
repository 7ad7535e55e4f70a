"""A masked lake by every stage: copied, followed, folded by Spark, resynced, and equal to its masked source."""

from pathlib import Path

import pytest

from tests.postgres.test_masking import CHANGES, Site, check_people, leaks, make_site

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
