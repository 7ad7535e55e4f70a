"""What commands have in common: the options of every setting, the target of a run, and ending on a signal."""

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from auditlake.config import load_settings
from auditlake.errors import BadUsage
from auditlake.lsn import Lsn

if TYPE_CHECKING:  # follow imports Spark
    from auditlake.capture.running import Until

R = TypeVar("R")


def with_settings(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options of every setting and pass it one `settings`."""

    @click.option("--source", help="libpq URI or conninfo of the database.")
    @click.option("--lake", help="Folder of the lake [./lake].")
    @click.option("--slot", help="Replication slot [auditlake].")
    @click.option("--publication", help="Publication [auditlake].")
    @click.pass_context
    @functools.wraps(command)
    def wrapped(context: click.Context, /, **given: object) -> R:
        flags = {name: given.pop(name) for name in ("source", "lake", "slot", "publication")}
        if given.get("tables"):
            flags["tables"] = given.pop("tables")
        others = ("streaming", "spool", "copy_connections", "copy_bytes_per_s")
        flags |= {name: given.pop(name) for name in others if name in given}
        return command(settings=load_settings(context.obj, **flags), **given)

    return wrapped


def with_streaming(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command that captures the settings of streaming; goes below `with_settings`."""
    command = click.option("--spool", help="Folder for large transactions until they commit [the system's].")(command)
    modes = click.Choice(["off", "on", "parallel"])
    return click.option("--streaming", type=modes, help="Take large transactions while they run [on].")(command)


def with_target(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the two ways to say how far it should go."""

    @click.option("--until-current", is_flag=True, help="Return when all that is committed now is done.")
    @click.option("--until-lsn", metavar="LSN", help="Return when everything before this LSN is done.")
    @functools.wraps(command)
    def wrapped(*, until_current: bool, until_lsn: str | None, **given: object) -> R:
        if until_current and until_lsn:
            raise BadUsage("--until-current and --until-lsn exclude each other", "Give one of them, or neither.")
        return command(until=_target(until_lsn, until_current=until_current), **given)

    return wrapped


def _target(text: str | None, *, until_current: bool) -> "Until":
    if text is None:
        return "current" if until_current else None
    try:
        return Lsn.parse(text)
    except ValueError as exc:
        raise BadUsage(str(exc), "Write it as PostgreSQL does: select pg_current_wal_lsn().") from None


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Give an event that SIGINT and SIGTERM set, so that a command ends after the batch it is in."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
