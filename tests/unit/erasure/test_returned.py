"""Rows that were erased and come back, in `changes`, in a history, or in both."""

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from auditlake.capture.preconditions import CaptureSource, Claimer
from auditlake.cli.commands.source import _report_returned
from auditlake.config import load_settings
from auditlake.delta.log_reader import list_newest
from auditlake.delta.log_writer import put_commit
from auditlake.erasure import returned
from auditlake.errors import LakeUnusable
from auditlake.lake.erasures import (
    ReturnedRow,
    read_erasures,
    read_returned,
    record_returned,
    require_erased_log,
)
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.lsn import Lsn
from tests.command import Done, run_here
from tests.erasure_lake import OF_ONE, OF_TWO, ONE, PEOPLE, TWO, append_change, apply, found_in, write_lake
from tests.s3_server import on_disk


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake in which person 2 was erased, and values of person 1."""
    lake = write_lake(tmp_path / "lake")
    for erasure in (OF_TWO, OF_ONE):
        assert run_here(["forget", *erasure, "--lake", lake.root]).code == 0
    return lake


def _returned(lake: Lake, *options: str) -> Done:
    return run_here(["forget", "--returned", *options, "--lake", lake.root])


def _come_back(lake: Lake, lsn: int, key: str = "2") -> None:
    row = {"op": "insert", "relation": 1, "new": [key, "Zacharias Beispiel", *[None] * 4]}
    append_change(lake, lsn, row)


def test_nothing_has_come_back_after_an_erasure(lake: Lake) -> None:
    """Nor is another row, or one whose columns were erased, taken for it."""
    _come_back(lake, 0x700, "22")
    row = {"op": "update", "relation": 1, "new": ["11", "(gone)", None, None, None, "Gera"]}
    append_change(lake, 0x800, row)
    apply(lake)
    done = _returned(lake)
    assert (done.code, done.stdout) == (0, "")
    assert "no erased row is in the lake again" in done.stderr


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_row_that_comes_back_is_shown(lake: Lake, *, is_applied: bool) -> None:
    """Once, with its key, on stdout only, whether its change is applied or not."""
    _come_back(lake, 0x700)
    if is_applied:
        apply(lake)
    done = _returned(lake, "--json")
    assert done.code == 3
    (shown,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (shown["table"], shown["key"], shown["since"], shown["by"]) == ("public.people", ["2"], "0/700", "dpo")
    assert "1 erased rows are in the lake again" in done.stderr


def test_a_version_without_a_change_is_shown(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new snapshot writes it."""
    _come_back(lake, 0x700)
    apply(lake)
    monkeypatch.setattr(returned, "_changed", lambda *_: ())
    assert _returned(lake).stdout == "public.people 2  since 0/700\n"


