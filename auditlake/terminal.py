"""What people see beside messages: tables on stdout, and on a terminal that something takes its time, on stderr."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

STDERR = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)
_STDOUT = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)


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
