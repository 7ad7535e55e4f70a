"""LSNs read and print as PostgreSQL does, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlake.lsn import Lsn


@pytest.mark.parametrize(
    ("text", "position"),
    [("0/0", 0), ("0/16B3748", 23803720), ("16/B374D848", 97500059720), ("FFFFFFFF/FFFFFFFF", 2**64 - 1)],
)
def test_reads_and_prints_what_postgres_prints(text: str, position: int) -> None:
    """The positions are those of `select pg_lsn '…' - '0/0'`."""
    assert Lsn.parse(text) == position
    assert str(Lsn(position)) == text


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_text_round_trips(position: int) -> None:
    """No position is changed by printing and reading it."""
    assert Lsn.parse(str(Lsn(position))) == position


def test_reads_lower_case_and_surrounding_space() -> None:
    """An LSN pasted from elsewhere is taken; the printed form is PostgreSQL's."""
    assert str(Lsn.parse(" 16/b374d848\n")) == "16/B374D848"


@pytest.mark.parametrize(
    "text", ["", "0", "0/", "/0", "0/0/0", "0x1/0", "G/0", "123456789/0", "0 /0", "-1/0", "\u0660/\u0660"]
)
def test_refuses_everything_else(text: str) -> None:
    """What is not an LSN never becomes zero."""
    with pytest.raises(ValueError, match="not an LSN"):
        Lsn.parse(text)


def test_orders_by_position_not_by_text() -> None:
    """9/0 comes before 10/0."""
    assert Lsn.parse("9/0") < Lsn.parse("10/0")