def test_a_key_with_control_characters_is_shown_escaped(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It imitates no other line, and moves no cursor."""
    erasure, key = read_erasures(lake)[0], "a\x1b[2J\nb\x9b"
    monkeypatch.setattr(returned, "find_returned", lambda *_: [returned.Returned(erasure, (key,), "", Lsn(0x700))])
    assert _returned(lake).stdout == "public.people a\\u001b[2J\\nb\\u009b  since 0/700\n"
    printed = _returned(lake, "--json").stdout.removesuffix("\n")
    assert printed.isprintable()
    assert json.loads(printed)["key"] == [key]


def test_a_row_that_came_and_went_is_shown_until_it_is_erased_again(lake: Lake) -> None:
    """Its versions and changes have the values; `maintain` reports it without the key."""
    _come_back(lake, 0x700)
    append_change(lake, 0x800, {"op": "delete", "relation": 1, "old": ["2", *[None] * 5]})
    apply(lake)
    said = run_here(["maintain", "--engine", "duckdb", "--lake", lake.root]).stderr
    assert "public.people has a row again, since 0/700, with a key that was erased at" in said
    assert "Zacharias" not in said
    assert _returned(lake).stdout == "public.people 2  since 0/700\n"
    assert run_here(["forget", *OF_TWO, "--lake", lake.root]).code == 0
    assert _returned(lake).code == 0


def _status(lake: Lake) -> dict[str, Any]:
    done = run_here(["status", "--json", "--lake", lake.root])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@on_disk("its files are copied one by one")
def test_a_history_that_was_put_back_is_an_error_until_all_is_erased_again(tmp_path: Path) -> None:
    """It has what was erased, under the positions that the lake had then."""
    lake = write_lake(tmp_path / "lake")
    history = lake.history(PEOPLE)
    shutil.copytree(history, tmp_path / "kept")
    assert [run_here(["forget", *each, "--lake", lake.root]).code for each in (OF_TWO, OF_ONE)] == [0, 0]
    assert _returned(lake).code == 0
    shutil.rmtree(history)
    shutil.copytree(tmp_path / "kept", history)
    done = _returned(lake)
    assert (done.code, "was put back: it is from before the erasure of one row" in done.stderr) == (6, True), (
        done.stderr
    )
    assert done.stderr.count(" by dpo") == 2
    assert run_here(["forget", *OF_ONE, "--lake", lake.root]).code == 0
    done = _returned(lake)
    assert (done.code, "the erasure of one row of public.people" in done.stderr) == (6, True), done.stderr
    assert (done.stderr.count(" by dpo"), {*found_in(lake, ONE)}) == (1, set())
    assert run_here(["forget", *OF_TWO, "--lake", lake.root]).code == 0
    assert (_returned(lake).code, found_in(lake, (*ONE, *TWO))) == (0, {})


def test_status_shows_what_the_last_search_found(lake: Lake) -> None:
    """Without the key; null before the first search; no more once the row is erased again."""
    assert _status(lake)["returned_rows"] is None
    _come_back(lake, 0x700)
    append_change(lake, 0x800, {"op": "delete", "relation": 1, "old": ["2", *[None] * 5]})
    apply(lake)
    assert run_here(["maintain", "--engine", "duckdb", "--lake", lake.root]).code == 0
    (shown,) = _status(lake)["returned_rows"]
    assert (shown["table"], shown["returned_at"], shown["by"]) == ("public.people", "0/700", "dpo")
    assert run_here(["forget", *OF_TWO, "--lake", lake.root]).code == 0
    assert _status(lake)["returned_rows"] == []


def test_a_row_is_there_again_until_its_key_is_erased(lake: Lake) -> None:
    """Not only columns of it, and a key that another row had."""
    first, second = read_erasures(lake)
    later = replace(second, tokens=first.tokens, replaced_keys=("another",), upto_lsn=0x900)
    record_returned(lake, [ReturnedRow(first.number, first.tokens[0], 0x700)])
    assert read_returned(lake, [first, later]) == [(first, Lsn(0x700))]
    assert read_returned(lake, [first, replace(later, replaced_keys=first.tokens)]) == []


def test_check_reports_what_is_in_the_lake_now(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether anything searched before or not; nothing in a folder without a lake."""
    _come_back(lake, 0x700)
    _report_returned(load_settings(lake=str(lake.root)))
    assert "public.people has a row again, since 0/700" in capsys.readouterr().err
    assert not lake.returned_rows.exists()
    _report_returned(load_settings(lake=str(lake.root / "nothing")))
    assert capsys.readouterr().err == ""


def test_a_record_that_cannot_be_read_is_an_error(lake: Lake) -> None:
    """An erasure that it does not know is not silently left out."""
    lake.returned_rows.write_text('[{"erasure": 99, "token": "x", "lsn": 7}]')
    done = run_here(["status", "--lake", lake.root])
    assert (done.code, "returned.json lacks an entry" in done.stderr) == (6, True)


def test_without_the_secret_of_tokens_nothing_is_recognized(lake: Lake) -> None:
    """That is an error, not an empty list."""
    lake.token_key.unlink()
    assert _returned(lake).code == 6
    maintained = run_here(["maintain", "--engine", "duckdb", "--lake", lake.root])
    assert (maintained.code, "erased rows are not looked for" in maintained.stderr) == (0, True)


@on_disk("its files are copied one by one")
@pytest.mark.parametrize("name", ["changes", "transactions"])
def test_a_log_that_was_put_back_is_an_error(tmp_path: Path, name: str) -> None:
    """Also of the same positions and Delta version; every command that looks for it says whose values it has."""
    lake = write_lake(tmp_path / "lake")
    place = lake.root / name
    shutil.copytree(place, tmp_path / "kept")
    assert [run_here(["forget", *each, "--lake", lake.root]).code for each in (OF_TWO, OF_ONE)] == [0, 0]
    require_erased_log(lake)
    newest = list_newest(place).newest
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "kept", place)
    while list_newest(place).newest < newest:
        put_commit(place, list_newest(place).newest + 1, "WRITE", [])
    for command in (["forget", "--returned"], ["verify", "--no-source"]):
        done = run_here([*command, "--lake", lake.root])
        assert (done.code, f"{place} was put back: it is from before the erasure of one row" in done.stderr) == (
            6,
            True,
        )
        assert done.stderr.count(" by dpo") == 2
    source = CaptureSource("host=nowhere.invalid", require_manifest(lake))
    with pytest.raises(LakeUnusable, match=f"{name} was put back"):
        Claimer(source, lake, threading.Event(), print, None).claim()


@on_disk("its files are copied one by one")
def test_changes_from_between_two_erasures_of_a_row_are_an_error(tmp_path: Path) -> None:
    """The first one was made in them, and had nothing of what the row was afterwards."""
    lake = write_lake(tmp_path / "lake")
    assert run_here(["forget", *OF_TWO, "--lake", lake.root]).code == 0
    append_change(lake, 0x700, {"relation": 1, "new": ["2", "Zoe Neu", *[None] * 4]})
    append_change(lake, 0x800, {"op": "delete", "relation": 1, "old": ["2", *[None] * 5]})
    apply(lake)
    shutil.copytree(lake.changes, tmp_path / "kept")
    assert run_here(["forget", *OF_TWO, "--lake", lake.root]).code == 0
    require_erased_log(lake)
    shutil.rmtree(lake.changes)
    shutil.copytree(tmp_path / "kept", lake.changes)
    with pytest.raises(LakeUnusable, match=r"changes was put back: it is from before the erasure of one row"):
        require_erased_log(lake)


@on_disk("its files are copied one by one")
def test_a_log_that_was_put_back_is_in_order_once_all_is_erased_again(tmp_path: Path) -> None:
    """By another erasure each, of the same or more."""
    lake = write_lake(tmp_path / "lake")
    shutil.copytree(lake.root, tmp_path / "kept")
    assert [run_here(["forget", *each, "--lake", lake.root]).code for each in (OF_TWO, OF_ONE)] == [0, 0]
    for name in ("changes", "transactions", "history"):
        shutil.rmtree(lake.root / name)
        shutil.copytree(tmp_path / "kept" / name, lake.root / name)
    assert run_here(["forget", *OF_ONE, "--lake", lake.root]).code == 0
    with pytest.raises(LakeUnusable, match=r"the erasure of one row of public\.people, by dpo$"):
        require_erased_log(lake)
    assert run_here(["forget", *OF_TWO, "--lake", lake.root]).code == 0
    require_erased_log(lake)
    assert found_in(lake, (*ONE, *TWO)) == {}
