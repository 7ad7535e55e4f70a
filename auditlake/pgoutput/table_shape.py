"""Table shape: a table's definition as the catalog has it, and what differs between two of them. Pure.

A difference of the definition is a new shape of the same rows. Some changes also change rows without row messages in
the stream (`ShapeDifference.rows`):

    unlogged                changes of the table are not in WAL any more, and are lost when it becomes logged again
    column with new type    and a new file: every row was rewritten, perhaps by USING
    column with new type    without a new file, but perhaps another text: int as oid, cidr as inet
    added column            and a new file, and no missing value: each row got a value of its own
    new file alone          TRUNCATE, VACUUM FULL, CLUSTER and SET TABLESPACE, but also SET UNLOGGED and then LOGGED:
                            `rewritten`, for the caller to decide
    label of an enum, columns of a composite type
                            rows that were written before show the new text
    key, under REPLICA IDENTITY FULL
                            the stream flags every column, so it does not show that the former key became ambiguous

A definition that was changed and changed back, as by RENAME, leaves no difference, only an entry in the catalog that
was written again with the same content (`ShapeDifference.touched`). When each definition was in force is not known
then. A change back is not noticed if the entry differs in something else at the end, such as a name or NOT NULL.

Partitions of a partitioned table that change otherwise are compared in `capture.partition_watch`.

Authority: postgresql.org/docs/current/sql-altertable.html, "Notes"; catalog-pg-class.html
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from auditlake.relation import Column, Relation, ReplicaIdentity
from auditlake.values.types import is_widened

PARTITIONED, _LOGGED = "p", "p"
_ROW_TYPE, _SCHEMA = 0, -1
IDENTITY = "its replica identity was changed"


@dataclass(frozen=True, slots=True)
class Shape:
    """A table's definition. `relation` has every column with its attnum; the stream's key flags under FULL.

    kind, persistence   as in pg_class
    files               relfilenode of the table and of its partitions, by OID
    generated           attnums of generated columns, True if stored, False if virtual
    missing             missing values by attnum, as an array's text
    key                 attnums of the replica identity, under FULL those of the primary key

    Read from the catalog only; a DDL message does not have them:

    types               labels of each enum type (`enum TYPE LABEL`, with OIDs: xmin and label), and a digest of each
                        composite type (`composite TYPE`), of the columns; also of types inside other ones. The enum
                        types inside another type of a column (`inside ATTNUM`). Composite types that were altered
                        since they were created (`altered TYPE`)
    entries             text that changes with every catalog entry of a column
    constraint          OID of the primary key, which REINDEX keeps
    stamps              xmin and other fields of each column's entry by attnum, of its row type's by 0, of its
                        schema's by -1
    toast               OID of its TOAST table, 0 without one
    partition           whether it is a partition of another table
    inherited           whether another table inherits from it, which is no partition, or did before
    compared            what comparisons of columns depend on that are not of a built-in type and an ordinary collation
                        (`values.equality`), by attnum and type; entries of former types are kept
    """

    relation: Relation
    kind: str
    persistence: str
    files: Mapping[int, int]
    generated: Mapping[int, bool] = field(default_factory=dict)
    missing: Mapping[int, str] = field(default_factory=dict)
    key: tuple[int, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    entries: str = ""
    constraint: int | None = None
    stamps: Mapping[int, str] = field(default_factory=dict)
    compared: Mapping[str, Sequence[str]] = field(default_factory=dict)
    toast: int = 0
    inherited: bool = False
    partition: bool = False

    def published(self, before: Sequence[Column] | None, *, stored: bool, listed: bool) -> Relation:
        """Return the relation with its published columns only.

        `before` are the published columns until now, None if none are known; `stored`: the publication publishes
        stored generated columns; `listed`: it has a column list for the table, so that new columns are not published.
        """
        known = {column.attnum for column in before or ()}
        of_new = not (listed and before is not None)
        columns = [
            column
            for column in self.relation.columns
            if column.attnum in known or (of_new and self._may_be_published(column, stored=stored))
        ]
        return replace(self.relation, columns=tuple(columns))

    def _may_be_published(self, column: Column, *, stored: bool) -> bool:
        is_stored = self.generated.get(column.attnum or 0)
        return is_stored is None or (is_stored and stored)

    def shows(self, type_oids: Mapping[int, frozenset[str] | None]) -> bool:
        """Return whether the text of existing rows changes with these types: their labels, None for a composite."""
        for entry, text in self.types.items():
            _, type_oid, *_ = entry.split()
            if int(type_oid) in type_oids:
                labels = type_oids[int(type_oid)]
                if labels is None or text.partition(" ")[2] not in labels:
                    return True
        return False

    def labels(self) -> dict[int, dict[str, str]]:
        """Return the labels of each enum type by OID, by that of the label."""
        found: dict[int, dict[str, str]] = {}
        for entry, text in self.types.items():
            kind, type_oid, *rest = entry.split()
            if kind == "enum":
                found.setdefault(int(type_oid), {})[rest[0]] = text.partition(" ")[2]
        return found

    def labels_of(self, enums: Collection[int]) -> frozenset[str]:
        """Return the labels of these enum types."""
        return frozenset(label for oid, labels in self.labels().items() if oid in enums for label in labels.values())

    def enums_inside(self, attnum: int | None) -> frozenset[int]:
        """Return the enum types inside another type of a column; of any column if its number is not known."""
        found = [each for each in self.types if each.startswith("inside ")]
        chosen = found if attnum is None else [each for each in found if each == f"inside {attnum}"]
        return frozenset(int(oid) for each in chosen for oid in self.types[each].split())


@dataclass(frozen=True, slots=True)
class ShapeDifference:
    """Differences between two shapes: in the definition, in rows, or perhaps in rows because of a new file alone.

    `touched`: catalog entries were changed that no difference explains; `renamed`: the table's is one of them, so it
    may have had another name or schema; `attached`: it is a partition now; `detached`: it was one, or may have been,
    as those of all columns that are the same were written again, and one at least is touched, as by DETACH PARTITION.
    """

    definition: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    rewritten: bool = False
    touched: bool = False
    renamed: bool = False
    detached: bool = False
    attached: bool = False

    @property
    def visible(self) -> tuple[str, ...]:
        """Return the changes of the definition that a query shows: of the table's name, and of its columns."""
        return _visible(self.definition)

    def __bool__(self) -> bool:
        return bool(self.definition or self.rows or self.rewritten)


