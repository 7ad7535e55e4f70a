"""Values that their typed column cannot hold: computing with the NULL that stands for one is refused."""

from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from auditlake.errors import NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.query.embedded.engine import Embedded
from auditlake.query.formats import python_rows
from auditlake.query.statement import prepare_statement, read_state
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.server import execute

pytestmark = pytest.mark.pg


def _ask(lake: Lake, sql: str) -> list[tuple[Any, ...]]:
    state = read_state(lake, None, UTC)
    schema, batches = Embedded({}).answer(state, prepare_statement(state, sql, {})).batches()
    return list(python_rows(schema, batches))


@pytest.fixture
def lake(database: str, tmp_path: Path) -> Lake:
    """A followed table with rows 1 (ordinary), 2 (NaN), 3 (infinite) and 4 (an array of two dimensions)."""
    columns = "price numeric(6,2), until date, at timestamptz, local timestamp, ints int[], note text"
    execute(database, f"create table t (id int primary key, {columns})")
    lake = make_lake(database, tmp_path / "lake")
    execute(
        database,
        "insert into t values (1, 9.5, '2026-01-09', '2026-01-09 00:00+00', '2026-01-09', '{1}', 'a')",
        "insert into t (id, price, note) values (2, 'NaN', 'b')",
        "insert into t (id, until, at, local) values (3, 'infinity', '-infinity', '0044-03-15 BC')",
        "insert into t (id, ints) values (4, '{{1,2},{3,4}}')",
    )
    capture(database, lake)
    return lake


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("select id from t where price > 5", "price"),
        ("select sum(price) as n from t", "price"),
        ("select count(price) as n from t", "price"),
        ("select max(until) as n from t", "until"),
        ("select id from t where until is null", "until"),
        ("select id from t order by at", "at"),
        ("select local, count(*) as n from t group by local", "local"),
        ("select x.id from t x join t y on x.price = y.price", "price"),
        ("select id from t for system_time all where price > 5", "price"),
        ("select id from (select id, until as u from t) q where u >= date '2026-01-01'", "until"),
    ],
)
def test_a_computation_with_such_a_column_is_refused(lake: Lake, sql: str, column: str) -> None:
    """PostgreSQL's answer includes the value: NaN is greater than 5."""
    with pytest.raises(NotAnswerable, match=rf"computes with public\.t\.{column}, which is NULL here") as refused:
        _ask(lake, sql)
    assert f"exact_text({column})" in str(refused.value.hint)


def test_what_does_not_compute_with_it_is_answered(database: str, lake: Lake) -> None:
    """The column is shown, or cast to its type, which says that the value may be left out."""
    assert sorted(_ask(lake, "select id, price from t where note is not null"))[1] == (2, None)
    assert _ask(lake, "select id from t where cast(price as decimal(6, 2)) > 5") == [(1,)]
    assert _ask(lake, "select count(*) as n from t") == [(4,)]
    execute(database, "delete from t where id > 1")
    capture(database, lake)
    assert _ask(lake, "select id from t where price > 5 and until > date '2026-01-01'") == [(1,)]
    with pytest.raises(NotAnswerable):
        _ask(lake, "select id from t for system_time all where price > 5")
