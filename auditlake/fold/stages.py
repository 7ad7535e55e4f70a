"""Stages of the fold, in DuckDB's SQL; `fold.net` composes them, and explains the rules.

`stages_in_spark.sql` has the same in Spark's SQL: `scripts/fold_stages.py` writes it.
"""

ONE_ROLE = """
select *, case op when 'insert' then 'born' when 'delete' then 'died' else 'stays' end as role from __source
"""

ROLES = """
select *, unnest(
  case when op = 'insert' then ['born'] when op = 'delete' then ['died']
       when op = 'update' and had_old and (__moved) then ['died', 'born'] else ['stays'] end
) as role from __source
"""

EFFECTS = """
select __key_of_role, __place, op, role = 'born' as born, role = 'died' as died, __values_of_role from __source
"""

NUMBERED = """
select row_id, case when depth >= 1 then depth else error('a row ends that has no open copy') end as copy,
       __place, op, born, died, __carried
  from (
    select *, cast(
                sum(case when born or lsn = 0 then 1 else 0 end - case when died then 1 else 0 end) over stack as bigint
              ) + case when died then 1 else 0 end as depth
      from __source
    window stack as (
      partition by __stack order by lsn, ordinal, began_lsn, began_ordinal
      rows between unbounded preceding and current row
    )
  )
"""

TRUNCATED = """
select __key, case when is_death then t.lsn else f.lsn end as lsn,
       case when is_death then t.ordinal else f.ordinal end as ordinal,
       case when is_death then t.xid else f.xid end as xid, case when is_death then t.time else f.time end as time,
       case when is_death then 'truncate' else op end as op, born and not is_death as born, died or is_death as died,
       __values_unless_death
  from (
    select *, lead(lsn) over by_key as next_lsn, lead(ordinal) over by_key as next_ordinal
      from __source
    window by_key as (partition by __key order by lsn, ordinal)
  ) f
  left join __truncates t on t.truncate_epoch = f.epoch
  join (select false as is_death union all select true) d
    on not is_death or (
      not died and t.lsn is not null
      and (next_lsn is null or t.lsn < next_lsn or (t.lsn = next_lsn and t.ordinal < next_ordinal))
    )
"""

LIVES = """
select __key, __place, op, born, died, __carried,
       coalesce(birth_lsn, first_lsn) as life_lsn, coalesce(birth_ordinal, first_ordinal) as life_ordinal,
       birth_lsn is not null as life_born
  from (
    select *, last_value(case when born then lsn end ignore nulls) over until_here as birth_lsn,
           last_value(case when born then ordinal end ignore nulls) over until_here as birth_ordinal,
           first_value(case when lsn > 0 then lsn end ignore nulls) over of_key as first_lsn,
           first_value(case when lsn > 0 then ordinal end ignore nulls) over of_key as first_ordinal
      from __source
    window until_here as (
             partition by __key order by lsn, ordinal rows between unbounded preceding and current row
           ),
           of_key as (
             partition by __key order by lsn, ordinal rows between unbounded preceding and unbounded following
           )
  )
"""

MOVES = """
select lsn, ordinal, life_lsn, life_ordinal, life_born from __source where died and op = 'update'
"""

CHAINED = """
select __key, __place, op, born, died, __carried, coalesce(root_lsn, life_lsn) as chain_lsn,
       coalesce(root_ordinal, life_ordinal) as chain_ordinal, coalesce(root_born, life_born) as chain_born
  from __source l
  left join __roots r on r.of_lsn = l.life_lsn and r.of_ordinal = l.life_ordinal and l.life_born
"""

FILLED = """
select __key, __place, op, born, died, __kept, __filled
  from __source
window until_here as (
  partition by __row order by lsn, ordinal, died desc rows between unbounded preceding and current row
)
"""

LAST_SENT = """
select last_value(__one ignore nulls) over until_here as __one
"""

BEGUN = """
select __key, __place, op, born, died, __values, max(began_lsn) over of_key as began_lsn,
       max(began_ordinal) over of_key as began_ordinal
  from __source
window of_key as (partition by __key)
"""

NET = """
select *, lag(lsn) over by_transaction is null as is_first, lead(lsn) over by_transaction as until_lsn,
       lead(time) over by_transaction as until_time, lead(xid) over by_transaction as until_xid,
       lead(end_op) over by_transaction as until_op
  from (
    select *, lead(lsn) over by_key as following_lsn, first_value(born) over in_transaction as from_nothing,
           coalesce(last_value(case when born then op end ignore nulls) over in_transaction, 'update') as begin_op,
           coalesce(last_value(case when died then op end ignore nulls) over in_transaction, 'update') as end_op
      from __source
     where lsn > 0
    window by_key as (partition by __key order by lsn, ordinal),
           in_transaction as (partition by __key, lsn order by ordinal)
  )
 where following_lsn is null or following_lsn <> lsn
window by_transaction as (partition by __key order by lsn)
"""

ROWS = """
select kind, __key, __values_unless_close, __from_lsn as _from_lsn, _to_lsn, time as _from_time, _to_time,
       begin_op as _op, _end_op, xid as _xid, _end_xid, __from_ordinal as _ordinal,
       coalesce(strftime(_to_time, '%Y-%m'), 'open') as _part
  from (
    select *, case when kind = 'close' then lsn else until_lsn end as _to_lsn,
           case when kind = 'close' then time else until_time end as _to_time,
           case when kind = 'close' then xid else until_xid end as _end_xid,
           case when kind = 'close' then end_op else until_op end as _end_op
      from (
        select *, unnest(
          case when is_first and from_nothing and died then []
               when is_first and from_nothing then ['birth']
               when is_first and died then ['close']
               when is_first then ['close', 'version']
               when died then []
               else ['version'] end
        ) as kind from __source
      )
  )
"""

LAST = """
select kind, __key, __values_unless_close, __from_lsn as _from_lsn, cast(null as bigint) as _to_lsn,
       __from_ordinal as _ordinal
  from (
    select *, unnest(
      case when from_nothing and died then []
           when from_nothing then ['birth']
           when died then ['close']
           else ['close', 'version'] end
    ) as kind
      from (
        select *, lead(lsn) over by_key as following_lsn, first_value(born) over by_key as from_nothing
          from __source
         where lsn > 0
        window by_key as (partition by __key order by lsn, ordinal)
      )
     where following_lsn is null
  )
"""

INSERTED = """
select 'birth' as kind, __key_after, __carried, lsn as _from_lsn, cast(null as bigint) as _to_lsn,
       time as _from_time, cast(null as timestamptz) as _to_time, op as _op, cast(null as varchar) as _end_op,
       xid as _xid, cast(null as bigint) as _end_xid, ordinal as _ordinal, 'open' as _part
  from __source
"""

STAGES = {name.lower(): text.strip() for name, text in list(globals().items()) if name.isupper()}
