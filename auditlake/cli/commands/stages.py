"""Commands of the stages: follow, capture, apply, maintain; and status."""

from __future__ import annotations  # settings are imported when a command runs

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from auditlake.cli.options import (
    Seconds,
    Stop,
    bootstrap_target,
    confirm,
    existing_lake_of,
    exported_metrics,
    lake_of,
    notified_manager,
    spark_of,
    stopped_by_signals,
    with_engine,
    with_metrics,
    with_recorded_names,
    with_settings,
    with_streaming,
    with_target,
)
from auditlake.counters import Beat
from auditlake.errors import BadUsage
from auditlake.lake.stage_lock import Stage, hold
from auditlake.messages import Event, Notice, say

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from auditlake.capture.supervisor import Task, Until
    from auditlake.config import Settings
    from auditlake.lake.layout import Lake
    from auditlake.resync.automatic import AutomaticResync
    from auditlake.resync.renewal import Renewal
    from auditlake.resync.resync import ResyncTarget
    from auditlake.settings.mask_rules import Masking
    from auditlake.snapshot.new_tables import Job
    from auditlake.snapshot.worker_pool import Workers
    from auditlake.spark.on_demand import SparkOnDemand


@click.command()
@with_settings
@with_engine
@with_streaming
@with_target
@with_metrics
def follow(settings: Settings, until: Until) -> None:
    """Keep the history up to date, until stopped or up to a target.

    \b
    Example:
      auditlake follow --until-current
    """
    from auditlake import follow as stage
    from auditlake.erasure.retention import Retaining

    stages = Beat.CAPTURE, Beat.APPLY
    with stopped_by_signals() as stop, notified_manager(stop, *stages), exported_metrics(settings, *stages):
        task, spark = _task(settings, until), spark_of(settings)
        retaining = Retaining(task.lake, settings.retention.kept, "follow", say)
        new_tables = _new_tables(settings) if task.until is None else None
        beside = stage.Beside(new_tables, _automatic(settings, spark), retaining)
        with _sealing(settings, task, "follow"):
            stage.follow(task, spark, stop, say, beside)
    _report_stop(stop)


def _automatic(settings: Settings, spark: SparkOnDemand) -> AutomaticResync | None:
    from auditlake.resync.automatic import AutomaticResync

    if not settings.resync:
        return None

    def workers() -> Workers:
        from auditlake.snapshot.worker_pool import start_workers

        return start_workers(spark)

    masking = settings.masking  # read once: capture goes on with these rules
    return AutomaticResync(lambda: _resync_target(settings, lake_of(settings), spark, masking), workers, say)


def _resync_target(settings: Settings, lake: Lake, spark: SparkOnDemand, masking: Masking) -> ResyncTarget:
    from auditlake.resync.resync import ResyncTarget
    from auditlake.snapshot.scheduler import SourceLoad

    return ResyncTarget(
        settings.source_required(),
        lake,
        settings.how_to_stream,
        SourceLoad(settings.copy_connections, settings.copy_bytes_per_s),
        failover=settings.failover,
        masking=masking,
        engine=spark.engine,
    )


@click.command()
@with_settings
@with_streaming
@with_target
@with_metrics
def capture(settings: Settings, until: Until) -> None:
    """Write changes from the slot to the lake; one half of follow, without a JVM.

    \b
    Example:
      auditlake capture
    """
    from auditlake.capture.supervisor import run_capture

    stage = Beat.CAPTURE
    with stopped_by_signals() as stop, notified_manager(stop, stage), exported_metrics(settings, stage):
        task = _task(settings, until)
        with _sealing(settings, task, "capture"):
            run_capture(task, stop, say)
    _report_stop(stop)


def _sealing(settings: Settings, task: Task, command: str) -> AbstractContextManager[None]:
    from auditlake.ledger.beside import Sealing, sealing

    return sealing(Sealing(task.lake, settings.digest, command, say, settings.seal_every_s, task.lagging.is_set))


def _new_tables(settings: Settings) -> Job:
    from auditlake.snapshot.new_tables import Job

    return Job(bootstrap_target(settings), settings.spark, settings.engine)


def _report_stop(stop: Stop) -> None:
    if stop.signal is not None:
        say(Notice(Event.STOPPED, f"stopped by {stop.signal}; the next run continues where this one ended"))


def _task(settings: Settings, until: Until) -> Task:
    from auditlake.capture.supervisor import make_task

    with_recorded_names(settings)  # refuses others
    how, every_s = settings.how_to_stream, settings.heartbeat_s
    return make_task(settings.source_required(), lake_of(settings), until, how, every_s, settings.masking)


@click.command()
@with_settings
@with_engine
@click.option("--until-current", is_flag=True, help="Return when all that is captured now is applied.")
@with_metrics
def apply(settings: Settings, *, until_current: bool) -> None:
    """Apply captured changes to the history; the other half of follow, without the source.

    \b
    Example:
      auditlake apply --until-current
    """
    from auditlake import follow as stage
    from auditlake.erasure.retention import Retaining

    lake = existing_lake_of(settings)
    metrics = exported_metrics(settings, Beat.APPLY)
    with hold(lake, "apply", Stage.APPLY), stopped_by_signals() as stop, metrics:
        retaining = Retaining(lake, settings.retention.kept, "apply", say)
        stage.run_apply(stage.Applier(lake, spark_of(settings), say, retaining), stop, once=until_current)
    _report_stop(stop)


