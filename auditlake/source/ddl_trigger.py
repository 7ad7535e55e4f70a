"""DDL event triggers (optional): send the shape of every changed table into the stream, in its transaction.

The stream shows a schema change only with the table's next row, and some never. Three event triggers, which need no
extension, send one transactional logical message with prefix `auditlake:ddl` per command:

1. `table_rewrite` and `sql_drop` fire during the command. Only they know what is rewritten and dropped, so they save
   that in a transaction-local setting. A rollback, also of a savepoint, reverts the setting.
2. `ddl_command_end` reads the catalog, adds what the other two saved, and sends the message.

The content is JSON, described in `pgoutput.ddl_message`. Temporary and system objects are left out, and a command that
changes neither a table nor a type sends nothing.

The triggers never fail the application's command. All statements are inside an exception block; the worst result is a
WARNING that names the SQLSTATE, and then capture finds the change in the catalog. Only a cancelled or timed-out
statement is not caught, and that one fails anyway. They read catalogs through indexes, call no function that locks a
table, and wait for nothing.

They fire ALWAYS, also under session_replication_role = replica. With event_triggers = off (17) PostgreSQL runs none.

Authority: postgresql.org/docs/current/event-trigger-definition.html; functions-event-triggers.html
"""

import hashlib
from dataclasses import dataclass
from typing import cast

import psycopg

from auditlake.errors import SourceUnready
from auditlake.pgoutput.ddl_message import PREFIX
from auditlake.source.catalog import SHAPE
from auditlake.source.connection import PINNED, Row, fetch_one
from auditlake.sql_names import display_identifier

# The settings of our own connections, by which PostgreSQL renders missing values as it renders rows in the stream.
_SETTINGS = (
    "datestyle", "intervalstyle", "timezone", "bytea_output", "extra_float_digits", "lc_monetary",
    "quote_all_identifiers",
)  # fmt: skip
_RENDERING = " ".join(f"set {name} = '{PINNED[name]}'" for name in _SETTINGS)
# SECURITY DEFINER, so that a role without USAGE on this schema or EXECUTE on pg_logical_emit_message is recorded, too.
_FUNCTION = rf"""create or replace function auditlake.record_ddl() returns event_trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set jit = off
{_RENDERING} as $$
declare
  pending jsonb;
  tables oid[];
  types oid[];
  tree oid[];
  message jsonb;
begin
  pending := coalesce(nullif(current_setting('auditlake.ddl', true), ''), '{{}}');
  if tg_event = 'table_rewrite' then
    if (select relpersistence <> 't' from pg_class where oid = pg_event_trigger_table_rewrite_oid()) then
      perform set_config('auditlake.ddl', jsonb_set(pending, '{{rewritten}}', coalesce(pending -> 'rewritten', '[]')
        || jsonb_build_array(jsonb_build_array(pg_event_trigger_table_rewrite_oid()::bigint,
                                               pg_event_trigger_table_rewrite_reason())))::text, true);
    end if;
    return;
  elsif tg_event = 'sql_drop' then
    message := (
      select jsonb_agg(jsonb_build_array(d.object_type, d.objid::bigint, d.objsubid, to_jsonb(d.address_names)))
        from pg_event_trigger_dropped_objects() d
       where d.object_type in ('table', 'table column') and not d.is_temporary);
    if message is not null then
      perform set_config('auditlake.ddl', jsonb_set(pending, '{{dropped}}', coalesce(pending -> 'dropped', '[]')
        || message)::text, true);
    end if;
    return;
  end if;

  if pending <> '{{}}' then
    perform set_config('auditlake.ddl', '', true);
  end if;
  select array_agg(c.objid) filter (where c.classid = 'pg_class'::regclass),
         array_agg(c.objid) filter (where c.classid = 'pg_type'::regclass)
    into tables, types
    from pg_event_trigger_ddl_commands() c
   where c.objid is not null and c.command_tag not in ('GRANT', 'REVOKE', 'COMMENT', 'SECURITY LABEL');
  if tg_tag = 'ALTER SCHEMA' then
    tables := array(
      select t.oid from pg_class t
       where t.relkind in ('r', 'p')
         and t.relnamespace in (select c.objid from pg_event_trigger_ddl_commands() c
                                 where c.classid = 'pg_namespace'::regclass));
  end if;
  -- ALTER TYPE of a composite type reports its relation.
  types := types || array(select t.reltype from pg_class t where t.oid = any (tables) and t.relkind = 'c');
  if exists (select from pg_type where oid = any (types) and typtype = 'c') then
    tables := tables || array(select t.oid from pg_class t where t.reloftype = any (types));
  end if;
  if tables is null and types is null and pending = '{{}}' then
    return;
  end if;
  tables := tables || array(select (d ->> 1)::oid from jsonb_array_elements(pending -> 'dropped') d)
                   || array(select (r ->> 0)::oid from jsonb_array_elements(pending -> 'rewritten') r);
  tree := array(
    with recursive members (oid) as (
      select t.oid from pg_class t
       where t.oid = any (tables) and t.relkind in ('r', 'p') and t.relpersistence <> 't'
         and t.relnamespace not in ('pg_catalog'::regnamespace, 'pg_toast'::regnamespace)
         and t.relnamespace <> coalesce(to_regnamespace('information_schema')::oid, 0)
      union
      select i.inhrelid from members m join pg_inherits i on i.inhparent = m.oid)
    select oid from members);

  message := pending || jsonb_strip_nulls(jsonb_build_object(
    'relations', (
      select jsonb_agg({SHAPE} order by t.oid)
        from pg_class t join pg_namespace n on n.oid = t.relnamespace
       where t.oid = any (tree)),
    'types', (
      select jsonb_agg(jsonb_build_object(
          'oid', y.oid::bigint, 'array', y.typarray::bigint, 'schema', n.nspname, 'name', y.typname, 'kind', y.typtype,
          'base', nullif(y.typbasetype, 0)::bigint,
          'labels', (select jsonb_agg(e.enumlabel order by e.enumsortorder) from pg_enum e where e.enumtypid = y.oid),
          'attributes', (select jsonb_agg(jsonb_build_array(a.attnum, a.attname, a.atttypid::bigint, a.atttypmod)
                                          order by a.attnum)
                           from pg_attribute a
                          where a.attrelid = nullif(y.typrelid, 0) and a.attnum > 0 and not a.attisdropped)))
        from pg_type y join pg_namespace n on n.oid = y.typnamespace
       where y.oid = any (types))));
  if message <> '{{}}' then
    -- The stream does not convert messages.
    perform pg_logical_emit_message(true, '{PREFIX}', convert_to((message || jsonb_build_object(
      'v', 2, 'tag', tg_tag, 'session_user', session_user,
      'plain', current_query() ~* '^\s*alter\s+table\s[^;]*;?\s*$' and current_query() !~* '\musing\M'))::text,
      'UTF8'));
    -- Decoding orders a message by the end of its WAL record, a row by the start: if they are adjacent and in
    -- different subtransactions, the row may come first. This record, which belongs to no transaction, separates them.
    perform pg_logical_emit_message(false, '{PREFIX}', '');
  end if;
exception when others then
  raise warning 'auditlake could not record this command in the stream (SQLSTATE %)', sqlstate;
  begin
    perform pg_logical_emit_message(true, '{PREFIX}', '{{"failed": true}}');
  exception when others then
    null;
  end;
end $$;"""

