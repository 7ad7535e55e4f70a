"""Text on stdout for other programs: UTF-8, byte for byte. `click.echo` would remove escape sequences."""

import sys

from auditlake.errors import BadUsage
from auditlake.escape import visible


def write_exactly(text: str) -> None:
    """Write a text and a newline.

    Raises BadUsage if stdout is a terminal and the text has control characters, which a terminal would execute.
    """
    if sys.stdout.isatty() and any(line != visible(line) for line in text.split("\n")):
        raise BadUsage(
            "the output has control characters, which a terminal would execute", "Write it to a file or a pipe."
        )
    sys.stdout.flush()
    sys.stdout.buffer.write(f"{text}\n".encode())
    sys.stdout.buffer.flush()
