"""Preflight: find obstacles to a complete history, each with the command that removes it. Changes nothing.

`check_server` checks the server and the role, `check_table` one table, `check_publication` an existing publication.
Every finding is a sentence and the command to run; without findings bootstrap can start. Anything that this version
cannot follow exactly is a finding, not a warning.

Authority: postgresql.org/docs/current/logical-replication-restrictions.html; logicaldecoding-explanation.html
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import psycopg

from auditlake.errors import SourceAway, SourceRefuses, SourceUnreachable, SourceUnready
from auditlake.relation import Relation, ReplicaIdentity, TableName
from auditlake.source.catalog import CatalogTable, FollowedTable
from auditlake.source.connection import Row, connect_replication, fetch_one
from auditlake.source.publication import (
    STORED_GENERATED,
    STORED_GENERATED_SINCE,
    VIA_ROOT,
    Publication,
    adding_statement,
    creating_statement,
    read_failing,
)
from auditlake.sql_names import display_identifier, standard_identifier

_FIRST_VERSION, _LAST_VERSION = 14, 18
_SLOTS_NEEDED = 2
_NAMED = 3

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
       pg_catalog.current_database()::text,
       pg_catalog.current_setting('max_wal_senders')::int,
       (select count(*) from pg_catalog.pg_stat_get_wal_senders())
"""

