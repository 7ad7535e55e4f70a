"""command-line.md: the shells that are installed complete commands, and the man pages have every command and option."""

import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from auditlake.cli.main import auditlake
from scripts.man_pages import EXIT_CODES, pages

_ROOT = Path(__file__).parents[2]
_DOCUMENT = (_ROOT / "docs" / "command-line.md").read_text()
_WRITE = dict(re.findall(r"^\| (\w+)[^|]*\| `([^`]*_source auditlake [^`]*)`", _DOCUMENT, re.MULTILINE))
_COMPLETE = {
    "bash": """. ~/.local/share/bash-completion/completions/auditlake
        COMP_WORDS=(auditlake {word}) COMP_CWORD=1
        _auditlake_completion auditlake
        echo ${{COMPREPLY[@]}}""",
    "zsh": """fpath+=~/.zfunc; autoload -Uz compinit && compinit -u -D
        function _describe {{ print -- ${{completions_with_descriptions%%:*}} }}
        words=(auditlake {word}) CURRENT=2
        $_comps[auditlake]""",
    "fish": "complete -C 'auditlake {word}' | cut -f 1",
}
"""Programs that print what a shell offers for a word. Those of bash and zsh call the function of the script."""
_MAN_CHECKS = (["mandoc", "-Tlint", "-Wwarning"], ["groff", "-man", "-ww", "-z"])


def _run(shell: str, program: str, home: Path) -> list[str]:
    launcher = home / "bin" / "auditlake"
    launcher.parent.mkdir(exist_ok=True)
    launcher.write_text(f"#!{sys.executable}\nfrom auditlake.cli.start import start\nstart()\n")
    launcher.chmod(0o755)
    environment = {
        "HOME": str(home),
        "PATH": f"{launcher.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(_ROOT),
        "TERM": "dumb",
    }
    done = subprocess.run([shell, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_every_shell_has_a_row_and_a_test() -> None:
    """Bash is always there; `make release` installs the other two."""
    assert set(_WRITE) == set(_COMPLETE)
    assert shutil.which("bash")


@pytest.mark.parametrize("shell", [shell for shell in _COMPLETE if shutil.which(shell)])
def test_a_shell_completes_commands(shell: str, tmp_path: Path) -> None:
    """The documented command writes the script; the shell then offers the commands that begin with the word."""
    _run("bash", _WRITE[shell], tmp_path)
    offered = _run(shell, _COMPLETE[shell].format(word="fol"), tmp_path)
    assert offered == ["follow"]


def test_man_pages_have_every_command_and_option() -> None:
    """One page for each command, with all options and exit codes of operating.md."""
    written = dict(pages(datetime(2026, 11, 25, tzinfo=UTC)))
    assert set(written) == {"auditlake", *(f"auditlake-{name}" for name in auditlake.commands)}
    for name, command in auditlake.commands.items():
        text = written[f"auditlake-{name}"].replace("\\-", "-")
        assert "--help" in text
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert any(option in text for option in parameter.opts), (name, parameter.opts)
    table = (_ROOT / "docs" / "operating.md").read_text().split("## Exit codes")[1]
    codes = re.findall(r"^\| (\d) \| ([^|]+) \|", table, re.MULTILINE)
    assert [int(code) for code, _ in codes] == list(range(len(EXIT_CODES)))
    for (_, documented), ours in zip(codes, EXIT_CODES, strict=True):
        assert documented.startswith(ours)


def test_man_pages_have_no_warnings(tmp_path: Path) -> None:
    """Checked by those of mandoc and groff that are installed."""
    checks = [check for check in _MAN_CHECKS if shutil.which(check[0])]
    assert checks
    for name, text in pages(datetime(2026, 11, 25, tzinfo=UTC)):
        page = tmp_path / f"{name}.1"
        page.write_text(text)
        assert text.isascii()
        for check in checks:
            done = subprocess.run([*check, page], capture_output=True, text=True, check=False)
            assert (done.stdout + done.stderr, done.returncode) == ("", 0)
