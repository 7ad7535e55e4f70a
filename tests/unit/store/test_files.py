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
