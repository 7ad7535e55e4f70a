"""Erasure on a disk: no byte of the values stays, other answers are the same, kills are finished."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

import auditlake
from auditlake.erasure import forget as erasing
from auditlake.erasure.retention import expire
from auditlake.failpoints import After
from auditlake.feed import feed
from auditlake.lake.erasures import require_erased_log
from auditlake.lake.history import set_columns
from auditlake.lake.holds import holds_in_force
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Cause, Parked, park
from auditlake.lake.relations import RelationsLog
from auditlake.lsn import Lsn
from auditlake.relation import Column, Former, Relation, ReplicaIdentity
from auditlake.settings.retention_rules import RetentionPeriods
from tests import oracle
from tests.command import Done, run, run_here
from tests.erasure_lake import (
    OF_ONE,
    OF_TWO,
    ONE,
    OTHERS,
    PEOPLE,
    PEOPLE_COLUMNS,
    TWO,
    append_change,
    apply,
    columns_gone,
    found_in,
    kill_and_finish,
    require_sound,
    states,
    without,
    write_lake,
)
from tests.expiry import AT_ONCE
from tests.page import Page
from tests.read_lake import history_of
from tests.s3_server import versions

_REASON = ("--reason", "request 7")
_RENAMED = (Former(Lsn(0x580), "name", key=False),)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The lake before any erasure."""
    return write_lake(tmp_path / "lake")


def _forget(lake: Lake, *arguments: str) -> Done:
    return run_here(["forget", *arguments, "--lake", lake.root])


def test_a_page_of_the_past_shows_nothing_that_was_erased(lake: Lake) -> None:
    """Also a server that is asked for moments which it knows alone: it keeps answers of what it has read."""
    page = Page(lake)
    asked = {"table": "people", "at": "0/100"}
    assert "Zacharias Beispiel" in page.get("/api/v1/rows", **asked).text
    assert _forget(lake, *OF_TWO).code == 0
    page.resources._latest.read_at = 0.0  # noqa: SLF001 - as a second later
    rows = page.get("/api/v1/rows", **asked)
    assert rows.status_code == 200
    assert "Zacharias Beispiel" not in rows.text


def test_the_search_finds_every_value_before(lake: Lake) -> None:
    """In every kind of place: the log's bounds, rows that are marked as deleted, changes, contexts, and cells."""
    found = found_in(lake, (*ONE, *TWO, *OTHERS))
    assert set().union(*found.values()) == {*ONE, *TWO, *OTHERS}
    places = {name.rpartition("/")[0] for name in found}
    assert {"changes", "transactions", "history/public/people/_delta_log"} <= places
    assert any(name.startswith("history/public/people/_part=") for name in found)
    assert list((lake.root / "history/public/people").rglob("deletion_vector_*"))


def test_changes_of_an_earlier_source_are_erased(lake: Lake) -> None:
    """There the table had another OID."""
    table = history_of(lake, PEOPLE)
    moved = replace(table, oid=table.oid + 1, former_oids=((Lsn(1 << 40), table.oid),))
    set_columns(moved, table.columns, table.names)
    assert _forget(lake, *OF_ONE).code == 0
    assert found_in(lake, ONE) == {}


def test_columns_of_a_row_are_gone_from_every_byte(lake: Lake) -> None:
    """The row stays, under both keys that it had; what PostgreSQL has now stays, and all that others have."""
    before = states(lake)
    assert _forget(lake, *OF_ONE).code == 0
    assert found_in(lake, ONE) == {}
    assert states(lake) == without(before, columns_gone)
    assert set().union(*found_in(lake, (*TWO, *OTHERS)).values()) == {*TWO, *OTHERS}
    require_sound(lake)


def test_a_value_that_moved_to_another_erased_column_is_gone_from_where_it_was(lake: Lake) -> None:
    """PostgreSQL has it in the other one only."""
    old, new = (["3", name, email, None, None, "Jena"] for name, email in (OTHERS[2:0:-1], ("(gone)", OTHERS[2])))
    append_change(lake, 0x700, {"op": "update", "relation": 1, "old": old, "new": new})
    apply(lake)
    assert _forget(lake, "people", "3", "--columns", "name,email", *_REASON).code == 0
    (change,) = [row for row in oracle.changes(lake) if row["lsn"] == 0x700]
    assert (change["old"], change["new"]) == (["3", *[None] * 4, "Jena"], new)


