"""Property tests of the fold without Spark: against the model, and against the fold in Spark for keys of every kind."""

import errno
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from auditlake.apply import apply as applying
from auditlake.apply import deletion_vector_writer as marking
from auditlake.apply.apply import Reached, apply_pending
from auditlake.apply.embedded_fold import NotFolded, is_ordinary, merge_embedded
from auditlake.apply.errors import CannotFold
from auditlake.apply.merge import Plan
from auditlake.apply.tails import Tail
from auditlake.audit.lake_reader import Reader
from auditlake.delta.commit_failures import Overtaken
from auditlake.delta.log_writer import Action
from auditlake.errors import LakeConflict
from auditlake.lake.compaction import fence
from auditlake.lake.history import HistoryTable, write_rows
from auditlake.lake.history_files import find_files
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Cause, Parked, park, unpark
from auditlake.lsn import Lsn
from auditlake.relation import Column
from tests import model
from tests.arrow_state import texts_at
from tests.model import UNCHANGED, Delete, Insert, Operation, Truncate, Update
from tests.random_seeds import random_seeds
from tests.s3_server import chosen_lake, copy_lake
from tests.spark.apply.harness import (
    COLUMNS,
    NAME,
    SNAPSHOT_LSN,
    NeedsSpark,
    Source,
    all_rows,
    apply_as,
    held_versions,
    in_parts,
    only_spark,
    tail_of,
    texts,
    the_history,
    time_of,
    without_spark,
)
from tests.spark.apply.test_copies_property import NO_KEY, captured_copies
from tests.spark.apply.test_fold_cases import A, B, C, D, capture, row, snapshot, stream, version
from tests.spark.apply.test_fold_property import Features, captured_history

