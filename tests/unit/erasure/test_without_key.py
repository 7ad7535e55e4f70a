"""Erasure from a table without a key: of rows by values that they had. Its other rows stay."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import auditlake
from auditlake.failpoints import After
from auditlake.lake.erasures import read_erasures
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.lake.relations import RelationsLog
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from tests.command import Done, run, run_here
from tests.erasure_lake import append_change, apply, found_in, require_sound, version, write_lake
from tests.ledger_lake import compared, found, sealed
from tests.small_lake import T0_US, write_history
from tests.written_lake import written_once

LOGINS = TableName("public", "logins")
_COLUMNS = (Column("email", 25, -1, key=False), Column("at", 25, -1, key=False), Column("amount", 1700, -1, key=False))
EVE, ANN = "eve@example.org", "ann@example.org"
ERASED = (EVE, "Tuesday secret", "Wednesday secret", "12345.75")
"""What only the rows of Eve have."""
_OF_EVE = ("logins", "--where", f"email={EVE}", "--reason", "request 9", "--by", "dpo")
_LAST = 0xC00


@written_once
def write_logins(root: Path) -> Lake:
    """Write a lake with equal rows, an insert, an update and deletes of Eve's rows, and rows of Ann."""
    lake = write_lake(root)
    rows = [(EVE, "Monday", "12345.75"), (EVE, "Monday", "12345.75"), (ANN, "Monday", None), (None, "Monday", None)]
    names = [column.name for column in _COLUMNS]
    copied = [version() | dict(zip(names, row, strict=True)) | {"_ordinal": n} for n, row in enumerate(rows)]
    write_history(
        lake, LOGINS, _COLUMNS, copied, {HISTORY_APP: 0x600, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}, 3
    )
    relations = RelationsLog(lake)
    relations.register(Relation(3, LOGINS, ReplicaIdentity.FULL, _COLUMNS), Lsn(0x700))
    relations.flush()
    for lsn, (op, old, new) in zip(range(0x700, _LAST + 1, 0x100), _changes(), strict=True):
        _append(lake, lsn, op, old, new)
    apply(lake)
    return lake


def _changes() -> Iterator[tuple[str, list[str | None] | None, list[str | None] | None]]:
    yield "insert", None, [EVE, "Tuesday secret", None]
    yield "update", [EVE, "Tuesday secret", None], [EVE, "Wednesday secret", None]
    yield "delete", [EVE, "Monday", "12345.75"], None
    yield "update", [ANN, "Monday", None], [ANN, "Friday", None]
    yield "delete", [EVE, "Monday", "12345.75"], None
    yield "delete", [EVE, "Wednesday secret", None], None


