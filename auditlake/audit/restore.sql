do $auditlake$
-- Brings the tables of auditlake_tables from the rows `was` to the rows `becomes`, or raises and changes nothing.
declare
    session_path text := pg_catalog.current_setting('search_path');
    t record;
    dml text;
    expected bigint[];
    counts bigint[];
    counters jsonb;
begin
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    if current_setting('transaction_isolation') not in ('repeatable read', 'serializable') then
        raise exception 'this script must begin its own transaction'
            using hint = 'Run it alone, not inside another transaction.';
    end if;
    if current_setting('track_counts') <> 'on' then
        raise exception 'track_counts is off, so what triggers and foreign keys change cannot be checked'
            using hint = 'Set track_counts = on, as a superuser, for this session.';
    end if;

    -- 1. What the catalog says of each table: SQL parts for the statements below.
    create temporary table auditlake_parts (
        id int primary key, rel oid, title text, target text, relation text,
        row_text text, was_text text, becomes_text text, was_row text, becomes_row text,
        same_key text, inserted text, inserted_values text, sets text, fixed text, uniques text
    ) on commit drop;
    for t in select * from pg_temp.auditlake_tables order by id loop
        declare
            rel oid := to_regclass(format('%I.%I', t.schema_name, t.table_name));
            title text := format('%I.%I', t.schema_name, t.table_name);
            kind text;
            names text;
        begin
            if rel is null then
                raise exception 'table % does not exist', title;
            end if;
            select relkind into kind from pg_class where oid = rel;
            select string_agg(quote_ident(c.name), ', ') into names
              from unnest(t.columns) as c (name)
             where not exists (select from pg_attribute a where a.attrelid = rel and a.attname = c.name
                                  and a.attnum > 0 and not a.attisdropped);
            if names is not null then
                raise exception '% has no column %', title, names
                    using hint = 'Its columns changed since: restore this table by hand.';
            end if;
            insert into pg_temp.auditlake_parts
            select t.id, rel, title,
                   case kind when 'p' then title else 'only ' || title end, title,
                   'row(' || coalesce(string_agg(format('t.%I', a.attname), ', ' order by c.place)
                                      filter (where c.place is not null), '') || ')::text',
                   'row(' || coalesce(string_agg(format('s.was[%s]', c.place), ', ' order by c.place)
                                      filter (where c.place is not null), '') || ')::text',
                   'row(' || coalesce(string_agg(format('s.becomes[%s]', c.place), ', ' order by c.place)
                                      filter (where c.place is not null), '') || ')::text',
                   'row(' || coalesce(string_agg(case when c.place is null then 'null' else format('s.was[%s]', c.place) end,
                                                 ', ' order by a.attnum), '') || ')::text::' || title,
                   'row(' || coalesce(string_agg(case when c.place is null then 'null' else format('s.becomes[%s]', c.place) end,
                                                 ', ' order by a.attnum), '') || ')::text::' || title,
                   -- A type outside pg_catalog has its own "=": its rows are found by their text alone.
                   case when bool_and(y.typnamespace = 'pg_catalog'::regnamespace or y.typtype in ('e', 'c'))
                             filter (where a.attname = any (t.key))
                        then string_agg(format('t.%1$I = (x.r).%1$I', a.attname), ' and ')
                             filter (where a.attname = any (t.key)) end,
                   string_agg(quote_ident(a.attname), ', ' order by a.attnum)
                       filter (where c.place is not null and a.attgenerated = ''),
                   string_agg(format('(x.r).%I', a.attname), ', ' order by a.attnum)
                       filter (where c.place is not null and a.attgenerated = ''),
                   string_agg(format('%1$I = (x.r).%1$I', a.attname), ', ' order by a.attnum)
                       filter (where changed.differs and a.attgenerated = '' and a.attidentity <> 'a'),
                   string_agg(format('s.was[%1$s] is distinct from s.becomes[%1$s]', c.place), ' or ')
                       filter (where changed.differs and a.attgenerated = '' and a.attidentity = 'a'),
                   string_agg(format('s.was[%1$s] is distinct from s.becomes[%1$s]', c.place), ' or ')
                       filter (where changed.differs and exists (
                           select from pg_index i where i.indrelid = rel and (i.indisunique or i.indisexclusion)
                              and (i.indexprs is not null or a.attnum = any (i.indkey::int2[]))))
              from pg_attribute a
              join pg_type d on d.oid = a.atttypid
              join pg_type y on y.oid = case d.typtype when 'd' then d.typbasetype else d.oid end
              left join unnest(t.columns) with ordinality as c (name, place) on c.name = a.attname
              left join lateral (
                    select coalesce(bool_or(s.was[c.place] is distinct from s.becomes[c.place]), false) as differs
                      from pg_temp.auditlake_rows s
                     where s.t = t.id and s.was is not null and s.becomes is not null) as changed on true
             where a.attrelid = rel and a.attnum > 0 and not a.attisdropped;
            select string_agg(quote_ident(a.attname), ', ') into names
              from pg_attribute a
             where a.attrelid = rel and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
               and a.attname <> all (t.columns)
               and exists (select from pg_temp.auditlake_rows s where s.t = t.id and s.becomes is not null);
            if names is not null then
                raise exception '% has the column %, which is not in the lake at that moment', title, names
                    using hint = 'Its earlier values are not known here: restore this table by hand.';
            end if;
        end;
    end loop;
    analyze pg_temp.auditlake_rows;
    if not exists (select from pg_temp.auditlake_parts) then
        raise notice 'the two moments do not differ';
        perform set_config('search_path', session_path, true);
        return;
    end if;

    -- 2. Find the rows: each must be there exactly as the script expects it.
    create temporary table auditlake_found (t int, n bigint, relation oid, place tid) on commit drop;
    create temporary table auditlake_copies (t int, content text, copies bigint) on commit drop;
    for t in select p.*, c.key, cardinality(c.key) > 0 as keyed,
                    (select count(*) from pg_temp.auditlake_rows s where s.t = p.id and s.was is not null) as wanted
               from pg_temp.auditlake_parts p join pg_temp.auditlake_tables c using (id) order by id loop
        if t.keyed then
            execute format(
                'insert into pg_temp.auditlake_found
                 select %s, f.n, f.tableoid, f.ctid
                   from (select x.n, x.content, t.tableoid, t.ctid, %s as present
                           from (select s.n, %s as content, %s as r from pg_temp.auditlake_rows s
                                  where s.t = %s and s.was is not null offset 0) as x
                           join %s as t on %s offset 0) as f
                  where f.present = f.content',
                t.id, t.row_text, t.was_text, t.was_row, t.id, t.target,
                coalesce(t.same_key, t.row_text || ' = x.content'));
        else
            execute format(
                'insert into pg_temp.auditlake_copies select %s, f.content, count(*)
                   from (select %s as content from %s as t) as f group by f.content',
                t.id, t.row_text, t.target);
            execute format(
                'insert into pg_temp.auditlake_found
                 select %s, x.n, f.tableoid, f.ctid
                   from (select t.tableoid, t.ctid, %s as content,
                                row_number() over (partition by %s) as copy from %s as t) as f
                   join (select s.n, %s as content, row_number() over (partition by %s) as copy
                           from pg_temp.auditlake_rows s where s.t = %s and s.was is not null) as x
                  using (content, copy)',
                t.id, t.row_text, t.row_text, t.target, t.was_text, t.was_text, t.id);
        end if;
        select array[count(*), count(distinct n)] into counts from pg_temp.auditlake_found f where f.t = t.id;
        if counts <> array[t.wanted, t.wanted] then
            raise exception '%: % of % rows are not there as the script expects them; nothing was changed',
                t.title, t.wanted - counts[2], t.wanted
                using hint = 'They changed since, or were undone already: compare with the present and write the script again.';
        end if;
        if t.same_key is not null then
            execute format(
                'select array[count(*)]
                   from (select t.tableoid, t.ctid
                           from (select %s as r from pg_temp.auditlake_rows s
                                  where s.t = %s and s.was is null offset 0) as x
                           join %s as t on %s offset 0) as f
                  where not exists (select from pg_temp.auditlake_found o
                                     where o.t = %s and o.relation = f.tableoid and o.place = f.ctid)',
                t.becomes_row, t.id, t.target, t.same_key, t.id) into counts;
            if counts <> array[0::bigint] then
                raise exception '%: % rows are there already that the script would insert; nothing was changed',
                    t.title, counts[1]
                    using hint = 'They changed since, or were undone already: compare with the present and write the script again.';
            end if;
        end if;
    end loop;
    analyze pg_temp.auditlake_found;

    -- 3. One statement for all tables: foreign keys are checked, and their actions run, when all rows are in place.
    --    Rows with another value of a GENERATED ALWAYS identity are replaced. If unique values change places, which
    --    UPDATE refuses, so are the rows whose unique values change.
    create temporary table auditlake_files on commit drop as
    select c.oid as rel, format('%I.%I', n.nspname, c.relname) as title, c.relfilenode
      from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where c.relkind in ('r', 'm') and c.relpersistence <> 't'
       and n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast');
    for attempt in 1..2 loop
        select jsonb_object_agg(relid, jsonb_build_array(n_tup_ins, n_tup_upd, n_tup_del)) into counters
          from pg_stat_xact_all_tables;
        select string_agg(part, E',\n' order by step, id) into dml
          from (
            select p.id, step,
                   case step
                   when 1 then format(
                       'd%s as (delete from %s as t using pg_temp.auditlake_found f, pg_temp.auditlake_rows s
                         where f.t = %s and s.n = f.n and (s.becomes is null or %s)
                           and t.tableoid operator(pg_catalog.=) f.relation and t.ctid operator(pg_catalog.=) f.place
                        returning 1)',
                       p.id, p.target, p.id, replaced)
                   when 2 then format(
                       'u%s as (update %s as t set %s from pg_temp.auditlake_found f,
                             (select s.n, %s as r from pg_temp.auditlake_rows s
                               where s.t = %s and s.was is not null and s.becomes is not null and not (%s) offset 0) as x
                         where f.t = %s and x.n = f.n and %s
                           and t.tableoid operator(pg_catalog.=) f.relation and t.ctid operator(pg_catalog.=) f.place
                        returning 1)',
                       p.id, p.target, p.sets, p.becomes_row, p.id, replaced, p.id, deleted)
                   else case when p.inserted is null
                   then format(
                       'i%s as (insert into %s select from pg_temp.auditlake_rows s
                         where s.t = %s and s.becomes is not null and (s.was is null or %s) and %s returning 1)',
                       p.id, p.relation, p.id, replaced, updated)
                   else format(
                       'i%s as (insert into %s (%s) overriding system value select %s
                          from (select %s as r from pg_temp.auditlake_rows s
                                 where s.t = %s and s.becomes is not null and (s.was is null or %s) offset 0) as x
                         where %s returning 1)',
                       p.id, p.relation, p.inserted, p.inserted_values, p.becomes_row, p.id, replaced, updated) end
                   end as part
              from (select parts.*,
                           coalesce(fixed, 'false') || case when attempt = 2 then coalesce(' or ' || uniques, '') else '' end
                               as replaced,
                           '(' || string_agg(format('(select count(*) from d%s)', id), ' + ') over () || ') >= 0' as deleted,
                           '(' || string_agg(format('(select count(*) from %s%s)',
                                     case when sets is null then 'd' else 'u' end, id), ' + ') over () || ') >= 0' as updated
                      from pg_temp.auditlake_parts parts) as p
             cross join generate_series(1, 3) as step
             where step <> 2 or p.sets is not null) as steps;
        begin
            perform set_config('search_path', session_path, true);
            execute 'with ' || dml || ' select';
            set constraints all immediate;
            perform set_config('search_path', 'pg_catalog, pg_temp', true);
            exit;
        exception when unique_violation or exclusion_violation then
            perform set_config('search_path', 'pg_catalog, pg_temp', true);
            if attempt = 2 or not exists (select from pg_temp.auditlake_parts where uniques is not null) then
                raise;
            end if;
        end;
    end loop;
    perform set_config('search_path', 'pg_catalog, pg_temp', true);

    -- 4. The rows must now be as the lake has them.
    for t in select p.*, cardinality(c.key) > 0 as keyed,
                    (select count(*) from pg_temp.auditlake_rows s where s.t = p.id and s.becomes is not null) as wanted
               from pg_temp.auditlake_parts p join pg_temp.auditlake_tables c using (id) order by id loop
        if t.keyed then
            execute format(
                'select array[count(*), count(*) filter (where f.present = f.content)]
                   from (select x.content, %s as present
                           from (select %s as content, %s as r from pg_temp.auditlake_rows s
                                  where s.t = %s and s.becomes is not null offset 0) as x
                           join %s as t on %s offset 0) as f',
                t.row_text, t.becomes_text, t.becomes_row, t.id, t.target,
                coalesce(t.same_key, t.row_text || ' = x.content')) into counts;
            expected := array[t.wanted, t.wanted];
        else
            execute format(
                'select array[count(*)] from (
                    select content, sum(copies) as copies from (
                        select c.content, c.copies from pg_temp.auditlake_copies c where c.t = %1$s
                        union all select %2$s, -1 from pg_temp.auditlake_rows s where s.t = %1$s and s.was is not null
                        union all select %3$s, 1 from pg_temp.auditlake_rows s where s.t = %1$s and s.becomes is not null
                        union all select %4$s, -1 from %5$s as t) as every
                     group by content having sum(copies) <> 0) as differing',
                t.id, t.was_text, t.becomes_text, t.row_text, t.target) into counts;
            expected := array[0];
        end if;
        if counts <> expected then
            raise exception '%: the rows are not as they were at that moment; nothing was changed', t.title
                using hint = 'A trigger or another type of a column may have changed them.';
        end if;
    end loop;

    -- 5. No other row was touched: not of these tables, nor of others, nor a large object. An UPDATE to another partition
    --    counts as a DELETE and an INSERT. TRUNCATE, DROP and a rewriting count no row, but change the table's file.
    for t in
        select f.title, p.id is not null as is_named
          from pg_temp.auditlake_files f
          left join pg_class c on c.oid = f.rel
          left join pg_temp.auditlake_parts p
                 on p.rel = f.rel or p.rel in (select a.relid from pg_partition_ancestors(f.rel) as a)
         where c.relfilenode is distinct from f.relfilenode
    loop
        if t.is_named or coalesce(current_setting('auditlake.other_tables', true), '') <> 'allow' then
            raise exception '%: a trigger truncated, rewrote or dropped this table; nothing was changed', t.title
                using hint = 'Disable the trigger for the undo. If this table need not be restored, accept it: set auditlake.other_tables = ''allow''.';
        end if;
    end loop;
    for t in
        select coalesce(p.title, format('%I.%I', s.schemaname, s.relname)) as title, p.id,
               sum(s.n_tup_ins - coalesce((counters -> s.relid::text ->> 0)::bigint, 0))
               + sum(s.n_tup_upd - coalesce((counters -> s.relid::text ->> 1)::bigint, 0)) as come,
               sum(s.n_tup_del - coalesce((counters -> s.relid::text ->> 2)::bigint, 0))
               + sum(s.n_tup_upd - coalesce((counters -> s.relid::text ->> 1)::bigint, 0)) as gone
          from pg_stat_xact_all_tables s
          left join lateral (
                select q.id, q.title from pg_temp.auditlake_parts q
                 where q.rel = s.relid or q.rel in (select a.relid from pg_partition_ancestors(s.relid) as a)
                 order by q.rel <> s.relid limit 1) as p on true
         where exists (select from pg_class c where c.oid = s.relid and c.relpersistence <> 't')
           and (s.schemaname not in ('pg_catalog', 'information_schema', 'pg_toast')
                or s.relid in ('pg_largeobject'::regclass, 'pg_largeobject_metadata'::regclass))
         group by 1, 2
    loop
        if t.id is null then
            if t.come + t.gone > 0 and coalesce(current_setting('auditlake.other_tables', true), '') <> 'allow' then
                raise exception '%: a trigger or a foreign key changed rows of this table, which the script does not restore; nothing was changed', t.title
                    using hint = 'Name this table in auditlake diff as well, or accept it: set auditlake.other_tables = ''allow''.';
            end if;
        else
            select array[count(*) filter (where becomes is not null), count(*) filter (where was is not null)]
              into expected from pg_temp.auditlake_rows s where s.t = t.id;
            if array[t.come, t.gone] <> expected::numeric[] then
                raise exception '%: other rows were changed than the script names; nothing was changed', t.title
                    using hint = 'A trigger or a foreign key with an action changed them.';
            end if;
        end if;
    end loop;

    for t in select p.title, count(*) filter (where was is null) as inserted,
                    count(*) filter (where was is not null and becomes is not null) as updated,
                    count(*) filter (where becomes is null) as deleted
               from pg_temp.auditlake_parts p join pg_temp.auditlake_rows s on s.t = p.id
              group by p.id, p.title order by p.id loop
        raise notice '%: % inserted, % updated, % deleted, as at that moment', t.title, t.inserted, t.updated, t.deleted;
    end loop;
    perform set_config('search_path', session_path, true);
end
$auditlake$;
