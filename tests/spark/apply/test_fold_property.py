"""The fold and the merge against the model, on random histories."""

import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from auditlake.apply.apply import apply_tail, fold_tail
from auditlake.apply.merge import Plan
from auditlake.apply.overlay import overlay
from auditlake.apply.shape import TailShape
from auditlake.apply.tails import find_tails, open_log
from auditlake.lake.layout import Lake
from auditlake.lake.session import read_version
from auditlake.lsn import Lsn
from tests import model
from tests.spark.apply.harness import (
    COLUMNS,
    REST,
    SNAPSHOT_LSN,
    Source,
    all_rows,
    apply_as,
    delta_version,
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
    """What may happen in one random history."""

    deletes: bool
    truncates: bool
    key_changes: bool
    unchanged: bool
    full: bool


class Writer:
    """Writes random valid transactions, knowing the rows as it goes."""

    def __init__(self, seed: int, features: Features) -> None:
        self._random = random.Random(seed)  # noqa: S311 - not for secrets
        self._features = features
        self._keys = [(str(number), day) for number in range(7) for day in _DAYS]
        self.rows: dict[model.Key, model.Values] = {}

    def fill(self) -> None:
        """Give some keys a row before the tail."""
        for key in self._random.sample(self._keys, len(self._keys) // 2):
            self.rows[key] = self._values()

    def transactions(self, count: int) -> Iterator[tuple[model.Transaction, dict[model.Key, model.Values]]]:
        """Write transactions, each with the rows before it; a row is often touched twice in one."""
        lsn = SNAPSHOT_LSN
        for xid in range(700, 700 + count):
            lsn += self._random.randint(1, 40)
            before = dict(self.rows)
            operations = [self._operation() for _ in range(self._random.choice((1, 2, 5, 14)))]
            yield model.Transaction(lsn, xid, time_of(lsn), [each for group in operations for each in group]), before

    def _operation(self) -> list[model.Operation]:
        found = self._choose()
        for operation in found:
            model.apply_operation(operation, self.rows, {}, {})
        return found

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


_FEATURES = st.builds(
    Features,
    deletes=st.just(True),
    truncates=st.booleans(),
    key_changes=st.booleans(),
    unchanged=st.booleans(),
    full=st.booleans(),
)


@settings(
    max_examples=int(os.environ.get("AUDITLAKE_PROPERTY_EXAMPLES", "1")),
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
    derandomize=False,
)
@given(seed=st.integers(0, 2**32), features=_FEATURES)
def test_any_history_is_folded_as_the_model_says(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int, features: Features
) -> None:
    """Whatever the transactions and wherever the batches end: overlay and merge both give the model's history."""
    note(f"seed {seed}, {features}")
    check_history(spark, tmp_path_factory.mktemp("lake"), seed, features)


@pytest.mark.parametrize("full", [False, True])
def test_a_history_with_everything_in_it(spark: SparkSession, tmp_path: Path, full: bool) -> None:  # noqa: FBT001
    """The same with all features at once, always the same history."""
    check_history(
        spark, tmp_path, 5, Features(deletes=True, truncates=True, key_changes=True, unchanged=True, full=full)
    )


def check_history(spark: SparkSession, folder: Path, seed: int, features: Features) -> None:
    """Write a random history in batches and compare after every batch."""
    writer = Writer(seed, features)
    source = Source(Lake(folder), full=features.full)
    writer.fill()
    begun = {
        key: model.Version(key, values, SNAPSHOT_LSN, time_of(SNAPSHOT_LSN), "snapshot", xid=None, ordinal=None)
        for key, values in writer.rows.items()
    }
    source.start(begun.values())
    expected = model.Model(open=begun)
    transactions = list(writer.transactions(60))
    source.capture([row for each, before in transactions for row in source.changes(each, before)])
    cut = random.Random(seed).randrange(len(transactions) - 1)  # noqa: S311 - not for secrets
    for first, last in ((0, cut), (cut + 1, len(transactions) - 1)):
        for transaction, _ in transactions[first : last + 1]:
            expected.commit(transaction)
        # Once is enough: such a plan takes much longer, and is the same for every tail.
        check_batch(spark, source.lake, transactions[last][0].lsn, expected, pessimistic=first == 0 and features.full)


def check_batch(spark: SparkSession, lake: Lake, upto: int, expected: model.Model, *, pessimistic: bool) -> None:
    """Read one tail before its merge, write it by both plans, read again, and repeat the merge.

    What is read before the merge is planned for any shape of tail if `pessimistic`; the merge knows the tail's shape.
    """
    table = the_history(lake)
    log = open_log(lake)
    assert log is not None
    (tail,) = find_tails(lake, log, {table: table.position}, Lsn(upto))
    assert tail.shape is not None
    if pessimistic:
        tail = replace(tail, shape=TailShape.anything(tail.shape.rows, COLUMNS))
    folded = fold_tail(spark, tail)
    assert folded is not None
    before = read_version(spark, str(table.path), table.delta_version)
    same_versions(expected, versions_in(overlay(before, folded, COLUMNS)))

    twin = Lake(lake.root.with_name(f"{lake.root.name}-{upto}"))
    if table.position > SNAPSHOT_LSN:  # once is enough here, too
        shutil.copytree(lake.root, twin.root)
        apply_as(spark, twin, upto, Plan.REPLACE if pessimistic else Plan.MERGE)
    apply_as(spark, lake, upto, Plan.MARK)
    after = the_history(lake)
    assert after.position == upto
    same_versions(expected, versions_in(read_version(spark, str(after.path), after.delta_version)))
    if twin.root.exists():
        assert the_history(twin).position == upto
        assert all_rows(spark, lake) == all_rows(spark, twin)

    apply_tail(spark, lake, upto)
    assert delta_version(lake) == after.delta_version


def same_versions(expected: model.Model, actual: list[model.Version]) -> None:
    """Compare as sets, and let no version be there twice."""
    assert sorted(map(repr, expected.versions())) == sorted(map(repr, actual))
