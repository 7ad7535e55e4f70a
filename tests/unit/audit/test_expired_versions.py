"""Once versions have expired, and their changes have not: what is not known any more is refused or named.

    0x100  snapshot of keyed (a, b, v; key a, b): (x, 1, 1), (y, 2, 2); of items (id, v, w): 1 to 3; of emptied (id): 1
           emptied has REPLICA IDENTITY FULL
    0x150  xid 10  keyed (x, 1): v = 2                             T0 + 6 s
    0x160  xid 15  truncate emptied                                T0 + 7 s
    0x180  xid 11  items 1: v = n1; insert emptied 2               T0 + 8 s
    0x200  xid 12  keyed (x, 1) gets the key (x, 10); delete emptied 2   T0 + 10 s
    0x250  xid 13  delete items 2; insert keyed (z, 5), which gets the key (z, 6)   T0 + 12 s
    0x300  xid 14  items 1: v = n2; delete items 3; keyed (x, 10): v = 3   T0 + 30 s   watermark

Versions that ended up to 0x250 expire.
"""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import auditlake
from auditlake.erasure import retention
from auditlake.errors import NotAnswerable
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.lake.relations import RelationsLog
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.settings.retention_rules import RetentionPeriod, RetentionPeriods
from tests.command import Done, run_here
from tests.page import Page
from tests.s3_server import chosen_lake
from tests.small_lake import T0, T0_US, write_history, write_log
from tests.written_lake import written_once

KEYED, ITEMS, EMPTIED = (TableName("public", name) for name in ("keyed", "items", "emptied"))
_KEYED = (Column("a", 25, -1, key=True), Column("b", 23, -1, key=True), Column("v", 23, -1, key=False))
_ITEMS = (Column("id", 23, -1, key=True), Column("v", 25, -1, key=False), Column("w", 25, -1, key=False))
_EMPTIED = (Column("id", 23, -1, key=True),)
_SECONDS = {0x100: 0, 0x150: 6, 0x160: 7, 0x180: 8, 0x200: 10, 0x250: 12, 0x300: 30}
_XIDS = {0x150: 10, 0x160: 15, 0x180: 11, 0x200: 12, 0x250: 13, 0x300: 14}
_COUNTS = {
    0x150: (0, 1, 0, 0),
    0x160: (0, 0, 0, 1),
    0x180: (1, 1, 0, 0),
    0x200: (0, 1, 1, 0),
    0x250: (1, 1, 1, 0),
    0x300: (0, 2, 1, 0),
}


class _UpTo(RetentionPeriod):
    """A period that ended so many seconds after the beginning of the lake."""

    def before(self, _: int) -> int | None:
        return T0_US + self.days * 1_000_000


def _version(start: int, end: int | None, op: str, end_op: str | None) -> dict[str, Any]:
    at = {lsn: T0 + timedelta(seconds=seconds) for lsn, seconds in _SECONDS.items()}
    return {
        "_from_lsn": start,
        "_to_lsn": end,
        "_from_time": at[start],
        "_to_time": None if end is None else at[end],
        "_op": op,
        "_end_op": end_op,
        "_xid": _XIDS.get(start),
        "_end_xid": None if end is None else _XIDS[end],
        "_ordinal": 0,
        "_raw": None,
        "_part": "open" if end is None else "2026-11",
    }


def _keyed(a: str, b: int, v: int) -> dict[str, Any]:
    return {"a": a, "b": b, "v": v}


def _item(number: int, v: str) -> dict[str, Any]:
    return {"id": number, "v": v, "w": "w"}


def _change(  # noqa: PLR0913, PLR0917 - the columns of one row, in their order
    lsn: int, ordinal: int, op: str, relation: int, old: list[Any] | None, new: list[Any] | None
) -> dict[str, Any]:
    name = (KEYED, ITEMS, EMPTIED)[relation - 1]
    at = {"lsn": lsn, "ordinal": ordinal, "xid": _XIDS[lsn], "time": T0 + timedelta(seconds=_SECONDS[lsn])}
    return at | {"op": op, "schema": "public", "table": name.table, "relation": relation, "old": old, "new": new}


