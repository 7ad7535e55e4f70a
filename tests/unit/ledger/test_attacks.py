"""Attacks on a sealed lake by someone who can write its files: each is found, and named by commit, table and file."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from auditlake.delta.append_table import AppendLog
from auditlake.errors import LakeUnusable, NotAnswerable
from auditlake.lake.holds import HoldEvent, record_event
from auditlake.lake.layout import ACKNOWLEDGED_APP, CHANGES_APP, CURRENT_APP, Lake
from auditlake.ledger.blocks import read_entries
from auditlake.ledger.verification import VerifiedDigest
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from auditlake.store.files import remove_folder
from tests.damage import summed
from tests.ledger_lake import compared, edit_adds, edit_rows, files_of, found, sealed, where, without
from tests.s3_server import copy_folder, copy_lake, on_disk, overwrite
from tests.small_lake import CUSTOMERS, ORDERS, write_lake_with_manifest

Attack = Callable[[Lake], object]
Found = tuple[str, str, int | None, int | None]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, VerifiedDigest]:
    """Write and seal a lake."""
    lake = write_lake_with_manifest(tmp_path_factory.mktemp("original") / "lake")
    return lake, sealed(lake)


@pytest.fixture
def digest(original: tuple[Lake, VerifiedDigest]) -> VerifiedDigest:
    """Return its digest."""
    return original[1]


@pytest.fixture
def lake(original: tuple[Lake, VerifiedDigest], tmp_path: Path) -> Lake:
    """Copy it; a copy is compared as the original would be."""
    return copy_lake(original[0], tmp_path / "lake")


@pytest.fixture
def fresh(tmp_path: Path) -> Lake:
    """Write a lake that was never sealed."""
    return write_lake_with_manifest(tmp_path / "fresh")


def _text(position: int, value: str) -> Callable[[list[str]], list[str]]:
    return lambda texts: [value if place == position else text for place, text in enumerate(texts)]


def _change(lsn: int, column: str, change: Callable[..., object]) -> Attack:
    return lambda lake: edit_rows(lake.changes, where("lsn", lsn, change, column))


def _transaction(column: str, change: Callable[..., object]) -> Attack:
    return lambda lake: edit_rows(lake.transactions, where("lsn", 0x250, change, column))


def _to(value: object) -> Callable[[object], object]:
    return lambda _: value


_SWAP = {0: 1, 1: 0}
_EVE = where("ordinal", 2, _text(1, "Eve"), "new")
_CHANGED_TRANSACTION: Sequence[Found] = [("changed transaction", "transactions", 0x250, None)]
_LAST_CHANGED: Sequence[Found] = [("changed change", "public.orders", 0x300, 0)]
_ROWS: dict[str, tuple[Attack, Sequence[Found]]] = {
    "value": (lambda lake: edit_rows(lake.changes, _EVE), [("changed change", "public.customers", 0x250, 2)]),
    "old value": (_change(0x300, "old", _text(0, "9")), _LAST_CHANGED),
    "xid": (_change(0x300, "xid", _to(99)), _LAST_CHANGED),
    "origin": (_change(0x300, "origin", _to("elsewhere")), _LAST_CHANGED),
    "operation": (_change(0x300, "op", _to("insert")), _LAST_CHANGED),
    "relation": (_change(0x300, "relation", _to(2)), _LAST_CHANGED),
    "prefix": (_change(0x300, "prefix", _to("p")), _LAST_CHANGED),
    "content": (_change(0x300, "content", _to(b"c")), _LAST_CHANGED),
    "unchanged": (_change(0x300, "unchanged", _to([1])), _LAST_CHANGED),
    "time of a change": (_change(0x300, "time", lambda time: time.replace(year=2001)), _LAST_CHANGED),
    "table": (_change(0x300, "table", _to("other")), [("changed change", "public.other", 0x300, 0)]),
    "NULL as text of its form": (
        _change(0x300, "old", lambda texts: ["\0N" if text is None else text for text in texts]),
        _LAST_CHANGED,
    ),
    "border between values": (
        lambda lake: edit_rows(lake.changes, where("ordinal", 2, lambda texts: ["\0,".join(texts)], "new")),
        [("changed change", "public.customers", 0x250, 2)],
    ),
    "removed": (
        lambda lake: edit_rows(lake.changes, without("ordinal", 2)),
        [("removed change", "public.customers", 0x250, 2)],
    ),
    "inserted": (
        lambda lake: edit_rows(lake.changes, where("ordinal", 2, _to(3), "ordinal")),
        [("removed change", "public.customers", 0x250, 2), ("inserted change", "public.customers", 0x250, 3)],
    ),
    "repeated": (
        lambda lake: edit_rows(lake.changes, lambda rows: pa.concat_tables([rows, rows.slice(0, rows.num_rows // 7)])),
        [("repeated change", "public.orders", 0x150, 0)],
    ),
    "reordered": (
        _change(0x250, "ordinal", lambda ordinal: _SWAP.get(ordinal, ordinal)),
        [("changed change", "public.orders", 0x250, 0), ("changed change", "public.orders", 0x250, 1)],
    ),
    "moved to another commit": (
        _change(0x300, "lsn", _to(0x2F0)),
        [("inserted change", "public.orders", 0x2F0, 0), ("removed change", "public.orders", 0x300, 0)],
    ),
    "end of a transaction": (_transaction("end_lsn", _to(1)), _CHANGED_TRANSACTION),
    "xid of a transaction": (_transaction("xid", _to(77)), _CHANGED_TRANSACTION),
    "who": (_transaction("context", _to('{"app": {"actor": "eve"}}')), _CHANGED_TRANSACTION),
    "origin of a transaction": (_transaction("origin", _to("o")), _CHANGED_TRANSACTION),
    "count": (_transaction("truncates", _to(1)), _CHANGED_TRANSACTION),
    "tables": (_transaction("tables", _to(["public.orders"])), _CHANGED_TRANSACTION),
    "time": (_transaction("time", lambda time: time.replace(year=2001)), _CHANGED_TRANSACTION),
    "time_mono": (_transaction("time_mono", lambda time: time.replace(year=2001)), _CHANGED_TRANSACTION),
    "removed transaction": (
        lambda lake: edit_rows(lake.transactions, without("lsn", 0x250)),
        [("removed transaction", "transactions", 0x250, None)],
    ),
    "shape": (
        lambda lake: edit_rows(lake.relations, where("relation", 2, lambda each: each[::-1], "columns")),
        [("changed row", "relations", 0x250, None)],
    ),
    "removed shape": (
        lambda lake: edit_rows(lake.relations, without("relation", 2)),
        [("removed row", "relations", 0x250, None)],
    ),
    "shape beside the sealed one": (
        lambda lake: edit_rows(lake.relations, _with_another_shape),
        [("changed row", "relations", 0x250, None)],
    ),
    "no LSN": (
        lambda lake: edit_rows(lake.changes, _with_another(lsn=None)),
        [("inserted row", "changes", None, None)],
    ),
    "LSN before all others": (
        lambda lake: edit_rows(lake.changes, _with_another(lsn=-1)),
        [("inserted row", "changes", None, None)],
    ),
    "no ordinal": (
        lambda lake: edit_rows(lake.changes, _with_another(lsn=0x300, ordinal=None)),
        [("inserted row", "changes", None, None)],
    ),
    "transaction without an LSN": (
        lambda lake: edit_rows(lake.transactions, _with_another(lsn=None)),
        [("inserted row", "transactions", None, None)],
    ),
    "copied row": (
        lambda lake: edit_rows(lake.history(ORDERS), where("id", 2, _to("stolen"), "note")),
        [("changed or inserted row", "public.orders", 0x100, None)],
    ),
    "copied row that is still open": (
        lambda lake: edit_rows(lake.history(CUSTOMERS), where("id", 1, _to("Eve"), "name")),
        [("changed or inserted row", "public.customers", 0x180, None)],
    ),
    "exact text": (
        lambda lake: edit_rows(lake.history(ORDERS), where("id", 2, _to([("price", "NaN")]), "_raw")),
        [("changed or inserted row", "public.orders", 0x100, None)],
    ),
    "removed copied row": (
        lambda lake: edit_rows(lake.history(ORDERS), without("id", 2)),
        [("removed rows", "public.orders", 0x100, None)],
    ),
    "row of an earlier snapshot": (
        lambda lake: edit_rows(lake.history(ORDERS), _as_copied),
        [("inserted rows", "public.orders", 0x80, None)],
    ),
}


def _with_another(**values: object) -> Callable[[pa.Table], pa.Table]:
    """Return a change that adds a copy of the first row with other values."""

    def changed(rows: pa.Table) -> pa.Table:
        others = [row | values for row in rows.slice(0, 1).to_pylist()]
        schema = pa.schema([field.with_nullable(True) for field in rows.schema])
        return pa.concat_tables([rows.cast(schema), pa.Table.from_pylist(others, schema)])

    return changed


def _with_another_shape(rows: pa.Table) -> pa.Table:
    """Readers take the first row of a number."""
    false = where("relation", 2, lambda each: each[::-1], "columns")(rows)
    return pa.concat_tables([false, rows.filter(pc.equal(rows["relation"], 2))])


def _as_copied(rows: pa.Table) -> pa.Table:
    return where("id", 3, _to("snapshot"), "_op")(where("id", 3, _to(0x80), "_from_lsn")(rows))


@pytest.mark.parametrize("name", _ROWS)
def test_a_changed_row_is_named_although_its_statistics_are_right(
    lake: Lake, digest: VerifiedDigest, name: str
) -> None:
    """The size of the file and the statistics in the log are those of the changed rows."""
    attack, expected = _ROWS[name]
    attack(lake)
    assert found(compared(lake, digest)) == list(expected)


def test_an_untouched_lake_is_proved_up_to_its_last_commit(lake: Lake, digest: VerifiedDigest) -> None:
    """The part of a transaction above the watermark is not sealed."""
    proof = compared(lake, digest)
    assert (proof.proved, proof.mismatches, proof.entries) == (0x300, (), 19)
    assert proof.failure() is None


def test_the_error_names_commit_change_table_and_file_but_no_value(lake: Lake, digest: VerifiedDigest) -> None:
    """A message may reach a log, where values do not belong."""
    (file,) = edit_rows(lake.changes, _EVE)
    failure = compared(lake, digest).failure()
    assert failure is not None
    assert "public.customers, commit 0/250, change 2" in failure.message
    assert file in failure.message
    assert "Eve" not in failure.message


def test_a_changed_row_of_the_first_copy_is_named_by_key_and_file(lake: Lake, digest: VerifiedDigest) -> None:
    """The file is that of the history, which has the row now."""
    (file,) = edit_rows(lake.history(ORDERS), where("id", 2, _to("stolen"), "note"))
    (mismatch,) = compared(lake, digest).mismatches
    assert (mismatch.key, mismatch.file) == ((("id", "2"),), file)


# Files and logs


@pytest.mark.parametrize("name", ["changes", "transactions"])
@pytest.mark.parametrize("damage", ["truncated", "missing", "garbage"])
def test_a_damaged_file_is_named(lake: Lake, digest: VerifiedDigest, name: str, damage: str) -> None:
    """Rows of a table that lacks a file are not compared, and the others are."""
    file = files_of(lake.root / name)[0]
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        overwrite(file, content[: len(content) // 2] if damage == "truncated" else b"x" * len(content))
    proof = compared(lake, digest)
    assert {(each.table, each.file) for each in proof.mismatches} == {(name, file.name)}
    assert any(name in note for note in proof.notes)


def test_a_damaged_file_of_relations_is_an_error_that_names_it(lake: Lake, digest: VerifiedDigest) -> None:
    """Without the shapes, nothing can be compared."""
    file = files_of(lake.relations)[0]
    overwrite(file, file.read_bytes()[:100])
    with pytest.raises(LakeUnusable, match="relations"):
        compared(lake, digest)


def test_a_file_replaced_by_an_older_one_is_found(lake: Lake, digest: VerifiedDigest) -> None:
    """The log of the table is unchanged."""
    older, *_, newer = files_of(lake.changes)
    overwrite(newer, older.read_bytes())
    assert compared(lake, digest).failure() is not None


def test_swapped_files_are_found(lake: Lake, digest: VerifiedDigest) -> None:
    """Each has the name of the other."""
    first, *_, last = files_of(lake.changes)
    contents = first.read_bytes(), last.read_bytes()
    overwrite(first, contents[1])
    overwrite(last, contents[0])
    assert compared(lake, digest).failure() is not None


@pytest.mark.parametrize("place", ["changes", "transactions"])
def test_bounds_that_hide_rows_from_questions_are_found(lake: Lake, digest: VerifiedDigest, place: str) -> None:
    """Every row is in its file, but a question about a part of the commits does not open it."""
    edit_adds(lake.root / place, _narrowed)
    kinds = {(kind, table) for kind, table, _, _ in found(compared(lake, digest))}
    assert kinds == {("bounds", place)}


def _narrowed(add: dict[str, Any]) -> dict[str, Any]:
    """Return the action with the greatest LSN as the least one, if they differ."""
    stats = json.loads(add["stats"])
    stats["minValues"]["lsn"] = stats["maxValues"]["lsn"]
    return add | {"stats": json.dumps(stats)}


def test_a_file_dropped_from_the_log_is_found(lake: Lake, digest: VerifiedDigest) -> None:
    """A rewritten entry of the log no longer adds it."""
    edit_adds(lake.transactions, lambda add: None if json.loads(add["stats"])["minValues"]["lsn"] == 0x150 else add)
    assert ("removed transaction", "transactions", 0x150, None) in found(compared(lake, digest))


def test_a_removed_history_is_found(lake: Lake, digest: VerifiedDigest) -> None:
    """Its first copy is sealed."""
    remove_folder(lake.history(ORDERS))
    assert found(compared(lake, digest)) == [("removed table", "public.orders", 0x100, None)]


def test_a_renamed_column_of_a_copy_is_found(lake: Lake, digest: VerifiedDigest) -> None:
    """The values are those that were sealed; the history's metadata has another name for them."""
    entry = lake.history(ORDERS) / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    metadata = next(each["metaData"] for each in actions if "metaData" in each)
    schema = json.loads(metadata["schemaString"])
    schema["fields"][1]["metadata"]["auditlake.name"] = "notes"
    metadata["schemaString"] = json.dumps(schema)
    overwrite(entry, summed(entry.name, actions))
    assert found(compared(lake, digest)) == [("changed columns", "public.orders", 0x100, None)]


