"""Tests of the relations table: versions with attribute numbers, and replays."""

from pathlib import Path

from auditlake.lake.layout import Lake
from auditlake.lake.relations import (
    RelationsLog,
    RelationVersion,
    ShapeSource,
    read_versions,
    with_attnums,
)
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from tests.s3_server import chosen_lake

_ID, _A, _B = (Column(name, 23, -1, key=name == "id") for name in ("id", "a", "b"))


def _relation(*columns: Column) -> Relation:
    return Relation(7, TableName("public", "t"), ReplicaIdentity.DEFAULT, columns)


_ONE, _TWO = _relation(_ID, _A), _relation(_ID, _B)


def _numbers(relation: Relation, _: RelationVersion | None, __: int, ___: Lsn) -> tuple[int, ...]:
    return tuple({"id": 1, "a": 2, "b": 3}[column.name] for column in relation.columns)


def _log(lake: Lake) -> list[tuple[int, int, tuple[int, ...] | None]]:
    return [(version.number, version.lsn, version.attnums) for version in read_versions(lake)]


def test_a_replayed_transaction_gets_the_same_versions(tmp_path: Path) -> None:
    """A transaction that changes the shape to and fro is recorded once, however often the stream sends it."""
    lake = chosen_lake(tmp_path)
    stream = ((_ONE, 100), (_ONE, 110), (_TWO, 110), (_ONE, 110), (_TWO, 120))
    for _ in range(3):
        log = RelationsLog(lake, _numbers)
        assert [log.register(relation, Lsn(lsn)) for relation, lsn in stream] == [1, 1, 2, 1, 2]
        log.flush()
        assert _log(lake) == [(1, 100, (1, 2)), (2, 110, (1, 3)), (1, 110, (1, 2)), (2, 120, (1, 3))]
    assert RelationsLog(lake, _numbers).register(_TWO, Lsn(130)) == 2
    assert log.in_force(7, Lsn(115)) == RelationVersion(1, Lsn(110), _ONE)


def test_columns_of_the_same_name_with_other_numbers_are_another_version(tmp_path: Path) -> None:
    """The stream shows no difference; what the catalog shows is recorded, or that it does not identify the columns."""
    lake = chosen_lake(tmp_path)
    answers: list[tuple[int, ...] | None] = [(1, 2), (1, 2), (1, 4), None]
    log = RelationsLog(lake, lambda *_: answers.pop(0))
    assert [log.register(_ONE, Lsn(lsn)) for lsn in (100, 110, 120, 130)] == [1, 1, 2, 3]
    log.flush()
    assert _log(lake) == [(1, 100, (1, 2)), (2, 120, (1, 4)), (3, 130, None)]


def test_what_the_trigger_reports_needs_no_question(tmp_path: Path) -> None:
    """The Relation message that follows has the version of the trigger; its source and command are kept."""
    lake = chosen_lake(tmp_path)
    log = RelationsLog(lake, lambda *_: None)
    reported = with_attnums(_ONE, (1, 5))
    assert log.record(reported, Lsn(100), source=ShapeSource.DDL_TRIGGER, command="ALTER TABLE") == 1
    assert (log.register(_ONE, Lsn(100)), log.register(_ONE, Lsn(110))) == (1, 1)
    log.record(with_attnums(_TWO, (1, 6)), Lsn(120), after_lsn=Lsn(110), source=ShapeSource.CATALOG)
    log.flush()
    first, second = read_versions(lake)
    assert (first.source, first.command, first.attnums) == (ShapeSource.DDL_TRIGGER, "ALTER TABLE", (1, 5))
    assert (second.source, second.after_lsn, second.attnums) == (ShapeSource.CATALOG, 110, (1, 6))
