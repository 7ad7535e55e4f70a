"""Rewriting replaces names of tables by views, and changes nothing else."""

import contextlib
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlake.errors import BadUsage
from auditlake.lsn import Lsn
from auditlake.query.lexical import canonical_sql
from auditlake.query.rewrite import NamedTables, Rewritten, rewrite
from auditlake.query.system_time import Period, PeriodForm, Reading
from auditlake.relation import TableName
from auditlake.temporal.when import AtLsn, AtTime, AtXid
from tests.attacks import ATTACKS, READ_DIFFERENTLY

ORDERS = TableName("public", "orders")
CUSTOMERS = TableName("public", "customers")
NAMES = NamedTables(
    tables=(
        ORDERS,
        CUSTOMERS,
        TableName("audit", "orders"),
        TableName("audit", "Log"),
        TableName("a", "twice"),
        TableName("b", "twice"),
        TableName("public", "Odd`Name.x"),
        TableName("public", "Case"),
        TableName("public", "case"),
    ),
    now=datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC),
    prefix="v",
)
NOON_US = 1_795_262_400_000_000


def rewritten(sql: str) -> Rewritten:
    """Rewrite with NAMES."""
    return rewrite(sql, NAMES)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select * from public.orders", "select * from v0 as `orders`"),
        ("select * from orders", "select * from v0 as `orders`"),
        ("select * from orders o", "select * from v0 o"),
        ("select * from orders as o where o.id = 1", "select * from v0 as o where o.id = 1"),
        ("SELECT *\r\nFROM\tpublic . orders\n;", "SELECT *\r\nFROM\tv0 as `orders`\n;"),
        ("select * from `public`.`orders` as `o`", "select * from v0 as `o`"),
        ("select * from `Odd``Name.x`", "select * from v0 as `Odd``Name.x`"),
        ("select * from PUBLIC.Orders", "select * from v0 as `Orders`"),
        ("from orders select id", "from v0 as `orders` select id"),
        ("select * from orders tablesample (5 rows)", "select * from v0 tablesample (5 rows) as `orders`"),
        ("select * from orders tablesample (5 rows) s", "select * from v0 tablesample (5 rows) s"),
        ("select * from (orders)", "select * from (v0 as `orders`)"),
        ("select /*+ broadcast(x) */ 1 from orders", "select                     1 from v0 as `orders`"),
        (
            "select * from orders pivot (max(a) for b in (1))",
            "select * from v0 as `orders` pivot (max(a) for b in (1))",
        ),
        (
            "select * from orders lateral view explode(a) x as y",
            "select * from v0 as `orders` lateral view explode(a) x as y",
        ),
        ("values (1), (2)", "values (1), (2)"),
        ("select * from range(3) orders", "select * from range(3) orders"),
        ("explain select * from orders", "explain select * from v0 as `orders`"),
        ("/* x */ Explain Formatted\nselect * from orders", "        Explain Formatted\nselect * from v0 as `orders`"),
        ("describe public.orders", "describe v0"),
        ("desc table extended orders;", "desc table extended v0;"),
        ("describe query select * from orders", "describe query select * from v0 as `orders`"),
        ("describe select * from orders", "describe select * from v0 as `orders`"),
    ],
)
def test_a_table_becomes_a_view_with_its_name(sql: str, expected: str) -> None:
    """A table in every position and notation."""
    assert rewritten(sql).sql == expected


def test_strings_are_unchanged_and_comments_are_blank() -> None:
    """Only names of tables are replaced; wide characters do not shift the offsets."""
    sql = "select 'public.orders', `𝄞`.id -- orders\nfrom /* orders */ public.orders `𝄞` where x <> \"orders\""
    blank = "         "
    expected = f"select 'public.orders', `𝄞`.id {blank}\nfrom {blank}    v0 `𝄞` where x <> \"orders\""
    assert rewritten(sql).sql == expected


