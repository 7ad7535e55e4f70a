"""Entry point: prepare the interpreter for a fast start, then run the command line."""

import gc
import signal


def start() -> None:
    """Run the command line; until it handles Ctrl-C, this ends the process without a traceback of imports."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # else it is ignored, as under nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from auditlake.startup import lean  # noqa: PLC0415 - from here on no import is interrupted with a traceback

    lean()  # Spark sees pandas again when a session opens
    from auditlake.cli.main import main  # noqa: PLC0415 - the first slow import

    signal.signal(signal.SIGINT, handler)
    main()
    gc.freeze()  # no collection at exit: the process ends anyway
