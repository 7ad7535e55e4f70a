r"""The shell: statements and backslash commands one after the other, over one Spark session.

    select …;        a statement, over as many lines as it takes; several on one line are a script
    \d               the tables; \d NAME the columns of one
    \as-of WHEN      from now on, tables are as of that moment, which is resolved here and now, to one LSN;
                     \as-of now: the latest transaction again, looked up anew for every statement
    \format FORMAT   table, csv or json
    \?               this list
    \q               the end

An error is reported and the shell goes on. `run` returns the exit code of the first error, which counts where the
input is a file or a pipe. Where lines come from is the caller's.
"""

import time
from collections.abc import Callable, Iterable, Iterator

from pyspark.sql import SparkSession
from sqlglot import TokenType

from auditlake.errors import AuditlakeError, BadUsage
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.messages import report_bug, report_error, say
from auditlake.query.answer import Form, answer
from auditlake.query.dialect import tokenize
from auditlake.query.moments import read_known
from auditlake.query.render import TEXT_FORMATS
from auditlake.query.sql import ask_all, moment_lsn, prepare_script
from auditlake.terminal import working

HELP = "\n".join(__doc__.splitlines()[2:10])
_BUG = 1


def is_complete(text: str) -> bool:
    """Whether to run `text` now: a backslash command, nothing at all, or SQL that ends in a semicolon."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\"):
        return True
    try:
        tokens = tokenize(text)
    except BadUsage:  # a quote is still open
        return False
    return not tokens or tokens[-1].token_type is TokenType.SEMICOLON


def gathered(lines: Iterable[str]) -> Iterator[str]:
    """Put lines together until they can be run; what is left at the end is run too."""
    text = ""
    for line in lines:
        text += line
        if is_complete(text):
            yield text
            text = ""
    if text:
        yield text


class Shell:
    """What lasts from one input to the next: the moment, the format, the views defined, the first error."""

    def __init__(self, lake: Lake, start: Callable[[], SparkSession], *, chatty: bool) -> None:
        self._lake = lake
        self._start = start
        self._chatty = chatty
        self._form = Form("table", None)
        self._code = 0
        self._defined: frozenset[str] = frozenset()
        self.as_of: Lsn | None = None

    def run(self, inputs: Iterable[str]) -> int:
        """Do every input; return the exit code of the first that failed, else 0."""
        for text in inputs:
            if text.strip() == "\\q":
                break
            try:
                self._one(text.strip())
            except AuditlakeError as exc:
                report_error(exc)
                self._code = self._code or exc.exit_code
            except KeyboardInterrupt:
                self._start().sparkContext.cancelAllJobs()
                say("stopped")
            except BrokenPipeError:
                raise
            except Exception as exc:  # noqa: BLE001 - a bug in one statement does not end the others
                report_bug(exc)
                self._code = self._code or _BUG
        return self._code

    def _one(self, text: str) -> None:
        if text.startswith("\\"):
            command, _, argument = text.partition(" ")
            self._command(command, argument.strip())
        elif text:
            self._statements(text)

    def _command(self, command: str, argument: str) -> None:
        match command:
            case "\\d":
                self._statements(f"describe {argument}" if argument else "show tables")
            case "\\as-of" if argument:
                self.set_as_of(None if argument == "now" else argument)
            case "\\format" if argument in TEXT_FORMATS:
                self._form = Form(argument, None)
            case "\\?":
                say(f"commands:\n{HELP}")
            case _:
                raise BadUsage(f"{command} {argument}".strip() + " is no command here", "\\? lists them.")

    def set_as_of(self, when: str | None) -> None:
        """Pin the moment of every following statement; None goes back to the latest transaction.

        Raises BadUsage, NotAnswerable.
        """
        self.as_of = None if when is None else moment_lsn(read_known(self._lake), when)
        if self._chatty:
            say("as of the latest transaction" if self.as_of is None else f"as of {self.as_of}")

    def _statements(self, script: str) -> None:
        started = time.monotonic()
        as_of = None if self.as_of is None else str(self.as_of)
        questions = prepare_script(self._lake, script, as_of, self._defined)
        with working("asking"):
            results = ask_all(self._start(), questions)
        self._defined |= {question.defines.casefold() for question in questions if question.defines}
        count = answer(results, self._form)
        if self._chatty:
            plural = "" if count == 1 else "s"
            say(f"{count:,} row{plural} as of {questions[-1].lsn}, {time.monotonic() - started:.1f} s")
