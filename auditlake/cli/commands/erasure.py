"""Commands that remove values for good, and that forbid it: forget and hold."""

from __future__ import annotations  # settings are imported when a command runs

import json
from typing import TYPE_CHECKING

import click

from auditlake.cli.options import DashedCommand, lake_of, this_user, with_settings
from auditlake.errors import BadUsage, ConfigError
from auditlake.lake.layout import Lake
from auditlake.messages import say

if TYPE_CHECKING:
    from auditlake.config import Settings
    from auditlake.lake.erasures import Erasure


@click.command()
@with_settings
@click.argument("action", type=click.Choice(["add", "list", "release"]))
@click.argument("name", required=False)
@click.option("--table", "pattern", metavar="PATTERN", help="Tables to hold: schema.table, * and ? match.")
@click.option("--key", multiple=True, metavar="VALUE", help="Only the row with this key; repeat it for each column.")
@click.option("--until", metavar="WHEN", help="When the hold ends by itself [when it is released].")
@click.option("--reason", metavar="TEXT", help="Why; it is recorded.")
@click.option("--by", metavar="WHO", default=this_user, help="Who demands it [the system's user].")
@click.option("--json", "as_json", is_flag=True, help="List as one JSON object a line.")
def hold(settings: Settings, *, action: str, name: str | None, as_json: bool, **given: object) -> None:
    """Forbid that rows or tables are erased or expire, until the hold NAME is released; add, list or release one.

    \b
    Example:
      auditlake hold add case-17 --table public.orders --reason 'court order 17/2026'
      auditlake hold add case-18 --table customers --key 42 --until 2027-12-31 --reason 'complaint'
      auditlake hold release case-17 --reason 'settled'
    """
    lake = lake_of(settings)
    if action == "list":
        _list(lake, as_json=as_json)
        return
    reason = given["reason"]
    if name is None or not isinstance(reason, str):
        raise BadUsage(f"hold {action} needs a name and --reason", "See auditlake hold --help.")
    if action == "add":
        _add(settings, lake, name, reason, given)
        return
    from auditlake.erasure.holding import release_hold

    release_hold(lake, name, reason, str(given["by"]))
    say(f"released {name}")


def _add(settings: Settings, lake: Lake, name: str, reason: str, given: dict[str, object]) -> None:
    from datetime import datetime

    from auditlake.erasure.holding import WantedHold, add_hold

    if not isinstance(pattern := given["pattern"], str):
        raise BadUsage("hold add needs --table", "Name the tables to hold: --table public.orders, or '*.*' for all.")
    until = None if given["until"] is None else str(given["until"])
    key = given["key"] if isinstance(given["key"], tuple) else ()
    wanted = WantedHold(name, pattern, key, until, reason, str(given["by"]))
    covered = add_hold(lake, wanted, datetime.now(settings.zone))
    what = "one row of " if wanted.key else ""
    say(f"{name} holds {what}{', '.join(table.label for table in covered)}")


def _list(lake: Lake, *, as_json: bool) -> None:
    from auditlake.lake.holds import holds_in_force
    from auditlake.lake.manifest import require_manifest
    from auditlake.status import hold_json
    from auditlake.terminal import show_holds

    require_manifest(lake)
    held = [hold_json(each) for each in holds_in_force(lake)]
    if as_json:
        for each in held:
            click.echo(json.dumps(each))
    elif held:
        show_holds(held)
    else:
        say("no hold is in force")


