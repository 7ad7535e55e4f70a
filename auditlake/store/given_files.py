"""Files that a user names: settings, secrets, tokens, keys, the state of a webhook.

They are read at the start of a command, so reading ends, whatever has the name: a device has no end, and a named pipe
without a writer has no content. A pipe with one, such as `<(pass show token)` of a shell, is read to its end.
"""

import errno
import os
import select
import time
from collections.abc import Callable
from pathlib import Path

from auditlake.errors import AuditlakeError

MOST_BYTES = 1 << 20
_PIPE_S = 30.0
"""Enough for a program that asks a person before it writes."""
Unreadable = Callable[[str], AuditlakeError]
"""Makes the error that reports why a file cannot be read."""


def read_given(path: Path, unreadable: Unreadable) -> bytes:
    """Return the content of a file, of at most `MOST_BYTES`; raises what `unreadable` makes."""
    try:
        content = _read(path)
    except OSError as exc:
        raise unreadable(exc.strerror or type(exc).__name__) from exc
    if len(content) > MOST_BYTES:
        raise unreadable(f"it has more than {MOST_BYTES:,} bytes")
    return content


def read_given_text(path: Path, unreadable: Unreadable) -> str:
    """Return the content of a text file in UTF-8; raises what `unreadable` makes."""
    try:
        return read_given(path, unreadable).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise unreadable("it is not UTF-8") from None  # which quotes the content


def _read(path: Path) -> bytes:
    content, until = b"", time.monotonic() + _PIPE_S
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # else opening a pipe waits for a writer
    try:
        while len(content) <= MOST_BYTES:
            if not select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(errno.ETIMEDOUT, f"nothing was written to it for {_PIPE_S:.0f} s")
            part = os.read(descriptor, MOST_BYTES + 1 - len(content))
            if not part:
                break
            content += part
    finally:
        os.close(descriptor)
    return content
