"""Selection of a feed: which changes it delivers, and which tables, key and column that means in a lake that changes.

A feed is asked by names. A table is its OID, though, a column its attribute number, and both may get other names while
the feed is running. A name therefore means too much rather than too little:

tables  A name selects every table that has it or had it, with all changes of these tables, under other names too. A
        table that gets the name while the feed is running is selected from that commit on. The name of a history
        (`orders@16455`) selects that one table.
column  It is the column that has the name now, under other names and types too. In another table of the same name it is
        every column that has or had that name.
key     It is compared in the columns that identify a row now. A change of a row that other columns identify is refused.

`Selected` reads the tables and relation versions of the lake again when there are new ones. These are on the disk
before the changes that need them. A table that was not copied yet when its version was read is looked for each time.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from auditlake.audit.columns_over_time import TableShapes
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.touched_rows import lsns_of_changes, lsns_of_columns
from auditlake.audit.transactions import Transaction
from auditlake.errors import NotAnswerable
from auditlake.feed.change import Change
from auditlake.lake.history import history_of, open_history
from auditlake.lake.layout import Lake
from auditlake.lake.records import read_recorded
from auditlake.lake.relations import read_versions
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.store.files import fingerprint
from auditlake.values.equality import common_value
from auditlake.values.types import is_widened


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Texts of a key, by the columns that identify a row of the table of a history now."""

    history: TableName
    columns: tuple[Column, ...]
    texts: tuple[str, ...]

    def has(self, key: Sequence[str | None]) -> bool:
        """Return whether a row's key has these texts, or an equal number instead of one."""
        return all(
            text is not None and common_value(column.type_oid, text) == common_value(column.type_oid, wanted)
            for column, text, wanted in zip(self.columns, key, self.texts, strict=True)
        )


@dataclass(frozen=True, slots=True)
class ColumnFilter:
    """A column that has a name in the table of a history now; `stored` are its physical columns."""

    history: TableName
    name: str
    stored: frozenset[str]


@dataclass(frozen=True, slots=True)
class FeedSelection:
    """Filters of the changes to deliver, by names; None is no filter.

    `column` selects transactions that changed its value in some row, as in `auditlake log --column`. `only` names
    the tables that the subscriber may see, None if all; never one without a history, as its former names are not known.
    """

    tables: frozenset[TableName] | None = None
    ops: frozenset[str] | None = None
    key: KeyFilter | None = None
    column: ColumnFilter | None = None
    only: frozenset[str] | None = None

    @property
    def is_everything(self) -> bool:
        return self == FeedSelection()


