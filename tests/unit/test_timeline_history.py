"""Tests of the switch points in timeline history files."""

import pytest

from auditlake.capture.preconditions import find_fork
from auditlake.errors import InvariantBroken
from auditlake.lsn import Lsn

# Written by PostgreSQL 18 at two promotions, one of them to a point in time.
HISTORY = "1\t0/3002880\tno recovery target specified\n\n2\t0/50000A0\tbefore 2026-11-21 12:00:00.5+00\n"


@pytest.mark.parametrize(("recorded", "fork"), [(1, "0/3002880"), (2, "0/50000A0"), (3, None)])
def test_each_past_timeline_has_its_own_switch_point(recorded: int, fork: str | None) -> None:
    """A timeline outside the history has none."""
    assert find_fork(HISTORY, recorded) == (None if fork is None else Lsn.parse(fork))


def test_comments_are_skipped() -> None:
    """PostgreSQL allows comments in history files."""
    assert find_fork("# a note\n" + HISTORY, 1) == Lsn.parse("0/3002880")


def test_a_malformed_line_is_refused() -> None:
    """It might be the line of the recorded timeline."""
    with pytest.raises(InvariantBroken, match="history"):
        find_fork("one 0/3002880\n", 1)
