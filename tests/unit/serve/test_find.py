"""Find lists every row with a matching version, however many versions one row has, and says if there are more."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from auditlake.audit.overlay import Overlay
from auditlake.audit.row_key import Key
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.lake.relations import RelationsLog
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.serve import table_answers
from auditlake.serve.table_rows import TableState
from tests.page import Page, write_lake
from tests.small_lake import T0, T0_US, version, write_history, write_log

_HOT, _OTHERS = 260, 30


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The small lake with `hot`: row 1 had the note `x` in 260 versions, and rows 2 to 31 have it.

    Rows 40 to 44 had it and are deleted.
    """
    lake = write_lake(tmp_path_factory.mktemp("find") / "lake")
    columns = (Column("id", 23, -1, key=True), Column("note", 25, -1, key=False))
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    write_history(lake, TableName("public", "hot"), columns, list(_rows()), positions)
    return Page(lake)


def _rows() -> Iterator[dict[str, Any]]:
    for n in range(_HOT):
        ended = version(0x100, 0x150, "update", "update") | {"_from_lsn": 0x100 + n, "_to_lsn": 0x101 + n}
        yield {"id": 1, "note": "x"} | ended
    yield {"id": 1, "note": "y"} | version(0x100, None, "update", None) | {"_from_lsn": 0x100 + _HOT}
    for key in range(2, 2 + _OTHERS):
        yield {"id": key, "note": "x"} | version(0x100, None, "snapshot", None)
    for key in range(40, 45):
        yield {"id": key, "note": "x"} | version(0x100, 0x150, "snapshot", "delete")


def test_a_row_with_many_versions_hides_no_other(page: Page) -> None:
    """Deleted rows come first, and each row once."""
    answer = page.json("find", table="hot", value="x", limit=100)
    keys = [int(each["key"][0]) for each in answer["found"]]
    assert sorted(keys[:5]) == [40, 41, 42, 43, 44]
    assert sorted(keys[5:]) == list(range(1, 2 + _OTHERS))
    assert not answer["more"]
    (hot,) = [each for each in answer["found"] if each["key"] == ["1"]]
    assert (hot["state"], hot["versions"]) == ("exists", _HOT + 1)


@pytest.mark.parametrize(("limit", "more"), [(25, True), (35, True), (36, False)])
def test_more_is_shown_if_rows_are_left_out(page: Page, limit: int, *, more: bool) -> None:
    """36 rows match."""
    answer = page.json("find", table="hot", value="x", limit=limit)
    assert (len(answer["found"]), answer["more"]) == (limit, more)


def test_rows_are_found_as_of_a_moment(page: Page) -> None:
    """At 0/120 no row was deleted, and the first row had the note."""
    answer = page.json("find", table="hot", value="x", limit=100, at="0/120")
    assert {each["state"] for each in answer["found"]} == {"exists"}
    assert len(answer["found"]) == 1 + _OTHERS + 5


_LONG = "a long text"
_MOVES: list[dict[str, Any]] = [
    {"op": "update", "old": ["2", None, None], "new": ["3", "y", None], "unchanged": [2]},
    {"op": "insert", "new": ["4", "x", "short"]},
    {"op": "delete", "old": ["1", None, None]},
    {"op": "update", "new": ["5", "z", _LONG]},
]
_FOUND = {
    "x": [("1", "deleted"), ("2", "deleted"), ("4", "exists"), ("5", "exists")],
    "y": [("3", "exists")],
    "z": [("5", "exists")],
    _LONG: [("2", "deleted"), ("3", "exists"), ("5", "exists")],
    "none": [],
}


