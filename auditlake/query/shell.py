r"""The shell: statements and backslash commands over one lake, from a prompt, a file or a pipe.

    select …;        a statement, over any number of lines; several on one line are a script
    \d               the tables; \d NAME the columns of one
    \as-of WHEN      from now on, read tables as of that moment, which is resolved now, to one LSN;
                     \as-of now: the latest transaction again, at each statement
    \format FORMAT   table, csv or json
    \x [on|off|auto] one value a line: always, never, or if rows are wider than the terminal; \x alone toggles
    \timing          show how long each input took, or stop that
    \?, help         this list
    \q, exit, quit   the end

`Shell` runs inputs. An error is reported and the next input runs; `run` returns the exit code of the first error, which
matters for a file or a pipe. `Prompt` reads inputs from a terminal: Enter runs a complete input and else begins another
line; history is kept between runs; Tab completes.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, tzinfo
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output

from auditlake.cancellation import ended_by_interrupt
from auditlake.errors import BadUsage
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.messages import Event, Notice, report, say
from auditlake.query.compared_columns import Columns
from auditlake.query.completion import Tables, complete
from auditlake.query.languages import SPARK_SQL, Answers, Language
from auditlake.query.output import TEXT_FORMATS, OutputForm, answer
from auditlake.query.statement import LakeState, read_state
from auditlake.terminal import working

HELP = "\n".join(__doc__.splitlines()[2:11])
_END = frozenset({"\\q", "exit", "quit"})
_HELP = frozenset({"\\?", "help"})
_LAYOUTS = {"on": True, "off": False, "auto": None}


def may_run(text: str, dialect: Language = SPARK_SQL) -> bool:
    """Return whether `text` can be run: a command, nothing, or SQL that ends in a semicolon or before a command."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\") or _word(text) in _END | _HELP:
        return True
    return dialect.is_complete(text) or _before_command(text, dialect) is not None


def _before_command(text: str, dialect: Language) -> tuple[str, str] | None:
    """Return SQL and the command after it, on the last line; None if that is none, or is in a quote or a comment."""
    sql, _, last = text.strip().rpartition("\n")
    is_command = last.startswith("\\") and sql.strip() and dialect.is_complete(f"{sql}\n;")
    return (sql, last) if is_command else None


def _word(text: str) -> str:
    """Return an input for comparison with commands: in lower case, without trailing blanks and semicolons."""
    return text.strip().rstrip(";").rstrip().lower()


def inputs_of(lines: Iterable[str], dialect: Language = SPARK_SQL) -> Iterator[str]:
    """Join lines until they can be run; an incomplete rest is an input too."""
    text = ""
    for line in lines:
        text += line
        if may_run(text, dialect):
            yield text
            text = ""
    if text:
        yield text


