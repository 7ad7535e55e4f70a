"""The program's start, as a process of its own: what makes the commands that answer quickly start quickly.

pyarrow imports pandas as soon as it is given a Python value, only to see whether that is a frame: half of the start of
an audit command, and of capture. Nobody gives those a frame, so there is no pandas where the process is such a command
and ends with it.

Two more things only take time there: garbage is collected hundreds of times until the last import, each time from among
all that was imported before, and numpy starts a pool of threads for linear algebra, where nobody does any.
"""

import gc
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder

WITHOUT_PANDAS = frozenset({"bootstrap", "capture", "log", "show", "row", "diff", "blame", "deleted"})
_GARBAGE = 50_000
_FRAMES = frozenset({"pandas", "polars"})
"""pyarrow asks for the first, the driver that copies for both."""


def start() -> None:
    """Run the command line."""
    if command_of(sys.argv[1:]) in WITHOUT_PANDAS:
        lean()
    from auditlake.cli import main  # noqa: PLC0415 - the first import that counts

    main()
    gc.freeze()  # what is there ends with the process: nothing is left to look for


def command_of(arguments: Sequence[str]) -> str | None:
    """Which command the arguments call; the one option before it that takes a value is --config."""
    rest = iter(arguments)
    for argument in rest:
        if argument == "--config":
            next(rest, None)
        elif not argument.startswith("-"):
            return argument
    return None


def lean() -> None:
    """Make a process start quickly whose only work is ours, before it imports what takes time."""
    gc.set_threshold(_GARBAGE)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.meta_path.insert(0, _NoFrames())


class _NoFrames(MetaPathFinder):
    """Says that there is no library of frames."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG002 - the protocol's
        if fullname in _FRAMES:
            raise ModuleNotFoundError(fullname)
