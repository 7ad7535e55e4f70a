"""The command verify: compare a lake with its source."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from auditlake.cli.options import with_recorded_names, with_settings
from auditlake.config import Settings
from auditlake.errors import BadUsage
from auditlake.lake.layout import Lake
from auditlake.messages import say
from auditlake.values.escapes import visible_lines

if TYPE_CHECKING:  # imports Spark
    from auditlake.verify.verify import Request


@click.command()
@with_settings
@click.option("--table", "patterns", multiple=True, metavar="PATTERN", help="Only these tables: orders, public.*.")
@click.option("--no-source", is_flag=True, help="Check only the lake.")
@click.option("--no-history", is_flag=True, help="Check only files, and the latest state against the source.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    help="Seconds to wait for writing transactions to end, and for capture to catch up.",
)
@click.option(
    "--connections",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Connections that read the source at a time.",
)
@click.option(
    "--bytes-per-s",
    type=click.IntRange(min=1),
    help="Bytes to read from the source per second, at most [copy_bytes_per_s].",
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Findings listed per table, at most."
)
@click.option("--no-keys", is_flag=True, help="Report tables and columns, but no keys of rows.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def verify(settings: Settings, *, no_source: bool, no_keys: bool, form: str, **given: object) -> None:
    """Compare the lake with its source at one LSN, row by row, and every history with its changes.

    Reports keys and columns that differ, never values. Exits 0 if all is equal, 6 if the lake is damaged, 7 if a table
    could not be verified.

    \b
    Example:
      auditlake verify
      auditlake verify --table public.orders --bytes-per-s 10000000
      auditlake verify --no-source --format json
    """
    from auditlake.spark.session import spark_session
    from auditlake.terminal import working
    from auditlake.verify.report import as_json_lines, as_lines
    from auditlake.verify.verify import verify as run

    if no_source and given["no_history"]:
        raise BadUsage("--no-source and --no-history exclude each other", "Give one of them, or neither.")
    request = _request(settings, None if no_source else settings.source_required(), given)
    with working("verifying"):
        report = run(request, lambda: spark_session(settings.spark), say)
    for line in (as_json_lines if form == "json" else as_lines)(report, keys=not no_keys):
        click.echo(visible_lines(line))
    say(report.summary())
    if failure := report.failure():
        raise failure


def _request(settings: Settings, conninfo: str | None, given: Mapping[str, Any]) -> "Request":
    from auditlake.verify.source_side import Load
    from auditlake.verify.verify import Request

    return Request(
        Lake(with_recorded_names(settings).lake),
        conninfo,
        given["patterns"],
        Load(given["connections"], given["bytes_per_s"] or settings.copy_bytes_per_s),
        given["timeout"],
        given["limit"],
        history=not given["no_history"],
        streaming=settings.how_to_stream,
    )


COMMANDS = (verify,)