def _transaction(lsn: int, *tables: TableName) -> dict[str, Any]:
    at = T0 + timedelta(seconds=_SECONDS[lsn])
    counts = dict(zip(("inserts", "updates", "deletes", "truncates"), _COUNTS[lsn], strict=True))
    ids = {"lsn": lsn, "end_lsn": lsn + 0x20, "xid": _XIDS[lsn], "time": at, "time_mono": at}
    return {**ids, **counts, "tables": [str(table) for table in tables]}


@written_once
def _write(root: Path) -> Lake:
    lake = chosen_lake(root)
    write_manifest(lake, Manifest("1", 1, "d", "s", "p"))
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    keyed = [
        _keyed("x", 1, 1) | _version(0x100, 0x150, "snapshot", "update"),
        _keyed("y", 2, 2) | _version(0x100, None, "snapshot", None),
        _keyed("x", 1, 2) | _version(0x150, 0x200, "update", "update"),
        _keyed("x", 10, 2) | _version(0x200, 0x300, "update", "update"),
        _keyed("z", 6, 5) | _version(0x250, None, "update", None),
        _keyed("x", 10, 3) | _version(0x300, None, "update", None),
    ]
    items = [
        _item(1, "v1") | _version(0x100, 0x180, "snapshot", "update"),
        _item(2, "v2") | _version(0x100, 0x250, "snapshot", "delete"),
        _item(3, "v3") | _version(0x100, 0x300, "snapshot", "delete"),
        _item(1, "n1") | _version(0x180, 0x300, "update", "update"),
        _item(1, "n2") | _version(0x300, None, "update", None),
    ]
    write_history(lake, KEYED, _KEYED, keyed, positions, 1)
    write_history(lake, ITEMS, _ITEMS, items, positions, 2)
    emptied = [
        {"id": 1} | _version(0x100, 0x160, "snapshot", "truncate"),
        {"id": 2} | _version(0x180, 0x200, "insert", "delete"),
    ]
    write_history(lake, EMPTIED, _EMPTIED, emptied, positions, 3)
    _log(lake)
    return lake


def _log(lake: Lake) -> None:
    relations = RelationsLog(lake)
    k = relations.register(Relation(1, KEYED, ReplicaIdentity.DEFAULT, _KEYED), Lsn(0x150))
    t = relations.register(Relation(2, ITEMS, ReplicaIdentity.DEFAULT, _ITEMS), Lsn(0x180))
    e = relations.register(Relation(3, EMPTIED, ReplicaIdentity.FULL, _EMPTIED), Lsn(0x160))
    relations.flush()
    assert (k, t, e) == (1, 2, 3)
    changes = [
        _change(0x150, 0, "update", k, None, ["x", "1", "2"]),
        _change(0x160, 0, "truncate", e, None, None),
        _change(0x180, 0, "update", t, None, ["1", "n1", "w"]),
        _change(0x180, 1, "insert", e, None, ["2"]),
        _change(0x200, 1, "delete", e, ["2"], None),
        _change(0x200, 0, "update", k, ["x", "1", None], ["x", "10", "2"]),
        _change(0x250, 0, "delete", t, ["2", None, None], None),
        _change(0x250, 1, "insert", k, None, ["z", "5", "5"]),
        _change(0x250, 2, "update", k, ["z", "5", None], ["z", "6", "5"]),
        _change(0x300, 0, "update", t, None, ["1", "n2", "w"]),
        _change(0x300, 1, "delete", t, ["3", None, None], None),
        _change(0x300, 2, "update", k, None, ["x", "10", "3"]),
    ]
    tables = [(KEYED,), (EMPTIED,), (ITEMS, EMPTIED), (KEYED, EMPTIED), (ITEMS, KEYED), (ITEMS, KEYED)]
    transactions = [_transaction(lsn, *names) for lsn, names in zip(_COUNTS, tables, strict=True)]
    write_log(lake, transactions, changes, acknowledged_lsn=0x381, current_us=T0_US + 100_000_000)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The lake of this module."""
    return _write(tmp_path / "lake")


def _expire(lake: Lake, changes: RetentionPeriod = RetentionPeriod()) -> None:  # noqa: B008 - frozen
    retention.expire(lake, RetentionPeriods((("public.*", _UpTo(20)),), changes), "tests", lambda _: None)


def _ask(lake: Lake, *line: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the objects of an answer, and its notices."""
    done = run_here([*line, "--json", "--lake", lake.root])
    assert done.code == 0, done
    said = [each.removeprefix("auditlake: ") for each in done.stderr.splitlines()]
    return [json.loads(each) for each in done.stdout.splitlines()], said


