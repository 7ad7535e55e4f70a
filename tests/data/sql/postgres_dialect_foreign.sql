select 1::long
select 1::double
select '1'::string
select cast(id as string) from customers
select 1::tinyint
select 1::number
select 1::datetime
select '2026-01-01'::datetime
select 1::fixed
select 1::clob
select 'a'::blob
select 'a'::varbinary
select 'a'::binary
select 'a'::nvarchar
select 1::"int"
select 1::signed
select cast(1 as unsigned)
select cast(1 as int unsigned)
select 1::float(0)
select 1::float(54)
select 1::array<int>
select cast(null as array<int>)
select cast(null as struct<a int>)
select cast(null as map<int,int>)
select 1::list
select 1::variant
select 1::object
select 1::uint
select 1::int64
select 1::int32
select '"\u0000"'::json ->> 'a'
select '[1, {"a": "\u0000"}]'::json -> 0
select '[1, "\u0000"]'::json #> '{}'
select '["\ud800"]'::json ->> 'x'
select 1::int16
select 1::int128
select 1::bignumeric
select 1::serial
select 1::bigserial
select 'a'::text(3)
select 'a'::text(10)
select 1::numeric(2,5)
select 1::numeric(0)
select 1::int(4)
select 1::timestamp
select '2026-01-01'::timestamp_ntz
select '2026-01-01'::timestampltz
select '2026-01-01'::timestamp with local time zone
select '2026-01-01'::date(3)
select interval (1) day
select interval id day from customers
select 1 day
select try_cast('a' as int)
select safe_cast('a' as int)
select convert(int, '1')
select convert('1', int)
select cast('1' as int format 'x')
select cast('1' default 0 on conversion error as int)
select id::int? from customers
select id?::int from customers
select name rlike 'a' from customers
select name regexp 'a' from customers
select name not rlike 'a' from customers
select name not regexp 'a' from customers
select name glob 'a*' from customers
select name not glob 'a*' from customers
select name similar 'a' from customers
select name ~~~ 'a' from customers
select name like any ('a%', 'b%') from customers
select name like all ('a%', 'b%') from customers
select name contains 'a' from customers
select name in 'a' from customers
select id in (1, 2,) from customers
select id in () from customers
select id in [1, 2] from customers
select id in array[1] from customers
select id in unnest(array[1]) from customers
select 1 xor 2
select true xor false
select 1 div 2
select 5 mod 2
select 5 % 2, 5 %% 2
select 5 // 2
select 5 ** 2
select 1 == 1
select 1 === 1
select 1 ~= 1
select 1 := 1
select 1 ^= 1
select 1 |> 1
select ! true
select 5 !
select !!5
select true && false
select true || false
select 1 ?? 2
select 1 ?: 2
select true ? 1 : 2
select ?
select ?1
select :x
select :1
select @x
select $1
select $x
select {x}
select {{ x }}
select {'a': 1}
select [1, 2][1]
select []
select array[1, 2,]
select array[]
select array[1,2][1]
select [1, 2]
select array(1, 2)
select (array[1,2,3])[1:2:1]
select tags[1 from customers
select tags[1]] from customers
select map[1, 2]
select map{'a': 1}
select struct(1 as a)
select ()
select (1,)
select x -> x + 1
select list_transform([1], x -> x + 1)
select lambda x: x
select (x) -> x
select 'a' -> 'b'
select settings.plan from customers
select settings:plan from customers
select settings:plan::text from customers
select settings ?| 'plan' from customers order by id
select settings #- '{plan}' from customers order by id
select a.b.c.d.e from customers
select customers.customers.id from customers
select other.customers.id from customers
select public.customers.id from customers c
select customers.id from customers c
select .id from customers
select id. from customers
select `id` from customers
select [id] from customers
select ""
select "" from customers
select "ID" from customers
select r'a\b'
select R'a'
select f'abc'
select q'[abc]'
select _utf8'abc'
select 'a\'b'
select 'a
select "a
select $$a
select /* a
select /* a /* b */ 1
select 1 # a
select 1 // a
select 1__000
select 1_
select _1
select 0xG
select 0b12
select 0o8
select 1e
select 1e5e
select 1..2
select 1.2.3
select 1.a
select 1 .5
select 1L
select 1d
select 1.5f
select 1x
select 1as x
select 1from customers
select 0x1Fas
select 1 as
select 1 as 1
select 1 as 'x'
select 1 as x y
select 1 x y
select 1 'x'
select 1 as (x)
select 1 as (x, y)
select 1 as x,
select , 1
select 1,, 2
select 1, 2,
select id, from customers
select distinct all id from customers
select distinct on id id from customers
select distinct on () id from customers
select distinctrow id from customers
select unique id from customers
select straight_join id from customers
select sql_no_cache id from customers
select high_priority id from customers
select top 3 id from customers
select top (3) id from customers
select top 3 percent id from customers
select first 3 id from customers
select skip 3 id from customers
select as struct 1
select as value 1
select value id from customers
select * except (id) from customers
select * exclude (id) from customers
select * exclude id from customers
select * replace (1 as id) from customers
select * rename (id as x) from customers
select * ilike '%a%' from customers
select * like 'a%' from customers
select c.* except (id) from customers c
select columns('a.*') from customers
select columns(*) from customers
select * as x from customers
select * x from customers
select count() from customers
select count(distinct *) from customers
select count(distinct id, name) from customers
select count(id, name) from customers
select sum(*) from customers
select max(id) filter (id > 3) from customers
select max(id) where id > 3 from customers
select array_agg(id order by id desc limit 2) from customers
select array_agg(distinct id order by name) from customers
select string_agg(name order by id, ',') from customers
select string_agg(name, ',') within group (order by id) from customers
select listagg(name, ',') within group (order by id) from customers
select group_concat(name) from customers
select group_concat(name separator ',') from customers
select group_concat(distinct name order by id separator ',') from customers
select max(id) ignore nulls from customers
select first_value(name) ignore nulls over (order by id) from customers
select first_value(name ignore nulls) over (order by id) from customers
select first_value(name) respect nulls over (order by id) from customers
select first_value(name) from first over (order by id) from customers
select nth_value(name, 2) from last over (order by id) from customers
select any_value(name having max id) from customers
select percentile_cont(id, 0.5) from customers
select percentile_cont(0.5) within group (order by id) over () from customers
select approx_count_distinct(id) from customers
select count(*) over (order by id rows between 1 following and 2 preceding) from customers
select count(*) over (order by id rows between current row and 2 preceding) from customers
select count(*) over (order by id rows between unbounded following and 2 preceding) from customers
select count(*) over (order by id rows between unbounded preceding and unbounded preceding) from customers
select count(*) over (order by id rows between unbounded following and unbounded following) from customers
select count(*) over (order by id rows between 2 following and current row) from customers
select count(*) over (order by id rows 2 following) from customers
select count(*) over (order by id rows unbounded following) from customers
select count(*) over (order by id rows between -1 preceding and 2 following) from customers
select count(*) over (order by id rows between null preceding and 2 following) from customers
select count(*) over (order by id rows between id preceding and 2 following) from customers
select count(*) over (order by id rows between 1 preceding and 2 following exclude rows) from customers
select count(*) over (range between 1 preceding and 2 following) from customers
select count(*) over (partition by vip partition by id) from customers
select count(*) over (order by id partition by vip) from customers
select count(*) over (order by id order by vip) from customers
select count(*) over (distribute by vip sort by id) from customers
select count(*) over (partition vip) from customers
select count(*) over (order id) from customers
select count(*) over id from customers
select count(*) over () over () from customers
select row_number() from customers
select count(*) over from customers
select row_number() over from customers
select row_number() over (order by id) as n from customers qualify n = 1
select id from customers qualify row_number() over (order by id) = 1
select id from customers where row_number() over (order by id) = 1
select id from customers prewhere id = 1
select id from customers limit 3 percent
select id from customers limit 3 with ties
select id from customers fetch first 3 rows with ties
select id from customers fetch first 3 rows
select id from customers fetch 3 rows only
select id from customers fetch first 3
select id from customers fetch first 3 percent rows only
select id from customers limit 2, 3
select id from customers limit 3 by vip
select id from customers order by id limit 3 limit 2
select id from customers order by id offset 1 offset 2
select id from customers order by id limit -1
select id from customers order by id limit id
select id from customers limit 3 order by id
select id from customers limit 3 where id > 1
select id from customers order by id where id > 1
select id from customers group by id where id > 1
select id from customers having id > 1 group by id
select id from customers having count(*) > 1
select 1 from
select 1 where
select id from customers where
select id from customers where id = 1 where id = 2
select id from customers, order by id
select id from customers order by
select id from customers group by
select id from customers order id
select id from customers group id
select id from customers sort by id
select id from customers cluster by id
select id from customers distribute by id
select id from customers order by name nulls last desc, id
select id from customers order by name desc asc
select id from customers order by name using =, id
select id from customers order by name using <=, id
select id from customers order by id collate "C"
select name from customers order by name collate C
select name from customers order by name collate nocase
select id from customers order by all
select id from customers order by 2
select id from customers order by 0
select id from customers order by 1.0
select id from customers order by '1'
select id from customers order by null
select id from customers order by id with fill
select id from customers order by rand()
select id from customers order siblings by id
select vip, count(*) from customers group by all
select vip, count(*) from customers group by () order by 1
select vip, count(*) from customers group by vip with rollup
select vip, count(*) from customers group by vip with cube
select vip, count(*) from customers group by vip with totals
select vip, count(*) from customers group by rollup vip
select vip, count(*) from customers group by grouping sets vip
select vip, grouping_id(vip) from customers group by rollup (vip)
select vip as name, count(*) from customers group by name order by 1
select id as x, id + 1 as y from customers where x > 1
select id as x, x + 1 as y from customers
select id as x from customers order by x + 1
select id as x from customers group by id having x > 1
select email, email::text from customers order by email
select id, id + 0 as id from customers order by id
select id, -(-id) as id from customers order by id
select a.id, b.id from customers a join customers b on a.id = b.id order by id
select * from customers a join customers b on a.id = b.id order by id
select name as x, email as x from customers order by x
select 1 as x, 2 as x order by x
select id as x, vip as x from customers group by x
select id as name from customers group by name
select email, email::text from customers group by email order by email
select email::varchar, email from customers order by email
select price, price::numeric from orders order by price
select distinct email, email::text from customers order by email
select email as e, email::text as e from customers union select 'a', 'b' order by e
select id from customers union select id from orders order by id + 1
select id as x from customers union select id as y from orders order by y
select id from customers union by name select id from orders
select id from customers union all by name select id from orders
select id from customers union corresponding select id from orders
select id from customers minus select id from orders
select id from customers order by id union select id from orders
select id from customers limit 1 union select id from orders
(select id from customers order by id limit 4) order by id desc limit 2
select 1 union
union select 1
select 1 union select
select 1 union (select 2
(select 1
select 1)
select (1
values 1, 2
values row(1), row(2)
values (1, 2), (3)
values (1),
values (default)
select * from (values (1, 'a')) v(x, y, z)
select * from (values row(1)) v(x)
table customers c
values ()
select * from values (1), (2)
select * from values (1), (2) as v(x)
table customers where id = 1
select * from table customers
select * from table(customers)
select * from table(generate_series(1, 2))
select * from customers only
from customers
from customers select id
from customers select *
from customers where id = 1
from customers limit 1
from customers c select c.id
select id from customers 'c'
select id from 'customers'
select id from ((customers)) order by 1
select id from customers as c(a, b) order by 1
select a from customers (a)
select id from customers as 'c'
select id from (customers) order by 1
select a from customers as (a)
select id from customers c(a)
select id from (select id from customers) as x(y)
select id from (select id from customers)) x
select id from customers tablesample (100)
select id from customers tablesample 100 percent
select id from customers sample 10
select id from customers using sample 10
select id from customers tablesample reservoir (10)
select id from customers for xml
select id from customers for json auto
select id from customers lock in share mode
select id from customers with (nolock)
select id from customers with ur
select id from customers use index (x)
select id from customers force index (x)
select id from customers ignore index (x)
select id from customers partition (p0)
select id from customers@x
select id from customers at (timestamp => '2026-01-01')
select id from customers before (statement => 'x')
select id from customers version as of 1
select id from customers timestamp as of '2026-01-01'
select id from customers match_recognize (pattern (a))
select id from customers pivot (max(id) for vip in (true, false))
select id from customers unpivot (x for y in (id))
pivot customers on vip using count(*)
select * from customers join orders on customers.id = orders.id using (id)
select * from customers inner outer join orders on true
select * from customers join orders
select * from customers inner join orders using id
select * from customers join orders using ()
select * from customers cross join orders on true
select * from customers cross join orders using (id)
select * from customers natural cross join orders
select * from customers natural join orders on true
select * from customers natural join orders using (id)
select * from customers outer join orders on true
select * from customers left inner join orders on true
select * from customers cross left join orders
select * from customers left join orders
select * from customers left semi join orders on true
select * from customers left anti join orders on true
select * from customers inner hash join orders using (id)
select * from customers inner loop join orders on true
select * from customers any join orders using (id)
select * from customers all inner join orders using (id)
select * from customers any left join orders using (id)
select * from customers positional join orders
select * from customers straight_join orders on true
select * from customers array join tags
select * from customers left array join tags
select * from customers cross apply orders
select * from customers outer apply orders
select * from customers c cross apply (select 1) x
select c.id, x.n from customers c, (select c.id + 1 as n) x
select * from customers lateral view explode(tags) t as x
select * from customers lateral view outer explode(tags) t as x
select id, t, n from customers cross join unnest(tags) with offset as n
select id, t from customers, tags t
select id, t from customers, customers.tags t
select id, t from customers, lateral flatten(input => tags) t
select * from generate_series(1, 3) g(x, y)
select * from generate_series(1, 3) as (x int)
select * from generate_series(1, 3) as g(x int)
select * from range(1, 3)
select * from range(3)
select * from numbers(3)
select * from explode(array[1])
select * from posexplode(array[1])
select explode(array[1])
select * from unnest([1, 2])
select * from customers join (orders) using (id) order by id limit 1
select * from (customers, orders)
select * from (customers c) order by id limit 1
select * from (customers as c) x
select c.id from customers c, customers c
select c.id from customers c join customers c on true
select c.id from customers c join orders c on true
with x(a, b) as (select 1) select a from x
with x as (select 1), select * from x
with x as (select 1),
with x as select 1 select * from x
with x as cached (select 1) select * from x
with x (select 1) select * from x
with x(n) as (select 1 union all select n + 1 from x where n < 3) select * from x
with 1 as x select x
with x as 1 select x
with (select 1) as x select * from x
with function f() returns int return 1 select f()
select case 1 when 1, 2 then 'a' end
select case end
select case else 1 end
select case when true then end
select case when true then 1 else end
select case when true then 1
select case when true 1 end
select if(true, 1, 2)
select iif(true, 1, 2)
select ifnull(null, 1)
select nvl(null, 1)
select isnull(null, 1)
select coalesce()
select decode(1, 1, 'a')
select 1 is 1
select 1 is not 1
select 1 is true
select 'a' is of (text)
select 'a' is document
select id = 1 = true from customers order by id
select 1 = 1 = 1
select 1 < 2 < 3
select 1 between 0, 2
select 1 between (0 and 2)
select '%\' like '%\'
select 'a' like '%\'
select name like '%\' from customers
select name ilike '%\' from customers
select name not like '%\' from customers
select 'a' like 'a' escape 'xy'
select 'a' like 'a' escape 1
select 1 like 1
select 1 like '1'
select 'a' =~ 'a'
select 'a' regexp_like 'a'
select exists select 1
select exists (1)
select exists ()
select any (select 1)
select 1 = any (1)
select 1 = any (1, 2)
select 1 = any array[1]
select 1 in select 1
select 1 in (select 1, 2)
select 1 = (select 1, 2)
select (select 1, 2)
select (select 1 as a).a
select (select customers).id
select extract(year, born) from customers
select extract(weekday from born) from customers
select extract(dayofweek from born) from customers
select extract(year from '2026-01-01') 
select extract(year born) from customers
select date_part(year, born) from customers
select year(born) from customers
select datediff(day, born, born) from customers
select dateadd(day, 1, born) from customers
select date_add(born, interval 1 day) from customers
select date_add(born, 1) from customers
select born + interval 1 day from customers
select date_trunc(born, month) from customers
select date_trunc(month, born) from customers
select trunc(born, 'month') from customers
select to_date('2026-01-01') 
select timestamp('2026-01-01')
select date "2026-01-01"
select datetime '2026-01-01'
select year '2026'
select string 'a'
select long '1'
select double '1'
select xml '<a/>'
select array '{1}'
select int[] '{1}'
select current_date()
select current_timestamp() = now()
select now = now()
select now() = now
select sysdate
select systimestamp
select getdate()
select curdate()
select today()
select session_user()
select rownum from customers
select rowid from customers
select oid from customers
select level from customers connect by level < 3
select prior id from customers
select connect_by_root id from customers
select id from customers start with id = 1 connect by prior id = id
select next value for x
select x.nextval
select nextval('x')
select substring('abc' 2)
select mid('abc', 2, 1)
select position('b', 'abc')
select locate('b', 'abc')
select charindex('b', 'abc')
select instr('abc', 'b')
select 'a' + 'b'
select 1 || 2
select 1 < 2 = true
select 1 + 1::text
select -2147483648::int
select -32768::smallint
select name collate C from customers
select at time zone 'UTC'
select func(a => 1)
select left(str => 'abc', n => 2)
select upper(distinct 'a')
select upper('a' order by 1)
select upper('a') filter (where true)
select upper('a') over ()
select upper('a',)
select upper(,'a')
select public.upper('a')
select upper(variadic array['a'])
select greatest()
select count
select count from customers
select date from customers
select sum(id) over from customers
select order from (select 1 as order) x
select table from (select 1 as table) x
select 1 order
select 1 year
select 1 filter
select 1 over
select id from customers left
select id from customers as left
select id from customers right
select id from customers natural
select id from customers cross
select id from customers window order by 1
select id from customers offset order by 1
select id from customers limit order by 1
select id from customers settings x = 1
select id from customers format json
select id from customers option (recompile)
select id from customers order by id format csv
select id from customers where id = 1 and
select id from customers where and id = 1
select id from customers where id = 1 or or id = 2
select id from customers where id = 1 and and id = 2
select id from customers where id =
select id from customers where = 1
select id from customers where id = 1 id = 2
select id from customers where (id = 1
select id from customers where id = 1)
select id from customers where not
select id from customers where id not
select id from customers where id is
select id from customers where id is not
select id from customers where id like
select id from customers where id between 1
select id from customers where id between 1 and
select id from customers where 1
select id from customers where name
select id from customers where id
select id from customers where current of x
select id from customers as of timestamp x
select id from customers where id = @x
select id from customers where id = :x
select id from customers where id = ?
select id from customers where id = $1
select id from customers where id = %s
select id from customers where id = %(x)s
select id from customers where id = {x}
select id from customers where id = 1 # x
select id|>sum from customers
select id from customers |> where id = 1
from customers |> where id = 1
describe customers
show tables
set x = 1
select * from customers.
select * from customers.x
select * from x.customers
select * from customers c1 c2
select * from customers as
select id id2 id3 from customers
select id as id2 id3 from customers
select (id) (id2) from customers
select id (id2) from customers
select id[1] from customers
select id.x from customers
select id->1 from customers
select cast(id) from customers
select cast(id, text) from customers
select cast(id as) from customers
select cast(id text) from customers
select cast id as text from customers
select cast(id as text as int) from customers
select id::  from customers
select ::int id from customers
select xmlelement(name a)
select merge_action()
select grouping(id) from customers
select overlaps from customers
select nullif(1)
select nullif(1, 2, 3)
select ifnull(1)
select zeroifnull(null)
select least(1,)
select log2(8)
select rand()
select char(65)
select unicode('a')
select len('a')
select lcase('A')
select ucase('a')
select startswith('abc', 'a')
select contains('abc', 'a')
select split('a,b', ',')
select array_size(array[1])
select size(array[1])
select element_at(array[1], 1)
select get(array[1], 0)
select array_contains(array[1], 1)
select list_value(1, 2)
select json_extract('{"a":1}', '$.a')
select get_json_object('{"a":1}', '$.a')
select parse_json('{}')
select from_json('{}', 'a int')
select sha1('a')
select sha2('a', 256)
select uuid()
select database()
select typeof(1)
select sleep(0)
select system$typeof(1)
select bitand(1, 1)
select bit_count(1)
select shiftleft(1, 1)
select hex(255)
select unhex('ff')
select from_unixtime(0)
select unix_timestamp()
select str_to_date('x', 'y')
select date_format(now(), '%Y')
select format_date('%Y', date '2026-01-01')
select last_day(date '2026-01-31')
select count(*) from customers a full join orders b on a.born = b.shipped and a.id < b.id
select add_months(date '2026-01-31', 1)
select months_between(date '2026-01-31', date '2026-01-31')
select timestampdiff(day, now(), now())
select timestampadd(day, 1, now())
select array_concat(array[1], array[2])
select soundex('a')
select levenshtein('a', 'b')
select $1a$x$1a$
select +name from customers
select default from (select 1 as default) v
select settings -+ 'plan' from customers where id = 1
select 1 ?? 2, true $ false
select 'abc' like '%b%\'
select '2024-02-29 12:34:56+16'::timestamp
select '2024-02-29 12:34:56+05:60'::timestamptz
select interval '00:60:00'
select '00:59:61'::text::interval
select '2562047788:00:54.775808'::text::interval
select '-2562047788:00:54.775808'::interval
select '9223372036854775808 us'::text::interval
select '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid
select 'urn:uuid:a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid
select 'a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11'::uuid
select '0000-01-01'::text::date < date '2000-01-01'
select '1 2'::text::float8
select name like name || '\' from customers
select pg_typeof(1) = 'integer'
select upper(pg_typeof(1))
select sum(qty) over (order by id rows between current row and 1 preceding) from orders
select sum(qty) over (order by id rows between 1 following and current row) from orders
select sum(qty) over (order by id rows between unbounded following and current row) from orders
select sum(qty) over (order by id rows 1 following) from orders
select count(*) from orders group by cube (id, customer_id, status, qty), cube (id, customer_id, status, qty), cube (id, customer_id, status, qty), rollup (id)
select count(*) from orders group by grouping sets (cube (id, customer_id, status, qty, placed, shipped, note), rollup (id)), rollup (id, customer_id, status, qty, placed, shipped, note), rollup (id, qty, note)
select count(*) from orders group by cube (id, customer_id, status, qty, placed, shipped, note, id, qty, note, id, qty, note)
select array_agg(id, 1), array_agg(name, ',' order by id) from customers
select id, array_agg(5, 1) over (order by id rows 2 preceding) from orders
select rtrim(null, 'a', 'b')
select ltrim()
select unnest(tags, tags) from customers
select status::varchar(0) from orders
select cast(status as char(0)) from orders
select id, name, grouping(name) from customers group by id, rollup(vip)
select 'a' { : 1 }
select 'x' < stage from parcels @x at time zone 'UTC'
select interval '2' day + 1, timestamp '2026-01-30' + interval '2' day + 1
select 1::numeric(2::timestamptz, 0)
select sum(id) over v from customers window v as (w order by id), w as (partition by vip)
select sum(id) over v from customers window w as (order by id rows 1 preceding), v as (w)
select count(*) from customers window w as (order by id)
select sum(id) over (order by id rows unbounded following) from customers
select sum(id) over (order by id rows 1 following) from customers
select sum(id) over (order by id rows between 1 following and current row) from customers
select sum(id) over (order by id range between current row and 1 preceding) from customers
select sum(id) over (order by id groups between current row and unbounded preceding) from customers
select 1 limit 1 union all select 2
select 1 order by 1 union all select 2
select 1 union all with t as (select 2) select * from t
select distinct on () 1
select array(abs(1))
select generate_series(1, 3, 1, 1)
select generate_series(1::smallint, 3::smallint)
select unnest(array[1, 2], array['a'])
select * from unnest(array[1]) with ordinality as x(a, b, n)
select count(*) from customers a full join orders b on a.id < b.id
select count(*) from customers a full join orders b on a.id = b.id or a.id = 1
select count(*) from customers c right join lateral (select c.id as x) s on true
select count(*) from customers c full join unnest(c.tags) t on true
select count(*) from customers join orders customers on true
with recursive t(n) as (select 1 union all select max(n) + 1 from t where n < 5) select n from t
with recursive t(n) as (select 1 union all select id from customers where id in (select n + 1 from t)) select n from t
with recursive customers(n) as (select id from customers union all select 1) select count(*) from customers
with recursive t(n) as (select 'a'::varchar(3) union all select n || 'b' from t where length(n) < 4) select n from t
select pg_typeof(1) = 'a'::text
select s.array['a'] from (select 1 as a) s
select "array"['a'] from (select 1 as a) s
select log10(10, 2)
select log10(10::numeric, 2)
select percentile_cont(0.5, 0.6) within group (order by id) from boxes
select percentile_disc(0.5, 0.6) within group (order by id) from boxes
select string_agg('a', ',', ',' order by 1::int)
select "coalesce"(1)
select "COALESCE"(1)
select "greatest"(1, 2)
select "nullif"(1, 1)
select "trim"('a')
select "array"()
select "Max"(id) from boxes
select "Count"(*) from boxes
select "Row_Number"() over () from boxes
select "STRING_AGG"('a', ',')
select "SUBSTRING"('abc', 1)
select * from "UNNEST"(array[1])
select char_length('a'::bytea)
select character_length('a'::bytea)
select isfinite('2026-01-01')
select isfinite(null)
select trunc('1')
select to_hex('1')
select lead('12', 1) over () from boxes
select 'x'::text like null::bytea
select "Left"(name, 1), "left"(name, 1) from customers
select qty::text, count(*) from orders group by qty::varchar
select qty::varchar, count(*) from orders group by (qty)::text
select qty::text, qty::varchar, count(*) from orders group by 1
select qty::text as a, qty::varchar from orders group by a
select grouping(qty::varchar), count(*) from orders group by qty::text
select count(*) from orders group by qty::text having qty::varchar = '1'
select count(*) from orders group by qty::text order by qty::varchar
select born::timestamp, count(*) from customers group by born::timestamptz
select substr(name, 1, 1), count(*) from customers group by substring(name, 1, 1)
select length(name), count(*) from customers group by char_length(name)
select ceil(price), count(*) from orders group by ceiling(price)
select date_trunc('month', placed), count(*) from orders group by date_trunc('MONTH', placed)
select sum(qty), mod(qty, 2) from orders group by qty % 2
select now() - placed, count(*) from orders group by current_timestamp - placed
select rank() over (order by qty::varchar), qty::text from orders group by qty::text
select max(qty::varchar) over (), qty::text from orders group by qty::text
select distinct qty::text from orders order by qty::varchar
select distinct on (qty::text) qty::text from orders order by qty::varchar
select array_agg(distinct substr(name, 1, 1) order by substring(name, 1, 1)) from customers
select 1 = any (array[])
select 'a' like all (array[])
select array[]
select unnest(array[])
select array[1] || array[]
select array_cat('{}'::int[], 1)
select array_cat(null::numeric, null::int[])
select array_remove(null::int[], '{}'::int[])
select array_position('{a,NULL}'::text[], '{a,NULL}'::text[])
select 1 is unknown
select id is not unknown from customers
select 'x' is unknown
select !! id = any('{1,2}'::int[]) from customers