@dataclass(frozen=True, slots=True)
class KeyShape:
    """The columns of a relation version that identify a row, and their own names (`audit.columns_over_time`)."""

    history: TableName | None
    columns: tuple[Column, ...]
    own: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, at that moment."""
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True, slots=True)
class Successor:
    """A table that got the name of another one; its changes between `after` and its snapshot at `upto` are missing."""

    name: TableName
    after: Lsn
    upto: Lsn


class Selected:
    """The tables of a selection in the present state of a lake, and the shapes of their changes."""

    def __init__(self, lake: Lake, selection: FeedSelection) -> None:
        self.selection = selection
        self._lake = lake
        self._seen: object = None
        self._settled = False
        self._reader: Reader | None = None
        self._shapes: dict[int, TableShapes] = {}
        self._relations: dict[int, Relation] = {}
        self._keys: dict[tuple[int, int], KeyShape] = {}
        self._names: frozenset[str] = frozenset()
        self._numbers: frozenset[int] = frozenset()
        self._histories: frozenset[TableName] = frozenset()
        self._uncopied: Mapping[int, Relation] = {}

    def refresh(self) -> None:
        """Read tables and shapes again if there are new relation versions, or a selected table has been copied."""
        seen = fingerprint(self._lake.relations / "_delta_log")
        if self._reader is not None and seen == self._seen and self._settled and not self._is_copied():
            return
        self._seen = seen
        self._read()

    def _is_copied(self) -> bool:
        """Return whether a selected table without a history has one by now."""
        if not self._uncopied:
            return False
        recorded = read_recorded(self._lake)
        found = ((oid, open_history(self._lake, history_of(recorded, r))) for oid, r in self._uncopied.items())
        return any(history is not None and history.oid == oid for oid, history in found)

    def _read(self) -> None:
        reader = self._reader = Reader(self._lake, datetime.now(UTC))
        versions = read_versions(self._lake)
        self._relations = {version.number: version.relation for version in versions}
        # Versions above the watermark are not yet among the shapes: they are read again when it has passed them.
        self._settled = all(version.lsn <= reader.known.positions.known_lsn for version in versions)
        self._keys = {}
        self._shapes = {number: shapes for shapes in reader.shapes for number in shapes.shapes.numbers}
        if self.selection.tables is not None:
            self._select(reader, self.selection.tables)

    def _select(self, reader: Reader, wanted: frozenset[TableName]) -> None:
        exact = {name for name in wanted if name in reader.known.tables}
        exact = {name for name in exact if name not in reader.known.tables[name].all_names}
        chosen = [each for each in reader.shapes if each.table.name in exact or not wanted.isdisjoint(each.every_name)]
        self._histories = frozenset(each.table.name for each in chosen)
        own = {number for each in chosen for number in each.shapes.numbers}
        # Tables that are not copied yet, or never will be, are known by their relation versions alone.
        others = {n: relation for n, relation in self._relations.items() if n not in self._shapes}
        others = others if self.selection.only is None else {}
        oids = {relation.oid for relation in others.values() if relation.name in wanted}
        own |= {number for number, relation in others.items() if relation.oid in oids}
        known = {table.oid for table in reader.known.listed}
        self._uncopied = {each.oid: each for each in others.values() if each.oid in oids - known}
        self._numbers = frozenset(own)
        names = {name for each in chosen for name in each.every_name} | {self._relations[n].name for n in own}
        self._names = frozenset(map(str, names | wanted))

    @property
    def histories(self) -> frozenset[TableName] | None:
        """The histories of the selected tables; None if all are."""
        if self.selection.tables is None:
            return None
        if self._reader is None:
            self.refresh()
        return self._histories

    @property
    def numbers(self) -> frozenset[int] | None:
        """The numbers of the relation versions of the selected tables; None if all are."""
        return None if self.selection.tables is None else self._numbers

    def relation(self, number: int) -> Relation:
        """Return a relation version."""
        if number not in self._relations:
            self._read()
        return self._relations[number]

    def may_match(self, transaction: Transaction) -> bool:
        """Return whether some change of a transaction may be selected."""
        counts = {
            "insert": transaction.inserts,
            "update": transaction.updates,
            "delete": transaction.deletes,
            "truncate": transaction.truncates,
        }
        if self.selection.ops is not None and not any(counts[op] for op in self.selection.ops):
            return False
        return self.selection.tables is None or not self._names.isdisjoint(transaction.tables)

    def key_shape(self, number: int, lsn: Lsn) -> KeyShape:
        """Return the columns of a relation version that identify a row at `lsn`.

        A table that is not copied yet has its replica identity.
        """
        shapes = self._shapes.get(number)
        epoch = 0 if shapes is None else bisect_right(shapes.rekeyed, lsn)
        if (number, epoch) not in self._keys:
            pairs = _replica_identity(self.relation(number)) if shapes is None else shapes.key_of(number, lsn)
            history = None if shapes is None else shapes.table.name
            self._keys[number, epoch] = KeyShape(history, tuple(c for c, _ in pairs), tuple(n for _, n in pairs))
        return self._keys[number, epoch]

    def takes_key(self, change: Change, shape: KeyShape, lsn: Lsn) -> bool:
        """Return whether a change passes the filter by key, as every TRUNCATE does; raises NotAnswerable."""
        wanted = self.selection.key
        if wanted is None or change.op == "truncate":
            return True
        order = _places(wanted, shape)
        if order is None:
            raise NotAnswerable(
                f"rows of {change.table} are identified by ({', '.join(shape.names)}) at {lsn}, and the key asked "
                f"for is of ({', '.join(column.name for column in wanted.columns)})",
                "Receive all changes of the table, without a key.",
            )
        names = [shape.names[place] for place in order]
        sides = (change.key_texts, change.key_texts_before)
        return any(wanted.has([side.get(name) for name in names]) for side in sides)

    def with_column(self, transactions: Sequence[Transaction]) -> Sequence[Transaction]:
        """Return the transactions that changed the column; PostgreSQL sends no old value, so the lake is asked.

        Raises NotAnswerable if its earlier state is not known.
        """
        wanted = self.selection.column
        if wanted is None or not transactions:
            return transactions
        reader = Reader(self._lake, datetime.now(UTC))
        span = Span(Lsn(transactions[0].lsn - 1), Lsn(transactions[-1].lsn))
        lsns: set[int] = set()
        for shapes in reader.shapes:
            if shapes.table.name in (self.histories or ()):
                lsns.update(_lsns_of_column(reader, shapes, wanted, span, transactions))
        return [each for each in transactions if each.lsn in lsns]

    def successors(self) -> Iterator[Successor]:
        """Yield the tables that got a selected name from another table and lack changes from before their snapshot.

        A publication of all tables, or of all of a schema, has the changes of a table from its creation on.
        """
        reader = self._reader
        if reader is None or self.selection.tables is None:
            return
        listed = reader.listed_tables()
        ended = reader.known.ends
        for name in sorted(self.selection.tables):
            holders = reader.known.had(name)
            for table in holders:
                others = [other for other in holders if other is not table]
                called = (each for other in others for each in other.called)
                ends = {end for had, _, end in called if had == name and end is not None}
                ends |= {ended[other.name] for other in others if other.name in ended and other.last_name == name}
                before = [end for end in ends if end < table.first_snapshot_lsn]
                if before and table.name in listed:
                    yield Successor(name, Lsn(max(before)), Lsn(table.first_snapshot_lsn))


def _places(wanted: KeyFilter, shape: KeyShape) -> list[int] | None:
    """Return the places of the key's columns in a shape; None if it has other columns or types."""
    if len(shape.columns) != len(wanted.columns):
        return None
    known = shape.own if shape.history == wanted.history else shape.names
    asked = [column.name for column in wanted.columns]
    if set(asked) != set(known):
        return None
    places = [known.index(name) for name in asked]
    pairs = zip(wanted.columns, (shape.columns[place] for place in places), strict=True)
    return places if all(_same_texts(a, b) for a, b in pairs) else None


