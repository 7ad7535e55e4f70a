"""Statements that compare columns whose text is not their value are refused, and no others. No engine runs."""

import pytest

from auditlake.errors import NotAnswerable
from auditlake.lsn import Lsn
from auditlake.query.compared_columns import Columns, ComparedColumn, PartialColumn, Shown, columns_shown_of
from auditlake.query.comparisons import check_comparisons
from auditlake.query.dialect import parse_query, spark_tokens
from auditlake.query.system_time import State
from auditlake.relation import TableName
from auditlake.values.types import BUILT_IN, column_type

_TYPES = {"id": "int4", "iv": "interval", "j": "jsonb", "n": "numeric", "u": "uuid", "ip": "inet", "c": "bpchar"}
_TYPES |= {"name": "text", "b": "bytea", "at": "time", "doc": "json", "x": "xml"}
_OTHERS = [
    ComparedColumn(TableName("public", "t"), name, type_oid, -1, recorded)
    for name, type_oid, recorded in (
        ("ints", BUILT_IN["int4"][1], None),
        ("ivs", BUILT_IN["interval"][1], None),
        ("mood", 99_999, ("mood",)),
        ("nd", 25, ("text", "25 -1", "collation ci")),
        ("old", 99_998, None),
    )
]
_TABLES = {
    "t": columns_shown_of(
        [
            *(ComparedColumn(TableName("public", "t"), name, BUILT_IN[kind][0], -1) for name, kind in _TYPES.items()),
            *_OTHERS,
        ]
    ),
    "s": columns_shown_of(
        ComparedColumn(TableName("public", "s"), name, type_oid, -1)
        for name, type_oid in (("id", 23), ("iv", 25), ("x", 25))
    ),
}


def _check(sql: str) -> Columns:
    return check_comparisons(parse_query(sql, spark_tokens(sql)), _TABLES).shown


@pytest.mark.parametrize(
    "sql",
    [
        "select * from t where id = 1 order by id",
        "select iv, j from t where iv is not null and (id = 1 or not id in (1, 2))",
        "select length(iv) as l, iv || 'x' as y from t where length(iv) > 3 and iv like '%day%'",
        "select distinct cast(iv as string) as iv from t order by iv",
        "select count(iv), sum(cast(n as decimal(38, 5))) from t where cast(iv as string) = '1 day'",
        "select s.iv from s join t on s.id = t.id where s.iv = 'a'",
        "select * from t join s using (id)",
        "select iv from t union all select x from s",
        "select id from t where get_json_object(j, '$.a') = '1.0'",
        "select u, count(*) from t where u = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11' group by u order by u",
        "select ip, count(*) from t where ip = '10.0.0.1' group by ip",
        "select name from t where name > 'a ' and c = 'a' order by name, c",
        "select id from t where exists(ints, x -> x > 5) and ints[0] > 5 and array_max(ints) > 3",
        "select v from t lateral view explode(ints) q as v where v = 1 order by v",
        "select mood, count(*) from t where mood = 'sad' group by mood",
        "select lag(iv) over (order by id) as before, first(j) from t group by id, iv is null",
        "select id from t where at = '09:30:00' and at < '10:00:00' and b > X'00' order by at, b",
        "select * except (iv) from s order by 2",
        "select upper(nd) as nd, length(old) as l from t where cast(nd as string) = 'a'",
    ],
)
def test_what_means_the_same_is_answered(sql: str) -> None:
    """Columns may be shown, cast, and passed to functions of text."""
    _check(sql)


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("select id from t where iv = '1 day'", "= would compare the text of public.t.iv \\(interval\\)"),
        ("select id from t where j <> '{}'", "<> would .* public.t.j \\(jsonb\\)"),
        ("select id from t where n > 5", "> would .* public.t.n \\(numeric\\)"),
        ("select n * 2 as m from t", "[*] would .* public.t.n"),
        ("select sum(n) from t", "sum\\(\\)"),
        ("select distinct doc from t", "DISTINCT .* \\(json\\)"),
        ("select count(distinct x) from t", "DISTINCT .* \\(xml\\)"),
        ("select max(ip) from t", "max\\(\\) .* public.t.ip \\(inet\\), which is in another order"),
        ("select mood from t order by mood", "ORDER BY .* \\(mood\\)"),
        ("select id, iv from t order by 2", "ORDER BY"),
        ("select id, iv from t group by 1, 2", "GROUP BY"),
        ("select iv, count(*) from t group by all", "GROUP BY ALL"),
        ("select cast(iv as string) as iv, count(*) from t group by iv", "GROUP BY"),
        ("select * from (select iv as a from t) q where q.a in ('x')", "IN would"),
        ("with q as (select coalesce(iv, '') as a from t) select * from q where a <=> 'x'", "<=>"),
        ("with recursive r as (select iv a from t union all select a from r) select * from r where a = ''", "= would"),
        ("select * from t join s using (iv)", "JOIN USING"),
        ("select * from t natural join s", "JOIN USING"),
        ("select id from t where exists (select 1 from s where s.x = t.iv)", "= would"),
        ("select id from t where 'x' in (select iv from t)", "IN would"),
        ("select iv from t union select x from s", "UNION"),
        ("select x from s intersect all select iv from t", "INTERSECT"),
        ("select a from (select x a from s union all select iv from t) where a > ''", "> would"),
        ("select case iv when 'a' then 1 end as a from t", "CASE"),
        ("select nullif(iv, 'x') as a from t", "nullif\\(\\)"),
        ("select rank() over (partition by iv order by id) as r from t", "PARTITION BY"),
        ("select rank() over (order by iv) as r from t", "ORDER BY"),
        ("select id from t where exists(ivs, x -> x = 'a')", "\\(interval\\)"),
        ("select v from t lateral view explode(ivs) q as v where v = '1'", "= would"),
        ("select max(ints) from t", "\\(integer\\[\\]\\)"),
        ("select a.iv from (select struct(iv) as a from t) where a.iv = 'x'", "= would"),
        ("select * from t pivot (sum(id) for mood in ('x'))", "PIVOT"),
        ("select * from t sort by j", "ORDER BY"),
        ("select id from t where nd = 'a'", "= .* public.t.nd \\(text\\), .* depending on collation ci"),
        ("select id from t where nd like 'a%'", "like\\(\\) .* public.t.nd"),
        ("select max(old) from t", "max\\(\\) .* \\(the type with OID 99998\\), .* not recorded"),
        ("select iv as z from t having z = 'a'", "= would"),
    ],
)
def test_a_comparison_of_texts_is_refused(sql: str, what: str) -> None:
    """With the clause, the column and its type."""
    with pytest.raises(NotAnswerable, match=what):
        _check(sql)


