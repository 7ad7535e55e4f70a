"""`verify` as a role with exactly what `check --print-grants verify` prints, and without a part of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.granted import Site, hardened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]


@pytest.fixture
def site(
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spark: "SparkSession",  # noqa: ARG001 - its settings are those of the run
) -> Iterator[Site]:
    """A hardened database with a lake of two tables."""
    monkeypatch.setenv("AUDITLAKE_FAILOVER", "false")
    with hardened(database, tmp_path / "lake") as made:
        following = made.role_for("follow")
        assert made.run(following, "bootstrap").code == 0
        made.execute("update sales.orders set v = 'y'", "insert into sales.days values (1)")
        assert made.run(following, "follow", "--until-current").code == 0
        yield made


def test_verify_works_with_its_own_grants(site: Site) -> None:
    """As a role of its own, which owns nothing; the slot of the snapshot is gone afterwards."""
    done = site.run(site.role_for("verify"), "verify")
    assert (done.code, done.stdout.count(" equal ")) == (0, 2), done.stdout + done.stderr
    assert site.slots() == ["auditlake"]


@pytest.mark.parametrize(
    ("without", "statement", "equal"),
    [("SELECT", "revoke select on sales.days_1 from {role}", 1), ("BYPASSRLS", "alter role {role} nobypassrls", 0)],
)
def test_verify_names_the_table_that_its_role_may_not_read(
    site: Site, without: str, statement: str, equal: int
) -> None:
    """Others are compared. Without SELECT it may read no row, without BYPASSRLS policies would hide some."""
    role = site.role_for("verify")
    assert any(without in printed for printed in site.printed("verify", role))
    site.execute(statement.format(role=role))
    done = site.run(role, "verify")
    assert (done.code, done.stdout.count(" equal ")) == (7, equal), done.stdout + done.stderr
    assert "sales.days" in done.stdout
    assert "check --print-grants verify" in done.stdout + done.stderr


def test_verify_says_that_its_role_may_not_stream(site: Site) -> None:
    """Its snapshot is one of a temporary slot."""
    role = site.role_for("verify")
    site.execute(f"alter role {role} noreplication")
    done = site.run(role, "verify")
    assert (done.code, "REPLICATION" in done.stderr) == (4, True), done.stderr
