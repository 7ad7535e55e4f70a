"""Commands about the source: what it lacks, its first copy, leaving it, and one of our own to try."""

import sys
from pathlib import Path

import click

from auditlake.config import Settings
from auditlake.lake.layout import Lake
from auditlake.messages import say
from auditlake.options import with_settings, with_streaming


@click.command()
@with_settings
@with_streaming
@click.option("--table", "tables", multiple=True, metavar="PATTERN", help="Only these schema.table patterns.")
@click.option("--install-context", is_flag=True, help="Print the SQL that lets the server say who is connected.")
@click.option("--yes", is_flag=True, help="Run that SQL, too.")
def check(settings: Settings, *, install_context: bool, yes: bool, **_: object) -> None:
    """Say what stands between this database and a complete history.

    \b
    Example:
      auditlake check --source postgresql://me@host/shop
      auditlake check --install-context
    """
    from auditlake.postgres import observer
    from auditlake.postgres.connection import connect
    from auditlake.postgres.failover import failover_remarks
    from auditlake.snapshot.plan import findings, survey

    with connect(settings.source_required()) as conn:
        plan = survey(conn, settings.tables, settings.publication, settings.slot)
        if install_context:
            names = [table.name for table in plan.chosen]
            click.echo("\n".join(observer.statements(names)))
            if yes:
                observer.install(conn, names)
                say(f"installed on {len(names)} tables; drop schema auditlake cascade removes it")
            return
        found = findings(conn, plan)
        remarks = failover_remarks(conn, settings.slot, wanted=settings.failover)
    for remark in [*plan.remarks, *remarks]:
        say(remark)
    for finding in found:
        click.echo(f"{finding}\n    {finding.mend}")
    if found:
        sys.exit(3)
    click.echo(f"ready: {len(plan.chosen)} tables can be followed")


@click.command()
@with_settings
@with_streaming
@click.option("--table", "tables", multiple=True, metavar="PATTERN", help="Only these schema.table patterns.")
@click.option("--copy-connections", metavar="N", help="Ranges to copy at a time, each in a connection [8].")
@click.option("--copy-bytes-per-s", metavar="N", help="The most to read from the source in a second [no limit].")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line instead of a table.")
def bootstrap(settings: Settings, *, as_json: bool, **_: object) -> None:
    """Copy every table that has no history yet, and start its log.

    \b
    Example:
      auditlake bootstrap --source postgresql://me@host/shop --lake ./lake
    """
    from auditlake.copying import shown
    from auditlake.snapshot.bootstrap import Target
    from auditlake.snapshot.bootstrap import bootstrap as run
    from auditlake.snapshot.tables import Limits
    from auditlake.snapshot.workers import start_workers

    target = Target(
        settings.source_required(),
        Lake(settings.lake),
        settings.slot,
        settings.publication,
        settings.tables,
        failover=settings.failover,
        streaming=settings.how_to_stream,
        limits=Limits(settings.copy_connections, settings.copy_bytes_per_s),
    )
    with shown(as_json=as_json) as progress:
        copied = run(target, lambda: start_workers(settings.spark), say, progress)
    if not copied:
        say("every table has a history already")


@click.command()
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


@click.command()
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep database and lake in this folder.")
def demo(keep: Path | None) -> None:
    """Run a small shop on an embedded PostgreSQL and ask it about its past.

    \b
    Example:
      auditlake demo --keep ./demo
    """
    from auditlake.demo.run import run_demo

    sys.exit(run_demo(keep))


COMMANDS = (check, bootstrap, drop, demo)