_KEYS = {
    "whole": (20, -1, ("-9223372036854775808", "0", "7")),
    "number": (1700, ((12 << 16) | 2) + 4, ("0.00", "-1.50", "9999999999.99", "NaN")),
    "text": (25, -1, ("", "a", "A", "é", "a\0xff")),
    "uuid": (2950, -1, ("00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
    "truth": (16, -1, ("t", "f")),
    "bytes": (17, -1, ("\\x", "\\x00", "\\x00ff")),
    "day": (1082, -1, ("2024-02-29", "infinity", "0044-03-15 BC")),
    "at": (1184, -1, ("2024-02-29 23:59:59.999999+00", "-infinity", "294276-12-31 00:00:00+00")),
    "local": (1114, -1, ("2024-02-29 00:00:00", "infinity")),
    "approximate": (701, -1, ("0", "-0", "NaN", "-Infinity", "1.5")),
    "float": (700, -1, ("-0", "0", "1e+10", "NaN")),
    "list": (1007, -1, ("{}", "{1,NULL}", "{NULL}", "{{1},{2}}", "[0:1]={1,2}")),
    "reals": (1022, -1, ("{-0}", "{0}", "{NaN,NULL}", "{1.5}")),
}
_EQUAL = {"-0": "0", "{-0}": "{0}"}
"""Texts of values that are equal to others, so that a row of one has the key of the other."""
_VALUES = {
    "Double": (701, -1, (None, "NaN", "-0", "0", "Infinity", "1e-300", "9.999999999999999e+22")),
    "real": (700, -1, (None, "NaN", "1e+10", "-0")),
    "numbers": (1231, -1, (None, "{}", "{1.5,NULL,NaN}", "{{1},{2}}", "[0:1]={1,2}")),
    "texts": (1009, -1, (None, '{"a b",NULL,"NULL",""}', '{"\\"","\\\\"}')),
    "days": (1182, -1, (None, "{2024-02-29,infinity}", "{2024-02-29}")),
    "plain": (25, -1, (None, "", "x" * 300)),
}


def test_a_history_equals_the_model(tmp_path: Path) -> None:
    """In three batches of random transactions, with every kind of change, and states before them; no JVM starts."""
    for seed in random_seeds():
        _check_history(tmp_path / str(seed), seed)


def _check_history(folder: Path, seed: int) -> None:
    features = Features(
        deletes=seed % 5 > 0,
        truncates=seed % 2 == 0,
        key_changes=seed % 3 > 0,
        unchanged=True,
        full=seed % 4 == 3,
    )
    source, expected, transactions = captured_history(folder, seed, features, 90)
    for first, last in pairwise((0, 30, 60, 90)):
        for number, transaction in enumerate(transactions[first:last]):
            expected.commit(transaction)
            if number % 7 == 0:
                assert _state(source.lake, transaction.lsn) == _open(expected.versions())
        upto = transactions[last - 1].lsn
        assert is_ordinary(tail_of(source.lake, upto))
        apply_pending(without_spark, source.lake, Lsn(upto))
        assert the_history(source.lake).position == upto
        assert Counter(held_versions(source.lake)) == Counter(expected.versions())


def _state(lake: Lake, lsn: int) -> Counter[tuple[str | None, ...]]:
    """Return the rows at an LSN, of the history and the tail."""
    return texts_at(Reader(lake, datetime.now(UTC)), NAME, Lsn(lsn))[1]


def _open(versions: Iterable[model.Version]) -> Counter[tuple[str | None, ...]]:
    return Counter(tuple(texts(each.key, each.values)) for each in versions if each.to_lsn is None)


def test_a_history_of_equal_rows_equals_the_model(tmp_path: Path) -> None:
    """In three batches of random transactions on a table without a key; no JVM starts."""
    for seed in random_seeds():
        source, expected, transactions = captured_copies(tmp_path / str(seed), seed, 90)
        for first, last in pairwise((0, 30, 60, 90)):
            for number, transaction in enumerate(transactions[first:last]):
                expected.commit([transaction])
                if number % 7 == 0:
                    assert _state(source.lake, transaction.lsn) == _open(expected.versions())
            apply_pending(without_spark, source.lake, Lsn(transactions[last - 1].lsn))
            assert the_history(source.lake).position == transactions[last - 1].lsn
            assert Counter(held_versions(source.lake)) == Counter(expected.versions())


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_keys_of_every_kind_are_compared_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Every row of the history is the same, with keys and values that their types cannot represent."""
    for seed in random_seeds():
        chance = random.Random(seed)  # noqa: S311 - not for secrets
        names = chance.sample(sorted(_KEYS), 2)
        kinds = {name: _KEYS[name] for name in names} | _VALUES
        columns = tuple(Column(name, oid, typmod, name in names) for name, (oid, typmod, _) in kinds.items())
        source = Source(chosen_lake(tmp_path / str(seed)), full=chance.random() < 0.5, columns=columns)
        source.start()
        changes = list(_changes(chance, columns, [kinds[column.name][2] for column in columns], full=source.full))
        source.capture(changes)
        twin = copy_lake(source.lake, tmp_path / f"{seed}-spark")
        for upto in (changes[len(changes) // 2]["lsn"], changes[-1]["lsn"]):
            apply_pending(without_spark, source.lake, Lsn(upto))
            with only_spark():
                apply_pending(lambda: spark, twin, Lsn(upto))
            assert all_rows(spark, source.lake) == all_rows(spark, twin)
            assert the_history(source.lake).position == the_history(twin).position == upto


def _changes(
    chance: random.Random, columns: tuple[Column, ...], domains: list[Any], *, full: bool
) -> Iterator[dict[str, Any]]:
    rows: dict[tuple[str, str], list[str | None]] = {}
    for number in range(200):
        lsn = SNAPSHOT_LSN + 10 * (number // 4 + 1)
        change = {"lsn": lsn, "ordinal": number, "xid": lsn + 1, "time": time_of(lsn), "relation": 1}
        change |= {"schema": NAME.schema, "table": NAME.table}
        new = [chance.choice(domain) for domain in domains]
        key = (_EQUAL.get(new[0], new[0]), _EQUAL.get(new[1], new[1]))
        if rows and chance.random() < 0.4:
            was = chance.choice(sorted(rows))
            old = rows[was] if full else [value if c.key else None for c, value in zip(columns, rows[was], strict=True)]
            if chance.random() < 0.4:
                del rows[was]
                yield change | {"op": "delete", "old": old}
                continue
            if key not in rows or key == was:
                del rows[was]
                rows[key] = new
                moved = old[:2] != new[:2]
                yield change | {"op": "update", "old": old if full or moved else None, "new": new}
                continue
        if key not in rows:
            rows[key] = new
            yield change | {"op": "insert", "new": new}


@pytest.mark.spark
def test_tails_are_folded_with_and_without_spark_in_turn(spark: SparkSession, tmp_path: Path) -> None:
    """Files of Delta's writers have a column more than ours; `tests/release` has the other plans."""
    check_in_turn(spark, tmp_path, Plan.REPLACE)


def check_in_turn(spark: SparkSession, folder: Path, plan: Plan) -> None:
    """Apply a tail through Spark, the next one without it, and so on."""
    source = Source(chosen_lake(folder))
    changes = [
        Update(A, A, row("x")),
        Update(B, B, row("y")),
        Update(A, A, row(UNCHANGED, "1.00")),
        Update(B, B, row("z")),
    ]
    stream(source, snapshot(A, B), {110 + 10 * number: [change] for number, change in enumerate(changes)})
    for upto in (110, 120, 130, 140):
        if upto in (110, 130):
            apply_as(spark, source.lake, upto, plan)
        else:
            apply_pending(without_spark, source.lake, Lsn(upto))
    assert Counter(held_versions(source.lake)) == Counter(
        [
            version(A, row("old"), (100, "snapshot", None), (110, "update")),
            version(A, row("x"), (110, "update", 0), (130, "update")),
            version(A, row("x", "1.00"), (130, "update", 0)),
            version(B, row("old"), (100, "snapshot", None), (120, "update")),
            version(B, row("y"), (120, "update", 0), (140, "update")),
            version(B, row("z"), (140, "update", 0)),
        ]
    )


def test_a_history_folded_in_parts_equals_the_model(tmp_path: Path) -> None:
    """In two batches, each of which is one commit; under REPLICA IDENTITY FULL if the seed is odd."""
    for seed in random_seeds():
        features = Features(deletes=True, truncates=False, key_changes=False, unchanged=True, full=seed % 2 == 1)
        source, expected, transactions = captured_history(tmp_path / str(seed), seed, features, 60)
        for first, last in pairwise((0, 30, 60)):
            for transaction in transactions[first:last]:
                expected.commit(transaction)
            before = the_history(source.lake)
            with in_parts(part_bytes=8000):
                apply_pending(without_spark, source.lake, Lsn(transactions[last - 1].lsn))
            assert the_history(source.lake).delta_version == before.delta_version + 1
            assert Counter(held_versions(source.lake)) == Counter(expected.versions())


def test_a_history_of_equal_rows_folded_in_parts_equals_the_model(tmp_path: Path) -> None:
    """An UPDATE of a row to another may be in two parts."""
    for seed in random_seeds():
        source, expected, transactions = captured_copies(tmp_path / str(seed), seed, 60, truncates=False)
        for first, last in pairwise((0, 30, 60)):
            expected.commit(transactions[first:last])
            with in_parts(part_bytes=3000):
                apply_pending(without_spark, source.lake, Lsn(transactions[last - 1].lsn))
            assert Counter(held_versions(source.lake)) == Counter(expected.versions())


def test_inserts_are_divided_by_files(tmp_path: Path) -> None:
    """Each file with changes of the table becomes a file of the history, in one commit."""
    source = Source(chosen_lake(tmp_path))
    stream(source, snapshot(A), {110: [Insert(B, row("x"))]})
    others = source.changes(model.Transaction(115, 1115, time_of(115), [Insert(C, row("of another table"))]), {})
    source.capture([change | {"relation": 2, "table": "other"} for change in others])
    capture(source, snapshot(A, B), {120: [Insert(C, row("y"))]})
    before = the_history(source.lake)
    with in_parts():
        apply_pending(without_spark, source.lake)
    files = find_files(the_history(source.lake))
    assert files is not None
    assert (files.table.position, files.table.delta_version) == (120, before.delta_version + 1)
    assert sorted(file.rows for file in files.by_name.values()) == [1, 1, 1]
    assert Counter(held_versions(source.lake)) == Counter(
        [
            version(A, row("old"), (100, "snapshot", None)),
            version(B, row("x"), (110, "insert", 0)),
            version(C, row("y"), (120, "insert", 0)),
        ]
    )


def test_a_failure_after_the_first_part_leaves_the_history_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that were written are no part of it."""
    source, written = Source(chosen_lake(tmp_path)), list[str]()
    stream(source, snapshot(A, B), {110: [Delete(A), Delete(B)]})

    def full(table: HistoryTable, part: str, rows: pa.Table) -> Action:
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(part)
        return write_rows(table, part, rows)

    monkeypatch.setattr(marking, "write_rows", full)
    with pytest.raises(OSError, match="No space left"), in_parts(part_bytes=1):
        merge_embedded(tail_of(source.lake, 110))
    monkeypatch.undo()
    assert Counter(held_versions(source.lake)) == Counter(
        version(key, row("old"), (100, "snapshot", None)) for key in (A, B)
    )
    apply_pending(without_spark, source.lake)
    assert Counter(held_versions(source.lake)) == Counter(
        version(key, row("old"), (100, "snapshot", None), (110, "delete")) for key in (A, B)
    )


@pytest.mark.parametrize("columns", [COLUMNS, NO_KEY], ids=["key", "no key"])
def test_a_table_that_is_emptied_and_loaded_again_is_divided(tmp_path: Path, columns: tuple[Column, ...]) -> None:
    """The versions that TRUNCATE ends by a hash, what is inserted after it by files."""
    source, old = Source(chosen_lake(tmp_path), full=columns == NO_KEY, columns=columns), (A, B, C)
    begun = [version(key, row("old"), (SNAPSHOT_LSN, "snapshot", number)) for number, key in enumerate(old)]
    source.start(begun)
    capture(source, snapshot(*old), {110: [Truncate(), Insert(A, row("new")), Insert(D, row("new"))]})
    capture(source, snapshot(A, D), {120: [Insert(B, row("newer"))]})
    with in_parts(part_bytes=300):
        apply_pending(without_spark, source.lake)
    assert Counter(held_versions(source.lake)) == Counter(
        [
            *(replace(each, to_lsn=110, to_time=time_of(110), end_op="truncate", end_xid=1110) for each in begun),
            version(A, row("new"), (110, "insert", 1)),
            version(D, row("new"), (110, "insert", 2)),
            version(B, row("newer"), (120, "insert", 0)),
        ]
    )


def test_a_tail_that_cannot_be_divided_is_left_to_spark(tmp_path: Path) -> None:
    """It moves a row to another key, or has other changes beside a TRUNCATE and what follows it."""
    source = Source(chosen_lake(tmp_path))
    stream(source, snapshot(A), {110: [Update(A, B, row("x"))], 120: [Insert(C, row("y")), Truncate()]})
    for upto in (110, 120):
        with pytest.raises(NeedsSpark), in_parts(part_bytes=1):
            apply_pending(without_spark, source.lake, Lsn(upto))
        assert the_history(source.lake).position < upto
        apply_pending(without_spark, source.lake, Lsn(upto))
    assert Counter(held_versions(source.lake)) == Counter(
        [
            version(A, row("old"), (100, "snapshot", None), (110, "update")),
            version(B, row("x"), (110, "update", 0), (120, "truncate")),
        ]
    )


def test_a_row_that_is_changed_again_and_again_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its changes are one part; as many changes of several rows are several."""
    monkeypatch.setattr("auditlake.apply.parts._LARGEST_BYTES", 5000)
    source, keys = Source(chosen_lake(tmp_path)), [(str(number), "2026-11-27") for number in range(40)]
    several = [Update(key, key, row("x")) for key in keys]
    one = [Update(keys[0], keys[0], row(str(number))) for number in range(40)]
    stream(source, snapshot(*keys), {110: several, 120: one})
    with in_parts():
        apply_pending(without_spark, source.lake, Lsn(110))
        with pytest.raises(NeedsSpark):
            apply_pending(without_spark, source.lake, Lsn(120))
    assert the_history(source.lake).position == 110


@pytest.mark.parametrize(
    "operation",
    [Delete(B), Update(B, B, row("x")), Update(B, A, row("x")), Insert(A, row("x"))],
    ids=["delete", "update", "move", "insert"],
)
def test_a_change_that_contradicts_the_history_is_refused(tmp_path: Path, operation: Operation) -> None:
    """Closing a version that is not open, or opening one that is, writes nothing and shows no value."""
    source = Source(chosen_lake(tmp_path))
    source.start(version(key, row("old"), (SNAPSHOT_LSN, "snapshot", None)) for key in (A, C))
    capture(source, snapshot(B, C), {110: [operation, Update(C, C, row("secret"))]})
    with pytest.raises(CannotFold, match="contradict the history") as caught:
        merge_embedded(tail_of(source.lake, 110))
    assert "secret" not in caught.value.message
    assert the_history(source.lake).position == SNAPSHOT_LSN


def test_a_table_released_during_a_batch_is_searched_from_where_it_was_parked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capture settles its shape after the batch has read the parking LSN: the next batch misses no change after it."""
    source = Source(chosen_lake(tmp_path))
    stream(source, snapshot(A), {110: [Update(A, A, row("x"))], 120: [Insert(B, row("y"))]})
    capture(source, snapshot(A, B), {130: [Delete(B)]})
    park(source.lake, Parked(NAME, Cause.PENDING, Lsn(115), Lsn(116), "its shape changed", "Wait."))
    search = applying._find_followed  # noqa: SLF001 - what follows the read

    def released(*given: Any, **more: Any) -> list[Tail]:
        unpark(source.lake, NAME, Cause.PENDING)
        return search(*given, **more)

    monkeypatch.setattr(applying, "_find_followed", released)
    first = apply_pending(without_spark, source.lake, Lsn(120))
    assert first.upto == {NAME: Reached(Lsn(115), Lsn(115))}
    second = apply_pending(without_spark, source.lake, known=first.upto)
    assert (second.rows, second.parked) == ({NAME: 2}, {})
    assert Counter(held_versions(source.lake)) == Counter(
        [
            version(A, row("old"), (100, "snapshot", None), (110, "update")),
            version(A, row("x"), (110, "update", 0)),
            version(B, row("y"), (120, "insert", 0), (130, "delete")),
        ]
    )


@pytest.mark.parametrize("alone", [False, True], ids=["after an update", "alone"])
def test_a_value_that_was_never_sent_is_left_to_spark(tmp_path: Path, *, alone: bool) -> None:
    """An UPDATE into a row filter arrives as INSERT, without unchanged values; the row has no open version."""
    source = Source(chosen_lake(tmp_path))
    stream(source, snapshot(A, B), {110: [Update(B, B, row(UNCHANGED))]})
    if alone:
        apply_pending(without_spark, source.lake)
    (change,) = source.changes(model.Transaction(120, 1120, time_of(120), [Update(B, B, row(UNCHANGED))]), snapshot(B))
    source.capture([change | {"op": "insert"}])
    with pytest.raises(NotFolded):
        merge_embedded(tail_of(source.lake, 120))
    assert the_history(source.lake).position == (110 if alone else SNAPSHOT_LSN)


def test_a_change_without_its_key_is_left_to_spark(tmp_path: Path) -> None:
    """Only Spark's message says why the table is parked."""
    source = Source(chosen_lake(tmp_path))
    stream(source, snapshot(A), {110: [Insert((None, "2024-02-29"), row("x"))]})
    with pytest.raises(NotFolded):
        merge_embedded(tail_of(source.lake, 110))
    assert the_history(source.lake).position == SNAPSHOT_LSN


@pytest.mark.parametrize("theirs", [115, 120])
def test_a_fold_planned_before_another_commit_is_refused(tmp_path: Path, theirs: int) -> None:
    """The position has moved: to within the tail, or to its end."""
    source = Source(chosen_lake(tmp_path))
    stream(source, snapshot(A, B), {110: [Update(A, A, row("x"))], 115: [Delete(B)], 120: [Update(A, A, row("y"))]})
    planned = tail_of(source.lake, 120)
    apply_pending(without_spark, source.lake, Lsn(theirs))
    with pytest.raises(LakeConflict, match="another process applies"):
        merge_embedded(planned)
    apply_pending(without_spark, source.lake)
    assert Counter(held_versions(source.lake)) == Counter(
        [
            version(A, row("old"), (100, "snapshot", None), (110, "update")),
            version(A, row("x"), (110, "update", 0), (120, "update")),
            version(A, row("y"), (120, "update", 0)),
            version(B, row("old"), (100, "snapshot", None), (115, "delete")),
        ]
    )


def test_a_compaction_meanwhile_makes_the_tail_be_planned_again(tmp_path: Path) -> None:
    """A commit that leaves the position as it is overtakes the plan, not the process."""
    source = Source(chosen_lake(tmp_path))
    stream(source, snapshot(A), {110: [Update(A, A, row("x"))]})
    planned = tail_of(source.lake, 110)
    assert fence(the_history(source.lake))
    with pytest.raises(Overtaken):
        merge_embedded(planned)
    apply_pending(without_spark, source.lake)
    assert the_history(source.lake).position == 110


_NAMES_OF_THE_FOLD = ("_kind", "edge", "number", "kind", "k0", "v0", "n0", "until", "lsn", "new", "_")


@pytest.mark.spark
def test_a_column_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    """Also one that a column has while a tail is folded, without Spark and in it."""
    columns = (Column("id", 23, -1, key=True), *(Column(name, 25, -1, key=False) for name in _NAMES_OF_THE_FOLD))
    source = Source(chosen_lake(tmp_path / "lake"), columns=columns)
    source.start()
    place = {"ordinal": 0, "xid": 1, "schema": NAME.schema, "table": NAME.table, "relation": 1}
    first, second = ([f"{name} {state}" for name in _NAMES_OF_THE_FOLD] for state in ("a", "b"))
    source.capture([place | {"lsn": 110, "time": time_of(110), "op": "insert", "new": ["1", *first]}])
    source.capture([place | {"lsn": 120, "time": time_of(120), "op": "update", "new": ["1", *second]}])
    twin = copy_lake(source.lake, tmp_path / "twin")
    for upto in (110, 120):
        apply_pending(without_spark, source.lake, Lsn(upto))
        with only_spark():
            apply_pending(lambda: spark, twin, Lsn(upto))
    rows = all_rows(spark, source.lake)
    assert rows == all_rows(spark, twin)
    assert len(rows) == 2
    assert sorted(tuple(value in row_ for value in first) for row_ in rows) == [(False,) * 11, (True,) * 11]
    assert sorted(tuple(value in row_ for value in second) for row_ in rows) == [(False,) * 11, (True,) * 11]
