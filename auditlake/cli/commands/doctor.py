"""Command doctor: what this installation has and lacks."""

from __future__ import annotations  # settings are imported when a command runs

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from auditlake.cli.options import CONFIG
from auditlake.errors import AuditlakeError
from auditlake.messages import report_error, say
from auditlake.values.escapes import visible

if TYPE_CHECKING:  # commands import on demand, to start fast
    from auditlake.config import Settings
    from auditlake.doctor import Part


@click.command()
@CONFIG
@click.option("--source", help="libpq URI or conninfo of the database.")
@click.option("--lake", help="Folder of the lake [./lake].")
@click.option("--fetch", is_flag=True, help="Fetch the jars, and write the class-data archive, if they are not there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of lines.")
@click.pass_context
def doctor(context: click.Context, /, config: Path | None, *, fetch: bool, as_json: bool, **place: str | None) -> None:
    """Report Python, Java, jars, PostgreSQL, lake and settings, each with the command that fixes it.

    \b
    Example:
      auditlake doctor
      auditlake doctor --fetch
    """
    from auditlake.config import load_settings
    from auditlake.doctor import PartState, examine

    def load() -> Settings:
        return load_settings(config or context.obj, **place)

    if fetch:
        _fetch(load)
    parts = list(examine(load))
    if as_json:
        click.echo(json.dumps({"parts": [asdict(part) for part in parts]}))
    else:
        _show(parts)
    if any(part.state == PartState.MISSING for part in parts):
        sys.exit(3)


def _fetch(load: Callable[[], Settings]) -> None:
    """Fetch jars and the class-data archive; the report that follows names what is still missing."""
    from auditlake.apply.warmup import write_archive
    from auditlake.spark.jars import all_jars

    try:
        spark = load().spark
        all_jars(spark)
        say("writing the class-data archive of Spark's JVM, unless it exists: up to a minute")
        write_archive(spark)
    except AuditlakeError as error:
        report_error(error)


def _show(parts: Sequence[Part]) -> None:
    for part in parts:
        click.echo(f"{part.state:<8} {part.name:<11} {visible(part.text)}")
        if part.fix:
            click.echo(f"{'':<21}{visible(part.fix)}")


COMMANDS = (doctor,)
