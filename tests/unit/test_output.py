"""Text for other programs: exact on a pipe, refused on a terminal that would execute it; streams that nobody reads."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pytest

from auditlake.errors import BadUsage
from auditlake.messages import write_exactly
from tests.command import Done, run_here
from tests.full_disk import file_size_limit
from tests.small_lake import write_lake_with_manifest


class _Stdout(io.TextIOWrapper):
    terminal = False

    def isatty(self) -> bool:
        return self.terminal


def _written(text: str, *, terminal: bool) -> bytes:
    raw = io.BytesIO()
    stdout = _Stdout(raw, "latin-1")
    stdout.terminal = terminal
    with redirect_stdout(stdout):
        write_exactly(text)
    return raw.getvalue()


def test_escape_sequences_and_letters_beyond_ascii_are_kept() -> None:
    """Also if stdout is not UTF-8."""
    assert _written("\x1b[31mé€\x1b[0m", terminal=False) == "\x1b[31mé€\x1b[0m\n".encode()


def test_a_terminal_gets_no_control_characters() -> None:
    """Line ends and tabs are allowed; an escape sequence is refused."""
    assert _written("a\n\tb", terminal=True) == b"a\n\tb\n"
    with pytest.raises(BadUsage, match="control characters"):
        _written("a\nb\x1b[2J", terminal=True)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small lake."""
    return Path(write_lake_with_manifest(tmp_path_factory.mktemp("output") / "lake").root)


@contextmanager
def _unread() -> Iterator[int]:
    """Open a pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


def _ended(arguments: Sequence[str], lake: Path, redirections: str = "", stderr: int = subprocess.PIPE) -> Done:
    """Run a command with redirections of the shell."""
    command = ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-m", "auditlake", *arguments]
    done = subprocess.run(
        [*command, "--lake", lake], stdout=subprocess.PIPE, stderr=stderr, text=True, check=False, cwd="/"
    )
    return Done(done.returncode, done.stdout, done.stderr or "")


@pytest.mark.parametrize(("sql", "code", "found"), [("select 7 as n", 0, "n\n7\n"), ("select nothing", 2, "")])
def test_messages_that_nobody_reads_end_no_command(lake: Path, sql: str, code: int, found: str) -> None:
    """Neither a pipe without a reader, nor a full disk, nor no stderr at all."""
    asked = ["sql", sql, "--format", "csv"]
    with _unread() as pipe:
        assert _ended(asked, lake, stderr=pipe) == Done(code, found, "")
    assert _ended(asked, lake, "2> /dev/full") == Done(code, found, "")
    assert _ended(asked, lake, "2>&-") == Done(code, found, "")


def test_a_command_without_stdin_and_stdout_is_not_told_from_another(lake: Path) -> None:
    """No file of the lake gets their numbers."""
    done = _ended(["log"], lake, "<&- >&-")
    assert (done.code, "bug" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "table"])
def test_a_disk_that_is_full_names_the_file_of_the_answer(lake: Path, tmp_path: Path, form: str) -> None:
    """An earlier answer in it stays, and nothing else."""
    (tmp_path / "answer").write_text("before")
    asked: list[str | Path] = [
        "sql",
        "select * from generate_series(1, 3000)",
        "--format",
        form,
        "-o",
        tmp_path / "answer",
    ]
    with file_size_limit(1_000):
        done = run_here([*asked, "--lake", lake])
    assert (done.code, f"{tmp_path / 'answer'} cannot be written: File too large" in done.stderr) == (2, True)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"answer": "before"}
