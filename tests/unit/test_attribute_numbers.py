"""Tests of attribute numbers: a message matches the catalog in exactly one way, or its columns are not identified."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import permutations, product
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from auditlake.lake.column_identity import possible
from auditlake.lake.layout import Lake
from auditlake.lake.relations import RelationVersion
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.schema import attribute_numbers as numbers
from auditlake.schema import catalog_snapshot
from auditlake.schema.attribute_numbers import AttributeNumbers, match
from auditlake.schema.catalog_snapshot import VISIBLE_WITHIN_S
from auditlake.schema.missing_values import Added, Question

_BEFORE = {1: "id", 2: "a", 3: "b"}


@pytest.mark.parametrize(
    ("names", "now", "expected"),
    [
        (["id", "a", "b"], {1: "id", 2: "a", 3: "b"}, (1, 2, 3)),
        (["id", "b"], {1: "id", 2: None, 3: "b"}, (1, 3)),  # dropped
        (["id", "x", "b"], {1: "id", 2: "x", 3: "b"}, (1, 2, 3)),  # renamed
        (["id", "b", "a"], {1: "id", 2: "b", 3: "a"}, (1, 2, 3)),  # two names exchanged
        (["id", "a", "b", "c"], {1: "id", 2: "a", 3: "b", 4: "c"}, (1, 2, 3, 4)),  # added
        (["id", "b", "a"], {1: "id", 2: None, 3: "b", 4: "a"}, (1, 3, 4)),  # dropped and added in another place
        (["id", "a", "b"], {1: "id", 2: None, 3: "b", 4: "a"}, (1, 2, 3)),  # the same, and not there yet
        (["id", "a", "b", "c"], {1: "id", 2: "a", 3: "b", 4: None}, (1, 2, 3, 4)),  # added, and dropped since
        (["id", "a", "b"], {1: "id", 2: "x", 3: "y"}, (1, 2, 3)),  # renamed later
        (["id", "a", "b"], {1: "id", 2: "a", 3: None, 4: "b"}, None),  # either column of this name
        (["id", "a", "b", "c"], {1: "id", 2: "a", 3: "b", 4: None, 5: "c"}, None),  # added, dropped, added
        (["id", "x", "b"], {1: "id", 2: "y", 3: "b"}, None),  # renamed twice
        (["id", "a"], {1: "id", 2: "a", 3: "b"}, None),  # a column that has always been there
        (["id", "a", "b", "g"], {1: "id", 2: "a", 3: "b", 4: "g", 5: "later"}, (1, 2, 3, 4)),
    ],
)
def test_a_message_is_matched_if_only_one_assignment_is_possible(
    names: Sequence[str], now: Mapping[int, str | None], expected: tuple[int, ...] | None
) -> None:
    """Columns that existed before and exist now existed in between; others have a name of before, or of now."""
    assert match(names, _BEFORE, now) == expected


def test_without_earlier_columns_the_message_must_agree_with_the_catalog() -> None:
    """Unpublished columns may be between them."""
    now = {1: "id", 2: None, 3: "secret", 4: "b"}
    assert match(["id", "b"], None, now, unpublished=[3]) == (1, 4)
    assert match(["id", "b"], None, now) is None
    assert match(["b", "id"], None, now) is None
    assert match(["id", "c"], None, now) is None


def test_a_thousand_columns_are_matched() -> None:
    """The time grows with the number of columns times the changes, not with the number of assignments."""
    before = {number: f"c{number}" for number in range(1, 1001)}
    now = {**before, **dict.fromkeys(range(500, 510)), **{number: f"c{number}" for number in range(1001, 1011)}}
    names = [name for number in sorted(now) if (name := now[number]) is not None]
    assert match(names, before, now) == tuple(number for number in sorted(now) if now[number] is not None)


def test_a_column_dropped_long_ago_is_not_taken_for_a_new_one() -> None:
    """Its number was given before; without that knowledge the new column could be either."""
    now = {1: "id", 2: "a", 3: "b", 4: None, 5: "c"}
    assert match(["id", "a", "b", "c"], _BEFORE, now, 4) == (1, 2, 3, 5)
    assert match(["id", "a", "b", "c"], _BEFORE, now, 3) is None


def _asked_again(monkeypatch: pytest.MonkeyPatch, now: Mapping[int, str | None], names: Sequence[str]) -> list[str]:
    """Ask for the numbers of a message that follows a recorded version; return what else of the lake was read."""
    columns = tuple(Column(name, 25, -1, key=False, attnum=number) for number, name in _BEFORE.items())
    version = RelationVersion(1, Lsn(10), Relation(7, TableName("public", "t"), ReplicaIdentity.DEFAULT, columns))
    message = Relation(
        7, version.relation.name, ReplicaIdentity.DEFAULT, tuple(Column(n, 25, -1, key=False) for n in names)
    )
    read: list[str] = []
    monkeypatch.setattr(AttributeNumbers, "_read", lambda *_: now)
    monkeypatch.setattr(AttributeNumbers, "_unpublished", lambda *_: ())
    monkeypatch.setattr(numbers, "open_history", lambda *_: read.append("history"))
    monkeypatch.setattr(numbers, "read_catalog_snapshot", lambda *_: read.append("catalog snapshot"))
    monkeypatch.setattr(numbers, "read_recorded", lambda _: None)
    asked = AttributeNumbers("", Lake(Path("lake")), 1.0)
    assert asked(message, version, 3, Lsn(20)) == match(names, _BEFORE, now, 3)
    return read


class _Clock(threading.Event):
    """Its waits take no time, and are summed up."""

    slept_s = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        """Let the time pass."""
        _Clock.slept_s += timeout or 0
        return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[_Clock]:
    """The clock and the pauses of the questions."""
    monkeypatch.setattr(_Clock, "slept_s", 0.0)
    for module in (numbers, catalog_snapshot):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: _Clock.slept_s))
    monkeypatch.setattr(catalog_snapshot, "threading", SimpleNamespace(Event=_Clock))
    return _Clock


def test_columns_that_were_dropped_since_delay_a_batch_once(
    monkeypatch: pytest.MonkeyPatch, clock: type[_Clock]
) -> None:
    """A table may have had 1,600 of them; a commit that is not visible yet is waited for in each batch."""
    monkeypatch.setattr(AttributeNumbers, "_read", lambda *_: {1: "id", 2: None})
    monkeypatch.setattr(AttributeNumbers, "_unpublished", lambda *_: ())
    monkeypatch.setattr(AttributeNumbers, "_history", lambda *_: None)
    monkeypatch.setattr(AttributeNumbers, "_last", lambda *_: 1)
    columns = (Column("id", 23, -1, key=True, attnum=1), Column("gone", 25, -1, key=False))
    relation = Relation(7, TableName("public", "t"), ReplicaIdentity.DEFAULT, columns)
    version = RelationVersion(1, Lsn(10), replace(relation, columns=columns[:1]))
    asked = AttributeNumbers("", Lake(Path("lake")), 1.0)
    for batch in range(1, 4):
        assert {asked(relation, version, 1, Lsn(20)) for _ in range(100)} == {(1, 2)}
        assert clock.slept_s == pytest.approx(batch * VISIBLE_WITHIN_S, abs=0.4)
        asked.close()


def test_missing_values_of_columns_that_were_dropped_since_delay_a_batch_once(
    monkeypatch: pytest.MonkeyPatch, clock: type[_Clock]
) -> None:
    """As above, and after it."""
    monkeypatch.setattr(catalog_snapshot, "connect", lambda _: nullcontext())
    monkeypatch.setattr(catalog_snapshot, "read_column", lambda *_: None)
    monkeypatch.setattr(catalog_snapshot, "read_catalog_snapshot", lambda *_: None)
    gone = [Question(TableName("public", "t"), Added(7, f"c{number}", Lsn(10))) for number in range(100)]
    answers = catalog_snapshot.Asker("", Lake(Path("lake")), 1.0)(gone)
    assert len(answers) == 100
    assert clock.slept_s == pytest.approx(VISIBLE_WITHIN_S, abs=0.2)


def test_a_repeated_message_reads_nothing_of_the_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL repeats it for every streamed transaction; in a store each history takes seven requests."""
    assert not _asked_again(monkeypatch, {1: "id", 2: "a", 3: "b"}, ["id", "a", "b"])
    assert not _asked_again(monkeypatch, {1: "id", 2: None, 3: "b", 4: "c"}, ["id", "b", "c"])
    assert _asked_again(monkeypatch, {1: "id", 2: "a", 3: "b", 4: None}, ["id", "a", "b"])