def test_a_table_taken_from_another_lake_is_found(lake: Lake, digest: VerifiedDigest, tmp_path: Path) -> None:
    """Its log and its files are right."""
    other = write_lake_with_manifest(tmp_path / "other", "2")
    edit_rows(other.transactions, where("lsn", 0x150, _to(0x151), "lsn"))
    remove_folder(lake.transactions)
    copy_folder(other.transactions, lake.transactions)
    kinds = [(kind, lsn) for kind, _, lsn, _ in found(compared(lake, digest))]
    assert kinds == [("removed transaction", 0x150), ("inserted transaction", 0x151)]


# The ledger


def test_an_edited_entry_is_found(lake: Lake, digest: VerifiedDigest) -> None:
    """The tree over the entries is no longer that of the digest."""
    edit_rows(lake.ledger_entries, where("number", 15, _to(b"x" * 32), "hash"))
    proof = compared(lake, digest)
    assert ("changed ledger", "ledger", 0, None) in found(proof)
    assert proof.proved is None


_LABELS: dict[str, tuple[str, object]] = {
    "kind of a block": ("kind", "block"),
    "unknown kind": ("kind", "nothing"),
    "row of no copy": ("kind", "row"),
    "LSN before all others": ("lsn", 0),
    "LSN of another block": ("lsn", 0x900),
    "LSN of another change": ("lsn", 0x250),
    "no LSN": ("lsn", None),
}