def test_what_postgresql_has_stays_in_all_changes_of_its_commit_under_any_type(lake: Lake) -> None:
    """In a column that was renamed, then rewritten: its history has the older values under a name that sorts later."""
    rewritten, table = Lsn(0x600), history_of(lake, PEOPLE)
    older = replace(table.columns[1], name="alias", stored_as="name", until=rewritten, former=_RENAMED)
    newer = Column("alias", older.type_oid, -1, key=False, since=rewritten)
    set_columns(table, [table.columns[0], older, *table.columns[2:], newer], table.names)
    columns = (PEOPLE_COLUMNS[0], newer, *PEOPLE_COLUMNS[2:])
    relations = RelationsLog(lake)
    number = relations.register(Relation(1, PEOPLE, ReplicaIdentity.DEFAULT, columns), Lsn(0x700))
    relations.flush()
    first, last = (
        ["3", alias, "3@example.org", None, None, city] for alias, city in (("Gundula Neu", "Ulm"), (None, "Bonn"))
    )
    append_change(
        lake,
        0x700,
        {"op": "update", "relation": number, "new": first},
        {"op": "update", "relation": number, "new": last, "unchanged": [1]},
    )
    apply(lake)
    assert _forget(lake, "people", "3", "--columns", "alias", *_REASON).code == 0
    assert found_in(lake, ("Gundula Andere", "Gundula Verheiratet")) == {}
    assert [row["new"] for row in oracle.changes(lake) if row["lsn"] == 0x700] == [first, last]


def test_a_deleted_row_is_gone_from_every_byte(lake: Lake) -> None:
    """Also its versions; the other rows of its files stay."""
    before = states(lake)
    assert _forget(lake, *OF_TWO).code == 0
    assert found_in(lake, TWO) == {}
    assert states(lake) == without(before, lambda row: row if row["id"] != "2" else None)
    assert set().union(*found_in(lake, (*ONE, *OTHERS)).values()) == {*ONE, *OTHERS}
    require_sound(lake)
    assert "no row of public.people had this key" in run_here(["row", "people", "2", "--lake", lake.root]).stderr


def test_a_backup_has_nothing_of_what_was_erased_before(lake: Lake, tmp_path: Path) -> None:
    """Although it goes on from an earlier one that has it, and nothing was captured since."""
    folder, restored = tmp_path / "backups", Lake(tmp_path / "restored")
    assert run_here(["backup", folder, "--lake", lake.root]).code == 0
    assert _forget(lake, *OF_ONE).code == 0
    assert run_here(["backup", folder, "--lake", lake.root]).code == 0
    assert run_here(["restore", folder, "--lake", restored.root]).code == 0
    assert found_in(restored, ONE) == {}
    require_erased_log(restored)


def test_a_restored_backup_of_before_says_that_it_has_no_later_erasures(lake: Lake, tmp_path: Path) -> None:
    """It has the values again, and neither a record of the erasure nor a hold, so nothing else could say it."""
    folder, restored = tmp_path / "backups", Lake(tmp_path / "restored")
    assert run_here(["backup", folder, "--lake", lake.root]).code == 0
    hold = ["hold", "add", "case-17", "--table", "notes", "--reason", "court", "--lake"]
    assert run_here([*hold, lake.root]).code == 0
    assert _forget(lake, *OF_ONE).code == 0
    done = run_here(["restore", folder, "--lake", restored.root])
    assert done.code == 0, done.stderr
    assert (found_in(restored, ONE) == {}, holds_in_force(restored)) == (False, [])
    (place,) = (folder / "00000001").glob("backup.json")
    assert f"holds and erasures after {json.loads(place.read_text())['taken']} are not in it" in done.stderr


def test_contexts_lose_the_value_and_keep_the_rest(lake: Lake) -> None:
    """Both in `transactions` and in the message in `changes`."""
    assert _forget(lake, *OF_ONE).code == 0
    (found,) = [each for each in auditlake.Lake(lake.root).log() if each.lsn == 0x200]
    assert (found.actor, found.reason) == ("[erased]", "my address")


