"""The feed of changes on the command line: `auditlake log --changes` and `auditlake webhook`."""

from __future__ import annotations  # settings are imported when a command runs

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from auditlake.cli.options import (
    FILE,
    exported_metrics,
    lake_of,
    stopped_by_signals,
    with_metrics,
    with_settings,
    with_zone,
)
from auditlake.counters import Beat
from auditlake.errors import BadUsage
from auditlake.messages import say

if TYPE_CHECKING:
    from auditlake.config import Settings
    from auditlake.feed.change import ChangedTransaction
    from auditlake.feed.request import FeedRequest


@dataclass(frozen=True, slots=True)
class Delivery:
    """Options of `auditlake log --changes` that `auditlake log` alone does not have."""

    after: str | None
    ops: tuple[str, ...]
    allow_gaps: bool
    form: str | None
    follow: bool
    as_json: bool

    def request(self, asked: Mapping[str, Any]) -> FeedRequest:
        """Return the request; it begins with the next transaction if following, else the first. Raises BadUsage."""
        from auditlake.feed.request import BEGINNING, FeedRequest

        if asked["until"]:
            raise BadUsage("--until cannot be combined with --changes", "Limit the number with -n.")
        since = asked["since"]
        if since is None and self.after is None and not self.follow:
            since = BEGINNING
        tables = () if asked["table"] is None else (asked["table"],)
        filters = {"key": asked["keys"], "ops": self.ops, "column": asked["column"]}
        return FeedRequest(since, self.after, tables, **filters, follow=self.follow, allow_gaps=self.allow_gaps)


def print_changes(settings: Settings, delivery: Delivery, asked: Mapping[str, Any]) -> None:
    """Print transactions with their changes, oldest first, until a signal, the limit, or the end of the lake."""
    from auditlake.audit.transactions import TransactionFilters

    wanted = TransactionFilters(actor=asked["actor"], reason=asked["reason"], unattributed=asked["unattributed"])
    left = asked["limit"] or None
    with stopped_by_signals() as stop:
        feed = delivery.request(asked).open(lake_of(settings), datetime.now(settings.zone), stop)
        write = _writer(settings, delivery)
        for committed in feed:
            if not wanted.takes(committed):
                continue
            write(committed)
            left = None if left is None else left - 1
            if left == 0 or stop.is_set():
                return


def _writer(settings: Settings, delivery: Delivery) -> Callable[[ChangedTransaction], None]:
    if delivery.form is None and not delivery.as_json:
        return _text_writer(settings)
    form = _debezium(settings) if delivery.form == "debezium" else _json

    def write(committed: ChangedTransaction) -> None:
        for line in form(committed):
            click.echo(line)

    return write


def _text_writer(settings: Settings) -> Callable[[ChangedTransaction], None]:
    from auditlake.audit.text_output import show_change, show_log_line

    now = datetime.now(settings.zone)

    def write(committed: ChangedTransaction) -> None:
        show_log_line(committed, now)
        for each in committed.changes:
            show_change(each.op, str(each.table), each.key_texts, (each.before_texts, each.after_texts))

    return write


def _json(committed: ChangedTransaction) -> Iterator[str]:
    from auditlake.feed.change import lines

    return lines(committed)


def _debezium(settings: Settings) -> Callable[[ChangedTransaction], Iterator[str]]:
    from auditlake.feed.debezium import envelopes
    from auditlake.lake.manifest import require_manifest

    database = require_manifest(lake_of(settings)).database
    return lambda committed: envelopes(committed, database, time.time_ns() // 1_000_000)


@click.command()
@with_settings
@with_zone
@click.argument("url")
@click.option("--table", "names", multiple=True, metavar="TABLE", help="Changes of this table only; may be repeated.")
@click.option("--op", "ops", multiple=True, metavar="OP", help="Only insert, update, delete or truncate.")
@click.option("--since", metavar="WHEN", help="Where the first run starts [the next transaction]; or beginning.")
@click.option("--allow-gaps", is_flag=True, help="Go on where changes are known to be missing.")
@click.option("--until-current", is_flag=True, help="Return when everything in the lake was received.")
@click.option(
    "--state",
    type=FILE,
    default="auditlake-webhook.json",
    show_default=True,
    help="File with the cursor of what was received.",
)
@with_metrics
def webhook(  # noqa: PLR0913 - the options of a command
    settings: Settings,
    *,
    url: str,
    names: tuple[str, ...],
    ops: tuple[str, ...],
    since: str | None,
    allow_gaps: bool,
    until_current: bool,
    state: Path,
) -> None:
    """Send every transaction to a URL, in commit order, at least once; requests are signed.

    The secret is in AUDITLAKE_WEBHOOK_SECRET. docs/changes.md describes request and signature.

    \b
    Example:
      auditlake webhook https://example.com/hooks/lake --table orders
    """
    from auditlake.feed.request import FeedRequest
    from auditlake.feed.webhook import SECRET, Receiver, Sender, StateFile, begun, exclusive, run, selection_of

    target = Receiver.parse(url, os.environ.get(SECRET))
    stored = StateFile(state, target.name, selection_of(names, ops))
    with exclusive(state), stopped_by_signals() as stop, exported_metrics(settings, Beat.WEBHOOK):
        cursor = stored.cursor()
        if cursor is not None and since is not None:  # a service is started again with the same options
            say(f"{state} has a cursor, so --since, which is for the first run, does not apply")
            since = None
        asked = FeedRequest(since, cursor, names, (), ops, None, not until_current, allow_gaps)
        with begun(stored), closing(Sender(target, stop)) as sender:
            feed = asked.open(lake_of(settings), datetime.now(settings.zone), stop)
            count = run(feed, sender, stored, stop, follow=not until_current)
    say(f"{target.address.host} has received {count:,} transactions; the next run continues after {stored.cursor()}")


COMMANDS = (webhook,)
