"""Random ALTER statements on several tables: evolution keeps what a model of PostgreSQL's catalog has at every LSN.

Each column of the model has a number that is never used again, as in pg_attribute. Its tables exchange names, columns
get names of dropped ones, keys change, types are widened or rewritten. Each change is a row of `relations`. Histories
follow them in tails of random length, some of them after a killed run that had recorded its columns already.
"""

import random
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from auditlake.lake.history import RESERVED, HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.relations import RelationVersion, RelationVersions, ShapeSource, version_rows
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.schema.evolution import Followed, find_shapes, follow_versions, reshaped
from auditlake.schema.missing_values import Added, Answers, Existing
from tests.random_seeds import random_seeds

_INT, _BIGINT, _TEXT = 23, 20, 25
_NAMES = ("id", "a", "A", "b", "_part", "a`b", "~61", "é")
_TABLES = tuple(TableName("public", name) for name in ("t", "u", "Weird T"))
_BEGIN = 100
_EXCHANGED, _REWRITTEN, _KILLED = 0.1, 0.4, 0.2


@dataclass(frozen=True)
class Shape:
    """A table in the model: its name and its columns in order."""

    name: TableName
    columns: tuple[Column, ...]
    full: bool = False

    def relation(self, oid: int) -> Relation:
        """Return what the stream would send."""
        identity = ReplicaIdentity.FULL if self.full else ReplicaIdentity.DEFAULT
        return Relation(oid, self.name, identity, self.columns)


