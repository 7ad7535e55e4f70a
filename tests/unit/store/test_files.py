"""Files of a lake on a disk."""

from pathlib import Path

import pytest

from auditlake.store import files


def test_a_folder_written_just_now_equals_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second write within a tick of the clock gives it the same time."""
    assert files.fingerprint(tmp_path) != files.fingerprint(tmp_path)
    monkeypatch.setattr(files, "_SETTLED_NS", 0)
    assert files.fingerprint(tmp_path) == files.fingerprint(tmp_path)
