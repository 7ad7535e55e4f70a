"""Digests: signed checkpoints of a lake's ledger, and where they are kept.

A digest names everything that is sealed, in a few lines. It proves that much against everyone who cannot replace the
digest, so it must be kept where those who can write the lake cannot: another machine, another account, paper. `store`
writes one to a folder or a bucket, under the origin and the size of the tree:

    <to>/<origin, with _ for />/00000000000000001283.digest

A name is used once. A database, best on a server whose owner does not write the lake, keeps them in a table that its
owner makes (`TABLE`): the role that keeps digests needs INSERT alone, so it cannot read, change or delete one. If a
witness is set, a digest is kept once the witness has signed it (`ledger.witness`).

The key is read from a file or from AUDITLAKE_DIGEST_KEY, never printed, and in no lake.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from auditlake.config import DigestDatabase, DigestSettings
from auditlake.errors import BadUsage, ConfigError, LakeUnusable, NotAnswerable, SourceAway
from auditlake.exchange import IsOver, never_over
from auditlake.failpoints import After, reach
from auditlake.lake.layout import Lake
from auditlake.ledger.blocks import Block, leaves_of, read_blocks, read_last_block
from auditlake.ledger.signed_note import Checkpoint, PublicKey, SigningKey
from auditlake.ledger.witness import Witness
from auditlake.store.files import make_folder, put_if_absent
from auditlake.store.given_files import read_given_text
from auditlake.store.place import Place

KEY_VARIABLE = "AUDITLAKE_DIGEST_KEY"
_KEY_MODE = 0o600
_NEW_KEY = "auditlake digest --new-key FILE makes one."
_INSERT = "insert into auditlake_digests (origin, size, digest) values (%s, %s, %s) on conflict do nothing"
_CONNECT_S, _ANSWER_S = 10, 10.0


def new_key(path: Path, name: str) -> SigningKey:
    """Write a new signing key to a new file, which only its owner can read; raises BadUsage."""
    key = SigningKey.generate(name)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _KEY_MODE)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{key.encoded()}\n")
        except OSError:
            path.unlink()
            raise
    except OSError as exc:
        raise BadUsage(f"{path} cannot be created: {exc.strerror}", "Name a file that does not exist.") from exc
    return key


def read_key(path: Path | None) -> SigningKey:
    """Read the signing key from a file, else the environment; raises ConfigError, BadUsage if it is not one."""
    if path is None:
        if encoded := os.environ.get(KEY_VARIABLE):
            return SigningKey.parse(encoded, KEY_VARIABLE)
        raise ConfigError("no key to sign with", f"Set `key` in [digest], or {KEY_VARIABLE}. {_NEW_KEY}")
    text = read_given_text(path, lambda why: ConfigError(f"the key {path} cannot be read: {why}", _NEW_KEY))
    return SigningKey.parse(text, str(path))


def read_digest(path: Path) -> str:
    """Read the file of a digest; raises BadUsage."""
    hint = "Give a file that auditlake digest wrote."
    return read_given_text(path, lambda why: BadUsage(f"the digest {path} cannot be read: {why}", hint))


def read_public_key(text: str) -> PublicKey:
    """Read a public key, given as its text or as the file that has it; raises BadUsage."""
    if "+" not in text:
        hint = "auditlake digest --show-key prints it."
        text = read_given_text(Path(text), lambda why: BadUsage(f"the public key {text} cannot be read: {why}", hint))
    return PublicKey.parse(text)


def last_block(lake: Lake) -> Block:
    """Return the last block; raises NotAnswerable if nothing was ever sealed."""
    block = read_last_block(lake)
    if block is None:
        raise NotAnswerable("nothing in this lake is sealed", "auditlake digest seals it, if no --sealed is given.")
    return block


def checkpoint_of(block: Block) -> Checkpoint:
    """Return the checkpoint of the tree after a block."""
    return Checkpoint(block.origin, block.tree.size, block.tree.root)


def stored_at(to: Place, checkpoint: Checkpoint) -> Place:
    """Return where the digest of a tree is kept."""
    return to / checkpoint.origin.replace("/", "_") / f"{checkpoint.size:020}.digest"


def store(to: Place, checkpoint: Checkpoint, note: str) -> Place:
    """Keep a digest; one of the same tree that is already there stays. Raises LakeUnusable if it cannot be written."""
    place = stored_at(to, checkpoint)
    try:
        make_folder(place.parent)
        with suppress(FileExistsError):
            put_if_absent(place, note.encode(), locked=True)
    except OSError as exc:
        raise LakeUnusable(f"the digest {place} cannot be written: {exc.strerror}", "Fix `to` in [digest].") from exc
    reach(After.DIGEST_STORED)
    return place


def _insert(to: DigestDatabase, checkpoint: Checkpoint, note: str) -> bool:
    """Keep a digest; return whether it is the first of its tree. Raises LakeUnusable."""
    import psycopg  # noqa: PLC0415 - other destinations do not need it

    from auditlake.source.connection import hung_up_after  # noqa: PLC0415 - as above

    conninfo = to.conninfo.get_secret_value()
    try:
        with (
            psycopg.connect(conninfo, connect_timeout=_CONNECT_S, application_name="auditlake digest") as conn,
            hung_up_after(conn.fileno(), _ANSWER_S),
        ):
            conn.autocommit = True
            return conn.execute(_INSERT, (checkpoint.origin, checkpoint.size, note)).rowcount == 1
    except SourceAway as exc:
        raise _not_kept(to, f"no answer for {_ANSWER_S:g} s") from exc
    except psycopg.Error as exc:
        raise _not_kept(to, exc.diag.message_primary or "no connection") from exc


def _not_kept(to: DigestDatabase, reason: str) -> LakeUnusable:
    return LakeUnusable(
        f"the digest cannot be kept in {to}: {reason}",
        "Fix `to` in [digest], or make the table, see docs/proof-and-erasure.md.",
    )


@dataclass(frozen=True, slots=True)
class KeptDigest:
    """The place of a digest, and whether it was new there."""

    where: str
    is_new: bool


def keep_note(to: Path | DigestDatabase, checkpoint: Checkpoint, note: str) -> KeptDigest:
    """Keep a digest in a folder, bucket or database; an earlier one of the tree stays. Raises LakeUnusable."""
    if isinstance(to, DigestDatabase):
        is_new = _insert(to, checkpoint, note)
        reach(After.DIGEST_STORED)
        return KeptDigest(str(to), is_new)
    is_new = not stored_at(to, checkpoint).exists()
    return KeptDigest(str(store(to, checkpoint, note)), is_new)


def witness_of(settings: DigestSettings | None, is_over: IsOver = never_over) -> Witness | None:
    """Return the witness of the settings or None, waited for until `is_over`; raises ConfigError."""
    if settings is None or settings.witness is None:
        return None
    return Witness.of(settings.witness, settings.witness_key or "", is_over)


def sign(lake: Lake, key: SigningKey, block: Block, witness: Witness | None) -> str:
    """Return the digest of the tree after a block, also signed by the witness if there is one; raises LakeUnusable."""
    note = key.sign(checkpoint_of(block))
    if witness is None:
        return note
    leaves = leaves_of(each for each in read_blocks(lake) if each.number <= block.number)
    cosigned = witness.cosigned(note, leaves)
    reach(After.DIGEST_COSIGNED)
    return cosigned


def keep(lake: Lake, settings: DigestSettings, block: Block, is_over: IsOver) -> KeptDigest:
    """Sign the tree after a block, and store the digest as the settings require; a witness is asked until `is_over`.

    Raises ConfigError, BadUsage, LakeUnusable.
    """
    note = sign(lake, read_key(settings.key), block, witness_of(settings, is_over))
    return keep_note(settings.to, checkpoint_of(block), note)
