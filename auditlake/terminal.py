"""Output for people beside messages: tables on stdout, and on a terminal the progress of a long step on stderr.

Cells and names may come from the source: control and invisible characters in them are escaped here.

A table wider than the terminal is printed in expanded layout: one value a line, under the number of its row. A file or
a pipe has no width, so nothing is wrapped or truncated there.
"""

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, cast

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from auditlake.values.escapes import visible

_UNLIMITED = sys.maxsize


class _Console(Console):
    """A console that reports a closed pipe as an exception; rich would end the process with code 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


STDERR = _Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def console_for(out: TextIO | None = None, *, terminal_width: int | None = None) -> Console:
    """Return a console that prints to `out` (stdout); a `terminal_width` treats it as a terminal of that width."""
    forced = None if terminal_width is None else True
    found = _Console(file=out, highlight=False, markup=False, emoji=False, force_terminal=forced, width=terminal_width)
    if not found.is_terminal:
        found.width = _UNLIMITED
    return found


def show(table: Table, to: Console | None = None, *, expanded: bool | None = None, first: int = 1) -> None:
    """Print a table; None expands it if it does not fit. `first` is the number of its first row."""
    to = to or console_for()
    if expanded or (expanded is None and not _fits(table, to)):
        _show_expanded(table, to, first)
    else:
        to.print(table)


def _fits(table: Table, to: Console) -> bool:
    unlimited = to.options.update(max_width=_UNLIMITED)
    return Measurement.get(to, unlimited, table).maximum <= to.width


def _show_expanded(table: Table, to: Console, first: int) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(overflow="fold", style="bold")
    grid.add_column(overflow="fold")
    for number, row in enumerate(zip(*(column.cells for column in table.columns), strict=True), first):
        grid.add_row(f"── {number:,} ──", "")
        for column, cell in zip(table.columns, row, strict=True):
            header = column.header
            grid.add_row(_on_one_line(header) if isinstance(header, str) else header, cell)
    to.print(grid)


def _on_one_line(header: str) -> str:
    return header.replace("-\n", "").replace("\n", " ")


class _Escaping(Table):
    """A table whose cells have no control characters."""

    def add_row(self, *cells: RenderableType | None, **given: Any) -> None:  # noqa: ANN401 - as rich
        """Add a row."""
        super().add_row(*(Text(visible(cell)) if isinstance(cell, str) else cell for cell in cells), **given)


def plain_table(*headers: str, right: Collection[str] = ()) -> Table:
    """Return a table in our style, without boxes around every cell; the `right` columns are aligned to the right."""
    table = _Escaping(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, overflow="fold", justify="right" if header in right else "left")
    return table


def show_verdict(sentence: str, remedy: str | None, *, well: bool, to: Console | None = None) -> None:
    """Print the verdict on a lake in one sentence, and the remedy."""
    to = to or console_for()
    to.print(Text(visible(sentence), "bold green" if well else "bold red"))
    if remedy:
        to.print(visible(remedy))


def show_status(facts: Mapping[str, object], to: Console | None = None) -> None:
    """Print a status in the form of `status.as_json`."""
    to = to or console_for()
    listed = {"tables", "new_tables", "unfollowed_tables", "holds", "unfinished_erasures", "returned_rows"}
    shown = {name: value for name, value in facts.items() if name not in listed}
    width = max(map(len, shown))
    for name, value in shown.items():
        text = f"{value:,.1f}" if isinstance(value, float) else visible(str(value))
        to.print(f"{name.replace('_', ' '):<{width}}  {'-' if value is None else text}")
    entries = cast("list[dict[str, Any]]", facts["tables"])
    tables = plain_table("table", "horizon", "position", "state")
    for entry in entries:
        tables.add_row(entry["table"], entry["horizon"], entry["position"], _state(entry["parked"]))
    for kind in ("new", "unfollowed"):
        for name in cast("list[str] | None", facts[f"{kind}_tables"]) or ():
            tables.add_row(name, "-", "-", kind)
    to.print()
    show(tables, to)
    for entry in entries:
        if parked := entry["parked"]:
            what = "is known up to" if parked["ended"] else "is parked at"
            found = f"{entry['table']} {what} {parked['lsn']}: {parked['reason']}. {parked['remedy']}"
            to.print(f"\n{visible(found)}")
    if held := cast("list[dict[str, Any]]", facts["holds"]):
        to.print()
        show_holds(held, to)


_OF_LOG = (("versions", "rows"), ("ended_before", "committed_before"))
"""How `show_expiries` finds rows and time, which are called otherwise for the log."""


def show_expiries(expiries: Sequence[Mapping[str, Any]]) -> None:
    """Print what would expire, in the form of `as_json` in `erasure.retention` and `erasure.expiring_log`."""
    table = plain_table("table", "rows", "bytes", "before", "whole months", "others", "new horizon", "kept by")
    for each in expiries:
        months = (_period(each[name]) for name in ("whole_months", "partial_months"))
        rows, before = (each.get(own, each.get(other)) for own, other in _OF_LOG)
        size, kept = (f"{rows:,}", f"{each['bytes']:,}"), each["held_by"] or each.get("needed") or "-"
        table.add_row(each["table"], *size, before, *months, each["new_horizon"], kept)
    show(table)


def _period(months: Sequence[str]) -> str:
    """Return the first and the last of some months."""
    return " to ".join(dict.fromkeys([months[0], months[-1]])) if months else "-"


def show_holds(holds: Sequence[Mapping[str, Any]], to: Console | None = None) -> None:
    """Print holds in the form of `status.hold_json`."""
    table = plain_table("held by", "tables", "row", "since", "until", "who", "why")
    for each in holds:
        rows = "all" if each["token"] is None else f"token {each['token'][:12]}…"
        table.add_row(
            each["name"], each["tables"], rows, each["since"], each["until"] or "-", each["by"], each["reason"]
        )
    show(table, to or console_for())


def _state(parked: Mapping[str, object] | None) -> str:
    if parked is None:
        return "followed"
    return "ended" if parked["ended"] else "parked"


@contextmanager
def working(message: str) -> Iterator[None]:
    """Show a spinner and the elapsed time on a terminal; elsewhere show nothing."""
    if not STDERR.is_terminal:
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=STDERR, transient=True) as progress:
        progress.add_task(message, total=None)
        yield