@pytest.mark.parametrize("label", _LABELS)
def test_a_removed_change_is_found_although_its_entry_has_another_label(
    lake: Lake, digest: VerifiedDigest, label: str
) -> None:
    """The tree has the hash of the entry alone, and no row is there with which the label could be compared."""
    column, value = _LABELS[label]
    edit_rows(lake.changes, without("lsn", 0x300))
    (number,) = read_entries(lake, "kind = 'change' and lsn = 768", ("number",))["number"].to_pylist()
    edit_rows(lake.ledger_entries, where("number", number, _to(value), column))
    assert ("changed ledger", "ledger", 0, None) in found(compared(lake, digest))


def test_a_removed_hold_is_found_although_its_entry_has_another_label(fresh: Lake) -> None:
    """As one of a copy, which has as many rows as its own entry says."""
    record_event(fresh, HoldEvent("added", "case", "public.orders", None, None, "court", "J. Doe", 1))
    digest = sealed(fresh)
    next(iter(fresh.holds.glob("*.json"))).unlink()
    (number,) = read_entries(fresh, "kind = 'hold'", ("number",))["number"].to_pylist()
    for column, value in {"name": "public.orders", "lsn": 0x100, "ordinal": None, "kind": "row"}.items():
        edit_rows(fresh.ledger_entries, where("number", number, _to(value), column))
    assert ("removed rows", "public.orders", 0x100, None) in found(compared(fresh, digest))


