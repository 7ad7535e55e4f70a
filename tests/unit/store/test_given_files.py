"""Files that a user names: whatever has the name, reading it ends, and the error of the command says why."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from auditlake.config import load_settings
from auditlake.errors import AuditlakeError, ConfigError
from auditlake.feed.webhook import StateFile
from auditlake.ledger.digest import read_key
from auditlake.store import given_files
from auditlake.store.given_files import MOST_BYTES, read_given_text
from tests.command import run_here
from tests.small_lake import write_lake_with_manifest


def _unreadable(why: str) -> ConfigError:
    return ConfigError(f"it cannot be read: {why}")


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"a" * MOST_BYTES, None), (b"a" * (MOST_BYTES + 1), "more than 1,048,576 bytes"), (b"\xff", "it is not UTF-8")],
)
def test_a_file_has_a_limit(tmp_path: Path, content: bytes, problem: str | None) -> None:
    """A text of at most a megabyte is read whole."""
    (tmp_path / "file").write_bytes(content)
    if problem is None:
        assert read_given_text(tmp_path / "file", _unreadable) == content.decode()
        return
    with pytest.raises(ConfigError, match=problem):
        read_given_text(tmp_path / "file", _unreadable)


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    """As the shell passes what a program prints, `<(pass show token)`: also if it comes late, and in parts."""
    os.mkfifo(pipe := tmp_path / "pipe")
    script = 'exec 3>"$0"; printf to >&3; printf ken >&3'
    with subprocess.Popen(["/bin/sh", "-c", script, str(pipe)]):
        assert read_given_text(pipe, _unreadable) == "token"


_READERS = {
    "settings": load_settings,
    "the secret of masks": lambda file: load_settings(mask={"columns": {"a.b.c": "hash"}, "secret": str(file)}).masking,
    "a key": read_key,
    "the state of a webhook": lambda file: StateFile(file, "host").cursor(),
}


@pytest.mark.parametrize("reader", _READERS)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_file_is_refused(reader: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that nobody writes, a device without an end, a folder."""
    monkeypatch.setattr(given_files, "_PIPE_S", 0.01)
    monkeypatch.delenv("AUDITLAKE_MASK_SECRET", raising=False)
    os.mkfifo(tmp_path / "pipe")
    place, why = {
        "pipe": (tmp_path / "pipe", "nothing was written to it for"),
        "device": (Path("/dev/zero"), "it has more than 1,048,576 bytes"),
        "folder": (tmp_path, "Is a directory"),
    }[kind]
    read: Any = _READERS[reader]
    with pytest.raises(AuditlakeError, match=why):
        read(place)


@pytest.mark.parametrize("option", ["--token-file", "--users"])
def test_the_page_does_not_wait_for_a_pipe(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command names the file."""
    monkeypatch.setattr(given_files, "_PIPE_S", 0.01)
    lake = write_lake_with_manifest(tmp_path / "lake")
    os.mkfifo(pipe := tmp_path / "pipe")
    done = run_here(["serve", option, pipe, "--lake", lake.root])
    assert (done.code, f"file {pipe} cannot be read: nothing was written to it" in done.stderr) == (3, True)
