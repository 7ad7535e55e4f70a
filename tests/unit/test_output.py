"""Text for other programs: exact on a pipe, refused on a terminal that would execute it. And literals of PostgreSQL."""

import io
from contextlib import redirect_stdout

import pytest

from auditlake.errors import BadUsage
from auditlake.messages import write_exactly


class _Stdout(io.TextIOWrapper):
    terminal = False

    def isatty(self) -> bool:
        return self.terminal


def _written(text: str, *, terminal: bool) -> bytes:
    raw = io.BytesIO()
    stdout = _Stdout(raw, "latin-1")
    stdout.terminal = terminal
    with redirect_stdout(stdout):
        write_exactly(text)
    return raw.getvalue()


def test_escape_sequences_and_letters_beyond_ascii_are_kept() -> None:
    """Also if stdout is not UTF-8."""
    assert _written("\x1b[31mé€\x1b[0m", terminal=False) == "\x1b[31mé€\x1b[0m\n".encode()


def test_a_terminal_gets_no_control_characters() -> None:
    """Line ends are allowed; an escape sequence is refused."""
    assert _written("a\nb", terminal=True) == b"a\nb\n"
    with pytest.raises(BadUsage, match="control characters"):
        _written("a\nb\x1b[2J", terminal=True)
