"""Commands that remove values for good, and that forbid it: forget and hold."""

from __future__ import annotations  # settings are imported when a command runs

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from auditlake.cli.options import DashedCommand, existing_lake_of, this_user, with_settings
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
def hold(settings: Settings, *, action: str, name: str | None, as_json: bool, **given: Any) -> None:  # noqa: ANN401
    """Forbid that rows or tables are erased or expire, until the hold NAME is released; add, list or release one.

    \b
    Example:
      auditlake hold add case-17 --table public.orders --reason 'court order 17/2026'
      auditlake hold add case-18 --table customers --key 42 --until 2027-12-31 --reason 'complaint'
      auditlake hold release case-17 --reason 'settled'
    """
    from auditlake.erasure.holding import WantedHold, add_hold, release_hold

    lake = existing_lake_of(settings)
    if action == "list":
        _list(lake, as_json=as_json)
        return
    if name is None or given["reason"] is None:
        raise BadUsage(f"hold {action} needs a name and --reason", "See auditlake hold --help.")
    if action == "release":
        release_hold(lake, name, given["reason"], given["by"])
        say(f"released {name}")
        return
    if given["pattern"] is None:
        raise BadUsage("hold add needs --table", "Name the tables to hold: --table public.orders, or '*.*' for all.")
    covered = add_hold(lake, WantedHold(name, **given), datetime.now(settings.zone))
    what = "one row of " if given["key"] else ""
    say(f"{name} holds {what}{', '.join(table.label for table in covered)}")


def _list(lake: Lake, *, as_json: bool) -> None:
    from auditlake.lake.holds import holds_in_force
    from auditlake.status import hold_json
    from auditlake.terminal import show_holds

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
def forget(  # noqa: PLR0913 - the options of a command
    settings: Settings,
    *,
    table: str | None,
    finishes: bool,
    returned: bool,
    as_json: bool,
    dry_run: bool,
    delete_versions: bool,
    **given: Any,  # noqa: ANN401 - the row, and why
) -> None:
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
    from auditlake.erasure.forget import forget as erase
    from auditlake.erasure.scope import Wanted

    lake = existing_lake_of(settings)
    if returned:
        _show_returned(settings, lake, as_json=as_json)
        return
    if finishes:
        if table is not None:
            raise BadUsage("--resume finishes what was begun, and takes no table", "Leave it out.")
        _resume(lake, delete_versions=delete_versions, as_json=as_json)
        return
    if table is None or not (given["key"] or given["where"]) or given["reason"] is None:
        raise BadUsage("forget needs a table, a key and --reason", "See auditlake forget --help.")
    given["columns"] = tuple(name.strip() for name in (given["columns"] or "").split(",") if name.strip())
    now = datetime.now(settings.zone)
    found = erase(lake, Wanted(table, **given), now, dry_run=dry_run, delete_versions=delete_versions)
    _show_erasure(found, "would erase" if dry_run else "erased", as_json=as_json)
    if dry_run and delete_versions:
        _show_older(lake, found)


def _resume(lake: Lake, *, delete_versions: bool, as_json: bool) -> None:
    from auditlake.erasure.forget import resume

    done = resume(lake, delete_versions=delete_versions)
    for each in done:
        _show_erasure(each, "erased", as_json=as_json)
    if not done:
        say("no erasure is unfinished")


def _show_older(lake: Lake, found: Erasure) -> None:
    from auditlake.erasure.forget import list_older

    older = list_older(lake, found.name)
    say(f"would delete {len(older):,} older versions of objects, {sum(each.size_bytes for each in older):,} bytes")


def _show_returned(settings: Settings, lake: Lake, *, as_json: bool) -> None:
    from auditlake.audit.json_output import line
    from auditlake.erasure import returned
    from auditlake.values.escapes import visible

    found = returned.find_returned(lake, datetime.now(settings.zone))
    for each in found:
        shown = returned.as_fields(each)
        text = f"{shown['table']} {' '.join(each.key)}  since {each.lsn}"
        click.echo(line(shown) if as_json else visible(text))
    if found:
        raise ConfigError(
            f"{len(found)} erased rows are in the lake again",
            "Delete them in PostgreSQL, let auditlake follow apply that, then run auditlake forget TABLE KEY.",
        )
    say("no erased row is in the lake again")


def _show_erasure(erasure: Erasure, verb: str, *, as_json: bool) -> None:
    from auditlake.status import erasure_json

    if as_json:
        click.echo(json.dumps(erasure_json(erasure)))
    counts = f"{erasure.versions:,} versions, {erasure.changes:,} changes, {len(erasure.tokens)} keys"
    say(f"{verb} {erasure.what}: {counts}")


COMMANDS = (hold, forget)
