"""Sealing: what is sealed and what is not, kills after each effect, two sealers, large transactions, other files."""

import json
import shutil
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pytest

from auditlake.delta.append_table import AppendLog
from auditlake.errors import LakeConflict
from auditlake.failpoints import After
from auditlake.lake import whereabouts
from auditlake.lake.gaps import Gap, record_gaps
from auditlake.lake.layout import ACKNOWLEDGED_APP, CHANGES_APP, CURRENT_APP, Lake
from auditlake.lake.records import write_record
from auditlake.lake.stage_lock import Stage, hold
from auditlake.ledger import seal
from auditlake.ledger.blocks import ENTRIES_SCHEMA, LAST_ORDINAL, Block, read_blocks, read_entries
from auditlake.ledger.seal import Sealer
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from tests.command import run
from tests.damage import summed
from tests.ledger_lake import compared, edit_rows, sealed
from tests.s3_server import copy_lake, forget, on_disk, overwrite
from tests.small_lake import ORDERS, files_of, write_lake_with_manifest


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Write a lake that was never sealed."""
    return write_lake_with_manifest(tmp_path / "lake")


def _complete(lake: Lake, upto: int = 0x400) -> None:
    """Move the watermark, so that the transaction above it is complete."""
    log = AppendLog(lake.changes, CHANGES_SCHEMA)
    log.append(None, {CHANGES_APP: upto, ACKNOWLEDGED_APP: upto + 0x41, CURRENT_APP: log.position(CURRENT_APP) or 0})


def _roots(lake: Lake) -> list[bytes]:
    forget(lake.root)
    return [block.tree.root for block in read_blocks(lake)]


def test_the_first_block_seals_a_lake_from_its_beginning(lake: Lake) -> None:
    """Rows above the watermark are not sealed: capture may discard them."""
    (block,) = Sealer(lake).seal("tests")
    rows = read_entries(lake, "true").to_pylist()
    assert [row["kind"] for row in rows] == [
        "block",
        *["relation"] * 2,
        *["copy", "row"],
        *["copy", "row", "row"],
        *["transaction"] * 4,
        *["change"] * 7,
    ]
    assert [row["number"] for row in rows] == list(range(19))
    assert (block.upto, block.entries) == ((0x300, LAST_ORDINAL), 19)


def test_a_lake_without_news_gets_no_block(lake: Lake) -> None:
    """Neither by the same process nor by another one."""
    sealer = Sealer(lake)
    assert len(sealer.seal("tests")) == 1
    assert sealer.seal("tests") == []
    assert Sealer(lake).seal("tests") == []


def test_what_is_captured_meanwhile_waits_for_the_next_pass(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a pass beside a busy source would never end, with a block for every few commits."""
    monkeypatch.setattr(seal, "reach", lambda effect: _complete(lake) if effect is After.BLOCK_SEALED else None)
    sealer = Sealer(lake)
    assert [block.upto.commit for block in sealer.seal("tests")] == [0x300]
    assert [block.upto.commit for block in sealer.seal("tests")] == [0x400]


def test_a_block_seals_what_came_since_the_one_before(lake: Lake) -> None:
    """A transaction, and a gap that was recorded later, although its LSNs are earlier."""
    sealer = Sealer(lake)
    sealer.seal("tests")
    _complete(lake)
    record_gaps(lake, [Gap(ORDERS, Lsn(0x160), Lsn(0x170), "a test")])
    (block,) = sealer.seal("tests")
    rows = read_entries(lake, f"block = {block.number}").to_pylist()
    assert [(row["kind"], row["lsn"]) for row in rows] == [
        ("block", None),
        ("gap", 0x160),
        ("transaction", 0x400),
        ("change", 0x400),
    ]


