"""Every command with the role of docs/operating.md, beside each optional part that a superuser may have installed."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from auditlake.lake.layout import Lake
from auditlake.lake.relations import ShapeSource, read_versions
from auditlake.relation import TableName
from auditlake.source.connection import connect
from auditlake.source.heartbeat import PREFIX
from auditlake.source.lock_waits import name_blockers
from tests import command, oracle
from tests.server import SUPERUSER, chosen_version, execute

pytestmark = pytest.mark.pg

_OPERATING = Path(__file__).parents[2] / "docs" / "operating.md"
_GENERATED_SINCE = 18
_TABLES = ("create table orders (id int primary key, v text)", "create table customers (id int primary key)")


@dataclass(frozen=True)
class Site:
    """A database prepared as the manual has it, and its role."""

    dsn: str
    role: str
    lake: Path

    def execute(self, *statements: str) -> None:
        """Run statements as the superuser."""
        execute(self.dsn, *statements)

    def run(self, *arguments: str | Path) -> command.Done:
        """Run a command as the documented role, which must succeed."""
        source = make_conninfo(self.dsn, user=self.role)
        done = command.run_here([*arguments, "--source", source, "--lake", self.lake])
        assert done.code == 0, (arguments, done.stdout, done.stderr)
        return done


def _documented() -> list[str]:
    """Return the statements that the manual runs once as a superuser, except for the setting of the server."""
    section = _OPERATING.read_text().partition("## The source")[2]
    found = re.search(r"```sql\n(.*?)```", section, re.DOTALL)
    assert found is not None
    statements = [each.strip() for each in found[1].split(";") if each.strip()]
    assert statements[0] == "alter system set wal_level = 'logical'"
    generated = "alter publication auditlake set (publish_generated_columns = stored)"
    assert statements[-1] == generated
    return statements[1 : None if chosen_version() >= _GENERATED_SINCE else -1]


def _for_role(role: str, owner: str, statements: Sequence[str]) -> list[str]:
    """Return the statements for another role, and with the role that creates the tables."""
    named = [re.sub(r"(role|to) auditlake\b", rf"\1 {role}", statement) for statement in statements]
    return [statement.replace("for role app", f"for role {owner}") for statement in named]


@pytest.fixture
def site(database: str, tmp_path: Path) -> Iterator[Site]:
    """Run the manual's statements, under a role name of this database's own."""
    role = f"{conninfo_to_dict(database)['dbname']}_documented"
    site = Site(database, role, tmp_path / "lake")
    site.execute(*_TABLES)
    site.execute(*_for_role(role, SUPERUSER, _documented()))
    yield site
    site.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
    site.execute(f"drop owned by {role} cascade; drop role {role}")


def _install(site: Site, *options: str) -> None:
    """Install parts as the superuser."""
    for option in options:
        done = command.run_here(["check", option, "--yes", "--source", site.dsn])
        assert done.code == 0, done.stderr


_PARTS = {
    "none": (),
    "the DDL trigger": ("--install-ddl-trigger",),
    "the context trigger": ("--install-context",),
    "both": ("--install-context", "--install-ddl-trigger"),
}


@pytest.mark.parametrize("parts", _PARTS.values(), ids=_PARTS)
def test_every_command_works_beside_each_part(
    site: Site, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with heartbeats, and a slot that standbys synchronize (17). Those that need a JVM are left out."""
    monkeypatch.setenv("AUDITLAKE_HEARTBEAT_S", "0.1")
    monkeypatch.setenv("AUDITLAKE_FAILOVER", "true")
    _install(site, *parts)
    has_trigger = "--install-ddl-trigger" in parts
    checked = site.run("check").stderr
    assert ("the DDL trigger is installed" in checked) == has_trigger
    site.execute("insert into orders values (1, 'x')")
    site.run("bootstrap")
    site.run("capture", "--until-current")
    site.run("apply", "--until-current")
    site.execute("update orders set v = 'z' where id = 1", "insert into customers values (1)")
    site.run("follow", "--until-current")
    status = json.loads(site.run("status", "--json").stdout)
    assert status["ddl_trigger"] == ("installed" if has_trigger else "none")
    horizon = status["tables"][0]["horizon"]
    for question in (
        ["log", "--json"],
        ["row", "orders", "1"],
        ["diff", horizon, "--stat"],
        ["blame", "orders", "1"],
        ["sql", "select id, v from public.orders order by id"],
    ):
        site.run(*question)
    site.execute("alter table orders add w int default 7", "insert into orders values (2, 'y')")
    site.run("capture", "--until-current")
    last = read_versions(Lake(site.lake))[-1]
    assert last.source == (ShapeSource.DDL_TRIGGER if has_trigger else ShapeSource.STREAM)
    assert PREFIX in {row["prefix"] for row in oracle.changes(Lake(site.lake))}