class Catalog:
    """The model: shapes of every table by LSN, and the rows of `relations` that report them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._last = [2] * len(_TABLES)
        self.lsn = Lsn(_BEGIN)
        self.answers: Answers = {}
        self.versions: list[RelationVersion] = []
        self._numbers: dict[object, int] = {}
        self.rewrites: dict[int, list[int]] = {}
        first = (Column("id", _INT, -1, key=True, attnum=1), Column("a", _TEXT, -1, key=False, attnum=2))
        self.shapes = [[(_BEGIN, Shape(name, first))] for name in _TABLES]

    def now(self, table: int) -> Shape:
        return self.shapes[table][-1][1]

    def at(self, table: int, lsn: int) -> Shape:
        return next(shape for since, shape in reversed(self.shapes[table]) if since <= lsn)

    def change(self) -> None:
        """Change one table, or exchange the names of two, at the next LSN."""
        self.lsn = Lsn(self.lsn + self._chance.randint(1, 3))
        table = self._chance.randrange(len(_TABLES))
        if self._chance.random() < _EXCHANGED:
            other = self._chance.randrange(len(_TABLES))
            one, two = self.now(table), self.now(other)
            self._set(table, replace(one, name=two.name))
            self._set(other, replace(two, name=one.name))
        else:
            self._set(table, self._changed(table, self.now(table)))

    def _set(self, table: int, shape: Shape) -> None:
        self.shapes[table].append((self.lsn, shape))
        relation = shape.relation(table)
        content = (relation, tuple(column.attnum for column in shape.columns))
        number = self._numbers.setdefault(content, len(self._numbers))
        source = ShapeSource.DDL_TRIGGER
        self.versions.append(RelationVersion(number, self.lsn, relation, source=source))

    def _changed(self, table: int, shape: Shape) -> Shape:
        columns, chance = list(shape.columns), self._chance
        place = chance.randrange(len(columns))
        free = [name for name in _NAMES if name not in {column.name for column in columns}]
        match chance.randrange(8):
            case 0 | 1 if free:
                columns.append(self._added(table, chance.choice(free)))
            case 2 if not columns[place].key:
                gone = columns.pop(place)
                if chance.random() < 0.5:
                    columns.append(self._added(table, gone.name))
            case 3 if free:
                columns[place] = replace(columns[place], name=chance.choice(free))
            case 4:
                other = chance.randrange(len(columns))
                names = columns[place].name, columns[other].name
                columns[place] = replace(columns[place], name=names[1])
                columns[other] = replace(columns[other], name=names[0])
            case _:
                return self._retyped(table, shape, place)
        return replace(shape, columns=tuple(columns))

    def _retyped(self, table: int, shape: Shape, place: int) -> Shape:
        """Widen or rewrite a column, or change key or replica identity."""
        columns, chance = list(shape.columns), self._chance
        match chance.randrange(4):
            case 0 if columns[place].type_oid == _INT:
                columns[place] = replace(columns[place], type_oid=_BIGINT)
            case 1 if not shape.full:  # FULL does not show the key
                key = {place, chance.randrange(len(columns))}
                columns = [replace(column, key=number in key) for number, column in enumerate(columns)]
            case 2 if chance.random() < _REWRITTEN:
                columns[place] = replace(columns[place], type_oid=_TEXT if columns[place].type_oid != _TEXT else _INT)
                self.rewrites.setdefault(table, []).append(self.lsn)
            case _:
                return replace(shape, full=not shape.full)
        return replace(shape, columns=tuple(columns))

    def _added(self, table: int, name: str) -> Column:
        self._last[table] += 1
        self.answers = {**self.answers, Added(table, name, self.lsn): Existing(None)}
        return Column(name, self._chance.choice((_INT, _TEXT)), -1, key=False, attnum=self._last[table])


def _began(catalog: Catalog, table: int) -> HistoryTable:
    shape = catalog.at(table, _BEGIN)
    begin = Lsn(_BEGIN)
    return HistoryTable(shape.name, Lake(Path("t")), shape.columns, 1, begin, begin, as_made=True, oid=table)


def _followed(catalog: Catalog, chance: random.Random, table: HistoryTable) -> HistoryTable:
    """Follow a table to the end, in tails of random length, with a new snapshot wherever it is refused."""
    versions = RelationVersions(pa.Table.from_batches([version_rows(enumerate(catalog.versions, 1))]))
    while table.position < catalog.lsn:
        upto = Lsn(chance.randint(table.position + 1, catalog.lsn))
        first_change = chance.choice((None, Lsn(chance.randint(table.position + 1, upto))))
        shapes = find_shapes([table], versions, upto)[table]
        found = follow_versions(table, shapes.following, catalog.answers, first_change)
        _check_layouts(catalog, found)
        stops = [lsn - 1 for lsn in (found.refused_at, found.cut_at) if lsn is not None]
        end = Lsn(min([*stops, upto]))
        killed = replace(table, columns=found.physical, names=found.names)
        if chance.random() < _KILLED:
            table = killed
            continue
        table = replace(killed, position=end)
        if found.refused_at is not None:
            _check_refusal(catalog, table.oid, found)
            at = Lsn(found.refused_at)
            relation = catalog.at(table.oid, at).relation(table.oid)
            names = (*table.names, (at, relation.name))
            table = replace(table, columns=reshaped(table, relation, at), names=names, position=at, resynced=at)
    return table


def _check_refusal(catalog: Catalog, table: int, found: Followed) -> None:
    """Only a rewritten column is refused."""
    assert found.refused_at in catalog.rewrites.get(table, []), found.refusal


def _check_layouts(catalog: Catalog, found: Followed) -> None:
    """Each place of a folded column is that of the column with its number."""
    relations = {version.number: version.relation for version in catalog.versions}
    for number, layout in found.layouts.items():
        places = {column.attnum: place for place, column in enumerate(relations[number].columns)}
        assert layout.places == tuple(places.get(column.attnum) for column in found.folded)
        assert layout.width == len(places)


def _check_history(catalog: Catalog, table: HistoryTable) -> None:
    """At every LSN the history has the model's name, columns and key; no two physical columns share a name."""
    for lsn in range(_BEGIN, catalog.lsn + 1):
        shape = catalog.at(table.oid, lsn)
        assert table.name_at(Lsn(lsn)) == shape.name
        had = [(column.attnum, column.name, column.key) for column in table.columns_at(Lsn(lsn))]
        assert had == [(c.attnum, c.name, c.key) for c in shape.columns], (table.oid, lsn)
    stored = [column.stored.casefold() for column in table.columns]
    assert len(set(stored)) == len(stored)
    assert not RESERVED & set(stored)


def test_histories_have_the_columns_of_every_moment() -> None:
    """A budget of seconds of random histories; AUDITLAKE_PROPERTY_S sets it, AUDITLAKE_PROPERTY_SEED repeats one."""
    changes = 0
    for seed in random_seeds():
        chance = random.Random(seed)  # noqa: S311 - no secret
        catalog = Catalog(chance)
        for _ in range(chance.randint(1, 25)):
            catalog.change()
        changes += len(catalog.versions)
        for number in range(len(_TABLES)):
            _check_history(catalog, _followed(catalog, chance, _began(catalog, number)))
    print(f"{changes} schema changes")  # noqa: T201 - shown if the test fails
