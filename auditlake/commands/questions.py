"""Commands that ask the history."""

import click

from auditlake.config import Settings
from auditlake.lake.layout import Lake
from auditlake.options import with_settings
from auditlake.terminal import working


@click.command()
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


COMMANDS = (sql,)
