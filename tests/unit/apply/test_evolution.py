"""Tests of the shapes of a tail: added columns are followed, other changes are refused at their first change."""

from dataclasses import replace
from pathlib import Path

import pytest

from auditlake.apply.tails import follow_changes
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.relations import RelationVersion
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.schema.evolution import ANEW, Followed, Shapes, follow_versions, reshaped
from auditlake.schema.missing_values import Added, Existing

_NAME = TableName("public", "t")
_ID, _V = Column("id", 23, -1, key=True), Column("v", 25, -1, key=False)
_C, _D = Column("c", 23, -1, key=False), Column("D", 25, -1, key=False)
_TABLE = HistoryTable(_NAME, Lake(Path("t")), (_ID, _V), 3, Lsn(100), Lsn(50), as_made=True, oid=7)
_ANSWERS = {
    Added(7, "c", Lsn(110)): Existing("5"),
    Added(7, "D", Lsn(120)): Existing(),
    Added(7, "d", Lsn(130)): Existing("x"),
}


def _relation(*columns: Column, identity: ReplicaIdentity = ReplicaIdentity.DEFAULT) -> Relation:
    return Relation(7, _NAME, identity, columns)


def _follow(*runs: tuple[int, Relation], table: HistoryTable = _TABLE) -> Followed:
    return follow_versions(
        table, [RelationVersion(number, Lsn(lsn), relation) for number, (lsn, relation) in enumerate(runs)], _ANSWERS
    )


def test_added_columns_are_appended_to_the_others() -> None:
    """Each exists since its first change, wherever the relation has it."""
    runs = ((101, _relation(_ID, _V)), (110, _relation(_ID, _C, _V)), (120, _relation(_ID, _V, _C, _D)))
    found = _follow(*runs)
    assert found.refusal is None
    assert found.columns == (_ID, _V, replace(_C, since=Lsn(110)), replace(_D, since=Lsn(120)))
    assert [(each.column.name, each.since, each.missing) for each in found.added] == [("c", 110, "5"), ("D", 120, None)]
    assert [layout.places for layout in found.layouts.values()] == [(0, 1, None, None), (0, 2, 1, None), (0, 1, 2, 3)]
    full = _follow((110, _relation(_ID, _V, _C)), (111, _relation(_ID, _V, _C, identity=ReplicaIdentity.FULL)))
    assert [layout.whole_old for layout in full.layouts.values()] == [False, True]


def test_a_column_added_by_a_killed_run_keeps_its_name() -> None:
    """At its own LSN it is part of the history."""
    ahead = replace(_C, since=Lsn(110), stored_as="~63")
    found = _follow((110, _relation(_ID, _V, _C)), table=replace(_TABLE, columns=(_ID, _V, ahead)))
    assert [each.column for each in found.added] == [ahead]
    before = _follow((101, _relation(_ID, _V)), table=replace(_TABLE, columns=(_ID, _V, ahead)))
    assert before.columns == (_ID, _V)
    merged = _follow((111, _relation(_ID, _V, _C)), table=replace(_TABLE, columns=(_ID, _V, ahead), position=Lsn(110)))
    assert (merged.added, merged.columns) == ((), (_ID, _V, ahead))


def test_a_renamed_column_added_by_a_killed_run_keeps_its_name() -> None:
    """The killed run had recorded its later name, too."""
    table = replace(_TABLE, columns=_numbered(_ID, _V))
    added = _relation(*_numbered(_ID, _V, _C))
    renamed = _relation(*_numbered(_ID, _V), replace(_C, name="x", attnum=3))
    killed = replace(table, columns=_follow((110, added), (111, renamed), table=table).physical)
    found = _follow((110, added), (111, renamed), table=killed)
    assert [column.stored for column in found.physical] == ["id", "v", "c"]
    assert found.physical == killed.columns


def test_a_widened_type_keeps_the_type_of_the_history() -> None:
    """Values of the wider type that fit are added to it."""
    wider = _relation(replace(_ID, type_oid=20), replace(_V, type_oid=1043))
    assert _follow((101, _relation(_ID, _V)), (110, wider)).columns == (_ID, _V)


