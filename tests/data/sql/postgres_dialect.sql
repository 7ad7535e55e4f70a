select 1, 'a', null, true, 1.50, 1e3, .5, 3000000000, '2'::int + 1
select id::int, id::text, price::int, price::text, weight::int2 from orders where abs(weight) < 100
select price::numeric(8,1), price::numeric, rate::numeric(4,2), (price * 2)::int8 from orders
select note::int from orders where note in ('12', '-7', ' 5')
select note::int from orders
select note::numeric from orders where note <> 'x'
select note::numeric from orders
select '12'::int / 5, -7 / 2, 7 % -3, -7 % 3, 7 / 2.0, 1 / 3.0, 10.0 / 4, 1.000 / 7, 1000000 / 3.0, 0.001 / 7
select id / 0 from orders
select price / 0 from orders
select 5 % 0
select 2147483647 + 1
select 2147483647::bigint + 1, -2147483648, 32767::int2 + 1
select 32767::int2 + 1::int2
select 9223372036854775807 + 1
select price + rate, price - rate, price * rate, price / 3, rate / price, price % 7 from orders where price <> 0
select total + 1, total * 1.5, total / 7, total - price, -total, abs(total), total % 2 from orders
select sum(price), avg(price), min(price), max(price), count(price), sum(qty), avg(qty), sum(id), avg(id) from orders
select sum(total), avg(total), min(total), max(total) from orders
select sum(price * qty), avg(price * rate), sum(coalesce(price, 0)), sum(coalesce(total, 0)) from orders
select status, sum(case when qty > 2 then price else 0 end) from orders group by status
select status, count(*) filter (where qty > 2), sum(price) filter (where price > 10), count(distinct customer_id) from orders group by status order by status
select avg(price) from orders where false
select sum(qty), count(*), max(note) from orders where id < 0
select round(price), round(price, 1), round(rate, 2), trunc(price), trunc(rate, 1), ceil(price), floor(price), sign(price) from orders
select round(total, 2), round(total), trunc(total, 1), ceil(total), floor(total) from orders
select round(2.5), round(-2.5), round(2.5::float8), round(3.5::float8), round(1234.567, -2)
select weight + 1, weight * 2, weight / 3, -weight, abs(weight) from orders
select weight / 0 from orders
select weight > 1, weight = 2.5, weight < price from orders
select '-2147483648.5'::float8::int4, '-32768.5'::float4::int2, '2.5'::float8::int8, '-0.5'::float8::int4
select c.* from customers c, lateral (select c.*) x where c.id = 1
select prices[0], prices[-1] from kinds order by id
select exists(select 1 from orders i where i.weight > o.weight), (select count(*) from spans where span < s.span) from orders o, spans s where o.id = s.id order by o.id
select '["\\u0000"]'::json ->> 0, '["\u00e9"]'::json ->> 'a', '{"a": 1}'::json #> '{}'
select shipped + interval '1 month', shipped - interval '1 month', shipped + interval '31 days', interval '31 days' from orders order by id
select '-0'::numeric, '-0.5'::float8, '-0'::int::float8
select shipped + interval '1 month', shipped + interval '30 days' from orders order by id
select id from orders where shipped + '1 month'::interval > timestamp '2026-03-01' and shipped + interval '30 days' <= timestamp '2026-03-02 12:00' order by id
select (span + interval '1 day')::text, (span + interval '24:00')::text, coalesce(span, interval '1 day')::text, coalesce(span, interval '24 hours')::text from spans order by id
select min(shipped + interval '1 mon'), min(shipped + interval '30 days'), date_bin('1 day', min(shipped), '2000-01-01'), date_bin('24:00', min(shipped), '2000-01-01') from orders
select shipped + interval '1 year', count(*) from orders group by shipped + interval '1 year' having min(shipped) + interval '360 days' > '2000-01-01' order by 1
select sqrt(16), sqrt(2.0::float8), ceil(1.2::float8), floor(-1.2::float8)
select price > 10, price = 4.625, price >= rate, price between 1 and 20, price in (1, 2.5, 8.25), total > 1, total = 22.25 from orders
select id from orders where total = 22.25 order by id
select id, total from orders order by total, id
select id, total from orders order by total desc, id
select id, price from orders order by price desc nulls last, id limit 5
select id, status from orders order by status, id
select id, status from orders order by status desc, id limit 7 offset 3
select id from orders order by 1 desc fetch first 3 rows only
select name from customers order by name
select name, email from customers where name ilike 'A%' or name like 'x\_%' or name like '50!%' escape '!'
select name from customers where name not like '%n%'
select name || email, name || 1, 'a' || null, email || '-' || id from customers
select concat(name, '-', id), concat_ws(',', name, email, null, id), concat('a', null) from customers
select lower(name), upper(name), length(name), char_length(email), octet_length(name), reverse(email), md5(email) from customers
select left(email, 3), right(email, 3), left(email, -3), right(email, -3), left(email, 0) from customers
select substring(email from 2 for 3), substring(email, 0, 3), substr(email, -1, 4), substring(email from 5), substr(email, 3) from customers
select substring('abc', 1, -1)
select split_part(email, '@', 1), split_part(email, '@', 2), split_part(email, '@', 3), split_part(email, '@', -1), split_part('a', '', 1) from customers
select position('@' in email), strpos(email, 'z'), strpos(email, ''), replace(email, 'user', 'u'), replace(email, '', 'x') from customers
select trim(name), ltrim(name), rtrim(name), btrim(email, 'user'), trim(both 'm' from email), trim(leading from name), trim(trailing 'm' from email) from customers
select repeat('ab', 3), repeat('ab', -1), starts_with('abc', 'ab')
select name ~ '^[A-Z]', name ~* '^a', email !~ 'org$', email ~ 'r1.@' from customers
select id from customers where email ~ '(1|2)@example\.(com|net)' order by id
select code, length(code), code = 'ab', code || '|', code like 'ab%', code = 'EU   ' from customers
select code from customers order by code, id
select distinct code from customers
select code, count(*) from customers group by code order by code
select id from customers where id = any(array[1, 5, 99]) order by id
select id from customers where name = any('{Anna,bob}') order by id
select id from customers where id = any('{1,2,3}'::int[]) order by id
select id from customers where id <> all(array[1,2,3]) order by id
select id from customers where 'a' = any(tags) order by id
select id, 'c' = any(tags), 'zz' = any(tags), tags from customers order by id
select id from customers where id in (select customer_id from orders where qty > 5) order by id
select id from customers where id not in (select customer_id from orders where customer_id is not null) order by id
select id from customers where id = any(select customer_id from orders) order by id
select id from customers c where exists (select 1 from orders o where o.customer_id = c.id and o.qty > 4) order by id
select id from customers c where not exists (select from orders o where o.customer_id = c.id) order by id
select id, (select max(price) from orders o where o.customer_id = c.id) from customers c order by id
select (select id from customers)
select (select name from customers where id < 0)
select distinct on (customer_id) customer_id, id, price from orders order by customer_id, price desc nulls last, id
select distinct on (status) status, id from orders order by status, placed desc
select distinct status from orders order by status desc
select distinct qty % 3 as r from orders order by r
select customer_id, row_number() over (partition by customer_id order by id), rank() over (order by qty), dense_rank() over (order by qty desc) from orders
select id, sum(price) over (order by id), sum(qty) over (partition by status order by id rows between 1 preceding and current row), count(*) over () from orders
select id, lag(id) over w, lead(price, 2) over w, lag(qty, 1, 0::int2) over w, first_value(id) over w, last_value(id) over w from orders window w as (order by placed)
select id, avg(price) over (partition by status), ntile(4) over (order by id), percent_rank() over (order by id) from orders
select status, sum(sum(price)) over (order by status) from orders group by status order by status
with paid as (select * from orders where status = 'paid'), big as (select id, price from paid where price > 5) select count(*), sum(price) from big
with q(a, b) as (select id, name from customers) select b, a from q where a < 4 order by a
with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select n, n * n as square from r order by n
with recursive t as (select 1 as n, 'a'::text as s union all select n + 1, s || 'b' from t where n < 3) select * from t order by n
with a as (select 1 as x), b as (select x + 1 as y from a) select * from a, b
select c.name, o.id from customers c join orders o on o.customer_id = c.id where o.qty > 5 order by o.id
select c.id, o.id from customers c left join orders o on o.customer_id = c.id and o.qty > 5 order by c.id, o.id
select c.id, o.id from customers c right join orders o on o.customer_id = c.id order by o.id
select c.id, o.id from customers c full join orders o on o.customer_id = c.id order by c.id, o.id
select * from (select id, name from customers) a join (select id, qty from orders) b using (id) order by id
select id, a.name, b.qty from (select id, name from customers) a left join (select id, qty from orders where id > 3) b using (id) order by id
select * from (select id, name from customers where id < 4) a full join (select id, qty from orders where id between 3 and 6) b using (id) order by id
select * from (select id, name from customers where id < 4) a natural join (select id::int, qty from orders) b order by id
select a.id, b.id from customers a, customers b where a.id = b.id + 20 order by 1
select c.id, last.id, last.price from customers c cross join lateral (select id, price from orders o where o.customer_id = c.id order by placed desc limit 1) last order by c.id
select c.id, x.n from customers c left join lateral (select count(*) as n from orders o where o.customer_id = c.id) x on true order by c.id
select c.id, t from customers c, unnest(c.tags) t order by c.id, t
select c.id, t.x from customers c cross join unnest(tags) as t(x) order by 1, 2
select * from generate_series(1, 5)
select g, g * 2 from generate_series(10, 1, -3) g order by g
select d from generate_series('2026-01-31'::timestamp, '2026-06-30', interval '1 month') d order by d
select day::date, count(o.id) from generate_series(date '2026-02-01', date '2026-02-07', interval '1 day') day left join orders o on o.placed::date = day::date group by day order by day
select i, s.n from generate_series(1, 3) i, generate_series(1, i) as s(n) order by i, n
select * from generate_series(1, 3, 0)
select id from customers where id < 4 union select id from orders where id between 3 and 6 order by id
select 1 union all select 1 union all select 2.5
select id, name from customers where id < 3 union all select id, status from orders where id < 3 order by 1, 2
select status from orders except select 'paid' order by 1
select status from orders intersect select status from orders where qty > 5 order by 1
select status from orders except all select status from orders where qty > 2 order by status
select 'x' as a union select null order by a
(select id from customers order by id limit 2) union all (select id from orders order by id desc limit 2) order by id
values (1, 'a'), (2, null)
select * from (values (1, 'a'), (2, 'b')) v(n, t) order by n desc
select column1 from (values (1), (2)) x order by 1
select date_trunc('day', placed), date_trunc('month', shipped), date_trunc('week', placed), date_trunc('hour', shipped), date_trunc('quarter', born::timestamp) from orders, customers where customers.id = 1
select date_trunc('month', born) from customers
select date_trunc('month', placed)::date as month, count(*), sum(price) from orders group by 1 order by 1
select extract(year from placed), extract(month from shipped), extract(dow from placed), extract(isodow from placed), extract(week from placed), extract(doy from placed), extract(hour from placed), extract(epoch from placed), extract(second from shipped), extract(quarter from born) from orders, customers where customers.id = 2
select extract(epoch from born), extract(day from born), extract(isoyear from born) from customers
select placed + interval '1 day', placed - interval '2 hours 30 minutes', shipped + interval '1 month', born + 7, born - 1, born + interval '1 day', placed - interval '1' hour from orders, customers where customers.id = 3
select shipped + interval '1 year 2 mons 3 days 04:05:06.5' from orders
select max(placed) - min(placed), max(shipped) - min(shipped), max(placed::date) - min(placed::date) from orders
select shipped - placed::timestamp, placed::date, placed::timestamp, shipped::date, born::timestamp, placed::text, shipped::text, born::text from orders, customers where customers.id = 3
select interval '1 day' + interval '2 hours', interval '90 minutes', interval '1 year', interval '-1 day', '1 week'::interval, interval '1 day' * 3, interval '0'
select id from orders where placed >= '2026-02-10' and placed < timestamptz '2026-02-12 10:00+02' order by id
select id from orders where placed > date '2026-02-20' and shipped < '2027-01-01 12:00' order by id
select placed at time zone 'UTC', shipped at time zone 'utc' from orders
select date '2026-02-30'
select '2026-02-28'::date + 1, date '2024-02-29' - date '2023-03-01'
select settings ->> 'plan', settings -> 'seats', settings -> 'n' -> 'x', settings -> 'n' -> 'x' ->> 1, settings ->> 'n', settings -> 1 from customers
select id from customers where settings @> '{"plan": "pro"}' order by id
select id, settings @> '{"n": {"x": [1]}}', settings @> '[1]', settings @> '1', settings ? 'plan', settings @> '{}' from customers order by id
select (settings ->> 'seats')::int + 1, settings ->> 'on', (settings ->> 'seats')::numeric from customers
select jsonb_typeof(settings), settings from customers
select id from customers where settings ->> 'plan' = 'pro' and (settings ->> 'seats')::int > 2 order by id
select coalesce(name, 'none'), coalesce(null, name, 'x'), nullif(name, ''), nullif(id, 3), greatest(id, 5), least(id, 5, null), greatest(name, 'b') from customers
select case when vip then 'vip' when vip is null then 'unknown' else name end, case id when 1 then 'one' when 2 then 'two' end, case when id > 3 then 1 else 2.5 end from customers
select vip, not vip, vip is true, vip is not true, vip is false, vip is null, vip and id > 3, vip or id > 3, vip = true from customers
select vip::int, vip::text, 't'::bool, 'off'::boolean from customers
select bool_and(vip), bool_or(vip), every(id > 0) from customers
select name is distinct from 'Anna', name is not distinct from null, (id, name) = (1, 'bob') from customers
select id from customers where (id, name) in ((1, 'bob'), (9, 'Anna')) order by id
select string_agg(name, ', ' order by id), string_agg(distinct status, '|' order by status) from customers join orders using (id)
select string_agg(name, ', ' order by name desc, id) from customers
select customer_id, array_agg(id order by id) from orders group by customer_id order by customer_id
select count(*), count(name), count(distinct name) from customers having count(*) > 3
select status, count(*) as n from orders group by status having count(*) > 11 order by n desc, status
select qty % 2 as parity, count(*) from orders group by parity order by parity
select status, qty, count(*) from orders group by 1, 2 order by 1, 2
select upper(status), count(*) from orders group by upper(status) order by 1
select name from customers group by id
select nosuch from orders
select * from nosuch
select o.nosuch from orders o
select id from customers join orders on true
select id, name from customers where name = 1
select 'abc'::int
select 'a' + 1
select ref, ref = '00000000-0000-0000-0000-000000000003', ref > '00000000-0000-0000-0000-000000000010' from customers
select customers.* from customers order by id limit 2
select "id" as "Total", id as Lower from customers order by "Total" limit 2
select public.customers.id from public.customers order by 1 limit 1
select id as x from customers where x = 1
select weight::text, weight::numeric from orders
select price::float8, id::float8, qty::numeric(5,1), id::numeric / 3 from orders
select 1::numeric(5,2), 1.005::numeric(5,2), 123.456::numeric(4,0)
select 12345.6::numeric(4,1)
select 'x'::varchar(3), 'abcdef'::varchar(3), 'ab'::char(4), 123::text
select count(*) from orders where note is not null and note = '12'
select -price, - qty, +1, -(-3), 2 * -3 from orders
select not true and false or true, 1 < 2 and 2 < 3
select id from orders where status in ('paid', null) order by id
select id from orders where status not in ('paid', 'sent') order by id
select id from orders where status not in ('paid', null)
select id from orders limit 0
select id from orders order by id limit all offset 55
select greatest(price, 0) from orders
select now() > placed, current_date > '2020-01-01'::date from orders
select count(*) from orders where placed > now() - interval '1 day'
select price, total from orders where price > 50 or total is null order by price, id
select length(note), note || '!' from orders where note ~ '^[0-9]+$'
select o.status, c.vip, count(*), sum(o.price) from orders o join customers c on c.id = o.customer_id group by o.status, c.vip order by 1, 2
select extract(month from placed) as m, avg(price) from orders group by extract(month from placed) order by m
select price as p from orders order by p + 1, id limit 3
select id % 5 as k, max(price) - min(price), round(avg(price), 2) from orders group by id % 5 order by k
select count(*) from (select distinct customer_id, status from orders) x
select x.* from (select id, name as n from customers where id <= 2) x, lateral (select x.id + 1 as next) y order by 1
select settings ->> -2 from customers
select date '2024-02-29'::text, interval '-3 days 02:00', timestamptz '2026-02-28 23:59:59+01'::timestamp, - interval '-3 days 02:00'
select '2026-01-31'::date::timestamp, null::text::int, case 3 when 1 then 'a' else false::text end
select null::int / 0, null::int % 0, null::float8 / 0, substring('x' from null::int), substring('abc', 0, 1), repeat('a', null)
select settings -> 0, settings ->> 0 from customers
select case when true then 0.00 else 1.5 end, coalesce(0.50, 1.125)::text, 0.25::numeric || ''
select status from orders group by -7
select sum(note::numeric) filter (where note ~ '^[0-9]+$') from orders
select lag('a') over () from orders
select strpos(note, ''), split_part(note, '', 2), split_part(note, '', 1) from orders
select to_char(placed, 'YYYY-MM-DD HH24:MI:SS'), to_char(placed, 'YYYY-MM'), to_char(placed, '"Q"Q YYYY') from orders order by id
select to_char(born, 'Mon DD, YYYY'), to_char(born, 'FMMonth FMDD, YYYY'), to_char(born, 'Month|Day|DY|dy|Dy|MONTH|month|day|DAY|mon|MON') from customers order by id
select to_char(shipped, 'YYYYMMDDHH24MISSUS'), to_char(shipped, 'HH12:MI AM'), to_char(shipped, 'HH:MI pm'), to_char(shipped, 'MS US') from orders order by id
select to_char(placed, 'IYYY-IW-ID D DDD YY FMDDD FMMM/FMDD'), to_char(null::date, 'YYYY') from orders order by id
select to_char(placed, 'YYYY-MM-DD"T"HH24:MI:SS"Z"') from orders where id = 1
select to_char(price, 'FM999,990.00'), to_char(price, '999990.00'), to_char(price, 'FM999.99'), to_char(price, '9'), to_char(price, 'FM9.9') from orders order by id
select to_char(total, 'FM9,999,999,999.000'), to_char(total, '9,999,999.999'), to_char(total, '0000000000.0'), to_char(total, 'FM0') from orders order by id
select to_char(id, '000'), to_char(id, 'FM000'), to_char(id, '999'), to_char(-id, '9,999'), to_char(-id, 'FM09,999'), to_char(id::int, '9') from orders order by id
select to_char(qty, '99'), to_char(qty, '00'), to_char(qty, '99.9'), to_char(qty, 'FM99.99'), to_char(qty, 'FM90.09'), to_char(qty - 0.5, '9.9'), to_char(qty - 0.5, 'FM0.0'), to_char(qty/100.0, '9.9'), to_char(qty/100.0, 'FM9.99'), to_char(qty/1000.0, '9.9') from orders order by id
select to_char(1234567.891, '9,999,999'), to_char(123, '9,999,999'), to_char(123, '0,999,999'), to_char(123, '9,099,999'), to_char(-123, '9,099,999'), to_char(0, '9,999'), to_char(0, '9,999.99'), to_char(0.1, '90.9'), to_char(12, '9,9'), to_char(1, '9,9'), to_char(-1, '9,9')
select date_part('year', placed), date_part('epoch', shipped), date_part('second', placed), date_part('month', born) from orders, customers where customers.id = 1 order by 1, 2
select status, qty > 3 as big, count(*), sum(price), grouping(status), grouping((qty > 3), status) from orders group by rollup(status, (qty > 3)) order by 1, 2, 5, 6
select status, count(*) from orders group by cube(status, customer_id % 2) order by 1, 2
select status, customer_id % 3 as m, max(price) from orders group by grouping sets ((status), (2), ()) order by 1, 2, 3
select status, sum(qty) from orders group by rollup(1) having grouping(status) = 1
select count(*), grouping(status) from orders where id < 0 group by rollup(status)
select grouping(status) from orders
select grouping(qty + 1) from orders group by rollup(qty)
select status, sum(sum(qty)) over (order by status), rank() over (order by count(*)) from orders group by grouping sets (status, ()) order by 1, 2
select id, status, count(*) from orders where id = 3 group by rollup(id, status) order by 1, 2
select status, count(*) from orders where status = 'paid' group by rollup(status) order by 1
select coalesce(status, 'all'), count(*) from orders group by rollup(status) order by 1, 2
select case when grouping(status) = 1 then 'total' else status end as s, avg(price) from orders group by rollup(status) order by 1, 2
select status, vip, count(*) from orders o join customers c on c.id = o.customer_id group by status, rollup(vip) order by 1, 2, 3
select status, vip, count(distinct customer_id) from orders o join customers c on c.id = o.customer_id group by cube(status, vip) order by 1, 2, 3
select distinct count(*) from orders group by rollup(status, qty)
select upper(status), count(*) from orders group by rollup(status) order by 1, 2
select 'x' as k, status, count(*) from orders group by grouping sets ((status), ()) order by 2, 3
select id from orders order by id using > limit 3
select * from (select 1), (select 2)
select id, stage from parcels where stage = 'paid' order by id
select stage, count(*) from parcels group by stage order by stage
select stage, count(*) from parcels group by stage order by stage desc nulls last
select id from parcels where stage >= 'paid' and stage < 'back' order by id
select id from parcels where stage in ('new', 'back') or other is null order by id
select id from parcels where stage = other order by id
select id from parcels where stage < other order by id
select min(stage), max(stage), min(other) filter (where id > 3), count(distinct stage) from parcels
select stage::text || '!', coalesce(stage, 'new'), case when id > 3 then stage else 'back' end from parcels order by id
select distinct stage from parcels
select stage from parcels union select other from parcels
select size, count(*) from boxes group by size
select id from boxes where size <> 'middle'
select id from parcels where stage = of_order
select id from parcels where stage is null order by stage, id
select id from parcels where stage is distinct from 'paid' order by id
select p.stage, o.status from parcels p join orders o on o.id = p.of_order where p.stage::text = o.status order by 1, 2, p.id
select id, row_number() over (partition by stage order by other, id), lag(stage) over (order by id) from parcels order by id
select id from parcels where stage = any(array['paid', 'sent']::text[]) order by id
select id from parcels where stage in (select other from parcels) order by id
select array_agg(stage order by id) from parcels
select string_agg(stage::text, ',' order by stage, id) from parcels
select id from parcels where stage between 'paid' and 'sent' order by stage desc, id limit 5
select upper(stage::text), length(stage::text) from parcels order by id
select concat(stage, id) from parcels order by id
select id from parcels where stage like 'p%'
select stage, other, count(*) from parcels group by rollup(stage, other) order by 1, 2, 3
select string_agg(distinct status, ',' order by status) from orders
select string_agg(distinct status, ',' order by id) from orders
select count() from orders
select rank() over (partition by status, order by id) from orders
select id, from orders
select count(*) over W from orders window w as (order by id)
select count(*) over w from orders window w as (order by id), W as (order by id)
select lag(qty, 1, 0.5) over (order by id) from orders
select sum(distinct qty) over () from orders
select lag(price, 1, 0) over (order by id), lag(price, 1, 0.5555) over (order by id), lag(price, 2, null) over (order by id), lead(price, 1, '0.1') over (order by id) from orders
select lag(total, 1, 0) over (order by id), lag(id, 1, 0) over (order by id), lag(status, 1, 'x') over (order by id), lag(price) over (order by id) from orders
select coalesce(price, '0.1'), case when id > 3 then price else '0.1' end, nullif(price, '0.1') from orders order by id
select price from orders union all select '0.1'
select code from customers union all select null
select greatest(qty, '3') from orders order by id
select price from orders where price in ('0.1', '105.750') order by id
select first_value(code) over (order by id) from customers
select max(code), min(code) from customers
select (select code from customers where id = 1), (select price from orders where id = 1)
values (1.5), ('0.10')
select price from orders where price = null
select id from orders where price <> '10' and price > '-5.555' and price is distinct from null order by id
select id from customers where code = 'ab' or code is distinct from null or code in ('a', 'EU  ') order by id
select id from orders where total = '1.5' or total in ('22.250', '0.00') order by id
select id from orders where price between '0.1' and 10 order by id
select case price when '0.1' then 1 when null then 2 else 3 end from orders order by id
select id, sum(qty) over (order by customer_id groups between 1 preceding and 2 following exclude current row) from orders order by id
select id, sum(qty) over (order by customer_id, id rows between 2 preceding and 1 following exclude ties) from orders order by id, 2
select id, count(*) over (order by customer_id, id rows 2 preceding exclude group), count(*) over (order by customer_id rows between unbounded preceding and unbounded following exclude no others) from orders order by id
select id, first_value(id) over (order by customer_id, id groups current row exclude current row), last_value(id) over (order by status, id rows between 1 preceding and 1 following exclude current row) from orders order by id
select id, sum(price) over (partition by status order by customer_id groups between unbounded preceding and current row exclude ties) from orders order by id
select id, sum(total) over (partition by (select count(*) filter (where c.id > 2) from customers c)) from orders order by id
select id, rank() over (order by customer_id rows between 1 preceding and current row exclude current row), row_number() over (order by customer_id, id groups between 1 preceding and current row) from orders order by id
select id, bool_and(qty > 0) over (order by customer_id range between current row and unbounded following exclude group) from orders order by id
select id, avg(qty) over (order by customer_id groups between 1 following and 2 following), min(price) over (order by customer_id groups between 2 preceding and 1 preceding) from orders order by id
select id, count(*) over (order by id rows between 9223372036854775807 preceding and 9223372036854775807 following) from orders order by id
select upper('Straße'), upper('ẞß'), upper(name || 'ß') from customers
select 'ſ' ~* 's', 'ſ' ~* '[^s]', 'sſ' ~* '^ss$', 'S' ~* 's', 'Kelvin' ~* '^k'
select concat(code, '|'), concat_ws('-', code, id, code), octet_length(code) from customers
select name from customers union select code from customers
select id, span, span is null from spans order by id
select interval '1 month' = interval '30 days', interval '1 year' < interval '359 days'
select interval '1 month -1 day' = interval '29 days', interval '-3 days 02:00' * 3 < interval '-8 days -18:00', interval '1 day -1 hour' between interval '23 hours' and interval '23:00', interval '-9 days 06:00' in (interval '-8 days -18:00'), interval '1 day -24:00' is distinct from interval '0'
select x::text from (values (interval '1 month -1 day', 3), ('29 days', 2), ('28 days 23:59', 1), ('28 days 25:00', 4)) v(x, n) order by x, n
select * from (customers c cross join (values (1)) v(n)) as tx (a, b) order by a
select * from (orders o join customers c on o.customer_id = c.id) order by o.id
select o.id, c.name from orders o left join (customers c join parcels p on p.id = c.id) on o.customer_id = c.id order by o.id
select o.id, p.stage from orders o left join customers c left join parcels p on p.id = c.id on o.customer_id = c.id order by o.id
select * from ((select 1 as x) s join customers c on c.id = s.x) j
select j.x, name from ((select 1 as x) s join customers c on c.id = s.x) j
select s.x from ((select 1 as x) s join customers c on c.id = s.x) j
select id from (orders join (customers join parcels using (id)) using (id)) order by 1
select * from ((orders full join parcels using (id)) full join boxes using (id)) as j order by id
select a.id from (orders a join orders a on true)
select * from (select 1 as a) s, lateral (select s.a + 1 as b) t
select * from ((select 1)) s
select var_pop(qty), var_samp(qty), variance(price), stddev(price), stddev_pop(rate), stddev_samp(id), stddev(total) from orders
select status, var_pop(price), stddev(price), variance(qty), stddev_pop(total) from orders group by status order by status
select stddev(id) from orders where id = 1
select stddev_pop(id), var_pop(price), variance(id) from orders where id = 1
select var_pop(id) from orders where id < 0
select id, var_pop(price) over (order by id rows between 2 preceding and current row), stddev(qty) over (partition by status order by id) from orders order by id
select id, sum(total) over (order by id rows between 2 preceding and 1 following), avg(total) over (partition by status) from orders order by id
select id, sum(total) filter (where qty > 2) over (order by id) from orders order by id
select percentile_cont(0.5) within group (order by qty), percentile_cont(0.95) within group (order by price), percentile_disc(0.5) within group (order by price), percentile_disc(0) within group (order by name desc) from orders join customers using (id)
select status, percentile_cont(0.25) within group (order by qty), percentile_disc(0.9) within group (order by placed) from orders group by status order by status
select percentile_disc(0.5) within group (order by qty) filter (where status = 'new') from orders
select percentile_cont(1.5) within group (order by qty) from orders
select percentile_cont(0.5) within group (order by weight) from orders
select percentile_cont(0.5) within group (order by total), percentile_disc(0.3) within group (order by total) from orders
select array_agg(distinct status), string_agg(distinct status, ',') from orders
select array_agg(distinct status order by status desc) from orders
select customer_id, array_agg(distinct qty), string_agg(distinct note, '|' order by note desc) from orders group by customer_id order by customer_id
select id, array_agg(qty) over (order by id rows 2 preceding) from orders order by id
select any_value(status) from orders where status = 'paid'
select id, sum(qty) over (order by id range between 3 preceding and 1 following) from orders order by id
select id, sum(qty) over (order by qty desc range between 3::int8 preceding and 1::int2 following) from orders order by id
select id, count(*) over (order by placed range between '3 days'::interval preceding and current row) from orders order by id
select id, count(*) over (order by placed desc range between interval '1 month' preceding and interval '2 days' following exclude current row) from orders order by id
select id, count(*) over (order by shipped range between '1 year' preceding and '1 month' preceding) from orders order by id
select id, count(*) over (order by born range between '2 years'::interval preceding and '1 day' following) from customers order by id
select id, sum(qty) over (w rows 1 preceding), sum(qty) over w, rank() over (w order by qty, id) from orders window w as (partition by status) order by id
select id, sum(qty) over (w order by id) from orders window w as (order by qty) order by id
select id, sum(qty) over (w partition by id) from orders window w as (order by qty) order by id
select id, sum(qty) over (w) from orders window w as (order by id rows 1 preceding) order by id
select id, nth_value(status, 2) over (order by id), nth_value(qty, 3) over (partition by status order by id) from orders order by id
select id, lag(qty, 1, 0.5) over (order by id), lead(id, 2, 7.25) over (order by id) from orders order by id
select c.id, c.name, c.email, count(*) from customers c join orders o on o.customer_id = c.id group by c.id order by c.id
select c.*, sum(o.price) as total from customers c left join orders o on o.customer_id = c.id group by c.id having c.vip order by total desc nulls last, c.id
select settings, count(*) from customers group by id order by id
select name from customers where email like any (array['user1%', '%2@%']) order by id
select name from customers where email not like all (array['user1%', null]) order by id
select name from customers where name ilike any ('{a%,B%}') order by id
select placed at time zone 'Europe/Paris' as local, date_trunc('day', placed at time zone 'America/New_York'), placed at time zone 'Asia/Kathmandu' from orders order by id
select placed at time zone 'utc', shipped at time zone 'UTC' from orders order by id
select extract(epoch from placed - timestamptz '2026-01-01 00:00+00'), extract(day from placed - timestamptz '2026-02-01'), extract(hour from timestamp '2026-01-01' - shipped), extract(minute from interval '-1 hour -30 minutes'), extract(second from interval '1.25 seconds'), extract(epoch from interval '1 year 2 months 3 days 04:05:06.5'), extract(epoch from interval '-14 months') from orders order by id
select extract(year from interval '14 months'), extract(month from interval '-14 months'), date_part('day', interval '3 days 4 hours'), date_part('epoch', interval '1 day') 
select lpad(note, 4, '0'), rpad(note, 3), lpad(note, 2), lpad(name, 9, 'xy'), rpad(name, 0), lpad(name, -2, 'x'), rpad(name, 4, '') from orders join customers using (id) order by id
select pg_typeof(id), pg_typeof(price), pg_typeof(placed), pg_typeof(null), pg_typeof('x') from orders where id = 1
select distinct tags from customers
select name from customers where not (email like any (array['user1%', null])) order by id
select date '2026-13-01'
select id, unnest(tags) from customers order by id, 2
select unnest(tags) as tag, generate_series(1, 3) as n from customers where id < 5 order by id, n
select generate_series(1, 3), generate_series(date '2026-01-01', date '2026-01-03', interval '1 day')
select distinct unnest(tags) from customers order by 1
select array_length(tags, 1), cardinality(tags), array_to_string(tags, '+'), array_position(tags, 'b'), array_length(tags, 2) from customers order by id
select '{1,2,null}'::int[], array['1', '2']::int[], tags::text[], '{}'::text[], array[]::int[], (array[1.5, 2.5]::int[])[1] from customers order by id
select id from orders where status = any('{new,sent}') order by id
select id from orders where id = any('{1,2}'::int[]) order by id
select '{abcdef,null,ab}'::varchar(3)[], id from customers where 'abc' = any('{abcdef}'::varchar(3)[]) order by id
select name from customers where email not like all (array['user1%', '%2@%']) order by id
select name from customers where email not ilike any (array['USER1%', 'user2%']) order by id
select name from customers where not email like all (array['user1%', '%2@%']) order by id
select id from orders where id not in (1,2) and status not like 'n%' and qty not between 1 and 2 order by id
select tags[1], tags[2], tags[9], id from customers order by id
select interval '1.5 days'
select string_agg(distinct email::text, ',' order by email) from customers
select string_agg(distinct email, ',' order by email::text) from customers
select string_agg(distinct email, ',' order by email) from customers
select c.name as nombre, upper(c.name), (select count(*) from orders o where o.customer_id = c.id and c.vip) from customers c group by c.id order by c.born, c.id
select '{"b": 1.50, "a": {"x": 1e3, "x": 2}, "aa": [1, -0, 1E-2, "\u00e9\/\t"]}'::jsonb
select '{"b": 1.50,  "a":1}'::json, '{"b": 1.50,  "a":1}'::json::jsonb, '{"b": 1.50,  "a":1}'::jsonb::json
select '"\u0000"'::jsonb
select '"\ud800"'::jsonb
select '[1,]'::jsonb
select '[01]'::jsonb
select '[NaN]'::jsonb
select 'x'::json
select ''::jsonb
select ' "a" '::jsonb, ' 1'::json
select settings #>> '{n,x,1}', settings #> '{n}', settings #> '{n,x,-1}', settings #> '{}', settings #>> '{}' from customers order by id
select settings #> array['n','x'], settings #>> array['n',null] from customers order by id
select settings ->> -2, settings -> ' 1', settings ->> ' plan', settings -> 'plan' from customers order by id
select settings -> name, settings ->> lower('PLAN'), settings -> id from customers order by id
select settings ->> 0 + 1 from customers order by id
select settings ?| array['plan','a'], settings ?& '{plan,seats}', settings ?| '{}', settings ? 'a', settings ? null from customers order by id
select settings <@ '{"plan": null, "n": {"x": [1, 2.5, "t"]}, "z": 1}', '[1]' <@ settings, '[1]'::jsonb <@ settings, settings @> settings from customers order by id
select 'x: ' || (settings ->> 'plan') from customers order by id
select 'x: ' || settings ->> 'plan' from customers order by id
select settings ->> 'plan' || '!' from customers order by id
select (settings -> 'seats')::int, (settings -> 'seats')::numeric, (settings -> 'seats')::float8, (settings -> 'on')::bool from customers order by id
select (settings -> 'plan')::int from customers order by id
select '2.5'::jsonb::int, '3.5'::jsonb::int, '-2.5'::jsonb::int, 'null'::jsonb::int, 'true'::jsonb::boolean
select 'null'::jsonb::bool
select '"x"'::jsonb::bool
select '99999999999'::jsonb::int
select name::jsonb from customers
select note::jsonb from orders where id in (1,2) order by id
select ('{"a": "' || note || '"}')::jsonb ->> 'a' from orders order by id
select ('{"a": "' || note || '"}')::jsonb @> '{"a": "x"}' from orders order by id
select settings @> '[1' from customers
select settings -> 1.5 from customers
select settings -> id::bigint from customers
select settings -> 'n' -> 'x' -> 1, settings->'n'#>>'{x,0}' from customers order by id
select settings #>> '{n, x, 99999999999}', settings #>> '{n,x, +1}' from customers order by id
select '1e400'::jsonb, '12345678901234567890123456789012345678901234567890.10'::jsonb
select '1'::jsonb #>> '{}', '"a"'::jsonb #>> '{}', 'null'::jsonb #>> '{}', '"a"'::jsonb #>> '{0}', '"a"'::jsonb ->> 0
select settings @> '{"plan": "pro"}' and settings ->> 'on' = 'true' from customers order by id
select count(*) from customers where settings::text::jsonb #>> '{n,x,2}' = 't'
select settings ? null, settings ? 'a', settings ? name from customers order by id
select convert_from('\x61c3a9'::bytea, 'UTF8'), convert_from('\x61'::bytea, 'utf-8')
select convert_from('\xff'::bytea, 'UTF8')
select convert_from('\x6100'::bytea, 'UTF8')
select '\x61ff'::bytea::text, '\x61'::bytea
select '\x61'::bytea || 'a'
select 'epoch'::timestamptz, 'epoch'::date
select interval 'P1Y', interval 'P1Y2M3DT4H5M6S', interval 'PT1.5S', interval 'P-1Y', interval '1-2', interval 'P2W'
select interval 'P1.5Y', interval 'P1Y2M10DT2H30M', interval 'PT36H', interval 'P1W2D', interval 'P-1M', interval 'PT-1.5S', interval 'PT0.1234567S'
select interval '-1-2', interval '+1-2', interval '1-2 3 days 04:05:06', interval '1-11', interval '00:00:01.1234567'
select interval '1.5 years', interval '1.5 months', interval '2.25 weeks', interval '-1.5 days', interval '1.26 years', interval '1.5 decades', interval '1 day ago', interval '-1 day 2 hours ago', interval '@ 1 minute 2 secs ago'
select interval '1 year 1.5', interval '1.5', interval '-00:00:01.5', interval '1 mon -1.5', interval '5' day, interval '1.5 hours', interval '90'
select substring('foobar' from 'o.b'), substring('foobar' from 'o(.)b'), substring('foobar' from 'x'), substring('foobar', 'o(.)b'), substring('a2b', '2')
select substring('foobar' from '[^o]+$'), substring('2026-11' from '\d+'), substring('a1b' from '(\d)b'), substring('' from 'a*'), substring('bbb' from 'a*'), substring(null::text from 'a')
select substring(email from '^[^@]+'), substring(email from '@(.+)$'), substring(name from '\d'), substring(name from 'a{1,2}') from customers order by id
select substring('abcdef' for 2), substring('abcdef' from 2 for 3), substring('abcdef', 2), substr('abcdef', 2, 2)
select 'x' ~ 'x{1,2}', 'xx' ~ '^x{2}$', 'ab12' ~ '^[a-z]+\d{2}$', 'ab12' ~* 'B1', 'a@b.c' ~ '^[^@]+@[^@]+[.][a-z]+$'
select 1 as x, 2 cycle, 3 depth, (4) search
select (1) cycle, (select 2) cycle, count(*) cycle from customers
select 'select ' || status as k, count(*) from orders group by rollup('select ' || status)
select timestamp '2026-01-01 24:00', timestamp '2026-01-01 10:00:60', timestamptz '2026-12-31 23:59:60+01', timestamptz '2026-12-31 24:00+01'
select timestamp '2026-01-01 25:00'
select timestamp '2026-01-01 24:00:01'
select ((- -7)) as k, count(*) from customers group by ((- -7))
select id as k, count(*) from customers group by - -1 order by (- (-1)) limit 2
select id from customers order by -1
select id from customers order by 1.5
select id from customers group by 'x'
select id from customers order by -(1)
select id from customers order by +1
select id, name like '%n%a', name like '%n%a%', name ilike '%N%A%', name not like '%o%e%l', name not ilike '%O%E%l%' from customers order by id
select name like email, name like '%' || name || '%', 'a%b' like name, name ilike upper(name) || '%', name like name, 'x_y' like name from customers order by id
select id from customers where email like '%s_r%@%.c%m' order by id
select 'a.b*c' like '%.%*%', 'a\b' like '%\\%b', '50% off' like '%\% %', 'a|b' like '%|%|%' escape '|', 'axb' like '%x%x%' escape 'x', 'a+b(c)[d]{e}^$' like '%+%(%)%[%]%{%}%^%$%'
select 'İ' ilike '%i%', 'ẞa' ilike '%ß%A%', 'ΑΣ' ilike '%α%σ%', 'É1' ilike '%é%1', 'ſ' ilike '%s%', 'K' ilike '%k%_' from customers where id = 1
select code like '%a%b%', code like 'a%  %', code not like '_%_%_%_%_' from customers order by id
select name like any(array['%n%a%', '%b%b%']), name not like all(array['%x%y%','a%']) from customers order by id
select null like '%a%b', 'a' like null::text
select * from (values (1, 'a', null), (2, null, 3.5), (3, 'c', 1)) v(a, b, c)
values (1, 2), (3, 4)
select id, (select max(x) from (values (c.id), (c.id + 5)) v(x)) from customers c order by id
select c.id, v.x from customers c, lateral (values (c.id), (c.id * 2)) v(x) where c.id < 4 order by 1, 2
select * from (values ((select max(id) from customers)), (1)) v(a) order by 1
select sum(a) from (values (1), (null)) v(a)
values (interval '1 day', date '2026-01-01', '{a}'::text[]), (null, null, null)
select id in (1, 2, null), name in ('Anna', 'bob'), name not in ('Anna', null), born in ('1971-02-02', date '1972-01-01'), ref in ('00000000-0000-0000-0000-000000000001', null), vip in (true, null) from customers order by id
select id in (1, 2.0), id in (1, '2'), 3000000000 in (id, 1), id::smallint in (1, 3000000000) from customers order by id
select code in ('ab', 'EU'), code in ('ab ', 'EU'), email in ('user1@example.org', name) from customers order by id
select id from orders where price in (1, 2.5, '3') or total in (1.50, 0)
select id in ('x', 1) from customers
select name in (1, 2) from customers
select 1 in ('1', '2'), 'a' in ('a', 'b'), null in ('a', 'b'), 'a' in (null, 'b')
select placed in ('2026-02-01 11:37:00.25+00', now()), shipped in ('2026-01-01', date '2026-01-01', placed) from orders order by id
select repeat('a', 300) like repeat('%_a', 12) || '%b', repeat('a', 300) like '%_a%_a%_a%_a%_a%_a%_a%_a%b', repeat('a', 300) ilike '%_A%_A%_A%_A%_A%_A%_A%_A%b'
select total, count(*) from orders group by total
select total, count(*) from orders group by total order by 1
select total * 1.0 as x, sum(id) from orders group by 1 order by sum(id) desc limit 3
select weight, count(*), min(id) from orders group by weight order by weight
select distinct total from orders
select distinct total, status from orders order by total, status limit 4
select distinct weight from orders order by 1 desc
select total from orders union select 7.0 order by 1
select weight from orders union select 2.5::float8 order by 1
select 1.1 as two union select 2 order by 1
select 1 as one union select 1.0::float8 order by 1
select total, status, count(*) from orders group by total, status order by 3 desc, 1, 2 limit 5
select count(*) from orders group by total
select distinct price / 3 from orders where id < 5 order by 1
select count(*) from (select total from orders group by total) s
select count(*) from (select distinct total from orders) s
select total, row_number() over (order by total) from orders group by total
select id from customers where (id, vip) in (select id, vip from customers)
select id, (id, vip) in (select id, vip from customers where id > 3), (id, name) not in (select id + 1, name from customers where id < 4) from customers order by id
select id from customers where (id, vip) < (5, true) order by id
select id, (id, vip) >= (5, false), row(vip, id) <= row(true, 7), (vip, name, id) > (false, 'a', 3) from customers order by id
select row(1, 2) = row(1, 2), (1, null) = (1, 2), (1, null) < (2, 1), (1, null) <= (1, 2), (2, null) <> (1, null)
select (1, 2) in (select 1)
select id from orders o where (o.qty, o.id) in (select x.qty, x.id from orders x where x.customer_id = o.customer_id) order by id
select x from (select x::numeric as x, count(*) as n from (values ('1.0'), ('1.00'), ('2')) v(x) group by 1) s where n > 1 limit 0
select x::float4, count(*) from (values ('0'), ('0'), ('2'), ('NaN')) v(x) group by x::float4 order by 1
select avg(n) from (select total, count(*) as n from orders group by total) s where total > 1
select ' 1.5 '::text::float8, x::float8 from (values ('Infinity'), ('-inf'), ('+1e3'), ('nan')) v(x)
select array[1,2] || 3, 3 || array[1], array[1] || array[2, null], null::int[] || array[1], array[1] || null::int[], null::int[] || 1, array[1] || null::int, null::int[] || null::int[]
select tags || tags, tags || name, name || tags from customers order by id
select name collate "C" from customers order by name collate "C", id
select 'a' < 'B' collate "POSIX", max(name collate "C") from customers
select 1 collate "C"
with recursive t(id, path) as (select 1, array[1] union all select id + 1, path || (id + 1) from t where id < 4) select * from t order by id
select count(*), sum(a) from (values (1),(2),(3),(4),(5),(6),(7),(8),(9),(10),(11),(12),(13),(14),(15),(16),(17),(null)) v(a)
select substring('a(b)c' from '\(b'), substring('a(b)c' from '\((b)\)'), substring('aa(' from '\({1,2}'), substring('x' from '\(')
select '-' ~ '[-]', 'b' ~ '[-a-c]', '-' ~ '[a-]', 'd' ~ '[^a-c-]', '&' ~ '[%-*]', '-' ~ '[a-c-]'
select name like '%X_y' escape 'X', '50% off' ilike '%!% O%' escape '!' from customers order by id
select interval '1h30m', interval '1d2h', interval '0.0000015 seconds', interval '2.5 us', interval '0.0015 ms', interval '00:00:00.0000015', interval 'PT0.0000015S', interval 'P15.25WT3.7242055S', interval '-1.0000015'
select interval '07:12 +0-6 -100.25 days', interval '-100.25 days 07:12', interval '1 day 02:00 ago', interval '1-2 ago', interval '0.33 months', interval '1.3 weeks'
select interval '2026-11-27'
select '[1,2]'::jsonb #>> '{00000000000001}', '[1,2]'::jsonb #>> '{4294967297}', '{ }'::text[], '[1]'::jsonb #>> '{ }', cardinality('{  }'::int[])
select '2026-01-01 10:00:60.5'::timestamp, '2026-12-31 24:00 -05:30'::timestamptz
select '2026-01-01 23:59:60.5'::timestamp
select '2026-13-01'::date
select '0e400'::float8, '1e-310'::float8, '1e-40'::float4, x::float8 from (values ('0e999'), ('1e-310')) v(x)
select '1e400'::float8
select '1e-400'::float8
select '1e39'::float4
select x::float8 from (values ('1e400')) v(x)
select x::float8 from (values ('-1e-400')) v(x)
select '1e400'::jsonb::float8
select (1e30::numeric * 1e30)::float4
select total, size, count(*) from orders, boxes group by total, size
select distinct total, size from orders, boxes
select x::float8 from (values ('-0'), ('1')) v(x) order by 1
select x::float4 as y, x, rank() over (order by x::float4 desc) from (values ('-0'), ('1')) v(x) order by y desc
select weight::float4 in (0.1, 2.5), weight::float4 in (0.1), weight::float4 in (0.1, 2.5::float8), weight::float4 not in (0.1, null), weight::float4 in (0.1, qty), weight::float4 in ('0.1', 3), weight::float4 in (rate, weight) from orders order by id
select greatest(weight::float4, 0), least(weight::float4, 0.1), coalesce(weight::float4, qty), case when id > 3 then weight::float4 else 0.1 end, nullif(weight::float4, 0.1) from orders order by id
select weight::float4 = 0.1, weight::float4 between 0.1 and 2, weight::float4 is distinct from 0.1, weight::float4 > qty, 0.1 in (weight::float4, 3) from orders order by id
select 0.1::float4 union all select 1 union all select 2.5 order by 1
select * from (values (0.1::float4), (1), (2.55)) v(x) order by x
select nullif('1', qty), nullif('2026-01-01', placed::date), nullif('x', status), nullif('1.50', total), nullif(null, qty), nullif(null, null), nullif('a', 'b'), nullif('2', null) from orders order by id
select nullif(price, weight), nullif(id, weight), nullif(weight, id), nullif(qty, 1.5), nullif(qty, total), nullif(weight::float4, 0.1), nullif(weight::float4, weight), nullif(price, rate), nullif(price, total), nullif(qty, id), nullif(total, 1.5) from orders order by id
select nullif(placed::date, shipped), nullif(shipped, placed::date), nullif(status::varchar(3), status), nullif(vip, true) from orders, customers where customers.id = 1 order by orders.id
select nullif('x', qty) from orders
select case '1' when qty then 1 else 2 end from orders
select case 'paid' when status then 1 else 2 end, case null when status then 1 else 2 end, case qty when '1' then 1 else 2 end from orders order by id
select nullif(weight::float4, qty), nullif(qty, weight::float4), nullif(total, weight::float4) from orders order by id
select lpad(name, null), rpad(name, null), lpad(name, nullif(id, 2), 'x'), rpad(name, nullif(id, 2)), lpad(name, 3, null) from customers order by id
select substring(null from 1 for -1), substr('a', null, -1), split_part(null, 'a', 0), split_part('a', null, 0), substr('a', 1, null), split_part('a', 'b', null)
select sqrt(abs(rate)), sqrt(abs(total)), sqrt(abs(price)), sqrt(qty * qty), sqrt(abs(weight)), sqrt(id * 0.00001), sqrt(id * 1e20) from orders order by id
select sqrt(1234567.891), sqrt(0.0), sqrt(0.00000000000123), sqrt('2'), sqrt(12345678901234567890123456789012345678901234567890.5)
select sqrt(-1.5)
select n, x * y as product from (values (1, '1.5'::numeric(30,4), '-2.25'::numeric(15,2)), (2, '-0', '3'), (3, null, '1'), (4, '1', null), (5, '99999999999999999999999999.9999', '9999999999999.99'), (6, '-99999999999999999999999999.9999', '100000.00'), (7, '-99999999999999999999999999.9999', '999999.99'), (8, '99999999999999999999999999.9999', '1000000.00'), (9, '0.0001', '0.01')) v(n, x, y) order by n
select n, x * y as product, x * (1 - y) * (1 + y) as longer from (values (1, '1234567890123.45'::numeric(15,2), '0.05'::numeric(15,2)), (2, '-9999999999999.99', '9999999999999.99'), (3, '0.01', '-0.01'), (4, '0.00', '-1.00')) v(n, x, y) order by n
select sum(x * (1 - y) * (1 + y)) as total, avg(x * (1 - y) * (1 + y)) as average from (values ('1234567890123.45'::numeric(15,2), '0.05'::numeric(15,2)), ('-9999999999999.99', '9999999999999.99'), ('0.01', '-0.01')) v(x, y)
select n, x * y as product from (values (1, '0.000000000000000000000000000001'::numeric(38,30), '1.00000001'::numeric(20,8)), (2, '-12345678.000000000000000000000000000001', '999999999999.99999999'), (3, '99999999.999999999999999999999999999999', '0.00000001')) v(n, x, y) order by n
select n, x * y as product from (values (1, '1.000000000000000000000000000001'::numeric(38,30), '0.000000001'::numeric(20,9)), (2, '-1', '2')) v(n, x, y) order by n
select concat_ws(name, email, name, id), concat(name, email, name), array[name, email, null], array_to_string(tags || name, '|') from customers order by id
select name || email as k, count(*) from customers group by name || email order by 1
select string_agg(name, ',' order by id) || string_agg(email, ',' order by id), reverse('aé€😀') from customers
select round(1.5, -2000000000), trunc(15.5, -2000000000), round(25::numeric, -1), round(-2.5::numeric, -1)
select array_agg(id) over (order by id rows between 1 preceding and 1 following) from orders order by id
select upper(name || email) || lower(email || name) || (id + length(name || email)) from customers order by name || email
select concat_ws(code, id, name, code), concat_ws(', '::char(3), name, id) from customers order by id
select concat_ws(id, name, email) from customers
select array['\x61'::bytea, '\x62ff'::bytea], array['\x61'::bytea] || array['\x62'::bytea, null] || '\x63'::bytea
select to_char(-12345678901234567890123456789012.75, '99999999999999999999999999999999.99'), to_char(price * 100000000000000000000000000000001, 'FM9999999999999999999999999999999999.99') from orders order by id
select concat_ws(',')
select 1 in ()
select id, 'x' as k from customers order by 2 desc, id
select 'x' as k, max(id) from customers group by 1 order by k
select distinct total, 'x' as k from orders where total = 1.5 order by 1, 2
select string_agg(status, ',' order by '', status) from orders
select id from customers order by 'x'
select id from customers order by (null)
select id from customers group by id, true
select distinct on ('x') id from customers order by id
select null as k, 'y' as l, max(id) from customers group by 1, l order by k
select (tags || array['z'])[2], (coalesce(tags, array['x', 'y']))[2], (case when vip then tags else array['m', 'n'] end)[1], tags[1], ('{7,8}'::int[])[2], (array[4, 5])[1] from customers order by id
select (tags)[0], (tags::text[])[3], ((select array['p', 'q']))[2] from customers order by id
select settings - 'plan' from customers
select string_agg(distinct placed::date::text, ','), string_agg(distinct repeat(status, 2), '-' order by repeat(status, 2) desc) from orders
select array_agg(distinct left(status, 2) order by left(status, 2) desc) filter (where qty > 0), string_agg(distinct status, '+') filter (where id < 0), array_agg(distinct qty order by qty nulls first) from orders
select count(distinct qty order by qty), sum(distinct qty order by qty desc), max(distinct status order by status), string_agg(distinct status, ',' order by status desc, status) from orders
select * from (select 1 as n) a, lateral (with recursive t(n) as (select a.n union all select n + 1 from t where n < 3) select * from t) s
select * from boxes b, customers c join parcels p using (id) where b.id = c.id order by b.id
select * from boxes b, customers c natural join parcels p where b.id = c.id order by b.id
select * from customers c, lateral (with recursive t(n) as (select 1 union all select n + 1 from t where n < 3) select * from t) s where c.id < 3
select * from orders a, customers b join parcels c on a.id = c.id
select 2 as g0, bool_or(vip) as a0 from customers group by 2
select 2 as g0, bool_or(vip) as a0, 1 as x from customers group by 3
select 2 as g0, row_number() over () as a0 from customers group by 2
select a.id from orders a join orders b on row_number() over () = b.id
select any_value('x') from boxes
select any_value(null) from boxes
select array_agg('literal') from orders
select array_position(array[1,2,3], 2::bigint)
select array_position(array_agg(id::int order by id), 3::bigint) from orders
select b.id from boxes b where exists (select 1 from spans s, customers c join parcels p on p.id = b.id where c.id = s.id) order by 1
select b.id from boxes b, customers c left join parcels p on p.id = c.id, spans s where b.id = c.id and s.id = b.id order by 1
select b.id, l.n from boxes b, customers c join lateral (select b.id + c.id as n) l on true where b.id = c.id order by 1
select c.id from customers c left join lateral (select 2 as g0, bool_or(a4.vip) as a0, max(a4.id) = min(a4.id) as a1 from customers a4 where false group by 2) s on true
select c.id, s.n from customers c left join lateral (with recursive r(n) as (values (1) union select n + 1 from r where n < c.id) select 1 as k, count(*) as n from r) s on true where c.id < 4 order by 1
select count(*) filter (where row_number() over () > 1) from orders
select count(*) from boxes b, customers c join parcels p on p.id = c.id and p.id = id
select count(*) from orders, (select array_agg(id::int order by id) as ids from customers) s where orders.id = any(ids)
select date_part('minute', c.born::timestamp)::int as k0 from customers c left join lateral (with recursive r(n, s) as (values (1, 'x'::text) union select n % 3 + 1, s from r where n < 9) select 2 as g0, bool_or(a4.vip) as a0 from customers a4 where case when null::bool then null::bool end group by 1) o2 on true order by 1 limit 3
select id from orders where row_number() over () > 1
select id from orders where sum(id) over () > 1
select k, count(*) from (select 'x' as k, qty from orders) s group by rollup(k, qty) order by 1, 2
select lag(lag(id) over ()) over () from orders
select o.id from orders o, customers c join parcels p using (id) where o.id = c.id order by 1
select row_number() over (order by sum(id) over ()) from orders
select status from orders group by row_number() over ()
select status from orders group by status having row_number() over () > 1
select sum(row_number() over ()) from orders
select sum(sum(id)) over () from orders
with recursive t(n) as (select 1 union all select n + 1 from t where n < 3) select c.id, s.n from customers c left join lateral (with recursive u(n) as (select 1 union all select u.n + c.id from u where u.n < 9) select * from u) s on true where c.id < 3 order by 1, 2
select cbrt(27.0), degrees(0.5), exp(1::float8), ln(2::float8), log(100::float8), log10(1000::float8), radians(45.0), sin(1), cos(1), tan(0.5), asin(1), acos(0.5), atan(1), atan2(1, 2), pi()
select power(9, 3), power(2::float8, 0.5), 2 ^ 10, -2 ^ 2, 2 ^ 3 ^ 2, 2 * 3 ^ 2, |/ 25.0, ||/ 27.0, sign(-8), sign(-2.50), sign(total) from orders order by id
select exp(710::float8)
select exp(-750::float8)
select power(0, -1)
select power(1e-300::float8, 2)
select ln(0::float8)
select asin(2)
select div(9, 4), div(-9.5, 4), div(0.00, 7), mod(9, 4), mod(-9.5, 4), scale(8.4100), scale(total), trim_scale(8.4100), trim_scale(total) from orders order by id
select width_bucket(price, 0, 100, 5), width_bucket(price, 100, 0, 5), width_bucket(-0.001, 0, 7, 3) from orders order by id
select 91 & 15, 32 | 3, 17 # 5, ~1, 7::smallint & 3, 5 & 6::bigint, 1 | 2 & 3 # 4, 1 + 2 & 3, qty # id from orders order by id
select 'ab' ^@ 'a', name ^@ 'b' from customers order by id
select ascii(name), bit_length(name), translate(name, 'abn', '12'), translate(email, '@.e', ''), overlay(name placing 'XY' from 2), overlay(name placing 'XY' from 2 for 1) from customers order by id
select chr(65), chr(233), chr(128512), to_hex(255), to_hex(-1), to_hex(-1::bigint)
select chr(0)
select chr(55296)
select overlay('abc' placing 'x' from 0)
select overlay('abc' placing 'x' from 2 for 2147483647)
select encode('\x0001ff'::bytea, 'hex'), encode(decode(repeat('ab', 100), 'hex'), 'base64'), decode('YW Jj', 'base64'), decode('aB 01', 'hex'), md5('\x61'::bytea), sha256('\x61'::bytea), length('\x6100'::bytea), octet_length('\x61'::bytea), bit_length('\x61'::bytea), convert_to('é', 'UTF8')
select decode('A B0', 'hex')
select decode('YWI', 'base64')
select string_to_array('xx~~yy~~zz', '~~'), string_to_array('xx~~yy~~zz', '~~', 'yy'), string_to_array('abc', null), string_to_array('', ','), string_to_array('a,b', ''), string_to_array(email, '@') from customers order by id
select age(timestamp '2001-04-10', timestamp '1957-06-13'), age(date '2026-03-31', date '2026-02-28'), age(shipped, timestamp '2024-02-29 12:30:15.5'), age(placed, timestamptz '2025-03-31 23:00+00') from orders order by id
select make_date(2024, 2, 29), to_timestamp(1284352323), to_timestamp(1.25), isfinite(date '2026-01-01'), date_bin('15 minutes', shipped, timestamp '2001-02-16 20:05:00'), date_bin('7 days', placed, timestamptz '2030-01-01') from orders order by id
select make_date(2023, 2, 29)
select date_bin('1 month', shipped, timestamp '2001-01-01') from orders
select extract(century from born), extract(decade from born), extract(millennium from born), extract(milliseconds from born::timestamp + interval '1.2345 s'), extract(microseconds from born::timestamp + interval '1.2345 s'), date_trunc('decade', born), date_trunc('milliseconds', born + interval '1.2345 s') from customers order by id
select 2 between symmetric 3 and 1, 2 not between symmetric 3 and 1, qty between symmetric 3 and -1 from orders order by id
select 10 >= any (array[1,2]), 10 > all (array[1,2]), 2 <> all (array[1,2])
select id > any(array_append(array[1,2], customer_id)), id <> all(array_append(array[1,2], customer_id)), id = any(array_append(array[1,2], qty)) , id < all(array_append(array[100,null], qty)) from orders order by id
select 'a' = any(tags), name = any(tags), 'b' <> all(tags), name > all(tags), 'a' < any(tags) from customers order by id
select price = any('{1.50,-12.5}'), price = any(array[1.50,-12.5]), price > all('{1.50,-12.5}'), total = any('{1.5,0}') from orders order by id
select (select max(name) from customers) = any(tags), max(name) over () = any(tags) from customers order by id
select id from orders where qty > all (select id from customers where id < 4)
select id from orders where qty >= any (select id from customers where id < 4) order by 1
select id from orders where qty = some (select id from customers) order by 1
select id from orders where qty <> all (select id from customers) order by 1
select id from orders o where qty < any (select i.qty from orders i where i.customer_id = o.customer_id) order by 1
select qty > all (select id from customers where false), qty > any (select id from customers where false), qty > all (select null::int), null > any (select id from customers) from orders order by id
select status, count(*) from orders group by status having count(*) >= all (select count(*) from orders group by status) order by 1
select price > any (select price from orders where id < 3) from orders order by id
select weight > any (select weight from orders where id < 3), note > any (select name from customers) from orders order by id
select array[1,2,3] = array[1,2,3], array[1,2] < array[1,3], array[1,2] <> array[1,2], array[1] < array[1,null], array[1,null] = array[1,null], array[null::int] > array[5], tags = tags, tags = '{a,b}', tags is distinct from '{c}' from customers order by id
select id, tags from customers order by tags, id
select id, tags from customers order by tags desc nulls last, id
select x from (values (array[1,null]), (array[1]), (array[2]), (null), (array[null::int]), ('{}'), (array[1,5])) v(x) order by x
select x from (values (array[1,null]), (array[1]), (array[2]), (null), (array[null::int]), ('{}'), (array[1,5])) v(x) order by x desc
with recursive search_tree(id, path) as (select id, array[id] from orders where id < 3 union all select o.id, path || o.id from orders o, search_tree st where o.customer_id = st.id and o.id > st.id) select id, path from search_tree order by path
select tags, count(*) from customers group by tags order by tags
select array_append(array[1,2], 3), array_append(array[1,2], null), array_append(null::int[], 3), array_prepend(1, array[2,3]), array_cat(array[1,2,3], array[4,5]), array_remove(array[1,2,3,2,null], 2), array_remove(array[1,null], null), array_remove(tags, 'a'), array_remove(tags, name), array_append(tags, name) from customers order by id
select array_lower(tags, 1), array_upper(tags, 1), array_upper(tags, 2), array_lower('{}'::int[], 1) from customers order by id
select (array[1,2,3,4])[2:3], (array[1,2,3,4])[:2], tags[2:], tags[:1], tags[1:9], tags[3:2] from customers order by id
select tags[id], tags[-1], tags[0], tags[null], tags[1], (array[1,2])[id - 1] from customers order by id
select array(select id from customers where id < 4 order by id), array(select id from customers where id < 4 order by id desc), array(select id from customers where false), array(select name from customers order by name desc nulls last limit 3)
select c.id, array(select o.id from orders o where o.customer_id = c.id order by o.price desc, o.id) from customers c order by 1
select array(select distinct status from orders order by 1), array(select id from orders order by qty, id limit 4)
select array[1, 2]::text[], '{1,2}'::int[]::text[], string_to_array('1,2', ',')::int[], array['1.5','2']::numeric(4,2)[], '{}'::text[], null::text[], tags::varchar(1)[] from customers order by id
select array['x']::int[]
select array[1,2]::text, tags::text, array[true,null,false]::text, array[born]::text, '{}'::int[]::text, array['a"b','c\d','NULL','','x y']::text, array[price]::text from customers left join orders on orders.id = customers.id order by customers.id
select array[shipped]::text, array[ref]::text, array[weight]::text, array['\x61'::bytea]::text from customers left join orders on orders.id = customers.id order by customers.id
select concat('a', true, null, false), concat(vip, name, tags), concat_ws('|', vip, tags) from customers order by id
select greatest(1.5, 2), least(1.50, total, 2), greatest(null, total), greatest(price, 0), least(price, rate, 1.0), greatest(null::numeric, null) from orders order by id
select greatest(1.0, 1.00), greatest(1.00, 1.0), least(1.0, 1.00)
select greatest(1, 2.5, 3)
select settings ?| '{plan,seats}', settings ?& array['plan'], settings #>> '{n,x,0}', settings #> array['n','x'] from customers order by id
select name like any('{A%,%b}'), name not like all(array['A%','%b']), name like any(array[email, 'b%']) from customers order by id
select 'a' = any('{a, b ,NULL}'), 3 <> all('{1,2}'), 1 = any('{}')
select 1 = any('{a}')
select 1 = any('{1,,2}')
select id = any(id) from orders
select exists(select 1 from customers c where c.id = any(array(select customer_id from orders)))
select count(*) from orders where status = any(string_to_array('new,paid', ','))
select unnest(array[1,2]), unnest(tags) from customers order by id
select array[1,4,3] @> array[3,1,3], array[2,2,7] <@ array[1,7,4,2,6], array[1,4,3] && array[2,1], tags @> array['a'], tags @> '{}', tags && '{a,c}', '{a}' <@ tags, array[1,null] @> array[null::int], array[null::int] && array[null::int] from customers order by id
select '["a", "b"]'::jsonb || '["a", "d"]'::jsonb, '{"a": "b"}'::jsonb || '{"c": "d", "aa": 1}'::jsonb, '[1, 2]'::jsonb || '3'::jsonb, '{"a": "b"}'::jsonb || '[42]'::jsonb, '1'::jsonb || '"x"', '{"k": 1}' || settings from customers where jsonb_typeof(settings) = 'object'
select '{"a": "b"}'::jsonb || '42'::jsonb
select name || settings, settings || name, name || '\x61'::bytea, 'x: ' || settings::text from customers order by id
select '\x61'::bytea || 'a' || '\xff', 'b' || '\x61'::bytea
select '{"a": "b", "c": "d"}'::jsonb - 'a', '["a", "b", "c", "b"]'::jsonb - 'b', '{"a": "b", "c": "d"}'::jsonb - '{a,c}'::text[], '["a", "b"]'::jsonb - 1, '["a", "b"]'::jsonb - -1, '["a", "b"]'::jsonb - 5, '[1, "1", null, true]'::jsonb - '1', '["true", true, "null", null]'::jsonb - array['true', 'null']
select settings - 'plan', settings - array['plan', name] from customers where jsonb_typeof(settings) in ('object', 'array') order by id
select '1'::jsonb - 'a'
select '{"a": 1}'::jsonb - 1
select '["a", {"b":1}]'::jsonb #- '{1,b}', '["a", {"b":1}]'::jsonb #- '{-1}', '["a", {"b":1}]'::jsonb #- '{9,b}', '{"a": {"b": {"c": 1, "d": 2}}}'::jsonb #- array['a','b','c'], '{"a": 1}'::jsonb #- '{a,b}', '{"a": 1}'::jsonb #- '{}', '{"a": 1}'::jsonb #- '{x,b}'
select '["a"]'::jsonb #- '{x}'
select '1'::jsonb #- '{x}'
select '{"a": 1}'::jsonb #- array['a', null]
select to_jsonb(name), to_jsonb(id), to_jsonb(vip), to_jsonb(born), to_jsonb(settings), to_jsonb(ref), to_jsonb(1.50), to_jsonb(born::timestamp), to_jsonb(born::timestamptz), to_jsonb('{"a" : 1}'::json), to_jsonb(E'a"b\\c'::text) from customers order by id
select to_jsonb(placed), to_jsonb(shipped), to_jsonb(price), to_jsonb(total) from orders order by id
select jsonb_build_object('foo', 1, 'b', 'bar', 'n', null, 't', true, 2, name, 'd', born), jsonb_build_array(1, 2, 'foo', null, settings), jsonb_build_array(), jsonb_build_object(), jsonb_build_object('a', 1, 'a', 2) from customers order by id
select jsonb_build_object(name, 1) from customers where name is null
select jsonb_strip_nulls('[{"f1":1,"f2":null},2,null,3]'), jsonb_strip_nulls(settings) from customers order by id
select E'a\nb\t\'c\\d''e', $$it's$$, E'', length(E'\n'), $x$a$b$x$
select string_agg(name, E'\n' order by id) from customers
select * from unnest(array[1,2], array['foo','bar','baz']) as x(a,b)
select * from unnest(array[1,2], array['foo','bar','baz']) with ordinality as x(a,b,n)
select * from unnest(array['a','b']) with ordinality
select * from unnest(array['a','b']) with ordinality u
select u, ordinality from unnest(array['a','b']) with ordinality u order by 2
select c.id, t.tag, t.n from customers c, unnest(c.tags) with ordinality as t(tag, n) order by 1, 3
select c.id, t.tag, t.n from customers c left join lateral unnest(c.tags) with ordinality as t(tag, n) on true order by 1, 3
select c.id, t.* from customers c cross join lateral unnest(c.tags) t order by 1, 2
select * from unnest('{}'::int[]) with ordinality
select * from unnest(null::int[], array[1]) with ordinality
select * from jsonb_array_elements('[1,true, [2,false], null, "x"]')
select * from jsonb_array_elements_text('["foo", "bar", null, 1.50]')
select jsonb_array_elements_text('["foo", "bar"]'), jsonb_array_elements('[1]')
select * from jsonb_each('{"a":"foo", "b":null}')
select * from jsonb_each_text('{"a":"foo", "b":null, "c": {"d": 1}}')
select * from jsonb_object_keys('{"f1":"abc","f2":{"f3":"a", "f4":"b"}}')
select jsonb_object_keys('{"f1":"abc","f2":{"f3":"a", "f4":"b"}}')
select k from jsonb_object_keys('{"f1":"abc"}') k
select value from jsonb_array_elements('[1,2]') e
select e.x, n from jsonb_array_elements('[1,2]') with ordinality e(x, n) order by n
select * from jsonb_array_elements('[1,2]') with ordinality
select c.id, s.key, s.value from customers c, jsonb_each(c.settings) s where jsonb_typeof(c.settings) = 'object' order by 1, 2
select c.id, s.key from customers c cross join lateral jsonb_each_text(case when jsonb_typeof(c.settings) = 'object' then c.settings else '{}' end) s order by 1, 2
select id, count(*) from customers c, jsonb_array_elements(settings -> 'n' -> 'x') e group by id order by id
select jsonb_array_elements('1')
select * from jsonb_each('[1]')
select id, jsonb_array_elements(settings) from customers where jsonb_typeof(settings) = 'array' order by id
select '{"a":1}'::jsonb #- array['a', null]
select '{"a": "b"}'::jsonb || '42'::jsonb, '42' || '{"a": "b"}'::jsonb, '[]' || '{"a": 1}'::jsonb
select to_jsonb(E'a"b\\c\n'::text)
select jsonb_typeof(settings -> 'n'), coalesce(settings -> 'plan', '1'), coalesce(settings ->> 'plan', '-') from customers order by id
select count(settings -> 'n'), count(distinct settings ->> 'plan'), max(settings ->> 'plan') from customers
select tags[id::bigint], tags['1'] from customers order by id
select ''::bytea, 'abc'::bytea, 'a\\b\000\377'::bytea, 'é'::bytea, '\x61'::bytea
select 'a\b'::bytea
select 'é\000'::bytea
select (array[1, 2])[1.5], (array[1, 2])[0.4], (array[1,2])[2.4::float8]
select array[1] || '{2}'
select e.value, e from jsonb_array_elements('[1,2]') e
select (settings -> 'n' ->> 'x') from customers order by id
select string_agg(name, ', ' order by tags, id) from customers
select row_number() over (partition by tags order by id) from customers order by id
select id from customers where tags in (array['a','b'], '{c}') order by id
select tags from customers union select array['q']
select tags from customers union all select null
select case when vip then tags else array['z'] end from customers order by id
select nullif(tags, '{}') from customers order by id
select coalesce(tags, '{}') from customers order by id
select id between any(array[1]) from customers
select not 1 = any(array[2]), 1 = any(array[2]) is null
select tags || '{z}' from customers
select array_append(tags, 'z'), array_append(tags, null) from customers order by id
select array_remove(tags, null) from customers order by id
select id::numeric = any('{1,2.0}') from customers order by id
select 1.0 = any(array[1, 2]), 1 = any(array[1.0]), 2.5 > all(array[id, 1]) from customers order by id
select born = any(array['1971-02-02', '1970-01-01']::date[]) from customers order by id
select code = any(array['a', 'ab']), code = any('{a,ab }'), code = any(tags) from customers order by id
select count(*) filter (where name = any(tags)), sum(id) filter (where 'a' = any(tags)) from customers
select c.id from customers c join orders o on o.status = any(c.tags) or o.id = any(array[c.id]) order by 1, o.id
select c.id from customers c left join orders o on o.id = any(array_append(array[c.id], 7)) order by 1, o.id
select e.value ->> 'a' from jsonb_array_elements('[{"a": 1}, {"b": 2}]') as e
select e ->> 'a' from jsonb_array_elements('[{"a": 1}]') as e
select x.k, x.v from customers c, jsonb_each_text(c.settings) as x(k, v) where jsonb_typeof(c.settings) = 'object' order by 1, 2
select u.*, c.id from customers c, unnest(c.tags, array[1,2,3]) as u(t, n) order by c.id, n
select sum(n) from unnest(array[1,2]) n
select id, (select string_agg(t, '+' order by t) from unnest(tags) t) from customers order by id
select id, (select count(*) from jsonb_object_keys(settings) k) from customers where jsonb_typeof(settings) = 'object' order by id
select id from customers where exists (select 1 from unnest(tags) t where t like 'a%') order by id
select id, array(select upper(t) from unnest(tags) with ordinality u(t, n) order by n desc) from customers order by id
select id from customers where id > all (select id from customers c where c.vip) order by id
select placed > all (select placed from orders where id < 3) from orders order by id
select stage = any (select stage from parcels), stage <> all (array['new', 'paid']) from parcels order by id
select stage = any (array['new', 'paid']::text[]) from parcels order by id
select stage::text = any (array['new', 'paid']) from parcels order by id
select array_agg(stage order by id)::text from parcels
select to_jsonb(stage), jsonb_build_object('s', stage) from parcels order by id
select date '2026-01-01' + 1 = any(array[date '2026-01-02'])
select array[]::int[], array[null]::text[], '{NULL}'::int[], cardinality('{}'::text[])
select '{ }'::int[], '{1 , 2}'::int[]
select tags || '{z}', '{z}' || tags, tags || null from customers order by id
select array[1] || 2::bigint, 1::smallint || array[2], array[1::bigint] || 2, array[1] || '{2}', array[1,2] || null, null || array[1]
select e from jsonb_array_elements('[{"a": 1}]') as e(x)
select jsonb_array_elements.value, jsonb_array_elements from jsonb_array_elements('[{"a": 1}]')
select e -> 'a' from customers c, jsonb_array_elements('[{"a": 1}]') e where c.id < 3
select stage <> all (array['new', 'paid']) from parcels
select born = any(array['1971-02-02']) from customers
select born = any('{1971-02-02,1970-01-01}') from customers order by id
select id = any(array[1, '2', null]), name = any(array['Anna', null]), price = any(array[1.5, '2']) from customers c join orders o using (id) order by id
select id in ('1', 2) from customers order by id
select regexp_replace('Thomas', '.[mN]a.', 'M'), regexp_replace('foobarbaz', 'b..', 'X'), regexp_replace('foobarbaz', 'b..', 'X', 'g'), regexp_replace('foobarbaz', 'b(..)', 'X\1Y', 'g'), regexp_replace(email, '[0-9]+', '<\&>', 'g'), regexp_replace(name, '[^a-zA-Z]', '', 'g'), regexp_replace(email, '@.*$', '') from customers order by id
select regexp_count('ABCABCAXYaxy', 'A.'), regexp_count(email, '[aeiou]'), regexp_substr(email, '[0-9]+'), regexp_substr(name, 'b(o)'), regexp_match(email, '@([a-z]+)'), (regexp_match(email, '([0-9]+)@'))[1], regexp_match(name, 'o'), regexp_like(name, 'a|b'), regexp_like('Hello World', 'World$') from customers order by id
select regexp_replace(name, 'b+$', 'x', 'g'), regexp_replace('aaa', '^a', 'x', 'g'), regexp_replace('a.b.c', '\.', '', 'g'), regexp_replace('aab', 'a{2}', 'x'), regexp_replace(E'a\nb', 'a.b', 'x'), regexp_count(E'ab\nab', 'b$'), regexp_count('aaa', '^a'), regexp_replace('naïve', '[^a-z]', '?', 'g') from customers order by id
select length(regexp_replace(repeat('a', 100000), 'a', 'bb', 'g'))
select regexp_replace(null, 'a', 'b'), regexp_count(null, 'a'), regexp_match(null, 'a')
select ('{x y,NULL}'::text[])[1]::char(3), (tags[1])::varchar(2), ('{a,b}'::text[])[1:1]::text from customers order by id
select '\x01'::bytea || null, null || '\x01'::bytea
select '{ a , b }'::text[], array_length('{ }'::text[], 1)
select settings - null::text from customers where jsonb_typeof(settings) <> 'string' order by id
select '[]'::jsonb #- '{a}', '{}'::jsonb #- array[null]::text[]
select jsonb_build_object(shipped, placed, placed, 2) from orders order by id
select tags && array[email] from customers
select array_prepend(email, tags) < tags from customers
select array['a'::varchar, 'b'::text] = '{a,b}', array['a']::varchar(5)[] = array['a']::varchar(3)[], array[1.5]::numeric(4,2)[] < array[1.6]::numeric(6,2)[]
select array['a']::varchar[] < array['a']::text[]
select array[1] = array[1]::bigint[]
select array_append(array[1.5], 2), array_prepend(2, array[1.5]), 2.5 || array[1], array[1] || 2.5, array_prepend(null, array[1])
select pg_typeof(array_append(array['a']::varchar[], 'a'::text)), pg_typeof(array_prepend('a'::text, array['a']::varchar[])), pg_typeof('a'::text || array['a']::varchar[])
select pg_typeof(coalesce(email, name)), pg_typeof(coalesce(name, email)), pg_typeof(greatest(email, name)), pg_typeof(nullif(email, name)), pg_typeof(case when vip then email else name end), pg_typeof(case when vip then name else email end), pg_typeof(array[email, name]), pg_typeof(nullif(email, '')) from customers limit 1
select pg_typeof(x), x from (select email as x from customers where id = 1 union select 'b'::text) s
select pg_typeof(x) from (select 'a'::varchar x) a full join (select 'a'::text x) b using (x)
select pg_typeof(max(email)), pg_typeof(count(*)), pg_typeof(percentile_disc(0.5) within group (order by id)) from customers
select pg_typeof(sum(id)) from customers group by vip
select pg_typeof(1 / 0)
select radians(1e-323)
select radians(0), radians(1e-300), degrees(-0.5)
select 1e-200::float8 * 1e-200::float8
select 1e-200::float8 / 1e200::float8
select 0::float8 * 1e-300::float8, 0::float8 / 1e300::float8, 1e-300::float8 / 1e5::float8, 'NaN'::text::float8 / 0::float8, 1 / 'inf'::text::float8, 'inf'::text::float8 / 2
select 1e-30::float4 * 1e-30::float4
select 1e-300::float8::float4
select 0.9023444795::numeric(12,10)::float4, 5.010475498551801668394E-9::numeric(38,30)::float8, -99205396.035933::numeric(18,6)::float4, 32215292050221611.3332750896::numeric(38,10)::float8, price::float4, rate::float4 from orders order by id
select 5.010475498551801668394E-9::numeric(38,30) = 5.010475498551801668394E-9::float8, 5.010475498551801668394E-9::numeric(38,30) * 3::float8
select width_bucket(11, 0, 10, 2147483647)
select width_bucket(5, 0, 10, 2147483647), width_bucket(11, 0, 10, 2147483646)
select decode('YQ==YQ==', 'base64'), decode('YQ==YWJj', 'base64'), decode('YWI=YWJj', 'base64'), decode('YWJjYW=J', 'base64'), decode('YR==', 'base64')
select decode('YWJj=', 'base64')
select decode('YQ==Y', 'base64')
select encode('\x00615c7f80ff'::bytea, 'escape'), decode('a\\b\001é', 'escape'), encode('a'::bytea, 'Escape')
select decode('a\b', 'escape')
select encode('a'::bytea, 'base32')
select date_part('second', t), date_part('milliseconds', t), date_part('epoch', t), date_part('epoch', t - timestamp '2000-01-01'), date_part('second', t - timestamp '2000-01-01') from (select timestamp '2000-01-01 00:00:00' + n * interval '107 days 13:17:23.719333' as t from generate_series(1, 1500) n) s order by t
select date_part('epoch', interval '-1 year -2 mons 3 days -3.123457s'), date_part('epoch', date '2300-01-01')
select array[1,2] = array['a']
select array[1]::bigint[] = array[1]
select -2147483648 - 1
select (-2147483648) / -1
select abs(-2147483648)
select pg_typeof(-2147483648), pg_typeof(-2147483649), pg_typeof(-9223372036854775808), pg_typeof(- (-2147483648)), pg_typeof(- - 5), - - 1.5, -(2.50), -(-(3)), -1e3, 5 - -3
select (-2147483648)::int % -1, (-9223372036854775808)::bigint % -1, null::int % -1, 5 % -1
select round(12345, -2), round(12345::bigint, -3), trunc(12355, -1), round(5, 2), round(-15, -1), round(null::int, 2)
select 'tr'::bool, 'ye'::bool, 'of'::bool, 'tru'::text::bool, 'FALS'::text::bool
select bool_and(null), bool_or('t'), bool_and('f') filter (where false)
select array[1,2,3][2]
select code = 'ab'::char(4), code in ('ab'::char(4), 'a'), code < 'b'::char(9) from customers order by id
select interval '1 day' * 2.5, interval '1 month' * 1.5, 2.5 * interval '1 day', interval '1 day' / 2, interval '1 month' / 4, interval '1 hour' * 0.1, interval '1 year' / 5, interval '1 mon 2 days 03:04:05.678' * 1.234567, interval '1 mon 2 days 03:04:05.678' / 7.7, interval '-1 mon 2 days -03:04:05.678' * -1.234567, interval '10 days' * 0, interval '1 day' * 3, 3::bigint * interval '1 mon 1 day', interval '1 day' * 0.3333333, interval '7 months' / 2, interval '1 day' * 1e-9, null::interval * 2, interval '1 day' * null::int
select interval '1 day' / 0
select interval '1 mon' * 1e10
select (shipped - placed::timestamp) * rate, (shipped - placed::timestamp) / (id + 0.3), (id || ' days')::interval, qty * interval '1 day', interval '1 hour' * qty, interval '1 mon 3 days' * weight from orders where weight < 1e10
select sum(s.x), avg(s.x) from (values (interval '1 day'), (interval '2 hours'), (interval '1 month'), (null)) s(x)
select sum(shipped - placed::timestamp), avg(shipped - placed::timestamp) from orders
select customer_id, sum(shipped - placed::timestamp), avg(shipped - placed::timestamp), avg(shipped - placed::timestamp) filter (where qty > 3) from orders group by 1 order by 1
select id, sum(shipped - placed::timestamp) over (order by id), avg(shipped - placed::timestamp) over (partition by status) from orders order by id
select sum(x), avg(x) from (select interval '1 day' as x where false) s
select date '2024-01-01' + interval '1 day' * id, placed - id * interval '1 hour' from orders order by id
select initcap('hello wORLD foo_bar x2y é-ñandú ßa ǆx 1a'), initcap(name), initcap(email), initcap(code), initcap(null) from customers order by id
select format('%s %L', 'a', 'd''e'), format('%2$s %1$s', 'a', 'b'), format('%%'), format('%10s|%-10s|', 'a', 'b'), format('%s', null), format('%L', null), format('%s %s', 1, true), format('%s', 1.50), format('%3$s %s', 'a', 'b', 'c'), format('x'), format('%L', 'a\b'), format('%s', date '2024-01-01'), format('%s-%s', code, name) from customers order by id
select format('%2$s %s %1$s %s', 'a', 'b', 'c')
select format('%s %s', 'a')
select quote_literal('a''b'), quote_literal('a\b'), quote_nullable(null), quote_nullable('x'), quote_literal(name) from customers
select array_to_string(array['a', null, 'b'], ',', '*'), array_to_string(array[true, false], '-'), array_to_string(array[1, null, 2], '-', 'x'), array_to_string(array[date '2024-01-01'], ','), array_to_string(tags, ', ', 'none'), array_to_string(array[1.5, 2.25]::numeric(4,2)[], ' ') from customers order by id
select shipped at time zone 'Europe/Paris', timezone('Europe/Paris', placed), timezone('UTC', placed), timestamp '2026-03-29 02:30' at time zone 'Europe/Paris', timestamp '2026-10-25 02:30' at time zone 'Europe/Paris', timestamp '2026-10-25 01:59:59' at time zone 'Europe/Paris', timestamp '1900-01-01' at time zone 'Europe/Paris', timestamp '2026-04-05 01:45' at time zone 'Australia/Lord_Howe', timestamp '2026-10-04 02:15' at time zone 'Australia/Lord_Howe' from orders order by id
select t at time zone 'America/New_York', t at time zone 'Europe/London', t at time zone 'Africa/Casablanca' from (select timestamp '2026-01-01' + n * interval '27 hours 30 minutes' as t from generate_series(1, 400) n) s order by t
select t at time zone 'Europe/Dublin', t at time zone 'Asia/Tehran', t at time zone 'America/Sao_Paulo' from (select timestamp '1890-01-01' + n * interval '157 days 11 hours' as t from generate_series(1, 400) n) s order by t
select extract(days from interval '3 days'), extract(years from placed), date_trunc('days', placed), date_part('hours', placed), date_part('seconds', placed), extract(weeks from placed), extract(months from shipped) from orders order by id
select name similar to 'A%' escape '!' from customers
select date '2024-01-01' + (interval '1 month' * 2), now() - interval '1 day' * 7 < now()
select initcap('hello wORLD foo_bar x2y é-ñandú ßa ǆx 1a')
select (id || ' days')::interval, (id || ' mons 3 hours')::interval, ('01:02:0' || id % 10)::interval, '1 day'::text::interval from orders order by id
select to_date('2024-01-05', 'YYYY-MM-DD'), to_date('20240105', 'YYYYMMDD'), to_timestamp('2024-01-05 10:11:12', 'YYYY-MM-DD HH24:MI:SS'), to_date('05/01/2024', 'DD/MM/YYYY'), to_timestamp('2024-01-05 10:11:12.123456', 'YYYY-MM-DD HH24:MI:SS.US'), to_timestamp('2024.01.05 10:11:12.123', 'yyyy.mm.dd hh24:mi:ss.ms'), to_date('2024-02', 'YYYY-MM'), to_date('2024', 'YYYY'), to_date(null, 'YYYY')
select to_date('2024-13-05', 'YYYY-MM-DD')
select to_date('2024-02-30', 'YYYY-MM-DD')
select to_timestamp('2024-02-20 25:00', 'YYYY-MM-DD HH24:MI')
select to_date(placed::date::text, 'YYYY-MM-DD'), to_timestamp(to_char(placed, 'YYYY-MM-DD HH24:MI:SS.US'), 'YYYY-MM-DD HH24:MI:SS.US') = placed from orders
select settings = '{}'::jsonb, settings <> '{}', settings is distinct from '{}', settings is not distinct from settings, settings -> 'n' = '{"x": [1, 2.5, "t"]}', settings in ('{}', '"text"') from customers order by id
select '1.0'::jsonb = '1', '[1.50]'::jsonb = '[1.5]', '{"a":1}'::jsonb = '{"a":1.0}', 'null'::jsonb = 'null', '"1"'::jsonb = '1', 'true'::jsonb = '1', '[1,2]'::jsonb = '[2,1]', null::jsonb = '1', '[]'::jsonb = '{}', '1'::jsonb <> '1.00', '[1]'::jsonb = '1'
select id from customers where settings -> 'plan' = '"pro"' order by id
select jsonb_agg(id), jsonb_agg(name order by id), json_agg(name order by id), json_agg(id order by id desc) filter (where id > 20) from customers where id < 5 or id > 20
select jsonb_agg(id order by id) from customers
select vip, jsonb_agg(name order by id), json_agg(born order by id), jsonb_agg(settings order by id), jsonb_agg(price order by o.id), json_agg(vip order by o.id), jsonb_agg(placed order by o.id) from customers c join orders o using (id) group by vip order by 1
select jsonb_agg(id) from customers where false
select json_agg(settings) from customers where id < 3
select jsonb_agg(jsonb_build_object('id', id, 'name', name) order by id) from customers where id < 4
select jsonb_agg(null::int), jsonb_agg('x'::text), json_agg(1.50), jsonb_agg(null)
select bit_and(qty), bit_or(qty), bit_and(id), bit_or(null::int) from orders
select pg_typeof(jsonb_agg(id)), pg_typeof(json_agg(id)), (jsonb_agg(id order by id) -> 0)::int from customers
select case when settings = '{}' then 1 end, nullif(settings, '{}') from customers order by id
select c.id from customers c join customers d on c.settings = d.settings and c.id < d.id order by 1
select jsonb_agg(id) = '[1]' from boxes where id = 1
select 'a'::text = any(array['a', 'b']), settings = any(array['{}'::jsonb, '1']) from customers
select settings::text::jsonb = settings from customers
select 'abc' similar to 'a%', 'abc' similar to '(a|b)%', 'abc' not similar to 'b%', 'abc' similar to 'a_c', 'abc' similar to 'abc|d', 'abc' similar to 'b', 'a.c' similar to 'a.c', 'abc' similar to 'a.c', 'aab' similar to 'a+b', 'ab' similar to '(ab)+', name similar to '%(n|o)%' from customers order by id
select bit_and(qty) filter (where qty > 3), bit_or(qty) from orders
select (select min(status) from orders where qty = 1) not like '%\_%', (select status from orders where id = 1) not ilike 'N%' from boxes
select moments, moments::text, array_to_string(moments, ',', '-'), concat(moments), format('%s', moments), moments[1], moments = '{2026-03-29 01:30:00.5+00,null}' from spans order by id
select encode(decode(repeat('a', 0), 'escape'), 'base64'), encode(decode(repeat('a', 55), 'escape'), 'base64'), encode(decode(repeat('a', 57), 'escape'), 'base64'), encode(decode(repeat('a', 58), 'escape'), 'base64'), encode(decode(repeat('a', 114), 'escape'), 'base64')
select initcap('ⅷabc'), initcap('ⓐbc dⓔ'), initcap('aͅb')
select interval '-2147483648 days' * 1, interval '1 day' / 'inf'::text::float8
select to_date('2024-00-10', 'YYYY-MM-DD'), to_date('2024-03-00', 'yyyy-MM-dd'), to_timestamp('2024-00-00 10', 'YYYY-mm-dd hh24')
select 'a^b' similar to 'a^b', 'a$' similar to '_$', 'ab' similar to '^ab$'
select greatest(weight::real * 0, null), least(weight::real * 0, weight::real * 0) from orders order by id
select (select array[weight * 0] from orders where id = 2), any_value(array[weight * 0]) from orders where id = 2
select (select array_agg(weight * 0 order by id) from orders), any_value(array[weight * 0]) filter (where id = 2) from orders
select a from (select a, row_number() over (partition by k order by i) n from (select array[weight * 0] as a, qty as k, id as i from orders limit 100) x) y where n = 1
select 1_000, 0x1F, 0o17, 0b1_1, 1_0.2_5, 1e1_0, -0x_1f, .5_1, 0xFFFFFFFFFFFFFFFFFF
select 123abc
select 1._5
select 0x
select id from orders where id = 0x1F order by id limit 1_0
select 'a' 'b'
select 'a' E'b'
select '0x1F'::int, '-0b1_1'::int2, '1_000.5'::numeric, '0o17'::numeric, '-0x8000000000000000'::int8
select v::int, v::numeric from (values ('0x1F'), ('1_000'), (' -7 '), (null)) x(v) order by 1
select '1__0'::text::int
select '0x8000000000000000'::text::int8
select '1.5'::text::int
select right('abc', -2147483648), right('abc', -1), right('abc', 2)
select make_date(0, 3, 15)
select weight + weight + weight + weight + weight + weight + weight + weight + weight + weight + weight + weight from orders
select weight * weight / weight * weight / weight * weight / weight * weight / weight from orders where weight <> 0
select id / 7 / qty / 2 % 3 / 1 % 5 / 3 % 2 / 1 from orders where qty <> 0
select id / 7 / qty / 2 % 3 / 1 % 5 / 3 % 2 / 1 from orders
select status from orders group by status having replace(max(status), 'a', 'b') = 'pbid' or max(weight) * 2 * 3 * 4 * 5 * 6 > 1e300
select array_agg(id order by id) from customers group by vip having count(*) = any(array_agg(id))
select qty from orders order by qty fetch first 3 rows with ties
select qty from orders order by qty offset 3 rows fetch first 9 rows with ties
select qty from orders order by qty offset 5 rows fetch first 0 rows with ties
select stage from parcels order by stage desc nulls last fetch first row with ties
select distinct weight from orders order by weight fetch first 2 rows with ties
select qty from orders union all select qty from orders order by 1 fetch first 5 rows with ties
select distinct on (qty) qty, id from orders order by qty, id fetch first 3 rows with ties
select qty from orders fetch first 1 rows with ties
select max(shipped - placed::timestamp), min(shipped - placed::timestamp) from orders
select status, max(shipped - placed::timestamp) filter (where qty > 0) from orders group by status
select max(x), min(x) from (values (interval '30 days'), (interval '-24:00:01'), (interval '1 day'), (null)) v(x)
select jsonb_object_agg(id, name order by id), json_object_agg(id, name order by id) from customers
select vip, json_object_agg(born, settings order by id) filter (where id < 9) from customers group by vip
select jsonb_object_agg(name, id) from customers
select jsonb_object_agg(name, id order by id) filter (where name is not null), jsonb_object_agg('a', null) from customers
select jsonb_object_agg('a', id) from customers where false
select jsonb_object_agg(id) from customers
select '{"a" : {"b":  [1 , "x\u00e9\n,]", 2.50e3]} , "c" : "é\"q", "a" : [ ] }'::json -> 'a'
select v -> 'a', v -> 'a' -> 'b' -> 2, v -> 'a' -> 'b' ->> 1, v ->> 'c', v -> 'd', v -> 0 from (values ('{"a" : {"b":  [1 , "x\u00e9\n,]", 2.50e3]} , "c" : "é\"q" }'::json)) x(v)
select '[]'::json -> 0, '{}'::json -> 'a', '[ ]'::json -> 0, '5'::json -> 0, '[[1,2],[3]]'::json -> -1, '"x"'::json ->> 'a'
select '{"\u0061": 1, "b\"": 2}'::json -> 'a', '{"\u0061": 1, "b\"": 2}'::json -> 'b"'
select '{"a": "\u0000", "b": 1}'::json -> 'b'
select '  [1, {"a":2}]  '::json #> '{}', ' "x" '::json #>> '{}', '{"a":[1]}'::json #>> array['a', null], '{"a":[1, 2]}'::json #>> '{a,-1}', '{"a":null}'::json #>> '{a}'
select '[1, "\u0000"]'::json #> array[null], '[1, "\u0000"]'::json #>> array['1', null]
select * from kinds order by id
select case when id = 1 then ref end, coalesce(ref, null) from kinds order by id
select coalesce(sums, '{1,2.5,NULL}'), coalesce(prices, '{1.00}'), prices || 3.14159 from kinds order by id
select id from kinds where prices = '{1.00,2.50}' or prices @> '{2.50}' order by id
select '{1.005,2.5}'::numeric(6,2)[]
select pairs is null, stages is not null, word is null, count(*) over () from kinds order by id
select 2^-1
select 5|-3
select 5%-3
select ~-5
select 1!=-1
select 'a'||-1
select 1*-1, 1/-1, 1<-1, 1>=-1, 1=-1, 1<>-1, 1+-1, 1--1
select '[1,2]'::jsonb->-1, '[1,2]'::jsonb #>>'{-1}', 5 % -3, 2 ^ -1, 5 |-3, '{"a":1}'::jsonb-'a'
select 1,
select ,1
select 1,,2
select distinct ,1
select 1 from orders,
select coalesce(1,)
select array[,1]
select x from (values (1),) v(x)
select 1 from orders group by
select 1 from orders group by having true
select 1 order by
select interval '9223372036854775807 microseconds', interval '3000000 hours', interval '1 hour' * -3000000
select x, id from (values (interval '3000000 hours', 1), (null, 2), (interval '1 mon -1 day', 3)) v(x, id) order by id desc
select 1 hour
select id Year from orders
select 1 as hour, 2 as year, 3 "day", 4 AS Month, extract(year from date '2026-01-02') y, interval '1' day d
select year.id from orders year order by year.id limit 1
select cast('a' as char) c, 'ab'::character varying v, 1::double precision p, timestamp without time zone '2026-01-02' t
select percentile_disc(0.5) within group (order by id) w, count(*) filter (where id > 1) f, count(*) over () from orders limit 1
select interval '300000 years' > interval '299999 years 11 mons', interval '178000000 years' = interval '2136000000 mons'
select x from (values (interval '400000 years'), (interval '-300000 years'), (interval '1 day'), (interval '24:00')) v(x) order by x desc, x::text
select max(x), min(x) from (values (interval '400000 years'), (interval '-300000 years'), (null)) v(x)
select id, span, span < '31 days', span = '1 month', span + '1 day', span * 2, -span, extract(epoch from span), span::text, pg_typeof(span), timestamp '2024-01-31' + span from spans order by id
select id from spans where span > interval '1 day' and span in ('1 mon', '365 days', interval '30 days', interval '360 days') order by id
select id, rank() over (order by span), lag(span) over (order by id), count(*) over (partition by span) from spans order by span desc, id
select sum(span), avg(span), count(span), max(span), min(span), string_agg(span::text, ',' order by span, id) from spans
select a.id, b.id, a.span < b.span, a.span = b.span from spans a, spans b where a.span <= b.span order by 1, 2
select id, coalesce(span, '0'), nullif(span, '30 days'), case when span > '1 day' then span end, concat(span, 'x'), format('%s', span), span is distinct from '1 mon' from spans order by id
select * from spans union all select * from spans order by 1
with s as (select * from spans) select s.id, s.span + s.span, (select max(i.span) from spans i where i.id between 3 and s.id) from s order by 1
select c.id from customers c join spans s on c.id = s.id where age(timestamp '2024-01-01', c.born::timestamp) > s.span order by 1
select id, span / 2, span / 0.3, span - span, isfinite(span), date_trunc('day', timestamp '2024-02-29 10:00' - span), date_part('month', span) from spans order by id
select format('%I', 'a'), format('%I', 'A'), format('%I', 'a b'), format('%I.%I = %L', 'select', 'a"b', 'x'), format('%I', ''), format('%I', '1a'), format('%I', 'é'), format('%I', '_a1'), format('%I', 'a$'), format('%10I|%-10I|', 'a', 'B'), format('%2$I %1$s', 'a', 'Between')
select format('%I', null)
select format('%I', name) from customers
select quote_ident(name), quote_ident(email), quote_ident(code), quote_ident('name'), quote_ident(null) from customers order by id
select 'substring', upper('similar')
select 99999999.99*99999999.99, 99999999.99::numeric(10,2)*99999999.99::numeric(10,2)
select 999999999999999999::numeric(18,0)+999999999999999999::numeric(18,0), 999999999999999999::numeric(18,0)-(-999999999999999999::numeric(18,0)), 9999999999999999.99::numeric(18,2) + 9999999999999999.99::numeric(18,2)
select 0.999999999999999999 * 0.999999999999999999, 999999999999999999.0 * 0.999999999999999999, 0.999999999999999999 + 999999999999999999
select 2147483647 * 99999999.99::numeric(10,2), 32767::smallint * 9999999999999.99::numeric(15,2), 9223372036854775807 * 9999999999.999999999::numeric(19,9)
select 9223372036854775807 * 9223372036854775807.0, 9223372036854775807 + 0.5, 9223372036854775807 - 0.000000000000000001
select 9999999999999999999999999999999999999.9 + 0.1, 99999999999999999999999999999999999999::numeric + 1, 0.00000000000000000000000000000000000001 + 1
select sum(price*price), sum(price * qty), sum(rate * price * 99999999.99), avg(price*99999999.99), max(price * 99999999.99) from orders
select price * 99999999.99 > 9e9, -(price * 99999999.99), abs(price * -99999999.99), round(price * 99999999.99, 1) from orders order by id
select price + 9999999999999999.99, 1 - rate + 99999999999999.9999 from orders order by id
select 99999999.99 % 0.0000000001, 99999999.99 / 0.0000000001, mod(999999999999999999, 0.7)
select 999999999999999999.0 = 999999999999999999, 99999999999999999.9 < 0.000000000000000001, 12345678901234567.8 in (1, 0.0000000000000001)
select round(999999999999999999.95, 1), ceil(999999999999999999.5), floor(-999999999999999999.5), trunc(99999999999999999.99, 1), sign(-0.5), ceil(0.99), round(0.995, 2)
select 9.99::numeric(3,2)::numeric(2,1)
select 99.99::numeric(4,2) + 0.01::numeric(4,2), 1e17 * 10, 100000000000000000::numeric(18,0) * 10
select exp(1.0), exp(0.0), exp(-1.5), exp(10.123456789012345678901234567890), exp(100.0), exp(-100.00), exp(0.00000000000000000001)
select ln(2.0), ln(1.0), ln(10.00), ln(0.5), ln(1.0000000001), ln(0.95), ln(1e50::numeric), ln(1e-50::numeric), ln(123456789.987654321)
select log(100.0), log(2.0), log(0.001), log(2, 8), log(2.0, 8), log(10, 1.05), log(1.5, 1e20::numeric), log10(50.0)
select power(2.0, 3), power(2, 0.5), power(2.5, 2), power(1.05, 10), power(10.0, -3), power(9.0, 0.5), power(0.0, 0), power(0.0, 2.5), power(-2.0, 3), power(-2.0, -3), power(100.0, 0.5), power(1.0, 1000000), power(12345.678, 5), power(0.5, 100), power(2.0, 100), power(7.0, 1), power(3.0,-1), power(2.00, 3.000)
select 2 ^ 0.5, 2.0 ^ 3, 2 ^ 3, 1.1 ^ 10, 10 ^ -2.0
select power(0.0, -1)
select power(-2.0, 0.5)
select ln(0.0)
select ln(-1.0)
select log(1.0, 2)
select exp(6000.0)
select exp(-6000.0), exp(-7000.5), exp(5000.0)
select power(10.0, 200), power(10.0, -200), power(10.0, -1500), power(1.5, 1000), power(1.0001, 100000), power(2.0, 0.0000001)
select exp(price / 100), ln(abs(price) + 1), power(abs(price), 0.3), power(price, 2), log(abs(price) + 0.5) from orders order by id
select exp(1), exp('1'), ln(10), log(100), power(2,3), power(2, '3'), power(2.0, '3'), log('100'), power(2::float8, 0.5), power(0.5::float8, 2.0)
select round(exp(sum(ln(abs(price) + 1))), 2) from orders where id < 10
select * from 'customers'
select name as 'n' from customers
with q as (select 1), q as (select 2) select * from q
with q as (with q as (select 1 as n) select n + 1 as n from q) select * from q
select id from customers order by id limit 2, 3
select id == 3 from customers
select !true
select coalesce(span, interval '1 month'), coalesce(span, interval '30 days') from spans order by id
select max(coalesce(x, interval '1 day')), max(coalesce(x, interval '24 hours')) from (values (null::interval)) s(x)
select id, (select count(*) from spans b where b.span > a.span), exists (select 1 from spans b where b.span = a.span and b.id <> a.id) from spans a order by id
select a.id, (select count(*) from doubles b where b.f > a.f), (select count(*) from doubles b where a.f between b.f and 5) from doubles a order by 1
select x, a.id, b.id from (select id, qty as x from orders) a join (select id, total as x from orders) b using (x) order by 2, 3
select x, a.id, b.id from (select id, price as x from orders) a join (select id, total as x from orders) b using (x) order by 2, 3
select max(f), min(f) from doubles where f <> 0 or id = 5
select id, max(f) over (order by id rows between 1 preceding and current row) from doubles where id <> 4 order by id
select max(x), min(x) from (values ('1.5'::text::numeric), ('1.5'::text::numeric), ('2.00'::text::numeric), (null)) v(x)
select percentile_disc(0.5) within group (order by x), percentile_disc(0.9) within group (order by x desc) from (values ('1.5'::text::numeric), ('1.5'::text::numeric), ('2.00'::text::numeric), (null)) v(x)
select max(span), percentile_disc(0.1) within group (order by span) from spans where id <> 2
select count(*) from customers a full join orders b on a.born = b.shipped and a.id = b.id
select coalesce(interval '30 days', interval '1 day'), count(*) over () from boxes
select 1 <=> 1
select interval 1 day
select 'a' !~ 'b', 'a' !~* 'A', 1 as "!", '==' as "<=>"
select percentile_disc(0.07) within group (order by n), percentile_disc(0.55) within group (order by n), percentile_disc(0.29) within group (order by n desc), percentile_cont(0.07) within group (order by n) from generate_series(1, 100) n
select to_char(shipped, 'Mon MON mon Day DAY day Dy DY dy Month MONTH month'), to_char(shipped, 'yyyy-mm-dd hh24:mi:ss.us q id iw ddd'), to_char(shipped, '') from orders order by id
select chr(8490) ~* 'k', chr(8490) ~* '[a-z]', chr(8490) !~* 'k', 'K' ~* 'k', 'ſ' ~* 's', lower(chr(8490)), chr(8490) ilike 'k'
select initcap('〇bc ⅷbc 〡x')
select vip, id, name, count(*) from customers group by rollup (vip), id order by 1, 2, 4
select vip, id, count(*) from customers group by cube (vip), id, name order by vip, id, grouping(vip)
select * from customers semi join orders using (id) order by id limit 3
select x, x in (9007199254740993, 1.5::float8), x in (9007199254740993), x in (9007199254740993, 2), x = any(array[9007199254740993, 1.5::float8]) from (values (9007199254740992), (9007199254740993)) v(x) order by 1
select x, x in (16777217, 1::real), x not in (1::real, null), x = any(array[16777217, 1::real]) from (values (16777216), (16777217), (1)) v(x) order by 1
select nullif('a'::char(6), name), nullif(code, name), nullif(name, code), pg_typeof(nullif(code, name)) from customers order by id
select id from customers anti order by 1
select rlike, regexp, glob, semi, qualify from (select 1 as rlike, 2 as regexp, 3 as glob, 4 as semi, 5 as qualify) string
select begin, commit, rollback, load, lock, merge, copy, comment, call, execute from (select 1 as begin, 2 as commit, 3 as rollback, 4 as load, 5 as lock, 6 as merge, 7 as copy, 8 as comment, 9 as call, 10 as execute) x
select list, map, struct, object, variant, percent, kill, cache, use, show, describe, pragma, optimize from (select 1 as list, 2 as map, 3 as struct, 4 as object, 5 as variant, 6 as percent, 7 as kill, 8 as cache, 9 as use, 10 as show, 11 as describe, 12 as pragma, 13 as optimize) long
select interval '2' day, interval '1.7' second, interval ' -3 ' month
select name from customers order by name collate ucs_basic, id
select email::text from customers group by email order by 1
select id, id::int as id from customers order by id
select -(-3), - - 1.5, 1 - -2, 1 + -2
select +3, + 1.50, + -2, 1 + + 2, 1 - + 2, pg_typeof(+2147483648), pg_typeof(+1.0)
select email from customers order by +1
select upper(chr(612)), lower(chr(42955)), upper(lower(chr(68944)) || 'ß'), chr(42955) ilike chr(612), chr(68944) || 'Bc' ilike '%' || chr(68976) || 'b%', chr(42972) ilike '%ƛ%'
select initcap('ᾳᾳ ƛb'), initcap(chr(8064)), initcap('ﬀi ŉa')
select '2024-02-29 12:34:56+15:59'::timestamptz, '2024-02-29 12:34:56-15:59'::timestamp
select '+nan'::text::float8, E'\t12\n'::text::float4, E'ON\t'::text::bool, ' -Infinity '::text::float4
select b.* from boxes a, lateral (select a.*) b order by id
select '2024-12-31 24:00'::text::timestamp, '0001-01-01'::text::date
select date_bin(interval '0', timestamp '2000-01-01', null), make_date(0, 0, null)
select 'A0EE-BC99-9C0B-4EF8-BB6D-6BB9-BD38-0A11'::uuid, '{a0eebc999c0b4ef8bb6d6bb9bd380a11}'::uuid
select interval '00:59:60', '-2147483648 days'::text::interval
select length(round(0.0, 20000)::text), length(trunc(0, 2147483647)::text)
select extract(epoch from interval '178000000 years'), extract(epoch from interval '-178000000 years -0.5 seconds')
select * from generate_series(timestamp '2026-01-31', timestamp '2026-06-01', interval '1 month -30 days')
select id, count(*) over (order by id groups between 3 following and 5 following), count(*) over (order by id rows between 75 following and 80 following), count(*) over (order by placed range between '2 months' preceding and '1 month' preceding) from orders order by id
select upper(name) collate "C", id from customers order by lower(name) collate "C", id
select name collate pg_c_utf8, upper(name collate pg_c_utf8) from customers order by id
select timestamp '2026-01-30' + interval '2' day + interval '1' month, interval '1' day + id * interval '1' hour from boxes order by id
select name similar to 'x*' escape '!', name similar to '%(b|n)' escape '#', name not similar to 'x_y+' escape '!' from customers
select sum(id) over v, count(*) over (v rows 1 preceding) from customers window w as (partition by vip), u as (w order by id), v as (u) order by id
select 1 in (select null)
select 1 = any (select '1')
select 'a' in (select 'a'), (1, 'x') in (select 1, 'x'), 'b' = any (select 'a')
select array[(select 1 where false)], array(select 1 where false), array[(select id from customers where id = 3), 5]
select array[(select id from customers)]
select * from customers a full join orders b on a.id = b.id and a.id > b.qty order by a.id, b.id
select * from (values (1), (2)) a(x) full join (values (2), (3)) b(x) on false order by 1, 2
select c.id, t from customers c right join unnest(array['a', 'b']) t on t = any(c.tags) order by 1, 2
select id, unnest(tags), unnest(array[1, 2]) from customers order by id desc limit 12
select id, generate_series(3, 1, -1) from boxes order by id desc limit 5
select distinct on (vip, vip) vip, id from customers order by vip, id
with recursive t(n) as (select 1 union all select n + 1 from (select * from t) s where n < (select max(id) from boxes)) select n from t order by n
select 1 as aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggg, 2 as "ääääääääääääääääääääääääääääääääääää"
select aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffggg from (select 1 as aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggg) s
select prices[1], prices[0], prices[-1], sums[0] from kinds order by id
select pg_typeof(id), pg_typeof(pg_typeof(id)), concat(pg_typeof(id), '!') from boxes
select array(values (1)), array(select 1)::text[]
select * from generate_series(timestamp '2024-01-01', timestamp '2024-01-05', '1 day 12 hours')
select * from generate_series(timestamp '2024-01-01', timestamp '2024-06-05', '2 mons')
select * from generate_series(timestamp '2024-01-01', timestamp '2024-01-05', interval '1 day 12 hours')
select s.array[1], (s.array)[2], s.list[1] from (select array[5, 6] as "array", array[7] as list) s
select "array"[2], s."array"[1:1] from (select array[5, 6] as "array") s
select "count"(*), "max"(id), "string_agg"(size::text, ',' order by id) from boxes where id < 4
select lag('12', '-7', '5') over (), lead(null, 1, 'a') over () from boxes
select lead('5', '1', 1.5) over (order by id) from boxes order by id
select every('1'), char_length('ab '::char(5)), character_length('abc'::varchar), log10(1000.5), log10(1000::float8)
select substring(o.NAME from 1 for 1), count(*) from customers o group by SUBSTRING((name), 1, 1)
select qty::varchar(3), grouping((o.qty)::varchar(3)), count(*) from orders o group by cast(qty as character varying(3))
select max(length(qty::varchar)), max(o.qty::varchar), qty::text from orders o group by qty::text
select rank() over (order by qty::text), max(qty::text) over () from orders o group by o.qty::text
select distinct qty::text from orders o order by o.qty::text
select array_agg(distinct substr(name, 1, 1) order by substr(c.name, 1, 1)) from customers c
select f * 0, f * -0.0::float8, -(f * 0) from doubles where id > 6 order by id
select array_agg(0::float8 * -1), array_agg(0::float8) from boxes
select '-0'::float8, '0'::float8, '-0.0e5'::float4, 0::float4, round(-0.4::float8), 0::float4 * -1
select 1 / '-0.0e5'::float4
select '-1e-400'::float8
select f = '-0', greatest(f, '-0'), coalesce(f, '-0'), f * '-0' from doubles where id in (4, 5, 7, 13) order by id
select lag(f * 0) over (order by id), lag(f * -(0::float8)) over (order by id) from doubles where id > 6 order by id
select first_value(f * 0) over (order by id), first_value(f * round(-0.4::float8)) over (order by id) from doubles where id > 6
select id from doubles where (f * 0)::text >= '0' and (f * -(0::float8))::text <= '-0' and id > 6 order by id
select count(*), count(a), count(b) from (select lead(x, 2) over () as a, lag(x, -1) over () as b from (select 1 as x union all select 2 union all select 3 union all select id from boxes) v) w
select count(*), count(distinct x), sum(a), sum(b) from (select x, lead(x, 9, 1) over () as a, lag(x, -9, 2) over () as b from (select 1 as x union all select 2 union all select 3) v) w
select 1 = any (array[]::int[]), 1 <> all (array[]::int[]), array[]::text[], array[1] || array[]::int[]
select string_to_array(null, ','), string_to_array(null::text, ','), string_to_array('a', null), regexp_match(null, 'a'), to_timestamp(null::text, 'YYYY-MM-DD'), sha256(null)
select jsonb_object_agg(null::bytea, 1)
select jsonb_build_object(null::bytea, 1)
select id > 2 is unknown, vip is unknown, vip is not unknown, null is unknown from customers order by id
select array_cat('{}', '{1}'::int[]), array_cat('{1}'::int[], null), array_cat(null::int[], null::int[])
select array_position(array[1, 2, 3], 2.0), array_position(array[1, 2], 2.5), array_position(array[2, null], null::numeric), array_position(null::int[], 2.0)
select id, array_position(array[qty, 3], 3.00), array_position(array[qty, 3], price), array_position(array[customer_id, qty], qty::numeric / 2) from orders
select array_position(array['1.5'::float4, 2, '-0'], 0::float4), array_position(array[0::float8, 2], '-0'::float8), array_remove(array['1.5'::float4, '-0'], 0::float4)
select id, array_position(array[price::float8, 0], price::float8), array_remove(array[price::float8, 0, null], price::float8) from orders
select array_position(array[id, id], price), array_remove(array[id], 1.0) from orders
