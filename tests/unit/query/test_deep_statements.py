"""Deep statements: PostgreSQL's parser writes its tree without a check of its stack, and must not end the process."""

import json
import subprocess
import sys

import pytest

_FORMS = {
    "parentheses": ("select ", "(", "id", ")", " from orders"),
    "a sum": ("select id", "", "", " + id", " from orders"),
    "texts in a row": ("select note", "", "", " || note", " from orders"),
    "members of a document": ("select note", "", "", " -> 'a'", " from orders"),
    "an operator by its schema": ("select id", "", "", " operator(pg_catalog.+) id", " from orders"),
    "signs": ("select ", "- ", "id", "", " from orders"),
    "signs of a number": ("select ", "- ", "1", "", ""),
    "other prefixes": ("select ", "~ ", "id", "", " from orders"),
    "NOT": ("select ", "not ", "true", "", ""),
    "AND": ("select true", "", "", " and true", ""),
    "OR": ("select true", "", "", " or true", ""),
    "AND in OR": ("select true", "", "", " and true or true", ""),
    "BETWEEN": ("select ", "id between 1 and (", "2", ")", " from orders"),
    "LIKE": ("select ", "note like (", "note", ")", " from orders"),
    "a list of IN": ("select ", "1 in (", "1", ")", ""),
    "a query of IN": ("select ", "1 in (select ", "1", ")", ""),
    "ANY": ("select ", "1 = any (array[", "1", "])", ""),
    "a row": ("select ", "row(", "1", ")", ""),
    "casts": ("select id", "", "", "::int", " from orders"),
    "CAST": ("select ", "cast(", "id", " as int)", " from orders"),
    "a modifier of a type": ("select id::numeric(", "(", "2", ")", ") from orders"),
    "a sum in a modifier": ("select id::numeric(1", "", "", " + 1", ") from orders"),
    "bounds of a type": ("select note::int", "", "", "[]", " from orders"),
    "COLLATE": ("select note", "", "", ' collate "C"', " from orders"),
    "AT TIME ZONE": ("select at", "", "", " at time zone 'UTC'", " from orders"),
    "intervals": ("select ", "interval '1 day' + ", "interval '1 day'", "", ""),
    "CASE in THEN": ("select ", "case when true then ", "1", " end", ""),
    "CASE in ELSE": ("select ", "case when true then 1 else ", "1", " end", ""),
    "CASE in WHEN": ("select ", "case when ", "true", " then true end", ""),
    "CASE of CASE": ("select ", "case ", "1", " when 1 then 1 end", ""),
    "calls": ("select ", "abs(", "id", ")", " from orders"),
    "named arguments": ("select ", "f(a => ", "1", ")", ""),
    "COALESCE": ("select ", "coalesce(", "id", ")", " from orders"),
    "EXTRACT": ("select ", "extract(year from ", "at", ")", " from orders"),
    "SUBSTRING": ("select ", "substring(", "note", " from 1)", " from orders"),
    "TRIM": ("select ", "trim(", "note", ")", " from orders"),
    "json_object": ("select ", "json_object('a': ", "1", ")", ""),
    "xmlforest": ("select ", "xmlforest(", "1", " as a)", ""),
    "FILTER": ("select ", "count(*) filter (where ", "true", ")", " from orders"),
    "WITHIN GROUP": ("select ", "mode() within group (order by ", "id", ")", " from orders"),
    "a window in a window": ("select ", "count(*) over (partition by ", "id", ")", " from orders"),
    "windows": ("select id from orders window w0 as ()", "", "", ", w as (order by id)", ""),
    "an array": ("select array", "[", "1", "]", ""),
    "ARRAY": ("select ", "array[", "1", "]", ""),
    "subscripts": ("select tags", "", "", "[1]", " from orders"),
    "a subscript in a subscript": ("select ", "tags[", "1", "]", " from orders"),
    "slices": ("select tags", "", "", "[1:2]", " from orders"),
    "parts of a name": ("select (id)", "", "", ".id", " from orders"),
    "subqueries": ("select ", "(select ", "1", ")", ""),
    "subqueries of FROM": ("select * from ", "(select * from ", "orders", ") o", ""),
    "EXISTS": ("select 1", " where exists (select 1", "", ")", ""),
    "LATERAL": ("select * from orders", "", "", ", lateral (select 1) x", ""),
    "tables": ("select * from orders", "", "", ", orders", ""),
    "CROSS JOIN": ("select * from orders", "", "", " cross join orders", ""),
    "JOIN": ("select * from orders", "", "", " join orders on true", ""),
    "JOIN before ON": ("select * from ", "orders join ", "orders", " on true", ""),
    "joins in parentheses": ("select * from ", "(", "orders", " cross join orders)", ""),
    "json_table": ("select * from json_table('a', 'b' columns (", "nested 'a' columns (", "a int", ")", ")) j"),
    "UNION": ("select 1", "", "", " union all select 1", ""),
    "UNION to the right": ("select 1", " union (select 1", "", ")", ""),
    "EXCEPT": ("select 1", "", "", " except select 1", ""),
    "INTERSECT": ("select 1", "", "", " intersect select 1", ""),
    "rows of VALUES": ("values (1)", "", "", ", (1)", ""),
    "WITH in WITH": ("", "with x as (", "select 1", ") select 1", ""),
    "queries of WITH": ("with x0 as (select 1)", "", "", ", x as (select 1)", " select 1"),
    "GROUPING SETS": ("select 1 from orders group by ", "grouping sets (", "id", ")", ""),
    "ORDER BY": ("select id from orders order by id", "", "", " + 1", ""),
    "LIMIT": ("select 1 limit ", "- ", "1", "", ""),
    "a query in LIMIT": ("select 1", " limit (select 1", "", ")", ""),
    "FETCH": ("select 1 fetch first (", "(", "1", ")", ") rows only"),
    "FOR UPDATE": ("select 1 from orders", "", "", " for update", ""),
    "strings on lines": ("select 'a'", "", "", "\n'a'", ""),
    "comments": ("select ", "/* ", "", " */", " 1"),
    "a sum, and what only PostgreSQL reads": ("select 1", "", "", " + 1", " from orders for no key update of orders"),
    "NOT, and the same": ("select ", "not ", "true", "", " from orders for no key update of orders"),
    "CASE, and the same": ("select ", "case when true then ", "1", " end", " from orders for no key update of orders"),
}
_WITH_MOMENTS = {
    "a sum before FOR SYSTEM_TIME": ("select 1", "", "", " + 1", " from orders for system_time all"),
    "a sum before a wrong one": ("select 1", "", "", " + 1", " from orders for system_time as of 1"),
    "a sum before one that is elsewhere": ("select 1", "", "", " + 1", " for system_time all from orders"),
    "many": ("select 1 from orders", "", "", " for system_time all", ""),
    "one of parentheses": ("select 1 from orders for system_time as of ", "(", "'-1h'", ")", ""),
}
_LONG = {
    *("a sum", "signs", "NOT", "a sum in a modifier", "casts", "an array", "CROSS JOIN", "JOIN before ON", "UNION"),
    *(form for form in _FORMS if "and the same" in form or "what only" in form),
}
"""Of each way to count the depth: by sqlglot's tree, by its calls, by the joins, by the tokens that it cannot read."""
_PROGRAM = """
import json, sys, threading
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.query.postgres.parser import parse

def outcome(sql):
    try:
        parse(sql)
    except (BadUsage, NotAnswerable) as exc:
        return f"{type(exc).__name__}: {exc.message}"[:100]
    return "read"

def run():
    for line in sys.stdin:
        print(json.dumps(outcome(json.loads(line))), flush=True)

threading.stack_size(1 << 19)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


def _text(form: tuple[str, str, str, str, str], depth: int) -> str:
    before, opening, inner, closing, after = form
    return f"{before}{opening * depth}{inner}{closing * depth}{after}"


def _outcomes(statements: list[str]) -> list[str]:
    """Parse statements in a thread with the stack of a small system; it has to come to the last one."""
    lines = "".join(f"{json.dumps(sql)}\n" for sql in statements)
    done = subprocess.run([sys.executable, "-c", _PROGRAM], input=lines, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr, len(found)) == (0, "", len(statements)), f"ended at {found[-1:]}"
    return found


def _joined(levels: int, joins: int) -> str:
    """Write joins of subqueries that are joins, which to PostgreSQL are as deep as there are joins in all."""
    text = "orders"
    for _ in range(levels):
        text = f"(select * from {text}{' cross join orders' * joins}) o"
    return f"select * from {text}"


@pytest.mark.parametrize("form", _FORMS)
def test_the_forms_are_those_of_postgresql(form: str) -> None:
    """Twice, which PostgreSQL's parser reads, so that a deeper one is refused for its depth."""
    from pgparse import parse  # noqa: PLC0415 - for this test

    assert len(parse(_text(_FORMS[form], 2))) == 1


def test_no_deep_statement_ends_the_process() -> None:
    """Each form near the limit of the tree, some near that of the tokens and beyond."""
    near = _outcomes([_text(form, 990) for form in (*_FORMS.values(), *_WITH_MOMENTS.values())])
    assert {"read", "BadUsage: the SQL is nested too deep"} <= {*near}
    beyond = _outcomes([_text(_FORMS[form], depth) for form in sorted(_LONG) for depth in (2_490, 5_000)])
    assert sum("nested too deep" in each for each in beyond) > len(_LONG)


def test_joins_in_joins_do_not_end_the_process() -> None:
    """None of the subqueries alone is deep."""
    assert _outcomes([_joined(2, 3)]) == ["read"]
    assert _outcomes([_joined(30, 700)]) == ["BadUsage: the SQL is nested too deep"]
