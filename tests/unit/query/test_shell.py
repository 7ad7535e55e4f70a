"""Inputs of the shell, from a pipe and from a terminal."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from auditlake.query.shell import Prompt, TableCompleter, inputs_of, may_run
from auditlake.relation import TableName


@pytest.mark.parametrize(
    "text",
    ["select 1;", "select 1; -- done", "exit", "QUIT ", "help", "help;", "\\d", " \\as-of -2h", "", "\n", "-- nothing"],
)
def test_a_complete_input_is_run(text: str) -> None:
    """A semicolon ends a statement, the end of the line a command."""
    assert may_run(text)


@pytest.mark.parametrize("text", ["select 1", "select ';", "select 1 -- ;", "select `;`", "select 1 /* ;"])
def test_an_incomplete_input_is_continued(text: str) -> None:
    """A semicolon in a string, a name or a comment does not end a statement."""
    assert not may_run(text)


def test_lines_of_a_pipe_are_joined_to_inputs() -> None:
    """Statements over several lines, commands between them, and an unfinished one at the end."""
    lines = ["select\n", "1;\n", "\\d\n", "\n", "select ';\n", "'; select 2;\n", "select 3"]
    assert list(inputs_of(lines)) == ["select\n1;\n", "\\d\n", "\n", "select ';\n'; select 2;\n", "select 3"]


def test_a_command_ends_a_statement_without_a_semicolon() -> None:
    """The statement is not run, the command neither; the inputs after them are read as ever."""
    assert list(inputs_of(["select 1\n", "\\d\n", "select 2;\n"])) == ["select 1\n\\d\n", "select 2;\n"]


def test_a_backslash_in_a_text_of_several_lines_is_no_command() -> None:
    """A quote and a comment go on."""
    assert not may_run("select '\n\\d")
    assert not may_run("select /*\n\\d")


def test_a_prompt_reads_inputs_and_keeps_its_history(tmp_path: Path) -> None:
    """Enter continues an incomplete statement; Ctrl-C discards it; history is kept for the next prompt."""
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


def test_a_completion_replaces_the_typed_part_of_the_word() -> None:
    """The text before it stays."""
    completer = TableCompleter(lambda: {TableName("public", "orders"): ["order_id"]})
    document = Document("select * from public.ord")
    found = list(completer.get_completions(document, CompleteEvent(completion_requested=True)))
    assert [(one.text, one.start_position) for one in found] == [("orders", -3)]
