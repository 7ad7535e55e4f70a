"""Where timelines part, from history files as PostgreSQL writes them."""

import pytest

from auditlake.errors import InvariantBroken
from auditlake.lsn import Lsn
from auditlake.postgres.timeline import find_fork

# Written by PostgreSQL 18 at two promotions, one of them to a point in time.
HISTORY = "1\t0/3002880\tno recovery target specified\n\n2\t0/50000A0\tbefore 2026-11-21 12:00:00.5+00\n"


@pytest.mark.parametrize(("recorded", "fork"), [(1, "0/3002880"), (2, "0/50000A0"), (3, None)])
def test_find_fork(recorded: int, fork: str | None) -> None:
    """Each timeline of the past is left at its own point; others were never part of it."""
    assert find_fork(HISTORY, recorded) == (None if fork is None else Lsn.parse(fork))


def test_comments_are_passed() -> None:
    """PostgreSQL allows them."""
    assert find_fork("# a note\n" + HISTORY, 1) == Lsn.parse("0/3002880")


def test_an_unknown_line_is_not_passed() -> None:
    """It might be the one that was asked for."""
    with pytest.raises(InvariantBroken, match="history"):
        find_fork("one 0/3002880\n", 1)