def _gone(table: str, then: str) -> str:
    return f"the versions of public.{table} that ended up to 0/250 have expired: {then}"


def _refused(lake: Lake, *line: str) -> Done:
    done = run_here([*line, "--lake", lake.root])
    assert (done.code, done.stdout) == (7, ""), done
    return done


def test_log_of_a_column_begins_at_the_horizon(lake: Lake) -> None:
    """Not with a commit that changed the key alone, which has no row before it any more."""
    asked = ("log", "--table", "keyed", "--column", "v")
    assert [each["lsn"] for each in _ask(lake, *asked)[0]] == ["0/300", "0/150"]
    _expire(lake)
    found, said = _ask(lake, *asked)
    assert ([each["lsn"] for each in found], said) == (["0/300"], [_gone("keyed", "the answer starts there")])
    assert _ask(lake, *asked, "--since", "0/251")[1] == []
    for period in (("--since", "0/150"), ("--until", "0/200")):
        refused = _refused(lake, *asked, *period)
        told = "asked for the changes of public.keyed, the versions of public.keyed that ended up to 0/250 have expired"
        assert told in refused.stderr
    with pytest.raises(NotAnswerable, match="have expired"):
        auditlake.Lake(lake.root).log(table="keyed", column="v", since="0/150")


def test_log_of_a_key_depends_on_changes_alone(lake: Lake) -> None:
    """But which rows a TRUNCATE ended is only in versions."""
    asked = ("log", "--table", "emptied", "--key", "1")
    assert [each["lsn"] for each in _ask(lake, *asked)[0]] == ["0/160"]
    _expire(lake)
    told = _gone("emptied", "whether the row was there at the TRUNCATE of 0/160 is not known")
    assert _ask(lake, *asked) == ([], [told])
    assert _ask(lake, *asked, "--since", "0/180") == ([], [])
    found, said = _ask(lake, "log", "--table", "keyed", "--key", "a=x", "--key", "b=10")
    assert ([each["lsn"] for each in found], said) == (["0/300", "0/200"], [])


def test_deleted_begins_at_the_horizon(lake: Lake) -> None:
    """As it does where changes have expired."""
    assert [each["key"]["id"] for each in _ask(lake, "deleted", "items")[0]] == ["3", "2"]
    _expire(lake)
    found, said = _ask(lake, "deleted", "items")
    assert ([each["key"]["id"] for each in found], said) == (["3"], [_gone("items", "the answer starts there")])
    assert _ask(lake, "deleted", "items", "--since", "0/251")[1] == []
    assert "Ask from 0/251 on." in _refused(lake, "deleted", "items", "--since", "0/250").stderr
    rows = auditlake.Lake(lake.root).deleted("items")
    assert rows.notes == (_gone("items", "the answer starts there"),)


def test_a_row_that_got_its_key_is_not_inserted(lake: Lake) -> None:
    """Unless it was inserted in the same transaction; what it was before is not known."""
    _expire(lake)
    events, said = _ask(lake, "row", "keyed", "x", "10")
    assert [(each["op"], each["lsn"]) for each in events] == [("update", "0/300"), ("update", "0/200")]
    assert said == [_gone("keyed", "if the row had earlier ones, they are not known")]
    assert [each["op"] for each in _ask(lake, "row", "keyed", "z", "6")[0]] == ["insert"]
    assert _ask(lake, "row", "keyed", "x", "10", "--since", "0/251")[1] == []


