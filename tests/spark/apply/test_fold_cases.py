"""Tests of the fold on small tails, with expected histories written by hand."""

import re
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from auditlake.apply.apply import apply_pending
from auditlake.apply.merge import Plan, merge
from auditlake.apply.tail_fold import fold_tail
from auditlake.apply.tails import find_tails, open_log
from auditlake.errors import InvariantBroken, LakeConflict, NotAnswerable, Unsupported
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Cause, Parked, check_reached, park
from auditlake.lsn import Lsn
from auditlake.spark.planning import read_version
from auditlake.temporal.moments import read_known
from tests.model import UNCHANGED, Delete, Insert, Operation, Transaction, Truncate, Update, Values, Version
from tests.s3_server import chosen_lake
from tests.spark.apply.harness import (
    COLUMNS,
    NAME,
    SNAPSHOT_LSN,
    Source,
    apply_as,
    delta_version,
    only_spark,
    the_history,
    time_of,
    versions_in,
    versions_without_spark,
)

pytestmark = pytest.mark.spark

A, B, C, D, E = [(str(number), "2024-02-29") for number in (1, 2, 3, 4, 5)]


def row(note: Any, amount: str | None = None) -> Values:
    """Return the values of a row, NULL except for two."""
    return (note, None, None, amount, None, None)


def version(
    key: Any, values: Values, begin: tuple[int, str, int | None], end: tuple[int, str] | None = None
) -> Version:
    """Return a version: `begin` is LSN, operation and ordinal, `end` LSN and operation; xids are LSN + 1000."""
    lsn, op, ordinal = begin
    xid = None if op == "snapshot" else lsn + 1000
    begun = Version(key, values, lsn, time_of(lsn), op, xid, ordinal)
    if end is None:
        return begun
    return replace(begun, to_lsn=end[0], to_time=time_of(end[0]), end_op=end[1], end_xid=end[0] + 1000)


def snapshot(*keys: Any, note: str = "old") -> dict[Any, Values]:
    """Return rows that exist before the tail."""
    return dict.fromkeys(keys, row(note))


def stream(source: Source, begin: dict[Any, Values], transactions: dict[int, Sequence[Operation]]) -> None:
    """Write a snapshot of `begin` and capture the transactions, by LSN."""
    source.start(version(key, values, (SNAPSHOT_LSN, "snapshot", None)) for key, values in begin.items())
    capture(source, dict(begin), transactions)


def capture(source: Source, rows: dict[Any, Values], transactions: dict[int, Sequence[Operation]]) -> None:
    """Capture the transactions, by LSN, on a table with these rows."""
    sent = [
        change
        for lsn, operations in transactions.items()
        for change in source.changes(Transaction(lsn, lsn + 1000, time_of(lsn), operations), rows)
    ]
    source.capture(sent)


def history(spark: SparkSession, lake: Lake) -> set[Version]:
    """Apply the tail with Spark and without it; read the history, which has to be the same."""
    twin = versions_without_spark(lake, lake.root.with_name(f"{lake.root.name}-{secrets.token_hex(4)}"))
    with only_spark():
        apply_pending(lambda: spark, lake)
    table = the_history(lake)
    versions = versions_in(read_version(spark, str(table.path), table.delta_version))
    assert len(set(versions)) == len(versions)
    assert Counter(twin) == Counter(versions)
    return set(versions)


def test_one_transaction_has_one_version_per_key(spark: SparkSession, tmp_path: Path) -> None:
    """The last change of a key in a transaction determines the state; births and deaths determine `_op`, `_end_op`."""
    source = Source(chosen_lake(tmp_path))
    stream(
        source,
        snapshot(A, B, C),
        {
            110: [
                Update(A, A, row("first")),
                Update(A, A, row("second")),
                Insert(D, row("new")),
                Update(D, D, row("newer")),
                Insert(E, row("never seen")),
                Delete(E),
                Delete(B),
                Insert(B, row("again")),
                Delete(B),
                Insert(B, row("and again")),
            ],
            120: [Update(C, C, row("old")), Delete(B)],
        },
    )
    assert history(spark, source.lake) == {
        version(A, row("old"), (100, "snapshot", None), (110, "update")),
        version(A, row("second"), (110, "update", 1)),
        version(B, row("old"), (100, "snapshot", None), (110, "delete")),
        version(B, row("and again"), (110, "insert", 9), (120, "delete")),
        version(C, row("old"), (100, "snapshot", None), (120, "update")),
        version(C, row("old"), (120, "update", 0)),
        version(D, row("newer"), (110, "insert", 3)),
    }