@pytest.mark.parametrize("most_bytes", [1 << 20, 0])
def test_a_feed_leaves_out_what_was_erased(
    lake: Lake, most_bytes: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All other transactions and changes are delivered, whether a transaction is read at once or in parts."""
    monkeypatch.setattr(feed, "_MOST_BYTES", most_bytes)

    def delivered() -> dict[int, list[tuple[int, str, str]]]:
        found = auditlake.Lake(lake.root).changes("0/200", follow=False)
        return {each.lsn: [(one.ordinal, one.op, str(one.table)) for one in each.changes] for each in found}

    before = delivered()
    assert before[0x500] == [(0, "delete", "public.people")]
    assert _forget(lake, *OF_TWO).code == 0
    capsys.readouterr()
    assert delivered() == before | {0x500: []}
    assert "erased: changes of transaction 0/500, which are left out" in capsys.readouterr().err
    for each in auditlake.Lake(lake.root).changes("0/200", follow=False):
        assert list(each.changes) == list(each.changes)
    assert capsys.readouterr().err.count("erased: changes of transaction 0/500") == 1


@pytest.mark.parametrize(
    ("folder", "of_row", "value"), [("changes", OF_ONE, b"Jena"), ("history/public/people", OF_TWO, b"Zacharias")]
)
def test_a_damaged_file_is_not_written_anew(lake: Lake, folder: str, of_row: tuple[str, ...], value: bytes) -> None:
    """Its rows can be read, and the checksum of a new file would hide what was changed."""
    named = [file for file in (lake.root / folder).rglob("part*.parquet") if value in file.read_bytes()]
    changed = value[:-1] + b"?"
    for file in named:
        file.write_bytes(file.read_bytes().replace(value, changed))
    done = _forget(lake, *of_row)
    assert (done.code, any(f"{file} is damaged: CRC-32" in done.stderr for file in named)) == (6, True), done
    assert all(changed in file.read_bytes() for file in named)


def test_what_is_recorded_has_no_key_and_no_value(lake: Lake) -> None:
    """Who, when, why, and tokens."""
    assert _forget(lake, *OF_TWO).code == 0
    record = json.loads((lake.erasures / "000000.json").read_text())
    assert (record["by"], record["reason"], record["table"], len(record["tokens"])) == ("dpo", "request 7", "people", 1)
    assert set(json.loads((lake.erasures / "000000.done.json").read_text())) == {"number", "time_us"}


def test_the_page_says_what_was_erased(lake: Lake) -> None:
    """Of each answer, although the process reports it once."""
    assert _forget(lake, *OF_ONE).code == 0
    page = Page(lake)
    for _ in range(2):
        (note,) = page.json("row", table="people", key="1")["notes"]
        assert note.startswith("erased: name")


def test_erasures_are_shown_as_json(lake: Lake) -> None:
    """One object a line, with how much was erased; nothing for an erasure that is refused."""
    about = {"table": "public.people", "reason": "request 7", "by": "dpo", "keys": 1, "versions": 1, "changes": 1}
    for option in (["--dry-run"], []):
        shown = json.loads(_forget(lake, *OF_TWO, "--json", *option).stdout)
        assert shown.pop("since").startswith("20")
        assert shown == about | {"columns": None}
    assert _forget(lake, *OF_TWO, "--json").stdout == ""
    assert _forget(lake, "--resume", "--json").stdout == ""


@pytest.mark.parametrize("step", [f"{After.VALUES_ERASED}:2", After.LOG_CHECKPOINTED])
def test_a_killed_erasure_is_reported_and_finished(lake: Lake, step: str) -> None:
    """After these steps; tests/release has every step."""
    kill_and_finish(lake, step)


def test_an_erasure_that_a_full_disk_ended_names_the_command_that_continues(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command is refused as long as it is unfinished."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "part.parquet")

    with monkeypatch.context() as patched:
        patched.setattr(erasing, "erase", full)
        done = _forget(lake, *OF_TWO)
    assert (done.code, "hint: Free space there, then run auditlake forget --resume: it" in done.stderr) == (6, True)
    assert _forget(lake, *OF_TWO).code == 3
    assert _forget(lake, "--resume").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nothing", "1", *_REASON), 2, "there is no table nothing"),
        (("people", "99", *_REASON), 7, "no row of public.people ever had this key"),
        (("people", "2"), 2, "needs a table, a key and --reason"),
        (("people", "2", "--reason", " "), 2, "the reason is missing"),
        (("people", "x", *_REASON), 2, "is not a valid integer"),
        (("people", "2", "--columns", "nothing", *_REASON), 2, "has no column nothing"),
        (("people", "2", "--columns", "id", *_REASON), 2, "id is part of the key"),
        (("people", "11", *_REASON), 7, "PostgreSQL still has the row of public.people"),
        (("people", "3", "--columns", "email", *_REASON), 7, "PostgreSQL still has the value of email"),
        (("people", "2", "--resume"), 2, "takes no table"),
    ],
)
def test_refusals_come_before_any_effect(lake: Lake, arguments: tuple[str, ...], code: int, message: str) -> None:
    """No file of the lake changes, but for the secret of tokens."""
    before = {path: path.read_bytes() for path in lake.root.rglob("*") if path.is_file()}
    done = _forget(lake, *arguments)
    assert (done.code, message in done.stderr) == (code, True), done.stderr
    after = {path: path.read_bytes() for path in lake.root.rglob("*") if path.is_file() and path != lake.token_key}
    assert after == before


def test_columns_of_a_row_without_a_past_are_refused(lake: Lake) -> None:
    """One that was only inserted, also once that change has expired: PostgreSQL has all that there is."""
    append_change(lake, 0x700, {"relation": 1, "new": ["5", "Emil Einmalig", None, None, None, "Bern"]})
    apply(lake)
    for _ in range(2):
        done = _forget(lake, "people", "5", "--columns", "name", *_REASON)
        assert (done.code, "nothing of this row of public.people but what" in done.stderr) == (7, True), done.stderr
        expire(lake, RetentionPeriods(changes=AT_ONCE), "tests", lambda _: None)
    assert oracle.changes(lake) == []


@pytest.mark.crash
def test_a_row_that_returns_before_a_killed_erasure_is_finished_stays(lake: Lake) -> None:
    """PostgreSQL has it, under the same key."""
    killed = run(["forget", *OF_TWO, "--lake", str(lake.root)], {"AUDITLAKE_FAILPOINT": After.ERASURE_BEGUN})
    assert killed.code == -9
    append_change(lake, 0x700, {"relation": 1, "new": ["2", "Zoe Neu", None, None, None, "Bern"]})
    apply(lake)
    assert _forget(lake, "--resume").code == 0
    assert found_in(lake, TWO) == {}
    rows = auditlake.Lake(lake.root).as_of("lsn:1792").table("public.people").texts()
    assert [row["name"] for row in rows if row["id"] == "2"] == ["Zoe Neu"]


@pytest.mark.crash
def test_what_postgresql_had_stays_if_the_table_is_dropped_before_a_killed_erasure_is_finished(lake: Lake) -> None:
    """Its record has what goes; the rest takes another erasure."""
    before = states(lake)
    killed = run(["forget", *OF_ONE, "--lake", str(lake.root)], {"AUDITLAKE_FAILPOINT": After.ERASURE_BEGUN})
    assert killed.code == -9
    park(lake, Parked(PEOPLE, Cause.DDL, Lsn(0x600), Lsn(0x700), "it was dropped", "", ended=True))
    assert _forget(lake, "--resume").code == 0
    assert states(lake) == without(before, columns_gone)
    assert _forget(lake, *OF_ONE).code == 0
    (erased,) = [row for row in states(lake)[0x600, "people"] if row["id"] == "11"]
    assert (erased["name"], erased["city"]) == (None, "Jena")


def test_a_held_row_is_not_erased(lake: Lake) -> None:
    """By a hold of the row, under another of its keys, or of the table; others are."""
    hold: list[str | Path] = ["hold", "add", "case", "--table", "people", "--reason", "court", "--lake", lake.root]
    assert run_here([*hold, "--key", "1"]).code == 0
    refused = _forget(lake, *OF_ONE)
    assert (refused.code, "is held by case since" in refused.stderr) == (3, True)
    assert found_in(lake, ONE) != {}
    assert _forget(lake, *OF_TWO).code == 0


def test_changes_that_are_not_applied_refuse(lake: Lake) -> None:
    """The history would lack what the change refers to."""
    row = {"op": "insert", "relation": 1, "new": ["2", "Zacharias Beispiel", *[None] * 4]}
    append_change(lake, 0x700, row)
    assert "are not applied yet" in _forget(lake, *OF_TWO).stderr
    apply(lake)
    assert "PostgreSQL still has the row" in _forget(lake, *OF_TWO).stderr


def test_a_dry_run_changes_nothing(lake: Lake) -> None:
    """It says what would be erased."""
    before = versions(lake.root)
    done = _forget(lake, *OF_ONE, "--dry-run")
    assert versions(lake.root) == before
    assert (done.code, "would erase name, email, born, score of one row of public.people" in done.stderr) == (0, True)
    assert "3 versions, 3 changes, 2 keys" in done.stderr
    assert not lake.erasures.exists()


def test_a_lake_goes_on_after_an_erasure(lake: Lake) -> None:
    """Capture appends, apply folds, and the next erasure finds nothing left."""
    before = states(lake)
    assert _forget(lake, *OF_ONE).code == 0
    append_change(lake, 0x700, {"op": "insert", "relation": 1, "new": ["5", "Neu", *[None] * 4]})
    apply(lake)
    table = history_of(lake, PEOPLE)
    assert table.position == 0x700
    assert states(lake) == without(before, columns_gone)
    now = auditlake.Lake(lake.root).as_of().table("people").texts()
    assert [row["name"] for row in now if row["id"] == "5"] == ["Neu"]
    require_sound(lake)


@pytest.mark.parametrize(
    ("question", "is_told"),
    [
        (["row", "people", "11"], True),
        (["show", "0/300"], True),
        (["show", "0/600"], False),
        (["sql", "--as-of", "lsn:768", "select count(*) from people"], True),
        (["sql", "select count(*) from people"], False),
        (["sql", "--as-of", "lsn:768", "select count(*) from notes"], False),
        (["diff", "0/200", "0/600"], True),
    ],
)
def test_answers_that_had_the_values_say_so(lake: Lake, question: list[str], is_told: bool) -> None:  # noqa: FBT001
    """And no other."""
    assert _forget(lake, *OF_ONE).code == 0
    done = run_here([*question, "--lake", lake.root])
    assert (done.code, "erased: name, email, born, score of one row" in done.stderr) == (0, is_told), done.stderr
