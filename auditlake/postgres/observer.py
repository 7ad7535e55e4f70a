"""The optional trigger that lets the server say who is connected: once in each transaction that writes.

A statement-level AFTER trigger on each table emits a logical message with prefix `auditlake:db`: session user, current
user, application name, client address and port, backend PID and transaction id. It fires for every statement and does
its work for the first one that wrote something. A setting local to the transaction remembers that; where a savepoint is
rolled back, the setting goes with the message, so the next statement says it again.

What it observes is true of the session, but a session that can write can also emit such a message itself.

Authority: postgresql.org/docs/current/functions-admin.html; sql-createtrigger.html
"""

from collections.abc import Iterable, Iterator

import psycopg
from psycopg import sql

from auditlake.postgres.connection import Row
from auditlake.relation import TableName

_FUNCTION = """create schema if not exists auditlake;

create or replace function auditlake.observe() returns trigger language plpgsql as $$
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


def statements(tables: Iterable[TableName]) -> Iterator[str]:
    """Give what installs the function and a trigger on each table; running it again changes nothing."""
    yield _FUNCTION
    for name in tables:
        yield _TRIGGER.format(sql.Identifier(*name)).as_string()


def install(conn: psycopg.Connection[Row], tables: Iterable[TableName]) -> None:
    """Install it, all of it or nothing. Each table is locked against writes for a moment."""
    with conn.transaction():
        for statement in statements(tables):
            conn.execute(statement.encode())