_EVENTS = ("table_rewrite", "sql_drop", "ddl_command_end")
_TRIGGERS = {event: f"auditlake_{event}" for event in _EVENTS}

# A function that was replaced or altered, or whose owner may not send messages, reports nothing.
_BODY_MD5 = hashlib.md5(_FUNCTION.split("$$")[1].encode(), usedforsecurity=False).hexdigest()
_INSTALLED = """
select array(select t.evtname::text from pg_catalog.pg_event_trigger t
              where t.evtfoid = pg_catalog.to_regprocedure('auditlake.record_ddl()') and t.evtenabled = 'A'),
       array(select t.evtname::text from pg_catalog.pg_event_trigger t
              where t.evtfoid = pg_catalog.to_regprocedure('auditlake.record_ddl()') and t.evtenabled <> 'A'),
       pg_catalog.current_setting('event_triggers', true),
       (select pg_catalog.md5(p.prosrc) = %s and 'search_path=pg_catalog, pg_temp' = any (p.proconfig)
               and (select bool_and(pg_catalog.has_function_privilege(p.proowner, f.oid, 'execute'))
                      from pg_catalog.pg_proc f where f.proname = 'pg_logical_emit_message')
          from pg_catalog.pg_proc p where p.oid = pg_catalog.to_regprocedure('auditlake.record_ddl()'))
"""
_RIGHTS = """
select current_user::text, pg_catalog.current_database()::text,
       (select rolsuper from pg_catalog.pg_roles where rolname = current_user),
       (select p.proowner::regrole::text from pg_catalog.pg_proc p
         where p.oid = pg_catalog.to_regprocedure('auditlake.record_ddl()')
           and not pg_catalog.pg_has_role(p.proowner, 'usage')),
       pg_catalog.to_regnamespace('auditlake') is not null
"""
_LOCK_TIMEOUT_MS = 2000


