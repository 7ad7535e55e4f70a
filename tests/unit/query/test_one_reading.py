"""What sqlglot reads in another way than PostgreSQL, or the translation leaves out, is refused and never answered."""

from datetime import UTC
from pathlib import Path

import pytest
from sqlglot import exp

from auditlake.errors import AuditlakeError, BadUsage, NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.query.parts import unread, watch_parts
from auditlake.query.postgres import parser, statement
from auditlake.query.postgres.one_reading import misread_at
from auditlake.query.postgres.parser import parse
from auditlake.query.postgres.statement import prepare_query
from auditlake.query.statement import LakeState, read_state
from tests.small_lake import write_lake_with_manifest

_SQL = Path(__file__).parents[2] / "data" / "sql"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> LakeState:
    """That of the small lake."""
    root = tmp_path_factory.mktemp("small") / "lake"
    write_lake_with_manifest(root)
    return read_state(Lake(root), None, UTC)


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("select interval '1.234567' second(2)", "EXPRESSIONS of the function second at line 1, column 28"),
        ("select !! id = any('{1,2}'::int[]) from orders", "the SQL at line 1, column 8"),
    ],
)
def test_a_part_that_is_read_otherwise_or_not_at_all_is_refused(state: LakeState, sql: str, what: str) -> None:
    """PostgreSQL rounds the former; `!!` is an operator of tsquery, which sqlglot reads as NOT NOT."""
    with pytest.raises(NotAnswerable, match=what):
        prepare_query(state, sql)


def test_unknown_is_a_question_about_a_boolean(state: LakeState) -> None:
    """IS NULL is one about every type."""
    prepare_query(state, "select id > 1 is unknown, id is null, true is not unknown from orders")
    for asked in ("1 is unknown", "id is not unknown"):
        with pytest.raises(BadUsage, match="boolean"):
            prepare_query(state, f"select {asked} from orders")


def test_statements_that_are_answered_are_read_alike() -> None:
    """Those that are compared with PostgreSQL, which has another way to write most of them."""
    read = 0
    for sql in (_SQL / "postgres_dialect.sql").read_text().splitlines():
        try:
            parsed = parse(sql)
        except AuditlakeError:
            continue
        assert misread_at(parsed.tree, parsed.read) is None, sql
        read += 1
    assert read > 1000


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        ("select distinct id from orders", "distinct"),
        ("select id from orders where id > 1", "where"),
        ("select id from orders order by id limit 1", "limit"),
        ("select count(*) from orders group by id having count(*) > 1", "having"),
        ("select sum(id) over w from orders window w as (order by id)", "windows"),
        ("with a as (select 1 as x) select id from orders", "with_"),
    ],
)
def test_a_clause_that_the_parser_leaves_out_is_missed(
    state: LakeState, monkeypatch: pytest.MonkeyPatch, sql: str, part: str
) -> None:
    """Whatever a release of sqlglot does not put into its tree."""

    def without_it(text: str) -> parser.Parsed:
        parsed = parser.parse(text)
        assert parsed.tree.args[part]
        parsed.tree.set(part, None)
        return parsed

    monkeypatch.setattr(statement, "parse", without_it)
    with pytest.raises(AuditlakeError, match=r"the SQL at line 1, column \d+ is not translated|window"):
        prepare_query(state, sql)


def test_a_part_that_is_not_read_is_found() -> None:
    """Reading the others, and walking over all, does not count."""
    tree = parse("select a, b from t where c").tree
    where: exp.Where = tree.args["where"]
    nodes = watch_parts(tree)
    for node in nodes:
        for name in [*node.args] if node is not where else []:
            node.args.get(name)
    assert tree.find(exp.Table) is not None
    assert [*unread(nodes)] == [(where, "this")]
    assert where.args["this"].name == "c"
    assert not [*unread(nodes)]