def compared_key(attnum: int, type_oid: int) -> str:
    """Return the key of a column in `Shape.compared`."""
    return f"{attnum} {type_oid}"


def compare_shapes(before: Shape, now: Shape) -> ShapeDifference:
    """Compare two shapes of one table (the same OID)."""
    rewritten = any(file != now.files.get(oid, file) for oid, file in before.files.items() if file)
    definition, rows = (
        tuple(definition_differences(before.relation, now.relation)),
        tuple(_rows(before, now, rewritten=rewritten)),
    )
    alone = rewritten and not rows and now.kind != PARTITIONED
    unexplained = frozenset(_unexplained(before, now))
    detached = (before.partition and not now.partition) or _may_have_been_partition(before, now, unexplained)
    attached = now.partition and not before.partition
    return ShapeDifference(definition, rows, alone, bool(unexplained), _ROW_TYPE in unexplained, detached, attached)


def _may_have_been_partition(before: Shape, now: Shape, unexplained: Collection[int]) -> bool:
    was, columns = _columns(before), _columns(now)
    same = {attnum for attnum, column in columns.items() if was.get(attnum) == column}
    return not same.isdisjoint(unexplained) and all(now.stamps[each] != before.stamps.get(each) for each in same)


def _columns(shape: Shape) -> dict[int, tuple[str, object]]:
    return {c.attnum: (c.name, c.type) for c in shape.relation.columns if c.attnum is not None}


def _unexplained(before: Shape, now: Shape) -> Iterator[int]:
    """Yield the columns, and the row type, whose entries were written again although they are the same."""
    if not before.stamps:  # of a DDL message
        return
    was, columns = _columns(before), _columns(now)
    for attnum, stamp in now.stamps.items():
        former, is_same = before.stamps.get(attnum), was.get(attnum) == columns.get(attnum)
        if attnum == _ROW_TYPE:
            is_same = before.relation.name == now.relation.name
        if attnum == _SCHEMA:
            is_same = before.relation.name.schema == now.relation.name.schema and former is not None
        if is_same and stamp != former and (former is None or _besides(stamp) == _besides(former)):
            yield attnum


def _besides(stamp: str) -> str:
    return stamp.partition(" ")[2]


def enlarged_enums(before: Shape, now: Shape) -> dict[int, frozenset[str]]:
    """Return the labels of each enum type that has more of them than were recorded before, or is new."""
    was = before.labels()
    return {
        oid: frozenset(labels.values())
        for oid, labels in now.labels().items()
        if labels.keys() - was.get(oid, {}).keys()
    }


