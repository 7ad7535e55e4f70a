"""DDL event triggers (optional): send the shape of every changed table into the stream, in its transaction.

The stream shows a schema change only with the table's next row, and some never. Three event triggers, which need no
extension, send transactional logical messages with prefix `auditlake:ddl`:

1. `table_rewrite` sends, during the command, which table is rewritten and why. Only it knows that.
2. `sql_drop` sends what the command dropped, and the shapes of tables that lost a column.
3. `ddl_command_end` sends the shapes of the tables, and the types, that the command changed.

The content is described in `pgoutput.ddl_message`. Temporary and system objects are left out, and a command that
changes neither a table nor a type sends nothing. Nothing is kept in the session between the events: it could change it.

Any role may send a message with this prefix, so each is sealed: it begins with a hash of its content, its transaction
and a key, which only the owner of the function may read. The key is in a materialized view, because neither a
publication nor a dump carries that, and nobody can lock it. Capture does not know the key: it asks `sealed_ddl`, which
answers for any role whether a hash is right (`are_sealed`). Triggers, functions and key must have one owner; only a
superuser can create an event trigger, so nobody else can put objects of these names in their place.

The functions run with the privileges of that owner, and find the key by its name. Whoever owns the schema could drop
the key and put a view with functions of his own there, which would run with these privileges. So the schema belongs to
the owner of the triggers or to a superuser: installing takes it over, and the functions look before they read the key.

The triggers never fail the application's command. All statements are inside an exception block; the worst result is a
WARNING that names the SQLSTATE, and then capture finds the change in the catalog. Only a cancelled or timed-out
statement is not caught, and that one fails anyway. They read catalogs through indexes, and call no function that locks
a table. They take ACCESS SHARE on the key alone, and wait for that for 0.2 s at most.

They fire ALWAYS, also under session_replication_role = replica. With event_triggers = off (17) PostgreSQL runs none.

Authority: postgresql.org/docs/current/event-trigger-definition.html; functions-event-triggers.html;
sql-creatematerializedview.html
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import psycopg

from auditlake.errors import SourceUnready
from auditlake.pgoutput.ddl_message import FORM, MOST_BYTES, PREFIX, Seal
from auditlake.source.catalog import SHAPE
from auditlake.source.connection import PINNED, NotGranted, Row, fetch, fetch_one, refused_by_functions, replacing_ours
from auditlake.sql_names import display_identifier

# The settings of our own connections, by which PostgreSQL renders missing values as it renders rows in the stream.
_SETTINGS = (
    "datestyle", "intervalstyle", "timezone", "bytea_output", "extra_float_digits", "lc_monetary",
    "quote_all_identifiers", "standard_conforming_strings",
)  # fmt: skip
_RENDERING = " ".join(f"set {name} = '{PINNED[name]}'" for name in _SETTINGS)
_MOST_CONTENT_BYTES = MOST_BYTES - 128  # leaves room for form and seal
_SEAL = "sha256(k.key || {digest} || int8send({xid}))"
# By its owner, because the name may mean a relation that the owner of the schema has put in its place.
_KEY = "auditlake.ddl_key k join pg_class c on c.oid = k.tableoid and pg_get_userbyid(c.relowner) = current_user"
_SCHEMA_IS_SAFE = """exists (select from pg_namespace n join pg_roles r on r.oid = n.nspowner
                   where n.nspname = 'auditlake' and (r.rolsuper or r.rolname = current_user))"""
# SECURITY DEFINER, so that a role without USAGE on this schema or EXECUTE on pg_logical_emit_message is recorded, too.
_FUNCTION = rf"""create or replace function auditlake.record_ddl() returns event_trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set jit = off set lock_timeout = '200ms'
{_RENDERING} as $$
declare
  context text;
  tables oid[];
  types oid[];
  tree oid[];
  message jsonb := '{{}}';
  content bytea;
  seal bytea;
