"""The shell's prompt on a terminal: editing over several lines, history between runs, completion.

Enter runs what is complete and else begins another line.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output

from auditlake.query.completion import Tables, complete
from auditlake.query.shell import is_complete


def history_file() -> Path:
    """Name the file that keeps what was typed; its folder is made."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "auditlake"
    state.mkdir(parents=True, exist_ok=True, mode=0o700)  # statements may quote rows
    return state / "shell_history"


class Prompt:
    """Asks for one input after the other; `message` is asked for anew each time, as are the tables to complete."""

    def __init__(self, message: Callable[[], str], tables: Callable[[], Tables], history: History) -> None:
        self._message = message
        self._tables = tables
        self._history = history

    @classmethod
    def kept(cls, message: Callable[[], str], tables: Callable[[], Tables]) -> "Prompt":
        """Make a prompt whose history is kept in `history_file`."""
        return cls(message, tables, FileHistory(str(history_file())))

    def inputs(self, terminal: Input | None = None, output: Output | None = None) -> Iterator[str]:
        """Yield what is typed, until the end of input; Ctrl-C gives up what is being typed."""
        session: PromptSession[str] = PromptSession(
            history=self._history,
            completer=TableCompleter(self._tables),
            complete_while_typing=False,  # Tab asks for it
            multiline=True,
            key_bindings=_bindings(),
            input=terminal,
            output=output,
        )
        while True:
            try:
                yield session.prompt(self._message(), prompt_continuation="... ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return


class TableCompleter(Completer):
    """`completion.complete`, as prompt_toolkit asks for it."""

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self._tables = tables

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        for text, replaced in complete(document.text_before_cursor, self._tables()):
            yield Completion(text, start_position=-replaced)


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state and buffer.complete_state.current_completion:
            buffer.complete_state = None
        elif is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline()

    return bindings