def test_names_that_differ_in_case_only_are_stored_apart() -> None:
    """The existing column keeps its stored name, the new one is escaped."""
    runs = ((120, _relation(_ID, _V, _D)), (130, _relation(_ID, _V, _D, replace(_D, name="d"))))
    assert [column.stored for column in _follow(*runs).columns] == ["id", "v", "D", "~64"]


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (
            _relation(_ID, _C),
            r"columns of public\.t changed at 0/78: the history has v text; the stream has c integer$",
        ),
        (_relation(_ID), r"changed at 0/78: the history has v text$"),
        (_relation(_ID, replace(_V, type_oid=23)), r"the stream has v integer: existing rows"),
        (_relation(_ID, _V, _C), r"column c was added to public\.t by 0/78, and the source was not asked"),
    ],
)
def test_other_shape_changes_are_refused_at_their_first_change(second: Relation, words: str) -> None:
    """Changes before are followed; later ones are not examined."""
    found = _follow((110, _relation(_ID, _V)), (120, second), (130, _relation(_ID, _V)))
    assert found.refused_at == 120
    assert (found.columns, list(found.layouts)) == ((_ID, _V), [0])
    with pytest.raises(type(found.refusal or ValueError()), match=words):
        raise found.refusal or ValueError


def test_the_first_key_needs_a_new_snapshot() -> None:
    """Equal rows were numbered. Under REPLICA IDENTITY FULL the flags of columns name no key."""
    plain = replace(_ID, key=False)
    table, whole = replace(_TABLE, columns=(plain, _V)), _relation(_ID, _V, identity=ReplicaIdentity.FULL)
    found = _follow((101, whole), (110, _relation(_ID, _V)), table=table)
    assert (found.refused_at, found.columns) == (110, (plain, _V))
    assert found.refusal is not None
    assert (found.refusal.message, found.refusal.hint) == ("public.t has its first key from 0/6E on", ANEW)


def test_an_added_column_that_is_dropped_is_refused() -> None:
    """Its history would have to end, and to begin again if the column returned."""
    found = _follow((110, _relation(_ID, _V, _C)), (120, _relation(_ID, _V)))
    assert found.refused_at == 120
    assert [each.column.name for each in found.added] == ["c"]
    assert "the history has c" in str(found.refusal)


def test_a_history_has_its_columns_at_each_lsn() -> None:
    """A column is part of the table from the LSN of its addition on."""
    table = replace(_TABLE, columns=(_ID, replace(_C, since=Lsn(70))))
    assert [len(table.columns_at(Lsn(lsn))) for lsn in (50, 69, 70, 99)] == [1, 1, 2, 2]


def _numbered(*columns: Column) -> tuple[Column, ...]:
    """Return columns with the attribute numbers of the table in these tests."""
    numbers = {"id": 1, "v": 2, "renamed": 2, "c": 3, "D": 4}
    return tuple(replace(column, attnum=numbers[column.name]) for column in columns)


def _kept(table: HistoryTable, *runs: tuple[int, Relation], first_change: int | None = None) -> Followed:
    versions = [RelationVersion(number, Lsn(lsn), relation) for number, (lsn, relation) in enumerate(runs)]
    return follow_versions(table, versions, _ANSWERS, first_change=None if first_change is None else Lsn(first_change))


_KNOWN = replace(_TABLE, columns=_numbered(_ID, _V))


def test_a_renamed_column_is_the_same_column() -> None:
    """Each moment has its name; the physical column stays."""
    found = _kept(_KNOWN, (110, _relation(*_numbered(_ID, replace(_V, name="renamed")))))
    assert found.refusal is None
    after = replace(_KNOWN, columns=found.physical, position=Lsn(110))
    assert [[c.name for c in after.columns_at(Lsn(lsn))] for lsn in (109, 110)] == [["id", "v"], ["id", "renamed"]]
    assert [column.stored for column in after.columns] == ["id", "v"]
    back = _kept(after, (120, _relation(*_numbered(_ID, _V))))
    again = replace(after, columns=back.physical, position=Lsn(120))
    assert [again.columns_at(Lsn(lsn))[1].name for lsn in (109, 110, 119, 120)] == ["v", "renamed", "renamed", "v"]


def test_a_dropped_column_keeps_its_values_and_leaves_its_name() -> None:
    """A new column of its name is another physical column."""
    again = replace(_V, attnum=3)
    answers = {Added(7, "v", Lsn(120)): Existing("x")}
    versions = [
        RelationVersion(1, Lsn(110), _relation(*_numbered(_ID))),
        RelationVersion(2, Lsn(120), _relation(_KNOWN.columns[0], again)),
    ]
    found = follow_versions(_KNOWN, versions, answers, first_change=Lsn(101))
    assert (found.refusal, found.cut_at) == (None, None)
    assert [(c.stored, c.since, c.until) for c in found.physical] == [
        ("id", None, None),
        ("v", None, 110),
        ("v~2", 120, None),
    ]
    assert [layout.places for layout in found.layouts.values()] == [(0, None, None), (0, None, 1)]
    assert [(new.column.stored, new.missing) for new in found.added] == [("v~2", "x")]
    after = replace(_KNOWN, columns=found.physical, position=Lsn(120))
    shown = [[column.stored for column in after.columns_at(Lsn(lsn))] for lsn in (109, 110, 120)]
    assert shown == [["id", "v"], ["id"], ["id", "v~2"]]