def test_truncate_closes_the_versions_open_at_its_place(spark: SparkSession, tmp_path: Path) -> None:
    """Rows before it end, including those without a change in the tail; later rows live; dead ones do not end again."""
    source = Source(chosen_lake(tmp_path))
    stream(
        source,
        snapshot(A, B, C),
        {
            110: [Insert(D, row("short")), Delete(B), Truncate(), Truncate(), Insert(A, row("after"))],
            120: [Insert(E, row("kept for a while"))],
            130: [Truncate()],
            140: [Truncate(), Insert(B, row("last"))],
        },
    )
    assert history(spark, source.lake) == {
        version(A, row("old"), (100, "snapshot", None), (110, "truncate")),
        version(A, row("after"), (110, "insert", 4), (130, "truncate")),
        version(B, row("old"), (100, "snapshot", None), (110, "delete")),
        version(B, row("last"), (140, "insert", 1)),
        version(C, row("old"), (100, "snapshot", None), (110, "truncate")),
        version(E, row("kept for a while"), (120, "insert", 0), (130, "truncate")),
    }


def test_unchanged_toast_values_follow_the_row(spark: SparkSession, tmp_path: Path) -> None:
    """The value comes from the open version through two key changes, and never from another row of the key."""
    source = Source(chosen_lake(tmp_path))
    stream(
        source,
        snapshot(A, note="from the snapshot") | snapshot(E, note="of another row"),
        {
            110: [Update(A, A, row(UNCHANGED, "1.00"))],
            120: [Update(A, B, row(UNCHANGED, "2.00")), Insert(A, row("new owner"))],
            130: [Delete(E), Update(B, E, row(UNCHANGED, "3.00"))],
            140: [Update(A, A, row(UNCHANGED, "4.00")), Update(E, E, row(UNCHANGED, "NaN"))],
        },
    )
    snap = "from the snapshot"
    assert history(spark, source.lake) == {
        version(A, row(snap), (100, "snapshot", None), (110, "update")),
        version(A, row(snap, "1.00"), (110, "update", 0), (120, "update")),
        version(A, row("new owner"), (120, "insert", 1), (140, "update")),
        version(A, row("new owner", "4.00"), (140, "update", 0)),
        version(B, row(snap, "2.00"), (120, "update", 0), (130, "update")),
        version(E, row("of another row"), (100, "snapshot", None), (130, "delete")),
        version(E, row(snap, "3.00"), (130, "update", 1), (140, "update")),
        version(E, row(snap, "NaN"), (140, "update", 1)),
    }


def test_rows_that_swap_keys_swap_their_values(spark: SparkSession, tmp_path: Path) -> None:
    """Two rows exchange their keys through a third key, which has no version."""
    source = Source(chosen_lake(tmp_path))
    stream(
        source,
        snapshot(A, note="a") | snapshot(B, note="b"),
        {110: [Update(A, C, row(UNCHANGED)), Update(B, A, row(UNCHANGED)), Update(C, B, row(UNCHANGED))]},
    )
    assert history(spark, source.lake) == {
        version(A, row("a"), (100, "snapshot", None), (110, "update")),
        version(A, row("b"), (110, "update", 1)),
        version(B, row("b"), (100, "snapshot", None), (110, "update")),
        version(B, row("a"), (110, "update", 2)),
    }


def test_an_old_tuple_with_the_same_key_is_no_key_change(spark: SparkSession, tmp_path: Path) -> None:
    """REPLICA IDENTITY FULL always sends the old tuple, which has the unchanged values."""
    source = Source(chosen_lake(tmp_path), full=True)
    stream(source, snapshot(A), {110: [Update(A, A, row(UNCHANGED, "1.00"))]})
    assert history(spark, source.lake) == {
        version(A, row("old"), (100, "snapshot", None), (110, "update")),
        version(A, row("old", "1.00"), (110, "update", 0)),
    }