def _same_texts(one: Column, other: Column) -> bool:
    return is_widened(one.type, other.type) or is_widened(other.type, one.type)


def _replica_identity(relation: Relation) -> list[tuple[Column, str]]:
    if relation.replica_identity == ReplicaIdentity.FULL:
        return []
    return [(column, column.name) for column in relation.columns if column.key]


def _lsns_of_column(
    reader: Reader, shapes: TableShapes, wanted: ColumnFilter, span: Span, transactions: Iterable[Transaction]
) -> frozenset[int]:
    """Return a span's transactions that changed the column in one table; raises NotAnswerable before its snapshot."""
    stored = wanted.stored if shapes.table.name == wanted.history else shapes.stored_under(wanted.name)
    last = min(span.upto, Lsn(reader.known.ends.get(shapes.table.name, span.upto + 1) - 1))
    table = shapes.keyed_at(last)
    names = set(map(str, shapes.every_name))
    touching = [each.lsn for each in transactions if each.lsn <= last and not names.isdisjoint(each.tables)]
    if not stored or not touching:
        return frozenset()
    if touching[0] <= table.horizon and lsns_of_changes(reader, [table], Span(span.after, table.horizon)):
        why = "the versions that ended by then have expired" if table.has_expired else "its first snapshot is later"
        raise NotAnswerable(
            f"which transactions up to {table.horizon} changed {wanted.name} of {table.last_name} is not known: {why}",
            f"Start after {table.horizon}, or receive all changes of the table.",
        )
    reader.check(table, last, str(last))
    if (changed := shapes.rekeyed_at(last)) is not None and touching[0] < changed:
        raise NotAnswerable(
            f"which transactions changed {wanted.name} of {table.last_name} is not known up to {changed}: its key "
            "changed then",
            f"Start after {Lsn(changed - 1)}, or receive all changes of the table.",
        )
    return lsns_of_columns(reader, table, Span(max(span.after, table.horizon), Lsn(last)), stored)