def test_earlier_numbers_matter_only_if_a_later_column_is_gone_or_renamed() -> None:
    """Whatever greater number was given before, and whatever is not published, the match is the same."""
    before, certain = {1: "a", 2: "b"}, 0
    for now_names in product(["a", "b", "c", None], repeat=3):
        now = dict(enumerate(now_names, 1))
        if len(set(now_names)) < len(now_names) or (now[3] is None):
            continue
        for names in (each for count in range(4) for each in permutations(["a", "b", "c"], count)):
            found = match(names, before, now)
            if found is not None and all(n < 3 or now[n] == name for n, name in zip(found, names, strict=True)):
                assert {match(names, before, now, last, gone) for last in range(5) for gone in ([], [3])} == {found}
                certain += 1
    assert certain > 10


def test_a_later_column_is_not_in_a_message_without_those_before_it() -> None:
    """Column 5 was added as `a`, renamed to `q`, and another `a` was added; unless it was not published."""
    before = {1: "id", 2: "a", 3: "b", 4: "c"}
    now = {1: "id", 2: None, 3: "b", 4: "c", 5: "q", 6: "a"}
    assert match(["id", "b", "c", "a"], before, now, 4) == (1, 3, 4, 5)
    assert match(["id", "b", "c", "a"], before, now, 4, [5]) == (1, 3, 4, 6)
    assert match(["id", "b", "c", "a"], None, now) is None
    assert match(["id", "a", "b", "c"], before, now, 4) == (1, 2, 3, 4)
    # The last column of before, or the one that was added in its place.
    assert match(["id", "d"], {1: "id", 2: "a", 3: "d"}, {1: "id", 2: None, 3: None, 4: "q"}, 3) is None
    # A repeated message.
    assert match(["id", "a"], {1: "id", 2: "a"}, {1: "id", 2: None, 3: "q"}, 2) == (1, 2)