begin
  if not {_SCHEMA_IS_SAFE} then
    raise warning 'auditlake could not record this command in the stream: schema auditlake has another owner';
    return;
  end if;
  begin
    get diagnostics context = pg_context;
    if tg_event = 'table_rewrite' then
      if (select relpersistence <> 't' from pg_class where oid = pg_event_trigger_table_rewrite_oid()) then
        message := jsonb_build_object('rewritten', jsonb_build_array(jsonb_build_array(
          pg_event_trigger_table_rewrite_oid()::bigint, pg_event_trigger_table_rewrite_reason())));
      end if;
    elsif tg_event = 'sql_drop' then
      select array_agg(d.objid), case when count(*) = 0 then '{{}}' else jsonb_build_object('dropped', jsonb_agg(
                 jsonb_build_array(d.object_type, d.objid::bigint, d.objsubid, to_jsonb(d.address_names)))) end
        into tables, message
        from pg_event_trigger_dropped_objects() d
       where d.object_type in ('table', 'table column') and not d.is_temporary;
    else
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
    end if;

    if tables is not null or types is not null then
      tree := array(
        with recursive members (oid) as (
          select t.oid from pg_class t
           where t.oid = any (tables) and t.relkind in ('r', 'p') and t.relpersistence <> 't'
             and t.relnamespace not in ('pg_catalog'::regnamespace, 'pg_toast'::regnamespace)
             and t.relnamespace <> coalesce(to_regnamespace('information_schema')::oid, 0)
          union
          select i.inhrelid from members m join pg_inherits i on i.inhparent = m.oid)
        select oid from members);
      message := message || jsonb_strip_nulls(jsonb_build_object(
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
    end if;
    if message = '{{}}' then
      return;
    end if;
    -- A command inside a function has another query than the client's.
    message := message || jsonb_build_object(
      'tag', tg_tag, 'session_user', session_user,
      'plain', position(E'\n' in context) = 0
           and current_query() ~* '^\s*alter\s+table\s[^;]*;?\s*$' and current_query() !~* '\musing\M');
  exception when others then
    raise warning 'auditlake could not record this command in the stream (SQLSTATE %)', sqlstate;
    message := '{{"failed": true}}';
  end;

  -- The stream does not convert messages.
  content := convert_to(message::text, 'UTF8');
  if length(content) > {_MOST_CONTENT_BYTES} then
    content := '{{"failed": true}}';
  end if;
  select {_SEAL.format(digest="sha256(content)", xid="pg_current_xact_id()::text::bigint & 4294967295")}
    into strict seal from {_KEY};
  content := convert_to('{FORM} ' || encode(seal, 'hex') || ' ', 'UTF8') || content;
  perform pg_logical_emit_message(true, '{PREFIX}', content);
  -- Decoding orders a message by the end of its WAL record, a row by the start: if they are adjacent and in different
  -- subtransactions, the row may come first. This record, which belongs to no transaction, separates them.
  perform pg_logical_emit_message(false, '{PREFIX}', '');
exception when others then
  raise warning 'auditlake could not record this command in the stream (SQLSTATE %)', sqlstate;
end $$;"""
# It compares hashes of the hashes, so that the time it takes shows nothing. In PL/pgSQL, because the planner may call
# functions of a view, and plans a statement only when it is reached.
_CHECKING = f"""create or replace function auditlake.sealed_ddl(xids bigint[], digests bytea[], seals bytea[])
returns boolean[] language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not {_SCHEMA_IS_SAFE} then
    return null;
  end if;
  return (
  select array_agg(
           coalesce(sha256(m.seal) = sha256({_SEAL.format(digest="m.digest", xid="m.xid")}), false) order by m.n)
    from {_KEY}, unnest(xids, digests, seals) with ordinality m (xid, digest, seal, n));
end $$;"""
# Another relation of that name is nobody's to keep. Default privileges may have granted the key to others.
_MAKE_KEY = """do $$
declare
  grantee text;
  other text;
begin
  select case c.relkind when 'm' then 'materialized view' when 'v' then 'view' when 'f' then 'foreign table'
                        when 'S' then 'sequence' when 'c' then 'type' when 'i' then 'index' when 'I' then 'index'
                        else 'table' end
    into other
    from pg_class c
   where c.oid = to_regclass('auditlake.ddl_key')
     and (c.relkind <> 'm' or pg_get_userbyid(c.relowner) <> current_user);
  if found then
    execute format('drop %s auditlake.ddl_key cascade', other);
  end if;
  create materialized view if not exists auditlake.ddl_key as
    select sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')) as key;
  for grantee in
    select distinct case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
      from pg_class c, aclexplode(c.relacl) a
     where c.oid = 'auditlake.ddl_key'::regclass and a.grantee <> c.relowner
  loop
    execute 'revoke all on auditlake.ddl_key from ' || grantee;
  end loop;
end $$;"""

_EVENTS = ("table_rewrite", "sql_drop", "ddl_command_end")
_TRIGGERS = {event: f"auditlake_{event}" for event in _EVENTS}


def _body_md5(function: str) -> str:
    return hashlib.md5(function.split("$$")[1].encode(), usedforsecurity=False).hexdigest()


_BODIES = (_body_md5(_FUNCTION), _body_md5(_CHECKING))
# The objects by their places in the catalog: to resolve a name, a role needs USAGE on the schema. A function that was
# replaced or altered, or whose owner may not send messages, reports nothing.
_OBJECTS = """
with record as (
    select p.* from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
     where n.nspname = 'auditlake' and p.proname = 'record_ddl' and p.pronargs = 0),
trusted as (
    select r.oid, r.proowner, r.pronamespace,
           pg_catalog.md5(r.prosrc) = %s and r.prosecdef and 'search_path=pg_catalog, pg_temp' = any (r.proconfig)
               and (select pg_catalog.bool_and(pg_catalog.has_function_privilege(r.proowner, f.oid, 'execute'))
                      from pg_catalog.pg_proc f where f.proname = 'pg_logical_emit_message') as sends
      from record r
      join pg_catalog.pg_namespace n on n.oid = r.pronamespace
      join pg_catalog.pg_roles o on o.oid = n.nspowner and (o.rolsuper or o.oid = r.proowner)
      join pg_catalog.pg_proc s on s.pronamespace = r.pronamespace and s.proname = 'sealed_ddl'
                               and s.proowner = r.proowner and s.prosecdef and pg_catalog.md5(s.prosrc) = %s
                               and s.proconfig = array['search_path=pg_catalog, pg_temp']
      join pg_catalog.pg_class k on k.relnamespace = r.pronamespace and k.relname = 'ddl_key'
                                and k.relowner = r.proowner and k.relkind = 'm' and k.relispopulated
     where exists (select from pg_catalog.pg_event_trigger t where t.evtfoid = r.oid and t.evtowner = r.proowner)
       and not exists (select from pg_catalog.aclexplode(k.relacl) a where a.grantee <> k.relowner)
       and not exists (select from pg_catalog.pg_attribute a where a.attrelid = k.oid and a.attacl is not null)
       and pg_catalog.has_schema_privilege(r.pronamespace, 'usage')
       and pg_catalog.has_function_privilege(s.oid, 'execute'))
"""
_INSTALLED = f"""{_OBJECTS}
select array(select t.evtname::text from pg_catalog.pg_event_trigger t, record r
              where t.evtfoid = r.oid and t.evtenabled = 'A'),
       array(select t.evtname::text from pg_catalog.pg_event_trigger t, record r
              where t.evtfoid = r.oid and t.evtenabled <> 'A'),
       pg_catalog.current_setting('event_triggers', true),
       (select sends from trusted),
       (select pg_catalog.string_agg(pg_catalog.concat_ws(' ', o.oid, o.xmin), ',' order by o.oid)
          from (select t.oid, t.xmin from pg_catalog.pg_event_trigger t, record r where t.evtfoid = r.oid
                union all
                select p.oid, p.xmin from pg_catalog.pg_proc p, record r
                 where p.pronamespace = r.pronamespace and p.proname in ('record_ddl', 'sealed_ddl')
                union all
                select k.oid, k.xmin from pg_catalog.pg_class k, record r
                 where k.relnamespace = r.pronamespace and k.relname = 'ddl_key') o)
"""
_TRUSTED = f"{_OBJECTS} select 1 from trusted"
_SEALED = "select auditlake.sealed_ddl(%s::bigint[], %s::bytea[], %s::bytea[])"
# Its objects may be dropped, or privileges revoked, between two statements.
_VANISHED = (
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedTable,
    psycopg.errors.InvalidSchemaName,
    NotGranted,
    psycopg.errors.ObjectNotInPrerequisiteState,
)
_RIGHTS = """
select current_user::text, pg_catalog.current_database()::text,
       (select rolsuper from pg_catalog.pg_roles where rolname = current_user),
       (select p.proowner::regrole::text
          from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
         where n.nspname = 'auditlake' and p.proname = 'record_ddl' and p.pronargs = 0
           and not pg_catalog.pg_has_role(p.proowner, 'usage')),
       (select pg_catalog.has_schema_privilege('public', n.oid, 'usage')
          from pg_catalog.pg_namespace n where n.nspname = 'auditlake'),
       (select r.rolname::text
          from pg_catalog.pg_namespace n join pg_catalog.pg_roles r on r.oid = n.nspowner
         where n.nspname = 'auditlake' and not r.rolsuper and r.rolname <> current_user)
"""
_LOCK_TIMEOUT_MS = 2000
_CREATE_SCHEMA = "create schema if not exists auditlake;"
_OWN_SCHEMA = "alter schema auditlake owner to current_user; -- whoever owns it could replace what is in it"
_GRANT_SCHEMA = "grant usage on schema auditlake to public;"


@dataclass(frozen=True, slots=True)
class DdlTrigger:
    """State of the event triggers: those that fire always and report, the others, and whether the server fires any.

    `entries` changes with each of their catalog entries: if it is the same at two times, none was changed in between.
    """

    active: frozenset[str]
    inactive: frozenset[str]
    server_fires: bool
    entries: str = ""

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
    active, inactive, fires, works, entries = fetch_one(conn, _INSTALLED, *_BODIES)
    found, others = frozenset(cast("list[str]", active)), frozenset(cast("list[str]", inactive))
    if not works:
        found, others = frozenset(), found | others
    return DdlTrigger(found, others, fires in {None, "on", "true"}, str(entries or ""))


def are_sealed(conn: psycopg.Connection[Row], seals: Sequence[Seal]) -> list[bool]:
    """Return of each seal whether it is that of the trigger installed here; raises SourceUnreachable."""
    if not fetch(conn, _TRUSTED, *_BODIES):
        return [False] * len(seals)
    columns = [each.xid for each in seals], [each.digest for each in seals], [each.seal for each in seals]
    try:
        ((found,),) = fetch(conn, _SEALED, *columns)
    except _VANISHED:
        found = None
    return [bool(each) for each in cast("list[bool]", found)] if found is not None else [False] * len(seals)


def ddl_trigger_statements() -> list[str]:
    """Return the SQL that installs the event triggers; running it again changes nothing."""
    return [
        "begin;",
        f"set local lock_timeout = '{_LOCK_TIMEOUT_MS}ms';",
        _CREATE_SCHEMA,
        _OWN_SCHEMA,
        _GRANT_SCHEMA,
        _FUNCTION,
        "alter function auditlake.record_ddl() owner to current_user;",
        "revoke all on function auditlake.record_ddl() from public;",
        _MAKE_KEY,
        _CHECKING,
        "alter function auditlake.sealed_ddl(bigint[], bytea[], bytea[]) owner to current_user;",
        "grant execute on function auditlake.sealed_ddl(bigint[], bytea[], bytea[]) to public;",
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
        "drop function if exists auditlake.sealed_ddl(bigint[], bytea[], bytea[]);",
        "drop materialized view if exists auditlake.ddl_key;",
    ]


def install_ddl_trigger(conn: psycopg.Connection[Row]) -> None:
    """Install the event triggers in one transaction; `conn` is in autocommit mode. Raises SourceUnready."""
    role, database, is_superuser, owner, may_use, of_schema = fetch_one(conn, _RIGHTS)
    if of_schema is not None and not is_superuser:
        raise SourceUnready(
            f"schema auditlake belongs to role {of_schema}, which could replace what the DDL trigger runs",
            f"Run ALTER SCHEMA auditlake OWNER TO {display_identifier(str(role))} as a superuser or as that role, then"
            " the same command again.",
        )
    if owner is not None:
        raise SourceUnready(
            f"role {role} may not replace function auditlake.record_ddl(), which {owner} owns",
            f"Run the same command as {owner}.",
        )
    # Each needs a privilege even if it changes nothing.
    needless = {_CREATE_SCHEMA: may_use is not None, _OWN_SCHEMA: of_schema is None, _GRANT_SCHEMA: bool(may_use)}
    wanted = [each for each in ddl_trigger_statements() if not needless.get(each, False)]
    _run(conn, wanted, str(role), str(database), is_superuser=bool(is_superuser))


def remove(conn: psycopg.Connection[Row]) -> bool:
    """Remove the event triggers; False if there were none. Raises SourceUnready without the privilege."""
    if not read_ddl_trigger(conn).exists:
        return False
    wanted = ["begin;", f"set local lock_timeout = '{_LOCK_TIMEOUT_MS}ms';", *removing_statements(), "commit;"]
    role, database, is_superuser, *_ = fetch_one(conn, _RIGHTS)
    _run(conn, wanted, str(role), str(database), is_superuser=bool(is_superuser))
    return True


def _run(conn: psycopg.Connection[Row], wanted: list[str], role: str, database: str, *, is_superuser: bool) -> None:
    try:
        with refused_by_functions(), replacing_ours("the DDL trigger"):
            for statement in wanted:
                conn.execute(statement.encode())
    except SourceUnready:
        conn.rollback()
        raise
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
