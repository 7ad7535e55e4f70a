"""Commands as they are mistyped: refused before any effect, with what was meant."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from auditlake.cli.options import this_user
from tests.command import run_here
from tests.small_lake import write_lake_with_manifest

MISTYPED = {
    "sql select 1": ("the SQL is 2 arguments, need one", "Put all of it in quotes."),
    """sql 'select * from customers where name = "Ann"'""": ("there is no column Ann", "A text is in single quotes."),
    "row customers 1 --ful": ("no such option '--ful'. (Did you mean one of: '--full'", "See auditlake row --help."),
    "diff 0/180 --stats": ("no such option '--stats'", "See auditlake diff --help."),
    "forget customers 1 --dryrun --reason x": ("no such option '--dryrun'", "See auditlake forget --help."),
    "row customers name=Ann": ("the key of public.customers is id, not name", "Write id=…."),
    "row customer 1": ("there is no table customer in this lake", "Did you mean public.customers?"),
    "row people 1": ("there is no table people in this lake", "auditlake status lists the tables"),
    "log --since 0/300 --until 0/250": (
        "the period begins at 0/300, after its end at 0/250",
        "Exchange the two moments.",
    ),
    "deleted orders --since 0/300 --as-of 0/250": ("the period begins at 0/300, after its end at 0/250", "Exchange"),
    "log --follow --until 0/300": ("--until cannot be combined with --follow", "Omit one of them."),
    "views": ("missing option '--engine'. Choose from: duckdb, spark, trino", "See auditlake views --help."),
    "maintain --json": ("--json needs --dry-run", "Add --dry-run, or omit --json."),
    "serve --proxy-address 10.0.0.1": ("--proxy-address needs --behind-proxy", "Name the header"),
    "drop --source host=localhost": ("the question was not answered with yes, nothing was changed", "Add --yes."),
    "sql -o '' 'select 1'": ("invalid value for '-o' / '--output': it names no file", "See auditlake sql --help."),
    "serve --timeout nan": (
        "invalid value for '--timeout': nan is no number of seconds",
        "See auditlake serve --help.",
    ),
    "status --watch inf": ("invalid value for '--watch': inf is no number of seconds", "See auditlake status --help."),
    "check --yes": ("--yes needs --install-context or --install-ddl-trigger", "auditlake check changes nothing"),
}
"""A line, and what the error and the hint say."""


@pytest.mark.parametrize("line", MISTYPED)
def test_names_what_is_wrong_and_what_was_meant(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2, nothing on stdout, and both lines on stderr."""
    monkeypatch.setenv("AUDITLAKE_DIALECT", "postgres")
    lake = write_lake_with_manifest(tmp_path / "lake")
    done = run_here([*shlex.split(line), "--lake", str(lake.root)])
    error, hint = MISTYPED[line]
    assert (done.code, done.stdout) == (2, "")
    assert f"error: {error}" in done.stderr
    assert f"hint: {hint}" in done.stderr


def test_a_period_of_one_moment_is_not_reversed(tmp_path: Path) -> None:
    """Both ends are inclusive."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    done = run_here(["log", "--since", "0/300", "--until", "0/300", "--lake", lake.root])
    assert (done.code, "0/300" in done.stdout) == (0, True)


WITHOUT_A_LAKE = (
    *("follow", "capture --until-current", "apply --until-current", "resync", "resync --all", "maintain", "drop --yes"),
    *("status", "log", "row t 1", "diff 0/1", "blame t 1", "deleted t", "sql 'select 1'", "verify --no-source", "seal"),
    *("forget t 1 --reason x", "hold list", "backup copy", "show 0/1", "prove t 1", "views --engine duckdb"),
)


@pytest.mark.parametrize("line", WITHOUT_A_LAKE)
def test_a_folder_that_is_no_lake_is_named(line: str, tmp_path: Path) -> None:
    """Nothing is done there, which would look like work well done."""
    done = run_here([*shlex.split(line), "--source", "host=127.0.0.1 port=1", "--lake", tmp_path / "lke"])
    assert done.code == 6
    assert f"there is no lake in {tmp_path / 'lke'}" in done.stderr
    assert [*tmp_path.iterdir()] == []


def test_settings_are_named_before_or_after_the_command(tmp_path: Path) -> None:
    """--config is an option of auditlake and of each command."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    settings = tmp_path / "shop.toml"
    settings.write_text(f'lake = "{lake.root}"\n')
    before, after = run_here(["--config", settings, "log"]), run_here(["log", "--config", settings])
    assert (before.code, before.stdout) == (after.code, after.stdout) == (0, after.stdout)
    assert "0/300" in after.stdout


def test_the_shell_names_the_command_before_which_a_semicolon_is_missing(tmp_path: Path) -> None:
    """Else every later line would belong to the statement."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    script = "select id from customers\n\\timing\nselect name from customers;\n"
    program = [sys.executable, "-m", "auditlake", "shell", "--dialect", "postgres", "--lake", str(lake.root)]
    done = subprocess.run(program, input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "error: the statement before \\timing does not end" in done.stderr
    assert "Anne" in done.stdout


def test_a_user_without_a_name_is_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the image, the user 10001 has no entry in /etc/passwd."""

    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 10001")

    monkeypatch.setattr("getpass.getuser", unknown)
    monkeypatch.setattr("os.getuid", lambda: 10001)
    assert this_user() == "uid 10001"


def test_a_backup_is_not_restored_into_a_file(tmp_path: Path) -> None:
    """Nothing is written, and the error names it."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    assert run_here(["backup", tmp_path / "copy", "--lake", lake.root]).code == 0
    (tmp_path / "file").write_text("")
    done = run_here(["restore", tmp_path / "copy", "--lake", tmp_path / "file"])
    assert (done.code, f"{tmp_path / 'file'} is not a folder" in done.stderr) == (6, True)
