"""Tests of the checksum of log entries."""

from pathlib import Path

import pytest

from auditlake.delta.log_entry import entry_bytes, parsed_entry
from auditlake.errors import LakeUnusable
from tests.damage import flipped

_PLACE = Path("/lake/changes/_delta_log/00000000000000000001.json")
_ACTIONS: list[dict[str, object]] = [
    {"txn": {"appId": "auditlake/changes", "version": 0x1520}},
    {"add": {"path": "é.parquet"}},
]


def test_an_entry_reads_back() -> None:
    """The information about the commit comes first, and keeps what was given."""
    first, *others = parsed_entry(_PLACE, entry_bytes(1, {"operation": "WRITE", "txnId": "1"}, _ACTIONS))
    assert first["commitInfo"].keys() == {"operation", "txnId", "engineInfo", "crc32"}
    assert others == _ACTIONS


def test_every_flipped_bit_is_found() -> None:
    """Also one in the checksum, in its name, or in the statement that there is one."""
    content = entry_bytes(1, {"operation": "WRITE", "txnId": "1"}, _ACTIONS)
    for place in range(len(content)):
        for bit in range(8):
            damaged = content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]
            with pytest.raises(LakeUnusable, match=r"0001\.json is damaged: .*the changes of its commit are lost"):
                parsed_entry(_PLACE, damaged)


@pytest.mark.parametrize("length", [0, 1, 50, -1])
def test_a_truncated_entry_is_found(length: int) -> None:
    """To deltalake, an empty one is a commit without actions."""
    with pytest.raises(LakeUnusable, match=r"is (empty|damaged)"):
        parsed_entry(_PLACE, entry_bytes(1, {"operation": "WRITE"}, _ACTIONS)[:length])


def test_an_entry_in_the_place_of_another_is_found() -> None:
    """For example the one before, put back from a backup."""
    with pytest.raises(LakeUnusable, match=r"0001\.json is damaged: its CRC-32"):
        parsed_entry(_PLACE, entry_bytes(0, {"operation": "WRITE"}, _ACTIONS))


def test_an_entry_of_another_writer_needs_no_checksum() -> None:
    """It is JSON, or it is damaged."""
    content = b'{"commitInfo":{"engineInfo":"Apache-Spark/4.0.1"}}\n{"txn":{"appId":"a","version":1}}\n'
    assert len(parsed_entry(_PLACE, content)) == 2
    with pytest.raises(LakeUnusable, match="a line is not JSON"):
        parsed_entry(_PLACE, flipped(content, 0))
    with pytest.raises(LakeUnusable, match="a line is not an object"):
        parsed_entry(_PLACE, b"1\n")
