"""A lake in a bucket is sealed, proved and attacked as one on a disk, and a digest is kept in a bucket."""

import pytest

from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.ledger.digest import checkpoint_of, last_block, store
from auditlake.ledger.signed_note import open_note
from auditlake.store.place import Remote, parse_url
from tests.ledger_lake import KEY, compared, edit_rows, found, sealed, where
from tests.s3_server import copy_folder
from tests.small_lake import write_small_lake


@pytest.fixture
def lake(remote_folder: Remote) -> Lake:
    """Write a small lake into the bucket."""
    lake = Lake(remote_folder)  # type: ignore[arg-type] # as Lake documents
    write_manifest(lake, Manifest("1", 1, "d", "s", "p"))
    write_small_lake(lake.root)
    return lake


def test_a_lake_in_a_bucket_is_proved_and_its_damage_is_named(lake: Lake, bucket: str) -> None:
    """Its place is its URL, so a copy at another one is another incarnation."""
    digest = sealed(lake)
    assert compared(lake, digest).proved == 0x300
    copied = Lake(copy_folder(lake.root, parse_url(f"{bucket}/{lake.root.name}-copy")))
    assert sealed(copied).checkpoint.origin != digest.checkpoint.origin
    edit_rows(lake.changes, where("lsn", 0x300, lambda _: 5, "xid"))
    assert found(compared(lake, digest)) == [("changed change", "public.orders", 0x300, 0)]


def test_a_digest_is_kept_in_a_bucket_under_its_size(lake: Lake, bucket: str) -> None:
    """It is put if absent, so the first one of a tree stays."""
    sealed(lake)
    checkpoint = checkpoint_of(last_block(lake))
    to = parse_url(f"{bucket}/digests")
    kept = store(to, checkpoint, KEY.sign(checkpoint))
    store(to, checkpoint, "another")
    assert open_note(kept.read_text(), KEY.public, str(kept)) == checkpoint
