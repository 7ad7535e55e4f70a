"""Random lives of a masked table: no column that had a masked name in a message before is ever shown.

Columns are added, dropped, renamed, exchanged and added again under a name of before. A message is received for a row
between any two changes, and capture looks at the catalog at the end of several, so that it knows of the changes what
names, order and existence show. Once the table is parked, a copy is taken, or refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from auditlake.lake import masks as masks_module
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.masks import CatalogEntries, Masks, TableMasks
from auditlake.lake.relations import RelationsLog
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.schema.attribute_numbers import AttributeNumbers
from auditlake.settings.mask_rules import Masking, parse_rule
from auditlake.values.masks import WITHHELD

_OID, _TABLE = 7, TableName("public", "t")
_RULES = Masking(
    (("public.t.m", parse_rule("hash")), ("public.t.k", parse_rule("keep_last 4"))), (), b"0123456789abcdef"
)
_NAMES = ("m", "k", "a", "b", "c")


@dataclass
class _Source:
    """The table: its columns by their true numbers, some never published, and the messages that were not received.

    `rules` is the first masked name of each column in a message or a copy.
    """

    random: Random
    columns: dict[int, str] = field(default_factory=dict)
    last: int = 0
    lsn: int = 100
    private: set[int] = field(default_factory=set)
    dropped: list[str] = field(default_factory=lambda: ["m"])
    rules: dict[int, str] = field(default_factory=dict)
    messages: list[tuple[Lsn, dict[int, str], dict[int, str]]] = field(default_factory=list)
    written: dict[int, str] = field(default_factory=dict)

    def change(self) -> None:
        """Change the columns, twice if they exchange names."""
        before = dict(self.columns)
        self._change()
        changed = [n for n, name in self.columns.items() if before.get(n) != name or self.random.random() < 0.05]
        self.written |= dict.fromkeys(changed, str(self.lsn))

    def _change(self) -> None:
        free, of = sorted(set(_NAMES) - set(self.columns.values())), self.columns
        kind = self.random.choice(["add", "drop", "rename", "rename", "add back", "exchange"])
        self.lsn += 10
        if kind == "add" and free:
            self.add(self.random.choice(free))
        elif kind == "add back" and self.dropped[-1] in free:
            self.add(self.dropped[-1])
        elif kind == "rename" and free:
            of[self.random.choice(sorted(of))] = self.random.choice(free)
        elif kind == "drop" and len(of) > 1:
            self.dropped.append(of.pop(self.random.choice(sorted(of))))
        elif kind == "exchange" and len(of) > 1:
            one, other = self.random.sample(sorted(of), 2)
            of[one], of[other] = of[other], of[one]

    def add(self, name: str) -> None:
        """Add a column."""
        self.last += 1
        self.columns[self.last] = name
        if self.random.random() < 0.05:
            self.private.add(self.last)

    def show(self) -> dict[int, str]:
        """Show the published columns; their names become known."""
        shown = {number: name for number, name in sorted(self.columns.items()) if number not in self.private}
        self.rules = {number: name for number, name in shown.items() if name in "mk"} | self.rules
        self.lsn += 10
        return shown

    def write(self) -> None:
        """Send a message."""
        shown = self.show()
        self.messages.append((Lsn(self.lsn), shown, dict(self.rules)))

    @property
    def catalog(self) -> dict[int, str | None]:
        """The catalog: dropped columns have no name."""
        return {number: self.columns.get(number) for number in range(1, self.last + 1)}


def _relation(shown: Mapping[int, str], *, numbered: bool) -> Relation:
    columns = (Column(name, 25, -1, key=False, attnum=n if numbered else None) for n, name in shown.items())
    return Relation(_OID, _TABLE, ReplicaIdentity.DEFAULT, tuple(columns))


class _Numbers(AttributeNumbers):
    """Reads the catalog of a source that is none."""

    source: _Source
    history: HistoryTable | None = None

    def _visible(self, *_: object) -> Mapping[int, str | None]:
        return self.source.catalog

    def _entries(self, oid: int) -> CatalogEntries:
        assert oid == _OID
        self.source.lsn += 1
        return CatalogEntries(Lsn(self.source.lsn), {n: self.source.written.get(n, "") for n in self.source.columns})

    def _unpublished(self, oid: int) -> set[int]:
        assert oid == _OID
        return {number for number in self.source.private if number in self.source.columns}

    def _history(self, relation: Relation) -> HistoryTable | None:
        assert relation.oid == _OID
        return self.history

    def _last(self, *_: object) -> int:
        return 0


class _Life:
    """A source, and capture of it, with a copy at its beginning."""

    def __init__(self, random: Random, lake: Lake) -> None:
        self.source, self.lake, self.parked = _Source(random), lake, False
        for name in random.sample(_NAMES, random.randint(1, 4)):
            self.source.add(name)
        self.masks = Masks(lake, _RULES)
        self.numbers = _Numbers("", lake, 1.0, self.masks)
        self.numbers.source = self.source
        self.relations = RelationsLog(lake, self.numbers, self.masks.of)
        self.copy()

    def copy(self) -> None:
        """Take a copy, unless a column cannot be masked; a rule by its name decides about a suspect."""
        rules = dict(self.source.rules)
        shown, suspects = self.source.show(), masks_module._read_table(self.lake.masks_of(_OID))  # noqa: SLF001
        masks = Masks(self.lake, _RULES).of(_relation(shown, numbered=True), copied=True)
        if masks.problems:  # nothing was copied
            self.source.rules = rules
            return
        decided = suspects.suspects if suspects is not None else frozenset()
        for number in decided & shown.keys():
            mask = masks.columns[shown[number]]
            self.source.rules[number] = "m" if mask.rule == parse_rule("hash") else "k"
        _check(masks, shown, self.source.rules)
        columns = [Column(name, 25, -1, key=False, attnum=number) for number, name in shown.items()]
        at = Lsn(self.source.lsn)
        self.numbers.history = HistoryTable(
            _TABLE, self.lake, columns, 0, position=at, horizon=at, as_made=True, oid=_OID
        )
        if masks.columns:
            Masks(self.lake, _RULES).kept(_OID, Lsn(0), self.numbers._entries(_OID))  # noqa: SLF001
        self.parked = False

    def look(self) -> tuple[int, int]:
        """Receive all messages; return how many have their true numbers, and others."""
        sent, self.source.messages = self.source.messages, []
        numbers = [self.relations.register(_relation(shown, numbered=False), lsn) for lsn, shown, _ in sent]
        exact = 0
        for number, (_, shown, rules) in zip(numbers, sent, strict=True):
            relation = self.relations.relation(number)
            masks = self.masks.of(relation)
            exact += [column.attnum for column in relation.columns] == list(shown)
            self.parked |= bool(masks.problems)
            _check(masks, shown, rules)
        return exact, len(sent) - exact


def _check(masks: TableMasks, shown: Mapping[int, str], rules: Mapping[int, str]) -> None:
    """Check that every value of a masked column is withheld, or has its rule or a hash, which shows less."""
    for number, rule in rules.items():
        if number in shown:
            mask = masks.columns.get(shown[number])
            assert mask is not None, (number, shown, rules)
            allowed = {_RULES.rule_of(_TABLE, rule), parse_rule("hash")}
            assert mask is WITHHELD or mask.rule in allowed, (number, shown, rules)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for lakes whose records of masks are in memory."""
    records: dict[str, object] = {}

    def read(place: object, make: Callable[[object], object], _: str) -> object:
        return make(records[str(place)]) if str(place) in records else None

    def update(
        _: Lake, place: object, make: Callable[[object], object], change: Callable[[object], object], remedy: str
    ) -> None:
        if (content := change(read(place, make, remedy))) is not None:
            records[str(place)] = content

    monkeypatch.setattr(masks_module, "read_record", read)
    monkeypatch.setattr(masks_module, "update_record", update)
    monkeypatch.setattr(masks_module, "_read", lambda _: masks_module._words(_RULES))  # noqa: SLF001
    monkeypatch.setattr(masks_module, "_read_tables", lambda _: {})
    return tmp_path


def test_no_value_of_a_masked_column_is_shown(folder: Path) -> None:
    """Whatever becomes of its name; also of names with two rules. Most messages are identified all the same."""
    exact = other = 0
    for seed in range(400):
        random = Random(seed)  # noqa: S311
        life = _Life(random, Lake(folder / str(seed)))
        for _ in range(random.randint(1, 3)):
            for _ in range(random.randint(1, 8)):
                if random.random() < 0.6:
                    life.source.write()
                life.source.change()
            life.source.write()
            found = life.look()
            exact, other = exact + found[0], other + found[1]
            if life.parked and random.random() < 0.5:
                life.copy()
    assert exact > other > 0
