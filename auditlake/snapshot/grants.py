"""Grants: the least privileges that a role needs on the source, for each command that connects to it.

What a server grants to PUBLIC by default is named only if this one has revoked it. The publication is not among them:
its owner, or the owner of the tables, creates it (`auditlake check` prints how). `apply`, `maintain`, questions, the
page and backups do not connect.

Authority: postgresql.org/docs/current/logical-replication-security.html; auth-pg-hba-conf.html, which says that the
keyword `replication` does not match logical replication: such a connection names its database
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

import psycopg

from auditlake.relation import TableName
from auditlake.snapshot.plan import CopyPlan
from auditlake.source.connection import Row, fetch, fetch_one
from auditlake.sql_names import standard_identifier


class Need(StrEnum):
    """What a command does on the source beyond reading its catalog."""

    STREAM = "reads a slot"
    ROWS = "reads rows of tables"
    BEAT = "commits heartbeats"


COMMANDS: dict[str, frozenset[Need]] = {
    "follow": frozenset({Need.STREAM, Need.ROWS, Need.BEAT}),
    "bootstrap": frozenset({Need.STREAM, Need.ROWS}),
    "capture": frozenset({Need.STREAM, Need.BEAT}),
    "resync": frozenset({Need.STREAM, Need.ROWS}),
    "verify": frozenset({Need.STREAM, Need.ROWS}),
    "drop": frozenset({Need.STREAM}),
    "status": frozenset(),
}
"""The needs of each command that connects; `follow` copies new tables, and needs as much as all of them."""

_SERVER = """
select pg_catalog.current_database()::text,
       coalesce(host(pg_catalog.inet_client_addr()), ''),
       exists (select from pg_catalog.pg_roles where rolname = %s),
       exists (select from pg_catalog.pg_roles where rolname = 'rds_replication'),
       pg_catalog.current_setting('server_version_num')::int,
       pg_catalog.current_setting('ssl') = 'on'
"""
_OWNERS = """
select distinct n.nspname::text, pg_catalog.pg_get_userbyid(c.relowner)::text
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where (n.nspname::text, c.relname::text) in (select * from unnest(%s::text[], %s::text[]))
 order by 1, 2
"""
_UNDER_POLICIES = """
select count(*) > 0
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  left join pg_catalog.pg_roles r on r.rolname = %s
 where (n.nspname::text, c.relname::text) in (select * from unnest(%s::text[], %s::text[])) and c.relrowsecurity
   and (c.relforcerowsecurity or not coalesce(pg_catalog.pg_has_role(r.oid, c.relowner, 'usage'), false))
"""
_REVOKED = """
select f from unnest(%s::text[]) f where not pg_catalog.has_function_privilege('public', f, 'execute')
"""
_LAST_BOOLEAN_SINCE = 170000
"""From 17 on pg_logical_emit_message has a fourth argument."""
_IDENTITY = (
    "pg_catalog.pg_control_system()",
    "pg_catalog.pg_current_wal_lsn()",
    "pg_catalog.pg_current_wal_insert_lsn()",
    "pg_catalog.pg_walfile_name(pg_lsn)",
)


@dataclass(frozen=True, slots=True)
class _Server:
    database: str
    client: str
    role_exists: bool
    is_rds: bool
    version_num: int
    has_tls: bool


def grants(conn: psycopg.Connection[Row], plan: CopyPlan, command: str, role: str) -> list[str]:
    """Return the statements that make `role` one for this command, with the line of pg_hba.conf as a comment."""
    server = _Server(*cast("tuple[str, str, bool, bool, int, bool]", fetch_one(conn, _SERVER, role)))
    needs, name = COMMANDS[command], standard_identifier(role)
    parts = list(dict.fromkeys(part for table in plan.chosen for part in table.locked))
    bypassing = Need.ROWS in needs and _has_policies(conn, parts, role)
    return [
        *_role(server, needs, name, " BYPASSRLS" if bypassing else ""),
        f"GRANT CONNECT ON DATABASE {standard_identifier(server.database)} TO {name};",
        *(_rows(conn, parts, name) if Need.ROWS in needs else ()),
        *(f"GRANT EXECUTE ON FUNCTION {function} TO {name};" for function in _revoked(conn, server, needs)),
        *_access(server, name),
    ]


def _has_policies(conn: psycopg.Connection[Row], tables: Sequence[TableName], role: str) -> bool:
    """Return whether row security hides rows of a table from a role that does not bypass it, whatever its policies."""
    schemas, names = [table.schema for table in tables], [table.table for table in tables]
    return bool(*fetch_one(conn, _UNDER_POLICIES, role, schemas, names))


def _role(server: _Server, needs: frozenset[Need], name: str, bypassing: str) -> Iterator[str]:
    verb = "ALTER" if server.role_exists else "CREATE"
    replicating = " REPLICATION" if Need.STREAM in needs and not server.is_rds else ""
    yield f"{verb} ROLE {name} LOGIN{replicating}{bypassing};"
    if Need.STREAM in needs and server.is_rds:
        yield f"GRANT rds_replication TO {name};"


def _rows(conn: psycopg.Connection[Row], tables: Sequence[TableName], name: str) -> Iterator[str]:
    """Yield what lets the role copy these tables, and those that their owners create later in the same schemas."""
    schemas, names = [table.schema for table in tables], [table.table for table in tables]
    owners = [(str(schema), str(owner)) for schema, owner in fetch(conn, _OWNERS, schemas, names)]
    for schema in dict.fromkeys(schemas):
        yield f"GRANT USAGE ON SCHEMA {standard_identifier(schema)} TO {name};"
    for table in tables:
        yield f"GRANT SELECT ON TABLE {standard_identifier(*table)} TO {name};"
    for schema, owner in owners:
        yield (
            f"ALTER DEFAULT PRIVILEGES FOR ROLE {standard_identifier(owner)} IN SCHEMA {standard_identifier(schema)} "
            f"GRANT SELECT ON TABLES TO {name};"
        )


def _revoked(conn: psycopg.Connection[Row], server: _Server, needs: Iterable[Need]) -> list[str]:
    """Return the functions that the command calls and that PUBLIC may not execute here."""
    last = ", boolean" if server.version_num >= _LAST_BOOLEAN_SINCE else ""
    beat = f"pg_catalog.pg_logical_emit_message(boolean, text, text{last})"
    called = [*_IDENTITY, *([beat] if Need.BEAT in needs else [])]
    return [str(function) for (function,) in fetch(conn, _REVOKED, called)]


def _access(server: _Server, name: str) -> Iterator[str]:
    kind = "hostssl" if server.has_tls else "host"
    length = 128 if ":" in server.client else 32
    client = f"{server.client}/{length}" if server.client else "ADDRESS/32"
    database = standard_identifier(server.database)
    yield "-- pg_hba.conf; the same line is that of the replication connection, which names its database:"
    yield f"-- {kind} {database} {name} {client} scram-sha-256"
