"""Options that commands share: settings, time zone, streaming, metrics, the target of a run; and ending on a signal."""

from __future__ import annotations  # settings are imported when a command runs

import functools
import getpass
import os
import select
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from auditlake.counters import Beat
from auditlake.errors import BadUsage, WrongSource
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import read_manifest, require_manifest
from auditlake.lsn import Lsn
from auditlake.messages import Event, Notice, say, use_format
from auditlake.signals import ENDING, handled
from auditlake.store.place import Place
from auditlake.values.escapes import visible

if TYPE_CHECKING:  # follow imports Spark
    from auditlake.capture.supervisor import Until
    from auditlake.config import Settings
    from auditlake.snapshot.bootstrap import Target
    from auditlake.spark.on_demand import SparkOnDemand

R = TypeVar("R")


class _File(click.Path):
    """The path of a file; an empty text, as of a variable of the shell that is not set, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as click
        if value == "":
            self.fail("it names no file", param, ctx)
        return super().convert(value, param, ctx)


class Seconds(click.FloatRange):
    """A time that a thread can wait; nan is in every range of click."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as click
        found = super().convert(value, param, ctx)
        if not found <= threading.TIMEOUT_MAX:
            self.fail(f"{found} is no number of seconds that can pass", param, ctx)
        return found


FILE = _File(path_type=Path, dir_okay=False)
CONFIG = click.option("--config", type=FILE, help="Settings file [./auditlake.toml].")


