"""Commands of the ledger: seal, digest and prove."""

from __future__ import annotations  # settings are imported when a command runs

from pathlib import Path
from typing import TYPE_CHECKING

import click

from auditlake.cli.options import FILE, existing_lake_of, lake_of, with_settings
from auditlake.lake.layout import Lake
from auditlake.messages import say

if TYPE_CHECKING:
    from auditlake.config import Settings
    from auditlake.ledger.blocks import Block


@click.command()
@with_settings
def seal(settings: Settings) -> None:
    """Seal everything durable into the ledger, without a digest; follow and capture do it all the time.

    \b
    Example:
      auditlake seal
    """
    _seal(lake_of(settings), "seal")


@click.command()
@with_settings
@click.option("--key", type=FILE, help="File of the key that signs [`key` of [digest]; AUDITLAKE_DIGEST_KEY].")
@click.option("--new-key", type=FILE, help="Only make a key, write it to this new file, and print its public key.")
@click.option("--name", default="auditlake", show_default=True, help="Name of the new key, shown by its signatures.")
@click.option("--show-key", is_flag=True, help="Only print the public key, with which anyone can verify digests.")
@click.option("--sealed", is_flag=True, help="Sign what is sealed already, and seal nothing.")
def digest(settings: Settings, *, key: Path | None, new_key: Path | None, name: str, **only: bool) -> None:
    """Seal the lake, print a signed digest that proves its content, and store it as [digest] sets.

    Store it out of reach of everyone who can write the lake. `auditlake verify --digest` compares the lake with it.

    \b
    Example:
      auditlake digest --new-key ~/digest.key > digest.pub
      auditlake digest --key ~/digest.key > 2026-11-24.digest
    """
    from auditlake.ledger import digest as digests

    if new_key is not None:
        click.echo(digests.new_key(new_key, name).public)
        return
    signing = digests.read_key(key or (settings.digest.key if settings.digest else None))
    if only["show_key"]:
        click.echo(signing.public)
        return
    lake, witness = lake_of(settings), digests.witness_of(settings.digest)
    block = digests.last_block(lake) if only["sealed"] else _seal(lake, "digest")
    note = digests.sign(lake, signing, block, witness)
    if settings.digest is not None:
        say(f"kept in {digests.keep_note(settings.digest.to, digests.checkpoint_of(block), note).where}")
    click.echo(note, nl=False)


def _seal(lake: Lake, command: str) -> Block:
    from auditlake.ledger.digest import last_block
    from auditlake.ledger.seal import Sealer

    blocks = Sealer(lake).seal(command)
    last = blocks[-1] if blocks else last_block(lake)
    new = sum(block.entries for block in blocks)
    say(f"sealed up to {last.upto.commit}: {new:,} new entries in {len(blocks)} blocks")
    return last


@click.command()
@with_settings
@click.argument("what")
@click.argument("key", nargs=-1)
@click.option("--digest", "note", type=FILE, help="Prove it to this digest instead of to all that is sealed.")
def prove(settings: Settings, what: str, key: tuple[str, ...], note: Path | None) -> None:
    """Print proofs, as JSON, that a transaction or the history of a row is sealed; anyone can check them.

    WHAT is a transaction, as an LSN or xid:N; or a table, and KEY the key of a row in it.

    \b
    Example:
      auditlake prove xid:733 > transaction.json
      auditlake prove orders 42 --digest 2026-11-24.digest > order-42.json
    """
    import json

    from auditlake.ledger.digest import read_digest
    from auditlake.ledger.prove import ProofTarget, proofs_of

    text = None if note is None else read_digest(note)
    click.echo(json.dumps(proofs_of(existing_lake_of(settings), ProofTarget(what, key), text), indent=1))


COMMANDS = (seal, digest, prove)
