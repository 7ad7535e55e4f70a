"""A database whose public privileges are revoked, with tables under row security.

Its roles have what `check --print-grants` prints.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests import command
from tests.server import execute

_HARDENED = (
    "revoke connect on database {database} from public",
    "revoke execute on function pg_control_system(), pg_walfile_name(pg_lsn) from public",
    "create schema sales",
    "create table sales.orders (id int primary key, v text)",
    "create table sales.days (id int primary key) partition by range (id)",
    "create table sales.days_1 partition of sales.days for values from (0) to (10)",
    "alter table sales.orders enable row level security, force row level security",
    "alter table sales.days_1 enable row level security",
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
        execute(self.dsn, *statements)

    def printed(self, name: str, role: str) -> list[str]:
        """Return the statements that are printed for a command."""
        done = command.run_here(["check", "--print-grants", name, "--role", role, *self._settings(self.dsn)])
        assert done.code == 0, done.stderr
        return [line for line in done.stdout.splitlines() if not line.startswith("--")]

    def role_for(self, name: str) -> str:
        """Make a role with exactly the grants that are printed for a command."""
        role = f"{conninfo_to_dict(self.dsn)['dbname']}_{name}_{len(self.roles)}"
        self.roles.append(role)
        self.execute(*self.printed(name, role))
        return role

    def run(self, role: str, *arguments: str) -> command.Done:
        """Run a command as a role."""
        return command.run_here([*arguments, *self._settings(make_conninfo(self.dsn, user=role))])

    def slots(self) -> list[str]:
        """Return the names of the slots of the database."""
        with psycopg.connect(self.dsn) as conn:
            found = conn.execute("select slot_name::text from pg_replication_slots where database = current_database()")
            return [str(name) for (name,) in found]

    def _settings(self, source: str) -> list[str]:
        return ["--source", source, "--lake", str(self.lake)]


@contextmanager
def hardened(database: str, lake: Path) -> Iterator[Site]:
    """Harden a database; its roles, and its slots, go with the block."""
    site = Site(database, lake)
    site.execute(*(each.format(database=conninfo_to_dict(database)["dbname"]) for each in _HARDENED))
    yield site
    site.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
    for role in site.roles:
        site.execute(f"drop owned by {role} cascade", f"drop role {role}")