def test_every_reference_of_one_reading_is_one_view() -> None:
    """A table named twice is one view; at two moments it is two."""
    one = rewritten("select * from orders a join public.orders b on a.id = b.id")
    assert one.sql == "select * from v0 a join v0 b on a.id = b.id"
    assert one.views == {"v0": Reading(ORDERS, None)}
    two = rewritten("select * from orders a join orders for system_time as of '0/10' b on a.id = b.id")
    assert two.sql == "select * from v0 a join v1  b on a.id = b.id"
    assert two.views == {
        "v0": Reading(ORDERS, None),
        "v1": Reading(ORDERS, Period(PeriodForm.AS_OF, (AtLsn(Lsn(0x10)),))),
    }


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "with orders as (select * from orders) select * from orders",
            "with orders as (select * from v0 as `orders`) select * from orders",
        ),
        (
            "with x as (select * from orders), orders as (select * from x) select * from ORDERS",
            "with x as (select * from v0 as `orders`), orders as (select * from x) select * from ORDERS",
        ),
        (
            "with orders as (select 1 as id) select * from orders where id in (select id from orders)",
            "with orders as (select 1 as id) select * from orders where id in (select id from orders)",
        ),
        (
            "with orders as (select 1 as id) select * from public.orders join orders using (id)",
            "with orders as (select 1 as id) select * from v0 as `orders` join orders using (id)",
        ),
        (
            "with recursive orders as (select 1 as n union all select n + 1 from orders) select * from orders",
            "with recursive orders as (select 1 as n union all select n + 1 from orders) select * from orders",
        ),
        (
            "select * from (with orders as (select 1) select * from orders) x, orders",
            "select * from (with orders as (select 1) select * from orders) x, v0 as `orders`",
        ),
        (
            "with a as (select 1), b as (with orders as (select 2) select * from orders) select * from orders",
            "with a as (select 1), b as (with orders as (select 2) select * from orders) select * from v0 as `orders`",
        ),
    ],
)
def test_common_table_expressions_hide_tables_in_their_scope(sql: str, expected: str) -> None:
    """Spark's scopes: a name in WITH is visible after its definition, and everywhere in its query."""
    assert rewritten(sql).sql == expected


def test_tables_in_subqueries_are_rewritten() -> None:
    """In every clause and in set operations."""
    sql = (
        "select (select count(*) from customers), x.* from (select * from orders) x "
        "where exists (select 1 from audit.log where log.id = x.id) union all (select * from audit.orders) order by 1"
    )
    views = rewritten(sql).views
    assert {reading.table for reading in views.values()} == {
        CUSTOMERS,
        ORDERS,
        TableName("audit", "Log"),
        TableName("audit", "orders"),
    }
    assert rewritten(sql).sql.endswith("as `orders`) order by 1")


def test_a_column_qualified_with_a_schema_loses_it() -> None:
    """`public.orders.id` is valid if the table has no alias."""
    assert (
        rewritten("select public.orders.id, public.orders.*, orders.id from public.orders").sql
        == "select orders.id, orders.*, orders.id from v0 as `orders`"
    )
    assert rewritten("select a.b.c from orders o").sql == "select a.b.c from v0 o"
    assert (
        rewritten("select auditlake.relations.columns.name from auditlake.relations").sql
        == "select relations.columns.name from v0 as `relations`"
    )


