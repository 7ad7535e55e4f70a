"""A new snapshot compared with the open versions, against the rule written in Python: more cases than `make test`."""

from hypothesis import given, settings

from tests.unit.resync.test_comparison import Case, cases, check_difference


@given(cases())
@settings(max_examples=1000)
def test_the_difference_is_that_of_the_rule(case: Case) -> None:
    """Ends, begins and removed versions of tables with and without a key."""
    check_difference(case)