_COMPLETE = (
    *("UTF8", "LATIN1", "LATIN2", "LATIN4", "LATIN5", "LATIN6", "LATIN7", "LATIN8", "LATIN9", "LATIN10"),
    *("ISO_8859_5", "KOI8R", "KOI8U", "WIN866", "WIN1256"),
)
"""Encodings in which each text that the server accepts has an equivalent in UTF-8."""
_RESTART = "-- then restart PostgreSQL"
_LEAVE_OUT = "leave it out with the setting tables"
_STORED_GENERATED_SINCE = STORED_GENERATED_SINCE // 10000
_UNUSABLE_IDENTITY = {
    ReplicaIdentity.NOTHING: "nothing",
    ReplicaIdentity.DEFAULT: "without a primary key",
    ReplicaIdentity.INDEX: "its index is gone",
}
_IDENTITIES = {ReplicaIdentity.FULL: "FULL", ReplicaIdentity.DEFAULT: "DEFAULT"}
_Problem = tuple[str, str, tuple[str, ...]]
"""A problem, its remedy in words, and the statements of the remedy."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An obstacle and its remedy: `fix` in words, `sql` if statements can do it."""

    object: str
    problem: str
    fix: str
    sql: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.object}: {self.problem}"


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts about a server and our role that the checks need."""

    major: int
    wal_level: str
    in_recovery: bool
    encoding: str
    may_replicate: bool
    free_slots: int
    role: str
    may_create: bool
    database: str
    wal_senders: int
    busy_wal_senders: int


def read_server_facts(conn: psycopg.Connection[Row]) -> ServerFacts:
    """Read the facts for `check_server`."""
    return ServerFacts(
        *cast("tuple[int, str, bool, str, bool, int, str, bool, str, int, int]", fetch_one(conn, _SERVER))
    )


def check_server(facts: ServerFacts, *, slot_exists: bool) -> list[Obstacle]:
    """Check the server and our role."""
    found = []
    if not _FIRST_VERSION <= facts.major <= _LAST_VERSION:
        supported = f"{_FIRST_VERSION} to {_LAST_VERSION} are supported"
        found.append(Obstacle("server", f"PostgreSQL {facts.major}, {supported}", "Use a supported server."))
    if facts.wal_level != "logical":
        fix = "Run ALTER SYSTEM SET wal_level = 'logical' and restart PostgreSQL."
        statement = f"ALTER SYSTEM SET wal_level = 'logical'; {_RESTART}"
        found.append(Obstacle("wal_level", f"is {facts.wal_level}, need logical", fix, (statement,)))
    if facts.in_recovery:
        found.append(Obstacle("server", "is a standby, need the primary", "Point source at the primary."))
    if facts.encoding == "SQL_ASCII":
        fix = "Dump and restore the database into one with a real encoding."
        found.append(Obstacle(f"database {facts.database}", "encoding SQL_ASCII has no defined text", fix))
    if not facts.may_replicate:
        statement = f"ALTER ROLE {standard_identifier(facts.role)} REPLICATION;"
        fix = f"Run {statement[:-1]} as a superuser."
        found.append(Obstacle(f"role {facts.role}", "lacks the replication privilege", fix, (statement,)))
    needed = _SLOTS_NEEDED - slot_exists
    if facts.free_slots < needed:
        fix = "Drop unused slots, or raise max_replication_slots and restart PostgreSQL."
        found.append(Obstacle("max_replication_slots", f"{facts.free_slots} free, need {needed}", fix))
    if facts.busy_wal_senders >= facts.wal_senders:
        fix = "Raise max_wal_senders and restart PostgreSQL, or stop a standby or subscription that is not needed."
        found.append(Obstacle("max_wal_senders", f"is {facts.wal_senders}, {facts.busy_wal_senders} in use", fix))
    return found


def advise_on_encoding(encoding: str, database: str) -> list[Obstacle]:
    """Return a warning if a client can store bytes that the server cannot send in UTF-8."""
    if encoding in (*_COMPLETE, "SQL_ASCII"):  # `check_server` refuses the latter
        return []
    problem = f"encoding {encoding} lets a client store bytes that it does not assign; a row with them ends capture"
    fix = "Let only clients write that convert from UTF-8, or dump and restore it into a database in UTF8."
    return [Obstacle(f"database {database}", problem, fix)]


def check_replication(conninfo: str) -> list[Obstacle]:
    """Open and check a replication connection, as capture will; raises SourceUnreachable if a retry may succeed."""
    try:
        connect_replication(conninfo).close()
    except (SourceUnreachable, SourceUnready) as exc:
        if isinstance(exc, SourceAway) and not isinstance(exc, SourceRefuses):
            raise
        return [Obstacle("replication connection", exc.message, exc.hint or "")]
    return []


def check_table(table: FollowedTable, major: int) -> list[Obstacle]:
    """Check that the changes of a table can be followed on a server of version `major`."""
    problems = [*_identity_problems(table), *_partition_problems(table), *_publication_problems(table, major)]
    return [Obstacle(f"table {table.name}", *problem) for problem in problems]


def check_access(table: FollowedTable, role: str) -> list[Obstacle]:
    """Check that our role may copy a table. Other tables can be copied regardless."""
    return [
        Obstacle(f"table {table.name}", problem, fix, statements)
        for part in (table.table, *table.members)
        for problem, fix, statements in _access_problems(part, role)
    ]


def find_failing(conn: psycopg.Connection[Row]) -> list[Obstacle]:
    """Find tables on which UPDATE and DELETE already fail: they are published without a replica identity."""
    return [
        Obstacle(
            f"table {name}",
            f"UPDATE and DELETE fail already: publication {publication} publishes them without a replica identity",
            f"Give it a primary key, or run {_with_identity(name)[:-1]}.",
            (_with_identity(name),),
        )
        for name, publication in read_failing(conn)
    ]


def fixing_sql(found: Iterable[Obstacle]) -> list[str]:
    """Return the statements of all findings, each once and in order, then the restart as a comment."""
    statements = list(dict.fromkeys(statement for finding in found for statement in finding.sql))
    plain = [statement.removesuffix(_RESTART).rstrip() for statement in statements]
    return [*plain, *([_RESTART] if plain != statements else [])]


def _with_identity(name: TableName, identity: str = "FULL") -> str:
    return f"ALTER TABLE {standard_identifier(*name)} REPLICA IDENTITY {identity};"


def remarks_on(table: FollowedTable) -> list[str]:
    """Describe what may later stop this table's history or make it differ, and cannot be checked now."""
    remarks = []
    if table.members:
        silent = "TRUNCATE of a single partition, ATTACH and DETACH of one that holds rows are not in the stream"
        remarks.append(f"{table.name} is partitioned: {silent}; after one, a running follow takes a new snapshot")
    out_of_line = sorted(c.name for c in table.relation.columns if c.name in table.table.toastable and not c.key)
    if table.row_filter is not None and table.relation.replica_identity != ReplicaIdentity.FULL and out_of_line:
        what = f"does not send unchanged large values of {', '.join(out_of_line)}, and would stop its history"
        remark = f"{table.name} is published with a row filter: an UPDATE that brings a row into it {what}"
        remarks.append(f"{remark}; REPLICA IDENTITY FULL would send them")
    return remarks