def test_blame_names_no_commit_that_expired(lake: Lake) -> None:
    """Nor does it say that the value was there before capture."""
    _expire(lake)
    columns, said = _ask(lake, "blame", "keyed", "x", "10")
    told = {each["column"]: (each["lsn"], each["before_capture"]) for each in columns}
    assert told == {"a": (None, False), "b": (None, False), "v": ("0/300", False)}
    assert said == [_gone("keyed", "who set a, b is not known")]
    printed = run_here(["blame", "keyed", "x", "10", "--lake", lake.root]).stdout
    assert printed.count("unknown: the versions of then have expired") == 2
    columns, said = _ask(lake, "blame", "keyed", "y", "2")
    assert ({each["before_capture"] for each in columns}, said) == ({True}, [])
    assert "before capture (≤ 0/100)" in run_here(["blame", "keyed", "y", "2", "--lake", lake.root]).stdout
    assert {each["lsn"] for each in _ask(lake, "blame", "keyed", "z", "6")[0]} == {"0/250"}


def test_show_says_that_the_rows_before_have_expired(lake: Lake) -> None:
    """Its answer has what was sent, and the key is no change."""
    before, said = _ask(lake, "show", "0/180")
    assert (before[1]["changed"], said) == ({"v": {"old": "v1", "new": "n1"}}, [])
    _expire(lake)
    after, said = _ask(lake, "show", "0/180")
    assert after[1]["changed"] == {"v": {"new": "n1"}, "w": {"new": "w"}}
    assert said == [_gone("items", "what its rows were before 0/180 is not known")]
    assert _ask(lake, "show", "0/250")[1] == [
        _gone(table, "what its rows were before 0/250 is not known") for table in ("keyed", "items")
    ]
    assert _ask(lake, "show", "0/300")[1] == []


def test_show_of_a_whole_old_row_needs_no_version(lake: Lake) -> None:
    """REPLICA IDENTITY FULL sends it; but a TRUNCATE sends no row."""
    _expire(lake)
    assert _ask(lake, "show", "0/200")[1] == [_gone("keyed", "what its rows were before 0/200 is not known")]
    assert _ask(lake, "show", "0/160")[1] == [_gone("emptied", "what its rows were before 0/160 is not known")]


def test_an_answer_begins_where_both_changes_and_versions_are_known(lake: Lake) -> None:
    """No beginning was asked for, so it is not refused for the one that expired changes gave it."""
    _expire(lake, changes=_UpTo(9))
    both = ["the changes up to 0/180 have expired: the answer starts there", _gone("items", "the answer starts there")]
    found, said = _ask(lake, "deleted", "items")
    assert ([each["key"]["id"] for each in found], said) == (["3"], both)
    found, said = _ask(lake, "log", "--table", "items", "--column", "v")
    assert ([each["lsn"] for each in found], said) == (["0/300"], both)


def test_the_page_says_what_has_expired(lake: Lake) -> None:
    """Of a transaction, a row, who set its values, and rows that are searched."""
    _expire(lake)
    page, note = Page(lake), _gone("items", "what its rows were before 0/180 is not known")
    assert page.json("transaction", transaction="0/180")["notes"] == [note]
    assert page.json("transaction", transaction="0/300")["notes"] == []
    assert note in page.get("/transaction", transaction="0/180").text
    row = page.json("row", table="keyed", key=["x", "10"])
    assert row["notes"] == [
        _gone("keyed", "who set a, b is not known"),
        _gone("keyed", "if the row had earlier ones, they are not known"),
    ]
    assert "unknown: the versions of then have expired" in page.get("/row", table="keyed", key=["x", "10"]).text
    found = page.json("find", table="items", value="v2")
    assert (found["found"], found["notes"]) == ([], [_gone("items", "values that only these had are not found")])


def test_a_feed_of_a_column_says_why_it_cannot_begin(lake: Lake) -> None:
    """The table had its first snapshot long before."""
    _expire(lake)
    feed = auditlake.Lake(lake.root).changes(since="0/150", tables=["keyed"], column="v", follow=False)
    told = "changed v of public.keyed is not known: the versions that ended by then have expired"
    with pytest.raises(NotAnswerable, match=told), feed:
        list(feed)
