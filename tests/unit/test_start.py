"""Start of the program: a quick command imports little."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_lake import write_lake_with_manifest

_RUN = """
import sys
from auditlake.cli.start import start
try:
    start()
except SystemExit as exc:
    assert not exc.code, exc.code
heavy = ("pandas", "pyspark", "psycopg", "deltalake", "pydantic", "pyarrow", "pgparse")
heavy = [name for name in heavy if name in sys.modules]
print("loaded:", *heavy, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("command", "shown", "parser"),
    [
        (["diff", "0/180", "0/300"], "Ann → Anne", ""),
        (["sql", "select name from customers"], "Anne", " pgparse"),
        (["sql", "--dialect", "spark", "select name from customers"], "Anne", ""),
    ],
)
def test_a_quick_command_loads_little(tmp_path: Path, command: list[str], shown: str, parser: str) -> None:
    """Neither pyspark nor a driver nor pandas nor deltalake; PostgreSQL's parser only for PostgreSQL's SQL."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    arguments = [*command, "--lake", str(lake.root)]
    done = subprocess.run([sys.executable, "-c", _RUN, *arguments], capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if line and not line.startswith("auditlake: answered by")]
    assert (done.returncode, said) == (0, [f"loaded: pydantic pyarrow{parser}"])
    assert shown in done.stdout


@pytest.mark.parametrize("asked", [["--help"], ["bootstrap", "--help"], ["--version"]])
def test_help_loads_nothing(asked: list[str]) -> None:
    """Not even pydantic, which would be a third of its time."""
    done = subprocess.run([sys.executable, "-c", _RUN, *asked], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "loaded:")


_INTERRUPTED = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "{}":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from auditlake.cli.start import start
start()
"""


@pytest.mark.parametrize("imported", ["auditlake.startup", "auditlake.cli.main"])
@pytest.mark.parametrize(("handled", "code"), [("default_int_handler", -signal.SIGINT), ("SIG_IGN", 0)])
def test_an_interruption_of_imports_prints_no_traceback(handled: str, code: int, imported: str) -> None:
    """It ends the process, unless the process ignores it."""
    script = f"import signal; signal.signal(signal.SIGINT, signal.{handled}){_INTERRUPTED.format(imported)}"
    done = subprocess.run([sys.executable, "-c", script, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")


_INTERRUPTED_LATE = """
import atexit, os, signal, sys, weakref
from auditlake.cli import main, start
class Held: pass
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
def ends():
    held = Held()
    weakref.finalize(held, interrupt)
    del held
    print("answered")
    if "at exit" in sys.argv:
        atexit.register(interrupt)
main.main = ends
start.start()
"""


@pytest.mark.parametrize(("when", "code"), [("in a finalizer", 0), ("at exit", -signal.SIGINT)])
def test_a_late_interruption_prints_no_traceback(when: str, code: int) -> None:
    """In a finalizer it is too late; after the command it ends the process."""
    line = [sys.executable, "-u", "-c", _INTERRUPTED_LATE, when]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "answered\n", "")