def test_blockers_are_named_for_a_table_in_a_schema_that_the_role_may_not_use(site: Site) -> None:
    """To resolve its name would need USAGE on the schema."""
    site.execute("create schema hidden", "create table hidden.t (id int)")
    with psycopg.connect(site.dsn) as holder, connect(make_conninfo(site.dsn, user=site.role)) as conn:
        holder.execute("lock table hidden.t in access exclusive mode")
        assert f"pid {holder.info.backend_pid} " in name_blockers(conn, [TableName("hidden", "t")])


def _block(done: command.Done) -> str:
    """Return the SQL with which `check` ends."""
    return done.stdout[done.stdout.index("-- the statements above") :]


def test_the_sql_of_check_makes_a_bare_role_ready(site: Site) -> None:
    """Run once as the superuser, whatever is missing: the publication, privileges, options of the publication."""
    bare = make_conninfo(site.dsn, user=site.role)
    site.execute("drop publication auditlake", f"drop owned by {site.role}", f"alter role {site.role} noreplication")
    refused = command.run_here(["check", "--source", bare, "--lake", site.lake])
    assert refused.code == 3
    site.execute(_block(refused))
    ready = site.run("check")
    assert ready.stdout == "ready: 2 tables can be followed\n"
    site.run("bootstrap")


def test_check_names_what_a_publication_leaves_out(site: Site) -> None:
    """Partitions would be tables of their own, generated columns be missing (18); its SQL changes both."""
    site.execute(
        "create table parts (id int primary key) partition by range (id)",
        "create table parts_1 partition of parts for values from (0) to (10)",
        "alter table orders add twice int generated always as (id * 2) stored",
        "drop publication auditlake",
        "create publication auditlake for table orders, parts",
    )
    named = site.run("check")
    assert named.stdout.startswith("ready: 2 tables can be followed, see the warnings\n")
    assert "publishes partitions by their own names, so public.parts_1 will have" in named.stderr
    generated = "so the history will lack twice of public.orders" in named.stderr
    assert generated == (chosen_version() >= _GENERATED_SINCE)
    site.execute(_block(named))
    again = site.run("check")
    assert "warning" not in again.stderr
    assert again.stdout == "ready: 2 tables can be followed\n"
    site.run("bootstrap")


def test_a_new_partition_and_table_are_copied_with_the_default_privileges(site: Site) -> None:
    """The manual's ALTER DEFAULT PRIVILEGES is enough for what is created later."""
    site.run("bootstrap")
    site.execute(
        "create table parts (id int primary key) partition by range (id)",
        "alter publication auditlake add table parts",
        "create table parts_1 partition of parts for values from (0) to (10)",
        "insert into parts values (1)",
    )
    site.run("bootstrap")
    assert site.run("sql", "--format", "csv", "select id from public.parts").stdout.split() == ["id", "1"]


def test_a_table_without_privileges_is_named_with_the_grant(site: Site) -> None:
    """Also the way in which later tables get it."""
    site.run("bootstrap")
    site.execute("create table hidden (id int primary key)", "alter publication auditlake add table hidden")
    site.execute(f"revoke select on hidden from {site.role}")
    bare = make_conninfo(site.dsn, user=site.role)
    refused = command.run_here(["bootstrap", "--source", bare, "--lake", site.lake])
    assert f"GRANT SELECT ON public.hidden TO {site.role}" in refused.stderr
    assert "ALTER DEFAULT PRIVILEGES" in refused.stderr


def test_a_role_that_only_reads_by_default_creates_what_it_is_asked_for(database: str, tmp_path: Path) -> None:
    """It is a default, and takes no privilege away."""
    name = conninfo_to_dict(database)["dbname"]
    execute(database, *_TABLES, f"alter database {name} set default_transaction_read_only = on")
    both: list[str | Path] = ["--source", database, "--lake", tmp_path / "lake"]
    for line in (["check", "--install-context", "--yes"], ["check", "--install-ddl-trigger", "--yes"], ["bootstrap"]):
        done = command.run_here([*line, *both])
        assert done.code == 0, done.stderr


def test_messages_of_the_server_are_not_printed(
    database: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They may quote statements, and a driver prints what a role or a database has them send."""
    name = conninfo_to_dict(database)["dbname"]
    execute(database, *_TABLES, f"alter database {name} set client_min_messages = debug1")
    execute(database, f"alter database {name} set log_statement = 'all'")
    assert command.run_here(["bootstrap", "--source", database, "--lake", tmp_path / "lake"]).code == 0
    assert capfd.readouterr().err == ""
