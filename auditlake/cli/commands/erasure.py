"""Commands that forbid the removal of values: hold."""

from __future__ import annotations  # settings are imported when a command runs

import getpass
import json
from typing import TYPE_CHECKING

import click

from auditlake.cli.options import with_settings
from auditlake.errors import BadUsage
from auditlake.lake.layout import Lake
from auditlake.messages import say

if TYPE_CHECKING:
    from auditlake.config import Settings


@click.command()
@with_settings
@click.argument("action", type=click.Choice(["add", "list", "release"]))
@click.argument("name", required=False)
@click.option("--table", "pattern", metavar="PATTERN", help="Tables to hold: schema.table, * and ? match.")
@click.option("--key", multiple=True, metavar="VALUE", help="Only the row with this key; repeat it for each column.")
@click.option("--until", metavar="WHEN", help="When the hold ends by itself [when it is released].")
@click.option("--reason", metavar="TEXT", help="Why; it is recorded.")
@click.option("--by", metavar="WHO", default=getpass.getuser, help="Who demands it [the system's user].")
@click.option("--json", "as_json", is_flag=True, help="List as one JSON object a line.")
def hold(settings: Settings, *, action: str, name: str | None, as_json: bool, **given: object) -> None:
    """Forbid that rows or tables are erased or expire, until the hold NAME is released; add, list or release one.

    \b
    Example:
      auditlake hold add case-17 --table public.orders --reason 'court order 17/2026'
      auditlake hold add case-18 --table customers --key 42 --until 2027-12-31 --reason 'complaint'
      auditlake hold release case-17 --reason 'settled'
    """
    lake = Lake(settings.lake)
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

    from auditlake.erasure.holding import Wanted, add_hold

    if not isinstance(pattern := given["pattern"], str):
        raise BadUsage("hold add needs --table", "Name the tables to hold: --table public.orders, or '*.*' for all.")
    until = None if given["until"] is None else str(given["until"])
    key = given["key"] if isinstance(given["key"], tuple) else ()
    wanted = Wanted(name, pattern, key, until, reason, str(given["by"]))
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


COMMANDS = (hold,)
