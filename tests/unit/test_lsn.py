"""LSN parsing and formatting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlake.lsn import Lsn


@pytest.mark.parametrize(
    ("text", "position"),
    [("0/0", 0), ("0/16B3748", 23803720), ("16/B374D848", 97500059720), ("FFFFFFFF/FFFFFFFF", 2**64 - 1)],
)
def test_text_and_position_are_those_of_postgresql(text: str, position: int) -> None:
    """The positions are the results of `select pg_lsn '…' - '0/0'`."""
    assert Lsn.parse(text) == position
    assert str(Lsn(position)) == text


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_text_round_trips(position: int) -> None:
    """Parsing inverts formatting for every position."""
    assert Lsn.parse(str(Lsn(position))) == position


def test_lower_case_and_surrounding_space_are_accepted() -> None:
    """The formatted text is PostgreSQL's."""
    assert str(Lsn.parse(" 16/b374d848\n")) == "16/B374D848"


@pytest.mark.parametrize(
    "text", ["", "0", "0/", "/0", "0/0/0", "0x1/0", "G/0", "123456789/0", "0 /0", "-1/0", "\u0660/\u0660"]
)
def test_other_text_is_refused(text: str) -> None:
    """Invalid text never becomes zero."""
    with pytest.raises(ValueError, match="not an LSN"):
        Lsn.parse(text)


def test_lsns_are_ordered_by_position_not_by_text() -> None:
    """9/0 is less than 10/0."""
    assert Lsn.parse("9/0") < Lsn.parse("10/0")