def _access_problems(part: CatalogTable, role: str) -> list[_Problem]:
    problems: list[_Problem] = []
    if not part.readable:
        fix = (
            f"Run GRANT SELECT ON {part.name} TO {display_identifier(role)} (and USAGE on its schema);"
            " ALTER DEFAULT PRIVILEGES grants it for tables that are created later."
        )
        grants = (
            f"GRANT USAGE ON SCHEMA {standard_identifier(part.name.schema)} TO {standard_identifier(role)};",
            f"GRANT SELECT ON TABLE {standard_identifier(*part.name)} TO {standard_identifier(role)};",
        )
        problems.append((f"{part.name} may not be read", fix, grants))
    if part.row_security:
        statement = f"ALTER ROLE {standard_identifier(role)} BYPASSRLS;"
        fix = f"Run {statement[:-1]} as a superuser, or connect as the owner where row security is not forced."
        problems.append((f"row security hides rows of {part.name} from {role}", fix, (statement,)))
    return problems


def _identity_problems(table: FollowedTable) -> list[_Problem]:
    """Return why old rows lack a key: the table has none, or a partition has another replica identity."""
    identity = table.relation.replica_identity
    if identity == ReplicaIdentity.FULL or any(column.key for column in table.table.relation.columns):
        return [*_differing_identities(table)]
    what = _UNUSABLE_IDENTITY[identity]
    too = ", also of its partitions," if table.members else ","
    fix = f"Give {table.name} a primary key, run ALTER TABLE {table.name} REPLICA IDENTITY FULL{too} or {_LEAVE_OUT}."
    parts = [part.name for part in table.members if part.kind != "f"]  # ALTER TABLE of a root does not change them
    problem = f"replica identity is '{identity}' ({what}), need a key or 'f' (full)"
    return [(problem, fix, tuple(map(_with_identity, [table.name, *parts])))]


def _differing_identities(table: FollowedTable) -> Iterator[_Problem]:
    whole = table.table.relation
    for part in table.members:
        here = part.relation
        if part.publishable and part.kind != "p" and _identity(here) != _identity(whole):
            problem = (
                f"replica identity of partition {part.name} is '{here.replica_identity}', "
                f"of the table '{whole.replica_identity}', need the same key for both"
            )
            yield problem, *_same_identity(part.name, whole.replica_identity)


def _partition_problems(table: FollowedTable) -> list[_Problem]:
    """Return which partitions have no changes in the log."""
    silent = [
        (part.name, "foreign" if part.kind == "f" else "unlogged") for part in table.members if not part.publishable
    ]
    return [
        (f"partition {name} is {what}, so its changes are not in the log", f"Detach it, or {_LEAVE_OUT}.", ())
        for name, what in silent
    ]


def _same_identity(part: TableName, identity: ReplicaIdentity) -> tuple[str, tuple[str, ...]]:
    """Return how to give a partition the replica identity of its root, in words and as a statement."""
    if (name := _IDENTITIES.get(identity)) is None:
        return f"Run ALTER TABLE {part} REPLICA IDENTITY USING INDEX, with the index of the same columns.", ()
    statement = _with_identity(part, name)
    return f"Run {statement[:-1]}.", (statement,)


def _identity(relation: Relation) -> tuple[ReplicaIdentity, frozenset[str]]:
    """Return the replica identity and its key; FULL needs none, because old rows are logged whole."""
    full = relation.replica_identity == ReplicaIdentity.FULL
    return relation.replica_identity, frozenset(c.name for c in relation.columns if c.key and not full)


def _publication_problems(table: FollowedTable, major: int) -> list[_Problem]:
    """Return columns that UPDATE and DELETE need and that are not published."""
    every = table.table.relation.columns
    published = {column.name for column in table.relation.columns}
    needed = {c.name for c in every if c.key}
    if table.relation.replica_identity == ReplicaIdentity.FULL:
        generated = table.table.stored | table.table.virtual
        # Up to 17 a FULL identity excludes unpublished generated columns; since 18 the server refuses the UPDATE.
        needed |= {c.name for c in every if major >= _STORED_GENERATED_SINCE or c.name not in generated}
    if missing := sorted(needed - published):
        fix = f"Publish them with {table.name}, choose a replica identity without them, or {_LEAVE_OUT}."
        return [(f"columns {', '.join(missing)} of its replica identity are not published", fix, ())]
    return []


