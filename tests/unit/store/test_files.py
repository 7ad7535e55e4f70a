"""Files of a lake on a disk."""

from pathlib import Path

import pytest

from auditlake.store import files


def test_a_folder_written_just_now_equals_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second write within a tick of the clock gives it the same time."""
    assert files.fingerprint(tmp_path) != files.fingerprint(tmp_path)
    monkeypatch.setattr(files, "_SETTLED_NS", 0)
    assert files.fingerprint(tmp_path) == files.fingerprint(tmp_path)


@pytest.mark.parametrize(("one", "other"), [("orders", "customers"), ("orders.json", "orders.state")])
def test_files_that_are_replaced_at_the_same_time_keep_their_own_content(tmp_path: Path, one: str, other: str) -> None:
    """Two webhooks with their state in one folder; a name need not have an extension."""

    def replace_other() -> None:
        files.replace_file(tmp_path / other, other, durable=True)

    files.replace_file(tmp_path / one, one, durable=True, before_rename=replace_other)
    assert {place.name: place.read_text() for place in tmp_path.iterdir()} == {one: one, other: other}


def test_writers_of_one_file_replace_it_one_after_the_other(tmp_path: Path) -> None:
    """A resync and capture both write what they last saw of a table's catalog entry."""
    place = tmp_path / "orders.json"
    files.replace_file(
        place, "first", durable=False, before_rename=lambda: files.replace_file(place, "second", durable=False)
    )
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"orders.json": "first"}


def test_a_file_that_cannot_be_replaced_leaves_no_other(tmp_path: Path) -> None:
    """The name is that of a folder."""
    place = tmp_path / "orders.json"
    (place / "below").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        files.replace_file(place, "first", durable=True)
    assert [each.name for each in tmp_path.iterdir()] == ["orders.json"]
