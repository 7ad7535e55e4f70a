"""Commands backup and restore."""

from __future__ import annotations  # settings are imported when a command runs

from typing import TYPE_CHECKING

import click

from auditlake.cli.options import lake_of, with_settings
from auditlake.lake.layout import Lake
from auditlake.messages import say

if TYPE_CHECKING:  # pydantic takes half of the time of --help
    from auditlake.config import Settings


@click.command()
@with_settings
@click.argument("folder", metavar="DEST")
def backup(settings: Settings, *, folder: str) -> None:
    """Copy the lake to DEST while it is written; files that an earlier backup there has are not copied again.

    \b
    Example:
      auditlake backup /mnt/backups/shop
    """
    from auditlake.backup.backup import back_up
    from auditlake.backup.stored import Folder

    back_up(lake_of(settings), Folder(Lake.at(folder).root), say)


@click.command()
@with_settings
@click.argument("folder", metavar="SOURCE")
@click.option("--number", type=click.IntRange(min=1), metavar="N", help="Number of the backup [the last one].")
def restore(settings: Settings, *, folder: str, number: int | None) -> None:
    """Restore a backup of SOURCE into a new folder, --lake.

    \b
    Example:
      auditlake restore /mnt/backups/shop --lake ./restored
    """
    from auditlake.backup.restore import restore as run
    from auditlake.backup.stored import Folder

    lake = lake_of(settings)
    taken = run(Folder(Lake.at(folder).root), lake, number, say).taken
    say(f"holds and erasures after {taken} are not in it: add those holds, and erase those rows, again")
    say(f"auditlake status --lake {lake.root} shows whether the slot can go on from there")
    say("one slot has one lake: if the original still captures, use this one for questions only")


COMMANDS = (backup, restore)
