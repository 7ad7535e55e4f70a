"""Audit commands: log, show, row, diff, blame, deleted. None starts a JVM."""

from __future__ import annotations  # settings are imported when a command runs

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from auditlake.cli.commands.feed import Delivery, print_changes
from auditlake.cli.options import (
    DashedCommand,
    existing_lake_of,
    stopped_by_signals,
    with_gaps,
    with_settings,
    with_zone,
)
from auditlake.errors import BadUsage
from auditlake.messages import say

if TYPE_CHECKING:
    from auditlake.audit.lake_reader import Reader
    from auditlake.config import Settings

_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
_SINCE = click.option("--since", metavar="WHEN", help="From this moment on, inclusive.")
_UNTIL = click.option("--until", metavar="WHEN", help="Up to this moment, inclusive [now].")
_AS_OF = click.option("--as-of", "until", metavar="WHEN", help="As known at this moment [now].")
_KEY = click.argument("key", nargs=-1, required=True)
_OPTIONS = {"after": "--after", "ops": "--op", "allow_gaps": "--allow-gaps", "form": "--format"}


def _reader(settings: Settings, *tables: str) -> Reader:
    """Read the lake; for a question about the named tables alone, if there are any."""
    from auditlake.audit.lake_reader import Reader
    from auditlake.lake.histories import ALL
    from auditlake.temporal.moments import read_known
    from auditlake.temporal.table_lookup import mentioned

    lake = existing_lake_of(settings)
    asked = mentioned(*tables) if tables else ALL
    known = read_known(lake, allow_gaps=settings.allow_gap, asked=asked, by_commits=True)
    return Reader(lake, datetime.now(settings.zone), known)


@click.command()
@with_settings
@with_zone
@click.option("--table", metavar="TABLE", help="Transactions that changed this table.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="KEY",
    help="That touched this row of --table: id=7, or its value.",
)
@click.option("--column", metavar="NAME", help="That changed the value of this column in some row of --table.")
@click.option("--actor", metavar="NAME", help="By this actor, ignoring case.")
@click.option("--reason", metavar="TEXT", help="Whose reason contains this.")
@click.option("--unattributed", is_flag=True, help="Without an actor.")
@_SINCE
@_UNTIL
@click.option(
    "-n", "--limit", type=click.IntRange(min=0), help="At most this number; 0 is all [20, with --changes all]."
)
@click.option("--follow", is_flag=True, help="Continue with new ones as they are captured, oldest first.")
@_JSON
@click.option("--changes", "contents", is_flag=True, help="Whole transactions, oldest first, with their changes.")
@click.option("--after", metavar="CURSOR", help="With --changes: start after this cursor.")
@click.option(
    "--op",
    "ops",
    multiple=True,
    type=click.Choice(["insert", "update", "delete", "truncate"]),
    help="With --changes: these operations only.",
)
@click.option("--allow-gaps", is_flag=True, help="With --changes: go on where changes are known to be missing.")
@click.option("--format", "form", type=click.Choice(["json", "debezium"]), help="With --changes: form of the lines.")
def log(settings: Settings, *, follow: bool, as_json: bool, **asked: Any) -> None:  # noqa: ANN401 - click's own
    """List transactions, newest first: when, who, why, which tables, how many changes.

    --changes delivers whole transactions instead, oldest first, to programs that act on them (docs/changes.md).

    \b
    Example:
      auditlake log --table orders --since -1d
      auditlake log --unattributed --json -n 0
      auditlake log --follow --changes --table orders --json
    """
    from auditlake.audit import json_output as objects
    from auditlake.audit.queries import LogQuestion, follow_log, log_of
    from auditlake.audit.text_output import show_log, show_log_line

    delivery = {name: asked.pop(name) for name in ("contents", "after", "ops", "allow_gaps", "form")}
    if delivery.pop("contents"):
        print_changes(settings, Delivery(**delivery, follow=follow, as_json=as_json), asked)
        return
    if unusable := [name for name, value in delivery.items() if value]:
        raise BadUsage(f"{_OPTIONS[unusable[0]]} needs --changes", "Add --changes.")
    if follow and asked["until"]:
        raise BadUsage("--until cannot be combined with --follow", "Omit one of them.")
    asked["limit"] = 20 if asked["limit"] is None else asked["limit"]
    question = LogQuestion.read(asked)
    reader = _reader(settings)
    found = log_of(reader, question)
    if as_json or follow:
        listed = reversed(list(found)) if follow else found
        with stopped_by_signals() as stop:
            for each in follow_log(reader, question, listed, stop) if follow else listed:
                if as_json:
                    click.echo(objects.line(objects.transaction_json(each)))
                else:
                    show_log_line(each, reader.now)
        return
    show_log(found, reader.now)


@click.command()
@with_settings
@with_zone
@click.argument("transaction", metavar="TXN")
@_JSON
def show(settings: Settings, transaction: str, *, as_json: bool) -> None:
    """Show one transaction: every change in order, old → new; TXN is its commit LSN or xid:N.

    \b
    Example:
      auditlake show 0/16B3748
      auditlake show xid:750 --json
    """
    from auditlake.audit import json_output as objects
    from auditlake.audit.text_output import show_transaction
    from auditlake.audit.transaction_contents import contents, find_transaction

    reader = _reader(settings)
    found, lsns = find_transaction(reader, transaction)
    if len(lsns) > 1:
        say(f"{transaction} committed at {', '.join(map(str, lsns))}; this is the last, name the LSN for another")
    if not as_json:
        show_transaction(found, contents(reader, found), reader.now)
        return
    click.echo(objects.line({"kind": "transaction", **objects.transaction_json(found)}))
    for each in contents(reader, found):
        click.echo(objects.line(objects.content_json(each)))