def test_a_tail_of_inserts_is_appended_once(spark: SparkSession, tmp_path: Path) -> None:
    """A tail of inserts adds open versions in one commit with the position; applied again it changes nothing."""
    source = Source(chosen_lake(tmp_path))
    stream(source, snapshot(A), {110: [Insert(B, row("b", "NaN"))], 120: [Insert(C, row("c"))]})
    expected = {
        version(A, row("old"), (100, "snapshot", None)),
        version(B, row("b", "NaN"), (110, "insert", 0)),
        version(C, row("c"), (120, "insert", 0)),
    }
    before = delta_version(source.lake)
    assert history(spark, source.lake) == expected
    assert history(spark, source.lake) == expected
    assert the_history(source.lake).position == 120
    assert delta_version(source.lake) == before + 1


def name_of(value: object) -> str:
    """Return the name of a plan or an operation in the name of a test."""
    return value.value if isinstance(value, Plan) else type(value).__name__.lower()


@pytest.mark.parametrize(
    ("operation", "plan"),
    [(Delete(B), Plan.MERGE), (Insert(A, row("x")), Plan.REPLACE), (Update(B, B, row("x")), Plan.MARK)],
    ids=name_of,
)
def test_a_change_that_contradicts_the_history_stops_the_apply(
    spark: SparkSession, tmp_path: Path, operation: Operation, plan: Plan
) -> None:
    """Each plan, and each operation; `tests/release` has the others with each other."""
    check_contradiction(spark, tmp_path, operation, plan)


def check_contradiction(spark: SparkSession, folder: Path, operation: Operation, plan: Plan) -> None:
    """Closing a version that is not open, or opening one that is, writes nothing and shows no value."""
    source = Source(chosen_lake(folder))
    source.start(version(key, row("old"), (SNAPSHOT_LSN, "snapshot", None)) for key in (A, C))
    capture(source, snapshot(B, C), {110: [operation, Update(C, C, row("secret"))]})
    with pytest.raises(InvariantBroken, match="contradict the history") as caught:
        apply_as(spark, source.lake, 110, plan)
    assert "secret" not in caught.value.message
    assert the_history(source.lake).position == SNAPSHOT_LSN


@pytest.mark.parametrize(("column", "text"), [(3, "1,5"), (4, "2024-02-30 00:00:00+00")])
def test_text_that_is_not_a_value_of_its_type_parks_the_table(
    spark: SparkSession, tmp_path: Path, column: int, text: str
) -> None:
    """Of numeric and timestamptz; `tests/release` has bytea and boolean."""
    check_text(spark, tmp_path, column, text)


def check_text(spark: SparkSession, folder: Path, column: int, text: str) -> None:
    """Apply a text that is no value: it never becomes NULL, and is not shown."""
    source = Source(chosen_lake(folder))
    values = [*row("x")]
    values[column] = text
    stream(source, snapshot(A), {110: [Insert(B, tuple(values))]})
    (parked,) = apply_pending(lambda: spark, source.lake).parked.values()
    assert (parked.lsn, parked.cause) == (109, Cause.APPLY)
    assert "cannot be applied" in parked.reason
    assert text not in parked.reason
    assert the_history(source.lake).position == SNAPSHOT_LSN


@pytest.mark.parametrize(("theirs", "plan"), [(115, Plan.MERGE), (120, Plan.APPEND), (115, Plan.MARK)])
def test_a_fold_planned_before_another_commit_is_refused(
    spark: SparkSession, tmp_path: Path, theirs: int, plan: Plan
) -> None:
    """Partly or completely; `tests/release` has the other plans."""
    check_overtaken(spark, tmp_path, theirs, plan)


def check_overtaken(spark: SparkSession, folder: Path, theirs: int, plan: Plan) -> None:
    """Another process has moved the position since: the fold is not written."""
    source = Source(chosen_lake(folder))
    first: list[Operation] = [Insert(B, row("b"))] if plan is Plan.APPEND else [Update(A, A, row("b"))]
    stream(source, snapshot(A), {110: first, 120: [Insert(C, row("c"))]})
    log, table = open_log(source.lake), the_history(source.lake)
    assert log is not None
    (tail,) = find_tails(source.lake, log, {table: table.position}, Lsn(120))
    folded = fold_tail(spark, tail)
    assert folded is not None
    assert tail.shape is not None

    apply_pending(lambda: spark, source.lake, Lsn(theirs))
    after = delta_version(source.lake)
    with pytest.raises(LakeConflict):
        merge(tail, folded, plan)
    assert delta_version(source.lake) == after