@on_disk("objects have no inodes")
def test_a_copy_in_the_place_of_its_lake_is_another_incarnation(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its folder has the inode of the one that was lost."""
    monkeypatch.setattr(whereabouts, "_inode", lambda _: "inode 7")
    (first,) = Sealer(lake).seal("tests")
    shutil.copytree(lake.root, tmp_path / "copied")
    shutil.rmtree(lake.root)
    shutil.copytree(tmp_path / "copied", lake.root)
    _complete(lake)
    (second,) = Sealer(lake).seal("tests")
    assert second.origin != first.origin


@on_disk("objects have no inodes")
def test_a_lake_of_before_stays_the_same_incarnation(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks have the inode alone; those of a copy are older than its folder."""
    with monkeypatch.context() as before:
        before.setattr(whereabouts, "_born_ns", lambda _: None)
        (first,) = Sealer(lake).seal("tests")
    _complete(lake)
    (second,) = Sealer(lake).seal("tests")
    assert (second.origin, second.place.partition(" born ")[0]) == (first.origin, first.place)
    assert second.place != first.place


def test_an_added_gap_is_sealed_once_and_proved(lake: Lake) -> None:
    """Another process reads what the one before has sealed."""
    Sealer(lake).seal("tests")
    record_gaps(lake, [Gap(None, Lsn(0x160), Lsn(0x170), "a test")])
    assert len(Sealer(lake).seal("tests")) == 1
    assert Sealer(lake).seal("tests") == []
    assert compared(lake, sealed(lake)).failure() is None


@pytest.mark.crash
def test_a_killed_sealer_continues_with_the_same_tree(lake: Lake, tmp_path: Path) -> None:
    """With entries of no block; `tests/release` has the other effects."""
    kill_sealer(lake, tmp_path, After.ENTRIES_SEALED)


def kill_sealer(lake: Lake, tmp_path: Path, place: After) -> None:
    """The tree is that of a sealer that was not killed, of the block with the same key."""
    arguments: list[str | Path] = ["seal", "--lake", lake.root]
    assert run(arguments, {"AUDITLAKE_FAILPOINT": After.BLOCK_PREPARED}).code == -9
    unkilled = copy_lake(lake, tmp_path / "unkilled")
    Sealer(unkilled).seal("tests")
    if place is not After.BLOCK_PREPARED:
        assert run(arguments, {"AUDITLAKE_FAILPOINT": place}).code == -9
    forget(lake.root)
    Sealer(lake).seal("tests")
    assert _roots(lake) == _roots(unkilled)
    assert read_entries(lake, "true").equals(read_entries(unkilled, "true"))
    assert compared(lake, sealed(lake)).failure() is None


def test_what_is_captured_after_a_kill_does_not_change_the_block(lake: Lake) -> None:
    """Its last change was written before its entries."""
    record = {"block": 0, "key": bytes(32).hex(), "upto": [0x200, LAST_ORDINAL], "time": 1}
    write_record(lake, lake.next_block, record, durable=True)
    first, second = Sealer(lake).seal("tests")
    assert (first.upto.lsn, first.key, first.time_us) == (0x200, bytes(32), 1)
    assert (second.after, second.upto.lsn) == (first.upto, 0x300)


def test_a_second_sealer_is_refused_while_one_seals(lake: Lake) -> None:
    """By the lock of the stage, before any effect."""
    with hold(lake, "tests", Stage.SEAL):
        done = run(["seal", "--lake", lake.root])
    assert done.code == LakeConflict.exit_code
    assert "holds the lock of seal" in done.stderr
    assert read_blocks(lake) == []


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_transaction_larger_than_a_block_is_sealed_in_parts(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Every entry is in the ledger once, and a part does not count as a sealed transaction."""
    monkeypatch.setattr(seal, "MOST_CHANGES", most)
    blocks = Sealer(lake).seal("tests")
    assert len(blocks) > 2
    changes = read_entries(lake, "kind = 'change'").to_pylist()
    assert [(row["lsn"], row["ordinal"]) for row in changes] == _CHANGES
    transactions = read_entries(lake, "kind = 'transaction'")["lsn"].to_pylist()
    assert transactions == [0x150, 0x200, 0x250, 0x300]
    proof = compared(lake, sealed(lake))
    assert (proof.mismatches, proof.proved) == ((), 0x300)


_CHANGES = [(0x150, 0), (0x200, 0), (0x200, 1), (0x250, 0), (0x250, 1), (0x250, 2), (0x300, 0)]


def test_many_transactions_are_sealed_in_blocks(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has at most so many."""
    monkeypatch.setattr(seal, "MOST_TRANSACTIONS", 1)
    blocks = Sealer(lake).seal("tests")
    assert [block.upto.lsn for block in blocks] == [0x150, 0x200, 0x250, 0x300]
    assert compared(lake, sealed(lake)).proved == 0x300


def test_joined_and_rewritten_files_change_nothing(lake: Lake) -> None:
    """Rows are sealed, not files."""
    digest = sealed(lake)
    log = AppendLog(lake.changes, CHANGES_SCHEMA)
    before = _names(lake)
    log.tidy()
    assert _names(lake) != before
    proof = compared(lake, digest)
    assert (proof.mismatches, proof.proved) == ((), 0x300)


def _names(lake: Lake) -> set[str]:
    return {file.name for file in lake.changes.glob("*.parquet")}


def test_the_pages_of_a_long_block_are_leaves(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree has a leaf for each page, over all blocks."""
    monkeypatch.setattr("auditlake.ledger.blocks.PAGE_ENTRIES", 4)
    monkeypatch.setattr(seal, "MOST_TRANSACTIONS", 2)
    blocks = Sealer(lake).seal("tests")
    assert [(block.size_before, block.tree.size) for block in blocks] == _sizes(blocks)
    assert blocks[-1].tree.size > 3
    digest = sealed(lake)
    assert compared(lake, digest).failure() is None


def test_entries_of_one_block_may_need_several_commits(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same entries and the same tree as in one."""
    record = {"block": 0, "key": bytes(32).hex(), "upto": [0x300, LAST_ORDINAL], "time": 1}
    write_record(lake, lake.next_block, record, durable=True)
    at_once = copy_lake(lake, tmp_path / "at once")
    Sealer(at_once).seal("tests")
    monkeypatch.setattr(seal, "_MOST_ENTRIES", 3)
    (block,) = Sealer(lake).seal("tests")
    assert len([*lake.ledger_entries.glob("*.parquet")]) == -(-block.entries // 3) > 1
    assert _roots(lake) == _roots(at_once)
    assert read_entries(lake, "true").equals(read_entries(at_once, "true"))
    assert compared(lake, sealed(lake)).failure() is None


def _sizes(blocks: Sequence[Block]) -> list[tuple[int, int]]:
    ends = list(accumulate((block.entries + 3) // 4 for block in blocks))
    return list(zip([0, *ends], ends, strict=False))


def test_the_tables_of_the_ledger_are_tidied(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise every block would leave two files."""
    monkeypatch.setattr(seal, "_TIDY_EVERY", 2)
    monkeypatch.setattr(seal, "MOST_TRANSACTIONS", 1)
    Sealer(lake).seal("tests")
    assert len(AppendLog(lake.ledger_entries, ENTRIES_SCHEMA).table.file_uris()) == 1
    assert compared(lake, sealed(lake)).failure() is None


def test_a_new_snapshot_is_sealed_with_the_versions_that_it_ended(lake: Lake) -> None:
    """Of a resync, the rows that differ: those that it opened and those that it closed."""
    Sealer(lake).seal("tests")
    _resync(lake)
    (block,) = Sealer(lake).seal("tests")
    rows = read_entries(lake, f"block = {block.number}").to_pylist()
    assert [(row["kind"], row["lsn"]) for row in rows] == [
        ("block", None),
        ("copy", 0x280),
        ("row", 0x280),
        ("ended", 0x280),
    ]
    assert compared(lake, sealed(lake)).failure() is None


def _resync(lake: Lake) -> None:
    """Let the history of orders have a snapshot at 0x280, which had another order 1."""

    def resynced(rows: pa.Table) -> pa.Table:
        changed = []
        for row in rows.to_pylist():
            if row["id"] == 1 and row["_to_lsn"] is None:
                row |= {"_to_lsn": 0x280, "_to_time": row["_from_time"], "_end_op": "resync"}
                again = {"_from_lsn": 0x280, "_to_lsn": None, "_to_time": None, "_end_op": None}
                changed.append({**row, **again, "_op": "snapshot", "note": "again"})
            changed.append(row)
        return pa.Table.from_pylist(changed, rows.schema)

    edit_rows(lake.history(ORDERS), resynced)
    entry = lake.history(ORDERS) / "_delta_log" / f"{1:020}.json"
    action = {"txn": {"appId": "auditlake/resync", "version": 0x280}}
    overwrite(entry, summed(entry.name, [*map(json.loads, entry.read_text().splitlines()), action]))
    assert files_of(lake, ORDERS).table.resynced == 0x280