def has_altered_type(before: Shape, now: Shape, renamed: Collection[int]) -> bool:
    """Return whether a type that is new in the table was altered: perhaps since rows have values of it.

    `renamed` has enum types that lost a label.
    """
    altered = {oid for kind, oid, *_ in map(str.split, now.types) if kind == "altered"}
    return not (_parts(now) - _parts(before)).isdisjoint(altered.union(map(str, renamed)))


def _parts(shape: Shape) -> set[str]:
    """Return the OIDs of the enum and composite types of the columns, as texts."""
    return {oid for kind, oid, *_ in map(str.split, shape.types) if kind in {"enum", "composite"}}


def definition_differences(before: Relation, now: Relation) -> Iterator[str]:
    """Yield what differs between two definitions of a table, in words."""
    if before.name != now.name:
        yield f"it was renamed to {now.name}"
    if any(column.attnum is None for column in (*before.columns, *now.columns)):
        # A rename cannot be distinguished from a drop and an addition.
        if [(c.name, c.type) for c in before.columns] != [(c.name, c.type) for c in now.columns]:
            yield "its columns were changed"
        is_key_same = True
    else:
        yield from _of_columns(before, now)
        lasting = {column.attnum for column in now.columns}
        if now.replica_identity is ReplicaIdentity.FULL:  # flags every column, new ones too
            lasting &= {column.attnum for column in before.columns}
        is_key_same = _key(before, lasting) == _key(now, lasting)
    if before.replica_identity != now.replica_identity or not is_key_same:
        yield IDENTITY


def _of_columns(before: Relation, now: Relation) -> Iterator[str]:
    was, columns = ({column.attnum: column for column in each.columns} for each in (before, now))
    for attnum, column in was.items():
        if attnum not in columns:
            yield f"column {column.name} was dropped"
        elif columns[attnum].name != column.name:
            yield f"column {column.name} was renamed to {columns[attnum].name}"
        elif columns[attnum].type != column.type:
            yield f"the type of column {column.name} was changed"
    yield from (f"column {column.name} was added" for attnum, column in columns.items() if attnum not in was)


def visible_differences(before: Relation, now: Relation) -> tuple[str, ...]:
    """Return what differs for a query: in the table's name, and in its columns."""
    return _visible(definition_differences(before, now))


def _visible(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(what for what in found if what != IDENTITY)


def _key(relation: Relation, among: Collection[int | None]) -> set[int | None]:
    """Return the numbers of the key columns, of some columns."""
    return {column.attnum for column in relation.columns if column.key and column.attnum in among}


def hides_key(before: Shape, now: Shape) -> bool:
    """Return whether rows may have been changed under another key than before, which the stream does not show.

    So they may if the same key was dropped and created again: in between, two rows could have one key.
    """
    full = now.relation.replica_identity is ReplicaIdentity.FULL
    made_anew = None not in {before.constraint, now.constraint} and before.constraint != now.constraint
    return full and bool(before.key) and (made_anew or set(before.key) != set(now.key))


def _rows(before: Shape, now: Shape, *, rewritten: bool) -> Iterator[str]:
    if now.persistence != _LOGGED or before.persistence != _LOGGED:
        yield "it is or was unlogged, so its changes were not in the stream"
    yield from _rewritten(before, now) if rewritten else _retyped(before, now)
    if hides_key(before, now):
        yield "its key was changed, and REPLICA IDENTITY FULL does not show when"
    if set(before.key) - {column.attnum for column in now.relation.columns} and not now.key:
        yield "a column of its key was dropped, and it has no other"
    if any(now.types.get(entry, text) != text for entry, text in before.types.items()):
        yield "an enum label or a composite type of a column was changed"


def _retyped(before: Shape, now: Shape) -> Iterator[str]:
    was = {column.attnum: column for column in before.relation.columns}
    for column in now.relation.columns:
        if column.attnum in was and not is_widened(was[column.attnum].type, column.type):
            yield f"older rows may show another text for the new type of column {column.name}"


def _rewritten(before: Shape, now: Shape) -> Iterator[str]:
    was = {column.attnum: column for column in before.relation.columns}
    found = False
    for column in now.relation.columns:
        if column.attnum not in was and column.attnum not in now.missing:
            found = True
            yield f"column {column.name} was added with a value of its own in each row"
        elif column.attnum in was and was[column.attnum].type != column.type:
            found = True
            yield f"its rows were rewritten for the new type of column {column.name}"
    if not found and now.kind != PARTITIONED and before.entries != now.entries:
        yield "its columns were changed and its rows rewritten"
