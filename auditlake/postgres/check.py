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
from auditlake.postgres.followed import FollowedTable
from auditlake.postgres.publication import STORED_GENERATED_SINCE, Publication
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


def check_table(table: FollowedTable, major: int) -> list[Finding]:
    """Judge whether the changes of a table can be followed, on a server of version `major`."""
    problems = [*_identity_problems(table), *_partition_problems(table), *_publication_problems(table, major)]
    return [Finding(f"table {table.name}", problem, mend) for problem, mend in problems]


def check_access(table: FollowedTable) -> list[Finding]:
    """Judge whether a table can be copied: that others can does not depend on it."""
    problems = [problem for part in (table.table, *table.members) for problem in _access_problems(part)]
    return [Finding(f"table {table.name}", problem, mend) for problem, mend in problems]


def remarks_on(table: FollowedTable) -> list[str]:
    """Say what may make this table's history stop, or differ, later, and cannot be told now."""
    remarks = []
    if table.members:
        silent = "TRUNCATE of a single partition, ATTACH and DETACH of one that holds rows"
        remarks.append(f"{table.name} is partitioned: {silent} are not in the stream, and so not in its history")
    out_of_line = sorted(c.name for c in table.relation.columns if c.name in table.table.toastable and not c.key)
    if table.row_filter is not None and table.relation.replica_identity != _FULL and out_of_line:
        what = f"does not send unchanged large values of {', '.join(out_of_line)}, and would stop its history"
        remark = f"{table.name} is published with a row filter: an UPDATE that brings a row into it {what}"
        remarks.append(f"{remark}; REPLICA IDENTITY FULL would send them")
    return remarks


_LEAVE_OUT = "leave it out with the setting tables"
_FULL = "f"
_STORED_GENERATED_SINCE = STORED_GENERATED_SINCE // 10000


def _access_problems(part: CatalogTable) -> list[tuple[str, str]]:
    problems = []
    if not part.readable:
        problems.append(
            (f"{part.name} may not be read", f"Run GRANT SELECT ON {part.name} TO our role (and USAGE on its schema).")
        )
    if part.row_security:
        mend = "Connect as a role with BYPASSRLS, or as the owner where row security is not forced."
        problems.append((f"row security hides rows of {part.name} from our role", mend))
    return problems


def _identity_problems(table: FollowedTable) -> list[tuple[str, str]]:
    identity = table.relation.replica_identity
    if identity == _FULL or any(column.key for column in table.table.relation.columns):
        return []
    what = {"n": "nothing", "d": "without a primary key"}.get(identity, "its index is gone")
    mend = f"Give {table.name} a primary key, run ALTER TABLE {table.name} REPLICA IDENTITY FULL, or {_LEAVE_OUT}."
    return [(f"replica identity is '{identity}' ({what}), need a key or 'f' (full)", mend)]


def _partition_problems(table: FollowedTable) -> list[tuple[str, str]]:
    """What keeps partitions from sending the same as the table that they are published as."""
    problems = []
    whole = table.table.relation
    key = {column.name for column in whole.columns if column.key}
    for part in table.members:
        here = part.relation
        if not part.publishable:
            what = "foreign" if part.kind == "f" else "unlogged"
            problem = f"partition {part.name} is {what}, so its changes are not in the log"
            problems.append((problem, f"Detach it, or {_LEAVE_OUT}."))
        elif part.kind != "p" and (here.replica_identity, {c.name for c in here.columns if c.key}) != (
            whole.replica_identity,
            key,
        ):
            problem = (
                f"replica identity of partition {part.name} is '{here.replica_identity}', "
                f"of the table '{whole.replica_identity}', need the same key for both"
            )
            problems.append((problem, f"Run ALTER TABLE {part.name} REPLICA IDENTITY as for the table."))
    return problems


def _publication_problems(table: FollowedTable, major: int) -> list[tuple[str, str]]:
    """What the publication leaves out that UPDATE and DELETE need."""
    every = table.table.relation.columns
    published = {column.name for column in table.relation.columns}
    needed = {c.name for c in every if c.key}
    if table.relation.replica_identity == _FULL:
        generated = table.table.stored | table.table.virtual
        # Until 17 a FULL identity goes without generated columns; since 18 the server refuses the UPDATE.
        needed |= {c.name for c in every if major >= _STORED_GENERATED_SINCE or c.name not in generated}
    if missing := sorted(needed - published):
        mend = f"Publish them with {table.name}, choose a replica identity without them, or {_LEAVE_OUT}."
        return [(f"columns {', '.join(missing)} of its replica identity are not published", mend)]
    return []


def check_publication(publication: Publication) -> list[Finding]:
    """Judge a publication that exists already."""
    if publication.all_operations:
        return []
    mend = f"Run ALTER PUBLICATION {publication.name} SET (publish = 'insert, update, delete, truncate')."
    problem = "does not publish all of insert, update, delete, truncate"
    return [Finding(f"publication {publication.name}", problem, mend)]


def check_ownership(facts: ServerFacts, tables: Iterable[FollowedTable], *, create: bool) -> list[Finding]:
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


def not_owned(tables: Iterable[FollowedTable]) -> list[TableName]:
    """Name the tables that our role does not own."""
    return [table.name for table in tables if not table.table.owned]
