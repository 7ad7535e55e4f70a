"""Least privilege: each command works with exactly what `check --print-grants` prints, and says so without a part."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests import command

pytestmark = pytest.mark.pg

_HARDENED = (
    "revoke connect on database {database} from public",
    "revoke execute on function pg_control_system(), pg_walfile_name(pg_lsn) from public",
    "create schema sales",
    "create table sales.orders (id int primary key, v text)",
    "create table sales.days (id int primary key) partition by range (id)",
    "create table sales.days_1 partition of sales.days for values from (0) to (10)",
    "insert into sales.orders values (1, 'x')",
    "create publication auditlake for table sales.orders, sales.days with (publish_via_partition_root = true)",
)


@dataclass
class Site:
    """A database whose public privileges are revoked, and the roles that a test makes in it."""

    dsn: str
    lake: Path
    roles: list[str] = field(default_factory=list)

    def execute(self, *statements: str) -> None:
        """Run statements as the superuser."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            for statement in statements:
                conn.execute(statement)

    def printed(self, name: str, role: str) -> list[str]:
        """Return the statements that are printed for a command."""
        done = command.run_here(["check", "--print-grants", name, "--role", role, *self._settings(self.dsn)])
        assert done.code == 0, done.stderr
        return [line for line in done.stdout.splitlines() if not line.startswith("--")]

    def role_for(self, name: str) -> str:
        """Make a role for a command from what is printed, and nothing else."""
        role = f"{conninfo_to_dict(self.dsn)['dbname']}_{name}_{len(self.roles)}"
        self.roles.append(role)
        self.execute(*self.printed(name, role))
        return role

    def run(self, role: str, *arguments: str) -> command.Done:
        """Run a command as a role."""
        return command.run_here([*arguments, *self._settings(make_conninfo(self.dsn, user=role))])

    def _settings(self, source: str) -> list[str]:
        return ["--source", source, "--lake", str(self.lake)]


@pytest.fixture
def site(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A hardened database; its roles go with the test. Standbys keep no copy of the slot."""
    monkeypatch.setenv("AUDITLAKE_FAILOVER", "false")
    site = Site(database, tmp_path / "lake")
    site.execute(*(each.format(database=conninfo_to_dict(database)["dbname"]) for each in _HARDENED))
    yield site
    site.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
    for role in site.roles:
        site.execute(f"drop owned by {role} cascade", f"drop role {role}")


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


def test_the_line_of_pg_hba_names_the_database(site: Site) -> None:
    """Not `replication`, which does not match a logical connection."""
    done = command.run_here(["check", "--print-grants", "--source", site.dsn])
    database = conninfo_to_dict(site.dsn)["dbname"]
    assert re.search(rf'^-- host(ssl)? "{database}" "auditlake" \S+ scram-sha-256$', done.stdout, re.MULTILINE)
