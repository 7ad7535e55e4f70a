select settings @> settings -> 'n' from customers
select settings #>> '{"n",x}' from customers
select c.id from customers c left join orders o on o.id = c.id or 2 in (select id from orders)
select coalesce(array['a'::varchar], tags) from customers
select array_agg(distinct stage) from parcels
select convert_from('\x61'::bytea, 'LATIN1')
select sum(weight) from orders
select to_char(placed, 'DDTH') from orders
select price from orders group by distinct rollup(price)
select 'x' as k, count(*) from orders group by grouping sets ((qty), ('x'::text), ())
select |/ 24.0 + 1
select ~1 + 2
select 'ab' ^@ 'b' || 'c'
select nvl(name, 'x') from customers
select len(name) from customers
select lcase(name) from customers
select customers from customers
select id from boxes order by size
select id from parcels where stage = 'lost'
select greatest(stage, other) from parcels
select 'x' < stage from parcels
select 'NaN'::numeric > 1
select lag(email, 1, 'none') over (order by id), lead(code, 1, 'x') over (order by id), lag(born, 1, date '2020-01-01') over (order by id) from customers
select coalesce(code, 'x'), case when id > 3 then code else 'x' end, coalesce(code, null) from customers order by id
select code from customers union all select 'x'
select array[price, '0.1'] from orders
select status, price from orders group by status
select code from customers union select name from customers
select coalesce(code, name) from customers
select o.* from orders o, lateral (select o.*) x where o.id = 1
select id, (select span) from spans
select id, e from (select id, array[weight] as w from orders) o, unnest(o.w) e
select (timestamp '9999-12-31 23:00' + interval '2 years') at time zone 'Europe/Paris' < now()
select to_char(date '0001-01-01' - 400, 'YY')
select date_trunc('decade', timestamp '0001-01-01' - interval '2 years') < now()
select case when vip then name else code end from customers
select id, span in (select span from spans where id = 2) from spans
select settings in (select settings from customers) from customers
select var_pop(weight) from orders
select (select count(*) from orders o where sum(c.id) > o.id) from customers c
select my_sum(id) filter (where id > 1) from orders
select c.name, count(*) from customers c group by rollup(c.id)
select placed at time zone 'Nowhere/City' from orders
select total from orders union select 1.50
select x::numeric, count(*) from (values ('1.0'), ('1.00'), ('2')) v(x) group by 1
select distinct x::numeric from (values ('1.0'), ('1.00'), ('2')) v(x)
select distinct x::float8 from (values ('0'), ('-0')) v(x)
select x::float8, count(*) from (values ('0'), ('-0')) v(x) group by x::float8
select total, count(*) from orders group by total having count(*) > 2
select total, count(*) from orders group by rollup(total)
select count(*) from (select x::numeric from (values ('1.0'), ('1.00')) v(x) group by 1) s
select count(*) from (select x::numeric from (values ('1.0'), ('1.00')) v(x) union select 3.0) s
select id from orders o where (customer_id, qty) = any (select c.id, 2 from customers c)
select (1, 2) = (1, 2, 3)
select * from (select x::numeric as x, count(*) as n from (values ('1.0'), ('1.00'), ('2')) v(x) group by 1) s where n > 1
select * from (select distinct x::numeric as x from (values ('1.0'), ('1.00'), ('2')) v(x)) s where x > 1.5
select name collate "de_DE" from customers
select array_agg(id) over (order by id) from orders
select array_to_string(tags, name) from customers
select '1 day 1 day'::interval
select 'today'::date
select substring('foobar' from '(o)(o)')
select substring('ab' from 'a|ab')
select 'a-d' ~ '[a-c-e]'
select '50% off' ilike '%X% %' escape 'X', 'aXb' ilike '%X%b%' escape 'x'
select name ilike '%X_y' escape 'X' from customers
select interval '1-2-3'
select interval '1 day-2 hours'
select interval '1day2hours'
select interval 'P+1Y'
select interval '3 ago'
select '2026-01-01 24:00'::date
select '9999-12-31 24:00'::timestamp
select date 'Jan 1 2026'
select count(*), unnest(tags) from customers group by tags
select * from orders join customers using (id) as x
with recursive t(n) as (select 1 union all select n + 1 from t where n < 3) search depth first by n set o select * from t
with recursive t(n) as (select 1 union all select n + 1 from t where n < 3) cycle n set is_cycle using path select * from t
with t as (select 1) values (1)
select sum(x::numeric) from (values ('1'), ('-Infinity')) v(x)
select my_all(vip) filter (where id > 1) over (order by id) from customers
select 7 in (select qty from orders) as k, count(*) from orders group by rollup ((7 in (select qty from orders)))
select 1 as one, count(*) from orders group by rollup(1) order by 1
select 'x' as k, count(*) from orders group by cube(k)
select array[array[1]]
select jsonb_build_object(null, 1)
select to_jsonb('x')
select E'\x41'
select key, count(*) from (select id, (jsonb_each(settings)).key from customers) s group by key
select * from generate_series(1, 3) with ordinality
select 'x' as k, count(*) from orders group by rollup(1) union all select 'x', 1
select interval '29 days' in (select interval '1 month -1 day')
select min(tags) from customers
select array_agg(tags) from customers
select id from customers where tags in (select tags from customers where id < 3) order by id
select greatest(tags, '{}') from customers order by id
select tags || 'z' from customers order by id
select ref = any(array_agg(ref) over ()) from customers order by id limit 1
select to_jsonb(tags) from customers
select exp(('0.09'::numeric) / 1000000)
select 'a' || array['b'], array['a'] || array['b'], 1 || array[2]
select '{"a b","c"}'::text[]
select e from jsonb_each('{"a": 1}') e
select regexp_replace(name, 'x*', '-', 'g') from customers
select regexp_replace(name, 'a|b', '-', 'g') from customers
select regexp_replace(name, 'a', '\2', 'g') from customers
select regexp_replace(name, 'a', name, 'g') from customers
select regexp_replace(name, 'A', 'x', 'gi') from customers
select regexp_replace(id, 'a', 'b') from customers
select ' 2026-01-01'::date
select jsonb_build_object(code, 1) from customers where code is not null
select coalesce(code, 'ab'::char(4)) from customers
select code from customers union select 'ab'::char(3)
select nullif('ab ', code) from customers
select max(id) over (order by (select count(*) from orders i where i.id < 2) range between 1 preceding and 2 following) from customers
select sum(distinct shipped - placed::timestamp) from orders
select format('%x', 'a')
select 'ab' similar to name from customers
select 'x' similar to '[a-z]'
select ('x' || id)::interval from orders
select to_date('2024-1-5', 'YYYY-MM-DD')
select to_date('x', 'YYYY-MM-DD')
select settings < '{}' from customers
select jsonb_agg(distinct id) from customers
select jsonb_agg(tags) from customers
select ('{a,b}'::text[] || null::text) || (' a ' collate "C")
select settings && settings from customers
select to_date('2024-02', 'YYYY-Mm')
select array_to_string(array[span], ',') from spans
select distinct span from spans
select span, count(*) from spans group by span
select interval '1 day' * 'inf'::text::float8
select array(select weight from orders)
select @ -5
select substring('abc' similar 'a#"b#"c' escape '#')
select make_date(-44, 3, 15)
select id from kinds where pair is null
select array[stages] from kinds
select array_agg(pairs) from kinds
select id from kinds where prices = any(array[prices])
select id from kinds where prices = '{1.001,2.5}'
select coalesce(prices, '{1}') from kinds
select prices || '{1.005}' from kinds
select id, (select a.span from boxes where id = 1) from spans a
select id, (select max(b.shipped + a.span) from orders b) from spans a
select id, x from spans a, lateral (select a.span as x) b
select id, (select a.f from boxes where id = 1) from doubles a
select id, x from doubles, unnest(array[f]) x
select id, max(f) over (order by f, id) from doubles
select ref = id, ref in (1, 2) from kinds
select id from kinds where word = 'a'
select distinct word from kinds
select word from kinds order by word
select count(*) from kinds group by word
select id from kinds where word like 'a%'
select id from kinds where word::text = 'a'
select lower(word) from kinds
select max(word) from kinds
select a.id from kinds a join kinds b using (word)
select id from kinds where 'a' = any(words)
select id from customers where code in ('ab '::text, 'EU')
select id from kinds where words = '{a}'
select id from kinds where code = 'ab'
select '\x61'::bytea like 'a'
select to_char(shipped, 'Am') from orders
select to_char(shipped, 'mOn') from orders
select to_char(shipped, 'DaY') from orders
select to_char(shipped, 'IDDD') from orders
select to_char(shipped, 'SSSSS') from orders
select to_char(shipped, '"a\b"') from orders
select initcap('a' || chr(1456) || 'bc')
select interval '1' hour to minute
select interval '1.5' hour
select interval '1.5' month
select +id from customers
select +(id) from customers
select b.* from (select f from doubles) a, lateral (select a.*) b
select + -qty, + + 1 from orders
select sum() over () from orders
select sum(qty) over (groups between 1 preceding and current row) from orders
select concat()
select user from (select 1 as user) v
select system_user from (select 1 as system_user) v
select '' like '\'
select name like note from customers, (values ('\')) n(note) where name = ''
select '0x1F'::float8
select '0x1F'::text::float8
select '2024-2-9'::text::date
select 'Jan 5 2024'::text::timestamp
select '1e131071'::numeric
select log(0::numeric, 'NaN'::text::numeric)
select initcap(chr(68968))
select pg_typeof(id), count(*) from customers group by 1
select * from generate_series(timestamp '2026-01-31', timestamp '2026-06-01', interval '1 month -1 day')
select generate_series(timestamp '2026-01-31', timestamp '2026-02-03', '1 month - 30 days')
select generate_series(timestamp '2026-01-31', timestamp '2026-02-03', interval '1 day -1 hour')
select d from spans, generate_series(timestamp '2026-01-31', timestamp '2024-01-31', span) d where id = 6
select ref in (select id from boxes), ref = id from kinds
select coalesce(ref, id), case when id > 0 then id else ref end from kinds
select d from generate_series('2026-01-31'::timestamp, '2026-06-30', interval '1 month', 'UTC') d
select name similar to 'x!%' escape '!' from customers
select upper(name collate "C"), lower(n) from (select name, name collate "C" as n from customers) c
select initcap(name collate "POSIX"), name ilike '%Č%' collate ucs_basic from customers
select tags collate "C" from customers
select placed at time zone 'utc' collate "C" from orders
select timestamp '2026-01-30' + interval '2' day + '1 month'
select id, sum(qty) over (order by id rows between 9223372036854775807 following and 1 following) from orders
select id, count(*) over (order by id rows between 44 following and 1 following) from orders
select id, count(*) over (order by id groups between 1 preceding and 44 preceding) from orders
select id, count(*) over (order by placed range between '1 month' following and interval '9 days' following) from orders
select name in from customers
select id from customers window w as (order by id)
select distinct on (vip, id) id from customers order by vip
select distinct on (id) id, unnest(tags) from customers order by id
select * from generate_series(timestamp '2024-01-01', timestamp '2024-01-05', interval '1 day -12 hours')
select generate_series(timestamp '2024-01-01', timestamp '2024-01-05', interval '1 mon -29 days')
with recursive t(n) as (select email from customers where id = 1 union all select n from t where false) select n from t
select id from dialect.public.customers
with recursive t(n) as (select 1 union all select n + count(*) over ()::int from t where n < 4) select n from t
select "position"('abc', 'b')
select cast(v as numeric) from (select '1e131071' as v) s
select power(10::numeric, 5000)
select 'x' like null::bytea
select 'x' like any (array[null::bytea])
select trim('a'::bytea, 'a')
select substring('day', null, 'x')
select json_object_agg(distinct 1, 1)
select trim(name), count(*) from customers group by btrim(name)
select qty between 1 and 3, count(*) from orders group by qty >= 1 and qty <= 3
select interval '1.234567' second(2)