def test_order_and_existence_tell_what_a_column_may_be() -> None:
    """Names do not."""
    base = [1, 2, 3]

    def ways(count: int, now: Mapping[int, str | None], *unpublished: int) -> list[set[int]]:
        return [set(each) for each in possible(["x"] * count, base, now, unpublished)]

    assert ways(2, {1: "id", 2: None, 3: "b"}) == [{1}, {3}]
    assert ways(3, {1: "id", 2: None, 3: "b", 4: "c"}) == [{1}, {2, 3}, {3, 4}]
    assert ways(2, {1: "id", 2: None, 3: None}) == [{1}, {2, 3}]
    assert ways(4, {1: "id", 2: "a", 3: "b", 4: "c", 5: "d"}) == [{1}, {2}, {3}, {4}]
    assert ways(1, {1: "id", 2: "a", 3: "b"}) == []
    dropped, names = {1: "id", 2: None, 3: "b", 4: "c"}, ("id", "b", "c")
    assert [set(each) for each in possible(names, base, dropped, kept=[3])] == [{1}, {3}, {4}]
    assert [set(each) for each in possible(names, base, dropped, kept=[1, 4])] == [{1}, {2, 3}, {3, 4}]
    assert ways(4, {1: "id", 2: "a", 3: "b", 4: "g", 5: "d"}, 4) == [{1}, {2}, {3}, {4, 5}]


@dataclass
class _Table:
    """A table and its columns by their true numbers; some of them are never published."""

    random: Random
    columns: dict[int, str]
    last: int
    private: set[int]

    def change(self) -> None:
        """Add, drop or rename a column; few names, so that they return."""
        free = sorted({"a", "b", "c", "d"} - set(self.columns.values()))
        kind = self.random.choice(["add", "drop", "rename"])
        if kind != "drop" and free:
            at = self.last = self.last + 1
            if kind == "rename" and (renamed := sorted(self.columns.keys() - self.private)):
                at = self.random.choice(renamed)
                self.last -= 1
            elif self.random.random() < 0.1:
                self.private.add(at)
            self.columns[at] = self.random.choice(free)
        elif len(self.columns) > 1:
            del self.columns[self.random.choice(sorted(self.columns))]

    def message(self) -> dict[int, str]:
        """Return what a message shows, with the numbers that it does not show."""
        return {number: name for number, name in sorted(self.columns.items()) if number not in self.private}


def test_columns_of_random_chains_are_never_taken_for_others() -> None:
    """Every message of a chain, with the catalog at its end, unless a known column had yet another name in it."""
    known = unknown = 0
    for seed in range(6000):
        table = _Table(Random(seed), {1: "a", 2: "b", 3: "c"}, 3, set())  # noqa: S311
        for _ in range(seed % 3):
            table.change()
        before, last, sent = table.message(), table.last, list[dict[int, str]]()
        for _ in range(1 + seed % 7):
            sent.append(table.message())
            table.change()
        now: dict[int, str | None] = {number: table.columns.get(number) for number in range(1, table.last + 1)}
        for each in sent:
            ways = possible(list(each.values()), before, now, table.private)
            assert len(ways) == len(each), (seed, before, now, each)
            assert all(number in way for number, way in zip(each, ways, strict=True)), (seed, before, now, each)
            if any(number in each and each[number] not in (name, now[number]) for number, name in before.items()):
                continue
            if list(each.values()) == list(before.values()) and each != before:  # the last column, added again
                continue
            found = match(list(each.values()), before, now, last, table.private)
            assert found in (None, tuple(each)), (seed, before, now, each)
            known, unknown = known + (found is not None), unknown + (found is None)
    assert known > unknown