@dataclass(frozen=True, slots=True)
class DdlTrigger:
    """State of the event triggers: those that fire always and report, the others, and whether the server fires any."""

    active: frozenset[str]
    inactive: frozenset[str]
    server_fires: bool

    @property
    def exists(self) -> bool:
        """Whether any of the event triggers exists."""
        return bool(self.active or self.inactive)

    @property
    def installed(self) -> bool:
        """Whether all three exist and fire always."""
        return self.active >= set(_TRIGGERS.values())

    @property
    def records(self) -> bool:
        """Whether schema changes are sent now."""
        return self.installed and self.server_fires

    @property
    def state(self) -> str:
        """Return `installed`, `off` (event_triggers), `disabled` (or incomplete) or `none`."""
        if self.installed:
            return "installed" if self.server_fires else "off"
        return "disabled" if self.exists else "none"

    @property
    def sentence(self) -> str:
        """Describe the state in a sentence."""
        if self.records:
            return "the DDL trigger is installed: schema changes are known exactly"
        if self.installed:
            return "the DDL trigger is installed, but event_triggers is off: schema changes are read from the catalog"
        if self.exists:
            wrong = "disabled or incomplete, or of another release"
            return f"the DDL trigger is {wrong}: auditlake check --install-ddl-trigger --yes installs it"
        return "the DDL trigger is not installed: schema changes are read from the catalog"


def read_ddl_trigger(conn: psycopg.Connection[Row]) -> DdlTrigger:
    """Read whether the event triggers are installed and enabled."""
    active, inactive, fires, works = fetch_one(conn, _INSTALLED, _BODY_MD5)
    found, others = frozenset(cast("list[str]", active)), frozenset(cast("list[str]", inactive))
    if not works:
        found, others = frozenset(), found | others
    return DdlTrigger(found, others, fires in {None, "on", "true"})


def statements() -> list[str]:
    """Return the SQL that installs the event triggers; running it again changes nothing."""
    return [
        "begin;",
        f"set local lock_timeout = '{_LOCK_TIMEOUT_MS}ms';",
        "create schema if not exists auditlake;",
        _FUNCTION,
        "revoke all on function auditlake.record_ddl() from public;",
        *(
            line
            for event, name in _TRIGGERS.items()
            for line in (
                f"drop event trigger if exists {name};",
                f"create event trigger {name} on {event} execute function auditlake.record_ddl();",
                f"alter event trigger {name} enable always;",
            )
        ),
        "commit;",
    ]


def removing_statements() -> list[str]:
    """Return the SQL that removes the event triggers and their function."""
    return [
        *(f"drop event trigger if exists {name};" for name in reversed(_TRIGGERS.values())),
        "drop function if exists auditlake.record_ddl();",
    ]


def install(conn: psycopg.Connection[Row]) -> None:
    """Install the event triggers in one transaction; `conn` is in autocommit mode.

    Raises SourceUnready if our role may not create them, or if another session holds a lock.
    """
    role, database, is_superuser, owner, has_schema = fetch_one(conn, _RIGHTS)
    if owner is not None:
        raise SourceUnready(
            f"role {role} may not replace function auditlake.record_ddl(), which {owner} owns",
            f"Run the same command as {owner}.",
        )
    # CREATE SCHEMA IF NOT EXISTS needs the privilege even for a schema that exists.
    wanted = [each for each in statements() if not (has_schema and each.startswith("create schema"))]
    _run(conn, wanted, str(role), str(database), is_superuser=bool(is_superuser))


def remove(conn: psycopg.Connection[Row]) -> bool:
    """Remove the event triggers; return False if there were none.

    Raises SourceUnready if our role may not drop them.
    """
    if not read_ddl_trigger(conn).exists:
        return False
    wanted = ["begin;", f"set local lock_timeout = '{_LOCK_TIMEOUT_MS}ms';", *removing_statements(), "commit;"]
    role, database, is_superuser, _, _ = fetch_one(conn, _RIGHTS)
    _run(conn, wanted, str(role), str(database), is_superuser=bool(is_superuser))
    return True


def _run(conn: psycopg.Connection[Row], wanted: list[str], role: str, database: str, *, is_superuser: bool) -> None:
    try:
        for statement in wanted:
            conn.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege as exc:
        conn.rollback()
        lacks = "" if is_superuser else ", which is no superuser,"
        raise SourceUnready(
            f"role {role}{lacks} may not manage event triggers in database {display_identifier(database)}: "
            f"{exc.diag.message_primary}",
            "Run the SQL that auditlake check --install-ddl-trigger prints as a superuser, or on a managed service as"
            " the role that may create event triggers (rds_superuser, cloudsqlsuperuser, azure_pg_admin).",
        ) from exc
    except psycopg.errors.LockNotAvailable as exc:
        conn.rollback()
        raise SourceUnready(
            f"the DDL trigger could not be changed in {_LOCK_TIMEOUT_MS / 1000:g} s: another session holds a lock",
            "Run the same command again.",
        ) from exc