def check_publication(publication: Publication) -> list[Obstacle]:
    """Judge a publication that exists already."""
    if publication.all_operations:
        return []
    fix = f"Run ALTER PUBLICATION {publication.name} SET (publish = 'insert, update, delete, truncate')."
    problem = "does not publish all of insert, update, delete, truncate"
    operations = "'insert, update, delete, truncate'"
    statement = f"ALTER PUBLICATION {standard_identifier(publication.name)} SET (publish = {operations});"
    return [Obstacle(f"publication {publication.name}", problem, fix, (statement,))]


def advise_on_publication(publication: Publication, tables: Sequence[FollowedTable], major: int) -> list[Obstacle]:
    """Find options of an existing publication by which a history would have fewer columns, or others tables.

    The history is exact without them, so they are no obstacles. Advise before the first copy only: later, a change of
    an option parks tables.
    """
    found = []
    missing = sorted(
        f"{column} of {table.name}"
        for table in tables
        for column in table.table.stored - {column.name for column in table.relation.columns}
    )
    if missing and major >= _STORED_GENERATED_SINCE and not publication.stored_generated:
        problem = f"does not publish stored generated columns, so the history will lack {_some(missing)}"
        found.append(_option(publication, problem, STORED_GENERATED))
    leaves = [str(table.name) for table in tables if table.table.ancestors]
    if leaves and not publication.via_root:
        problem = f"publishes partitions by their own names, so {_some(leaves)} will have histories of their own"
        found.append(_option(publication, problem, VIA_ROOT))
    return found


def advise_on_owner(publication: Publication, owner: str | None, others: Sequence[TableName]) -> list[Obstacle]:
    """Warn of a publication whose owner is not trusted: that role decides what is followed, and can stop capture."""
    if owner is None:
        return []
    lacks = f"; it lacks {_some([str(name) for name in others])}" if others else ""
    problem = f"belongs to role {owner}, which may change at any time what is published{lacks}"
    statement = f"ALTER PUBLICATION {standard_identifier(publication.name)} OWNER TO CURRENT_USER;"
    fix = f"Unless you want that, run {statement[:-1]} as a superuser, and add the tables that are to be followed."
    return [Obstacle(f"publication {publication.name}", problem, fix, (statement,))]


def _option(publication: Publication, problem: str, option: str) -> Obstacle:
    statement = f"ALTER PUBLICATION {standard_identifier(publication.name)} SET ({option});"
    fix = f"Run {statement[:-1]} before auditlake bootstrap, unless you want that."
    return Obstacle(f"publication {publication.name}", problem, fix, (statement,))


def _some(names: Sequence[str]) -> str:
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return ", ".join([*names[:_NAMED], *more])


def check_creation(facts: ServerFacts, tables: Sequence[FollowedTable], name: str) -> list[Obstacle]:
    """Judge whether we may create the publication of these tables. If not, its owner has to."""
    others = not_owned(tables)
    if facts.may_create and not others:
        return []
    if not others:
        database, role = map(standard_identifier, (facts.database, facts.role))
        statement = f"GRANT CREATE ON DATABASE {database} TO {role};"
        fix = f"Run {statement[:-1]}, or create the publication beforehand."
        problem = f"may not create publication {name} in {facts.database}"
        return [Obstacle(f"role {facts.role}", problem, fix, (statement,))]
    stored = facts.major >= _STORED_GENERATED_SINCE
    statement = creating_statement(name, [table.name for table in tables], stored=stored).as_string()
    problem = f"does not own {_some([str(other) for other in others])}, so it may not create publication {name}"
    fix = f"Create publication {name} beforehand, as the owner of the tables or a superuser."
    return [Obstacle(f"role {facts.role}", problem, fix, (f"{statement};",))]


def check_ownership(facts: ServerFacts, tables: Iterable[FollowedTable], name: str) -> list[Obstacle]:
    """Judge whether we may put these tables into the publication."""
    found = []
    for other in not_owned(tables):
        statement = adding_statement(name, [other]).as_string()
        problem = f"is not in publication {name}, and {facts.role} does not own it, so it cannot add it"
        fix = f"Run {statement} as its owner, or {_LEAVE_OUT}."
        found.append(Obstacle(f"table {other}", problem, fix, (f"{statement};",)))
    return found


def not_owned(tables: Iterable[FollowedTable]) -> list[TableName]:
    """Name the tables that our role does not own."""
    return [table.name for table in tables if not table.table.owned]
