"""Commands about the source: check, bootstrap, drop; and demo, which brings its own."""

from __future__ import annotations  # settings are imported when a command runs

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from auditlake.cli.options import (
    bootstrap_target,
    confirm,
    lake_of,
    spark_of,
    with_engine,
    with_recorded_names,
    with_settings,
    with_streaming,
)
from auditlake.errors import BadUsage, SourceUnready
from auditlake.messages import say
from auditlake.sql_names import printable_statement
from auditlake.values.escapes import visible

if TYPE_CHECKING:  # commands import on demand, to start fast
    import psycopg

    from auditlake.config import Settings
    from auditlake.source.connection import Row
    from auditlake.source.context_trigger import Installed
    from auditlake.source.preflight import Obstacle


@click.command()
@with_settings
@with_engine
@with_streaming
@click.option("--table", "tables", multiple=True, metavar="PATTERN", help="Only these schema.table patterns.")
@click.option("--install-context", is_flag=True, help="Print the SQL of triggers that record who is connected.")
@click.option("--install-ddl-trigger", is_flag=True, help="Print the SQL of event triggers that send schema changes.")
@click.option("--yes", is_flag=True, help="Run that SQL, too.")
@click.option(
    "--print-grants",
    "granted",
    type=click.Choice(["follow", "bootstrap", "capture", "resync", "verify", "drop", "status"]),
    is_flag=False,
    flag_value="follow",
    metavar="[COMMAND]",
    help="Print the SQL of the least role for a command [follow].",
)
@click.option("--role", default="auditlake", metavar="NAME", help="The role in that SQL [auditlake].")
def check(  # noqa: PLR0913 - independent options
    settings: Settings,
    *,
    install_context: bool,
    install_ddl_trigger: bool,
    yes: bool,
    granted: str | None,
    role: str,
    **_: object,
) -> None:
    """List what prevents a complete history of this database, each with the command that fixes it.

    \b
    Example:
      auditlake check --source postgresql://me@host/shop
      auditlake check --install-context
      auditlake check --install-ddl-trigger --yes
      auditlake check --print-grants capture --role capturing
    """
    from auditlake.source.connection import connect

    if yes and not (install_context or install_ddl_trigger):
        raise BadUsage(
            "--yes needs --install-context or --install-ddl-trigger",
            "auditlake check changes nothing: run the SQL that it prints with psql.",
        )
    settings = with_recorded_names(settings)
    with connect(settings.source_required()) as conn:
        if install_ddl_trigger:
            _install_ddl_trigger(conn, yes=yes)
        if install_context:
            _install_context(conn, settings, yes=yes)
        if granted is not None:
            _print_grants(conn, settings, granted, role)
        if not install_context and not install_ddl_trigger and granted is None:
            _check(conn, settings)


def _print_grants(conn: psycopg.Connection[Row], settings: Settings, command: str, role: str) -> None:
    from auditlake.snapshot.grants import grants
    from auditlake.snapshot.plan import survey

    plan = survey(conn, settings.tables, settings.publication, settings.slot)
    click.echo(f"-- the least role for auditlake {command}, run as a superuser or the role that stands in for one:")
    _show_statements(grants(conn, plan, command, role))


def _install_ddl_trigger(conn: psycopg.Connection[Row], *, yes: bool) -> None:
    from auditlake.source.ddl_trigger import ddl_trigger_statements, install_ddl_trigger, read_ddl_trigger

    _show_statements(ddl_trigger_statements())
    if yes:
        install_ddl_trigger(conn)
        say(f"{read_ddl_trigger(conn).sentence}; auditlake drop removes it")


def _install_context(conn: psycopg.Connection[Row], settings: Settings, *, yes: bool) -> None:
    from auditlake.snapshot.plan import survey
    from auditlake.source.context_trigger import context_trigger_statements, install_context_trigger

    plan = survey(conn, settings.tables, settings.publication, settings.slot)
    names = [table.name for table in plan.chosen]
    _show_statements(context_trigger_statements(names))
    if yes:
        _report_installed(install_context_trigger(conn, names))


def _check(conn: psycopg.Connection[Row], settings: Settings) -> None:
    from auditlake.snapshot.plan import findings, survey
    from auditlake.source.ddl_trigger import read_ddl_trigger
    from auditlake.source.preflight import check_replication, find_failing, fixing_sql
    from auditlake.source.slot import failover_remarks

    plan = survey(conn, settings.tables, settings.publication, settings.slot)
    if settings.masking:
        from auditlake.capture.masking import check_rules

        check_rules(conn, settings.masking, [table.relation for table in plan.chosen])
    found = findings(conn, plan)
    warnings = [*find_failing(conn), *plan.advice]
    remarks = [*failover_remarks(conn, settings.slot, wanted=settings.failover), read_ddl_trigger(conn).sentence]
    if not found:  # it would repeat a reason that is known already
        found = check_replication(settings.source_required())
    for remark in [*plan.remarks, *remarks]:
        say(remark)
    for finding in warnings:
        say(f"warning: {finding}. {finding.fix}")
    _report_returned(settings)
    _report_lost_slot(conn, settings)
    _show_findings(found)
    if not found:
        click.echo(f"ready: {len(plan.chosen)} tables can be followed{', see the warnings' if warnings else ''}")
    _show_block(fixing_sql([*found, *warnings]), sum(not finding.sql for finding in found))
    if found:
        sys.exit(3)


