"""Output for people: tables that fit or are expanded, whole lines, and pipes that are closed early."""

import io
import os
import pty
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from auditlake.audit import text_output as render
from auditlake.audit.diff import Stat
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.messages import say
from auditlake.terminal import console_for, plain_table, show
from tests.command import start
from tests.s3_server import on_disk
from tests.small_lake import write_lake_with_manifest, write_small_lake

_LONG = "x" * 200
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def _shown(width: int | None, *cells: str, expanded: bool | None = None) -> list[str]:
    out = io.StringIO()
    table = plain_table(*(f"column {number}" for number in range(len(cells))))
    table.add_row(*cells)
    table.add_row(*("b" for _ in cells))
    show(table, console_for(out, terminal_width=width), expanded=expanded)
    return [_STYLE.sub("", line).rstrip() for line in out.getvalue().splitlines()]


def test_a_table_that_fits_is_printed_as_one() -> None:
    """A header, and a line for each row."""
    header, *rows = _shown(80, "a", "a")
    assert "column 0  column 1" in header
    assert rows == ["a         a", "b         b"]


def test_a_table_wider_than_the_terminal_is_expanded() -> None:
    """One value a line under the row's number; no line is wider, and long values continue below."""
    lines = _shown(80, *("a" * 20 for _ in range(8)), _LONG)
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if "──" in line] == ["── 1 ──", "── 2 ──"]
    assert sum(line.count("x") for line in lines) == len(_LONG)


def test_the_layout_can_be_chosen() -> None:
    """On and off take precedence over the width."""
    assert len(_shown(80, "a", expanded=True)) == 4
    assert len(_shown(20, "a" * 30, "b" * 30, expanded=False)) > 3


def test_a_file_has_no_width() -> None:
    """Without a terminal nothing is truncated, wrapped or expanded."""
    assert [len(line) for line in _shown(None, *(_LONG for _ in range(9)))][1] == 9 * len(_LONG) + 8 * 2


@pytest.mark.parametrize(("name", "expanded"), [("public.orders", False), ("public." + "x" * 60, True)])
def test_the_counts_of_a_diff_fit_80_columns(monkeypatch: pytest.MonkeyPatch, name: str, *, expanded: bool) -> None:
    """As a table with headers on two lines, else with each label on one."""
    out = io.StringIO()
    monkeypatch.setattr(render, "console_for", lambda: console_for(out, terminal_width=80))
    render.show_stat([(name, Stat(234_567, 234_568, 2, 1, 54_321, 99_999))])
    lines = [_STYLE.sub("", line).rstrip() for line in out.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80
    assert any("234,567" in line and "234,568" in line for line in lines) != expanded
    assert any(line.startswith("unmodified ") for line in lines) == expanded


def test_messages_of_several_threads_are_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is one write, so two never run together."""
    writes: list[str] = []

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            writes.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stderr", Stream())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: say(f"copied table {number}"), range(100)))
    assert sorted(writes) == sorted(f"auditlake: copied table {number}\n" for number in range(100))


def test_the_locale_of_a_terminal_changes_no_data(tmp_path: Path) -> None:
    """A pipe gets UTF-8; a terminal that has no arrow gets its escape."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    line = [sys.executable, "-m", "auditlake", "row", "orders", "1", "--lake", str(lake.root)]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    assert "note: b → c".encode() in subprocess.run(line, env=environment, capture_output=True, check=True).stdout
    ours, theirs = pty.openpty()
    subprocess.run(line, env=environment, stdout=theirs, check=True)
    assert rb"\u2192" in os.read(ours, 1 << 16)
    os.close(ours)
    os.close(theirs)


@on_disk("renames a folder")
@pytest.mark.parametrize("arguments", [["log"], ["log", "--json"], ["diff", "0/180"]])
def test_a_closed_pipe_ends_a_command_with_0(tmp_path: Path, arguments: list[str]) -> None:
    """And without a message."""
    lake = write_small_lake(tmp_path / "small")
    root = tmp_path / "lake"
    write_manifest(type(lake)(root), Manifest("1", 1, "d", "s", "p"))
    for path in lake.root.iterdir():
        path.rename(root / path.name)
    with start([*arguments, "--lake", root]) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.wait(timeout=60), process.stderr.read()) == (0, "")


def test_h_alone_is_help_and_2h_is_a_moment() -> None:
    """In commands whose arguments may begin with a dash."""
    for command in ("row", "diff", "blame", "sql", "shell", "status"):
        line = [sys.executable, "-m", "auditlake", command, "-h"]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), command
        assert "Usage:" in done.stdout
        assert "\\b" not in done.stdout
