"""Tokens that stand for the keys of rows in records of holds and erasures: HMAC-SHA-256 under a secret of the lake.

A record must say which row it is about, long after the row is gone, and must not keep its key, which may be personal
data. So it has a token. The secret is `<lake>/token.key`, made when the first token is needed. Whoever has the lake and
its secret can test whether a guessed key is that of a token; without the secret, a token reveals nothing. To end that,
delete the file: the records stay, but identify no row any more.

Pure but for the secret.
"""

import hmac
import json
import secrets
from collections.abc import Sequence
from contextlib import suppress

from auditlake.errors import LakeUnusable
from auditlake.lake.layout import Lake
from auditlake.lake.records import writing_files
from auditlake.relation import TableName
from auditlake.store.files import put_if_absent, read_file

_BYTES = 32


def token(secret: bytes, table: TableName, key: Sequence[str]) -> str:
    """Return the token of a row, given the name of its history and its key as PostgreSQL's texts."""
    content = json.dumps([table.schema, table.table, *key], ensure_ascii=False)
    return hmac.digest(secret, content.encode(), "sha256").hex()


def read_secret(lake: Lake) -> bytes | None:
    """Read the secret of a lake; None if no token was ever needed. Raises LakeUnusable."""
    try:
        secret = bytes.fromhex(read_file(lake.token_key).decode())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        raise LakeUnusable(f"{lake.token_key} cannot be read", "Restore it from a backup.") from exc
    if len(secret) != _BYTES:
        raise LakeUnusable(f"{lake.token_key} has {len(secret)} bytes, need {_BYTES}", "Restore it from a backup.")
    return secret


def new_secret() -> bytes:
    """Return a secret that no lake has."""
    return secrets.token_bytes(_BYTES)


def make_secret(lake: Lake) -> bytes:
    """Return the secret of a lake, which is made if there is none; raises LakeUnusable."""
    if (known := read_secret(lake)) is not None:
        return known
    with writing_files(lake.root), suppress(FileExistsError):  # another process was faster
        put_if_absent(lake.token_key, new_secret().hex().encode())
    made = read_secret(lake)
    if made is None:
        raise LakeUnusable(f"{lake.token_key} is missing", "Run this again.")
    return made
