"""Unknown columns in Spark's dialect: refused before Spark starts, and only if no rule of Spark can find them."""

import re
from datetime import UTC

import pytest

from auditlake.errors import BadUsage
from auditlake.lake.column_names import as_stored
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP
from auditlake.query.engine_choice import Engines
from auditlake.query.statement import LakeState, check_names, prepare_statement, read_state
from auditlake.relation import Column, TableName
from tests.small_lake import T0_US, version, write_history, write_small_lake


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> LakeState:
    """State of the small lake."""
    return read_state(write_small_lake(tmp_path_factory.mktemp("small") / "lake"), None, UTC)


@pytest.fixture(scope="module")
def cased(tmp_path_factory: pytest.TempPathFactory) -> LakeState:
    """State of the small lake with another table, three columns of which differ in case alone."""
    lake = write_small_lake(tmp_path_factory.mktemp("cased") / "lake")
    columns = as_stored(Column(name, 25, -1, key=name == "id") for name in ("id", "Name", "name", "NAME"))
    row = version(0x180, None, "snapshot", None) | {column.stored: column.name for column in columns}
    positions = {HISTORY_APP: 0x180, SNAPSHOT_APP: 0x180, SNAPSHOT_TIME_APP: T0_US + 8_000_000}
    write_history(lake, TableName("public", "cased"), columns, [row], positions, 3)
    return read_state(lake, None, UTC)


@pytest.mark.parametrize(
    ("sql", "name", "hint"),
    [
        ("select nte from orders", "nte", "Did you mean note?"),
        ("select sum(prise) from orders where id > 3", "prise", "Did you mean price?"),
        ("select id from orders o join customers c using (id) where c.nmae = 'x'", "c.nmae", "Did you mean name?"),
        (
            "select id from orders for system_time all where _from_lns > 3",
            "_from_lns",
            "Did you mean _from_lsn",
        ),
        ("select count(*) from orders group by zzz", "zzz", "There are id, note, price, at"),
    ],
)
def test_the_nearest_names_are_shown(state: LakeState, sql: str, name: str, hint: str) -> None:
    """The exit code is that of a misspelt table."""
    with pytest.raises(BadUsage, match=f"there is no column {name}") as caught:
        check_names(prepare_statement(state, sql, {}))
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    "sql",
    [
        "select price * 2 as twice, twice + 1 from orders",
        "select NOTE, Orders.ID, o.note from orders join orders o using (id)",
        "select note as n, count(*) from orders group by n order by n",
        "select transform(array(id), nte -> nte + 1) from orders",
        "select col from (select explode(array(1, 2))) x",
        "select datediff(month, at, at) from orders",
        "with q as (select id as zzz from orders) select zzz from q",
        "select current_date, id from orders where current_timestamp > at",
        "select note from orders lateral view explode(array(1)) t as zzz where zzz > 0",
        "select o.id from orders o where exists (select 1 from customers where id = o.id)",
        "select _raw['price'], _raw.price from orders for system_time all",
        "select lsn, context from auditlake.transactions",
        "describe orders",
    ],
)
def test_what_spark_may_find_is_left_to_it(state: LakeState, sql: str) -> None:
    """Aliases beside each other, lambdas, generators, units, functions without parentheses."""
    check_names(prepare_statement(state, sql, {}))


@pytest.mark.parametrize(
    "sql",
    [
        "select Name from cased",
        "select name, c.`NAME` from cased c",
        "select count(*) from cased group by Name having max(id) > 1",
        "select one.id from cased one join cased two using (Name)",
        "select x from (select Name as x from cased)",
        "select Name from cased for system_time all",
    ],
)
def test_no_column_is_taken_for_one_that_differs_in_case(cased: LakeState, sql: str) -> None:
    """Spark and DuckDB would show the values of `name`."""
    with pytest.raises(BadUsage, match="tells no case apart") as caught:
        prepare_statement(cased, sql, {})
    assert caught.value.hint is not None
    assert re.match("Column (Name is called `~4eame`|NAME is called `~4e~41~4d~45`) there", caught.value.hint)


@pytest.mark.parametrize(
    "sql",
    [
        "select name, naMe, `~4eame` as Name from cased order by Name",
        "select ID from cased",
        "select id from cased as Name",
        "select Note from orders",
    ],
)
def test_case_is_free_where_it_means_one_column(cased: LakeState, sql: str) -> None:
    """A name that no column has exactly is that of the one which Spark finds."""
    prepare_statement(cased, sql, {})


def test_spark_does_not_start_for_an_unknown_column(state: LakeState) -> None:
    """DuckDB leaves the statement to Spark, and the name is checked before that starts."""
    engines = Engines("auto", {}, lambda: pytest.fail("Spark was started"))
    with pytest.raises(BadUsage, match="there is no column nte"):
        engines.answer(state, [prepare_statement(state, "select nte from orders", {})])
