"""Tests of path segments for source names."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlake.lake.layout import Lake, path_segment, source_name
from auditlake.relation import TableName

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=63)


@given(names)
def test_every_name_round_trips(name: str) -> None:
    """Every name that PostgreSQL allows is restored from its path segment."""
    assert source_name(path_segment(name)) == name


@given(names)
def test_a_segment_needs_no_escaping(name: str) -> None:
    """A segment has only characters that paths and URIs allow unescaped, and no upper case."""
    assert set(path_segment(name)) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-~")


@given(names, names)
def test_distinct_names_have_distinct_folders(one: str, other: str) -> None:
    """Two names never share a folder, even on a case-insensitive file system."""
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
def test_bytes_are_escaped_in_hexadecimal(name: str, segment: str) -> None:
    """The escaping is fixed, because existing lakes depend on it."""
    assert path_segment(name) == segment


@pytest.mark.parametrize("letter", ["x", "X", "語", "_"])
def test_the_longest_names_fit_into_a_file_name(letter: str, tmp_path: Path) -> None:
    """With 63 bytes each, and the OID that a later table of a name has."""
    longest = letter * (63 // len(letter.encode()))
    tables = [TableName(longest, f"{longest}@4294967295"), TableName("public", longest), TableName(longest, "t")]
    lake = Lake(tmp_path)
    for folder in (lake.shapes, lake.partitions):
        folder.mkdir()
    for table in tables:
        for file in (lake.shape(table), lake.partitions_of(table)):
            file.touch()
    assert lake.shape_names() == lake.partitioned_names() == sorted(tables)


def test_a_history_has_a_folder_per_schema_and_table() -> None:
    """The table's folder is below its schema's."""
    lake = Lake(Path("/lake"))
    assert lake.history(TableName("public", "Order Lines")) == Path("/lake/history/public/~4frder~20~4cines")
