"""Entry point: prepare the interpreter for a fast start, then run the command line."""

import gc
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


def start() -> None:
    """Run the command line; outside of it, and in a finalizer, Ctrl-C causes no traceback."""
    handler = signal.getsignal(signal.SIGINT)
    is_heard = handler is signal.default_int_handler  # else it is ignored, as under nohup
    if is_heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from auditlake.startup import lean  # noqa: PLC0415 - from here on no import is interrupted with a traceback

    lean()  # Spark sees pandas again when a session opens
    from auditlake.cli.main import main  # noqa: PLC0415 - the first slow import

    sys.unraisablehook = _report_unless_interrupted
    signal.signal(signal.SIGINT, handler)
    try:
        main()
    finally:
        if is_heard:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.freeze()  # no collection at exit: the process ends anyway


def _report_unless_interrupted(ignored: "UnraisableHookArgs") -> None:
    """Report an exception in a finalizer, which Python ignores, unless it is an interrupt."""
    if ignored.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(ignored)