def _report_returned(settings: Settings) -> None:
    """Report the rows of this database that were erased from the lake, if there is one, and are in it again."""
    from datetime import datetime

    from auditlake.erasure.returned import report_returned
    from auditlake.lake.manifest import read_manifest

    lake = lake_of(settings)
    if read_manifest(lake) is not None:
        report_returned(lake, datetime.now(settings.zone), say)


def _report_lost_slot(conn: psycopg.Connection[Row], settings: Settings) -> None:
    """Warn if the lake, if there is one, cannot go on: this database does not have the slot that it records."""
    from auditlake.lake.manifest import read_manifest
    from auditlake.source.slot import read_slot

    if read_manifest(lake_of(settings)) is not None and read_slot(conn, settings.slot) is None:
        say(f"warning: slot {settings.slot} of this lake is gone. auditlake status has the remedy.")


def _report_installed(installed: Installed) -> None:
    """Report what was installed; raises SourceUnready if tables were skipped."""
    already = f", {len(installed.already)} had it already" if installed.already else ""
    say(f"installed on {len(installed.new)} tables{already}; drop schema auditlake cascade removes it")
    for name, reason in installed.skipped.items():
        say(f"skipped {name}: {reason}")
    if installed.skipped:
        raise SourceUnready(
            f"the context trigger is missing on {', '.join(map(str, installed.skipped))}",
            "Remove the cause and run the same command again; tables that have the trigger are not locked again.",
        )


def _show_findings(found: Sequence[Obstacle]) -> None:
    for finding in found:
        click.echo(f"{visible(str(finding))}\n    {visible(finding.fix)}")


def _show_block(statements: Sequence[str], without: int) -> None:
    """Print the statements as one block, which names how many findings it does not fix."""
    if statements:
        but = f"; {without} of the findings have none and need a decision" if without else ""
        click.echo(f"\n-- the statements above, as the owner of the tables or a superuser{but}:")
        _show_statements(statements)


def _show_statements(statements: Iterable[str]) -> None:
    for statement in statements:
        click.echo(printable_statement(statement))


@click.command()
@with_settings
@with_engine
@with_streaming
@click.option("--table", "tables", multiple=True, metavar="PATTERN", help="Only these schema.table patterns.")
@click.option("--copy-connections", metavar="N", help="Ranges to copy at a time, each in a connection [8].")
@click.option("--copy-bytes-per-s", metavar="N", help="Bytes to read from the source per second, at most [no limit].")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line instead of a table.")
def bootstrap(settings: Settings, *, as_json: bool, **_: object) -> None:
    """Create slot and publication, and copy every table that has no history yet.

    \b
    Example:
      auditlake bootstrap --source postgresql://me@host/shop --lake ./lake
    """
    from auditlake.lake.histories import list_histories
    from auditlake.snapshot.bootstrap import bootstrap as run
    from auditlake.snapshot.progress import shown_progress
    from auditlake.snapshot.worker_pool import start_workers

    target, spark = bootstrap_target(settings), spark_of(settings)
    try:
        with shown_progress(as_json=as_json) as progress:
            copied = run(target, lambda: start_workers(spark), say, progress)
    except KeyboardInterrupt:
        kept = len(progress.state().copied)
        say(f"interrupted: {kept} tables are in the lake and stay; run auditlake bootstrap again to copy the others")
        sys.exit(130)
    if not copied:
        has_tables = any(list_histories(target.lake))
        said = "every table of the publication has a history already" if has_tables else "there are no tables yet"
        say(f"{said}; follow copies new ones")


@click.command()
@with_settings
@click.option("--yes", is_flag=True, help="Do not ask.")
def drop(settings: Settings, *, yes: bool) -> None:
    """Remove the slot and the publication from the source; the lake stays as it is.

    \b
    Example:
      auditlake drop
    """
    from auditlake.capture.drop import drop_source_objects
    from auditlake.lake.manifest import require_manifest

    lake = lake_of(with_recorded_names(settings))
    recorded, source = require_manifest(lake), settings.source_required()
    if not yes:
        confirm(f"drop slot {recorded.slot} and publication {recorded.publication}?")
    drop_source_objects(source, lake, recorded.slot, recorded.publication, say)


@click.command()
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep database and lake in this folder.")
def demo(keep: Path | None) -> None:
    """Run a small shop on an embedded PostgreSQL and query its history.

    \b
    Example:
      auditlake demo --keep ./demo
    """
    from auditlake.demo.run import run_demo

    sys.exit(run_demo(keep))


COMMANDS = (check, bootstrap, drop, demo)