@click.command(cls=DashedCommand)
@with_settings
@click.argument("table", required=False)
@click.argument("key", nargs=-1)
@click.option(
    "--where",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="In a table without a key: the rows that had these values; may be repeated.",
)
@click.option("--columns", metavar="NAMES", help="Only the values of these columns, with commas; the row stays.")
@click.option("--reason", metavar="TEXT", help="Why; it is recorded.")
@click.option("--by", metavar="WHO", default=this_user, help="Who demands it [the system's user].")
@click.option("--dry-run", is_flag=True, help="Only check, and show what would be erased.")
@click.option("--resume", "finishes", is_flag=True, help="Finish an erasure that was killed.")
@click.option("--returned", is_flag=True, help="Only list rows that were erased and are in the lake again.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each erasure or returned row.")
@click.option(
    "--delete-versions", is_flag=True, help="In a bucket that keeps older versions of objects, delete those concerned."
)
def forget(settings: Settings, *, table: str | None, key: tuple[str, ...], finishes: bool, **given: object) -> None:
    """Erase the row with this KEY from the lake's files for good: its whole past, or the past of some columns.

    PostgreSQL must not have the row any more, or other values in these columns.

    \b
    Example:
      auditlake forget customers 42 --columns name,email --reason 'request of 2026-11-24'
      auditlake forget orders 7 --reason 'request of 2026-11-24' --dry-run
      auditlake forget logins --where email=eve@example.org --reason 'request of 2026-11-24'
      auditlake forget --resume
      auditlake forget --returned
    """
    from auditlake.erasure import forget as erasing

    lake = lake_of(settings)
    if given["returned"]:
        _show_returned(settings, lake, as_json=bool(given["as_json"]))
        return
    if finishes:
        if table is not None:
            raise BadUsage("--resume finishes what was begun, and takes no table", "Leave it out.")
        done = erasing.resume(lake, delete_versions=bool(given["delete_versions"]))
        for each in done:
            _show_erasure(each, "erased", as_json=bool(given["as_json"]))
        if not done:
            say("no erasure is unfinished")
        return
    if table is None or not (key or given["where"]) or not isinstance(given["reason"], str):
        raise BadUsage("forget needs a table, a key and --reason", "See auditlake forget --help.")
    _forget(settings, lake, (table, key), given)


def _show_returned(settings: Settings, lake: Lake, *, as_json: bool) -> None:
    from datetime import datetime

    from auditlake.audit.json_output import line
    from auditlake.erasure import returned
    from auditlake.lake.manifest import require_manifest
    from auditlake.values.escapes import visible

    require_manifest(lake)
    found = returned.find_returned(lake, datetime.now(settings.zone))
    for each in found:
        shown = returned.as_json(each)
        text = f"{shown['table']} {' '.join(each.key)}  since {each.lsn}"
        click.echo(line(shown) if as_json else visible(text))
    if found:
        raise ConfigError(
            f"{len(found)} erased rows are in the lake again",
            "Delete them in PostgreSQL, let auditlake follow apply that, then run auditlake forget TABLE KEY.",
        )
    say("no erased row is in the lake again")


def _forget(settings: Settings, lake: Lake, row: tuple[str, tuple[str, ...]], given: dict[str, object]) -> None:
    from datetime import datetime

    from auditlake.erasure.forget import forget as erase
    from auditlake.erasure.scope import Wanted

    columns = tuple(name.strip() for name in str(given["columns"] or "").split(",") if name.strip())
    where = given["where"] if isinstance(given["where"], tuple) else ()
    wanted = Wanted(*row, columns, str(given["reason"]), str(given["by"]), where)
    only = bool(given["dry_run"])
    with_versions = bool(given["delete_versions"])
    found = erase(lake, wanted, datetime.now(settings.zone), dry_run=only, delete_versions=with_versions)
    _show_erasure(found, "would erase" if only else "erased", as_json=bool(given["as_json"]))
    if only and with_versions:
        from auditlake.erasure.older_versions import list_older

        older = list_older(lake, found.name)
        say(f"would delete {len(older):,} older versions of objects, {sum(each.size_bytes for each in older):,} bytes")


def _show_erasure(erasure: Erasure, verb: str, *, as_json: bool) -> None:
    from auditlake.status import erasure_json

    if as_json:
        click.echo(json.dumps(erasure_json(erasure)))
    counts = f"{erasure.versions:,} versions, {erasure.changes:,} changes, {len(erasure.tokens)} keys"
    say(f"{verb} {erasure.what}: {counts}")


COMMANDS = (hold, forget)
