"""Property test of the multiset fold against the reference model, on random histories with many equal rows."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from auditlake.apply.apply import apply_pending
from auditlake.apply.merge import Plan
from auditlake.apply.tail_fold import fold_tail, overlay
from auditlake.apply.tails import find_tails, open_log
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.spark.planning import read_version
from tests import model
from tests.random_seeds import random_seeds
from tests.s3_server import chosen_lake
from tests.spark.apply.harness import (
    COLUMNS,
    NAME,
    SNAPSHOT_LSN,
    Source,
    any_shape,
    apply_as,
    texts,
    the_history,
    time_of,
    versions_in,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

NO_KEY = tuple(replace(column, key=False) for column in COLUMNS)
Row = tuple[tuple[str | None, ...], model.Values]
ROWS: tuple[Row, ...] = (
    (("1", "2024-02-29"), ("x" * 3000, "two", None, None, None, "t")),
    (("1", "2024-02-29"), ("x" * 3000, "two", None, "NaN", None, "t")),
    (("1", "infinity"), ("x" * 3000, "2:ab", "\\x00ff", "NaN", "infinity", None)),
    (("1", None), ("x" * 3000, None, "\\x", None, "0044-03-15 00:00:00+00 BC", "f")),
    ((None, None), (None, None, None, None, None, None)),
    ((None, None), ("", None, None, None, None, None)),
    ((None, None), (None, "", None, None, None, None)),
)
_NOTE = 0


class Writer:
    """Generator of random valid transactions on a few distinct rows."""

    def __init__(self, seed: int, *, truncates: bool) -> None:
        self._random = random.Random(seed)  # noqa: S311 - not for secrets
        self._truncates = truncates
        self.rows: list[Row] = [self._random.choice(ROWS) for _ in range(12)]
        self._ordinal = 0

    def transactions(self, count: int) -> Iterator[tuple[model.Transaction, list[dict[str, Any]]]]:
        """Yield transactions, each with its changes as pgoutput sends them."""
        lsn = SNAPSHOT_LSN
        for xid in range(700, 700 + count):
            lsn += self._random.randint(1, 40)
            operations = [self._operation() for _ in range(self._random.choice((1, 2, 5, 14)))]
            place = {"lsn": lsn, "xid": xid, "time": time_of(lsn), "schema": NAME.schema, "table": NAME.table}
            sent = [
                {**place, "ordinal": ordinal, "relation": 1, **self._sent(operation)}
                for ordinal, operation in enumerate(operations)
            ]
            yield model.Transaction(lsn, xid, time_of(lsn), operations), sent

    def _operation(self) -> model.Operation:
        dice = self._random.random()
        if self._truncates and dice < 0.02:
            self.rows.clear()
            return model.Truncate()
        if dice < 0.4 or not self.rows:
            self.rows.append(self._random.choice(ROWS))
            return model.Insert(self.rows[-1], ())
        row = self.rows.pop(self._random.randrange(len(self.rows)))
        if dice < 0.65:
            return model.Delete(row)
        self.rows.append(self._random.choice(ROWS))
        return model.Update(row, self.rows[-1], ())

    def _sent(self, operation: model.Operation) -> dict[str, Any]:
        match operation:
            case model.Insert(row, _):
                return {"op": "insert", "new": _texts(row)}
            case model.Delete(row):
                return {"op": "delete", "old": _texts(row)}
            case model.Truncate():
                return {"op": "truncate"}
            case model.Update(row, new_row, _):
                old, new = _texts(row), _texts(new_row)
                is_unchanged = bool(old[_NOTE]) and old[_NOTE] == new[_NOTE] and self._random.random() < 0.8
                if is_unchanged:
                    new[_NOTE] = None
                return {"op": "update", "old": old, "new": new, "unchanged": [_NOTE] if is_unchanged else None}


def _texts(row: Any) -> list[str | None]:
    return texts(*row)


def test_random_histories_of_equal_rows_equal_the_model(spark: SparkSession, tmp_path: Path) -> None:
    """For any transactions, a merge produces the model's history; `tests/release` has two batches, and an overlay."""
    seed = next(random_seeds())
    check_copies(spark, tmp_path / str(seed), seed, batches=1)


@dataclass
class Copies:
    """The model of a table without a key."""

    bag: model.Bag = field(default_factory=model.Bag)
    keyed: model.Model = field(default_factory=model.Model)

    def commit(self, transactions: Iterable[model.Transaction]) -> None:
        """Apply transactions."""
        for transaction in transactions:
            numbered = [self.bag.numbered(operation) for operation in transaction.operations]
            self.keyed.commit(replace(transaction, operations=numbered))

    def versions(self) -> list[model.Version]:
        """Return the versions without the numbers of copies."""
        shown = []
        for version in self.keyed.versions():
            ((key, values),) = version.values
            shown.append(replace(version, key=key, values=values))
        return shown


