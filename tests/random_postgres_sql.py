"""Random statements in PostgreSQL's dialect over the tables of `tests.postgres_dialect`; many fail, as they should.

A statement is a query over customers `c` and orders `o`, joined or computed in one of many ways, and perhaps a part of
another query. Some have what PostgreSQL refuses: a name that is not in sight, an aggregate where none may be.
"""

# ruff: noqa: E501 - one form after the other

import random

_LEAVES = {
    "int": ["c.id", "o.customer_id", "o.qty", "o.id", "3", "0", "-7", "2147483647", "null::int", "length(c.name)"],
    "num": ["o.price", "o.rate", "o.total", "1.5", "0.00", "-2.250", "100::numeric", "o.note::numeric", "3.0"],
    "text": ["c.name", "c.email", "o.status", "o.note", "'x'", "''", "' a '", "null::text", "c.code::text", "'50%'"],
    "bool": ["c.vip", "true", "false", "null::bool"],
    "date": ["c.born", "date '2024-02-29'", "o.placed::date", "'2026-01-31'::date"],
    "ts": ["o.shipped", "o.placed::timestamp", "timestamp '2026-03-31 12:00'", "c.born::timestamp"],
    "tz": ["o.placed", "timestamptz '2026-02-28 23:59:59+01'"],
    "float": ["o.weight", "2.5::float8", "o.qty::float8", "-0.1::float8"],
    "span": ["interval '1 month'", "interval '-3 days 02:00'", "interval '1 year 2 mons'", "interval '90 minutes'"],
    "json": ["c.settings", "c.settings -> 'n'", "c.settings -> 0", "c.settings -> 'n' -> 'x'"],
    "char": ["c.code", "'ab'::char(4)", "''::char(5)"],
    "ints": ["array[1, o.qty]", "'{{3,null,-2}}'::int[]", "'{{}}'::int[]", "null::int[]"],
    "texts": ["c.tags", "array['a', c.name]", "'{{x y,NULL}}'::text[]"],
    "bytes": ["'\\x61ff'::bytea", "''::bytea", "null::bytea"],
    "uuid": ["c.ref", "'00000000-0000-0000-0000-000000000003'::uuid"],
}
_FORMS = {
    "int": ["({int} + {int})", "({int} - {int})", "({int} * {int})", "({int} / {int})", "({int} % {int})", "(- {int})",
            "abs({int})", "{num}::int", "{float}::int", "{text}::int", "({date} - {date})", "length({text})",
            "strpos({text}, {text})", "coalesce({int}, {int})", "nullif({int}, {int})", "greatest({int}, {int})",
            "case when {bool} then {int} else {int} end", "({json} ->> 'seats')::int", "{bool}::int", "{int}::bigint",
            "{int}::smallint", "octet_length({text})", "ascii({text})", "bit_length({text})", "({int} & {int})",
            "({int} | {int})", "({int} # {int})", "(~ {int})", "cardinality({ints})", "array_length({texts}, 1)", "length({char})",
            "array_position({ints}, {int})", "({ints})[2]", "length({bytes})", "width_bucket({num}, 0, 10, 4)", "mod({int}, {int})",
            "(select count(*) from orders i where i.id < {int} % 9)", "(select max(i.qty) from orders i where i.customer_id = c.id)",
            "extract(century from {date})::int",
            "char_length({char})", "round({num})::int", "date_part('day', {ts})::int", "({int} % -1)", "{text}::smallint",
            "extract(isodow from {tz})::int", "(select count(distinct i.status) from orders i where i.qty < {int})", "jsonb_array_length({json})",
            "({json} -> 0)::int", "nullif({int}, {num})", "sign({int})::int", "coalesce(null, '7', {int})", "array_position(array[{int}, {int}], {num})"],
    "num": ["({num} + {num})", "({num} - {num})", "({num} * {num})", "({num} / {num})", "({num} % {num})", "(- {num})",
            "({num} + {int})", "({int} / {num})", "round({num})", "round({num}, 2)", "round({num}, 0)", "trunc({num}, 1)",
            "ceil({num})", "floor({num})", "abs({num})", "{int}::numeric", "{num}::numeric(12,3)", "{text}::numeric",
            "coalesce({num}, {int})", "coalesce({num}, '0.10')", "case when {bool} then {num} else '7.0' end",
            "case when {bool} then {num} else {num} end", "extract(epoch from {ts})",
            "extract(second from {tz})", "extract(dow from {date})", "{float}::numeric", "nullif({num}, {num})", "div({num}, {int})", "trim_scale({num})", "sign({num})", "greatest({num}, {num})", "least({int}, {num})",
            "extract(milliseconds from {ts})", "(select sum(i.price) from orders i where i.id < {int} % 9)",
            "round({num}, {int} % 5)", "trunc({num}, {int} % 5)", "round({int}, {int} % 3)", "{num}::numeric(6,1)", "sqrt(abs({num}))", "({json} ->> 'seats')::numeric",
            "extract(epoch from {span})", "extract(epoch from {date})", "mod({num}, {num})", "nullif({num}, '1.50')", "case {num} when {int} then {num} end", "({int} * {num})",
            "least({num}, {num}, '2')"],
    "text": ["({text} || {text})", "({text} || {int})", "upper({text})", "lower({text})", "left({text}, {int})",
             "right({text}, 2)", "substring({text}, {int}, 3)", "substring({text} from {int})", "replace({text}, {text}, 'z')",
             "trim({text})", "split_part({text}, '@', 1)", "{int}::text", "{num}::text", "{bool}::text", "{date}::text",
             "{ts}::text", "{tz}::text", "{float}::text", "coalesce({text}, {text})", "nullif({text}, '')", "{text}::varchar(3)",
             "concat({text}, {int}, {num})", "({json} ->> 'plan')", "({json} ->> 1)", "reverse({text})", "{span}::text",
             "case {int} when {int} then {text} else {text} end", "least({text}, {text})", "jsonb_typeof({json})",
             "to_char({num}, 'FM99990.00')", "to_char({ts}, 'YYYY-MM-DD HH24:MI:SS.US')", "to_char({date}, 'FMDay DD Mon')", "translate({text}, 'abx', '1')",
             "overlay({text} placing {text} from 2)", "chr(97 + abs({int} % 9))", "encode({bytes}, 'hex')", "md5({bytes})", "to_hex({int})",
             "({char} || {text})", "({texts})[1]", "array_to_string({texts}, '-')", "{uuid}::text",
             "({json}::json ->> 'plan')", "({json}::json #>> '{{n,x,1}}')", "({json}::json -> 'n')::text", "({json}::json ->> {int})", "right({text}, {int})",
             "substring({text} from '[a-z]+')", "{ints}::text", "{texts}::text", "({texts})[{int}]",
             "concat({bool}, {texts})",
             "regexp_replace({text}, '[0-9a-m]', '<\\&>', 'g')", "regexp_replace({text}, ' *([a-z])', '\\1')", "(regexp_match({text}, '(.)@'))[1]", "concat_ws('-', {text}, {date})", "(select min(i.status) from orders i where i.qty = {int})",
            "pg_typeof({int} + {num})::text", "pg_typeof(coalesce({text}, {text}))::text", "pg_typeof({num})::text", "pg_typeof({ts} - {ts})::text", "pg_typeof(nullif({text}, {text}))::text",
             "pg_typeof(case when {bool} then {int} else {num} end)::text", "pg_typeof(array[{text}, {text}])::text", "lpad({text}, {int} % 9, 'ab')", "rpad({text}, 4, {text})", "repeat({text}, {int} % 4)",
             "{text}::char(4)::text", "initcap({text})", "format('%s|%L|%I', {text}, {num}, coalesce({text}, ''))", "({text} || {char})", "concat_ws({text}, {num}, {char}, {bool})", "{bytes}::text", "({json} #>> '{{n,x,1}}')", "ltrim({text}, 'ax ')", "greatest({text}, {text}, 'b')",
             "encode({bytes}, 'escape')", "encode({bytes}, 'base64')", "to_char({tz}, 'FMHH12:MI AM')", "to_char({num}, '9,990.0')", "{json}::text", "nullif({char}, {char})::text", '({text} collate "C")'],
    "bool": ["({int} = {int})", "({int} < {num})", "({num} >= {num})", "({text} = {text})", "({text} < {text})",
             "({text} like '%a%')", "({text} ilike 'A_%')", "({bool} and {bool})", "({bool} or {bool})", "(not {bool})",
             "({int} is null)", "({bool} is not true)", "({date} < {ts})", "({tz} >= {tz})", "({float} > {num})",
             "({int} in (1, {int}, null))", "({text} not in ({text}, 'x'))", "({num} between {num} and {int})",
             "({num} is distinct from {num})", "({int} = any(array[1, {int}]))", "({json} @> '{{\"plan\": \"pro\"}}')",
             "(({json}::json -> {text}) is null)", "({json} ? 'plan')", "({text} ~ '^[a-zA-Z]+$')", "({text} = any(c.tags))", "({date} = {date})", "({span} < {span})",
             "exists(select 1 from orders i where i.customer_id = c.id and i.qty > {int})",
             "({int} in (select i.qty from orders i))", "(c.code = {text})", "(c.code = 'ab')",
             "({char} < {char})", "({uuid} = {uuid})", "({bytes} = {bytes})", "({int} = any({ints}))", "({int}::bigint = any({ints}))",
             "({int} not between {int} and {num})", "(({int}, {text}) = ({int}, {text}))", "(({int}, {date}) < ({int}, {date}))",
             "(({int}, {text}) in (select i.qty, i.status from orders i))", "({text} in (select i.status from orders i where i.id = {int}))",
             "starts_with({text}, {text})", "({json} is null)", "({int} > any({ints}))", "({num} <> all({ints}))",
             "({text} < any({texts}))", "({ints} = {ints})", "({texts} < {texts})", "({ints} @> {ints})", "({texts} && {texts})",
             "({int} between symmetric {int} and {int})", "({int} > all (select i.qty from orders i where i.id < {int} % 9))",
             "({int} >= any (select i.qty from orders i))",
            "{text}::bool", "({text} like {text})", "({text} like {text} escape '!')", "({text} not like '%\\_%')", "({char} like '_b%')", "({tz}::date = {date})", "({json} <@ {json})", "({json} = {json})",
             "({json} ?| array['plan', 'a'])", "({num} = {float})", "({int} = {float})", "({ts} < {tz})", "({text} !~ '[0-9]+$')", "({text} ~* '^[a-m].')", "({int} in ({num}, 2.0, {int}))", "({text} between {text} and {text})",
             "({date} between {ts} and {tz})", "({bool} = {bool})", "({bool} is distinct from {bool})", "({span} = {span})", "({uuid} < {uuid})", "(({int}, {text}) <> ({int}, {text}))",
             "(({date}, {num}) >= ({ts}, {int}))", "exists(select from orders i where i.qty = {int} having count(*) > {int} % 3)", "({text} not in (select i.note from orders i where i.qty = {int}))",
             "({float} between {float} and {num})", "({json} -> 'on')::bool", "({text} like any (array['%a%', {text}]))", "({bool} is unknown)", "({num} <> any (array[{num}, {int}]))", "({int} in ({int}, 2.5::float8, 16777217))", "({float} in (0.1, 3::real, {num}))",
             "({int} = any(array[{int}, {float}]))", "({char} in ({text}, 'ab'))", "exists(select 1 from doubles i where i.f < o.weight and i.id > {int})", "exists(select 1 from spans i where i.span >= {span})"],
    "date": ["({date} + {int} % 1000)", "({date} - 3)", "{ts}::date", "coalesce({date}, {date})", "date_trunc('month', {ts})::date", "make_date(2024, 2, 28 + abs({int} % 2))",
            "({tz} at time zone 'America/New_York')::date", "({date} - {int} % 500)", "greatest({date}, {date})", "nullif({date}, {ts})", "(select min(i.placed)::date from orders i where i.qty = {int})",
             "to_timestamp({int})::date", "case when {bool} then {date} else '2024-02-29' end"],
    "ts": ["({ts} + {span})", "({ts} - {span})", "({date} + {span})", "date_trunc('week', {ts})", "date_trunc('quarter', {ts})",
           "{tz}::timestamp", "{date}::timestamp", "({tz} at time zone 'UTC')", "({tz} at time zone 'Europe/Paris')",
           "date_bin('15 minutes', {ts}, {ts})",
            "({ts} + {span} * ({int} % 40))", "least({ts}, {date})", "(select max(i.shipped) from orders i where i.qty = {int})", "({span} + {date})", "({ts} - {span} - {span})", "date_trunc('decade', {ts})",
           "date_bin('7 days', {ts}, {date})", "({tz} at time zone 'Australia/Lord_Howe')"],
    "tz": ["({tz} + {span})", "({tz} - {span})", "date_trunc('hour', {tz})", "date_trunc('day', {date})", "{ts}::timestamptz",
            "({ts} at time zone 'UTC')", "to_timestamp({int} * 86400.5)", "({ts} at time zone 'Europe/Paris')", "coalesce({tz}, {date})", "greatest({tz}, {ts})", "date_trunc('week', {tz})", "date_bin('90 minutes', {tz}, {tz})"],
    "float": ["({float} + {float})", "({float} * {int})", "({float} / {float})", "{num}::float8", "(- {float})", "sqrt({float})",
              "round({float})", "floor({float})", "abs({float})", "{int}::float8", "power({float}, 2)", "cbrt({float})", "atan({float})", "degrees({float})",
            "({float} - {float})", "{num}::float4::float8", "({int} / {float})", "date_part('epoch', {tz})", "date_part('second', {ts})", "date_part('epoch', {span})", "power({float}, {int} % 5)", "exp({float} / 100)",
              "ln(abs({float}) + 1)", "trunc({float})", "sign({float})", "({float} ^ -1)", "radians({float})", "sin({float})", "coalesce({float}, {num})", "{text}::float8", "nullif({float}, {num})", "({int} ^ 2)", "({float} - {num})",
              "greatest({float}, {int})", "(select max(i.weight) from orders i where i.qty = {int})", "(select i.f from doubles i where i.id = {int} % 13)"],
    "span": ["({span} + {span})", "({span} * 3)", "({ts} - {ts})", "({tz} - {tz})", "(- {span})", "age({ts}, {ts})", "age({date}, {date})",
            "({span} - {span})", "({date}::timestamp - {ts})", "coalesce({span}, '1 day')", "({int} * {span})", "({span} * {num})", "({span} / {float})", "case when {bool} then {span} else {span} end",
            "(select i.span from spans i where i.id = {int} % 10)"],
    "json": ["({json} -> 'n')", "({json} -> 1)", "({json} || {json})", "({json} - {text})", "({json} - 0)", "({json} #- '{{n,x}}')",
             "to_jsonb({text}::text)", "jsonb_build_object('k', {num}, {text}, {json})", "jsonb_build_array({ts}, {bool}, {json})",
             "jsonb_strip_nulls({json})",
            "to_jsonb({int})", "to_jsonb({date})", "({json} #> '{{n,x}}')", "coalesce({json}, '[]')", "({json} -> {text})", "jsonb_build_object({text} || 'k', {int})", "{text}::jsonb"],
    "char": ["{text}::char(3)",
            "coalesce({char}, {char})", "case when {bool} then {char} else {char} end", "'a  '::char(3)"],
    "ints": ["array[{int}, {int}]", "({ints} || {int})", "coalesce({ints}, {ints})", "array_append({ints}, {int})", "array_remove({ints}, {int})",
             "({ints})[2:3]", "array(select i.qty::int from orders i where i.customer_id = c.id order by i.id)", "{texts}::int[]",
            "array_cat({ints}, {ints})", "array[(select i.qty::int from orders i where i.id = {int} % 60), {int}]", "string_to_array({text}, ',')::int[]", "array_prepend({int}, {ints})", "({ints} || {ints})"],
    "texts": ["string_to_array({text}, {text})", "({texts} || {text})", "array[{text}, {text}]", "{ints}::text[]",
              "array_prepend({text}, {texts})", "({texts})[:1]", "array(select i.status from orders i order by i.id limit 2)",
            "array_remove({texts}, {text})", "array_cat({texts}, {texts})", "coalesce({texts}, {texts})", "regexp_match({text}, '[a-z]+')"],
    "bytes": ["decode({text}, 'base64')", "convert_to({text}, 'UTF8')", "sha256({bytes})",
            "({bytes} || {bytes})", "decode({text}, 'escape')", "coalesce({bytes}, {bytes})", "{text}::bytea"],
    "uuid": ["coalesce({uuid}, {uuid})"],
}  # fmt: skip
_AGGREGATES = (
    *(
        "count(*)",
        "count({text})",
        "sum({int})",
        "sum({num})",
        "avg({num})",
        "avg({int})",
        "trim_scale(min({num}))",
        "max({text})",
    ),
    *("count(distinct {int})", "bool_and({bool})", "sum({num}) filter (where {bool})", "max({tz})", "min({float}) + 0"),
    "string_agg({text}, ',' order by o.id, c.id)",
    *(
        "array_agg({int} order by o.id, c.id)",
        "string_agg(distinct {text}, '-')",
        "any_value(o.id * 0)",
        "stddev({int})",
    ),
    *("percentile_disc(0.5) within group (order by {int})", "sum(sum({int})) over ()", "array_agg('x')"),
    *("percentile_cont(0.3) within group (order by {num})", "bool_or({bool})", "stddev_pop({num})", "variance({int})"),
    *(
        "array_agg(distinct {int})",
        "string_agg({text}, '; ' order by {int} desc nulls first, o.id, c.id)",
        "min({date})",
    ),
    *(
        "count(distinct {text})",
        "max({char})",
        "sum({int} * {num}) filter (where {bool})",
        "min({text})",
        "max({float}) + 0",
    ),
    *(
        "pg_typeof(max({text}))",
        "coalesce(sum({num}), 0)",
        "sum({span})",
        "avg({ts} - {ts})",
        "jsonb_agg({num} order by o.id, c.id)",
        "jsonb_object_agg({text}, {num} order by o.id, c.id) filter (where {bool})",
        "json_object_agg(c.id, {text} order by o.id, c.id)",
        "array_agg({text} order by o.id, c.id) filter (where {bool})",
    ),
)
_WINDOWS = (
    *("sum({int}) over (partition by {text} order by o.id, c.id)", "row_number() over (order by {num}, o.id, c.id)"),
    *(
        "lag({text}) over (order by o.id, c.id)",
        "rank() over (partition by {bool} order by {date}, {int})",
        "lag({num}, 1, 0) over (order by o.id, c.id)",
        "lead({num}, 1, '1.50') over (order by o.id, c.id)",
        "avg({num}) over ()",
        "first_value({text}) over (partition by {bool} order by o.id, c.id)",
        "last_value({num}) over (order by o.id, c.id rows between 1 preceding and 1 following)",
        "nth_value({int}, 2) over (partition by {int} order by o.id, c.id)",
        "ntile(3) over (order by o.id, c.id)",
        "dense_rank() over (order by {text} desc nulls last)",
        "count({text}) filter (where {bool}) over (partition by {int} order by o.id, c.id)",
        "sum({num}) over (order by o.id, c.id rows between 2 preceding and current row)",
        "max({date}) over (order by {int} range between 1 preceding and 2 following)",
        "sum({int}) over (order by {date} groups between 1 preceding and current row exclude ties)",
        "count(*) over (order by {ts} range between interval '40 days' preceding and current row)",
        "lead({date}, 1, {ts}) over (order by o.id, c.id)",
        "bool_and({bool}) over (partition by {char})",
        "string_agg({text}, ',') over ()",
        "min({float}) over (order by o.id, c.id rows 2 preceding)",
        "percent_rank() over (order by {float})",
        "cume_dist() over (partition by {bool} order by {num} desc)",
        "first_value({span}) over (order by o.id, c.id rows between 2 preceding and current row exclude current row)",
        "sum({int}) over (partition by {char} order by {span} groups 1 preceding)",
        "lag({char}) over (order by o.id, c.id)",
    ),
)
_FROM = (
    "from customers c join orders o on o.customer_id = c.id",
    "from customers c left join orders o on o.customer_id = c.id and o.qty > 2",
    "from orders o left join customers c on c.id = o.customer_id",
    "from customers c full join orders o on o.customer_id = c.id",
    "from customers c right join orders o on o.customer_id = c.id and {bool}",
    "from boxes b, customers c join orders o on o.customer_id = c.id and c.id < 9",
    "from boxes b, customers c left join orders o on o.id = b.id",
    "from customers c, lateral (select * from orders i where i.customer_id = c.id and i.qty < 6) o",
    "from customers c left join lateral (select * from orders i where i.id = c.id % 9 order by i.id limit 1) o on true",
    "from customers c, lateral (with recursive t(n) as (select 1 union all select n + 1 from t where n < c.id % 4) select o.* from orders o join t on n = o.id) o",
    "from customers c join (select * from orders where qty > 0 union all select * from orders where qty is null) o on o.id = c.id",
    "from (select * from customers where id in (select customer_id from orders)) c join orders o on o.customer_id = c.id",
    "from customers c join orders o using (id)",
    "from customers c full join orders o using (id)",
    "from customers c full join orders o on o.customer_id = c.id and {bool}",
    "from customers c right join orders o using (id)",
    "from (select *, id::numeric(6,2) as qty from customers) c join orders o using (qty)",
    "from customers c natural left join orders o",
    "from parcels p join customers c on c.id = p.id and p.stage <> 'new' left join orders o on o.id = p.id",
    "from customers c cross join lateral (select o.*, row_number() over (order by o.id) as n from orders o where o.customer_id = c.id) o",
    "from (customers c join orders o on o.customer_id = c.id and {bool})",
    "from customers c left join orders o on o.customer_id = c.id left join lateral unnest({texts}) with ordinality t(x, n) on n < 3",
    "from customers c join orders o on o.customer_id = c.id, jsonb_each(case when jsonb_typeof(c.settings) = 'object' then c.settings else '{{}}' end) j",
    "from customers c, orders o, generate_series(1, 2) g where o.customer_id = c.id and g = o.id and true",
)
_PAIRS = (
    *((kind, kind) for kind in ("int", "text", "bool", "date", "ts", "tz", "uuid", "ints", "texts")),
    *(
        ("int", "num"),
        ("num", "int"),
        ("num", "num"),
        ("float", "num"),
        ("date", "ts"),
        ("tz", "date"),
        ("text", "char"),
    ),
)
"""Types of the sides of a set operation."""
_AROUND = (
    *("{}", "{}", "{}", "select * from ({}) s", "with s as ({}) select * from s", "select exists ({})"),
    *("with s as materialized ({}) select count(*) from s a, s b", "select (select count(*) from ({}) s)"),
    *("select d.id, s.* from boxes d left join lateral ({} limit 0) s on d.id < 3", "({}) union all ({})"),
)


