"""Source names become paths and back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlake.lake.layout import Lake, path_segment, source_name
from auditlake.relation import TableName

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=63)


@given(names)
def test_every_name_comes_back(name: str) -> None:
    """What PostgreSQL allows as a name survives the way to a path and back."""
    assert source_name(path_segment(name)) == name


@given(names)
def test_a_segment_needs_no_escaping(name: str) -> None:
    """A segment holds only what paths and URIs take as it is, and no upper case."""
    assert set(path_segment(name)) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-~")


@given(names, names)
def test_different_names_stay_different_whatever_the_file_system_folds(one: str, other: str) -> None:
    """Two names never share a folder, even where case does not count."""
    assert (path_segment(one).lower() == path_segment(other).lower()) == (one == other)


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("orders", "orders"),
        ("Orders", "~4frders"),
        ("a/b", "a~2fb"),
        ("..", "~2e~2e"),
        ("~", "~7e"),
        ("ä", "~c3~a4"),
        ("_a_", "~5fa_"),
    ],
)
def test_escapes_bytes_in_hexadecimal(name: str, segment: str) -> None:
    """The spelling is fixed: lakes on disk depend on it."""
    assert path_segment(name) == segment


def test_places_a_history() -> None:
    """One folder per schema, one per table below it."""
    lake = Lake(Path("/lake"))
    assert lake.history(TableName("public", "Order Lines")) == Path("/lake/history/public/~4frder~20~4cines")
