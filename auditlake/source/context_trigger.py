"""Context trigger (optional): records session and role of each transaction that writes, as observed by the server.

A statement-level AFTER trigger on each table emits a logical message with prefix `auditlake:db`: session user, current
user, application name, client address and port, backend PID and transaction id. It fires for every statement, but emits
the message only for the first one of a transaction that has an xid. A transaction-local setting records that; rolling
back a savepoint reverts the setting together with the message, so the next statement emits it again.

The trigger reports the session's true values, but a session that can write can also emit such a message itself.

Authority: postgresql.org/docs/current/functions-admin.html; sql-createtrigger.html
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from auditlake.errors import SourceUnready
from auditlake.relation import TableName
from auditlake.source.connection import Row, fetch, fetch_one, refused_by_functions, replacing_ours
from auditlake.source.lock_waits import AGAINST_PUBLISHING, name_blockers, unlimit_waits
from auditlake.sql_names import display_identifier

_FUNCTION = """create or replace function auditlake.observe() returns trigger language plpgsql as $$
declare
  transaction text := pg_catalog.pg_current_xact_id_if_assigned();
begin
  if transaction is null or pg_catalog.current_setting('auditlake.observed', true) = transaction then
    return null;
  end if;
  perform pg_catalog.set_config('auditlake.observed', transaction, true);
  perform pg_catalog.pg_logical_emit_message(true, 'auditlake:db', pg_catalog.json_build_object(
    'session_user', session_user,
    'current_user', current_user,
    'application_name', pg_catalog.current_setting('application_name'),
    'client_addr', pg_catalog.host(pg_catalog.inet_client_addr()),
    'client_port', pg_catalog.inet_client_port(),
    'backend_pid', pg_catalog.pg_backend_pid(),
    'transaction', transaction)::text);
  return null;
end $$;"""

_TRIGGER = sql.SQL("""create or replace trigger auditlake_observe
  after insert or update or delete or truncate on {}
  for each statement execute function auditlake.observe();""")


_INSTALLED = """
select n.nspname::text, c.relname::text
  from pg_catalog.pg_trigger t
  join pg_catalog.pg_class c on c.oid = t.tgrelid
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where t.tgname = 'auditlake_observe' and t.tgenabled <> 'D'
   and t.tgfoid in (select p.oid from pg_catalog.pg_proc p join pg_catalog.pg_namespace s on s.oid = p.pronamespace
                     where s.nspname = 'auditlake' and p.proname = 'observe' and p.pronargs = 0)
"""
# It runs as whoever writes: a superuser does not leave it to a role that could change what it does.
_OWN_FUNCTION = "alter function auditlake.observe() owner to current_user;"
_FUNCTION_RIGHTS = """
select current_user::text, pg_catalog.current_database()::text,
       (select rolsuper from pg_catalog.pg_roles where rolname = current_user),
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'create'),
       (select pg_catalog.has_schema_privilege(n.oid, 'create') and pg_catalog.has_schema_privilege(n.oid, 'usage')
          from pg_catalog.pg_namespace n where n.nspname = 'auditlake'),
       (select p.proowner::regrole::text
          from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
         where n.nspname = 'auditlake' and p.proname = 'observe' and p.pronargs = 0
           and not pg_catalog.pg_has_role(p.proowner, 'usage'))
"""
# CREATE TRIGGER takes SHARE ROW EXCLUSIVE. As long as it waits for that, every writer of the table waits behind it.
_LOCK_TIMEOUT_MS = 500
_CONFLICTING = ("RowExclusiveLock", *AGAINST_PUBLISHING)


@dataclass(frozen=True, slots=True)
class Installed:
    """Tables that got the trigger, those that had it, and why others were skipped."""

    new: tuple[TableName, ...]
    already: tuple[TableName, ...]
    skipped: Mapping[TableName, str]


def context_trigger_statements(tables: Iterable[TableName]) -> Iterator[str]:
    """Yield the SQL that installs the function and a trigger on each table; running it again changes nothing."""
    yield f"set lock_timeout = '{_LOCK_TIMEOUT_MS}ms'; -- writers of a table wait as long as its trigger does"
    yield "create schema if not exists auditlake;"
    yield from ("begin;", _FUNCTION, _OWN_FUNCTION, "commit;")
    for name in tables:
        yield _TRIGGER.format(sql.Identifier(*name)).as_string()
    yield "reset lock_timeout;"


def install_context_trigger(conn: psycopg.Connection[Row], tables: Sequence[TableName]) -> Installed:
    """Install function and triggers, each in a transaction of its own; `conn` is in autocommit mode.

    A table that stays locked, or that our role may not put a trigger on, is skipped.

    Raises SourceUnready if our role may not create the function, or an event trigger forbids it.
    """
    needs_schema, is_superuser = _require_function_rights(conn)
    with refused_by_functions(), replacing_ours("the context trigger"):
        if needs_schema:
            conn.execute("create schema if not exists auditlake")
        with conn.transaction():
            conn.execute(_FUNCTION.encode())
            if is_superuser:
                conn.execute(_OWN_FUNCTION)
    have = {TableName(str(schema), str(table)) for schema, table in fetch(conn, _INSTALLED)}
    missing = [name for name in tables if name not in have]
    skipped = {name: reason for name in missing if (reason := _install_on(conn, name))}
    new = tuple(name for name in missing if name not in skipped)
    return Installed(new, tuple(name for name in tables if name in have), skipped)


def _require_function_rights(conn: psycopg.Connection[Row]) -> tuple[bool, bool]:
    """Check that our role may create the function; return whether its schema is missing, and we are a superuser.

    IF NOT EXISTS would need the privilege to create a schema even for one that exists.
    """
    given, database, is_superuser, may_create_schema, may_use_schema, owner = fetch_one(conn, _FUNCTION_RIGHTS)
    role = display_identifier(str(given))
    if owner is not None:
        raise SourceUnready(
            f"role {role} may not replace function auditlake.observe(), which {owner} owns",
            f"Run the same command as {owner}, or grant that role: GRANT {display_identifier(str(owner))} TO {role}.",
        )
    if may_use_schema is None and not may_create_schema:
        raise SourceUnready(
            f"role {role} may not create schema auditlake in database {database}",
            f"Run GRANT CREATE ON DATABASE {display_identifier(str(database))} TO {role}.",
        )
    if may_use_schema is False:
        raise SourceUnready(
            f"role {role} may not create a function in schema auditlake",
            f"Run GRANT CREATE, USAGE ON SCHEMA auditlake TO {role}.",
        )
    return may_use_schema is None, bool(is_superuser)


def _install_on(conn: psycopg.Connection[Row], name: TableName) -> str | None:
    """Install the trigger on one table; return why it was skipped."""
    try:
        conn.execute(f"set lock_timeout = '{_LOCK_TIMEOUT_MS}ms'".encode())
        with refused_by_functions():
            conn.execute(_TRIGGER.format(sql.Identifier(*name)))
    except psycopg.errors.LockNotAvailable:
        return f"locked by {name_blockers(conn, [name], _CONFLICTING) or 'a session that has ended'}"
    except psycopg.errors.InsufficientPrivilege:
        role = display_identifier(conn.info.user)
        return f"our role lacks the privilege TRIGGER on it: GRANT TRIGGER ON {name} TO {role}"
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return "it was dropped or renamed meanwhile"
    except psycopg.errors.DuplicateObject as exc:
        return f"another one is in the way: {exc.diag.message_primary}"
    finally:
        unlimit_waits(conn)
    return None
