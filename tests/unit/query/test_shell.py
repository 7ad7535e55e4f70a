"""What the shell takes as one input, from a pipe and from a terminal."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from auditlake.query.prompt import Prompt, TableCompleter
from auditlake.query.shell import gathered, is_complete
from auditlake.relation import TableName


@pytest.mark.parametrize("text", ["select 1;", "select 1; -- done", "\\d", " \\as-of -2h", "", "\n", "-- nothing"])
def test_complete(text: str) -> None:
    """A semicolon ends a statement, the line's end a command."""
    assert is_complete(text)


@pytest.mark.parametrize("text", ["select 1", "select ';", "select 1 -- ;", "select `;`", "select 1 /* ;"])
def test_not_complete(text: str) -> None:
    """A semicolon in a text, a name or a comment ends nothing."""
    assert not is_complete(text)


def test_lines_of_a_pipe_are_put_together() -> None:
    """Statements over several lines, commands between them, and an unfinished one at the end."""
    lines = ["select\n", "1;\n", "\\d\n", "\n", "select ';\n", "'; select 2;\n", "select 3"]
    assert list(gathered(lines)) == ["select\n1;\n", "\\d\n", "\n", "select ';\n'; select 2;\n", "select 3"]


def test_a_terminal(tmp_path: Path) -> None:
    """Enter goes on where a statement is not complete; Ctrl-C drops it; the history outlives the prompt."""
    file = tmp_path / "history"

    def typed(keys: str) -> list[str]:
        def some() -> Iterator[str]:
            with create_pipe_input() as terminal:
                terminal.send_text(keys)
                prompt = Prompt(lambda: "> ", dict, FileHistory(str(file)))
                yield from prompt.inputs(terminal, DummyOutput())

        return list(some())

    assert typed("select 1\rfrom public.orders;\r\\d\r\x04") == ["select 1\nfrom public.orders;", "\\d"]
    assert typed("\x1b[A\x1b[A\r\x04") == ["select 1\nfrom public.orders;"]
    assert typed("half\x03select 2;\r\x04") == ["select 2;"]


def test_completions_stand_where_the_word_began() -> None:
    """What is typed of a word is replaced, and nothing else."""
    completer = TableCompleter(lambda: {TableName("public", "orders"): ["order_id"]})
    document = Document("select * from public.ord")
    found = list(completer.get_completions(document, CompleteEvent(completion_requested=True)))
    assert [(one.text, one.start_position) for one in found] == [("orders", -3)]
