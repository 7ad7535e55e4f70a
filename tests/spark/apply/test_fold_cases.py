"""Small tails whose histories are written down by hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from auditlake.apply.apply import apply_tail, fold_tail
from auditlake.apply.merge import Plan, merge
from auditlake.apply.tails import find_tails, open_log
from auditlake.errors import InvariantBroken, LakeConflict, Unsupported
from auditlake.lake.layout import Lake
from auditlake.lake.session import read_version
from auditlake.lsn import Lsn
from tests.model import UNCHANGED, Delete, Insert, Operation, Transaction, Truncate, Update, Values, Version
from tests.spark.apply.harness import (
    COLUMNS,
    SNAPSHOT_LSN,
    Source,
    apply_as,
    delta_version,
    the_history,
    time_of,
    versions_in,
)

pytestmark = pytest.mark.spark

A, B, C, D, E = [(str(number), "2024-02-29") for number in (1, 2, 3, 4, 5)]


def row(note: Any, amount: str | None = None) -> Values:
    """A row of which only two values matter."""
    return (note, None, None, amount, None, None)


def version(
    key: Any, values: Values, begin: tuple[int, str, int | None], end: tuple[int, str] | None = None
) -> Version:
    """A version: `begin` is LSN, operation and ordinal, `end` LSN and operation; xids are LSN + 1000."""
    lsn, op, ordinal = begin
    xid = None if op == "snapshot" else lsn + 1000
    begun = Version(key, values, lsn, time_of(lsn), op, xid, ordinal)
    if end is None:
        return begun
    return replace(begun, to_lsn=end[0], to_time=time_of(end[0]), end_op=end[1], end_xid=end[0] + 1000)


def snapshot(*keys: Any, note: str = "old") -> dict[Any, Values]:
    """Rows that were there before the tail."""
    return dict.fromkeys(keys, row(note))


def stream(source: Source, begin: dict[Any, Values], transactions: dict[int, Sequence[Operation]]) -> None:
    """Bootstrap with `begin` and capture the transactions, by LSN."""
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
    """Apply everything and read the history."""
    apply_tail(spark, lake)
    table = the_history(lake)
    found = versions_in(read_version(spark, str(table.path), table.delta_version))
    assert len(set(found)) == len(found)
    return set(found)


def test_one_transaction_makes_one_version(spark: SparkSession, tmp_path: Path) -> None:
    """Of several changes of a key in one transaction the last counts; births and deaths name how it began and ended."""
    source = Source(Lake(tmp_path))
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


def test_truncate_ends_what_is_open_at_its_place(spark: SparkSession, tmp_path: Path) -> None:
    """Rows before it end, also those the tail does not name; rows after it live; what was dead is not ended again."""
    source = Source(Lake(tmp_path))
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


def test_unchanged_toast_follows_the_row(spark: SparkSession, tmp_path: Path) -> None:
    """The value comes from the open version, over two key changes, and never from another row that had the key."""
    source = Source(Lake(tmp_path))
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


def test_keys_swap(spark: SparkSession, tmp_path: Path) -> None:
    """Two rows exchange their keys through a third: both keys change their row, the third key has no version."""
    source = Source(Lake(tmp_path))
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
    """REPLICA IDENTITY FULL sends the old tuple always, and it holds the unchanged values."""
    source = Source(Lake(tmp_path), full=True)
    stream(source, snapshot(A), {110: [Update(A, A, row(UNCHANGED, "1.00"))]})
    assert history(spark, source.lake) == {
        version(A, row("old"), (100, "snapshot", None), (110, "update")),
        version(A, row("old", "1.00"), (110, "update", 0)),
    }


def test_inserts_alone_are_appended(spark: SparkSession, tmp_path: Path) -> None:
    """A tail of inserts makes open versions, in one commit with the position, and nothing when it is applied again."""
    source = Source(Lake(tmp_path))
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


@pytest.mark.parametrize(
    ("operation", "plan"),
    [
        (Delete(B), Plan.MERGE),
        (Update(B, B, row("x")), Plan.MERGE),
        (Insert(A, row("x")), Plan.MERGE),
        (Delete(B), Plan.REPLACE),
        (Insert(A, row("x")), Plan.REPLACE),
        (Delete(B), Plan.MARK),
        (Update(B, B, row("x")), Plan.MARK),
        (Insert(A, row("x")), Plan.MARK),
    ],
    ids=lambda value: value.value if isinstance(value, Plan) else type(value).__name__.lower(),
)
def test_a_change_that_contradicts_the_history_stops_it(
    spark: SparkSession, tmp_path: Path, operation: Operation, plan: Plan
) -> None:
    """Ending what is not open, or beginning what is, is a bug somewhere: nothing is written, no value is shown."""
    source = Source(Lake(tmp_path))
    source.start(version(key, row("old"), (SNAPSHOT_LSN, "snapshot", None)) for key in (A, C))
    capture(source, snapshot(B, C), {110: [operation, Update(C, C, row("secret"))]})
    with pytest.raises(InvariantBroken, match="do not go with the history") as caught:
        apply_as(spark, source.lake, 110, plan)
    assert "secret" not in caught.value.message
    assert the_history(source.lake).position == SNAPSHOT_LSN


@pytest.mark.parametrize(("column", "text"), [(2, "0a"), (3, "1,5"), (4, "2024-02-30 00:00:00+00"), (5, "maybe")])
def test_text_that_is_no_value_of_its_type_stops_it(
    spark: SparkSession, tmp_path: Path, column: int, text: str
) -> None:
    """What is no bytea, no number, no time, no truth value never becomes NULL, and is not shown."""
    source = Source(Lake(tmp_path))
    values = [*row("x")]
    values[column] = text
    stream(source, snapshot(A), {110: [Insert(B, tuple(values))]})
    with pytest.raises(InvariantBroken, match="cannot be folded") as caught:
        apply_tail(spark, source.lake)
    assert text not in caught.value.message
    assert caught.value.__suppress_context__
    assert the_history(source.lake).position == SNAPSHOT_LSN


@pytest.mark.parametrize(
    ("theirs", "plan"),
    [(115, Plan.MERGE), (120, Plan.MERGE), (120, Plan.APPEND), (115, Plan.REPLACE), (115, Plan.MARK), (120, Plan.MARK)],
)
def test_a_second_applier_is_refused(spark: SparkSession, tmp_path: Path, theirs: int, plan: Plan) -> None:
    """A fold planned before another process moved the table, part of the way or all of it, is not written."""
    source = Source(Lake(tmp_path))
    first: list[Operation] = [Insert(B, row("b"))] if plan is Plan.APPEND else [Update(A, A, row("b"))]
    stream(source, snapshot(A), {110: first, 120: [Insert(C, row("c"))]})
    log, table = open_log(source.lake), the_history(source.lake)
    assert log is not None
    (tail,) = find_tails(source.lake, log, {table: table.position}, Lsn(120))
    folded = fold_tail(spark, tail)
    assert folded is not None
    assert tail.shape is not None

    apply_tail(spark, source.lake, theirs)
    after = delta_version(source.lake)
    with pytest.raises(LakeConflict):
        merge(tail, folded, plan)
    assert delta_version(source.lake) == after


def test_a_changed_table_is_applied_up_to_the_change(spark: SparkSession, tmp_path: Path) -> None:
    """The transactions before a schema change are folded; the refusal names table, LSN and columns."""
    source = Source(Lake(tmp_path))
    stream(source, snapshot(A), {110: [Update(A, A, row("x"))]})
    changed = (*COLUMNS[:-1], replace(COLUMNS[-1], type_oid=25))
    source.register(2, changed)
    update = source.changes(Transaction(120, 1120, time_of(120), [Update(A, A, row("y"))]), {A: row("x")})
    source.capture([each | {"relation": 2} for each in update])
    for _ in range(2):
        with pytest.raises(Unsupported, match=r'public\."it.s odd" changed at 0/78: .* lsn \(type 25, modifier -1\)'):
            apply_tail(spark, source.lake)
    table = the_history(source.lake)
    assert table.position == 119
    assert set(versions_in(read_version(spark, str(table.path), table.delta_version))) == {
        version(A, row("old"), (100, "snapshot", None), (110, "update")),
        version(A, row("x"), (110, "update", 0)),
    }


def test_a_value_that_was_never_sent(spark: SparkSession, tmp_path: Path) -> None:
    """An UPDATE into a row filter comes as an INSERT; what it left out is not taken from the row that had the key."""
    source = Source(Lake(tmp_path))
    stream(source, snapshot(A, note="of another row"), {110: [Delete(A)]})
    ((sent,),) = [source.changes(Transaction(120, 1120, time_of(120), [Insert(A, row(None))]), {})]
    source.capture([{**sent, "unchanged": [0]}])
    with pytest.raises(InvariantBroken, match="row filter without its unchanged large value of column note"):
        apply_tail(spark, source.lake)
    assert the_history(source.lake).position == SNAPSHOT_LSN