_EDITED_BLOCKS: dict[str, Callable[..., object]] = {
    "time": lambda value: value.replace(year=2001),
    "origin": lambda value: f"{value[:-1]}{'1' if value.endswith('0') else '0'}",
    "key": lambda value: bytes(len(value)),
    "leaves": lambda value: bytes(len(value)),
    "upto_ordinal": lambda value: value - 1,
    "after_ordinal": lambda value: value - 1,
    "block": lambda value: value + 1,
    "entries": lambda value: value + 1,
}


@pytest.mark.parametrize("column", _EDITED_BLOCKS)
def test_an_edited_block_is_found(lake: Lake, digest: VerifiedDigest, column: str) -> None:
    """Its first entry has its bounds, its time, its origin, and a hash of its key."""
    edit_rows(lake.ledger_blocks, where("first_entry", 0, _EDITED_BLOCKS[column], column))
    assert compared(lake, digest).mismatches[0].table == "ledger"


@pytest.mark.parametrize("column", ["root", "subtrees"])
def test_a_block_whose_tree_is_not_one_is_an_error(lake: Lake, digest: VerifiedDigest, column: str) -> None:
    """Nothing can be compared."""
    edit_rows(lake.ledger_blocks, where("first_entry", 0, lambda value: bytes(len(value)), column))
    with pytest.raises(LakeUnusable, match="block 0 of the ledger"):
        compared(lake, digest)


