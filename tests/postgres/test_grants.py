"""Least privilege: each command works with exactly what `check --print-grants` prints, and says so without a part."""

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests import command
from tests.granted import Site, hardened

pytestmark = pytest.mark.pg


@pytest.fixture
def site(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A hardened database. Standbys keep no copy of the slot."""
    monkeypatch.setenv("AUDITLAKE_FAILOVER", "false")
    with hardened(database, tmp_path / "lake") as made:
        yield made


def test_every_command_works_with_its_own_grants(site: Site) -> None:
    """Each as a role of its own, which owns nothing."""
    for name, *arguments in (
        ["bootstrap"],
        ["capture", "--until-current"],
        ["follow", "--until-current"],
        ["resync", "--table", "sales.orders"],
        ["status"],
        ["drop", "--yes"],
    ):
        done = site.run(site.role_for(name), name, *arguments)
        assert done.code == 0, (name, done.stderr)
        site.execute("update sales.orders set v = v || 'y'", "insert into sales.days select count(*) from sales.days")


_WITHOUT = {
    "LOGIN REPLICATION": ("alter role {role} noreplication", 3, "lacks the replication privilege"),
    "CONNECT": ("revoke connect on database {database} from {role}", 4, "permission denied for database"),
    "USAGE": ("revoke usage on schema sales from {role}", 3, "and USAGE on its schema"),
    "BYPASSRLS": ("alter role {role} nobypassrls", 3, "row security hides rows of sales.days_1"),
    "SELECT ON TABLE": ("revoke select on sales.days_1 from {role}", 3, "sales.days_1"),
}


@pytest.mark.parametrize("what", _WITHOUT)
def test_each_grant_of_bootstrap_is_needed(site: Site, what: str) -> None:
    """Without it the command names the object, and fails before it has changed anything."""
    role = site.role_for("bootstrap")
    assert any(what in statement for statement in site.printed("bootstrap", role))
    statement, code, shown = _WITHOUT[what]
    site.execute(statement.format(role=role, database=conninfo_to_dict(site.dsn)["dbname"]))
    done = site.run(role, "bootstrap", "--table", "sales.days")
    assert (done.code, shown in done.stderr) == (code, True), done.stderr
    assert not site.lake.exists()


def test_resync_parks_no_table_that_it_may_not_read(site: Site) -> None:
    """Policies hide its rows from the role: the statement is named, and the table is followed as before."""
    site.run(site.role_for("bootstrap"), "bootstrap", "--table", "sales.orders")
    role = site.role_for("resync")
    site.execute(f"alter role {role} nobypassrls")
    done = site.run(role, "resync", "--table", "sales.orders")
    assert (done.code, f'ALTER ROLE "{role}" BYPASSRLS' in done.stderr) == (3, True), done.stderr
    site.execute("update sales.orders set v = 'y'")
    following = site.run(role, "follow", "--until-current")
    assert following.code == 0, following.stderr
    assert site.run(role, "sql", "select id, v from sales.orders", "--format", "csv").stdout == "id,v\n1,y\n"


def test_capture_may_read_no_row(site: Site) -> None:
    """What it captures comes through the stream; it needs REPLICATION, and says so."""
    site.run(site.role_for("bootstrap"), "bootstrap")
    role = site.role_for("capture")
    with (
        psycopg.connect(make_conninfo(site.dsn, user=role)) as conn,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        conn.execute("select from sales.orders")
    site.execute(f"alter role {role} noreplication")
    done = site.run(role, "capture", "--until-current")
    assert done.code == 4, done.stderr
    assert "REPLICATION" in done.stderr


def test_a_server_without_functions_of_identity_is_told_by_the_replication_protocol(site: Site) -> None:
    """As managed services may have it: with REPLICATION all works, without it the grant is named."""
    role = site.role_for("bootstrap")
    site.execute(f"revoke execute on function pg_control_system(), pg_walfile_name(pg_lsn) from {role}")
    assert site.run(role, "bootstrap").code == 0
    assert site.run(role, "capture", "--until-current").code == 0
    other = site.role_for("status")
    assert site.run(other, "status").code == 0
    site.execute(f"revoke execute on function pg_control_system() from {other}")
    done = site.run(other, "status")
    assert "GRANT EXECUTE ON FUNCTION pg_control_system()" in done.stdout + done.stderr


_FUNCTIONS = (
    "pg_current_wal_lsn()",
    "pg_current_wal_insert_lsn()",
    "pg_control_system()",
    "pg_walfile_name(pg_lsn)",
)


@pytest.mark.parametrize("function", _FUNCTIONS)
def test_a_function_that_no_role_may_call_is_named_or_not_needed(site: Site, function: str) -> None:
    """It is printed as a GRANT; without it a command goes on, or ends with its name, and never with a bug."""
    site.execute(f"revoke execute on function {function} from public")
    role = site.role_for("follow")
    assert f"GRANT EXECUTE ON FUNCTION pg_catalog.{function} TO" in "\n".join(site.printed("follow", role))
    assert site.run(role, "bootstrap").code == 0
    site.execute(f"revoke execute on function {function} from {role}")
    site.execute("update sales.orders set v = 'y'")
    named = function.partition("(")[0]
    for line in (["check"], ["status"], ["capture", "--until-current"]):
        done = site.run(role, *line)
        shown = done.stdout + done.stderr
        assert done.code == 0 or (done.code == 3 and named in shown and "--print-grants" in shown), (line, shown)


def test_the_line_of_pg_hba_names_the_database(site: Site) -> None:
    """Not `replication`, which does not match a logical connection."""
    done = command.run_here(["check", "--print-grants", "--source", site.dsn])
    database = conninfo_to_dict(site.dsn)["dbname"]
    assert re.search(rf'^-- host(ssl)? "{database}" "auditlake" \S+ scram-sha-256$', done.stdout, re.MULTILINE)
