"""What people see: data on stdout, everything else on stderr.

Messages are lower case without a final stop, prefixed with the program's name; hints are sentences. On a terminal
progress may redraw; elsewhere every message is one plain line.
"""

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from auditlake.errors import AuditlakeError

STDERR = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)
_STDOUT = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)


def say(message: str) -> None:
    """Tell what happens, on stderr."""
    STDERR.print(f"auditlake: {message}")


def show(table: Table) -> None:
    """Print a table on stdout."""
    _STDOUT.print(table)


def plain_table(*headers: str, title: str | None = None) -> Table:
    """Return a table in our look, without boxes around every cell."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, no_wrap=True)
    return table


def show_status(facts: Mapping[str, object]) -> None:
    """Print a status as `status.as_json` gives it."""
    table = plain_table("", "")
    for name, value in facts.items():
        if name != "tables":
            table.add_row(name.replace("_", " "), "-" if value is None else str(value))
    show(table)
    tables = plain_table("table", "horizon", "position")
    for entry in cast("list[dict[str, str]]", facts["tables"]):
        tables.add_row(entry["table"], entry["horizon"], entry["position"])
    show(tables)


def report_error(error: AuditlakeError) -> None:
    """Print an error and its hint on stderr."""
    STDERR.print(f"auditlake: error: {error.message}")
    if error.hint:
        STDERR.print(f"auditlake: hint: {error.hint}")


def report_bug(error: BaseException) -> None:
    """Print where an unexpected exception came from, without its message: that may quote rows of the source."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    STDERR.print(f"auditlake: error: unexpected {type(error).__name__} at\n{frames}", end="")
    STDERR.print("auditlake: hint: This is a bug in auditlake; nothing was lost. Please report the lines above.")


@contextmanager
def working(message: str) -> Iterator[None]:
    """Show on a terminal that something takes its time, and how long it has; elsewhere show nothing."""
    if not STDERR.is_terminal:
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=STDERR, transient=True) as progress:
        progress.add_task(message, total=None)
        yield