def captured_copies(
    folder: Path, seed: int, count: int, *, truncates: bool = True
) -> tuple[Source, Copies, list[model.Transaction]]:
    """Write a lake with a snapshot and captured random transactions; return also the model of the snapshot."""
    writer, expected = Writer(seed, truncates=truncates), Copies()
    for number, row in enumerate(writer.rows):
        begun = (SNAPSHOT_LSN, time_of(SNAPSHOT_LSN), "snapshot", None, number)
        operation = expected.bag.numbered(model.Insert(row, ()))
        assert isinstance(operation, model.Insert)
        expected.keyed.open[operation.key] = model.Version(operation.key, operation.values, *begun)
    source = Source(chosen_lake(folder), full=True, columns=NO_KEY)
    source.start(expected.versions())
    transactions = list(writer.transactions(count))
    source.capture([row for _, sent in transactions for row in sent])
    return source, expected, [transaction for transaction, _ in transactions]


def check_copies(spark: SparkSession, folder: Path, seed: int, batches: int) -> None:
    """Apply a random history in one batch or two, and compare after each."""
    source, expected, transactions = captured_copies(folder, seed, 50)
    cut = random.Random(seed).randrange(len(transactions) - 1)  # noqa: S311 - not for secrets
    ends = [cut, len(transactions) - 1][-batches:]
    for first, last in zip([0, *(end + 1 for end in ends)], ends, strict=False):
        expected.commit(transactions[first : last + 1])
        upto = transactions[last].lsn
        if first > 0:
            _check_overlay(spark, source.lake, upto, expected)
        apply_as(spark, source.lake, upto, Plan.MERGE if last == ends[-1] else Plan.REPLACE)
        after = the_history(source.lake)
        _same(expected, versions_in(read_version(spark, str(after.path), after.delta_version)))


def _check_overlay(spark: SparkSession, lake: Lake, upto: int, expected: Copies) -> None:
    """Compare an overlay of a tail, planned without its statistics."""
    table = the_history(lake)
    log = open_log(lake)
    assert log is not None
    (tail,) = find_tails(lake, log, {table: table.position}, Lsn(upto))
    assert tail.shape is not None
    folded = fold_tail(spark, replace(tail, shape=any_shape(tail.shape.rows, NO_KEY)))
    assert folded is not None
    before = read_version(spark, str(table.path), table.delta_version)
    _same(expected, versions_in(overlay(before, folded, tail)))


def _same(expected: Copies, actual: list[model.Version]) -> None:
    assert sorted(map(repr, expected.versions())) == sorted(map(repr, actual))


def test_ending_more_copies_than_exist_parks_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """Two deletes of a row with one copy contradict the history: nothing is merged."""
    row = _texts(ROWS[0])
    source = Source(chosen_lake(tmp_path), full=True, columns=NO_KEY)
    begun = model.Version(*ROWS[0], SNAPSHOT_LSN, time_of(SNAPSHOT_LSN), "snapshot", None, 0)
    source.start([begun])
    place = {"lsn": 110, "xid": 1, "time": time_of(110), "schema": NAME.schema, "table": NAME.table, "relation": 1}
    source.capture([{**place, "ordinal": ordinal, "op": "delete", "old": row} for ordinal in range(2)])
    (parked,) = apply_pending(lambda: spark, source.lake).parked.values()
    assert "has no open copy" in parked.reason
    assert the_history(source.lake).position == SNAPSHOT_LSN


def test_a_first_key_parks_the_table_at_its_commit(spark: SparkSession, tmp_path: Path) -> None:
    """Whole rows are compared before it; a new snapshot is to identify rows by the key afterwards."""
    source = Source(chosen_lake(tmp_path), full=True, columns=NO_KEY)
    rows = (ROWS[0], ROWS[0], ROWS[2])
    time = time_of(SNAPSHOT_LSN)
    source.start([model.Version(*row, SNAPSHOT_LSN, time, "snapshot", None, n) for n, row in enumerate(rows)])
    keyed = Source(chosen_lake(tmp_path), full=False, columns=COLUMNS)
    keyed.register(2, COLUMNS)
    place = {"xid": 1, "schema": NAME.schema, "table": NAME.table, "op": "delete", "ordinal": 0}
    sent = [
        {**place, "lsn": 105, "time": time_of(105), "relation": 1, "old": _texts(ROWS[0])},
        {**place, "lsn": 110, "time": time_of(110), "relation": 2, "old": texts(ROWS[2][0], (None,) * 6)},
    ]
    source.capture(sent)
    (parked,) = apply_pending(lambda: spark, source.lake).parked.values()
    assert "has its first key from 0/6E on" in parked.reason
    assert parked.renewable
    table = the_history(source.lake)
    assert (table.position, parked.lsn, table.key_at(Lsn(109))) == (109, 109, ())
    ends = read_version(spark, str(table.path), table.delta_version).select("_to_lsn").collect()
    assert sorted(row["_to_lsn"] or 0 for row in ends) == [0, 0, 105]
