"""Where a lake is: the values that releases have recorded, by which a copy is told from its original."""

import shutil
from pathlib import Path

from auditlake.lake.layout import Lake
from auditlake.lake.whereabouts import whereabouts


def test_a_copy_is_elsewhere_and_a_renamed_folder_is_not(tmp_path: Path) -> None:
    """By the inode, which a copy never shares with what it was copied from."""
    (tmp_path / "lake").mkdir()
    lake = Lake.at(tmp_path / "lake")
    recorded = whereabouts(lake, lake.root)
    assert recorded == f"inode {(tmp_path / 'lake').stat().st_ino}"
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    copy = Lake.at(tmp_path / "copy")
    assert whereabouts(copy, copy.root) != recorded
    (tmp_path / "lake").rename(tmp_path / "renamed")
    renamed = Lake.at(tmp_path / "renamed")
    assert whereabouts(renamed, renamed.root) == recorded


def test_in_a_bucket_the_url_of_the_lake_counts_whatever_the_folder() -> None:
    """Objects have no inodes."""
    lake = Lake.at("s3://bucket/lake")
    assert whereabouts(lake, lake.ledger_blocks) == "s3://bucket/lake"
