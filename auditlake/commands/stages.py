"""Commands that follow the source, and the one that shows how far they are."""

import json
from typing import TYPE_CHECKING

import click

from auditlake.config import Settings
from auditlake.lake.layout import Lake
from auditlake.messages import say
from auditlake.options import stopped_by_signals, with_settings, with_streaming, with_target

if TYPE_CHECKING:
    from auditlake.capture.running import Task, Until


@click.command()
@with_settings
@with_streaming
@with_target
def follow(settings: Settings, until: "Until") -> None:
    """Keep the history up to date, until stopped or as far as told.

    \b
    Example:
      auditlake follow --until-current
    """
    from auditlake import follow as stage
    from auditlake.lake.session import spark_session

    with stopped_by_signals() as stop:
        task = _task(settings, until)
        stage.follow(task, lambda: spark_session(settings.spark), stop, say)


@click.command()
@with_settings
@with_streaming
@with_target
def capture(settings: Settings, until: "Until") -> None:
    """Make changes durable in the lake; the light half of follow, without a JVM.

    \b
    Example:
      auditlake capture
    """
    from auditlake.capture.running import run_capture

    with stopped_by_signals() as stop:
        task = _task(settings, until)
        run_capture(task, stop, say)


def _task(settings: Settings, until: "Until") -> "Task":
    from auditlake.capture.running import make_task

    how, every_s = settings.how_to_stream, settings.heartbeat_s
    return make_task(settings.source_required(), Lake(settings.lake), until, how, every_s)


@click.command()
@with_settings
@click.option("--until-current", is_flag=True, help="Apply what was captured until now and return.")
def apply(settings: Settings, *, until_current: bool) -> None:
    """Bring captured changes into the history; the other half of follow, without the source.

    \b
    Example:
      auditlake apply --until-current
    """
    from auditlake import follow as stage
    from auditlake.lake.manifest import require_manifest
    from auditlake.lake.session import spark_session

    lake = Lake(settings.lake)
    require_manifest(lake)
    with stopped_by_signals() as stop:
        stage.run_apply(stage.Applier(lake, spark_session(settings.spark), say), stop, once=until_current)


@click.command()
@with_settings
def maintain(settings: Settings) -> None:
    """Join the files of the histories, lay closed versions in order, and delete what no question needs any more.

    \b
    Example:
      auditlake maintain
    """
    from auditlake import maintain as stage
    from auditlake.lake.manifest import require_manifest
    from auditlake.lake.session import spark_session

    lake = Lake(settings.lake)
    require_manifest(lake)
    stage.maintain(spark_session(settings.spark), lake, say)


@click.command()
@with_settings
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def status(settings: Settings, *, as_json: bool) -> None:
    """Show positions, lag, the slot's health and the tables; starts no JVM.

    \b
    Example:
      auditlake status --json
    """
    from auditlake import status as stage
    from auditlake.terminal import show_status

    source = settings.source.get_secret_value() if settings.source else None
    facts = stage.as_json(stage.read_status(Lake(settings.lake), source))
    if as_json:
        click.echo(json.dumps(facts))
    else:
        show_status(facts)


COMMANDS = (follow, capture, apply, maintain, status)