@pytest.mark.parametrize(
    ("clause", "period"),
    [
        ("for system_time as of '-2h'", Period(PeriodForm.AS_OF, (AtTime(NOON_US - 7_200_000_000),))),
        ("FOR SYSTEM_TIME AS OF TIMESTAMP '2026-11-21 12:00:00'", Period(PeriodForm.AS_OF, (AtTime(NOON_US),))),
        ("for /* x */ system_time -- y\nas of 'xid:7'", Period(PeriodForm.AS_OF, (AtXid(7),))),
        ("for system_time from '0/1' to '0/2'", Period(PeriodForm.FROM_TO, (AtLsn(Lsn(1)), AtLsn(Lsn(2))))),
        (
            "for system_time between '0/1' and '2026-11-21T12:00'",
            Period(PeriodForm.BETWEEN, (AtLsn(Lsn(1)), AtTime(NOON_US))),
        ),
        (
            "for system_time contained in ('0/1', '0/2')",
            Period(PeriodForm.CONTAINED_IN, (AtLsn(Lsn(1)), AtLsn(Lsn(2)))),
        ),
        ("for system_time all", Period(PeriodForm.ALL, ())),
    ],
)
def test_every_form_of_a_period_is_parsed(clause: str, period: object) -> None:
    """Every SQL:2011 form, without an alias, before it and after it, before other clauses."""
    bare = rewritten(f"select * from orders {clause} where id = 1")
    assert bare.sql == "select * from v0  as `orders` where id = 1"
    assert bare.views == {"v0": Reading(ORDERS, period)}  # type: ignore[arg-type]
    aliased = rewritten(f"select * from public.orders {clause} as o join customers c on o.id = c.id")
    assert aliased.sql == "select * from v0  as o join v1 c on o.id = c.id"
    after = rewritten(f"select * from public.orders as o {clause} join customers c {clause} on o.id = c.id")
    assert after.sql == "select * from v0 as o  join v1 c  on o.id = c.id"
    assert list(after.views.values()) == [Reading(ORDERS, period), Reading(CUSTOMERS, period)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sql", "table"),
    [
        ("select * from twice", None),
        ("select * from a.twice", TableName("a", "twice")),
        ("select * from log", TableName("audit", "Log")),
        ("select * from `Case`", TableName("public", "Case")),
        ("select * from case_", None),
        ("select * from `CASE`", None),
        ("select * from auditlake.changes", TableName("auditlake", "changes")),
        ("select * from AuditLake.Transactions", TableName("auditlake", "transactions")),
        ("select * from changes", None),
        ("select * from delta.`/tmp/x`", None),
        ("select * from spark_catalog.public.orders", None),
    ],
)
def test_which_table_a_name_means(sql: str, table: TableName | None) -> None:
    """Schema public first, then the only schema that has it; an exact match wins; anything else is BadUsage."""
    if table is None:
        with pytest.raises(BadUsage) as caught:
            rewritten(sql)
        assert caught.value.hint
    else:
        assert [reading.table for reading in rewritten(sql).views.values()] == [table]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select * from ordrs", ["ordrs", "public.orders"]),
        ("select * from publik.orders", ["publik.orders", "public.orders"]),
        ("select * from changes", ["auditlake.changes"]),
        ("select * from twice", ["a.twice", "b.twice"]),
        ("select * from orders timestamp as of '2026-01-01'", ["TIMESTAMP AS OF", "FOR SYSTEM_TIME AS OF"]),
        ("select * from orders version as of 3", ["VERSION AS OF", "FOR SYSTEM_TIME AS OF"]),
        ("select * from orders for version as of 3", ["VERSION AS OF"]),
        ("select * from orders system_time as of '2026-01-01'", ["SYSTEM_TIME AS OF", "FOR SYSTEM_TIME AS OF"]),
        ("select *\nfrom orders wher x = = 1", ["line 2", "column 18", "'x'"]),
        ("select * from orders for system_time all o for system_time all", ["twice", "orders"]),
        ("select * from (select 1) x for system_time all", ["x", "not a table"]),
        ("select * from range(3) r for system_time all", ["r", "not a table"]),
        ("select * from orders o version as of 3", ["VERSION AS OF", "FOR SYSTEM_TIME AS OF"]),
        ("with c as (select 1) select * from c d for system_time all", ["name of a query"]),
        ("select * from orders for system_time as of now()", ["quotes"]),
        ("select * from orders for system_time as of 'noon'", ["noon", "ISO"]),
        ("select * from orders for system_time from '0/1' and '0/2'", ["expected TO"]),
        ("select * from orders for system_time", ["AS OF, FROM, BETWEEN"]),
        ("with c as (select 1) select * from c for system_time all", ["name of a query"]),
        ("select * from auditlake.changes for system_time all", ["auditlake.changes", "lsn"]),
        ("select 'abc", ["does not end"]),
        ('select * from "orders"', ["backticks"]),
        ("select 1; select 2", ["2 statements"]),
        ("", ["empty"]),
        ("-- nothing", ["empty"]),
        ("explain", ["empty"]),
    ],
)
def test_invalid_sql_is_refused_with_place_and_remedy(sql: str, words: list[str]) -> None:
    """The message names the place or the name, the hint the correction."""
    with pytest.raises(BadUsage) as caught:
        rewritten(sql)
    said = f"{caught.value.message} {caught.value.hint}"
    assert all(word in said for word in words), said
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "sql",
    [
        "insert into orders select 1",
        "with a as (select 1) insert into orders select * from a",
        "from orders insert into customers select *",
        "update orders set id = 1",
        "delete from orders",
        "merge into orders using customers on true when matched then delete",
        "create table x as select * from orders",
        "create view x as select * from orders",
        "drop table orders",
        "truncate table orders",
        "alter table orders drop column id",
        "set spark.sql.ansi.enabled = false",
        "add jar 'x'",
        "cache table orders",
        "use other",
        "optimize orders",
        "vacuum orders",
        "call x()",
        "explain delete from orders",
        "show columns in orders",
        "select transform(id) using 'cat' from orders",
        "begin select 1; end",
        "execute immediate 'drop table orders'",
    ],
)
def test_a_statement_that_does_more_than_read_is_refused(sql: str) -> None:
    """Statements that write or execute are refused before Spark parses them."""
    with pytest.raises(BadUsage):
        rewritten(sql)


def test_show_tables_lists_the_lake() -> None:
    """Spark's catalog does not contain the lake, so the list is ours."""
    for sql in ("show tables", " SHOW\nTABLES ; "):
        shown = rewritten(sql)
        assert "('public', 'orders')" in shown.sql
        assert "('auditlake', 'gaps')" in shown.sql
        assert not shown.views


@given(st.text(max_size=60))
def test_any_text_is_rewritten_or_bad_usage(text: str) -> None:
    """No other exception is raised for any input."""
    for sql in (text, f"select * from orders where {text}", f"select * from orders {text}"):
        with contextlib.suppress(BadUsage):
            assert rewritten(sql).sql


