"""Commands that ask who changed what: log, show, row, diff, blame, deleted. None starts a JVM."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from auditlake.config import Settings
from auditlake.lake.layout import Lake
from auditlake.messages import say
from auditlake.options import stopped_by_signals, with_settings

if TYPE_CHECKING:
    from auditlake.audit.reading import Reader

_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
_SINCE = click.option("--since", metavar="WHEN", help="From that moment on, it included.")
_UNTIL = click.option("--until", metavar="WHEN", help="Up to that moment, it included [now].")
_AS_OF = click.option("--as-of", "until", metavar="WHEN", help="As it was known at that moment [now].")
# A relative time or a negative key begins with a dash and is no option; so -h would be taken out of -2h.
_DASHES = {"ignore_unknown_options": True, "help_option_names": ["--help"]}
_KEY = click.argument("key", nargs=-1, required=True)


def _reader(settings: Settings) -> "Reader":
    from auditlake.audit.reading import Reader
    from auditlake.lake.manifest import require_manifest

    lake = Lake(settings.lake)
    require_manifest(lake)
    return Reader(lake, datetime.now(UTC))


@click.command()
@with_settings
@click.option("--table", metavar="TABLE", help="Transactions that changed this table.")
@click.option(
    "--key", "keys", multiple=True, metavar="KEY", help="That touched this row of --table; id=7, or its value."
)
@click.option("--column", metavar="NAME", help="That left some row of --table with another value in this column.")
@click.option("--actor", metavar="NAME", help="By this actor.")
@click.option("--reason", metavar="TEXT", help="Whose reason contains this.")
@click.option("--unattributed", is_flag=True, help="That do not say who acted.")
@_SINCE
@_UNTIL
@click.option("-n", "limit", type=click.IntRange(min=0), default=20, show_default=True, help="At most; 0 is all.")
@click.option("--follow", is_flag=True, help="Go on with new ones as they come, oldest first.")
@_JSON
def log(settings: Settings, *, follow: bool, as_json: bool, **asked: object) -> None:
    """List transactions, newest first: when, who, why, which tables, how many changes.

    \b
    Example:
      auditlake log --table orders --since -1d
      auditlake log --unattributed --json -n 0
    """
    from auditlake.audit.answers import LogQuestion, follow_log, log_of
    from auditlake.audit.objects import line
    from auditlake.audit.render import show_log, show_log_line

    question = LogQuestion.read(asked)
    reader = _reader(settings)
    found = log_of(reader, question)
    if as_json or follow:
        listed = reversed(list(found)) if follow else found
        with stopped_by_signals() as stop:
            for each in follow_log(reader, question, listed, stop) if follow else listed:
                click.echo(line(each.as_json())) if as_json else show_log_line(each)
        return
    show_log(found)


@click.command()
@with_settings
@click.argument("transaction", metavar="TXN")
@_JSON
def show(settings: Settings, transaction: str, *, as_json: bool) -> None:
    """Show one transaction whole: every change in its order, old → new; TXN is its commit LSN or xid:N.

    \b
    Example:
      auditlake show 0/16B3748
      auditlake show xid:750 --json
    """
    from auditlake.audit import objects
    from auditlake.audit.render import show_transaction
    from auditlake.audit.show import contents, find_transaction

    reader = _reader(settings)
    found, lsns = find_transaction(reader, transaction)
    if len(lsns) > 1:
        say(f"{transaction} committed at {', '.join(map(str, lsns))}; this is the last, name the LSN for another")
    if not as_json:
        show_transaction(found, contents(reader, found))
        return
    click.echo(objects.line({"kind": "transaction", **found.as_json()}))
    for each in contents(reader, found):
        click.echo(objects.line(objects.content(each)))


@click.command(context_settings=_DASHES)
@with_settings
@click.argument("table")
@_KEY
@_SINCE
@_UNTIL
@click.option("--full", is_flag=True, help="Whole rows, not only what changed.")
@_JSON
def row(settings: Settings, *, full: bool, as_json: bool, **asked: object) -> None:
    """Tell the life of one row, newest first: what changed, who changed it and why.

    KEY is `id=7`, several of them for a composite key, or the bare values in the order of the key.

    \b
    Example:
      auditlake row orders 7
      auditlake row order_lines order_id=7 line_no=2 --since -1d --json
    """
    from auditlake.audit import objects
    from auditlake.audit.answers import RowQuestion, life_of, never
    from auditlake.audit.render import show_event, show_gap

    reader = _reader(settings)
    life = life_of(reader, RowQuestion.read(asked))
    if not life.events:
        say(never(life.table, life.span.upto))
    for each, transaction in life.entries():
        if isinstance(each, dict):
            fields = objects.gap(each)
            click.echo(objects.line(fields)) if as_json else show_gap(
                f"gap {fields['lsn']} to {fields['to_lsn']}: {fields['reason']}"
            )
        elif as_json:
            click.echo(objects.line(objects.event(each, transaction, life.key, full=full)))
        else:
            show_event(each, transaction, life.key, full=full)


@click.command(context_settings=_DASHES)
@with_settings
@click.argument("moment_a", metavar="A")
@click.argument("moment_b", metavar="B")
@click.argument("names", metavar="[TABLE]...", nargs=-1)
@click.option("--stat", is_flag=True, help="Only how many rows and cells.")
@click.option("-R", "--reverse", is_flag=True, help="From B to A.")
@click.option("--format", "output", type=click.Choice(["table", "json", "sql"]), default="table", show_default=True)
@_JSON
def diff(  # noqa: PLR0913 - the arguments of a command
    settings: Settings,
    *,
    moment_a: str,
    moment_b: str,
    names: tuple[str, ...],
    stat: bool,
    reverse: bool,
    output: str,
    as_json: bool,
) -> None:
    """Compare two moments, net: what rows were added, removed and modified, and in which columns.

    --format sql writes the statements that bring PostgreSQL from the state at A to the state at B.

    \b
    Example:
      auditlake diff -1d 0/16B3748 --stat
      auditlake diff 2026-11-21 -5m orders --format sql -R
    """
    from auditlake.audit.answers import DiffQuestion
    from auditlake.audit.objects import diff_lines
    from auditlake.audit.patch import patch
    from auditlake.audit.render import show_diff, show_stat

    found = DiffQuestion(moment_a, moment_b, names, reverse).diffs(_reader(settings))
    if output == "sql":
        for statement in patch(found):
            click.echo(statement)
    elif as_json or output == "json":
        for line in diff_lines(found, stat=stat):
            click.echo(line)
    elif stat:
        show_stat((str(table.name), table.stat()) for table in found)
    else:
        for table in found:
            show_diff(table)


@click.command(context_settings=_DASHES)
@with_settings
@click.argument("table")
@_KEY
@_AS_OF
@_JSON
def blame(settings: Settings, *, as_json: bool, **asked: object) -> None:
    """Say for each column of a row who set its value, when and why; of a deleted row, who deleted it.

    \b
    Example:
      auditlake blame orders 7
      auditlake blame orders id=7 --as-of -1d --json
    """
    from auditlake.audit import objects
    from auditlake.audit.answers import RowQuestion, blame_of, never
    from auditlake.audit.render import show_blame, who

    reader = _reader(settings)
    found = blame_of(reader, RowQuestion.read(asked))
    if not found.columns:
        say(never(found.table, found.upto))
    if as_json:
        for each, transaction in found.columns:
            click.echo(objects.line(objects.blame(each, transaction, found.ended)))
        return
    mark, by = found.ended
    if mark is not None:
        actor = who(by.context) if by else "unknown"
        say(f"the row is gone: {mark.op} by {actor} at {found.ended_at}; its last state is")
    show_blame(found.columns, found.horizon)


@click.command()
@with_settings
@click.argument("table")
@_SINCE
@_AS_OF
@_JSON
def deleted(settings: Settings, table: str, since: str | None, until: str | None, *, as_json: bool) -> None:
    """List rows that existed and do not: their last state, who deleted them and when; newest first.

    \b
    Example:
      auditlake deleted orders --since -7d
      auditlake deleted orders --json
    """
    from auditlake.audit import objects
    from auditlake.audit.answers import deleted_of
    from auditlake.audit.render import show_deleted

    reader = _reader(settings)
    named, rows = deleted_of(reader, table, since, until)
    if not as_json:
        show_deleted(rows, named.columns)
        return
    for each, transaction in rows:
        click.echo(objects.line(objects.deleted(each, transaction, named.name, named.key)))


COMMANDS = (log, show, row, diff, blame, deleted)