def test_a_tail_is_cut_where_rows_are_not_comparable() -> None:
    """A new key, and a column less of a table without one; not if no change comes before."""
    keyed = _relation(*_numbered(replace(_ID, key=False), replace(_V, key=True)))
    assert _kept(_KNOWN, (110, keyed), first_change=Lsn(105)).cut_at == 110
    found = _kept(_KNOWN, (110, keyed), first_change=Lsn(110))
    assert (found.cut_at, found.rekeyed_at, [column.key for column in found.physical]) == (None, 110, [False, True])
    alone = _relation(replace(_V, key=True, attnum=2))
    found = _kept(_KNOWN, (110, alone), first_change=Lsn(110))
    assert ([c.key for c in found.folded], [c.key for c in found.physical]) == ([False, True], [True, True])
    bag = replace(_KNOWN, columns=_numbered(replace(_ID, key=False), _V))
    fewer = _relation(*_numbered(_ID), identity=ReplicaIdentity.FULL)
    assert _kept(bag, (110, fewer), first_change=Lsn(105)).cut_at == 110
    assert _kept(bag, (110, fewer), first_change=Lsn(110)).folded == (replace(_ID, key=False),)


def test_columns_that_are_not_identified_are_refused() -> None:
    """A known column needs a known number; so is a type that does not hold every value of the former one."""
    found = _kept(_KNOWN, (110, _relation(_ID, _V)))
    assert "does not show which columns id, v are" in str(found.refusal)
    found = _kept(_KNOWN, (110, _relation(*_numbered(_ID, replace(_V, type_oid=23)))))
    assert "v integer: existing rows were rewritten" in str(found.refusal)


def test_a_table_keeps_its_history_under_another_name() -> None:
    """Each moment has its name."""
    other = replace(_relation(*_KNOWN.columns), name=TableName("public", "other"))
    found = _kept(_KNOWN, (110, other))
    after = replace(_KNOWN, names=found.names, position=Lsn(110))
    assert [str(after.name_at(Lsn(lsn))) for lsn in (109, 110)] == ["public.t", "public.other"]


def test_a_new_snapshot_continues_the_columns_that_are_stored_alike() -> None:
    """A column of another type gets a new physical column, and the former one ends."""
    now = _relation(
        *_numbered(replace(_ID, name="id"), replace(_V, name="renamed", type_oid=1043), replace(_C, type_oid=20))
    )
    shaped = reshaped(replace(_KNOWN, columns=(*_KNOWN.columns, *_numbered(_C))), now, Lsn(120))
    assert [(c.name, c.stored, c.type_oid, c.since, c.until) for c in shaped] == [
        ("id", "id", 23, None, None),
        ("renamed", "v", 1043, None, None),
        ("c", "c", 23, None, 120),
        ("c", "c~2", 20, 120, None),
    ]


def test_a_key_that_its_own_transaction_replaces_does_not_count() -> None:
    """DROP CONSTRAINT and ADD PRIMARY KEY at one commit; unless rows were changed in between."""
    without, now = replace(_ID, key=False), replace(_V, key=True)
    runs = [(110, _relation(without, _V)), (110, _relation(without, now))]
    versions = [RelationVersion(number, Lsn(lsn), relation) for number, (lsn, relation) in enumerate(runs)]
    found = follow_versions(_TABLE, versions, _ANSWERS)
    assert found.refusal is None
    assert [column.name for column in found.columns if column.key] == ["v"]
    again = follow_versions(
        _TABLE, [versions[0], replace(versions[1], relation=_relation(_ID, _V))], _ANSWERS, Lsn(101)
    )
    assert (again.refusal, again.cut_at, again.columns) == (None, None, (_ID, _V))
    refused = follow_versions(_TABLE, versions, _ANSWERS, used={0})
    assert "has no key any more from 0/6E on" in str(refused.refusal)


def test_changes_under_a_former_name_do_not_rename_the_table() -> None:
    """Those of a partition, whose root was renamed before the position, and again after it."""
    former, later = TableName("public", "former"), TableName("public", "later")
    table = replace(_TABLE, names=((Lsn(90), _NAME),))
    relations = {1: replace(_relation(_ID, _V), name=former), 2: replace(_relation(_ID, _V), name=later)}
    shapes = Shapes((), (RelationVersion(2, Lsn(120), relations[2]),))
    for first_lsn in (110, 130):
        groups = [{"relation": 1, "first_lsn": first_lsn, "last_lsn": 140}]
        followed = follow_changes(table, groups, shapes, relations, _ANSWERS)
        assert (followed.names, followed.refusal) == ((*table.names, (Lsn(120), later)), None)
        assert followed.layouts[1].is_plain
