"""Property tests of the fold and the merge against the reference model, on random histories."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from auditlake.apply.apply import apply_pending
from auditlake.apply.merge import Plan
from auditlake.apply.tail_fold import fold_tail, overlay
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.spark.planning import read_version
from tests import model
from tests.random_seeds import random_seeds
from tests.s3_server import chosen_lake, copy_lake
from tests.spark.apply.harness import (
    COLUMNS,
    REST,
    SNAPSHOT_LSN,
    Source,
    all_rows,
    any_shape,
    apply_as,
    delta_version,
    tail_of,
    the_history,
    time_of,
    versions_in,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

_DAYS = ("2024-02-29", "0001-01-01", "infinity", "-infinity")
_VALUES: dict[str, tuple[str | None, ...]] = {
    "note": (None, "", "u", "héllo\n", "x" * 3000),
    'odd."name`': (None, "NULL", "infinity", "two"),
    "blob": (None, "\\x", "\\x00ff", "\\x" + "ab" * 40),
    "amount": (None, "0.00", "-12345678.90", "NaN"),
    "at": (None, "2024-02-29 23:59:59.999999+00", "infinity", "0044-03-15 00:00:00+00 BC", "294276-12-31 00:00:00+00"),
    "lsn": (None, "t", "f"),
}
_TOASTED = ("note", 'odd."name`', "blob")


@dataclass(frozen=True)
class Features:
    """Kinds of changes in one random history."""

    deletes: bool
    truncates: bool
    key_changes: bool
    unchanged: bool
    full: bool


class Writer:
    """Generator of random valid transactions, with the state of the table."""

    def __init__(self, seed: int, features: Features) -> None:
        self._random = random.Random(seed)  # noqa: S311 - not for secrets
        self._features = features
        self._keys = [(str(number), day) for number in range(7) for day in _DAYS]
        self.rows: dict[model.Key, model.Values] = {}

    def fill(self) -> None:
        """Insert rows for half of the keys before the tail."""
        for key in self._random.sample(self._keys, len(self._keys) // 2):
            self.rows[key] = self._values()

    def transactions(self, count: int) -> Iterator[tuple[model.Transaction, dict[model.Key, model.Values]]]:
        """Yield transactions, each with the rows before it; many touch a row twice."""
        lsn = SNAPSHOT_LSN
        for xid in range(700, 700 + count):
            lsn += self._random.randint(1, 40)
            before = dict(self.rows)
            operations = [self._operation() for _ in range(self._random.choice((1, 2, 5, 14)))]
            yield model.Transaction(lsn, xid, time_of(lsn), [each for group in operations for each in group]), before

    def _operation(self) -> list[model.Operation]:
        operations = self._choose()
        for operation in operations:
            model.apply_operation(operation, self.rows, {}, {})
        return operations

    def _choose(self) -> list[model.Operation]:
        present = sorted(self.rows)  # type: ignore[type-var]
        absent = [key for key in self._keys if key not in self.rows]
        dice = self._random.random()
        if self._features.truncates and dice < 0.01:
            return [model.Truncate()]
        if absent and (dice < 0.3 or not present):
            return [model.Insert(self._random.choice(absent), self._values())]
        key = self._random.choice(present)
        if self._features.deletes and dice < 0.5:
            return [model.Delete(key)]
        if self._features.key_changes and dice < 0.65 and absent:
            return self._move(key, present, absent)
        return [model.Update(key, key, self._new_values(key))]

    def _move(self, key: model.Key, present: list[Any], absent: list[Any]) -> list[model.Operation]:
        free = self._random.choice(absent)
        other = self._random.choice(present)
        if other == key or self._random.random() < 0.5:
            return [model.Update(key, free, self._new_values(key))]
        # A swap through a temporary key.
        away = model.Update(key, free, self._new_values(key))
        over = model.Update(other, key, self._new_values(other))
        unchanged = model.UNCHANGED if self._features.unchanged else None
        back = tuple(
            v if v is None or unchanged is None or COLUMNS[p].name not in _TOASTED else model.UNCHANGED
            for p, v in zip(REST, self._after(key, away), strict=True)
        )
        return [away, over, model.Update(free, other, back)]

    def _after(self, key: model.Key, update: model.Update) -> model.Values:
        before = self.rows[key]
        return tuple(b if v is model.UNCHANGED else v for b, v in zip(before, update.values, strict=True))

    def _values(self) -> model.Values:
        return tuple(self._random.choice(_VALUES[COLUMNS[p].name]) for p in REST)

    def _new_values(self, key: model.Key) -> model.Values:
        before = self.rows[key]
        if self._random.random() < 0.2:
            changed = before
        else:
            changed = tuple(
                old if self._random.random() < 0.5 else new for old, new in zip(before, self._values(), strict=True)
            )
        return tuple(self._sent(p, old, new) for p, old, new in zip(REST, before, changed, strict=True))

    def _sent(self, position: int, old: Any, new: Any) -> Any:
        toasted = self._features.unchanged and COLUMNS[position].name in _TOASTED
        stays = toasted and old is not None and old == new and self._random.random() < 0.8
        return model.UNCHANGED if stays else new


def test_a_history_with_all_features_equals_the_model(spark: SparkSession, tmp_path: Path) -> None:
    """All features, under REPLICA IDENTITY FULL if the seed is odd; `tests/release` has two batches and other plans."""
    seed = next(random_seeds())
    features = Features(deletes=True, truncates=True, key_changes=True, unchanged=True, full=seed % 2 == 1)
    check_history(spark, tmp_path / str(seed), seed, features, batches=1)


def captured_history(
    folder: Path, seed: int, features: Features, count: int
) -> tuple[Source, model.Model, list[model.Transaction]]:
    """Write a lake with a snapshot and captured random transactions; return also the model of the snapshot."""
    writer, source = Writer(seed, features), Source(chosen_lake(folder), full=features.full)
    writer.fill()
    begun = {
        key: model.Version(key, values, SNAPSHOT_LSN, time_of(SNAPSHOT_LSN), "snapshot", xid=None, ordinal=None)
        for key, values in writer.rows.items()
    }
    source.start(begun.values())
    transactions = list(writer.transactions(count))
    source.capture([row for each, before in transactions for row in source.changes(each, before)])
    return source, model.Model(open=begun), [each for each, _ in transactions]


def check_history(spark: SparkSession, folder: Path, seed: int, features: Features, batches: int = 2) -> None:
    """Apply a random history in one batch or two, and compare after each; two are also planned in other ways."""
    source, expected, transactions = captured_history(folder, seed, features, 60)
    cut = random.Random(seed).randrange(len(transactions) - 1)  # noqa: S311 - not for secrets
    ends = [cut, len(transactions) - 1][-batches:]
    for first, last in zip([0, *(end + 1 for end in ends)], ends, strict=False):
        for transaction in transactions[first : last + 1]:
            expected.commit(transaction)
        upto = transactions[last].lsn
        # Each only once: such a plan takes much longer, and is the same for every tail.
        check_overlay(spark, source.lake, upto, expected, pessimistic=last == cut and features.full)
        twin = copy_lake(source.lake, folder.with_name(f"{folder.name}-{upto}")) if first > 0 else None
        check_merge(spark, source.lake, upto, expected, twin)


def check_overlay(spark: SparkSession, lake: Lake, upto: int, expected: model.Model, *, pessimistic: bool) -> None:
    """Compare an overlay of a tail; if `pessimistic`, planned without its statistics, which the merge always has."""
    table, tail = the_history(lake), tail_of(lake, upto)
    assert tail.shape is not None
    if pessimistic:
        tail = replace(tail, shape=any_shape(tail.shape.rows, COLUMNS))
    folded = fold_tail(spark, tail)
    assert folded is not None
    before = read_version(spark, str(table.path), table.delta_version)
    same_versions(expected, versions_in(overlay(before, folded, tail)))


def check_merge(spark: SparkSession, lake: Lake, upto: int, expected: model.Model, twin: Lake | None) -> None:
    """Compare the merge of a tail with the model, with that of a twin by another plan, and with its repetition."""
    apply_as(spark, lake, upto, Plan.MARK)
    after = the_history(lake)
    assert after.position == upto
    same_versions(expected, versions_in(read_version(spark, str(after.path), after.delta_version)))
    if twin is not None:
        apply_as(spark, twin, upto, Plan.MERGE)
        assert the_history(twin).position == upto
        assert all_rows(spark, lake) == all_rows(spark, twin)

    apply_pending(lambda: spark, lake, Lsn(upto))
    assert delta_version(lake) == after.delta_version


def same_versions(expected: model.Model, actual: list[model.Version]) -> None:
    """Assert that both have the same versions, none of them twice."""
    assert sorted(map(repr, expected.versions())) == sorted(map(repr, actual))
