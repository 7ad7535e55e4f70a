"""The command line. Parses, calls one function per command, and turns errors into messages and exit codes.

0 done, 1 a bug, 2 usage, 3 configuration or `check` failed, 4 source unreachable, 5 slot or source is not the one
recorded, 6 lake unusable or another writer, 7 the question cannot be answered exactly.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from auditlake.config import Settings
from auditlake.errors import AuditlakeError, BadUsage
from auditlake.lake.layout import Lake
from auditlake.options import stopped_by_signals, with_settings, with_target
from auditlake.terminal import report_bug, report_error, say, show_copied, show_status, working

if TYPE_CHECKING:
    from auditlake.follow import Until


def main() -> None:
    """Run a command and exit with its code."""
    try:
        auditlake(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as exc:
        exc.show()
        sys.exit(2)
    except click.ClickException as exc:
        report_error(_misused(exc))
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except AuditlakeError as exc:
        report_error(exc)
        sys.exit(exc.exit_code)
    except BrokenPipeError:
        sys.exit(0)
    except Exception as exc:  # noqa: BLE001 - the one place where a bug is reported
        report_bug(exc)
        sys.exit(1)


def _misused(refusal: click.ClickException) -> BadUsage:
    """Say in our own form what click refuses."""
    message = refusal.format_message().rstrip(".")
    context = refusal.ctx if isinstance(refusal, click.UsageError) else None
    command = context.command_path if context else "auditlake"
    return BadUsage(message[:1].lower() + message[1:], f"See {command} --help.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="Settings file [./auditlake.toml].")
@click.version_option(package_name="auditlake")
@click.pass_context
def auditlake(context: click.Context, config: Path | None) -> None:
    """Keep every version of every row of a PostgreSQL database, and ask for any moment of it.

    \b
    Example:
      auditlake bootstrap --source postgresql://me@host/shop --lake ./lake
      auditlake follow --until-current
      auditlake sql --as-of -2h 'select count(*) from public.orders'
    """
    context.obj = config


@auditlake.command()
@with_settings
@click.option("--table", "tables", multiple=True, metavar="PATTERN", help="Only these schema.table patterns.")
def check(settings: Settings, tables: tuple[str, ...] = ()) -> None:  # noqa: ARG001 - taken by with_settings
    """Say what stands between this database and a complete history.

    \b
    Example:
      auditlake check --source postgresql://me@host/shop
    """
    from auditlake.postgres.connection import connect
    from auditlake.snapshot.plan import findings, survey

    with connect(settings.source_required()) as conn:
        plan = survey(conn, settings.tables, settings.publication, settings.slot)
        found = findings(conn, plan)
    for finding in found:
        click.echo(f"{finding}\n    {finding.mend}")
    if found:
        sys.exit(3)
    click.echo(f"ready: {len(plan.chosen)} tables can be followed")


@auditlake.command()
@with_settings
@click.option("--table", "tables", multiple=True, metavar="PATTERN", help="Only these schema.table patterns.")
def bootstrap(settings: Settings, tables: tuple[str, ...] = ()) -> None:  # noqa: ARG001 - taken by with_settings
    """Copy every table that has no history yet, and start its log.

    \b
    Example:
      auditlake bootstrap --source postgresql://me@host/shop --lake ./lake
    """
    from auditlake.lake.session import spark_session
    from auditlake.snapshot.bootstrap import Target
    from auditlake.snapshot.bootstrap import bootstrap as run

    target = Target(
        settings.source_required(), Lake(settings.lake), settings.slot, settings.publication, settings.tables
    )
    with working("copying"):
        copied = run(target, lambda: spark_session(settings.spark), say)
    if not copied:
        say("every table has a history already")
        return
    show_copied(copied)


@auditlake.command()
@with_settings
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
        task = stage.make_task(settings.source_required(), Lake(settings.lake), until)
        stage.follow(task, lambda: spark_session(settings.spark), stop, say)


@auditlake.command()
@with_settings
@with_target
def capture(settings: Settings, until: "Until") -> None:
    """Make changes durable in the lake; the light half of follow, without a JVM.

    \b
    Example:
      auditlake capture
    """
    from auditlake import follow as stage

    with stopped_by_signals() as stop:
        stage.run_capture(stage.make_task(settings.source_required(), Lake(settings.lake), until), stop, say)


@auditlake.command()
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


@auditlake.command()
@with_settings
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def status(settings: Settings, *, as_json: bool) -> None:
    """Show positions, lag, the slot's health and the tables; starts no JVM.

    \b
    Example:
      auditlake status --json
    """
    from auditlake import status as stage

    source = settings.source.get_secret_value() if settings.source else None
    facts = stage.as_json(stage.read_status(Lake(settings.lake), source))
    if as_json:
        click.echo(json.dumps(facts))
    else:
        show_status(facts)


@auditlake.command()
@with_settings
@click.option("--as-of", metavar="WHEN", help="ISO time (no zone: UTC), -2h, LSN or xid:N [the watermark].")
@click.option("--format", "output", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@click.argument("statement", metavar="SQL")
def sql(settings: Settings, as_of: str | None, output: str, statement: str) -> None:
    """Ask the history; schema.table is the table's state at WHEN.

    \b
    Example:
      auditlake sql --as-of '2026-11-21 09:30' 'select count(*) from public.orders'
      auditlake sql "select * from public.orders for system_time all where id = 7"
    """
    from auditlake.lake.manifest import require_manifest
    from auditlake.lake.session import spark_session
    from auditlake.query.render import render
    from auditlake.query.sql import ask, prepare_sql

    lake = Lake(settings.lake)
    require_manifest(lake)
    question = prepare_sql(lake, statement, as_of)  # what can be refused is, before the seconds of a JVM's start
    with working("asking"):
        rows = ask(spark_session(settings.spark), question)
    render(rows, output)


@auditlake.command()
@with_settings
@click.option("--yes", is_flag=True, help="Do not ask.")
def drop(settings: Settings, *, yes: bool) -> None:
    """Remove the slot and the publication from the source; the lake stays as it is.

    \b
    Example:
      auditlake drop
    """
    from auditlake.drop import drop_source_objects

    if not yes:
        click.confirm(f"drop slot {settings.slot} and publication {settings.publication}?", abort=True, err=True)
    drop_source_objects(settings.source_required(), Lake(settings.lake), settings.slot, settings.publication, say)


@auditlake.command()
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep database and lake in this folder.")
def demo(keep: Path | None) -> None:
    """Run a small shop on an embedded PostgreSQL and ask it about its past.

    \b
    Example:
      auditlake demo --keep ./demo
    """
    from auditlake.demo.run import run_demo

    sys.exit(run_demo(keep))
