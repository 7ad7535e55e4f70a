"""What stands between this database and a complete history, each with the command that mends it. Changes nothing.

`check_server` looks at the server and the role, `check_table` at one table, `check_publication` at an existing
publication. Every finding is a sentence and the command to run; an empty list means that bootstrap can start. Nothing
is guessed: what this version cannot follow exactly is a finding, not a warning.

Authority: postgresql.org/docs/current/logical-replication-restrictions.html; logicaldecoding-explanation.html
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import psycopg

from auditlake.postgres.catalog import CatalogTable
from auditlake.postgres.connection import Row, fetch_one
from auditlake.postgres.publication import Publication
from auditlake.relation import TableName

_FIRST_VERSION, _LAST_VERSION = 14, 18
_SLOTS_NEEDED = 2

_SERVER = """
select pg_catalog.current_setting('server_version_num')::int / 10000,
       pg_catalog.current_setting('wal_level'),
       pg_catalog.pg_is_in_recovery(),
       pg_catalog.current_setting('server_encoding'),
       (select rolsuper or rolreplication from pg_catalog.pg_roles where rolname = current_user)
         or exists (select from pg_catalog.pg_roles r where r.rolname = 'rds_replication'
                       and pg_catalog.pg_has_role(r.oid, 'member')),
       pg_catalog.current_setting('max_replication_slots')::int
         - (select count(*) from pg_catalog.pg_replication_slots),
       current_user::text,
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'create'),
       pg_catalog.current_database()::text
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One obstacle: what is so, and what to do about it."""

    object: str
    problem: str
    mend: str

    def __str__(self) -> str:
        return f"{self.object}: {self.problem}"


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the checks ask of a server and of our role in it."""

    major: int
    wal_level: str
    in_recovery: bool
    encoding: str
    may_replicate: bool
    free_slots: int
    role: str
    may_create: bool
    database: str


def read_server_facts(conn: psycopg.Connection[Row]) -> ServerFacts:
    """Read the facts that `check_server` judges."""
    return ServerFacts(*cast("tuple[int, str, bool, str, bool, int, str, bool, str]", fetch_one(conn, _SERVER)))


def check_server(facts: ServerFacts, *, slot_exists: bool) -> list[Finding]:
    """Judge the server and our role."""
    found = []
    if not _FIRST_VERSION <= facts.major <= _LAST_VERSION:
        supported = f"{_FIRST_VERSION} to {_LAST_VERSION} are supported"
        found.append(Finding("server", f"PostgreSQL {facts.major}, {supported}", "Use a supported server."))
    if facts.wal_level != "logical":
        mend = "Run ALTER SYSTEM SET wal_level = 'logical' and restart PostgreSQL."
        found.append(Finding("wal_level", f"is {facts.wal_level}, need logical", mend))
    if facts.in_recovery:
        found.append(Finding("server", "is a standby, need the primary", "Point source at the primary."))
    if facts.encoding == "SQL_ASCII":
        mend = "Dump and restore the database into one with a real encoding."
        found.append(Finding(f"database {facts.database}", "encoding SQL_ASCII has no defined text", mend))
    if not facts.may_replicate:
        mend = f'Run ALTER ROLE "{facts.role}" REPLICATION as a superuser.'
        found.append(Finding(f"role {facts.role}", "lacks the replication privilege", mend))
    needed = _SLOTS_NEEDED - slot_exists
    if facts.free_slots < needed:
        mend = "Drop unused slots, or raise max_replication_slots and restart PostgreSQL."
        found.append(Finding("max_replication_slots", f"{facts.free_slots} free, need {needed}", mend))
    return found


def check_table(table: CatalogTable) -> list[Finding]:
    """Judge one table."""
    problems = [*_kind_problems(table), *_identity_problems(table)]
    if not table.readable:
        problems.append(("may not be read", f"Run GRANT SELECT ON {table.name} TO our role (and USAGE on its schema)."))
    return [Finding(f"table {table.name}", problem, mend) for problem, mend in problems]


_LEAVE_OUT = "leave it out with the setting tables"


def _kind_problems(table: CatalogTable) -> list[tuple[str, str]]:
    if table.partitioned or table.partition:
        return [("is partitioned, which this version does not follow", f"For now {_LEAVE_OUT}.")]
    return []


def _identity_problems(table: CatalogTable) -> list[tuple[str, str]]:
    identity = table.relation.replica_identity
    if identity == "f" or any(column.key for column in table.relation.columns):
        return []
    what = {"n": "nothing", "d": "without a primary key"}.get(identity, "its index is gone")
    mend = f"Give {table.name} a primary key, run ALTER TABLE {table.name} REPLICA IDENTITY FULL, or {_LEAVE_OUT}."
    return [(f"replica identity is '{identity}' ({what}), need a key or 'f' (full)", mend)]


def check_publication(publication: Publication, chosen: Iterable[CatalogTable]) -> list[Finding]:
    """Judge a publication that exists already, for the tables chosen."""
    name = f"publication {publication.name}"
    found = []
    if not publication.all_operations:
        mend = f"Run ALTER PUBLICATION {publication.name} SET (publish = 'insert, update, delete, truncate')."
        found.append(Finding(name, "does not publish all of insert, update, delete, truncate", mend))
    published = {table.name: table for table in publication.tables}
    for table in chosen:
        entry = published.get(table.name)
        if entry is None:
            continue
        columns = {column.name for column in table.relation.columns}
        partial = entry.column_names is not None and entry.column_names != columns
        if entry.row_filter or partial:
            what = "a row filter" if entry.row_filter else "only some columns, or generated ones"
            mend = f"Publish {table.name} whole, or {_LEAVE_OUT}."
            found.append(Finding(name, f"carries {table.name} with {what}, which this version does not follow", mend))
    return found


def check_ownership(facts: ServerFacts, tables: Iterable[CatalogTable], *, create: bool) -> list[Finding]:
    """Judge whether we may create the publication (`create`) and put these tables into it."""
    found = []
    if create and not facts.may_create:
        mend = (
            f'Run GRANT CREATE ON DATABASE "{facts.database}" TO "{facts.role}", or create the publication beforehand.'
        )
        found.append(Finding(f"role {facts.role}", f"may not create a publication in {facts.database}", mend))
    for name in not_owned(tables):
        mend = "Create the publication beforehand as the owner, or connect as the owner."
        found.append(Finding(f"table {name}", f"is not owned by {facts.role}, so it cannot be published", mend))
    return found


def not_owned(tables: Iterable[CatalogTable]) -> list[TableName]:
    """Name the tables that our role does not own."""
    return [table.name for table in tables if not table.owned]