def _forget_ledger(lake: Lake) -> None:
    """Delete the ledger, but not its folders, by which a lake differs from its copies."""
    for place in (lake.ledger_entries, lake.ledger_blocks):
        for file in [*(place / "_delta_log").glob("*.json"), *place.glob("*.parquet")]:
            file.unlink()
    lake.next_block.unlink(missing_ok=True)


def test_a_ledger_sealed_again_over_changed_rows_is_found(fresh: Lake) -> None:
    """It fits the rows, but its origin is another one, because it depends on a random key."""
    digest = sealed(fresh)
    edit_rows(fresh.changes, _EVE)
    _forget_ledger(fresh)
    assert compared(fresh, sealed(fresh)).failure() is None
    assert found(compared(fresh, digest)) == [("digest of another lake", "ledger", None, None)]


def test_a_ledger_sealed_again_with_the_key_of_the_former_one_is_found(fresh: Lake) -> None:
    """The origin is the same, the tree is not."""
    digest, prepared = sealed(fresh), fresh.next_block.read_bytes()
    edit_rows(fresh.changes, _EVE)
    _forget_ledger(fresh)
    overwrite(fresh.next_block, prepared)
    again = sealed(fresh)
    assert again.checkpoint.origin == digest.checkpoint.origin
    assert compared(fresh, again).failure() is None
    (mismatch,) = compared(fresh, digest).mismatches
    assert "blocks 0 to 0" in (mismatch.detail or "")


