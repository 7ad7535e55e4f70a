"""More comparisons than in `make test`: every value of every type, longer walks, and new snapshots."""

from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.postgres.test_audit import check_answers, make_target
from tests.postgres.test_backup import check_beside
from tests.postgres.test_equality import check_comparisons
from tests.postgres.test_filter_types import check_conditions, check_found, made
from tests.postgres.test_masked_columns import check_mask
from tests.server import Server
from tests.type_values import TYPES
from tests.unit.resync.test_comparison import Case, cases, check_difference


@given(cases())
@settings(max_examples=1000)
def test_the_difference_is_that_of_the_rule(case: Case) -> None:
    """Ends, begins and removed versions of tables with and without a key."""
    check_difference(case)


@pytest.mark.pg
def test_every_condition_is_postgresqls_and_every_value_is_found(server: Server, tmp_path: Path) -> None:
    """Every value of every type with every other, by every sign; most pairs are answered."""
    with made(server, tmp_path) as both:
        assert check_conditions(both, 1) > 900
        check_found(both, both.columns)


@pytest.mark.pg
def test_a_comparison_is_that_of_postgresql_or_refused(database: str, tmp_path: Path) -> None:
    """Of every type, in each clause that compares."""
    check_comparisons(database, tmp_path, TYPES)


@pytest.mark.pg
def test_every_answer_follows_from_the_states(server: Server, database: str, tmp_path: Path) -> None:
    """Of a longer random walk."""
    check_answers(database, make_target(server), tmp_path, 1, 40)


@pytest.mark.pg
def test_a_mask_follows_its_column(database: str, tmp_path: Path) -> None:
    """As of every moment."""
    check_mask(database, tmp_path, every=1)


@pytest.mark.pg
def test_backups_beside_follow_and_maintain_answer_as_the_lake(database: str, tmp_path: Path) -> None:
    """Three, of longer times."""
    check_beside(database, tmp_path, 3, 80)
