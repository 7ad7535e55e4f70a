"""Commands that ask the history."""

import functools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from auditlake.config import Settings
from auditlake.errors import BadUsage
from auditlake.lake.layout import Lake
from auditlake.options import with_settings

if TYPE_CHECKING:  # pyspark takes a second to import
    from pyspark.sql import SparkSession

    from auditlake.query.answer import Form
    from auditlake.query.shell import Shell

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
    from auditlake.query.sql import ask_all, prepare_script
    from auditlake.terminal import working

    lake = Lake(settings.lake)
    require_manifest(lake)
    questions = prepare_script(lake, script, as_of)  # what can be refused is, before the seconds of a JVM's start
    form.check(sum(question.defines is None for question in questions))
    with working("asking"):
        spark = spark_session(settings.spark)
        results = ask_all(spark, questions)
    answer(results, form)


@click.command()
@with_settings
@as_of_option
def shell(settings: Settings, as_of: str | None) -> None:
    r"""Ask one question after the other, with completion and history; reads a pipe as well.

    \b
    Example:
      auditlake shell
      auditlake shell --as-of -2h < questions.sql
    """
    from auditlake.lake.manifest import require_manifest
    from auditlake.query.shell import Shell, gathered

    lake = Lake(settings.lake)
    require_manifest(lake)
    with ThreadPoolExecutor(1) as starting:  # the JVM takes seconds, which pass while the first statement is typed
        spark = starting.submit(_start_spark, settings)
        running = Shell(lake, spark.result, chatty=sys.stdin.isatty())
        if as_of is not None:
            running.set_as_of(as_of)
        sys.exit(running.run(_prompted(lake, running) if sys.stdin.isatty() else gathered(sys.stdin)))


def _start_spark(settings: Settings) -> "SparkSession":
    from auditlake.lake.session import spark_session

    return spark_session(settings.spark)


def _prompted(lake: Lake, running: "Shell") -> Iterator[str]:
    from auditlake.query.moments import read_known
    from auditlake.query.prompt import Prompt

    columns = {name: [column.stored for column in table.columns] for name, table in read_known(lake).tables.items()}

    def message() -> str:
        return "auditlake> " if running.as_of is None else f"auditlake {running.as_of}> "

    return Prompt.kept(message, lambda: columns).inputs()


@click.command()
@with_settings
@click.option("--engine", type=click.Choice(["duckdb", "spark", "trino"]), required=True)
@as_of_option
@click.option("--parametrised", is_flag=True, help="Functions table_as_of(lsn) instead of views.")
@click.option("--open-end", type=click.Choice(["null", "9999-12-31"]), default="null", show_default=True)
def views(settings: Settings, engine: str, as_of: str | None, open_end: str, **given: bool) -> None:
    """Write SQL that makes plain views over the lake, for tools that know nothing of auditlake.

    \b
    Example:
      auditlake views --engine duckdb > views.sql
      auditlake views --engine spark --as-of 2026-11-21
      auditlake views --engine duckdb --parametrised
    """
    from auditlake.lake.manifest import require_manifest
    from auditlake.query.reach import Choice, view_script

    lake = Lake(settings.lake)
    require_manifest(lake)
    choice = Choice(as_of, open_end=open_end != "null", parametrised=given["parametrised"])
    click.echo(view_script(lake, engine, choice), nl=False)


COMMANDS = (sql, shell, views)
