"""Where a lake is: the values that releases have recorded, by which a copy is told from its original."""

import shutil
import subprocess
from pathlib import Path

import pytest

from auditlake.lake import whereabouts as module
from auditlake.lake.layout import Lake
from auditlake.lake.whereabouts import was_at, whereabouts


def _born_s(folder: Path) -> int:
    """Return the birth of a folder in seconds, as coreutils read it."""
    return int(subprocess.check_output(["/usr/bin/env", "stat", "-c", "%W", folder]))


def test_a_copy_is_elsewhere_and_a_renamed_folder_is_not(tmp_path: Path) -> None:
    """By the inode, which another folder at the same time never has, and by the birth."""
    (tmp_path / "lake").mkdir()
    lake = Lake.at(tmp_path / "lake")
    recorded = whereabouts(lake, lake.root)
    inode, _, born_ns = recorded.partition(" born ")
    assert inode == f"inode {(tmp_path / 'lake').stat().st_ino}"
    assert int(born_ns) // 1_000_000_000 == _born_s(tmp_path / "lake")
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


def test_a_folder_that_gets_a_freed_inode_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on ext4, where a copy that is put back has the inode of what was removed."""
    monkeypatch.setattr(module, "_inode", lambda _: "inode 7")
    (tmp_path / "lake").mkdir()
    lake = Lake.at(tmp_path / "lake")
    recorded = whereabouts(lake, lake.root)
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    (tmp_path / "lake").rmdir()
    shutil.copytree(tmp_path / "copy", tmp_path / "lake")
    assert whereabouts(lake, lake.root) != recorded


def test_without_a_birth_the_inode_alone_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As before."""
    monkeypatch.setattr(module, "_STATX_BTIME", 0)
    inode = f"inode {tmp_path.stat().st_ino}"
    assert whereabouts(Lake.at(tmp_path), tmp_path) == inode
    assert was_at(tmp_path, inode, 0)


def test_an_inode_alone_is_the_folder_if_that_was_born_before(tmp_path: Path) -> None:
    """A copy that keeps the time of its record was made, as a folder, after that."""
    inode, born_us = f"inode {tmp_path.stat().st_ino}", _born_s(tmp_path) * 1_000_000
    assert was_at(tmp_path, inode, born_us + 1_000_000)
    assert not was_at(tmp_path, inode, born_us - 1)
    assert not was_at(tmp_path, f"{inode}0", born_us + 1_000_000)