def test_a_changed_table_is_applied_up_to_the_schema_change(spark: SparkSession, tmp_path: Path) -> None:
    """The transactions before an unsupported schema change are folded; the error names table, LSN and columns."""
    source = Source(chosen_lake(tmp_path))
    stream(source, snapshot(A), {110: [Update(A, A, row("x"))]})
    changed = (*COLUMNS[:-1], replace(COLUMNS[-1], type_oid=25))
    source.register(2, changed)
    update = source.changes(Transaction(120, 1120, time_of(120), [Update(A, A, row("y"))]), {A: row("x")})
    source.capture([each | {"relation": 2} for each in update])
    for _ in range(2):
        (parked,) = apply_pending(lambda: spark, source.lake).parked.values()
        assert (parked.lsn, parked.until) == (119, 120)
        assert re.search(r'public\."it.s odd" changed at 0/78: .* lsn text\b', parked.reason)
    table = the_history(source.lake)
    assert table.position == 119
    assert set(versions_in(read_version(spark, str(table.path), table.delta_version))) == {
        version(A, row("old"), (100, "snapshot", None), (110, "update")),
        version(A, row("x"), (110, "update", 0)),
    }


def test_a_value_that_was_never_sent_parks_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """An UPDATE into a row filter arrives as an INSERT; an omitted value never comes from an earlier row of the key."""
    source = Source(chosen_lake(tmp_path))
    stream(source, snapshot(A, note="of another row"), {110: [Delete(A)]})
    ((sent,),) = [source.changes(Transaction(120, 1120, time_of(120), [Insert(A, row(None))]), {})]
    source.capture([{**sent, "unchanged": [0]}])
    (parked,) = apply_pending(lambda: spark, source.lake).parked.values()
    assert "row filter without its unchanged large value of column note" in parked.reason
    assert the_history(source.lake).position == 110


def test_a_contradiction_parks_the_table_right_before_its_commit(spark: SparkSession, tmp_path: Path) -> None:
    """Earlier commits are folded; the parked table is skipped until a retry, and resumes if that succeeds."""
    source = Source(chosen_lake(tmp_path))
    inserts: dict[int, Sequence[Operation]] = {
        lsn: [Insert(("9", f"2026-01-{lsn - 100:02}"), row("x"))] for lsn in range(110, 118)
    }
    stream(source, snapshot(A), inserts)
    park(source.lake, Parked(NAME, Cause.APPLY, Lsn(109), Lsn(110), "of an earlier version", ""))
    first = apply_pending(lambda: spark, source.lake, Lsn(111))
    assert first.parked == {}
    assert first.freed == {NAME}
    assert the_history(source.lake).position == 110
    wrong = source.changes(Transaction(120, 1120, time_of(120), [Delete(B)]), {B: row("b")})
    source.capture([*wrong, *source.changes(Transaction(130, 1130, time_of(130), [Insert(C, row("c"))]), {})])
    applied = apply_pending(lambda: spark, source.lake)
    (parked,) = applied.parked.values()
    assert (parked.lsn, parked.until) == (119, 120)
    assert "the commit at 0/78 cannot be applied: they contradict the history" in parked.reason
    assert NAME not in applied.upto
    assert the_history(source.lake).position == 117
    before = delta_version(source.lake)
    assert apply_pending(lambda: spark, source.lake, known=applied.upto, retry=False).parked == applied.parked
    assert delta_version(source.lake) == before
    with pytest.raises(NotAnswerable, match=r"as of 0/82, it is known up to 0/77: its changes in the commit at 0/78"):
        read_known(source.lake).timeline(the_history(source.lake)).require((Lsn(130), None))
    with pytest.raises(Unsupported, match=r"all other tables have reached 0/82; public.* is parked at 0/77"):
        check_reached(applied.parked.values(), Lsn(130))
