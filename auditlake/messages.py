"""What is told on stderr: messages, errors, bugs. Plain lines, so that no command loads a terminal's library for them.

Messages are lower case without a final stop, prefixed with the program's name; hints are sentences. Where progress is
being drawn, its library takes what is written here and puts it above.
"""

import sys
import traceback

from auditlake.errors import AuditlakeError


def say(message: str) -> None:
    """Tell what happens."""
    print(f"auditlake: {message}", file=sys.stderr)  # noqa: T201 - this is where it is done


def report_error(error: AuditlakeError) -> None:
    """Tell an error and its hint."""
    say(f"error: {error.message}")
    if error.hint:
        say(f"hint: {error.hint}")


def report_bug(error: BaseException) -> None:
    """Tell where an unexpected exception came from, without its message: that may quote rows of the source."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    say(f"error: unexpected {type(error).__name__} at\n{frames.rstrip()}")
    say("hint: This is a bug in auditlake; nothing was lost. Please report the lines above.")
