"""Live view of `auditlake status --watch`: the status, read again and again, with the rates between two readings."""

import threading
from collections.abc import Callable, Iterator

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from auditlake.errors import BadUsage
from auditlake.status import Status, as_json, judge
from auditlake.terminal import console_for, show_status, show_verdict

Rate = tuple[str, float]


def watch_status(read: Callable[[], Status], every_s: float, stop: threading.Event, to: Console | None = None) -> None:
    """Show the status on the whole terminal until `stop`; raises BadUsage without a terminal, LakeUnusable."""
    to = to or console_for()
    if not to.is_terminal:
        raise BadUsage("--watch needs a terminal", "Use auditlake status --json, or --metrics-port of a running stage.")
    before = read()
    with Live(view(before, before, to.width), console=to, screen=True, auto_refresh=False) as live:
        while not stop.wait(every_s):
            now = read()
            live.update(view(now, before, to.width), refresh=True)
            before = now


def view(now: Status, before: Status, width: int) -> Group:
    """Return what the terminal shows: verdict, rates, status."""
    verdict = judge(now)
    painted = console_for(terminal_width=width)
    with painted.capture() as captured:
        show_verdict(verdict.sentence, verdict.remedy, well=not verdict.code, to=painted)
        for name, rate in rates(now, before):
            painted.print(f"{name}: {rate:,.0f} bytes/s")
        painted.print()
        show_status(as_json(now), painted)
    return Group(Text.from_ansi(captured.get()))


def rates(now: Status, before: Status) -> Iterator[Rate]:
    """Yield how fast WAL is written and captured between two readings; nothing if that is not known."""
    elapsed_s = now.read_at_s - before.read_at_s
    if elapsed_s <= 0:
        return
    slots = [status.source.slot if status.source else None for status in (before, now)]
    if slots[0] is not None and slots[1] is not None:
        yield "WAL written", (slots[1].wal_end - slots[0].wal_end) / elapsed_s
    if before.positions is not None and now.positions is not None:
        yield "WAL captured", (now.positions.acknowledged - before.positions.acknowledged) / elapsed_s