@pytest.mark.parametrize(
    ("sql", "remedy"),
    [
        ("select id from t where u = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "Write 'a0eebc99-9c0b-"),
        ("select id from t where c in ('b', 'a  ')", "Write 'a'."),
        ("select id from t where at >= '9:30'", "Write '09:30:00'."),
        ("select id from t where ip = '10.0.0.1/32'", "Write '10.0.0.1'."),
        ("select id from t where b = '\\\\x00'", "Write X'0a'"),
        ("select id from t where 'x' = u", "Write a UUID"),
        ("select id, ip from t union (select 1 as id, '10.0.0.1/32' as a)", "Write '10.0.0.1'."),
        ("select '9:30' except select at from t", "Write '09:30:00'."),
    ],
)
def test_a_text_in_another_form_than_printed_is_refused(sql: str, remedy: str) -> None:
    """PostgreSQL reads it as a value, which has another text."""
    with pytest.raises(NotAnswerable) as refused:
        _check(sql)
    assert remedy in str(refused.value.hint)


def test_the_columns_of_a_query_keep_their_marks() -> None:
    """So that a view of them is checked too."""
    shown = _check("select iv as a, id, cast(iv as string) as text from t")
    assert [(each.name, [mark.name for mark in each.marks]) for each in shown] == [
        ("a", ["iv"]),
        ("id", []),
        ("text", []),
    ]
    sql = "select a from late where a = 'x'"
    with pytest.raises(NotAnswerable):
        check_comparisons(parse_query(sql, spark_tokens(sql)), {"late": [Shown("a", shown[0].marks)]})


_ROWS = TableName("public", "p"), State(Lsn(9))
_MISFITS = columns_shown_of(
    ComparedColumn(TableName("public", "p"), name, *kind, None, PartialColumn(*_ROWS, name, column_type(*kind)))
    for name, kind in {
        "price": (BUILT_IN["numeric"][0], ((6 << 16) | 2) + 4),
        "until": (BUILT_IN["date"][0], -1),
        "ints": (BUILT_IN["int4"][1], -1),
    }.items()
)


@pytest.mark.parametrize(
    ("sql", "computed"),
    [
        ("select price, until as u, ints from p", set()),
        ("select * from (select * from p union all select * from p) q limit 5", set()),
        ("select exact_text(price) as t from p where exact_text(until) = 'infinity'", set()),
        ("select cast(until as date) as d from p where cast(price as decimal(6,2)) > 5", set()),
        ("select price from p where price > 5", {"price"}),
        ("select price from p where until = '2026-1-9'", {"until"}),
        ("select price from p where until between date '2026-01-01' and current_date()", {"until"}),
        ("select price from p where price is null", {"price"}),
        ("select count(price), max(until) from p", {"price", "until"}),
        ("select cast(price as string) from p", {"price"}),
        ("select u from (select until as u from p) order by u", {"until"}),
        ("select u from (select until as u, price from p) group by u", {"until"}),
        ("select coalesce(price, 0), case when true then until end from p", {"price", "until"}),
        ("select distinct until from p", {"until"}),
        ("select p.price + q.price from p join p q using (until)", {"price", "until"}),
        ("select x from p lateral view explode(ints) v as x", {"ints"}),
        ("select lag(price) over (partition by until order by 1) from p", {"price", "until"}),
    ],
)
def test_a_column_is_computed_with(sql: str, computed: set[str]) -> None:
    """Whatever reads a NULL that stands for a value; only showing it, and a cast to its type, do not."""
    found = check_comparisons(parse_query(sql, spark_tokens(sql)), {"p": _MISFITS})
    assert {each.name for each in found.computed} == computed