# fmt: off
_WORDS = [
    "select", "from", "orders", "public", ".", "customers", ",", "*", "(", ")", "as", "o", "join", "on", "where", "'x'",
    "with", "for system_time all", "for system_time as of '-1h'", "union all", "--c\n", "/* c */", "`orders`", "=", "1",
]
# fmt: on


@given(st.lists(st.sampled_from(_WORDS), max_size=25).map(" ".join))
def test_a_statement_without_tables_is_unchanged(tail: str) -> None:
    """It is its canonical text."""
    try:
        result = rewritten(f"select {tail}")
    except BadUsage:
        return
    if not result.views:
        assert result.sql == canonical_sql(f"select {tail}")


def test_exact_text_gets_the_raw_column_of_its_table() -> None:
    """The column's table and name are added; three arguments are unchanged; anything but a column is refused."""
    sql = "select exact_text(o.`it's`), EXACT_TEXT( id ), exact_text(a, r, 'a') from orders o"
    rewritten = rewrite(sql, NAMES)
    assert rewritten.exact
    expected = "select exact_text(o.`it's`, o._raw, 'it\\'s'), EXACT_TEXT( id, _raw, 'id' ), exact_text(a, r, 'a')"
    assert rewritten.sql.startswith(expected)
    qualified = rewrite("select exact_text(public.orders.id) from public.orders", NAMES).sql
    assert qualified.startswith("select exact_text(orders.id, orders._raw, 'id') from ")
    assert not rewrite("select id from orders", NAMES).exact
    for wrong in ("exact_text(id + 1)", "exact_text()", "exact_text(id, 2)", "exact_text('id')"):
        with pytest.raises(BadUsage, match="takes a column"):
            rewrite(f"select {wrong} from orders", NAMES)


def test_views_of_the_session_hide_tables_without_a_schema() -> None:
    """A view that the user defined has no system time."""
    names = replace(NAMES, defined=frozenset({"orders"}))
    assert rewrite("select * from Orders join public.orders o", names).sql == "select * from Orders join v0 o"
    assert rewrite("describe orders", names).sql == "describe orders"
    with pytest.raises(BadUsage, match="name of a query"):
        rewrite("select * from orders for system_time all", names)


@pytest.mark.parametrize("sql", [*ATTACKS, *READ_DIFFERENTLY])
def test_a_statement_that_reads_more_than_the_lake_is_refused(sql: str) -> None:
    """Files, the environment, Java, and what only looks like a comment."""
    with pytest.raises(BadUsage):
        rewritten(sql.format(path="/etc/hostname"))


@pytest.mark.parametrize(
    "sql",
    [
        "select upper(o.id), `count`(*), nvl(id, 0), if(id > 0, 1, 2), left('a', 1) from orders o",
        "select * from values (1, 2) as t(a, b) join values (3) u(`x y`) on t.a = u.`x y`",
        "select * from (select 1, 2) as t(a, b)",
        "with reader(a) as (select 1), writer (b, c) as (select 1, 2) select * from reader, writer",
        "select id, y from orders lateral view explode(array(1)) x as y",
        "select * from orders, lateral (select 1) l",
        "select * from orders pivot (max(a) for (b, c) in ((1, 2)))",
        "select cast(id as decimal(10, 2)), cast(id as varchar(3)), timestamp '2026-01-01' from orders",
        "select sum(id) filter (where id in (1, 2)) over (partition by (id) order by id) from orders group by all",
        "select transform(array(1), x -> x + 1), exists(array(1), x -> x > 0)",
        "select percentile_cont(0.5) within group (order by id) from orders where not (id = 1) and (id > 0)",
        "select id from orders group by grouping sets ((id), ()), rollup (id), cube (id) having (count(*) > 1)",
        "select * from range(3) where id between (1) and (2) and id not in (4)",
        "select * from orders join customers using (id) where exists (select 1) and id = any (select 2)",
        "select 1 union (select 2) intersect (select 3) except (select 4)",
        "select case when (id > 1) then (2) else (3) end, extract(year from d), trim(both 'x' from 'xax') from orders",
    ],
)
def test_ordinary_statements_pass(sql: str) -> None:
    """Functions that compute, names of columns, and words before a parenthesis that are no calls."""
    assert rewritten(sql).sql


def test_a_function_that_is_not_listed_is_refused_by_its_name() -> None:
    """Also one that is the alias of a table whose columns are values."""
    with pytest.raises(BadUsage, match="reflect is not one of the functions"):
        rewritten("select Reflect(1)")
    with pytest.raises(BadUsage, match=r"system\.reflect\("):
        rewritten("select system.reflect(1)")
    with pytest.raises(BadUsage, match="who runs auditlake"):
        rewritten("select current_user")
    assert rewritten("select o.current_user from orders o").sql
