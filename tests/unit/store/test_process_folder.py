"""Rows that leave a process's memory must not outlive it, however it ends."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLD = """
from auditlake.delta.sql import _Database
from auditlake.store.process_folder import process_folder
database = _Database()
(process_folder() / "spilled").write_text("a row")
print(process_folder(), flush=True)
input()
"""
_FORK = """
import os
from auditlake.delta.sql import _Database
from auditlake.store.process_folder import process_folder
database, folder = _Database(), process_folder()
if os.fork() == 0:
    raise SystemExit
os.wait()
print(len(list(folder.iterdir())))
"""


@contextmanager
def _holding(temporary: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Start a process that has spilled a row."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def _end(process: subprocess.Popen[str]) -> None:
    process.communicate("\n")
    assert process.returncode == 0


def test_a_process_removes_its_folder(tmp_path: Path) -> None:
    """Only its user can read it meanwhile."""
    with _holding(tmp_path) as (process, folder):
        assert folder.stat().st_mode & 0o777 == 0o700
        _end(process)
    assert list(tmp_path.iterdir()) == []


def test_the_next_process_removes_the_folder_of_a_killed_one_only(tmp_path: Path) -> None:
    """A killed process cannot remove what it spilled."""
    with _holding(tmp_path) as (killed, left), _holding(tmp_path) as (_, of_the_living):
        killed.kill()
        killed.wait()
        assert (left / "spilled").read_text() == "a row"
        with _holding(tmp_path) as (process, _):
            assert not left.exists()
            assert (of_the_living / "spilled").exists()
            _end(process)


def test_a_name_that_a_stranger_made_is_not_followed(tmp_path: Path) -> None:
    """Anybody may create names in the temporary folder."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    link, file = tmp_path / "auditlake-process-link", tmp_path / "auditlake-process-file"
    link.symlink_to(precious)
    file.touch()
    with _holding(tmp_path) as (process, _):
        _end(process)
    assert (precious / "file").exists()
    assert link.is_symlink()
    assert file.exists()


def test_a_fork_leaves_the_folder_to_its_parent(tmp_path: Path) -> None:
    """Which goes on to use it, and what its database spills in it."""
    ran = subprocess.run(
        [sys.executable, "-c", _FORK],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert ran.stdout == "1\n"
    assert list(tmp_path.iterdir()) == []