def test_a_removed_ledger_proves_nothing(lake: Lake, digest: VerifiedDigest) -> None:
    """The lake cannot be compared then."""
    _forget_ledger(lake)
    with pytest.raises(NotAnswerable, match="nothing in this lake is sealed"):
        compared(lake, digest)


# Digests


def test_a_digest_of_another_lake_proves_nothing(lake: Lake, tmp_path: Path) -> None:
    """Both lakes have the same rows."""
    other = sealed(write_lake_with_manifest(tmp_path / "other"))
    proof = compared(lake, other)
    assert found(proof) == [("digest of another lake", "ledger", None, None)]
    assert proof.proved is None


def _complete(lake: Lake) -> None:
    """Make the transaction above the watermark complete."""
    log = AppendLog(lake.changes, CHANGES_SCHEMA)
    log.append(None, {CHANGES_APP: 0x400, ACKNOWLEDGED_APP: 0x441, CURRENT_APP: log.position(CURRENT_APP) or 0})


@on_disk("in a bucket, the copy of a lake is known by its URL only")
def test_a_history_grown_from_an_old_copy_is_found(fresh: Lake, tmp_path: Path) -> None:
    """Each lake is proved by its own digests and by those from before the copy, and not by those of the other."""
    first = sealed(fresh)
    copied = copy_lake(fresh, tmp_path / "copy")
    _complete(fresh)
    later, grown = sealed(fresh), sealed(copied)
    assert grown.checkpoint.origin != first.checkpoint.origin
    assert compared(copied, first, grown).failure() is None
    assert found(compared(copied, first, later))[0][0].startswith("lost ledger")
    assert found(compared(fresh, grown)) == [("digest of another lake", "ledger", None, None)]


def test_an_older_copy_in_the_place_of_a_lake_is_found(fresh: Lake, tmp_path: Path) -> None:
    """The digest names more than the copy has; what it has is proved by the one before."""
    first = sealed(fresh)
    old = copy_lake(fresh, tmp_path / "old")
    _complete(fresh)
    later = sealed(fresh)
    assert compared(fresh, first, later).proved == 0x400
    proof = compared(old, first, later)
    assert found(proof) == [("lost ledger: an older copy, or one that went on otherwise", "ledger", 0x300, None)]
    assert proof.proved == 0x300


def test_what_was_sealed_after_the_digest_is_compared_but_not_proved(fresh: Lake) -> None:
    """Whoever can write the lake can seal, too."""
    digest = sealed(fresh)
    _complete(fresh)
    sealed(fresh)
    proof = compared(fresh, digest)
    assert (proof.proved, proof.sealed) == (0x300, 0x400)
    edit_rows(fresh.changes, where("lsn", 0x400, _text(1, "Eve"), "new"))
    assert found(compared(fresh, digest)) == [("changed change", "public.orders", 0x400, 0)]


# Documented as not detectable


def test_rows_changed_before_they_are_sealed_are_not_found(fresh: Lake) -> None:
    """Nothing protects what is newer than the last digest."""
    digest = sealed(fresh)
    _complete(fresh)
    edit_rows(fresh.changes, where("lsn", 0x400, _text(1, "Eve"), "new"))
    assert compared(fresh, digest, sealed(fresh)).failure() is None


def test_a_lake_replaced_together_with_its_digests_is_not_found(fresh: Lake) -> None:
    """A digest must be kept where nobody who can write the lake can replace it."""
    sealed(fresh)
    edit_rows(fresh.changes, _EVE)
    _forget_ledger(fresh)
    assert compared(fresh, sealed(fresh)).failure() is None