def test_rows_are_found_without_folding_the_changes_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By values in the history and in changes, also under a key to which the row moved with an unchanged value."""
    lake, name = write_lake(tmp_path / "lake"), TableName("public", "moved")
    columns = tuple(Column(c, oid, -1, key=c == "id") for c, oid in (("id", 23), ("note", 25), ("text", 25)))
    texts = {1: None, 2: _LONG, 5: None}
    rows = [{"id": k, "note": "x", "text": t} | version(0x100, None, "snapshot", None) for k, t in texts.items()]
    write_history(lake, name, columns, rows, {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}, 9)
    _append(lake, Relation(9, name, ReplicaIdentity.DEFAULT, columns), Lsn(0x300), _MOVES)
    page, folded, overlay_of = Page(lake), list[object](), TableState.overlay_of

    def recorded(self: TableState, keys: Collection[Key] | None) -> Overlay:
        folded.append(keys)
        return overlay_of(self, keys)

    monkeypatch.setattr(TableState, "overlay_of", recorded)
    for value, rows_found in _FOUND.items():
        found = page.json("find", table="moved", value=value)["found"]
        assert sorted((each["key"][0], each["state"]) for each in found) == rows_found, value
    assert None not in folded
    monkeypatch.setattr(table_answers, "_FEW", 0)
    for value, rows_found in _FOUND.items():
        found = Page(lake).json("find", table="moved", value=value)["found"]
        assert sorted((each["key"][0], each["state"]) for each in found) == rows_found, value
    assert None in folded


def _append(lake: Lake, relation: Relation, since: Lsn, changes: list[dict[str, Any]]) -> None:
    """Append a transaction of a relation, which is known since an LSN."""
    relations = RelationsLog(lake)
    number = relations.register(relation, since)
    relations.flush()
    common = {"lsn": 0x500, "xid": 90, "time": T0, "schema": "public", "table": relation.name.table, "relation": number}
    log = [{"lsn": 0x500, "end_lsn": 0x508, "xid": 90, "time": T0, "time_mono": T0, "tables": [str(relation.name)]}]
    numbered = [common | {"ordinal": n} | each for n, each in enumerate(changes)]
    write_log(lake, log, numbered, acknowledged_lsn=0x508, current_us=T0_US + 200_000_000)


def test_rows_of_a_table_without_a_key_are_found_in_the_tail(tmp_path: Path) -> None:
    """One that a change inserted, and one that another change deleted."""
    lake, name, columns = (
        write_lake(tmp_path / "lake"),
        TableName("public", "bag"),
        (Column("note", 25, -1, key=False),),
    )
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    write_history(lake, name, columns, [{"note": "held"} | version(0x100, None, "snapshot", None)], positions, 9)
    changes: list[dict[str, Any]] = [{"op": "delete", "old": ["held"]}, {"op": "insert", "new": ["sent"]}]
    _append(lake, Relation(9, name, ReplicaIdentity.FULL, columns), Lsn(0x500), changes)
    page = Page(lake)
    for value, state in (("sent", "exists"), ("held", "deleted")):
        found = page.json("find", table="bag", value=value, limit=9)["found"]
        assert [(each["values"], each["state"]) for each in found] == [([value], state)]


def test_a_zero_is_found_by_its_sign_however_many_have_the_other(tmp_path: Path) -> None:
    """Both are equal numbers, and have different texts."""
    lake, name = write_lake(tmp_path / "lake"), TableName("public", "sign")
    columns = (Column("id", 23, -1, key=True), Column("f", 701, -1, key=False))
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    zeros = [-0.0] * 9 + [0.0] + [-0.0] * 9
    rows = [{"id": n, "f": zero} | version(0x100, None, "snapshot", None) for n, zero in enumerate(zeros)]
    write_history(lake, name, columns, rows, positions, 9)
    page = Page(lake)
    for value, count in (("0", 1), ("-0", 3)):
        answer = page.json("find", table="sign", value=value, column="f", limit=3)
        assert [each["values"][1] for each in answer["found"]] == [value] * count
        assert answer["more"] is (value == "-0")


def test_every_nan_is_found_whatever_its_sign(tmp_path: Path) -> None:
    """PostgreSQL prints one text for both, and a copy in binary form has the sign; also within an array."""
    lake, name = write_lake(tmp_path / "lake"), TableName("public", "nans")
    columns = (Column("id", 23, -1, key=True), Column("f", 701, -1, key=False), Column("a", 1022, -1, key=False))
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    values = (float("nan"), -float("nan"), 1.0)
    rows = [{"id": n, "f": f, "a": [f, 0.0]} | version(0x100, None, "snapshot", None) for n, f in enumerate(values)]
    write_history(lake, name, columns, rows, positions, 9)
    page = Page(lake)
    for value in ("NaN", "{NaN,0}"):
        assert {each["key"][0] for each in page.json("find", table="nans", value=value)["found"]} == {"0", "1"}


@pytest.mark.parametrize("kind", [700, 701, 1021, 1022])
def test_a_row_is_found_whose_key_differs_from_another_one_in_the_sign_of_a_zero(tmp_path: Path, kind: int) -> None:
    """Such keys are equal, and an update may have made one of the other: a row has either."""
    lake, name = write_lake(tmp_path / "lake"), TableName("public", "keyed")
    columns = (Column("k", kind, -1, key=True), Column("note", 25, -1, key=False))
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    is_array = kind in {1021, 1022}
    before, after = (([zero] if is_array else zero) for zero in (0.0, -0.0))
    ended = {"k": before, "note": "x"} | version(0x100, 0x150, "snapshot", "update")
    open_row = {"k": after, "note": "x"} | version(0x150, None, "update", None)
    write_history(lake, name, columns, [ended, open_row], positions, 9)
    found = Page(lake).json("find", table="keyed", value="x")["found"]
    texts = ("{0}", "{-0}") if is_array else ("0", "-0")
    assert [(each["key"], each["state"]) for each in found] == [([texts[0]], "deleted"), ([texts[1]], "exists")]
