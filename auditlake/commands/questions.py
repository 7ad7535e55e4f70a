"""Commands that ask the history."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from auditlake.config import Settings
from auditlake.errors import BadUsage
from auditlake.lake.layout import Lake
from auditlake.options import with_settings
from auditlake.terminal import working

if TYPE_CHECKING:  # pyspark takes a second to import
    from auditlake.query.answer import Form

_FORMATS = click.Choice(["table", "csv", "json", "parquet"])
_OUTPUT = click.Path(path_type=Path, dir_okay=False)

as_of_option = click.option(
    "--as-of", metavar="WHEN", help="ISO time (no zone: UTC), -2h, LSN or xid:N [the watermark]."
)


def _with_form(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of where its rows go, and pass it one `form`."""

    @click.option("--format", "name", type=_FORMATS, default="table", show_default=True)
    @click.option("-o", "--output", type=_OUTPUT, help="Write to this file, which appears whole [stdout].")
    @functools.wraps(command)
    def wrapped(name: str, output: Path | None, **given: object) -> None:
        from auditlake.query.answer import Form

        command(form=Form(name, output), **given)

    return wrapped


def _with_script(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command its SQL, from the command line or from a file, as `script`."""

    @click.option("-f", "--file", type=click.File(encoding="utf-8"), help="Read the SQL from this file; - is stdin.")
    @click.argument("sql", required=False)
    @functools.wraps(command)
    def wrapped(sql: str | None, file: TextIO | None, **given: object) -> None:
        script = sql if file is None else file.read()
        if script is None or (sql is not None and file is not None):
            raise BadUsage("need either SQL or --file", "See auditlake sql --help.")
        command(script=script, **given)

    return wrapped


@click.command()
@with_settings
@as_of_option
@_with_form
@_with_script
def sql(settings: Settings, as_of: str | None, form: "Form", script: str) -> None:
    """Ask the history; schema.table is the table's state at WHEN.

    \b
    Example:
      auditlake sql --as-of '2026-11-21 09:30' 'select count(*) from public.orders'
      auditlake sql "select * from public.orders for system_time all where id = 7"
      auditlake sql --as-of -1d --format parquet -o orders.parquet 'select * from orders'
    """
    from auditlake.lake.manifest import require_manifest
    from auditlake.lake.session import spark_session
    from auditlake.query.answer import answer
    from auditlake.query.sql import ask, prepare_script

    lake = Lake(settings.lake)
    require_manifest(lake)
    questions = prepare_script(lake, script, as_of)  # what can be refused is, before the seconds of a JVM's start
    form.check(len(questions))
    with working("asking"):
        spark = spark_session(settings.spark)
        results = [ask(spark, question) for question in questions]
    answer(results, form)


COMMANDS = (sql,)