class Draw:
    """Statements of one seed."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def of(self, kind: str, depth: int) -> str:
        """Draw an expression."""
        forms = _LEAVES[kind] if depth == 0 or self._draw.random() < 0.2 else _FORMS[kind]
        return self._filled(self._draw.choice(forms), depth - 1)

    def _filled(self, form: str, depth: int) -> str:
        given = form.replace("{{", "\0").replace("}}", "\1")
        while "{" in given:
            start = given.index("{")
            end = given.index("}", start)
            given = (
                given[:start]
                + self.of(given[start + 1 : end], max(depth, 0)).replace("{", "\0").replace("}", "\1")
                + given[end + 1 :]
            )
        return given.replace("\0", "{").replace("\1", "}")

    def statement(self) -> str:
        """Draw a statement."""
        around, query = self._draw.choice(_AROUND), self._query()
        return around.replace("{}", query) if around == "{}" or " order by " not in query else query

    def _query(self) -> str:  # noqa: PLR0911 - one return for each form
        source = self._filled(self._draw.choice(_FROM), 1)
        if source.endswith("and true"):
            return f"select {self.of(self._draw.choice(list(_FORMS)), 2)} {source}"
        where = f" where {self.of('bool', 2)}" if self._draw.random() < 0.5 else ""
        form = self._draw.randrange(7)
        kinds = list(_FORMS)
        if form == 0:
            key = f"({self.of(self._draw.choice(['text', 'bool', 'int', 'date']), 1)})"
            total = self._filled(self._draw.choice(_AGGREGATES), 1)
            having = f" having {self._filled('count(*) > 1', 0)}" if self._draw.random() < 0.3 else ""
            sets = self._draw.choice(
                [
                    "{}",
                    "1",
                    "1, 2",
                    "k",
                    "rollup({})",
                    "rollup(1)",
                    "cube({}, c.vip)",
                    "grouping sets (({}), (c.vip), ())",
                ]
            )
            return f"select {key} as k, {total} as t {source}{where} group by {sets.format(key)}{having}"
        if form == 1:
            return f"select {self._filled(self._draw.choice(_WINDOWS), 1)} {source}{where}"
        if form == 2:
            one, two = self._draw.choice(_PAIRS)
            word = self._draw.choice(["union", "union all", "intersect", "except"])
            other = self._filled(self._draw.choice(_FROM), 1)
            return f"select {self.of(one, 1)} {source}{where} {word} select {self.of(two, 1)} {other}"
        if form == 3:
            kind = self._draw.choice(["int", "text", "num", "tz", "float", "span"])
            way = self._draw.choice(["", " desc", " nulls first", " desc nulls last"])
            return f"select {self.of(kind, 1)} as k {source}{where} order by 1{way}, {self.of('int', 1)} + c.id, c.id, o.id limit 9"
        if form == 4:
            windows = self._filled("a as (partition by {text}), b as (a order by {num}, o.id, c.id)", 1)
            return f"select {self._filled('sum({int}) over b, rank() over (b), count(*) over a', 1)} {source}{where} window {windows}"
        return f"select {', '.join(self.of(self._draw.choice(kinds), 2) for _ in range(2))} {source}{where}"
