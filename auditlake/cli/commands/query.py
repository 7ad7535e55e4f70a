"""Commands that query the history, and export views of it: sql, shell, views."""

from __future__ import annotations  # settings are imported when a command runs

import functools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from auditlake.cli.options import FILE, existing_lake_of, with_dialect, with_gaps, with_settings, with_zone
from auditlake.errors import BadUsage
from auditlake.lake.layout import Lake
from auditlake.messages import say

if TYPE_CHECKING:  # pyspark takes a second to import
    from pyspark.sql import SparkSession

    from auditlake.config import Settings
    from auditlake.query.languages import Answers, Language
    from auditlake.query.output import OutputForm
    from auditlake.query.shell import Shell

_REMOTE = "spark.remote"
_FORMATS = click.Choice(["table", "csv", "json", "parquet"])

as_of_option = click.option("--as-of", metavar="WHEN", help="ISO time, 08:00, yesterday, -2h, LSN, xid:N or now [now].")


def _with_form(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of output to a command, and pass it one `form`."""

    @click.option("--format", "name", type=_FORMATS, default="table", show_default=True)
    @click.option("-x", "--expanded", is_flag=True, help="Show one value a line, even if a table fits.")
    @click.option("-o", "--output", type=FILE, help="Write to this file, which appears when it is complete [stdout].")
    @functools.wraps(command)
    def wrapped(name: str, output: Path | None, *, expanded: bool, **given: object) -> None:
        from auditlake.query.output import OutputForm

        command(form=OutputForm(name, output, expanded or None), **given)

    return wrapped


def _with_script(command: Callable[..., None]) -> Callable[..., None]:
    """Add the SQL of a command: an argument, a file or a pipe, passed as `script`."""

    @click.option("-f", "--file", type=click.File(encoding="utf-8"), help="Read the SQL from this file; - is stdin.")
    @click.argument("sql", nargs=-1)
    @functools.wraps(command)
    def wrapped(sql: tuple[str, ...], file: TextIO | None, **given: object) -> None:
        if len(sql) > 1:
            raise BadUsage(f"the SQL is {len(sql)} arguments, need one", "Put all of it in quotes.")
        if sql and file is not None:
            raise BadUsage("got both SQL and --file", "Use one of them.")
        if not sql and file is None and sys.stdin.isatty():
            raise BadUsage("there is no SQL", "Pass it as an argument, with --file, or through a pipe.")
        command(script=sql[0] if sql else (file or sys.stdin).read(), **given)

    return wrapped


def _with_engine(command: Callable[..., None]) -> Callable[..., None]:
    """Add the choice of the engine to a command, as `engine`."""
    choices = click.Choice(["auto", "spark", "duckdb"])
    text = "DuckDB if that means the same, else Spark; or only one of them."
    command = click.option("--engine", type=choices, default="auto", show_default=True, help=text)(command)
    where = "Spark Connect server that answers, instead of this machine [SPARK_REMOTE]."

    @click.option("--remote", metavar="sc://HOST:PORT", help=where)
    @functools.wraps(command)
    def wrapped(settings: Settings, remote: str | None, engine: str, **given: object) -> None:
        if remote is not None and engine == "duckdb":
            raise BadUsage("--remote and --engine duckdb exclude each other", "Use one of them.")
        chosen = (
            settings if remote is None else settings.model_copy(update={"spark": {**settings.spark, _REMOTE: remote}})
        )
        demanded = remote is not None or engine == "spark"
        if (_REMOTE in chosen.spark or os.environ.get("SPARK_REMOTE")) and engine == "auto":
            engine = "spark"
        command(settings=_with_dialect_of(engine, chosen, demanded=demanded), engine=engine, **given)

    return wrapped


def _with_dialect_of(engine: str, settings: Settings, *, demanded: bool) -> Settings:
    """Return settings whose dialect is Spark's if Spark is to answer and no dialect is set; say so."""
    if engine != "spark" or settings.dialect == "spark":
        return settings
    if "dialect" not in settings.model_fields_set:
        say("the SQL is Spark's, because Spark is to answer it")
        return settings.model_copy(update={"dialect": "spark"})
    if demanded:
        raise BadUsage("Spark does not answer statements in PostgreSQL's dialect", "Leave out the engine.")
    return settings


@click.command()
@with_settings
@with_zone
@with_gaps
@as_of_option
@with_dialect
@_with_engine
@_with_form
@_with_script
def sql(settings: Settings, as_of: str | None, engine: str, form: OutputForm, script: str) -> None:
    """Run SQL on the history; schema.table is the table's state at WHEN.

    \b
    Example:
      auditlake sql --as-of '2026-11-21 09:30' 'select count(*) from public.orders'
      auditlake sql "select * from public.orders for system_time all where id = 7"
      auditlake sql --tz Europe/Paris < questions.sql
      auditlake sql --as-of -1d --format parquet -o orders.parquet 'select * from orders'
      auditlake sql "select date_trunc('day', placed)::date, count(*) from orders group by 1"
      auditlake sql --dialect spark 'select product_id, exact_text(price) from products'
    """
    from auditlake.cancellation import ended_by_interrupt
    from auditlake.query.languages import language
    from auditlake.query.output import answer
    from auditlake.query.statement import read_state
    from auditlake.terminal import working

    lake = existing_lake_of(settings)
    state = read_state(lake, as_of, settings.zone, allow_gaps=settings.allow_gap, script=script)
    # Before a JVM starts, which takes seconds: statements are refused here if they can be.
    queries = language(settings.dialect).prepare_all(state, script)
    form.check(sum(query.defines is None for query in queries))
    engines = _engines(engine, settings, functools.cache(lambda: _start_spark(settings)))

    def note(number: int, nulls: set[int]) -> None:
        for text in answers[number].notes(nulls):
            say(text)

    with ended_by_interrupt():
        with working("asking"):
            answers = engines.answer(state, queries)
        answer([each.rows for each in answers], replace(form, zone=settings.zone), notes=note)
    engines.report()


@click.command()
@with_settings
@with_zone
@as_of_option
@with_dialect
@_with_engine
def shell(settings: Settings, as_of: str | None, engine: str) -> None:
    """Run statements one after the other, with completion and history; reads a pipe as well.

    \b
    Example:
      auditlake shell
      auditlake shell --as-of -2h < questions.sql
    """
    from auditlake.query.engine_choice import Engines
    from auditlake.query.languages import language
    from auditlake.query.shell import Shell, inputs_of

    lake = existing_lake_of(settings)
    spark = _Started(settings)
    dialect = language(settings.dialect)
    running = Shell(
        lake,
        _engines(engine, settings, spark.session),
        spark.stop_jobs,
        chatty=sys.stdin.isatty(),
        zone=settings.zone,
        dialect=dialect,
        described_by=Engines(engine, settings.spark, spark.session),
    )
    if as_of is not None:
        running.set_as_of(as_of)
    sys.exit(running.run(_prompted(lake, running, dialect) if sys.stdin.isatty() else inputs_of(sys.stdin, dialect)))


def _engines(engine: str, settings: Settings, start: Callable[[], SparkSession]) -> Answers:
    """Return the engines of the dialect that is set."""
    from auditlake.query.engine_choice import Engines

    if settings.dialect == "spark":
        return Engines(engine, settings.spark, start)
    from auditlake.query.postgres.engine import PostgresEngines

    return PostgresEngines()


class _Started:
    """The Spark session of a shell: started by the first statement that needs it, once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session: SparkSession | None = None

    def session(self) -> SparkSession:
        if self._session is None:
            self._session = _start_spark(self._settings)
        return self._session

    def stop_jobs(self) -> None:
        from auditlake.spark.connect import is_connected

        if self._session is None:
            return
        if is_connected(self._session):
            self._session.interruptAll()
        else:
            self._session.sparkContext.cancelAllJobs()


def _start_spark(settings: Settings) -> SparkSession:
    from auditlake.spark.session import session_for_questions

    return session_for_questions(settings.spark)


def _prompted(lake: Lake, running: Shell, dialect: Language) -> Iterator[str]:
    from auditlake.lake.column_names import shown_in_state
    from auditlake.query.shell import Prompt
    from auditlake.temporal.moments import read_known

    columns = {
        name: list(shown_in_state(table.current, raw=False).values()) for name, table in read_known(lake).tables.items()
    }

    def message() -> str:
        return "auditlake> " if running.as_of is None else f"auditlake {running.as_of}> "

    return Prompt.kept(message, lambda: columns, dialect).inputs()


@click.command()
@with_settings
@with_zone
@click.option("--engine", type=click.Choice(["duckdb", "spark", "trino"]), required=True)
@as_of_option
@click.option("--parametrised", is_flag=True, help="Functions table_as_of(lsn) instead of views.")
@click.option("--open-end", type=click.Choice(["null", "9999-12-31"]), default="null", show_default=True)
def views(settings: Settings, engine: str, as_of: str | None, open_end: str, **given: bool) -> None:
    """Write SQL that creates plain views over the lake, for engines that read Delta without auditlake.

    \b
    Example:
      auditlake views --engine duckdb > views.sql
      auditlake views --engine spark --as-of 2026-11-21
      auditlake views --engine duckdb --parametrised
    """
    from auditlake.messages import write_exactly
    from auditlake.query.exported_views import Choice, view_script

    lake = existing_lake_of(settings)
    choice = Choice(as_of, open_end=open_end != "null", parametrised=given["parametrised"], zone=settings.zone)
    write_exactly(view_script(lake, engine, choice).removesuffix("\n"))


COMMANDS = (sql, shell, views)
