"""The feed of changes on the command line: `auditlake log --changes`."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from auditlake.cli.options import stopped_by_signals
from auditlake.config import Settings
from auditlake.errors import BadUsage
from auditlake.lake.layout import Lake

if TYPE_CHECKING:
    from auditlake.feed.change import ChangedTransaction
    from auditlake.feed.request import Request

_UNUSABLE = {"column": "--column", "until": "--until"}


@dataclass(frozen=True, slots=True)
class Delivery:
    """Options of `auditlake log --changes` that `auditlake log` alone does not have."""

    after: str | None
    ops: tuple[str, ...]
    allow_gaps: bool
    form: str | None
    follow: bool
    as_json: bool

    def request(self, asked: Mapping[str, Any]) -> "Request":
        """Return the request; without a start, `--follow` starts with the next transaction, else with the first.

        Raises BadUsage.
        """
        from auditlake.feed.request import BEGINNING, Request

        if unusable := [option for name, option in _UNUSABLE.items() if asked[name]]:
            raise BadUsage(f"{unusable[0]} cannot be combined with --changes", "Filter by table, key or operation.")
        since = asked["since"]
        if since is None and self.after is None and not self.follow:
            since = BEGINNING
        tables = () if asked["table"] is None else (asked["table"],)
        return Request(since, self.after, tables, asked["keys"], self.ops, None, self.follow, self.allow_gaps)


def print_changes(settings: Settings, delivery: Delivery, asked: Mapping[str, Any]) -> None:
    """Print transactions with their changes, oldest first, until a signal, the limit, or the end of the lake."""
    from auditlake.audit.transactions import Wanted

    wanted = Wanted(None, None, asked["actor"], asked["reason"], asked["unattributed"])
    left = asked["limit"] or None
    with stopped_by_signals() as stop:
        feed = delivery.request(asked).open(Lake(settings.lake), datetime.now(settings.zone), stop)
        write = _writer(settings, delivery)
        for committed in feed:
            if not wanted.takes(committed):
                continue
            write(committed)
            left = None if left is None else left - 1
            if left == 0 or stop.is_set():
                return


def _writer(settings: Settings, delivery: Delivery) -> "Callable[[ChangedTransaction], None]":
    if delivery.form is None and not delivery.as_json:
        return _text_writer(settings)
    form = _debezium(settings) if delivery.form == "debezium" else _json

    def write(committed: "ChangedTransaction") -> None:
        for line in form(committed):
            click.echo(line)

    return write


def _text_writer(settings: Settings) -> "Callable[[ChangedTransaction], None]":
    from auditlake.audit.text_output import show_change, show_log_line

    now = datetime.now(settings.zone)

    def write(committed: "ChangedTransaction") -> None:
        show_log_line(committed, now)
        for each in committed.changes:
            show_change(each.op, str(each.table), each.key_texts, (each.before_texts, each.after_texts))

    return write


def _json(committed: "ChangedTransaction") -> Iterator[str]:
    from auditlake.feed.json_lines import lines

    return lines(committed)


def _debezium(settings: Settings) -> "Callable[[ChangedTransaction], Iterator[str]]":
    from auditlake.feed.debezium import lines
    from auditlake.lake.manifest import require_manifest

    database = require_manifest(Lake(settings.lake)).database
    return lambda committed: lines(committed, database, time.time_ns() // 1_000_000)
