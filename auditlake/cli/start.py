"""Entry point: prepare the interpreter for a fast start, then run the command line."""

import gc

from auditlake.startup import lean


def start() -> None:
    """Run the command line."""
    lean()  # Spark sees pandas again when a session opens
    from auditlake.cli.main import main  # noqa: PLC0415 - the first slow import

    main()
    gc.freeze()  # no collection at exit: the process ends anyway