@click.command()
@with_settings
@with_engine
@click.option("--dry-run", is_flag=True, help="Only show what [retention] would remove.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: one JSON object a line.")
@click.option("--confirm-restored", is_flag=True, help="Let [retention] work in a lake that was restored or copied.")
def maintain(settings: Settings, *, dry_run: bool, as_json: bool, confirm_restored: bool) -> None:
    """Remove what has expired ([retention]), compact and cluster the history tables, and delete expired files.

    \b
    Example:
      auditlake maintain --dry-run
      auditlake maintain
    """
    from datetime import datetime

    from auditlake.erasure import retention
    from auditlake.erasure.returned import report_returned

    lake, kept = existing_lake_of(settings), settings.retention.kept
    if as_json and not dry_run:
        raise BadUsage("--json needs --dry-run", "Add --dry-run, or omit --json.")
    if dry_run:
        _show_expiries([each.as_json() for each in retention.find_expiries(lake, kept)], as_json=as_json)
        return
    from auditlake.lake import maintenance as stage

    with hold(lake, "maintain", Stage.MAINTAIN):
        if confirm_restored:
            retention.confirm_restored(lake)
        retention.expire(lake, kept, "maintain", say)
        stage.maintain(spark_of(settings), lake, say)
        report_returned(lake, datetime.now(settings.zone), say, record=True)


def _show_expiries(found: list[dict[str, object]], *, as_json: bool) -> None:
    if as_json:
        for each in found:
            click.echo(json.dumps(each))
    elif found:
        from auditlake.terminal import show_expiries

        show_expiries(found)
    else:
        say("nothing would expire")


@click.command()
@with_settings
@with_engine
@with_streaming
@click.option("--table", "names", multiple=True, metavar="TABLE", help="Only these tables: orders, sales.orders.")
@click.option("--all", "every", is_flag=True, help="All tables, and the slot anew if it is lost.")
@click.option("--yes", is_flag=True, help="Do not ask before a slot is created anew or another source is recorded.")
@click.option("--copy-connections", metavar="N", help="Ranges to copy at a time, each in a connection [8].")
@click.option("--copy-bytes-per-s", metavar="N", help="Bytes to read from the source per second, at most [no limit].")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for the progress of the copy.")
def resync(settings: Settings, *, names: tuple[str, ...], every: bool, yes: bool, as_json: bool) -> None:
    """Take a new snapshot of tables and keep their history; without options, of the tables that are parked.

    \b
    Example:
      auditlake resync
      auditlake resync --table orders
    """
    from auditlake.lake.histories import list_histories
    from auditlake.lake.manifest import require_manifest
    from auditlake.resync.resync import Starters, choose_tables
    from auditlake.resync.resync import resync as run
    from auditlake.snapshot.progress import shown_progress
    from auditlake.snapshot.worker_pool import start_workers
    from auditlake.status import read_status

    lake = lake_of(with_recorded_names(settings))
    require_manifest(lake)
    spark = spark_of(settings)
    target = _resync_target(settings, lake, spark, settings.masking)
    renewal = _confirmed_renewal(target.conninfo, lake, yes=yes) if every else None
    tables = choose_tables(lake, list_histories(lake), names, every=every, restarts=renewal is not None)
    if not tables:
        if (refusal := read_status(lake, target.conninfo).refusal) is not None:
            raise refusal
        say("no table is parked, none gets a new snapshot")
        return
    start = Starters(spark, lambda: start_workers(spark))
    with shown_progress(as_json=as_json) as progress:
        run(replace(target, renewal=renewal), tables, start, say, progress)


def _confirmed_renewal(conninfo: str, lake: Lake, *, yes: bool) -> Renewal | None:
    from auditlake.resync.renewal import find_renewal

    renewal = find_renewal(conninfo, lake)
    if renewal is not None:
        say(renewal.problem)
        for change in renewal.changes:
            say(change)
        if not yes:
            confirm("go on?")
    return renewal


@click.command()
@with_settings
@click.option("--check", "check_only", is_flag=True, help="Only the verdict; the exit code is its cause.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
@click.option(
    "--watch",
    "every_s",
    type=Seconds(min=0.5),
    is_flag=False,
    flag_value=2.0,
    metavar="[S]",
    help="Read it again every S seconds, until Ctrl+C [2].",
)
def status(settings: Settings, *, check_only: bool, as_json: bool, every_s: float | None) -> None:
    """Show the verdict and the remedy, positions, lag, the slot's health and the tables; starts no JVM.

    With --check: 0 healthy, 3 attention needed, 4 source unreachable, 5 slot or source wrong, 6 lake unusable.

    \b
    Example:
      auditlake status
      auditlake status --check --json
      auditlake status --watch
    """
    from auditlake import status as stage
    from auditlake.status import judge
    from auditlake.terminal import show_status, show_verdict

    source = settings.source.get_secret_value() if settings.source else None
    lake = lake_of(with_recorded_names(settings))
    if every_s is not None:
        if check_only or as_json:
            raise BadUsage("--watch shows the status to people", "Omit --check and --json.")
        from auditlake.cli.status_watch import watch_status

        with stopped_by_signals() as stop:
            watch_status(lambda: stage.read_status(lake, source), every_s, stop)
        return
    found = stage.read_status(lake, source)
    verdict = judge(found)
    if as_json:
        judged = {"verdict": verdict.sentence, "remedy": verdict.remedy, "check_code": verdict.code}
        click.echo(json.dumps({**judged, **stage.as_json(found)}))
    else:
        show_verdict(verdict.sentence, verdict.remedy, well=not verdict.code)
        if not check_only:
            click.echo()
            show_status(stage.as_json(found))
    if check_only:
        sys.exit(verdict.code)


COMMANDS = (follow, capture, apply, resync, maintain, status)
