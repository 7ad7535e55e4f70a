"""The command line: the group of all commands (in `commands/`), and errors as messages and exit codes.

0 done, 1 a bug, 2 usage, 3 configuration or `check` failed, 4 source unreachable, 5 slot or source is not the one
recorded, 6 lake unusable or another writer, 7 the question cannot be answered exactly.
"""

import io
import os
import sys
import threading
from pathlib import Path
from typing import TextIO

import click

from auditlake.cli.commands import audit, doctor, feed, source, stages
from auditlake.cli.commands import backup as backups
from auditlake.cli.commands import erasure as erasures
from auditlake.cli.commands import ledger as ledgers
from auditlake.cli.commands import query as questions
from auditlake.cli.commands import serve as serving
from auditlake.cli.commands import verify as verifying
from auditlake.cli.options import CONFIG
from auditlake.errors import BadUsage
from auditlake.messages import report, report_bug, report_error


def main() -> None:
    """Run a command and exit with its code."""
    threading.excepthook = lambda ended: report_bug(ended.exc_value or ended.exc_type())
    _open_streams()
    _take_any_text()
    try:
        auditlake(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as exc:
        exc.show()
        sys.exit(2)
    except click.ClickException as exc:
        report_error(_misused(exc))
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt) as exc:
        # click also raises Abort for any EOFError, as of bytecode that was stored on a full disk.
        sys.exit(report(exc.__cause__) if isinstance(exc.__cause__, EOFError) else 130)
    except Exception as exc:  # noqa: BLE001 - the one handler of bugs
        sys.exit(report(exc))
    finally:
        _let_go_of(sys.stderr)


def _open_streams() -> None:
    """Open the standard streams that the caller has closed, which are None.

    A file gets the lowest free descriptor: with stdout closed, a file of the lake would get 1, and receive the output.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - until the process ends


def _take_any_text() -> None:
    """Write UTF-8 to files and pipes, whatever the locale; a terminal shows as escapes what its encoding lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding=None if sys.stdout.isatty() else "utf-8", errors="backslashreplace")


class _Commands(click.Group):
    """The group of commands; a closed stdout (`| head`) ends with 0, where click would exit with 1."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            result = super().invoke(ctx)
            if not sys.stdout.closed:  # the SDK of MCP closes it
                sys.stdout.flush()
        except BrokenPipeError:
            _let_go_of(sys.stdout)
            ctx.exit(0)
        return result


def _let_go_of(stream: TextIO) -> None:
    """Redirect a stream to /dev/null if it takes nothing: Python flushes it at exit, and would end with code 120."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _misused(refusal: click.ClickException) -> BadUsage:
    """Turn a usage error of click into ours."""
    message = " ".join(refusal.format_message().split()).rstrip(".")  # it lists choices on lines of their own
    context = refusal.ctx if isinstance(refusal, click.UsageError) else None
    command = context.command_path if context else "auditlake"
    return BadUsage(message[:1].lower() + message[1:], f"See {command} --help.")


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@CONFIG
@click.version_option(package_name="auditlake")
@click.pass_context
def auditlake(context: click.Context, config: Path | None) -> None:
    """Keep every version of every row of a PostgreSQL database, and query it as of any moment.

    \b
    Example:
      auditlake bootstrap --source postgresql://me@host/shop --lake ./lake
      auditlake follow --until-current
      auditlake sql --as-of -2h 'select count(*) from public.orders'
    """
    context.obj = config


for _command in (
    *source.COMMANDS,
    *audit.COMMANDS,
    *feed.COMMANDS,
    *stages.COMMANDS,
    *questions.COMMANDS,
    *verifying.COMMANDS,
    *ledgers.COMMANDS,
    *erasures.COMMANDS,
    *backups.COMMANDS,
    *serving.COMMANDS,
    *doctor.COMMANDS,
):
    auditlake.add_command(_command)