class DashedCommand(click.Command):
    """A command whose arguments may begin with a dash, as a relative time (-2h) or a negative key does.

    click would split such an argument into short options, so only a separate `-h` asks for help. One with two dashes is
    an option: an unknown one would otherwise be taken for a key or a table.
    """

    def __init__(self, name: str | None, **given: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(name, **given)
        self.context_settings = {"ignore_unknown_options": True, "help_option_names": ["--help"]}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours = args[: args.index("--")] if "--" in args else args
        options = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        named = [each.partition("=")[0] for each in ours if each.startswith("--")]
        if unknown := [name for name in named if name not in options]:
            from difflib import get_close_matches  # noqa: PLC0415 - only after a failure

            raise click.NoSuchOption(unknown[0], possibilities=get_close_matches(unknown[0], options), ctx=ctx)
        return super().parse_args(ctx, ["--help"] if "-h" in ours else args)


_OTHERS = (
    *("tz", "dialect", "streaming", "spool", "copy_connections", "copy_bytes_per_s", "allow_gap", "metrics_port"),
)
"""Settings with an option on some commands only."""
_ENGINE = "engine_of_pipeline"
"""The option --engine of the pipeline; that of `sql` is no setting."""


def with_settings(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options of settings to a command and pass it one `settings`."""

    @CONFIG
    @click.option("--source", help="libpq URI or conninfo of the database.")
    @click.option("--lake", help="Folder of the lake [./lake].")
    @click.option("--slot", help="Replication slot [that of the lake; auditlake for a new one].")
    @click.option("--publication", help="Publication [that of the lake; auditlake for a new one].")
    @click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        help="Form of the messages on stderr [text].",
        is_eager=True,
        callback=_use_at_once,
    )
    @click.pass_context
    @functools.wraps(command)
    def wrapped(context: click.Context, /, config: Path | None, **given: object) -> R:
        flags = {name: given.pop(name) for name in ("source", "lake", "slot", "publication", "log_format")}
        if given.get("tables"):
            flags["tables"] = given.pop("tables")
        flags |= {name: given.pop(name) for name in _OTHERS if name in given}
        flags |= {"engine": given.pop(_ENGINE)} if _ENGINE in given else {}
        from auditlake.config import load_settings  # noqa: PLC0415 - as above

        settings = load_settings(config or context.obj, **flags)
        use_format(settings.log_format)
        with _damage_named(settings):
            return command(settings=settings, **given)

    return wrapped


@contextmanager
def _damage_named(settings: Settings) -> Iterator[None]:
    """Raise an error that names the damaged file of the lake, in place of one that such a file caused."""
    try:
        yield
    except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
        raise
    except Exception as exc:
        from auditlake.verify.damage import damage_behind  # noqa: PLC0415 - only after a failure

        if (damage := damage_behind(exc, lake_of(settings))) is not None:
            raise damage from exc
        raise


def _use_at_once(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Use the format for errors in the other options, too."""
    if value is not None:
        use_format(value)
    return value


def confirm(question: str) -> None:
    """Ask on stderr whether to go on; abort if the answer is no. Raises BadUsage if nobody can answer."""
    try:
        click.confirm(visible(question), abort=True, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise BadUsage("the question was not answered with yes, nothing was changed", "Add --yes.") from None


def this_user() -> str:
    """Return the name of the system's user; in a container, which may have no name for it, its number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the first before Python 3.13
        return f"uid {os.getuid()}"


with_gaps = click.option(
    "--allow-gap", is_flag=True, help="Answer inside a gap with the last known state before it, and say so."
)
with_zone = click.option(
    "--tz", metavar="ZONE", help="Time zone of times without one, and of those shown: Europe/Paris, local [UTC]."
)
with_dialect = click.option(
    "--dialect",
    type=click.Choice(["spark", "postgres"]),
    help="Whose SQL it is [postgres, or spark if Spark is demanded].",
)
with_metrics = click.option(
    "--metrics-port", metavar="[ADDRESS:]PORT", help="Serve /metrics, /healthz and /readyz here [not at all]."
)
with_engine = click.option(
    "--engine",
    _ENGINE,
    type=click.Choice(["auto", "spark", "duckdb"]),
    help="In this process what fits, else Spark; all of it in Spark; or nothing in Spark [auto].",
)
"""The engine of the pipeline."""


def with_streaming(command: Callable[..., R]) -> Callable[..., R]:
    """Add the streaming options to a command that captures; use it below `with_settings`."""
    command = click.option("--spool", help="Folder for large transactions until they commit [the system's].")(command)
    modes = click.Choice(["off", "on", "parallel"])
    return click.option("--streaming", type=modes, help="Take large transactions while they run [on].")(command)


def lake_of(settings: Settings) -> Lake:
    """Return the lake of a command: opened once, so that its stages, metrics and questions share one session."""
    context = click.get_current_context(silent=True)
    opened: dict[Place, Lake] = {} if context is None else context.meta.setdefault(_OPENED, {})
    return opened.setdefault(settings.lake, Lake(settings.lake))


def existing_lake_of(settings: Settings) -> Lake:
    """Return the lake of a command that needs one; raises LakeUnusable without it."""
    lake = lake_of(settings)
    require_manifest(lake)
    return lake


def spark_of(settings: Settings) -> SparkOnDemand:
    """Return the Spark of a command, with the engine that is set."""
    from auditlake.spark.on_demand import SparkOnDemand  # noqa: PLC0415 - only for commands of the pipeline

    return SparkOnDemand(settings.spark, settings.engine, settings.spark_idle_s)


def with_target(command: Callable[..., R]) -> Callable[..., R]:
    """Add the two options of a target to a command, and pass it as `until`."""

    @click.option("--until-current", is_flag=True, help="Return when all that is committed now is done.")
    @click.option("--until-lsn", metavar="LSN", help="Return when everything before this LSN is done.")
    @functools.wraps(command)
    def wrapped(*, until_current: bool, until_lsn: str | None, **given: object) -> R:
        if until_current and until_lsn:
            raise BadUsage("--until-current and --until-lsn exclude each other", "Use one of them, or neither.")
        return command(until=_target(until_lsn, until_current=until_current), **given)

    return wrapped


def _target(text: str | None, *, until_current: bool) -> Until:
    if text is None:
        return "current" if until_current else None
    try:
        return Lsn.parse(text)
    except ValueError as exc:
        raise BadUsage(str(exc), "Write it as PostgreSQL does: select pg_current_wal_lsn().") from None


class Stop(threading.Event):
    """Set by a signal that asks the process to end; `signal` is its name.

    The handler runs between two instructions of the thread that waits. `Event.set` would take a lock that this thread
    may hold in `Event.wait`, and both would stand still for ever, so a pipe carries the event.
    """

    def __init__(self) -> None:
        super().__init__()
        self.signal: str | None = None
        self._is_set = False
        self._reader, self._writer = os.pipe()
        weakref.finalize(self, _close, self._reader, self._writer)

    def by(self, number: int) -> None:
        """Record the first signal, and set the event."""
        self.signal = self.signal or signal.Signals(number).name
        self.set()

    def is_set(self) -> bool:
        """Return whether the event is set."""
        return self._is_set

    def set(self) -> None:
        """Set the event for good: the byte in the pipe is never read."""
        if not self._is_set:
            self._is_set = True
            os.write(self._writer, b".")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set, at most `timeout` seconds; return whether it is."""
        if not self._is_set:
            waiting = select.poll()
            waiting.register(self._reader, select.POLLIN)
            waiting.poll(None if timeout is None else max(timeout, 0) * 1000)
        return self._is_set


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """Yield an event that SIGINT, SIGTERM and SIGHUP set, so that a command ends after its current batch."""
    stop = Stop()
    with handled(ENDING, lambda number, _: stop.by(number)):
        yield stop


@contextmanager
def exported_metrics(settings: Settings, *stages: Beat) -> Iterator[None]:
    """Export the metrics of these stages in the block, if the settings ask for it; raises ConfigError."""
    if settings.metrics_port is None:
        yield
        return
    from auditlake.metrics.server import exporting  # noqa: PLC0415 - its library is imported only if asked for

    reads_source = settings.source is not None and not {Beat.APPLY, Beat.WEBHOOK}.issuperset(stages)
    conninfo = settings.source_required() if reads_source else None
    address, port = settings.metrics_port
    with exporting(address, port, frozenset(stages), lake_of(settings), conninfo) as url:
        say(Notice(Event.METRICS_SERVED, f"metrics are at {url}"))
        yield


@contextmanager
def notified_manager(stop: threading.Event, *stages: Beat) -> Iterator[None]:
    """Notify the environment's service manager of these stages during the block; raises ConfigError."""
    if not os.environ.get("NOTIFY_SOCKET"):
        yield
        return
    from auditlake.metrics.service import notified  # noqa: PLC0415 - few processes have a service manager

    with notified(frozenset(stages), stop):
        yield


_OPENED = "auditlake.lakes"


def with_recorded_names(settings: Settings) -> Settings:
    """Return the settings with the slot and the publication that the lake records; without a lake, unchanged.

    Raises WrongSource if a flag, the environment or the file has others: a lake is captured from one slot.
    """
    recorded = read_manifest(lake_of(settings))
    if recorded is None:
        return settings
    names = {"slot": recorded.slot, "publication": recorded.publication}
    for name in settings.model_fields_set & names.keys():
        if (given := getattr(settings, name)) != names[name]:
            raise WrongSource(
                f"this lake records {name} {names[name]}, the setting {name} is {given}",
                f"Leave out the setting {name}, or use another folder as lake.",
            )
    return settings.model_copy(update=names)


def bootstrap_target(settings: Settings) -> Target:
    """Return the settings of a bootstrap, with the names that the lake records; raises WrongSource."""
    from auditlake.snapshot.bootstrap import Target  # noqa: PLC0415 - only for commands that copy
    from auditlake.snapshot.scheduler import SourceLoad  # noqa: PLC0415

    named = with_recorded_names(settings)
    return Target(
        settings.source_required(),
        lake_of(settings),
        named.slot,
        named.publication,
        settings.tables,
        failover=settings.failover,
        streaming=settings.how_to_stream,
        limits=SourceLoad(settings.copy_connections, settings.copy_bytes_per_s),
        masking=settings.masking,
    )