def _append(lake: Lake, lsn: int, op: str, old: Any, new: Any) -> None:
    about = {"schema": "public", "table": "logins", "relation": 3}
    append_change(lake, lsn, {**about, "op": op, "old": old, "new": new})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The lake before any erasure."""
    return write_logins(tmp_path / "lake")


def _forget(lake: Lake, *arguments: str) -> Done:
    return run_here(["forget", *arguments, "--lake", lake.root])


def _states(lake: Lake) -> list[list[dict[str, Any]]]:
    opened = auditlake.Lake(lake.root)
    moments = (opened.as_of(f"lsn:{lsn}") for lsn in range(0x600, _LAST + 1, 0x100))
    return [sorted(moment.table("public.logins").texts(), key=str) for moment in moments]


def test_all_rows_with_the_values_are_gone_from_every_byte(lake: Lake) -> None:
    """Copies, versions and changes; every other row is as before at every moment."""
    before = _states(lake)
    assert set().union(*found_in(lake, ERASED).values()) == set(ERASED)
    done = _forget(lake, *_OF_EVE)
    assert (done.code, "4 versions, 5 changes" in done.stderr) == (0, True), done.stderr
    assert found_in(lake, ERASED) == {}
    assert _states(lake) == [[row for row in rows if row["email"] != EVE] for rows in before]
    require_sound(lake)
    assert read_erasures(lake)[0].what == "the rows with one email of public.logins"


def test_its_digest_still_fits(lake: Lake) -> None:
    """And nothing is reported."""
    digest = sealed(lake)
    assert _forget(lake, *_OF_EVE).code == 0
    assert found(compared(lake, digest, sealed(lake))) == []
    assert found_in(lake, ERASED) == {}


def test_a_killed_erasure_is_finished(lake: Lake) -> None:
    """Within the log; `tests/release` has the other steps."""
    kill_erasure(lake, f"{After.VALUES_ERASED}:2")


def kill_erasure(lake: Lake, step: str) -> None:
    """From its record, which has a token in place of the values."""
    assert run(["forget", *_OF_EVE, "--lake", str(lake.root)], {"AUDITLAKE_FAILPOINT": step}).code == -9
    assert EVE not in (lake.erasures / "000000.json").read_text()
    assert _forget(lake, "--resume").code == 0
    assert found_in(lake, ERASED) == {}
    require_sound(lake)


def test_several_values_name_fewer_rows(lake: Lake) -> None:
    """In any order; Tuesday's row became Wednesday's, so it is named by the address."""
    arguments = ("--where", "at=Monday", "--where", f"email={EVE}", "--reason", "request 9")
    done = _forget(lake, "logins", *arguments)
    assert (done.code, "2 versions, 2 changes" in done.stderr) == (0, True), done.stderr
    left = found_in(lake, ERASED)
    assert set().union(*left.values()) == {EVE, "Tuesday secret", "Wednesday secret"}


def test_that_equal_values_may_have_another_text_is_said(lake: Lake) -> None:
    """Such rows are not among those that are found."""
    amount = ("logins", "--where", "amount=12345.75", "--where", f"email={EVE}", "--reason", "request 9", "--dry-run")
    assert "equal values can have another text (amount of numeric)" in _forget(lake, *amount).stderr
    assert "another text" not in _forget(lake, *_OF_EVE, "--dry-run").stderr


@pytest.mark.parametrize("is_applied", [True, False])
def test_rows_that_come_back_are_shown(lake: Lake, *, is_applied: bool) -> None:
    """By the values."""
    assert _forget(lake, *_OF_EVE).code == 0
    assert _forget(lake, "--returned").code == 0
    _append(lake, 0xD00, "insert", None, [EVE, "Sunday", None])
    if is_applied:
        apply(lake)
    done = _forget(lake, "--returned", "--json")
    (shown,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.code, shown["table"], shown["key"], shown["since"]) == (3, "public.logins", [EVE], "0/D00")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("logins", "Eve"), 2, "public.logins has no key\n"),
        (("logins", "Eve", "--where", f"email={EVE}"), 2, "public.logins has no key\n"),
        (("logins", "--where", "email"), 2, "--where COLUMN=VALUE"),
        (("logins", "--where", "nothing=1"), 2, "has no column nothing"),
        (("logins", "--where", "amount=many"), 2, "is not a valid numeric"),
        (("logins", "--where", f"email={EVE}", "--where", "email=other"), 2, "has a column of public.logins twice"),
        (("logins", "--where", "email=nobody@example.org"), 7, "no row of public.logins ever had these values"),
        (("logins", "--where", f"email={ANN}"), 7, "PostgreSQL still has the row of public.logins"),
        (("logins", "--where", "at=Tuesday secret"), 3, "the update at 0/800 changed at of a row of public.logins"),
        (
            ("logins", "--where", f"email={EVE}", "--columns", "at"),
            3,
            "rows that differ in at alone would become equal",
        ),
        (("people", "--where", "name=Eve"), 2, "public.people has a key: id"),
        (("people", "2", "--where", "name=Eve"), 2, "public.people has a key: id"),
    ],
)
def test_refusals_come_before_any_effect(lake: Lake, arguments: tuple[str, ...], code: int, message: str) -> None:
    """No file of the lake changes, but for the secret of tokens."""
    done = _forget(lake, *arguments, "--reason", "request 9")
    assert (done.code, message in done.stderr) == (code, True), done.stderr
    assert found_in(lake, ERASED) != {}
    assert not lake.erasures.exists()


def test_an_added_column_is_refused_before_it_is_applied(lake: Lake) -> None:
    """For what it is: older rows have no value of their own in it."""
    relations = RelationsLog(lake)
    added = (*_COLUMNS, Column("device", 25, -1, key=False))
    number = relations.register(Relation(3, LOGINS, ReplicaIdentity.FULL, added), Lsn(0xD00))
    relations.flush()
    change = {"schema": "public", "table": "logins", "relation": number, "op": "insert", "old": None}
    append_change(lake, 0xD00, {**change, "new": [ANN, "Sunday", None, "telephone"]})
    done = _forget(lake, "logins", "--where", "device=telephone", "--reason", "request 9")
    assert (done.code, "device of public.logins was added" in done.stderr) == (3, True), done.stderr


def test_changes_that_are_not_applied_refuse(lake: Lake) -> None:
    """Their rows are in no version yet."""
    _append(lake, 0xD00, "insert", None, [EVE, "Sunday", None])
    done = _forget(lake, *_OF_EVE)
    assert (done.code, "are not applied yet" in done.stderr) == (7, True), done.stderr