@click.command(cls=DashedCommand)
@with_settings
@with_gaps
@with_zone
@click.argument("table")
@_KEY
@_SINCE
@_UNTIL
@click.option("--full", is_flag=True, help="Whole rows, not only what changed.")
@_JSON
def row(settings: Settings, *, full: bool, as_json: bool, **asked: object) -> None:
    """Show the history of one row, newest first: what changed, who changed it and why.

    KEY is `id=7`, several of them for a composite key, or the bare values in the order of the key.

    \b
    Example:
      auditlake row orders 7
      auditlake row order_lines order_id=7 line_no=2 --since -1d --json
    """
    from auditlake.audit import json_output as objects
    from auditlake.audit.queries import RowQuestion, life_of, never
    from auditlake.audit.text_output import show_event, show_gap
    from auditlake.lake.gaps import Gap

    question = RowQuestion.read(asked)
    reader = _reader(settings, question.table)
    life = life_of(reader, question)
    if not life.events:
        say(never(reader, life.table, life.span.upto))
    for each in life.entries():
        if as_json:
            found = objects.gap_json(each) if isinstance(each, Gap) else objects.event_json(each)
            click.echo(objects.line({name: value for name, value in found.items() if full or name != "row"}))
        elif isinstance(each, Gap):
            show_gap(each)
        else:
            show_event(each, reader.now, full=full)


@click.command(cls=DashedCommand)
@with_settings
@with_gaps
@with_zone
@click.argument("moment_a", metavar="A")
@click.argument("moment_b", metavar="[B]", required=False)
@click.argument("names", metavar="[TABLE]...", nargs=-1)
@click.option("--stat", is_flag=True, help="Only how many rows and cells.")
@click.option("-R", "--reverse", is_flag=True, help="From B to A.")
@click.option("--format", "output", type=click.Choice(["table", "json", "sql"]), default="table", show_default=True)
@_JSON
def diff(  # noqa: PLR0913 - the arguments of a command
    settings: Settings,
    *,
    moment_a: str,
    moment_b: str | None,
    names: tuple[str, ...],
    stat: bool,
    reverse: bool,
    output: str,
    as_json: bool,
) -> None:
    """Compare two moments, net: what rows were added, removed and modified, and in which columns; B is now by default.

    --format sql writes a script that brings PostgreSQL from the state at A to the state at B exactly, or fails.

    \b
    Example:
      auditlake diff -1d --stat
      auditlake diff yesterday today orders
      auditlake diff 2026-11-21 -5m orders --format sql -R | psql -v ON_ERROR_STOP=1
    """
    from auditlake.audit import json_output as objects
    from auditlake.audit.queries import DiffQuestion
    from auditlake.audit.text_output import show_diff, show_stat
    from auditlake.audit.undo_script import patch
    from auditlake.messages import write_exactly

    found = DiffQuestion(moment_a, moment_b, names, reverse).diffs(_reader(settings))
    if output == "sql":
        for statement in patch(found):
            write_exactly(statement)
    elif as_json or output == "json":
        for table in found:
            for each in [objects.stat_fields(table)] if stat else objects.differences_json(table):
                click.echo(objects.line(each))
    elif stat:
        show_stat((str(table.name), table.stat()) for table in found)
    else:
        for table in found:
            show_diff(table)


@click.command(cls=DashedCommand)
@with_settings
@with_gaps
@with_zone
@click.argument("table")
@_KEY
@_AS_OF
@_JSON
def blame(settings: Settings, *, as_json: bool, **asked: object) -> None:
    """Show for each column of a row who set its value, when and why; for a deleted row, who deleted it.

    \b
    Example:
      auditlake blame orders 7
      auditlake blame orders id=7 --as-of -1d --json
    """
    from auditlake.audit import json_output as objects
    from auditlake.audit.queries import RowQuestion, blame_of, never
    from auditlake.audit.text_output import show_blame, who
    from auditlake.lake.history import RESYNC
    from auditlake.temporal.when import format_us

    question = RowQuestion.read(asked)
    reader = _reader(settings, question.table)
    found = blame_of(reader, question)
    if not found.columns:
        say(never(reader, found.table, found.upto))
        return
    if as_json:
        for each in found.columns:
            click.echo(objects.line(objects.blame_json(each)))
        return
    deleted, op = found.columns[0].deleted, found.columns[0].deleted_by
    if deleted is not None:
        at = format_us(deleted.time_us or 0, reader.zone)
        how = f"not in the snapshot of {at}" if op == RESYNC else f"{op} by {who(deleted)} at {at}"
        say(f"the row is gone: {how}; its last {'known ' if op == RESYNC else ''}state is")
    show_blame(found.columns, found.table.first_snapshot_lsn, reader.now)


@click.command()
@with_settings
@with_gaps
@with_zone
@click.argument("table")
@_SINCE
@_AS_OF
@_JSON
def deleted(settings: Settings, table: str, since: str | None, until: str | None, *, as_json: bool) -> None:
    """List deleted rows: their last state, who deleted them and when; newest first.

    \b
    Example:
      auditlake deleted orders --since -7d
      auditlake deleted orders --json
    """
    from auditlake.audit import json_output as objects
    from auditlake.audit.queries import deleted_of
    from auditlake.audit.text_output import show_deleted

    reader = _reader(settings, table)
    named, rows = deleted_of(reader, table, since, until)
    if not as_json:
        show_deleted(rows, reader.columns_at(named, reader.span(None, until).upto), reader.now)
        return
    for each in rows:
        click.echo(objects.line(objects.deleted_json(each)))


COMMANDS = (log, show, row, diff, blame, deleted)