class Shell:
    """State between inputs: the moment, the format, the defined views, the first error."""

    def __init__(  # noqa: PLR0913 - what a session has
        self,
        lake: Lake,
        engines: Answers,
        stop_jobs: Callable[[], None],
        *,
        chatty: bool,
        zone: tzinfo = UTC,
        dialect: Language = SPARK_SQL,
        described_by: Answers | None = None,
    ) -> None:
        self._lake = lake
        self._engines = engines
        self._dialect = dialect
        self._described_by = described_by or engines
        self._stop_jobs = stop_jobs
        self._chatty = chatty
        self._zone = zone
        self._form = OutputForm("table", None, paged=chatty, zone=zone)
        self._timing = False
        self._code = 0
        self._defined: dict[str, Columns] = {}
        self.as_of: Lsn | None = None

    def run(self, inputs: Iterable[str]) -> int:
        """Run every input; return the exit code of the first that failed, else 0."""
        for text in inputs:
            if _word(text) in _END:
                break
            try:
                with self._reported(), ended_by_interrupt():
                    self._one(text.strip())
            except KeyboardInterrupt:
                self._stop_jobs()
                say("stopped")
        return self._code

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Report an error, and keep the exit code of the first, instead of ending the shell."""
        try:
            yield
        except BrokenPipeError:
            raise
        except Exception as exc:  # noqa: BLE001 - a bug in one statement does not end the others
            code = report(exc)
            self._code = self._code or code

    def _one(self, text: str) -> None:
        if _word(text) in _HELP:
            say(Notice(Event.MESSAGE, "commands:", [f"  {line}" for line in HELP.split("\n")]))
        elif text.startswith("\\"):
            command, _, argument = text.partition(" ")
            self._command(command, argument.strip())
        elif (parts := _before_command(text, self._dialect)) is not None:
            sql, command = parts
            if not self._dialect.is_complete(sql):
                raise BadUsage(f"the statement before {command} does not end", "End it with a semicolon.")
            self._one(sql)
            self._one(command)
        elif text:
            self._statements(text)

    def _command(self, command: str, argument: str) -> None:
        match command:
            case "\\d":
                self._describe(f"describe {argument}" if argument else "show tables")
            case "\\as-of" if argument:
                self.set_as_of(None if argument == "now" else argument)
            case "\\format" if argument in TEXT_FORMATS:
                self._form = replace(self._form, name=argument)
            case "\\x" if not argument or argument in _LAYOUTS:
                self._expand(argument)
            case "\\timing" if argument in {"", "on", "off"}:
                self._timing = not self._timing if not argument else argument == "on"
                say(f"timing is {'on' if self._timing else 'off'}")
            case _:
                raise BadUsage(f"{command} {argument}".strip() + " is not a command", "\\? lists the commands.")

    def _describe(self, statement: str) -> None:
        """Answer a statement about tables, which is Spark SQL in both dialects."""
        kept = self._dialect, self._engines
        self._dialect, self._engines = SPARK_SQL, self._described_by
        try:
            self._statements(statement)
        finally:
            self._dialect, self._engines = kept

    def _expand(self, argument: str) -> None:
        switched = None if self._form.expanded else True
        self._form = replace(self._form, expanded=_LAYOUTS[argument] if argument else switched)
        name = next(name for name, expanded in _LAYOUTS.items() if expanded is self._form.expanded)
        say(f"expanded layout is {name}")

    def set_as_of(self, when: str | None) -> None:
        """Pin the moment of later statements; None is the latest. Raises BadUsage, NotAnswerable."""
        self.as_of = None if when is None else read_state(self._lake, when, self._zone).lsn
        if self._chatty:
            say("as of the latest transaction" if self.as_of is None else f"as of {self.as_of}")

    def _statements(self, script: str) -> None:
        started = time.monotonic()
        state = read_state(self._lake, None if self.as_of is None else str(self.as_of), self._zone)
        written = False
        for sql in self._dialect.split(script) or [script]:
            answered = True  # a statement that fails on a row may have written earlier rows
            with self._reported():
                answered = self._statement(state, sql, first=not written)
            written |= answered
        if self._timing:
            say(f"{(time.monotonic() - started) * 1000:,.0f} ms")

    def _statement(self, state: LakeState, sql: str, *, first: bool) -> bool:
        """Run one statement; return whether it has a result."""
        query = self._dialect.prepare(state, sql, self._defined)
        with working("asking"):
            answers = self._engines.answer(state, [query])
        self._defined |= query.defined
        if query.defines is not None:
            return False

        def note(_: int, nulls: set[int]) -> None:
            for text in answers[0].notes(nulls):
                say(text)

        count = answer([each.rows for each in answers], self._form, first=first, notes=note)
        if self._chatty:
            shown = "not all rows shown" if count is None else f"{count:,} row{'' if count == 1 else 's'}"
            say(f"{shown} as of {query.lsn}")
        self._engines.report()
        return True


def history_file() -> Path:
    """Return the path of the prompt's history; create its folder."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "auditlake"
    state.mkdir(parents=True, exist_ok=True, mode=0o700)  # statements may quote rows
    return state / "shell_history"


class Prompt:
    """Prompt on a terminal; `message` and `tables` are called for each input."""

    def __init__(
        self,
        message: Callable[[], str],
        tables: Callable[[], Tables],
        history: History,
        dialect: Language = SPARK_SQL,
    ) -> None:
        self._message = message
        self._tables = tables
        self._history = history
        self._dialect = dialect

    @classmethod
    def kept(cls, message: Callable[[], str], tables: Callable[[], Tables], dialect: Language = SPARK_SQL) -> "Prompt":
        """Return a prompt whose history is kept in `history_file`."""
        return cls(message, tables, FileHistory(str(history_file())), dialect)

    def inputs(self, terminal: Input | None = None, output: Output | None = None) -> Iterator[str]:
        """Yield inputs until the end of input; Ctrl-C discards the current one."""
        session: PromptSession[str] = PromptSession(
            history=self._history,
            completer=TableCompleter(self._tables),
            complete_while_typing=False,  # only on Tab
            multiline=True,
            key_bindings=_bindings(self._dialect),
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
    """Adapter of `completion.complete` for prompt_toolkit."""

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self._tables = tables

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        for text, replaced in complete(document.text_before_cursor, self._tables(), document.text_after_cursor):
            yield Completion(text, start_position=-replaced)


def _bindings(dialect: Language) -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state and buffer.complete_state.current_completion:
            buffer.complete_state = None
        elif may_run(buffer.text, dialect):
            buffer.validate_and_handle()
        else:
            buffer.newline()

    return bindings
