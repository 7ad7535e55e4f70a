"""Entry point: prepare the interpreter for a fast start if the command allows it, then run the command line."""

import gc
import sys
from collections.abc import Sequence

from auditlake.startup import lean

WITHOUT_PANDAS = frozenset(
    {
        "bootstrap",
        "capture",
        "apply",
        "follow",
        "log",
        "show",
        "row",
        "diff",
        "blame",
        "deleted",
        "webhook",
        "sql",
        "shell",
        "serve",
        "mcp",
        "status",
    }
)


def start() -> None:
    """Run the command line."""
    if command_of(sys.argv[1:]) in WITHOUT_PANDAS:
        lean()
    from auditlake.cli.main import main  # noqa: PLC0415 - the first slow import

    main()
    gc.freeze()  # no collection at exit: the process ends anyway


def command_of(arguments: Sequence[str]) -> str | None:
    """Return the command in the arguments; --config is the only option with a value before it."""
    rest = iter(arguments)
    for argument in rest:
        if argument == "--config":
            next(rest, None)
        elif not argument.startswith("-"):
            return argument
    return None
